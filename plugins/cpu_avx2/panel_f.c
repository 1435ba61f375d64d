/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with F32, F16 and BF16 weights in panels and exact f32 activations.
 *
 * The float chain of a row and a token: one sum of the even columns and one of the odd ones, each
 * in order by fused multiply-adds, added at the end.  Tiles only group such chains.
 */
#include "kernels.h"
#include "simd.h"

#include "../cpu_common/panel_walk.h"

enum {
    AHEAD = 2048,  /* bytes a stream is prefetched */
    TILE_T = 3,    /* tokens of a tile: with one panel twelve sums */
    FEW_TOKENS = 2 /* so many take the weights twice rather than leave one stream */
};

/* Two columns of a panel are four vectors.  F16, BF16: rows 4 i .. 4 i + 3, each with its even and
 * its odd column; F32: rows 0-7 and 8-15 of the even column, then those of the odd one. */
CPU_INLINE __m256 vector_of(const int type, const uint8_t *p, const int i)
{
    if (type == ATSI_TYPE_F32)
        return _mm256_castsi256_ps(load256(p + 32 * i));
    if (type == ATSI_TYPE_F16)
        return _mm256_cvtph_ps(load128(p + 16 * i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p + 16 * i)), 16));
}

/* The activations that meet vector i: both, alternating, or one. */
CPU_INLINE __m256 activations(const int type, const float *x, const int i)
{
    if (type == ATSI_TYPE_F32)
        return _mm256_broadcast_ss(x + i / 2);
    return _mm256_castpd_ps(_mm256_broadcast_sd((const double *)(const void *)x));
}

/* Lanes of even columns of a pair of vectors, rows in order; or of odd ones. */
CPU_INLINE __m256 lanes_of(__m256 a, __m256 b, const int odd)
{
    const __m256 v = odd ? _mm256_shuffle_ps(a, b, 0xdd) : _mm256_shuffle_ps(a, b, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}

/* The last column of an odd number of them, half h: sixteen values follow one another. */
CPU_INLINE __m256 last_column(const int type, const uint8_t *p, const int h)
{
    if (type == ATSI_TYPE_F32)
        return _mm256_castsi256_ps(load256(p + 32 * h));
    if (type == ATSI_TYPE_F16)
        return _mm256_cvtph_ps(load128(p + 16 * h));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p + 16 * h)), 16));
}

/* y of rows 0-7 and 8-15 of a panel from its four sums; w: the last column, if `more`. */
CPU_INLINE void end_panel(const int type, const __m256 s[4], bool more, const uint8_t *w,
                          const float *x, float *y)
{
    CPU_UNROLL
    for (int h = 0; h < 2; h++) {
        const bool apart = type == ATSI_TYPE_F32;
        __m256 even = apart ? s[h] : lanes_of(s[2 * h], s[2 * h + 1], 0);
        const __m256 odd = apart ? s[2 + h] : lanes_of(s[2 * h], s[2 * h + 1], 1);
        if (more)
            even = _mm256_fmadd_ps(last_column(type, w, h), _mm256_broadcast_ss(x), even);
        _mm256_storeu_ps(y + 8 * h, _mm256_add_ps(even, odd));
    }
}

/* All columns of n_p panels, apart bytes from each other, times n_t rows of x. */
CPU_INLINE void columns_f(const int type, const int n_p, const int n_t, const uint8_t *w,
                          size_t apart, uint32_t k, const float *x, size_t xs, float *y,
                          size_t y_apart, size_t ys)
{
    const size_t step = type == ATSI_TYPE_F32 ? 128 : 64;
    __m256 acc[2][TILE_T][4];
    CPU_UNROLL
    for (int p = 0; p < n_p; p++) {
        CPU_UNROLL
        for (int i = 0; i < 4 * n_t; i++)
            acc[p][i / 4][i % 4] = _mm256_setzero_ps();
    }
    for (uint32_t c = 0; c + 2 <= k; c += 2, w += step, x += 2) {
        CPU_UNROLL
        for (int p = 0; p < n_p; p++) {
            const uint8_t *from = w + (size_t)p * apart;
            for (size_t b = 0; b < step; b += 64)
                prefetch(from + b + AHEAD);
            CPU_UNROLL
            for (int i = 0; i < 4; i++) {
                const __m256 v = vector_of(type, from, i);
                CPU_UNROLL
                for (int t = 0; t < n_t; t++)
                    acc[p][t][i] =
                        _mm256_fmadd_ps(v, activations(type, x + (size_t)t * xs, i), acc[p][t][i]);
            }
        }
    }
    CPU_UNROLL
    for (int p = 0; p < n_p; p++) {
        CPU_UNROLL
        for (int t = 0; t < n_t; t++)
            end_panel(type, acc[p][t], k % 2 != 0, w + (size_t)p * apart, x + (size_t)t * xs,
                      y + (size_t)p * y_apart + (size_t)t * ys);
    }
}

/* Tiles of one panel: it is in the second cache for all tokens but the first. */
CPU_INLINE void many_f(const int type, const uint8_t *w, uint32_t n_panels, const struct cpu_act *x,
                       float *y, size_t ys)
{
    const size_t bytes = (size_t)atsi_panel_bytes((uint32_t)type, x->k), xs = x->f_stride;
    for (uint32_t p = 0; p < n_panels; p++, w += bytes, y += ATSI_PANEL_ROWS) {
        uint32_t t = 0;
        for (; x->n_tok - t >= TILE_T; t += TILE_T)
            columns_f(type, 1, TILE_T, w, 0, x->k, x->f + t * xs, xs, y + t * ys, 0, ys);
        if (x->n_tok - t == 2)
            columns_f(type, 1, 2, w, 0, x->k, x->f + t * xs, xs, y + t * ys, 0, ys);
        else if (x->n_tok - t == 1)
            columns_f(type, 1, 1, w, 0, x->k, x->f + t * xs, xs, y + t * ys, 0, ys);
    }
}

/* ---------------------------------------------------------------- the slots */
/* The functions of a type. */
#define PANEL_F(name, TYPE)                                                                        \
    static void name##_one_token(const uint8_t *w, size_t apart, const struct cpu_act *x,          \
                                 uint32_t t, float *y, size_t y_apart, size_t ys)                  \
    {                                                                                              \
        columns_f(TYPE, 2, 1, w, apart, x->k, x->f + t * x->f_stride, 0, y, y_apart, ys);          \
    }                                                                                              \
    static void panel_##name(uint32_t type, const void *w, uint32_t n_panels,                      \
                             const struct cpu_act *x, float *y, size_t ys)                         \
    {                                                                                              \
        static const struct panel_few few = {name##_one_token, NULL, 0};                           \
        if (x->n_tok > FEW_TOKENS)                                                                 \
            many_f(TYPE, w, n_panels, x, y, ys);                                                   \
        else                                                                                       \
            panel_few_tokens(&few, w, (size_t)atsi_panel_bytes(type, x->k), n_panels, x, y, ys);   \
    }

PANEL_F(f32, ATSI_TYPE_F32)
PANEL_F(f16, ATSI_TYPE_F16)
PANEL_F(bf16, ATSI_TYPE_BF16)

void fill_panel_f_avx2(struct cpu_kernels *out)
{
    out->gemm_panel[ATSI_TYPE_F32] = panel_f32;
    out->gemm_panel[ATSI_TYPE_F16] = panel_f16;
    out->gemm_panel[ATSI_TYPE_BF16] = panel_bf16;
}
