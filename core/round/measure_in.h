/* SPDX-License-Identifier: Apache-2.0
 * The inside of measuring: devices with memory to work on, and operations made from a graph's nodes
 * with other data. */
#ifndef ATSI_CORE_ROUND_MEASURE_IN_H
#define ATSI_CORE_ROUND_MEASURE_IN_H

#include "core/round/measure.h"

#define MEASURE_REPS 32u  /* operations in one sample at most */
#define MEASURE_HEAD 16u  /* rows of logits computed together at most, as sessions do */
#define MEASURE_PAD 4096u /* behind every area: kernels may read past a row's end */

/* A device with two areas: `pool` for weights and caches, walked over so that they come from
 * memory; `act` for ids, inputs and results. */
struct measure_device {
    const struct atsi_backend_ops *ops;
    struct atsi_backend *be;
    struct atsi_queue *queue;
    struct atsi_event *event;
    uint32_t device;
    char name[64];
    bool host_memory; /* the host reads and writes buffers directly */
    struct atsi_buf *pool_buf, *act_buf;
    unsigned char *pool, *act;
    size_t pool_bytes, act_bytes, at; /* at: where in the pool the next operation begins */
    size_t ids_bytes, src_bytes;      /* parts of act: ids, inputs; results behind them */
    uint64_t overhead_ns;             /* of a split and waiting for it: not the operation's */
    bool pending;                     /* work was queued that signals `event`, and not waited for */
};

struct measure {
    const struct atsi_measure_request *r;
    const struct atsi_graph *g;
    const struct atsi_tensor *const *tensors;
    struct atsi_costs *c;
    struct measure_device dev[ATSI_N_DEVICES];
    uint32_t n_devices;
    struct atsi_range range;      /* of the copy that signals an accelerator's event */
    struct atsi_buf *staging_buf; /* memory of the host that the accelerator reads */
    unsigned char *staging;
    size_t staging_bytes;
    uint64_t began_ns, budget_ns, share_ns; /* share: of one point of the grid */
    uint32_t done, total;
    uint32_t threads[ATSI_N_COST_PHASES]; /* workers of operations, by phase */
    bool only_room;                       /* pools are no larger than the request's room */
    struct atsi_err *err;
};

/* An operation at one point of the grid, as a split of `n` of it. */
struct measure_op {
    const struct atsi_graph_node *node;
    struct atsi_cost_shape shape;
    uint32_t tokens, ctx, n;
    size_t span;  /* bytes of the pool that one repetition reads: weights, cache or state */
    double scale; /* the whole operation takes so many times what is measured */
    struct atsi_tensor src[2][4], dst[2], small; /* inputs in two places, used in turn */
    struct atsi_tensor weight[MEASURE_REPS], state[MEASURE_REPS];
    struct atsi_kv kv[MEASURE_REPS];
    struct atsi_op op[MEASURE_REPS];
    const struct atsi_op *ptr[MEASURE_REPS];
};

/* ---- measure_op.c */
/* Bytes of act that a node needs for that many tokens: ids, inputs, results.  False: they overflow.
 */
bool measure_op_needs(const struct measure *m, uint32_t node, uint32_t tokens, size_t needs[3]);
/* Bytes of the pool; 0: it reads neither weights nor caches that count. */
size_t measure_op_span(const struct measure *m, const struct atsi_cost_shape *shape, uint32_t node,
                       uint32_t tokens, uint32_t ctx);
/* rows: of the weight's output, fewer than all to save time (0: all).  1: the device does not
 * compute it, or has no room for it. */
int measure_op_make(struct measure *m, struct measure_device *d, uint32_t node,
                    const struct atsi_cost_shape *shape, uint32_t tokens, uint32_t ctx,
                    uint64_t rows, struct measure_op *out);
/* Puts `n` repetitions onto the next places of the pool, or all onto the first one. */
void measure_op_place(struct measure_device *d, struct measure_op *op, uint32_t n, bool warm);

/* ---- measure_memory.c */
int measure_open(struct measure *m);
void measure_close(struct measure *m); /* half-opened ones too */
/* Waits for d->event. */
int measure_wait(struct measure *m, struct measure_device *d);
/* Work was queued that signals `ev`: returns when it is over, also on a device that has failed, as
 * far as that still answers: memory it uses may go after this. */
void measure_settle(const struct measure_device *d, struct atsi_event *ev);
/* The same for what is pending on any device: before operations that were queued are freed. */
void measure_settle_all(struct measure *m);
/* Copies to a device's memory, and waits. */
int measure_put(struct measure *m, struct measure_device *d, void *dst, const void *src, size_t n);

/* ---- measure.c */
uint64_t measure_now(const struct measure *m);
/* Runs the placed operations as one split and waits: its time on the host's clock. */
int measure_run(struct measure *m, struct measure_device *d, struct measure_op *op, uint64_t *ns);
/* One more point is done.  ATSI_EINTR when cancelled. */
int measure_tell(struct measure *m, const char *what);
/* Median, low and high of n samples, which get sorted. */
void measure_middle(uint64_t *samples, uint32_t n, uint64_t *median, uint64_t *low, uint64_t *high);

/* ---- measure_threads.c */
/* Calls of measure_tell() it makes. */
uint32_t measure_threads_steps(const struct measure *m);
/* Times of a product by workers, for both phases; m->threads follows from them. */
int measure_threads(struct measure *m);

/* ---- measure_copy.c: launches, copies, memory */
#define MEASURE_COPY_STEPS 3u /* calls of measure_tell() */
int measure_overheads(struct measure *m);
int measure_copies(struct measure *m);
int measure_bandwidth(struct measure *m);

#endif
