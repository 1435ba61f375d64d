/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocks of a grid, run by the thread of its stream and by helpers that all streams share.
 */
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda_host/exec.h"
#include "tests/cuda_host/rt.h"

enum { MAX_HELPERS = 7, SHARED_ROOM = 256 << 10 };

struct grid {
    const struct ch_kernel *kernel;
    uint64_t n_blocks;
    atomic_uint_fast64_t next;
    atomic_int error;
    uint32_t helpers, most_helpers; /* at work on it; lock */
    struct grid *waiting;           /* for helpers */
    char sync;
};

static struct grid *wanted;
static pthread_cond_t call = PTHREAD_COND_INITIALIZER;
static pthread_t helpers[MAX_HELPERS];
static uint32_t n_helpers;
static int stopping;
static struct ch_worker *spare; /* of threads that have ended; fibers are dear */

/* ---- Workers ---- */

/* The part of this thread's local storage that belongs to this library: the static shared memory of
 * its kernels.  Not if it is part of a program, whose storage others use too. */
static int find_tls(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct ch_worker *w = arg;
    char *self = (char *)&ch_self;
    (void)size;
    if (!info->dlpi_tls_data || !info->dlpi_name || !info->dlpi_name[0])
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        char *start = info->dlpi_tls_data;
        size_t n = info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_TLS && self >= start && self < start + n) {
            w->tls = start;
            w->tls_size = n;
            return 1;
        }
    }
    return 0;
}

static int map_shared(struct ch_worker *w)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, SHARED_ROOM + page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return -1;
    w->shared_map = map;
    w->shared_size = SHARED_ROOM;
    return mprotect(map + SHARED_ROOM, page, PROT_NONE);
}

static struct ch_worker *spare_or_new(void)
{
    ch_lock();
    struct ch_worker *w = spare;
    if (w)
        spare = w->next_spare;
    ch_unlock();
    if (w)
        return w;
    w = calloc(1, sizeof *w);
    if (w && map_shared(w)) {
        ch_worker_free(w);
        return NULL;
    }
    return w;
}

/* What depends on the thread is made anew: its stack, its local storage, where signals go. */
struct ch_worker *ch_worker_get(void)
{
    if (ch_self.worker)
        return ch_self.worker;
    struct ch_worker *w = spare_or_new();
    if (!w)
        return NULL;
    w->tls = NULL;
    if (ch_fiber_adopt(&w->main) || ch_fault_stack(w)) {
        ch_worker_free(w);
        return NULL;
    }
    dl_iterate_phdr(find_tls, w);
    w->self = &ch_self;
    ch_self.worker = w;
    return w;
}

void ch_worker_free(struct ch_worker *w)
{
    for (uint32_t i = 0; i < w->n_fibers; i++)
        ch_fiber_free(w->fibers[i]);
    ch_async_free(w);
    ch_fault_stack_free(w);
    ch_fiber_release(&w->main);
    if (w->shared_map)
        munmap(w->shared_map, w->shared_size + (size_t)sysconf(_SC_PAGESIZE));
    free(w);
}

void ch_worker_leave(void)
{
    struct ch_worker *w = ch_self.worker;
    if (!w)
        return;
    ch_self.worker = NULL;
    ch_fault_stack_free(w);
    ch_fiber_release(&w->main);
    ch_lock();
    w->next_spare = spare;
    spare = w;
    ch_unlock();
}

/* ---- Grids ---- */

static void run_blocks(struct grid *g)
{
    const struct ch_kernel *k = g->kernel;
    struct ch_worker *w = ch_worker_get();
    if (!w) {
        atomic_store(&g->error, cudaErrorMemoryAllocation);
        return;
    }
    w->blocks_poisoned = 0;
    w->races = CH_TSAN && ch_get(CH_RACES);
    ch_tsan_acquire(&g->sync);
    while (!atomic_load(&g->error)) {
        uint64_t i = atomic_fetch_add(&g->next, 1);
        if (i >= g->n_blocks)
            break;
        uint3 block = {(unsigned)(i % k->grid.x), (unsigned)(i / k->grid.x % k->grid.y),
                       (unsigned)(i / k->grid.x / k->grid.y)};
        cudaError_t e = ch_block_run(w, k, block);
        int none = cudaSuccess;
        if (e && atomic_compare_exchange_strong(&g->error, &none, (int)e) && w->error)
            ch_report(w->report, "%s", w->what);
    }
    ch_tsan_release(&g->sync);
}

static void *helper_main(void *arg)
{
    (void)arg;
    ch_lock();
    while (!stopping) {
        struct grid *g = wanted;
        if (!g) {
            ch_wait_on(&call);
            continue;
        }
        if (++g->helpers >= g->most_helpers)
            wanted = g->waiting;
        ch_unlock();
        run_blocks(g);
        ch_lock();
        g->helpers--;
        ch_progress();
    }
    ch_unlock();
    ch_worker_leave();
    return NULL;
}

/* As many as one grid may have, as far as threads can be had.  Lock held. */
static void need_helpers(uint32_t n)
{
    while (n_helpers < n && n_helpers < MAX_HELPERS &&
           !pthread_create(&helpers[n_helpers], NULL, helper_main, NULL))
        n_helpers++;
}

static void ask_for_help(struct grid *g)
{
    ch_tsan_release(&g->sync);
    ch_lock();
    need_helpers(g->most_helpers);
    g->waiting = wanted;
    wanted = g;
    pthread_cond_broadcast(&call);
    ch_unlock();
}

static void end_of_help(struct grid *g)
{
    ch_lock();
    for (struct grid **at = &wanted; *at; at = &(*at)->waiting)
        if (*at == g) {
            *at = g->waiting;
            break;
        }
    while (g->helpers)
        ch_wait();
    ch_unlock();
    ch_tsan_acquire(&g->sync);
}

cudaError_t ch_grid_run(const struct ch_kernel *k)
{
    struct grid g = {.kernel = k, .n_blocks = (uint64_t)k->grid.x * k->grid.y * k->grid.z};
    atomic_init(&g.next, 0);
    atomic_init(&g.error, cudaSuccess);
    g.most_helpers = (uint32_t)ch_get(CH_WORKERS) - 1;
    if (g.most_helpers >= g.n_blocks)
        g.most_helpers = (uint32_t)g.n_blocks - 1;
    ch_fault_install();
    if (g.most_helpers)
        ask_for_help(&g);
    run_blocks(&g);
    if (g.most_helpers)
        end_of_help(&g);
    return (cudaError_t)atomic_load(&g.error);
}

void ch_grid_stop(void)
{
    ch_lock();
    stopping = 1;
    pthread_cond_broadcast(&call);
    ch_unlock();
    for (uint32_t i = 0; i < n_helpers; i++)
        pthread_join(helpers[i], NULL);
    n_helpers = 0;
    stopping = 0;
    while (spare) {
        struct ch_worker *w = spare;
        spare = w->next_spare;
        ch_worker_free(w);
    }
}
