/* SPDX-License-Identifier: Apache-2.0
 *
 * The integer dot primitives, the only place where a VNNI build of a kernel file differs from a
 * plain AVX-512BW one.  All are exact, so both builds give the same bits.
 */
#ifndef ATSI_CPU_AVX512_DOT_H
#define ATSI_CPU_AVX512_DOT_H

#include "simd.h"

/* acc + sum over the two words of each dword of a * b (i16). */
CPU_INLINE __m512i dot2(__m512i acc, __m512i a, __m512i b)
{
#ifdef __AVX512VNNI__
    return _mm512_dpwssd_epi32(acc, a, b);
#else
    return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
#endif
}

/* acc + sum over the four bytes of each dword of w (u8) * a (s8).  `wide`: w may exceed 127, so two
 * products may exceed 16 bits (255 * 127 * 2) and vpmaddubsw would saturate. */
CPU_INLINE __m512i dot4(const int wide, __m512i acc, __m512i w, __m512i a)
{
#ifdef __AVX512VNNI__
    (void)wide;
    return _mm512_dpbusd_epi32(acc, w, a);
#else
    if (wide) {
        const __m512i low = _mm512_set1_epi16(255);
        __m512i even = _mm512_madd_epi16(_mm512_and_si512(w, low),
                                         _mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8));
        __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(w, 8), _mm512_srai_epi16(a, 8));
        return _mm512_add_epi32(acc, _mm512_add_epi32(even, odd));
    }
    return _mm512_add_epi32(acc,
                            _mm512_madd_epi16(_mm512_maddubs_epi16(w, a), _mm512_set1_epi16(1)));
#endif
}

/* acc + w (u8) * the four activations at a (s8), which meet every dword. */
CPU_INLINE __m512i dot4_at(const int wide, __m512i acc, __m512i w, const int8_t *a)
{
#ifdef __AVX512VNNI__
    /* gcc 12 copies the accumulator around the intrinsic, and loads the activations apart. */
    const struct four {
        int8_t q[4];
    } *m = (const void *)a;
    (void)wide;
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*m));
    return acc;
#else
    return dot4(wide, acc, w, broadcast_i32(a));
#endif
}

#endif
