/* SPDX-License-Identifier: Apache-2.0
 *
 * Re-use of what a session has evaluated: from the tokens of a new prompt, how far back the session
 * must go, and by which way: it is cut where its model allows that, else a checkpoint brings it
 * back.  Calls the session only through atsinfer.h.
 */
#ifndef ATSI_CLI_CHAT_PAST_H
#define ATSI_CLI_CHAT_PAST_H

#include "atsinfer/atsinfer.h"

#define CHAT_MAX_CHECKPOINTS 16
#define CHAT_MAX_CHECKPOINT_BYTES ((size_t)512 << 20)

struct chat_past {
    struct atsi_session *session;                     /* [borrowed] */
    bool can_rewind;                                  /* then no checkpoints are taken */
    struct atsi_checkpoint *cp[CHAT_MAX_CHECKPOINTS]; /* oldest (shortest) first; [owned] */
    uint32_t n_cp;
    size_t max_bytes;
};

void chat_past_open(struct chat_past *p, struct atsi_session *s, size_t max_bytes);
/* Forgets the checkpoints, as after the session's past was replaced. */
void chat_past_forget(struct chat_past *p);

/* Length of the beginning that two lists share. */
size_t chat_common(const int32_t *a, size_t na, const int32_t *b, size_t nb);

/* Takes the session back to the longest beginning of ids[n] that it can return to, at most n - 1
 * tokens (the last one's logits are wanted).  *kept_out: how many tokens it then holds. */
int chat_past_rewind(struct chat_past *p, const int32_t *ids, size_t n, uint32_t *kept_out,
                     struct atsi_err *err);
/* Takes a checkpoint here, if the model needs any and there is none yet.  The oldest but the first
 * (which is the beginning of every later prompt) make room; the newest is always kept. */
int chat_past_mark(struct chat_past *p, struct atsi_err *err);
size_t chat_past_bytes(const struct chat_past *p);

#endif
