/* SPDX-License-Identifier: Apache-2.0
 * Trying plugins in a child process before they may enter this one. */
#ifndef ATSI_CORE_SCAN_H
#define ATSI_CORE_SCAN_H

#include "atsinfer/plugin.h"

#include <stdbool.h>

struct atsi_scan_result {
    bool good;
    char why[400]; /* when not good */
};

/* Loads each file in a child process and calls its entry with `host` (logging switched off).  A
 * crash or a hang (longer than timeout_ms for one file) costs that file alone. */
void atsi_scan_plugins(const struct atsi_host *host, const char *const *paths, uint32_t n,
                       int timeout_ms, struct atsi_scan_result *results);

/* Loads one file and checks its descriptor; the caller owns *handle_out (dlclose).  Used by the
 * scan and by the registry alike. */
int atsi_plugin_load(const struct atsi_host *host, const char *path, void **handle_out,
                     const struct atsi_plugin **plugin_out, struct atsi_err *err);

#endif
