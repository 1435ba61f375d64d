/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over the KV cache: keys and values of the new rows are stored first, then units of
 * (row, KV head) are dealt out in turn, which balances the growing work of later rows.
 *
 * The cache is a ring: position p lies in cell p % n_ctx.  The positions a row sees are neighbours,
 * so they lie in one run of cells, or in two when the ring begins anew among them.
 */
#include "backend.h"

uint32_t cpu_attn_visible(const struct atsi_op *op)
{
    uint32_t w = op->p.attn.window, n = op->p.attn.n_kv;
    return w != 0 && w < n ? w : n;
}

size_t cpu_attn_scratch(const struct atsi_op *op)
{
    size_t n_q = op->p.attn.n_head / op->p.attn.n_head_kv;
    size_t floats = n_q * cpu_round_up(cpu_attn_visible(op), 16);
    return cpu_round_up(floats * sizeof(float), CPU_ALIGN);
}

static uint32_t position(const struct atsi_op *op, uint32_t t)
{
    return (uint32_t)((const int32_t *)op->src[3]->data)[t]; /* checked before the region */
}

static unsigned char *cell(const struct atsi_kv *kv, bool keys, uint32_t head, uint32_t at)
{
    size_t row =
        atsi_row_bytes(keys ? kv->type_k : kv->type_v, keys ? kv->head_dim_k : kv->head_dim_v);
    unsigned char *base = keys ? kv->k : kv->v;
    return base + ((size_t)head * kv->n_ctx + at) * row;
}

static void store_row(const struct cpu_worker *w, const struct atsi_op *op, uint32_t t,
                      uint32_t head, bool keys)
{
    const struct atsi_kv *kv = op->kv;
    const struct atsi_tensor *x = keys ? op->src[1] : op->src[2];
    uint32_t dim = keys ? kv->head_dim_k : kv->head_dim_v, type = keys ? kv->type_k : kv->type_v;
    const float *from = (const float *)x->data + t * x->ne[0] + (size_t)head * dim;
    void *to = cell(kv, keys, head, position(op, t) % kv->n_ctx);
    if (type == ATSI_TYPE_F16)
        w->kernels->store_f16(from, to, dim);
    else if (type == ATSI_TYPE_Q8_0)
        w->kernels->store_q8_0(from, to, dim);
    else
        memcpy(to, from, dim * sizeof(float));
}

static void attend(struct cpu_worker *w, const struct atsi_op *op, uint32_t t, uint32_t head)
{
    const struct atsi_kv *kv = op->kv;
    uint32_t n_q = op->p.attn.n_head / op->p.attn.n_head_kv;
    uint32_t dk = kv->head_dim_k, dv = kv->head_dim_v;
    uint32_t end = position(op, t) + 1, window = op->p.attn.window;
    uint32_t begin = window != 0 && end > window ? end - window : 0;
    uint32_t at = begin % kv->n_ctx, room = kv->n_ctx - at;
    struct cpu_attn_args a = {
        .n_q = n_q,
        .dk = dk,
        .dv = dv,
        .n_kv = end - begin,
        .n_first = end - begin < room ? end - begin : room,
        .type_k = kv->type_k,
        .type_v = kv->type_v,
        .scale = op->p.attn.scale,
        .q = (const float *)op->src[0]->data + t * op->src[0]->ne[0] + (size_t)head * n_q * dk,
        .k = cell(kv, true, head, at),
        .v = cell(kv, false, head, at),
        .k2 = cell(kv, true, head, 0),
        .v2 = cell(kv, false, head, 0),
        .sink =
            op->weight[0] != NULL ? (const float *)op->weight[0]->data + (size_t)head * n_q : NULL,
        .out = (float *)op->dst[0]->data + t * op->dst[0]->ne[0] + (size_t)head * n_q * dv,
        .score = (float *)(void *)w->free};
    w->kernels->attn(&a);
}

void cpu_op_attn(struct cpu_worker *w, const struct atsi_op *op)
{
    size_t heads = op->p.attn.n_head_kv, units = op->n_rows * heads;
    for (size_t u = w->w->tid; u < units; u += w->w->n_threads) {
        store_row(w, op, (uint32_t)(u / heads), (uint32_t)(u % heads), true);
        store_row(w, op, (uint32_t)(u / heads), (uint32_t)(u % heads), false);
    }
    w->w->barrier(w->w);
    /* Head by head, so that a head's cache stays close while its rows are worked on. */
    for (size_t u = w->w->tid; u < units; u += w->w->n_threads)
        attend(w, op, (uint32_t)(u % op->n_rows), (uint32_t)(u / op->n_rows));
}
