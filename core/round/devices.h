/* SPDX-License-Identifier: Apache-2.0
 * The devices of this machine as the settings choose them: backend.cpu, backend.accel,
 * transfer.engine. */
#ifndef ATSI_CORE_ROUND_DEVICES_H
#define ATSI_CORE_ROUND_DEVICES_H

#include "core/round/measure.h"

struct atsi_devices {
    struct atsi_exec_devices d;
    const char *backend[ATSI_N_DEVICES]; /* [borrowed until the registry closes]; NULL: none */
    const char *transfer;
    char chosen[192];  /* why this CPU backend */
    char without[508]; /* why there is no accelerator, in words; "": there is */
};

/* The CPU's backend, and the accelerator's with its transfer engine when there is one: `auto` takes
 * the first that opens and goes on without it if none does; a named one that does not open is an
 * error.  ATSI_ECONF, ATSI_ENODEV.  The caller closes also after a failure. */
int atsi_devices_open(struct atsi_runtime *rt, struct atsi_devices *out, struct atsi_err *err);
void atsi_devices_close(struct atsi_devices *v);

#endif
