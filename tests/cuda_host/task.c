/* SPDX-License-Identifier: Apache-2.0
 *
 * Running operations: kernels, copies through the two copy engines, fills, host functions.
 */
#include "tests/cuda_host/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_host/exec.h"
#include "tests/cuda_host/memory.h"

/* A copy engine serves one copy at a time, in the order in which they became ready. */
static struct {
    uint64_t next, serving;
} engines[2];

struct ch_record *ch_record_new(int timed)
{
    struct ch_record *r = malloc(sizeof *r);
    if (!r)
        return NULL;
    r->refs = 1;
    r->done = 0;
    r->timed = timed;
    r->at_ns = 0;
    return r;
}

void ch_record_drop(struct ch_record *r)
{
    if (r && !--r->refs)
        free(r);
}

void ch_task_drop(struct ch_task *t)
{
    switch (t->kind) {
    case CH_KERNEL:
        free(t->u.kernel.args);
        break;
    case CH_COPY:
        free(t->u.copy.staged);
        break;
    case CH_RECORD:
    case CH_WAIT:
        ch_record_drop(t->u.record);
        break;
    case CH_GRAPH_RUN:
        ch_program_drop(t->u.graph.program);
        ch_record_drop(t->u.graph.after);
        ch_record_drop(t->u.graph.at_end);
        break;
    default:
        break;
    }
}

/* ---- Kernels ---- */

static cudaError_t check_pointers(const struct ch_kernel *k)
{
    char why[200];
    for (uint32_t i = 0; i < k->n_pointers; i++) {
        const void *p = k->pointers[i];
        if (!p)
            continue;
        int kind = ch_memory_kind(p, 0, why, sizeof why);
        if (kind == CH_PAGEABLE) {
            ch_memory_explain(p, why, sizeof why);
            ch_report(
                CUDA_HOST_OUT_OF_BOUNDS,
                "kernel %s is given a pointer (the %uth) that the device cannot reach: %p, %s",
                k->name, i + 1, p, why);
            return cudaErrorIllegalAddress;
        }
        if (kind < 0) {
            ch_report(CUDA_HOST_AFTER_FREE, "kernel %s is given a pointer (the %uth): %s", k->name,
                      i + 1, why);
            return cudaErrorIllegalAddress;
        }
    }
    return cudaSuccess;
}

enum { MAX_FUNCS = 256, USUAL_SHARED = 48 << 10 };
static struct {
    const void *func;
    size_t bytes;
} allowed[MAX_FUNCS];

cudaError_t ch_func_allow_shared(const void *func, size_t bytes, size_t most)
{
    cudaError_t e = cudaErrorInvalidValue;
    ch_lock();
    for (int i = 0; bytes <= most && i < MAX_FUNCS; i++)
        if (!allowed[i].func || allowed[i].func == func) {
            allowed[i].func = func;
            allowed[i].bytes = bytes;
            e = cudaSuccess;
            break;
        }
    ch_unlock();
    return e;
}

size_t ch_func_shared(const void *func)
{
    size_t bytes = USUAL_SHARED;
    ch_lock();
    for (int i = 0; i < MAX_FUNCS && allowed[i].func; i++)
        if (allowed[i].func == func && allowed[i].bytes > bytes)
            bytes = allowed[i].bytes;
    ch_unlock();
    return bytes;
}

cudaError_t ch_kernel_check(const struct ch_kernel *k)
{
    uint64_t threads = (uint64_t)k->block.x * k->block.y * k->block.z;
    if (!threads || threads > CH_MAX_THREADS || k->block.z > 64 || !k->grid.x || !k->grid.y ||
        !k->grid.z || k->grid.x > INT32_MAX || k->grid.y > 65535 || k->grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    return k->shared > ch_func_shared(k->func) ? cudaErrorInvalidValue : cudaSuccess;
}

static cudaError_t run_kernel(const struct ch_kernel *k)
{
    uint64_t least = (uint64_t)ch_get(CH_KERNEL_NS), start = ch_clock_ns();
    ch_lock();
    cudaError_t e = check_pointers(k);
    ch_rt.stats.kernels++;
    ch_busy(1, 0);
    ch_unlock();
    if (!e && !ch_get(CH_NULL_KERNELS))
        e = ch_grid_run(k);
    if (least)
        ch_sleep_until(start + least);
    ch_lock();
    ch_rt.stats.blocks += (uint64_t)k->grid.x * k->grid.y * k->grid.z;
    ch_busy(-1, 0);
    ch_unlock();
    return e;
}

/* ---- Copies ---- */

static cudaError_t bad_copy(const char *call, const char *what, const char *why)
{
    ch_report(strstr(why, "freed") ? CUDA_HOST_AFTER_FREE : CUDA_HOST_OUT_OF_BOUNDS,
              "%s: the %s: %s", call, what, why);
    return cudaErrorInvalidValue;
}

static size_t span(size_t width, size_t rows, size_t pitch)
{
    return rows ? (rows - 1) * pitch + width : 0;
}

static int kind_agrees(enum cudaMemcpyKind kind, int to_device, int from_device)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    case cudaMemcpyHostToHost:
        return !to_device && !from_device;
    default:
        return kind == cudaMemcpyDefault;
    }
}

cudaError_t ch_copy_classify(struct ch_copy *c, enum cudaMemcpyKind kind, int *pageable,
                             const char *call)
{
    char why[200];
    if (c->rows > 1 && (c->dst_pitch < c->width || c->src_pitch < c->width))
        return cudaErrorInvalidPitchValue;
    int dst = ch_memory_kind(c->dst, span(c->width, c->rows, c->dst_pitch), why, sizeof why);
    if (dst < 0)
        return bad_copy(call, "destination", why);
    int src = ch_memory_kind(c->src, span(c->width, c->rows, c->src_pitch), why, sizeof why);
    if (src < 0)
        return bad_copy(call, "source", why);
    int to = ch_is_device(dst), from = ch_is_device(src);
    if (!kind_agrees(kind, to, from)) {
        ch_report(CUDA_HOST_MISUSE,
                  "%s: kind %d, but the destination is memory of the %s and the "
                  "source of the %s",
                  call, (int)kind, to ? "device" : "host", from ? "device" : "host");
        return cudaErrorInvalidValue;
    }
    c->direction = to ? (from ? CH_ON_DEVICE : CH_TO_DEVICE) : from ? CH_TO_HOST : CH_ON_HOST;
    *pageable = dst == CH_PAGEABLE || src == CH_PAGEABLE;
    return cudaSuccess;
}

/* Memory may have been freed between the call and now. */
static cudaError_t still_there(const struct ch_copy *c)
{
    char why[200];
    if (ch_memory_kind(c->dst, span(c->width, c->rows, c->dst_pitch), why, sizeof why) < 0 ||
        (!c->staged &&
         ch_memory_kind(c->src, span(c->width, c->rows, c->src_pitch), why, sizeof why) < 0)) {
        ch_report(CUDA_HOST_AFTER_FREE, "a copy runs into memory that is gone: %s", why);
        return cudaErrorIllegalAddress;
    }
    return cudaSuccess;
}

static void check_written(const struct ch_copy *c, const char *src)
{
    int from_device = c->direction == CH_TO_HOST || c->direction == CH_ON_DEVICE;
    for (size_t r = 0; from_device && ch_get(CH_CHECK_READS) && r < c->rows; r++) {
        int64_t at = ch_memory_unwritten(src + r * c->src_pitch, c->width);
        if (at < 0)
            continue;
        ch_report(CUDA_HOST_UNINITIALISED,
                  "a copy of %zu bytes (row %zu) reads device memory that nobody wrote, from byte "
                  "%lld on",
                  c->width, r, (long long)at);
        return;
    }
}

static void move(const struct ch_copy *c)
{
    const char *src = c->staged ? c->staged : c->src;
    size_t pitch = c->staged ? c->width : c->src_pitch;
    check_written(c, src);
    for (size_t r = 0; r < c->rows; r++)
        memmove((char *)c->dst + r * c->dst_pitch, src + r * pitch, c->width);
}

static void take_turn(enum ch_direction d)
{
    ch_lock();
    if (d <= CH_TO_HOST) {
        uint64_t ticket = engines[d].next++;
        while (engines[d].serving != ticket)
            ch_wait();
        ch_busy(0, 1);
    }
    ch_unlock();
}

static void end_turn(const struct ch_copy *c, uint64_t ns)
{
    ch_lock();
    if (c->direction <= CH_TO_HOST) {
        engines[c->direction].serving++;
        ch_rt.stats.busy_ns[c->direction] += ns;
        ch_busy(0, -1);
        ch_progress();
    }
    if (c->direction != CH_ON_HOST) {
        ch_rt.stats.copies[c->direction]++;
        ch_rt.stats.copied_bytes[c->direction] += c->width * c->rows;
    }
    ch_unlock();
}

static cudaError_t run_copy(const struct ch_copy *c)
{
    static const enum ch_setting rates[] = {CH_H2D, CH_D2H, CH_D2D};
    take_turn(c->direction);
    uint64_t start = ch_clock_ns();
    ch_lock();
    cudaError_t e = still_there(c);
    ch_unlock();
    if (!e)
        move(c);
    int64_t rate = c->direction == CH_ON_HOST ? 0 : ch_get(rates[c->direction]);
    if (rate)
        ch_sleep_until(start + (uint64_t)((double)(c->width * c->rows) * 1e9 / (double)rate));
    end_turn(c, ch_clock_ns() - start);
    return e;
}

static cudaError_t run_set(const struct ch_task *t)
{
    char why[200];
    ch_lock();
    int kind = ch_memory_kind(t->u.set.dst, t->u.set.n, why, sizeof why);
    if (kind < 0)
        ch_report(CUDA_HOST_AFTER_FREE, "a fill runs into memory that is gone: %s", why);
    ch_unlock();
    if (kind < 0)
        return cudaErrorIllegalAddress;
    memset(t->u.set.dst, t->u.set.value, t->u.set.n);
    return cudaSuccess;
}

/* ---- Any ---- */

static void run_host(const struct ch_task *t)
{
    ch_self.in_host_func = 1;
    t->u.host.fn(t->u.host.user);
    ch_self.in_host_func = 0;
}

/* Lock held. */
static void fire(struct ch_record *r)
{
    r->at_ns = ch_clock_ns();
    r->done = 1;
    ch_progress();
}

static void run_record(struct ch_record *r)
{
    ch_tsan_release(&r->sync);
    ch_lock();
    fire(r);
    ch_unlock();
}

static void run_wait(struct ch_record *r)
{
    ch_lock();
    while (!r->done)
        ch_wait();
    ch_unlock();
    ch_tsan_acquire(&r->sync);
}

/* A launch of a graph comes after the one before, whatever the streams. */
static cudaError_t run_graph(struct ch_task *t)
{
    if (t->u.graph.after)
        run_wait(t->u.graph.after);
    cudaError_t e = ch_program_run(t->u.graph.program);
    run_record(t->u.graph.at_end);
    ch_lock();
    ch_rt.stats.graph_launches++;
    ch_unlock();
    return e;
}

cudaError_t ch_task_run(struct ch_task *t)
{
    switch (t->kind) {
    case CH_KERNEL:
        return run_kernel(&t->u.kernel);
    case CH_COPY:
        return run_copy(&t->u.copy);
    case CH_SET:
        return run_set(t);
    case CH_HOST:
        run_host(t);
        return cudaSuccess;
    case CH_RECORD:
        run_record(t->u.record);
        return cudaSuccess;
    case CH_WAIT:
        run_wait(t->u.record);
        return cudaSuccess;
    case CH_GRAPH_RUN:
        return run_graph(t);
    }
    return cudaErrorUnknown;
}

void ch_task_skip(struct ch_task *t)
{
    if (t->kind == CH_RECORD)
        run_record(t->u.record);
    else if (t->kind == CH_GRAPH_RUN)
        run_record(t->u.graph.at_end);
}

void ch_task_over(struct ch_task *t)
{
    const struct ch_copy *c = &t->u.copy;
    if (t->kind == CH_RECORD)
        fire(t->u.record);
    if (t->kind == CH_GRAPH_RUN)
        fire(t->u.graph.at_end);
    ch_rt.stats.graph_launches += t->kind == CH_GRAPH_RUN;
    ch_rt.stats.kernels += t->kind == CH_KERNEL;
    if (t->kind == CH_COPY && c->direction != CH_ON_HOST) {
        ch_rt.stats.copies[c->direction]++;
        ch_rt.stats.copied_bytes[c->direction] += c->width * c->rows;
    }
}
