/* SPDX-License-Identifier: Apache-2.0
 *
 * KV caches and recurrent states of a session that runs hybrid: each lives on the device that runs
 * its item.  The session's own tables (s->kv, s->states) say where, with addresses of that device;
 * rows on the accelerator are read and written through copies.
 */
#ifndef ATSI_CORE_HYBRID_STATE_H
#define ATSI_CORE_HYBRID_STATE_H

#include "core/hybrid/devices.h"
#include "core/session_rows.h"

struct atsi_state {
    struct atsi_session *s;
    struct atsi_accel *a;
    uint8_t *device; /* [n_kv + n_states], by part (session_rows.h) */
    struct atsi_buf *host, *accel, *bounce;
    size_t bytes[ATSI_N_DEVICES];
    struct atsi_event *event;
    bool broken; /* a copy or fill failed */
};

/* Fills the session's tables with shapes; no part has an address yet. */
void atsi_state_describe(struct atsi_session *s);
/* Where each part lives follows from the placement of the items.  bytes: what that takes. */
int atsi_state_open(struct atsi_state *st, struct atsi_session *s, struct atsi_accel *a,
                    const struct atsi_items *it, const int32_t *placed, struct atsi_err *err);
void atsi_state_close(struct atsi_state *st);

/* Each part lives where another placement wants it. */
bool atsi_state_fits(const struct atsi_state *st, const struct atsi_items *it,
                     const int32_t *placed);

bool atsi_state_is_remote(const struct atsi_state *st, uint32_t part);
/* The stretch [p, p + bytes) of a part on the accelerator, through a buffer of the host's: fn gets
 * its bytes, and with `write` what fn leaves there is written back. */
int atsi_state_run(struct atsi_state *st, void *p, size_t bytes, bool write, atsi_run_fn *fn,
                   void *ctx, struct atsi_err *err);
/* All recurrent states to zero. */
int atsi_state_zero(struct atsi_state *st, struct atsi_err *err);

#endif
