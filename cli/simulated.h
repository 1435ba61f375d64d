/* SPDX-License-Identifier: Apache-2.0
 * What `simulate` and `plan` ask alike: a machine, a model and a request. */
#ifndef ATSI_CLI_SIMULATED_H
#define ATSI_CLI_SIMULATED_H

#include "cli/cli.h"

struct cli_simulated {
    const char *machine, *shape;                       /* as on the command line */
    char machine_path[PATH_MAX], model_path[PATH_MAX]; /* by cli_simulated_read() */
    const char *vram;
    uint64_t vram_bytes;            /* 0: the machine's */
    int64_t prompt, generated, ctx; /* 0 and -1 become numbers there */
    int64_t slots;
    bool sustained, no_contention;
};
extern struct cli_simulated cli_simulated;
/* A group of a subcommand's table (.group). */
extern const struct cli_option cli_simulated_options[];

/* Finds the files and fills in what depends on other options; an exit code, prints what was wrong.
 * vram_is_list: --vram is left to the caller. */
int cli_simulated_read(bool vram_is_list);
/* Measures this machine for the model where --machine here asks for it. */
int cli_simulated_measure(uint32_t chunk);

#endif
