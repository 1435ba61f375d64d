/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that asks policies while a round runs.  It reads the copy that was made when it was
 * asked, and of the question only what changes while nothing is asked; one question at a time,
 * handed over and back under a lock.
 */
#include "core/round/attempt.h"

#include "core/memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum stage { IDLE = 0, ASKED, ANSWERED };

struct atsi_solver {
    const struct atsi_question *q;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum stage stage; /* under the lock; the rest is the thread's while ASKED, else the caller's */
    bool closing;
    struct atsi_solve job;
    struct atsi_problem problem;
    struct atsi_item_cost *cost[2]; /* [phase]: as q->now */
    int32_t *placed, *in_force;     /* [n] */
    uint32_t then[ATSI_N_CLASSES], now[ATSI_N_CLASSES];
    void *state[ATSI_USES], *scratch;
    size_t state_room[ATSI_USES], scratch_room;
    struct atsi_attempt attempt[ATSI_USES];
    int used;
    struct atsi_answer *answer;
};

/* ---------------------------------------------------------------- the thread */
static void solve(struct atsi_solver *s)
{
    struct atsi_round in = s->job.in;
    s->used = -1;
    memset(s->attempt, 0, sizeof s->attempt);
    for (int k = 0; k < (int)ATSI_USES && s->used < 0; k++) {
        struct atsi_attempt *a = &s->attempt[k];
        if (s->job.use[k].ops == NULL || s->job.use[k].ops->schedule == NULL)
            continue;
        in.state = s->job.state_bytes[k] > 0 ? s->state[k] : NULL;
        in.state_bytes = s->job.state_bytes[k];
        atsi_attempt_schedule(s->q, &s->job.use[k], &in, &s->answer->schedule, a);
        if (a->rc == ATSI_OK && a->legal == ATSI_OK &&
            (s->job.time_limit_ns == 0 || a->took_ns <= s->job.time_limit_ns))
            s->used = k;
    }
}

/* The engine's thread may be pinned to one CPU, which this one must not share. */
static void leave_cpu(void)
{
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    (void)sched_setaffinity(0, sizeof all, &all); /* where it may not, it stays */
}

static void *serve(void *arg)
{
    struct atsi_solver *s = arg;
    leave_cpu();
    (void)pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->stage != ASKED && !s->closing)
            (void)pthread_cond_wait(&s->changed, &s->lock);
        if (s->stage != ASKED)
            break;
        (void)pthread_mutex_unlock(&s->lock);
        solve(s);
        (void)pthread_mutex_lock(&s->lock);
        s->stage = ANSWERED;
        (void)pthread_cond_broadcast(&s->changed);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---------------------------------------------------------------- life */
int atsi_solver_open(const struct atsi_question *q, struct atsi_solver **out, struct atsi_err *err)
{
    size_t n = (size_t)q->items->n + 1;
    struct atsi_solver *s = calloc(1, sizeof *s);
    int rc = ATSI_ENOMEM, e = 0;
    *out = NULL;
    if (s == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for schedules beside rounds");
    s->q = q;
    (void)pthread_mutex_init(&s->lock, NULL); /* neither can fail with default attributes */
    (void)pthread_cond_init(&s->changed, NULL);
    s->cost[0] = calloc(ATSI_N_DEVICES * n, sizeof *s->cost[0]);
    s->cost[1] = calloc(ATSI_N_DEVICES * n, sizeof *s->cost[1]);
    s->placed = calloc(n, sizeof *s->placed);
    s->in_force = calloc(n, sizeof *s->in_force);
    if (s->cost[0] != NULL && s->cost[1] != NULL && s->placed != NULL && s->in_force != NULL)
        rc = atsi_answer_open(q->items->n, &s->answer, err);
    if (rc == ATSI_OK) {
        e = pthread_create(&s->thread, NULL, serve, s);
        s->running = e == 0;
    }
    if (rc == ATSI_OK && e == 0) {
        *out = s;
        return ATSI_OK;
    }
    atsi_solver_close(s);
    return e != 0 ? atsi_fail(err, ATSI_ENOMEM, "no thread for schedules beside rounds: %s",
                              strerror(e))
                  : atsi_fail(err, rc, "out of memory for schedules beside rounds");
}

void atsi_solver_close(struct atsi_solver *s)
{
    if (s == NULL)
        return;
    if (s->running) {
        (void)pthread_mutex_lock(&s->lock);
        s->closing = true;
        (void)pthread_cond_broadcast(&s->changed);
        (void)pthread_mutex_unlock(&s->lock);
        (void)pthread_join(s->thread, NULL); /* cannot fail for a thread of ours */
    }
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
    atsi_answer_close(s->answer);
    for (uint32_t k = 0; k < ATSI_USES; k++)
        free(s->state[k]);
    free(s->scratch);
    free(s->in_force);
    free(s->placed);
    free(s->cost[0]);
    free(s->cost[1]);
    free(s);
}

/* ---------------------------------------------------------------- asking */
static int grow(void **p, size_t *room, size_t bytes, struct atsi_err *err)
{
    void *grown;
    if (bytes <= *room)
        return ATSI_OK;
    if (bytes > SIZE_MAX - ATSI_ALIGN)
        return atsi_fail(err, ATSI_ENOMEM, "a policy asks for %zu bytes", bytes);
    bytes = (bytes + ATSI_ALIGN - 1) / ATSI_ALIGN * ATSI_ALIGN;
    grown = aligned_alloc(ATSI_ALIGN, bytes);
    if (grown == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "a policy asks for %zu bytes", bytes);
    free(*p);
    *p = grown;
    *room = bytes;
    return ATSI_OK;
}

/* Room for scratch and state; the largest of both policies' scratch serves each. */
static int make_room(struct atsi_solver *s, const struct atsi_solve *job, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t k = 0; k < ATSI_USES && rc == ATSI_OK; k++) {
        const struct atsi_policy_ops *ops = job->use[k].ops;
        if (ops == NULL)
            continue;
        if (ops->scratch_bytes != NULL)
            rc = grow(&s->scratch, &s->scratch_room, ops->scratch_bytes(s->q->items->n), err);
        if (rc == ATSI_OK)
            rc = grow(&s->state[k], &s->state_room[k], job->state_bytes[k], err);
    }
    return rc;
}

static void copy_round(struct atsi_solver *s, const struct atsi_round *in)
{
    size_t n = s->q->items->n;
    s->problem = *in->problem;
    memcpy(s->cost[0], in->problem->prefill, ATSI_N_DEVICES * n * sizeof *s->cost[0]);
    memcpy(s->cost[1], in->problem->decode, ATSI_N_DEVICES * n * sizeof *s->cost[1]);
    s->problem.prefill = s->cost[0];
    s->problem.decode = s->cost[1];
    s->problem.scratch = s->scratch;
    memcpy(s->placed, in->placed, n * sizeof *s->placed);
    memcpy(s->then, in->slowdown_then, sizeof s->then);
    memcpy(s->now, in->slowdown_now, sizeof s->now);
    if (in->in_force != NULL)
        memcpy(s->in_force, in->in_force, n * sizeof *s->in_force);
    s->job.in.problem = &s->problem;
    s->job.in.placed = s->placed;
    s->job.in.in_force = in->in_force != NULL ? s->in_force : NULL;
    s->job.in.slowdown_then = s->then;
    s->job.in.slowdown_now = s->now;
}

bool atsi_solver_busy(struct atsi_solver *s)
{
    bool busy;
    (void)pthread_mutex_lock(&s->lock);
    busy = s->stage != IDLE;
    (void)pthread_mutex_unlock(&s->lock);
    return busy;
}

int atsi_solver_ask(struct atsi_solver *s, const struct atsi_solve *job, struct atsi_err *err)
{
    int rc = make_room(s, job, err);
    if (rc != ATSI_OK)
        return rc;
    s->job = *job;
    copy_round(s, &job->in);
    for (uint32_t k = 0; k < ATSI_USES; k++)
        if (job->state_bytes[k] > 0)
            memcpy(s->state[k], job->state[k], job->state_bytes[k]);
    (void)pthread_mutex_lock(&s->lock);
    s->stage = ASKED;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    return ATSI_OK;
}

void atsi_solver_wait(struct atsi_solver *s)
{
    (void)pthread_mutex_lock(&s->lock);
    while (s->stage == ASKED)
        (void)pthread_cond_wait(&s->changed, &s->lock);
    (void)pthread_mutex_unlock(&s->lock);
}

bool atsi_solver_take(struct atsi_solver *s, bool wait, struct atsi_solved *out)
{
    bool there;
    (void)pthread_mutex_lock(&s->lock);
    while (wait && s->stage == ASKED)
        (void)pthread_cond_wait(&s->changed, &s->lock);
    there = s->stage == ANSWERED;
    if (there)
        s->stage = IDLE;
    (void)pthread_mutex_unlock(&s->lock);
    if (!there)
        return false;
    *out =
        (struct atsi_solved){.asked = &s->job, .used = s->used, .schedule = &s->answer->schedule};
    for (uint32_t k = 0; k < ATSI_USES; k++) {
        out->attempt[k] = s->attempt[k];
        out->state[k] = s->state[k];
    }
    return true;
}
