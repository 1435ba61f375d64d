/* SPDX-License-Identifier: Apache-2.0
 * `atsinfer bench --vram ... --policy ...`: one loaded model under several memory budgets and
 * policies. */
#ifndef ATSI_CLI_BENCH_SWEEP_H
#define ATSI_CLI_BENCH_SWEEP_H

#include "cli/cli.h"

struct bench_sweep {
    const char *vrams, *policies; /* lists with commas; NULL: as the settings say */
    uint32_t n_prompt, n_gen, repeats;
    uint32_t n_verify;  /* rounds compared with the CPU alone; 0: none */
    uint32_t limit_s;   /* no cell is begun later; 0: no limit */
    const char *format; /* "md", "csv", "json", "jsonl" */
};
/* An exit code.  A cell that fails is reported and the next one begun; its code comes last. */
int bench_sweep(const struct bench_sweep *p);

#endif
