/* SPDX-License-Identifier: Apache-2.0
 * Timing the kernels of several backends in turns. */
#ifndef ATSI_CLI_KERNELS_BENCH_H
#define ATSI_CLI_KERNELS_BENCH_H

#include "cli/kernels_probe.h"
#include "cli/kernels_table.h"

#define KERNELS_MAX_BACKENDS 16
#define KERNELS_MAX_SHAPES 8

struct kernels_shape {
    uint32_t k, n; /* columns (input), rows (output) of the weight */
};

/* What is to be timed. */
struct kernels_plan {
    const char *op;             /* NULL: all */
    const char *layout;         /* "rows", "panels"; NULL: both */
    bool type[ATSI_TYPE_COUNT]; /* of weights */
    bool typed_only;            /* leave out operations without weights */
    struct kernels_shape shapes[KERNELS_MAX_SHAPES];
    uint32_t n_shapes;
    uint64_t seed;
};

/* The backends that take turns; ref may be one of them or stand aside.  Those of `there` have
 * memory of their own and are timed one by one. */
struct kernels_field {
    const struct atsi_runtime *rt;
    struct kernels_backend *backends[KERNELS_MAX_BACKENDS], *there[KERNELS_MAX_BACKENDS];
    uint32_t n, n_there;
    struct kernels_backend *ref;
};

/* kernels_cases.c: one thing to time, with tensors for it. */
struct kernels_case {
    const char *op;
    const char *layout; /* of the weight; "" without one */
    const char *memory; /* "cache", "streaming" */
    const char *unit;
    char shape[48];
    uint32_t type;     /* of the weight, or of the KV cache; F32 for others */
    bool typed;        /* the type is worth a column */
    double amount;     /* bytes or multiply-adds of a run */
    double limit;      /* amount per ns that the machine allows; 0: not known */
    uint32_t n_copies; /* weights the runs rotate through */
    struct kernels_probe p;
    struct atsi_tensor weights[1]; /* a view of the current one */
    int32_t *ids;                  /* experts of a run, moved on from run to run; NULL: none */
    uint32_t n_ids, n_expert;
};

/* Calls fn for every case of the plan, one after the other; each is closed after the call.  An exit
 * code, of fn or our own. */
typedef int kernels_case_fn(void *ctx, struct kernels_case *c);
int kernels_cases_each(const struct kernels_plan *plan, const struct kernels_table *limits,
                       size_t cache_bytes, size_t near_bytes, kernels_case_fn *fn, void *ctx);
bool kernels_case_known(const char *op);
/* Turns to the next weight. */
void kernels_case_advance(struct kernels_case *c);

/* kernels_there.c: products of a backend with memory of its own, as rows of `t`.  An exit code. */
int kernels_bench_there(const struct atsi_runtime *rt, struct kernels_backend *b,
                        const struct kernels_plan *plan, const char *format,
                        const struct kernels_table *old, struct kernels_table *t);

/* Times all cases and adds and prints rows.  An exit code. */
int kernels_bench(struct kernels_field *f, const struct kernels_plan *plan, const char *format,
                  const struct kernels_table *old, struct kernels_table *t);

#endif
