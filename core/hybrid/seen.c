/* SPDX-License-Identifier: Apache-2.0
 *
 * Seeing what a session with an accelerator does: sums over its rounds, and the spans of each.
 */
#include "core/hybrid/inside.h"
#include "core/hybrid/live.h"
#include "core/round/trace.h"

static void add_phase(struct atsi_accel_phase *p, bool measured, bool comparable,
                      const struct atsi_round_result *res)
{
    p->n_rounds++;
    if (comparable && res->predicted_ns > 0) {
        p->n_predicted++;
        p->predicted_ns += res->predicted_ns;
        p->observed_ns += res->ns;
    }
    if (!measured)
        return;
    p->n_measured++;
    p->measured_ns += res->ns;
    p->exposed_ns += res->exposed_ns;
    for (int k = 0; k < 3; k++)
        p->busy_ns[k] += res->busy_ns[k];
}

static void add_experts(struct atsi_hybrid *h, struct atsi_accel_stats *s)
{
    struct atsi_books_counts now;
    s->expert_bytes = 0;
    if (h->experts == NULL)
        return;
    atsi_books_counts(atsi_experts_books(h->experts), &now);
    s->expert_bytes = atsi_experts_bytes(h->experts);
    s->expert_hits += now.hits - h->books_seen.hits;
    s->expert_misses += now.misses - h->books_seen.misses;
    s->n_refused += now.refused - h->books_seen.refused;
    h->books_seen = now;
}

/* Counters of parts that are closed when the session is put together again: what came since. */
static void add_counts(struct atsi_hybrid *h, struct atsi_accel_stats *s)
{
    struct atsi_source_counts now;
    struct atsi_rounds_counts c;
    uint32_t refused;
    atsi_source_counts(h->source, &now);
    s->weight_bytes += now.move_bytes - h->seen.move_bytes;
    s->activation_bytes +=
        now.copy_bytes - now.result_bytes - (h->seen.copy_bytes - h->seen.result_bytes);
    s->result_bytes += now.result_bytes - h->seen.result_bytes;
    h->seen = now;
    add_experts(h, s);
    atsi_rounds_counts(h->rounds, &c);
    refused = c.illegal + c.failed + c.late;
    s->n_refused += refused - h->refused_seen;
    h->refused_seen = refused;
}

static void draw(const struct atsi_hybrid *h, uint32_t phase, uint32_t rows)
{
    struct atsi_region_state r;
    struct atsi_trace t = {.question = h->question,
                           .plan = atsi_rounds_plan(h->rounds, phase),
                           .record = atsi_rounds_record(h->rounds),
                           .phase = phase,
                           .tokens = rows};
    atsi_region_state(h->region, &r);
    t.resident_bytes = r.used + r.slots + h->state.bytes[ATSI_DEVICE_ACCEL] + h->values.bytes;
    atsi_trace_round(&t, h->s->spans, h->s->spans_ctx);
}

void atsi_hybrid_see(struct atsi_hybrid *h, uint32_t phase, uint32_t rows, bool measured,
                     const struct atsi_round_result *res)
{
    struct atsi_accel_stats *s = &h->s->accel_stats;
    bool prefill = phase == ATSI_PHASE_PREFILL;
    add_phase(prefill ? &s->prefill : &s->decode, measured, !prefill || rows == h->s->chunk, res);
    s->measured_costs = h->costs.table != NULL;
    s->n_made += !res->kept;
    s->n_kept += res->kept;
    add_counts(h, s);
    s->n_governed = atsi_live_governed(h->s->live)->n;
    s->governed_why = atsi_live_governed(h->s->live)->why;
    if (h->s->spans != NULL)
        draw(h, phase, rows);
}
