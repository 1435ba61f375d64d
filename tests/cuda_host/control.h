/* SPDX-License-Identifier: Apache-2.0
 *
 * Control of the simulated CUDA device: what tests set and read.  The plugin `cuda_host` exports
 * one symbol, cuda_host_control(), to be found with dlsym.
 *
 * Settings are read from the environment when the library is loaded, CUDA_HOST_<NAME> for
 * each name below, and can be changed at any time through set().  Names and what they mean:
 *
 *   DEVICES        0 or 1 (1).  0: cudaErrorNoDevice
 *   DRIVER         version of the driver (that of the toolkit); 0: no driver, an older one than the
 *                  runtime: cudaErrorInsufficientDriver
 *   SM             compute capability, 75 to 121 (80)
 *   SMS            multiprocessors (4)
 *   MEMORY         bytes of device memory (1g); suffixes k, m, g
 *   GRANULE        granularity of mapped memory, bytes (2m)
 *   PINNED         most bytes of pinned host memory (no limit: -1)
 *   WORKERS        threads that run the blocks of one kernel, 1 to 8 (2)
 *   DELAY          most microseconds that a stream waits, at random, before an operation (0)
 *   SEED           of delays and of the order of the nodes of a graph (1)
 *   H2D, D2H, D2D  bytes per second that a copy takes at least (0: no limit)
 *   KERNEL_NS      nanoseconds that a kernel takes at least (0)
 *   NULL_KERNELS   1: kernels do nothing
 *   NULL_DEVICE    1: kernels, graphs, copies and fills do nothing and take no time: what is queued
 *                  is over when the call returns, on the thread that called, and memory reads as
 *                  zero.  What is left is the host's own work
 *   CHECK_READS    1: copies out of device memory that was never written are reported (1)
 *   RACES          1: in ThreadSanitizer builds, threads of a block are ordered by barriers alone,
 *                  so that races between them are reported (0)
 *   FAIL           a call that fails, see fail(): [name:]n:error[:async], error a number or a name
 *   QUIET          1: reports are counted, not printed (0)
 *   EXIT           exit status of a process with unread reports (86); 0: unchanged
 */
#ifndef CUDA_HOST_CONTROL_H
#define CUDA_HOST_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum cuda_host_report {
    CUDA_HOST_DIVERGENT,     /* threads that do not meet at a barrier or in a shuffle */
    CUDA_HOST_OUT_OF_BOUNDS, /* an access or a copy beyond an allocation, or to no allocation */
    CUDA_HOST_AFTER_FREE,    /* of memory, a stream, an event, a graph */
    CUDA_HOST_UNINITIALISED, /* a copy out of device memory nobody wrote */
    CUDA_HOST_UNCHECKED,     /* an error nobody asked for by the next synchronisation */
    CUDA_HOST_LEAK,          /* left at the end */
    CUDA_HOST_MISUSE,        /* default stream, calls from a host function, ... */
    CUDA_HOST_REPORTS,
};

struct cuda_host_stats {
    size_t device_bytes, device_peak; /* in use, of MEMORY */
    size_t pinned_bytes, pinned_peak;
    uint64_t kernels, blocks, copies[3]; /* host to device, to host, on the device */
    uint64_t copied_bytes[3];
    uint64_t pageable_copies; /* of unregistered host memory, which hold the host up */
    uint64_t graph_launches;
    uint64_t busy_ns[3];              /* copy engine to device, to host; kernels */
    uint64_t overlap_ns;              /* a copy engine and a kernel at once */
    uint32_t streams, events, graphs; /* alive */
};

struct cuda_host_control {
    uint32_t struct_size;
    /* 0, or -1 for an unknown name or a value that cannot be. */
    int (*set)(const char *name, const char *value);
    /* All settings, counters, reports and errors as after loading.  Memory stays. */
    void (*reset)(void);
    /* Of runtime calls, by name ("cudaMalloc", "launch" for kernels) or all of them (NULL). */
    uint64_t (*calls)(const char *name);
    /* The n-th (1: the next) of the calls `name` (NULL: of all) returns `error` and does nothing
     * else.  `async`: it is the n-th operation that runs on a stream instead, as with a fault on
     * the device, and whoever asks next learns of it.  Errors after which a context is lost stay
     * until cudaDeviceReset().  One failure at a time; n = 0 removes it. */
    void (*fail)(const char *name, uint64_t n, int error, int async);
    /* Whether the failure asked for has happened. */
    int (*failed)(void);
    void (*stats)(struct cuda_host_stats *stats);
    uint64_t (*reports)(enum cuda_host_report kind);
    /* The last report, "" without one. */
    const char *(*last_report)(void);
    /* Takes reports as read. */
    void (*clear_reports)(void);
    /* Nanoseconds that the calling thread has spent in runtime calls since the library was loaded,
     * and whether it is in one now.  cuMem... calls, which only allocate, are left out. */
    uint64_t (*driver_ns)(void);
    int (*inside)(void);
};

const struct cuda_host_control *cuda_host_control(void);

#ifdef __cplusplus
}
#endif
#endif
