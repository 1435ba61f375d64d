/* SPDX-License-Identifier: Apache-2.0
 * Queues with a thread each, and events.  An event may be signalled again and again; who waits for
 * it waits for what was queued last. */
#include "twin.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct twin_queue {
    struct atsi_backend *be;
    pthread_t thread;
    struct twin_task *head, *tail;
    bool closing;
};

static int is_lost(const struct twin_shared *s, struct atsi_err *err)
{
    return s->lost ? atsi_fail(err, ATSI_ENODEV, "%s", s->why) : ATSI_OK;
}

/* ---------------------------------------------------------------- the thread */
static void nap(struct twin_shared *s)
{
    uint64_t us;
    struct timespec t;
    if (s->delay_us == 0)
        return;
    (void)pthread_mutex_lock(&s->lock);
    s->random = s->random * 6364136223846793005U + 1442695040888963407U;
    us = (s->random >> 33) % (4 * s->delay_us);
    (void)pthread_mutex_unlock(&s->lock);
    if (us >= s->delay_us) /* most of the time none at all */
        return;
    t = (struct timespec){.tv_nsec = (long)(us * 1000)};
    (void)nanosleep(&t, NULL);
}

static void lose(struct twin_shared *s, const struct atsi_err *why)
{
    if (!s->lost)
        (void)snprintf(s->why, sizeof s->why, "%s", why->msg);
    s->lost = true;
}

static void run_task(struct twin_queue *q, struct twin_task *t)
{
    struct twin_shared *s = twin_shared(q->be);
    struct atsi_err err = ATSI_ERR_INIT;
    uint64_t start;
    int rc;
    (void)pthread_mutex_lock(&s->lock);
    for (uint32_t k = 0; k < t->n_wait; k++)
        while (t->wait[k]->fired < t->wait_ticket[k])
            (void)pthread_cond_wait(&s->changed, &s->lock);
    rc = is_lost(s, &err);
    (void)pthread_mutex_unlock(&s->lock);
    nap(s);
    start = s->host->now_ns(s->host->ctx);
    if (rc == ATSI_OK)
        rc = twin_call(s->host, TWIN_WORK, &err);
    if (rc == ATSI_OK)
        rc = t->fn(t, &err);
    (void)pthread_mutex_lock(&s->lock);
    if (rc != ATSI_OK)
        lose(s, &err);
    if (t->took_ns != NULL)
        *t->took_ns = s->host->now_ns(s->host->ctx) - start;
    if (t->signal != NULL) {
        t->signal->fired = t->ticket;
        t->signal->ns = s->host->now_ns(s->host->ctx);
    }
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    t->done(t);
}

static void *thread_main(void *arg)
{
    struct twin_queue *q = arg;
    struct twin_shared *s = twin_shared(q->be);
    for (;;) {
        struct twin_task *t;
        (void)pthread_mutex_lock(&s->lock);
        while (q->head == NULL && !q->closing)
            (void)pthread_cond_wait(&s->changed, &s->lock);
        t = q->head;
        if (t != NULL) {
            q->head = t->next;
            if (q->head == NULL)
                q->tail = NULL;
        }
        (void)pthread_mutex_unlock(&s->lock);
        if (t == NULL)
            return NULL;
        run_task(q, t);
    }
}

/* ---------------------------------------------------------------- queues */
int twin_queue_open(struct atsi_backend *be, struct twin_queue **out, struct atsi_err *err)
{
    struct twin_queue *q;
    int rc = twin_call(twin_shared(be)->host, TWIN_OBJECT, err);
    *out = NULL;
    if (rc != ATSI_OK)
        return rc;
    q = calloc(1, sizeof *q);
    if (q != NULL)
        q->be = be;
    if (q == NULL || pthread_create(&q->thread, NULL, thread_main, q) != 0) {
        free(q);
        return atsi_fail(err, ATSI_ENOMEM, "twin: a queue cannot be started");
    }
    *out = q;
    return ATSI_OK;
}

void twin_queue_close(struct twin_queue *q)
{
    struct twin_shared *s;
    if (q == NULL)
        return;
    s = twin_shared(q->be);
    (void)pthread_mutex_lock(&s->lock);
    q->closing = true;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(q->thread, NULL);
    free(q);
}

/* The lock is held. */
static int take_events(struct twin_task *t, struct atsi_event *const *wait, uint32_t n_wait,
                       struct atsi_event *signal, struct atsi_err *err)
{
    if (n_wait > sizeof t->wait / sizeof t->wait[0])
        return atsi_fail(err, ATSI_EINVAL, "twin: work waits for %u events", n_wait);
    for (uint32_t k = 0; k < n_wait; k++) {
        if (wait[k]->queued == 0)
            return atsi_fail(err, ATSI_EINVAL,
                             "twin: work waits for an event that nothing queued "
                             "before it signals");
        t->wait[k] = wait[k];
        t->wait_ticket[k] = wait[k]->queued;
    }
    t->n_wait = n_wait;
    t->signal = signal;
    if (signal != NULL)
        t->ticket = ++signal->queued;
    return ATSI_OK;
}

int twin_queue_add(struct twin_queue *q, struct twin_task *t, struct atsi_event *const *wait,
                   uint32_t n_wait, struct atsi_event *signal, struct atsi_err *err)
{
    struct twin_shared *s = twin_shared(q->be);
    int rc = twin_call(s->host, TWIN_QUEUE, err);
    if (rc != ATSI_OK)
        return rc;
    (void)pthread_mutex_lock(&s->lock);
    rc = is_lost(s, err);
    if (rc == ATSI_OK)
        rc = take_events(t, wait, n_wait, signal, err);
    if (rc == ATSI_OK) {
        t->next = NULL;
        if (q->tail != NULL)
            q->tail->next = t;
        else
            q->head = t;
        q->tail = t;
        (void)pthread_cond_broadcast(&s->changed);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

/* ---------------------------------------------------------------- events */
int twin_event_open(struct atsi_backend *be, struct atsi_event **out, struct atsi_err *err)
{
    int rc = twin_call(twin_shared(be)->host, TWIN_OBJECT, err);
    *out = NULL;
    if (rc != ATSI_OK)
        return rc;
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "twin: out of memory");
    (*out)->be = be;
    return ATSI_OK;
}

/* Queued work still signals it. */
void twin_event_close(struct atsi_event *ev)
{
    struct twin_shared *s;
    if (ev == NULL)
        return;
    s = twin_shared(ev->be);
    (void)pthread_mutex_lock(&s->lock);
    while (ev->fired < ev->queued)
        (void)pthread_cond_wait(&s->changed, &s->lock);
    (void)pthread_mutex_unlock(&s->lock);
    free(ev);
}

int twin_event_wait(struct atsi_event *ev, uint64_t spin_ns, struct atsi_err *err)
{
    struct twin_shared *s = twin_shared(ev->be);
    int rc = twin_call(s->host, TWIN_WAIT, err);
    (void)spin_ns;
    if (rc != ATSI_OK)
        return rc;
    (void)pthread_mutex_lock(&s->lock);
    if (ev->queued == 0)
        rc = atsi_fail(err, ATSI_EINVAL, "twin: waiting for an event that nothing signals");
    while (rc == ATSI_OK && ev->fired < ev->queued)
        (void)pthread_cond_wait(&s->changed, &s->lock);
    if (rc == ATSI_OK)
        rc = is_lost(s, err);
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

int twin_event_query(const struct atsi_event *ev)
{
    struct twin_shared *s = twin_shared(ev->be);
    int rc;
    (void)pthread_mutex_lock(&s->lock);
    rc = ev->queued != 0 && ev->fired == ev->queued ? 1 : 0;
    if (s->lost)
        rc = ATSI_ENODEV;
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

int twin_event_time(const struct atsi_event *ev, uint64_t *ns_out)
{
    struct twin_shared *s = twin_shared(ev->be);
    int rc = ATSI_EINVAL;
    (void)pthread_mutex_lock(&s->lock);
    if (ev->fired != 0) {
        *ns_out = ev->ns;
        rc = ATSI_OK;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}
