/* SPDX-License-Identifier: Apache-2.0
 *
 * Measured costs: what each distinct operation of a model takes on the devices of this machine, for
 * some numbers of tokens and some contexts, what copies take by size, and what changing sides
 * costs.  A table belongs to one machine and one model; its key says to which, in words.
 *
 * Times are whole nanoseconds, medians.  Between the points of the grid: tokens by a power law
 * (linear in logarithms) through the points, contexts and bytes linearly; beyond them by the last
 * point's rate.  No time gets shorter with more tokens, positions or bytes: noise is levelled.
 */
#ifndef ATSI_CORE_ROUND_COSTS_H
#define ATSI_CORE_ROUND_COSTS_H

#include "atsinfer/profile.h"
#include "core/round/exec.h"
#include "core/runtime.h"

/* ---------------------------------------------------------------- the table */
#define ATSI_SHAPE_DIMS 8u

/* An operation, as far as its time depends on it, without tokens and context. */
struct atsi_cost_shape {
    uint32_t kind;                  /* enum atsi_op_kind */
    uint32_t type, layout;          /* of weight[0]; ATSI_TYPE_COUNT, 0: it has none */
    uint32_t reserved;              /* 0: shapes are hashed as they lie in memory */
    uint64_t dims[ATSI_SHAPE_DIMS]; /* by kind: costs_shape.c */
};

#define ATSI_COST_TIMES 32u

struct atsi_cost_op {
    uint32_t device; /* ATSI_DEVICE_HOST, ATSI_DEVICE_ACCEL */
    uint32_t n;
    struct atsi_cost_shape shape;
    struct atsi_cost_time time[ATSI_COST_TIMES]; /* [n], by context, then tokens */
};

enum atsi_cost_channel {
    ATSI_COPY_PINNED = 0, /* weights to the accelerator from memory it can read directly */
    ATSI_COPY_PAGEABLE,   /* from any memory */
    ATSI_COPY_TO_ACCEL,   /* activations, launch included */
    ATSI_COPY_TO_HOST,    /* activations, launch and the host's wait included */
    ATSI_N_COPIES
};

#define ATSI_COPY_POINTS 8u

/* GB/s of host memory; 0: not measured. */
struct atsi_cost_memory {
    double cpu_alone, copy_alone, cpu_together, copy_together;
};

/* Phases of a round, as far as workers go. */
enum atsi_cost_phase { ATSI_COST_DECODE = 0, ATSI_COST_PREFILL, ATSI_N_COST_PHASES };

#define ATSI_COST_THREADS 24u

/* Name and value, in words: of what the table was measured with. */
struct atsi_cost_key {
    char name[24], value[200];
};

#define ATSI_COST_KEYS 16u

struct atsi_costs {
    uint32_t n_keys;
    struct atsi_cost_key key[ATSI_COST_KEYS];
    uint32_t n_ops, room_ops;
    struct atsi_cost_op *ops;
    uint32_t n_copies[ATSI_N_COPIES];
    struct atsi_cost_copy copies[ATSI_N_COPIES][ATSI_COPY_POINTS]; /* ascending bytes */
    uint64_t
        launch_ns[ATSI_N_DEVICES];    /* of a split: until run() is back, or its region has begun */
    uint64_t sync_ns[ATSI_N_DEVICES]; /* from the end of queued work until the host knows */
    uint64_t split_ns;                /* a cut in the accelerator's queue */
    struct atsi_cost_memory memory;
    /* The same product with more and more workers; none where there is only one. */
    uint32_t n_threads[ATSI_N_COST_PHASES];
    struct atsi_cost_threads threads[ATSI_N_COST_PHASES][ATSI_COST_THREADS];
    uint64_t mem_bytes[ATSI_N_DEVICES]; /* of the devices; 0: not known */
    uint32_t chunk;                     /* most tokens of a round that were measured */
    uint64_t took_ns;                   /* the measuring itself */
};

/* [owned by caller: atsi_costs_free]  NULL: out of memory. */
struct atsi_costs *atsi_costs_new(void);
void atsi_costs_free(struct atsi_costs *c); /* NULL is allowed */
/* Text of a key; "" when there is none. */
const char *atsi_costs_key(const struct atsi_costs *c, const char *name);
/* Types of KV caches it was measured with; f16 when it does not say. */
void atsi_costs_kv(const struct atsi_costs *c, uint32_t *type_k, uint32_t *type_v);
bool atsi_costs_has_accel(const struct atsi_costs *c);

/* The operation's entry, or NULL. */
struct atsi_cost_op *atsi_costs_find(const struct atsi_costs *c, uint32_t device,
                                     const struct atsi_cost_shape *shape);
/* A new entry, or the one there is.  NULL: out of memory. */
struct atsi_cost_op *atsi_costs_add(struct atsi_costs *c, uint32_t device,
                                    const struct atsi_cost_shape *shape);
/* Time of an operation for that many tokens after ctx positions. */
uint64_t atsi_cost_op_ns(const struct atsi_cost_op *op, uint32_t tokens, uint32_t ctx, bool warm);
/* Time of a copy; 0 where the channel was not measured. */
uint64_t atsi_costs_copy_ns(const struct atsi_costs *c, enum atsi_cost_channel channel,
                            uint64_t bytes);

/* ---- knee.c */
/* The fewest workers that lose next to nothing, of n points that ascend; 0: there is none. */
uint32_t atsi_threads_knee(const struct atsi_cost_threads *p, uint32_t n);
/* Workers of each phase by a table: the settings' numbers, and where those are open (cpu.threads =
 * 0), the knee if it was measured. */
void atsi_costs_threads(const struct atsi_costs *c, const struct atsi_runtime *rt,
                        uint32_t out[ATSI_N_COST_PHASES]);

/* ---- costs_stream.c */
struct atsi_cost_stream {
    const struct atsi_cost_op *here, *there; /* on the CPU, on the accelerator */
    uint64_t bytes, copy_ns;                 /* of the weight, of a stack all of it; 0: no copy was
                                              * measured */
    /* Tokens of a round from which on streaming it is not slower than the CPU: when the copy hides
     * behind other work of the accelerator, as in a row of streamed weights; when nothing hides it.
     * 0: not up to the table's `chunk`. */
    uint32_t tokens_hidden, tokens_alone;
};
/* The index-th product that was measured on both devices; false: there are no more. */
bool atsi_costs_stream(const struct atsi_costs *c, uint32_t index, struct atsi_cost_stream *out);

/* ---- costs_shape.c */
/* Shape of a node's operation.  layout: of its weight, where that is used. */
void atsi_cost_shape_of(const struct atsi_graph *g, const struct atsi_tensor *const *tensors,
                        uint32_t node, uint32_t layout, uint32_t type_k, uint32_t type_v,
                        struct atsi_cost_shape *out);
/* "matmul", or NULL; and back, 0: none. */
const char *atsi_cost_kind_name(uint32_t kind);
uint32_t atsi_cost_kind(const char *name, size_t len);

/* ---- costs_file.c */
/* ATSI_ENOENT, ATSI_EIO; ATSI_EFORMAT "FILE:LINE: ..."; ATSI_ENOTSUP: of another version. */
int atsi_costs_read(const char *path, struct atsi_costs **out, struct atsi_err *err);
/* Replaces the file as a whole. */
int atsi_costs_write(const struct atsi_costs *c, const char *path, struct atsi_err *err);
/* "pinned", ... */
const char *atsi_cost_channel_name(enum atsi_cost_channel channel);
/* "decode", "prefill" */
const char *atsi_cost_phase_name(enum atsi_cost_phase phase);
/* True when the file begins as tables do. */
bool atsi_costs_is_table(const char *path);
/* 64 bits of everything that was measured. */
uint64_t atsi_costs_hash(const struct atsi_costs *c);

/* ---- costs_machine.c: the table as a roofline, for what only bandwidths can say */
void atsi_costs_machine(const struct atsi_costs *c, struct atsi_machine *out);

/* ---- question_measured.c */
/* What items are made of. */
struct atsi_costs_model {
    const struct atsi_graph *graph;
    const struct atsi_tensor *const *tensors;
    uint32_t type_k, type_v; /* of KV caches */
    /* Layout weights will have on a device, where it was measured with it; else that of the file.
     */
    uint32_t layout[ATSI_N_DEVICES]; /* enum atsi_layout */
};

struct atsi_question_more {
    bool warm; /* all that a round reads stays in the CPU's last cache */
    const uint8_t
        *pageable;   /* [n_items] 1: transferred from memory that is not pinned; NULL: none */
    uint64_t gap_ns; /* host time between two rounds */
};

/* As atsi_question_model(), from a table.  more may be NULL.  ATSI_ENOENT: the table lacks an
 * operation (it belongs to another model); the message names it. */
int atsi_question_measured(struct atsi_items *it, const struct atsi_costs *c,
                           const struct atsi_costs_model *m, const struct atsi_question_params *p,
                           const struct atsi_question_more *more, struct atsi_question **out,
                           struct atsi_err *err);

#endif
