/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode skeleton: eight rows times one token, lane = row.
 *
 * Integer sums of a block are exact, so the float chain is per (row, token), over blocks in order:
 *   y = fma(float(sum of q_w q_a), d_w * d_a, y)
 *   then, for types with mins, y = fma(float(sum of m q_a), +-m_w * d_a, y).
 * tile.h keeps the same chain, which makes every split of rows and tokens agree bit for bit.
 *
 * The eight rows are an eighth of the call's rows apart: eight sequential streams, where
 * prefetching past the end of a row fetches what the stream reads next.
 */
#ifndef CPU_AVX2_GEMV_H
#define CPU_AVX2_GEMV_H

#include "../cpu_common/cpu_kernels.h"
#include "simd.h"

enum {
    GEMV_ROWS = 8,
    GEMV_AHEAD = 1024 /* bytes each stream is fetched ahead */
};

/* A weight type with blocks of 32 elements. */
struct type32 {
    size_t bytes;                     /* of a block */
    int zero;                         /* zero point of the quants */
    bool is_signed;                   /* quants are i8: |q| <= 128 against sign(a, q) */
    bool has_min;                     /* value = d * q + m */
    int run;                          /* products of u8 and i8 pairs that may be added in i16 */
    __m256i (*vec)(const uint8_t *b); /* its 32 quants */
    __m256 (*d)(const uint8_t *const b[8]); /* scales of eight blocks */
    __m256 (*m)(const uint8_t *const b[8]); /* mins of eight blocks */
};

/* A weight type with blocks of 256 elements. */
struct type256 {
    size_t bytes, d_at, dmin_at; /* of a block; offsets of the f16 scales */
    bool is_signed;              /* as above */
    bool has_min; /* value = d * s * q - dmin * m; else m corrects for a zero point */
    int group;    /* elements per scale: 16 or 32 */
    int zero;     /* zero point of the quants */
    int run;      /* as above */
    __m256i (*vec)(const uint8_t *b, int j);
    void (*scale)(const uint8_t *b, __m256i *s, __m256i *m);
};

/* Pairs of products in sixteen i16: no saturation, since unsigned quants are at most 63, |a| <= 127
 * and 128 * 127 * 2 = 32512. */
CPU_INLINE __m256i mul_pairs(__m256i q, __m256i a, bool is_signed)
{
    if (is_signed)
        return _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(a, q));
    return _mm256_maddubs_epi16(q, a);
}

/* Sums of q_w q_a of one block of eight rows. */
CPU_INLINE __m256i dot32_rows(const struct type32 *type, const uint8_t *const b[8], const int8_t *q)
{
    const __m256i a = _mm256_load_si256((const __m256i *)q);
    __m256i s[GEMV_ROWS];
    for (int r = 0; r < GEMV_ROWS; r++) {
        s[r] = mul_pairs(type->vec(b[r]), a, type->is_signed);
        if (type->is_signed)
            s[r] = _mm256_madd_epi16(s[r], _mm256_set1_epi16(1));
    }
    return type->is_signed ? reduce8_i32(s) : reduce8_i16(s);
}

/* Blocks i0 .. i0+n-1 of eight rows (n <= 8, i0 a multiple of 8) onto y. */
CPU_INLINE __m256 gemv32_blocks(const struct type32 *type, const uint8_t *const row[8],
                                const struct cpu_act *x, uint32_t t, uint32_t i0, uint32_t n,
                                __m256 y)
{
    const int8_t *q = x->q + t * x->q_stride + (size_t)32 * i0;
    const float *d = x->d + t * x->d_stride + i0;
    const int16_t *bsum = x->bsum + t * x->bsum_stride + (size_t)2 * i0;
    _Alignas(32) int32_t sum[8]; /* of the activations of each block */
    __m256i pairs = _mm256_maskload_epi32((const int *)(const void *)bsum, lane_mask(n));
    _mm256_store_si256((__m256i *)sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *b[GEMV_ROWS];
        for (int r = 0; r < GEMV_ROWS; r++)
            b[r] = row[r] + (i0 + i) * type->bytes;
        __m256i s = dot32_rows(type, b, q + (size_t)32 * i);
        if (type->zero != 0)
            s = _mm256_sub_epi32(s, _mm256_set1_epi32(type->zero * sum[i]));
        __m256 da = _mm256_set1_ps(d[i]);
        y = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s), _mm256_mul_ps(type->d(b), da), y);
        if (type->has_min)
            y = _mm256_fmadd_ps(_mm256_set1_ps((float)sum[i]), _mm256_mul_ps(type->m(b), da), y);
    }
    return y;
}

CPU_INLINE __m256 gemv32(const struct type32 *type, const uint8_t *const row[8],
                         const struct cpu_act *x, uint32_t t)
{
    const uint32_t nb = x->k / 32;
    __m256 y = _mm256_setzero_ps();
    for (uint32_t i = 0; i < nb; i += 8) {
        for (int r = 0; r < GEMV_ROWS; r++)
            for (size_t o = 0; o < 8 * type->bytes; o += 64)
                prefetch(row[r] + i * type->bytes + o + GEMV_AHEAD);
        if (nb - i >= 8)
            y = gemv32_blocks(type, row, x, t, i, 8, y);
        else
            y = gemv32_blocks(type, row, x, t, i, nb - i, y);
    }
    return y;
}

/* Sums of one block of one row: s lanes add up to the scaled products, m lanes to those of the
 * mins. */
CPU_INLINE void dot256(const struct type256 *type, const uint8_t *b, const int8_t *q, __m256i bsum,
                       __m256i *s_out, __m256i *m_out)
{
    __m256i scales, mins, s = _mm256_setzero_si256();
    type->scale(b, &scales, &mins);
    for (int j = 0; j < 8; j++) {
        /* i16 number j of either half, to all lanes of the half */
        __m256i pick = _mm256_set1_epi16((short)(2 * j + 256 * (2 * j + 1)));
        __m256i p =
            mul_pairs(type->vec(b, j), _mm256_load_si256((const __m256i *)q + j), type->is_signed);
        s = _mm256_add_epi32(s, _mm256_madd_epi16(p, _mm256_shuffle_epi8(scales, pick)));
    }
    *m_out = _mm256_madd_epi16(mins, bsum);
    *s_out = s;
}

CPU_INLINE __m256 gemv256(const struct type256 *type, const uint8_t *const row[8],
                          const struct cpu_act *x, uint32_t t)
{
    const uint32_t nb = x->k / 256;
    const int8_t *q = x->q + t * x->q_stride;
    const int16_t *bsums = x->bsum + t * x->bsum_stride;
    const float *d = x->d + t * x->d_stride;
    __m256 y = _mm256_setzero_ps();
    for (uint32_t i = 0; i < nb; i++) {
        const __m256i bsum = _mm256_load_si256((const __m256i *)(bsums + (size_t)16 * i));
        const uint8_t *b[GEMV_ROWS];
        __m256i s[GEMV_ROWS], m[GEMV_ROWS];
        for (int r = 0; r < GEMV_ROWS; r++) {
            b[r] = row[r] + i * type->bytes;
            for (size_t o = 0; o < type->bytes; o += 64)
                prefetch(b[r] + o + GEMV_AHEAD);
            dot256(type, b[r], q + (size_t)256 * i, bsum, &s[r], &m[r]);
            if (!type->has_min)
                s[r] = _mm256_add_epi32(s[r], m[r]);
        }
        __m256 da = _mm256_set1_ps(d[i]);
        y = _mm256_fmadd_ps(_mm256_cvtepi32_ps(reduce8_i32(s)),
                            _mm256_mul_ps(f16_of_rows(b, type->d_at), da), y);
        if (type->has_min)
            y = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(reduce8_i32(m)),
                                 _mm256_mul_ps(f16_of_rows(b, type->dmin_at), da), y);
    }
    return y;
}

/* y of the n rows id[0..n-1] (n <= 8); places that are not there repeat the last. */
CPU_INLINE void gemv_rows(const struct type32 *t32, const struct type256 *t256, const uint8_t *w,
                          size_t w_stride, const uint32_t id[8], uint32_t n,
                          const struct cpu_act *x, float *y, size_t y_stride)
{
    const uint8_t *row[GEMV_ROWS];
    for (uint32_t r = 0; r < GEMV_ROWS; r++)
        row[r] = w + id[r < n ? r : n - 1] * w_stride;
    for (uint32_t t = 0; t < x->n_tok; t++) {
        _Alignas(32) float v[GEMV_ROWS];
        _mm256_store_ps(v, t32 != NULL ? gemv32(t32, row, x, t) : gemv256(t256, row, x, t));
        for (uint32_t r = 0; r < n; r++)
            y[t * y_stride + id[r]] = v[r];
    }
}

/* Any number of rows and tokens; each group of rows is used for all tokens while it is in cache.
 * One of t32 and t256 is NULL.  Stream r walks rows r * far .. (r + 1) * far - 1, starting r rows
 * in: with equal starts, shares that are multiples of 4 KiB would put all eight streams into the
 * same sets of the L1 cache (measured: a quarter of the speed). */
CPU_INLINE void gemv_all(const struct type32 *t32, const struct type256 *t256, const uint8_t *w,
                         size_t w_stride, uint32_t n_rows, const struct cpu_act *x, float *y,
                         size_t y_stride)
{
    const uint32_t far = n_rows / GEMV_ROWS, tail = n_rows % GEMV_ROWS;
    uint32_t id[GEMV_ROWS];
    for (uint32_t g = 0; g < far; g++) {
        for (uint32_t r = 0; r < GEMV_ROWS; r++)
            id[r] = r * far + (g + r) % far;
        gemv_rows(t32, t256, w, w_stride, id, GEMV_ROWS, x, y, y_stride);
    }
    for (uint32_t r = 0; r < tail; r++)
        id[r] = far * GEMV_ROWS + r;
    if (tail != 0)
        gemv_rows(t32, t256, w, w_stride, id, tail, x, y, y_stride);
}

#endif
