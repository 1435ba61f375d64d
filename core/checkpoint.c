/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: a copy of what a session cannot be cut back to.  Caches without a window keep every
 * position and need none; of the others the rows that the next token sees are copied, and all
 * recurrent states.  Rows are kept in position order, so that a checkpoint fits any session of the
 * model, whatever its context and prefill chunk.
 */
#include "core/session_rows.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

struct atsi_checkpoint {
    const struct atsi_model *model; /* compared, never followed */
    const struct atsi_graph *g;     /* likewise */
    uint32_t type_k, type_v;
    uint32_t n_past;
    size_t data_bytes;
    int32_t *tokens; /* [n_past] */
    unsigned char *data;
};

/* Positions [first, n_past) of a part are in the copy. */
static uint32_t copied_from(const struct atsi_session *s, uint32_t part, uint32_t n_past)
{
    if (part < s->g->n_kv && s->g->kv[part]->window == 0)
        return n_past;
    return atsi_session_part_first(s, part, n_past);
}

/* A place in the copy that walks along with the parts of a session. */
struct walk {
    unsigned char *at;
    bool back; /* from the copy to the session */
};

static int copy_run(void *ctx, void *p, size_t bytes, struct atsi_err *err)
{
    struct walk *w = ctx;
    (void)err;
    /* A ring holds its window, so that every row has a cell. */
    if (w->back)
        memcpy(p, w->at, bytes);
    else
        memcpy(w->at, p, bytes);
    w->at += bytes;
    return ATSI_OK;
}

/* Fails with the accelerator alone. */
static int copy_parts(const struct atsi_session *s, const struct atsi_checkpoint *cp, bool back,
                      struct atsi_err *err)
{
    struct walk w = {cp->data, back};
    int rc = ATSI_OK;
    for (uint32_t p = 0; p < atsi_session_n_parts(s) && rc == ATSI_OK; p++)
        rc = atsi_session_part_runs(s, p, copied_from(s, p, cp->n_past), cp->n_past,
                                    back ? ATSI_ROWS_WRITE : ATSI_ROWS_READ, copy_run, &w, err);
    return rc;
}

static bool sum_parts(const struct atsi_session *s, size_t *out)
{
    *out = 0;
    for (uint32_t p = 0; p < atsi_session_n_parts(s); p++) {
        size_t bytes;
        if (!atsi_session_part_bytes(s, p, copied_from(s, p, s->n_past), s->n_past, &bytes) ||
            !atsi_add_size(*out, bytes, out))
            return false;
    }
    return true;
}

int atsi_session_checkpoint(const struct atsi_session *s, struct atsi_checkpoint **out,
                            struct atsi_err *err)
{
    struct atsi_checkpoint *cp = calloc(1, sizeof *cp);
    size_t bytes = 0;
    int rc;
    *out = NULL;
    if (cp == NULL)
        goto fail;
    *cp = (struct atsi_checkpoint){.model = s->model,
                                   .g = s->g,
                                   .type_k = s->type_k,
                                   .type_v = s->type_v,
                                   .n_past = s->n_past};
    if (!sum_parts(s, &bytes))
        goto fail;
    cp->data_bytes = bytes;
    cp->tokens = malloc((size_t)s->n_past * sizeof *cp->tokens + 1);
    cp->data = atsi_mem_alloc(bytes);
    if (cp->tokens == NULL || cp->data == NULL)
        goto fail;
    memcpy(cp->tokens, s->tokens, (size_t)s->n_past * sizeof *cp->tokens);
    rc = copy_parts(s, cp, false, err);
    if (rc != ATSI_OK) {
        atsi_checkpoint_free(cp);
        return rc;
    }
    *out = cp;
    return ATSI_OK;
fail:
    atsi_checkpoint_free(cp);
    return atsi_fail(err, ATSI_ENOMEM, "out of memory for a checkpoint of %zu bytes at %u tokens",
                     bytes, s->n_past);
}

static int check_session(const struct atsi_session *s, const struct atsi_checkpoint *cp,
                         struct atsi_err *err)
{
    uint32_t same = 0;
    if (cp->model != s->model || cp->g != s->g)
        return atsi_fail(err, ATSI_EINVAL,
                         "the checkpoint was taken from a session of another model");
    if (cp->type_k != s->type_k || cp->type_v != s->type_v)
        return atsi_fail(err, ATSI_EINVAL,
                         "the checkpoint's KV cache is %s/%s, the session's %s/%s",
                         atsi_type_info(cp->type_k)->name, atsi_type_info(cp->type_v)->name,
                         atsi_type_info(s->type_k)->name, atsi_type_info(s->type_v)->name);
    if (cp->n_past > s->n_past)
        return atsi_fail(err, ATSI_EINVAL,
                         "the checkpoint is at token %u, the session has only %u: it was cut back",
                         cp->n_past, s->n_past);
    while (same < cp->n_past && cp->tokens[same] == s->tokens[same])
        same++;
    if (same < cp->n_past)
        return atsi_fail(err, ATSI_EINVAL,
                         "the session differs from the checkpoint of %u tokens at token %u: %d, "
                         "was %d",
                         cp->n_past, same, s->tokens[same], cp->tokens[same]);
    return ATSI_OK;
}

int atsi_session_restore(struct atsi_session *s, const struct atsi_checkpoint *cp,
                         struct atsi_err *err)
{
    int rc = check_session(s, cp, err);
    if (rc != ATSI_OK)
        return rc;
    rc = copy_parts(s, cp, true, err);
    if (rc != ATSI_OK) { /* half-written: the past is computed again, without the accelerator */
        s->n_past = cp->n_past;
        rc = atsi_session_fall_back(s, "its memory cannot be written", err);
        if (rc != ATSI_OK)
            return rc;
    }
    /* Rows that were in the caches are there still: what could be cut back to, can be. */
    atsi_session_set_past(s, cp->n_past, s->rewind_low);
    return ATSI_OK;
}

uint32_t atsi_checkpoint_n_past(const struct atsi_checkpoint *cp)
{
    return cp->n_past;
}

size_t atsi_checkpoint_bytes(const struct atsi_checkpoint *cp)
{
    return sizeof *cp + (size_t)cp->n_past * sizeof *cp->tokens + cp->data_bytes;
}

void atsi_checkpoint_free(struct atsi_checkpoint *cp)
{
    if (cp == NULL)
        return;
    atsi_mem_free(cp->data, cp->data_bytes);
    free(cp->tokens);
    free(cp);
}
