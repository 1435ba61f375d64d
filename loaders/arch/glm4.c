/* SPDX-License-Identifier: Apache-2.0
 * glm4: GLM-4-0414 and GLM-Z1.  Norms behind attention and FFN, gate and up in one tensor, rotation
 * of half of each head. */
#include "loaders/arch/decoder.h"
#include "loaders/arch/list.h"

/* Early files lack the rotary dimension, which is half a head.  Vision variants carry sections of
 * M-RoPE: their q and k rows were permuted for the other pairing (plain RoPE for text). */
static void read_glm4(struct arch_builder *b)
{
    uint32_t sections[4] = {0};
    b->hp.n_rot = b->hp.head_dim_k / 2;
    arch_get_u32(b, ".rope.dimension_count", GGUF_OPTIONAL, 2, b->hp.head_dim_k, &b->hp.n_rot);
    arch_get_sections(b, GGUF_OPTIONAL, sections);
    for (int i = 0; i < 4; i++)
        if (sections[i] != 0)
            b->hp.rope_mode = ATSI_ROPE_HALVES;
    if (b->rc == ATSI_OK && (b->hp.n_rot == 0 || b->hp.n_rot % 2 != 0))
        arch_fail(b, ATSI_EFORMAT, "rope.dimension_count %u: expected an even number", b->hp.n_rot);
}

int arch_glm4(struct atsi_loaded *m, struct atsi_err *err)
{
    static const struct arch_decoder d = {.rope_mode = ATSI_ROPE_PAIRS,
                                          .gate_in_up = true,
                                          ARCH_FFN_NORM,
                                          .post_attn_norm = "blk.%d.post_attention_norm.weight",
                                          .post_ffn_norm = "blk.%d.post_ffw_norm.weight",
                                          .read = read_glm4};
    return arch_build_decoder(m, &d, err);
}
