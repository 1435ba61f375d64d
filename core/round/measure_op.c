/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations to be timed: a node of the graph with tensors of its shapes and made-up data.
 *
 * Weights, caches and states lie in the pool, whose bytes are all between 0x20 and 0x3b: whatever
 * type or layout reads them, scales and floats come out normal, finite and small.  Inputs are
 * random numbers between -1 and 1; ids are spread over what they choose from.
 */
#include "core/round/measure_in.h"

#include "core/memory.h"

#include <string.h>

static size_t aligned(size_t n)
{
    return (n + ATSI_ALIGN - 1) / ATSI_ALIGN * ATSI_ALIGN;
}

static const struct atsi_tensor *weight_of(const struct measure *m, uint32_t node, int k)
{
    int32_t w = m->g->nodes[node]->weight[k];
    return w >= 0 ? m->tensors[w] : NULL;
}

static bool is_typed(uint32_t kind)
{
    return kind == ATSI_OP_MATMUL || kind == ATSI_OP_MATMUL_ID || kind == ATSI_OP_EMBED;
}

/* Whether source k of a kind of operation is made of numbers that choose rows, cells or experts. */
static bool is_ids(uint32_t kind, int k)
{
    switch (kind) {
    case ATSI_OP_EMBED:
    case ATSI_OP_ROPE_TABLE:
        return k == 0;
    case ATSI_OP_MATMUL_ID:
        return k == 1;
    default:
        return kind == ATSI_OP_ATTN && k == 3;
    }
}

static uint64_t elems(const struct atsi_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->n_dims; d++)
        n *= t->ne[d];
    return n;
}

bool measure_op_needs(const struct measure *m, uint32_t node, uint32_t tokens, size_t needs[3])
{
    const struct atsi_graph_node *n = m->g->nodes[node];
    size_t bytes;
    needs[0] = needs[1] = needs[2] = 0;
    for (int k = 0; k < 6; k++) {
        int32_t v = k < 4 ? n->src[k] : n->dst[k - 4];
        int part = k >= 4 ? 2 : is_ids(n->kind, k) ? 0 : 1;
        if (v < 0)
            continue;
        if (!atsi_mul_size(m->g->values[v]->width, (size_t)tokens * 4, &bytes) ||
            !atsi_add_size(needs[part], bytes + MEASURE_PAD, &needs[part]))
            return false;
    }
    for (int k = 0; k < 2; k++) { /* norms, biases, sinks: read from the inputs' area */
        const struct atsi_tensor *w = weight_of(m, node, k);
        if (w != NULL && !(k == 0 && is_typed(n->kind)) && needs[1] < elems(w) * 4 + MEASURE_PAD)
            needs[1] = elems(w) * 4 + MEASURE_PAD;
    }
    return true;
}

/* ---------------------------------------------------------------- what it reads from the pool */
static uint32_t cells_of(const struct atsi_cost_shape *s, uint32_t tokens, uint32_t ctx)
{
    uint64_t all = (uint64_t)ctx + tokens, ring = s->dims[4] + tokens;
    return (uint32_t)(s->dims[4] != 0 && ring < all ? ring : all);
}

static size_t kv_part(const struct atsi_cost_shape *s, bool keys, uint32_t cells)
{
    uint64_t row = atsi_row_bytes((uint32_t)s->dims[keys ? 5 : 6], s->dims[keys ? 2 : 3]);
    return aligned((size_t)(row * s->dims[1] * cells) + ATSI_ALIGN);
}

static size_t state_bytes(const struct measure *m, const struct atsi_graph_node *n)
{
    const struct atsi_graph_state *st = n->state >= 0 ? m->g->states[n->state] : NULL;
    return st != NULL ? (size_t)(st->ne[0] * st->ne[1] * st->ne[2]) * sizeof(float) : 0;
}

size_t measure_op_span(const struct measure *m, const struct atsi_cost_shape *shape, uint32_t node,
                       uint32_t tokens, uint32_t ctx)
{
    const struct atsi_graph_node *n = m->g->nodes[node];
    const struct atsi_tensor *w = weight_of(m, node, 0);
    uint32_t cells;
    switch (shape->kind) {
    case ATSI_OP_MATMUL:
        return aligned((size_t)(w->row_bytes * shape->dims[1]) + ATSI_ALIGN);
    case ATSI_OP_MATMUL_ID:
        return aligned((size_t)(w->row_bytes * shape->dims[1] * shape->dims[2]) + ATSI_ALIGN);
    case ATSI_OP_EMBED:
        return aligned((size_t)w->row_bytes * tokens + ATSI_ALIGN);
    case ATSI_OP_ATTN:
        cells = cells_of(shape, tokens, ctx);
        return kv_part(shape, true, cells) + kv_part(shape, false, cells);
    default:
        return n->state >= 0 ? aligned(state_bytes(m, n) + ATSI_ALIGN) : 0;
    }
}

/* ---------------------------------------------------------------- tensors */
static struct atsi_tensor matrix(uint32_t type, uint64_t width, uint64_t rows, void *data)
{
    return (struct atsi_tensor){.struct_size = sizeof(struct atsi_tensor),
                                .type = type,
                                .n_dims = 2,
                                .ne = {width, rows, 1, 1},
                                .row_bytes =
                                    type == ATSI_TYPE_I32 ? width * 4 : atsi_row_bytes(type, width),
                                .data = data,
                                .name = "measured"};
}

/* 1: no room.  The weight, with fewer rows or experts where they do not fit or take too long; scale
 * says what the whole is of it.  Experts: the tokens each gets stay the same. */
static int cut_weight(const struct measure_device *d, const struct atsi_tensor *w, uint64_t rows,
                      struct measure_op *o)
{
    struct atsi_tensor *t = &o->weight[0];
    size_t row = (size_t)w->row_bytes, room = d->pool_bytes / 2;
    *t = *w;
    t->layout = o->shape.layout;
    t->data = d->pool;
    t->name = "measured";
    if (o->shape.kind == ATSI_OP_EMBED) {
        t->ne[1] = room / row < w->ne[1] ? room / row : w->ne[1];
        o->span = aligned(row * (size_t)t->ne[1]); /* ids are spread over all of it */
        return t->ne[1] > 0 ? ATSI_OK : 1;
    }
    if (o->shape.kind == ATSI_OP_MATMUL_ID) {
        uint64_t fit = room / (row * (size_t)w->ne[1]), used = o->shape.dims[3];
        uint64_t few = fit > used ? fit : used;
        if (few < w->ne[2]) {
            uint32_t tokens = (uint32_t)((uint64_t)o->tokens * few / w->ne[2]);
            tokens = tokens > 0 ? tokens : 1;
            o->scale = (double)o->tokens / (double)tokens;
            o->tokens = tokens;
            t->ne[2] = few;
        }
    }
    if (rows == 0 || rows > w->ne[1])
        rows = w->ne[1];
    while (rows > 16 && row * rows * t->ne[2] > d->pool_bytes - MEASURE_PAD)
        rows = (rows / 2 + 15) / 16 * 16;
    if (row * rows * t->ne[2] > d->pool_bytes - MEASURE_PAD)
        return 1;
    if (rows < w->ne[1]) {
        o->scale *= (double)w->ne[1] / (double)rows;
        t->ne[1] = rows;
    }
    o->span = aligned(row * (size_t)(rows * t->ne[2]) + ATSI_ALIGN);
    return ATSI_OK;
}

/* Inputs twice, one set behind the other where there is room, so that no rounding of one repetition
 * serves the next. */
static void make_values(const struct measure *m, const struct measure_device *d,
                        struct measure_op *o)
{
    const struct atsi_graph_node *n = o->node;
    unsigned char *ids = d->act, *in = d->act + d->ids_bytes;
    unsigned char *result = d->act + d->ids_bytes + 2 * d->src_bytes;
    for (int k = 0; k < 4; k++) {
        const struct atsi_graph_value *v = n->src[k] >= 0 ? m->g->values[n->src[k]] : NULL;
        uint64_t bytes = v != NULL ? aligned((size_t)v->width * o->tokens * 4) : 0;
        if (v == NULL)
            continue;
        for (int twin = 0; twin < 2; twin++) {
            unsigned char *at = is_ids(n->kind, k) ? ids : in + (twin != 0 ? d->src_bytes : 0);
            o->src[twin][k] = matrix(v->type, v->width, o->tokens, at);
        }
        if (is_ids(n->kind, k))
            ids += bytes;
        else
            in += bytes;
    }
    for (int k = 0; k < 2; k++) {
        const struct atsi_graph_value *v = n->dst[k] >= 0 ? m->g->values[n->dst[k]] : NULL;
        uint64_t width = v != NULL ? v->width : 0;
        if (v == NULL)
            continue;
        if (n->kind == ATSI_OP_MATMUL)
            width = o->weight[0].ne[1];
        else if (n->kind == ATSI_OP_MATMUL_ID)
            width = o->shape.dims[3] * o->weight[0].ne[1];
        o->dst[k] = matrix(v->type, width, o->tokens, result);
        result += aligned((size_t)width * o->tokens * 4);
    }
}

static void make_ops(const struct measure *m, const struct measure_device *d, struct measure_op *o)
{
    const struct atsi_graph_node *n = o->node;
    bool exact = m->r->exact;
    for (uint32_t i = 0; i < MEASURE_REPS; i++) {
        struct atsi_op *op = &o->op[i];
        *op = (struct atsi_op){.struct_size = sizeof *op,
                               .kind = n->kind,
                               .flags = exact ? ATSI_OP_EXACT : 0,
                               .n_rows = o->tokens,
                               .p = n->p};
        for (int k = 0; k < 4; k++)
            op->src[k] = n->src[k] >= 0 ? &o->src[i % 2][k] : NULL;
        for (int k = 0; k < 2; k++)
            op->dst[k] = n->dst[k] >= 0 ? &o->dst[k] : NULL;
        o->weight[i] = o->weight[0];
        op->weight[0] = n->weight[0] >= 0 ? &o->weight[i] : NULL;
        op->weight[1] = n->weight[1] >= 0 ? &o->small : NULL;
        if (n->state >= 0) {
            const struct atsi_graph_state *st = m->g->states[n->state];
            o->state[i] = matrix(ATSI_TYPE_F32, st->ne[0], st->ne[1], d->pool);
            o->state[i].n_dims = 3;
            o->state[i].ne[2] = st->ne[2];
            op->state = &o->state[i];
        }
        if (n->kind == ATSI_OP_ATTN) {
            const uint64_t *s = o->shape.dims;
            o->kv[i] = (struct atsi_kv){.struct_size = sizeof o->kv[i],
                                        .type_k = (uint32_t)s[5],
                                        .type_v = (uint32_t)s[6],
                                        .n_head_kv = (uint32_t)s[1],
                                        .head_dim_k = (uint32_t)s[2],
                                        .head_dim_v = (uint32_t)s[3],
                                        .n_ctx = cells_of(&o->shape, o->tokens, o->ctx)};
            op->p.attn.n_kv = o->ctx + o->tokens;
            op->kv = &o->kv[i];
        }
        o->ptr[i] = op;
    }
}

/* ---------------------------------------------------------------- ids */
/* Experts: different ones for a token, all equally often. */
static int32_t id_of(const struct measure_op *o, uint32_t token, uint32_t slot)
{
    uint64_t n;
    switch (o->shape.kind) {
    case ATSI_OP_MATMUL_ID:
        n = o->weight[0].ne[2];
        return (int32_t)((token * UINT64_C(2654435761) / 16 + slot) % n);
    case ATSI_OP_EMBED:
        n = o->weight[0].ne[1];
        return (int32_t)(token * UINT64_C(2654435761) / 16 % n);
    default:
        return (int32_t)(o->ctx + token);
    }
}

static int put_ids(struct measure *m, struct measure_device *d, struct measure_op *o)
{
    for (int k = 0; k < 4; k++) {
        const struct atsi_tensor *t = &o->src[0][k];
        int32_t *ids = (int32_t *)(void *)m->staging;
        uint32_t width = (uint32_t)t->ne[0];
        if (o->node->src[k] < 0 || !is_ids(o->node->kind, k))
            continue;
        for (uint32_t i = 0; i < o->tokens * width; i++)
            ids[i] = id_of(o, i / width, i % width);
        return measure_put(m, d, t->data, ids, (size_t)o->tokens * width * 4);
    }
    return ATSI_OK;
}

/* ---------------------------------------------------------------- making */
int measure_op_make(struct measure *m, struct measure_device *d, uint32_t node,
                    const struct atsi_cost_shape *shape, uint32_t tokens, uint32_t ctx,
                    uint64_t rows, struct measure_op *out)
{
    const struct atsi_tensor *w = weight_of(m, node, 0), *second = weight_of(m, node, 1);
    int rc = ATSI_OK;
    memset(out, 0, sizeof *out);
    out->node = m->g->nodes[node];
    out->shape = *shape;
    out->tokens = tokens;
    out->ctx = ctx;
    out->scale = 1;
    out->span = measure_op_span(m, shape, node, tokens, ctx);
    if (w != NULL && is_typed(shape->kind)) {
        rc = cut_weight(d, w, rows, out);
    } else if (w != NULL) { /* small, f32 */
        out->weight[0] = *w;
        out->weight[0].data = d->act + d->ids_bytes;
    }
    if (second != NULL) {
        out->small = *second;
        out->small.data = d->act + d->ids_bytes;
        if (is_typed(shape->kind)) { /* a bias follows the rows that are left */
            out->small.ne[0] = out->weight[0].ne[1];
            out->small.row_bytes = out->small.ne[0] * 4;
            if (second->n_dims > 1)
                out->small.ne[1] = out->weight[0].ne[2];
        }
    }
    if (rc == ATSI_OK && out->span > d->pool_bytes - MEASURE_PAD)
        rc = 1;
    if (rc != ATSI_OK)
        return rc;
    make_values(m, d, out);
    make_ops(m, d, out);
    measure_op_place(d, out, 1, true);
    if (d->ops->supports(d->be, &out->op[0]) != 1)
        return 1;
    return put_ids(m, d, out);
}

void measure_op_place(struct measure_device *d, struct measure_op *o, uint32_t n, bool warm)
{
    o->n = n;
    for (uint32_t i = 0; i < n; i++) {
        unsigned char *at = d->pool;
        if (o->span == 0)
            continue;
        if (!warm) {
            if (d->at + o->span > d->pool_bytes - MEASURE_PAD)
                d->at = 0;
            at += d->at;
            d->at += o->span;
        }
        if (o->node->kind == ATSI_OP_ATTN) {
            o->kv[i].k = at;
            o->kv[i].v = at + kv_part(&o->shape, true, o->kv[i].n_ctx);
        } else if (o->node->state >= 0) {
            o->state[i].data = at;
        } else {
            o->weight[i].data = at;
        }
    }
}
