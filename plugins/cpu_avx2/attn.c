/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of one token for the query heads that share a KV head: scores, softmax, weighted sum of
 * values, all in f32; cache rows are f16 or f32.
 *
 * Every row of K is opened once for up to three heads and every row of V for up to two.  What one
 * head adds up, and in which order, does not depend on the heads beside it:
 *   score = sum over dk in eight lanes (fused), lanes added pairwise;
 *   out[j] = sum over cells in order (fused) of probability times value.
 */
#include <math.h>

#include "kernels.h"
#include "simd.h"

enum {
    CELLS = 4,   /* K rows side by side */
    SPAN = 64,   /* V rows that stay in L1 while their columns are walked */
    VECTORS = 4, /* of eight columns of V in registers */
    K_HEADS = 3,
    V_HEADS = 2
};

CPU_INLINE size_t elem_bytes(bool f16)
{
    return f16 ? sizeof(uint16_t) : sizeof(float);
}

/* Eight elements of a cache row, or the first n and zeros. */
CPU_INLINE __m256 cache8(const uint8_t *p, bool f16)
{
    return f16 ? _mm256_cvtph_ps(load128(p)) : _mm256_loadu_ps((const float *)(const void *)p);
}

CPU_INLINE __m256 cache_part(const uint8_t *p, uint32_t n, bool f16)
{
    float b[8] = {0}; /* n f16 fill less than half of it */
    memcpy(b, p, n * elem_bytes(f16));
    return f16 ? _mm256_cvtph_ps(load128(b)) : _mm256_loadu_ps(b);
}

/* Eight lanes of each of four sums, added: [0] = ((l0 + l1) + (l2 + l3)) + ((l4 + l5) + ...). */
CPU_INLINE __m128 sum_lanes4(const __m256 s[4])
{
    __m256 h = _mm256_hadd_ps(_mm256_hadd_ps(s[0], s[1]), _mm256_hadd_ps(s[2], s[3]));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

/* Scores of four cells (n of which are there) for H heads; score rows are `stride` apart. */
CPU_INLINE void score_cells(const struct cpu_attn_args *a, uint32_t head, int H, bool f16,
                            uint32_t cell, float *score, size_t stride)
{
    const size_t bytes = a->dk * elem_bytes(f16);
    const uint32_t last = a->n_kv - 1;
    const uint8_t *k[CELLS];
    __m256 s[K_HEADS][CELLS];
    for (uint32_t c = 0; c < CELLS; c++)
        k[c] = (const uint8_t *)a->k + (cell + c < last ? cell + c : last) * bytes;
    for (int h = 0; h < H; h++)
        for (int c = 0; c < CELLS; c++)
            s[h][c] = _mm256_setzero_ps();
    const float *q = a->q + (size_t)head * a->dk;
    uint32_t i = 0;
    for (; i + 8 <= a->dk; i += 8) {
        __m256 v[CELLS];
        for (int c = 0; c < CELLS; c++)
            v[c] = cache8(k[c] + i * elem_bytes(f16), f16);
        for (int h = 0; h < H; h++)
            for (int c = 0; c < CELLS; c++)
                s[h][c] =
                    _mm256_fmadd_ps(v[c], _mm256_loadu_ps(q + (size_t)h * a->dk + i), s[h][c]);
    }
    for (int h = 0; h < H && i < a->dk; h++)
        for (int c = 0; c < CELLS; c++)
            s[h][c] = _mm256_fmadd_ps(
                cache_part(k[c] + i * elem_bytes(f16), a->dk - i, f16),
                _mm256_maskload_ps(q + (size_t)h * a->dk + i, lane_mask(a->dk - i)), s[h][c]);
    for (int h = 0; h < H; h++)
        _mm_storeu_ps(score + (size_t)h * stride + cell,
                      _mm_mul_ps(sum_lanes4(s[h]), _mm_set1_ps(a->scale)));
}

CPU_INLINE void score_heads(const struct cpu_attn_args *a, uint32_t head, int H, bool f16,
                            float *score, size_t stride)
{
    for (uint32_t cell = 0; cell < a->n_kv; cell += CELLS)
        score_cells(a, head, H, f16, cell, score + (size_t)head * stride, stride);
}

CPU_INLINE void scores(const struct cpu_attn_args *a, bool f16, size_t stride)
{
    uint32_t h = 0;
    while (h < a->n_q) {
        const uint32_t left = a->n_q - h;
        if (left == 1) {
            score_heads(a, h, 1, f16, a->score, stride);
            h += 1;
        } else if (left == 2 || left == 4) {
            score_heads(a, h, 2, f16, a->score, stride);
            h += 2;
        } else {
            score_heads(a, h, K_HEADS, f16, a->score, stride);
            h += K_HEADS;
        }
    }
}

/* s[n] -> exp(s - max), zeros up to `padded` (a multiple of 8); returns their sum. */
static float soft(float *s, uint32_t n, size_t padded)
{
    for (size_t i = n; i < padded; i++)
        s[i] = -INFINITY;
    __m256 max = _mm256_set1_ps(-INFINITY), sum = _mm256_setzero_ps();
    for (size_t i = 0; i < padded; i += 8)
        max = _mm256_max_ps(max, _mm256_loadu_ps(s + i));
    max = _mm256_set1_ps(max8_f32(max));
    for (size_t i = 0; i < padded; i += 8) {
        __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(s + i), max));
        _mm256_storeu_ps(s + i, e);
        sum = _mm256_add_ps(sum, e);
    }
    return sum8_f32(sum);
}

/* out columns j .. j+8N of H heads go on over n cells; `part` > 0: only that many columns. */
CPU_INLINE void value_tile(const struct cpu_attn_args *a, bool f16, const uint8_t *v,
                           const float *p, size_t stride, uint32_t n, int H, int N, uint32_t part,
                           float *out)
{
    const size_t bytes = a->dv * elem_bytes(f16);
    const __m256i mask = lane_mask(part);
    __m256 y[V_HEADS][VECTORS];
    for (int h = 0; h < H; h++)
        for (int i = 0; i < N; i++)
            y[h][i] = part != 0 ? _mm256_maskload_ps(out + (size_t)h * a->dv, mask)
                                : _mm256_loadu_ps(out + (size_t)h * a->dv + 8 * i);
    for (uint32_t c = 0; c < n; c++, v += bytes) {
        __m256 x[VECTORS];
        for (int i = 0; i < N; i++)
            x[i] = part != 0 ? cache_part(v, part, f16)
                             : cache8(v + (size_t)8 * (size_t)i * elem_bytes(f16), f16);
        for (int h = 0; h < H; h++) {
            const __m256 w = _mm256_set1_ps(p[(size_t)h * stride + c]);
            for (int i = 0; i < N; i++)
                y[h][i] = _mm256_fmadd_ps(w, x[i], y[h][i]);
        }
    }
    for (int h = 0; h < H; h++)
        for (int i = 0; i < N; i++) {
            if (part != 0)
                _mm256_maskstore_ps(out + (size_t)h * a->dv, mask, y[h][i]);
            else
                _mm256_storeu_ps(out + (size_t)h * a->dv + 8 * i, y[h][i]);
        }
}

/* All columns of H heads over the n cells from `cell` on. */
CPU_INLINE void value_span(const struct cpu_attn_args *a, bool f16, uint32_t head, int H,
                           uint32_t cell, uint32_t n, size_t stride)
{
    const size_t e = elem_bytes(f16);
    const uint8_t *v = (const uint8_t *)a->v + cell * a->dv * e;
    const float *p = a->score + head * stride + cell;
    float *out = a->out + (size_t)head * a->dv;
    uint32_t j = 0;
    for (; j + 8 * VECTORS <= a->dv; j += 8 * VECTORS)
        value_tile(a, f16, v + j * e, p, stride, n, H, VECTORS, 0, out + j);
    for (; j + 8 <= a->dv; j += 8)
        value_tile(a, f16, v + j * e, p, stride, n, H, 1, 0, out + j);
    if (j < a->dv)
        value_tile(a, f16, v + j * e, p, stride, n, H, 1, a->dv - j, out + j);
}

CPU_INLINE void values(const struct cpu_attn_args *a, bool f16, size_t stride)
{
    for (uint32_t cell = 0; cell < a->n_kv; cell += SPAN) {
        const uint32_t n = a->n_kv - cell < SPAN ? a->n_kv - cell : SPAN;
        uint32_t h = 0;
        for (; h + V_HEADS <= a->n_q; h += V_HEADS)
            value_span(a, f16, h, V_HEADS, cell, n, stride);
        if (h < a->n_q)
            value_span(a, f16, h, 1, cell, n, stride);
    }
}

void attn_avx2(const struct cpu_attn_args *a)
{
    const size_t stride = ((size_t)a->n_kv + 15) / 16 * 16;
    memset(a->out, 0, (size_t)a->n_q * a->dv * sizeof *a->out);
    if (a->n_kv == 0)
        return;
    if (a->type_k == ATSI_TYPE_F16)
        scores(a, true, stride);
    else
        scores(a, false, stride);
    for (uint32_t h = 0; h < a->n_q; h++) {
        float *s = a->score + h * stride;
        const __m256 inv = _mm256_set1_ps(1.0f / soft(s, a->n_kv, stride));
        for (size_t i = 0; i < stride; i += 8)
            _mm256_storeu_ps(s + i, _mm256_mul_ps(_mm256_loadu_ps(s + i), inv));
    }
    if (a->type_v == ATSI_TYPE_F16)
        values(a, true, stride);
    else
        values(a, false, stride);
}
