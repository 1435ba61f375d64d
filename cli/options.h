/* SPDX-License-Identifier: Apache-2.0
 * What the options that every subcommand shares have collected. */
#ifndef ATSI_CLI_OPTIONS_H
#define ATSI_CLI_OPTIONS_H

#include "cli/cli.h"

#define CLI_MAX_OVERRIDES 64
#define CLI_MAX_PLUGINS 16

struct cli_common {
    const char *config_path;
    char *overrides[CLI_MAX_OVERRIDES + 1]; /* "section.key=value"; [owned: freed at exit] */
    const char *plugins[CLI_MAX_PLUGINS + 1];
    size_t n_overrides, n_plugins;
    enum atsi_log_level level;
};
extern struct cli_common cli_common;

/* Appends KEY=VALUE; false (message printed) when there are too many or memory is out. */
bool cli_override(const char *key, const char *value);
/* Drops all but the first n overrides. */
void cli_forget_overrides(size_t n);
/* Value the command line gave a key last, or NULL.  [borrowed] */
const char *cli_option_value(const char *key);

#endif
