/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions that run hybrid: an accelerator beside the CPU, weights placed by policy.place, rounds
 * executed under policy.schedule.
 *
 * A session has one of these, or it computes on the CPU alone; answers are the same.  When a round
 * fails for a reason of the accelerator's, the session closes this and goes on without.
 */
#ifndef ATSI_CORE_HYBRID_HYBRID_H
#define ATSI_CORE_HYBRID_HYBRID_H

#include "core/session_rows.h"

struct atsi_hybrid;

/* *out stays NULL when there is no accelerator, or none that can be used: that is said in the log,
 * and no failure.  Needs the session's CPU backend and queue, and its tables; fills s->kv and
 * s->states.  ATSI_ECONF: a wrong setting; ATSI_ENOFIT: what the user pinned does not fit. */
int atsi_hybrid_open(struct atsi_session *s, struct atsi_hybrid **out, struct atsi_err *err);
void atsi_hybrid_close(struct atsi_hybrid *h); /* NULL is allowed; waits for queued work */

/* Packs weights for both devices, as load.pack says. */
int atsi_hybrid_pack(struct atsi_hybrid *h, struct atsi_err *err);

/* Most rows of a round; all: when logits of each are wanted. */
uint32_t atsi_hybrid_max_rows(const struct atsi_hybrid *h, bool all);

struct atsi_hybrid_round {
    const int32_t *ids;
    uint32_t rows;             /* behind the session's n_past tokens */
    uint32_t out_first, out_n; /* rows whose logits are computed */
    uint32_t top;              /* so many of the largest logits are enough; 0: all are needed */
    bool unseen;               /* nobody looks at its logits: a prompt goes on */
    uint32_t left;             /* rounds of this kind expected to come, this one included */
};
int atsi_hybrid_round(struct atsi_hybrid *h, const struct atsi_hybrid_round *r,
                      struct atsi_err *err);
/* Of row out_first + i of the last round; NULL when placing again failed, or copying them when only
 * the largest had come.  [borrowed until the next round] */
float *atsi_hybrid_logits(struct atsi_hybrid *h, uint32_t i);
/* The largest of them when only these came, else 0.  [borrowed until the next round] */
uint32_t atsi_hybrid_top(const struct atsi_hybrid *h, const int32_t **ids, float **logits);

/* The session's past. */
int atsi_hybrid_zero(struct atsi_hybrid *h, struct atsi_err *err); /* recurrent states */
/* Its memory could not be read or written: use it no more. */
bool atsi_hybrid_is_broken(const struct atsi_hybrid *h);
bool atsi_hybrid_is_remote(const struct atsi_hybrid *h, uint32_t part);
int atsi_hybrid_run_bytes(struct atsi_hybrid *h, void *p, size_t bytes, bool write, atsi_run_fn *fn,
                          void *ctx, struct atsi_err *err);

void atsi_hybrid_info(const struct atsi_hybrid *h, struct atsi_session_info *out);

#endif
