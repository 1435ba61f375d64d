/* SPDX-License-Identifier: Apache-2.0
 *
 * How long rounds take on the timeline with contention (sched/timeline.h): of a policy's answer, of
 * the best plan there is, found by trying all, and of the reference, Algorithm 1 and the scheduler.
 */
#include "core/kit/kit.h"

#include "sched/answer.h"
#include "sched/dynamic.h"
#include "sched/fit.h"
#include "sched/place.h"
#include "sched/timeline.h"

#include <stdlib.h>
#include <string.h>

/* A chain of one phase with room to work in. */
struct bench {
    struct sched_view view;
    void *memory, *work;
    uint8_t *b, *rb; /* [n] */
    uint32_t rounds;
};

static void *room(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
}

static void bench_close(struct bench *w)
{
    free(w->memory);
    free(w->work);
    free(w->b);
    free(w->rb);
    memset(w, 0, sizeof *w);
}

static int bench_open(struct atsi_question *q, uint32_t phase, size_t work, struct bench *w,
                      struct atsi_err *err)
{
    uint32_t n = q->items->n;
    size_t least = sched_timeline_scratch(n, SCHED_MAX_ROUNDS);
    int rc;
    *w = (struct bench){.rounds = sched_predict_rounds(phase)};
    w->memory = room(sched_view_scratch(n));
    w->work = room(work > least ? work : least);
    w->b = calloc((size_t)n + 1, 1);
    w->rb = calloc((size_t)n + 1, 1);
    if (w->memory == NULL || w->work == NULL || w->b == NULL || w->rb == NULL)
        rc = atsi_fail(err, ATSI_ENOMEM, "out of memory judging %u items", n);
    else
        rc = sched_view_read(&q->p, phase, w->memory, &w->view, err);
    if (rc != ATSI_OK) {
        bench_close(w);
        return rc;
    }
    w->view.chain.b = w->b;
    return ATSI_OK;
}

/* Transfers in order of use. */
static double judge(const struct bench *w)
{
    const struct sched_run run = {.rounds = w->rounds, .follows = w->rounds > 1};
    return sched_fluid(&w->view.chain, w->rb, &run, w->work);
}

int atsi_kit_round_ns(const struct atsi_kit_seat *s, uint32_t phase, double *ns_out,
                      struct atsi_err *err)
{
    const struct sched_run run = {.rounds = sched_predict_rounds(phase),
                                  .follows = phase == ATSI_PHASE_DECODE,
                                  .after = s->schedule.after,
                                  .order = s->schedule.order,
                                  .n_order = s->schedule.n_transfers};
    struct bench w;
    int rc = bench_open(s->q, phase, 0, &w, err);
    if (rc != ATSI_OK)
        return rc;
    rc = sched_read_sides(&s->q->p, s->place.device, w.b, err);
    if (rc == ATSI_OK)
        rc = sched_read_sides(&s->q->p, s->schedule.device, w.rb, err);
    if (rc == ATSI_OK)
        rc = sched_plan_check(&w.view.chain, w.rb, err);
    if (rc == ATSI_OK) {
        *ns_out = sched_fluid(&w.view.chain, w.rb, &run, w.work);
        if (*ns_out < 0)
            rc = atsi_fail(err, ATSI_EINVAL, "its order of transfers blocks");
    }
    bench_close(&w);
    return rc;
}

/* ---------------------------------------------------------------- all there are */
/* Least round over all plans on the placement w->b. */
static double least(struct bench *w)
{
    uint32_t may[16], n_may = 0, n = w->view.chain.n;
    double best = -1;
    for (uint32_t i = 0; i < n; i++)
        if (sched_is_free(&w->view.chain, i))
            may[n_may++] = i;
    for (uint32_t set = 0; set < 1U << n_may; set++) {
        double ns;
        memcpy(w->rb, w->b, n);
        for (uint32_t k = 0; k < n_may; k++)
            if ((set >> k & 1U) != 0)
                w->rb[may[k]] = SCHED_GPU;
        ns = judge(w);
        if (ns >= 0 && (best < 0 || ns < best))
            best = ns;
    }
    return best;
}

int atsi_kit_best_plan(const struct atsi_kit_seat *s, uint32_t phase, double *ns_out,
                       struct atsi_err *err)
{
    struct bench w;
    int rc = bench_open(s->q, phase, 0, &w, err);
    if (rc != ATSI_OK)
        return rc;
    rc = sched_read_sides(&s->q->p, s->place.device, w.b, err);
    if (rc == ATSI_OK)
        *ns_out = least(&w);
    bench_close(&w);
    return rc;
}

int atsi_kit_best_request(struct atsi_question *q, double *ns_out, struct atsi_err *err)
{
    uint32_t n = q->items->n;
    struct bench prefill, decode;
    int rc = bench_open(q, ATSI_PHASE_PREFILL, 0, &prefill, err);
    if (rc != ATSI_OK)
        return rc;
    rc = bench_open(q, ATSI_PHASE_DECODE, 0, &decode, err);
    *ns_out = -1;
    for (uint32_t set = 0; set < 1U << n && rc == ATSI_OK; set++) {
        uint64_t used = 0;
        double ns;
        for (uint32_t i = 0; i < n; i++) {
            prefill.b[i] = decode.b[i] = (set >> i & 1U) != 0;
            used += prefill.b[i] != 0 ? q->items->items[i].resident_bytes : 0;
        }
        if (used > q->budget[ATSI_DEVICE_ACCEL])
            continue;
        ns = least(&prefill) * sched_problem_chunks(&q->p) + least(&decode) * q->p.mix_generated;
        if (*ns_out < 0 || ns < *ns_out)
            *ns_out = ns;
    }
    bench_close(&prefill);
    bench_close(&decode);
    return rc;
}

/* ---------------------------------------------------------------- the reference */
static int search(struct atsi_question *q, uint32_t phase, const uint8_t *b, double *ns_out,
                  struct atsi_err *err)
{
    struct sched_search how = {.rounds = phase == ATSI_PHASE_DECODE ? 2 : 1, .evals = 80};
    struct sched_found found;
    struct bench w;
    int rc = bench_open(q, phase, sched_search_scratch(q->items->n, how.rounds), &w, err);
    if (rc != ATSI_OK)
        return rc;
    memcpy(w.b, b, q->items->n);
    sched_search(&w.view.chain, &how, w.work, w.rb, &found);
    *ns_out = judge(&w);
    bench_close(&w);
    return ATSI_OK;
}

int atsi_kit_reference(struct atsi_question *q, double ns_out[2], struct atsi_err *err)
{
    size_t fit = sched_fit_room(q->items->n);
    struct bench w;
    int rc = bench_open(q, ATSI_PHASE_DECODE, fit, &w, err);
    if (rc != ATSI_OK)
        return rc;
    rc = sched_fit(&w.view, SCHED_UNIT, w.work, fit, w.b, err);
    for (uint32_t f = 0; f < 2 && rc == ATSI_OK; f++)
        rc = search(q, f, w.b, &ns_out[f], err);
    bench_close(&w);
    return rc;
}
