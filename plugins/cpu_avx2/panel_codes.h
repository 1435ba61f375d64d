/* SPDX-License-Identifier: Apache-2.0
 *
 * From the chunks of a panel (atsinfer/panel.h) to registers of codes, for every block type: what
 * products of few and of many tokens share.  A register is half a chunk: 4 bytes of 8 rows.
 *
 * Types whose codes exceed 63 ("wide") have signed registers where there is no VNNI (dot.h).
 */
#ifndef CPU_AVX2_PANEL_CODES_H
#define CPU_AVX2_PANEL_CODES_H

#include "dot.h"

#include "../cpu_common/panel_form.h"

/* Registers of the type hold signed codes. */
CPU_INLINE bool panel_is_signed(const int type)
{
    return !CPU_AVX2_VNNI && panel_forms[type].wide;
}

/* The code that means 0 in the registers of a type. */
CPU_INLINE int panel_zero(const int type)
{
    return panel_is_signed(type) ? 0 : panel_forms[type].zero;
}

/* Dwords whose products may be added before they are widened: 32767 / (2 * 127 * largest code),
 * rounded down to a power of two: 8 for codes up to 15, 4 up to 31, 2 up to 63, 1 for wide ones. */
CPU_INLINE int panel_run(const int type)
{
    if (CPU_AVX2_VNNI)
        return 8;
    switch (type) {
    case ATSI_TYPE_Q4_0:
    case ATSI_TYPE_Q4_1:
    case ATSI_TYPE_Q4_K:
        return 8;
    case ATSI_TYPE_Q6_K:
        return 2;
    case ATSI_TYPE_Q8_0:
    case ATSI_TYPE_IQ4_NL:
    case ATSI_TYPE_IQ4_XS:
        return 1;
    default: /* Q5_0, Q5_1, Q5_K: 31; MXFP4: 24; Q2_K: 12 at most, as weighted; Q3_K: 7 */
        return 4;
    }
}

/* Register k holds its codes times two to this: where a field is left in its place. */
CPU_INLINE int panel_weight(const int type, const int k)
{
    return type == ATSI_TYPE_Q2_K ? 2 * (k % 2) : 0;
}

/* Bytes ahead that a stream is prefetched. */
#define PANEL_AHEAD 2048

/* Half h of a chunk. */
CPU_INLINE __m256i load_half(const uint8_t *chunk, const int h)
{
    if (h == 0)
        _mm_prefetch((const char *)chunk + PANEL_AHEAD, _MM_HINT_T0);
    return load256(chunk + 32 * h);
}

CPU_INLINE __m256i keep(__m256i v, const int bits)
{
    return _mm256_and_si256(v, _mm256_set1_epi8((char)bits));
}

CPU_INLINE __m256i table_of(const int type)
{
    const int8_t *values = type == ATSI_TYPE_MXFP4 ? atsi_mxfp4_values : atsi_iq4_values;
    return _mm256_add_epi8(_mm256_broadcastsi128_si256(load128(values)),
                           _mm256_set1_epi8((char)panel_zero(type)));
}

/* Two registers from a chunk of nibbles; fifth: the chunk of their fifth bits, or NULL. */
CPU_INLINE void nibble_codes(const int type, const uint8_t *chunk, const uint8_t *fifth,
                             const int u, const int h, __m256i c[2])
{
    const __m256i v = load_half(chunk, h);
    c[0] = keep(v, 15);
    c[1] = keep(_mm256_srli_epi16(v, 4), 15);
    if (fifth != NULL) {
        const __m256i f = load256(fifth + 32 * h);
        c[0] = _mm256_or_si256(c[0], keep(_mm256_slli_epi16(f, 4 - u % 4), 16));
        c[1] = _mm256_or_si256(c[1], keep(_mm256_srli_epi16(f, u % 4), 16));
    } else if (type == ATSI_TYPE_MXFP4 || type == ATSI_TYPE_IQ4_NL || type == ATSI_TYPE_IQ4_XS) {
        c[0] = _mm256_shuffle_epi8(table_of(type), c[0]);
        c[1] = _mm256_shuffle_epi8(table_of(type), c[1]);
    }
}

CPU_INLINE void q2_k_codes(const uint8_t *chunk, const int h, __m256i c[4])
{
    const __m256i v = load_half(chunk, h), w = _mm256_srli_epi16(v, 4);
    c[0] = keep(v, 3);
    c[1] = keep(v, 12);
    c[2] = keep(w, 3);
    c[3] = keep(w, 12);
}

CPU_INLINE void q3_k_codes(const uint8_t *chunks, const int h, __m256i c[8])
{
    const __m256i v[3] = {load_half(chunks, h), load_half(chunks + 64, h),
                          load_half(chunks + 128, h)};
    const __m256i w = _mm256_srli_epi16(v[1], 6); /* lowest bits of codes 6 and 7 */
    CPU_UNROLL
    for (int z = 0; z < 3; z++) {
        c[2 * z] = keep(v[z], 7);
        c[2 * z + 1] = keep(_mm256_srli_epi16(v[z], 3), 7);
    }
    c[6] = _mm256_or_si256(keep(_mm256_srli_epi16(v[0], 5), 6), keep(w, 1));
    c[7] =
        _mm256_or_si256(keep(_mm256_srli_epi16(v[2], 5), 6), keep(_mm256_srli_epi16(v[1], 7), 1));
}

/* Masks before shifts: each then takes its operand from memory. */
CPU_INLINE void q6_k_codes(const uint8_t *chunks, const int h, __m256i c[4])
{
    const __m256i v[3] = {load_half(chunks, h), load_half(chunks + 64, h),
                          load_half(chunks + 128, h)};
    __m256i top = keep(v[2], 192);
    top = _mm256_or_si256(keep(v[1], 192), _mm256_srli_epi16(top, 2));
    top = _mm256_or_si256(keep(v[0], 192), _mm256_srli_epi16(top, 2));
    c[3] = _mm256_srli_epi16(top, 2);
    CPU_UNROLL
    for (int z = 0; z < 3; z++)
        c[z] = keep(v[z], 63);
}

/* The registers of unit u of a strip, half h. */
CPU_INLINE void panel_codes(const int type, const uint8_t *strip, const int u, const int h,
                            __m256i c[])
{
    switch (type) {
    case ATSI_TYPE_Q8_0:
        c[0] = load_half(strip + 64 * u, h);
        if (panel_is_signed(type))
            c[0] = _mm256_xor_si256(c[0], _mm256_set1_epi8((char)128));
        break;
    case ATSI_TYPE_Q2_K:
        q2_k_codes(strip + 64 * u, h, c);
        break;
    case ATSI_TYPE_Q3_K:
        q3_k_codes(strip + 192 * u, h, c);
        break;
    case ATSI_TYPE_Q6_K:
        q6_k_codes(strip + 192 * u, h, c);
        break;
    case ATSI_TYPE_Q5_0:
    case ATSI_TYPE_Q5_1:
        nibble_codes(type, strip + 64 + 64 * u, strip, u, h, c);
        break;
    case ATSI_TYPE_Q5_K:
        nibble_codes(type, strip + 128 + 64 * u, strip + 64 * (u / 4), u, h, c);
        break;
    default:
        nibble_codes(type, strip + 64 * u, NULL, u, h, c);
        break;
    }
}

/* ---------------------------------------------------------------- sums */
/* The four activations at a, in every dword. */
CPU_INLINE __m256i four_at(const int8_t *a)
{
    return _mm256_set1_epi32((int)load_u32(a));
}

/* A part goes on by a register of codes; `first` starts it. */
CPU_INLINE __m256i codes_add(const int type, const bool first, __m256i part, __m256i c, __m256i a)
{
    return panel_is_signed(type) ? part_signed(c, a) : part_add(first, part, c, a);
}

#endif
