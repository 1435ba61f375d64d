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
/* Sixteen rows, `stride` bytes from one to the next: four pointers that walk along, as sixteen do
 * not fit in registers. */
struct rows_16 {
    const uint8_t *p[4]; /* rows 0, 4, 8, 12 */
    size_t stride;
};

CPU_INLINE void walk_16(struct rows_16 *r, size_t bytes)
{
    for (int i = 0; i < 4; i++)
        r->p[i] += bytes;
}

/* Sixteen bytes of each row: row 4 L + i in lane L of v[i]. */
CPU_INLINE void load_16_rows(const struct rows_16 *r, size_t at, __m512i v[4])
{
    CPU_UNROLL
    for (size_t i = 0; i < 4; i++)
        v[i] = load_4x16(r->p[0] + i * r->stride + at, r->p[1] + i * r->stride + at,
                         r->p[2] + i * r->stride + at, r->p[3] + i * r->stride + at);
}

CPU_INLINE void prefetch_16(const struct rows_16 *r, size_t ahead)
{
    CPU_UNROLL
    for (int j = 0; j < 4; j++) {
        const char *p = (const char *)r->p[j] + ahead;
        CPU_UNROLL
        for (size_t i = 0; i < 4; i++)
            _mm_prefetch(p + i * r->stride, _MM_HINT_T1);
    }
}

/* Eight elements of each row. */
CPU_INLINE void open_f16_8(const struct rows_16 *r, float *to)
{
    const __m512i even_odd = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);
    __m512i v[4], c[4];
    load_16_rows(r, 0, v);
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
    for (size_t i = 0; i < 4; i++) { /* lane L: two elements of rows 4 L .. 4 L + 3 */
        const __m512i s = _mm512_permutexvar_epi64(even_odd, c[i]);
        _mm512_storeu_ps(to + 2 * i * 32, _mm512_cvtph_ps(_mm512_castsi512_si256(s)));
        _mm512_storeu_ps(to + (2 * i + 1) * 32, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(s, 1)));
    }
}

/* Four elements of each row. */
CPU_INLINE void open_f32_4(const struct rows_16 *r, float *to)
{
    __m512i v[4];
    load_16_rows(r, 0, v);
    transpose_lanes_4(v);
    CPU_UNROLL
    for (size_t i = 0; i < 4; i++)
        _mm512_storeu_si512(to + i * 32, v[i]);
}

/* A block of 32 elements of each row. */
CPU_INLINE void open_q8_32(const struct rows_16 *r, float *to)
{
    _Alignas(32) uint16_t h[16];
    __m512 scale;
    CPU_UNROLL
    for (size_t i = 0; i < 16; i++)
        __builtin_memcpy(&h[i], r->p[i / 4] + i % 4 * r->stride, sizeof h[i]);
    scale = _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)h));
    for (size_t half = 0; half < 32; half += 16) {
        __m512i v[4];
        load_16_rows(r, offsetof(struct atsi_block_q8_0, qs) + half, v);
        transpose_lanes_4(v); /* v[j]: elements 4 j .. 4 j + 3 of a row per lane */
        CPU_UNROLL
        for (unsigned j = 0; j < 4; j++) {
            CPU_UNROLL
            for (unsigned b = 0; b < 4; b++)
                _mm512_storeu_ps(to + (half + 4 * j + b) * 32,
                                 _mm512_mul_ps(scale, _mm512_cvtepi32_ps(byte_of_dword(v[j], b))));
        }
    }
}

CPU_INLINE void open_keys(const uint32_t type, const uint8_t *rows, size_t stride, uint32_t n,
                          size_t ahead, float *to)
{
    const uint32_t step = type == ATSI_TYPE_F16 ? 8 : type == ATSI_TYPE_F32 ? 4 : 32;
    const size_t bytes = type == ATSI_TYPE_Q8_0 ? sizeof(struct atsi_block_q8_0) : 16;
    struct rows_16 r = {{rows, rows + 4 * stride, rows + 8 * stride, rows + 12 * stride}, stride};
    for (uint32_t d = 0; d < n; d += step, to += (size_t)step * 32) {
        if (d * bytes / step % 64 < bytes)
            prefetch_16(&r, ahead);
        if (type == ATSI_TYPE_F16)
            open_f16_8(&r, to);
        else if (type == ATSI_TYPE_F32)
            open_f32_4(&r, to);
        else
            open_q8_32(&r, to);
        walk_16(&r, bytes);
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
