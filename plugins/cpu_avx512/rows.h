/* SPDX-License-Identifier: Apache-2.0
 *
 * How every product walks its weight rows.
 *
 * Few tokens: four rows at a time, a quarter of the call's rows apart, so that memory sees four
 * long sequential streams (neighbouring rows end before a prefetch pays).  Many tokens: panels of
 * 32 neighbouring rows, unpacked once and used for every token.  A group's missing rows repeat the
 * last one; their results are not stored.
 */
#ifndef ATSI_CPU_AVX512_ROWS_H
#define ATSI_CPU_AVX512_ROWS_H

#include "../cpu_common/cpu_kernels.h"
#include "simd.h"

/* From this many tokens on panels are used: unpacking into one costs as much as two products. */
#define PANEL_MIN_TOKENS 4
#define FEW_TOKENS (PANEL_MIN_TOKENS - 1) /* at most, in one pass over far rows */
#define TILE_TOKENS 6                     /* tokens of a register tile, at most */
#define PANEL_ROWS 32
#define PREFETCH                                                                                   \
    1024 /* bytes ahead in each of the four streams, into the second cache: the same               \
          * distance into the first costs a tenth of the speed (Zen 4, 32 KiB) */

struct four_rows {
    const uint8_t *w[4];
    uint32_t row[4]; /* UINT32_MAX: a repeated row, not to be stored */
};

/* Group i of ceil(n_rows / 4): rows i, i + n/4, ... and, last, the n % 4 left over. */
CPU_INLINE void four_rows_at(const void *w, size_t stride, uint32_t n_rows, uint32_t i,
                             struct four_rows *g)
{
    const uint32_t quarter = n_rows / 4;
    for (uint32_t r = 0; r < 4; r++) {
        uint32_t row = i < quarter ? i + r * quarter : 4 * quarter + r;
        g->row[r] = row < n_rows ? row : UINT32_MAX;
        g->w[r] = (const uint8_t *)w + (row < n_rows ? row : n_rows - 1) * stride;
    }
}

CPU_INLINE void store_four(const struct four_rows *g, __m128 v, float *y)
{
    float f[4];
    _mm_storeu_ps(f, v);
    for (int r = 0; r < 4; r++)
        if (g->row[r] != UINT32_MAX)
            y[g->row[r]] = f[r];
}

/* One prefetch per 64 bytes of the `bytes` that a step reads from each stream. */
CPU_INLINE void prefetch_four(const uint8_t *const w[4], size_t at, const int bytes)
{
    for (int r = 0; r < 4; r++)
        for (int b = 0; b < bytes; b += 64)
            _mm_prefetch((const char *)w[r] + at + PREFETCH + b, _MM_HINT_T1);
}

/* The 32 rows of the panel pair that starts at `row`. */
CPU_INLINE void panel_rows(const void *w, size_t stride, uint32_t n_rows, uint32_t row,
                           const uint8_t *p[PANEL_ROWS])
{
    for (uint32_t r = 0; r < PANEL_ROWS; r++)
        p[r] = (const uint8_t *)w + (row + r < n_rows ? row + r : n_rows - 1) * stride;
}

/* Writes 16 rows of 64 bytes each as 16 dwords of 16 rows: lane l of a row's 64 bytes becomes
 * dwords 4 to[l] .. 4 to[l] + 3. */
CPU_INLINE void interleave_16(const uint8_t *rows, size_t stride, const uint8_t to[4],
                              uint8_t (*out)[16][4])
{
    for (int l = 0; l < 4; l++) {
        const uint8_t *p = rows + 16 * l;
        __m512i v[4];
        for (size_t i = 0; i < 4; i++)
            v[i] = load_4x16(p + i * stride, p + (i + 4) * stride, p + (i + 8) * stride,
                             p + (i + 12) * stride);
        transpose_lanes_4(v);
        for (int i = 0; i < 4; i++)
            _mm512_store_si512(out[4 * to[l] + i], v[i]);
    }
}

/* The accumulators of a tile, 2 x 16 rows times n tokens: zero, or what y holds so far. */
CPU_INLINE void tile_start(int first, const float *y, size_t ys, const int n, __mmask16 m0,
                           __mmask16 m1, __m512 acc[2][TILE_TOKENS])
{
    for (int t = 0; t < n; t++) {
        acc[0][t] = acc[1][t] = _mm512_setzero_ps();
        if (!first) {
            acc[0][t] = _mm512_maskz_loadu_ps(m0, y + (size_t)t * ys);
            acc[1][t] = _mm512_maskz_loadu_ps(m1, y + (size_t)t * ys + 16);
        }
    }
}

CPU_INLINE void tile_store(float *y, size_t ys, const int n, __mmask16 m0, __mmask16 m1,
                           __m512 acc[2][TILE_TOKENS])
{
    for (int t = 0; t < n; t++) {
        _mm512_mask_storeu_ps(y + (size_t)t * ys, m0, acc[0][t]);
        _mm512_mask_storeu_ps(y + (size_t)t * ys + 16, m1, acc[1][t]);
    }
}

#endif
