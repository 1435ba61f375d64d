/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention (attn_tile.h) with AVX-512: how rows of the cache become registers, and the softmax.
 */
#include "kernels.h"
#include "simd.h"

#define ATTN_LANES 16
#define ATTN_ROWS 12
#define ATTN_SCORE_ROWS 4

typedef __m512 attn_vec;

CPU_INLINE __m512 vec_zero(void)
{
    return _mm512_setzero_ps();
}

CPU_INLINE __m512 vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

CPU_INLINE void vec_store(float *p, __m512 v)
{
    _mm512_storeu_ps(p, v);
}

CPU_INLINE __m512 vec_all(float x)
{
    return _mm512_set1_ps(x);
}

CPU_INLINE __m512 vec_fma(__m512 a, __m512 b, __m512 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

CPU_INLINE void vec_sums(const __m512 a[4], float *s)
{
    _mm_storeu_ps(s, sum_all_4f(a[0], a[1], a[2], a[3]));
}

/* d * q is exact in f32. */
CPU_INLINE __m512 cache_vec(const uint32_t type, const uint8_t *row, size_t i)
{
    if (type == ATSI_TYPE_F32)
        return _mm512_loadu_ps(row + 4 * i);
    if (type == ATSI_TYPE_F16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(row + 2 * i)));
    const uint8_t *block = row + i / 32 * sizeof(struct atsi_block_q8_0);
    const uint8_t *q = block + offsetof(struct atsi_block_q8_0, qs) + i % 32;
    int16_t d;
    __builtin_memcpy(&d, block, sizeof d);
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_set1_epi16(d)),
                         _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
                             _mm_loadu_si128((const __m128i *)(const void *)q))));
}

/* ---------------------------------------------------------------- softmax */
/* Scores from .. to - 1 among i .. i + 15. */
CPU_INLINE __mmask16 seen_16(uint32_t i, uint32_t from, uint32_t to)
{
    return mask_left(to - i) & (__mmask16)(from > i ? 0xffffu << (from - i) : 0xffffu);
}

static void soften(float *s, uint32_t from, uint32_t to, float *max_out, float *sum_out)
{
    const uint32_t begin = from / 16 * 16;
    __m512 max = _mm512_set1_ps(-__builtin_inff()), sum = _mm512_setzero_ps();
    for (uint32_t i = begin; i < to; i += 16) {
        const __mmask16 m = seen_16(i, from, to);
        max = _mm512_mask_max_ps(max, m, max, _mm512_maskz_loadu_ps(m, s + i));
    }
    *max_out = _mm512_reduce_max_ps(max);
    max = _mm512_set1_ps(*max_out);
    for (uint32_t i = begin; i < to; i += 16) {
        const __mmask16 m = seen_16(i, from, to);
        const __m512 e = exp_16(_mm512_sub_ps(_mm512_maskz_loadu_ps(m, s + i), max));
        sum = _mm512_mask_add_ps(sum, m, sum, e);
        _mm512_mask_storeu_ps(s + i, m, e);
    }
    *sum_out = sum_16f(sum);
}

#include "../cpu_common/attn_tile.h"

void attn_avx512(const struct cpu_attn_tile *t)
{
    attn_chunk(t);
}
