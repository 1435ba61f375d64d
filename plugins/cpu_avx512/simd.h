/* SPDX-License-Identifier: Apache-2.0
 *
 * Small vector helpers shared by the AVX-512 kernels: transposing sums, tail masks, exp and
 * sigmoid.
 */
#ifndef ATSI_CPU_AVX512_SIMD_H
#define ATSI_CPU_AVX512_SIMD_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

/* The skeletons are written once and specialised by constant arguments; that only works inlined. */
#define CPU_INLINE static inline __attribute__((always_inline))

/* Loops over arrays of registers: they stay registers only when unrolled. */
#ifdef __clang__
#define CPU_UNROLL _Pragma("unroll")
#else
#define CPU_UNROLL _Pragma("GCC unroll 16")
#endif

/* First n of 16 lanes, n <= 16. */
CPU_INLINE __mmask16 mask_16(size_t n)
{
    return (__mmask16)((1u << n) - 1u);
}

/* 16 lanes of which the first n are wanted, as many as a row has left. */
CPU_INLINE __mmask16 mask_left(size_t n)
{
    return n >= 16 ? (__mmask16)0xffff : mask_16(n);
}

CPU_INLINE __m512i broadcast_i32(const void *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

/* Sign-extended byte b of each dword. */
CPU_INLINE __m512i byte_of_dword(__m512i v, const unsigned b)
{
    return _mm512_srai_epi32(_mm512_slli_epi32(v, 24 - 8 * b), 24);
}

/* The 16-entry table of a type as codes (value + zero), repeated in every lane. */
CPU_INLINE __m512i code_table(const int8_t *values, const int zero)
{
    __m128i t = _mm_loadu_si128((const __m128i *)(const void *)values);
    return _mm512_broadcast_i32x4(_mm_add_epi8(t, _mm_set1_epi8((char)zero)));
}

/* Sixteen floats at p, or those of the mask m. */
CPU_INLINE __m512 load_lanes(const float *p, const int full, __mmask16 m)
{
    return full ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(m, p);
}

CPU_INLINE void store_lanes(float *p, __m512 v, const int full, __mmask16 m)
{
    if (full)
        _mm512_storeu_ps(p, v);
    else
        _mm512_mask_storeu_ps(p, m, v);
}

/* 16 bytes from each of four addresses, address i in 128-bit lane i. */
CPU_INLINE __m512i load_4x16(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d)
{
    __m512i z = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)a));
    z = _mm512_mask_broadcast_i32x4(z, 0x00f0, _mm_loadu_si128((const __m128i *)(const void *)b));
    z = _mm512_mask_broadcast_i32x4(z, 0x0f00, _mm_loadu_si128((const __m128i *)(const void *)c));
    return _mm512_mask_broadcast_i32x4(z, 0xf000,
                                       _mm_loadu_si128((const __m128i *)(const void *)d));
}

CPU_INLINE __m512i load_2x32(const void *a, const void *b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)a)),
                              _mm256_loadu_si256((const __m256i *)b), 1);
}

/* Lane L of the result: the sums of the four dwords in lane L of a, b, c, d. */
CPU_INLINE __m512i sum_lanes_4(__m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* The sums of all sixteen dwords of a, b, c, d. */
CPU_INLINE __m128i sum_all_4(__m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i s = sum_lanes_4(a, b, c, d);
    __m256i h = _mm256_add_epi32(_mm512_castsi512_si256(s), _mm512_extracti64x4_epi64(s, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}

/* The same for floats: the order of additions is one and the same for each of the four inputs, so a
 * result does not depend on where in a group its row sits. */
CPU_INLINE __m128 sum_all_4f(__m512 a, __m512 b, __m512 c, __m512 d)
{
    __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    __m512d lo = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    __m512d hi = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    __m512 s = _mm512_add_ps(_mm512_castpd_ps(lo), _mm512_castpd_ps(hi));
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

/* 4x4 transpose of dwords within each 128-bit lane. */
CPU_INLINE void transpose_lanes_4(__m512i v[4])
{
    __m512i ab_lo = _mm512_unpacklo_epi32(v[0], v[1]), ab_hi = _mm512_unpackhi_epi32(v[0], v[1]);
    __m512i cd_lo = _mm512_unpacklo_epi32(v[2], v[3]), cd_hi = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(ab_lo, cd_lo);
    v[1] = _mm512_unpackhi_epi64(ab_lo, cd_lo);
    v[2] = _mm512_unpacklo_epi64(ab_hi, cd_hi);
    v[3] = _mm512_unpackhi_epi64(ab_hi, cd_hi);
}

/* Lane b of out[.] q = lane q of in[.] b: a 4x4 transpose of whole 128-bit lanes. */
CPU_INLINE void transpose_quads_4(__m512 v[4])
{
    __m512 ab_lo = _mm512_shuffle_f32x4(v[0], v[1], 0x88),
           ab_hi = _mm512_shuffle_f32x4(v[0], v[1], 0xdd);
    __m512 cd_lo = _mm512_shuffle_f32x4(v[2], v[3], 0x88),
           cd_hi = _mm512_shuffle_f32x4(v[2], v[3], 0xdd);
    v[0] = _mm512_shuffle_f32x4(ab_lo, cd_lo, 0x88);
    v[2] = _mm512_shuffle_f32x4(ab_lo, cd_lo, 0xdd);
    v[1] = _mm512_shuffle_f32x4(ab_hi, cd_hi, 0x88);
    v[3] = _mm512_shuffle_f32x4(ab_hi, cd_hi, 0xdd);
}

/* Sum of 16 lanes in the order of sum_all_4f. */
CPU_INLINE float sum_16f(__m512 v)
{
    return _mm_cvtss_f32(sum_all_4f(v, v, v, v));
}

/* e^x: x = n ln 2 + r with |r| <= ln 2 / 2, the Taylor polynomial of degree 7 in r (remainder below
 * 5.5e-9), times 2^n with gradual underflow.  Largest error found among 9e7 values from -87.3
 * to 88.7: 0.92 ulp.  Infinite where the result exceeds the largest float, 0 below -103.98; NaN
 * stays NaN. */
CPU_INLINE __m512 exp_16(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512 n, r, p;
    /* the second operand is what min and max return for a NaN */
    x = _mm512_max_ps(_mm512_set1_ps(-110.0f), x);
    x = _mm512_min_ps(_mm512_set1_ps(90.0f), x);
    n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)),
                             _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e400p-1f), x); /* ln 2, leading 15 bits: exact */
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
    p = _mm512_fmadd_ps(r, _mm512_set1_ps(1.0f / 5040.0f), _mm512_set1_ps(1.0f / 720.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    return _mm512_scalef_ps(p, n);
}

/* v * sigmoid(g) */
CPU_INLINE __m512 gated(__m512 v, __m512 g)
{
    __m512 e = exp_16(_mm512_sub_ps(_mm512_setzero_ps(), g));
    return _mm512_div_ps(v, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

#endif
