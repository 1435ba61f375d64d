/* SPDX-License-Identifier: Apache-2.0
 * A trace from the inside: trace.c keeps it, trace_out.c writes it. */
#ifndef ATSI_CLI_TRACE_IN_H
#define ATSI_CLI_TRACE_IN_H

#include "cli/trace.h"

struct trace_span {
    uint32_t event, lane, item, tokens; /* as in struct atsi_sim_span */
    int32_t layer, slot;
    uint64_t start_ns, end_ns, bytes;
};

struct trace_round {
    uint32_t process;
    bool prefill;
    size_t n, room;
    struct trace_span *spans; /* [n] the round itself first */
};

struct trace_process {
    char *title;
    uint32_t n_names;
    char **names; /* [n_names] of items; NULL: not seen */
    uint64_t busy_until[ATSI_SIM_N_LANES];
};

struct cli_trace {
    bool ok; /* false: memory ran out */
    bool simulated;
    size_t n_processes, room_processes;
    struct trace_process *processes;
    size_t first, n_rounds, room_rounds; /* rounds[first .. n_rounds) are there */
    struct trace_round *rounds;
    struct trace_round open; /* that is being read */
    size_t n_spans, n_cut;
};

void trace_end_round(struct cli_trace *t);

#endif
