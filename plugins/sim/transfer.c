/* SPDX-License-Identifier: Apache-2.0
 *
 * Two channels between the simulated devices: a copy kernel, in the order of the compute stream,
 * and a copy engine with a queue of its own.  No byte moves.
 */
#include "sim.h"
#include "world.h"

#include <stdlib.h>

enum { COPY_KERNEL = 0, COPY_ENGINE, N_CHANNELS };

static const struct atsi_channel copy_kernel = {sizeof copy_kernel, "copy_kernel", 1};
static const struct atsi_channel copy_engine = {sizeof copy_engine, "copy_engine", 0};
static const struct atsi_channel *const all[N_CHANNELS] = {&copy_kernel, &copy_engine};

struct atsi_transfer {
    struct sim_world *world;
};

static int open_transfer(const struct atsi_host *host, struct atsi_backend *src,
                         struct atsi_backend *dst, struct atsi_transfer **out, struct atsi_err *err)
{
    int rc;
    *out = NULL;
    if (sim_backend_world(src) != sim_backend_world(dst))
        return atsi_fail(err, ATSI_EINVAL, "sim: the two backends have different clocks");
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "sim: out of memory");
    rc = sim_world_get(host, &(*out)->world, err);
    if (rc != ATSI_OK) {
        free(*out);
        *out = NULL;
    }
    return rc;
}

static void close_transfer(struct atsi_transfer *tx)
{
    if (tx == NULL)
        return;
    (void)sim_world_drain(tx->world, SIM_ENGINE, NULL);
    sim_world_put(tx->world);
    free(tx);
}

static int channels(const struct atsi_transfer *tx, const struct atsi_channel *const **out)
{
    (void)tx;
    *out = all;
    return N_CHANNELS;
}

static int copyv(struct atsi_transfer *tx, uint32_t channel, struct atsi_queue *q,
                 const struct atsi_copyv *req, struct atsi_err *err)
{
    struct sim_task t = {.load = SIM_LOAD_PCIE,
                         .wait = req->wait,
                         .n_wait = req->n_wait,
                         .signal = req->signal,
                         .took_ns = req->copy_ns};
    if (channel >= N_CHANNELS || (channel == COPY_KERNEL) != (q != NULL))
        return atsi_fail(err, ATSI_EINVAL,
                         "sim: channel %u with%s a queue: copy kernels need one, the engine none",
                         channel, q != NULL ? "" : "out");
    if (req->struct_size < sizeof *req || req->modelled == NULL)
        return atsi_fail(err, ATSI_ENOTSUP, "sim: a copy without a modelled time");
    t.m = *req->modelled;
    return sim_world_queue(tx->world, channel == COPY_KERNEL ? SIM_STREAM : SIM_ENGINE, &t, err);
}

const struct atsi_transfer_ops sim_transfer_ops = {.struct_size = sizeof sim_transfer_ops,
                                                   .open = open_transfer,
                                                   .close = close_transfer,
                                                   .channels = channels,
                                                   .copyv = copyv};
