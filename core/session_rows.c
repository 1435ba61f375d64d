/* SPDX-License-Identifier: Apache-2.0
 *
 * Walking over a session's caches and states.  A cache is [n_head_kv][cells][head_dim] with cell =
 * position modulo cells, so that the rows of one head are one stretch of memory, or two where a
 * ring has wrapped.
 */
#include "core/hybrid/hybrid.h"

#include "core/memory.h"

uint32_t atsi_session_n_parts(const struct atsi_session *s)
{
    return s->g->n_kv + s->g->n_states;
}

uint32_t atsi_session_part_first(const struct atsi_session *s, uint32_t part, uint32_t low)
{
    uint32_t window = part < s->g->n_kv ? s->g->kv[part]->window : 0;
    return window != 0 && low >= window ? low - window + 1 : 0;
}

static size_t row_bytes(const struct atsi_kv *kv, bool keys)
{
    return keys ? atsi_row_bytes(kv->type_k, kv->head_dim_k)
                : atsi_row_bytes(kv->type_v, kv->head_dim_v);
}

/* They fitted memory when the session was built. */
static size_t state_bytes(const struct atsi_tensor *t)
{
    return (size_t)(t->row_bytes * t->ne[1] * t->ne[2]);
}

bool atsi_session_part_bytes(const struct atsi_session *s, uint32_t part, uint32_t first,
                             uint32_t end, size_t *out)
{
    const struct atsi_kv *kv;
    size_t row;
    if (part >= s->g->n_kv) {
        *out = state_bytes(&s->states[part - s->g->n_kv]);
        return true;
    }
    kv = &s->kv[part];
    return atsi_add_size(row_bytes(kv, true), row_bytes(kv, false), &row) &&
           atsi_mul_size(row, kv->n_head_kv, &row) && atsi_mul_size(row, end - first, out);
}

/* Where the bytes are, and what is done with them. */
struct visit {
    struct atsi_hybrid *remote; /* NULL: the host's memory */
    enum atsi_rows how;
    atsi_run_fn *fn;
    void *ctx;
};

static int visit(const struct visit *v, void *p, size_t bytes, struct atsi_err *err)
{
    if (v->remote == NULL)
        return v->fn(v->ctx, p, bytes, err);
    return atsi_hybrid_run_bytes(v->remote, p, bytes, v->how == ATSI_ROWS_WRITE, v->fn, v->ctx,
                                 err);
}

/* Positions [first, end) of one head, whose cells start at `base`. */
static int head_runs(unsigned char *base, size_t row, uint32_t cells, uint32_t first, uint32_t end,
                     const struct visit *v, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t pos = first, n; pos < end && rc == ATSI_OK; pos += n) {
        uint32_t cell = pos % cells;
        n = end - pos < cells - cell ? end - pos : cells - cell;
        rc = visit(v, base + cell * row, n * row, err);
    }
    return rc;
}

int atsi_session_part_runs(const struct atsi_session *s, uint32_t part, uint32_t first,
                           uint32_t end, enum atsi_rows how, atsi_run_fn *fn, void *ctx,
                           struct atsi_err *err)
{
    bool remote = s->hybrid != NULL && atsi_hybrid_is_remote(s->hybrid, part);
    struct visit v = {remote ? s->hybrid : NULL, how, fn, ctx};
    const struct atsi_kv *kv;
    if (part >= s->g->n_kv) {
        const struct atsi_tensor *state = &s->states[part - s->g->n_kv];
        return visit(&v, state->data, state_bytes(state), err);
    }
    kv = &s->kv[part];
    for (int k = 0; k < 2; k++) {
        size_t row = row_bytes(kv, k == 0);
        unsigned char *base = k == 0 ? kv->k : kv->v;
        for (uint32_t h = 0; h < kv->n_head_kv; h++) {
            int rc =
                head_runs(base + (size_t)h * kv->n_ctx * row, row, kv->n_ctx, first, end, &v, err);
            if (rc != ATSI_OK)
                return rc;
        }
    }
    return ATSI_OK;
}
