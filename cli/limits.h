/* SPDX-License-Identifier: Apache-2.0
 *
 * What this machine allows, whatever the kernels: bytes per second read from memory, and
 * multiply-adds per second of its arithmetic.  The yardsticks of `bench`, `kernels` and docs.
 */
#ifndef ATSI_CLI_LIMITS_H
#define ATSI_CLI_LIMITS_H

#include "cli/cli.h"

/* ---------------------------------------------------------------- reading (read_loops.c) */
/* One way to read: streams side by side in each worker's share, a register's width, and how far
 * ahead is prefetched. */
struct read_pattern {
    uint32_t streams;     /* 1, 2, 4 */
    uint32_t width_bytes; /* 16, 32, 64 */
    uint32_t prefetch;    /* bytes ahead in each stream; 0: none */
    bool huge_pages;      /* asked for */
};

#define READ_LOOPS_ALIGN 4096u /* of addresses and lengths */

/* Whether this CPU executes loops of that width (of ATSI_CPU_* bits). */
bool read_loop_possible(uint32_t width_bytes, uint64_t cpu_caps);
/* Reads n bytes (a multiple of READ_LOOPS_ALIGN) and returns something that depends on all. */
uint64_t read_loop_run(const struct read_pattern *p, const unsigned char *data, size_t n);

/* ---------------------------------------------------------------- memory (bandwidth.c) */
#define LIMITS_MAX_PATTERNS 40

struct read_speed {
    struct read_pattern pattern;
    double best_gbps, median_gbps;
};

/* All patterns, fastest first, with the workers of the next region. */
struct read_speeds {
    struct read_speed v[LIMITS_MAX_PATTERNS];
    uint32_t n, n_threads;
};

/* Memory to read, once for several measurements. */
struct read_room {
    unsigned char *huge, *small; /* in 2 MiB pages where the system gives them; in 4 KiB ones */
    size_t bytes;                /* of each */
};
/* CLI_NO_FIT (printed) when little memory is free.  quick: without small pages. */
int read_room_open(const struct atsi_runtime *rt, bool quick, struct read_room *out);
void read_room_close(struct read_room *r);

/* Passes take turns through all patterns: a machine that is busy for a while treats all alike.  In
 * a quick room, after one pass only the fastest go on, which come first then. */
int read_speeds_measure(const struct atsi_runtime *rt, const struct read_room *room,
                        struct read_speeds *out);
/* "2 streams, 512-bit, prefetch 1 KiB, 2 MiB pages" */
const char *read_pattern_text(const struct read_pattern *p, char buf[80]);

/* The fastest way to read here, kept to be measured beside something else: what a machine gives
 * changes by the minute where others share its memory. */
struct read_yardstick {
    struct read_room room;
    struct read_pattern pattern;
};
/* Opens one and returns the best raw read of this machine with the workers of the next region,
 * GB/s; 0, with nothing to close, when it cannot be measured. */
double read_yardstick_open(const struct atsi_runtime *rt, struct read_yardstick *out);
/* One more pass, GB/s; 0 when it cannot be measured. */
double read_yardstick_pass(const struct atsi_runtime *rt, const struct read_yardstick *y);
/* One that is zero, not opened, is fine. */
void read_yardstick_close(struct read_yardstick *y);
/* read_yardstick_open() alone. */
double limit_read_gbps(const struct atsi_runtime *rt);

/* ---------------------------------------------------------------- arithmetic (peak.c) */
enum limit_math { LIMIT_INT8, LIMIT_FMA };

/* Multiply-adds of 8-bit integers (of f32 numbers) per nanosecond, registers only, with the workers
 * of the next region and the widest instruction that cpu_caps allow; 0: not known for this CPU. */
double limit_gmacs(const struct atsi_runtime *rt, enum limit_math what);
/* "vpdpbusd, 512-bit" */
const char *limit_math_name(uint64_t cpu_caps, enum limit_math what);
/* What products of a weight type are limited by. */
enum limit_math limit_math_of(uint32_t type);

#endif
