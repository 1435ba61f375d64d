/* SPDX-License-Identifier: Apache-2.0
 *
 * Measured costs of a model on this machine: what each distinct operation takes on the CPU and on
 * the accelerator, what copies and changes of sides take.  Sessions with an accelerator, simulate
 * and plan use them; they are measured at first use, kept in the user's cache, and measured again
 * when the machine, the plugins or the settings are others.  docs/scheduling.md.
 */
#ifndef ATSINFER_PROFILE_H
#define ATSINFER_PROFILE_H

#include "atsinfer/atsinfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One point of the grid, in nanoseconds.  cold: weights and caches come from memory, as in a round
 * over a model larger than the last cache; warm: they are in the cache, 0: not measured.  Arrays of
 * this struct and the next have a fixed stride: they never grow. */
struct atsi_cost_time {
    uint32_t tokens, ctx; /* ctx: positions before the round; 0 but for attention */
    uint32_t n;           /* samples */
    uint32_t reserved;
    uint64_t cold_ns, low_ns, high_ns; /* cold: median, fastest and slowest */
    uint64_t warm_ns;
};

struct atsi_cost_copy {
    uint64_t bytes, ns, low_ns, high_ns;
    uint32_t n; /* samples */
    uint32_t reserved;
};

/* A product with so many workers. */
struct atsi_cost_threads {
    uint32_t threads, n; /* samples */
    uint64_t ns, low_ns, high_ns;
};

enum atsi_profile_mode {
    ATSI_PROFILE_CURRENT = 0, /* the kept table, or measured when there is no current one */
    ATSI_PROFILE_FORCE,       /* measured in any case */
    ATSI_PROFILE_KEPT         /* the kept table as it is */
};

struct atsi_profile_params {
    uint32_t struct_size;
    uint32_t mode;       /* enum atsi_profile_mode */
    const char *model;   /* file; only its head is read */
    uint32_t chunk;      /* most tokens of a round; 0: prefill.chunk */
    uint32_t ctx;        /* positions of a cache; 0: as sessions have */
    uint64_t budget_ns;  /* for measuring, about; 0: some seconds */
    uint64_t room_bytes; /* memory to walk over on each device; 0: by the last cache */
    /* Before each of `total` steps; may be NULL. */
    void (*progress)(void *ctx, uint32_t done, uint32_t total, const char *what);
    void *progress_ctx;
    const volatile int *cancel; /* may be NULL; non-zero: ATSI_EINTR */
};

struct atsi_profile_summary {
    uint32_t struct_size;
    uint32_t n_keys, n_ops, n_copies;
    uint32_t measured;   /* 1: by this call */
    uint32_t chunk;      /* most tokens that were measured */
    const char *path;    /* where the table is kept; "": nowhere */
    const char *why;     /* why it was measured, or, kept as it is, why it is out of date; "" */
    const char *without; /* why there is no accelerator; "" */
    uint64_t took_ns;
    uint64_t launch_ns[2], sync_ns[2]; /* CPU, accelerator: starting a split, learning its end */
    uint64_t split_ns;                 /* a cut in the accelerator's queue */
    /* GB/s of host memory; 0: not measured. */
    double cpu_alone, copy_alone, cpu_together, copy_together;
    /* Workers of one-token and of prefill rounds where settings leave them open; 0: not measured.
     */
    uint32_t threads_decode, threads_prefill;
};

struct atsi_profile_op {
    uint32_t struct_size;
    uint32_t accel;   /* 1: on the accelerator */
    const char *kind; /* "matmul" */
    const char *type; /* of its weight; "": none */
    uint32_t panels;  /* 1: packed */
    uint32_t n_times;
    uint64_t dims[8];                   /* by kind: docs/scheduling.md */
    const struct atsi_cost_time *times; /* [n_times] */
};

/* From how many tokens on streaming a weight to the accelerator beats multiplying it on the CPU. */
struct atsi_profile_stream {
    uint32_t struct_size;
    uint32_t panels;  /* 1: packed for the CPU */
    const char *kind; /* "matmul", "matmul_id" */
    const char *type;
    uint64_t dims[8];
    uint64_t bytes, copy_ns; /* of the weight (of a stack all of it), from pinned memory */
    /* Tokens of a round: when the copy hides behind other work of the accelerator, as in a row of
     * streamed weights; when nothing hides it.  0: not up to atsi_profile_summary.chunk. */
    uint32_t tokens_hidden, tokens_alone;
};

struct atsi_profile;

/* ATSI_ENOENT: nothing is kept (ATSI_PROFILE_KEPT); ATSI_EFORMAT, ATSI_ENOTSUP: what is kept cannot
 * be read; ATSI_EINTR. */
ATSI_EXPORT int atsi_profile_open(struct atsi_runtime *rt, const struct atsi_profile_params *p,
                                  struct atsi_profile **out, struct atsi_err *err);
ATSI_EXPORT void atsi_profile_close(struct atsi_profile *p); /* NULL is allowed */
/* All below: [borrowed until atsi_profile_close]; false: there is no such index. */
ATSI_EXPORT const struct atsi_profile_summary *atsi_profile_summary(const struct atsi_profile *p);
ATSI_EXPORT bool atsi_profile_key(const struct atsi_profile *p, uint32_t index, const char **name,
                                  const char **value);
ATSI_EXPORT bool atsi_profile_op(const struct atsi_profile *p, uint32_t index,
                                 struct atsi_profile_op *out);
/* channel: "pinned", "pageable" (weights), "to_accel", "to_host" (activations). */
ATSI_EXPORT bool atsi_profile_copy(const struct atsi_profile *p, uint32_t index,
                                   const char **channel, struct atsi_cost_copy *out);
/* phase: "decode", "prefill"; by threads. */
ATSI_EXPORT bool atsi_profile_threads(const struct atsi_profile *p, uint32_t index,
                                      const char **phase, struct atsi_cost_threads *out);
/* Products that were measured on both devices. */
ATSI_EXPORT bool atsi_profile_stream(const struct atsi_profile *p, uint32_t index,
                                     struct atsi_profile_stream *out);

#ifdef __cplusplus
}
#endif
#endif
