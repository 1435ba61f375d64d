/* SPDX-License-Identifier: Apache-2.0
 * Two channels: copies in the order of a queue of the device, from and to memory it can read, and
 * an engine with a queue of its own, which takes any host memory. */
#include "twin.h"

#include <stdlib.h>
#include <string.h>

enum { COPY_KERNEL = 0, COPY_ENGINE, N_CHANNELS };

static const struct atsi_channel copy_kernel = {sizeof copy_kernel, "copy_kernel", 1};
static const struct atsi_channel copy_engine = {sizeof copy_engine, "copy_engine", 0};
static const struct atsi_channel *const all[N_CHANNELS] = {&copy_kernel, &copy_engine};

struct atsi_transfer {
    struct atsi_backend *be; /* the accelerator */
    struct twin_queue *engine;
};

static int open_transfer(const struct atsi_host *host, struct atsi_backend *src,
                         struct atsi_backend *dst, struct atsi_transfer **out, struct atsi_err *err)
{
    int rc = twin_call(host, TWIN_OBJECT, err);
    (void)src;
    *out = NULL;
    if (rc != ATSI_OK)
        return rc;
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "twin: out of memory");
    (*out)->be = dst;
    rc = twin_queue_open(dst, &(*out)->engine, err);
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
    twin_queue_close(tx->engine);
    free(tx);
}

static int channels(const struct atsi_transfer *tx, const struct atsi_channel *const **out)
{
    (void)tx;
    *out = all;
    return N_CHANNELS;
}

/* The ranges are read when the copy's turn comes: the contract lends them until then. */
struct copy_task {
    struct twin_task task;
    const struct atsi_range *ranges;
    uint32_t n;
};

static int work(struct twin_task *t, struct atsi_err *err)
{
    struct copy_task *c = (struct copy_task *)(void *)t;
    (void)err;
    for (uint32_t i = 0; i < c->n; i++)
        memcpy(c->ranges[i].dst, c->ranges[i].src, c->ranges[i].bytes);
    return ATSI_OK;
}

static void done(struct twin_task *t)
{
    free(t);
}

static bool overlap(const struct atsi_range *a, const struct atsi_range *b)
{
    const unsigned char *x = a->dst, *y = b->dst;
    return x < y + b->bytes && y < x + a->bytes;
}

static int check(struct atsi_transfer *tx, uint32_t channel, const struct atsi_copyv *req,
                 struct atsi_err *err)
{
    for (uint32_t i = 0; i < req->n_ranges; i++) {
        const struct atsi_range *r = &req->ranges[i];
        enum twin_mem from = twin_memory_of(tx->be, r->src, r->bytes);
        enum twin_mem to = twin_memory_of(tx->be, r->dst, r->bytes);
        bool any_device = from == TWIN_DEVICE || to == TWIN_DEVICE;
        bool all_known = from != TWIN_UNKNOWN && to != TWIN_UNKNOWN;
        if (!any_device || (channel == COPY_KERNEL && !all_known))
            return atsi_fail(err, ATSI_EINVAL, "twin: %s: range %u lies where it cannot reach",
                             all[channel]->name, i);
        if (i > 0 && overlap(r, r - 1))
            return atsi_fail(err, ATSI_EINVAL, "twin: ranges %u and %u overlap", i - 1, i);
    }
    return ATSI_OK;
}

static int copyv(struct atsi_transfer *tx, uint32_t channel, struct atsi_queue *q,
                 const struct atsi_copyv *req, struct atsi_err *err)
{
    struct copy_task *c;
    int rc;
    if (channel >= N_CHANNELS || (channel == COPY_KERNEL) != (q != NULL))
        return atsi_fail(err, ATSI_EINVAL, "twin: channel %u with%s a queue", channel,
                         q != NULL ? "" : "out");
    rc = check(tx, channel, req, err);
    if (rc != ATSI_OK)
        return rc;
    c = calloc(1, sizeof *c);
    if (c == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "twin: out of memory");
    *c = (struct copy_task){
        {.fn = work, .done = done, .took_ns = req->copy_ns}, req->ranges, req->n_ranges};
    rc = twin_queue_add(q != NULL ? twin_queue_of(q) : tx->engine, &c->task, req->wait, req->n_wait,
                        req->signal, err);
    if (rc != ATSI_OK)
        free(c);
    return rc;
}

const struct atsi_transfer_ops twin_transfer_ops = {.struct_size = sizeof twin_transfer_ops,
                                                    .open = open_transfer,
                                                    .close = close_transfer,
                                                    .channels = channels,
                                                    .copyv = copyv};
