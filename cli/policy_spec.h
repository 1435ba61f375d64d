/* SPDX-License-Identifier: Apache-2.0
 * Policies as `simulate` and `plan` take them on the command line. */
#ifndef ATSI_CLI_POLICY_SPEC_H
#define ATSI_CLI_POLICY_SPEC_H

#include "cli/cli.h"

/* "NAME[:MODE][/static|/sync]" to settings of the configuration (overrides, see
 * cli_forget_overrides) and a way to run, enum atsi_sim_mode.  Prints what is wrong; returns an
 * exit code. */
int cli_policy_spec(const char *spec, uint32_t *mode_out);

#endif
