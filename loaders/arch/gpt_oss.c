/* SPDX-License-Identifier: Apache-2.0
 * gpt-oss: attention sinks, a sliding window on every other layer, experts with biases and a
 * clamped activation, weights by softmax over the chosen ones. */
#include "loaders/arch/decoder.h"
#include "loaders/arch/list.h"

/* Of each period of layers all but the last are windowed. */
static void read_gpt_oss(struct arch_builder *b)
{
    struct arch_hparams *hp = &b->hp;
    uint32_t window = 0, period = 2;
    arch_get_u32(b, ".attention.sliding_window", GGUF_REQUIRED, 1, INT32_MAX, &window);
    arch_get_u32(b, ".attention.sliding_window_pattern", GGUF_OPTIONAL, 1, ARCH_MAX_LAYERS,
                 &period);
    for (uint32_t i = 0; i < hp->n_layer && b->rc == ATSI_OK; i++)
        hp->window[i] = i % period < period - 1 ? window : 0;
    if (b->rc == ATSI_OK && (hp->n_expert == 0 || hp->n_ff_expert == 0))
        arch_fail(b, ATSI_EFORMAT,
                  "architecture gpt-oss needs expert_count and "
                  "expert_feed_forward_length");
}

int arch_gpt_oss(struct atsi_loaded *m, struct atsi_err *err)
{
    static const struct arch_decoder d = {
        .rope_mode = ATSI_ROPE_HALVES,
        .sinks = true,
        .attn_bias = true,
        .expert_bias = true,
        .own_head = true,
        .gating = ATSI_GATING_SELECTED,
        .glu = {.kind = ATSI_GLU_CLAMPED, .alpha = 1.702F, .limit = 7.0F},
        .ffn_norm = "blk.%d.post_attention_norm.weight",
        .ffn_norm_value = "attn_post_norm",
        .residual_value = "ffn_inp",
        .read = read_gpt_oss};
    return arch_build_decoder(m, &d, err);
}
