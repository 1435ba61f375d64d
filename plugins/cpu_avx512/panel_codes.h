/* SPDX-License-Identifier: Apache-2.0
 *
 * From the chunks of a panel (atsinfer/panel.h) to registers of codes, for every block type: what
 * products of few and of many tokens share.
 *
 * Registers of a unit (../cpu_common/panel_form.h) are u8 codes; register k holds them times
 * 2^panel_weight(type, k): taking them out where they lie saves shifts.
 */
#ifndef ATSI_CPU_AVX512_PANEL_CODES_H
#define ATSI_CPU_AVX512_PANEL_CODES_H

#include "simd.h"

#include "../cpu_common/panel_form.h"

/* Without VNNI two products are added in 16 bits, so that registers must stay below 128. */
#ifdef __AVX512VNNI__
#define TOP_FIELD 1 /* the uppermost field of a byte stays where it is */
#else
#define TOP_FIELD 0
#endif

CPU_INLINE int panel_weight(const int type, const int k)
{
    if (type == ATSI_TYPE_Q2_K)
        return k < 3 ? 2 * k : (TOP_FIELD ? 6 : 4);
    if (type == ATSI_TYPE_Q3_K)
        return k < 6 ? 3 * (k % 2) : (TOP_FIELD ? 5 : 3);
    return 0;
}

/* The largest weight of a type. */
CPU_INLINE int panel_top_weight(const int type)
{
    return type == ATSI_TYPE_Q2_K ? panel_weight(type, 3) : panel_weight(type, 7);
}

/* Bytes ahead that a stream is prefetched: into the second cache, as for rows (rows.h). */
#define PANEL_AHEAD 1024

CPU_INLINE __m512i load_ahead(const uint8_t *p)
{
    _mm_prefetch((const char *)p + PANEL_AHEAD, _MM_HINT_T1);
    return _mm512_loadu_si512(p);
}

/* v, and those of b_bits that are set in b. */
CPU_INLINE __m512i with_bits(__m512i v, __m512i b, const int b_bits)
{
    return _mm512_ternarylogic_epi64(v, b, _mm512_set1_epi8((char)b_bits), 0xf8);
}

/* Bits of `bits` from a, the others from b. */
CPU_INLINE __m512i pick_bits(__m512i a, __m512i b, const int bits)
{
    /* b is the operand that is overwritten: the mask is needed again */
    return _mm512_ternarylogic_epi64(b, a, _mm512_set1_epi8((char)bits), 0xd8);
}

CPU_INLINE __m512i keep(__m512i v, const int bits)
{
    return _mm512_and_si512(v, _mm512_set1_epi8((char)bits));
}

CPU_INLINE __m512i panel_table(const int type)
{
    return code_table(type == ATSI_TYPE_MXFP4 ? atsi_mxfp4_values : atsi_iq4_values,
                      panel_forms[type].zero);
}

/* Two registers from a chunk of nibbles; fifth: the chunk of their fifth bits, or NULL. */
CPU_INLINE void nibble_codes(const int type, const uint8_t *chunk, const uint8_t *fifth,
                             const int u, __m512i c[2])
{
    __m512i v = load_ahead(chunk);
    c[0] = keep(v, 15);
    c[1] = keep(_mm512_srli_epi16(v, 4), 15);
    if (fifth != NULL) {
        __m512i h = _mm512_loadu_si512(fifth);
        c[0] = with_bits(c[0], _mm512_slli_epi16(h, 4 - (unsigned)(u % 4)), 16);
        c[1] = with_bits(c[1], _mm512_srli_epi16(h, (unsigned)(u % 4)), 16);
    } else if (type == ATSI_TYPE_MXFP4 || type == ATSI_TYPE_IQ4_NL || type == ATSI_TYPE_IQ4_XS) {
        c[0] = _mm512_shuffle_epi8(panel_table(type), c[0]);
        c[1] = _mm512_shuffle_epi8(panel_table(type), c[1]);
    }
}

CPU_INLINE void q2_k_codes(const uint8_t *chunk, __m512i c[4])
{
    __m512i v = load_ahead(chunk);
    c[0] = keep(v, 3);
    c[1] = keep(v, 12);
    c[2] = keep(v, 48);
    c[3] = TOP_FIELD ? keep(v, 192) : keep(_mm512_srli_epi16(v, 2), 48);
}

CPU_INLINE void q3_k_codes(const uint8_t *chunks, __m512i c[8])
{
    __m512i v[3] = {load_ahead(chunks), load_ahead(chunks + 64), load_ahead(chunks + 128)};
    for (int z = 0; z < 3; z++) {
        c[2 * z] = keep(v[z], 7);
        c[2 * z + 1] = keep(v[z], 56);
    }
    c[6] = pick_bits(v[0], _mm512_srli_epi16(v[1], 1), 192);
    c[7] = pick_bits(v[2], _mm512_srli_epi16(v[1], 2), 192);
    for (int k = 6; k < 8; k++)
        c[k] = TOP_FIELD ? keep(c[k], 224) : keep(_mm512_srli_epi16(c[k], 2), 56);
}

CPU_INLINE void q6_k_codes(const uint8_t *chunks, __m512i c[4])
{
    __m512i v0 = load_ahead(chunks), v1 = load_ahead(chunks + 64), v2 = load_ahead(chunks + 128);
    c[0] = keep(v0, 63);
    c[1] = keep(v1, 63);
    c[2] = keep(v2, 63);
    c[3] = pick_bits(v0, _mm512_srli_epi16(v1, 2), 192);
    c[3] = pick_bits(c[3], _mm512_srli_epi16(v2, 4), 240);
    c[3] = keep(_mm512_srli_epi16(c[3], 2), 63);
}

/* The registers of unit u of a strip. */
CPU_INLINE void panel_codes(const int type, const uint8_t *strip, const int u, __m512i c[])
{
    switch (type) {
    case ATSI_TYPE_Q8_0:
        c[0] = load_ahead(strip + 64 * u);
        break;
    case ATSI_TYPE_Q2_K:
        q2_k_codes(strip + 64 * u, c);
        break;
    case ATSI_TYPE_Q3_K:
        q3_k_codes(strip + 192 * u, c);
        break;
    case ATSI_TYPE_Q6_K:
        q6_k_codes(strip + 192 * u, c);
        break;
    case ATSI_TYPE_Q5_0:
    case ATSI_TYPE_Q5_1:
        nibble_codes(type, strip + 64 + 64 * u, strip, u, c);
        break;
    case ATSI_TYPE_Q5_K:
        nibble_codes(type, strip + 128 + 64 * u, strip + 64 * (u / 4), u, c);
        break;
    default:
        nibble_codes(type, strip + 64 * u, NULL, u, c);
        break;
    }
}

#endif
