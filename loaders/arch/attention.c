/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention: projections (separate, fused, or with a gate beside each query head), norms of q and
 * k, rotation, the cache, the output projection.
 */
#include "loaders/arch/decoder.h"

#define QKV "blk.%d.attn_qkv.weight"

struct qkv {
    int32_t q, k, v, gate; /* gate: the value that holds it beside q, or -1 */
};

/* One product for q, k and v (rows in that order), cut apart afterwards. */
static void fused(struct arch_builder *b, int32_t x, uint32_t nq, uint32_t nk, uint32_t nv,
                  struct qkv *out)
{
    uint32_t all = nq + nk + nv;
    int32_t y = arch_project(b, "wqkv", QKV, "blk.%d.attn_qkv.bias", x, b->hp.n_embd, all);
    struct arch_regroup cut = {.n_group = 1, .stride = all, .n_seg = 1, .len = {nq}};
    out->q = arch_regroup(b, "Qproj", y, &cut);
    cut.offset[0] = nq;
    cut.len[0] = nk;
    out->k = arch_regroup(b, "Kproj", y, &cut);
    cut.offset[0] = nq + nk;
    cut.len[0] = nv;
    out->v = arch_regroup(b, "Vcur", y, &cut);
}

static void projections(struct arch_context *c, int32_t x, struct qkv *out)
{
    struct arch_builder *b = &c->b;
    const struct arch_hparams *hp = &b->hp;
    uint32_t h = hp->n_head[b->layer], hkv = hp->n_head_kv[b->layer];
    uint32_t nq = h * hp->head_dim_k, nk = hkv * hp->head_dim_k, nv = hkv * hp->head_dim_v;
    uint64_t d = hp->n_embd;
    if (!c->d->gated_attn && arch_has_tensor(b, QKV)) {
        fused(b, x, nq, nk, nv, out);
        return;
    }
    if (c->d->gated_attn)
        out->q = out->gate =
            arch_project(b, "Qcur_full", "blk.%d.attn_q.weight", NULL, x, d, 2 * (uint64_t)nq);
    else
        out->q = arch_project(b, "Qproj", "blk.%d.attn_q.weight", "blk.%d.attn_q.bias", x, d, nq);
    out->k = arch_project(b, "Kproj", "blk.%d.attn_k.weight", "blk.%d.attn_k.bias", x, d, nk);
    out->v = arch_project(b, "Vcur", "blk.%d.attn_v.weight", "blk.%d.attn_v.bias", x, d, nv);
}

/* Looking them up says which one is missing. */
static void require_biases(struct arch_builder *b, uint32_t nq, uint32_t nk, uint32_t nv)
{
    if (arch_has_tensor(b, QKV)) {
        (void)arch_tensor(b, "blk.%d.attn_qkv.bias", SHAPE((uint64_t)nq + nk + nv));
    } else {
        (void)arch_tensor(b, "blk.%d.attn_q.bias", SHAPE(nq));
        (void)arch_tensor(b, "blk.%d.attn_k.bias", SHAPE(nk));
        (void)arch_tensor(b, "blk.%d.attn_v.bias", SHAPE(nv));
    }
    (void)arch_tensor(b, "blk.%d.attn_output.bias", SHAPE(b->hp.n_embd));
}

/* Norm per head (with `stride`, of heads that far apart), then rotation. */
static int32_t rotate(struct arch_context *c, const char *normed, const char *name,
                      const char *tensor, int32_t x, uint32_t n_head, uint32_t stride)
{
    struct arch_builder *b = &c->b;
    if (c->d->qk_norm)
        x = arch_rms_norm_strided(b, normed, x, arch_tensor(b, tensor, SHAPE(b->hp.head_dim_k)),
                                  stride);
    return arch_rope(b, name, x, c->rope_table, n_head, b->hp.head_dim_k, b->hp.rope_mode);
}

int32_t arch_attention(struct arch_context *c, int32_t x)
{
    struct arch_builder *b = &c->b;
    const struct arch_hparams *hp = &b->hp;
    uint32_t h, hkv, dk = hp->head_dim_k, dv = hp->head_dim_v;
    struct qkv p = {-1, -1, -1, -1};
    int32_t sinks = -1, o;
    if (b->rc != ATSI_OK)
        return -1;
    h = hp->n_head[b->layer];
    hkv = hp->n_head_kv[b->layer];
    b->role = ATSI_ROLE_ATTN_PROJ;
    projections(c, x, &p);
    if (c->d->attn_bias)
        require_biases(b, h * dk, hkv * dk, hkv * dv);
    p.q = rotate(c, "Qcur_normed", "Qcur", "blk.%d.attn_q_norm.weight", p.q, h,
                 p.gate >= 0 ? 2 * dk : 0);
    p.k = rotate(c, "Kcur_normed", "Kcur", "blk.%d.attn_k_norm.weight", p.k, hkv, 0);
    if (c->d->sinks)
        sinks = arch_tensor(b, "blk.%d.attn_sinks.weight", SHAPE(h));
    o = arch_attn(b, p.gate >= 0 ? "attn_pregate" : "kqv_out", p.q, p.k, p.v, c->pos, sinks);
    arch_output_rows(b);
    if (p.gate >= 0)
        o = arch_gate(b, "attn_gated", o, p.gate, dv, dk + dv, dk, false);
    return arch_project(b, p.gate >= 0 ? "attn_output" : "attn_out", "blk.%d.attn_output.weight",
                        "blk.%d.attn_output.bias", o, (uint64_t)h * dv, hp->n_embd);
}
