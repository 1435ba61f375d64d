/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a policy thinks, and how good what it answers is: against every plan there is on small
 * problems, and against the reference on realistic ones.
 */
#include "core/kit/kit.h"

#include "sched/problem.h"

#include <string.h>

/* One question with a seat, asked for its placement and the first round of each phase. */
struct trial {
    struct atsi_question *q;
    struct atsi_kit_seat seat;
    char label[128];
    double ns[2];     /* rounds by phase */
    double best[2];   /* shortest on the same placement; where asked for */
    uint64_t took_ns; /* the longest schedule */
};

static void trial_close(struct trial *t)
{
    if (t->seat.ops != NULL)
        atsi_kit_seat_close(&t->seat);
    atsi_kit_question_close(t->q);
}

static bool answer(struct atsi_kit_run *r, struct trial *t, uint32_t step)
{
    struct atsi_err err = ATSI_ERR_INIT;
    atsi_kit_at(r, "%s: %s", atsi_kit_step_name(step), t->label);
    if (atsi_kit_ask(&t->seat, step, &err) == ATSI_OK &&
        atsi_kit_judge_answer(&t->seat, step, &err) == ATSI_OK)
        return true;
    return atsi_kit_bad(r, "%s: %s: %s", atsi_kit_step_name(step), t->label, err.msg);
}

/* A policy that only places: everything runs where it lives. */
static void stay(struct trial *t)
{
    t->seat.schedule.n_transfers = 0;
    memcpy(t->seat.schedule.device, t->seat.place.device,
           t->seat.place.n_items * sizeof *t->seat.place.device);
}

static bool measure(struct atsi_kit_run *r, struct trial *t, bool best)
{
    static const uint32_t first[2] = {[ATSI_PHASE_PREFILL] = 1, [ATSI_PHASE_DECODE] = 3};
    struct atsi_err err = ATSI_ERR_INIT;
    bool ok = answer(r, t, 0);
    for (uint32_t f = 0; f < 2 && ok; f++) {
        if (r->ops->schedule != NULL)
            ok = answer(r, t, first[f]);
        else
            stay(t);
        if (ok && atsi_kit_round_ns(&t->seat, f, &t->ns[f], &err) != ATSI_OK)
            ok = atsi_kit_bad(r, "%s: %s", t->label, err.msg);
        if (ok && best && atsi_kit_best_plan(&t->seat, f, &t->best[f], &err) != ATSI_OK)
            ok = atsi_kit_bad(r, "%s: %s", t->label, err.msg);
    }
    return ok;
}

static bool open_seat(struct atsi_kit_run *r, struct trial *t, int rc, struct atsi_err *err)
{
    if (rc == ATSI_OK)
        rc = atsi_kit_seat_open(r->ops, t->q, &t->seat, err);
    if (rc != ATSI_OK)
        return atsi_kit_bad(r, "%s: %s", t->label, err->msg);
    return true;
}

/* ---------------------------------------------------------------- time */
enum { TRIES = 5 }; /* the shortest counts: a busy machine is not the policy's fault */

static bool time_case(struct atsi_kit_run *r, const struct atsi_kit_case *c, uint64_t *most,
                      char slowest[192])
{
    struct atsi_err err = ATSI_ERR_INIT;
    uint64_t least[KIT_STEPS];
    struct trial t = {.took_ns = 0};
    bool ok;
    atsi_kit_case_label(c, t.label, sizeof t.label);
    ok = open_seat(r, &t, atsi_kit_question_open(c, &t.q, &err), &err);
    memset(least, 0xFF, sizeof least);
    ok = ok && answer(r, &t, 0);
    for (int k = 0; k < TRIES && ok; k++) {
        atsi_kit_seat_reset(&t.seat);
        for (uint32_t step = 1; step < KIT_STEPS && ok; step++) {
            ok = answer(r, &t, step);
            if (t.seat.took_ns < least[step])
                least[step] = t.seat.took_ns;
        }
    }
    for (uint32_t step = 1; step < KIT_STEPS && ok; step++)
        if (least[step] > *most) {
            *most = least[step];
            (void)snprintf(slowest, 192, "%s: %s", atsi_kit_step_name(step), t.label);
        }
    trial_close(&t);
    return ok;
}

bool atsi_kit_check_time(struct atsi_kit_run *r)
{
    char slowest[192] = "";
    uint64_t most = 0;
    if (r->ops->schedule == NULL)
        return atsi_kit_good(r, "it only places, once, and placing has no limit");
    for (uint32_t shape = 0; shape < KIT_ROWS; shape++) {
        struct atsi_kit_case c;
        atsi_kit_get_row(shape, &c);
        if (r->quick && c.large)
            continue;
        if (!time_case(r, &c, &most, slowest))
            return false;
        r->note->n_cases++;
    }
    if (most > r->limit_ns)
        return atsi_kit_bad(r, "slow: %.3f ms, policy.time_limit is %.3f ms: %s",
                            (double)most / 1e6, (double)r->limit_ns / 1e6, slowest);
    return atsi_kit_good(r, "%.3f ms at most, policy.time_limit is %.3f ms: %s", (double)most / 1e6,
                         (double)r->limit_ns / 1e6, slowest);
}

/* ---------------------------------------------------------------- small problems */
struct gap {
    double sum, most;
    uint32_t n;
};

static void note_gap(struct gap *g, double got, double best)
{
    double pct = best > 0 && got > best ? (got / best - 1) * 100 : 0;
    g->sum += pct;
    g->most = pct > g->most ? pct : g->most;
    g->n++;
}

static double mean(const struct gap *g)
{
    return g->n != 0 ? g->sum / g->n : 0;
}

enum { JOINT_MAX = 7 }; /* items up to which placements are tried as well: 3^n plans */

static bool small_problem(struct atsi_kit_run *r, uint64_t seed, struct gap plan[2],
                          struct gap *request)
{
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t n = 4 + (uint32_t)(seed % 7);
    struct trial t = {.took_ns = 0};
    double best;
    bool ok;
    (void)snprintf(t.label, sizeof t.label, "random problem %u of %u items", (unsigned)seed, n);
    ok = open_seat(r, &t, atsi_kit_question_random(n, seed, &t.q, &err), &err) &&
         measure(r, &t, true);
    for (int f = 0; f < 2 && ok; f++)
        note_gap(&plan[f], t.ns[f], t.best[f]);
    if (ok && n <= JOINT_MAX) {
        double got = t.ns[ATSI_PHASE_PREFILL] * sched_problem_chunks(&t.q->p) +
                     t.ns[ATSI_PHASE_DECODE] * t.q->p.mix_generated;
        atsi_kit_at(r, "every plan of %s", t.label);
        if (atsi_kit_best_request(t.q, &best, &err) == ATSI_OK)
            note_gap(request, got, best);
        else
            ok = atsi_kit_bad(r, "%s: %s", t.label, err.msg);
    }
    trial_close(&t);
    return ok;
}

bool atsi_kit_check_optimum(struct atsi_kit_run *r)
{
    static const enum atsi_phase d = ATSI_PHASE_DECODE, p = ATSI_PHASE_PREFILL;
    struct gap plan[2] = {{.n = 0}, {.n = 0}}, request = {.n = 0};
    for (uint64_t seed = 1; seed <= (r->quick ? 21 : 42); seed++) {
        if (!small_problem(r, seed, plan, &request))
            return false;
        r->note->n_cases++;
    }
    return atsi_kit_good(
        r,
        "slower than the best of all plans, mean and most: decode %.1f and %.1f %%, "
        "prefill %.1f and %.1f %%; than the best of all placements and plans: %.1f and "
        "%.1f %%",
        mean(&plan[d]), plan[d].most, mean(&plan[p]), plan[p].most, mean(&request), request.most);
}

/* ---------------------------------------------------------------- realistic problems */
static bool regret(struct atsi_kit_run *r, const struct atsi_kit_case *c,
                   struct atsi_conform_row *row)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct trial t = {.took_ns = 0};
    double reference[2] = {0};
    bool ok;
    atsi_kit_case_label(c, t.label, sizeof t.label);
    ok = open_seat(r, &t, atsi_kit_question_open(c, &t.q, &err), &err) && measure(r, &t, false);
    if (ok) {
        atsi_kit_at(r, "the reference's plan: %s", t.label);
        ok = atsi_kit_reference(t.q, reference, &err) == ATSI_OK || atsi_kit_bad(r, "%s", err.msg);
    }
    (void)snprintf(row->label, sizeof row->label, "%.90s", t.label);
    row->decode_ns = (uint64_t)t.ns[ATSI_PHASE_DECODE];
    row->prefill_ns = (uint64_t)t.ns[ATSI_PHASE_PREFILL];
    row->reference_decode_ns = (uint64_t)reference[ATSI_PHASE_DECODE];
    row->reference_prefill_ns = (uint64_t)reference[ATSI_PHASE_PREFILL];
    trial_close(&t);
    return ok;
}

static void note_worst(double *worst, uint64_t ns, uint64_t reference_ns)
{
    double times = reference_ns > 0 ? (double)ns / (double)reference_ns : 0;
    *worst = times > *worst ? times : *worst;
}

bool atsi_kit_check_regret(struct atsi_kit_run *r)
{
    double worst[2] = {0};
    for (uint32_t shape = 0; shape < KIT_ROWS; shape++) {
        struct atsi_kit_case c;
        struct atsi_conform_row *row = &r->note->rows[r->note->n_rows];
        atsi_kit_get_row(shape, &c);
        if (r->quick && c.large)
            continue;
        if (!regret(r, &c, row))
            return false;
        r->note->n_cases++;
        r->note->n_rows++;
        note_worst(&worst[0], row->decode_ns, row->reference_decode_ns);
        note_worst(&worst[1], row->prefill_ns, row->reference_prefill_ns);
    }
    return atsi_kit_good(
        r,
        "times as long as with policy_dp's backlog, at worst: decode %.2f, prefill "
        "%.2f",
        worst[0], worst[1]);
}
