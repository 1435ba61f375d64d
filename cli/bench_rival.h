/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer bench --rival CMD`: another program's bench, run between our own samples so that both
 * meet the same machine.
 */
#ifndef ATSI_CLI_BENCH_RIVAL_H
#define ATSI_CLI_BENCH_RIVAL_H

#include "cli/bench.h"

#define BENCH_MAX_RIVALS 8
#define BENCH_RIVAL_LIMIT_S 1800u /* of one sample */

/* One test, as the other program is asked for it. */
struct bench_rival_test {
    const char *model; /* path */
    uint32_t n_prompt, n_gen, n_depth, n_threads;
};

struct bench_rival {
    char name[64];        /* "llama-bench", or what stood before the first '=' */
    const char *command;  /* a shell command; [borrowed] */
    uint64_t *samples_ns; /* [repeats] of the current test */
    uint32_t n_samples;
    uint32_t limit_s; /* of one sample: then the program is ended */
};

/* "NAME=COMMAND" or "COMMAND".  An exit code; prints. */
int bench_rival_open(struct bench_rival *r, const char *text, uint32_t repeats);
void bench_rival_close(struct bench_rival *r);
/* Runs the program once for one sample of a test.  An exit code; prints what went wrong. */
int bench_rival_sample(struct bench_rival *r, const struct bench_rival_test *t);

/* The command line with everything filled in: {model}, {p}, {n}, {d}, {t} where they are named,
 * else llama-bench's options behind it.  [owned by caller: free()]; NULL: out of memory. */
char *bench_rival_command(const char *command, const struct bench_rival_test *t);

/* Tokens per second of test t in what llama-bench printed (-o json, jsonl or md).  False: `why`
 * says what is missing or wrong. */
bool bench_rival_parse(const char *text, size_t n, const struct bench_rival_test *t, double *ts,
                       char *why, size_t why_size);

/* Before a runtime is opened: what runs later may use the CPUs of now. */
void bench_rival_remember_cpus(void);

#endif
