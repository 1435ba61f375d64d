/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward part: SwiGLU, or experts chosen by a router, with or without an expert that
 * every token uses.
 */
#include "loaders/arch/decoder.h"

static int32_t part(struct arch_context *c, const char *value, const char *tensor, const char *bias,
                    int32_t x, uint64_t in, uint64_t out)
{
    return arch_project(&c->b, value, tensor, c->d->ffn_bias ? bias : NULL, x, in, out);
}

/* A width of nothing would let a stack of fewer dimensions pass for the one that is needed. */
static uint64_t need_width(struct arch_builder *b, const char *key, uint64_t width)
{
    if (width == 0)
        arch_fail(b, ATSI_EFORMAT, "%s.%s is missing or 0 for layer %d", gguf_arch(b->m), key,
                  b->layer);
    return width;
}

static int32_t dense(struct arch_context *c, int32_t x)
{
    struct arch_builder *b = &c->b;
    uint64_t d = b->hp.n_embd, f = need_width(b, "feed_forward_length", b->hp.n_ff[b->layer]);
    int32_t gate, y;
    b->role = ATSI_ROLE_FFN;
    if (c->d->gate_in_up) {
        y = part(c, "ffn_up", "blk.%d.ffn_up.weight", "blk.%d.ffn_up.bias", x, d, 2 * f);
        y = arch_glu_halves(b, "ffn_swiglu", y, 1, &c->d->glu);
    } else {
        gate = part(c, "ffn_gate", "blk.%d.ffn_gate.weight", "blk.%d.ffn_gate.bias", x, d, f);
        y = part(c, "ffn_up", "blk.%d.ffn_up.weight", "blk.%d.ffn_up.bias", x, d, f);
        y = arch_glu(b, "ffn_swiglu", gate, y, &c->d->glu);
    }
    return part(c, "ffn_out", "blk.%d.ffn_down.weight", "blk.%d.ffn_down.bias", y, f, d);
}

static uint64_t expert_width(struct arch_context *c)
{
    const struct arch_hparams *hp = &c->b.hp;
    uint64_t f = hp->n_ff[c->b.layer], fe = hp->n_ff_expert;
    if (c->d->experts_by_ff)
        return need_width(&c->b, "feed_forward_length", f);
    return need_width(&c->b, "expert_feed_forward_length", fe != 0 ? fe : f / hp->n_expert_used);
}

/* One stack of experts applied to those that were chosen. */
static int32_t stack(struct arch_context *c, const char *value, const char *tensor,
                     const char *bias, int32_t x, int32_t ids, uint64_t in, uint64_t out)
{
    struct arch_builder *b = &c->b;
    uint64_t e = b->hp.n_expert;
    int32_t w = arch_tensor(b, tensor, SHAPE(in, out, e));
    return arch_matmul_id(b, value, x, ids, w,
                          c->d->expert_bias ? arch_tensor(b, bias, SHAPE(out, e)) : -1);
}

static int32_t expert_act(struct arch_context *c, int32_t x, int32_t ids, uint64_t d, uint64_t f)
{
    struct arch_builder *b = &c->b;
    const char *name = c->d->glu.kind == ATSI_GLU_CLAMPED ? "ffn_moe_swiglu_oai" : "ffn_moe_swiglu";
    bool bias = c->d->expert_bias;
    int32_t gate, up;
    if (arch_has_tensor(b, "blk.%d.ffn_gate_up_exps.weight")) {
        up = stack(c, "ffn_moe_gate_up", "blk.%d.ffn_gate_up_exps.weight",
                   "blk.%d.ffn_gate_up_exps.bias", x, ids, d, 2 * f);
        return arch_glu_halves(b, name, up, b->hp.n_expert_used, &c->d->glu);
    }
    gate = stack(c, bias ? "ffn_moe_gate_biased" : "ffn_moe_gate", "blk.%d.ffn_gate_exps.weight",
                 "blk.%d.ffn_gate_exps.bias", x, ids, d, f);
    up = stack(c, bias ? "ffn_moe_up_biased" : "ffn_moe_up", "blk.%d.ffn_up_exps.weight",
               "blk.%d.ffn_up_exps.bias", x, ids, d, f);
    return arch_glu(b, name, gate, up, &c->d->glu);
}

/* Which experts, and with what weights. */
static int32_t router(struct arch_context *c, int32_t x, int32_t *weights)
{
    struct arch_builder *b = &c->b;
    const struct arch_hparams *hp = &b->hp;
    uint64_t d = hp->n_embd, e = hp->n_expert;
    int32_t w, bias = -1;
    b->role = ATSI_ROLE_ROUTER;
    w = arch_tensor(b, "blk.%d.ffn_gate_inp.weight", SHAPE(d, e));
    if (c->d->expert_bias)
        bias = arch_tensor(b, "blk.%d.ffn_gate_inp.bias", SHAPE(e));
    return arch_topk(
        b, arch_matmul(b, bias >= 0 ? "ffn_moe_logits_biased" : "ffn_moe_logits", x, w, bias),
        hp->n_expert_used, c->d->gating, weights);
}

static int32_t routed(struct arch_context *c, int32_t x, int32_t ids, int32_t weights)
{
    struct arch_builder *b = &c->b;
    uint64_t d = b->hp.n_embd, f = expert_width(c);
    int32_t y;
    b->role = ATSI_ROLE_EXPERT;
    y = expert_act(c, x, ids, d, f);
    y = stack(c, c->d->expert_bias ? "ffn_moe_down_biased" : "ffn_moe_down",
              "blk.%d.ffn_down_exps.weight", "blk.%d.ffn_down_exps.bias", y, ids, f, d);
    return arch_moe_sum(b, "ffn_moe_out", y, weights);
}

/* The result before its gate, and the gate. */
static int32_t shared(struct arch_context *c, int32_t x, int32_t *gate_out)
{
    struct arch_builder *b = &c->b;
    uint64_t d = b->hp.n_embd;
    uint64_t f = need_width(b, "expert_shared_feed_forward_length", b->hp.n_ff_shared);
    int32_t gate, up, y;
    b->role = ATSI_ROLE_SHARED_EXPERT;
    gate = arch_project(b, "ffn_gate", "blk.%d.ffn_gate_shexp.weight", NULL, x, d, f);
    up = arch_project(b, "ffn_up", "blk.%d.ffn_up_shexp.weight", NULL, x, d, f);
    y = arch_glu(b, "ffn_swiglu", gate, up, &c->d->glu);
    y = arch_project(b, "ffn_shexp", "blk.%d.ffn_down_shexp.weight", NULL, y, f, d);
    *gate_out =
        arch_project(b, "shared_expert_gate", "blk.%d.ffn_gate_inp_shexp.weight", NULL, x, d, 1);
    return y;
}

int32_t arch_ffn(struct arch_context *c, int32_t x)
{
    int32_t y, ids, weights = -1, beside = -1, gate = -1;
    if (c->b.rc != ATSI_OK)
        return -1;
    if (c->b.hp.n_expert == 0)
        return dense(c, x);
    ids = router(c, x, &weights);
    /* The matrices of the shared expert are between the choice and the chosen ones: they can run on
     * another device while those do, or while those are sent.  What needs both comes last. */
    if (c->d->shared_expert)
        beside = shared(c, x, &gate);
    y = routed(c, x, ids, weights);
    if (!c->d->shared_expert)
        return y;
    beside =
        arch_gate(&c->b, "ffn_shexp_gated", beside, gate, (uint32_t)c->b.hp.n_embd, 1, 0, true);
    return arch_add(&c->b, "ffn_out", y, beside);
}
