/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the CUDA plugin's host code and what they share: a device that was opened, its
 * memory, queues and events.  One thread at a time uses a backend and what was opened from it, the
 * transfer engine included, so nothing here takes locks but the list of open backends.
 */
#ifndef CUDA_PLUGIN_H
#define CUDA_PLUGIN_H

#include <stdbool.h>

#include "atsinfer/plugin.h"
#include "op.h"

/* The build for tests runs the same sources on an emulated device, under a name of its own. */
#ifndef CUDA_PLUGIN_NAME
#define CUDA_PLUGIN_NAME "cuda"
#endif

#define CUDA_ALIGN 256u
#define CUDA_MIN_SM 75

static inline bool cuda_add_overflows(size_t a, size_t b)
{
    return a > SIZE_MAX - b;
}

/* ---------------------------------------------------------------- settings (entry.c) */
struct cuda_settings {
    int device;           /* index among CUDA's devices; -1: all of them, in CUDA's order */
    bool graphs;          /* capture splits that come again */
    uint32_t graph_limit; /* captured splits kept per queue */
    bool step;            /* wait after each operation, so that a failure names it */
    uint64_t spin_ns;     /* event_wait() spins at least so long */
    size_t staging_bytes; /* pinned ring for copies from pageable memory; 0: none */
    uint32_t copy_blocks; /* thread blocks of a copy kernel */
    bool fast_half;       /* see struct cuda_device */
    bool fuse;            /* see struct cuda_launch, wanted */
};

void cuda_settings_get(const struct atsi_host *host, struct cuda_settings *out);

/* ---------------------------------------------------------------- address ranges (ranges.c) */
enum cuda_mem {
    CUDA_MEM_PAGEABLE = 0, /* host memory that the device cannot read */
    CUDA_MEM_DEVICE,
    CUDA_MEM_PINNED,    /* host memory of ours, at the same address on both sides */
    CUDA_MEM_REGISTERED /* host memory of a caller, likewise */
};

struct cuda_range {
    uintptr_t from, to;
    enum cuda_mem mem;
};

/* Known memory, ascending, without overlap. */
struct cuda_ranges {
    struct cuda_range *at;
    uint32_t n, cap;
};

/* ATSI_ENOMEM leaves the table as it was. */
int cuda_ranges_add(struct cuda_ranges *t, const void *ptr, size_t bytes, enum cuda_mem mem);
/* Forgets the range that begins at `ptr`. */
void cuda_ranges_remove(struct cuda_ranges *t, const void *ptr);
/* First range that ends behind `from`: t->n when there is none. */
uint32_t cuda_ranges_find(const struct cuda_ranges *t, uintptr_t from);
/* What `ptr` points into, and in *bytes, at most as it was, how far that goes. */
enum cuda_mem cuda_ranges_kind(const struct cuda_ranges *t, const void *ptr, size_t *bytes);

/* Host memory that callers registered, as they did; the pinned pieces are in the table. */
struct cuda_registered {
    struct cuda_range *at; /* page-aligned */
    uintptr_t *key;        /* the pointer given */
    uint32_t n, cap;
};

/* ---------------------------------------------------------------- virtual memory (vmm.c) */
/* Driver entry points, found at run time. */
struct cuda_vmm;

/* A reserved range of addresses, of which the first `committed` bytes have memory. */
struct cuda_region;

/* ---------------------------------------------------------------- measured times (timing.c) */
/* Events around pieces of queued work; becomes numbers when the last one has fired.  Kept for the
 * next measurement then, with its events. */
struct cuda_timing {
    struct cuda_timing *next;
    cudaStream_t stream; /* of the work */
    uint64_t *out;       /* [n] nanoseconds between events i and i + 1 */
    uint32_t n, room;
    cudaEvent_t ev[]; /* [room + 1] */
};

/* Host functions of one copy through the staging ring; freed once all have run. */
struct cuda_job;

/* ---------------------------------------------------------------- backend */
struct atsi_backend {
    const struct atsi_host *host;
    struct cuda_device dev;
    struct cuda_settings set;
    char name[64]; /* of the device */
    struct cuda_ranges ranges;
    struct cuda_registered registered;
    struct cuda_vmm *vmm;        /* NULL: plain allocation only */
    struct cuda_timing *spare;   /* for measurements to come, least room first */
    struct cuda_timing *timings; /* queued, oldest first */
    struct cuda_timing **timings_end;
    cudaStream_t clock; /* has never work but `base` and `probe` */
    cudaEvent_t base;   /* fired at base_ns of the engine's clock */
    cudaEvent_t probe;  /* may become a better `base` */
    uint64_t base_ns;
    struct cuda_job *jobs; /* staging.c: left when the device was lost */
    bool lost;
    char lost_why[448];
    struct atsi_backend *next; /* open ones */
};

/* error.c */
/* ATSI_OK for cudaSuccess; else words for the failure, `fmt` being what was tried. */
int cuda_check(struct atsi_backend *be, cudaError_t e, struct atsi_err *err, const char *fmt, ...)
    ATSI_PRINTF(4, 5);
/* The same for a clean-up whose failure changes nothing for the caller. */
void cuda_note(struct atsi_backend *be, cudaError_t e, const char *what);
/* Makes the device current.  ATSI_ELOST: it was lost earlier. */
int cuda_enter(struct atsi_backend *be, struct atsi_err *err);
/* Whether only a new context can help. */
bool cuda_is_fatal(cudaError_t e);
const char *cuda_op_name(uint32_t kind);
/* The tensor a message names. */
const char *cuda_op_tensor(const struct atsi_op *op);

/* staging.c: once no host function can run any more */
void cuda_jobs_free(struct atsi_backend *be);

/* device.c */
int cuda_probe(const struct atsi_host *host);
int cuda_open(const struct atsi_host *host, int index, struct atsi_backend **out,
              struct atsi_err *err);
void cuda_close(struct atsi_backend *be);
int cuda_props(const struct atsi_backend *be, struct atsi_props *out);
/* Whether `be` is one of ours that is open. */
bool cuda_is_open(const struct atsi_backend *be);

/* memory.c */
int cuda_buf_alloc(struct atsi_backend *be, enum atsi_mem mem, size_t bytes, struct atsi_buf **out,
                   struct atsi_err *err);
int cuda_buf_reserve(struct atsi_backend *be, size_t bytes, struct atsi_buf **out,
                     struct atsi_err *err);
int cuda_buf_commit(struct atsi_backend *be, struct atsi_buf *buf, size_t bytes,
                    struct atsi_err *err);
void cuda_buf_free(struct atsi_backend *be, struct atsi_buf *buf);
void *cuda_buf_ptr(const struct atsi_buf *buf);

/* vmm.c */
/* *out is NULL where the driver or the device cannot do it. */
int cuda_vmm_open(struct atsi_backend *be, struct cuda_vmm **out, struct atsi_err *err);
void cuda_vmm_close(struct cuda_vmm *v);
int cuda_region_open(struct atsi_backend *be, size_t bytes, struct cuda_region **out,
                     struct atsi_err *err);
void cuda_region_close(struct atsi_backend *be, struct cuda_region *r);
int cuda_region_commit(struct atsi_backend *be, struct cuda_region *r, size_t bytes,
                       struct atsi_err *err);
void *cuda_region_ptr(const struct cuda_region *r);
size_t cuda_region_bytes(const struct cuda_region *r);

/* pinned.c */
int cuda_host_register(struct atsi_backend *be, void *ptr, size_t bytes, struct atsi_err *err);
void cuda_host_unregister(struct atsi_backend *be, void *ptr);
void cuda_host_unregister_all(struct atsi_backend *be);

/* ---------------------------------------------------------------- queues and events */
/* A captured split. */
struct cuda_graph {
    uint64_t key, digest;
    const void *scratch;
    uint32_t *attention; /* [n_attention] operations whose positions grow */
    uint32_t n_attention, n_ops;
    uint32_t chain;       /* the next one in its bucket, plus 1; 0: none */
    cudaGraphExec_t exec; /* NULL: seen, not captured yet */
    uint64_t used;        /* tick of the last use */
    bool refused;         /* it cannot be captured */
};

struct cuda_graphs {
    struct cuda_graph *at;
    uint32_t n, cap;
    uint32_t *bucket, n_buckets; /* by key: an entry, plus 1 */
    uint64_t tick;
};

struct atsi_queue {
    struct atsi_backend *be;
    cudaStream_t stream;
    struct atsi_buf *scratch; /* reserved where that is possible, so that it grows in place */
    size_t scratch_bytes;     /* usable */
    struct cuda_rounded rounded;
    struct cuda_graphs graphs;
};

/* What an event stands for, put into words when it is asked for. */
struct cuda_work {
    uint64_t n;
    const char *what;   /* [static] n what: operations, bytes filled */
    const char *op;     /* [static] the last operation, or NULL */
    const char *tensor; /* [borrowed for the call] its result */
};

struct atsi_event {
    struct atsi_backend *be;
    cudaEvent_t ev;
    bool signalled; /* work that fires it has been queued */
    struct cuda_work work;
    char tensor[48];
};

/* queue.c */
int cuda_queue_open(struct atsi_backend *be, struct atsi_queue **out, struct atsi_err *err);
void cuda_queue_close(struct atsi_queue *q);
int cuda_fill(struct atsi_queue *q, void *dst, int value, size_t bytes, struct atsi_event *signal,
              struct atsi_err *err);
/* Waits until nothing is queued; used where a failure must leave nothing under way. */
void cuda_stream_drain(struct atsi_backend *be, cudaStream_t stream);

/* event.c */
int cuda_event_open(struct atsi_backend *be, struct atsi_event **out, struct atsi_err *err);
void cuda_event_close(struct atsi_event *ev);
int cuda_event_wait(struct atsi_event *ev, uint64_t spin_ns, struct atsi_err *err);
int cuda_event_query(const struct atsi_event *ev);
int cuda_event_time(const struct atsi_event *ev, uint64_t *ns_out);
/* ATSI_EINVAL when one of them would never fire. */
int cuda_events_check(struct atsi_event *const *wait, uint32_t n, struct atsi_err *err);
/* Makes the stream wait for all of them. */
int cuda_events_wait(cudaStream_t stream, struct atsi_event *const *wait, uint32_t n,
                     struct atsi_err *err);
/* `ev` (may be NULL) fires when the work queued so far is done. */
int cuda_event_signal(cudaStream_t stream, struct atsi_event *ev, struct atsi_err *err,
                      const struct cuda_work *work);

/* timing.c */
int cuda_clock_open(struct atsi_backend *be, struct atsi_err *err);
void cuda_clock_close(struct atsi_backend *be);
/* When an event that has fired did so on the engine's clock. */
int cuda_clock_of(struct atsi_backend *be, cudaEvent_t ev, uint64_t *ns_out, struct atsi_err *err);
/* A measurement of n pieces into out[n]; events come from the pool. */
int cuda_timing_open(struct atsi_backend *be, uint32_t n, uint64_t *out, struct cuda_timing **t,
                     struct atsi_err *err);
void cuda_timing_drop(struct atsi_backend *be, struct cuda_timing *t);
/* Hands over a measurement whose events are all recorded in `stream`. */
void cuda_timing_queue(struct atsi_backend *be, struct cuda_timing *t, cudaStream_t stream);
/* The stream is empty, or its device lost: nothing is written for its work from now on. */
void cuda_timing_end(struct atsi_backend *be, cudaStream_t stream);
/* Writes the numbers of all measurements whose work is done. */
void cuda_timing_settle(struct atsi_backend *be);

/* ---------------------------------------------------------------- running */
/* run.c */
int cuda_supports(const struct atsi_backend *be, const struct atsi_op *op);
int cuda_run(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err);
/* Queues the ops one by one; times, when given, has an event before the first and after each. */
int cuda_launch_ops(struct atsi_queue *q, const struct atsi_split *split, struct cuda_timing *times,
                    struct atsi_err *err);

/* graph.c */
/* The split's entry, made when there is none; NULL without memory: it runs without a graph. */
struct cuda_graph *cuda_graph_of(struct atsi_queue *q, const struct atsi_split *split);
/* Of what a captured launch depends on, the part that may change under the same key. */
uint64_t cuda_graph_digest(const struct cuda_graph *g, const struct atsi_split *split);
/* Whether the split may be replayed without looking at its ops again. */
bool cuda_graph_ready(const struct atsi_queue *q, const struct cuda_graph *g, uint64_t digest);
/* Queues the split as a captured graph, or *done = false: not this time. */
int cuda_graph_run(struct atsi_queue *q, struct cuda_graph *g, const struct atsi_split *split,
                   uint64_t digest, bool *done, struct atsi_err *err);
void cuda_graphs_clear(struct atsi_queue *q);

#endif
