/* SPDX-License-Identifier: Apache-2.0
 *
 * The pre-norm decoder:  h = x + Attn(N(x)),  x' = h + FFN(N(h)),  logits = W N(x).
 * FFN is SwiGLU, or a mixture of SwiGLU experts chosen by a softmax router.
 */
#include "loaders/arch/decoder.h"

#include "loaders/arch/rope.h"

#include <string.h>

struct context {
    struct arch_builder b;
    const struct arch_decoder *d;
    int32_t pos, rope_table;
};

#define SHAPE(...) ((struct arch_shape){{__VA_ARGS__}})

static int32_t project(struct context *c, const char *value, const char *tensor, const char *bias,
                       int32_t x, uint64_t in, uint64_t out)
{
    int32_t w = arch_tensor(&c->b, tensor, SHAPE(in, out));
    return arch_matmul(&c->b, value, x, w, arch_tensor_opt(&c->b, bias, SHAPE(out)));
}

/* q or k: optional norm per head, then rotation. */
static int32_t rotate(struct context *c, const char *normed, const char *name, const char *tensor,
                      int32_t x, uint32_t n_head)
{
    struct arch_builder *b = &c->b;
    if (c->d->qk_norm)
        x = arch_rms_norm(b, normed, x, arch_tensor(b, tensor, SHAPE(b->hp.head_dim_k)));
    return arch_rope(b, name, x, c->rope_table, n_head, b->hp.head_dim_k, c->d->rope_mode);
}

static int32_t attention(struct context *c, int32_t x)
{
    struct arch_builder *b = &c->b;
    const struct arch_hparams *hp = &b->hp;
    uint32_t h = hp->n_head[b->layer], hkv = hp->n_head_kv[b->layer];
    uint64_t dk = hp->head_dim_k, dv = hp->head_dim_v, d = hp->n_embd;
    int32_t q, k, v, o;
    b->role = ATSI_ROLE_ATTN_PROJ;
    if (arch_has_tensor(b, "blk.%d.attn_qkv.weight"))
        arch_fail(b, ATSI_ENOTSUP,
                  "tensor blk.%d.attn_qkv.weight: fused projections are not supported for "
                  "architecture %s; convert the model without fusing q, k and v",
                  b->layer, gguf_arch(b->m));
    q = project(c, "Qproj", "blk.%d.attn_q.weight", "blk.%d.attn_q.bias", x, d, h * dk);
    k = project(c, "Kproj", "blk.%d.attn_k.weight", "blk.%d.attn_k.bias", x, d, hkv * dk);
    v = project(c, "Vcur", "blk.%d.attn_v.weight", "blk.%d.attn_v.bias", x, d, hkv * dv);
    q = rotate(c, "Qcur_normed", "Qcur", "blk.%d.attn_q_norm.weight", q, h);
    k = rotate(c, "Kcur_normed", "Kcur", "blk.%d.attn_k_norm.weight", k, hkv);
    o = arch_attn(b, "kqv_out", q, k, v, c->pos);
    if (b->layer == (int32_t)hp->n_layer - 1) /* from here on only rows whose logits are wanted */
        b->flags |= ATSI_NODE_OUTPUT_ROWS;
    return project(c, "attn_out", "blk.%d.attn_output.weight", "blk.%d.attn_output.bias", o, h * dv,
                   d);
}

static int32_t ffn_part(struct context *c, const char *value, const char *tensor, const char *bias,
                        int32_t x, uint64_t in, uint64_t out)
{
    int32_t w = arch_tensor(&c->b, tensor, SHAPE(in, out));
    int32_t add = c->d->ffn_bias ? arch_tensor_opt(&c->b, bias, SHAPE(out)) : -1;
    return arch_matmul(&c->b, value, x, w, add);
}

static int32_t dense_ffn(struct context *c, int32_t x)
{
    struct arch_builder *b = &c->b;
    uint64_t d = b->hp.n_embd, f = b->hp.n_ff[b->layer];
    int32_t gate, up;
    if (f == 0)
        arch_fail(b, ATSI_EFORMAT, "%s.feed_forward_length is missing or 0 for layer %d",
                  gguf_arch(b->m), b->layer);
    b->role = ATSI_ROLE_FFN;
    gate = ffn_part(c, "ffn_gate", "blk.%d.ffn_gate.weight", "blk.%d.ffn_gate.bias", x, d, f);
    up = ffn_part(c, "ffn_up", "blk.%d.ffn_up.weight", "blk.%d.ffn_up.bias", x, d, f);
    return ffn_part(c, "ffn_out", "blk.%d.ffn_down.weight", "blk.%d.ffn_down.bias",
                    arch_swiglu(b, "ffn_swiglu", gate, up), f, d);
}

static uint64_t expert_width(struct context *c)
{
    const struct arch_hparams *hp = &c->b.hp;
    uint64_t f = hp->n_ff[c->b.layer], fe = hp->n_ff_expert;
    if (c->d->experts_by_ff)
        return f;
    return fe != 0 ? fe : f / hp->n_expert_used;
}

static int32_t expert_ffn(struct context *c, int32_t x)
{
    struct arch_builder *b = &c->b;
    const struct arch_hparams *hp = &b->hp;
    uint64_t d = hp->n_embd, f = expert_width(c), e = hp->n_expert;
    int32_t logits, ids, weights, gate, up, y;
    b->role = ATSI_ROLE_ROUTER;
    logits = arch_matmul(b, "ffn_moe_logits", x,
                         arch_tensor(b, "blk.%d.ffn_gate_inp.weight", SHAPE(d, e)), -1);
    ids = arch_topk(b, logits, hp->n_expert_used, &weights);
    b->role = ATSI_ROLE_EXPERT;
    gate = arch_matmul_id(b, "ffn_moe_gate", x, ids,
                          arch_tensor(b, "blk.%d.ffn_gate_exps.weight", SHAPE(d, f, e)), -1);
    up = arch_matmul_id(b, "ffn_moe_up", x, ids,
                        arch_tensor(b, "blk.%d.ffn_up_exps.weight", SHAPE(d, f, e)), -1);
    y = arch_matmul_id(b, "ffn_moe_down", arch_swiglu(b, "ffn_moe_swiglu", gate, up), ids,
                       arch_tensor(b, "blk.%d.ffn_down_exps.weight", SHAPE(f, d, e)), -1);
    return arch_moe_sum(b, "ffn_moe_out", y, weights);
}

static int32_t layer(struct context *c, int32_t x)
{
    struct arch_builder *b = &c->b;
    uint64_t d = b->hp.n_embd;
    int32_t h, f;
    h = arch_rms_norm(b, "attn_norm", x, arch_tensor(b, "blk.%d.attn_norm.weight", SHAPE(d)));
    x = arch_add(b, "ffn_inp", attention(c, h), x);
    h = arch_rms_norm(b, "ffn_norm", x, arch_tensor(b, "blk.%d.ffn_norm.weight", SHAPE(d)));
    f = b->hp.n_expert > 0 ? expert_ffn(c, h) : dense_ffn(c, h);
    return arch_add(b, "l_out", f, x);
}

static int32_t head(struct context *c, int32_t x, int32_t embedding)
{
    struct arch_builder *b = &c->b;
    uint64_t d = b->hp.n_embd, v = b->hp.n_vocab;
    int32_t w = arch_tensor_opt(b, "output.weight", SHAPE(d, v)), bias = -1;
    if (c->d->output_bias)
        bias = arch_tensor_opt(b, "output.bias", SHAPE(v));
    b->role = ATSI_ROLE_HEAD;
    x = arch_rms_norm(b, "result_norm", x, arch_tensor(b, "output_norm.weight", SHAPE(d)));
    return arch_matmul(b, "result_output", x, w >= 0 ? w : embedding, bias);
}

/* Tensors of next-token-prediction blocks, and per-layer copies of the frequencies some old files
 * carry, take no part in plain generation. */
static void skip_known(struct arch_builder *b)
{
    char prefix[32];
    for (uint32_t i = 0; i < b->hp.n_layer; i++) {
        (void)snprintf(prefix, sizeof prefix, "blk.%u.attn_rot_embd", i);
        arch_skip(b, prefix);
    }
    for (uint32_t i = b->hp.n_layer; i < b->hp.n_block; i++) {
        (void)snprintf(prefix, sizeof prefix, "blk.%u.", i);
        arch_skip(b, prefix);
    }
}

int arch_build_decoder(struct atsi_loaded *m, const struct arch_decoder *d, struct atsi_err *err)
{
    struct context c = {.d = d};
    struct arch_builder *b = &c.b;
    int32_t ids, embedding, x;
    int rc = arch_builder_open(b, m, err);
    if (rc != ATSI_OK)
        return rc;
    arch_read_hparams(b);
    skip_known(b);
    ids = arch_input(b, "ids");
    c.pos = arch_input(b, "positions");
    embedding = arch_tensor(b, "token_embd.weight", SHAPE(b->hp.n_embd, b->hp.n_vocab));
    b->role = ATSI_ROLE_EMBED;
    x = arch_embed(b, "embd", ids, embedding);
    arch_rope_setup(b, c.pos, &c.rope_table);
    for (b->layer = 0; b->layer < (int32_t)b->hp.n_layer && b->rc == ATSI_OK; b->layer++)
        x = layer(&c, x);
    b->layer = -1;
    x = head(&c, x, embedding);
    return arch_builder_finish(b, ids, c.pos, x);
}
