/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies to the host, as early as what they carry is there.  The accelerator's queue is in order,
 * so a copy behind everything that was queued so far would make the host wait for all of it: for
 * the shared expert before it computes routed ones, for q before k.  Where items of the accelerator
 * lie between the one that made the values and the one on the host that reads them, their split is
 * cut and the copy goes between.
 */
#include "core/round/plan.h"

#include "core/round/flow.h"

#include <string.h>

/* Pieces that item i computed on the accelerator. */
static void note_pieces(struct atsi_plan *p, const struct atsi_flow *f, uint32_t i,
                        const uint32_t *units, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        const struct atsi_flow_node *node = &f->nodes[atsi_flow_node_of(f, units[k])];
        for (int d = 0; d < 2; d++)
            for (uint32_t at = node->dst[d] >= 0 ? f->piece_at[node->dst[d]] : 0;
                 node->dst[d] >= 0 && at < f->piece_at[node->dst[d] + 1]; at++)
                p->made_by[at] = i;
    }
}

void atsi_plan_ran(struct atsi_plan *p, const struct atsi_flow *f, uint32_t i, uint32_t device,
                   const struct atsi_flow_need *need)
{
    p->list_end[i] = p->n_list;
    if (device == ATSI_DEVICE_ACCEL)
        note_pieces(p, f, i, need->units, need->n_units);
}

/* The last item that the pieces wait for. */
static uint32_t made_last(const struct atsi_plan *p, const struct atsi_flow_need *need)
{
    uint32_t last = 0;
    for (uint32_t k = 0; k < need->n_copies; k++)
        if (p->made_by[need->copies[k]] > last)
            last = p->made_by[need->copies[k]];
    return last;
}

static bool on_accel(const struct atsi_step *s)
{
    return s->kind == ATSI_STEP_RUN && s->device == ATSI_DEVICE_ACCEL;
}

/* Cuts step s behind item `last`, which is not its last one. */
static void cut_step(struct atsi_plan *p, uint32_t s, uint32_t last)
{
    struct atsi_step *a, *b;
    memmove(&p->steps[s + 1], &p->steps[s], (p->n_steps - s) * sizeof *p->steps);
    p->n_steps++;
    a = &p->steps[s];
    b = &p->steps[s + 1];
    b->first = last + 1;
    b->n = a->first + a->n - b->first;
    b->transfer = -1; /* a transfer is for the first item of a step */
    b->list = p->list_end[last];
    b->n_list = a->list + a->n_list - b->list;
    a->n = b->first - a->first;
    a->n_list = b->list - a->list;
}

uint32_t atsi_plan_early(struct atsi_plan *p, uint32_t n_items, uint32_t item,
                         const struct atsi_flow_need *need)
{
    uint32_t s = p->n_steps, last = made_last(p, need);
    /* One step more than without, and two for each item to come: there is room for no more. */
    if (p->n_steps + 2 * (n_items - item) + 1 > 2 * n_items)
        return p->n_steps;
    while (s > 0 && on_accel(&p->steps[s - 1]) && p->steps[s - 1].first > last)
        s--;
    if (s == 0 || !on_accel(&p->steps[s - 1]))
        return s;
    if (p->steps[s - 1].first + p->steps[s - 1].n - 1 > last)
        cut_step(p, s - 1, last);
    return s;
}
