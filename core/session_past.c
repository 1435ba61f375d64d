/* SPDX-License-Identifier: Apache-2.0
 *
 * How far back a session can go.  A KV cache is cut anywhere.  A ring of cells (sliding window) has
 * lost positions that newer ones overwrote; a recurrent state knows only the present.
 */
#include "core/hybrid/hybrid.h"

#include <string.h>

uint32_t atsi_session_n_past(const struct atsi_session *s)
{
    return s->n_past;
}

const int32_t *atsi_session_tokens(const struct atsi_session *s)
{
    return s->tokens;
}

static bool is_ring(const struct atsi_session *s, uint32_t kv)
{
    return atsi_kv_cells(s, s->g->kv[kv]) < s->n_ctx;
}

bool atsi_session_can_rewind(const struct atsi_session *s)
{
    for (uint32_t i = 0; i < s->g->n_kv; i++)
        if (is_ring(s, i))
            return false;
    /* A file may have held less than there is room for. */
    return s->g->n_states == 0 && s->rewind_low == 0;
}

void atsi_session_reset(struct atsi_session *s)
{
    if (s->hybrid != NULL) /* when that fails, the accelerator is left before the next round */
        (void)atsi_hybrid_zero(s->hybrid, NULL);
    for (uint32_t i = 0; i < s->g->n_states && s->hybrid == NULL; i++)
        memset(s->states[i].data, 0,
               s->states[i].row_bytes * s->states[i].ne[1] * s->states[i].ne[2]);
    s->n_past = 0;
    s->rewind_low = 0;
    s->have_logits = false;
}

/* After truncation to n the next row sees positions from n - window + 1 on; a ring of c cells that
 * was filled up to n_past holds those from n_past - c on. */
void atsi_session_note_past(struct atsi_session *s)
{
    if (s->g->n_states > 0)
        s->rewind_low = s->n_past;
    for (uint32_t i = 0; i < s->g->n_kv; i++) {
        uint32_t cells = s->kv[i].n_ctx, low;
        if (!is_ring(s, i) || s->n_past <= cells)
            continue;
        low = s->n_past - (cells - s->g->kv[i]->window) - 1;
        if (low > s->rewind_low)
            s->rewind_low = low;
    }
}

void atsi_session_set_past(struct atsi_session *s, uint32_t n_past, uint32_t low)
{
    s->n_past = n_past;
    s->rewind_low = low < n_past && s->g->n_states == 0 ? low : n_past;
    s->have_logits = false;
}

uint32_t atsi_session_rewind_point(const struct atsi_session *s, uint32_t n)
{
    if (n >= s->n_past)
        return s->n_past;
    return n >= s->rewind_low ? n : 0;
}

int atsi_session_truncate(struct atsi_session *s, uint32_t n, struct atsi_err *err)
{
    if (n > s->n_past)
        return atsi_fail(err, ATSI_EINVAL, "cannot cut a session of %u tokens at %u", s->n_past, n);
    if (n == s->n_past)
        return ATSI_OK;
    if (n == 0) {
        atsi_session_reset(s);
        return ATSI_OK;
    }
    if (n < s->rewind_low)
        return atsi_fail(
            err, ATSI_ENOTSUP,
            "cannot go back from %u tokens to %u: this model's %s reach back to %u only; "
            "restore a checkpoint or start again",
            s->n_past, n, s->g->n_states > 0 ? "recurrent states" : "sliding windows",
            s->rewind_low);
    s->n_past = n;
    s->have_logits = false;
    return ATSI_OK;
}
