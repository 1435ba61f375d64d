/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions with an accelerator: its rounds, and going on without it.  Whatever fails there, the
 * answer does not change: the tokens so far are known, weights are on the host, and the CPU
 * computes caches and states again.
 */
#include "core/hybrid/hybrid.h"

#include <stdlib.h>
#include <string.h>

bool atsi_session_is_broken(const struct atsi_session *s)
{
    return s->hybrid != NULL && atsi_hybrid_is_broken(s->hybrid);
}

/* ---------------------------------------------------------------- without */
/* All tokens once more, in rounds of the CPU; no logits. */
static int compute_past(struct atsi_session *s, uint32_t n, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (s->n_past = 0; s->n_past < n && rc == ATSI_OK;) {
        uint32_t rows = n - s->n_past < s->chunk ? n - s->n_past : s->chunk;
        rc = atsi_pool_set_active(s->rt->pool, atsi_session_threads(s, rows), err);
        if (rc == ATSI_OK)
            rc = atsi_session_run_main(s, s->tokens + s->n_past, rows, err);
        if (rc == ATSI_OK) {
            s->n_past += rows;
            atsi_session_note_past(s);
        }
    }
    return rc;
}

static int rebuild(struct atsi_session *s, float *logits, struct atsi_err *err)
{
    uint32_t n_past = s->n_past, low = s->rewind_low;
    bool have_logits = s->have_logits;
    int rc = atsi_session_build(s, err); /* resets the past */
    if (rc == ATSI_OK)
        rc = atsi_session_open_views(s, err);
    if (rc == ATSI_OK)
        rc = compute_past(s, n_past, err);
    if (rc != ATSI_OK) {
        s->n_past = 0;
        return rc;
    }
    if (low > s->rewind_low)
        s->rewind_low = low;
    s->have_logits = have_logits && logits != NULL;
    if (s->have_logits)
        memcpy(atsi_session_logits(s), logits, s->g->n_vocab * sizeof *logits);
    return ATSI_OK;
}

int atsi_session_fall_back(struct atsi_session *s, const char *why, struct atsi_err *err)
{
    const float *old = atsi_session_logits(s);
    float *logits = NULL;
    int rc;
    atsi_log(s->rt->log, ATSI_LOG_WARN, "session",
             "the accelerator is given up: %s; %u tokens are computed again on the CPU", why,
             s->n_past);
    if (old != NULL) {
        logits = malloc(s->g->n_vocab * sizeof *logits);
        if (logits != NULL)
            memcpy(logits, old, s->g->n_vocab * sizeof *logits);
    }
    atsi_session_close_views(s); /* packing for both; it goes on for the CPU */
    atsi_hybrid_close(s->hybrid);
    s->hybrid = NULL;
    s->n_fallbacks++;
    rc = rebuild(s, logits, err);
    free(logits);
    return rc;
}

int atsi_session_last_again(struct atsi_session *s)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int32_t last = s->tokens[s->n_past - 1];
    struct atsi_eval req = {.struct_size = sizeof req, .ids = &last, .n = 1};
    int rc;
    s->n_past--;
    s->have_logits = false;
    rc = atsi_session_fall_back(s, "it kept logits that cannot be copied", &err);
    if (rc == ATSI_OK)
        rc = atsi_session_eval(s, &req, &err);
    if (rc != ATSI_OK)
        atsi_log(s->rt->log, ATSI_LOG_ERROR, "session", "%s", err.msg);
    return rc;
}

/* ---------------------------------------------------------------- with */
/* A function takes all logits; the first header ended before `top`. */
static uint32_t wanted_top(const struct atsi_eval *req)
{
    if (req->want_all != 0 || req->fn != NULL ||
        req->struct_size < offsetof(struct atsi_eval, top) + sizeof req->top)
        return 0;
    return req->top;
}

int atsi_session_run_hybrid(struct atsi_session *s, const struct atsi_eval *req, const int32_t *ids,
                            uint32_t rows, uint32_t left, struct atsi_err *err)
{
    bool all = req->want_all != 0;
    struct atsi_err why = ATSI_ERR_INIT;
    struct atsi_hybrid_round r = {.ids = ids,
                                  .rows = rows,
                                  .out_first = all ? 0 : rows - 1,
                                  .out_n = all ? rows : 1,
                                  .top = wanted_top(req),
                                  .unseen = !all && ids + rows != req->ids + req->n,
                                  .left = left};
    int rc = atsi_hybrid_round(s->hybrid, &r, &why);
    if (rc != ATSI_OK) {
        rc = atsi_session_fall_back(s, why.msg, err);
        return rc == ATSI_OK ? ATSI_ENODEV : rc == ATSI_ENODEV ? ATSI_EIO : rc;
    }
    s->last_row = r.out_n - 1;
    for (uint32_t i = 0; i < r.out_n && rc == ATSI_OK && req->fn != NULL; i++)
        if (all || ids + rows == req->ids + req->n)
            rc = req->fn(req->ctx, s->n_past + r.out_first + i, atsi_hybrid_logits(s->hybrid, i));
    return rc;
}
