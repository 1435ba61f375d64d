/* SPDX-License-Identifier: Apache-2.0
 * What a session remembers, part by part: the rows of its KV caches and its recurrent states, as
 * stretches of memory in an order that does not depend on the size of the context. */
#ifndef ATSI_CORE_SESSION_ROWS_H
#define ATSI_CORE_SESSION_ROWS_H

#include "core/session.h"

/* Parts are numbered: the n_kv caches, then the n_states states. */
uint32_t atsi_session_n_parts(const struct atsi_session *s);

/* First position whose rows part `part` must hold, so that a past can be cut to any position from
 * `low` on: 0 without a window, else what the token at `low` sees.  0 for states. */
uint32_t atsi_session_part_first(const struct atsi_session *s, uint32_t part, uint32_t low);

/* Bytes of positions [first, end) of a cache, or of a state; false when they overflow. */
bool atsi_session_part_bytes(const struct atsi_session *s, uint32_t part, uint32_t first,
                             uint32_t end, size_t *out);

/* One stretch of memory of a part, or its copy on the host.  Non-zero stops and is returned. */
typedef int atsi_run_fn(void *ctx, void *p, size_t bytes, struct atsi_err *err);

/* What fn does with the bytes. */
enum atsi_rows { ATSI_ROWS_READ, ATSI_ROWS_WRITE };

/* Calls fn for the rows of positions [first, end) of a cache: keys, then values; of each, head
 * after head, position after position.  Positions that share a cell, when a ring is shorter than
 * [first, end), come oldest first, so that writing all of them leaves the newest.  For a state: its
 * values, whole.  A stretch on an accelerator may come in several pieces.  An error that is not
 * fn's is the accelerator's (atsi_session_is_broken()). */
int atsi_session_part_runs(const struct atsi_session *s, uint32_t part, uint32_t first,
                           uint32_t end, enum atsi_rows how, atsi_run_fn *fn, void *ctx,
                           struct atsi_err *err);

#endif
