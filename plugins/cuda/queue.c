/* SPDX-License-Identifier: Apache-2.0
 * Compute queues: a stream each, with work space and captured graphs of its own. */
#include "cuda_plugin.h"

#include <stdlib.h>

int cuda_queue_open(struct atsi_backend *be, struct atsi_queue **out, struct atsi_err *err)
{
    struct atsi_queue *q;
    int rc = cuda_enter(be, err);
    *out = NULL;
    if (rc != ATSI_OK)
        return rc;
    q = calloc(1, sizeof *q);
    if (q == NULL)
        return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
    q->be = be;
    rc = cuda_check(be, cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking), err,
                    "creating a stream");
    if (rc != ATSI_OK) {
        free(q);
        return rc;
    }
    *out = q;
    return ATSI_OK;
}

void cuda_stream_drain(struct atsi_backend *be, cudaStream_t stream)
{
    if (!be->lost)
        cuda_note(be, cudaStreamSynchronize(stream), "waiting for queued work");
}

void cuda_queue_close(struct atsi_queue *q)
{
    if (q == NULL)
        return;
    cuda_note(q->be, cudaSetDevice(q->be->dev.index), "making the device current");
    cuda_stream_drain(q->be, q->stream);
    cuda_timing_end(q->be, q->stream);
    cuda_graphs_clear(q);
    cuda_note(q->be, cudaStreamDestroy(q->stream), "destroying a stream");
    cuda_buf_free(q->be, q->scratch);
    free(q);
}

int cuda_fill(struct atsi_queue *q, void *dst, int value, size_t bytes, struct atsi_event *signal,
              struct atsi_err *err)
{
    const struct cuda_work work = {.n = bytes, .what = "bytes filled"};
    size_t n = bytes;
    int rc = cuda_enter(q->be, err);
    if (rc != ATSI_OK)
        return rc;
    if (bytes > 0 && (cuda_ranges_kind(&q->be->ranges, dst, &n) != CUDA_MEM_DEVICE || n != bytes))
        return atsi_fail(err, ATSI_EINVAL,
                         CUDA_PLUGIN_NAME ": filling %zu bytes that are not memory of device %d",
                         bytes, q->be->dev.index);
    if (bytes > 0)
        rc = cuda_check(q->be, cudaMemsetAsync(dst, value, bytes, q->stream), err,
                        "filling %zu bytes", bytes);
    if (rc == ATSI_OK)
        rc = cuda_event_signal(q->stream, signal, err, &work);
    return rc;
}
