/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that allocate, pin, copy and fill.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_host/memory.h"
#include "tests/cuda_host/stream.h"

/* ---- Allocation ---- */

static cudaError_t allocate(enum ch_memory_kind kind, void **out, size_t size, const char *call)
{
    cudaError_t e = ch_enter(call, CH_ANY);
    if (!e && !out)
        e = cudaErrorInvalidValue;
    if (e)
        return ch_leave(call, e);
    *out = NULL;
    ch_lock();
    e = ch_capture_forbids(call);
    if (!e && size) {
        *out = ch_memory_new(kind, size);
        if (!*out)
            e = cudaErrorMemoryAllocation;
    }
    ch_unlock();
    return ch_leave(call, e);
}

/* Waits for all that runs on the device, as the real one does. */
static cudaError_t release(enum ch_memory_kind kind, const void *p, const char *call)
{
    cudaError_t e = ch_enter(call, CH_RELEASE);
    if (e)
        return ch_leave(call, e);
    ch_lock();
    e = ch_capture_forbids(call);
    if (!e && p) {
        ch_streams_wait_all();
        if (ch_memory_delete(kind, p, call))
            e = cudaErrorInvalidValue;
    }
    if (!e)
        e = ch_take_pending();
    ch_unlock();
    return ch_leave(call, e);
}

cudaError_t cudaMalloc(void **p, size_t size)
{
    return allocate(CH_DEVICE, p, size, "cudaMalloc");
}

cudaError_t cudaFree(void *p)
{
    return release(CH_DEVICE, p, "cudaFree");
}

cudaError_t cudaHostAlloc(void **p, size_t size, unsigned flags)
{
    const unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if (flags & ~known) {
        (void)ch_enter("cudaHostAlloc", CH_ANY);
        return ch_leave("cudaHostAlloc", cudaErrorInvalidValue);
    }
    return allocate(CH_PINNED_MEMORY, p, size, "cudaHostAlloc");
}

cudaError_t cudaMallocHost(void **p, size_t size)
{
    return allocate(CH_PINNED_MEMORY, p, size, "cudaMallocHost");
}

cudaError_t cudaFreeHost(void *p)
{
    return release(CH_PINNED_MEMORY, p, "cudaFreeHost");
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    cudaError_t e = ch_enter("cudaMemGetInfo", CH_ANY);
    if (e)
        return ch_leave("cudaMemGetInfo", e);
    ch_lock();
    *total = (size_t)ch_get(CH_MEMORY);
    *free_bytes = *total > ch_rt.stats.device_bytes ? *total - ch_rt.stats.device_bytes : 0;
    ch_unlock();
    return ch_leave("cudaMemGetInfo", e);
}

/* ---- Registered host memory ---- */

static cudaError_t registered(void *p, size_t size, unsigned flags)
{
    const unsigned known = cudaHostRegisterPortable | cudaHostRegisterMapped |
                           cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
    if (!p || !size || (flags & ~known))
        return cudaErrorInvalidValue;
    if (ch_memory_touches(p, size))
        return cudaErrorHostMemoryAlreadyRegistered;
    return ch_memory_note(CH_REGISTERED, p, size) ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t size, unsigned flags)
{
    cudaError_t e = ch_enter("cudaHostRegister", CH_ANY);
    if (e)
        return ch_leave("cudaHostRegister", e);
    ch_lock();
    e = ch_capture_forbids("cudaHostRegister");
    if (!e)
        e = registered(p, size, flags);
    ch_unlock();
    return ch_leave("cudaHostRegister", e);
}

cudaError_t cudaHostUnregister(void *p)
{
    cudaError_t e = ch_enter("cudaHostUnregister", CH_RELEASE);
    if (e)
        return ch_leave("cudaHostUnregister", e);
    ch_lock();
    ch_streams_wait_all();
    e = ch_memory_forget(CH_REGISTERED, p) ? cudaErrorHostMemoryNotRegistered : ch_take_pending();
    ch_unlock();
    return ch_leave("cudaHostUnregister", e);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    char why[200];
    cudaError_t e = ch_enter("cudaHostGetDevicePointer", CH_ANY);
    if (e)
        return ch_leave("cudaHostGetDevicePointer", e);
    ch_lock();
    int kind = ch_memory_kind(host, 1, why, sizeof why);
    ch_unlock();
    if (!device || flags || (kind != CH_PINNED_MEMORY && kind != CH_REGISTERED))
        return ch_leave("cudaHostGetDevicePointer", cudaErrorInvalidValue);
    *device = host; /* unified addresses */
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p)
{
    char why[200];
    cudaError_t e = ch_enter("cudaPointerGetAttributes", CH_ANY);
    if (!e && !out)
        e = cudaErrorInvalidValue;
    if (e)
        return ch_leave("cudaPointerGetAttributes", e);
    ch_lock();
    int kind = ch_memory_kind(p, 1, why, sizeof why);
    ch_unlock();
    memset(out, 0, sizeof *out);
    out->type = ch_is_device(kind)   ? cudaMemoryTypeDevice
                : kind > CH_PAGEABLE ? cudaMemoryTypeHost
                                     : cudaMemoryTypeUnregistered;
    /* The attributes are not const, the pointer is. */
    void *same;
    memcpy(&same, &p, sizeof same);
    if (kind > CH_PAGEABLE)
        out->devicePointer = same;
    if (!ch_is_device(kind))
        out->hostPointer = same;
    return cudaSuccess;
}

/* ---- Copies ---- */

/* Up to here a copy from pageable memory returns before it has run. */
enum { STAGED_BYTES = 64 << 10 };

/* Host memory that is not pinned holds the host up: it is read while the call runs, and written
 * before the call returns. */
static cudaError_t pageable_copy(struct ch_task *t, cudaStream_t stream, const char *call)
{
    struct ch_copy *c = &t->u.copy;
    size_t bytes = c->width * c->rows;
    int later = c->direction == CH_TO_DEVICE && bytes <= STAGED_BYTES;
    if (c->direction == CH_TO_DEVICE) {
        char *staged = malloc(bytes);
        if (!staged)
            return cudaErrorMemoryAllocation;
        for (size_t r = 0; r < c->rows; r++)
            memcpy(staged + r * c->width, (const char *)c->src + r * c->src_pitch, c->width);
        c->staged = staged;
    }
    cudaError_t e = ch_stream_add(stream, t, call);
    if (e || later)
        return e;
    ch_lock();
    ch_stream_wait(stream);
    e = ch_take_pending();
    ch_unlock();
    return e;
}

static cudaError_t copy(const struct ch_copy *c, enum cudaMemcpyKind kind, cudaStream_t stream,
                        const char *call)
{
    struct ch_task t = {.kind = CH_COPY, .u.copy = *c};
    int pageable = 0, captured;
    if (!c->width || !c->rows)
        return cudaSuccess;
    if (!c->dst || !c->src)
        return cudaErrorInvalidValue;
    ch_lock();
    cudaError_t e =
        ch_handle_check(CH_STREAM, stream, call) ? cudaSuccess : cudaErrorInvalidResourceHandle;
    if (!e)
        e = ch_copy_classify(&t.u.copy, kind, &pageable, call);
    captured = !e && stream->capture;
    ch_rt.stats.pageable_copies += !e && pageable && !captured;
    ch_unlock();
    if (e)
        return e;
    return pageable && !captured ? pageable_copy(&t, stream, call)
                                 : ch_stream_add(stream, &t, call);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    struct ch_copy c = {.dst = dst, .src = src, .width = n, .rows = 1};
    cudaError_t e = ch_enter("cudaMemcpyAsync", CH_ANY);
    return ch_leave("cudaMemcpyAsync", e ? e : copy(&c, kind, stream, "cudaMemcpyAsync"));
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    struct ch_copy c = {.dst = dst,
                        .src = src,
                        .width = width,
                        .rows = height,
                        .dst_pitch = dst_pitch,
                        .src_pitch = src_pitch};
    cudaError_t e = ch_enter("cudaMemcpy2DAsync", CH_ANY);
    return ch_leave("cudaMemcpy2DAsync", e ? e : copy(&c, kind, stream, "cudaMemcpy2DAsync"));
}

/* Operations of the default stream wait for streams that are not cudaStreamNonBlocking; all that
 * run here are waited for by the call. */
cudaError_t cudaMemcpy(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind)
{
    struct ch_task t = {.kind = CH_COPY, .u.copy = {.dst = dst, .src = src, .width = n, .rows = 1}};
    int pageable;
    cudaError_t e = ch_enter("cudaMemcpy", CH_SYNC);
    if (e || !n)
        return ch_leave("cudaMemcpy", e);
    ch_lock();
    e = ch_capture_forbids("cudaMemcpy");
    if (!e)
        e = ch_copy_classify(&t.u.copy, kind, &pageable, "cudaMemcpy");
    if (!e) {
        ch_streams_wait_blocking();
        e = ch_take_pending();
    }
    ch_unlock();
    return ch_leave("cudaMemcpy", e ? e : ch_task_run(&t));
}

/* ---- Fills ---- */

static cudaError_t fill_task(struct ch_task *t, void *dst, int value, size_t n, const char *call)
{
    char why[200];
    ch_lock();
    int kind = ch_memory_kind(dst, n, why, sizeof why);
    ch_unlock();
    if (kind < 0)
        ch_report(CUDA_HOST_OUT_OF_BOUNDS, "%s: %s", call, why);
    if (kind < 0 || kind == CH_PAGEABLE)
        return cudaErrorInvalidValue;
    t->kind = CH_SET;
    t->u.set.dst = dst;
    t->u.set.value = value;
    t->u.set.n = n;
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t n, cudaStream_t stream)
{
    struct ch_task t;
    cudaError_t e = ch_enter("cudaMemsetAsync", CH_ANY);
    if (!e && n)
        e = fill_task(&t, dst, value, n, "cudaMemsetAsync");
    if (!e && n)
        e = ch_stream_add(stream, &t, "cudaMemsetAsync");
    return ch_leave("cudaMemsetAsync", e);
}

cudaError_t cudaMemset(void *dst, int value, size_t n)
{
    struct ch_task t;
    cudaError_t e = ch_enter("cudaMemset", CH_ANY);
    if (e || !n)
        return ch_leave("cudaMemset", e);
    ch_lock();
    e = ch_capture_forbids("cudaMemset");
    if (!e)
        ch_streams_wait_blocking();
    ch_unlock();
    if (!e)
        e = fill_task(&t, dst, value, n, "cudaMemset");
    return ch_leave("cudaMemset", e ? e : ch_task_run(&t));
}
