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

/* ---- simulate_trace.c: what happened in the last rounds, for chrome://tracing and Perfetto */
struct sim_trace;

struct sim_trace *sim_trace_new(void); /* NULL: out of memory */
void sim_trace_free(struct sim_trace *t);
/* What follows is of this policy. */
void sim_trace_policy(struct sim_trace *t, const char *policy);
/* atsi_sim_params.trace, with a struct sim_trace as its context. */
void sim_trace_span(void *trace, const struct atsi_sim_span *span);
/* An exit code; prints what went wrong. */
int sim_trace_write(struct sim_trace *t, const char *path);

#endif
