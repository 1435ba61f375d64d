/* SPDX-License-Identifier: Apache-2.0
 * What a backend says of itself on this machine. */
#ifndef ATSI_CLI_PLUGINS_BACKEND_H
#define ATSI_CLI_PLUGINS_BACKEND_H

#include "cli/cli.h"

struct plugins_backend {
    char state[600];             /* "usable", "no device here", or why it cannot be opened */
    char device[208];            /* name and variants of the device; "" unless it was opened */
    bool types[ATSI_TYPE_COUNT]; /* weight types it multiplies; none unless it was opened */
};

/* Probes the backend and, when `open` is set and it has a device, opens and asks it. */
void plugins_backend_ask(const struct atsi_runtime *rt, const struct atsi_component *c, bool open,
                         struct plugins_backend *out);

#endif
