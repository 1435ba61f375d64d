/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of what policy.h demands: legal answers, memory left alone, the same answer to the same
 * question whoever asks.  Each stops at the first fault and names it.
 */
#include "core/kit/kit.h"

#include <pthread.h>
#include <string.h>

/* One seat at one problem. */
struct table {
    struct atsi_question *q;
    struct atsi_kit_seat seat;
    char label[128];
};

static void table_close(struct table *t)
{
    atsi_kit_seat_close(&t->seat);
    atsi_kit_question_close(t->q);
    t->q = NULL;
}

static bool table_open(struct atsi_kit_run *r, const struct atsi_kit_case *c, struct table *t)
{
    struct atsi_err err = ATSI_ERR_INIT;
    memset(t, 0, sizeof *t);
    atsi_kit_case_label(c, t->label, sizeof t->label);
    atsi_kit_at(r, "scratch_bytes and state_bytes: %s", t->label);
    if (atsi_kit_question_open(c, &t->q, &err) == ATSI_OK &&
        atsi_kit_seat_open(r->ops, t->q, &t->seat, &err) == ATSI_OK)
        return true;
    atsi_kit_question_close(t->q);
    return atsi_kit_bad(r, "%s: %s", t->label, err.msg);
}

/* Asks and says what kept it from an answer. */
static bool ask(struct atsi_kit_run *r, struct table *t, uint32_t step)
{
    struct atsi_err err = ATSI_ERR_INIT;
    atsi_kit_at(r, "%s: %s", atsi_kit_step_name(step), t->label);
    if (atsi_kit_ask(&t->seat, step, &err) == ATSI_OK)
        return true;
    return atsi_kit_bad(r, "failed: %s: %s: %s", atsi_kit_step_name(step), t->label,
                        err.msg[0] != '\0' ? err.msg : "no reason given");
}

static bool ask_legal(struct atsi_kit_run *r, struct table *t, uint32_t step)
{
    struct atsi_err err = ATSI_ERR_INIT;
    if (!ask(r, t, step))
        return false;
    if (atsi_kit_judge_answer(&t->seat, step, &err) == ATSI_OK)
        return true;
    return atsi_kit_bad(r, "illegal: %s: %s: %s", atsi_kit_step_name(step), t->label, err.msg);
}

static uint32_t last_step(const struct atsi_kit_run *r)
{
    return r->ops->schedule != NULL ? KIT_STEPS : 1;
}

/* Calls fn on every case with a seat, until one says no. */
typedef bool table_fn(struct atsi_kit_run *r, struct table *t);
static bool each_case(struct atsi_kit_run *r, table_fn *fn)
{
    struct atsi_kit_case c;
    struct table t;
    bool ok = true;
    for (uint32_t i = 0; i < atsi_kit_n_cases(r->quick) && ok; i++) {
        atsi_kit_get_case(i, &c);
        ok = table_open(r, &c, &t);
        if (ok) {
            ok = fn(r, &t);
            table_close(&t);
        }
        r->note->n_cases++;
    }
    return ok;
}

/* ---------------------------------------------------------------- legality */
static bool place_table(struct atsi_kit_run *r, struct table *t)
{
    return ask_legal(r, t, 0);
}

bool atsi_kit_check_place(struct atsi_kit_run *r)
{
    if (!each_case(r, place_table))
        return false;
    return atsi_kit_good(r, "%u problems, every placement legal", r->note->n_cases);
}

static bool schedule_table(struct atsi_kit_run *r, struct table *t)
{
    for (uint32_t step = 0; step < KIT_STEPS; step++)
        if (!ask_legal(r, t, step))
            return false;
    return true;
}

bool atsi_kit_check_schedule(struct atsi_kit_run *r)
{
    if (r->ops->schedule == NULL)
        return atsi_kit_good(r, "it only places; items run where they live");
    if (!each_case(r, schedule_table))
        return false;
    return atsi_kit_good(r, "%u problems, %u rounds each, every answer legal", r->note->n_cases,
                         KIT_STEPS - 1);
}

/* A plan is kept only where one is in force: asked for the first round of each phase, with a state
 * that remembers rounds of another session. */
static bool keep_table(struct atsi_kit_run *r, struct table *t)
{
    static const uint32_t first[] = {3, 1};
    for (uint32_t step = 0; step < KIT_STEPS; step++)
        if (!ask(r, t, step) ||
            (atsi_kit_judge_answer(&t->seat, step, NULL) != ATSI_OK && t->seat.schedule.keep == 0))
            break;
    t->seat.phase[0].planned = t->seat.phase[1].planned = false;
    for (int k = 0; k < 2; k++) {
        if (!ask(r, t, first[k]))
            return false;
        if (t->seat.schedule.keep != 0)
            return atsi_kit_bad(r, "%s: %s: keeps a plan, but none is in force",
                                atsi_kit_step_name(first[k]), t->label);
    }
    return true;
}

bool atsi_kit_check_keep(struct atsi_kit_run *r)
{
    if (r->ops->schedule == NULL)
        return atsi_kit_good(r, "it only places");
    if (!each_case(r, keep_table))
        return false;
    return atsi_kit_good(r, "no plan is kept that does not exist");
}

/* ---------------------------------------------------------------- memory */
static bool memory_table(struct atsi_kit_run *r, struct table *t)
{
    t->seat.watch = true;
    for (uint32_t step = 0; step < last_step(r); step++) {
        const struct atsi_kit_lent *over;
        struct atsi_err err = ATSI_ERR_INIT;
        if (!ask(r, t, step))
            return false;
        over = atsi_kit_overrun(&t->seat);
        if (over != NULL)
            return atsi_kit_bad(r, "wrote outside %s, of %zu bytes: %s: %s", over->name,
                                over->bytes, atsi_kit_step_name(step), t->label);
        if (t->seat.input_changed)
            return atsi_kit_bad(r, "wrote to its input: %s: %s", atsi_kit_step_name(step),
                                t->label);
        if (atsi_kit_judge_answer(&t->seat, step, &err) != ATSI_OK)
            return true; /* the other checks' business */
    }
    return true;
}

bool atsi_kit_check_memory(struct atsi_kit_run *r)
{
    if (!each_case(r, memory_table))
        return false;
    return atsi_kit_good(r, "inputs unchanged, nothing written outside what is lent");
}

/* ---------------------------------------------------------------- the same answer */
struct trace {
    uint64_t sum[KIT_STEPS];
};

static bool play(struct atsi_kit_run *r, struct table *t, struct trace *out)
{
    atsi_kit_seat_reset(&t->seat);
    for (uint32_t step = 0; step < last_step(r); step++) {
        if (!ask_legal(r, t, step))
            return false;
        out->sum[step] = atsi_kit_answer_sum(&t->seat, step);
    }
    return true;
}

static bool same(struct atsi_kit_run *r, const struct table *t, const struct trace *a,
                 const struct trace *b, const char *what)
{
    for (uint32_t step = 0; step < last_step(r); step++)
        if (a->sum[step] != b->sum[step])
            return atsi_kit_bad(r, "%s: %s: %s", what, atsi_kit_step_name(step), t->label);
    return true;
}

static bool repeat_table(struct atsi_kit_run *r, struct table *t)
{
    struct trace once, again;
    t->seat.junk = 0xA5;
    if (!play(r, t, &once))
        return false;
    t->seat.junk = 0x00; /* scratch holds nothing from before */
    return play(r, t, &again) &&
           same(r, t, &once, &again, "the same question has got two different answers");
}

bool atsi_kit_check_repeat(struct atsi_kit_run *r)
{
    if (!each_case(r, repeat_table))
        return false;
    return atsi_kit_good(r, "%u problems asked twice, the same bytes", r->note->n_cases);
}

/* Cases two apart share nothing but the plugin. */
static bool interleaved(struct atsi_kit_run *r, struct table *a, struct table *b)
{
    struct trace alone, between;
    if (!play(r, a, &alone))
        return false;
    atsi_kit_seat_reset(&a->seat);
    for (uint32_t step = 0; step < last_step(r); step++) {
        if (!ask_legal(r, a, step))
            return false;
        between.sum[step] = atsi_kit_answer_sum(&a->seat, step);
        if (!ask_legal(r, b, step))
            return false;
    }
    return same(r, a, &alone, &between,
                "the answer depends on what another session asked in between (memory belongs into "
                "the lent state)");
}

bool atsi_kit_check_state(struct atsi_kit_run *r)
{
    static const uint32_t pairs[][2] = {{14, 40}, {38, 16}, {63, 88}};
    struct table a, b;
    bool ok = true;
    for (size_t k = 0; k < sizeof pairs / sizeof pairs[0] && ok; k++) {
        struct atsi_kit_case c;
        atsi_kit_get_case(pairs[k][0], &c);
        ok = table_open(r, &c, &a);
        if (!ok)
            break;
        atsi_kit_get_case(pairs[k][1], &c);
        ok = table_open(r, &c, &b);
        if (ok) {
            ok = interleaved(r, &a, &b);
            table_close(&b);
        }
        table_close(&a);
        r->note->n_cases++;
    }
    return ok && atsi_kit_good(r, "two sessions in turn, as each of them alone");
}

/* ---------------------------------------------------------------- threads */
enum { N_THREADS = 4, REPEATS = 8 };

struct job {
    struct atsi_kit_run *r;
    struct table t;
    struct trace want, got;
    bool same;
    uint32_t step;
};

/* Failures are no failures here: a run alone has shown that there are none. */
static void *play_along(void *arg)
{
    struct job *j = arg;
    j->same = true;
    for (int k = 0; k < REPEATS && j->same; k++) {
        atsi_kit_seat_reset(&j->t.seat);
        for (uint32_t step = 0; step < last_step(j->r) && j->same; step++) {
            struct atsi_err err = ATSI_ERR_INIT;
            j->step = step;
            j->same = atsi_kit_ask(&j->t.seat, step, &err) == ATSI_OK &&
                      atsi_kit_judge_answer(&j->t.seat, step, &err) == ATSI_OK &&
                      atsi_kit_answer_sum(&j->t.seat, step) == j->want.sum[step];
        }
    }
    return NULL;
}

static bool run_together(struct atsi_kit_run *r, struct job *jobs)
{
    pthread_t thread[N_THREADS];
    int n = 0;
    atsi_kit_at(r, "place and schedule from %d threads at a time: %s", N_THREADS, jobs[0].t.label);
    while (n < N_THREADS && pthread_create(&thread[n], NULL, play_along, &jobs[n]) == 0)
        n++;
    for (int k = 0; k < n; k++)
        (void)pthread_join(thread[k], NULL);
    if (n < N_THREADS)
        return atsi_kit_bad(r, "no thread could be started to ask from");
    for (int k = 0; k < N_THREADS; k++)
        if (!jobs[k].same)
            return atsi_kit_bad(r, "another answer when %d threads ask at a time: %s: %s",
                                N_THREADS, atsi_kit_step_name(jobs[k].step), jobs[k].t.label);
    return true;
}

bool atsi_kit_check_threads(struct atsi_kit_run *r)
{
    static const uint32_t which[N_THREADS] = {14, 14, 40, 62};
    static struct job jobs[N_THREADS];
    int n = 0;
    bool ok = true;
    for (; n < N_THREADS && ok; n++) {
        struct atsi_kit_case c;
        jobs[n].r = r;
        atsi_kit_get_case(which[n], &c);
        ok = table_open(r, &c, &jobs[n].t);
        if (!ok)
            break;
        ok = play(r, &jobs[n].t, &jobs[n].want);
    }
    ok = ok && run_together(r, jobs);
    while (n-- > 0)
        table_close(&jobs[n].t);
    return ok &&
           atsi_kit_good(r, "%d threads, %d series each, the answers of one", N_THREADS, REPEATS);
}
