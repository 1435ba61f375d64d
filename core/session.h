/* SPDX-License-Identifier: Apache-2.0
 * A session's state: one sequence of tokens, its KV cache, and the ops of a round. */
#ifndef ATSI_CORE_SESSION_H
#define ATSI_CORE_SESSION_H

#include "core/runtime.h"
#include "core/values.h"

struct atsi_hybrid; /* hybrid/hybrid.h */

struct atsi_session {
    struct atsi_runtime *rt;    /* [borrowed] */
    struct atsi_model *model;   /* [borrowed] */
    const struct atsi_graph *g; /* [borrowed from the model] */
    uint32_t n_ctx, chunk, out_rows;
    bool chunk_free; /* nobody said how large: with an accelerator it is chosen */
    uint32_t type_k, type_v;

    const char *backend_name;
    const struct atsi_backend_ops *be_ops;
    struct atsi_backend *be;
    struct atsi_queue *queue;
    char chosen[192];
    struct atsi_props props;

    struct atsi_buf *arena_buf, *kv_buf, *state_buf; /* of be */
    size_t arena_bytes, kv_bytes, state_bytes;
    struct atsi_value_place *places; /* [n_values] */
    struct atsi_tensor *values;      /* [n_values] every row of the round */
    struct atsi_tensor *views;       /* [n_values] main values as the output part sees them */
    struct atsi_kv *kv;              /* [n_kv]; windowed ones are rings: cell = position % n_ctx */
    struct atsi_tensor *states;      /* [n_states] */
    struct atsi_op *ops;             /* [n_nodes], in node order */
    const struct atsi_op **op_ptrs;  /* [n_nodes] */
    uint32_t n_main;                 /* ops before the output part */

    struct atsi_weights *weights;  /* [borrowed from the model]; NULL: the loader's tensors do */
    struct atsi_packer *packer;    /* or NULL */
    struct atsi_live_budget *live; /* hybrid/live.h: asked before each round */

    int32_t *tokens; /* [n_ctx], n_past in use */
    uint32_t n_past;
    uint32_t rewind_low; /* truncation reaches positions >= this, and 0 */
    bool have_logits;
    uint32_t last_row;          /* of the accelerator's logits */
    struct atsi_hybrid *hybrid; /* NULL: everything is computed on the CPU */
    uint32_t n_fallbacks;
    uint32_t n_tries, n_requests_alone; /* to have the accelerator again; since the last one */
    /* Of atsi_session_params, for as long as it is being opened; else NULL. */
    void (*measuring)(void *ctx, uint32_t done, uint32_t total, const char *what);
    void *measuring_ctx;
    const volatile int *cancel_open;
    struct atsi_session_times times;
    atsi_trace_fn *trace;
    void *trace_ctx;
    atsi_span_fn *spans;
    void *spans_ctx;
    struct atsi_accel_stats accel_stats;
    char chunk_why[256]; /* what accel_stats.chunk_why points to */
    uint32_t knee[2];    /* workers of decode and prefill by a table; 0: none was there */
};

/* session_plan.c: sizes. */
/* Chooses context, chunk and cache types, places the values (s->places: [owned by s]) and sums the
 * bytes. */
int atsi_session_measure(struct atsi_session *s, const struct atsi_session_params *p,
                         struct atsi_err *err);
/* Other prefill rounds, before there is memory for any. */
int atsi_session_set_chunk(struct atsi_session *s, uint32_t chunk, struct atsi_err *err);
/* Says before anything is allocated when it cannot fit, with the numbers and the smallest remedy.
 */
int atsi_session_check_fit(const struct atsi_session *s, struct atsi_err *err);
/* Cells of one KV cache: a window needs itself and the rows of one round. */
uint32_t atsi_kv_cells(const struct atsi_session *s, const struct atsi_graph_kv *kv);
/* Bytes of one KV cache's keys or values, ATSI_ALIGN-ed; false on overflow. */
bool atsi_kv_part_bytes(const struct atsi_session *s, const struct atsi_graph_kv *kv, bool keys,
                        size_t *out);
/* Bytes of one state, ATSI_ALIGN-ed; false on overflow. */
bool atsi_state_bytes(const struct atsi_graph_state *st, size_t *out);

/* session_build.c: memory and ops. */
/* Tables of tokens, caches and states; once. */
int atsi_session_tables(struct atsi_session *s, struct atsi_err *err);
/* Allocates buffers and builds tensors and ops for a graph that was measured.  The caller frees
 * what was built with atsi_session_unbuild(), also after a failure. */
int atsi_session_build(struct atsi_session *s, struct atsi_err *err);
void atsi_session_unbuild(struct atsi_session *s);
/* Only what a session needs on the CPU alone. */
void atsi_session_unbuild_work(struct atsi_session *s);

/* session_pack.c: weights rearranged while the session works (load.pack). */
/* After the build: ops look at the model's host views, and packing begins.  Fails only for want of
 * memory or, with load.pack = now, when it was stopped. */
int atsi_session_open_views(struct atsi_session *s, struct atsi_err *err);
/* For sessions whose operations are elsewhere: packs what packable marks (atsi_pack_mark), as
 * load.pack says. */
int atsi_session_start_packing(struct atsi_session *s, const uint8_t *packable,
                               struct atsi_err *err);
void atsi_session_close_views(struct atsi_session *s);

/* session.c */
/* Runs a round of the main part alone. */
int atsi_session_run_main(struct atsi_session *s, const int32_t *ids, uint32_t rows,
                          struct atsi_err *err);

/* session_threads.c: workers by what was measured. */
struct atsi_costs;
/* Where the settings leave numbers of workers open: those of a table; NULL: of the kept table of
 * the CPU alone, if there is a current one.  Says what that changes. */
void atsi_session_take_threads(struct atsi_session *s, const struct atsi_costs *c);
/* Workers of a round of that many rows. */
uint32_t atsi_session_threads(const struct atsi_session *s, uint32_t rows);

/* session_accel.c: going on without an accelerator. */
/* True when the accelerator must not be used any more. */
bool atsi_session_is_broken(const struct atsi_session *s);
/* Leaves the accelerator: builds what the CPU needs and computes the past again from its tokens.
 * Logits stay.  why: for the log. */
int atsi_session_fall_back(struct atsi_session *s, const char *why, struct atsi_err *err);
/* Likewise, and computes the last token's logits, which were lost with it: whole, on the host. */
int atsi_session_last_again(struct atsi_session *s);
/* session_again.c: before a request; an accelerator that was given up is opened again when its time
 * has come.  Nothing changes when that fails. */
void atsi_session_try_again(struct atsi_session *s);
/* All that the session remembers, and back, wherever it lives by then.  [owned by caller: free] */
int atsi_session_copy_past(struct atsi_session *s, unsigned char **out, struct atsi_err *err);
int atsi_session_bring_past(struct atsi_session *s, unsigned char *data, struct atsi_err *err);
/* One round on the accelerator and the CPU; ATSI_ENODEV: it failed, and the session has fallen
 * back, with nothing of this round done. */
int atsi_session_run_hybrid(struct atsi_session *s, const struct atsi_eval *req, const int32_t *ids,
                            uint32_t rows, uint32_t left, struct atsi_err *err);

/* session_past.c: what a session keeps of its past. */
/* The empty sequence: zero states. */
void atsi_session_reset(struct atsi_session *s);
/* After n_past has grown by a round: how far back truncation now reaches. */
void atsi_session_note_past(struct atsi_session *s);
/* The past was replaced: n_past positions, of which the caches hold all that is needed to cut it to
 * any position from `low` on. */
void atsi_session_set_past(struct atsi_session *s, uint32_t n_past, uint32_t low);
/* True when every position can be returned to: no recurrent state, no ring of cells. */
bool atsi_session_can_rewind(const struct atsi_session *s);

/* Sets the number of rows of the main part and the window [first, first + n) of output rows. */
void atsi_session_set_rows(struct atsi_session *s, uint32_t rows);
void atsi_session_set_output(struct atsi_session *s, uint32_t first, uint32_t n);

#endif
