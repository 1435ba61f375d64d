/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding of f32 rows to 8 bits: activations, with a scale per 32 or per 256 elements and the sums
 * of each 16 (struct cpu_act; docs/formats.md, "Activations"), and rows of a Q8_0 cache.
 */
#include "kernels.h"
#include "simd.h"

#include <float.h>
#include <math.h>

/* 16 elements times their scale, rounded half to even.  The limits keep q and its sums consistent
 * whatever the input (a NaN becomes -127). */
CPU_INLINE __m512i round_16(__m512 x, __m512 scale)
{
    __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(x, scale));
    return _mm512_max_epi32(_mm512_min_epi32(v, _mm512_set1_epi32(127)), _mm512_set1_epi32(-127));
}

/* Rounds 64 elements to q and sums each 16 of them. */
CPU_INLINE void round_64(const __m512 x[4], __m512 scale_a, __m512 scale_b, int8_t *q,
                         int16_t *bsum)
{
    __m512i v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = round_16(x[i], i < 2 ? scale_a : scale_b);
        _mm_store_si128((__m128i *)(void *)(q + 16 * i), _mm512_cvtsepi32_epi8(v[i]));
    }
    _mm_storel_epi64((__m128i *)(void *)bsum,
                     _mm_packs_epi32(sum_all_4(v[0], v[1], v[2], v[3]), _mm_setzero_si128()));
}

/* What elements are multiplied with: 127 / amax, or 0 when there is nothing to round: amax is 0, or
 * so small that the quotient is infinite (then d is 0 in f16, too). */
CPU_INLINE float block_scale_32(float amax, float *d)
{
    *d = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph(_mm_set_ss(amax / 127.0f), 0)));
    return 127.0f / amax <= FLT_MAX ? 127.0f / amax : 0.0f;
}

CPU_INLINE float quant_block_32(const float *x, float *d)
{
    __m512 m =
        _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x)), _mm512_abs_ps(_mm512_loadu_ps(x + 16)));
    return block_scale_32(_mm512_reduce_max_ps(m), d);
}

void quant_32_avx512(const float *x, struct cpu_act *act, uint32_t t)
{
    int8_t *q = act->q + t * act->q_stride;
    float *d = act->d + t * act->d_stride;
    int16_t *bsum = act->bsum + t * act->bsum_stride;
    uint32_t i = 0;
    for (; i + 64 <= act->k; i += 64) {
        const __m512 v[4] = {_mm512_loadu_ps(x + i), _mm512_loadu_ps(x + i + 16),
                             _mm512_loadu_ps(x + i + 32), _mm512_loadu_ps(x + i + 48)};
        float a = quant_block_32(x + i, &d[i / 32]);
        float b = quant_block_32(x + i + 32, &d[i / 32 + 1]);
        round_64(v, _mm512_set1_ps(a), _mm512_set1_ps(b), q + i, bsum + i / 16);
    }
    if (i < act->k) { /* one block of 32 left */
        const __m512 v[4] = {_mm512_loadu_ps(x + i), _mm512_loadu_ps(x + i + 16),
                             _mm512_setzero_ps(), _mm512_setzero_ps()};
        _Alignas(64) int8_t last[64];
        _Alignas(16) int16_t sums[4];
        float a = quant_block_32(x + i, &d[i / 32]);
        round_64(v, _mm512_set1_ps(a), _mm512_setzero_ps(), last, sums);
        __builtin_memcpy(q + i, last, 32);
        __builtin_memcpy(bsum + i / 16, sums, 4);
    }
}

void store_q8_0_avx512(const float *x, void *y, size_t n)
{
    uint8_t *b = y;
    for (size_t i = 0; i < n; i += 32, b += sizeof(struct atsi_block_q8_0)) {
        uint8_t *q = b + offsetof(struct atsi_block_q8_0, qs);
        float d;
        const __m512 s = _mm512_set1_ps(quant_block_32(x + i, &d));
        const uint16_t h = _cvtss_sh(d, 0); /* exact: d came from f16 */
        __builtin_memcpy(b, &h, sizeof h);
        for (size_t j = 0; j < 32; j += 16)
            _mm_storeu_si128((__m128i *)(void *)(q + j),
                             _mm512_cvtsepi32_epi8(round_16(_mm512_loadu_ps(x + i + j), s)));
    }
}

/* The element of largest magnitude of 256, with its sign; the first of equals. */
CPU_INLINE float largest_256(const float *x)
{
    __m512 m = _mm512_abs_ps(_mm512_loadu_ps(x)), amax;
    for (int i = 16; i < 256; i += 16)
        m = _mm512_max_ps(m, _mm512_abs_ps(_mm512_loadu_ps(x + i)));
    amax = _mm512_set1_ps(_mm512_reduce_max_ps(m));
    for (int i = 0; i < 256; i += 16) {
        __mmask16 at = _mm512_cmp_ps_mask(_mm512_abs_ps(_mm512_loadu_ps(x + i)), amax, _CMP_EQ_OQ);
        if (at != 0)
            return x[i + __builtin_ctz(at)];
    }
    return 0.0f;
}

void quant_256_avx512(const float *x, struct cpu_act *act, uint32_t t)
{
    int8_t *q = act->q + t * act->q_stride;
    float *d = act->d + t * act->d_stride;
    int16_t *bsum = act->bsum + t * act->bsum_stride;
    for (uint32_t i = 0; i < act->k; i += 256) {
        const float m = largest_256(x + i);
        const float iscale = fabsf(127.0f / m) <= FLT_MAX ? -127.0f / m : 0.0f;
        const __m512 s = _mm512_set1_ps(iscale);
        d[i / 256] = iscale != 0.0f ? 1.0f / iscale : 0.0f;
        for (uint32_t j = i; j < i + 256; j += 64) {
            const __m512 v[4] = {_mm512_loadu_ps(x + j), _mm512_loadu_ps(x + j + 16),
                                 _mm512_loadu_ps(x + j + 32), _mm512_loadu_ps(x + j + 48)};
            round_64(v, s, s, q + j, bsum + j / 16);
        }
    }
}
