/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding of every block type, element by element as docs/formats.md states it: the plainest
 * possible code, since everything else is judged by it.
 */
#include "ref_block.h"

static void start(struct ref_block *b, uint32_t n, uint32_t sub, float d, float dmin)
{
    b->n = n;
    b->sub = sub;
    b->d = d;
    b->dmin = dmin;
    for (uint32_t g = 0; g < 16; g++) {
        b->sc[g] = 1;
        b->mn[g] = 0;
    }
}

/* Element e of 16 bytes whose low nibbles are elements 0-15 and whose high nibbles are 16-31. */
static int32_t nibble(const uint8_t *qs, uint32_t e)
{
    return e < 16 ? qs[e] & 15 : qs[e - 16] >> 4;
}

static int32_t fifth_bit(const uint8_t *qh, uint32_t e)
{
    return (qh[e / 8] >> (e % 8) & 1) * 16;
}

static void decode_q4_0(const void *block, struct ref_block *out)
{
    const struct atsi_block_q4_0 *b = block;
    start(out, 32, 32, atsi_f16_to_f32(b->d), 0);
    for (uint32_t e = 0; e < 32; e++)
        out->q[e] = nibble(b->qs, e) - 8;
}

static void decode_q4_1(const void *block, struct ref_block *out)
{
    const struct atsi_block_q4_1 *b = block;
    start(out, 32, 32, atsi_f16_to_f32(b->d), -atsi_f16_to_f32(b->m));
    out->mn[0] = 1;
    for (uint32_t e = 0; e < 32; e++)
        out->q[e] = nibble(b->qs, e);
}

static void decode_q5_0(const void *block, struct ref_block *out)
{
    const struct atsi_block_q5_0 *b = block;
    start(out, 32, 32, atsi_f16_to_f32(b->d), 0);
    for (uint32_t e = 0; e < 32; e++)
        out->q[e] = nibble(b->qs, e) + fifth_bit(b->qh, e) - 16;
}

static void decode_q5_1(const void *block, struct ref_block *out)
{
    const struct atsi_block_q5_1 *b = block;
    start(out, 32, 32, atsi_f16_to_f32(b->d), -atsi_f16_to_f32(b->m));
    out->mn[0] = 1;
    for (uint32_t e = 0; e < 32; e++)
        out->q[e] = nibble(b->qs, e) + fifth_bit(b->qh, e);
}

static void decode_q8_0(const void *block, struct ref_block *out)
{
    const struct atsi_block_q8_0 *b = block;
    start(out, 32, 32, atsi_f16_to_f32(b->d), 0);
    for (uint32_t e = 0; e < 32; e++)
        out->q[e] = b->qs[e];
}

static void decode_iq4_nl(const void *block, struct ref_block *out)
{
    const struct atsi_block_iq4_nl *b = block;
    start(out, 32, 32, atsi_f16_to_f32(b->d), 0);
    for (uint32_t e = 0; e < 32; e++)
        out->q[e] = atsi_iq4_values[nibble(b->qs, e)];
}

static void decode_mxfp4(const void *block, struct ref_block *out)
{
    const struct atsi_block_mxfp4 *b = block;
    start(out, 32, 32, atsi_e8m0_half(b->e), 0);
    for (uint32_t e = 0; e < 32; e++)
        out->q[e] = atsi_mxfp4_values[nibble(b->qs, e)];
}

/* Two bits of element e: 32 bytes serve 128 elements, four shifts each. */
static int32_t two_bits(const uint8_t *qs, uint32_t e)
{
    uint32_t r = e % 128;
    return qs[32 * (e / 128) + r % 32] >> (2 * (r / 32)) & 3;
}

static void decode_q2_k(const void *block, struct ref_block *out)
{
    const struct atsi_block_q2_k *b = block;
    start(out, 256, 16, atsi_f16_to_f32(b->d), atsi_f16_to_f32(b->dmin));
    for (uint32_t g = 0; g < 16; g++) {
        out->sc[g] = b->scales[g] & 15;
        out->mn[g] = b->scales[g] >> 4;
    }
    for (uint32_t e = 0; e < 256; e++)
        out->q[e] = two_bits(b->qs, e);
}

static void decode_q3_k(const void *block, struct ref_block *out)
{
    const struct atsi_block_q3_k *b = block;
    start(out, 256, 16, atsi_f16_to_f32(b->d), 0);
    for (uint32_t g = 0; g < 16; g++) {
        int32_t low = g < 8 ? b->scales[g] & 15 : b->scales[g - 8] >> 4;
        int32_t top = b->scales[8 + g % 4] >> (2 * (g / 4)) & 3;
        out->sc[g] = low + 16 * top - 32;
    }
    for (uint32_t e = 0; e < 256; e++)
        out->q[e] = two_bits(b->qs, e) - ((b->hmask[e % 32] >> (e / 32) & 1) != 0 ? 0 : 4);
}

/* Six-bit scales and mins of Q4_K and Q5_K, packed in 12 bytes. */
static void scales_k4(const uint8_t *s, struct ref_block *out)
{
    for (uint32_t j = 0; j < 8; j++) {
        if (j < 4) {
            out->sc[j] = s[j] & 63;
            out->mn[j] = s[j + 4] & 63;
        } else {
            out->sc[j] = (s[j + 4] & 15) + 16 * (s[j - 4] >> 6);
            out->mn[j] = (s[j + 4] >> 4) + 16 * (s[j] >> 6);
        }
    }
}

/* A group of 32 bytes serves 64 elements: low nibbles first, then high ones. */
static int32_t nibble_k(const uint8_t *qs, uint32_t e)
{
    uint32_t j = e / 32, byte = qs[32 * (j / 2) + e % 32];
    return (int32_t)(j % 2 == 0 ? byte & 15 : byte >> 4);
}

static void decode_q4_k(const void *block, struct ref_block *out)
{
    const struct atsi_block_q4_k *b = block;
    start(out, 256, 32, atsi_f16_to_f32(b->d), atsi_f16_to_f32(b->dmin));
    scales_k4(b->scales, out);
    for (uint32_t e = 0; e < 256; e++)
        out->q[e] = nibble_k(b->qs, e);
}

static void decode_q5_k(const void *block, struct ref_block *out)
{
    const struct atsi_block_q5_k *b = block;
    start(out, 256, 32, atsi_f16_to_f32(b->d), atsi_f16_to_f32(b->dmin));
    scales_k4(b->scales, out);
    for (uint32_t e = 0; e < 256; e++)
        out->q[e] = nibble_k(b->qs, e) + 16 * (b->qh[e % 32] >> (e / 32) & 1);
}

static void decode_q6_k(const void *block, struct ref_block *out)
{
    const struct atsi_block_q6_k *b = block;
    start(out, 256, 16, atsi_f16_to_f32(b->d), 0);
    for (uint32_t g = 0; g < 16; g++)
        out->sc[g] = b->scales[g];
    for (uint32_t e = 0; e < 256; e++) {
        uint32_t n = e / 128, r = e % 128, k = r / 32, l = r % 32;
        uint32_t byte = b->ql[64 * n + l + 32 * (k % 2)];
        int32_t low = (int32_t)(k < 2 ? byte & 15 : byte >> 4);
        out->q[e] = low + 16 * (b->qh[32 * n + l] >> (2 * k) & 3) - 32;
    }
}

static void decode_iq4_xs(const void *block, struct ref_block *out)
{
    const struct atsi_block_iq4_xs *b = block;
    start(out, 256, 32, atsi_f16_to_f32(b->d), 0);
    for (uint32_t j = 0; j < 8; j++) {
        int32_t low = j % 2 == 0 ? b->scales_l[j / 2] & 15 : b->scales_l[j / 2] >> 4;
        out->sc[j] = low + 16 * (b->scales_h >> (2 * j) & 3) - 32;
    }
    for (uint32_t e = 0; e < 256; e++)
        out->q[e] = atsi_iq4_values[nibble(b->qs + (size_t)16 * (e / 32), e % 32)];
}

ref_decode_fn *ref_decoder(uint32_t type)
{
    switch (type) {
    case ATSI_TYPE_Q4_0:
        return decode_q4_0;
    case ATSI_TYPE_Q4_1:
        return decode_q4_1;
    case ATSI_TYPE_Q5_0:
        return decode_q5_0;
    case ATSI_TYPE_Q5_1:
        return decode_q5_1;
    case ATSI_TYPE_Q8_0:
        return decode_q8_0;
    case ATSI_TYPE_Q2_K:
        return decode_q2_k;
    case ATSI_TYPE_Q3_K:
        return decode_q3_k;
    case ATSI_TYPE_Q4_K:
        return decode_q4_k;
    case ATSI_TYPE_Q5_K:
        return decode_q5_k;
    case ATSI_TYPE_Q6_K:
        return decode_q6_k;
    case ATSI_TYPE_IQ4_NL:
        return decode_iq4_nl;
    case ATSI_TYPE_IQ4_XS:
        return decode_iq4_xs;
    case ATSI_TYPE_MXFP4:
        return decode_mxfp4;
    default:
        return NULL;
    }
}
