/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of settings (conf.c), as whoever reads the sources (conf_sources.c) fills it. */
#ifndef ATSI_CORE_CONF_TABLE_H
#define ATSI_CORE_CONF_TABLE_H

#include "core/conf.h"

struct atsi_conf_held;    /* a known key and its value */
struct atsi_conf_pending; /* a setting of a plugin that is not loaded yet */

struct atsi_conf {
    struct atsi_conf_held *entries;
    size_t n_entries;
    struct atsi_conf_pending *pending;
    size_t n_pending;
    char **plugins; /* declared plugins, owned */
    size_t n_plugins;
    bool found_here;    /* the file now being read is a ./atsinfer.ini nobody named */
    char *config_path;  /* owned: of atsi_conf_open, or NULL */
    char **overrides;   /* owned, ended by NULL */
    char *ignored_path; /* where such a file set plugins.path, owned; NULL: nowhere */
};

int atsi_conf_no_memory(struct atsi_err *err);
/* Every key of the core with its default, in an empty table. */
int atsi_conf_defaults(struct atsi_conf *c, struct atsi_err *err);
/* A value from a source, over that of the sources before.  Keys "plugin.*" that are not known yet
 * are kept. */
int atsi_conf_put(struct atsi_conf *c, const char *name, const char *value, const char *origin,
                  struct atsi_err *err);
/* Keeps a setting of a plugin.  environment: the name is a variable's. */
int atsi_conf_add_pending(struct atsi_conf *c, const char *name, const char *value,
                          const char *origin, bool environment, struct atsi_err *err);

/* The known key that a variable of the environment sets, or NULL.  [borrowed until the table
 * grows] */
const char *atsi_conf_key_of_variable(const struct atsi_conf *c, const char *variable);
/* ATSI_ECONF, with the nearest variable of a known key. */
int atsi_conf_unknown_variable(const struct atsi_conf *c, const char *variable,
                               struct atsi_err *err);

#endif
