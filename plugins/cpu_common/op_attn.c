/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over the KV cache: keys and values of the new rows are stored first, then units of
 * (row, KV head) are dealt out in turn, which balances the growing work of later rows.
 */
#include "backend.h"

static size_t score_floats(const struct atsi_op *op)
{
    size_t n_q = op->p.attn.n_head / op->p.attn.n_head_kv;
    return n_q * cpu_round_up(op->p.attn.n_kv, 16);
}

size_t cpu_attn_scratch(const struct atsi_op *op)
{
    return cpu_round_up(score_floats(op) * sizeof(float), CPU_ALIGN);
}

static unsigned char *cell(const struct atsi_kv *kv, bool keys, uint32_t head, uint32_t pos)
{
    size_t row =
        atsi_row_bytes(keys ? kv->type_k : kv->type_v, keys ? kv->head_dim_k : kv->head_dim_v);
    unsigned char *base = keys ? kv->k : kv->v;
    return base + ((size_t)head * kv->n_ctx + pos) * row;
}

static void store_row(const struct cpu_worker *w, const struct atsi_op *op, uint32_t t,
                      uint32_t head, bool keys)
{
    const struct atsi_kv *kv = op->kv;
    const struct atsi_tensor *x = keys ? op->src[1] : op->src[2];
    uint32_t dim = keys ? kv->head_dim_k : kv->head_dim_v, type = keys ? kv->type_k : kv->type_v;
    uint32_t pos = (uint32_t)((const int32_t *)op->src[3]->data)[t];
    const float *from = (const float *)x->data + t * x->ne[0] + (size_t)head * dim;
    void *to = cell(kv, keys, head, pos);
    if (type == ATSI_TYPE_F16)
        w->kernels->store_f16(from, to, dim);
    else
        memcpy(to, from, dim * sizeof(float));
}

static void attend(struct cpu_worker *w, const struct atsi_op *op, uint32_t t, uint32_t head)
{
    const struct atsi_kv *kv = op->kv;
    uint32_t n_q = op->p.attn.n_head / op->p.attn.n_head_kv;
    uint32_t dk = kv->head_dim_k, dv = kv->head_dim_v;
    struct cpu_attn_args a = {
        .n_q = n_q,
        .dk = dk,
        .dv = dv,
        .n_kv = (uint32_t)((const int32_t *)op->src[3]->data)[t] + 1,
        .type_k = kv->type_k,
        .type_v = kv->type_v,
        .scale = op->p.attn.scale,
        .q = (const float *)op->src[0]->data + t * op->src[0]->ne[0] + (size_t)head * n_q * dk,
        .k = cell(kv, true, head, 0),
        .v = cell(kv, false, head, 0),
        .out = (float *)op->dst[0]->data + t * op->dst[0]->ne[0] + (size_t)head * n_q * dv,
        .score = (float *)(void *)w->free};
    w->kernels->attn(&a);
}

void cpu_op_attn(struct cpu_worker *w, const struct atsi_op *op)
{
    uint32_t heads = op->p.attn.n_head_kv, units = op->n_rows * heads;
    for (uint32_t u = w->w->tid; u < units; u += w->w->n_threads) {
        store_row(w, op, u / heads, u % heads, true);
        store_row(w, op, u / heads, u % heads, false);
    }
    w->w->barrier(w->w);
    /* Head by head, so that a head's cache stays close while its rows are worked on. */
    for (uint32_t u = w->w->tid; u < units; u += w->w->n_threads)
        attend(w, op, u % op->n_rows, u / op->n_rows);
}
