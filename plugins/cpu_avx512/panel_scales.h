/* SPDX-License-Identifier: Apache-2.0
 *
 * Scales and mins of a super-block in a panel (atsinfer/panel.h), one sub-block of sixteen rows at
 * a time: dword lanes are rows.
 */
#ifndef ATSI_CPU_AVX512_PANEL_SCALES_H
#define ATSI_CPU_AVX512_PANEL_SCALES_H

#include "panel_codes.h"

/* Where scales and mins of a super-block come from, in one panel.  Registers are short: what can be
 * read again is not kept. */
struct panel_scales {
    const uint8_t *head, *chunks;
    __m512i six[2]; /* six-bit scales: byte b of the dwords of six[i] is sub-block 4 i + b's */
    __m512i m[4];   /* mins likewise */
};

CPU_INLINE __m512i scale_chunk(const struct panel_scales *o, const int i)
{
    return _mm512_loadu_si512(o->chunks + 64 * i);
}

/* Scales and mins of six bits each in twelve bytes (docs/formats.md): Q4_K, Q5_K. */
CPU_INLINE void scales_six(struct panel_scales *o)
{
    const __m512i w0 = scale_chunk(o, 0), w1 = scale_chunk(o, 1), w2 = scale_chunk(o, 2);
    o->six[0] = keep(w0, 63);
    o->m[0] = keep(w1, 63);
    o->six[1] = with_bits(keep(w2, 15), _mm512_srli_epi16(w0, 2), 48);
    o->m[1] = with_bits(keep(_mm512_srli_epi16(w2, 4), 15), _mm512_srli_epi16(w1, 2), 48);
}

/* Scales of Q3_K, less 32: byte b of the dwords is sub-block 4 i + b's. */
CPU_INLINE __m512i scales_q3(const struct panel_scales *o, const int i)
{
    __m512i low = scale_chunk(o, i % 2), high = scale_chunk(o, 2);
    if (i >= 2)
        low = _mm512_srli_epi16(low, 4);
    high =
        i < 2 ? _mm512_slli_epi16(high, i == 0 ? 4 : 2) : _mm512_srli_epi16(high, i == 2 ? 0 : 2);
    return _mm512_sub_epi8(with_bits(keep(low, 15), high, 48), _mm512_set1_epi8(32));
}

/* head, body: of the super-block in one panel. */
CPU_INLINE void panel_scales(const int type, const uint8_t *head, const uint8_t *body,
                             struct panel_scales *o)
{
    o->head = head;
    o->chunks = body;
    _mm_prefetch((const char *)head + PANEL_AHEAD, _MM_HINT_T1);
    CPU_UNROLL
    for (int i = 0; i < panel_forms[type].scale_chunks; i++)
        _mm_prefetch((const char *)body + 64 * i + PANEL_AHEAD, _MM_HINT_T1);
    if (type == ATSI_TYPE_Q4_K || type == ATSI_TYPE_Q5_K)
        scales_six(o);
    if (type == ATSI_TYPE_Q2_K) {
        CPU_UNROLL
        for (int i = 0; i < 4; i++)
            o->m[i] = keep(_mm512_srli_epi16(scale_chunk(o, i), 4), 15);
    }
}

/* Scale of sub-block j of IQ4_XS: four low bits in one chunk, two upper ones in the head. */
CPU_INLINE __m512i scale_iq4_xs(const struct panel_scales *o, const unsigned j)
{
    const __m512i high =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(o->head + 32)));
    __m512i v =
        _mm512_and_si512(_mm512_srli_epi32(scale_chunk(o, 0), 4 * j), _mm512_set1_epi32(15));
    v = _mm512_ternarylogic_epi32(v,
                                  j < 2 ? _mm512_slli_epi32(high, j < 2 ? 4 - 2 * j : 0)
                                        : _mm512_srli_epi32(high, j < 2 ? 0 : 2 * j - 4),
                                  _mm512_set1_epi32(48), 0xf8);
    return _mm512_sub_epi32(v, _mm512_set1_epi32(32));
}

/* Scale of sub-block g as dwords. */
CPU_INLINE __m512i scale_of(const int type, const struct panel_scales *o, const int g)
{
    const unsigned at = 8 * ((unsigned)g % 4);
    switch (type) {
    case ATSI_TYPE_Q2_K:
        return _mm512_and_si512(_mm512_srli_epi32(scale_chunk(o, g / 4), at),
                                _mm512_set1_epi32(15));
    case ATSI_TYPE_Q3_K:
        return byte_of_dword(scales_q3(o, g / 4), (unsigned)g % 4);
    case ATSI_TYPE_Q6_K:
        return byte_of_dword(scale_chunk(o, g / 4), (unsigned)g % 4);
    case ATSI_TYPE_IQ4_XS:
        return scale_iq4_xs(o, (unsigned)g);
    default:
        if (at == 24)
            return _mm512_srli_epi32(o->six[g / 4], 24);
        return _mm512_and_si512(_mm512_srli_epi32(o->six[g / 4], at), _mm512_set1_epi32(255));
    }
}

/* Mins of sub-blocks (of 16 elements) 2 j and 2 j + 1 as pairs of words. */
CPU_INLINE __m512i min_pair(const int type, const struct panel_scales *o, const int j)
{
    const int wide = panel_forms[type].group == 32; /* one min for both */
    const int a = wide ? j : 2 * j, b = wide ? j : 2 * j + 1;
    const int pick = (int)(0x80008000u | (unsigned)(a % 4) | (unsigned)(b % 4) << 16);
    const __m512i at = _mm512_broadcast_i32x4(
        _mm_set_epi32(pick + 0x000c000c, pick + 0x00080008, pick + 0x00040004, pick));
    return _mm512_shuffle_epi8(o->m[a / 4], at);
}

#endif
