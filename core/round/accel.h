/* SPDX-License-Identifier: Apache-2.0
 *
 * The accelerator of this machine and its transfer engine, as the settings choose them:
 * backend.accel, transfer.engine.
 */
#ifndef ATSI_CORE_ROUND_ACCEL_H
#define ATSI_CORE_ROUND_ACCEL_H

#include "core/round/exec.h"
#include "core/runtime.h"

struct atsi_accel_use {
    const char *without; /* what happens without, as the end of a sentence of the log */
    bool moves_weights;  /* as transfer.engine says; else no queue is opened for that */
};

struct atsi_accel_found {
    const char *name;   /* component  [borrowed until the registry closes]; NULL: none was chosen */
    const char *engine; /* component of the transfers */
    struct atsi_props props;
    bool by_kernel; /* weights go over the copy kernel, in a queue of their own */
    char why[508];  /* that there is none, in words */
};

/* Opens it; d has the host's device.  `auto` takes the first that opens; those that do not are
 * said.  ATSI_OK with out->name NULL: there is none.  Failures: out->name NULL: a name that nothing
 * here has (ATSI_ECONF); else the named one does not open, and why.  The caller closes also after
 * a failure. */
int atsi_accel_choose(struct atsi_runtime *rt, const struct atsi_accel_use *use,
                      struct atsi_exec_devices *d, struct atsi_accel_found *out,
                      struct atsi_err *err);
void atsi_accel_put(struct atsi_exec_devices *d); /* half-opened ones too */

/* The queues of an open accelerator and the transfer engine. */
int atsi_link_open(struct atsi_exec_devices *d, bool by_kernel, struct atsi_err *err);
void atsi_link_close(struct atsi_exec_devices *d); /* ends all queued work; half-opened ones too */

#endif
