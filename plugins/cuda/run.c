/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a split: look at all ops first, so that a refusal leaves everything untouched; make the
 * work space large enough; then queue waits, ops (or the graph captured from them) and the signal.
 * When queueing fails half way, what was queued is waited for: nothing stays under way.
 */
#include "cuda_plugin.h"
#include "rounded.h"

#include <string.h>

#define MIN_SCRATCH ((size_t)1 << 20)
#define LOOK_AHEAD 6u                       /* operations behind one whose results they read */
#define SCRATCH_ADDRESSES ((size_t)2 << 30) /* reserved, not allocated */

/* ---------------------------------------------------------------- looking at ops */
int cuda_supports(const struct atsi_backend *be, const struct atsi_op *op)
{
    const struct cuda_op *k;
    if (op == NULL || op->struct_size < sizeof *op || op->n_rows == 0 ||
        op->kind >= ATSI_OP_COUNT || (op->flags & ~ATSI_OP_EXACT) != 0)
        return 0;
    k = cuda_ops[op->kind];
    return k != NULL && k->supports(&be->dev, op) == 1 ? 1 : 0;
}

static const struct atsi_tensor *without_data(const struct atsi_op *op)
{
    for (int i = 0; i < 4; i++)
        if (op->src[i] != NULL && op->src[i]->data == NULL)
            return op->src[i];
    for (int i = 0; i < 2; i++) {
        if (op->weight[i] != NULL && op->weight[i]->data == NULL)
            return op->weight[i];
        if (op->dst[i] != NULL && op->dst[i]->data == NULL)
            return op->dst[i];
    }
    return op->state != NULL && op->state->data == NULL ? op->state : NULL;
}

static int check_op(const struct atsi_backend *be, const struct atsi_op *op, struct atsi_err *err)
{
    const struct atsi_tensor *t;
    if (cuda_supports(be, op) != 1)
        return atsi_fail(err, ATSI_ENOTSUP,
                         CUDA_PLUGIN_NAME
                         ": device %d (%s) does not compute %s of %s in this shape",
                         be->dev.index, be->name, cuda_op_name(op != NULL ? op->kind : 0),
                         op != NULL ? cuda_op_tensor(op) : "nothing");
    t = without_data(op);
    if (t != NULL)
        return atsi_fail(err, ATSI_EINVAL, CUDA_PLUGIN_NAME ": %s of %s: tensor %s has no data",
                         cuda_op_name(op->kind), cuda_op_tensor(op), t->name);
    if (op->kv != NULL && (op->kv->k == NULL || op->kv->v == NULL))
        return atsi_fail(err, ATSI_EINVAL, CUDA_PLUGIN_NAME ": %s of %s: a cache without data",
                         cuda_op_name(op->kind), cuda_op_tensor(op));
    return ATSI_OK;
}

static int check_split(const struct atsi_backend *be, const struct atsi_split *split,
                       struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t i = 0; i < split->n_ops && rc == ATSI_OK; i++)
        rc = check_op(be, split->ops[i], err);
    return rc;
}

/* ---------------------------------------------------------------- work space */
static size_t scratch_need(const struct atsi_backend *be, const struct atsi_split *split,
                           uint32_t *largest)
{
    size_t most = 0;
    *largest = 0;
    for (uint32_t i = 0; i < split->n_ops; i++) {
        const struct atsi_op *op = split->ops[i];
        const struct cuda_op *k = cuda_ops[op->kind];
        size_t n = k->scratch != NULL ? k->scratch(&be->dev, op) : 0;
        if (n > most) {
            most = n;
            *largest = i;
        }
    }
    return most;
}

/* Plain memory cannot grow: queued work is waited for, then it is replaced. */
static int replace_scratch(struct atsi_queue *q, size_t bytes, struct atsi_err *err)
{
    struct atsi_buf *grown;
    int rc = cuda_check(q->be, cudaStreamSynchronize(q->stream), err, "waiting for queued work");
    if (rc == ATSI_OK)
        rc = cuda_buf_alloc(q->be, ATSI_MEM_DEVICE, bytes, &grown, err);
    if (rc != ATSI_OK)
        return rc;
    cuda_buf_free(q->be, q->scratch);
    q->scratch = grown;
    return ATSI_OK;
}

static int grow_scratch(struct atsi_queue *q, size_t need, struct atsi_err *err)
{
    size_t bytes = MIN_SCRATCH;
    int rc = ATSI_OK;
    while (bytes < need && bytes <= SIZE_MAX / 2)
        bytes *= 2;
    if (bytes < need)
        return atsi_fail(err, ATSI_ENOMEM, "%zu bytes", need);
    if (q->be->vmm == NULL || bytes > SCRATCH_ADDRESSES) {
        rc = replace_scratch(q, bytes, err);
    } else {
        if (q->scratch == NULL)
            rc = cuda_buf_reserve(q->be, SCRATCH_ADDRESSES, &q->scratch, err);
        if (rc == ATSI_OK)
            rc = cuda_buf_commit(q->be, q->scratch, bytes, err);
    }
    if (rc == ATSI_OK)
        q->scratch_bytes = bytes;
    return rc;
}

static int ensure_scratch(struct atsi_queue *q, const struct atsi_split *split,
                          struct atsi_err *err)
{
    struct atsi_err why = ATSI_ERR_INIT;
    uint32_t largest;
    size_t need = scratch_need(q->be, split, &largest);
    int rc;
    if (need <= q->scratch_bytes)
        return ATSI_OK;
    rc = grow_scratch(q, need, &why);
    if (rc != ATSI_OK)
        return atsi_fail(err, rc, CUDA_PLUGIN_NAME ": %s of %s needs %zu bytes of work space: %s",
                         cuda_op_name(split->ops[largest]->kind),
                         cuda_op_tensor(split->ops[largest]), need, why.msg);
    return ATSI_OK;
}

/* ---------------------------------------------------------------- queueing */
static bool written_over(const struct cuda_rounded *r, const struct atsi_op *op)
{
    uintptr_t from = (uintptr_t)r->src, to = from + (size_t)r->n_rows * r->k * sizeof(float);
    for (int i = 0; i < 2; i++) {
        const struct atsi_tensor *t = op->dst[i];
        uintptr_t at = t != NULL ? (uintptr_t)t->data : 0;
        if (t != NULL && at < to && from < at + (size_t)t->row_bytes * op->n_rows)
            return true;
    }
    return false;
}

static bool is_product(const struct atsi_op *op)
{
    return op->kind == ATSI_OP_MATMUL || op->kind == ATSI_OP_MATMUL_ID;
}

/* Rounded activations stay until their source or the work space they lie in is written over. */
static void keep_rounded(struct atsi_queue *q, const struct atsi_op *op)
{
    const struct cuda_op *k = cuda_ops[op->kind];
    bool overwrites = !is_product(op) && k->scratch != NULL && k->scratch(&q->be->dev, op) > 0;
    if (q->rounded.src != NULL && (overwrites || written_over(&q->rounded, op)))
        q->rounded = (struct cuda_rounded){0};
}

/* Whether op, on its way, writes over what another would leave in the work space. */
static bool uses_scratch(const struct atsi_queue *q, const struct atsi_op *op)
{
    const struct cuda_op *k = cuda_ops[op->kind];
    return k->scratch != NULL && k->scratch(&q->be->dev, op) > 0;
}

/* What the first product that reads the results of op `i` wants rounded, when nothing in between
 * needs the work space and nothing writes over these results. */
static struct cuda_rounded wanted_after(const struct atsi_queue *q, const struct atsi_split *split,
                                        uint32_t i)
{
    const struct atsi_op *op = split->ops[i];
    struct cuda_rounded w = {0};
    bool rounds = op->kind == ATSI_OP_RMS_NORM || op->kind == ATSI_OP_SWIGLU;
    if (!q->be->set.fuse || !rounds)
        return w;
    for (uint32_t j = i + 1; j < split->n_ops && j <= i + LOOK_AHEAD; j++) {
        const struct atsi_op *next = split->ops[j];
        uint32_t k = 0;
        if (is_product(next) && next->src[0]->data == op->dst[0]->data) {
            w.block = cuda_product_rounds(next, &w.n_rows, &k);
            w.src = op->dst[0]->data;
            w.k = k;
            if (w.block != 0 && (uint64_t)w.n_rows * k == (uint64_t)op->n_rows * op->dst[0]->ne[0])
                return w;
        }
        w.n_rows = op->n_rows;
        w.k = op->dst[0]->ne[0];
        w.src = op->dst[0]->data;
        if (uses_scratch(q, next) || written_over(&w, next))
            break;
    }
    return (struct cuda_rounded){0};
}

static bool overlap(const struct atsi_tensor *a, const struct atsi_tensor *b, uint32_t rows)
{
    uintptr_t at = (uintptr_t)a->data, bt = (uintptr_t)b->data;
    return at < bt + (size_t)b->row_bytes * rows && bt < at + (size_t)a->row_bytes * rows;
}

/* The operation behind op `i` when both are rotations by one table, neither of what the other
 * writes. */
static const struct atsi_op *joined_with(const struct atsi_queue *q, const struct atsi_split *split,
                                         uint32_t i)
{
    const struct atsi_op *a = split->ops[i], *b = i + 1 < split->n_ops ? split->ops[i + 1] : NULL;
    if (!q->be->set.fuse || b == NULL || a->kind != ATSI_OP_ROPE || b->kind != ATSI_OP_ROPE)
        return NULL;
    if (a->n_rows != b->n_rows || a->src[1]->data != b->src[1]->data ||
        a->p.rope.head_dim != b->p.rope.head_dim || a->p.rope.n_rot != b->p.rope.n_rot ||
        a->p.rope.mode != b->p.rope.mode ||
        (uint64_t)a->p.rope.n_head + b->p.rope.n_head > UINT32_MAX / a->p.rope.head_dim ||
        overlap(a->dst[0], b->src[0], a->n_rows) || overlap(a->dst[0], b->dst[0], a->n_rows) ||
        overlap(a->dst[0], b->src[1], a->n_rows) || overlap(a->src[0], b->dst[0], a->n_rows))
        return NULL;
    return b;
}

/* The attention behind op `i` (and `with`, the rotation joined to it) whose keys they turn: these
 * store them, and its values, which they must not write over. */
static const struct atsi_op *stored_by(const struct atsi_queue *q, const struct atsi_split *split,
                                       uint32_t i, const struct atsi_op *with)
{
    const struct atsi_op *a = split->ops[i], *keys = NULL, *op;
    uint32_t at = i + (with != NULL ? 2 : 1);
    op = at < split->n_ops ? split->ops[at] : NULL;
    if (!q->be->set.fuse || op == NULL || a->kind != ATSI_OP_ROPE || op->kind != ATSI_OP_ATTN ||
        op->n_rows != a->n_rows)
        return NULL;
    if (with != NULL && with->dst[0]->data == op->src[1]->data)
        keys = with;
    else if (a->dst[0]->data == op->src[1]->data)
        keys = a;
    if (keys == NULL || keys->p.rope.n_head != op->kv->n_head_kv ||
        keys->p.rope.head_dim != op->kv->head_dim_k || overlap(a->dst[0], op->src[2], a->n_rows) ||
        (with != NULL && overlap(with->dst[0], op->src[2], a->n_rows)))
        return NULL;
    return op;
}

static int launch_op(struct atsi_queue *q, const struct cuda_launch *l, const struct atsi_op *op,
                     struct atsi_err *err)
{
    cudaError_t e;
    if (l->wanted.block != 0)
        q->rounded = (struct cuda_rounded){0}; /* what lay there goes, one way or the other */
    e = cuda_ops[op->kind]->launch(l, op);
    if (l->wanted.block == 0 || q->rounded.src != l->wanted.src)
        keep_rounded(q, op);
    if (e == cudaSuccess && q->be->set.step)
        e = cudaStreamSynchronize(q->stream);
    return cuda_check(q->be, e, err, "%s of %s", cuda_op_name(op->kind), cuda_op_tensor(op));
}

int cuda_launch_ops(struct atsi_queue *q, const struct atsi_split *split, struct cuda_timing *times,
                    struct atsi_err *err)
{
    struct cuda_launch l = {.stream = q->stream,
                            .dev = &q->be->dev,
                            .scratch = q->scratch != NULL ? cuda_buf_ptr(q->scratch) : NULL,
                            .scratch_bytes = q->scratch_bytes,
                            .rounded = &q->rounded};
    const struct atsi_op *stored = NULL; /* an attention to come, whose keys are in the cache */
    int rc = ATSI_OK;
    q->rounded = (struct cuda_rounded){0};
    if (times != NULL)
        rc = cuda_check(q->be, cudaEventRecord(times->ev[0], q->stream), err, "recording an event");
    for (uint32_t i = 0; i < split->n_ops && rc == ATSI_OK; i++) {
        const struct atsi_op *done = l.with;
        l.wanted = wanted_after(q, split, i);
        l.with = done == NULL ? joined_with(q, split, i) : NULL;
        l.store = done == NULL ? stored_by(q, split, i, l.with) : NULL;
        l.stored = stored == split->ops[i];
        stored = l.stored ? NULL : l.store != NULL ? l.store : stored;
        if (done == NULL)
            rc = launch_op(q, &l, split->ops[i], err);
        else
            keep_rounded(q, done);
        if (rc == ATSI_OK && times != NULL)
            rc = cuda_check(q->be, cudaEventRecord(times->ev[i + 1], q->stream), err,
                            "recording an event");
    }
    return rc;
}

static int launch_timed(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err)
{
    struct cuda_timing *times;
    int rc = cuda_timing_open(q->be, split->n_ops, split->op_ns, &times, err);
    if (rc != ATSI_OK)
        return rc;
    rc = cuda_launch_ops(q, split, times, err);
    if (rc == ATSI_OK)
        cuda_timing_queue(q->be, times, q->stream);
    else
        cuda_timing_drop(q->be, times);
    return rc;
}

static int launch(struct atsi_queue *q, const struct atsi_split *split, struct cuda_graph *g,
                  uint64_t digest, struct atsi_err *err)
{
    bool done = false;
    int rc = ATSI_OK;
    if (split->n_ops == 0)
        return ATSI_OK;
    if (split->op_ns != NULL)
        return launch_timed(q, split, err);
    if (g != NULL)
        rc = cuda_graph_run(q, g, split, digest, &done, err);
    return rc == ATSI_OK && !done ? cuda_launch_ops(q, split, NULL, err) : rc;
}

static int signal_end(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err)
{
    struct cuda_work work = {.n = split->n_ops, .what = "operations"};
    if (split->n_ops > 0) {
        work.op = cuda_op_name(split->ops[split->n_ops - 1]->kind);
        work.tensor = cuda_op_tensor(split->ops[split->n_ops - 1]);
    }
    return cuda_event_signal(q->stream, split->signal, err, &work);
}

int cuda_run(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err)
{
    struct atsi_backend *be = q->be;
    bool graph = split->graph_key != 0 && be->set.graphs && !be->set.step && split->op_ns == NULL &&
                 split->n_ops > 0;
    struct cuda_graph *g;
    uint64_t digest;
    int rc = cuda_enter(be, err);
    if (rc == ATSI_OK)
        rc = cuda_events_check(split->wait, split->n_wait, err);
    if (rc != ATSI_OK)
        return rc;
    g = graph ? cuda_graph_of(q, split) : NULL;
    digest = g != NULL ? cuda_graph_digest(g, split) : 0;
    if (g == NULL || !cuda_graph_ready(q, g, digest)) {
        rc = check_split(be, split, err);
        if (rc == ATSI_OK)
            rc = ensure_scratch(q, split, err);
        if (rc != ATSI_OK)
            return rc;
    }
    rc = cuda_events_wait(q->stream, split->wait, split->n_wait, err);
    if (rc == ATSI_OK)
        rc = launch(q, split, g, digest, err);
    if (rc == ATSI_OK && split->signal != NULL)
        rc = signal_end(q, split, err);
    if (rc != ATSI_OK)
        cuda_stream_drain(be, q->stream);
    return rc;
}
