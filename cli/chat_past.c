/* SPDX-License-Identifier: Apache-2.0
 *
 * Invariant: every checkpoint kept is of a beginning of the session's tokens.  What is longer than
 * the point the session goes back to is released there.
 */
#include "cli/chat_past.h"

#include <string.h>

void chat_past_open(struct chat_past *p, struct atsi_session *s, size_t max_bytes)
{
    struct atsi_session_info info = {.struct_size = sizeof info};
    atsi_session_info(s, &info);
    *p = (struct chat_past){
        .session = s, .can_rewind = info.can_rewind != 0, .max_bytes = max_bytes};
}

static void remove_at(struct chat_past *p, uint32_t i)
{
    atsi_checkpoint_free(p->cp[i]);
    p->n_cp--;
    memmove(p->cp + i, p->cp + i + 1, (p->n_cp - i) * sizeof(struct atsi_checkpoint *));
}

void chat_past_forget(struct chat_past *p)
{
    while (p->n_cp > 0)
        remove_at(p, p->n_cp - 1);
}

static void forget_beyond(struct chat_past *p, uint32_t n_past)
{
    while (p->n_cp > 0 && atsi_checkpoint_n_past(p->cp[p->n_cp - 1]) > n_past)
        remove_at(p, p->n_cp - 1);
}

size_t chat_common(const int32_t *a, size_t na, const int32_t *b, size_t nb)
{
    size_t n = 0;
    while (n < na && n < nb && a[n] == b[n])
        n++;
    return n;
}

/* Restores the longest checkpoint of at most `most` tokens that has more than `least`; *n_out
 * becomes its length. */
static int restore(struct chat_past *p, uint32_t most, uint32_t least, uint32_t *n_out,
                   struct atsi_err *err)
{
    uint32_t n;
    int rc;
    forget_beyond(p, most);
    if (p->n_cp == 0)
        return ATSI_OK;
    n = atsi_checkpoint_n_past(p->cp[p->n_cp - 1]);
    if (n <= least)
        return ATSI_OK;
    rc = atsi_session_restore(p->session, p->cp[p->n_cp - 1], err);
    if (rc == ATSI_OK)
        *n_out = n;
    return rc;
}

int chat_past_rewind(struct chat_past *p, const int32_t *ids, size_t n, uint32_t *kept_out,
                     struct atsi_err *err)
{
    uint32_t past = atsi_session_n_past(p->session), same, reach;
    int rc = ATSI_OK;
    same = (uint32_t)chat_common(atsi_session_tokens(p->session), past, ids, n > 0 ? n - 1 : 0);
    *kept_out = reach = atsi_session_rewind_point(p->session, same);
    if (reach < same)
        rc = restore(p, same, reach, kept_out, err);
    if (rc == ATSI_OK && *kept_out == reach)
        rc = atsi_session_truncate(p->session, reach, err);
    if (rc == ATSI_OK)
        forget_beyond(p, *kept_out);
    return rc;
}

size_t chat_past_bytes(const struct chat_past *p)
{
    size_t n = 0;
    for (uint32_t i = 0; i < p->n_cp; i++)
        n += atsi_checkpoint_bytes(p->cp[i]);
    return n;
}

int chat_past_mark(struct chat_past *p, struct atsi_err *err)
{
    uint32_t here = atsi_session_n_past(p->session);
    struct atsi_checkpoint *cp = NULL;
    int rc;
    if (p->can_rewind || here == 0 ||
        (p->n_cp > 0 && atsi_checkpoint_n_past(p->cp[p->n_cp - 1]) >= here))
        return ATSI_OK;
    if (p->n_cp == CHAT_MAX_CHECKPOINTS)
        remove_at(p, 1);
    rc = atsi_session_checkpoint(p->session, &cp, err);
    if (rc != ATSI_OK)
        return rc;
    p->cp[p->n_cp++] = cp;
    while (p->n_cp > 1 && chat_past_bytes(p) > p->max_bytes)
        remove_at(p, p->n_cp > 2 ? 1 : 0);
    return ATSI_OK;
}
