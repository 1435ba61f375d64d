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

/* ---- simulate_routing.c: expert caches on a routing trace */
struct sim_routing_args {
    const char *path, *skew, *out, *slots;
    double half_life, copy_percent, copy_hits;
};
extern struct sim_routing_args sim_routing_args;
/* Reads or makes the trace and prints one table: for each size of `vram` (NULL: the machine's) each
 * policy of the list (NULL: backlog-co) without and with caches, beside LRU, LFU and the bound.
 * Returns an exit code. */
int sim_routing(struct atsi_sim_params *p, const char *policies, const char *vram,
                const char *format);
/* Without a machine: writes the trace that is made, and replays it with caches of some slots. */
int sim_routing_alone(void);

#endif
