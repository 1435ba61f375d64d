/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding of activation rows (contract: struct cpu_act) and of rows of a Q8_0 cache to 8 bits, to
 * the bit as the reference.
 */
#include "kernels.h"
#include "simd.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

/* 127 / amax, or 0 when there is nothing to round: amax is 0, or so small that the quotient
 * overflows. */
CPU_INLINE float inverse_of(float amax)
{
    float inverse = 127.0f / amax;
    return inverse <= FLT_MAX ? inverse : 0.0f;
}

CPU_INLINE __m256 abs8(__m256 v)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

/* 32 elements times scale, rounded half to even, in order. */
CPU_INLINE __m256i rounded32(const __m256 v[4], __m256 scale)
{
    __m256i i[4];
    for (int j = 0; j < 4; j++)
        i[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], scale));
    /* packing works within halves: dwords 0..7 come out as 0 2 4 6 | 1 3 5 7 of each four bytes */
    __m256i b = _mm256_packs_epi16(_mm256_packs_epi32(i[0], i[1]), _mm256_packs_epi32(i[2], i[3]));
    return _mm256_permutevar8x32_epi32(b, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Rounds 32 elements to q; sums of both halves to bsum. */
CPU_INLINE void round32(const __m256 v[4], __m256 scale, int8_t *q, int16_t *bsum)
{
    const __m256i b = rounded32(v, scale);
    store256(q, b);
    __m256i s = _mm256_maddubs_epi16(_mm256_set1_epi8(1), b);
    s = _mm256_madd_epi16(s, _mm256_set1_epi16(1));
    s = _mm256_hadd_epi32(s, s);
    s = _mm256_hadd_epi32(s, s);
    bsum[0] = (int16_t)_mm256_extract_epi32(s, 0);
    bsum[1] = (int16_t)_mm256_extract_epi32(s, 4);
}

/* Opens 32 elements; returns the largest magnitude. */
CPU_INLINE float load32(const float *x, __m256 v[4])
{
    __m256 m = _mm256_setzero_ps();
    for (int j = 0; j < 4; j++) {
        v[j] = _mm256_loadu_ps(x + 8 * j);
        m = _mm256_max_ps(m, abs8(v[j]));
    }
    return max8_f32(m);
}

void quant_32_avx2(const float *x, struct cpu_act *act, uint32_t t)
{
    int8_t *q = act->q + t * act->q_stride;
    float *d = act->d + t * act->d_stride;
    int16_t *bsum = act->bsum + t * act->bsum_stride;
    for (uint32_t b = 0; b < act->k / 32; b++, x += 32) {
        __m256 v[4];
        const float amax = load32(x, v);
        d[b] = _cvtsh_ss(_cvtss_sh(amax / 127.0f, _MM_FROUND_TO_NEAREST_INT));
        round32(v, _mm256_set1_ps(inverse_of(amax)), q + (size_t)32 * b, bsum + (size_t)2 * b);
    }
}

void store_q8_0_avx2(const float *x, void *y, size_t n)
{
    uint8_t *b = y;
    for (size_t i = 0; i < n; i += 32, b += sizeof(struct atsi_block_q8_0)) {
        __m256 v[4];
        const float amax = load32(x + i, v);
        const uint16_t d = _cvtss_sh(amax / 127.0f, _MM_FROUND_TO_NEAREST_INT);
        memcpy(b, &d, sizeof d);
        store256(b + offsetof(struct atsi_block_q8_0, qs),
                 rounded32(v, _mm256_set1_ps(inverse_of(amax))));
    }
}

/* The first of 256 elements whose magnitude is amax, with its sign. */
CPU_INLINE float first_of_magnitude(const float *x, float amax)
{
    for (int i = 0; i < 256; i += 8) {
        __m256 eq = _mm256_cmp_ps(abs8(_mm256_loadu_ps(x + i)), _mm256_set1_ps(amax), _CMP_EQ_OQ);
        int mask = _mm256_movemask_ps(eq);
        if (mask != 0)
            return x[i + __builtin_ctz((unsigned)mask)];
    }
    return amax;
}

void quant_256_avx2(const float *x, struct cpu_act *act, uint32_t t)
{
    int8_t *q = act->q + t * act->q_stride;
    float *d = act->d + t * act->d_stride;
    int16_t *bsum = act->bsum + t * act->bsum_stride;
    for (uint32_t b = 0; b < act->k / 256; b++, x += 256) {
        __m256 m = _mm256_setzero_ps();
        for (int i = 0; i < 256; i += 8)
            m = _mm256_max_ps(m, abs8(_mm256_loadu_ps(x + i)));
        const float amax = max8_f32(m);
        const float scale = copysignf(inverse_of(amax), -first_of_magnitude(x, amax));
        d[b] = scale != 0 ? 1.0f / scale : 0;
        for (uint32_t j = 0; j < 8; j++) {
            __m256 v[4]; /* no result exceeds 127: |scale * x| <= 127 (1 + 2^-23) */
            for (int i = 0; i < 4; i++)
                v[i] = _mm256_loadu_ps(x + 32 * j + 8 * i);
            round32(v, _mm256_set1_ps(scale), q + (size_t)256 * b + 32 * j,
                    bsum + (size_t)16 * b + 2 * j);
        }
    }
}
