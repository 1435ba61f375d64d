/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations a backend may be asked for, and the tensors they work on.
 *
 * Notation: T = rows of this round (tokens), shapes are [rows, width], row-major, f32 unless said.
 * `src`, `weight` and `dst` entries that an operation does not list are NULL.  Activations of
 * different values never overlap, except that ADD, SWIGLU and ROPE may have dst == src[0].
 */
#ifndef ATSINFER_OP_H
#define ATSINFER_OP_H

#include <stdint.h>

#include "atsinfer/quant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a weight's bytes are arranged. */
enum atsi_layout {
    ATSI_LAYOUT_ROWS = 0 /* as in the file: row after row of blocks */
};

/* A tensor or a view of one.  For weights ne[0] is the contiguous (input) dimension, ne[1] the
 * output rows, ne[2] the experts of a stack.  For activations ne[0] = width, ne[1] = rows. */
struct atsi_tensor {
    uint32_t struct_size;
    uint32_t type;      /* enum atsi_type */
    uint32_t layout;    /* enum atsi_layout */
    uint32_t n_dims;    /* 0..4 */
    uint64_t ne[4];     /* elements; missing dimensions are 1 */
    uint64_t row_bytes; /* from one row to the next; matrices of a stack follow without gap */
    void *data;       /* [borrowed]  weights are never written; at least 2-aligned, f32 4-aligned */
    const char *name; /* [borrowed]  never NULL */
};

/* The KV cache of one attention.  Layout of k and v: [n_head_kv][n_ctx][head_dim]; cell = position.
 * The attention operation is the only writer. */
struct atsi_kv {
    uint32_t struct_size;
    uint32_t type_k, type_v; /* ATSI_TYPE_F32 or ATSI_TYPE_F16 */
    uint32_t n_head_kv;
    uint32_t head_dim_k, head_dim_v;
    uint32_t n_ctx; /* cells */
    void *k, *v;    /* 64-byte aligned */
};

enum atsi_op_kind {
    /* dst0[T, D] = rows src0 (i32 ids [T, 1]) of weight0 {D, V} */
    ATSI_OP_EMBED = 1,
    /* dst0[T, n*m] = x / sqrt(mean(x^2) + eps) * weight0 {n}, over each run of n elements of src0
     */
    ATSI_OP_RMS_NORM = 2,
    /* dst0[T, out] = src0[T, in] * weight0 {in, out}^T (+ weight1 {out}, f32) */
    ATSI_OP_MATMUL = 3,
    /* dst0[T, n_rot] = cos, sin of src0 (i32 positions [T, 1]) * weight0 {n_rot/2} (f32, angular
     * frequency per pair), times p.rope.magnitude: n_rot/2 cosines, then n_rot/2 sines */
    ATSI_OP_ROPE_TABLE = 4,
    /* dst0[T, n_head*head_dim] = src0 with each head's first n_rot elements turned by src1[T,
     * n_rot] (of ROPE_TABLE): pairs (2i, 2i+1) or (i, i + n_rot/2) */
    ATSI_OP_ROPE = 5,
    /* Stores src1 = k[T, Hkv*dk] and src2 = v[T, Hkv*dv] in cells src3 (i32 positions [T, 1]) of
     * kv, then dst0[T, H*dv] = softmax(scale * q.k) v over cells 0..position of each row of src0 =
     * q [T, H*dk]; query head h uses KV head h / (H/Hkv).  Positions of one call ascend by one. */
    ATSI_OP_ATTN = 6,
    /* dst0[T, F] = silu(src0) * src1 */
    ATSI_OP_SWIGLU = 7,
    /* dst0[T, D] = src0 + src1 */
    ATSI_OP_ADD = 8,
    /* dst0 (i32 [T, K]) = ids of the K largest of src0[T, E], best first, lower id on a tie;
     * dst1[T, K] = their weights: p_e = softmax over all E, divided by max(sum of the selected,
     * 2^-14) */
    ATSI_OP_TOPK = 9,
    /* Expert product.  For row t and slot j: dst0[t, j*out..] = weight0 {in, out, E}[:, :, e] * x,
     * e = src1 (i32 [T, K])[t, j]; x = src0[t] when src0 is [T, in], src0[t, j*in..] when it is
     * [T, K*in].  weight1 {out, E} (f32) is added when present. */
    ATSI_OP_MATMUL_ID = 10,
    /* dst0[T, D] = sum over j, in order, of src1[t, j] * src0[t, j*D..] */
    ATSI_OP_MOE_SUM = 11,
    ATSI_OP_COUNT
};

enum atsi_rope_mode {
    ATSI_ROPE_PAIRS = 0, /* (2i, 2i+1) */
    ATSI_ROPE_HALVES = 1 /* (i, i + n_rot/2) */
};

/* Parameters that are no tensors.  Room for growth is part of the size. */
union atsi_op_params {
    struct {
        float eps;
    } norm;
    struct {
        uint32_t n_head, head_dim, n_rot, mode;
        float magnitude; /* ROPE_TABLE only */
    } rope;
    struct {
        uint32_t n_head, n_head_kv, head_dim_k, head_dim_v;
        uint32_t n_kv; /* cells in use after this round: last position + 1 */
        float scale;
    } attn;
    struct {
        uint32_t n_used; /* K */
    } moe;
    uint32_t reserved[16];
};

#define ATSI_OP_EXACT 1u /* keep activations in f32 whatever the weight's type asks for */

struct atsi_op {
    uint32_t struct_size;
    uint32_t kind;   /* enum atsi_op_kind */
    uint32_t flags;  /* ATSI_OP_* bits */
    uint32_t n_rows; /* T of this call; tensors may have room for more */
    uint32_t item;   /* the schedulable item it belongs to, for timing and traces */
    const struct atsi_tensor *src[4];
    const struct atsi_tensor *weight[2];
    const struct atsi_tensor *dst[2];
    const struct atsi_kv *kv;
    union atsi_op_params p;
};

#ifdef __cplusplus
}
#endif
#endif
