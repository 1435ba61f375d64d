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
    ATSI_LAYOUT_ROWS = 0,  /* as in the file: row after row of blocks */
    ATSI_LAYOUT_PANELS = 1 /* as many bytes: panels of 16 rows, dword-interleaved (panel.h), then
                            * the remaining ne[1] % 16 rows as in the file; every matrix of a stack
                            * for itself */
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

/* The KV cache of one attention.  Layout of k and v: [n_head_kv][n_ctx][head_dim], each head_dim
 * one row of the type; cell = position modulo n_ctx, so that a sliding window needs no more cells
 * than it sees.  The attention operation is the only writer. */
struct atsi_kv {
    uint32_t struct_size;
    uint32_t type_k, type_v; /* ATSI_TYPE_F32, ATSI_TYPE_F16, or ATSI_TYPE_Q8_0 (head_dim a
                              * multiple of 32) */
    uint32_t n_head_kv;
    uint32_t head_dim_k, head_dim_v;
    uint32_t n_ctx; /* cells */
    void *k, *v;    /* 64-byte aligned */
};

enum atsi_op_kind {
    /* dst0[T, D] = rows src0 (i32 ids [T, 1]) of weight0 {D, V} */
    ATSI_OP_EMBED = 1,
    /* dst0[T, n*m] = x / sqrt(mean(x^2) + eps) * weight0 {n}, over m runs of n elements of src0,
     * which start p.norm.stride elements apart (0: n, one after the other) */
    ATSI_OP_RMS_NORM = 2,
    /* dst0[T, out] = src0[T, in] * weight0 {in, out}^T (+ weight1 {out}, f32).  dst0 may be columns
     * of a wider activation (row_bytes > 4 * out): rows of a matrix that is computed in parts. */
    ATSI_OP_MATMUL = 3,
    /* dst0[T, n_rot] = cos, sin of src0 (i32 positions [T, 1]) * weight0 {n_rot/2} (f32, angular
     * frequency per pair), times p.rope.magnitude: n_rot/2 cosines, then n_rot/2 sines */
    ATSI_OP_ROPE_TABLE = 4,
    /* dst0[T, n_head*head_dim] = src0 with each head's first n_rot elements turned by src1[T,
     * n_rot] (of ROPE_TABLE): pairs (2i, 2i+1) or (i, i + n_rot/2) */
    ATSI_OP_ROPE = 5,
    /* Stores src1 = k[T, Hkv*dk] and src2 = v[T, Hkv*dv] in kv at positions src3 (i32 [T, 1]), then
     * dst0[T, H*dv] = softmax(scale * q.k) v over positions 0..p of each row at position p of src0
     * = q [T, H*dk], with a window w > 0 over max(0, p - w + 1)..p; query head h uses KV head h /
     * (H/Hkv).  Positions of one call ascend by one.  weight0 {H} (f32), when present: a sink per
     * head, which joins the softmax as one more score (not scaled) and has no value.  All that is
     * visible has a cell: n_ctx >= n_kv, or window + T - 1. */
    ATSI_OP_ATTN = 6,
    /* dst0[T, F] = act(gate) * up, gate = src0, up = src1; without src1 each of the p.glu.n_group
     * runs of src0 holds gate, then up.  ATSI_GLU_SILU: silu(gate) * up.  ATSI_GLU_CLAMPED
     * (gpt-oss): g = min(gate, limit), u = clamp(up, -limit, limit), g * sigmoid(alpha * g) * (u +
     * 1). */
    ATSI_OP_SWIGLU = 7,
    /* dst0[T, D] = src0 + src1 */
    ATSI_OP_ADD = 8,
    /* dst0 (i32 [T, K]) = ids of the K largest of src0[T, E], best first, lower id on a tie;
     * dst1[T, K] = their weights.  ATSI_GATING_SOFTMAX: p_e = softmax over all E, divided by
     * max(sum of the selected, 2^-14); ATSI_GATING_SELECTED: softmax over the K selected;
     * ATSI_GATING_NONE: the K logits as they are. */
    ATSI_OP_TOPK = 9,
    /* Expert product.  For row t and slot j: dst0[t, j*out..] = weight0 {in, out, E}[:, :, e] * x,
     * e = src1 (i32 [T, K])[t, j]; x = src0[t] when src0 is [T, in], src0[t, j*in..] when it is
     * [T, K*in].  weight1 {out, E} (f32) is added when present. */
    ATSI_OP_MATMUL_ID = 10,
    /* dst0[T, D] = sum over j, in order, of src1[t, j] * src0[t, j*D..] */
    ATSI_OP_MOE_SUM = 11,
    /* dst0[T, D] = src0[T, D] * sigmoid(gate): element i of run g (D / p.gate.run runs) takes
     * src1[t, g * stride + offset + i]; with `scalar`, src1[t, g * stride + offset]. */
    ATSI_OP_GATE = 12,
    /* dst0[T, n_group * sum of len] = pieces of src0[T, n_group * stride]: for each segment s in
     * order, for each group g in order, src0[t, g * stride + offset[s] ..][len[s]]. */
    ATSI_OP_REGROUP = 13,
    /* Causal convolution over time, per channel, then silu: dst0[t, ch] = silu(sum over m < c of
     * weight0 {c, C} (f32)[m, ch] * x[t - (c-1) + m, ch]), x = src0[T, C] preceded by `state`
     * {C, c-1}, the last c-1 rows before this call, oldest first; which is then moved on. */
    ATSI_OP_CONV = 14,
    /* Gated delta rule (Gated DeltaNet), per value head h with key head j of h, row by row:
     *   k, q = src0's heads, each divided by max(its 2-norm, eps);  beta = sigmoid(b);
     *   g = weight0[h] * softplus(a + weight1[h]);   b, a: src1, src2 at p.delta's places
     *   S *= exp(g);  d = beta * (v - S^T k);  S += k d^T;  dst0[t, h*dv..] = S^T q / sqrt(dk)
     * src0[T, 2*Hk*dk + Hv*dv] = q heads, k heads, v heads; weight0, weight1 {Hv} (f32); `state` S
     * {dv, dk, Hv}.  j = h / (Hv/Hk), or h % Hk with `tiled`.  Kernels may work on many rows at a
     * time in the algebraically equal chunked form, so that results depend on T in rounding. */
    ATSI_OP_DELTA_NET = 15,
    ATSI_OP_COUNT
};

enum atsi_rope_mode {
    ATSI_ROPE_PAIRS = 0, /* (2i, 2i+1) */
    ATSI_ROPE_HALVES = 1 /* (i, i + n_rot/2) */
};

enum atsi_glu { ATSI_GLU_SILU = 0, ATSI_GLU_CLAMPED = 1 };

enum atsi_gating {
    ATSI_GATING_SOFTMAX = 0,  /* softmax over all, then selection */
    ATSI_GATING_SELECTED = 1, /* selection, then softmax over the selected */
    ATSI_GATING_NONE = 2      /* selection alone: of next tokens */
};

#define ATSI_MAX_SEGMENTS 4u

/* Parameters that are no tensors.  Room for growth is part of the size. */
union atsi_op_params {
    struct {
        float eps;
        uint32_t stride; /* elements from run to run of src0; 0: packed */
    } norm;
    struct {
        uint32_t n_head, head_dim, n_rot, mode;
        float magnitude; /* ROPE_TABLE only */
    } rope;
    struct {
        uint32_t n_head, n_head_kv, head_dim_k, head_dim_v;
        uint32_t n_kv; /* positions after this round: the last one + 1 */
        float scale;
        uint32_t window; /* positions a row sees, itself included; 0: all */
    } attn;
    struct {
        uint32_t n_used; /* K */
        uint32_t gating; /* enum atsi_gating; TOPK only */
    } moe;
    struct {
        uint32_t kind;      /* enum atsi_glu */
        uint32_t n_group;   /* runs when src1 is NULL: 1, or the experts used */
        float alpha, limit; /* ATSI_GLU_CLAMPED */
    } glu;
    struct {
        uint32_t run, stride, offset, scalar;
    } gate;
    struct {
        uint32_t n_group, stride, n_seg;
        uint32_t offset[ATSI_MAX_SEGMENTS], len[ATSI_MAX_SEGMENTS];
    } regroup;
    struct {
        uint32_t n_head_k, n_head_v, dim_k, dim_v;
        uint32_t tiled;
        /* b and a of head h lie at [t, h / run * stride + offset + h % run] of src1 and src2. */
        uint32_t run, stride, beta_offset, alpha_offset;
        float eps;
    } delta;
    uint32_t reserved[16];
};

/* The modelled time of an operation or a copy, for backends that advance a virtual clock.  Speeds
 * are per mille: of this activity, and of a weight transfer, while both are under way. */
struct atsi_modelled {
    uint32_t struct_size;
    uint32_t contended_run, contended_copy;
    uint64_t run_ns;   /* undisturbed */
    uint64_t lead_ns;  /* spent before it waits for events, in an operation's queue */
    uint64_t delay_ns; /* from a copy's first event until it may start */
    uint64_t hold_ns;  /* and from when it was queued */
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
    const struct atsi_tensor *state; /* f32, read and written, zero at the start of a sequence */
    const struct atsi_modelled *modelled; /* NULL, or what a simulator takes instead of computing */
};

#ifdef __cplusplus
}
#endif
#endif
