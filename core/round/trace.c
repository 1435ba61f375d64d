/* SPDX-License-Identifier: Apache-2.0
 * Spans of a round: a run of items becomes one span per item, back to back as they ran. */
#include "core/round/trace.h"

#include <math.h>

struct writer {
    const struct atsi_trace *t;
    void (*fn)(void *ctx, const struct atsi_sim_span *span);
    void *ctx;
    uint64_t busy_until[ATSI_SIM_N_LANES];
};

/* The record has ends and durations, each rounded: where one span begins a nanosecond before the
 * end of the one before it, it begins there. */
static void put(struct writer *w, struct atsi_sim_span *s)
{
    uint64_t *busy = &w->busy_until[s->lane];
    if (s->start_ns < *busy && *busy - s->start_ns <= 1 && s->end_ns >= *busy)
        s->start_ns = *busy;
    *busy = s->end_ns;
    w->fn(w->ctx, s);
}

static struct atsi_sim_span span_of(const struct atsi_trace *t, uint32_t event, uint32_t lane,
                                    uint32_t item)
{
    const struct atsi_item *it = &t->question->items->items[item];
    return (struct atsi_sim_span){.struct_size = sizeof(struct atsi_sim_span),
                                  .event = event,
                                  .lane = lane,
                                  .phase = t->phase,
                                  .item = item,
                                  .layer = it->layer,
                                  .slot = -1,
                                  .tokens = t->tokens,
                                  .name = it->name != NULL ? it->name : ""};
}

static uint64_t touched(const struct atsi_trace *t, uint32_t item)
{
    return (uint64_t)llround(t->question->touched[t->phase][item]);
}

static void write_round(struct writer *w)
{
    const struct atsi_record *rec = w->t->record;
    struct atsi_sim_span s = {.struct_size = sizeof s,
                              .event = ATSI_SIM_ROUND,
                              .lane = ATSI_SIM_LANE_ROUND,
                              .phase = w->t->phase,
                              .layer = -1,
                              .slot = -1,
                              .tokens = w->t->tokens,
                              .start_ns = rec->round.start_ns,
                              .end_ns = rec->round.end_ns,
                              .bytes = w->t->resident_bytes,
                              .name = w->t->phase == ATSI_PHASE_PREFILL ? "prefill" : "decode"};
    put(w, &s);
}

static void write_run(struct writer *w, uint32_t step)
{
    const struct atsi_step *st = &w->t->plan->steps[step];
    const struct atsi_record *rec = w->t->record;
    uint32_t lane = st->device == ATSI_DEVICE_HOST ? ATSI_SIM_LANE_CPU : ATSI_SIM_LANE_STREAM;
    uint64_t at = rec->steps[step].start_ns;
    for (uint32_t i = st->first; i < st->first + st->n; i++) {
        struct atsi_sim_span s = span_of(w->t, ATSI_SIM_ITEM, lane, i);
        s.start_ns = at;
        s.end_ns = at += rec->item_ns[i];
        s.bytes = touched(w->t, i);
        put(w, &s);
    }
}

static void write_copy(struct writer *w, uint32_t step)
{
    const struct atsi_step *st = &w->t->plan->steps[step];
    struct atsi_sim_span s = span_of(w->t, ATSI_SIM_COPY, ATSI_SIM_LANE_STREAM, st->first);
    s.start_ns = w->t->record->steps[step].start_ns;
    s.end_ns = w->t->record->steps[step].end_ns;
    s.bytes = st->bytes;
    put(w, &s);
}

static void write_move(struct writer *w, uint32_t k)
{
    const struct atsi_move *m = &w->t->plan->moves[k];
    struct atsi_sim_span s = span_of(w->t, ATSI_SIM_MOVE, ATSI_SIM_LANE_ENGINE, m->item);
    s.slot = (int32_t)m->slot;
    s.start_ns = w->t->record->moves[k].start_ns;
    s.end_ns = w->t->record->moves[k].end_ns;
    s.bytes = touched(w->t, m->item);
    put(w, &s);
}

void atsi_trace_round(const struct atsi_trace *t,
                      void (*fn)(void *ctx, const struct atsi_sim_span *span), void *ctx)
{
    struct writer w = {.t = t, .fn = fn, .ctx = ctx};
    write_round(&w);
    for (uint32_t s = 0; s < t->record->n_steps; s++) {
        if (t->plan->steps[s].kind == ATSI_STEP_COPY)
            write_copy(&w, s);
        else
            write_run(&w, s);
    }
    for (uint32_t k = 0; k < t->record->n_moves; k++)
        write_move(&w, k);
}

void atsi_trace_bytes(const struct atsi_trace *t, uint64_t result_bytes, uint64_t out[3])
{
    out[0] = out[1] = out[2] = 0;
    for (uint32_t k = 0; k < t->plan->n_moves; k++)
        out[0] += touched(t, t->plan->moves[k].item);
    for (uint32_t s = 0; s < t->plan->n_steps; s++)
        if (t->plan->steps[s].kind == ATSI_STEP_COPY)
            out[1] += t->plan->steps[s].bytes;
    if (t->plan->last_device != ATSI_DEVICE_HOST)
        out[2] = result_bytes;
}
