/* SPDX-License-Identifier: Apache-2.0
 * qwen3next, qwen35 and qwen35moe: three linear-attention layers (gated delta net) to one layer of
 * gated attention; experts with a shared one, or a dense FFN.  The two families order the value
 * heads of a key head differently, and name the inputs of the decay and of beta differently. */
#include "loaders/arch/decoder.h"
#include "loaders/arch/list.h"

#define MAX_STATE 1024u
#define MAX_TAPS 16u

static void read_delta(struct arch_builder *b)
{
    struct arch_hparams *hp = &b->hp;
    uint32_t inner = 0;
    arch_get_u32(b, ".ssm.conv_kernel", GGUF_REQUIRED, 2, MAX_TAPS, &hp->n_tap);
    arch_get_u32(b, ".ssm.state_size", GGUF_REQUIRED, 1, MAX_STATE, &hp->state_size);
    arch_get_u32(b, ".ssm.group_count", GGUF_REQUIRED, 1, MAX_STATE, &hp->n_key_head);
    arch_get_u32(b, ".ssm.time_step_rank", GGUF_REQUIRED, 1, MAX_STATE, &hp->n_value_head);
    arch_get_u32(b, ".ssm.inner_size", GGUF_REQUIRED, 1, MAX_STATE * MAX_STATE, &inner);
    if (b->rc != ATSI_OK)
        return;
    if (hp->n_value_head % hp->n_key_head != 0)
        arch_fail(b, ATSI_EFORMAT, "ssm.time_step_rank %u is no multiple of ssm.group_count %u",
                  hp->n_value_head, hp->n_key_head);
    if (inner != hp->n_value_head * hp->state_size)
        arch_fail(b, ATSI_EFORMAT,
                  "ssm.inner_size %u is not ssm.time_step_rank x ssm.state_size = %u", inner,
                  hp->n_value_head * hp->state_size);
}

/* Which layers are recurrent: a list, or all but the last of each interval. */
static void read_kinds(struct arch_builder *b)
{
    struct arch_hparams *hp = &b->hp;
    uint32_t interval = 4;
    arch_get_u32(b, ".full_attention_interval", GGUF_OPTIONAL, 1, ARCH_MAX_LAYERS, &interval);
    for (uint32_t i = 0; i < hp->n_block && b->rc == ATSI_OK; i++)
        hp->recurrent[i] = (i + 1) % interval != 0;
    arch_get_u32_layers(b, ".attention.recurrent_layers", GGUF_OPTIONAL, 0, 1, hp->recurrent);
}

static void read_hybrid(struct arch_builder *b)
{
    struct arch_hparams *hp = &b->hp;
    read_delta(b);
    read_kinds(b);
    hp->n_ff_shared = hp->n_ff[0];
    arch_get_u32(b, ".expert_shared_feed_forward_length", GGUF_OPTIONAL, 1, 1U << 22,
                 &hp->n_ff_shared);
    if (b->rc == ATSI_OK && hp->head_dim_k != hp->head_dim_v)
        arch_fail(b, ATSI_ENOTSUP, "keys of %u and values of %u: gated attention needs one size",
                  hp->head_dim_k, hp->head_dim_v);
}

/* Sections are required in the files of this family; for text they mean plain rotation. */
static void read_qwen35(struct arch_builder *b)
{
    uint32_t sections[4] = {0};
    arch_get_sections(b, GGUF_REQUIRED, sections);
    read_hybrid(b);
}

/* Older qwen3next files: one product for both, each key head's group holding its q, k, v and z. */
static void legacy_inputs(struct arch_builder *b, int32_t x, int32_t *u_out, int32_t *z_out)
{
    const struct arch_hparams *hp = &b->hp;
    uint32_t dk = hp->state_size, v = hp->n_value_head / hp->n_key_head * hp->state_size;
    uint32_t group = 2 * dk + 2 * v;
    struct arch_regroup u = {.n_group = hp->n_key_head,
                             .stride = group,
                             .n_seg = 3,
                             .offset = {0, dk, 2 * dk},
                             .len = {dk, dk, v}};
    struct arch_regroup z = {
        .n_group = hp->n_key_head, .stride = group, .n_seg = 1, .offset = {2 * dk + v}, .len = {v}};
    int32_t y = arch_project(b, "qkvz", "blk.%d.ssm_in.weight", NULL, x, hp->n_embd,
                             (uint64_t)group * hp->n_key_head);
    *u_out = arch_regroup(b, "qkv_mixed", y, &u);
    *z_out = arch_regroup(b, "z", y, &z);
}

static void inputs(struct arch_builder *b, int32_t x, int32_t *u_out, int32_t *z_out)
{
    const struct arch_hparams *hp = &b->hp;
    uint64_t key = (uint64_t)hp->n_key_head * hp->state_size;
    uint64_t value = (uint64_t)hp->n_value_head * hp->state_size;
    if (arch_has_tensor(b, "blk.%d.ssm_in.weight")) {
        legacy_inputs(b, x, u_out, z_out);
        return;
    }
    *u_out = arch_project(b, "qkv_mixed", "blk.%d.attn_qkv.weight", NULL, x, hp->n_embd,
                          2 * key + value);
    *z_out = arch_project(b, "z", "blk.%d.attn_gate.weight", NULL, x, hp->n_embd, value);
}

/* From u, beta's and the decay's inputs to the layer's output. */
static int32_t mix(struct arch_builder *b, int32_t u, int32_t z, int32_t beta, int32_t alpha,
                   struct arch_delta *d)
{
    static const struct arch_glu silu = {.kind = ATSI_GLU_SILU};
    const struct arch_hparams *hp = &b->hp;
    uint64_t value = (uint64_t)hp->n_value_head * hp->state_size;
    uint64_t channels = 2 * (uint64_t)hp->n_key_head * hp->state_size + value;
    int32_t o;
    d->n_head_k = hp->n_key_head;
    d->n_head_v = hp->n_value_head;
    d->dim_k = d->dim_v = hp->state_size;
    d->a = arch_tensor(b, "blk.%d.ssm_a", SHAPE(hp->n_value_head));
    d->dt = arch_tensor(b, "blk.%d.ssm_dt.bias", SHAPE(hp->n_value_head));
    b->role = ATSI_ROLE_RECURRENT;
    u = arch_conv(b, "conv_output_silu", u,
                  arch_tensor(b, "blk.%d.ssm_conv1d.weight", SHAPE(hp->n_tap, channels)));
    o = arch_delta_net(b, "delta_net", u, beta, alpha, d);
    arch_output_rows(b);
    b->role = ATSI_ROLE_ATTN_PROJ;
    o = arch_rms_norm(b, "delta_normed", o,
                      arch_tensor(b, "blk.%d.ssm_norm.weight", SHAPE(hp->state_size)));
    o = arch_glu(b, "delta_gated", z, o, &silu);
    return arch_project(b, "linear_attn_out", "blk.%d.ssm_out.weight", NULL, o, value, hp->n_embd);
}

/* qwen3next: beta and alpha in one product, grouped by key head, as the value heads are. */
static int32_t linear_grouped(struct arch_builder *b, int32_t x)
{
    uint32_t nv = b->hp.n_value_head, run = nv / b->hp.n_key_head;
    struct arch_delta d = {.run = run, .stride = 2 * run, .alpha_offset = run};
    int32_t u = -1, z = -1, ba;
    b->role = ATSI_ROLE_ATTN_PROJ;
    inputs(b, x, &u, &z);
    ba = arch_project(b, "linear_attn_mixed_ba", "blk.%d.ssm_ba.weight", NULL, x, b->hp.n_embd,
                      2 * (uint64_t)nv);
    return mix(b, u, z, ba, ba, &d);
}

/* qwen35: a product each, and value heads that go round the key heads. */
static int32_t linear_tiled(struct arch_builder *b, int32_t x)
{
    uint32_t nv = b->hp.n_value_head;
    struct arch_delta d = {.tiled = true, .run = nv, .stride = nv};
    int32_t u = -1, z = -1, beta, alpha;
    b->role = ATSI_ROLE_ATTN_PROJ;
    inputs(b, x, &u, &z);
    beta = arch_project(b, "beta", "blk.%d.ssm_beta.weight", NULL, x, b->hp.n_embd, nv);
    alpha = arch_project(b, "alpha", "blk.%d.ssm_alpha.weight", NULL, x, b->hp.n_embd, nv);
    return mix(b, u, z, beta, alpha, &d);
}

#define HYBRID                                                                                     \
    .rope_mode = ATSI_ROPE_HALVES, .qk_norm = true, .gated_attn = true, .shared_expert = true,     \
    .ffn_norm = "blk.%d.post_attention_norm.weight", .ffn_norm_value = "attn_post_norm",           \
    .residual_value = "attn_residual"

int arch_qwen3next(struct atsi_loaded *m, struct atsi_err *err)
{
    static const struct arch_decoder d = {HYBRID, .read = read_hybrid, .linear = linear_grouped};
    return arch_build_decoder(m, &d, err);
}

int arch_qwen35(struct atsi_loaded *m, struct atsi_err *err)
{
    static const struct arch_decoder d = {HYBRID, .read = read_qwen35, .linear = linear_tiled};
    return arch_build_decoder(m, &d, err);
}
