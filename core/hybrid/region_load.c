/* SPDX-License-Identifier: Apache-2.0
 *
 * Bringing residents to the device: a number of transfers in flight, each with an event of its own,
 * waited for in the order in which they were queued.
 */
#include "core/hybrid/region_inside.h"

#include <stdlib.h>

#define LANES 8u
#define SPIN_NS 20000u /* a transfer takes far longer */

/* ---------------------------------------------------------------- lanes */
int atsi_region_open_lanes(struct atsi_region *r, struct atsi_err *err)
{
    if (r->p.in_flight == 0)
        r->p.in_flight = LANES;
    r->lanes = calloc(r->p.in_flight, sizeof *r->lanes);
    if (r->lanes == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for %u transfers", r->p.in_flight);
    for (uint32_t i = 0; i < r->p.in_flight; i++) {
        int rc = r->p.ops->event_open(r->p.be, &r->lanes[i].done, err);
        if (rc != ATSI_OK) {
            r->lanes[i].done = NULL;
            return rc;
        }
    }
    return ATSI_OK;
}

void atsi_region_close_lanes(struct atsi_region *r)
{
    for (uint32_t i = 0; r->lanes != NULL && i < r->p.in_flight; i++) {
        if (r->lanes[i].done != NULL)
            r->p.ops->event_close(r->lanes[i].done);
        free(r->lanes[i].ranges);
    }
    free(r->lanes);
    r->lanes = NULL;
}

/* ---------------------------------------------------------------- loading */
struct load {
    struct atsi_region *r;
    int (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
    void *ctx;
    struct atsi_region_change *sums;
    uint64_t done, total;
    struct atsi_err *err;
};

/* The ranges of a resident, in room that grows as needed. */
static int fill_ranges(const struct load *ld, struct atsi_lane *lane, struct atsi_resident *x,
                       uint32_t *n_out)
{
    const struct atsi_region *r = ld->r;
    const struct atsi_tensor *t = atsi_weights_tensor(r->p.weights, x->piece.tensor);
    void *to = r->base + x->at;
    uint32_t n;
    while ((n = atsi_weights_ranges(r->p.weights, &x->piece, 0, t->ne[2] * t->ne[3], to,
                                    lane->ranges, lane->room)) > lane->room) {
        struct atsi_range *grown = realloc(lane->ranges, n * sizeof *grown);
        if (grown == NULL)
            return atsi_fail(ld->err, ATSI_ENOMEM, "out of memory for %u ranges of %s", n, t->name);
        lane->ranges = grown;
        lane->room = n;
    }
    *n_out = n;
    return ATSI_OK;
}

static int queue_one(struct load *ld, struct atsi_lane *lane, uint32_t i)
{
    struct atsi_region *r = ld->r;
    struct atsi_resident *x = &r->all[i];
    struct atsi_copyv req = {.struct_size = sizeof req, .signal = lane->done};
    int rc = fill_ranges(ld, lane, x, &req.n_ranges);
    if (rc != ATSI_OK)
        return rc;
    req.ranges = lane->ranges;
    rc = r->p.tx_ops->copyv(r->p.tx, r->p.channel, r->p.queue, &req, ld->err);
    if (rc != ATSI_OK)
        return rc;
    x->layout = atsi_weights_tensor(r->p.weights, x->piece.tensor)->layout;
    lane->resident = i;
    lane->busy = true;
    return ATSI_OK;
}

/* Waits for a lane's transfer, if it has one. */
static int finish_one(struct load *ld, struct atsi_lane *lane)
{
    struct atsi_region *r = ld->r;
    struct atsi_resident *x;
    int rc;
    if (!lane->busy)
        return ATSI_OK;
    lane->busy = false;
    rc = r->p.ops->event_wait(lane->done, SPIN_NS, ld->err);
    if (rc != ATSI_OK)
        return rc;
    x = &r->all[lane->resident];
    x->loaded = true;
    ld->sums->loaded++;
    ld->sums->bytes += x->bytes;
    ld->done += x->bytes;
    r->version++;
    if (ld->progress != NULL && ld->progress(ld->ctx, ld->done, ld->total) != 0)
        return atsi_fail(ld->err, ATSI_EINTR, "interrupted after %llu of %llu bytes of weights",
                         (unsigned long long)ld->done, (unsigned long long)ld->total);
    return ATSI_OK;
}

/* After a failure: nothing may write to the region any more. */
static void drain(struct load *ld)
{
    struct atsi_err ignored = ATSI_ERR_INIT;
    for (uint32_t k = 0; k < ld->r->p.in_flight; k++) {
        struct atsi_lane *lane = &ld->r->lanes[k];
        if (lane->busy)
            ld->r->all[lane->resident].loaded =
                ld->r->p.ops->event_wait(lane->done, SPIN_NS, &ignored) == ATSI_OK;
        lane->busy = false;
    }
}

int atsi_region_load(struct atsi_region *r,
                     int (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes),
                     void *ctx, struct atsi_region_change *sums, struct atsi_err *err)
{
    struct load ld = {.r = r, .progress = progress, .ctx = ctx, .sums = sums, .err = err};
    uint32_t next = 0;
    int rc = ATSI_OK;
    for (uint32_t i = 0; i < r->n; i++)
        ld.total += r->all[i].loaded ? 0 : r->all[i].bytes;
    for (uint32_t i = 0; i < r->n && rc == ATSI_OK; i++) {
        struct atsi_lane *lane = &r->lanes[next];
        if (r->all[i].loaded)
            continue;
        rc = finish_one(&ld, lane);
        if (rc == ATSI_OK)
            rc = queue_one(&ld, lane, i);
        next = (next + 1) % r->p.in_flight;
    }
    for (uint32_t k = 0; k < r->p.in_flight && rc == ATSI_OK; k++)
        rc = finish_one(&ld, &r->lanes[(next + k) % r->p.in_flight]);
    if (rc != ATSI_OK)
        drain(&ld);
    return rc;
}
