/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the CPU backend: what a split needs to know before it runs, and one function per
 * kind of operation that does a worker's share of it.
 */
#ifndef CPU_BACKEND_H
#define CPU_BACKEND_H

#include <stdatomic.h>

#include "cpu_kernels.h"

#define CPU_ALIGN 64u
/* Rows of a weight are dealt to workers in multiples of this, so that kernels see whole tiles: two
 * panels, which are read side by side. */
#define CPU_ROW_STEP 32u
/* Rows of activations that meet one expert at a time, at most: its weights are unpacked as often.
 */
#define CPU_GATHER 128u
#define CPU_NO_BAD_EXPERT INT64_MAX /* no 32-bit id */

static inline size_t cpu_round_up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

/* What the planner decided about one op. */
struct cpu_step {
    bool
        barrier; /* wait for all workers before it: it touches what another op since then touches */
    bool quantize;            /* its activations are not in the act buffer yet */
    uint32_t block;           /* kind of activations: 0 f32, 32, 256 */
    uint32_t act_rows, act_k; /* rows and length of what is quantized */
};

/* A grow-only block of memory. */
struct cpu_block {
    void *data;
    size_t size;
};

struct atsi_backend {
    const struct atsi_host *host;
    const char *name;
    struct cpu_kernels kernels;
    struct cpu_blocks blocks; /* how products walk */
    struct cpu_block steps;   /* struct cpu_step per op of the split */
    struct cpu_block shared;  /* quantized activations of a batch, written by all workers */
    struct cpu_block parts;   /* results of an attention's chunks */
};

/* One run of a split, seen by all workers. */
struct cpu_run {
    struct atsi_backend *be;
    const struct atsi_split *split;
    const struct cpu_step *steps;
    size_t scratch_bytes; /* of each worker */
    _Atomic int64_t
        bad_expert; /* an expert id out of range that was met; CPU_NO_BAD_EXPERT: none */
};

/* One worker inside a run. */
struct cpu_worker {
    struct cpu_run *run;
    struct atsi_worker *w;
    const struct cpu_kernels *kernels;
    struct cpu_act act;  /* activations of the current matrix product */
    unsigned char *free; /* scratch behind the worker's own act buffer */
};

/* check.c: 1 when the op's shapes and types are ones the kernels compute. */
int cpu_supports(const struct cpu_kernels *k, const struct atsi_op *op);

static inline bool cpu_has_state(uint32_t kind)
{
    return kind == ATSI_OP_CONV || kind == ATSI_OP_DELTA_NET;
}

/* act.c */
uint32_t cpu_act_block(const struct atsi_op *op); /* 0, 32 or 256 */
size_t cpu_act_bytes(uint32_t rows, uint32_t k, uint32_t block);
/* Lays an act buffer of that shape out over `memory`. */
void cpu_act_layout(struct cpu_act *act, uint32_t rows, uint32_t k, uint32_t block, void *memory);
/* One row of `act` as an act of its own. */
struct cpu_act cpu_act_row(const struct cpu_act *act, uint32_t row);
/* Makes w->act hold the op's activations, quantizing when the step says so. */
void cpu_act_prepare(struct cpu_worker *w, const struct atsi_op *op, const struct cpu_step *step);

/* The worker's share [*first, *end) of n units dealt in multiples of `step`. */
void cpu_share(const struct atsi_worker *w, size_t n, size_t step, size_t *first, size_t *end);

/* Scratch one worker needs for an op besides its act buffer. */
size_t cpu_matmul_scratch(const struct atsi_op *op);
size_t cpu_embed_scratch(const struct atsi_op *op);
size_t cpu_experts_scratch(const struct atsi_op *op);
size_t cpu_attn_scratch(const struct atsi_op *op, uint32_t n_threads);
/* Memory that all workers share in it. */
size_t cpu_attn_shared(const struct atsi_op *op, uint32_t n_threads);
size_t cpu_delta_scratch(const struct atsi_op *op);

void cpu_op_matmul(struct cpu_worker *w, const struct atsi_op *op);
void cpu_op_experts(struct cpu_worker *w, const struct atsi_op *op);
/* op_moe.c: all rows of some matrices lie on a line, each as long as it takes to compute it, and
 * every worker has an equal piece of the line. */
struct cpu_cut {
    uint64_t at, from, to; /* the next matrix; the worker's piece */
};
/* length: of all matrices, their rows times their cost. */
struct cpu_cut cpu_cut_open(uint64_t length, uint32_t tid, uint32_t n_threads);
/* Rows [*first, *end) of the next matrix, *first a multiple of CPU_ROW_STEP, are the worker's;
 * false: none is.  cost: of one row. */
bool cpu_cut_next(struct cpu_cut *c, uint64_t cost, size_t rows, size_t *first, size_t *end);
void cpu_op_attn(struct cpu_worker *w, const struct atsi_op *op);
void cpu_op_embed(struct cpu_worker *w, const struct atsi_op *op);
void cpu_op_rms_norm(struct cpu_worker *w, const struct atsi_op *op);
void cpu_op_rope_table(struct cpu_worker *w, const struct atsi_op *op);
void cpu_op_rope(struct cpu_worker *w, const struct atsi_op *op);
void cpu_op_swiglu(struct cpu_worker *w, const struct atsi_op *op);
void cpu_op_add(struct cpu_worker *w, const struct atsi_op *op);
void cpu_op_topk(struct cpu_worker *w, const struct atsi_op *op);
void cpu_op_moe_sum(struct cpu_worker *w, const struct atsi_op *op);
void cpu_op_gate(struct cpu_worker *w, const struct atsi_op *op);
void cpu_op_regroup(struct cpu_worker *w, const struct atsi_op *op);
void cpu_op_conv(struct cpu_worker *w, const struct atsi_op *op);
void cpu_op_delta_net(struct cpu_worker *w, const struct atsi_op *op);

/* Row `row` of a matrix of `weight` that starts at base, to f32.  `room`: row_bytes of scratch, for
 * packed weights (else not used). */
void cpu_row_dequant(const struct cpu_worker *w, const struct atsi_tensor *weight, const void *base,
                     size_t row, void *room, float *y);
/* Scratch for it. */
size_t cpu_row_scratch(const struct atsi_tensor *weight);

/* Products of weight rows [first, end), first a multiple of 16, with act, exact or not: y[t *
 * y_stride + r - first]. */
void cpu_rows_times(struct cpu_worker *w, const struct atsi_tensor *weight, const void *base,
                    bool exact, size_t first, size_t end, const struct cpu_act *act, float *y,
                    size_t y_stride);

/* split.c */
int cpu_run_split(struct atsi_backend *be, const struct atsi_split *split, struct atsi_err *err);
/* ATSI_ENOMEM leaves the block as it was. */
int cpu_block_grow(struct cpu_block *b, size_t bytes, struct atsi_err *err);

#endif
