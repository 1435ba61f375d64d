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
};

/* Turns steps into work for the devices.  [borrowed pointers valid until the round is over] */
struct atsi_exec_source {
    void *ctx;
    /* Operations of items [first, first + n) on a device; of each item at least one, its last one
     * at ops[item_end[k] - 1]. */
    int (*run)(void *ctx, uint32_t device, uint32_t first, uint32_t n, bool after_transfer,
               const struct atsi_op *const **ops, uint32_t *n_ops);
    /* Fills ranges and modelled of a weight's transfer, and of a copy of activations (of `bytes`,
     * to `device`, needed by item `first`). */
    int (*move)(void *ctx, uint32_t item, uint32_t slot, struct atsi_copyv *req);
    int (*copy)(void *ctx, uint32_t device, uint32_t first, uint64_t bytes, struct atsi_copyv *req);
    /* The result to the host, after the last item ran elsewhere. */
    int (*result)(void *ctx, struct atsi_copyv *req);
};

/* What happened in a round: spans on the engine's clock. */
struct atsi_span {
    uint64_t start_ns, end_ns;
};

struct atsi_record {
    struct atsi_span round;
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
/* The clock of the devices: when the host is free. */
int atsi_exec_now(struct atsi_exec *x, uint64_t *ns_out, struct atsi_err *err);
/* Lets the host work for a while, as between two rounds. */
int atsi_exec_host(struct atsi_exec *x, const struct atsi_op *op, struct atsi_err *err);

#endif
