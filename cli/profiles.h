/* SPDX-License-Identifier: Apache-2.0
 * Shipped machine profiles and model shapes, by name. */
#ifndef ATSI_CLI_PROFILES_H
#define ATSI_CLI_PROFILES_H

#include "cli/cli.h"

/* kind: "machines" or "models".  word: a file, or the name of a shipped one (profiles/KIND/NAME.ini
 * without folder and ending).  An exit code; prints what was wrong, with the names that exist. */
int cli_profile_find(const char *kind, const char *option, const char *word, char out[PATH_MAX]);

/* Paths of a machine and of a shape, or with shape NULL of the model of -m, as the command line
 * names them; an exit code, prints what was wrong. */
int cli_profile_files(const char *machine, const char *shape, char machine_out[PATH_MAX],
                      char model_out[PATH_MAX]);

#endif
