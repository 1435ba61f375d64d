/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions: tokens in, logits out, in rounds of at most one prefill chunk.  The main part of the
 * graph runs over all rows of a round; the output part (last layer's tail and head) only over the
 * rows whose logits are wanted.
 */
#include "core/session.h"

#include "core/hybrid/hybrid.h"
#include "core/hybrid/live.h"
#include "core/hybrid/weights.h"
#include "core/select.h"

#include <stdlib.h>
#include <string.h>

#define LIKELY_TOKENS 64u

static int open_backend(struct atsi_session *s, struct atsi_err *err)
{
    int rc = atsi_select_cpu(s->rt, &s->backend_name, &s->be_ops, s->chosen, sizeof s->chosen, err);
    if (rc == ATSI_OK)
        rc = s->be_ops->open(&s->rt->host, 0, &s->be, err);
    if (rc == ATSI_OK) {
        s->props.struct_size = sizeof s->props;
        rc = s->be_ops->props(s->be, &s->props);
    }
    return rc == ATSI_OK ? s->be_ops->queue_open(s->be, &s->queue, err) : rc;
}

/* With an accelerator when there is one, else on the CPU alone. */
static int open_work(struct atsi_session *s, struct atsi_err *err)
{
    int rc = atsi_session_tables(s, err);
    if (rc == ATSI_OK)
        rc = atsi_hybrid_open(s, &s->hybrid, err);
    if (rc == ATSI_OK)
        rc = atsi_session_check_fit(s, err);
    if (rc == ATSI_OK && s->hybrid == NULL)
        rc = atsi_session_build(s, err);
    if (rc == ATSI_OK && s->hybrid == NULL) {
        atsi_session_take_threads(s, NULL);
        return atsi_session_open_views(s, err);
    }
    if (rc == ATSI_OK)
        atsi_session_reset(s);
    return rc == ATSI_OK ? atsi_hybrid_pack(s->hybrid, err) : rc;
}

int atsi_session_open(struct atsi_model *m, const struct atsi_session_params *params,
                      struct atsi_session **out, struct atsi_err *err)
{
    struct atsi_session_params all = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session *s;
    int rc;
    *out = NULL;
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory opening a session");
    if (params != NULL) /* callers built with an older header have fewer */
        memcpy(&all, params, params->struct_size < sizeof all ? params->struct_size : sizeof all);
    s->measuring = all.measuring;
    s->measuring_ctx = all.measuring_ctx;
    s->cancel_open = all.cancel;
    s->rt = m->rt;
    s->model = m;
    s->times.struct_size = sizeof s->times;
    rc = atsi_live_open(&s->live, err);
    if (rc == ATSI_OK)
        rc = atsi_model_graph(m, &s->g, err);
    if (rc == ATSI_OK)
        rc = atsi_session_measure(s, &all, err);
    if (rc == ATSI_OK)
        rc = open_backend(s, err);
    if (rc == ATSI_OK)
        rc = open_work(s, err);
    if (rc != ATSI_OK) {
        atsi_session_close(s);
        return rc;
    }
    s->measuring = NULL;
    s->cancel_open = NULL;
    atsi_log(s->rt->log, ATSI_LOG_INFO, "session",
             "backend %s (%s), context %u, KV cache %.1f MiB, buffers %.1f MiB", s->backend_name,
             s->chosen, s->n_ctx, (double)s->kv_bytes / 1048576.0,
             (double)s->arena_bytes / 1048576.0);
    *out = s;
    return ATSI_OK;
}

void atsi_session_close(struct atsi_session *s)
{
    if (s == NULL)
        return;
    atsi_session_close_views(s);
    atsi_hybrid_close(s->hybrid);
    atsi_session_unbuild(s);
    if (s->be_ops != NULL) {
        s->be_ops->queue_close(s->queue);
        s->be_ops->close(s->be);
    }
    atsi_live_close(s->live);
    free(s);
}

int atsi_session_set_budget(struct atsi_session *s, const char *vram, struct atsi_err *err)
{
    return atsi_live_set(s->live, vram, err);
}

/* Callers built with an older header have a smaller struct; the first one had 88 bytes. */
#define FIRST_INFO_BYTES 88u

void atsi_session_info(const struct atsi_session *s, struct atsi_session_info *out)
{
    uint64_t logits = (uint64_t)s->out_rows * s->g->n_vocab * sizeof(float);
    size_t room = out->struct_size < FIRST_INFO_BYTES ? FIRST_INFO_BYTES : out->struct_size;
    struct atsi_session_info all = {.struct_size = sizeof all,
                                    .n_ctx = s->n_ctx,
                                    .chunk = s->chunk,
                                    .n_vocab = s->g->n_vocab,
                                    .type_k = s->type_k,
                                    .type_v = s->type_v,
                                    .kv_bytes = s->kv_bytes,
                                    .compute_bytes = s->arena_bytes - logits,
                                    .logits_bytes = logits,
                                    .backend = s->backend_name,
                                    .detail = s->props.detail,
                                    .chosen = s->chosen,
                                    .state_bytes = s->state_bytes,
                                    .can_rewind = atsi_session_can_rewind(s),
                                    .accel = "",
                                    .accel_detail = "",
                                    .threads_decode = atsi_session_threads(s, 1),
                                    .threads_prefill = atsi_session_threads(s, 2),
                                    .n_fallbacks = s->n_fallbacks};
    if (s->hybrid != NULL)
        atsi_hybrid_info(s->hybrid, &all);
    if (room < sizeof all)
        all.struct_size = (uint32_t)room;
    memcpy(out, &all, all.struct_size);
}

/* Runs ops [first, first + n) as one split, or one by one when traced. */
static int run_ops(struct atsi_session *s, uint32_t first, uint32_t n, struct atsi_err *err)
{
    uint32_t step = s->trace != NULL ? 1 : n;
    for (uint32_t i = 0; i < n; i += step) {
        struct atsi_split split = {
            .struct_size = sizeof split, .n_ops = step, .ops = s->op_ptrs + first + i};
        int rc = s->be_ops->run(s->queue, &split, err);
        if (rc != ATSI_OK)
            return rc;
        if (s->trace != NULL)
            s->trace(s->trace_ctx, s->op_ptrs[first + i]);
    }
    return ATSI_OK;
}

static float *logits_row(const struct atsi_session *s, uint32_t row)
{
    return (float *)s->values[s->g->out_logits].data + (size_t)row * s->g->n_vocab;
}

static int output_all(struct atsi_session *s, const struct atsi_eval *req, uint32_t rows,
                      struct atsi_err *err)
{
    for (uint32_t first = 0; first < rows; first += s->out_rows) {
        uint32_t n = rows - first < s->out_rows ? rows - first : s->out_rows;
        int rc;
        atsi_session_set_output(s, first, n);
        rc = run_ops(s, s->n_main, s->g->n_nodes - s->n_main, err);
        if (rc != ATSI_OK)
            return rc;
        for (uint32_t i = 0; i < n; i++) {
            rc = req->fn(req->ctx, s->n_past + first + i, logits_row(s, i));
            if (rc != 0)
                return rc;
        }
        if (first + n == rows && n > 1) /* atsi_session_logits() is row 0 */
            memmove(logits_row(s, 0), logits_row(s, n - 1), s->g->n_vocab * sizeof(float));
    }
    return ATSI_OK;
}

static int run_round(struct atsi_session *s, const struct atsi_eval *req, uint32_t rows, bool last,
                     struct atsi_err *err)
{
    int rc;
    if (s->weights != NULL) /* what was packed since is used from now on */
        (void)atsi_weights_begin(s->weights);
    atsi_session_set_rows(s, rows);
    if (req->want_all == 0 && last) { /* one split for everything: the usual decode step */
        atsi_session_set_output(s, rows - 1, 1);
        rc = run_ops(s, 0, s->g->n_nodes, err);
        if (rc == ATSI_OK && req->fn != NULL)
            rc = req->fn(req->ctx, s->n_past + rows - 1, logits_row(s, 0));
    } else {
        rc = run_ops(s, 0, s->n_main, err);
        if (rc == ATSI_OK && req->want_all != 0)
            rc = output_all(s, req, rows, err);
    }
    if (s->weights != NULL)
        atsi_weights_end(s->weights);
    s->have_logits = rc == ATSI_OK && (last || req->want_all != 0);
    return rc;
}

static int check_request(const struct atsi_session *s, const struct atsi_eval *req,
                         struct atsi_err *err)
{
    if (req->want_all != 0 && req->fn == NULL)
        return atsi_fail(err, ATSI_EINVAL, "logits of every token need a function to take them");
    if (req->n > s->n_ctx - s->n_past)
        return atsi_fail(err, ATSI_ENOFIT,
                         "%u tokens after %u do not fit a context of %u; set a longer one with -c",
                         req->n, s->n_past, s->n_ctx);
    for (uint32_t i = 0; i < req->n; i++)
        if (req->ids[i] < 0 || (uint32_t)req->ids[i] >= s->g->n_vocab)
            return atsi_fail(err, ATSI_EINVAL, "token %u: id %d is outside the vocabulary of %u", i,
                             req->ids[i], s->g->n_vocab);
    return ATSI_OK;
}

static void fill_inputs(struct atsi_session *s, const int32_t *ids, uint32_t rows)
{
    int32_t *in = s->values[s->g->in_ids].data, *pos = s->values[s->g->in_pos].data;
    memcpy(in, ids, rows * sizeof *ids);
    for (uint32_t i = 0; i < rows; i++)
        pos[i] = (int32_t)(s->n_past + i);
}

static void count_round(struct atsi_session *s, uint32_t rows, uint64_t ns)
{
    if (rows == 1 && s->n_past > 0) {
        s->times.decode_ns += ns;
        s->times.n_decode++;
    } else {
        s->times.prefill_ns += ns;
        s->times.n_prefill += rows;
    }
}

/* A round that failed may have moved recurrent states, which nothing can move back, and overwritten
 * cells of rings. */
static void abandon_round(struct atsi_session *s, uint32_t rows)
{
    uint32_t n_past = s->n_past;
    if (s->g->n_states > 0) {
        atsi_session_reset(s);
        return;
    }
    s->n_past += rows;
    atsi_session_note_past(s);
    s->n_past = n_past;
}

int atsi_session_run_main(struct atsi_session *s, const int32_t *ids, uint32_t rows,
                          struct atsi_err *err)
{
    int rc;
    if (s->weights != NULL)
        (void)atsi_weights_begin(s->weights);
    atsi_session_set_rows(s, rows);
    fill_inputs(s, ids, rows);
    rc = run_ops(s, 0, s->n_main, err);
    if (s->weights != NULL)
        atsi_weights_end(s->weights);
    return rc;
}

/* Rounds of the request from `done` on that are like the next one; a last token is followed by
 * more, or so we guess. */
static uint32_t rounds_left(const struct atsi_eval *req, uint32_t done, uint32_t rows)
{
    uint32_t left = req->n - done;
    if (left == 1)
        return LIKELY_TOKENS;
    return rows > 1 ? left / rows : left;
}

static int next_round(struct atsi_session *s, const struct atsi_eval *req, uint32_t done,
                      uint32_t rows, struct atsi_err *err)
{
    bool last = done + rows == req->n;
    int rc;
    if (s->hybrid != NULL) {
        rc = atsi_session_run_hybrid(s, req, req->ids + done, rows, rounds_left(req, done, rows),
                                     err);
        if (rc != ATSI_ENODEV) {
            s->have_logits = rc == ATSI_OK && (last || req->want_all != 0);
            return rc;
        }
    }
    fill_inputs(s, req->ids + done, rows);
    return run_round(s, req, rows, last, err);
}

/* Operations can be watched one by one on the CPU alone. */
static int leave_accelerator(struct atsi_session *s, struct atsi_err *err)
{
    if (s->hybrid == NULL || (s->trace == NULL && !atsi_session_is_broken(s)))
        return ATSI_OK;
    return atsi_session_fall_back(
        s, s->trace != NULL ? "operations are traced on the CPU only" : "it failed", err);
}

static uint32_t most_rows(const struct atsi_session *s, const struct atsi_eval *req)
{
    return s->hybrid != NULL ? atsi_hybrid_max_rows(s->hybrid, req->want_all != 0) : s->chunk;
}

int atsi_session_eval(struct atsi_session *s, const struct atsi_eval *req, struct atsi_err *err)
{
    const struct atsi_host *host = &s->rt->host;
    int rc = check_request(s, req, err);
    if (rc == ATSI_OK)
        rc = leave_accelerator(s, err);
    if (rc == ATSI_OK)
        atsi_session_try_again(s);
    for (uint32_t done = 0; rc == ATSI_OK && done < req->n;) {
        uint32_t most = most_rows(s, req), rows = req->n - done < most ? req->n - done : most;
        uint64_t start = host->now_ns(host->ctx);
        if (req->cancel != NULL && *req->cancel != 0)
            return atsi_fail(err, ATSI_EINTR, "interrupted after %u of %u tokens", done, req->n);
        rc = atsi_pool_set_active(s->rt->pool, atsi_session_threads(s, rows), err);
        if (rc != ATSI_OK)
            break;
        rc = next_round(s, req, done, rows, err);
        if (rc != ATSI_OK) {
            abandon_round(s, rows);
            break;
        }
        count_round(s, rows, host->now_ns(host->ctx) - start);
        memcpy(s->tokens + s->n_past, req->ids + done, rows * sizeof *req->ids);
        s->n_past += rows;
        atsi_session_note_past(s);
        done += rows;
    }
    return rc;
}

float *atsi_session_logits(struct atsi_session *s)
{
    float *row;
    if (!s->have_logits)
        return NULL;
    row = s->hybrid != NULL ? atsi_hybrid_logits(s->hybrid, s->last_row) : logits_row(s, 0);
    return row == NULL && atsi_session_is_broken(s) && atsi_session_last_again(s) == ATSI_OK
               ? atsi_session_logits(s)
               : row;
}

uint32_t atsi_session_top(struct atsi_session *s, const int32_t **ids, float **logits)
{
    *ids = NULL;
    *logits = NULL;
    return s->have_logits && s->hybrid != NULL ? atsi_hybrid_top(s->hybrid, ids, logits) : 0;
}

void atsi_session_times(const struct atsi_session *s, struct atsi_session_times *out)
{
    *out = s->times;
}

void atsi_session_trace(struct atsi_session *s, atsi_trace_fn *fn, void *ctx)
{
    s->trace = fn;
    s->trace_ctx = ctx;
}

void atsi_session_spans(struct atsi_session *s, atsi_span_fn *fn, void *ctx)
{
    s->spans = fn;
    s->spans_ctx = ctx;
}

void atsi_session_accel_stats(const struct atsi_session *s, struct atsi_accel_stats *out)
{
    struct atsi_accel_stats all = s->accel_stats;
    all.struct_size = sizeof all;
    if (out->struct_size < sizeof all)
        all.struct_size = out->struct_size;
    memcpy(out, &all, all.struct_size);
}
