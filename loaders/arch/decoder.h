/* SPDX-License-Identifier: Apache-2.0
 * The decoder that every architecture here is a variant of: a mixer (attention, or a gated delta
 * net) and an FFN (SwiGLU, or a mixture of experts), each behind a norm and added to its input. */
#ifndef ARCH_DECODER_H
#define ARCH_DECODER_H

#include "loaders/arch/builder.h"

struct arch_decoder {
    uint32_t rope_mode; /* enum atsi_rope_mode */
    bool qk_norm;       /* RMS norm per head on q and k before RoPE; required */
    bool gated_attn;    /* attn_q holds, head by head, the query and a gate of the result */
    bool sinks;         /* attn_sinks */
    bool attn_bias;     /* biases of q, k, v and of attn_output; required */
    bool ffn_bias;      /* biases of ffn_gate, ffn_up, ffn_down may exist */
    bool gate_in_up;    /* ffn_up holds the rows of the gate, then those of up */
    bool experts_by_ff; /* experts have the width of feed_forward_length (Mixtral) */
    bool expert_bias;   /* biases of the router and of the experts; required */
    bool shared_expert; /* one more expert for every token, behind a gate of its own */
    bool output_bias;   /* output.bias may exist */
    bool own_head;      /* output.weight is required: the embedding does not replace it */
    uint32_t gating;    /* enum atsi_gating */
    struct arch_glu glu;
    /* Norms: NULL where there is none.  A name with "%d" is a tensor, the other one its value. */
    const char *ffn_norm, *ffn_norm_value;
    const char *post_attn_norm, *post_ffn_norm;
    const char *residual_value; /* the stream between the mixer and the FFN */
    /* Reads further hyperparameters; may be NULL. */
    void (*read)(struct arch_builder *b);
    /* The mixer of recurrent layers: [T, n_embd] to [T, n_embd]; NULL when there are none. */
    int32_t (*linear)(struct arch_builder *b, int32_t x);
};

/* The names most architectures use. */
#define ARCH_FFN_NORM                                                                              \
    .ffn_norm = "blk.%d.ffn_norm.weight", .ffn_norm_value = "ffn_norm", .residual_value = "ffn_inp"

/* The whole graph; returns the status. */
int arch_build_decoder(struct atsi_loaded *m, const struct arch_decoder *d, struct atsi_err *err);

/* ---- the parts, in files of their own */
#define SHAPE(...) ((struct arch_shape){{__VA_ARGS__}})

struct arch_context {
    struct arch_builder b;
    const struct arch_decoder *d;
    int32_t pos, rope_table;
};

/* W x (+ bias when the tensor exists), in -> out. */
int32_t arch_project(struct arch_builder *b, const char *value, const char *tensor,
                     const char *bias, int32_t x, uint64_t in, uint64_t out);
/* From here on, in the last layer, only rows whose logits are wanted are computed: call it after
 * the operation that needs all rows. */
void arch_output_rows(struct arch_builder *b);
/* attention.c: normalized input to the result of attn_output. */
int32_t arch_attention(struct arch_context *c, int32_t x);
/* ffn.c: normalized input to the sum to be added. */
int32_t arch_ffn(struct arch_context *c, int32_t x);

#endif
