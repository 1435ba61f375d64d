/* SPDX-License-Identifier: Apache-2.0
 * Which CPU backend computes: named in the configuration, or the fastest by measurement. */
#ifndef ATSI_CORE_SELECT_H
#define ATSI_CORE_SELECT_H

#include "core/runtime.h"

/* *name and *ops: [borrowed until the registry closes]; why: one sentence for people.
 * ATSI_ECONF: no such backend (the message lists what there is); ATSI_ENODEV: none runs here. */
int atsi_select_cpu(struct atsi_runtime *rt, const char **name_out,
                    const struct atsi_backend_ops **ops_out, char *why, size_t why_size,
                    struct atsi_err *err);

#endif
