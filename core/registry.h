/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds, scans, loads, lists and unloads plugins; names none of them.
 *
 * A folder's `atsinfer-*.so` are first tried in a child process, so that a plugin that crashes or
 * hangs while being loaded is refused with that reason and never enters this process.
 */
#ifndef ATSI_CORE_REGISTRY_H
#define ATSI_CORE_REGISTRY_H

#include "core/conf.h"
#include "core/log.h"

struct atsi_registry;

struct atsi_registry_params {
    const struct atsi_host *host; /* [borrowed until close] */
    struct atsi_conf *conf;       /* [borrowed until close]  parameters are declared here */
    struct atsi_log *log;
    const char *const *plugin_files; /* --plugin, NULL-terminated; a refusal of one is an error */
    int scan_timeout_ms; /* how long the entry of one plugin may take when tried; 0: 5000 */
};

/* Search order: plugin_files, plugins.path, ATSINFER_PLUGIN_PATH, $XDG_DATA_HOME/atsinfer/plugins,
 * the folder relative to the running core.  The first plugin of a name wins.  Environment is
 * ignored in a setuid process.  Broken plugins are listed as refused, not errors. */
int atsi_registry_open(const struct atsi_registry_params *p, struct atsi_registry **out,
                       struct atsi_err *err);
void atsi_registry_close(struct atsi_registry *r); /* fini, then dlclose, in reverse order */

const void *atsi_registry_find(const struct atsi_registry *r, enum atsi_kind kind,
                               const char *name);
/* i-th component of a kind in search order, or NULL; its plugin's path in *path_out if not NULL. */
const struct atsi_component *atsi_registry_at(const struct atsi_registry *r, enum atsi_kind kind,
                                              uint32_t i, const char **path_out);
int atsi_registry_plugins_each(const struct atsi_registry *r,
                               int (*fn)(void *ctx, const struct atsi_plugin_info *p), void *ctx);
int atsi_registry_search_each(const struct atsi_registry *r,
                              int (*fn)(void *ctx, const char *dir, const char *origin,
                                        const char *found),
                              void *ctx);
/* Comma-separated names of a kind, for error messages; as snprintf. */
int atsi_registry_names(const struct atsi_registry *r, enum atsi_kind kind, char *buf, size_t size);

#endif
