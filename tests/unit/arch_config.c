/* SPDX-License-Identifier: Apache-2.0
 * Keys and tensors of each architecture, as docs/architectures.md lists them. */
#include "tests/unit/arch_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atsinfer/loader.h"

static bool is(const struct am_config *c, const char *arch)
{
    return strcmp(c->arch, arch) == 0;
}

bool am_is_recurrent(const struct am_config *c, uint32_t layer)
{
    return c->interval != 0 && layer < c->n_layer && (layer + 1) % c->interval != 0;
}

/* ---------------------------------------------------------------- keys */
static void optional_u32(struct am *m, const char *key, uint32_t v)
{
    if (v != 0)
        am_u32(m, key, v);
}

static void hybrid_keys(struct am *m, const struct am_config *c)
{
    static const uint32_t sections[4] = {11, 11, 10, 0};
    am_u32(m, ".full_attention_interval", c->interval);
    am_u32(m, ".ssm.conv_kernel", c->taps);
    am_u32(m, ".ssm.state_size", c->state);
    am_u32(m, ".ssm.group_count", c->nk);
    am_u32(m, ".ssm.time_step_rank", c->nv);
    am_u32(m, ".ssm.inner_size", c->nv * c->state);
    if (!is(c, "qwen3next"))
        am_array(m, ".rope.dimension_sections", ATSI_META_I32, sections, 4);
}

static void rope_keys(struct am *m, const struct am_config *c)
{
    am_f32(m, ".rope.freq_base", c->rope_base);
    optional_u32(m, ".rope.dimension_count", c->n_rot);
    if (c->yarn > 0) {
        am_str(m, ".rope.scaling.type", "yarn");
        am_f32(m, ".rope.scaling.factor", c->yarn);
        am_u32(m, ".rope.scaling.original_context_length", c->n_orig);
    }
}

static void keys(struct am *m, const struct am_config *c)
{
    am_u32(m, ".block_count", c->n_layer + c->n_nextn);
    optional_u32(m, ".nextn_predict_layers", c->n_nextn);
    am_u32(m, ".context_length", c->n_ctx);
    am_u32(m, ".embedding_length", c->n_embd);
    optional_u32(m, ".feed_forward_length", c->n_ff);
    am_u32(m, ".attention.head_count", c->n_head);
    am_u32(m, ".attention.head_count_kv", c->n_head_kv);
    am_u32(m, ".attention.key_length", c->head_dim);
    am_u32(m, ".attention.value_length", c->head_dim);
    am_f32(m, ".attention.layer_norm_rms_epsilon", c->eps);
    optional_u32(m, ".attention.sliding_window", c->window);
    optional_u32(m, ".expert_count", c->n_expert);
    optional_u32(m, ".expert_used_count", c->n_used);
    optional_u32(m, ".expert_feed_forward_length", c->n_ff_expert);
    optional_u32(m, ".expert_shared_feed_forward_length", c->n_ff_shared);
    rope_keys(m, c);
    if (c->interval != 0)
        hybrid_keys(m, c);
    am_str(m, "tokenizer.ggml.model", "gpt2");
    m->n_vocab = c->n_vocab;
}

/* ---------------------------------------------------------------- tensors of a layer */
static void attention(struct am *m, const struct am_config *c, int l)
{
    uint64_t d = c->n_embd, q = (uint64_t)c->n_head * c->head_dim;
    uint64_t kv = (uint64_t)c->n_head_kv * c->head_dim;
    am_add(m, l, "blk.%d.attn_q.weight", d, c->interval != 0 ? 2 * q : q, 0);
    am_add(m, l, "blk.%d.attn_k.weight", d, kv, 0);
    am_add(m, l, "blk.%d.attn_v.weight", d, kv, 0);
    am_add(m, l, "blk.%d.attn_output.weight", q, d, 0);
    if (c->bias) {
        am_add(m, l, "blk.%d.attn_q.bias", q, 0, 0);
        am_add(m, l, "blk.%d.attn_k.bias", kv, 0, 0);
        am_add(m, l, "blk.%d.attn_v.bias", kv, 0, 0);
    }
    if (is(c, "gpt-oss")) {
        am_add(m, l, "blk.%d.attn_output.bias", d, 0, 0);
        am_add(m, l, "blk.%d.attn_sinks.weight", c->n_head, 0, 0);
    }
    if (is(c, "qwen3") || is(c, "qwen3moe") || c->interval != 0) {
        am_add(m, l, "blk.%d.attn_q_norm.weight", c->head_dim, 0, 0);
        am_add(m, l, "blk.%d.attn_k_norm.weight", c->head_dim, 0, 0);
    }
}

static void delta_net(struct am *m, const struct am_config *c, int l)
{
    uint64_t d = c->n_embd, value = (uint64_t)c->nv * c->state;
    uint64_t channels = 2 * (uint64_t)c->nk * c->state + value;
    am_add(m, l, "blk.%d.attn_qkv.weight", d, channels, 0);
    am_add(m, l, "blk.%d.attn_gate.weight", d, value, 0);
    am_add(m, l, "blk.%d.ssm_conv1d.weight", c->taps, channels, 0);
    am_add(m, l, "blk.%d.ssm_dt.bias", c->nv, 0, 0);
    am_add(m, l, "blk.%d.ssm_a", c->nv, 0, 0);
    am_add(m, l, "blk.%d.ssm_norm.weight", c->state, 0, 0);
    am_add(m, l, "blk.%d.ssm_out.weight", value, d, 0);
    if (is(c, "qwen3next")) {
        am_add(m, l, "blk.%d.ssm_ba.weight", d, 2 * (uint64_t)c->nv, 0);
    } else {
        am_add(m, l, "blk.%d.ssm_beta.weight", d, c->nv, 0);
        am_add(m, l, "blk.%d.ssm_alpha.weight", d, c->nv, 0);
    }
}

static void expert_biases(struct am *m, const struct am_config *c, int l)
{
    am_add(m, l, "blk.%d.ffn_gate_inp.bias", c->n_expert, 0, 0);
    am_add(m, l, "blk.%d.ffn_gate_exps.bias", c->n_ff_expert, c->n_expert, 0);
    am_add(m, l, "blk.%d.ffn_up_exps.bias", c->n_ff_expert, c->n_expert, 0);
    am_add(m, l, "blk.%d.ffn_down_exps.bias", c->n_embd, c->n_expert, 0);
}

static void experts(struct am *m, const struct am_config *c, int l)
{
    uint64_t d = c->n_embd, e = c->n_expert, f = is(c, "llama") ? c->n_ff : c->n_ff_expert;
    am_add(m, l, "blk.%d.ffn_gate_inp.weight", d, e, 0);
    am_add(m, l, "blk.%d.ffn_gate_exps.weight", d, f, e);
    am_add(m, l, "blk.%d.ffn_up_exps.weight", d, f, e);
    am_add(m, l, "blk.%d.ffn_down_exps.weight", f, d, e);
    if (is(c, "gpt-oss"))
        expert_biases(m, c, l);
    if (c->n_ff_shared == 0)
        return;
    am_add(m, l, "blk.%d.ffn_gate_inp_shexp.weight", d, 0, 0);
    am_add(m, l, "blk.%d.ffn_gate_shexp.weight", d, c->n_ff_shared, 0);
    am_add(m, l, "blk.%d.ffn_up_shexp.weight", d, c->n_ff_shared, 0);
    am_add(m, l, "blk.%d.ffn_down_shexp.weight", c->n_ff_shared, d, 0);
}

static void ffn(struct am *m, const struct am_config *c, int l)
{
    uint64_t d = c->n_embd, f = c->n_ff;
    if (c->n_expert != 0) {
        experts(m, c, l);
        return;
    }
    if (!is(c, "glm4"))
        am_add(m, l, "blk.%d.ffn_gate.weight", d, f, 0);
    am_add(m, l, "blk.%d.ffn_up.weight", d, is(c, "glm4") ? 2 * f : f, 0);
    am_add(m, l, "blk.%d.ffn_down.weight", f, d, 0);
}

static void norms(struct am *m, const struct am_config *c, int l)
{
    bool post = is(c, "glm4") || is(c, "gpt-oss") || c->interval != 0;
    am_add(m, l, "blk.%d.attn_norm.weight", c->n_embd, 0, 0);
    if (post)
        am_add(m, l, "blk.%d.post_attention_norm.weight", c->n_embd, 0, 0);
    if (!post || is(c, "glm4"))
        am_add(m, l, "blk.%d.ffn_norm.weight", c->n_embd, 0, 0);
    if (is(c, "glm4"))
        am_add(m, l, "blk.%d.post_ffw_norm.weight", c->n_embd, 0, 0);
}

static void next_token(struct am *m, const struct am_config *c, int l)
{
    am_add(m, l, "blk.%d.nextn.eh_proj.weight", 2 * (uint64_t)c->n_embd, c->n_embd, 0);
    am_add(m, l, "blk.%d.nextn.enorm.weight", c->n_embd, 0, 0);
    am_add(m, l, "blk.%d.nextn.hnorm.weight", c->n_embd, 0, 0);
    am_add(m, l, "blk.%d.nextn.shared_head_norm.weight", c->n_embd, 0, 0);
}

void am_build(struct am *m, const struct am_config *c, bool holes)
{
    memset(m, 0, sizeof *m);
    (void)snprintf(m->arch, sizeof m->arch, "%s", c->arch);
    m->holes = holes;
    keys(m, c);
    am_add(m, -1, "token_embd.weight", c->n_embd, c->n_vocab, 0);
    am_add(m, -1, "output_norm.weight", c->n_embd, 0, 0);
    if (!c->tied)
        am_add(m, -1, "output.weight", c->n_embd, c->n_vocab, 0);
    if (c->rope_freqs)
        am_add(m, -1, "rope_freqs.weight", c->head_dim / 2, 0, 0);
    for (uint32_t i = 0; i < c->n_layer + c->n_nextn; i++) {
        int l = (int)i;
        norms(m, c, l);
        if (am_is_recurrent(c, i))
            delta_net(m, c, l);
        else
            attention(m, c, l);
        ffn(m, c, l);
        if (i >= c->n_layer)
            next_token(m, c, l);
    }
}

/* ---------------------------------------------------------------- tiny ones */
const char *const am_tiny_names[] = {"llama",    "mixtral",   "qwen2",   "qwen3",
                                     "qwen3moe", "glm4",      "gpt-oss", "qwen3next",
                                     "qwen35",   "qwen35moe", NULL};

static void tiny_experts(struct am_config *c)
{
    c->n_expert = 6;
    c->n_used = 3;
    c->n_ff_expert = 24;
}

/* Three value heads per key head: neither order of them is the other by chance. */
static void tiny_hybrid(struct am_config *c, bool moe)
{
    c->n_layer = 4;
    c->interval = 2;
    c->n_rot = 8;
    c->nk = 2;
    c->nv = 6;
    c->state = 16;
    c->taps = 4;
    if (!moe)
        return;
    tiny_experts(c);
    c->n_ff_shared = 20;
}

struct am_config am_tiny(const char *name)
{
    struct am_config c = {.arch = name,
                          .n_layer = 3,
                          .n_embd = 48,
                          .n_head = 4,
                          .n_head_kv = 2,
                          .head_dim = 32,
                          .n_ff = 72,
                          .n_vocab = 96,
                          .n_ctx = 1024,
                          .rope_base = 10000,
                          .eps = 1e-5F};
    if (strcmp(name, "mixtral") == 0) {
        c.arch = "llama";
        c.n_expert = 6;
        c.n_used = 2;
    } else if (strcmp(name, "llama") == 0) {
        c.rope_freqs = true;
    } else if (strcmp(name, "qwen2") == 0) {
        c.bias = true;
    } else if (strcmp(name, "qwen3moe") == 0) {
        tiny_experts(&c);
    } else if (strcmp(name, "glm4") == 0) {
        c.bias = true;
        c.n_rot = 16;
    } else if (strcmp(name, "gpt-oss") == 0) {
        tiny_experts(&c);
        c.n_layer = 4;
        c.n_ff = 0;
        c.bias = true;
        c.window = 8;
        c.yarn = 4;
        c.n_orig = 64;
    } else if (strncmp(name, "qwen3next", 9) == 0 || strncmp(name, "qwen35", 6) == 0) {
        tiny_hybrid(&c, strcmp(name, "qwen35") != 0);
    } else if (strcmp(name, "qwen3") != 0) {
        (void)fprintf(stderr, "arch_config: no tiny %s\n", name);
        abort();
    }
    return c;
}
