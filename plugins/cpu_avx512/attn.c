/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention (attn_tile.h) with AVX-512: how rows of the cache become registers, and the softmax.
 */
#include "kernels.h"
#include "simd.h"

#define ATTN_LANES 16
#define ATTN_ROWS 12

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

/* ---------------------------------------------------------------- keys */
/* Bytes `at` .. at + 15 of sixteen rows: row 4 L + i in lane L of v[i]. */
CPU_INLINE void load_16_rows(const uint8_t *const row[16], size_t at, __m512i v[4])
{
    CPU_UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = load_4x16(row[i] + at, row[i + 4] + at, row[i + 8] + at, row[i + 12] + at);
}

/* The next tile's rows come 32 later. */
CPU_INLINE void prefetch_rows(const uint8_t *const row[16], size_t at, size_t row_bytes)
{
    CPU_UNROLL
    for (int i = 0; i < 16; i++)
        _mm_prefetch((const char *)row[i] + at + 32 * row_bytes, _MM_HINT_T0);
}

/* Elements d .. d + 7. */
CPU_INLINE void open_f16_8(const uint8_t *const row[16], size_t d, float *to)
{
    const __m512i even_odd = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);
    __m512i v[4], c[4];
    load_16_rows(row, 2 * d, v);
    {
        const __m512i a0 = _mm512_unpacklo_epi16(v[0], v[1]),
                      a1 = _mm512_unpackhi_epi16(v[0], v[1]);
        const __m512i b0 = _mm512_unpacklo_epi16(v[2], v[3]),
                      b1 = _mm512_unpackhi_epi16(v[2], v[3]);
        c[0] = _mm512_unpacklo_epi32(a0, b0);
        c[1] = _mm512_unpackhi_epi32(a0, b0);
        c[2] = _mm512_unpacklo_epi32(a1, b1);
        c[3] = _mm512_unpackhi_epi32(a1, b1);
    }
    CPU_UNROLL
    for (int i = 0; i < 4; i++) { /* lane L: two elements of rows 4 L .. 4 L + 3 */
        const __m512i s = _mm512_permutexvar_epi64(even_odd, c[i]);
        _mm512_storeu_ps(to + (d + 2 * (size_t)i) * 32, _mm512_cvtph_ps(_mm512_castsi512_si256(s)));
        _mm512_storeu_ps(to + (d + 2 * (size_t)i + 1) * 32,
                         _mm512_cvtph_ps(_mm512_extracti64x4_epi64(s, 1)));
    }
}

/* Elements d .. d + 3. */
CPU_INLINE void open_f32_4(const uint8_t *const row[16], size_t d, float *to)
{
    __m512i v[4];
    load_16_rows(row, 4 * d, v);
    transpose_lanes_4(v);
    CPU_UNROLL
    for (int i = 0; i < 4; i++)
        _mm512_storeu_si512(to + (d + (size_t)i) * 32, v[i]);
}

/* The block of elements d .. d + 31. */
CPU_INLINE void open_q8_32(const uint8_t *const row[16], size_t d, float *to)
{
    const size_t block = d / 32 * sizeof(struct atsi_block_q8_0);
    _Alignas(32) uint16_t h[16];
    __m512 scale;
    for (int r = 0; r < 16; r++)
        __builtin_memcpy(&h[r], row[r] + block, sizeof h[r]);
    scale = _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)h));
    for (size_t half = 0; half < 32; half += 16) {
        __m512i v[4];
        load_16_rows(row, block + offsetof(struct atsi_block_q8_0, qs) + half, v);
        transpose_lanes_4(v); /* v[j]: elements 4 j .. 4 j + 3 of a row per lane */
        CPU_UNROLL
        for (unsigned j = 0; j < 4; j++) {
            CPU_UNROLL
            for (unsigned b = 0; b < 4; b++)
                _mm512_storeu_ps(to + (d + half + 4 * j + b) * 32,
                                 _mm512_mul_ps(scale, _mm512_cvtepi32_ps(byte_of_dword(v[j], b))));
        }
    }
}

CPU_INLINE void open_keys(const uint32_t type, const uint8_t *const row[16], uint32_t n,
                          size_t row_bytes, float *to)
{
    if (type == ATSI_TYPE_F16)
        for (size_t d = 0; d < n; d += 8) {
            if (d % 32 == 0)
                prefetch_rows(row, 2 * d, row_bytes);
            open_f16_8(row, d, to);
        }
    else if (type == ATSI_TYPE_F32)
        for (size_t d = 0; d < n; d += 4) {
            if (d % 16 == 0)
                prefetch_rows(row, 4 * d, row_bytes);
            open_f32_4(row, d, to);
        }
    else
        for (size_t d = 0; d < n; d += 32) {
            if (d % 64 == 0)
                prefetch_rows(row, d / 32 * sizeof(struct atsi_block_q8_0), row_bytes);
            open_q8_32(row, d, to);
        }
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
