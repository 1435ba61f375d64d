/* SPDX-License-Identifier: Apache-2.0
 * Results of `atsinfer simulate`, and how they are printed. */
#ifndef ATSI_CLI_SIMULATE_H
#define ATSI_CLI_SIMULATE_H

#include "atsinfer/simulate.h"
#include "cli/cli.h"

struct sim_row {
    char *policy; /* as written on the command line */
    struct atsi_sim_result result;
};

/* One table of n >= 1 rows as md, csv or json on stdout; returns an exit code. */
int sim_print(const struct sim_row *rows, size_t n, const struct atsi_sim_params *p,
              const char *format);
/* What each policy's last rounds were like, in the words of a real run, on stderr. */
void sim_print_summary(const struct sim_row *rows, size_t n);

#endif
