/* SPDX-License-Identifier: Apache-2.0
 * A session's state: one sequence of tokens, its KV cache, and the ops of a round. */
#ifndef ATSI_CORE_SESSION_H
#define ATSI_CORE_SESSION_H

#include "core/runtime.h"
#include "core/values.h"

struct atsi_session {
    struct atsi_runtime *rt;    /* [borrowed] */
    struct atsi_model *model;   /* [borrowed] */
    const struct atsi_graph *g; /* [borrowed from the model] */
    uint32_t n_ctx, chunk, out_rows;
    uint32_t type_k, type_v;

    const char *backend_name;
    const struct atsi_backend_ops *be_ops;
    struct atsi_backend *be;
    struct atsi_queue *queue;
    char chosen[192];
    struct atsi_props props;

    struct atsi_buf *arena_buf, *kv_buf; /* of be */
    size_t arena_bytes, kv_bytes;
    struct atsi_value_place *places; /* [n_values] */
    struct atsi_tensor *values;      /* [n_values] every row of the round */
    struct atsi_tensor *views;       /* [n_values] main values as the output part sees them */
    struct atsi_kv *kv;              /* [n_kv] */
    struct atsi_op *ops;             /* [n_nodes], in node order */
    const struct atsi_op **op_ptrs;  /* [n_nodes] */
    uint32_t n_main;                 /* ops before the output part */

    uint32_t n_past;
    bool have_logits;
    struct atsi_session_times times;
    atsi_trace_fn *trace;
    void *trace_ctx;
};

/* Allocates buffers and builds tensors and ops for a graph.  The caller frees what was built with
 * atsi_session_unbuild(), also after a failure. */
int atsi_session_build(struct atsi_session *s, struct atsi_err *err);
void atsi_session_unbuild(struct atsi_session *s);

/* Sets the number of rows of the main part and the window [first, first + n) of output rows. */
void atsi_session_set_rows(struct atsi_session *s, uint32_t rows);
void atsi_session_set_output(struct atsi_session *s, uint32_t first, uint32_t n);

#endif
