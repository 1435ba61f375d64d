/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of one token: the query heads that share a KV head, over that head's cache.
 *
 * Scores: four cache rows times up to four heads at a time, f32 accumulation, sixteen lanes per
 * product summed in the order of sum_all_4f.  Softmax with exp_16 and sums in sixteen lanes.
 * Values: every element of the result is one chain of fused multiply-adds over the cells in order,
 * divided by the sum of exponentials at the end.
 */
#include "kernels.h"
#include "simd.h"

#define MAX_HEADS 4 /* heads that share one pass over the cache */

/* Elements i .. i + 15 of a cache row, those outside `m` as zero. */
CPU_INLINE __m512 cache_16(const int f16, const uint8_t *row, size_t i, const int full, __mmask16 m)
{
    if (!f16) {
        const float *p = (const float *)(const void *)row + i;
        return full ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(m, p);
    }
    const uint8_t *p = row + 2 * i;
    return _mm512_cvtph_ps(full ? _mm256_loadu_si256((const __m256i *)(const void *)p)
                                : _mm256_maskz_loadu_epi16(m, p));
}

CPU_INLINE size_t cache_bytes(const int f16)
{
    return f16 ? 2 : 4;
}

/* ---------------------------------------------------------------- scores */

CPU_INLINE void score_columns(const int f16, const uint8_t *const k[4], const float *q, size_t dk,
                              size_t i, const int full, __mmask16 m, const int heads,
                              __m512 acc[MAX_HEADS][4])
{
    __m512 v[4];
    for (int r = 0; r < 4; r++)
        v[r] = cache_16(f16, k[r], i, full, m);
    for (int h = 0; h < heads; h++) {
        const float *p = q + (size_t)h * dk + i;
        __m512 a = full ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(m, p);
        for (int r = 0; r < 4; r++)
            acc[h][r] = _mm512_fmadd_ps(v[r], a, acc[h][r]);
    }
}

/* score[h][j .. j + 3] = scale * q[h] . k[j .. j + 3]; cells from n_kv on repeat the last one and
 * land in the padding of the scratch. */
CPU_INLINE void scores(const int f16, const int heads, const struct cpu_attn_args *a,
                       const float *q, float *score, size_t score_stride)
{
    const size_t dk = a->dk, row = dk * cache_bytes(f16);
    const uint8_t *k = a->k;
    const __m128 scale = _mm_set1_ps(a->scale);
    for (uint32_t j = 0; j < a->n_kv; j += 4) {
        const uint8_t *p[4];
        __m512 acc[MAX_HEADS][4];
        size_t i = 0;
        for (uint32_t r = 0; r < 4; r++)
            p[r] = k + (j + r < a->n_kv ? j + r : a->n_kv - 1) * row;
        for (int h = 0; h < heads; h++)
            for (int r = 0; r < 4; r++)
                acc[h][r] = _mm512_setzero_ps();
        for (; i + 16 <= dk; i += 16)
            score_columns(f16, p, q, dk, i, 1, 0, heads, acc);
        if (i < dk)
            score_columns(f16, p, q, dk, i, 0, mask_16(dk - i), heads, acc);
        for (int h = 0; h < heads; h++)
            _mm_storeu_ps(
                score + (size_t)h * score_stride + j,
                _mm_mul_ps(sum_all_4f(acc[h][0], acc[h][1], acc[h][2], acc[h][3]), scale));
    }
}

/* ---------------------------------------------------------------- softmax */

/* score[n] -> exp(score - max); returns 1 / their sum. */
static float softmax(float *score, uint32_t n)
{
    __m512 max = _mm512_set1_ps(-__builtin_inff()), sum = _mm512_setzero_ps();
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
    return 1.0f / sum_16f(sum);
}

/* ---------------------------------------------------------------- values */

/* out[h][i .. i + 16 nz) = inv[h] * sum over cells of p[h] * v: `full` unless the last register is
 * cut by m. */
CPU_INLINE void value_columns(const int f16, const int heads, const int nz, const int full,
                              __mmask16 m, const struct cpu_attn_args *a, size_t i,
                              const float *score, size_t score_stride, const float *inv, float *out)
{
    const size_t dv = a->dv, row = dv * cache_bytes(f16);
    const uint8_t *v = a->v;
    __m512 acc[MAX_HEADS][8];
    for (int h = 0; h < heads; h++)
        for (int z = 0; z < nz; z++)
            acc[h][z] = _mm512_setzero_ps();
    for (uint32_t j = 0; j < a->n_kv; j++, v += row) {
        __m512 c[8];
        for (int z = 0; z < nz; z++)
            c[z] = cache_16(f16, v, i + 16 * (size_t)z, full, m);
        for (int h = 0; h < heads; h++) {
            __m512 p = _mm512_set1_ps(score[(size_t)h * score_stride + j]);
            for (int z = 0; z < nz; z++)
                acc[h][z] = _mm512_fmadd_ps(p, c[z], acc[h][z]);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int z = 0; z < nz; z++)
            _mm512_mask_storeu_ps(out + (size_t)h * dv + i + 16 * (size_t)z,
                                  full ? (__mmask16)0xffff : m,
                                  _mm512_mul_ps(acc[h][z], _mm512_set1_ps(inv[h])));
}

/* Wide groups of columns where registers allow: heads * nz <= 16 accumulators. */
CPU_INLINE void values(const int f16, const int heads, const struct cpu_attn_args *a,
                       const float *score, size_t ss, const float *inv, float *out)
{
    const size_t dv = a->dv;
    size_t i = 0;
    if (heads <= 2)
        for (; i + 128 <= dv; i += 128)
            value_columns(f16, heads, 8, 1, 0, a, i, score, ss, inv, out);
    for (; i + 64 <= dv; i += 64)
        value_columns(f16, heads, 4, 1, 0, a, i, score, ss, inv, out);
    for (; i < dv; i += 16)
        value_columns(f16, heads, 1, 0, mask_left(dv - i), a, i, score, ss, inv, out);
}

/* ---------------------------------------------------------------- the slot */

CPU_INLINE void attend(const int f16_k, const int f16_v, const int heads,
                       const struct cpu_attn_args *a, uint32_t head)
{
    const size_t ss = (a->n_kv + (size_t)15) / 16 * 16;
    float *score = a->score + head * ss;
    float inv[MAX_HEADS];
    scores(f16_k, heads, a, a->q + (size_t)head * a->dk, score, ss);
    for (int h = 0; h < heads; h++)
        inv[h] = softmax(score + (size_t)h * ss, a->n_kv);
    values(f16_v, heads, a, score, ss, inv, a->out + (size_t)head * a->dv);
}

CPU_INLINE void attend_all(const int f16_k, const int f16_v, const struct cpu_attn_args *a)
{
    uint32_t h = 0;
    for (; a->n_q - h >= 4; h += 4)
        attend(f16_k, f16_v, 4, a, h);
    if (a->n_q - h >= 2) {
        attend(f16_k, f16_v, 2, a, h);
        h += 2;
    }
    if (a->n_q - h >= 1)
        attend(f16_k, f16_v, 1, a, h);
}

void attn_avx512(const struct cpu_attn_args *a)
{
    if (a->type_k == ATSI_TYPE_F16 && a->type_v == ATSI_TYPE_F16)
        attend_all(1, 1, a);
    else if (a->type_k == ATSI_TYPE_F16)
        attend_all(1, 0, a);
    else if (a->type_v == ATSI_TYPE_F16)
        attend_all(0, 1, a);
    else
        attend_all(0, 0, a);
}
