/* SPDX-License-Identifier: Apache-2.0
 *
 * How each quantized block opens into vectors, for decode, prefill and dequantization alike
 * (docs/formats.md draws the blocks).
 *
 * 32-element types: vec_T(blk) = the 32 quants in order.  256-element types: vec_T(blk, j) =
 * quants 32j..32j+31, and scale_T(blk, &s, &m):
 *   s: i16 scales of the 16 groups of 16 elements, low half groups 0 2 4 .. 14, high half 1 3 .. 15
 *   m: i16 factors of the activations' 16 block sums, in natural order: mins, or the zero point
 *      times -scale.
 * Quants are unsigned with a zero point, or signed (the IQ4 tables and Q8_0).  Loads of one block
 * that several j share are merged by the compiler, which sees j as a constant.
 */
#ifndef CPU_AVX2_UNPACK_H
#define CPU_AVX2_UNPACK_H

#include "simd.h"

/* 16 bytes -> low nibbles (elements 0..15), high nibbles (16..31). */
CPU_INLINE __m256i nibbles(const uint8_t *qs)
{
    __m256i v = _mm256_broadcastsi128_si256(load128(qs));
    v = _mm256_srlv_epi32(v, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

/* 32 bits -> 32 bytes, 16 where the bit is set. */
CPU_INLINE __m256i fifth_bits(const uint8_t *qh)
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                            2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ULL);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)load_u32(qh)), spread);
    v = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
    return _mm256_and_si256(v, _mm256_set1_epi8(16));
}

/* A table of 16 bytes looked up by each nibble. */
CPU_INLINE __m256i lookup(const int8_t table[16], __m256i nib)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(table)), nib);
}

/* ---------------------------------------------------------------- blocks of 32 */
CPU_INLINE __m256i vec_q4_0(const uint8_t *b) /* zero point 8 */
{
    return nibbles(b + offsetof(struct atsi_block_q4_0, qs));
}

CPU_INLINE __m256i vec_q4_1(const uint8_t *b)
{
    return nibbles(b + offsetof(struct atsi_block_q4_1, qs));
}

CPU_INLINE __m256i vec_q5_0(const uint8_t *b) /* zero point 16 */
{
    return _mm256_or_si256(nibbles(b + offsetof(struct atsi_block_q5_0, qs)),
                           fifth_bits(b + offsetof(struct atsi_block_q5_0, qh)));
}

CPU_INLINE __m256i vec_q5_1(const uint8_t *b)
{
    return _mm256_or_si256(nibbles(b + offsetof(struct atsi_block_q5_1, qs)),
                           fifth_bits(b + offsetof(struct atsi_block_q5_1, qh)));
}

CPU_INLINE __m256i vec_q8_0(const uint8_t *b) /* signed */
{
    return load256(b + offsetof(struct atsi_block_q8_0, qs));
}

CPU_INLINE __m256i vec_iq4_nl(const uint8_t *b) /* signed */
{
    return lookup(atsi_iq4_values, nibbles(b + offsetof(struct atsi_block_iq4_nl, qs)));
}

CPU_INLINE __m256i vec_mxfp4(const uint8_t *b) /* zero point 12 */
{
    const __m256i zero = _mm256_set1_epi8(12);
    __m256i nib = nibbles(b + offsetof(struct atsi_block_mxfp4, qs));
    return _mm256_shuffle_epi8(
        _mm256_add_epi8(_mm256_broadcastsi128_si256(load128(atsi_mxfp4_values)), zero), nib);
}

/* ---------------------------------------------------------------- blocks of 256 */
/* 32 bytes at p shifted right by a constant. */
CPU_INLINE __m256i shifted(const uint8_t *p, int shift)
{
    return _mm256_srli_epi16(load256(p), shift);
}

/* Bit `from` of 32 bytes, moved to bit `to`; other bits zero. */
CPU_INLINE __m256i bit_moved(const uint8_t *p, int from, int to)
{
    __m256i v = _mm256_and_si256(load256(p), _mm256_set1_epi8((char)(1 << from)));
    return from > to ? _mm256_srli_epi16(v, from - to) : _mm256_slli_epi16(v, to - from);
}

/* Sixteen scale bytes (16 signed ones, or 0..255) in the order of s. */
CPU_INLINE __m128i even_odd(__m128i sc)
{
    return _mm_shuffle_epi8(sc,
                            _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
}

/* Eight signed scale bytes, one per 32 elements, in the order of s. */
CPU_INLINE __m256i both_halves(__m128i sc8)
{
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi64(sc8, sc8));
}

CPU_INLINE __m256i vec_q2_k(const uint8_t *b, int j)
{
    const uint8_t *qs = b + offsetof(struct atsi_block_q2_k, qs);
    return _mm256_and_si256(shifted(qs + 32 * (j >> 2), 2 * (j & 3)), _mm256_set1_epi8(3));
}

CPU_INLINE void scale_q2_k(const uint8_t *b, __m256i *s, __m256i *m)
{
    const __m128i low = _mm_set1_epi8(15);
    __m128i v = load128(b + offsetof(struct atsi_block_q2_k, scales));
    *s = _mm256_cvtepu8_epi16(even_odd(_mm_and_si128(v, low)));
    *m = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(v, 4), low));
}

CPU_INLINE __m256i vec_q3_k(const uint8_t *b, int j) /* zero point 4 */
{
    const uint8_t *qs = b + offsetof(struct atsi_block_q3_k, qs);
    __m256i low = _mm256_and_si256(shifted(qs + 32 * (j >> 2), 2 * (j & 3)), _mm256_set1_epi8(3));
    return _mm256_or_si256(low, bit_moved(b + offsetof(struct atsi_block_q3_k, hmask), j, 2));
}

/* Twelve bytes s: low nibbles of scales 0..7 and, in the high halves, of 8..15 in s[0..7]; the top
 * two bits of scale g in s[8 + g % 4], at bit 2 * (g / 4). */
CPU_INLINE __m128i scale_bytes_q3_k(const uint8_t *b)
{
    const uint8_t *sc = b + offsetof(struct atsi_block_q3_k, scales);
    uint64_t low;
    uint32_t top = load_u32(sc + 8);
    memcpy(&low, sc, sizeof low);
    __m128i lo = _mm_set_epi64x((long long)(low >> 4), (long long)low);
    __m128i hi = _mm_setr_epi32((int)(top << 4), (int)(top << 2), (int)top, (int)(top >> 2));
    lo = _mm_and_si128(lo, _mm_set1_epi8(15));
    hi = _mm_and_si128(hi, _mm_set1_epi8(48));
    return _mm_sub_epi8(_mm_or_si128(lo, hi), _mm_set1_epi8(32));
}

CPU_INLINE void scale_q3_k(const uint8_t *b, __m256i *s, __m256i *m)
{
    __m128i sc = scale_bytes_q3_k(b);
    *s = _mm256_cvtepi8_epi16(even_odd(sc));
    *m = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(_mm256_cvtepi8_epi16(sc), 2));
}

/* Twelve bytes s0..s2 (three dwords): scales 0..3 and mins 0..3 are the low six bits of s0 and s1;
 * scales (mins) 4..7 are the low (high) nibbles of s2 with the top two bits of s0 (s1) above. */
CPU_INLINE void scale_q4_k(const uint8_t *b, __m256i *s, __m256i *m)
{
    const uint8_t *sc = b + offsetof(struct atsi_block_q4_k, scales);
    uint32_t s0 = load_u32(sc), s1 = load_u32(sc + 4), s2 = load_u32(sc + 8);
    uint32_t sc_hi = (s2 & 0x0f0f0f0fu) | ((s0 >> 2) & 0x30303030u);
    uint32_t mn_hi = ((s2 >> 4) & 0x0f0f0f0fu) | ((s1 >> 2) & 0x30303030u);
    uint64_t scales = (s0 & 0x3f3f3f3fu) | (uint64_t)sc_hi << 32;
    uint64_t mins = (s1 & 0x3f3f3f3fu) | (uint64_t)mn_hi << 32;
    __m128i mn = _mm_cvtsi64_si128((long long)mins);
    *s = both_halves(_mm_cvtsi64_si128((long long)scales));
    *m = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(mn, mn));
}

CPU_INLINE __m256i vec_q4_k(const uint8_t *b, int j)
{
    const uint8_t *qs = b + offsetof(struct atsi_block_q4_k, qs);
    return _mm256_and_si256(shifted(qs + 32 * (j >> 1), 4 * (j & 1)), _mm256_set1_epi8(15));
}

/* Scales and mins lie where Q4_K has them. */
CPU_INLINE __m256i vec_q5_k(const uint8_t *b, int j)
{
    const uint8_t *qs = b + offsetof(struct atsi_block_q5_k, qs);
    __m256i low = _mm256_and_si256(shifted(qs + 32 * (j >> 1), 4 * (j & 1)), _mm256_set1_epi8(15));
    return _mm256_or_si256(low, bit_moved(b + offsetof(struct atsi_block_q5_k, qh), j, 4));
}

CPU_INLINE __m256i vec_q6_k(const uint8_t *b, int j) /* zero point 32 */
{
    const uint8_t *ql = b + offsetof(struct atsi_block_q6_k, ql);
    const uint8_t *qh = b + offsetof(struct atsi_block_q6_k, qh);
    int n = j >> 2, k = j & 3;
    __m256i low = shifted(ql + 64 * n + 32 * (k & 1), 4 * (k >> 1));
    __m256i top = load256(qh + 32 * n);
    if (k < 2) /* bits 2k, 2k+1 to 4, 5 */
        top = _mm256_slli_epi16(top, 4 - 2 * k);
    else
        top = _mm256_srli_epi16(top, 2 * k - 4);
    return _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi8(15)),
                           _mm256_and_si256(top, _mm256_set1_epi8(48)));
}

CPU_INLINE void scale_q6_k(const uint8_t *b, __m256i *s, __m256i *m)
{
    __m128i sc = load128(b + offsetof(struct atsi_block_q6_k, scales));
    *s = _mm256_cvtepi8_epi16(even_odd(sc));
    *m = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(_mm256_cvtepi8_epi16(sc), 5));
}

CPU_INLINE __m256i vec_iq4_xs(const uint8_t *b, int j) /* signed */
{
    return lookup(atsi_iq4_values,
                  nibbles(b + offsetof(struct atsi_block_iq4_xs, qs) + (size_t)16 * (size_t)j));
}

/* Scale j: nibble j of scales_l, bits 2j and 2j+1 of scales_h above it, minus 32.  No mins. */
CPU_INLINE void scale_iq4_xs(const uint8_t *b, __m256i *s, __m256i *m)
{
    uint32_t low = load_u32(b + offsetof(struct atsi_block_iq4_xs, scales_l));
    uint32_t top = load_u16(b + offsetof(struct atsi_block_iq4_xs, scales_h));
    /* One dword per scale: shift its bits down. */
    __m256i j4 = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    __m256i lo =
        _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)low), j4), _mm256_set1_epi32(15));
    __m256i hi = _mm256_srlv_epi32(_mm256_set1_epi32((int)top), _mm256_srli_epi32(j4, 1));
    hi = _mm256_slli_epi32(_mm256_and_si256(hi, _mm256_set1_epi32(3)), 4);
    __m256i sc = _mm256_sub_epi32(_mm256_or_si256(lo, hi), _mm256_set1_epi32(32));
    sc = _mm256_packs_epi32(sc, sc); /* 0-3 0-3 | 4-7 4-7 */
    *s = _mm256_permute4x64_epi64(sc, 0x88);
    *m = _mm256_setzero_si256();
}

#endif
