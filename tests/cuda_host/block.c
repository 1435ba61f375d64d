/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of a kernel: its threads are fibers that run until they must wait for others, and then
 * hand over to the next.  Every other block runs its warps and lanes backwards, so that a missing
 * barrier does not go unnoticed because of a friendly order.
 *
 * Built without ThreadSanitizer's instrumentation: what the fibers of a worker share here is
 * switched by hand, while the accesses of kernels are ordered by barriers alone when races between
 * threads of a block are looked for.
 */
#include "tests/cuda_host/exec.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/cuda_host/control.h"
#include "tests/cuda_host/rt.h"
#include "tests/cuda_host/sanitize.h"

_Thread_local struct ch_self ch_self;

static void become(struct ch_worker *w, uint32_t thread)
{
    w->current = thread;
    w->self->thread_idx = w->index[thread];
    w->self->lane = thread % CH_WARP;
}

static uint32_t first_of(uint32_t set, int reverse)
{
    return reverse ? 31u - (uint32_t)__builtin_clz(set) : (uint32_t)__builtin_ctz(set);
}

/* The next thread that can run, -1 without one; lanes of the running warp first. */
static int pick(struct ch_worker *w)
{
    uint32_t warp = w->current / CH_WARP;
    struct ch_warp_state *s = &w->warps[warp];
    if (!s->ready) {
        if (!w->warps_ready)
            return -1;
        warp = first_of(w->warps_ready, w->reverse);
        s = &w->warps[warp];
    }
    uint32_t lane = first_of(s->ready, w->reverse);
    s->ready &= ~(1u << lane);
    if (!s->ready)
        w->warps_ready &= ~(1u << warp);
    return (int)(warp * CH_WARP + lane);
}

void ch_make_ready(struct ch_worker *w, uint32_t warp, unsigned lanes)
{
    w->warps[warp].ready |= lanes;
    if (w->warps[warp].ready)
        w->warps_ready |= 1u << warp;
}

static void thread_main(struct ch_fiber *f);

/* One more fiber, free.  0, or -1 without memory. */
static int add_fiber(struct ch_worker *w)
{
    struct ch_fiber *f =
        w->n_fibers < CH_MAX_THREADS ? ch_fiber_new(w->n_fibers, thread_main) : NULL;
    if (!f)
        return -1;
    f->user = w;
    f->next_free = w->free;
    w->free = f;
    w->fibers[w->n_fibers++] = f;
    return 0;
}

/* A fiber for a thread that starts; between blocks all are free. */
static struct ch_fiber *take_fiber(struct ch_worker *w, uint32_t thread)
{
    if (ch_races(w)) /* each thread its own, lest one comes after the other */
        return w->fibers[thread];
    if (!w->free && add_fiber(w))
        return NULL;
    struct ch_fiber *f = w->free;
    w->free = f->next_free;
    return f;
}

/* From the fiber `from` (the running thread's, or the worker's own) to `thread`. */
static void run_thread(struct ch_worker *w, struct ch_fiber *from, uint32_t thread)
{
    struct ch_fiber *to = w->fiber_of[thread];
    if (!to)
        to = w->fiber_of[thread] = take_fiber(w, thread);
    if (!to) {
        w->error = cudaErrorMemoryAllocation;
        w->report = CUDA_HOST_MISUSE;
        (void)snprintf(w->what, sizeof w->what, "kernel %s: no memory for its threads",
                       w->kernel->name);
        ch_fiber_switch(from, &w->main, 0);
        return;
    }
    become(w, thread);
    ch_fiber_switch(from, to, ch_races(w));
}

void ch_wait_turn(struct ch_worker *w)
{
    struct ch_fiber *self = w->fiber_of[w->current];
    int next = pick(w);
    if (next < 0)
        ch_fiber_switch(self, &w->main, ch_races(w));
    else
        run_thread(w, self, (uint32_t)next);
}

/* Others of the block go on meanwhile. */
void ch_nanosleep(unsigned ns)
{
    struct ch_worker *w = ch_self.worker;
    uint64_t until = ch_clock_ns() + ns;
    do {
        uint32_t self = w->current;
        int next = pick(w);
        if (next >= 0) {
            ch_make_ready(w, self / CH_WARP, 1u << self % CH_WARP);
            run_thread(w, w->fiber_of[self], (uint32_t)next);
        } else {
            ch_sleep_until(until);
        }
    } while (ch_clock_ns() < until);
}

static void thread_main(struct ch_fiber *f)
{
    struct ch_worker *w = f->user;
    for (;;) {
        if (ch_races(w))
            ch_tsan_acquire(&w->start_sync);
        w->kernel->call(w->kernel->args);
        if (ch_races(w))
            ch_tsan_release(&w->end_sync);
        w->warps[w->current / CH_WARP].alive &= ~(1u << w->current % CH_WARP);
        w->n_alive--;
        int next = pick(w);
        if (next >= 0 && !w->fiber_of[next] && !ch_races(w)) { /* no need to leave this stack */
            w->fiber_of[next] = f;
            become(w, (uint32_t)next);
            continue;
        }
        if (!ch_races(w)) {
            f->next_free = w->free;
            w->free = f;
        }
        if (next >= 0)
            run_thread(w, f, (uint32_t)next);
        else
            ch_fiber_switch(f, &w->main, ch_races(w));
    }
}

/* ---- Failures ---- */

void ch_describe_thread(const struct ch_worker *w, uint32_t thread, char *text, size_t size)
{
    uint3 t = w->index[thread], b = ch_self.block_idx;
    (void)snprintf(text, size, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u)", w->kernel->name,
                   b.x, b.y, b.z, t.x, t.y, t.z);
}

void ch_block_fault(void)
{
    struct ch_worker *w = ch_self.worker;
    ch_fiber_switch(w->fiber_of[w->current], &w->main, 0);
    __builtin_unreachable();
}

void ch_trap(cudaError_t error, int report, const char *fmt, ...)
{
    struct ch_worker *w = ch_self.worker;
    char who[200], what[200];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    ch_describe_thread(w, w->current, who, sizeof who);
    (void)snprintf(w->what, sizeof w->what, "%s: %s", who, what);
    w->error = error;
    w->report = report;
    ch_block_fault();
}

/* ---- Barriers of the block ---- */

static int barrier_value(const struct ch_worker *w)
{
    switch (w->barrier_op) {
    case CH_BARRIER_OR:
        return w->votes != 0;
    case CH_BARRIER_AND:
        return w->votes == w->n_threads;
    case CH_BARRIER_COUNT:
        return (int)w->votes;
    default:
        return 0;
    }
}

static void release_all(struct ch_worker *w)
{
    w->barrier_result = barrier_value(w);
    w->arrived = w->votes = 0;
    for (uint32_t i = 0; i < w->n_warps; i++) {
        ch_make_ready(w, i, w->warps[i].at_barrier);
        w->warps[i].at_barrier = 0;
    }
}

int ch_block(enum ch_block_op op, const struct ch_site *site, int predicate)
{
    struct ch_worker *w = ch_self.worker;
    if (!w->arrived) {
        w->barrier_op = op;
        w->barrier_site = site;
    } else if (op != w->barrier_op || site->line != w->barrier_site->line ||
               (site->file != w->barrier_site->file &&
                strcmp(site->file, w->barrier_site->file) != 0)) {
        ch_trap(cudaErrorLaunchFailure, CUDA_HOST_DIVERGENT,
                "divergent: waits in %s (%s:%d), others of its block in %s (%s:%d)", site->what,
                site->file, site->line, w->barrier_site->what, w->barrier_site->file,
                w->barrier_site->line);
    }
    w->votes += predicate != 0;
    if (ch_races(w))
        ch_tsan_release(&w->barrier_sync);
    if (++w->arrived == w->n_threads) {
        release_all(w);
    } else {
        w->threads[w->current].site = site;
        w->warps[w->current / CH_WARP].at_barrier |= 1u << w->current % CH_WARP;
        ch_wait_turn(w);
    }
    if (ch_races(w))
        ch_tsan_acquire(&w->barrier_sync);
    return w->barrier_result;
}

/* ---- The block ---- */

/* A thread that others wait for: of the mask of `waiting`, or of the block. */
static uint32_t missing_thread(const struct ch_worker *w, uint32_t waiting)
{
    uint32_t warp = waiting / CH_WARP, i = 0;
    const struct ch_thread *t = &w->threads[waiting];
    if (w->warps[warp].in_op >> waiting % CH_WARP & 1u) {
        for (unsigned left = t->mask; left; left &= left - 1) {
            i = warp * CH_WARP + (uint32_t)__builtin_ctz(left);
            const struct ch_thread *o = &w->threads[i];
            if (!(w->warps[warp].in_op & left & (0u - left)) || o->op != t->op ||
                o->mask != t->mask)
                return i;
        }
        return waiting;
    }
    for (i = 0; i < w->n_threads; i++)
        if (!(w->warps[i / CH_WARP].at_barrier >> i % CH_WARP & 1u))
            return i;
    return waiting;
}

static void where(const struct ch_worker *w, uint32_t thread, char *text, size_t size)
{
    const struct ch_warp_state *s = &w->warps[thread / CH_WARP];
    const struct ch_thread *t = &w->threads[thread];
    unsigned bit = 1u << thread % CH_WARP;
    if (thread >= w->n_threads)
        (void)snprintf(text, size, "is not in the block (%u threads)", w->n_threads);
    else if (s->in_op & bit)
        (void)snprintf(text, size, "waits in %s under mask 0x%08x (%s:%d)", t->site->what, t->mask,
                       t->site->file, t->site->line);
    else if (s->at_barrier & bit)
        (void)snprintf(text, size, "waits in %s (%s:%d)", t->site->what, t->site->file,
                       t->site->line);
    else
        (void)snprintf(text, size, "has left the kernel");
}

/* Nothing can run and the block has not ended: says who waits for whom. */
static void divergent(struct ch_worker *w)
{
    char who[200], first[200], second[200];
    uint32_t waiting = 0;
    while (waiting + 1 < w->n_threads &&
           !((w->warps[waiting / CH_WARP].in_op | w->warps[waiting / CH_WARP].at_barrier) >>
                 waiting % CH_WARP &
             1u))
        waiting++;
    uint32_t other = missing_thread(w, waiting);
    ch_describe_thread(w, waiting, who, sizeof who);
    where(w, waiting, first, sizeof first);
    where(w, other, second, sizeof second);
    (void)snprintf(w->what, sizeof w->what, "%s: divergent: %s, while thread %u of the block %s",
                   who, first, other, second);
    w->error = cudaErrorLaunchFailure;
    w->report = CUDA_HOST_DIVERGENT;
}

static void fill_poison(char *at, char *end)
{
    const uint64_t poison = CH_POISON;
#if defined(__x86_64__) && !CH_ASAN /* hundreds of KiB for every kernel */
    size_t n = (size_t)(end - at) / 8;
    __asm__ volatile("rep stosq" : "+D"(at), "+c"(n) : "a"(poison) : "memory");
#else
    for (; at + 8 <= end; at += 8)
        memcpy(at, &poison, 8);
#endif
}

/* Shared memory as a block finds it: nobody's.  The static part is that of all kernels, too much to
 * do it for every block of a large grid. */
static void poison_shared(struct ch_worker *w, const struct ch_kernel *k)
{
    char *end = w->shared_map + w->shared_size;
    ch_self.dynamic_shared = end - (k->shared + 15) / 16 * 16;
    if (k->shared)
        fill_poison(ch_self.dynamic_shared, end);
    if (w->tls && w->blocks_poisoned < 4) {
        char *self = (char *)&ch_self;
        fill_poison(w->tls, self);
        fill_poison(self + (sizeof ch_self + 7) / 8 * 8, w->tls + w->tls_size);
    }
    w->blocks_poisoned++;
}

static void index_threads(struct ch_worker *w, dim3 d)
{
    if (w->index_dim.x == d.x && w->index_dim.y == d.y && w->index_dim.z == d.z)
        return;
    uint32_t i = 0;
    for (uint32_t z = 0; z < d.z; z++)
        for (uint32_t y = 0; y < d.y; y++)
            for (uint32_t x = 0; x < d.x; x++)
                w->index[i++] = (uint3){x, y, z};
    w->index_dim = d;
}

static void start_block(struct ch_worker *w, const struct ch_kernel *k, uint3 block)
{
    w->kernel = k;
    w->n_threads = w->n_alive = k->block.x * k->block.y * k->block.z;
    w->n_warps = (w->n_threads + CH_WARP - 1) / CH_WARP;
    w->warps_ready = 0;
    w->reverse = (int)((block.x + block.y + block.z) & 1u);
    w->current = w->reverse ? w->n_threads - 1 : 0;
    w->arrived = w->votes = 0;
    w->error = cudaSuccess;
    index_threads(w, k->block);
    for (uint32_t i = 0; i < w->n_warps; i++) {
        uint32_t n = w->n_threads - i * CH_WARP;
        unsigned lanes = n >= CH_WARP ? 0xffffffffu : (1u << n) - 1;
        struct ch_warp_state *s = &w->warps[i];
        s->alive = lanes;
        s->ready = s->in_op = s->at_barrier = 0;
        ch_make_ready(w, i, lanes);
    }
    memset(w->fiber_of, 0, w->n_threads * sizeof *w->fiber_of);
    ch_async_reset(w);
    ch_self.block_idx = block;
    ch_self.block_dim = k->block;
    ch_self.grid_dim = k->grid;
    poison_shared(w, k);
}

/* After a failure fibers are left in the middle of things. */
static void abandon(struct ch_worker *w)
{
    w->free = NULL;
    for (uint32_t i = w->n_fibers; i-- > 0;) {
        struct ch_fiber *f = w->fibers[i];
        if (ch_fiber_reset(f, i)) {
            ch_fiber_free(f);
            w->fibers[i] = w->fibers[--w->n_fibers];
            continue;
        }
        f->next_free = w->free;
        w->free = f;
    }
}

cudaError_t ch_block_run(struct ch_worker *w, const struct ch_kernel *k, uint3 block)
{
    start_block(w, k, block);
    /* The first one is needed here, where there is nobody to give up. */
    for (uint32_t n = ch_races(w) ? w->n_threads : 1; w->n_fibers < n;)
        if (add_fiber(w))
            return cudaErrorMemoryAllocation;
    if (ch_races(w))
        ch_tsan_release(&w->start_sync);
    for (;;) {
        int next = pick(w);
        if (next >= 0)
            run_thread(w, &w->main, (uint32_t)next);
        if (w->error || !w->n_alive)
            break;
        if (!w->warps_ready && !ch_answer_activemask(w))
            divergent(w);
        if (w->error)
            break;
    }
    if (ch_races(w))
        ch_tsan_acquire(&w->end_sync);
    w->kernel = NULL;
    if (w->error)
        abandon(w);
    return w->error;
}
