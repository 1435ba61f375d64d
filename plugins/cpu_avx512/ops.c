/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations without weight matrices: norms, rotary embedding, gates, sums, the store into an
 * f16 cache, and expert selection.
 */
#include "kernels.h"
#include "simd.h"

#include <math.h>

/* The square sum is kept in double: 2 x 8 lanes, then one fixed order. */
static double square_sum(const float *x, uint32_t n)
{
    __m512d lo = _mm512_setzero_pd(), hi = _mm512_setzero_pd();
    for (uint32_t i = 0; i < n; i += 16) {
        __m512 v = _mm512_maskz_loadu_ps(mask_left(n - i), x + i);
        __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
        __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
        lo = _mm512_fmadd_pd(a, a, lo);
        hi = _mm512_fmadd_pd(b, b, hi);
    }
    return _mm512_reduce_add_pd(_mm512_add_pd(lo, hi));
}

void rms_norm_avx512(const float *x, const float *w, float *y, uint32_t n, float eps)
{
    /* In double: the mean of squares leaves f32 long before its root does. */
    const double mean = n > 0 ? square_sum(x, n) / n : 0.0;
    const __m512 scale = _mm512_set1_ps((float)(1.0 / sqrt(mean + (double)eps)));
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 m = mask_left(n - i);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), scale);
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, w + i)));
    }
}

/* x times a double, rounded once: neither large nor small norms cost digits. */
void l2_norm_avx512(const float *x, float *y, uint32_t n, float eps)
{
    const double norm = sqrt(square_sum(x, n));
    const __m512d scale = _mm512_set1_pd(1.0 / (norm > (double)eps ? norm : (double)eps));
    for (uint32_t i = 0; i < n; i += 8) {
        const __mmask8 m = (__mmask8)mask_left(n - i);
        __m512d v = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(m, x + i));
        _mm256_mask_storeu_ps(y + i, m, _mm512_cvtpd_ps(_mm512_mul_pd(v, scale)));
    }
}

/* Pairs (i, i + half): 16 pairs at a time. */
static void rope_halves(const float *x, const float *cs, float *y, uint32_t half)
{
    for (uint32_t i = 0; i < half; i += 16) {
        const __mmask16 m = mask_left(half - i);
        __m512 a = _mm512_maskz_loadu_ps(m, x + i), b = _mm512_maskz_loadu_ps(m, x + half + i);
        __m512 c = _mm512_maskz_loadu_ps(m, cs + i), s = _mm512_maskz_loadu_ps(m, cs + half + i);
        _mm512_mask_storeu_ps(y + i, m, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
        _mm512_mask_storeu_ps(y + half + i, m, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
    }
}

/* Pairs (2i, 2i + 1): 8 pairs at a time. */
static void rope_pairs(const float *x, const float *cs, float *y, uint32_t half)
{
    const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    for (uint32_t i = 0; i < half; i += 8) {
        const uint32_t left = half - i < 8 ? half - i : 8;
        const __mmask16 m = mask_16(left), m2 = mask_16(2 * (size_t)left);
        __m512 v = _mm512_maskz_loadu_ps(m2, x + 2 * (size_t)i);
        __m512 c = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(m, cs + i));
        __m512 s = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(m, cs + half + i));
        s = _mm512_mul_ps(_mm512_permute_ps(v, 0xb1), s); /* the pair's other element */
        _mm512_mask_storeu_ps(y + 2 * (size_t)i, m2, _mm512_fmaddsub_ps(v, c, s));
    }
}

void rope_avx512(const float *x, const float *cs, float *y, uint32_t n_head, uint32_t head_dim,
                 uint32_t n_rot, uint32_t mode)
{
    for (uint32_t h = 0; h < n_head; h++, x += head_dim, y += head_dim) {
        if (mode == ATSI_ROPE_PAIRS)
            rope_pairs(x, cs, y, n_rot / 2);
        else
            rope_halves(x, cs, y, n_rot / 2);
        if (y != x && n_rot < head_dim)
            __builtin_memcpy(y + n_rot, x + n_rot, (head_dim - n_rot) * sizeof *y);
    }
}

/* ---------------------------------------------------------------- gates */

void swiglu_avx512(const float *gate, const float *up, float *y, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 m = mask_left(n - i);
        __m512 g = _mm512_maskz_loadu_ps(m, gate + i), u = _mm512_maskz_loadu_ps(m, up + i);
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(gated(g, g), u));
    }
}

void swiglu_clamped_avx512(const float *gate, const float *up, float *y, size_t n, float alpha,
                           float limit)
{
    const __m512 top = _mm512_set1_ps(limit), bottom = _mm512_set1_ps(-limit);
    const __m512 a = _mm512_set1_ps(alpha), one = _mm512_set1_ps(1.0f);
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 m = mask_left(n - i);
        __m512 g = _mm512_min_ps(top, _mm512_maskz_loadu_ps(m, gate + i));
        __m512 u = _mm512_min_ps(top, _mm512_maskz_loadu_ps(m, up + i));
        u = _mm512_add_ps(_mm512_max_ps(bottom, u), one);
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(gated(g, _mm512_mul_ps(a, g)), u));
    }
}

void gate_avx512(const float *x, const float *g, float *y, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 m = mask_left(n - i);
        __m512 v = gated(_mm512_maskz_loadu_ps(m, x + i), _mm512_maskz_loadu_ps(m, g + i));
        _mm512_mask_storeu_ps(y + i, m, v);
    }
}

/* ---------------------------------------------------------------- sums and the store */

void add_avx512(const float *a, const float *b, float *y, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 m = mask_left(n - i);
        __m512 v = _mm512_maskz_loadu_ps(m, a + i);
        _mm512_mask_storeu_ps(y + i, m, _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, b + i)));
    }
}

void axpy_avx512(float s, const float *x, float *y, size_t n)
{
    const __m512 f = _mm512_set1_ps(s);
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 m = mask_left(n - i);
        __m512 v = _mm512_maskz_loadu_ps(m, y + i);
        v = _mm512_fmadd_ps(f, _mm512_maskz_loadu_ps(m, x + i), v);
        _mm512_mask_storeu_ps(y + i, m, v);
    }
}

void store_f16_avx512(const float *x, uint16_t *y, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 m = mask_left(n - i);
        __m256i h = _mm512_cvtps_ph(_mm512_maskz_loadu_ps(m, x + i),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_mask_storeu_epi16(y + i, m, h);
    }
}

/* ---------------------------------------------------------------- expert selection */
struct pick {
    float value;
    int32_t id;
};

/* Logits i .. i + 15; lanes past n and NaNs rank with -inf. */
CPU_INLINE __m512 logits_16(const float *x, uint32_t n, uint32_t i)
{
    const __m512 low = _mm512_set1_ps(-__builtin_inff());
    __m512 v = _mm512_mask_loadu_ps(low, mask_left(n - i), x + i);
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), low);
}

/* The best one that ranks behind `last` (larger first, lower id on a tie): no list of those already
 * taken is needed.  last.id < 0: the best of all. */
static struct pick next_best(const float *x, uint32_t n, struct pick last)
{
    const __m512 lv = _mm512_set1_ps(last.value);
    const __m512i li = _mm512_set1_epi32(last.id), none = _mm512_set1_epi32(INT32_MAX);
    const __m512i step = _mm512_set1_epi32(16);
    __m512 best = _mm512_set1_ps(-__builtin_inff());
    __m512i best_id = none;
    __m512i id = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    struct pick p;
    for (uint32_t i = 0; i < n; i += 16) {
        __m512 v = logits_16(x, n, i);
        __mmask16 behind =
            _mm512_mask_cmp_ps_mask(_mm512_cmpgt_epi32_mask(id, li), v, lv, _CMP_EQ_OQ);
        __mmask16 better = _mm512_cmp_ps_mask(v, best, _CMP_GT_OQ);
        behind |= _mm512_cmp_ps_mask(v, lv, _CMP_LT_OQ);
        if (last.id < 0)
            behind = 0xffff;
        better |= _mm512_cmpeq_epi32_mask(best_id, none);
        better &= behind & mask_left(n - i);
        best = _mm512_mask_mov_ps(best, better, v);
        best_id = _mm512_mask_mov_epi32(best_id, better, id);
        id = _mm512_add_epi32(id, step);
    }
    p.value = _mm512_reduce_max_ps(best);
    p.id = _mm512_mask_reduce_min_epi32(
        _mm512_cmp_ps_mask(best, _mm512_set1_ps(p.value), _CMP_EQ_OQ), best_id);
    return p;
}

/* sum over i < n of exp(x - max) */
static float exp_sum(const float *x, uint32_t n, float max)
{
    __m512 sum = _mm512_setzero_ps();
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 m = mask_left(n - i);
        __m512 e = exp_16(_mm512_sub_ps(_mm512_maskz_loadu_ps(m, x + i), _mm512_set1_ps(max)));
        sum = _mm512_mask_add_ps(sum, m, sum, e);
    }
    return sum_16f(sum);
}

void topk_avx512(const float *logits, uint32_t n, uint32_t k, uint32_t gating, int32_t *ids,
                 float *w)
{
    struct pick p = {0.0f, -1};
    float max = 0.0f, all = 1.0f, taken = 0.0f;
    for (uint32_t j = 0; j < k; j++) {
        p = next_best(logits, n, p);
        ids[j] = p.id;
        if (j == 0)
            max = p.value;
        w[j] = gating == ATSI_GATING_NONE ? logits[p.id]
                                          : _mm512_cvtss_f32(exp_16(_mm512_set1_ps(p.value - max)));
    }
    if (gating == ATSI_GATING_NONE)
        return;
    if (gating == ATSI_GATING_SOFTMAX)
        all = exp_sum(logits, n, max);
    for (uint32_t j = 0; j < k; j++) {
        w[j] /= all;
        taken += w[j];
    }
    taken = taken > 0x1p-14f ? taken : 0x1p-14f; /* of SELECTED it is 1 or more */
    for (uint32_t j = 0; j < k; j++)
        w[j] /= taken;
}
