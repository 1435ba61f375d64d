/* SPDX-License-Identifier: Apache-2.0
 *
 * The transfer engine between the host and one device, in both directions:
 *
 *   copy_engine   a stream of its own, in order; ranges that touch become one copy
 *   copy_kernel   on the caller's compute queue, in its order: a few thread blocks read and write
 *                 host memory themselves, which spares short copies the copy engine's start
 *
 * What a range points into decides how it travels: memory that is pinned (or registered) goes
 * directly, other host memory through the staging ring (staging.c), and where there is no ring, as
 * the copy from pageable memory that CUDA offers, which may hold up the caller.
 */
#include "transfer.h"

#include <stdlib.h>

#include "copy.h"

enum { COPY_ENGINE = 0, COPY_KERNEL, N_CHANNELS };

static const struct atsi_channel copy_engine = {sizeof copy_engine, "copy_engine", 0};
static const struct atsi_channel copy_kernel = {sizeof copy_kernel, "copy_kernel", 1};
static const struct atsi_channel *const all[N_CHANNELS] = {&copy_engine, &copy_kernel};

struct atsi_transfer {
    struct atsi_backend *be;
    cudaStream_t stream;
    struct cuda_ring *ring;          /* made at the first need */
    bool no_ring;                    /* it could not be had, or is not wanted */
    const struct atsi_range **order; /* of the ranges being checked */
    uint32_t order_cap;
};

int cuda_transfer_open(const struct atsi_host *host, struct atsi_backend *src,
                       struct atsi_backend *dst, struct atsi_transfer **out, struct atsi_err *err)
{
    struct atsi_backend *be = cuda_is_open(dst) ? dst : src;
    struct atsi_transfer *tx;
    int rc;
    (void)host;
    *out = NULL;
    if (!cuda_is_open(be) || (src != be && cuda_is_open(src)))
        return atsi_fail(err, ATSI_ENOTSUP,
                         CUDA_PLUGIN_NAME ": copies are between the host and one device");
    rc = cuda_enter(be, err);
    if (rc != ATSI_OK)
        return rc;
    tx = calloc(1, sizeof *tx);
    if (tx == NULL)
        return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
    tx->be = be;
    tx->no_ring = be->set.staging_bytes == 0;
    rc = cuda_check(be, cudaStreamCreateWithFlags(&tx->stream, cudaStreamNonBlocking), err,
                    "creating a stream");
    if (rc != ATSI_OK) {
        free(tx);
        return rc;
    }
    *out = tx;
    return ATSI_OK;
}

void cuda_transfer_close(struct atsi_transfer *tx)
{
    if (tx == NULL)
        return;
    cuda_note(tx->be, cudaSetDevice(tx->be->dev.index), "making the device current");
    cuda_stream_drain(tx->be, tx->stream);
    cuda_timing_end(tx->be, tx->stream);
    cuda_ring_close(tx->be, tx->ring);
    cuda_note(tx->be, cudaStreamDestroy(tx->stream), "destroying a stream");
    free((void *)tx->order);
    free(tx);
}

int cuda_transfer_channels(const struct atsi_transfer *tx, const struct atsi_channel *const **out)
{
    (void)tx;
    *out = all;
    return N_CHANNELS;
}

/* ---------------------------------------------------------------- how a piece travels */
/* Bytes from one kind of memory on each side, within one allocation each. */
struct stretch {
    void *dst;
    const void *src;
    size_t bytes;
    enum cuda_mem from, to;
};

/* The first bytes of a range that are all of the same kinds: CUDA copies no further at a time. */
static struct stretch stretch_of(struct atsi_backend *be, const struct atsi_range *r)
{
    struct stretch s = {.dst = r->dst, .src = r->src, .bytes = r->bytes};
    s.from = cuda_ranges_kind(&be->ranges, r->src, &s.bytes);
    s.to = cuda_ranges_kind(&be->ranges, r->dst, &s.bytes);
    return s;
}

static int plain_copy(struct atsi_transfer *tx, cudaStream_t stream, const struct stretch *s,
                      struct atsi_err *err)
{
    bool from = s->from == CUDA_MEM_DEVICE, to = s->to == CUDA_MEM_DEVICE;
    enum cudaMemcpyKind kind = from ? (to ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost)
                                    : (to ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost);
    return cuda_check(tx->be, cudaMemcpyAsync(s->dst, s->src, s->bytes, kind, stream), err,
                      "copying %zu bytes", s->bytes);
}

/* Makes the ring at the first need; it then has to wait for what this request waits for.  Slower
 * copies without it are no failure, but worth a word. */
static int open_ring(struct atsi_transfer *tx, const struct atsi_copyv *req, struct atsi_err *err)
{
    struct atsi_backend *be = tx->be;
    struct atsi_err why = ATSI_ERR_INIT;
    int rc;
    if (tx->ring != NULL || tx->no_ring)
        return ATSI_OK;
    rc = cuda_ring_open(be, be->set.staging_bytes, &tx->ring, &why);
    if (rc == ATSI_OK)
        return cuda_events_wait(tx->ring->stream, req->wait, req->n_wait, err);
    if (rc == ATSI_ELOST)
        return atsi_fail(err, rc, "%s", why.msg);
    tx->no_ring = true;
    be->host->log(be->host->ctx, ATSI_LOG_WARN, CUDA_PLUGIN_NAME,
                  "copies from memory that is not pinned will be slow: %s", why.msg);
    return ATSI_OK;
}

static int engine_copy(struct atsi_transfer *tx, const struct atsi_copyv *req,
                       const struct stretch *s, struct atsi_err *err)
{
    bool to_device = s->to == CUDA_MEM_DEVICE && s->from == CUDA_MEM_PAGEABLE;
    bool to_host = s->from == CUDA_MEM_DEVICE && s->to == CUDA_MEM_PAGEABLE;
    int rc = to_device || to_host ? open_ring(tx, req, err) : ATSI_OK;
    if (rc != ATSI_OK)
        return rc;
    if ((to_device || to_host) && tx->ring != NULL)
        return cuda_ring_copy(tx->be, tx->ring, tx->stream, s->dst, s->src, s->bytes, to_device,
                              err);
    return plain_copy(tx, tx->stream, s, err);
}

/* ---------------------------------------------------------------- the two channels */
/* Ranges from i on that continue each other, as one; *n of them. */
static struct atsi_range merged(const struct atsi_copyv *req, uint32_t i, uint32_t *n)
{
    struct atsi_range r = req->ranges[i];
    *n = 1;
    while (i + *n < req->n_ranges) {
        const struct atsi_range *next = &req->ranges[i + *n];
        if ((const unsigned char *)r.src + r.bytes != next->src ||
            (unsigned char *)r.dst + r.bytes != next->dst)
            break;
        r.bytes += next->bytes;
        ++*n;
    }
    return r;
}

static void advance(struct atsi_range *r, size_t bytes)
{
    r->src = (const unsigned char *)r->src + bytes;
    r->dst = (unsigned char *)r->dst + bytes;
    r->bytes -= bytes;
}

static int by_engine(struct atsi_transfer *tx, const struct atsi_copyv *req, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t i = 0, n; i < req->n_ranges && rc == ATSI_OK; i += n) {
        struct atsi_range r = merged(req, i, &n);
        while (r.bytes > 0 && rc == ATSI_OK) {
            struct stretch s = stretch_of(tx->be, &r);
            rc = engine_copy(tx, req, &s, err);
            advance(&r, s.bytes);
        }
    }
    return rc;
}

static int launch_batch(struct atsi_transfer *tx, cudaStream_t stream,
                        struct cuda_copy_batch *batch, struct atsi_err *err)
{
    int rc = ATSI_OK;
    if (batch->n > 0)
        rc = cuda_check(tx->be, cuda_copy_launch(stream, batch, tx->be->set.copy_blocks), err,
                        "launching a copy of %u ranges", batch->n);
    batch->n = 0;
    return rc;
}

/* What the device cannot read itself is copied in the same place of the queue. */
static int by_kernel(struct atsi_transfer *tx, cudaStream_t stream, const struct atsi_copyv *req,
                     struct atsi_err *err)
{
    struct cuda_copy_batch batch;
    int rc = ATSI_OK;
    batch.n = 0;
    for (uint32_t i = 0, n; i < req->n_ranges && rc == ATSI_OK; i += n) {
        struct atsi_range r = merged(req, i, &n);
        while (r.bytes > 0 && rc == ATSI_OK) {
            struct stretch s = stretch_of(tx->be, &r);
            if (s.from == CUDA_MEM_PAGEABLE || s.to == CUDA_MEM_PAGEABLE) {
                rc = plain_copy(tx, stream, &s, err);
            } else {
                batch.src[batch.n] = s.src;
                batch.dst[batch.n] = s.dst;
                batch.bytes[batch.n++] = s.bytes;
                if (batch.n == CUDA_COPY_RANGES)
                    rc = launch_batch(tx, stream, &batch, err);
            }
            advance(&r, s.bytes);
        }
    }
    return rc == ATSI_OK ? launch_batch(tx, stream, &batch, err) : rc;
}

/* ---------------------------------------------------------------- copyv */
static int check_request(struct atsi_transfer *tx, uint32_t channel, const struct atsi_queue *q,
                         const struct atsi_copyv *req, struct atsi_err *err)
{
    int rc;
    if (channel >= N_CHANNELS || (channel == COPY_KERNEL) != (q != NULL))
        return atsi_fail(err, ATSI_EINVAL,
                         CUDA_PLUGIN_NAME
                         ": channel %u with%s a queue: copy_kernel needs one, copy_engine none",
                         channel, q != NULL ? "" : "out");
    if (q != NULL && q->be != tx->be)
        return atsi_fail(err, ATSI_EINVAL, CUDA_PLUGIN_NAME ": a queue of another device");
    if (req->struct_size < sizeof *req)
        return atsi_fail(err, ATSI_EINVAL,
                         CUDA_PLUGIN_NAME ": a copy of %u bytes of description, expected %zu",
                         req->struct_size, sizeof *req);
    rc = cuda_events_check(req->wait, req->n_wait, err);
    if (rc != ATSI_OK)
        return rc;
    if (req->n_ranges > tx->order_cap) {
        size_t bytes = req->n_ranges * sizeof(void *);
        const struct atsi_range **grown = realloc((void *)tx->order, bytes);
        if (grown == NULL)
            return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
        tx->order = grown;
        tx->order_cap = req->n_ranges;
    }
    return cuda_copy_check(req->ranges, req->n_ranges, tx->order, err);
}

/* Waits, the copies between two events when they are measured, the signal. */
static int queue_copies(struct atsi_transfer *tx, cudaStream_t stream, struct atsi_queue *q,
                        const struct atsi_copyv *req, struct cuda_timing *times,
                        struct atsi_err *err)
{
    const struct cuda_work work = {.n = req->n_ranges, .what = "ranges copied"};
    struct atsi_backend *be = tx->be;
    int rc = cuda_events_wait(stream, req->wait, req->n_wait, err);
    if (rc == ATSI_OK && q == NULL && tx->ring != NULL)
        rc = cuda_events_wait(tx->ring->stream, req->wait, req->n_wait, err);
    if (rc == ATSI_OK && times != NULL)
        rc = cuda_check(be, cudaEventRecord(times->ev[0], stream), err, "recording an event");
    if (rc == ATSI_OK)
        rc = q != NULL ? by_kernel(tx, stream, req, err) : by_engine(tx, req, err);
    if (rc == ATSI_OK && times != NULL)
        rc = cuda_check(be, cudaEventRecord(times->ev[1], stream), err, "recording an event");
    return rc == ATSI_OK ? cuda_event_signal(stream, req->signal, err, &work) : rc;
}

int cuda_transfer_copyv(struct atsi_transfer *tx, uint32_t channel, struct atsi_queue *q,
                        const struct atsi_copyv *req, struct atsi_err *err)
{
    struct atsi_backend *be = tx->be;
    struct cuda_timing *times = NULL;
    cudaStream_t stream = q != NULL ? q->stream : tx->stream;
    int rc = cuda_enter(be, err);
    if (rc == ATSI_OK)
        rc = check_request(tx, channel, q, req, err);
    if (rc == ATSI_OK && req->copy_ns != NULL)
        rc = cuda_timing_open(be, 1, req->copy_ns, &times, err);
    if (rc != ATSI_OK)
        return rc;
    rc = queue_copies(tx, stream, q, req, times, err);
    if (rc == ATSI_OK) {
        if (times != NULL)
            cuda_timing_queue(be, times, stream);
        return ATSI_OK;
    }
    cuda_timing_drop(be, times);
    if (q == NULL && tx->ring != NULL)
        cuda_stream_drain(be, tx->ring->stream);
    cuda_stream_drain(be, stream);
    return rc;
}
