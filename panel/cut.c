/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting blocks into what panels hold and joining them again: the bit-level part of
 * atsinfer/panel.h, which draws every form.
 */
#include "panel/cut.h"

/* Sixteen bytes at once: columns 4 t + x of a run of sixteen. */
typedef uint8_t bytes16 __attribute__((vector_size(16)));

static bytes16 load16(const uint8_t *p)
{
    bytes16 v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void store16(uint8_t *p, bytes16 v)
{
    memcpy(p, &v, sizeof v);
}

static uint32_t load4(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void store4(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

/* ---------------------------------------------------------------- blocks of 32 */
/* Bit 4 c + x of the file's word is bit c of byte x here. */
static uint32_t cut_fifth(uint32_t word)
{
    uint32_t v = 0;
    for (uint32_t c = 0; c < 8; c++) /* four bits, one to each byte */
        v |= ((word >> (4 * c) & 15u) * 0x00204081u & 0x01010101u) << c;
    return v;
}

static uint32_t join_fifth(uint32_t v)
{
    uint32_t word = 0;
    for (uint32_t c = 0; c < 8; c++)
        word |= ((v >> c & 0x01010101u) * 0x00204081u >> 21 & 15u) << (4 * c);
    return word;
}

static void cut_q4_0(const uint8_t *b, uint8_t *head, uint8_t *body)
{
    memcpy(head, b, 2);
    memcpy(body, b + 2, 16);
}

static void join_q4_0(const uint8_t *head, const uint8_t *body, uint8_t *b)
{
    memcpy(b, head, 2);
    memcpy(b + 2, body, 16);
}

static void cut_q4_1(const uint8_t *b, uint8_t *head, uint8_t *body)
{
    memcpy(head, b, 4);
    memcpy(body, b + 4, 16);
}

static void join_q4_1(const uint8_t *head, const uint8_t *body, uint8_t *b)
{
    memcpy(b, head, 4);
    memcpy(b + 4, body, 16);
}

static void cut_q5_0(const uint8_t *b, uint8_t *head, uint8_t *body)
{
    memcpy(head, b, 2);
    store4(body, cut_fifth(load4(b + 2)));
    memcpy(body + 4, b + 6, 16);
}

static void join_q5_0(const uint8_t *head, const uint8_t *body, uint8_t *b)
{
    memcpy(b, head, 2);
    store4(b + 2, join_fifth(load4(body)));
    memcpy(b + 6, body + 4, 16);
}

static void cut_q5_1(const uint8_t *b, uint8_t *head, uint8_t *body)
{
    memcpy(head, b, 4);
    store4(body, cut_fifth(load4(b + 4)));
    memcpy(body + 4, b + 8, 16);
}

static void join_q5_1(const uint8_t *head, const uint8_t *body, uint8_t *b)
{
    memcpy(b, head, 4);
    store4(b + 4, join_fifth(load4(body)));
    memcpy(b + 8, body + 4, 16);
}

static void cut_q8_0(const uint8_t *b, uint8_t *head, uint8_t *body)
{
    memcpy(head, b, 2);
    store16(body, load16(b + 2) ^ 0x80);
    store16(body + 16, load16(b + 18) ^ 0x80);
}

static void join_q8_0(const uint8_t *head, const uint8_t *body, uint8_t *b)
{
    memcpy(b, head, 2);
    store16(b + 2, load16(body) ^ 0x80);
    store16(b + 18, load16(body + 16) ^ 0x80);
}

static void cut_mxfp4(const uint8_t *b, uint8_t *head, uint8_t *body)
{
    memcpy(head, b, 1);
    memcpy(body, b + 1, 16);
}

static void join_mxfp4(const uint8_t *head, const uint8_t *body, uint8_t *b)
{
    memcpy(b, head, 1);
    memcpy(b + 1, body, 16);
}

/* ---------------------------------------------------------------- super-blocks */
/* d and dmin lie behind the codes in the file. */
static void cut_q2_k(const uint8_t *b, uint8_t *head, uint8_t *body)
{
    memcpy(head, b + 80, 4);
    memcpy(body, b, 80);
}

static void join_q2_k(const uint8_t *head, const uint8_t *body, uint8_t *b)
{
    memcpy(b + 80, head, 4);
    memcpy(b, body, 80);
}

static void cut_q3_k(const uint8_t *b, uint8_t *head, uint8_t *body)
{
    const uint8_t *hmask = b, *qs = b + 32;
    memcpy(head, b + 108, 2);
    memcpy(body, b + 96, 12);
    for (uint32_t u = 0; u < 2; u++) {
        uint8_t *to = body + 12 + 48 * u;
        bytes16 v[8];
        for (uint32_t i = 0; i < 8; i++) {
            bytes16 low = load16(qs + 32 * u + 16 * (i & 1)), high = load16(hmask + 16 * (i & 1));
            v[i] = (low >> (uint8_t)(i & 6) & 3) | (high >> (uint8_t)(4 * u + i / 2) & 1) << 2;
        }
        store16(to, v[0] | v[1] << 3 | v[6] >> 1 << 6);
        store16(to + 16, v[2] | v[3] << 3 | (v[6] & 1) << 6 | v[7] << 7);
        store16(to + 32, v[4] | v[5] << 3 | v[7] >> 1 << 6);
    }
}

static void join_q3_k(const uint8_t *head, const uint8_t *body, uint8_t *b)
{
    bytes16 low[2][2], high[2] = {{0}, {0}};
    for (uint32_t u = 0; u < 2; u++) {
        const uint8_t *from = body + 12 + 48 * u;
        bytes16 z[3] = {load16(from), load16(from + 16), load16(from + 32)}, v[8];
        low[u][0] = low[u][1] = (bytes16){0};
        for (uint32_t i = 0; i < 6; i++)
            v[i] = z[i / 2] >> (uint8_t)(3 * (i & 1)) & 7;
        v[6] = z[0] >> 6 << 1 | (z[1] >> 6 & 1);
        v[7] = z[2] >> 6 << 1 | z[1] >> 7;
        for (uint32_t i = 0; i < 8; i++) {
            low[u][i & 1] |= (v[i] & 3) << (uint8_t)(i & 6);
            high[i & 1] |= v[i] >> 2 << (uint8_t)(4 * u + i / 2);
        }
    }
    for (uint32_t h = 0; h < 2; h++) {
        store16(b + 16 * h, high[h]);
        store16(b + 32 + 16 * h, low[0][h]);
        store16(b + 64 + 16 * h, low[1][h]);
    }
    memcpy(b + 96, body, 12);
    memcpy(b + 108, head, 2);
}

static void cut_q4_k(const uint8_t *b, uint8_t *head, uint8_t *body)
{
    memcpy(head, b, 4);
    memcpy(body, b + 4, 140);
}

static void join_q4_k(const uint8_t *head, const uint8_t *body, uint8_t *b)
{
    memcpy(b, head, 4);
    memcpy(b + 4, body, 140);
}

#define ONE_PER_BYTE 0x01010101u

static void cut_q5_k(const uint8_t *b, uint8_t *head, uint8_t *body)
{
    const uint8_t *qh = b + 16, *qs = b + 48;
    memcpy(head, b, 4);
    memcpy(body, b + 4, 12);
    for (uint32_t g = 0; g < 4; g++) {
        uint8_t *to = body + 12 + 40 * g;
        for (uint32_t z = 0; z < 2; z++) {
            uint32_t v = 0;
            for (uint32_t c = 0; c < 4; c++) {
                uint32_t bits = load4(qh + 16 * z + 4 * c) >> (2 * g);
                v |= (bits & ONE_PER_BYTE) << c | (bits >> 1 & ONE_PER_BYTE) << (4 + c);
            }
            store4(to + 4 * z, v);
        }
        memcpy(to + 8, qs + 32 * g, 32);
    }
}

static void join_q5_k(const uint8_t *head, const uint8_t *body, uint8_t *b)
{
    uint8_t *qh = b + 16, *qs = b + 48;
    memcpy(b, head, 4);
    memcpy(b + 4, body, 12);
    for (uint32_t c = 0; c < 8; c++) {
        uint32_t bits = 0;
        for (uint32_t g = 0; g < 4; g++) {
            uint32_t v = load4(body + 12 + 40 * g + 4 * (c / 4)) >> c % 4;
            bits |= (v & ONE_PER_BYTE) << (2 * g) | (v >> 4 & ONE_PER_BYTE) << (2 * g + 1);
        }
        store4(qh + 4 * c, bits);
    }
    for (uint32_t g = 0; g < 4; g++)
        memcpy(qs + 32 * g, body + 12 + 40 * g + 8, 32);
}

static void cut_q6_k(const uint8_t *b, uint8_t *head, uint8_t *body)
{
    const uint8_t *ql = b, *qh = b + 128;
    memcpy(head, b + 208, 2);
    memcpy(body, b + 192, 16);
    for (uint32_t u = 0; u < 4; u++) {
        bytes16 v[4];
        for (uint32_t i = 0; i < 4; i++) {
            bytes16 low = load16(ql + 64 * (u / 2) + 16 * i);
            bytes16 high = load16(qh + 32 * (u / 2) + 16 * (i & 1));
            low = (u & 1) != 0 ? low >> 4 : low & 15;
            v[i] = low | (high >> (uint8_t)(4 * (u & 1) + (i & 2)) & 3) << 4;
        }
        for (uint32_t z = 0; z < 3; z++)
            store16(body + 16 + 48 * u + 16 * z, v[z] | v[3] >> (uint8_t)(4 - 2 * z) << 6);
    }
}

static void join_q6_k(const uint8_t *head, const uint8_t *body, uint8_t *b)
{
    for (uint32_t h = 0; h < 2; h++) { /* 128 columns */
        bytes16 low[4], high[2] = {{0}, {0}};
        for (uint32_t i = 0; i < 4; i++)
            low[i] = (bytes16){0};
        for (uint32_t s = 0; s < 2; s++) {
            const uint8_t *from = body + 16 + 48 * (2 * h + s);
            bytes16 v[4] = {load16(from), load16(from + 16), load16(from + 32)};
            v[3] = v[0] >> 6 << 4 | v[1] >> 6 << 2 | v[2] >> 6;
            for (uint32_t i = 0; i < 4; i++) {
                low[i] |= (v[i] & 15) << (uint8_t)(4 * s);
                high[i & 1] |= (v[i] >> 4 & 3) << (uint8_t)(4 * s + (i & 2));
            }
        }
        for (uint32_t i = 0; i < 4; i++)
            store16(b + 64 * h + 16 * i, low[i]);
        store16(b + 128 + 32 * h, high[0]);
        store16(b + 144 + 32 * h, high[1]);
    }
    memcpy(b + 192, body, 16);
    memcpy(b + 208, head, 2);
}

static void cut_iq4_xs(const uint8_t *b, uint8_t *head, uint8_t *body)
{
    memcpy(head, b, 4);
    memcpy(body, b + 4, 132);
}

static void join_iq4_xs(const uint8_t *head, const uint8_t *body, uint8_t *b)
{
    memcpy(b, head, 4);
    memcpy(b + 4, body, 132);
}

const struct panel_cutter *panel_cutter(uint32_t type)
{
    static const struct panel_cutter table[ATSI_TYPE_COUNT] = {
        [ATSI_TYPE_Q4_0] = {cut_q4_0, join_q4_0, 4},
        [ATSI_TYPE_Q4_1] = {cut_q4_1, join_q4_1, 4},
        [ATSI_TYPE_Q5_0] = {cut_q5_0, join_q5_0, 5},
        [ATSI_TYPE_Q5_1] = {cut_q5_1, join_q5_1, 5},
        [ATSI_TYPE_Q8_0] = {cut_q8_0, join_q8_0, 8},
        [ATSI_TYPE_IQ4_NL] = {cut_q4_0, join_q4_0, 4},
        [ATSI_TYPE_MXFP4] = {cut_mxfp4, join_mxfp4, 4},
        [ATSI_TYPE_Q2_K] = {cut_q2_k, join_q2_k, 20},
        [ATSI_TYPE_Q3_K] = {cut_q3_k, join_q3_k, 3},
        [ATSI_TYPE_Q4_K] = {cut_q4_k, join_q4_k, 35},
        [ATSI_TYPE_Q5_K] = {cut_q5_k, join_q5_k, 43},
        [ATSI_TYPE_Q6_K] = {cut_q6_k, join_q6_k, 4},
        [ATSI_TYPE_IQ4_XS] = {cut_iq4_xs, join_iq4_xs, 33},
    };
    return &table[type];
}
