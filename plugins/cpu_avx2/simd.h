/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2 primitives shared by the kernels of this folder: unaligned loads of packed formats, half
 * precision scales, sums across lanes, an 8 x 8 transpose, the exponential and the sigmoid.
 */
#ifndef CPU_AVX2_SIMD_H
#define CPU_AVX2_SIMD_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "atsinfer/quant.h"

/* Loops over arrays of registers: they stay registers only when unrolled. */
#ifdef __clang__
#define CPU_UNROLL _Pragma("unroll")
#else
#define CPU_UNROLL _Pragma("GCC unroll 16")
#endif

/* A skeleton is written once and specialised per weight type by inlining constants and the type's
 * functions into it. */
#define CPU_INLINE static inline __attribute__((always_inline))

CPU_INLINE uint32_t load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

CPU_INLINE uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

CPU_INLINE __m256i load256(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

CPU_INLINE __m128i load128(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

CPU_INLINE void store256(void *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}

CPU_INLINE float f16_at(const void *p)
{
    return _cvtsh_ss((uint16_t)load_u16(p));
}

/* The value as it is now: a sum stays the chain that was written.  Integer sums may be regrouped by
 * the compiler, which then keeps all terms at once and spills them (gcc 12: half the speed). */
CPU_INLINE __m256i in_order(__m256i v)
{
    __asm__("" : "+x"(v));
    return v;
}

/* 2^(e - 128), bit patterns: (e - 1) << 23 for e >= 2; 2^21 << e, subnormal, for 1 and 0. */
CPU_INLINE __m256 e8m0_values(__m256i e)
{
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(1 << 21), e);
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

/* Bytes 0 and 1 (2 and 3) of every dword as two i16. */
CPU_INLINE __m256i low_pair(__m256i v)
{
    const __m256i at = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13));
    return _mm256_srai_epi16(_mm256_shuffle_epi8(v, at), 8);
}

CPU_INLINE __m256i high_pair(__m256i v)
{
    return low_pair(_mm256_srli_epi32(v, 16));
}

/* A hint only: the address may lie past the end of the weights. */
CPU_INLINE void prefetch(const uint8_t *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}

/* The f16 at byte `offset` of eight rows. */
CPU_INLINE __m256 f16_of_rows(const uint8_t *const row[8], size_t offset)
{
    __m128i h = _mm_cvtsi32_si128((int)load_u16(row[0] + offset));
    h = _mm_insert_epi16(h, (int)load_u16(row[1] + offset), 1);
    h = _mm_insert_epi16(h, (int)load_u16(row[2] + offset), 2);
    h = _mm_insert_epi16(h, (int)load_u16(row[3] + offset), 3);
    h = _mm_insert_epi16(h, (int)load_u16(row[4] + offset), 4);
    h = _mm_insert_epi16(h, (int)load_u16(row[5] + offset), 5);
    h = _mm_insert_epi16(h, (int)load_u16(row[6] + offset), 6);
    h = _mm_insert_epi16(h, (int)load_u16(row[7] + offset), 7);
    return _mm256_cvtph_ps(h);
}

/* a = [w0 w1 w2 w3 | w0' ...] of rows 0..3 and b of rows 4..7, one value per half: adds the halves,
 * lane = row. */
CPU_INLINE __m256i add_halves(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}

/* Sum of the eight i32 lanes of each s[r], in lane r. */
CPU_INLINE __m256i reduce8_i32(const __m256i s[8])
{
    __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
    __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(s[4], s[5]), _mm256_hadd_epi32(s[6], s[7]));
    return add_halves(a, b);
}

/* Sum of the sixteen i16 lanes of each s[r], in i32 lane r; |lane| <= 8191, since four lanes are
 * added in i16. */
CPU_INLINE __m256i reduce8_i16(const __m256i s[8])
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i a = _mm256_hadd_epi16(_mm256_hadd_epi16(s[0], s[1]), _mm256_hadd_epi16(s[2], s[3]));
    __m256i b = _mm256_hadd_epi16(_mm256_hadd_epi16(s[4], s[5]), _mm256_hadd_epi16(s[6], s[7]));
    return add_halves(_mm256_madd_epi16(a, one), _mm256_madd_epi16(b, one));
}

/* Sum of eight f32 lanes, always in the same order. */
CPU_INLINE float sum8_f32(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

/* Eight lanes of each of four sums, added: [0] = ((l0 + l1) + (l2 + l3)) + ((l4 + l5) + ...). */
CPU_INLINE __m128 sum_lanes4(const __m256 s[4])
{
    __m256 h = _mm256_hadd_ps(_mm256_hadd_ps(s[0], s[1]), _mm256_hadd_ps(s[2], s[3]));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

CPU_INLINE float max8_f32(__m256 v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    s = _mm_max_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

/* r[i] dword j becomes r[j] dword i. */
CPU_INLINE void transpose8(__m256i r[8])
{
    __m256i t[8], u[8];
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        u[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        u[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        u[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        u[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
    }
}

/* All bits set in the first n of eight lanes. */
CPU_INLINE __m256i lane_mask(uint32_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Eight floats at p, or those of the mask m. */
CPU_INLINE __m256 load_lanes(const float *p, bool full, __m256i m)
{
    return full ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, m);
}

CPU_INLINE void store_lanes(float *p, __m256 v, bool full, __m256i m)
{
    if (full)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, m, v);
}

/* exp(x), within 1.01 ulp for results that are normal numbers (measured); 0 and infinity
 * beyond the range, NaN for NaN.  x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 split in two so that
 * n * high is exact; exp(r) = 1 + r + r^2 p(r), p of degree 4 by Remez exchange (relative error
 * 2^-28); 2^n in two factors, so that subnormal results and overflow round once. */
CPU_INLINE __m256 exp8(__m256 x)
{
    const __m256 log2e = _mm256_set1_ps(0x1.715476p+0f);
    const __m256 ln2_hi = _mm256_set1_ps(0x1.62e4p-1f), ln2_lo = _mm256_set1_ps(0x1.7f7d1cp-20f);
    /* NaN passes through min and max when it is the second operand. */
    __m256 c = _mm256_min_ps(_mm256_set1_ps(89.0f), _mm256_max_ps(_mm256_set1_ps(-104.5f), x));
    __m256 n =
        _mm256_round_ps(_mm256_mul_ps(c, log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, ln2_lo, _mm256_fnmadd_ps(n, ln2_hi, c));
    __m256 p = _mm256_set1_ps(0x1.6a23dp-10f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.123a2p-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558f2p-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555492p-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2f));
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
    __m256i e = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(e, 1);
    __m256i bias = _mm256_set1_epi32(127);
    __m256 s0 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    __m256 s1 = _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(e, half), bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p, s0), s1);
}

/* v * sigmoid(g) */
CPU_INLINE __m256 gated8(__m256 v, __m256 g)
{
    __m256 e = exp8(_mm256_xor_ps(g, _mm256_set1_ps(-0.0f)));
    return _mm256_div_ps(v, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

#endif
