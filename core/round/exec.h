/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor: walks a plan on two devices and a transfer engine, tied by events.
 *
 * The calling thread is the host.  Work of the accelerator is queued ahead; the host waits only
 * when it needs an output.  Weight transfers are issued in the plan's order as soon as what they
 * wait for has been queued, and go on into the next round, as long as the plan stays.
 */
#ifndef ATSI_CORE_ROUND_EXEC_H
#define ATSI_CORE_ROUND_EXEC_H

#include "atsinfer/plugin.h"
#include "core/round/plan.h"

struct atsi_exec_devices {
    const struct atsi_host *host;
    const struct atsi_backend_ops *ops[ATSI_N_DEVICES];
    struct atsi_backend *be[ATSI_N_DEVICES];
    struct atsi_queue *queue[ATSI_N_DEVICES];
    const struct atsi_transfer_ops *tx_ops;
    struct atsi_transfer *tx;
    uint32_t copy_kernel, copy_engine; /* channels */
    /* Weights go over the copy engine, or, when weight_queue is set, in the order of that queue of
     * the accelerator, over the copy kernel. */
    struct atsi_queue *weight_queue;
    bool wait_each; /* wait for every step and every transfer before going on */
    /* The devices compute: transfers under way are waited for before their slot may mean other
     * memory, and at the end of a round all of its work is over. */
    bool real;
};

/* Turns steps into work for the devices.  Returned memory: [borrowed until the round is over, that
 * of ranges until their copy is]  Called twice for a step: once to count, once to run. */
struct atsi_exec_source {
    void *ctx;
    /* Operations of a RUN step: ops, n_ops and graph_key; of each item at least one.  slot: where
     * the weight of the first item arrives, as move() was told; -1: nowhere. */
    int (*run)(void *ctx, const struct atsi_plan *plan, uint32_t step, int32_t slot,
               struct atsi_split *split, struct atsi_err *err);
    /* Fills ranges and modelled of a weight's transfer, and of a COPY step. */
    int (*move)(void *ctx, uint32_t item, uint32_t slot, struct atsi_copyv *req,
                struct atsi_err *err);
    int (*copy)(void *ctx, const struct atsi_plan *plan, uint32_t step, struct atsi_copyv *req,
                struct atsi_err *err);
    /* The result to the host, after the last item ran elsewhere. */
    int (*result)(void *ctx, const struct atsi_plan *plan, struct atsi_copyv *req,
                  struct atsi_err *err);
    /* The rest may be NULL: simulated devices do not need it. */
    /* A RUN step of the host is about to write its results. */
    int (*before)(void *ctx, const struct atsi_plan *plan, uint32_t step, struct atsi_err *err);
    /* A COPY step (event: its end) or RUN step was queued. */
    int (*after)(void *ctx, const struct atsi_plan *plan, uint32_t step, struct atsi_event *event,
                 struct atsi_err *err);
    /* Are the experts known that the router of `item`, which has run, chose?  wait: until they
     * are.  1: yes, 0: not yet, or ATSI_E*. */
    int (*routed)(void *ctx, uint32_t item, bool wait, struct atsi_err *err);
};

/* What happened in a round: spans on the engine's clock. */
struct atsi_span {
    uint64_t start_ns, end_ns;
};

struct atsi_record {
    struct atsi_span round;
    bool measured;             /* else the rest is what the last measured round left */
    uint32_t n_steps, n_moves; /* as in the plan */
    struct atsi_span *steps;   /* [n_steps] runs and copies */
    uint64_t *item_ns;         /* [n_items] summed over an item's operations; 0: did not run */
    struct atsi_span *moves;   /* [n_moves] */
};

/* Finds the two channels by name.  ATSI_ENOTSUP: the transfer engine lacks one. */
int atsi_exec_channels(struct atsi_exec_devices *d, struct atsi_err *err);

struct atsi_exec;

int atsi_exec_open(const struct atsi_question *q, const struct atsi_exec_devices *d,
                   struct atsi_exec **out, struct atsi_err *err);
void atsi_exec_close(struct atsi_exec *x); /* NULL is allowed; waits for queued work */

/* One round.  plan: stays the caller's, unchanged until the next call; keeps: the same plan will be
 * used for the next round too, so that its first transfers may start during this one.
 * *rec: [borrowed until the next call] */
int atsi_exec_round(struct atsi_exec *x, const struct atsi_plan *plan,
                    const struct atsi_exec_source *src, bool keeps, const struct atsi_record **rec,
                    struct atsi_err *err);
/* Waits for transfers that were issued ahead, and forgets them. */
int atsi_exec_settle(struct atsi_exec *x, struct atsi_err *err);
/* From now on weights go over the copy engine. */
void atsi_exec_use_engine(struct atsi_exec *x);
/* Whether a round is measured in all its parts, as rounds are when nobody says otherwise, which
 * costs some time: the next one, and the one after it, whose first transfers begin before. */
void atsi_exec_measure(struct atsi_exec *x, bool on, bool after);
/* The clock of the devices: when the host is free. */
int atsi_exec_now(struct atsi_exec *x, uint64_t *ns_out, struct atsi_err *err);
/* Lets the host work for a while, as between two rounds. */
int atsi_exec_host(struct atsi_exec *x, const struct atsi_op *op, struct atsi_err *err);

#endif
