/* SPDX-License-Identifier: Apache-2.0
 *
 * What compiled kernels (C++) and the runtime of the simulated device (C) know of each other: the
 * state of the thread that runs, the operations that threads of a block do together, and a launch.
 */
#ifndef CH_DEVICE_H
#define CH_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ch_worker;

/* Of the operating system thread; the parts above `worker` change with every switch of fibers. */
struct ch_self {
    uint3 thread_idx, block_idx;
    dim3 block_dim, grid_dim;
    void *dynamic_shared;
    unsigned lane;
    struct ch_worker *worker; /* NULL outside of kernels */
    int last_error;           /* what cudaGetLastError() says */
    int error_seen;           /* the plugin has asked for it */
    int in_host_func;
    const char *error_call; /* the call that left last_error */
    /* In a call of the runtime, since when, and how long in all. */
    int in_call;
    uint64_t call_since_ns, calls_ns;
};

#ifdef __cplusplus
extern __thread __attribute__((visibility("hidden"))) struct ch_self ch_self;
#else
extern _Thread_local __attribute__((visibility("hidden"))) struct ch_self ch_self;
#endif

/* Operations of the lanes of a warp.  Shuffles take the distance or the lane as `arg`. */
enum ch_warp_op {
    CH_SYNCWARP,
    CH_SHFL,
    CH_SHFL_XOR,
    CH_SHFL_UP,
    CH_SHFL_DOWN,
    CH_BALLOT,
    CH_MATCH_ANY,
    CH_MATCH_ALL,
    CH_REDUCE_ADD,
    CH_REDUCE_MIN,
    CH_REDUCE_MAX,
    CH_REDUCE_MIN_U,
    CH_REDUCE_MAX_U,
    CH_REDUCE_OR,
    CH_REDUCE_AND,
    CH_REDUCE_XOR,
    CH_ACTIVEMASK,
};

enum ch_block_op { CH_BARRIER, CH_BARRIER_OR, CH_BARRIER_AND, CH_BARRIER_COUNT };

struct ch_site {
    const char *what, *file;
    int line;
};

/* The site stays readable until the call returns. */
uint64_t ch_warp(enum ch_warp_op op, const struct ch_site *site, unsigned mask, uint64_t value,
                 int arg, int width);
int ch_block(enum ch_block_op op, const struct ch_site *site, int predicate);
void ch_nanosleep(unsigned ns);

/* A copy to shared memory that the running thread has begun; group: how many it had committed. */
struct ch_async_copy {
    void *to;
    const void *from; /* NULL: zeros */
    uint32_t bytes, group;
};
/* 1: it lands now, which is the caller's to do. */
int ch_async_begin(void *to, const void *from, uint32_t bytes);
void ch_async_commit(void);
/* The next one, of all but the newest n groups, that has not landed, for the caller to land; NULL:
 * none. */
const struct ch_async_copy *ch_async_due(uint32_t n);

/* Ends the grid as a device exception does: `error` is what later calls return, `report` of enum
 * cuda_host_report. */
void ch_trap(cudaError_t error, int report, const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4), noreturn))
#endif
    ;
uint64_t ch_clock_ns(void);

struct ch_kernel {
    const char *name;
    const void *func;
    void (*call)(const void *args);
    void *args; /* of malloc, owned */
    size_t args_size;
    const void *const *pointers; /* the arguments that are pointers, in `args`' block */
    uint32_t n_pointers;
    dim3 grid, block;
    size_t shared;
};

/* Takes `k->args` over, whatever it returns. */
cudaError_t ch_launch(const struct ch_kernel *k, cudaStream_t stream);
/* A call of the runtime begins, which ch_launch() or ch_call_over() ends. */
void ch_call_begins(void);
void ch_call_over(void);

#ifdef __cplusplus
}
#endif
#endif
