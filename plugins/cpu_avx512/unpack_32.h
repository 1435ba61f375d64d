/* SPDX-License-Identifier: Apache-2.0
 *
 * From bytes to codes and scales for the types with blocks of 32: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL
 * MXFP4 (block layouts: include/atsinfer/quant.h).
 *
 * A unit is four consecutive blocks of a row, 128 elements.  Its codes are two registers of u8,
 * value = d * (code - zero) (+ m), in 128-bit lanes of 16 consecutive elements:
 *
 *   nibble types   c[0] lane b = elements 0..15 of block b    c[1] lane b = elements 16..31
 *   Q8_0           c[0] = blocks 0 and 1 in natural order     c[1] = blocks 2 and 3
 *
 * Loads stay inside the unit; a row's last, incomplete unit is copied to a padded buffer first.
 */
#ifndef ATSI_CPU_AVX512_UNPACK_32_H
#define ATSI_CPU_AVX512_UNPACK_32_H

#include "atsinfer/quant.h"
#include "simd.h"

#define UNIT_BLOCKS 4
#define UNIT_ELEMS 128
#define UNIT_MAX_BYTES 136 /* Q8_0 */

struct form_32 {
    int bytes;   /* of a block */
    int qs;      /* offset of the quants */
    int zero;    /* the code that means 0 */
    int has_min; /* an f16 m follows d */
    int natural; /* order of c[], see above */
    int wide;    /* codes exceed 127 */
};

static const struct form_32 forms_32[ATSI_TYPE_COUNT] = {
    [ATSI_TYPE_Q4_0] = {18, 2, 8, 0, 0, 0},   [ATSI_TYPE_Q4_1] = {20, 4, 0, 1, 0, 0},
    [ATSI_TYPE_Q5_0] = {22, 6, 16, 0, 0, 0},  [ATSI_TYPE_Q5_1] = {24, 8, 0, 1, 0, 0},
    [ATSI_TYPE_Q8_0] = {34, 2, 128, 0, 1, 1}, [ATSI_TYPE_IQ4_NL] = {18, 2, 128, 0, 0, 1},
    [ATSI_TYPE_MXFP4] = {17, 1, 12, 0, 0, 0},
};

/* Adds 16 to the codes whose bit is set: the four bytes at qh of block b, in lane b, are one bit
 * per element, least significant first. */
CPU_INLINE void add_fifth_bit(const uint8_t *p, const int bytes, const int qh, __m512i c[2])
{
    const __m512i bit = _mm512_set1_epi64((long long)0x8040201008040201u);
    const __m512i first = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0101010101010101, 0));
    const __m512i second = _mm512_add_epi8(first, _mm512_set1_epi8(2));
    const __m512i sixteen = _mm512_set1_epi8(16);
    __m512i h = _mm512_broadcastd_epi32(_mm_loadu_si32(p + qh));
    h = _mm512_mask_broadcastd_epi32(h, 0x00f0, _mm_loadu_si32(p + bytes + qh));
    h = _mm512_mask_broadcastd_epi32(h, 0x0f00, _mm_loadu_si32(p + 2 * bytes + qh));
    h = _mm512_mask_broadcastd_epi32(h, 0xf000, _mm_loadu_si32(p + 3 * bytes + qh));
    c[0] = _mm512_mask_add_epi8(c[0], _mm512_test_epi8_mask(_mm512_shuffle_epi8(h, first), bit),
                                c[0], sixteen);
    c[1] = _mm512_mask_add_epi8(c[1], _mm512_test_epi8_mask(_mm512_shuffle_epi8(h, second), bit),
                                c[1], sixteen);
}

CPU_INLINE void codes_32(const int type, const uint8_t *p, __m512i c[2])
{
    const struct form_32 *f = &forms_32[type];
    const __m512i low = _mm512_set1_epi8(15);
    const int b = f->bytes, qs = f->qs;
    __m512i z;
    if (type == ATSI_TYPE_Q8_0) {
        const __m512i flip = _mm512_set1_epi8((char)-128);
        c[0] = _mm512_xor_si512(load_2x32(p + qs, p + b + qs), flip);
        c[1] = _mm512_xor_si512(load_2x32(p + 2 * b + qs, p + 3 * b + qs), flip);
        return;
    }
    z = load_4x16(p + qs, p + b + qs, p + 2 * b + qs, p + 3 * b + qs);
    c[0] = _mm512_and_si512(z, low);
    c[1] = _mm512_and_si512(_mm512_srli_epi16(z, 4), low);
    if (type == ATSI_TYPE_Q5_0 || type == ATSI_TYPE_Q5_1) {
        add_fifth_bit(p, b, qs - 4, c);
    } else if (type == ATSI_TYPE_IQ4_NL || type == ATSI_TYPE_MXFP4) {
        const __m512i t = type == ATSI_TYPE_MXFP4 ? code_table(atsi_mxfp4_values, f->zero)
                                                  : code_table(atsi_iq4_values, f->zero);
        c[0] = _mm512_shuffle_epi8(t, c[0]);
        c[1] = _mm512_shuffle_epi8(t, c[1]);
    }
}

/* 16-bit words at byte `off` of each block of four rows: word 4b + r = block b of row r.  Where a
 * unit is longer than a register, blocks 2 and 3 come from a second load that ends with it. */
CPU_INLINE __m256i words_32(const uint8_t *const p[4], const int bytes, const int off)
{
    const __m512i block = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3,
                                           3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    const int two = 3 * bytes + off + 2 > 64;
    const int second = bytes >= 32 ? 2 * bytes : 4 * bytes - 64;
    const __m512i at = _mm512_srli_epi16(
        _mm512_add_epi16(_mm512_mullo_epi16(block, _mm512_set1_epi16((short)bytes)),
                         _mm512_set1_epi16((short)off)),
        1);
    const __m512i at2 = _mm512_sub_epi16(at, _mm512_set1_epi16((short)(second / 2)));
    const __mmask32 m = two ? 0x0011 : 0x1111;
    __m512i d = _mm512_maskz_permutexvar_epi16(m, at, _mm512_loadu_si512(p[0]));
    d = _mm512_mask_permutexvar_epi16(d, m << 1, at, _mm512_loadu_si512(p[1]));
    d = _mm512_mask_permutexvar_epi16(d, m << 2, at, _mm512_loadu_si512(p[2]));
    d = _mm512_mask_permutexvar_epi16(d, m << 3, at, _mm512_loadu_si512(p[3]));
    if (two) {
        d = _mm512_mask_permutexvar_epi16(d, 0x1100, at2, _mm512_loadu_si512(p[0] + second));
        d = _mm512_mask_permutexvar_epi16(d, 0x2200, at2, _mm512_loadu_si512(p[1] + second));
        d = _mm512_mask_permutexvar_epi16(d, 0x4400, at2, _mm512_loadu_si512(p[2] + second));
        d = _mm512_mask_permutexvar_epi16(d, 0x8800, at2, _mm512_loadu_si512(p[3] + second));
    }
    return _mm512_castsi512_si256(d);
}

/* 2^(e - 128) from words that hold e in their low (even block) or high byte (odd block): 17-byte
 * blocks alternate.  As atsi_e8m0_half(). */
CPU_INLINE __m512 e8m0_16(__m256i words)
{
    const __m512i side = _mm512_set_epi32(8, 8, 8, 8, 0, 0, 0, 0, 8, 8, 8, 8, 0, 0, 0, 0);
    __m512i e = _mm512_and_si512(_mm512_srlv_epi32(_mm512_cvtepu16_epi32(words), side),
                                 _mm512_set1_epi32(255));
    __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __mmask16 tiny = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
    bits = _mm512_mask_sllv_epi32(bits, tiny, _mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(bits);
}

/* Scales (and mins) of one unit of four rows: lane b, position r = block b of row r. */
CPU_INLINE void scales_32(const int type, const uint8_t *const p[4], __m512 *d, __m512 *m)
{
    const struct form_32 *f = &forms_32[type];
    if (type == ATSI_TYPE_MXFP4)
        *d = e8m0_16(words_32(p, f->bytes, 0));
    else
        *d = _mm512_cvtph_ps(words_32(p, f->bytes, 0));
    *m = f->has_min ? _mm512_cvtph_ps(words_32(p, f->bytes, 2)) : _mm512_setzero_ps();
}

#endif
