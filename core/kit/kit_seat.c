/* SPDX-License-Identifier: Apache-2.0
 *
 * One seat to ask a policy from: everything it may write lies in memory of its own, between guards;
 * what it may only read is summed up before and after.
 */
#include "core/kit/kit.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GUARD = 4 * ATSI_ALIGN };
static const unsigned char guard_byte = 0x5C;

/* ---------------------------------------------------------------- guarded memory */
int atsi_kit_lend(struct atsi_kit_lent *l, const char *name, size_t bytes, struct atsi_err *err)
{
    size_t round_up = (bytes + ATSI_ALIGN - 1) / ATSI_ALIGN * ATSI_ALIGN;
    l->name = name;
    if (bytes > SIZE_MAX / 2)
        return atsi_fail(err, ATSI_ENOMEM, "it asks for %zu bytes of %s", bytes, name);
    l->base = aligned_alloc(ATSI_ALIGN, round_up + 2 * (size_t)GUARD);
    if (l->base == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for %zu bytes of %s", bytes, name);
    memset(l->base, guard_byte, round_up + 2 * (size_t)GUARD);
    l->at = l->base + GUARD;
    l->bytes = bytes;
    memset(l->at, 0, bytes);
    return ATSI_OK;
}

bool atsi_kit_intact(const struct atsi_kit_lent *l)
{
    size_t behind = (l->bytes + ATSI_ALIGN - 1) / ATSI_ALIGN * ATSI_ALIGN + GUARD;
    for (size_t i = 0; i < GUARD; i++)
        if (l->at[i - GUARD] != guard_byte)
            return false;
    for (size_t i = l->bytes; i < behind; i++)
        if (l->at[i] != guard_byte)
            return false;
    return true;
}

const struct atsi_kit_lent *atsi_kit_overrun(const struct atsi_kit_seat *s)
{
    for (int k = 0; k < KIT_N_ARRAYS; k++)
        if (!atsi_kit_intact(&s->lent[k]))
            return &s->lent[k];
    return NULL;
}

/* ---------------------------------------------------------------- a seat */
static int lend_all(struct atsi_kit_seat *s, struct atsi_err *err)
{
    uint32_t n = s->q->items->n;
    const struct {
        const char *name;
        size_t bytes;
    } want[KIT_N_ARRAYS] = {
        [KIT_SCRATCH] = {"scratch", s->ops->scratch_bytes(n)},
        [KIT_STATE] = {"state", s->ops->state_bytes != NULL ? s->ops->state_bytes(n) : 0},
        [KIT_PLACE] = {"placement.device", n * sizeof(int32_t)},
        [KIT_EXPERTS] = {"placement.expert_slots", n * sizeof(uint32_t)},
        [KIT_DEVICE] = {"schedule.device", n * sizeof(int32_t)},
        [KIT_ORDER] = {"schedule.order", n * sizeof(uint32_t)},
        [KIT_AFTER] = {"schedule.after", n * sizeof(int32_t)},
        [KIT_SLOT] = {"schedule.slot", n * sizeof(int32_t)},
        [KIT_START] = {"schedule.start_ns", n * sizeof(uint64_t)},
        [KIT_END] = {"schedule.end_ns", n * sizeof(uint64_t)}};
    int rc = ATSI_OK;
    for (int k = 0; k < KIT_N_ARRAYS && rc == ATSI_OK; k++)
        rc = atsi_kit_lend(&s->lent[k], want[k].name, want[k].bytes, err);
    return rc;
}

int atsi_kit_seat_open(const struct atsi_policy_ops *ops, struct atsi_question *q,
                       struct atsi_kit_seat *s, struct atsi_err *err)
{
    uint32_t n = q->items->n;
    int rc;
    *s = (struct atsi_kit_seat){.ops = ops, .q = q, .junk = 0xA5};
    rc = lend_all(s, err);
    for (int f = 0; f < 2 && rc == ATSI_OK; f++) {
        s->phase[f].in_force = calloc((size_t)n + 1, sizeof *s->phase[f].in_force);
        if (s->phase[f].in_force == NULL)
            rc = atsi_fail(err, ATSI_ENOMEM, "out of memory for a plan of %u items", n);
    }
    if (rc != ATSI_OK) {
        atsi_kit_seat_close(s);
        return rc;
    }
    s->place = (struct atsi_placement){.struct_size = sizeof s->place,
                                       .n_items = n,
                                       .device = (int32_t *)(void *)s->lent[KIT_PLACE].at,
                                       .expert_slots = (uint32_t *)(void *)s->lent[KIT_EXPERTS].at};
    s->schedule = (struct atsi_schedule){.struct_size = sizeof s->schedule,
                                         .n_items = n,
                                         .device = (int32_t *)(void *)s->lent[KIT_DEVICE].at,
                                         .order = (uint32_t *)(void *)s->lent[KIT_ORDER].at,
                                         .after = (int32_t *)(void *)s->lent[KIT_AFTER].at,
                                         .slot = (int32_t *)(void *)s->lent[KIT_SLOT].at,
                                         .start_ns = (uint64_t *)(void *)s->lent[KIT_START].at,
                                         .end_ns = (uint64_t *)(void *)s->lent[KIT_END].at};
    atsi_kit_seat_reset(s);
    return ATSI_OK;
}

void atsi_kit_seat_close(struct atsi_kit_seat *s)
{
    for (int k = 0; k < KIT_N_ARRAYS; k++)
        free(s->lent[k].base);
    free(s->phase[0].in_force);
    free(s->phase[1].in_force);
    memset(s, 0, sizeof *s);
}

void atsi_kit_seat_reset(struct atsi_kit_seat *s)
{
    memset(s->lent[KIT_STATE].at, 0, s->lent[KIT_STATE].bytes);
    s->phase[0].planned = s->phase[1].planned = false;
}

/* ---------------------------------------------------------------- sums */
/* FNV-1a. */
uint64_t atsi_kit_sum(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001B3);
    return h;
}

/* Over all that a policy may read but not write. */
static uint64_t input_sum(const struct atsi_kit_seat *s)
{
    const struct atsi_question *q = s->q;
    size_t n = q->items->n, costs = ATSI_N_DEVICES * n * sizeof **q->now;
    uint64_t h = atsi_kit_sum(ATSI_KIT_SUM_START, q->items->items, n * sizeof *q->items->items);
    h = atsi_kit_sum(h, q->items->ptrs, n * sizeof(const struct atsi_item *));
    h = atsi_kit_sum(h, q->items->edges, q->items->n_edges * sizeof *q->items->edges);
    h = atsi_kit_sum(h, q->now[0], costs);
    h = atsi_kit_sum(h, q->now[1], costs);
    h = atsi_kit_sum(h, q->budget, sizeof q->budget);
    h = atsi_kit_sum(h, q->slot_depth, sizeof q->slot_depth);
    h = atsi_kit_sum(h, q->slot_bytes, sizeof q->slot_bytes);
    h = atsi_kit_sum(h, &s->problem, sizeof s->problem);
    h = atsi_kit_sum(h, s->now, sizeof s->now);
    for (int f = 0; f < 2; f++) {
        h = atsi_kit_sum(h, s->phase[f].then, sizeof s->phase[f].then);
        h = atsi_kit_sum(h, s->phase[f].in_force, n * sizeof *s->phase[f].in_force);
    }
    return h;
}

uint64_t atsi_kit_answer_sum(const struct atsi_kit_seat *s, uint32_t step)
{
    const struct atsi_schedule *a = &s->schedule;
    uint64_t h = ATSI_KIT_SUM_START;
    if (step == 0) {
        h = atsi_kit_sum(h, s->lent[KIT_PLACE].at, s->lent[KIT_PLACE].bytes);
        h = atsi_kit_sum(h, s->lent[KIT_EXPERTS].at, s->lent[KIT_EXPERTS].bytes);
        h = atsi_kit_sum(h, &s->place.predicted_decode_ns, sizeof s->place.predicted_decode_ns);
        return atsi_kit_sum(h, &s->place.predicted_prefill_ns,
                            sizeof s->place.predicted_prefill_ns);
    }
    h = atsi_kit_sum(h, &a->keep, sizeof a->keep);
    if (a->keep != 0)
        return h;
    h = atsi_kit_sum(h, s->lent[KIT_DEVICE].at, s->lent[KIT_DEVICE].bytes);
    for (uint32_t k = 0; k < a->n_transfers && k < a->n_items; k++) {
        uint32_t i = a->order[k];
        h = atsi_kit_sum(h, &i, sizeof i);
        if (i < a->n_items) {
            h = atsi_kit_sum(h, &a->after[i], sizeof a->after[i]);
            h = atsi_kit_sum(h, &a->slot[i], sizeof a->slot[i]);
        }
    }
    return atsi_kit_sum(h, &a->predicted_ns, sizeof a->predicted_ns);
}

/* ---------------------------------------------------------------- the series */
/* Slowdowns are per mille: host, accelerator, activations, transfers. */
static const struct {
    const char *name;
    uint32_t phase, tokens;
    uint32_t now[ATSI_N_CLASSES];
} steps[KIT_STEPS] = {
    {"place", ATSI_PHASE_DECODE, 1, {1000, 1000, 1000, 1000}},
    {"schedule: first prefill round", ATSI_PHASE_PREFILL, 512, {1000, 1000, 1000, 1000}},
    {"schedule: second prefill round", ATSI_PHASE_PREFILL, 512, {1000, 1000, 1000, 1000}},
    {"schedule: first decode round", ATSI_PHASE_DECODE, 1, {1000, 1000, 1000, 1000}},
    {"schedule: second decode round", ATSI_PHASE_DECODE, 1, {1000, 1000, 1000, 1000}},
    {"schedule: decode, the host slower", ATSI_PHASE_DECODE, 1, {2500, 1000, 1000, 1000}},
    {"schedule: decode, transfers slower", ATSI_PHASE_DECODE, 1, {1000, 1000, 1200, 3000}},
    {"schedule: decode of four tokens", ATSI_PHASE_DECODE, 4, {1000, 1000, 1000, 1000}},
    {"schedule: prefill of seven tokens", ATSI_PHASE_PREFILL, 7, {1000, 1000, 1000, 1000}},
};

const char *atsi_kit_step_name(uint32_t step)
{
    return steps[step].name;
}

uint32_t atsi_kit_step_phase(uint32_t step)
{
    return steps[step].phase;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail for this clock */
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

/* A clock of the engine's that a thousand seconds and ten per step have passed on. */
static uint64_t engine_ns(uint32_t step)
{
    return UINT64_C(1000000000) * (1000 + 10 * step);
}

static void fill_round(const struct atsi_kit_seat *s, uint32_t step, struct atsi_round *in)
{
    uint32_t phase = steps[step].phase;
    *in = (struct atsi_round){.struct_size = sizeof *in,
                              .phase = phase,
                              .n_tokens = steps[step].tokens,
                              .n_ctx = phase == ATSI_PHASE_DECODE ? 2048 + step : 0,
                              .tokens_left = 100 - step,
                              .problem = &s->problem,
                              .placed = s->place.device,
                              .in_force = s->phase[phase].planned ? s->phase[phase].in_force : NULL,
                              .now_ns = engine_ns(step),
                              .planned_ns = s->phase[phase].planned_ns,
                              .predicted_ns = s->phase[phase].predicted_ns,
                              .observed_ns = s->phase[phase].predicted_ns,
                              .slowdown_then = s->phase[phase].then,
                              .slowdown_now = s->now,
                              .n_classes = ATSI_N_CLASSES,
                              .state = s->lent[KIT_STATE].bytes != 0 ? s->lent[KIT_STATE].at : NULL,
                              .state_bytes = s->lent[KIT_STATE].bytes};
}

/* As the core lends it: items run where they live, nothing moves; placements are junk. */
static void fill_answer(struct atsi_kit_seat *s, uint32_t step)
{
    struct atsi_schedule *to = &s->schedule;
    memset(s->lent[KIT_SCRATCH].at, s->junk, s->lent[KIT_SCRATCH].bytes);
    if (step == 0) {
        memset(s->lent[KIT_PLACE].at, 0xFF, s->lent[KIT_PLACE].bytes);
        memset(s->lent[KIT_EXPERTS].at, 0, s->lent[KIT_EXPERTS].bytes);
        s->place.predicted_decode_ns = s->place.predicted_prefill_ns = 0;
        return;
    }
    to->keep = to->n_transfers = 0;
    to->predicted_ns = to->evals = 0;
    memset(to->order, 0, s->lent[KIT_ORDER].bytes);
    for (uint32_t i = 0; i < to->n_items; i++) {
        to->device[i] = s->place.device[i];
        to->after[i] = to->slot[i] = -1;
    }
}

int atsi_kit_ask(struct atsi_kit_seat *s, uint32_t step, struct atsi_err *err)
{
    struct atsi_round in;
    uint64_t start, before;
    int rc;
    memcpy(s->now, steps[step].now, sizeof s->now);
    atsi_question_slow(s->q, s->now);
    s->problem = s->q->p;
    s->problem.scratch = s->lent[KIT_SCRATCH].at;
    fill_answer(s, step);
    fill_round(s, step, &in);
    before = s->watch ? input_sum(s) : 0;
    start = now_ns();
    if (step == 0)
        rc = s->ops->place(&s->problem, &s->place, err);
    else
        rc = s->ops->schedule(&in, &s->schedule, err);
    s->took_ns = now_ns() - start;
    s->input_changed = s->watch && input_sum(s) != before;
    return rc;
}

int atsi_kit_judge_answer(struct atsi_kit_seat *s, uint32_t step, struct atsi_err *err)
{
    uint32_t phase = steps[step].phase;
    int rc;
    if (step == 0)
        return atsi_check_placement(s->q, &s->place, err);
    if (s->schedule.keep != 0)
        return s->phase[phase].planned
                   ? ATSI_OK
                   : atsi_fail(err, ATSI_EINVAL, "keeps a plan, but none is in force");
    rc = atsi_check_schedule(s->q, phase, s->place.device, &s->schedule, err);
    if (rc != ATSI_OK)
        return rc;
    memcpy(s->phase[phase].in_force, s->schedule.device,
           s->schedule.n_items * sizeof *s->schedule.device);
    s->phase[phase].planned = true;
    s->phase[phase].planned_ns = engine_ns(step);
    s->phase[phase].predicted_ns = s->schedule.predicted_ns;
    memcpy(s->phase[phase].then, s->now, sizeof s->now);
    return ATSI_OK;
}
