/* SPDX-License-Identifier: Apache-2.0
 * The pre-norm decoder that llama, qwen2, qwen3 and qwen3moe are variants of. */
#ifndef ARCH_DECODER_H
#define ARCH_DECODER_H

#include "loaders/arch/builder.h"

struct arch_decoder {
    uint32_t rope_mode; /* enum atsi_rope_mode */
    bool qk_norm;       /* RMS norm per head on q and k before RoPE; required */
    bool ffn_bias;      /* biases of ffn_gate, ffn_up, ffn_down may exist */
    bool experts_by_ff; /* experts have the width of feed_forward_length (Mixtral) */
    bool output_bias;   /* output.bias may exist */
};

/* The whole graph; returns the status. */
int arch_build_decoder(struct atsi_loaded *m, const struct arch_decoder *d, struct atsi_err *err);

#endif
