/* SPDX-License-Identifier: Apache-2.0
 *
 * The largest logits, picked on the accelerator (exec.pick): a sampler that looks at no others is
 * sent these alone instead of a row as long as the vocabulary.  The row stays on the accelerator
 * until the next round, for whoever asks for it after all.
 */
#ifndef ATSI_CORE_HYBRID_PICK_H
#define ATSI_CORE_HYBRID_PICK_H

#include "core/hybrid/values.h"

/* What samplers ask for, before one has asked: top-k of 40, and as many again that penalties may
 * lower. */
#define ATSI_PICK_USUAL 64u

struct atsi_pick {
    struct atsi_accel *a;
    const struct atsi_values *v;
    uint32_t room;                 /* the most that can be picked; 0: nothing is */
    uint32_t want;                 /* of the round under way; 0: all logits */
    uint32_t n;                    /* picked in the last round; 0: none */
    uint32_t taken, refused;       /* number that the backend said it takes, or does not */
    bool row_here;                 /* the host has the whole row too */
    struct atsi_buf *there, *here; /* n ids, then n logits: on the accelerator, pinned */
    struct atsi_event *event;
    struct atsi_tensor ids, logits;
    struct atsi_op op;
    const struct atsi_op *list[1];
    struct atsi_range range;
};

/* *p: zeroed by the caller; close it after a failure too.  An accelerator that picks nothing is no
 * failure. */
int atsi_pick_open(struct atsi_pick *p, const struct atsi_conf *conf, struct atsi_accel *a,
                   const struct atsi_values *v, struct atsi_err *err);
void atsi_pick_close(struct atsi_pick *p);

/* Bytes that the logits of one row take to the host when the accelerator computes all of them and
 * the `want` largest are enough (0: all are needed). */
size_t atsi_pick_bytes(struct atsi_pick *p, uint32_t want);

/* A round begins whose last row alone has logits, of which the `want` largest are enough; 0: all
 * are needed. */
void atsi_pick_begin(struct atsi_pick *p, uint32_t want);
/* Whether a row of logits that is on the accelerator is to be picked from. */
bool atsi_pick_wanted(struct atsi_pick *p);
/* Queues the operation, and fills the range of the copy that brings its result. */
int atsi_pick_queue(struct atsi_pick *p, struct atsi_copyv *req, struct atsi_err *err);

/* What was picked in the last round, largest first; 0: nothing.  [borrowed until the next round] */
uint32_t atsi_pick_result(const struct atsi_pick *p, const int32_t **ids, float **logits);
/* Copies the whole row to the host when only the largest came; *bytes: what that took. */
int atsi_pick_fetch_row(struct atsi_pick *p, size_t *bytes, struct atsi_err *err);

#endif
