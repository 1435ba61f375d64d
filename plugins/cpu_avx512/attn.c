/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of one token: the query heads that share a KV head, over that head's cache.
 *
 * Scores: four cache rows times up to four heads at a time, f32 accumulation, sixteen lanes per
 * product summed in the order of sum_all_4f.  Softmax with exp_16 and sums in sixteen lanes.
 * Values: every element of the result is one chain of fused multiply-adds over the cells in order,
 * divided by the sum of exponentials at the end.  Where the cells lie does not matter: in one run,
 * or in two when a ring begins anew.
 */
#include "kernels.h"
#include "simd.h"

#define MAX_HEADS 4 /* heads that share one pass over the cache */

CPU_INLINE size_t row_bytes(const uint32_t type, size_t n)
{
    if (type == ATSI_TYPE_Q8_0)
        return n / 32 * sizeof(struct atsi_block_q8_0);
    return n * (type == ATSI_TYPE_F16 ? sizeof(uint16_t) : sizeof(float));
}

/* The scale of the block that element i of a row belongs to; only Q8_0 has blocks. */
CPU_INLINE __m512 block_scale(const uint32_t type, const uint8_t *row, size_t i)
{
    int16_t d;
    if (type != ATSI_TYPE_Q8_0)
        return _mm512_setzero_ps();
    __builtin_memcpy(&d, row + row_bytes(type, i), sizeof d);
    return _mm512_cvtph_ps(_mm256_set1_epi16(d));
}

/* Elements i .. i + 15 of a cache row, those outside `m` as zero; d: of their block.  Rows of Q8_0
 * are whole blocks, and d * q is exact in f32. */
CPU_INLINE __m512 cache_16(const uint32_t type, const uint8_t *row, size_t i, __m512 d,
                           const int full, __mmask16 m)
{
    if (type == ATSI_TYPE_Q8_0) {
        const uint8_t *q = row + row_bytes(type, i) + offsetof(struct atsi_block_q8_0, qs) + i % 32;
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)q);
        return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b)));
    }
    if (type == ATSI_TYPE_F32)
        return load_lanes((const float *)(const void *)row + i, full, m);
    const uint8_t *p = row + 2 * i;
    return _mm512_cvtph_ps(full ? _mm256_loadu_si256((const __m256i *)(const void *)p)
                                : _mm256_maskz_loadu_epi16(m, p));
}

/* ---------------------------------------------------------------- scores */

CPU_INLINE void score_columns(const uint32_t type, const uint8_t *const k[4], const __m512 d[4],
                              const float *q, size_t dk, size_t i, const int full, __mmask16 m,
                              const int heads, __m512 acc[MAX_HEADS][4])
{
    __m512 v[4];
    for (int r = 0; r < 4; r++)
        v[r] = cache_16(type, k[r], i, d[r], full, m);
    for (int h = 0; h < heads; h++) {
        __m512 a = load_lanes(q + (size_t)h * dk + i, full, m);
        for (int r = 0; r < 4; r++)
            acc[h][r] = _mm512_fmadd_ps(v[r], a, acc[h][r]);
    }
}

/* Keys of cells j .. j + 3; those from n_kv on repeat the last one. */
CPU_INLINE void key_rows(const struct cpu_attn_args *a, size_t row, uint32_t j, const uint8_t *k[4])
{
    for (uint32_t r = 0; r < 4; r++) {
        const uint32_t c = j + r < a->n_kv ? j + r : a->n_kv - 1;
        k[r] = c < a->n_first ? (const uint8_t *)a->k + c * row
                              : (const uint8_t *)a->k2 + (c - a->n_first) * row;
    }
}

/* score[h][j .. j + 3] = scale * q[h] . k[j .. j + 3]; what is no cell lands in the padding of the
 * scratch. */
CPU_INLINE void scores(const uint32_t type, const int heads, const struct cpu_attn_args *a,
                       const float *q, float *score, size_t score_stride)
{
    const size_t dk = a->dk, row = row_bytes(type, dk);
    const __m128 scale = _mm_set1_ps(a->scale);
    for (uint32_t j = 0; j < a->n_kv; j += 4) {
        const uint8_t *k[4];
        __m512 acc[MAX_HEADS][4], d[4];
        size_t i = 0;
        key_rows(a, row, j, k);
        for (int r = 0; r < 4; r++)
            d[r] = _mm512_setzero_ps();
        for (int h = 0; h < heads; h++)
            for (int r = 0; r < 4; r++)
                acc[h][r] = _mm512_setzero_ps();
        for (; i + 16 <= dk; i += 16) {
            for (int r = 0; r < 4 && i % 32 == 0; r++)
                d[r] = block_scale(type, k[r], i);
            score_columns(type, k, d, q, dk, i, 1, 0, heads, acc);
        }
        if (i < dk)
            score_columns(type, k, d, q, dk, i, 0, mask_16(dk - i), heads, acc);
        for (int h = 0; h < heads; h++)
            _mm_storeu_ps(
                score + (size_t)h * score_stride + j,
                _mm_mul_ps(sum_all_4f(acc[h][0], acc[h][1], acc[h][2], acc[h][3]), scale));
    }
}

/* ---------------------------------------------------------------- softmax */

/* score[n] -> exp(score - max); returns 1 / their sum, which a sink joins last. */
static float softmax(float *score, uint32_t n, const float *sink)
{
    const __m512 s = _mm512_set1_ps(sink != NULL ? *sink : -__builtin_inff());
    __m512 max = s, sum = _mm512_setzero_ps();
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 m = mask_left(n - i);
        max = _mm512_mask_max_ps(max, m, max, _mm512_maskz_loadu_ps(m, score + i));
    }
    max = _mm512_set1_ps(_mm512_reduce_max_ps(max));
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 m = mask_left(n - i);
        __m512 e = exp_16(_mm512_sub_ps(_mm512_maskz_loadu_ps(m, score + i), max));
        sum = _mm512_mask_add_ps(sum, m, sum, e);
        _mm512_mask_storeu_ps(score + i, m, e);
    }
    if (sink == NULL)
        return 1.0f / sum_16f(sum);
    return 1.0f / (sum_16f(sum) + _mm512_cvtss_f32(exp_16(_mm512_sub_ps(s, max))));
}

/* ---------------------------------------------------------------- values */

/* out[h][i .. i + 16 nz) = inv[h] * sum over cells of p[h] * v: `full` unless the last register is
 * cut by m. */
CPU_INLINE void value_columns(const uint32_t type, const int heads, const int nz, const int full,
                              __mmask16 m, const struct cpu_attn_args *a, size_t i,
                              const float *score, size_t score_stride, const float *inv, float *out)
{
    const size_t dv = a->dv, row = row_bytes(type, dv);
    const uint8_t *v = a->v;
    __m512 acc[MAX_HEADS][8];
    for (int h = 0; h < heads; h++)
        for (int z = 0; z < nz; z++)
            acc[h][z] = _mm512_setzero_ps();
    for (uint32_t j = 0; j < a->n_kv; j++, v += row) {
        __m512 c[8], d = _mm512_setzero_ps();
        if (j == a->n_first)
            v = a->v2;
        for (int z = 0; z < nz; z++) {
            if (z % 2 == 0) /* i is a multiple of 32 when nz > 1 */
                d = block_scale(type, v, i + 16 * (size_t)z);
            c[z] = cache_16(type, v, i + 16 * (size_t)z, d, full, m);
        }
        for (int h = 0; h < heads; h++) {
            __m512 p = _mm512_set1_ps(score[(size_t)h * score_stride + j]);
            for (int z = 0; z < nz; z++)
                acc[h][z] = _mm512_fmadd_ps(p, c[z], acc[h][z]);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int z = 0; z < nz; z++)
            store_lanes(out + (size_t)h * dv + i + 16 * (size_t)z,
                        _mm512_mul_ps(acc[h][z], _mm512_set1_ps(inv[h])), full, m);
}

/* Wide groups of columns where registers allow: heads * nz <= 16 accumulators. */
CPU_INLINE void values(const uint32_t type, const int heads, const struct cpu_attn_args *a,
                       const float *score, size_t ss, const float *inv, float *out)
{
    const size_t dv = a->dv;
    size_t i = 0;
    if (heads <= 2)
        for (; i + 128 <= dv; i += 128)
            value_columns(type, heads, 8, 1, 0, a, i, score, ss, inv, out);
    for (; i + 64 <= dv; i += 64)
        value_columns(type, heads, 4, 1, 0, a, i, score, ss, inv, out);
    for (; i < dv; i += 16)
        value_columns(type, heads, 1, 0, mask_left(dv - i), a, i, score, ss, inv, out);
}

/* ---------------------------------------------------------------- the slot */

CPU_INLINE void attend(const int heads, const struct cpu_attn_args *a, uint32_t head)
{
    const size_t ss = (a->n_kv + (size_t)15) / 16 * 16;
    const float *q = a->q + (size_t)head * a->dk;
    float *score = a->score + head * ss, *out = a->out + (size_t)head * a->dv, inv[MAX_HEADS];
    if (a->type_k == ATSI_TYPE_F16)
        scores(ATSI_TYPE_F16, heads, a, q, score, ss);
    else if (a->type_k == ATSI_TYPE_Q8_0)
        scores(ATSI_TYPE_Q8_0, heads, a, q, score, ss);
    else
        scores(ATSI_TYPE_F32, heads, a, q, score, ss);
    for (int h = 0; h < heads; h++)
        inv[h] =
            softmax(score + (size_t)h * ss, a->n_kv, a->sink != NULL ? a->sink + head + h : NULL);
    if (a->type_v == ATSI_TYPE_F16)
        values(ATSI_TYPE_F16, heads, a, score, ss, inv, out);
    else if (a->type_v == ATSI_TYPE_Q8_0)
        values(ATSI_TYPE_Q8_0, heads, a, score, ss, inv, out);
    else
        values(ATSI_TYPE_F32, heads, a, score, ss, inv, out);
}

void attn_avx512(const struct cpu_attn_args *a)
{
    uint32_t h = 0;
    for (; a->n_q - h >= 4; h += 4)
        attend(4, a, h);
    if (a->n_q - h >= 2) {
        attend(2, a, h);
        h += 2;
    }
    if (a->n_q - h >= 1)
        attend(1, a, h);
}
