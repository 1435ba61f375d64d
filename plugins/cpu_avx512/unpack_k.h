/* SPDX-License-Identifier: Apache-2.0
 *
 * From bytes to codes and scales for the super-blocks of 256: Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS
 * (block layouts: include/atsinfer/quant.h).
 *
 * Codes of one super-block are four registers of u8 whose 16-byte lanes each hold one group of 16
 * consecutive elements; value = d * scale[group] * (code - zero) - dmin * min[group].  Which group
 * a lane holds is the type's `groups` table: the order in which the bytes unpack cheapest.  Scales
 * and mins come per group of 16, also where the format has one per 32 (then twice the same).
 */
#ifndef ATSI_CPU_AVX512_UNPACK_K_H
#define ATSI_CPU_AVX512_UNPACK_K_H

#include "atsinfer/quant.h"
#include "simd.h"

#define SUPER 256

enum order_k {
    ORDER_NATURAL, /* Q6_K */
    ORDER_NIBBLES, /* a register = two runs of 32: 64 bytes hold elements 0..31 | 64..95 low, ... */
    ORDER_HALVES,  /* a register = 32 elements of each half: Q2_K, Q3_K */
    ORDER_SIXTEENS /* low, high nibbles of 16 bytes are neighbouring groups: IQ4_XS */
};

static const uint8_t groups_k[4][16] = {
    [ORDER_NATURAL] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    [ORDER_NIBBLES] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15},
    [ORDER_HALVES] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15},
    [ORDER_SIXTEENS] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15},
};

struct form_k {
    int bytes; /* of a super-block */
    int head;  /* offset of 16 bytes that contain the packed scales */
    enum order_k order;
    int zero; /* the code that means 0 */
    int has_min;
    int wide;  /* codes exceed 127 */
    int group; /* elements that share a scale: 16 or 32 */
};

static const struct form_k forms_k[ATSI_TYPE_COUNT] = {
    [ATSI_TYPE_Q2_K] = {84, 0, ORDER_HALVES, 0, 1, 0, 16},
    [ATSI_TYPE_Q3_K] = {110, 94, ORDER_HALVES, 4, 0, 0, 16},
    [ATSI_TYPE_Q4_K] = {144, 0, ORDER_NIBBLES, 0, 1, 0, 32},
    [ATSI_TYPE_Q5_K] = {176, 0, ORDER_NIBBLES, 0, 1, 0, 32},
    [ATSI_TYPE_Q6_K] = {210, 192, ORDER_NATURAL, 32, 0, 0, 16},
    [ATSI_TYPE_IQ4_XS] = {136, 0, ORDER_SIXTEENS, 128, 0, 1, 32},
};

/* (a where the mask bit is 1, else b), bits of `keep` only. */
CPU_INLINE __m512i merge_bits(__m512i a, __m512i b, const int a_bits, const int keep)
{
    __m512i t = _mm512_ternarylogic_epi64(_mm512_set1_epi8((char)a_bits), a, b, 0xca);
    return _mm512_and_si512(t, _mm512_set1_epi8((char)keep));
}

/* Rotates the lower and the upper half of v's quadwords left by lo and hi (negative: right). */
CPU_INLINE __m512i rotate_halves(__m512i v, const int lo, const int hi)
{
    const long long l = lo & 63, h = hi & 63;
    return _mm512_rolv_epi64(v, _mm512_set_epi64(h, h, h, h, l, l, l, l));
}

CPU_INLINE __m512i load_twice_32(const void *p)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
}

CPU_INLINE void split_nibbles(const uint8_t *qs, __m512i c[4], const int mask)
{
    const __m512i low = _mm512_set1_epi8((char)mask);
    __m512i a = _mm512_loadu_si512(qs), b = _mm512_loadu_si512(qs + 64);
    c[0] = _mm512_and_si512(a, low);
    c[1] = _mm512_and_si512(_mm512_srli_epi16(a, 4), low);
    c[2] = _mm512_and_si512(b, low);
    c[3] = _mm512_and_si512(_mm512_srli_epi16(b, 4), low);
}

/* Bit j of qh[l] is bit 4 of element 32 j + l. */
CPU_INLINE void codes_q5_k(const struct atsi_block_q5_k *x, __m512i c[4])
{
    __m512i a = _mm512_loadu_si512(x->qs), b = _mm512_loadu_si512(x->qs + 64);
    __m512i h = load_twice_32(x->qh);
    c[0] = merge_bits(a, rotate_halves(h, 4, 2), 15, 31);
    c[1] = merge_bits(_mm512_srli_epi16(a, 4), rotate_halves(h, 3, 1), 15, 31);
    c[2] = merge_bits(b, rotate_halves(h, 0, -2), 15, 31);
    c[3] = merge_bits(_mm512_srli_epi16(b, 4), rotate_halves(h, -1, -3), 15, 31);
}

/* Bits 2k, 2k+1 of qh are bits 4, 5 of the k-th 32 elements of a half. */
CPU_INLINE void codes_q6_k(const struct atsi_block_q6_k *x, __m512i c[4])
{
    __m512i a = _mm512_loadu_si512(x->ql), b = _mm512_loadu_si512(x->ql + 64);
    __m512i ha = load_twice_32(x->qh), hb = load_twice_32(x->qh + 32);
    c[0] = merge_bits(a, rotate_halves(ha, 4, 2), 15, 63);
    c[1] = merge_bits(_mm512_srli_epi16(a, 4), rotate_halves(ha, 0, -2), 15, 63);
    c[2] = merge_bits(b, rotate_halves(hb, 4, 2), 15, 63);
    c[3] = merge_bits(_mm512_srli_epi16(b, 4), rotate_halves(hb, 0, -2), 15, 63);
}

CPU_INLINE void codes_q2_k(const struct atsi_block_q2_k *x, __m512i c[4])
{
    const __m512i low = _mm512_set1_epi8(3);
    __m512i a = _mm512_loadu_si512(x->qs);
    c[0] = _mm512_and_si512(a, low);
    c[1] = _mm512_and_si512(_mm512_srli_epi16(a, 2), low);
    c[2] = _mm512_and_si512(_mm512_srli_epi16(a, 4), low);
    c[3] = _mm512_and_si512(_mm512_srli_epi16(a, 6), low);
}

/* Bit 4n + k of hmask is bit 2 of half n's k-th 32 elements (set: nothing is subtracted). */
CPU_INLINE void codes_q3_k(const struct atsi_block_q3_k *x, __m512i c[4])
{
    __m512i a = _mm512_loadu_si512(x->qs), h = load_twice_32(x->hmask);
    c[0] = merge_bits(a, rotate_halves(h, 2, -2), 3, 7);
    c[1] = merge_bits(_mm512_srli_epi16(a, 2), rotate_halves(h, 1, -3), 3, 7);
    c[2] = merge_bits(_mm512_srli_epi16(a, 4), rotate_halves(h, 0, -4), 3, 7);
    c[3] = merge_bits(_mm512_srli_epi16(a, 6), rotate_halves(h, -1, -5), 3, 7);
}

CPU_INLINE void codes_iq4_xs(const struct atsi_block_iq4_xs *x, __m512i c[4])
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)atsi_iq4_values);
    const __m512i t = _mm512_broadcast_i32x4(_mm_add_epi8(v, _mm_set1_epi8((char)-128)));
    split_nibbles(x->qs, c, 15);
    for (int u = 0; u < 4; u++)
        c[u] = _mm512_shuffle_epi8(t, c[u]);
}

CPU_INLINE void codes_k(const int type, const uint8_t *p, __m512i c[4])
{
    const void *x = p;
    if (type == ATSI_TYPE_Q2_K)
        codes_q2_k(x, c);
    else if (type == ATSI_TYPE_Q3_K)
        codes_q3_k(x, c);
    else if (type == ATSI_TYPE_Q4_K)
        split_nibbles(((const struct atsi_block_q4_k *)x)->qs, c, 15);
    else if (type == ATSI_TYPE_Q5_K)
        codes_q5_k(x, c);
    else if (type == ATSI_TYPE_Q6_K)
        codes_q6_k(x, c);
    else
        codes_iq4_xs(x, c);
}

/* What the headers of one super-block of four rows decode to: row r in lane r, position r. */
struct head_k {
    __m512i scale; /* [4 rows][16 groups], s8 */
    __m512i min;   /* [4 rows][16 groups], u8; has_min only */
    __m128 d, dmin;
};

CPU_INLINE __m512i lanes_16(long long hi, long long lo)
{
    return _mm512_broadcast_i32x4(_mm_set_epi64x(hi, lo));
}

/* Q4_K, Q5_K: six-bit pairs, docs/formats.md.  Dwords of a lane: scales 0..3, scales 4..7, mins
 * 0..3, mins 4..7; the four last bytes s[8..11] serve both second dwords. */
CPU_INLINE void scales_six_bit(__m512i head, struct head_k *h)
{
    const __m512i low_at = lanes_16(0x0f0e0d0c0b0a0908, 0x0f0e0d0c07060504);
    const __m512i top_at = lanes_16((long long)0x0b0a090880808080u, (long long)0x0706050480808080u);
    const __m512i shift = lanes_16(0x0000000400000000, 0);
    const __m512i mask = lanes_16(0x0f0f0f0f3f3f3f3f, 0x0f0f0f0f3f3f3f3f);
    const __m512i twice = lanes_16(0x0707060605050404, 0x0303020201010000);
    __m512i low = _mm512_srlv_epi32(_mm512_shuffle_epi8(head, low_at), shift);
    __m512i top = _mm512_srli_epi16(_mm512_shuffle_epi8(head, top_at), 2);
    __m512i all =
        _mm512_or_si512(_mm512_and_si512(low, mask), _mm512_and_si512(top, _mm512_set1_epi8(0x30)));
    h->scale = _mm512_shuffle_epi8(all, twice);
    h->min = _mm512_shuffle_epi8(all, _mm512_add_epi8(twice, _mm512_set1_epi8(8)));
}

/* Q3_K: bytes 2..13 of the loaded lane are s[0..11]; low nibbles in s[0..7], top pairs in
 * s[8..11]. */
CPU_INLINE void scales_q3_k(__m512i head, struct head_k *h)
{
    const __m512i low_at = lanes_16(0x0908070605040302, 0x0908070605040302);
    const __m512i top_at = lanes_16(0x0d0c0b0a0d0c0b0a, 0x0d0c0b0a0d0c0b0a);
    __m512i low = _mm512_srlv_epi64(_mm512_shuffle_epi8(head, low_at), lanes_16(4, 0));
    __m512i top = _mm512_rolv_epi32(_mm512_shuffle_epi8(head, top_at),
                                    lanes_16(0x0000001e00000000, 0x0000000200000004));
    low = _mm512_and_si512(low, _mm512_set1_epi8(15));
    top = _mm512_and_si512(top, _mm512_set1_epi8(0x30));
    h->scale = _mm512_sub_epi8(_mm512_or_si512(low, top), _mm512_set1_epi8(32));
}

/* IQ4_XS: bytes 2..3 scales_h, 4..7 scales_l.  One word per sub-block, then each twice. */
CPU_INLINE void scales_iq4_xs(__m512i head, struct head_k *h)
{
    const __m512i low_at = lanes_16((long long)0x8007800780068006u, (long long)0x8005800580048004u);
    const __m512i low_by = lanes_16(0x0004000000040000, 0x0004000000040000);
    const __m512i top_by = lanes_16(0x000e000c000a0008, 0x0006000400020000);
    const __m512i twice = lanes_16(0x0e0e0c0c0a0a0808, 0x0606040402020000);
    __m512i low = _mm512_srlv_epi16(_mm512_shuffle_epi8(head, low_at), low_by);
    __m512i top = _mm512_shuffle_epi8(head, _mm512_set1_epi16(0x0302));
    top = _mm512_and_si512(_mm512_srlv_epi16(top, top_by), _mm512_set1_epi16(3));
    low = _mm512_and_si512(low, _mm512_set1_epi16(15));
    low = _mm512_or_si512(low, _mm512_slli_epi16(top, 4));
    h->scale = _mm512_sub_epi8(_mm512_shuffle_epi8(low, twice), _mm512_set1_epi8(32));
}

/* d and dmin as words `at` and `at` + 1 of each row's lane. */
CPU_INLINE void factors_of_head(__m512i head, const int at, struct head_k *h)
{
    const __m512i from =
        _mm512_add_epi16(_mm512_castsi128_si512(_mm_set_epi16(25, 17, 9, 1, 24, 16, 8, 0)),
                         _mm512_set1_epi16((short)at));
    __m256 f = _mm256_cvtph_ps(_mm512_castsi512_si128(_mm512_permutexvar_epi16(from, head)));
    h->d = _mm256_castps256_ps128(f);
    h->dmin = _mm256_extractf128_ps(f, 1);
}

CPU_INLINE int load_u16(const uint8_t *p)
{
    uint16_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

/* d and dmin where they stand behind the quants, `off` bytes into the block. */
CPU_INLINE void factors_apart(const uint8_t *const p[4], const int off, const int has_min,
                              struct head_k *h)
{
    __m128i d = _mm_cvtsi32_si128(load_u16(p[0] + off));
    d = _mm_insert_epi16(d, load_u16(p[1] + off), 1);
    d = _mm_insert_epi16(d, load_u16(p[2] + off), 2);
    d = _mm_insert_epi16(d, load_u16(p[3] + off), 3);
    if (has_min) {
        d = _mm_insert_epi16(d, load_u16(p[0] + off + 2), 4);
        d = _mm_insert_epi16(d, load_u16(p[1] + off + 2), 5);
        d = _mm_insert_epi16(d, load_u16(p[2] + off + 2), 6);
        d = _mm_insert_epi16(d, load_u16(p[3] + off + 2), 7);
        h->dmin = _mm256_extractf128_ps(_mm256_cvtph_ps(d), 1);
    }
    h->d = _mm_cvtph_ps(d);
}

CPU_INLINE void decode_head_k(const int type, const uint8_t *const p[4], struct head_k *h)
{
    const int at = forms_k[type].head;
    __m512i head = load_4x16(p[0] + at, p[1] + at, p[2] + at, p[3] + at);
    h->min = _mm512_setzero_si512();
    h->dmin = _mm_setzero_ps();
    if (type == ATSI_TYPE_Q4_K || type == ATSI_TYPE_Q5_K) {
        scales_six_bit(head, h);
        factors_of_head(head, 0, h);
    } else if (type == ATSI_TYPE_Q2_K) {
        const __m512i low = _mm512_set1_epi8(15);
        h->scale = _mm512_and_si512(head, low);
        h->min = _mm512_and_si512(_mm512_srli_epi16(head, 4), low);
        factors_apart(p, 80, 1, h);
    } else if (type == ATSI_TYPE_Q3_K) {
        scales_q3_k(head, h);
        factors_of_head(head, 7, h);
    } else if (type == ATSI_TYPE_Q6_K) {
        h->scale = head;
        factors_apart(p, 208, 0, h);
    } else {
        scales_iq4_xs(head, h);
        factors_of_head(head, 0, h);
    }
}

/* For register u of a type's codes: picks each lane's scale out of 16 words, into both words of its
 * dwords. */
CPU_INLINE __m512i scale_index_k(const int type, const int u)
{
    const uint8_t *g = groups_k[forms_k[type].order] + 4 * u;
    return _mm512_set_epi64(g[3] * 0x0001000100010001, g[3] * 0x0001000100010001,
                            g[2] * 0x0001000100010001, g[2] * 0x0001000100010001,
                            g[1] * 0x0001000100010001, g[1] * 0x0001000100010001,
                            g[0] * 0x0001000100010001, g[0] * 0x0001000100010001);
}

#endif
