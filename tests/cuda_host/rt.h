/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the simulated device that all of its runtime shares, and how every call begins and
 * ends.  One lock protects it; ThreadSanitizer is not told of it (sanitize.h).
 */
#ifndef CH_RT_H
#define CH_RT_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/cuda_host/control.h"
#include "tests/cuda_host/device.h"
#include "tests/cuda_host/sanitize.h"

enum ch_setting {
    CH_DEVICES,
    CH_DRIVER,
    CH_SM,
    CH_SMS,
    CH_MEMORY,
    CH_GRANULE,
    CH_PINNED,
    CH_WORKERS,
    CH_DELAY,
    CH_SEED,
    CH_H2D,
    CH_D2H,
    CH_D2D,
    CH_KERNEL_NS,
    CH_NULL_KERNELS,
    CH_NULL_DEVICE,
    CH_CHECK_READS,
    CH_RACES,
    CH_QUIET,
    CH_EXIT,
    CH_SETTINGS,
};

enum ch_direction { CH_TO_DEVICE, CH_TO_HOST, CH_ON_DEVICE, CH_ON_HOST };

struct ch_rt {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* anything that somebody may wait for */
    int64_t setting[CH_SETTINGS];
    /* The context. */
    cudaError_t lost;    /* the error after which nothing works until cudaDeviceReset() */
    cudaError_t pending; /* of an operation that ran on a stream, for who asks next */
    uint64_t bad_captures;
    struct cuda_host_stats stats;
    uint32_t kernels_running, copies_running;
    uint64_t busy_since;
};

extern struct ch_rt ch_rt;

void ch_lock(void);
void ch_unlock(void);
/* With the lock held; until something has happened. */
void ch_wait(void);
void ch_wait_on(pthread_cond_t *cond);
void ch_progress(void);

int64_t ch_get(enum ch_setting s);

/* Counts and prints.  Any thread, lock held or not. */
void ch_report(enum cuda_host_report kind, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* What a call may do. */
enum {
    CH_ANY = 0,
    CH_SYNC = 1,       /* waits or asks for work: errors must have been looked at by then */
    CH_RELEASE = 2,    /* an injected failure does not keep it from doing its work */
    CH_QUIET_CALL = 4, /* works without a context, and is never made to fail */
    CH_UNTIMED = 8,    /* does not end in ch_leave() */
};

/* The error that the call must return without doing anything, or cudaSuccess. */
cudaError_t ch_enter(const char *name, int flags);
/* `e`, noted for cudaGetLastError(). */
cudaError_t ch_leave(const char *name, cudaError_t e);

/* One operation that is about to run on a stream: the error that it is to end with. */
cudaError_t ch_next_operation(void);
/* An operation has failed: with the lock held. */
void ch_operation_failed(cudaError_t e);
/* What a call that waits returns, and forgets: with the lock held. */
cudaError_t ch_take_pending(void);
int ch_is_sticky(cudaError_t e);
const char *ch_error_name(cudaError_t e);

/* Busy times and overlaps; `which` as in the statistics.  Lock held. */
void ch_busy(int kernels, int copies);

/* Handles of streams, events and graphs: which of them exist. */
enum ch_handle_kind { CH_NO_HANDLE, CH_STREAM, CH_EVENT, CH_GRAPH, CH_EXEC };
int ch_handle_add(enum ch_handle_kind kind, void *handle);
void ch_handle_remove(void *handle);
/* Lock held. */
int ch_handle_is(enum ch_handle_kind kind, const void *handle);
void *ch_handle_any(enum ch_handle_kind kind);
uint32_t ch_handle_count(enum ch_handle_kind kind);
/* 1, or reports that it is none (any more).  Lock held. */
int ch_handle_check(enum ch_handle_kind kind, const void *handle, const char *call);

void ch_sleep_until(uint64_t ns);
void ch_sleep_ns(uint64_t ns);
uint64_t ch_random(uint64_t *state);

/* Hooks of the parts, for the beginning and the end of the library and cudaDeviceReset(). */
void ch_fault_install(void);
void ch_fault_remove(void);
void ch_streams_end(void);
void ch_graphs_end(void);
void ch_memory_end(int report);
void ch_driver_end(int report);

#endif
