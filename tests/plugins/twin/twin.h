/* SPDX-License-Identifier: Apache-2.0
 *
 * A test accelerator: the reference kernels behind queues that really run at their own pace, with
 * memory of its own.
 *
 * It is stricter than any device: device memory begins as NaNs, kernels and copy kernels refuse
 * addresses that are not the device's or pinned, queued work reads host memory as late as its turn
 * comes, random delays (delay_us, seed) shuffle the queues, and what waits for an event that
 * nothing signals is an error instead of no wait.  Failures can be asked for: see entry.c.
 */
#ifndef TWIN_H
#define TWIN_H

#include <pthread.h>
#include <stdbool.h>

#include "atsinfer/plugin.h"
#include "atsinfer/policy.h"

/* ---- entry.c: settings, and failures as asked for */
enum twin_call {
    TWIN_OPEN = 0,
    TWIN_ALLOC,  /* device memory */
    TWIN_PIN,    /* pinned memory, host_register */
    TWIN_OBJECT, /* queues, events, transfers */
    TWIN_QUEUE,  /* run, copyv, fill: refused when called */
    TWIN_WAIT,   /* event_wait */
    TWIN_WORK,   /* queued work, when its turn comes */
    TWIN_N_CALLS
};

/* ATSI_OK, or the failure that the settings ask of this call. */
int twin_call(const struct atsi_host *host, enum twin_call call, struct atsi_err *err);
uint64_t twin_number(const struct atsi_host *host, const char *key);

/* ---- memory.c: what addresses mean */
enum twin_mem { TWIN_UNKNOWN = 0, TWIN_DEVICE, TWIN_PINNED };

struct atsi_buf;
enum twin_mem twin_memory_of(struct atsi_backend *be, const void *p, size_t bytes);
int twin_buf_alloc(struct atsi_backend *be, enum atsi_mem mem, size_t bytes, struct atsi_buf **out,
                   struct atsi_err *err);
void twin_buf_free(struct atsi_backend *be, struct atsi_buf *buf);
void *twin_buf_ptr(const struct atsi_buf *buf);
int twin_buf_reserve(struct atsi_backend *be, size_t bytes, struct atsi_buf **out,
                     struct atsi_err *err);
int twin_buf_commit(struct atsi_backend *be, struct atsi_buf *buf, size_t bytes,
                    struct atsi_err *err);
int twin_host_register(struct atsi_backend *be, void *ptr, size_t bytes, struct atsi_err *err);
void twin_host_unregister(struct atsi_backend *be, void *ptr);

/* ---- queue.c: work in order */
struct atsi_event {
    struct atsi_backend *be;
    uint64_t queued,
        fired; /* tickets: of the newest work that signals it, and of the newest done */
    uint64_t ns;
};

struct twin_task {
    struct twin_task *next;
    int (*fn)(struct twin_task *t, struct atsi_err *err); /* on the queue's thread */
    void (*done)(struct twin_task *t);                    /* frees it */
    uint32_t n_wait;
    struct atsi_event *wait[8];
    uint64_t wait_ticket[8];
    struct atsi_event *signal;
    uint64_t ticket;
    uint64_t *took_ns; /* or NULL */
};

struct twin_queue;
int twin_queue_open(struct atsi_backend *be, struct twin_queue **out, struct atsi_err *err);
void twin_queue_close(struct twin_queue *q); /* after all of its work */
/* Takes the task; on failure it is the caller's. */
int twin_queue_add(struct twin_queue *q, struct twin_task *t, struct atsi_event *const *wait,
                   uint32_t n_wait, struct atsi_event *signal, struct atsi_err *err);
struct twin_queue *twin_queue_of(struct atsi_queue *q);

int twin_event_open(struct atsi_backend *be, struct atsi_event **out, struct atsi_err *err);
void twin_event_close(struct atsi_event *ev);
int twin_event_wait(struct atsi_event *ev, uint64_t spin_ns, struct atsi_err *err);
int twin_event_query(const struct atsi_event *ev);
int twin_event_time(const struct atsi_event *ev, uint64_t *ns_out);

/* ---- device.c */
struct twin_block;
struct twin_shared {
    const struct atsi_host *host;
    pthread_mutex_t lock; /* of everything below and of all events */
    pthread_cond_t changed;
    bool lost;
    char why[508];
    struct twin_block *blocks;
    uint64_t used, limit, pinned, pin_limit; /* bytes */
    uint64_t random, delay_us;
    struct twin_compute *compute;
};
struct twin_shared *twin_shared(const struct atsi_backend *be);
extern const struct atsi_backend_ops twin_backend_ops;

/* ---- compute.c: the reference kernels, on one thread */
struct twin_compute;
struct twin_compute *twin_compute_open(const struct atsi_host *host);
void twin_compute_close(struct twin_compute *c);
int twin_compute_supports(const struct twin_compute *c, const struct atsi_op *op);
int twin_compute_run(struct twin_compute *c, const struct atsi_split *split, struct atsi_err *err);

/* ---- random.c: a policy of legal answers without sense */
void twin_random_open(const struct atsi_host *host);
extern const struct atsi_policy_ops twin_random_ops;

/* ---- transfer.c */
extern const struct atsi_transfer_ops twin_transfer_ops;

#endif
