/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and their calls.
 */
#include "tests/cuda_host/stream.h"

#include <stdlib.h>

#include "tests/cuda_host/exec.h"
#include "tests/cuda_host/memory.h"

static struct CUstream_st *streams;
static uint64_t n_streams; /* ever made, for the seeds of delays */
static uint64_t n_ops;     /* ever queued */

static void delay(cudaStream_t s)
{
    int64_t most = ch_get(CH_DELAY);
    if (most)
        ch_sleep_ns(ch_random(&s->random) % ((uint64_t)most + 1) * 1000);
}

/* After an error that lost the context nothing runs any more, but whoever waits is woken. */
static void run_op(cudaStream_t s, struct ch_op *op)
{
    cudaError_t e;
    ch_tsan_acquire(&s->submit_sync);
    delay(s);
    ch_lock();
    cudaError_t lost = ch_rt.lost;
    e = lost ? lost : ch_next_operation();
    ch_unlock();
    if (!e)
        e = ch_task_run(&op->task);
    else
        ch_task_skip(&op->task);
    ch_tsan_release(&s->done_sync);
    if (!lost && e) {
        ch_lock();
        ch_operation_failed(e);
        ch_unlock();
    }
}

static void *stream_main(void *arg)
{
    cudaStream_t s = arg;
    ch_lock();
    for (;;) {
        struct ch_op *op = s->head;
        if (!op) {
            if (s->quit)
                break;
            ch_wait_on(&s->work);
            continue;
        }
        ch_unlock();
        run_op(s, op);
        ch_lock();
        s->head = op->next;
        if (!s->head)
            s->tail = &s->head;
        ch_task_drop(&op->task);
        free(op);
        s->done++;
        ch_progress();
    }
    s->ended = 1;
    ch_progress();
    ch_unlock();
    ch_worker_leave();
    return NULL;
}

/* On a device that does nothing, unless it comes behind what was queued before it was made so. */
static int at_once(cudaStream_t stream, const struct ch_task *t)
{
    return ch_get(CH_NULL_DEVICE) && !stream->head && (t->kind != CH_WAIT || t->u.record->done);
}

/* Lock held, but for a host function.  A failure is one of the operation, not of the call. */
static void end_at_once(struct ch_task *t)
{
    cudaError_t lost = ch_rt.lost, e = lost ? lost : ch_next_operation();
    if (!e && t->kind == CH_HOST) {
        ch_unlock();
        (void)ch_task_run(t);
        ch_lock();
    } else {
        ch_task_over(t);
    }
    if (!lost && e)
        ch_operation_failed(e);
    ch_task_drop(t);
}

cudaError_t ch_stream_add(cudaStream_t stream, struct ch_task *t, const char *call)
{
    cudaError_t e = cudaErrorInvalidResourceHandle;
    struct ch_op *op = NULL;
    ch_lock();
    if (!ch_handle_check(CH_STREAM, stream, call))
        goto fail;
    if (stream->capture) {
        e = ch_capture_task(stream, t);
        ch_unlock();
        return e;
    }
    if (at_once(stream, t)) {
        end_at_once(t);
        ch_unlock();
        return cudaSuccess;
    }
    e = cudaErrorMemoryAllocation;
    op = malloc(sizeof *op);
    if (!op)
        goto fail;
    op->next = NULL;
    op->task = *t;
    op->number = n_ops++;
    ch_tsan_hide(0); /* seen, unlike the lock */
    ch_tsan_release(&stream->submit_sync);
    ch_tsan_hide(1);
    *stream->tail = op;
    stream->tail = &op->next;
    stream->queued++;
    pthread_cond_signal(&stream->work);
    ch_unlock();
    return cudaSuccess;
fail:
    ch_task_drop(t);
    ch_unlock();
    return e;
}

void ch_stream_wait(cudaStream_t s)
{
    uint64_t until = s->queued;
    while (s->done < until)
        ch_wait();
    ch_tsan_hide(0);
    ch_tsan_acquire(&s->done_sync);
    ch_tsan_hide(1);
}

static int any_before(uint64_t number, unsigned but_flags)
{
    for (const struct CUstream_st *s = streams; s; s = s->next)
        if (s->head && s->head->number < number && !(s->flags & but_flags))
            return 1;
    return 0;
}

static void wait_all(unsigned but_flags)
{
    uint64_t until = n_ops;
    while (any_before(until, but_flags))
        ch_wait();
    ch_tsan_hide(0);
    for (struct CUstream_st *s = streams; s; s = s->next)
        if (!(s->flags & but_flags))
            ch_tsan_acquire(&s->done_sync);
    ch_tsan_hide(1);
}

void ch_streams_wait_all(void)
{
    wait_all(0);
}

void ch_streams_wait_blocking(void)
{
    wait_all(cudaStreamNonBlocking);
}

/* ---- Making and destroying ---- */

/* Ends the threads of streams that were destroyed; `all`: waits for them.  Lock held. */
static void reap(int all)
{
    for (struct CUstream_st **at = &streams; *at;) {
        struct CUstream_st *s = *at;
        if (!s->quit || (!all && !s->ended)) {
            at = &s->next;
            continue;
        }
        while (!s->ended)
            ch_wait();
        for (at = &streams; *at != s;) /* it may have changed */
            at = &(*at)->next;
        *at = s->next;
        ch_unlock();
        pthread_join(s->thread, NULL);
        pthread_cond_destroy(&s->work);
        free(s->last);
        free(s);
        ch_lock();
        at = &streams;
    }
}

static void destroy(cudaStream_t s)
{
    ch_capture_leave(s);
    ch_handle_remove(s);
    s->quit = 1;
    pthread_cond_signal(&s->work);
}

void ch_streams_end(void)
{
    void *h;
    ch_lock();
    int lost = ch_rt.lost != cudaSuccess;
    while ((h = ch_handle_any(CH_EVENT))) {
        if (!lost)
            ch_report(CUDA_HOST_LEAK, "an event was not destroyed");
        ch_event_forget_capture(h);
        ch_record_drop(((cudaEvent_t)h)->record);
        ch_handle_remove(h);
        free(h);
    }
    while ((h = ch_handle_any(CH_STREAM))) {
        if (!lost)
            ch_report(CUDA_HOST_LEAK, "a stream was not destroyed");
        destroy(h);
    }
    reap(1);
    ch_unlock();
}

static cudaError_t create(cudaStream_t *out, unsigned flags, int priority)
{
    cudaError_t e = cudaErrorMemoryAllocation;
    struct CUstream_st *s = NULL;
    if (!out || (flags & ~(unsigned)cudaStreamNonBlocking))
        return cudaErrorInvalidValue;
    s = calloc(1, sizeof *s);
    if (!s)
        return e;
    s->tail = &s->head;
    s->flags = flags;
    s->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    if (pthread_cond_init(&s->work, NULL))
        goto fail;
    ch_lock();
    reap(0);
    s->random = (uint64_t)ch_get(CH_SEED) * UINT64_C(0x9e3779b97f4a7c15) + ++n_streams;
    if (ch_handle_add(CH_STREAM, s)) {
        ch_unlock();
        goto fail_cond;
    }
    ch_unlock();
    if (pthread_create(&s->thread, NULL, stream_main, s)) {
        ch_lock();
        ch_handle_remove(s);
        ch_unlock();
        goto fail_cond;
    }
    ch_lock();
    s->next = streams;
    streams = s;
    ch_unlock();
    *out = s;
    return cudaSuccess;
fail_cond:
    pthread_cond_destroy(&s->work);
fail:
    free(s);
    return e;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    cudaError_t e = ch_enter("cudaStreamCreateWithPriority", CH_ANY);
    return ch_leave("cudaStreamCreateWithPriority", e ? e : create(stream, flags, priority));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    cudaError_t e = ch_enter("cudaStreamCreateWithFlags", CH_ANY);
    return ch_leave("cudaStreamCreateWithFlags", e ? e : create(stream, flags, 0));
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    cudaError_t e = ch_enter("cudaStreamCreate", CH_ANY);
    return ch_leave("cudaStreamCreate", e ? e : create(stream, cudaStreamDefault, 0));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t e = ch_enter("cudaStreamDestroy", CH_RELEASE);
    if (e)
        return ch_leave("cudaStreamDestroy", e);
    ch_lock();
    if (ch_handle_check(CH_STREAM, stream, "cudaStreamDestroy")) {
        destroy(stream);
        reap(0);
        e = ch_take_pending();
    } else {
        e = cudaErrorInvalidResourceHandle;
    }
    ch_unlock();
    return ch_leave("cudaStreamDestroy", e);
}

/* ---- Waiting and asking ---- */

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    static const char *const name = "cudaStreamSynchronize";
    cudaError_t e = ch_enter(name, CH_SYNC);
    if (e)
        return ch_leave(name, e);
    ch_lock();
    if (!ch_handle_check(CH_STREAM, stream, name))
        e = cudaErrorInvalidResourceHandle;
    else
        e = ch_capture_forbids_on(stream, name);
    if (!e) {
        ch_stream_wait(stream);
        e = ch_take_pending();
    }
    ch_unlock();
    return ch_leave(name, e);
}

/* Nothing is left, but perhaps for the end of an event that has come already. */
static int is_idle(cudaStream_t s)
{
    const struct ch_op *op = s->head;
    return !op || (!op->next && op->task.kind == CH_RECORD && op->task.u.record->done);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    static const char *const name = "cudaStreamQuery";
    cudaError_t e = ch_enter(name, CH_SYNC);
    if (e)
        return ch_leave(name, e);
    ch_lock();
    if (!ch_handle_check(CH_STREAM, stream, name))
        e = cudaErrorInvalidResourceHandle;
    else
        e = ch_capture_forbids_on(stream, name);
    if (!e && !is_idle(stream)) {
        e = cudaErrorNotReady;
    } else if (!e) {
        ch_stream_wait(stream);
        e = ch_take_pending();
    }
    ch_unlock();
    return ch_leave(name, e);
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t e = ch_enter("cudaDeviceSynchronize", CH_SYNC);
    if (e)
        return ch_leave("cudaDeviceSynchronize", e);
    ch_lock();
    e = ch_capture_forbids("cudaDeviceSynchronize");
    if (!e) {
        ch_streams_wait_all();
        ch_memory_check();
        e = ch_take_pending();
    }
    ch_unlock();
    return ch_leave("cudaDeviceSynchronize", e);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    cudaError_t e = ch_enter("cudaStreamGetPriority", CH_ANY);
    if (e)
        return ch_leave("cudaStreamGetPriority", e);
    ch_lock();
    if (!ch_handle_check(CH_STREAM, stream, "cudaStreamGetPriority"))
        e = cudaErrorInvalidResourceHandle;
    else
        *priority = stream->priority;
    ch_unlock();
    return ch_leave("cudaStreamGetPriority", e);
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags)
{
    cudaError_t e = ch_enter("cudaStreamGetFlags", CH_ANY);
    if (e)
        return ch_leave("cudaStreamGetFlags", e);
    ch_lock();
    if (!ch_handle_check(CH_STREAM, stream, "cudaStreamGetFlags"))
        e = cudaErrorInvalidResourceHandle;
    else
        *flags = stream->flags;
    ch_unlock();
    return ch_leave("cudaStreamGetFlags", e);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    cudaError_t e = ch_enter("cudaDeviceGetStreamPriorityRange", CH_ANY);
    if (!e && least)
        *least = 0;
    if (!e && greatest)
        *greatest = -5;
    return ch_leave("cudaDeviceGetStreamPriorityRange", e);
}

/* ---- What is queued without memory ---- */

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user)
{
    cudaError_t e = ch_enter("cudaLaunchHostFunc", CH_ANY);
    struct ch_task t = {.kind = CH_HOST};
    t.u.host.fn = fn;
    t.u.host.user = user;
    if (!e && !fn)
        e = cudaErrorInvalidValue;
    return ch_leave("cudaLaunchHostFunc", e ? e : ch_stream_add(stream, &t, "cudaLaunchHostFunc"));
}

cudaError_t ch_launch(const struct ch_kernel *k, cudaStream_t stream)
{
    cudaError_t e = ch_enter("launch", CH_ANY);
    struct ch_task t = {.kind = CH_KERNEL, .u.kernel = *k};
    if (!e)
        e = ch_kernel_check(k);
    if (e)
        free(k->args);
    return ch_leave(k->name, e ? e : ch_stream_add(stream, &t, k->name));
}
