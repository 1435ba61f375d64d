/* SPDX-License-Identifier: Apache-2.0
 *
 * Walking over a session's caches and states.  A cache is [n_head_kv][cells][head_dim] with cell =
 * position modulo cells, so that the rows of one head are one stretch of memory, or two where a
 * ring has wrapped.
 */
#include "core/session_rows.h"

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

/* Positions [first, end) of one head, whose cells start at `base`. */
static int head_runs(unsigned char *base, size_t row, uint32_t cells, uint32_t first, uint32_t end,
                     atsi_run_fn *fn, void *ctx, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t pos = first, n; pos < end && rc == ATSI_OK; pos += n) {
        uint32_t cell = pos % cells;
        n = end - pos < cells - cell ? end - pos : cells - cell;
        rc = fn(ctx, base + cell * row, n * row, err);
    }
    return rc;
}

int atsi_session_part_runs(const struct atsi_session *s, uint32_t part, uint32_t first,
                           uint32_t end, atsi_run_fn *fn, void *ctx, struct atsi_err *err)
{
    const struct atsi_kv *kv;
    if (part >= s->g->n_kv) {
        const struct atsi_tensor *state = &s->states[part - s->g->n_kv];
        return fn(ctx, state->data, state_bytes(state), err);
    }
    kv = &s->kv[part];
    for (int v = 0; v < 2; v++) {
        size_t row = row_bytes(kv, v == 0);
        unsigned char *base = v == 0 ? kv->k : kv->v;
        for (uint32_t h = 0; h < kv->n_head_kv; h++) {
            int rc = head_runs(base + (size_t)h * kv->n_ctx * row, row, kv->n_ctx, first, end, fn,
                               ctx, err);
            if (rc != ATSI_OK)
                return rc;
        }
    }
    return ATSI_OK;
}
