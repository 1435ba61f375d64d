/* SPDX-License-Identifier: Apache-2.0
 *
 * Running kernels: a worker is an operating system thread that runs blocks one after another; a
 * grid is shared out over a few of them.
 */
#ifndef CH_EXEC_H
#define CH_EXEC_H

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#include "tests/cuda_host/device.h"
#include "tests/cuda_host/fiber.h"

enum { CH_MAX_THREADS = 1024, CH_WARP = 32, CH_MAX_WARPS = CH_MAX_THREADS / CH_WARP };

/* Words of memory that nobody has written yet: every half word is NaN as f16 and as bf16, every
 * word a signalling NaN as f32, and far too large as an index. */
#define CH_POISON UINT64_C(0x7fa57fb37fa97fbd)

/* One thread of the block that a worker runs. */
struct ch_thread {
    const struct ch_site *site; /* where it waits */
    enum ch_warp_op op;
    unsigned mask;
    int arg, width;
};

/* Copies of a thread that have not landed: list[first .. n - 1]. */
struct ch_async_copies {
    struct ch_async_copy *list;
    uint32_t first, n, room, groups;
};

struct ch_warp_state {
    unsigned alive;      /* lanes that have not left the kernel */
    unsigned ready;      /* that can run (the one that runs is not in it) */
    unsigned in_op;      /* that wait in a warp operation */
    unsigned at_barrier; /* that wait at a barrier of the block */
    int alike;           /* all that came since ask for the same as the first of them: */
    uint64_t wish;
    char sync;                                /* its address is the warp's, for ThreadSanitizer */
    uint64_t value[CH_WARP], result[CH_WARP]; /* of a lane's operation */
};

struct ch_worker {
    struct ch_fiber main;
    struct ch_fiber *fibers[CH_MAX_THREADS];
    uint32_t n_fibers;
    struct ch_fiber *free;
    struct ch_self *self;                      /* ch_self of its thread */
    struct ch_fiber *fiber_of[CH_MAX_THREADS]; /* a thread's, NULL: not started */
    struct ch_thread threads[CH_MAX_THREADS];
    struct ch_warp_state warps[CH_MAX_WARPS];
    struct ch_async_copies copies[CH_MAX_THREADS];
    int copies_begun;            /* in this block */
    uint32_t chance;             /* whether a copy lands at once */
    uint3 index[CH_MAX_THREADS]; /* threadIdx of every thread of blocks of index_dim */
    dim3 index_dim;
    uint32_t n_threads, n_warps, n_alive;
    uint32_t warps_ready; /* one bit per warp */
    uint32_t current;     /* the thread that runs */
    int reverse;          /* the order of lanes and warps in this block */
    /* The barrier of the block. */
    uint32_t arrived, votes;
    int barrier_result;
    enum ch_block_op barrier_op;
    const struct ch_site *barrier_site;      /* of the first that came */
    char barrier_sync, start_sync, end_sync; /* for ThreadSanitizer */
    const struct ch_kernel *kernel;
    int races;
    /* How the block failed. */
    cudaError_t error;
    int report;
    char what[800];
    /* Dynamic shared memory: ends at a page that cannot be touched. */
    char *shared_map;
    size_t shared_size;
    /* Static shared memory of all kernels: this library's thread-local block, less ch_self. */
    char *tls;
    size_t tls_size;
    uint32_t blocks_poisoned;
    void *signal_stack;
    stack_t signal_stack_before;
    struct ch_worker *next_spare;
};

/* Whether races between threads of a block are looked for. */
static inline int ch_races(const struct ch_worker *w)
{
    return CH_TSAN && w->races;
}

/* The worker of this thread, made at its first use; NULL without memory. */
struct ch_worker *ch_worker_get(void);
/* At the end of a thread that may have been one. */
void ch_worker_leave(void);
void ch_worker_free(struct ch_worker *w);
/* Runs one block.  cudaSuccess, or what went wrong, which is reported. */
cudaError_t ch_block_run(struct ch_worker *w, const struct ch_kernel *k, uint3 block);
/* For what threads of the block wait for (block.c, warp.c): the running one waits until somebody
 * makes it ready; lanes are; those that asked for the active lanes are answered, 1 if any did. */
void ch_wait_turn(struct ch_worker *w);
void ch_make_ready(struct ch_worker *w, uint32_t warp, unsigned lanes);
int ch_answer_activemask(struct ch_worker *w);
/* Before a block, and with the worker (async.c). */
void ch_async_reset(struct ch_worker *w);
void ch_async_free(struct ch_worker *w);
/* Called where a fault of the running kernel lands (on its fiber). */
void ch_block_fault(void) __attribute__((noreturn));
/* Faults of kernels are handled on a stack of their own. */
int ch_fault_stack(struct ch_worker *w);
void ch_fault_stack_free(struct ch_worker *w);
/* "kernel k, block (1,0,0), thread (5,0,0)" */
void ch_describe_thread(const struct ch_worker *w, uint32_t thread, char *text, size_t size);

/* Runs a whole grid, with the help of others, and returns when it has ended. */
cudaError_t ch_grid_run(const struct ch_kernel *k);
void ch_grid_stop(void);

#endif
