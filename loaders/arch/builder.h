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
    uint32_t n_expert, n_expert_used, n_ff_expert;
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

/* Reads the keys above for the model's architecture; sticky. */
void arch_read_hparams(struct arch_builder *b);

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
int32_t arch_matmul(struct arch_builder *b, const char *name, int32_t x, int32_t w, int32_t bias);
int32_t arch_rope_table(struct arch_builder *b, const char *name, int32_t pos, int32_t freqs,
                        float magnitude);
int32_t arch_rope(struct arch_builder *b, const char *name, int32_t x, int32_t table,
                  uint32_t n_head, uint32_t head_dim, uint32_t mode);
/* Attention of the current layer with a new KV cache. */
int32_t arch_attn(struct arch_builder *b, const char *name, int32_t q, int32_t k, int32_t v,
                  int32_t pos);
int32_t arch_swiglu(struct arch_builder *b, const char *name, int32_t gate, int32_t up);
int32_t arch_add(struct arch_builder *b, const char *name, int32_t x, int32_t y);
/* ids: i32 [T, K]; *weights_out: f32 [T, K] */
int32_t arch_topk(struct arch_builder *b, int32_t logits, uint32_t k, int32_t *weights_out);
int32_t arch_matmul_id(struct arch_builder *b, const char *name, int32_t x, int32_t ids, int32_t w,
                       int32_t bias);
int32_t arch_moe_sum(struct arch_builder *b, const char *name, int32_t y, int32_t weights);

#endif
