/* SPDX-License-Identifier: Apache-2.0
 *
 * The integer sums of products, the only place where a file compiled with VNNI differs from its
 * twin without:
 *   VNNI  vpdpbusd adds products of u8 codes and activations in 32 bits;
 *   else  vpmaddubsw adds two of them in 16 bits, to which some further ones may be added.
 * Both are exact and so give the same bits.
 *
 * A `part` is such a running sum of one sub-block; scale_add() and widen_add() end it.
 */
#ifndef CPU_AVX2_DOT_H
#define CPU_AVX2_DOT_H

#include "simd.h"

/* AVX512-VNNI with VL has the same instruction in another encoding: by it the tests run these files
 * on more CPUs. */
#if defined(__AVXVNNI__)
#define CPU_AVX2_VNNI 1
#define DPBUSD _mm256_dpbusd_avx_epi32
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define CPU_AVX2_VNNI 1
#define DPBUSD _mm256_dpbusd_epi32
#else
#define CPU_AVX2_VNNI 0
#endif

/* part + u8 codes times activations; `first` starts it. */
CPU_INLINE __m256i part_add(const bool first, __m256i part, __m256i c, __m256i a)
{
#if CPU_AVX2_VNNI
    return in_order(DPBUSD(first ? _mm256_setzero_si256() : part, c, a));
#else
    const __m256i p = _mm256_maddubs_epi16(c, a);
    return first ? p : in_order(_mm256_add_epi16(part, p));
#endif
}

/* A part of i8 codes.  |w| * sign(a, w) is right for w = -128 too, the other way round is not. */
CPU_INLINE __m256i part_signed(__m256i w, __m256i a)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
}

/* sum + part, in 32 bits; `first`: sum is 0. */
CPU_INLINE __m256i widen_add(const bool first, __m256i sum, __m256i part)
{
#if !CPU_AVX2_VNNI
    part = _mm256_madd_epi16(part, _mm256_set1_epi16(1));
#endif
    return first ? part : in_order(_mm256_add_epi32(sum, part));
}

/* sum + scale * part / 2^weight, in 32 bits.  scale: i16, the same in both words of a dword; part
 * is a multiple of 2^weight. */
CPU_INLINE __m256i scale_add(__m256i sum, __m256i part, __m256i scale, const int weight)
{
#if CPU_AVX2_VNNI
    if (weight != 0)
        part = _mm256_srai_epi32(part, weight);
    part = _mm256_mullo_epi32(part, _mm256_srai_epi32(scale, 16));
#else
    if (weight != 0)
        part = _mm256_srai_epi16(part, weight);
    part = _mm256_madd_epi16(part, scale);
#endif
    return in_order(_mm256_add_epi32(sum, part));
}

#endif
