/* SPDX-License-Identifier: Apache-2.0
 *
 * A hybrid session under another budget, between two rounds: what a new placement wants is compared
 * with what the device has, and the difference is loaded.  Caches and states stay when they stay on
 * their devices; else they go through the host.  When the device refuses memory on the way, all is
 * put together afresh, with less.
 */
#include "core/hybrid/inside.h"
#include "core/hybrid/live.h"

#include <stdlib.h>

/* ---------------------------------------------------------------- the difference */
static int settle(struct atsi_hybrid *h, struct atsi_err *err)
{
    if (h->rounds == NULL)
        return ATSI_OK;
    atsi_rounds_settle(h->rounds); /* no answer to the old question */
    return atsi_exec_settle(atsi_rounds_exec(h->rounds), err);
}

static void say_change(const struct atsi_hybrid *h, bool caches)
{
    const struct atsi_region_change *c = &h->changed;
    atsi_log(h->s->rt->log, ATSI_LOG_INFO, "session",
             "another budget: %u weights loaded (%.1f MiB), %u of them at another place, %u kept, "
             "%u dropped%s",
             c->loaded, (double)c->bytes / 1048576.0, c->moved, c->kept, c->dropped,
             caches ? "; caches change devices" : "");
}

static int take_difference(struct atsi_hybrid *h, unsigned char **past, struct atsi_err *err)
{
    struct atsi_session *s = h->s;
    const int32_t *placed = NULL;
    bool caches = false;
    int rc = settle(h, err);
    if (rc == ATSI_OK)
        rc = atsi_hybrid_plan_again(h, err);
    if (rc == ATSI_OK) {
        placed = atsi_rounds_placement(h->rounds)->device;
        caches = !atsi_state_fits(&h->state, h->items, placed);
    }
    if (rc == ATSI_OK && caches) {
        rc = atsi_session_copy_past(s, past, err);
        if (rc == ATSI_OK)
            atsi_state_close(&h->state);
    }
    if (rc == ATSI_OK)
        rc = atsi_hybrid_fill_region(h, &h->changed, err);
    if (rc == ATSI_OK && caches) {
        rc = atsi_state_open(&h->state, s, &h->a, h->items, placed, err);
        if (rc == ATSI_OK)
            rc = atsi_session_bring_past(s, *past, err);
    }
    if (rc != ATSI_OK)
        return rc;
    if (!h->begun)
        h->version = atsi_weights_begin(h->weights);
    h->begun = true;
    atsi_source_bind(h->source, h->region);
    if (!h->a.by_kernel)
        atsi_hybrid_pin(h);
    say_change(h, caches);
    return ATSI_OK;
}

/* ---------------------------------------------------------------- afresh */
static int take_all(struct atsi_hybrid *h, unsigned char **past, struct atsi_err *err)
{
    struct atsi_session *s = h->s;
    int rc = *past == NULL ? atsi_session_copy_past(s, past, err) : ATSI_OK;
    if (rc == ATSI_OK) {
        atsi_accel_stop(&h->a);
        atsi_hybrid_undo(h);
        rc = atsi_accel_start(&h->a, err);
    }
    if (rc == ATSI_OK)
        rc = h->a.d.ops[ATSI_DEVICE_ACCEL]->props(h->a.d.be[ATSI_DEVICE_ACCEL], &h->a.props);
    if (rc == ATSI_OK)
        rc = atsi_hybrid_setup(h, err);
    return rc == ATSI_OK ? atsi_session_bring_past(s, *past, err) : rc;
}

static int place_again(struct atsi_hybrid *h, struct atsi_err *err)
{
    struct atsi_err why = ATSI_ERR_INIT;
    unsigned char *past = NULL; /* NULL: where it was */
    int rc = take_difference(h, &past, &why);
    if (rc == ATSI_ENOMEM) {
        atsi_log(h->s->rt->log, ATSI_LOG_WARN, "session",
                 "accelerator %s: %s; everything is placed anew", h->a.name, why.msg);
        rc = take_all(h, &past, err);
    } else if (rc != ATSI_OK) {
        (void)atsi_fail(err, rc, "%s", why.msg);
    }
    if (rc == ATSI_OK)
        atsi_hybrid_report(h);
    free(past);
    return rc;
}

int atsi_hybrid_follow_budget(struct atsi_hybrid *h, struct atsi_err *err)
{
    if (!atsi_live_take(h->s->live, h->s->rt, &h->conf))
        return ATSI_OK;
    if (atsi_budget_is_off(&h->conf))
        return atsi_fail(err, ATSI_ENODEV, "memory.vram is 0 now");
    return place_again(h, err);
}
