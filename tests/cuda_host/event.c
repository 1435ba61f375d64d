/* SPDX-License-Identifier: Apache-2.0
 *
 * Events.  What a wait waits for is settled when it is called: the record that is the last then.
 */
#include <stdlib.h>

#include "tests/cuda_host/stream.h"

static cudaError_t create(cudaEvent_t *out, unsigned flags)
{
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if (!out || (flags & ~known))
        return cudaErrorInvalidValue;
    struct CUevent_st *event = calloc(1, sizeof *event);
    if (!event)
        return cudaErrorMemoryAllocation;
    event->flags = flags;
    ch_lock();
    int bad = ch_handle_add(CH_EVENT, event);
    ch_unlock();
    if (bad) {
        free(event);
        return cudaErrorMemoryAllocation;
    }
    *out = event;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    cudaError_t e = ch_enter("cudaEventCreateWithFlags", CH_ANY);
    return ch_leave("cudaEventCreateWithFlags", e ? e : create(event, flags));
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    cudaError_t e = ch_enter("cudaEventCreate", CH_ANY);
    return ch_leave("cudaEventCreate", e ? e : create(event, cudaEventDefault));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t e = ch_enter("cudaEventDestroy", CH_RELEASE);
    if (e)
        return ch_leave("cudaEventDestroy", e);
    ch_lock();
    if (ch_handle_check(CH_EVENT, event, "cudaEventDestroy")) {
        ch_handle_remove(event);
        ch_event_forget_capture(event);
        ch_record_drop(event->record);
        free(event);
        e = ch_take_pending();
    } else {
        e = cudaErrorInvalidResourceHandle;
    }
    ch_unlock();
    return ch_leave("cudaEventDestroy", e);
}

static cudaError_t check(cudaEvent_t event, const char *call)
{
    return ch_handle_check(CH_EVENT, event, call) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

static cudaError_t check_both(cudaStream_t stream, cudaEvent_t event, const char *call)
{
    cudaError_t e;
    ch_lock();
    e = check(event, call);
    if (!e && !ch_handle_check(CH_STREAM, stream, call))
        e = cudaErrorInvalidResourceHandle;
    ch_unlock();
    return e;
}

static cudaError_t record(cudaEvent_t event, cudaStream_t stream, unsigned flags, const char *call)
{
    struct ch_task t = {.kind = CH_RECORD};
    cudaError_t e = check_both(stream, event, call);
    if (e)
        return e;
    if (flags) /* cudaEventRecordExternal is not simulated */
        return cudaErrorNotSupported;
    ch_lock();
    if (stream->capture) {
        e = ch_capture_record(stream, event);
        ch_unlock();
        return e;
    }
    t.u.record = ch_record_new(!(event->flags & cudaEventDisableTiming));
    if (!t.u.record) {
        ch_unlock();
        return cudaErrorMemoryAllocation;
    }
    ch_event_forget_capture(event);
    ch_record_drop(event->record);
    event->record = t.u.record;
    t.u.record->refs++;
    ch_unlock();
    return ch_stream_add(stream, &t, call);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cudaError_t e = ch_enter("cudaEventRecord", CH_ANY);
    return ch_leave("cudaEventRecord",
                    e ? e : record(event, stream, cudaEventRecordDefault, "cudaEventRecord"));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    cudaError_t e = ch_enter("cudaEventRecordWithFlags", CH_ANY);
    return ch_leave("cudaEventRecordWithFlags",
                    e ? e : record(event, stream, flags, "cudaEventRecordWithFlags"));
}

static cudaError_t wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags,
                              const char *call)
{
    struct ch_task t = {.kind = CH_WAIT};
    cudaError_t e = check_both(stream, event, call);
    if (e)
        return e;
    if (flags) /* cudaEventWaitExternal is not simulated */
        return cudaErrorNotSupported;
    ch_lock();
    if (event->capture || stream->capture) {
        e = ch_capture_wait(stream, event);
        ch_unlock();
        return e;
    }
    t.u.record = event->record;
    if (t.u.record)
        t.u.record->refs++;
    ch_unlock();
    return t.u.record ? ch_stream_add(stream, &t, call) : cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    cudaError_t e = ch_enter("cudaStreamWaitEvent", CH_ANY);
    return ch_leave("cudaStreamWaitEvent",
                    e ? e : wait_event(stream, event, flags, "cudaStreamWaitEvent"));
}

/* Lock held.  Waits if it is to, and says whether the event has come. */
static cudaError_t reached(cudaEvent_t event, int wait, const char *call)
{
    cudaError_t e = check(event, call);
    if (e)
        return e;
    if (event->capture) {
        ch_capture_spoil(event->capture);
        return cudaErrorCapturedEvent;
    }
    e = ch_capture_forbids(call);
    if (e)
        return e;
    struct ch_record *r = event->record;
    if (!r)
        return cudaSuccess;
    r->refs++;
    while (wait && !r->done)
        ch_wait();
    e = r->done ? ch_take_pending() : cudaErrorNotReady;
    if (r->done) {
        ch_tsan_hide(0);
        ch_tsan_acquire(&r->sync);
        ch_tsan_hide(1);
    }
    ch_record_drop(r);
    return e;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t e = ch_enter("cudaEventQuery", CH_SYNC);
    if (e)
        return ch_leave("cudaEventQuery", e);
    ch_lock();
    e = reached(event, 0, "cudaEventQuery");
    ch_unlock();
    return ch_leave("cudaEventQuery", e);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t e = ch_enter("cudaEventSynchronize", CH_SYNC);
    if (e)
        return ch_leave("cudaEventSynchronize", e);
    ch_lock();
    e = reached(event, 1, "cudaEventSynchronize");
    ch_unlock();
    return ch_leave("cudaEventSynchronize", e);
}

static cudaError_t elapsed(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    cudaError_t e = check(start, "cudaEventElapsedTime");
    if (!e)
        e = check(end, "cudaEventElapsedTime");
    if (e)
        return e;
    const struct ch_record *a = start->record, *b = end->record;
    if (!ms || !a || !b || !a->timed || !b->timed)
        return cudaErrorInvalidResourceHandle;
    if (!a->done || !b->done)
        return cudaErrorNotReady;
    *ms = (float)((double)(int64_t)(b->at_ns - a->at_ns) * 1e-6);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    cudaError_t e = ch_enter("cudaEventElapsedTime", CH_ANY);
    if (e)
        return ch_leave("cudaEventElapsedTime", e);
    ch_lock();
    e = elapsed(ms, start, end);
    ch_unlock();
    return ch_leave("cudaEventElapsedTime", e);
}
