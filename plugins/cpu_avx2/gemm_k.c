/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products with weights in super-blocks of 256 elements: Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS,
 * activations rounded to 8 bits per 256 elements.  The work is in gemv.h and tile.h; here is what
 * differs between the types.
 *
 * run: how many pair sums q * a of one i16 lane may be added: at most 32767 / (2 * 127 * largest q)
 * (q <= 63 for Q6_K: 2), and no more than the dwords of a group.
 */
#include "kernels.h"
#include "tile.h"

void gemm_q2_k_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                    float *y, size_t y_stride)
{
    static const struct type256 type = {.bytes = sizeof(struct atsi_block_q2_k),
                                        .d_at = offsetof(struct atsi_block_q2_k, d),
                                        .dmin_at = offsetof(struct atsi_block_q2_k, dmin),
                                        .has_min = true,
                                        .group = 16,
                                        .run = 4,
                                        .vec = vec_q2_k,
                                        .scale = scale_q2_k};
    gemm_quant(NULL, &type, w, w_stride, n_rows, x, y, y_stride);
}

void gemm_q3_k_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                    float *y, size_t y_stride)
{
    static const struct type256 type = {.bytes = sizeof(struct atsi_block_q3_k),
                                        .d_at = offsetof(struct atsi_block_q3_k, d),
                                        .group = 16,
                                        .run = 4,
                                        .vec = vec_q3_k,
                                        .scale = scale_q3_k};
    gemm_quant(NULL, &type, w, w_stride, n_rows, x, y, y_stride);
}

void gemm_q4_k_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                    float *y, size_t y_stride)
{
    static const struct type256 type = {.bytes = sizeof(struct atsi_block_q4_k),
                                        .d_at = offsetof(struct atsi_block_q4_k, d),
                                        .dmin_at = offsetof(struct atsi_block_q4_k, dmin),
                                        .has_min = true,
                                        .group = 32,
                                        .run = 8,
                                        .vec = vec_q4_k,
                                        .scale = scale_q4_k};
    gemm_quant(NULL, &type, w, w_stride, n_rows, x, y, y_stride);
}

void gemm_q5_k_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                    float *y, size_t y_stride)
{
    static const struct type256 type = {.bytes = sizeof(struct atsi_block_q5_k),
                                        .d_at = offsetof(struct atsi_block_q5_k, d),
                                        .dmin_at = offsetof(struct atsi_block_q5_k, dmin),
                                        .has_min = true,
                                        .group = 32,
                                        .run = 4,
                                        .vec = vec_q5_k,
                                        .scale = scale_q4_k};
    gemm_quant(NULL, &type, w, w_stride, n_rows, x, y, y_stride);
}

void gemm_q6_k_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                    float *y, size_t y_stride)
{
    static const struct type256 type = {.bytes = sizeof(struct atsi_block_q6_k),
                                        .d_at = offsetof(struct atsi_block_q6_k, d),
                                        .group = 16,
                                        .run = 2,
                                        .vec = vec_q6_k,
                                        .scale = scale_q6_k};
    gemm_quant(NULL, &type, w, w_stride, n_rows, x, y, y_stride);
}

void gemm_iq4_xs_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                      float *y, size_t y_stride)
{
    static const struct type256 type = {.bytes = sizeof(struct atsi_block_iq4_xs),
                                        .d_at = offsetof(struct atsi_block_iq4_xs, d),
                                        .is_signed = true,
                                        .group = 32,
                                        .run = 1,
                                        .vec = vec_iq4_xs,
                                        .scale = scale_iq4_xs};
    gemm_quant(NULL, &type, w, w_stride, n_rows, x, y, y_stride);
}
