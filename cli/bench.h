/* SPDX-License-Identifier: Apache-2.0
 * Rows of `atsinfer bench` and the formats they are printed in. */
#ifndef ATSI_CLI_BENCH_H
#define ATSI_CLI_BENCH_H

#include "cli/cli.h"
#include "cli/limits.h"

/* One test, repeated.  Field names on output are those of llama-bench where it has them. */
struct bench_row {
    const char *cpu_info, *backend, *model_filename, *model_type, *type_k, *type_v;
    uint64_t model_size, model_n_params;
    uint32_t n_threads, n_ubatch, n_prompt, n_gen, n_depth, n_samples;
    char test_time[32];
    double avg_ns, stddev_ns, avg_ts, stddev_ts; /* tokens per second over the samples */
    const uint64_t *samples_ns;                  /* [n_samples] */
    double median_ts;
    double bytes_per_token; /* weights and KV read per decoded token; 0 for prompt rows */
    double read_gbps;       /* raw read of memory, GB/s: generation rows: median of passes between
                             * the samples; else the best before the tests */
    double peak_gmacs;      /* measured multiply-adds per ns of 8-bit integers; 0: not known */
    /* Of what the machine allows, medians: reading these bytes (generation), or the multiply-adds
     * of the weights at the speed of registers (prompts). */
    double limit_share;
    double ttft_ms; /* prompt rows: until the first token is chosen */
    /* With an accelerator, over all rounds of the test; else "" and zeros.  Shares of the time. */
    const char *accel;
    double cpu_share, stream_share, transfer_share, exposed_share;
    uint64_t pcie_weight_bytes, pcie_activation_bytes, pcie_result_bytes;
    uint64_t plans_made, plans_kept, plans_refused;
    double predicted_ms, observed_ms; /* of a round, where the policy predicts */
    double ratio; /* --rival: our median over this program's; 1 for ourselves, 0 without rivals */
};

/* "md", "csv", "json", "jsonl", "sql"; NULL when unknown. */
struct bench_format;
const struct bench_format *bench_format_find(const char *name);
/* rivals: rows of other programs come too. */
void bench_begin(const struct bench_format *f, bool rivals);
void bench_print(const struct bench_format *f, const struct bench_row *row);
void bench_end(const struct bench_format *f);

/* ---- bench_row.c */
/* "pp512", "tg128 @ d4096" */
const char *bench_test_name(uint32_t n_prompt, uint32_t n_gen, uint32_t n_depth, char buf[64]);
/* Averages, deviations and the median of row->samples_ns. */
void bench_statistics(struct bench_row *row);
/* The median of v[n], which is sorted on the way; 0 of none. */
double bench_median(double *v, size_t n);

/* ---- bench_count.c: what a test costs at least */
/* What the machine allows with the workers in use; 0: not known. */
struct bench_limits {
    double read_gbps, int8_gmacs, fma_gmacs;
};
/* The yardstick stays open for further passes; the caller closes it. */
void bench_limits_measure(const struct atsi_runtime *rt, struct read_yardstick *yard,
                          struct bench_limits *out);
/* Weights and KV read by a token at `depth`. */
double bench_bytes_per_token(const struct atsi_model *m, const struct atsi_graph *g,
                             const struct atsi_session *s, uint32_t depth);
/* The least time of a prompt of n tokens, ns: multiply-adds of the weights alone; 0: not known. */
double bench_prompt_limit_ns(const struct atsi_model *m, const struct atsi_graph *g,
                             const struct bench_limits *l, uint32_t n);
/* Bytes of a tensor. */
double bench_weight_bytes(const struct atsi_tensor *t);

/* ---- bench_bandwidth.c */
/* `--bandwidth`: a table per number of threads.  threads[n]: 0: 1, 2, 4, .. all.  An exit code. */
int bench_bandwidth(struct atsi_runtime *rt, const uint32_t *threads, uint32_t n,
                    const char *format);

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
