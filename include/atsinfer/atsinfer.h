/* SPDX-License-Identifier: Apache-2.0
 *
 * The application interface of libatsinfer: a runtime (settings, plugins, topology, workers),
 * models opened through it, and sessions that evaluate tokens.
 *
 * Threads: a runtime and all that was opened through it belong to one thread at a time (the engine
 * thread), unless a function says [any thread].  Ownership: every open() has a close() that accepts
 * NULL; close sessions before their model and models before their runtime.
 */
#ifndef ATSINFER_ATSINFER_H
#define ATSINFER_ATSINFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "atsinfer/loader.h"
#include "atsinfer/plugin.h"
#include "atsinfer/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0"; static.  [any thread] */
ATSI_EXPORT const char *atsi_version(void);
/* "bad argument", "out of memory", ... for a negative status; static.  [any thread] */
ATSI_EXPORT const char *atsi_strerror(int status);
/* Edit distance (insert, delete, replace) of two words, for "did you mean"; UINT32_MAX when one is
 * longer than 63 bytes.  [any thread] */
ATSI_EXPORT uint32_t atsi_edit_distance(const char *a, const char *b);

/* ---------------------------------------------------------------- runtime */
struct atsi_runtime;
struct atsi_model;
struct atsi_session;

/* `msg` has no newline.  May be called from any thread, one call at a time. */
typedef void atsi_log_fn(void *ctx, enum atsi_log_level level, const char *who, const char *msg);

struct atsi_runtime_params {
    uint32_t struct_size;
    const char *config_path;         /* --config; NULL: the usual places */
    const char *const *overrides;    /* NULL-terminated "section.key=value" of the command line, in
                                      * order; or NULL */
    const char *const *plugin_files; /* NULL-terminated --plugin files; or NULL */
    atsi_log_fn *log;                /* NULL: silent */
    void *log_ctx;
    enum atsi_log_level log_level; /* least severe level that is delivered */
};

/* Reads the configuration, discovers topology and plugins, starts workers lazily.
 * ATSI_ECONF: a bad ini, environment or override value, named with its origin. */
ATSI_EXPORT int atsi_runtime_open(const struct atsi_runtime_params *params,
                                  struct atsi_runtime **out, struct atsi_err *err);
ATSI_EXPORT void atsi_runtime_close(struct atsi_runtime *rt);

/* The services lent to plugins; also what tools need to drive a backend by hand.
 * [borrowed until close] */
ATSI_EXPORT const struct atsi_host *atsi_runtime_host(const struct atsi_runtime *rt);

/* ---------------------------------------------------------------- configuration */
struct atsi_conf_entry {
    const char *key;    /* "cpu.threads", "plugin.NAME.KEY" */
    const char *value;  /* in force, as text */
    const char *def;    /* built-in default */
    const char *origin; /* "built-in", "FILE:LINE", "environment ATSINFER_...", "command line" */
    const char *type;   /* "int", "size", "bool", "choice", "text", ... */
    const char *range;  /* "1..4096", "auto|none", or "" */
    const char *help;   /* one sentence */
};

/* Value of a known key as text, or NULL for an unknown key.  [borrowed until close] */
ATSI_EXPORT const char *atsi_runtime_conf(const struct atsi_runtime *rt, const char *key);
/* Calls fn for every known key in the order of the shipped ini; non-zero from fn stops and is
 * returned. */
ATSI_EXPORT int atsi_runtime_conf_each(const struct atsi_runtime *rt,
                                       int (*fn)(void *ctx, const struct atsi_conf_entry *e),
                                       void *ctx);
/* Another value for a setting ("policy.name", "memory.vram", "plugin.policy_dp.algorithm"):
 * sessions opened from now on have it; what the runtime itself was opened with (cpu.*, plugins.*)
 * stays.  Not while a session is open.  ATSI_ECONF: no such key, or not a value of it. */
ATSI_EXPORT int atsi_runtime_set(struct atsi_runtime *rt, const char *key, const char *value,
                                 struct atsi_err *err);

/* ---------------------------------------------------------------- plugins */
struct atsi_plugin_info {
    const char *path;
    const char *name;                 /* from the descriptor, or from the file name when refused */
    const struct atsi_plugin *plugin; /* NULL when refused */
    const char *why;                  /* why it was refused or is unavailable; "" when in use */
};

/* Every file considered, in search order. */
ATSI_EXPORT int atsi_runtime_plugins_each(const struct atsi_runtime *rt,
                                          int (*fn)(void *ctx, const struct atsi_plugin_info *p),
                                          void *ctx);
/* Folders searched, in order, with what was found there ("not there", "3 plugins"). */
ATSI_EXPORT int atsi_runtime_search_each(const struct atsi_runtime *rt,
                                         int (*fn)(void *ctx, const char *dir, const char *origin,
                                                   const char *found),
                                         void *ctx);
/* The ops table of a component, or NULL.  [borrowed until close] */
ATSI_EXPORT const void *atsi_runtime_component(const struct atsi_runtime *rt, enum atsi_kind kind,
                                               const char *name);

/* ---------------------------------------------------------------- machine */
struct atsi_cache_info {
    uint32_t level;     /* 1, 2, 3 */
    uint64_t bytes;     /* of one cache */
    uint32_t n_sharing; /* cores sharing it */
};

struct atsi_cpu_info {
    uint32_t os_index;  /* logical CPU number */
    uint32_t core;      /* physical core, numbered from 0 */
    uint32_t numa_node; /* logical index */
    uint32_t kind;      /* 0: efficiency .. n_kinds-1: performance */
    bool usable;        /* inside affinity mask and cgroup */
};

/* The first (data) and second cache of a CPU; index: level - 1. */
struct atsi_cpu_caches {
    uint64_t bytes[2];     /* of one cache; 0: not known */
    uint32_t first_cpu[2]; /* which one it is: the lowest OS index of its CPUs */
};

struct atsi_topo {
    char cpu_model[128];
    uint32_t n_cpus, n_cores, n_usable_cpus, n_usable_cores, n_numa, n_kinds;
    const struct atsi_cpu_info *cpus; /* n_cpus entries */
    uint32_t n_caches;
    struct atsi_cache_info caches[8]; /* data and unified, smallest level first */
    double cgroup_cpus;               /* CPU time limit of the cgroup in CPUs; 0: none */
    uint64_t mem_total_bytes, mem_available_bytes; /* available: also inside cgroup limits */
    uint64_t page_bytes, huge_page_bytes;
    const struct atsi_cpu_caches *cpu_caches; /* of each of cpus; NULL: not known */
};

/* [borrowed until close] */
ATSI_EXPORT const struct atsi_topo *atsi_runtime_topo(const struct atsi_runtime *rt);
/* Names of the ATSI_CPU_* bits in `caps`, space separated; returns the length needed as snprintf.
 * [any thread] */
ATSI_EXPORT int atsi_cpu_caps_text(uint64_t caps, char *buf, size_t size);
/* ATSI_CPU_* of the running CPU and OS, before cpu.caps_file and cpu.caps_mask.  [any thread] */
ATSI_EXPORT uint64_t atsi_cpu_caps_here(void);

/* Workers: OS index of the CPU each worker is pinned to (-1: not pinned); returns their number. */
ATSI_EXPORT uint32_t atsi_runtime_workers(const struct atsi_runtime *rt, int32_t *cpus_out,
                                          uint32_t max);
/* Sets how many workers the next regions use, 1..what cpu.threads allows. */
ATSI_EXPORT int atsi_runtime_set_threads(struct atsi_runtime *rt, uint32_t n, struct atsi_err *err);

/* ---------------------------------------------------------------- model */
struct atsi_model_params {
    uint32_t struct_size;
    uint32_t no_weights; /* ATSI_NO_WEIGHTS, ATSI_PLAN_ONLY: see struct atsi_load_params */
    int (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes); /* non-zero cancels */
    void *progress_ctx;
};

/* Opens `path` with the first loader that recognises it.  ATSI_ENOENT, ATSI_EIO, ATSI_EFORMAT,
 * ATSI_ENOTSUP (format or architecture), ATSI_ENOFIT. */
ATSI_EXPORT int atsi_model_open(struct atsi_runtime *rt, const char *path,
                                const struct atsi_model_params *params, struct atsi_model **out,
                                struct atsi_err *err);
ATSI_EXPORT void atsi_model_close(struct atsi_model *m);
/* [borrowed until close] */
ATSI_EXPORT const struct atsi_loaded_info *atsi_model_info(const struct atsi_model *m);
ATSI_EXPORT int atsi_model_meta_at(const struct atsi_model *m, uint32_t index,
                                   struct atsi_meta *out);
ATSI_EXPORT int atsi_model_meta_find(const struct atsi_model *m, const char *key,
                                     struct atsi_meta *out);
/* The op graph.  ATSI_ENOTSUP: the file has none (vocabulary, projector, adapter).
 * [borrowed until close] */
ATSI_EXPORT int atsi_model_graph(struct atsi_model *m, const struct atsi_graph **out,
                                 struct atsi_err *err);

/* ---------------------------------------------------------------- session */
struct atsi_session_params {
    uint32_t struct_size;
    uint32_t n_ctx;          /* positions; 0: model.ctx of the configuration */
    uint32_t chunk;          /* tokens per prefill round; 0: prefill.chunk */
    uint32_t type_k, type_v; /* ATSI_TYPE_F16, _F32, _Q8_0; ATSI_TYPE_COUNT: kv.type_k, kv.type_v */
    /* At the first use of a model with an accelerator costs are measured, which takes some seconds
     * (policy.costs): called with what is measured now; may be NULL. */
    void (*measuring)(void *ctx, uint32_t done, uint32_t total, const char *what);
    void *measuring_ctx;
    const volatile int *cancel; /* non-zero ends the opening: ATSI_EINTR; may be NULL */
};

#define ATSI_SESSION_PARAMS_INIT                                                                   \
    {                                                                                              \
        (uint32_t)sizeof(struct atsi_session_params), 0, 0, ATSI_TYPE_COUNT, ATSI_TYPE_COUNT,      \
            NULL, NULL, NULL                                                                       \
    }

/* Memory of a session in bytes, as allocated. */
struct atsi_session_info {
    uint32_t struct_size;
    uint32_t n_ctx, chunk, n_vocab;
    uint32_t type_k, type_v;
    uint64_t kv_bytes, compute_bytes, logits_bytes;
    const char *backend; /* name of the CPU backend in use */
    const char *detail;  /* its variants */
    const char *chosen;  /* why: "measured: cpu_avx512 1.00, cpu_avx2 0.93", "named in FILE:LINE" */
    uint64_t state_bytes; /* recurrent states, part of no KV cache */
    uint32_t can_rewind;  /* 1: atsi_session_truncate() reaches every position */
    uint32_t n_fallbacks; /* times the session went on without its accelerator */
    /* The accelerator: "" and zeros when there is none.  Bytes on it, then counts since the start.
     */
    const char *accel;        /* name of its backend */
    const char *accel_detail; /* of the device */
    uint64_t accel_weights, accel_slots, accel_caches, accel_compute;
    uint64_t pinned_bytes;                    /* of the host's weights */
    uint32_t n_items, n_resident;             /* scheduled items; those that live on it */
    uint64_t n_rounds, n_replans, n_refused;  /* refused: answers of policies */
    uint64_t n_transfers, transfer_bytes;     /* of weights */
    uint64_t n_copies, copy_bytes;            /* of activations */
    uint32_t threads_decode, threads_prefill; /* workers of rounds of one token, and of more */
};

/* ATSI_ENOFIT: context and buffers do not fit the memory there is (the numbers are named). */
ATSI_EXPORT int atsi_session_open(struct atsi_model *m, const struct atsi_session_params *params,
                                  struct atsi_session **out, struct atsi_err *err);
/* What a session would take, without opening one or asking whether it fits; `backend`, `detail` and
 * `chosen` are empty.  For models opened with ATSI_PLAN_ONLY too. */
ATSI_EXPORT int atsi_session_plan(struct atsi_model *m, const struct atsi_session_params *params,
                                  struct atsi_session_info *out, struct atsi_err *err);
ATSI_EXPORT void atsi_session_close(struct atsi_session *s);
/* Waits until weights are no longer rearranged in the background (load.pack = auto): from then on
 * speed is steady, and the same tokens give the same bits.  cancel: may be NULL; non-zero ends the
 * wait.  ATSI_EINTR. */
ATSI_EXPORT int atsi_session_settle(struct atsi_session *s, const volatile int *cancel,
                                    struct atsi_err *err);
/* out->struct_size set by the caller. */
ATSI_EXPORT void atsi_session_info(const struct atsi_session *s, struct atsi_session_info *out);

/* Accelerator memory while the session lives: `vram` as memory.vram says it ("auto", "6GiB", "80%",
 * "30%m").  Weights are placed again before the next round; answers do not change.  Without an
 * accelerator it has no effect.  ATSI_ECONF: not such a value.  [any thread] */
ATSI_EXPORT int atsi_session_set_budget(struct atsi_session *s, const char *vram,
                                        struct atsi_err *err);
/* Files and environment may say something else by now: every session reads memory.* again before
 * its next round.  What is wrong is logged, and the budget stays.  [any thread; signal handlers] */
ATSI_EXPORT void atsi_settings_changed(void);

/* Receives logits[n_vocab] of the token at position `pos`, in order.  [borrowed for the call] */
typedef int atsi_logits_fn(void *ctx, uint32_t pos, const float *logits);

struct atsi_eval {
    uint32_t struct_size;
    const int32_t *ids; /* n tokens, appended after the n_past tokens so far */
    uint32_t n;
    uint32_t want_all;  /* 1: logits of every token go to `fn`; 0: of the last one only */
    atsi_logits_fn *fn; /* may be NULL when want_all is 0; non-zero stops and is returned */
    void *ctx;
    const volatile int *cancel; /* may be NULL; non-zero stops between rounds: ATSI_EINTR */
    /* Without `fn`: so many of the last token's largest logits are enough.  An accelerator then
     * hands these over alone (atsi_session_top), and the others when they are asked for.  0: all
     * are needed. */
    uint32_t top;
};

/* Evaluates in rounds of at most `chunk` tokens.  ATSI_EINVAL: an id outside the vocabulary;
 * ATSI_ENOFIT: more than n_ctx positions.  On any error the session holds the tokens of the rounds
 * that were completed (atsi_session_n_past); it is empty when a round of a model with recurrent
 * states failed. */
ATSI_EXPORT int atsi_session_eval(struct atsi_session *s, const struct atsi_eval *req,
                                  struct atsi_err *err);
/* Logits of the last evaluated token, n_vocab floats.  [borrowed until the next call]  NULL before
 * the first; also when an accelerator that still had them (atsi_eval.top) fails now and the CPU
 * cannot compute them again. */
ATSI_EXPORT float *atsi_session_logits(struct atsi_session *s);
/* The largest of them with their ids, largest first, the lower id on a tie, NaN last: as many as
 * the evaluation asked for.  0: they were not picked, see atsi_session_logits(); always so without
 * an accelerator that computes them.  May be written to.  [borrowed until the next call] */
ATSI_EXPORT uint32_t atsi_session_top(struct atsi_session *s, const int32_t **ids, float **logits);
ATSI_EXPORT uint32_t atsi_session_n_past(const struct atsi_session *s);
/* The n_past tokens so far.  [borrowed until the next call] */
ATSI_EXPORT const int32_t *atsi_session_tokens(const struct atsi_session *s);

/* Forgets all tokens from position n on.  ATSI_EINVAL: n is beyond n_past; ATSI_ENOTSUP: a
 * recurrent state or a sliding window has moved on too far, see atsi_session_rewind_point(). */
ATSI_EXPORT int atsi_session_truncate(struct atsi_session *s, uint32_t n, struct atsi_err *err);
/* The largest position <= n that atsi_session_truncate() reaches: n itself, or 0. */
ATSI_EXPORT uint32_t atsi_session_rewind_point(const struct atsi_session *s, uint32_t n);

/* A copy of what cannot be cut back (recurrent states, the cells of sliding windows) as it is at
 * n_past, to return to that position later.  Small for models that can rewind. */
struct atsi_checkpoint;
ATSI_EXPORT int atsi_session_checkpoint(const struct atsi_session *s, struct atsi_checkpoint **out,
                                        struct atsi_err *err);
/* Goes back to the checkpoint's position.  ATSI_EINVAL: taken from a session of another model, or
 * the session no longer begins with the checkpoint's tokens (nothing changes then). */
ATSI_EXPORT int atsi_session_restore(struct atsi_session *s, const struct atsi_checkpoint *cp,
                                     struct atsi_err *err);
ATSI_EXPORT uint32_t atsi_checkpoint_n_past(const struct atsi_checkpoint *cp);
ATSI_EXPORT size_t atsi_checkpoint_bytes(const struct atsi_checkpoint *cp);
ATSI_EXPORT void atsi_checkpoint_free(struct atsi_checkpoint *cp); /* NULL is allowed */

/* Writes tokens, KV cache, states and the application's `user` bytes (for example a conversation)
 * to a file, atomically.  Format: docs/session-file.md. */
ATSI_EXPORT int atsi_session_save(const struct atsi_session *s, const char *path, const void *user,
                                  size_t user_bytes, struct atsi_err *err);
/* Replaces the session's past by a file's.  ATSI_EFORMAT: no session file, or damaged;
 * ATSI_ENOTSUP: another version; ATSI_EINVAL: of another model or with other cache types (both are
 * named); ATSI_ENOFIT: longer than the context.  On an error the session keeps its past, unless the
 * file was damaged behind its header: then it is empty.  *user_out: [owned by caller: free()]; NULL
 * when there is none. */
ATSI_EXPORT int atsi_session_load(struct atsi_session *s, const char *path, void **user_out,
                                  size_t *user_bytes_out, struct atsi_err *err);

/* Times of the rounds so far. */
struct atsi_session_times {
    uint32_t struct_size;
    uint64_t prefill_ns, decode_ns;
    uint32_t n_prefill,
        n_decode; /* tokens; a round of one token after the first counts as decode */
};
ATSI_EXPORT void atsi_session_times(const struct atsi_session *s, struct atsi_session_times *out);

/* What the rounds of one phase with an accelerator were like.  Operations are measured one by one
 * in some of the rounds only, since that costs time; lanes and waiting are of those rounds. */
struct atsi_accel_phase {
    uint64_t n_rounds, n_measured;
    uint64_t measured_ns; /* wall time of the measured rounds */
    uint64_t busy_ns[3];  /* in them: CPU, compute stream, transfer stream */
    uint64_t exposed_ns;  /* in them: the accelerator waited for weights */
    /* Rounds of the size that the policy's prediction is for, and their times. */
    uint64_t n_predicted, predicted_ns, observed_ns;
};

struct atsi_accel_stats {
    uint32_t struct_size;
    uint32_t measured_costs; /* 1: policies see costs measured here; 0: a middling machine's */
    struct atsi_accel_phase prefill, decode;
    uint64_t n_made, n_kept, n_refused; /* plans; answers of policies */
    /* Over the link, in rounds. */
    uint64_t weight_bytes, activation_bytes, result_bytes;
    /* Times that weights were placed again because the machine changed (power.watch), and why the
     * last time; NULL: never.  [borrowed until the next call] */
    uint64_t n_governed;
    const char *governed_why;
    /* How the size of prefill rounds was chosen, in words; NULL: it was given.  [borrowed until the
     * session closes] */
    const char *chunk_why;
    /* Caches of experts: memory of the accelerator that they have (0: there are none now), and
     * chosen experts of decode rounds that were in a slot, and that were not. */
    uint64_t expert_bytes, expert_hits, expert_misses;
};
/* Since the session was opened, also after it gave its accelerator up; zeros without one.
 * out->struct_size set by the caller. */
ATSI_EXPORT void atsi_session_accel_stats(const struct atsi_session *s,
                                          struct atsi_accel_stats *out);

/* Called after each round with an accelerator with what happened in it (atsinfer/simulate.h): the
 * round first, then its items, copies and moves in the plan's order, on the clock of the host.  All
 * operations are measured then, which costs some time.  NULL switches it off. */
struct atsi_sim_span;
typedef void atsi_span_fn(void *ctx, const struct atsi_sim_span *span);
ATSI_EXPORT void atsi_session_spans(struct atsi_session *s, atsi_span_fn *fn, void *ctx);

/* Called after each executed op of a round with the op and its result in host memory (debugging,
 * golden traces).  NULL switches it off. */
typedef void atsi_trace_fn(void *ctx, const struct atsi_op *op);
ATSI_EXPORT void atsi_session_trace(struct atsi_session *s, atsi_trace_fn *fn, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
