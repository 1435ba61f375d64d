/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with F32, F16 and BF16 weights and exact f32 activations.
 *
 * A row and a token have one accumulator of sixteen lanes (lane = element % 16, fused multiply-adds
 * in order) that is summed at the end in the order of sum_all_4f; tiles only group such chains.
 */
#include "kernels.h"
#include "rows.h"

/* Tokens whose f32 rows should stay in the second cache while all weight rows pass. */
#define TOKEN_BLOCK_BYTES (384u * 1024u)

CPU_INLINE int elem_bytes(const int type)
{
    return type == ATSI_TYPE_F32 ? 4 : 2;
}

/* Elements i .. i + 15 of a row; those outside `m` are not read and count as zero. */
CPU_INLINE __m512 weights_16(const int type, const uint8_t *row, size_t i, const __mmask16 m)
{
    const uint8_t *p = row + i * (size_t)elem_bytes(type);
    __m256i h;
    if (type == ATSI_TYPE_F32)
        return m == 0xffff ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(m, p);
    h = m == 0xffff ? _mm256_loadu_si256((const __m256i *)(const void *)p)
                    : _mm256_maskz_loadu_epi16(m, p);
    if (type == ATSI_TYPE_F16)
        return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* acc[r][t] += 16 columns of four rows times n tokens. */
CPU_INLINE void columns_f(const int type, const uint8_t *const w[4], const float *x, size_t xs,
                          size_t i, const __mmask16 m, const int n, __m512 acc[4][TILE_TOKENS])
{
    __m512 v[4];
    for (int r = 0; r < 4; r++)
        v[r] = weights_16(type, w[r], i, m);
    for (int t = 0; t < n; t++) {
        const float *p = x + (size_t)t * xs + i;
        __m512 a = m == 0xffff ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(m, p);
        for (int r = 0; r < 4; r++)
            acc[r][t] = _mm512_fmadd_ps(v[r], a, acc[r][t]);
    }
}

/* Four rows times n tokens. */
CPU_INLINE void tile_f(const int type, const struct four_rows *g, const float *x, size_t xs,
                       uint32_t k, const int n, float *y, size_t ys)
{
    __m512 acc[4][TILE_TOKENS];
    size_t i = 0;
    for (int r = 0; r < 4; r++)
        for (int t = 0; t < n; t++)
            acc[r][t] = _mm512_setzero_ps();
    for (; i + 64 / (size_t)elem_bytes(type) <= k; i += 64 / (size_t)elem_bytes(type)) {
        if (n <= 2)
            prefetch_four(g->w, i * (size_t)elem_bytes(type), 64);
        columns_f(type, g->w, x, xs, i, 0xffff, n, acc);
        if (elem_bytes(type) == 2)
            columns_f(type, g->w, x, xs, i + 16, 0xffff, n, acc);
    }
    if (i + 16 <= k) {
        columns_f(type, g->w, x, xs, i, 0xffff, n, acc);
        i += 16;
    }
    if (i < k)
        columns_f(type, g->w, x, xs, i, mask_16(k - i), n, acc);
    for (int t = 0; t < n; t++)
        store_four(g, sum_all_4f(acc[0][t], acc[1][t], acc[2][t], acc[3][t]), y + (size_t)t * ys);
}

CPU_INLINE void tokens_f(const int type, const struct four_rows *g, const float *x, size_t xs,
                         uint32_t k, uint32_t n_tok, float *y, size_t ys)
{
    uint32_t t = 0;
    for (; n_tok - t >= TILE_TOKENS; t += TILE_TOKENS)
        tile_f(type, g, x + t * xs, xs, k, TILE_TOKENS, y + t * ys, ys);
    x += t * xs;
    y += t * ys;
    switch (n_tok - t) {
    case 5:
        tile_f(type, g, x, xs, k, 5, y, ys);
        break;
    case 4:
        tile_f(type, g, x, xs, k, 4, y, ys);
        break;
    case 3:
        tile_f(type, g, x, xs, k, 3, y, ys);
        break;
    case 2:
        tile_f(type, g, x, xs, k, 2, y, ys);
        break;
    case 1:
        tile_f(type, g, x, xs, k, 1, y, ys);
        break;
    default:
        break;
    }
}

CPU_INLINE void gemm_f(const int type, const void *w, size_t stride, uint32_t n_rows,
                       const struct cpu_act *x, float *y, size_t ys)
{
    const size_t fit =
        TOKEN_BLOCK_BYTES / (x->f_stride * sizeof(float) + 1) / TILE_TOKENS * TILE_TOKENS;
    const uint32_t block = fit < TILE_TOKENS ? TILE_TOKENS : (uint32_t)fit;
    for (uint32_t t = 0; t < x->n_tok; t += block) {
        const uint32_t n = x->n_tok - t < block ? x->n_tok - t : block;
        for (uint32_t i = 0; i < (n_rows + 3) / 4; i++) {
            struct four_rows g;
            four_rows_at(w, stride, n_rows, i, &g);
            tokens_f(type, &g, x->f + t * x->f_stride, x->f_stride, x->k, n, y + t * ys, ys);
        }
    }
}

static void gemm_f32_avx512(const void *w, size_t stride, uint32_t n_rows, const struct cpu_act *x,
                            float *y, size_t ys)
{
    gemm_f(ATSI_TYPE_F32, w, stride, n_rows, x, y, ys);
}

static void gemm_f16_avx512(const void *w, size_t stride, uint32_t n_rows, const struct cpu_act *x,
                            float *y, size_t ys)
{
    gemm_f(ATSI_TYPE_F16, w, stride, n_rows, x, y, ys);
}

static void gemm_bf16_avx512(const void *w, size_t stride, uint32_t n_rows, const struct cpu_act *x,
                             float *y, size_t ys)
{
    gemm_f(ATSI_TYPE_BF16, w, stride, n_rows, x, y, ys);
}

void fill_gemm_f_avx512(struct cpu_kernels *out)
{
    out->gemm[ATSI_TYPE_F32] = gemm_f32_avx512;
    out->gemm[ATSI_TYPE_F16] = gemm_f16_avx512;
    out->gemm[ATSI_TYPE_BF16] = gemm_bf16_avx512;
}
