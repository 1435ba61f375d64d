/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention (attn_tile.h) with AVX2: how rows of the cache become registers, and the softmax.
 */
#include <math.h>
#include <stddef.h>

#include "kernels.h"
#include "simd.h"

#define ATTN_LANES 8
#define ATTN_ROWS 6

typedef __m256 attn_vec;

CPU_INLINE __m256 vec_zero(void)
{
    return _mm256_setzero_ps();
}

CPU_INLINE __m256 vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

CPU_INLINE void vec_store(float *p, __m256 v)
{
    _mm256_storeu_ps(p, v);
}

CPU_INLINE __m256 vec_all(float x)
{
    return _mm256_set1_ps(x);
}

CPU_INLINE __m256 vec_fma(__m256 a, __m256 b, __m256 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* d * q is exact in f32. */
CPU_INLINE __m256 cache_vec(const uint32_t type, const uint8_t *row, size_t i)
{
    if (type == ATSI_TYPE_F32)
        return _mm256_loadu_ps((const float *)(const void *)row + i);
    if (type == ATSI_TYPE_F16)
        return _mm256_cvtph_ps(load128(row + 2 * i));
    const uint8_t *block = row + i / 32 * sizeof(struct atsi_block_q8_0);
    const uint8_t *q = block + offsetof(struct atsi_block_q8_0, qs) + i % 32;
    const __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)q);
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_set1_epi16((short)load_u16(block))),
                         _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)));
}

/* Eight elements of eight rows at a time. */
CPU_INLINE void open_keys(const uint32_t type, const uint8_t *rows, size_t stride, uint32_t n,
                          size_t ahead, float *to)
{
    const size_t each = type == ATSI_TYPE_F32 ? 4 : type == ATSI_TYPE_F16 ? 2 : 1;
    const uint8_t *half[2] = {rows, rows + 4 * stride};
    for (size_t d = 0; d + 8 <= n; d += 8) {
        __m256i v[8];
        CPU_UNROLL
        for (size_t r = 0; r < 8; r++) {
            if (d * each % 64 < 8 * each)
                _mm_prefetch((const char *)half[r / 4] + r % 4 * stride + d * each + ahead,
                             _MM_HINT_T1);
            v[r] = _mm256_castps_si256(cache_vec(type, half[r / 4] + r % 4 * stride, d));
        }
        transpose8(v);
        CPU_UNROLL
        for (size_t i = 0; i < 8; i++)
            _mm256_storeu_si256((__m256i *)(void *)(to + (d + i) * 16), v[i]);
    }
}

/* ---------------------------------------------------------------- softmax */
/* Lanes of scores from .. to - 1 among i .. i + 7. */
CPU_INLINE __m256 seen_8(uint32_t i, uint32_t from, uint32_t to)
{
    const __m256i at =
        _mm256_add_epi32(_mm256_set1_epi32((int)i), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_castsi256_ps(
        _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)from), at),
                            _mm256_cmpgt_epi32(_mm256_set1_epi32((int)to), at)));
}

static void soften(float *s, uint32_t from, uint32_t to, float *max_out, float *sum_out)
{
    const __m256 none = _mm256_set1_ps(-INFINITY);
    const uint32_t begin = from / 8 * 8;
    __m256 max = none, sum = _mm256_setzero_ps();
    for (uint32_t i = begin; i < to; i += 8)
        max =
            _mm256_max_ps(max, _mm256_blendv_ps(none, _mm256_loadu_ps(s + i), seen_8(i, from, to)));
    *max_out = max8_f32(max);
    max = _mm256_set1_ps(*max_out);
    for (uint32_t i = begin; i < to; i += 8) {
        const __m256 m = seen_8(i, from, to);
        const __m256 e = _mm256_and_ps(
            exp8(_mm256_sub_ps(_mm256_blendv_ps(max, _mm256_loadu_ps(s + i), m), max)), m);
        sum = _mm256_add_ps(sum, e);
        _mm256_storeu_ps(s + i, e);
    }
    *sum_out = sum8_f32(sum);
}

#include "../cpu_common/attn_tile.h"

void attn_avx2(const struct cpu_attn_tile *t)
{
    attn_chunk(t);
}
