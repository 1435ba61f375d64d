/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of one token for the query heads that share a KV head: scores, softmax, weighted sum of
 * values, all in f32; cache rows are f32, f16 or Q8_0, in one run, or in two when a ring begins
 * anew.
 *
 * Every row of K is opened once for up to three heads and every row of V for up to two.  What one
 * head adds up, and in which order, does not depend on the heads beside it:
 *   score = sum over dk in eight lanes (fused), lanes added pairwise;
 *   out[j] = sum over cells in order (fused) of probability times value.
 */
#include <math.h>
#include <stddef.h>

#include "kernels.h"
#include "simd.h"

enum {
    CELLS = 4,   /* K rows side by side */
    SPAN = 64,   /* V rows that stay in L1 while their columns are walked */
    VECTORS = 4, /* of eight columns of V in registers */
    K_HEADS = 3,
    V_HEADS = 2
};

CPU_INLINE size_t row_bytes(uint32_t type, size_t n)
{
    if (type == ATSI_TYPE_Q8_0)
        return n / 32 * sizeof(struct atsi_block_q8_0);
    return n * (type == ATSI_TYPE_F16 ? sizeof(uint16_t) : sizeof(float));
}

/* The scale of the block that element i of a row belongs to; only Q8_0 has blocks. */
CPU_INLINE float block_scale(uint32_t type, const uint8_t *row, size_t i)
{
    return type == ATSI_TYPE_Q8_0 ? f16_at(row + row_bytes(type, i)) : 0;
}

/* Elements i .. i+7 of a cache row; d: the scale of their block.  d * q is exact in f32. */
CPU_INLINE __m256 cache8(uint32_t type, const uint8_t *row, size_t i, float d)
{
    const uint8_t *p = row + row_bytes(type, i);
    if (type == ATSI_TYPE_F32)
        return _mm256_loadu_ps((const float *)(const void *)p);
    if (type == ATSI_TYPE_F16)
        return _mm256_cvtph_ps(load128(p));
    p += offsetof(struct atsi_block_q8_0, qs) + i % 32;
    __m128i q = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)));
}

/* The last n < 8 elements of a row, from i on, and zeros; rows of Q8_0 have no such end. */
CPU_INLINE __m256 cache_part(uint32_t type, const uint8_t *row, size_t i, uint32_t n)
{
    float b[8] = {0}; /* n f16 fill less than half of it */
    memcpy(b, row + row_bytes(type, i), row_bytes(type, n));
    return type == ATSI_TYPE_F16 ? _mm256_cvtph_ps(load128(b)) : _mm256_loadu_ps(b);
}

/* Row of cell c of keys or values. */
CPU_INLINE const uint8_t *cell_row(const struct cpu_attn_args *a, const void *first,
                                   const void *second, uint32_t c, size_t bytes)
{
    return c < a->n_first ? (const uint8_t *)first + c * bytes
                          : (const uint8_t *)second + (c - a->n_first) * bytes;
}

/* Scores of four cells (n of which are there) for H heads; score rows are `stride` apart. */
CPU_INLINE void score_cells(const struct cpu_attn_args *a, uint32_t head, int H, uint32_t type,
                            uint32_t cell, float *score, size_t stride)
{
    const size_t bytes = row_bytes(type, a->dk);
    const uint32_t last = a->n_kv - 1;
    const uint8_t *k[CELLS];
    float d[CELLS] = {0};
    __m256 s[K_HEADS][CELLS];
    for (uint32_t c = 0; c < CELLS; c++)
        k[c] = cell_row(a, a->k, a->k2, cell + c < last ? cell + c : last, bytes);
    for (int h = 0; h < H; h++)
        for (int c = 0; c < CELLS; c++)
            s[h][c] = _mm256_setzero_ps();
    const float *q = a->q + (size_t)head * a->dk;
    uint32_t i = 0;
    for (; i + 8 <= a->dk; i += 8) {
        __m256 v[CELLS];
        for (int c = 0; c < CELLS && i % 32 == 0; c++)
            d[c] = block_scale(type, k[c], i);
        for (int c = 0; c < CELLS; c++)
            v[c] = cache8(type, k[c], i, d[c]);
        for (int h = 0; h < H; h++)
            for (int c = 0; c < CELLS; c++)
                s[h][c] =
                    _mm256_fmadd_ps(v[c], _mm256_loadu_ps(q + (size_t)h * a->dk + i), s[h][c]);
    }
    for (int h = 0; h < H && i < a->dk; h++)
        for (int c = 0; c < CELLS; c++)
            s[h][c] = _mm256_fmadd_ps(
                cache_part(type, k[c], i, a->dk - i),
                _mm256_maskload_ps(q + (size_t)h * a->dk + i, lane_mask(a->dk - i)), s[h][c]);
    for (int h = 0; h < H; h++)
        _mm_storeu_ps(score + (size_t)h * stride + cell,
                      _mm_mul_ps(sum_lanes4(s[h]), _mm_set1_ps(a->scale)));
}

CPU_INLINE void score_heads(const struct cpu_attn_args *a, uint32_t head, int H, uint32_t type,
                            float *score, size_t stride)
{
    for (uint32_t cell = 0; cell < a->n_kv; cell += CELLS)
        score_cells(a, head, H, type, cell, score + (size_t)head * stride, stride);
}

CPU_INLINE void scores(const struct cpu_attn_args *a, uint32_t type, size_t stride)
{
    uint32_t h = 0;
    while (h < a->n_q) {
        const uint32_t left = a->n_q - h;
        if (left == 1) {
            score_heads(a, h, 1, type, a->score, stride);
            h += 1;
        } else if (left == 2 || left == 4) {
            score_heads(a, h, 2, type, a->score, stride);
            h += 2;
        } else {
            score_heads(a, h, K_HEADS, type, a->score, stride);
            h += K_HEADS;
        }
    }
}

/* s[n] -> exp(s - max), zeros up to `padded` (a multiple of 8); returns their sum, which a sink
 * joins last. */
static float soft(float *s, uint32_t n, size_t padded, const float *sink)
{
    const __m256 z = _mm256_set1_ps(sink != NULL ? *sink : -INFINITY);
    for (size_t i = n; i < padded; i++)
        s[i] = -INFINITY;
    __m256 max = z, sum = _mm256_setzero_ps();
    for (size_t i = 0; i < padded; i += 8)
        max = _mm256_max_ps(max, _mm256_loadu_ps(s + i));
    max = _mm256_set1_ps(max8_f32(max));
    for (size_t i = 0; i < padded; i += 8) {
        __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(s + i), max));
        _mm256_storeu_ps(s + i, e);
        sum = _mm256_add_ps(sum, e);
    }
    if (sink == NULL)
        return sum8_f32(sum);
    return sum8_f32(sum) + _mm256_cvtss_f32(exp8(_mm256_sub_ps(z, max)));
}

/* out columns j .. j+8N of H heads go on over n cells from row v on; `part` > 0: only that many
 * columns. */
CPU_INLINE void value_tile(const struct cpu_attn_args *a, uint32_t type, const uint8_t *v,
                           uint32_t j, const float *p, size_t stride, uint32_t n, int H, int N,
                           uint32_t part, float *out)
{
    const size_t bytes = row_bytes(type, a->dv);
    const __m256i mask = lane_mask(part);
    __m256 y[V_HEADS][VECTORS];
    out += j;
    for (int h = 0; h < H; h++)
        for (int i = 0; i < N; i++)
            y[h][i] = part != 0 ? _mm256_maskload_ps(out + (size_t)h * a->dv, mask)
                                : _mm256_loadu_ps(out + (size_t)h * a->dv + 8 * i);
    for (uint32_t c = 0; c < n; c++, v += bytes) {
        const float d = block_scale(type, v, j); /* VECTORS make one block */
        __m256 x[VECTORS];
        for (int i = 0; i < N; i++)
            x[i] = part != 0 ? cache_part(type, v, j, part)
                             : cache8(type, v, j + (size_t)8 * (size_t)i, d);
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

/* All columns of H heads over the n cells from `cell` on, neighbours in memory. */
CPU_INLINE void value_span(const struct cpu_attn_args *a, uint32_t type, uint32_t head, int H,
                           uint32_t cell, uint32_t n, size_t stride)
{
    const uint8_t *v = cell_row(a, a->v, a->v2, cell, row_bytes(type, a->dv));
    const float *p = a->score + head * stride + cell;
    float *out = a->out + (size_t)head * a->dv;
    uint32_t j = 0;
    for (; j + 8 * VECTORS <= a->dv; j += 8 * VECTORS)
        value_tile(a, type, v, j, p, stride, n, H, VECTORS, 0, out);
    for (; j + 8 <= a->dv; j += 8)
        value_tile(a, type, v, j, p, stride, n, H, 1, 0, out);
    if (j < a->dv)
        value_tile(a, type, v, j, p, stride, n, H, 1, a->dv - j, out);
}

CPU_INLINE void values(const struct cpu_attn_args *a, uint32_t type, size_t stride)
{
    for (uint32_t cell = 0, n = 0; cell < a->n_kv; cell += n) {
        n = (cell < a->n_first ? a->n_first : a->n_kv) - cell;
        n = n < SPAN ? n : SPAN;
        uint32_t h = 0;
        for (; h + V_HEADS <= a->n_q; h += V_HEADS)
            value_span(a, type, h, V_HEADS, cell, n, stride);
        if (h < a->n_q)
            value_span(a, type, h, 1, cell, n, stride);
    }
}

/* score -> probabilities */
static void normalize(const struct cpu_attn_args *a, size_t stride)
{
    for (uint32_t h = 0; h < a->n_q; h++) {
        float *s = a->score + h * stride;
        const float sum = soft(s, a->n_kv, stride, a->sink != NULL ? a->sink + h : NULL);
        const __m256 inv = _mm256_set1_ps(1.0f / sum);
        for (size_t i = 0; i < stride; i += 8)
            _mm256_storeu_ps(s + i, _mm256_mul_ps(_mm256_loadu_ps(s + i), inv));
    }
}

void attn_avx2(const struct cpu_attn_args *a)
{
    const size_t stride = ((size_t)a->n_kv + 15) / 16 * 16;
    memset(a->out, 0, (size_t)a->n_q * a->dv * sizeof *a->out);
    if (a->n_kv == 0)
        return;
    if (a->type_k == ATSI_TYPE_F16)
        scores(a, ATSI_TYPE_F16, stride);
    else if (a->type_k == ATSI_TYPE_Q8_0)
        scores(a, ATSI_TYPE_Q8_0, stride);
    else
        scores(a, ATSI_TYPE_F32, stride);
    normalize(a, stride);
    if (a->type_v == ATSI_TYPE_F16)
        values(a, ATSI_TYPE_F16, stride);
    else if (a->type_v == ATSI_TYPE_Q8_0)
        values(a, ATSI_TYPE_Q8_0, stride);
    else
        values(a, ATSI_TYPE_F32, stride);
}
