/* SPDX-License-Identifier: Apache-2.0
 * The recorder. */
#include "core/round/record.h"

#include <string.h>

void atsi_recorder_reset(struct atsi_recorder *r)
{
    memset(r, 0, sizeof *r);
}

struct sums {
    double seen[ATSI_N_CLASSES], profile[ATSI_N_CLASSES];
};

static const struct atsi_item_cost *cost_of(const struct atsi_question *q, uint32_t phase,
                                            uint32_t device, uint32_t item)
{
    return &q->cost[phase][(size_t)device * q->items->n + item];
}

static double overlap(struct atsi_span a, struct atsi_span b)
{
    uint64_t from = a.start_ns > b.start_ns ? a.start_ns : b.start_ns;
    uint64_t to = a.end_ns < b.end_ns ? a.end_ns : b.end_ns;
    return to > from ? (double)(to - from) : 0.0;
}

/* Spans of the items of a step, one after the other, as their times add up to it. */
static void host_step(struct sums *t, double *move_lost, const struct atsi_question *q,
                      uint32_t phase, const struct atsi_plan *plan, const struct atsi_record *rec,
                      uint32_t s)
{
    const struct atsi_step *step = &plan->steps[s];
    uint64_t at = rec->steps[s].start_ns;
    for (uint32_t i = step->first; i < step->first + step->n; i++) {
        const struct atsi_item_cost *c = cost_of(q, phase, ATSI_DEVICE_HOST, i);
        const struct atsi_item_cost *now = &q->now[phase][i];
        struct atsi_span span = {at, at + rec->item_ns[i]};
        double seen = (double)rec->item_ns[i];
        for (uint32_t k = 0; k < rec->n_moves; k++) {
            double shared = overlap(span, rec->moves[k]);
            seen -= shared * (1.0 - (double)now->contended_run / 1000.0);
            move_lost[k] += shared * (1.0 - (double)now->contended_copy / 1000.0);
        }
        at = span.end_ns;
        if (q->expert_slots != NULL && q->expert_slots[i] > 0 && phase == ATSI_PHASE_DECODE)
            continue; /* how much there was to do depends on who was chosen */
        t->seen[ATSI_CLASS_CPU] += seen;
        t->profile[ATSI_CLASS_CPU] += (double)c->run_ns;
    }
}

static void other_step(struct sums *t, double *move_lost, const struct atsi_question *q,
                       uint32_t phase, const struct atsi_plan *plan, const struct atsi_record *rec,
                       uint32_t s)
{
    const struct atsi_step *step = &plan->steps[s];
    if (step->kind == ATSI_STEP_COPY) {
        double seen = (double)(rec->steps[s].end_ns - rec->steps[s].start_ns);
        for (uint32_t k = 0; k < rec->n_moves; k++) {
            double shared = overlap(rec->steps[s], rec->moves[k]);
            seen -= shared * (1.0 - (double)q->p.contended_act / 1000.0);
            move_lost[k] += shared * (1.0 - (double)q->p.contended_act_copy / 1000.0);
        }
        t->seen[ATSI_CLASS_ACT] += seen;
        t->profile[ATSI_CLASS_ACT] += (double)cost_of(q, phase, step->device, step->first)->in_ns;
        return;
    }
    for (uint32_t i = step->first; i < step->first + step->n; i++) {
        t->seen[ATSI_CLASS_GPU] += (double)rec->item_ns[i];
        t->profile[ATSI_CLASS_GPU] += (double)cost_of(q, phase, ATSI_DEVICE_ACCEL, i)->run_ns;
    }
}

static void note(struct atsi_recorder *r, int k, double seen, double profile)
{
    double ratio = 1000.0 * seen / profile;
    if (!(profile > 0) || !(ratio > 0)) {
        r->since[k] += r->since[k] < UINT32_MAX;
        return;
    }
    r->since[k] = 0;
    r->ratio[k][r->at[k]] = ratio < 1e6 ? (uint32_t)(ratio + 0.5) : 1000000U;
    r->at[k] = (r->at[k] + 1) % ATSI_RECORD_ROUNDS;
    if (r->n[k] < ATSI_RECORD_ROUNDS)
        r->n[k]++;
}

void atsi_recorder_take(struct atsi_recorder *r, const struct atsi_question *q, uint32_t phase,
                        const struct atsi_plan *plan, const struct atsi_record *rec)
{
    struct sums t = {{0}, {0}};
    double lost[1024] = {0}; /* per transfer; beyond that many the rest is not corrected */
    struct atsi_record head = *rec;
    if (head.n_moves > 1024)
        head.n_moves = 1024;
    for (uint32_t s = 0; s < plan->n_steps; s++) {
        if (plan->steps[s].kind == ATSI_STEP_RUN && plan->steps[s].device == ATSI_DEVICE_HOST)
            host_step(&t, lost, q, phase, plan, &head, s);
        else
            other_step(&t, lost, q, phase, plan, &head, s);
    }
    for (uint32_t k = 0; k < head.n_moves; k++) {
        const struct atsi_span *m = &rec->moves[k];
        if (m->end_ns <= m->start_ns) /* issued ahead by a round that did not measure */
            continue;
        t.seen[ATSI_CLASS_XFER] += (double)(m->end_ns - m->start_ns) - lost[k];
        t.profile[ATSI_CLASS_XFER] +=
            (double)cost_of(q, phase, ATSI_DEVICE_ACCEL, plan->moves[k].item)->transfer_ns;
    }
    for (int k = 0; k < ATSI_N_CLASSES; k++)
        note(r, k, t.seen[k], t.profile[k]);
}

void atsi_recorder_skip(struct atsi_recorder *r)
{
    for (int k = 0; k < ATSI_N_CLASSES; k++)
        r->since[k] += r->since[k] < UINT32_MAX;
}

void atsi_recorder_probed(struct atsi_recorder *r, uint32_t cls, uint64_t seen_ns,
                          uint64_t profile_ns)
{
    r->n[cls] = r->at[cls] = r->since[cls] = 0;
    note(r, (int)cls, (double)seen_ns, (double)profile_ns);
}

void atsi_recorder_now(const struct atsi_recorder *r, uint32_t out[ATSI_N_CLASSES])
{
    for (int k = 0; k < ATSI_N_CLASSES; k++) {
        uint32_t sorted[ATSI_RECORD_ROUNDS], n = r->n[k];
        for (uint32_t i = 0; i < n; i++) {
            uint32_t j = i;
            for (; j > 0 && sorted[j - 1] > r->ratio[k][i]; j--)
                sorted[j] = sorted[j - 1];
            sorted[j] = r->ratio[k][i];
        }
        out[k] = n > 0 ? sorted[n / 2] : 1000;
    }
}
