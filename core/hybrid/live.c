/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests for another budget, kept until the session asks.
 */
#include "core/hybrid/live.h"

#include "core/govern/power.h"
#include "core/runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Counts calls of atsi_settings_changed(); one counter for all sessions, since a signal is for the
 * process. */
static atomic_uint changes;

struct atsi_live_budget {
    pthread_mutex_t lock;
    bool changed;                              /* under the lock */
    struct atsi_amount vram;                   /* under the lock */
    bool decided, battery_changed, on_battery; /* under the lock */
    struct atsi_govern_decision decision;      /* under the lock */
    unsigned seen;                             /* of `changes`; the session's thread */
    struct atsi_live_governed governed;        /* the session's thread */
    struct atsi_budget_conf last;              /* taken; the session's thread */
    bool taken;
};

void atsi_settings_changed(void)
{
    (void)atomic_fetch_add(&changes, 1); /* lock-free: a signal handler may call it */
}

int atsi_live_open(struct atsi_live_budget **out, struct atsi_err *err)
{
    struct atsi_live_budget *l = calloc(1, sizeof *l);
    *out = NULL;
    if (l == NULL || pthread_mutex_init(&l->lock, NULL) != 0) {
        free(l);
        return atsi_fail(err, ATSI_ENOMEM, "out of memory opening a session");
    }
    l->seen = atomic_load(&changes);
    l->governed.load_cpu = l->governed.load_gpu = 1;
    *out = l;
    return ATSI_OK;
}

void atsi_live_close(struct atsi_live_budget *l)
{
    if (l == NULL)
        return;
    (void)pthread_mutex_destroy(&l->lock); /* not held: nobody uses it any more */
    free(l);
}

int atsi_live_set(struct atsi_live_budget *l, const char *vram, struct atsi_err *err)
{
    struct atsi_amount a;
    int rc = atsi_amount_parse("memory.vram", vram, &a, err);
    if (rc != ATSI_OK)
        return rc;
    (void)pthread_mutex_lock(&l->lock);
    l->vram = a;
    l->changed = true;
    (void)pthread_mutex_unlock(&l->lock);
    return ATSI_OK;
}

static bool same_amount(const struct atsi_amount *a, const struct atsi_amount *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && !(a->percent < b->percent) &&
           !(b->percent < a->percent);
}

/* The settings as they are now; false: they are wrong, or say what they said. */
static bool reread(const struct atsi_runtime *rt, struct atsi_budget_conf *c)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_conf *conf = NULL;
    struct atsi_budget_conf now = *c;
    bool changed;
    int rc = atsi_conf_reopen(rt->conf, &conf, &err);
    if (rc == ATSI_OK)
        rc = atsi_budget_read(conf, &now, &err);
    atsi_conf_close(conf);
    if (rc != ATSI_OK) {
        atsi_log(rt->log, ATSI_LOG_WARN, "memory", "settings read again: %s; the budget stays",
                 err.msg);
        return false;
    }
    changed = !same_amount(&now.vram, &c->vram) || !same_amount(&now.temp, &c->temp) ||
              !same_amount(&now.pin, &c->pin) || now.margin_bytes != c->margin_bytes ||
              now.max_slots != c->max_slots;
    atsi_log(rt->log, ATSI_LOG_INFO, "memory", "settings read again: the budget %s",
             changed ? "changes" : "stays");
    *c = now;
    return changed;
}

void atsi_live_decide(struct atsi_live_budget *l, const struct atsi_govern_decision *d)
{
    (void)pthread_mutex_lock(&l->lock);
    l->decision = *d;
    l->decided = true;
    (void)pthread_mutex_unlock(&l->lock);
}

void atsi_live_battery(struct atsi_live_budget *l, bool on_battery)
{
    (void)pthread_mutex_lock(&l->lock);
    l->on_battery = on_battery;
    l->battery_changed = true;
    (void)pthread_mutex_unlock(&l->lock);
}

const struct atsi_live_governed *atsi_live_governed(const struct atsi_live_budget *l)
{
    return &l->governed;
}

/* Workers wait awake for less, or longer again. */
static void follow_battery(const struct atsi_runtime *rt, bool on_battery)
{
    uint64_t ns = (uint64_t)atsi_conf_int(rt->conf, "cpu.spin") * 1000u;
    /* Between rounds no region runs, and nothing else is refused. */
    (void)atsi_pool_set_spin(rt->pool,
                             atsi_power_spin_ns(atsi_power_mode(rt->conf), ns, on_battery), NULL);
}

static void take_decision(struct atsi_live_budget *l, const struct atsi_runtime *rt,
                          const struct atsi_govern_decision *d)
{
    l->governed.n++;
    l->governed.load_cpu = d->load_cpu;
    l->governed.load_gpu = d->load_gpu;
    memcpy(l->governed.why, d->why, sizeof l->governed.why);
    atsi_log(rt->log, ATSI_LOG_INFO, "power", "re-planned: %s", d->why);
}

bool atsi_live_take(struct atsi_live_budget *l, const struct atsi_runtime *rt,
                    struct atsi_budget_conf *c)
{
    unsigned now = atomic_load(&changes);
    struct atsi_govern_decision decision;
    bool changed = false, decided, battery, on_battery;
    if (now != l->seen) {
        l->seen = now;
        changed = reread(rt, c);
    }
    (void)pthread_mutex_lock(&l->lock);
    if (l->changed) {
        changed = changed || !same_amount(&l->vram, &c->vram);
        c->vram = l->vram;
        l->changed = false;
    }
    decided = l->decided;
    decision = l->decision;
    battery = l->battery_changed;
    on_battery = l->on_battery;
    l->decided = l->battery_changed = false;
    (void)pthread_mutex_unlock(&l->lock);
    if (battery)
        follow_battery(rt, on_battery);
    if (decided)
        take_decision(l, rt, &decision);
    l->last = *c;
    l->taken = true;
    return changed || decided;
}

int atsi_live_budget(const struct atsi_live_budget *l, const struct atsi_runtime *rt,
                     struct atsi_budget_conf *out, struct atsi_err *err)
{
    if (!l->taken)
        return atsi_budget_read(rt->conf, out, err);
    *out = l->last;
    return ATSI_OK;
}
