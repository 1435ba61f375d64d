/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a split: decide beforehand where workers must wait for each other and where activations
 * must be rounded anew, then walk the ops in one parallel region.
 *
 * A barrier comes before an op that reads what another op wrote since the last barrier, or writes
 * what another one read or wrote.  Rounded activations are kept until their source is overwritten,
 * so q, k, v (gate, up) share one rounding.
 */
#include "backend.h"

#include <stdlib.h>

/* ---------------------------------------------------------------- planning */
struct span {
    uintptr_t from, to;
    bool written;
};

#define MAX_SPANS 64u
#define OP_SPANS 8u /* at most: four sources, two results, keys and values or a state */

struct planner {
    struct span spans[MAX_SPANS]; /* touched since the last barrier */
    uint32_t n_spans;
    uintptr_t act_from, act_to; /* source of the rounded activations, empty when there are none */
    uint32_t act_block, act_rows, act_k;
    bool act_own;                  /* in each worker's scratch, not in the shared buffer */
    size_t scratch, shared, parts; /* largest needs so far */
    size_t act_scratch;
};

/* From the first to the last element: of columns of a wider activation, what lies between too. */
static struct span span_of(const struct atsi_tensor *t, uint32_t rows, bool written)
{
    uintptr_t from = (uintptr_t)t->data;
    return (struct span){from, from + (size_t)(rows - 1) * t->row_bytes + t->ne[0] * 4, written};
}

/* Keys or values of an attention, which it writes and reads. */
static struct span cache_span(const struct atsi_kv *kv, bool keys)
{
    uintptr_t from = (uintptr_t)(keys ? kv->k : kv->v);
    uint64_t row =
        atsi_row_bytes(keys ? kv->type_k : kv->type_v, keys ? kv->head_dim_k : kv->head_dim_v);
    return (struct span){from, from + (size_t)(row * kv->n_head_kv * kv->n_ctx), true};
}

/* What is kept from one call to the next, read and written by the op. */
static struct span state_span(const struct atsi_tensor *t)
{
    uintptr_t from = (uintptr_t)t->data;
    return (struct span){from, from + (size_t)(t->row_bytes * t->ne[1] * t->ne[2]), true};
}

static bool conflicts(const struct planner *p, struct span s)
{
    for (uint32_t i = 0; i < p->n_spans; i++)
        if ((s.written || p->spans[i].written) && s.from < p->spans[i].to &&
            p->spans[i].from < s.to)
            return true;
    return false;
}

static bool op_conflicts(const struct planner *p, const struct atsi_op *op)
{
    for (int i = 0; i < 4; i++)
        if (op->src[i] != NULL && conflicts(p, span_of(op->src[i], op->n_rows, false)))
            return true;
    for (int i = 0; i < 2; i++)
        if (op->dst[i] != NULL && conflicts(p, span_of(op->dst[i], op->n_rows, true)))
            return true;
    if (op->kind == ATSI_OP_ATTN &&
        (conflicts(p, cache_span(op->kv, true)) || conflicts(p, cache_span(op->kv, false))))
        return true;
    if (cpu_has_state(op->kind) && conflicts(p, state_span(op->state)))
        return true;
    return p->n_spans + OP_SPANS > MAX_SPANS;
}

static void remember(struct planner *p, const struct atsi_op *op)
{
    for (int i = 0; i < 4; i++)
        if (op->src[i] != NULL)
            p->spans[p->n_spans++] = span_of(op->src[i], op->n_rows, false);
    for (int i = 0; i < 2; i++)
        if (op->dst[i] != NULL) {
            struct span s = span_of(op->dst[i], op->n_rows, true);
            p->spans[p->n_spans++] = s;
            if (s.from < p->act_to && p->act_from < s.to)
                p->act_from = p->act_to = 0;
        }
    if (op->kind == ATSI_OP_ATTN) {
        p->spans[p->n_spans++] = cache_span(op->kv, true);
        p->spans[p->n_spans++] = cache_span(op->kv, false);
    }
    if (cpu_has_state(op->kind))
        p->spans[p->n_spans++] = state_span(op->state);
}

static void need(size_t *most, size_t bytes)
{
    if (bytes > *most)
        *most = bytes;
}

/* Whether the act buffer must be filled, and how large it is. */
static void plan_act(struct planner *p, const struct atsi_op *op, struct cpu_step *s)
{
    struct span x = span_of(op->src[0], op->n_rows, false);
    size_t bytes;
    s->block = cpu_act_block(op);
    s->act_k = (uint32_t)op->weight[0]->ne[0];
    s->act_rows = (uint32_t)((size_t)op->n_rows * op->src[0]->ne[0] / s->act_k);
    if (s->block == 0)
        return;
    s->quantize = x.from != p->act_from || x.to != p->act_to || s->block != p->act_block ||
                  s->act_rows != p->act_rows || s->act_k != p->act_k ||
                  (op->n_rows == 1) != p->act_own;
    bytes = cpu_round_up(cpu_act_bytes(s->act_rows, s->act_k, s->block), CPU_ALIGN);
    if (op->n_rows == 1) {
        need(&p->act_scratch, bytes);
    } else {
        need(&p->shared, bytes);
        /* The shared buffer may still be read by workers that are behind. */
        s->barrier = s->barrier || (s->quantize && p->n_spans > 0);
    }
    p->act_from = x.from;
    p->act_to = x.to;
    p->act_block = s->block;
    p->act_own = op->n_rows == 1;
    p->act_rows = s->act_rows;
    p->act_k = s->act_k;
}

static void plan_attn(struct planner *p, const struct atsi_op *op, uint32_t n_threads)
{
    need(&p->scratch, cpu_attn_scratch(op, n_threads));
    need(&p->parts, cpu_attn_shared(op, n_threads));
}

static void plan_op(struct planner *p, const struct atsi_op *op, struct cpu_step *s,
                    uint32_t n_threads)
{
    *s = (struct cpu_step){.barrier = op_conflicts(p, op)};
    if (op->kind == ATSI_OP_MATMUL || op->kind == ATSI_OP_MATMUL_ID)
        plan_act(p, op, s);
    if (op->kind == ATSI_OP_EMBED)
        need(&p->scratch, cpu_embed_scratch(op));
    else if (op->kind == ATSI_OP_MATMUL)
        need(&p->scratch, cpu_matmul_scratch(op));
    else if (op->kind == ATSI_OP_MATMUL_ID)
        need(&p->scratch, cpu_experts_scratch(op));
    else if (op->kind == ATSI_OP_ATTN)
        plan_attn(p, op, n_threads);
    else if (op->kind == ATSI_OP_DELTA_NET)
        need(&p->scratch, cpu_delta_scratch(op));
    if (s->barrier)
        p->n_spans = 0;
    remember(p, op);
}

/* ---------------------------------------------------------------- running */
static void run_op(struct cpu_worker *w, const struct atsi_op *op, const struct cpu_step *s)
{
    switch (op->kind) {
    case ATSI_OP_EMBED:
        cpu_op_embed(w, op);
        break;
    case ATSI_OP_RMS_NORM:
        cpu_op_rms_norm(w, op);
        break;
    case ATSI_OP_MATMUL:
        cpu_act_prepare(w, op, s);
        cpu_op_matmul(w, op);
        break;
    case ATSI_OP_ROPE_TABLE:
        cpu_op_rope_table(w, op);
        break;
    case ATSI_OP_ROPE:
        cpu_op_rope(w, op);
        break;
    case ATSI_OP_ATTN:
        cpu_op_attn(w, op);
        break;
    case ATSI_OP_SWIGLU:
        cpu_op_swiglu(w, op);
        break;
    case ATSI_OP_ADD:
        cpu_op_add(w, op);
        break;
    case ATSI_OP_TOPK:
        cpu_op_topk(w, op);
        break;
    case ATSI_OP_MATMUL_ID:
        cpu_act_prepare(w, op, s);
        cpu_op_experts(w, op);
        break;
    case ATSI_OP_MOE_SUM:
        cpu_op_moe_sum(w, op);
        break;
    case ATSI_OP_GATE:
        cpu_op_gate(w, op);
        break;
    case ATSI_OP_REGROUP:
        cpu_op_regroup(w, op);
        break;
    case ATSI_OP_CONV:
        cpu_op_conv(w, op);
        break;
    case ATSI_OP_DELTA_NET:
        cpu_op_delta_net(w, op);
        break;
    default: /* cpu_supports() refused it */
        break;
    }
}

/* How much of a worker's scratch its own act buffer takes; the rest is `free`. */
struct region {
    struct cpu_run run;
    size_t act_scratch;
};

static void region_main(void *arg, struct atsi_worker *w)
{
    struct region *r = arg;
    const struct atsi_split *split = r->run.split;
    const struct atsi_host *host = r->run.be->host;
    struct cpu_worker worker = {.run = &r->run,
                                .w = w,
                                .kernels = &r->run.be->kernels,
                                .free = (unsigned char *)w->scratch + r->act_scratch};
    for (uint32_t i = 0; i < split->n_ops; i++) {
        uint64_t start = 0;
        if (r->run.steps[i].barrier || (split->op_ns != NULL && i > 0))
            w->barrier(w);
        if (split->op_ns != NULL && w->tid == 0)
            start = host->now_ns(host->ctx);
        run_op(&worker, split->ops[i], &r->run.steps[i]);
        if (split->op_ns != NULL) {
            w->barrier(w); /* the op's time ends with its slowest worker */
            if (w->tid == 0)
                split->op_ns[i] = host->now_ns(host->ctx) - start;
        }
    }
}

int cpu_block_grow(struct cpu_block *b, size_t bytes, struct atsi_err *err)
{
    void *grown;
    bytes = cpu_round_up(bytes, CPU_ALIGN);
    if (bytes <= b->size)
        return ATSI_OK;
    grown = aligned_alloc(CPU_ALIGN, bytes);
    if (grown == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for %zu bytes of work space", bytes);
    free(b->data);
    b->data = grown;
    b->size = bytes;
    return ATSI_OK;
}

/* Ids come from outside; everything else was checked when the op was built. */
static int check_ids(const struct atsi_op *op, struct atsi_err *err)
{
    const int32_t *ids = op->src[0]->data;
    for (uint32_t t = 0; t < op->n_rows; t++)
        if (ids[t] < 0 || (uint64_t)ids[t] >= op->weight[0]->ne[1])
            return atsi_fail(err, ATSI_EINVAL, "row %u of %s: id %d, the table has %llu rows", t,
                             op->dst[0]->name, ids[t], (unsigned long long)op->weight[0]->ne[1]);
    return ATSI_OK;
}

/* n_kv of them have cells, or as many as a window shows (cpu_supports()). */
static int check_positions(const struct atsi_op *op, struct atsi_err *err)
{
    const int32_t *pos = op->src[3]->data;
    for (uint32_t t = 0; t < op->n_rows; t++)
        if (pos[t] < 0 || (uint32_t)pos[t] >= op->p.attn.n_kv ||
            (t > 0 && pos[t] != pos[t - 1] + 1))
            return atsi_fail(err, ATSI_EINVAL,
                             "row %u of %s: position %d, but %u are in use after this call, and "
                             "positions ascend by one",
                             t, op->dst[0]->name, pos[t], op->p.attn.n_kv);
    return ATSI_OK;
}

/* A state must not grow from row to row by itself. */
static int check_rates(const struct atsi_op *op, struct atsi_err *err)
{
    const float *rate = op->weight[0]->data;
    for (uint32_t h = 0; h < op->p.delta.n_head_v; h++)
        if (!(rate[h] <= 0))
            return atsi_fail(err, ATSI_EINVAL, "%s[%u] is %g: decay rates are negative or 0",
                             op->weight[0]->name, h, (double)rate[h]);
    return ATSI_OK;
}

static bool has_data(const struct atsi_op *op)
{
    for (int i = 0; i < 4; i++)
        if (op->src[i] != NULL && op->src[i]->data == NULL)
            return false;
    for (int i = 0; i < 2; i++)
        if ((op->weight[i] != NULL && op->weight[i]->data == NULL) ||
            (op->dst[i] != NULL && op->dst[i]->data == NULL))
            return false;
    if (op->state != NULL && op->state->data == NULL)
        return false;
    return op->kv == NULL || (op->kv->k != NULL && op->kv->v != NULL);
}

static int check_op(const struct atsi_backend *be, const struct atsi_op *op, struct atsi_err *err)
{
    if (cpu_supports(&be->kernels, op) != 1)
        return atsi_fail(err, ATSI_ENOTSUP, "%s: operation %u with these shapes is not supported",
                         be->name, op->kind);
    if (!has_data(op))
        return atsi_fail(err, ATSI_EINVAL, "%s: operation %u has a tensor without data", be->name,
                         op->kind);
    switch (op->kind) {
    case ATSI_OP_EMBED:
        return check_ids(op, err);
    case ATSI_OP_ATTN:
        return check_positions(op, err);
    case ATSI_OP_DELTA_NET:
        return check_rates(op, err);
    default:
        return ATSI_OK;
    }
}

int cpu_run_split(struct atsi_backend *be, const struct atsi_split *split, struct atsi_err *err)
{
    struct planner p = {.n_spans = 0};
    struct region r = {.run = {.be = be, .split = split}};
    uint32_t n_threads = be->host->n_threads(be->host->ctx);
    struct cpu_step *steps;
    int64_t bad_expert;
    int rc = cpu_block_grow(&be->steps, split->n_ops * sizeof(struct cpu_step), err);
    for (uint32_t i = 0; i < split->n_ops && rc == ATSI_OK; i++)
        rc = check_op(be, split->ops[i], err);
    if (rc != ATSI_OK)
        return rc;
    steps = be->steps.data;
    for (uint32_t i = 0; i < split->n_ops; i++)
        plan_op(&p, split->ops[i], &steps[i], n_threads);
    rc = cpu_block_grow(&be->shared, p.shared, err);
    if (rc == ATSI_OK)
        rc = cpu_block_grow(&be->parts, p.parts, err);
    if (rc != ATSI_OK || split->n_ops == 0)
        return rc;
    r.run.steps = steps;
    r.act_scratch = p.act_scratch;
    atomic_init(&r.run.bad_expert, CPU_NO_BAD_EXPERT);
    rc = be->host->region(be->host->ctx, region_main, &r, p.act_scratch + p.scratch + CPU_ALIGN);
    if (rc != ATSI_OK)
        return atsi_fail(err, rc, "%s: the workers cannot be started", be->name);
    bad_expert = atomic_load_explicit(&r.run.bad_expert, memory_order_relaxed); /* region is over */
    if (bad_expert != CPU_NO_BAD_EXPERT)
        return atsi_fail(err, ATSI_EINVAL, "%s: expert id %lld is out of range", be->name,
                         (long long)bad_expert);
    return ATSI_OK;
}
