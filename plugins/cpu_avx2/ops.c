/* SPDX-License-Identifier: Apache-2.0
 *
 * The small operations between the products: normalisation, rotation, gates, sums, storing f16.
 */
#include "kernels.h"
#include "simd.h"

/* Sum of squares, in double: independent of order to f32 accuracy. */
static double sum_of_squares(const float *x, uint32_t n)
{
    __m256d a = _mm256_setzero_pd(), b = _mm256_setzero_pd();
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256d u = _mm256_cvtps_pd(_mm_loadu_ps(x + i));
        __m256d v = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4));
        a = _mm256_fmadd_pd(u, u, a);
        b = _mm256_fmadd_pd(v, v, b);
    }
    a = _mm256_add_pd(a, b);
    __m128d s = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    double sum = _mm_cvtsd_f64(s) + _mm_cvtsd_f64(_mm_unpackhi_pd(s, s));
    for (; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

void rms_norm_avx2(const float *x, const float *w, float *y, uint32_t n, float eps)
{
    const __m128d mean = _mm_set_sd(sum_of_squares(x, n) / n + (double)eps);
    const float scale = (float)(1.0 / _mm_cvtsd_f64(_mm_sqrt_sd(mean, mean)));
    const __m256 s = _mm256_set1_ps(scale);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(
            y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), s), _mm256_loadu_ps(w + i)));
    for (; i < n; i++)
        y[i] = x[i] * scale * w[i];
}

/* x times a double, rounded once: neither large nor small norms cost digits. */
void l2_norm_avx2(const float *x, float *y, uint32_t n, float eps)
{
    const __m128d sum = _mm_set_sd(sum_of_squares(x, n));
    const double norm = _mm_cvtsd_f64(_mm_sqrt_sd(sum, sum));
    const double scale = 1.0 / (norm > (double)eps ? norm : (double)eps);
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4)
        _mm_storeu_ps(y + i, _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_cvtps_pd(_mm_loadu_ps(x + i)),
                                                           _mm256_set1_pd(scale))));
    for (; i < n; i++)
        y[i] = (float)((double)x[i] * scale);
}

/* Pairs (2i, 2i+1) of one head. */
CPU_INLINE void turn_pairs(const float *x, const float *c, const float *s, float *y, uint32_t half)
{
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    uint32_t i = 0;
    for (; i + 4 <= half; i += 4) {
        __m256 v = _mm256_loadu_ps(x + (size_t)2 * i);
        __m256 cc = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(c + i)), twice);
        __m256 ss = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(s + i)), twice);
        __m256 swapped = _mm256_permute_ps(v, 0xb1);
        _mm256_storeu_ps(y + (size_t)2 * i,
                         _mm256_addsub_ps(_mm256_mul_ps(v, cc), _mm256_mul_ps(swapped, ss)));
    }
    for (; i < half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * c[i] - b * s[i];
        y[2 * i + 1] = b * c[i] + a * s[i];
    }
}

/* Pairs (i, i + half) of one head. */
CPU_INLINE void turn_halves(const float *x, const float *c, const float *s, float *y, uint32_t half)
{
    uint32_t i = 0;
    for (; i + 8 <= half; i += 8) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + half + i);
        __m256 cc = _mm256_loadu_ps(c + i), ss = _mm256_loadu_ps(s + i);
        _mm256_storeu_ps(y + i, _mm256_sub_ps(_mm256_mul_ps(a, cc), _mm256_mul_ps(b, ss)));
        _mm256_storeu_ps(y + half + i, _mm256_add_ps(_mm256_mul_ps(b, cc), _mm256_mul_ps(a, ss)));
    }
    for (; i < half; i++) {
        const float a = x[i], b = x[half + i];
        y[i] = a * c[i] - b * s[i];
        y[half + i] = b * c[i] + a * s[i];
    }
}

void rope_avx2(const float *x, const float *cs, float *y, uint32_t n_head, uint32_t head_dim,
               uint32_t n_rot, uint32_t mode)
{
    const uint32_t half = n_rot / 2;
    for (uint32_t h = 0; h < n_head; h++, x += head_dim, y += head_dim) {
        if (mode == ATSI_ROPE_PAIRS)
            turn_pairs(x, cs, cs + half, y, half);
        else
            turn_halves(x, cs, cs + half, y, half);
        if (y != x)
            memcpy(y + n_rot, x + n_rot, (head_dim - n_rot) * sizeof *y);
    }
}

typedef __m256 gate8_fn(__m256 a, __m256 b, __m256 alpha, __m256 limit);

CPU_INLINE __m256 silu_times(__m256 g, __m256 u, __m256 alpha, __m256 limit)
{
    (void)alpha, (void)limit;
    return _mm256_mul_ps(gated8(g, g), u);
}

CPU_INLINE __m256 clamped(__m256 g, __m256 u, __m256 alpha, __m256 limit)
{
    const __m256 bottom = _mm256_xor_ps(limit, _mm256_set1_ps(-0.0f));
    g = _mm256_min_ps(limit, g);
    u = _mm256_max_ps(bottom, _mm256_min_ps(limit, u));
    return _mm256_mul_ps(gated8(g, _mm256_mul_ps(alpha, g)),
                         _mm256_add_ps(u, _mm256_set1_ps(1.0f)));
}

CPU_INLINE __m256 times_sigmoid(__m256 x, __m256 g, __m256 alpha, __m256 limit)
{
    (void)alpha, (void)limit;
    return gated8(x, g);
}

/* y = op(a, b), the last elements by the same instructions: results do not depend on the cut. */
CPU_INLINE void gate_all(gate8_fn *op, const float *a, const float *b, float *y, size_t n,
                         float alpha, float limit)
{
    const __m256 p = _mm256_set1_ps(alpha), l = _mm256_set1_ps(limit);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, op(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), p, l));
    if (i < n) {
        const __m256i m = lane_mask((uint32_t)(n - i));
        _mm256_maskstore_ps(y + i, m,
                            op(_mm256_maskload_ps(a + i, m), _mm256_maskload_ps(b + i, m), p, l));
    }
}

void swiglu_avx2(const float *gate, const float *up, float *y, size_t n)
{
    gate_all(silu_times, gate, up, y, n, 0, 0);
}

void swiglu_clamped_avx2(const float *gate, const float *up, float *y, size_t n, float alpha,
                         float limit)
{
    gate_all(clamped, gate, up, y, n, alpha, limit);
}

void gate_avx2(const float *x, const float *g, float *y, size_t n)
{
    gate_all(times_sigmoid, x, g, y, n, 0, 0);
}

void add_avx2(const float *a, const float *b, float *y, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
    for (; i < n; i++)
        y[i] = a[i] + b[i];
}

void axpy_avx2(float s, const float *x, float *y, size_t n)
{
    const __m256 ss = _mm256_set1_ps(s);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i),
                                              _mm256_mul_ps(ss, _mm256_loadu_ps(x + i))));
    for (; i < n; i++)
        y[i] += s * x[i];
}

void store_f16_avx2(const float *x, uint16_t *y, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(y + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        y[i] = _cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
}
