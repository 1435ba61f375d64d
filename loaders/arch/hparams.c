/* SPDX-License-Identifier: Apache-2.0
 *
 * Hyperparameters that the decoder-only architectures share, with the bounds that keep every later
 * product of them far from overflow.
 */
#include "loaders/arch/builder.h"

#include <math.h>

#define MAX_EMBD 131072u
#define MAX_HEADS 1024u
#define MAX_HEAD_DIM 1024u
#define MAX_FF (1u << 22)
#define MAX_VOCAB (1u << 24)
#define MAX_EXPERTS 1024u

void arch_get_u32(struct arch_builder *b, const char *key, enum gguf_need need, uint32_t min,
                  uint32_t max, uint32_t *inout)
{
    if (b->rc == ATSI_OK)
        b->rc = gguf_get_u32(b->m, key, need, min, max, inout, b->err);
}

void arch_get_u32_layers(struct arch_builder *b, const char *key, enum gguf_need need, uint32_t min,
                         uint32_t max, uint32_t *inout)
{
    if (b->rc == ATSI_OK)
        b->rc = gguf_get_u32_layers(b->m, key, need, min, max, b->hp.n_block, inout, b->err);
}

void arch_get_sections(struct arch_builder *b, enum gguf_need need, uint32_t out[4])
{
    out[0] = out[1] = out[2] = out[3] = 0;
    if (b->rc == ATSI_OK)
        b->rc =
            gguf_get_u32_layers(b->m, ".rope.dimension_sections", need, 0, 1024, 4, out, b->err);
}

static void get_f32(struct arch_builder *b, const char *key, enum gguf_need need, float *inout)
{
    if (b->rc == ATSI_OK)
        b->rc = gguf_get_f32(b->m, key, need, inout, b->err);
}

/* The token list sizes the embedding; a file without one may still name a size. */
static void read_vocab(struct arch_builder *b)
{
    uint64_t n = 0;
    uint32_t named = 0;
    if (b->rc == ATSI_OK)
        b->rc = gguf_get_array_len(b->m, "tokenizer.ggml.tokens", GGUF_OPTIONAL, ATSI_META_STRING,
                                   &n, b->err);
    arch_get_u32(b, ".vocab_size", GGUF_OPTIONAL, 1, MAX_VOCAB, &named);
    if (n > MAX_VOCAB)
        arch_fail(b, ATSI_EFORMAT, "tokenizer.ggml.tokens: %llu entries, at most %u are sensible",
                  (unsigned long long)n, MAX_VOCAB);
    b->hp.n_vocab = n != 0 ? (uint32_t)n : named;
    if (b->hp.n_vocab == 0)
        arch_fail(b, ATSI_EFORMAT,
                  "neither tokenizer.ggml.tokens nor %s.vocab_size says how large "
                  "the vocabulary is",
                  gguf_arch(b->m));
}

static void read_attention(struct arch_builder *b)
{
    struct arch_hparams *hp = &b->hp;
    uint32_t dim = 0;
    arch_get_u32_layers(b, ".attention.head_count", GGUF_REQUIRED, 1, MAX_HEADS, hp->n_head);
    for (uint32_t i = 0; i < hp->n_block; i++)
        hp->n_head_kv[i] = hp->n_head[i];
    arch_get_u32_layers(b, ".attention.head_count_kv", GGUF_OPTIONAL, 1, MAX_HEADS, hp->n_head_kv);
    for (uint32_t i = 0; i < hp->n_block && b->rc == ATSI_OK; i++)
        if (hp->n_head[i] % hp->n_head_kv[i] != 0)
            arch_fail(b, ATSI_EFORMAT,
                      "layer %u: attention.head_count %u is no multiple of head_count_kv %u", i,
                      hp->n_head[i], hp->n_head_kv[i]);
    if (b->rc != ATSI_OK)
        return;
    dim = hp->n_embd / hp->n_head[0];
    hp->head_dim_k = hp->head_dim_v = dim;
    arch_get_u32(b, ".attention.key_length", GGUF_OPTIONAL, 2, MAX_HEAD_DIM, &hp->head_dim_k);
    arch_get_u32(b, ".attention.value_length", GGUF_OPTIONAL, 2, MAX_HEAD_DIM, &hp->head_dim_v);
    if (b->rc == ATSI_OK &&
        (hp->head_dim_k == 0 || hp->head_dim_k % 2 != 0 || hp->head_dim_v == 0 ||
         hp->head_dim_k > MAX_HEAD_DIM || hp->head_dim_v > MAX_HEAD_DIM))
        arch_fail(b, ATSI_EFORMAT,
                  "head dimensions %u (keys) and %u (values): keys must be even, both 1..%u",
                  hp->head_dim_k, hp->head_dim_v, MAX_HEAD_DIM);
    hp->n_rot = hp->head_dim_k;
    arch_get_u32(b, ".rope.dimension_count", GGUF_OPTIONAL, 2, hp->head_dim_k, &hp->n_rot);
    if (b->rc == ATSI_OK && hp->n_rot % 2 != 0)
        arch_fail(b, ATSI_EFORMAT, "rope.dimension_count %u is odd", hp->n_rot);
    hp->attn_scale = 0;
    get_f32(b, ".attention.scale", GGUF_OPTIONAL, &hp->attn_scale);
    if (hp->attn_scale == 0)
        hp->attn_scale = (float)(1.0 / sqrt((double)hp->head_dim_k));
}

static void read_experts(struct arch_builder *b)
{
    struct arch_hparams *hp = &b->hp;
    arch_get_u32(b, ".expert_count", GGUF_OPTIONAL, 0, MAX_EXPERTS, &hp->n_expert);
    if (hp->n_expert == 0)
        return;
    arch_get_u32(b, ".expert_used_count", GGUF_REQUIRED, 1, MAX_EXPERTS, &hp->n_expert_used);
    if (hp->n_expert_used > hp->n_expert)
        arch_fail(b, ATSI_EFORMAT, "expert_used_count %u is more than expert_count %u",
                  hp->n_expert_used, hp->n_expert);
    arch_get_u32(b, ".expert_feed_forward_length", GGUF_OPTIONAL, 1, MAX_FF, &hp->n_ff_expert);
}

void arch_read_hparams(struct arch_builder *b)
{
    struct arch_hparams *hp = &b->hp;
    uint32_t nextn = 0;
    arch_get_u32(b, ".block_count", GGUF_REQUIRED, 1, ARCH_MAX_LAYERS, &hp->n_block);
    if (b->rc != ATSI_OK)
        return;
    arch_get_u32(b, ".nextn_predict_layers", GGUF_OPTIONAL, 0, hp->n_block - 1, &nextn);
    hp->n_layer = hp->n_block - nextn;
    arch_get_u32(b, ".embedding_length", GGUF_REQUIRED, 1, MAX_EMBD, &hp->n_embd);
    arch_get_u32(b, ".context_length", GGUF_REQUIRED, 1, INT32_MAX, &hp->n_ctx_train);
    arch_get_u32_layers(b, ".feed_forward_length", GGUF_OPTIONAL, 0, MAX_FF, hp->n_ff);
    get_f32(b, ".attention.layer_norm_rms_epsilon", GGUF_REQUIRED, &hp->norm_eps);
    if (b->rc == ATSI_OK && !(hp->norm_eps >= 0 && hp->norm_eps < 1))
        arch_fail(b, ATSI_EFORMAT, "attention.layer_norm_rms_epsilon %g: expected 0..1",
                  (double)hp->norm_eps);
    read_vocab(b);
    if (b->rc == ATSI_OK)
        read_attention(b);
    read_experts(b);
}
