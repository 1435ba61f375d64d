/* SPDX-License-Identifier: Apache-2.0
 * Demand of an item: the roofline's bytes and operations. */
#include "core/round/work.h"

#include <math.h>

static void matrix(const struct atsi_work *w, double tokens, struct atsi_demand *out)
{
    double rows = w->last_only ? 1.0 : tokens;
    out->resident_bytes = out->touched_bytes = (double)w->weight_bytes;
    out->flops = 2.0 * (double)w->in * (double)w->out * rows;
    out->in_bytes = 4.0 * (double)w->in * rows;
}

static void experts(const struct atsi_work *w, double tokens, struct atsi_demand *out)
{
    double e = (double)w->n_expert, k = (double)w->n_used;
    double hit = e * (1.0 - pow(1.0 - k / e, tokens));
    out->resident_bytes = (double)w->weight_bytes;
    out->touched_bytes = (double)w->weight_bytes / e * hit;
    out->flops = 2.0 * (double)w->in * (double)w->out * tokens * k;
    out->in_bytes = 4.0 * (double)w->in * tokens * (w->own_inputs ? k : 1.0);
}

/* Positions a token of the round sees on average. */
static double visible(const struct atsi_work *w, double tokens, double ctx)
{
    double span = tokens > 1.0 ? ctx + tokens / 2.0 : ctx;
    return w->window != 0 ? fmin(span, (double)w->window) : span;
}

static double cells(const struct atsi_work *w, double tokens, double positions)
{
    return w->window != 0 ? fmin(positions, (double)w->window + tokens) : positions;
}

void atsi_work_demand(const struct atsi_work *w, uint32_t tokens, uint32_t ctx, uint32_t ctx_max,
                      struct atsi_demand *out)
{
    double t = (double)tokens;
    *out = (struct atsi_demand){0};
    switch ((enum atsi_work_kind)w->kind) {
    case ATSI_WORK_MATRIX:
        matrix(w, t, out);
        break;
    case ATSI_WORK_EXPERTS:
        experts(w, t, out);
        break;
    case ATSI_WORK_ATTENTION:
        out->resident_bytes = (double)w->cell_bytes * cells(w, t, (double)ctx_max);
        out->touched_bytes = (double)w->cell_bytes * cells(w, t, (double)ctx + t);
        out->flops = w->flops_per_pair * t * visible(w, t, (double)ctx);
        out->in_bytes = 4.0 * (double)w->in_width * t;
        break;
    case ATSI_WORK_RECURRENT:
        out->resident_bytes = (double)w->state_bytes;
        out->touched_bytes = 2.0 * (double)w->state_bytes;
        out->flops = w->flops_per_token * t;
        out->in_bytes = 4.0 * (double)w->in_width * t;
        break;
    case ATSI_WORK_LOOKUP:
        out->resident_bytes = (double)w->weight_bytes;
        out->touched_bytes = 4.0 * (double)w->out * t;
        out->in_bytes = 4.0 * t;
        break;
    }
}
