/* SPDX-License-Identifier: Apache-2.0
 *
 * Scales and mins of a super-block in a panel (atsinfer/panel.h), as i16: a dword lane is a row,
 * its two words are two sub-blocks.  So one vpmaddwd meets the activations' sums of two sub-blocks,
 * and one shuffle makes a sub-block's scale the pair that ends its part.
 */
#ifndef CPU_AVX2_PANEL_SCALES_H
#define CPU_AVX2_PANEL_SCALES_H

#include "panel_codes.h"

/* Words of vector v: the sub-blocks of a byte chunk's bytes 0 and 2 (v even), 1 and 3 (v odd). */
struct panel_scales {
    __m256i s[8]; /* two for each four sub-blocks */
    __m256i m[8]; /* mins likewise, of types that have them */
};

/* Sub-blocks of a super-block, and vectors of their scales. */
CPU_INLINE int n_groups(const int type)
{
    return 256 / panel_forms[type].group;
}

/* The vector that holds sub-block g's scale, and in which word. */
CPU_INLINE int scale_vector(const int type, const int g)
{
    return type == ATSI_TYPE_IQ4_XS ? 2 * (g % 2) + g / 2 % 2 : 2 * (g / 4) + g % 2;
}

CPU_INLINE int scale_word(const int type, const int g)
{
    return type == ATSI_TYPE_IQ4_XS ? g / 4 : g % 4 / 2;
}

CPU_INLINE void words_of_u8(__m256i v, __m256i o[2])
{
    o[0] = _mm256_and_si256(v, _mm256_set1_epi16(255));
    o[1] = _mm256_srli_epi16(v, 8);
}

CPU_INLINE void words_of_i8(__m256i v, __m256i o[2])
{
    o[0] = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
    o[1] = _mm256_srai_epi16(v, 8);
}

/* Scales and mins of six bits each in twelve bytes (docs/formats.md): Q4_K, Q5_K. */
CPU_INLINE void scales_six(const __m256i w[3], struct panel_scales *o)
{
    const __m256i s = _mm256_or_si256(keep(w[2], 15), keep(_mm256_srli_epi16(w[0], 2), 48));
    const __m256i m =
        _mm256_or_si256(keep(_mm256_srli_epi16(w[2], 4), 15), keep(_mm256_srli_epi16(w[1], 2), 48));
    words_of_u8(keep(w[0], 63), o->s);
    words_of_u8(s, o->s + 2);
    words_of_u8(keep(w[1], 63), o->m);
    words_of_u8(m, o->m + 2);
}

/* Four bits of scale and of min in a byte. */
CPU_INLINE void scales_q2(__m256i v, __m256i s[2], __m256i m[2])
{
    const __m256i low = _mm256_set1_epi16(15);
    s[0] = _mm256_and_si256(v, low);
    s[1] = _mm256_and_si256(_mm256_srli_epi16(v, 8), low);
    m[0] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    m[1] = _mm256_srli_epi16(v, 12);
}

/* Low nibbles of sub-blocks 0..7 and, in the high halves, 8..15 in w[0] and w[1]; their upper bits
 * in w[2]. */
CPU_INLINE void scales_q3(const __m256i w[3], struct panel_scales *o)
{
    const __m256i high[4] = {_mm256_slli_epi16(w[2], 4), _mm256_slli_epi16(w[2], 2), w[2],
                             _mm256_srli_epi16(w[2], 2)};
    CPU_UNROLL
    for (int i = 0; i < 4; i++) {
        const __m256i low = i < 2 ? w[i] : _mm256_srli_epi16(w[i - 2], 4);
        const __m256i v = _mm256_or_si256(keep(low, 15), keep(high[i], 48));
        words_of_i8(_mm256_sub_epi8(v, _mm256_set1_epi8(32)), o->s + 2 * i);
    }
}

/* Sub-block j: nibble j of the chunk's dwords, and bits 2 j and 2 j + 1 of the head's words. */
CPU_INLINE void scales_iq4_xs(__m256i low, __m128i head, struct panel_scales *o)
{
    const __m256i twice = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13));
    const __m256i first = _mm256_set1_epi16(0x0030), second = _mm256_set1_epi16(0x3000);
    const __m256i high = _mm256_shuffle_epi8(_mm256_cvtepu16_epi32(head), twice);
    CPU_UNROLL
    for (int odd = 0; odd < 2; odd++) { /* sub-blocks 0 2 4 6, then 1 3 5 7, one per byte */
        const __m256i n = keep(_mm256_srli_epi16(low, 4 * odd), 15);
        const __m256i a = _mm256_and_si256(_mm256_slli_epi16(high, 4 - 2 * odd), first);
        const __m256i b = _mm256_and_si256(_mm256_srli_epi16(high, 2 * odd), second);
        const __m256i v = _mm256_or_si256(n, _mm256_or_si256(a, b));
        words_of_i8(_mm256_sub_epi8(v, _mm256_set1_epi8(32)), o->s + 2 * odd);
    }
}

/* head, body: of the super-block in one panel; half h of its rows. */
CPU_INLINE void panel_scales(const int type, const uint8_t *head, const uint8_t *body, const int h,
                             struct panel_scales *o)
{
    const int n = panel_forms[type].scale_chunks;
    __m256i w[4];
    if (h == 0)
        _mm_prefetch((const char *)head + PANEL_AHEAD, _MM_HINT_T0);
    CPU_UNROLL
    for (int i = 0; i < n; i++)
        w[i] = load_half(body + 64 * i, h);
    switch (type) {
    case ATSI_TYPE_Q2_K:
        CPU_UNROLL
        for (int i = 0; i < n; i++)
            scales_q2(w[i], o->s + 2 * i, o->m + 2 * i);
        break;
    case ATSI_TYPE_Q3_K:
        scales_q3(w, o);
        break;
    case ATSI_TYPE_Q6_K:
        CPU_UNROLL
        for (int i = 0; i < n; i++)
            words_of_i8(w[i], o->s + 2 * i);
        break;
    case ATSI_TYPE_IQ4_XS:
        scales_iq4_xs(w[0], load128(head + 32 + 16 * h), o);
        break;
    default:
        scales_six(w, o);
        break;
    }
}

/* One word of every dword, in both. */
CPU_INLINE __m256i word_twice(__m256i v, const int word)
{
    const __m256i low = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
    const __m256i high = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15));
    return _mm256_shuffle_epi8(v, word == 0 ? low : high);
}

/* Scale of sub-block g in both words of every dword. */
CPU_INLINE __m256i scale_of(const int type, const struct panel_scales *o, const int g)
{
    return word_twice(o->s[scale_vector(type, g)], scale_word(type, g));
}

/* Sums of the activations of each sub-block, a pair for every vector of scales: out[n_groups]. */
CPU_INLINE void sums_for_scales(const int type, const int16_t *bsum, int16_t out[16])
{
    const __m256i b = load256(bsum);
    const __m128i inner = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    const __m128i iq4 = _mm_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15);
    if (n_groups(type) == 16) {
        store256(out, _mm256_shuffle_epi8(b, _mm256_broadcastsi128_si256(inner)));
    } else { /* two each; at most 32 * 128 */
        __m256i s = _mm256_madd_epi16(b, _mm256_set1_epi16(1));
        s = _mm256_permute4x64_epi64(_mm256_packs_epi32(s, s), 0x08);
        _mm_storeu_si128(
            (__m128i *)(void *)out,
            _mm_shuffle_epi8(_mm256_castsi256_si128(s), type == ATSI_TYPE_IQ4_XS ? iq4 : inner));
    }
}

/* Sum of scale (or min) * sum of activations over all sub-blocks. */
CPU_INLINE __m256i times_sums(const int type, const __m256i v[8], const int16_t sums[16])
{
    __m256i t = _mm256_setzero_si256();
    CPU_UNROLL
    for (int i = 0; i < n_groups(type) / 2; i++) {
        const __m256i p = _mm256_madd_epi16(v[i], _mm256_set1_epi32((int)load_u32(sums + 2 * i)));
        t = i == 0 ? p : in_order(_mm256_add_epi32(t, p));
    }
    return t;
}

#endif
