/* SPDX-License-Identifier: Apache-2.0
 *
 * Pinned worker threads.  The caller's thread is worker 0 of every region.
 *
 * Workers spin for a bounded time, then sleep; they never spin when there are fewer CPUs than
 * workers.
 */
#ifndef ATSI_CORE_POOL_H
#define ATSI_CORE_POOL_H

#include "atsinfer/plugin.h"

struct atsi_pool;

struct atsi_pool_params {
    uint32_t n_threads;   /* >= 1, worker 0 included */
    const uint32_t *cpus; /* n_threads OS indices to pin to; NULL: not pinned */
    uint64_t spin_ns;     /* before sleeping; 0: sleep at once */
    int nice;             /* added to the nice value of workers, but for worker 0 */
};

/* Starts no thread yet.  ATSI_ENOMEM. */
int atsi_pool_open(const struct atsi_pool_params *p, struct atsi_pool **out, struct atsi_err *err);
/* Waits for the workers to end.  NULL is allowed. */
void atsi_pool_close(struct atsi_pool *pool);

/* Number of workers the next region uses, 1..n_threads. */
int atsi_pool_set_active(struct atsi_pool *pool, uint32_t n, struct atsi_err *err);
uint32_t atsi_pool_active(const struct atsi_pool *pool);
/* Another spin_ns.  ATSI_EINVAL inside a region. */
int atsi_pool_set_spin(struct atsi_pool *pool, uint64_t spin_ns, struct atsi_err *err);

/* Runs fn(arg, worker) on each active worker; returns when all are done.  Starts threads on first
 * use.  ATSI_ENOMEM when scratch or a thread cannot be had: fn did not run.  The floating-point
 * environment of workers is the default (no flush-to-zero).  [one thread at a time] */
int atsi_pool_region(struct atsi_pool *pool, void (*fn)(void *arg, struct atsi_worker *w),
                     void *arg, size_t scratch_bytes);

#endif
