/* SPDX-License-Identifier: Apache-2.0
 *
 * Configuration: built-in defaults, ini files, environment and overrides merged into typed
 * settings.
 *
 * Order, low to high: built-in, /etc/atsinfer/atsinfer.ini, $XDG_CONFIG_HOME/atsinfer/atsinfer.ini,
 * ./atsinfer.ini or --config, environment ATSINFER_SECTION_KEY, command line.
 * Every key is known (core table below, or declared by a plugin) or an error with file:line and the
 * nearest known key.
 */
#ifndef ATSI_CORE_CONF_H
#define ATSI_CORE_CONF_H

#include "atsinfer/atsinfer.h"

struct atsi_conf;
struct atsi_log;

/* Reads all sources.  Keys of [plugin.*] sections are kept unjudged until
 * atsi_conf_check_plugins(), since plugins are found with the help of this configuration.
 * ATSI_ECONF, ATSI_EIO. */
int atsi_conf_open(const char *config_path, const char *const *overrides, struct atsi_conf **out,
                   struct atsi_err *err);
void atsi_conf_close(struct atsi_conf *c); /* NULL is allowed */
/* The same sources again, as they are now; settings of plugins are not judged.  As conf_open. */
int atsi_conf_reopen(const struct atsi_conf *c, struct atsi_conf **out, struct atsi_err *err);

/* Another value for a key, stronger than every source, until the sources are read again.  Texts
 * that atsi_conf_get returned for it are gone.  ATSI_ECONF: no such key, or not a value of it. */
int atsi_conf_set(struct atsi_conf *c, const char *key, const char *value, const char *origin,
                  struct atsi_err *err);

/* Declares the parameters of a plugin (its keys become known).  Later duplicates: ATSI_EINVAL. */
int atsi_conf_declare(struct atsi_conf *c, const char *plugin,
                      const struct atsi_param *const *params, struct atsi_err *err);
/* Judges every plugin.* setting seen.  A setting of a plugin that is not loaded is accepted with
 * its value unread (the log says so); an undeclared key of a loaded plugin is ATSI_ECONF, and so is
 * a variable that misses one of a loaded plugin by a few letters. */
int atsi_conf_check_plugins(struct atsi_conf *c, struct atsi_log *log, struct atsi_err *err);

/* Value of a known key as text (never NULL for a known key, NULL for an unknown one). */
const char *atsi_conf_get(const struct atsi_conf *c, const char *key);
/* Where the value in force came from, as in atsi_conf_entry.origin. */
const char *atsi_conf_origin(const struct atsi_conf *c, const char *key);
/* Typed; values were checked when read, so these cannot fail for a key of the right type. */
int64_t atsi_conf_int(const struct atsi_conf *c, const char *key);
bool atsi_conf_bool(const struct atsi_conf *c, const char *key);
uint64_t atsi_conf_size(const struct atsi_conf *c,
                        const char *key); /* bytes; "auto" -> UINT64_MAX */

int atsi_conf_each(const struct atsi_conf *c, int (*fn)(void *ctx, const struct atsi_conf_entry *e),
                   void *ctx);
/* Where a ./atsinfer.ini that was merely found in the current folder set plugins.path
 * ("FILE:LINE"), or NULL.  Such a value is not honoured (it would be code execution by strangers):
 * plugins.path keeps what other sources say. */
const char *atsi_conf_ignored_plugin_path(const struct atsi_conf *c);

#endif
