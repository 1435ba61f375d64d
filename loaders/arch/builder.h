/* SPDX-License-Identifier: Apache-2.0
 *
 * Building an op graph step by step.  Errors stick: after the first one every call does nothing and
 * returns -1, so that an architecture reads as its formula and checks once at the end.
 *
 * Widths follow from tensors; a tensor whose shape is not the one computed from the hyperparameters
 * is an error before any kernel can touch it.
 */
#ifndef ARCH_BUILDER_H
#define ARCH_BUILDER_H

#include "loaders/arch/arch.h"

#define ARCH_MAX_LAYERS 512u

/* Hyperparameters shared by the decoder-only architectures (names as in docs/architectures.md). */
struct arch_hparams {
    uint32_t n_block; /* block_count, next-token-prediction blocks included */
    uint32_t n_layer; /* executed layers */
    uint32_t n_embd, n_vocab, n_ctx_train;
    uint32_t n_head[ARCH_MAX_LAYERS], n_head_kv[ARCH_MAX_LAYERS], n_ff[ARCH_MAX_LAYERS];
    uint32_t head_dim_k, head_dim_v, n_rot;
    uint32_t rope_mode; /* enum atsi_rope_mode */
    uint32_t n_expert, n_expert_used, n_ff_expert, n_ff_shared;
    uint32_t window[ARCH_MAX_LAYERS];    /* positions a layer's attention sees; 0: all */
    uint32_t recurrent[ARCH_MAX_LAYERS]; /* 1: a linear-attention layer */
    /* ssm.*: gated delta net: taps of the convolution, size of a head (keys and values), heads */
    uint32_t n_tap, state_size, n_key_head, n_value_head;
    float norm_eps, attn_scale; /* attn_scale 0: 1/sqrt(head_dim_k) */
};

struct arch_builder {
    struct atsi_loaded *m;
    struct atsi_err *err;
    int rc; /* first failure */
    struct arch_hparams hp;
    uint32_t n_items;
    uint32_t flags; /* of nodes added from now on */
    int32_t layer;  /* of nodes added from now on */
    uint32_t role;
    struct arch_graph *graph;
    unsigned char *used; /* per file tensor: named by a node or deliberately skipped */
    uint32_t n_file_tensors;
};

/* Reads the keys above that every architecture has; sticky. */
void arch_read_hparams(struct arch_builder *b);
/* One key more, for what an architecture has of its own; sticky.  *inout keeps its value when an
 * optional key is absent. */
void arch_get_u32(struct arch_builder *b, const char *key, enum gguf_need need, uint32_t min,
                  uint32_t max, uint32_t *inout);
/* One value per block: a scalar or an array. */
void arch_get_u32_layers(struct arch_builder *b, const char *key, enum gguf_need need, uint32_t min,
                         uint32_t max, uint32_t *inout);

/* rope.dimension_sections, of four entries; zeros when absent; sticky. */
void arch_get_sections(struct arch_builder *b, enum gguf_need need, uint32_t out[4]);

int arch_builder_open(struct arch_builder *b, struct atsi_loaded *m, struct atsi_err *err);
/* Hands the finished graph to the model, or frees it after a failure; returns the status. */
int arch_builder_finish(struct arch_builder *b, int32_t in_ids, int32_t in_pos, int32_t logits);
void arch_fail(struct arch_builder *b, int status, const char *fmt, ...) ATSI_PRINTF(3, 4);

/* ---- tensors; names are printf-formatted with the layer: "blk.%d.attn_q.weight" */
struct arch_shape {
    uint64_t ne[3]; /* 0 after the last; missing dimensions and ones are the same */
};
/* Index of a tensor of that shape; absent: an error. */
int32_t arch_tensor(struct arch_builder *b, const char *fmt, struct arch_shape shape);
/* The same, or -1 when absent. */
int32_t arch_tensor_opt(struct arch_builder *b, const char *fmt, struct arch_shape shape);
bool arch_has_tensor(const struct arch_builder *b, const char *fmt);
/* Tensors whose names start so are known and not needed. */
void arch_skip(struct arch_builder *b, const char *prefix);
/* f32 vector owned by the loader. */
int32_t arch_constant(struct arch_builder *b, const char *name, uint64_t n, const float *data);

/* ---- values; `name` gets "-LAYER" appended inside a layer */
int32_t arch_input(struct arch_builder *b, const char *name); /* i32 [T, 1] */
int32_t arch_embed(struct arch_builder *b, const char *name, int32_t ids, int32_t table);
int32_t arch_rms_norm(struct arch_builder *b, const char *name, int32_t x, int32_t w);
/* Norms of runs that start `stride` elements apart, written without the gaps. */
int32_t arch_rms_norm_strided(struct arch_builder *b, const char *name, int32_t x, int32_t w,
                              uint32_t stride);
int32_t arch_matmul(struct arch_builder *b, const char *name, int32_t x, int32_t w, int32_t bias);
int32_t arch_rope_table(struct arch_builder *b, const char *name, int32_t pos, int32_t freqs,
                        float magnitude);
int32_t arch_rope(struct arch_builder *b, const char *name, int32_t x, int32_t table,
                  uint32_t n_head, uint32_t head_dim, uint32_t mode);
/* Attention of the current layer with a new KV cache; sinks: tensor {heads} or -1. */
int32_t arch_attn(struct arch_builder *b, const char *name, int32_t q, int32_t k, int32_t v,
                  int32_t pos, int32_t sinks);

/* The gated activation of an FFN: ATSI_OP_SWIGLU's kind and numbers. */
struct arch_glu {
    uint32_t kind; /* enum atsi_glu */
    float alpha, limit;
};
int32_t arch_glu(struct arch_builder *b, const char *name, int32_t gate, int32_t up,
                 const struct arch_glu *glu);
/* x: n_group times gate, then up. */
int32_t arch_glu_halves(struct arch_builder *b, const char *name, int32_t x, uint32_t n_group,
                        const struct arch_glu *glu);
/* x * sigmoid(gate), as ATSI_OP_GATE. */
int32_t arch_gate(struct arch_builder *b, const char *name, int32_t x, int32_t gate, uint32_t run,
                  uint32_t stride, uint32_t offset, bool scalar);

/* As ATSI_OP_REGROUP. */
struct arch_regroup {
    uint32_t n_group, stride, n_seg;
    uint32_t offset[ATSI_MAX_SEGMENTS], len[ATSI_MAX_SEGMENTS];
};
int32_t arch_regroup(struct arch_builder *b, const char *name, int32_t x,
                     const struct arch_regroup *r);
/* Causal convolution and silu with a new state; w {taps, channels}. */
int32_t arch_conv(struct arch_builder *b, const char *name, int32_t x, int32_t w);

/* As ATSI_OP_DELTA_NET; a, dt: tensors {n_head_v}. */
struct arch_delta {
    uint32_t n_head_k, n_head_v, dim_k, dim_v;
    bool tiled;
    uint32_t run, stride, beta_offset, alpha_offset;
    int32_t a, dt;
};
int32_t arch_delta_net(struct arch_builder *b, const char *name, int32_t u, int32_t beta,
                       int32_t alpha, const struct arch_delta *d);
int32_t arch_add(struct arch_builder *b, const char *name, int32_t x, int32_t y);
/* ids: i32 [T, K]; *weights_out: f32 [T, K] */
int32_t arch_topk(struct arch_builder *b, int32_t logits, uint32_t k, uint32_t gating,
                  int32_t *weights_out);
int32_t arch_matmul_id(struct arch_builder *b, const char *name, int32_t x, int32_t ids, int32_t w,
                       int32_t bias);
int32_t arch_moe_sum(struct arch_builder *b, const char *name, int32_t y, int32_t weights);

#endif
