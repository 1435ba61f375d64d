/* SPDX-License-Identifier: Apache-2.0
 *
 * A session that gave its accelerator up tries to have it again: a few times, ever more requests
 * apart, or at once when the budget was changed.  While it tries, what the CPU needs stays as it
 * is, so that a failure changes nothing.  Also: a copy of all that a session remembers, for whoever
 * moves it.
 */
#include "core/hybrid/hybrid.h"
#include "core/hybrid/live.h"

#include <stdlib.h>
#include <string.h>

#define TRIES 3u           /* in the life of a session, or since its budget was changed */
#define FIRST_REQUESTS 32u /* then four times as many, and again */

/* ---------------------------------------------------------------- the past */
static int keep(void *ctx, void *p, size_t bytes, struct atsi_err *err)
{
    unsigned char **at = ctx;
    (void)err;
    memcpy(*at, p, bytes);
    *at += bytes;
    return ATSI_OK;
}

static int bring_back(void *ctx, void *p, size_t bytes, struct atsi_err *err)
{
    unsigned char **at = ctx;
    (void)err;
    memcpy(p, *at, bytes);
    *at += bytes;
    return ATSI_OK;
}

static int each_part(struct atsi_session *s, enum atsi_rows how, unsigned char *data,
                     struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t p = 0; p < atsi_session_n_parts(s) && rc == ATSI_OK; p++)
        rc = atsi_session_part_runs(s, p, atsi_session_part_first(s, p, s->rewind_low), s->n_past,
                                    how, how == ATSI_ROWS_READ ? keep : bring_back, &data, err);
    return rc;
}

int atsi_session_copy_past(struct atsi_session *s, unsigned char **out, struct atsi_err *err)
{
    size_t all = 1, bytes;
    int rc;
    for (uint32_t p = 0; p < atsi_session_n_parts(s); p++)
        if (atsi_session_part_bytes(s, p, atsi_session_part_first(s, p, s->rewind_low), s->n_past,
                                    &bytes))
            all += bytes; /* less than the caches, which were summed without overflow */
    *out = malloc(all);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the caches of %u tokens", s->n_past);
    rc = each_part(s, ATSI_ROWS_READ, *out, err);
    if (rc != ATSI_OK) {
        free(*out);
        *out = NULL;
    }
    return rc;
}

int atsi_session_bring_past(struct atsi_session *s, unsigned char *data, struct atsi_err *err)
{
    return each_part(s, ATSI_ROWS_WRITE, data, err);
}

/* ---------------------------------------------------------------- when */
static bool is_due(struct atsi_session *s)
{
    struct atsi_budget_conf c;
    if (s->hybrid != NULL || s->n_fallbacks == 0 || s->trace != NULL)
        return false;
    if (atsi_live_budget(s->live, s->rt, &c, NULL) != ATSI_OK)
        return false;
    if (atsi_live_take(s->live, s->rt, &c)) {
        s->n_tries = s->n_requests_alone = 0;
        return !atsi_budget_is_off(&c);
    }
    if (s->n_tries >= TRIES)
        return false;
    return ++s->n_requests_alone >= FIRST_REQUESTS << (2 * s->n_tries);
}

/* ---------------------------------------------------------------- how */
/* Where caches and states are for the CPU alone. */
struct tables {
    struct atsi_kv *kv;
    struct atsi_tensor *states;
};

static bool keep_tables(const struct atsi_session *s, struct tables *t)
{
    t->kv = malloc((s->g->n_kv + 1) * sizeof *t->kv);
    t->states = malloc((s->g->n_states + 1) * sizeof *t->states);
    if (t->kv == NULL || t->states == NULL)
        return false;
    memcpy(t->kv, s->kv, s->g->n_kv * sizeof *t->kv);
    memcpy(t->states, s->states, s->g->n_states * sizeof *t->states);
    return true;
}

/* Back on the CPU, as if nothing had been tried. */
static void stay_alone(struct atsi_session *s, const struct tables *t)
{
    struct atsi_err why = ATSI_ERR_INIT;
    atsi_hybrid_close(s->hybrid);
    s->hybrid = NULL;
    memcpy(s->kv, t->kv, s->g->n_kv * sizeof *t->kv);
    memcpy(s->states, t->states, s->g->n_states * sizeof *t->states);
    if (atsi_session_open_views(s, &why) != ATSI_OK)
        atsi_log(s->rt->log, ATSI_LOG_WARN, "session", "weights are no longer packed: %s", why.msg);
}

static int move_over(struct atsi_session *s, unsigned char *past, struct atsi_err *err)
{
    int rc = atsi_hybrid_open(s, &s->hybrid, err);
    if (rc != ATSI_OK || s->hybrid == NULL)
        return rc == ATSI_OK ? ATSI_ENODEV : rc;
    rc = atsi_session_bring_past(s, past, err);
    return rc == ATSI_OK ? atsi_hybrid_pack(s->hybrid, err) : rc;
}

void atsi_session_try_again(struct atsi_session *s)
{
    struct atsi_err why = ATSI_ERR_INIT;
    unsigned char *past = NULL;
    struct tables t = {0};
    if (!is_due(s))
        return;
    s->n_tries++;
    s->n_requests_alone = 0;
    atsi_log(s->rt->log, ATSI_LOG_INFO, "session", "the accelerator is tried again (%u of %u)",
             s->n_tries, TRIES);
    if (keep_tables(s, &t) && atsi_session_copy_past(s, &past, &why) == ATSI_OK) {
        atsi_session_close_views(s);
        if (move_over(s, past, &why) == ATSI_OK)
            atsi_session_unbuild_work(s);
        else
            stay_alone(s, &t);
    }
    if (s->hybrid == NULL && why.msg[0] != '\0') /* else it was said */
        atsi_log(s->rt->log, ATSI_LOG_WARN, "session", "it stays on the CPU: %s", why.msg);
    free(past);
    free(t.kv);
    free(t.states);
}
