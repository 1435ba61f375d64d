/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin interface: everything that crosses the boundary of a shared object.
 *
 * A plugin exports one symbol, atsi_plugin_entry, which returns its descriptor.  It links to
 * nothing of ours: services arrive in struct atsi_host.  Every struct starts with its size and
 * grows only by appending members; both sides read no further than the peer's struct_size.
 */
#ifndef ATSINFER_PLUGIN_H
#define ATSINFER_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include "atsinfer/op.h"
#include "atsinfer/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATSI_ABI_MAJOR 0u /* 0: minors must match; 1.0 is frozen once the hybrid path is done */
#define ATSI_ABI_MINOR 3u
#define ATSI_PLUGIN_MAGIC 0x49535441u /* "ATSI", little-endian */
#define ATSI_PLUGIN_ENTRY "atsi_plugin_entry"

/* True when the peer's table reaches `member` and fills it. */
#define ATSI_HAS(ops, type, member)                                                                \
    ((ops)->struct_size >= offsetof(type, member) + sizeof((ops)->member) && (ops)->member != NULL)

/* ---------------------------------------------------------------- capabilities of this CPU */
/* Bits of atsi_host.cpu_caps: the instruction set is there, the OS saves its registers, and the
 * user did not mask it. */
#define ATSI_CPU_SSE42 (UINT64_C(1) << 0)
#define ATSI_CPU_AVX (UINT64_C(1) << 1)
#define ATSI_CPU_F16C (UINT64_C(1) << 2)
#define ATSI_CPU_FMA (UINT64_C(1) << 3)
#define ATSI_CPU_AVX2 (UINT64_C(1) << 4)
#define ATSI_CPU_BMI2 (UINT64_C(1) << 5)
#define ATSI_CPU_AVX_VNNI (UINT64_C(1) << 6)
#define ATSI_CPU_AVX512F (UINT64_C(1) << 7)
#define ATSI_CPU_AVX512BW (UINT64_C(1) << 8)
#define ATSI_CPU_AVX512DQ (UINT64_C(1) << 9)
#define ATSI_CPU_AVX512VL (UINT64_C(1) << 10)
#define ATSI_CPU_AVX512VNNI (UINT64_C(1) << 11)
#define ATSI_CPU_AVX512VBMI (UINT64_C(1) << 12)
#define ATSI_CPU_AVX512BF16 (UINT64_C(1) << 13)
#define ATSI_CPU_AVX512FP16 (UINT64_C(1) << 14)
#define ATSI_CPU_AMX_TILE (UINT64_C(1) << 15)
#define ATSI_CPU_AMX_INT8 (UINT64_C(1) << 16)
#define ATSI_CPU_AMX_BF16 (UINT64_C(1) << 17)

/* Bits of atsi_host.cpu_tune: legal here but slow. */
#define ATSI_TUNE_SLOW_GATHER (UINT64_C(1) << 0)
#define ATSI_TUNE_SLOW_512                                                                         \
    (UINT64_C(1) << 1) /* 512-bit registers on 256-bit units, or clock loss */

/* ---------------------------------------------------------------- host services */
enum atsi_log_level {
    ATSI_LOG_ERROR = 0,
    ATSI_LOG_WARN = 1,
    ATSI_LOG_INFO = 2,
    ATSI_LOG_DEBUG = 3
};

/* One worker's view inside a parallel region. */
struct atsi_worker {
    uint32_t struct_size;
    uint32_t tid, n_threads; /* tid 0 is the calling thread */
    void *scratch;           /* scratch_bytes of this worker's own, 64-byte aligned; or NULL */
    /* Cheap barrier over all workers of the region; orders memory. */
    void (*barrier)(struct atsi_worker *w);
};

/* Services the core lends to a plugin.  [borrowed: valid from entry() until fini() returns] */
struct atsi_host {
    uint32_t struct_size;
    uint32_t abi_major, abi_minor; /* what the running core speaks */
    uint64_t cpu_caps;             /* ATSI_CPU_* */
    uint64_t cpu_tune;             /* ATSI_TUNE_* */
    void *ctx;                     /* the core's; first argument of the functions below */
    /* [any thread] */
    void (*log)(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
        ATSI_PRINTF(4, 5);
    /* Value of a declared parameter as text (its default when unset), or NULL when undeclared.
     * [any thread]  [borrowed until fini()] */
    const char *(*param_get)(void *ctx, const char *plugin, const char *key);
    /* Runs fn once on each worker and returns when all are done.  Scratch is reused from region to
     * region, so a steady size costs no allocation.  ATSI_ENOMEM: fn did not run.  [engine thread]
     */
    int (*region)(void *ctx, void (*fn)(void *arg, struct atsi_worker *w), void *arg,
                  size_t scratch_bytes);
    /* Workers the next region will have.  [engine thread] */
    uint32_t (*n_threads)(void *ctx);
    /* The engine's clock, nanoseconds: monotonic, or the simulator's.  [any thread] */
    uint64_t (*now_ns)(void *ctx);
    /* First (data) and second cache of the CPUs that workers run on, in bytes: a worker's share
     * where several use one, the smallest where they differ.  0: not known. */
    uint64_t l1d_bytes, l2_bytes;
};

/* ---------------------------------------------------------------- backend */
struct atsi_backend;
struct atsi_queue;
struct atsi_event;
struct atsi_buf;
struct atsi_transfer;

enum atsi_device_kind { ATSI_DEVICE_CPU = 1, ATSI_DEVICE_GPU = 2, ATSI_DEVICE_SIM = 3 };

enum atsi_mem {
    ATSI_MEM_DEVICE = 1, /* the device's own memory (for a CPU: plain host memory) */
    ATSI_MEM_PINNED = 2  /* host memory the device can read directly */
};

struct atsi_props {
    uint32_t struct_size;
    uint32_t device_kind;                     /* enum atsi_device_kind */
    char name[64];                            /* "cpu_avx2", "NVIDIA ..." */
    char detail[128];                         /* variants in use: "AVX-512 VNNI, 2 threads" */
    uint64_t mem_total_bytes, mem_free_bytes; /* 0: not known */
    uint32_t buf_align_bytes;                 /* buffers start at multiples of this */
    uint32_t buf_pad_bytes;                   /* kernels may read this far past a row's end */
    /* 1: products are faster on ATSI_LAYOUT_PANELS than on rows.  Asked of the CPU that computes a
     * session: the engine then packs weights on its own, where all devices' supports() takes them.
     * 0: not faster, or not known. */
    uint32_t prefers_panels;
};

/* Work to queue: ops in order, after all of `wait`, before `signal` fires. */
struct atsi_split {
    uint32_t struct_size;
    uint32_t n_ops, n_wait;
    const struct atsi_op *const *ops;
    struct atsi_event *const *wait;
    struct atsi_event *signal; /* may be NULL */
    uint64_t graph_key; /* same non-zero key = same ops, shapes and addresses, but for attn.n_kv:
                         * derived data (a captured graph) may be reused; 0 = no promise */
    uint64_t *op_ns;    /* may be NULL; else n_ops measured times, valid once signal fired */
};

/* One compute device.  Times are nanoseconds, sizes are bytes, shapes are in elements.
 * All functions: [one thread per backend at a time], except probe and supports: [any thread]. */
struct atsi_backend_ops {
    uint32_t struct_size;
    /* Number of usable devices (0 is normal) or ATSI_E*.  No context, no thread, no allocation. */
    int (*probe)(const struct atsi_host *host);
    int (*open)(const struct atsi_host *host, int index, struct atsi_backend **out,
                struct atsi_err *err);
    void (*close)(struct atsi_backend *be); /* waits for queued work; NULL is allowed */
    int (*props)(const struct atsi_backend *be, struct atsi_props *out); /* out->struct_size set */
    /* 1 if run() would accept `op`, 0 if not.  Tensor data pointers may be NULL.  Pure. */
    int (*supports)(const struct atsi_backend *be, const struct atsi_op *op);
    /* [owned by caller: free with buf_free] */
    int (*buf_alloc)(struct atsi_backend *be, enum atsi_mem mem, size_t bytes,
                     struct atsi_buf **out, struct atsi_err *err);
    void (*buf_free)(struct atsi_backend *be, struct atsi_buf *buf);
    void *(*buf_ptr)(const struct atsi_buf *buf); /* address for atsi_tensor.data */
    int (*queue_open)(struct atsi_backend *be, struct atsi_queue **out, struct atsi_err *err);
    void (*queue_close)(struct atsi_queue *q); /* waits for queued work; NULL is allowed */
    int (*event_open)(struct atsi_backend *be, struct atsi_event **out, struct atsi_err *err);
    void (*event_close)(struct atsi_event *ev); /* NULL is allowed */
    /* Queues a split; returns at once on asynchronous devices, after the work on synchronous ones.
     * ATSI_ENOTSUP (an op supports() refuses) leaves everything untouched. */
    int (*run)(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err);
    /* Host waits; spins for spin_ns, then blocks.  Reports errors of the work before the event. */
    int (*event_wait)(struct atsi_event *ev, uint64_t spin_ns, struct atsi_err *err);
    /* 1: fired; 0: not yet; or ATSI_E*. */
    int (*event_query)(const struct atsi_event *ev);
    /* When the event fired on the engine's clock. */
    int (*event_time)(const struct atsi_event *ev, uint64_t *ns_out);
    /* The functions below may be NULL: the device does not need them. */
    /* Queues memory of the device set to `value`, before `signal` fires (may be NULL). */
    int (*fill)(struct atsi_queue *q, void *dst, int value, size_t bytes, struct atsi_event *signal,
                struct atsi_err *err);
    /* Makes the device able to read [ptr, ptr + bytes) of host memory at the full rate of the link,
     * until host_unregister.  ATSI_ENOMEM, ATSI_ENOTSUP: not here, not so much, or not this memory
     * (a read-only mapping); all of it stays usable, slower. */
    int (*host_register)(struct atsi_backend *be, void *ptr, size_t bytes, struct atsi_err *err);
    void (*host_unregister)(struct atsi_backend *be, void *ptr);
    /* A range of addresses without memory, for buf_commit.  [owned by caller: free with buf_free]
     */
    int (*buf_reserve)(struct atsi_backend *be, size_t bytes, struct atsi_buf **out,
                       struct atsi_err *err);
    /* Gives the first `bytes` of a reserved buffer memory, and takes that of the rest away; what
     * stays keeps its contents.  No queued work may touch what goes. */
    int (*buf_commit)(struct atsi_backend *be, struct atsi_buf *buf, size_t bytes,
                      struct atsi_err *err);
};

/* ---------------------------------------------------------------- transfer engine */
struct atsi_channel {
    uint32_t struct_size;
    const char *name;      /* "copy_engine", "copy_kernel", "memcpy" */
    uint32_t uses_compute; /* 1: copies run on a compute queue, in its order */
};

struct atsi_range {
    const void *src;
    void *dst;
    size_t bytes;
};

/* A list of ranges moved as one transfer. */
struct atsi_copyv {
    uint32_t struct_size;
    uint32_t n_ranges, n_wait;
    const struct atsi_range *ranges; /* [borrowed until the signal fires] */
    struct atsi_event *const *wait;
    struct atsi_event *signal;            /* may be NULL */
    const struct atsi_modelled *modelled; /* NULL, or what a simulator takes */
    uint64_t *copy_ns; /* may be NULL; else the measured time, valid once signal fired */
};

/* Moves bytes between the memories of two backends over named channels. */
struct atsi_transfer_ops {
    uint32_t struct_size;
    int (*open)(const struct atsi_host *host, struct atsi_backend *src, struct atsi_backend *dst,
                struct atsi_transfer **out, struct atsi_err *err);
    void (*close)(struct atsi_transfer *tx); /* waits for queued copies; NULL is allowed */
    /* Number of channels; *out their descriptions.  [borrowed until close] */
    int (*channels)(const struct atsi_transfer *tx, const struct atsi_channel *const **out);
    /* Queues a transfer on `channel`, in order there.  q: the compute queue of a channel that
     * uses_compute, else NULL.  Overlapping ranges: ATSI_EINVAL, nothing is copied. */
    int (*copyv)(struct atsi_transfer *tx, uint32_t channel, struct atsi_queue *q,
                 const struct atsi_copyv *req, struct atsi_err *err);
};

/* ---------------------------------------------------------------- descriptor */
enum atsi_kind {
    ATSI_KIND_BACKEND = 1,  /* ops: struct atsi_backend_ops */
    ATSI_KIND_TRANSFER = 2, /* ops: struct atsi_transfer_ops */
    ATSI_KIND_POLICY = 3,   /* ops: struct atsi_policy_ops (policy.h) */
    ATSI_KIND_LOADER = 4    /* ops: struct atsi_loader_ops (loader.h) */
};

enum atsi_param_type {
    ATSI_PARAM_BOOL = 1,
    ATSI_PARAM_INT,
    ATSI_PARAM_FLOAT,
    ATSI_PARAM_SIZE, /* bytes, with KiB/MiB/GiB suffixes */
    ATSI_PARAM_CHOICE,
    ATSI_PARAM_TEXT
};

/* A setting of a plugin: [plugin.NAME] key in the ini. */
struct atsi_param {
    uint32_t struct_size;
    uint32_t type;       /* enum atsi_param_type */
    const char *key;     /* [a-z0-9_]+ */
    const char *def;     /* default, as text */
    const char *choices; /* CHOICE: "a|b|c"; numbers: "min..max"; else NULL */
    const char *unit;    /* or NULL */
    const char *help;    /* one sentence */
};

struct atsi_component {
    uint32_t struct_size;
    uint32_t kind;    /* enum atsi_kind */
    const char *name; /* [a-z0-9_]+, unique per kind */
    const void *ops;  /* table of that kind; static storage in the plugin */
};

#define ATSI_PLUGIN_RESIDENT (1u << 0) /* never dlclose me (e.g. a driver runs atexit handlers) */

struct atsi_plugin {
    uint32_t struct_size;
    uint32_t magic;                /* ATSI_PLUGIN_MAGIC */
    uint32_t abi_major, abi_minor; /* what the plugin was compiled against */
    uint32_t flags;                /* ATSI_PLUGIN_* */
    const char *name, *version, *license;
    const struct atsi_param *const *params;         /* NULL-terminated; or NULL */
    const struct atsi_component *const *components; /* NULL-terminated */
    void (*fini)(void);                             /* may be NULL; every handle is closed by now */
};

/* The one exported symbol.  Compiled for the baseline CPU; touches no device, allocates nothing.
 * NULL means "not for this machine"; *why then points to a static sentence saying why. */
ATSI_EXPORT const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host,
                                                        const char **why);
typedef const struct atsi_plugin *atsi_plugin_entry_fn(const struct atsi_host *host,
                                                       const char **why);

#ifdef __cplusplus
}
#endif
#endif
