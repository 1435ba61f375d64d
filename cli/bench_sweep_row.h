/* SPDX-License-Identifier: Apache-2.0
 * Rows of `atsinfer bench --vram --policy` and how they are printed. */
#ifndef ATSI_CLI_BENCH_SWEEP_ROW_H
#define ATSI_CLI_BENCH_SWEEP_ROW_H

#include <stdbool.h>
#include <stdint.h>

struct sweep_row {
    const char *model, *vram, *policy, *backend;
    const char *accel; /* "": the CPU alone */
    uint32_t n_prompt, n_gen, repeats;
    double prefill_ts, decode_ts; /* medians, tokens per second */
    double open_s;                /* placing, loading to the device, pinning */
    uint32_t n_items, n_resident;
    uint64_t weights_there, slots_there, caches_there, pinned; /* bytes */
    uint64_t weights_moved;                                    /* bytes, over all rounds */
    /* Of decode rounds: shares of their time, ms of a round. */
    double cpu_share, stream_share, transfer_share, exposed_share, predicted_ms, observed_ms;
    uint64_t plans_refused;
    uint32_t fallbacks;
    uint32_t verify_n, verify_same; /* rounds compared with the CPU; with the same best token */
    double verify_worst;            /* difference of logits over their size, root mean square */
};

bool sweep_format_known(const char *format);
void sweep_begin(const char *format, uint32_t n_prompt, uint32_t n_gen);
void sweep_print(const char *format, const struct sweep_row *row);
void sweep_end(const char *format);

#endif
