/* SPDX-License-Identifier: Apache-2.0
 * The governor's thread: sample, decide, tell, sleep. */
#include "core/govern/governor.h"

#include "core/signals.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct atsi_governor {
    struct atsi_governor_params p;
    char *root; /* [owned] */
    struct atsi_nvml *nvml;
    atomic_uint rounds; /* only their change matters */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;                    /* under the lock */
    struct atsi_govern_plan plan; /* under the lock */
    struct atsi_govern state;     /* the thread's from here on */
    unsigned seen_rounds;
    bool on_battery;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* True: the governor is being closed. */
static bool sleep_until(struct atsi_governor *g, uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    bool stop;
    (void)pthread_mutex_lock(&g->lock);
    while (!g->stop && pthread_cond_timedwait(&g->wake, &g->lock, &t) == 0) {
    }
    stop = g->stop;
    (void)pthread_mutex_unlock(&g->lock);
    return stop;
}

static void watch_battery(struct atsi_governor *g, const struct atsi_sense *s)
{
    if ((s->has & ATSI_HAS_BATTERY) == 0 || s->on_battery == g->on_battery)
        return;
    g->on_battery = s->on_battery;
    atsi_log(g->p.log, ATSI_LOG_INFO, "power", "%s", s->on_battery ? "on battery" : "on mains");
    if (g->p.battery != NULL)
        g->p.battery(g->p.ctx, s->on_battery);
}

static void sample(struct atsi_governor *g)
{
    struct atsi_sense s = {.has = 0};
    struct atsi_govern_decision d;
    struct atsi_govern_plan plan;
    unsigned rounds = atomic_load_explicit(&g->rounds, memory_order_relaxed);
    bool busy = rounds != g->seen_rounds;
    g->seen_rounds = rounds;
    atsi_sense_host(g->root, &s);
    atsi_nvml_sense(g->nvml, &s);
    watch_battery(g, &s);
    (void)pthread_mutex_lock(&g->lock);
    plan = g->plan;
    (void)pthread_mutex_unlock(&g->lock);
    atsi_govern_step(&g->state, &plan, &s, busy, now_ns(), &d);
    if (d.what != ATSI_GOVERN_NOTHING)
        g->p.decided(g->p.ctx, &d);
}

static void *run(void *arg)
{
    struct atsi_governor *g = arg;
    uint64_t period = (uint64_t)g->p.period_ms * 1000000u;
    while (!sleep_until(g, now_ns() + period))
        sample(g);
    return NULL;
}

static int start(struct atsi_governor *g)
{
    sigset_t before;
    int rc = atsi_signals_block(&before);
    if (rc != 0)
        return rc;
    rc = pthread_create(&g->thread, NULL, run, g);
    atsi_signals_restore(&before);
    return rc;
}

static int make_wake(pthread_cond_t *wake)
{
    pthread_condattr_t a;
    int rc = pthread_condattr_init(&a);
    if (rc != 0)
        return rc;
    rc = pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    if (rc == 0)
        rc = pthread_cond_init(wake, &a);
    (void)pthread_condattr_destroy(&a); /* initialised above */
    return rc;
}

int atsi_governor_open(const struct atsi_governor_params *p, struct atsi_governor **out,
                       struct atsi_err *err)
{
    struct atsi_governor *g = calloc(1, sizeof *g);
    *out = NULL;
    if (g == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the governor");
    g->p = *p;
    g->root = strdup(p->root);
    atsi_govern_begin(&g->state);
    if (g->root == NULL)
        goto fail;
    if (pthread_mutex_init(&g->lock, NULL) != 0)
        goto fail;
    if (make_wake(&g->wake) != 0)
        goto fail_lock;
    g->nvml = atsi_nvml_open(p->device);
    if (start(g) != 0)
        goto fail_wake;
    *out = g;
    return ATSI_OK;
fail_wake:
    atsi_nvml_close(g->nvml);
    (void)pthread_cond_destroy(&g->wake);
fail_lock:
    (void)pthread_mutex_destroy(&g->lock);
fail:
    free(g->root);
    free(g);
    return atsi_fail(err, ATSI_ENOMEM, "no thread can be started for the governor");
}

void atsi_governor_close(struct atsi_governor *g)
{
    if (g == NULL)
        return;
    (void)pthread_mutex_lock(&g->lock);
    g->stop = true;
    (void)pthread_cond_signal(&g->wake);
    (void)pthread_mutex_unlock(&g->lock);
    (void)pthread_join(g->thread, NULL); /* it was created, and is joined once */
    atsi_nvml_close(g->nvml);
    (void)pthread_cond_destroy(&g->wake);
    (void)pthread_mutex_destroy(&g->lock);
    free(g->root);
    free(g);
}

void atsi_governor_round(struct atsi_governor *g)
{
    if (g != NULL)
        (void)atomic_fetch_add_explicit(&g->rounds, 1, memory_order_relaxed);
}

void atsi_governor_placed(struct atsi_governor *g, const struct atsi_govern_plan *plan)
{
    uint32_t version;
    (void)pthread_mutex_lock(&g->lock);
    version = g->plan.version + 1;
    g->plan = *plan;
    g->plan.version = version;
    (void)pthread_mutex_unlock(&g->lock);
}
