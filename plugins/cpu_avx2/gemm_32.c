/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products with weights in blocks of 32 elements: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL MXFP4,
 * activations rounded to 8 bits per 32 elements.  The work is in gemv.h and tile.h; here is what
 * differs between the types.
 *
 * run: how many pair sums q * a of one i16 lane may be added: 32767 / (2 * 127 * largest q),
 * rounded down to a power of two: 8 for q <= 15, 4 for q <= 31.
 */
#include "kernels.h"
#include "tile.h"

/* Scales of eight blocks: the f16 in front of each. */
CPU_INLINE __m256 d_f16(const uint8_t *const b[8])
{
    return f16_of_rows(b, 0);
}

/* Mins of eight blocks: the f16 after it. */
CPU_INLINE __m256 m_f16(const uint8_t *const b[8])
{
    return f16_of_rows(b, sizeof(uint16_t));
}

CPU_INLINE __m256 d_e8m0(const uint8_t *const b[8])
{
    return e8m0_values(
        _mm256_setr_epi32(b[0][0], b[1][0], b[2][0], b[3][0], b[4][0], b[5][0], b[6][0], b[7][0]));
}

void gemm_q4_0_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                    float *y, size_t y_stride)
{
    static const struct type32 type = {
        .bytes = sizeof(struct atsi_block_q4_0), .zero = 8, .run = 8, .vec = vec_q4_0, .d = d_f16};
    gemm_quant(&type, NULL, w, w_stride, n_rows, x, y, y_stride);
}

void gemm_q4_1_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                    float *y, size_t y_stride)
{
    static const struct type32 type = {.bytes = sizeof(struct atsi_block_q4_1),
                                       .has_min = true,
                                       .run = 8,
                                       .vec = vec_q4_1,
                                       .d = d_f16,
                                       .m = m_f16};
    gemm_quant(&type, NULL, w, w_stride, n_rows, x, y, y_stride);
}

void gemm_q5_0_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                    float *y, size_t y_stride)
{
    static const struct type32 type = {
        .bytes = sizeof(struct atsi_block_q5_0), .zero = 16, .run = 4, .vec = vec_q5_0, .d = d_f16};
    gemm_quant(&type, NULL, w, w_stride, n_rows, x, y, y_stride);
}

void gemm_q5_1_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                    float *y, size_t y_stride)
{
    static const struct type32 type = {.bytes = sizeof(struct atsi_block_q5_1),
                                       .has_min = true,
                                       .run = 4,
                                       .vec = vec_q5_1,
                                       .d = d_f16,
                                       .m = m_f16};
    gemm_quant(&type, NULL, w, w_stride, n_rows, x, y, y_stride);
}

void gemm_q8_0_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                    float *y, size_t y_stride)
{
    static const struct type32 type = {.bytes = sizeof(struct atsi_block_q8_0),
                                       .is_signed = true,
                                       .run = 1,
                                       .vec = vec_q8_0,
                                       .d = d_f16};
    gemm_quant(&type, NULL, w, w_stride, n_rows, x, y, y_stride);
}

void gemm_iq4_nl_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                      float *y, size_t y_stride)
{
    static const struct type32 type = {.bytes = sizeof(struct atsi_block_iq4_nl),
                                       .is_signed = true,
                                       .run = 1,
                                       .vec = vec_iq4_nl,
                                       .d = d_f16};
    gemm_quant(&type, NULL, w, w_stride, n_rows, x, y, y_stride);
}

void gemm_mxfp4_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                     float *y, size_t y_stride)
{
    static const struct type32 type = {.bytes = sizeof(struct atsi_block_mxfp4),
                                       .zero = 12,
                                       .run = 4,
                                       .vec = vec_mxfp4,
                                       .d = d_e8m0};
    gemm_quant(&type, NULL, w, w_stride, n_rows, x, y, y_stride);
}
