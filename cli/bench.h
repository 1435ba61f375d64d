/* SPDX-License-Identifier: Apache-2.0
 * Rows of `atsinfer bench` and the formats they are printed in. */
#ifndef ATSI_CLI_BENCH_H
#define ATSI_CLI_BENCH_H

#include "cli/cli.h"

/* One test, repeated.  Field names on output are those of llama-bench where it has them. */
struct bench_row {
    const char *cpu_info, *backend, *model_filename, *model_type, *type_k, *type_v;
    uint64_t model_size, model_n_params;
    uint32_t n_threads, n_ubatch, n_prompt, n_gen, n_depth, n_samples;
    char test_time[32];
    double avg_ns, stddev_ns, avg_ts, stddev_ts; /* tokens per second over the samples */
    const uint64_t *samples_ns;                  /* [n_samples] */
    double bytes_per_token; /* weights and KV read per decoded token; 0 for prompt rows */
    double read_gbps;       /* measured read bandwidth, GB/s */
    double limit_share;     /* tokens/s over read_gbps / bytes_per_token; 0 for prompt rows */
    double ttft_ms;         /* prompt rows: until the first token is chosen */
    /* With an accelerator, over all rounds of the test; else "" and zeros.  Shares of the time. */
    const char *accel;
    double cpu_share, stream_share, transfer_share, exposed_share;
    uint64_t pcie_weight_bytes, pcie_activation_bytes, pcie_result_bytes;
    uint64_t plans_made, plans_kept, plans_refused;
    double predicted_ms, observed_ms; /* of a round, where the policy predicts */
};

/* "md", "csv", "json", "jsonl", "sql"; NULL when unknown. */
struct bench_format;
const struct bench_format *bench_format_find(const char *name);
void bench_begin(const struct bench_format *f);
void bench_print(const struct bench_format *f, const struct bench_row *row);
void bench_end(const struct bench_format *f);

/* Best of a few passes over a buffer much larger than the caches, in GB/s; 0 when memory is short.
 */
double bench_read_bandwidth(const struct atsi_runtime *rt);

/* Ids that look like nothing, the same every time. */
void bench_random_ids(int32_t *ids, uint32_t n, uint32_t n_vocab);
/* Appends n tokens.  An exit code; prints what went wrong. */
int bench_eval(struct atsi_session *s, const int32_t *ids, uint32_t n);

/* ---- bench_ablation.c: what each part of hybrid execution brings on this machine */
struct bench_ablation {
    uint32_t n_prompt, n_gen, repeats;
    const char *format; /* "md", "csv", "json" */
};
/* An exit code: CLI_NO_FIT without an accelerator. */
int bench_ablation(const struct bench_ablation *a);

#endif
