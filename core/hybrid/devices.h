/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices of a session that runs hybrid: its CPU backend, an accelerator, and the transfer
 * engine between them.  An accelerator that is not there or does not open is no failure: the
 * session goes on without, and says so.
 */
#ifndef ATSI_CORE_HYBRID_DEVICES_H
#define ATSI_CORE_HYBRID_DEVICES_H

#include "core/round/exec.h"
#include "core/session.h"

struct atsi_accel {
    const char *name;   /* component; NULL: there is none */
    const char *engine; /* component of the transfers */
    struct atsi_props props;
    struct atsi_exec_devices d; /* the host's: the session's */
    struct atsi_range range;    /* of atsi_accel_copy(): lent until the copy is over */
    bool unsure;                /* such a copy may still be under way: waiting for it failed */
    bool by_kernel;             /* weights go over the copy kernel, in a queue of their own */
};

/* backend.accel, transfer.engine, exec.async.  ATSI_OK with a->name NULL: no accelerator.
 * ATSI_ECONF: a name that nothing here has. */
int atsi_accel_open(struct atsi_session *s, struct atsi_accel *a, struct atsi_err *err);
/* Waits for queued work; half-opened ones too. */
void atsi_accel_close(struct atsi_accel *a);
/* Closes the transfer engine and the queues, which ends all queued work: nothing uses memory or
 * events of the accelerator any more.  Also after failures, when waiting for events does not tell.
 */
void atsi_accel_stop(struct atsi_accel *a);
/* Opens them again. */
int atsi_accel_start(struct atsi_accel *a, struct atsi_err *err);

/* One buffer of the accelerator; bytes 0 gives NULL. */
int atsi_accel_alloc(const struct atsi_accel *a, enum atsi_mem mem, size_t bytes,
                     struct atsi_buf **out, struct atsi_err *err);
void atsi_accel_free(const struct atsi_accel *a, struct atsi_buf *buf); /* NULL is allowed */
/* Copies between memory of the accelerator and pinned memory, in the order of its queue, and
 * waits.  After a failure it only fails, until the next start. */
int atsi_accel_copy(struct atsi_accel *a, struct atsi_event *ev, void *dst, const void *src,
                    size_t bytes, struct atsi_err *err);

#endif
