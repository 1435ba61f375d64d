/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor element types: ids, block sizes and the bytes of one block.
 *
 * Ids equal the GGUF tensor type ids, so a loader needs no translation.  A row of ne[0] elements is
 * ne[0] / block_elems consecutive blocks; blocks never span rows.  All fields are little-endian.
 * Source: the GGUF specification's type list; see docs/formats.md for how each block decodes.
 */
#ifndef ATSINFER_QUANT_H
#define ATSINFER_QUANT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#define ATSI_STATIC_ASSERT static_assert
#else
#define ATSI_STATIC_ASSERT _Static_assert
#endif

enum atsi_type {
    ATSI_TYPE_F32 = 0,
    ATSI_TYPE_F16 = 1,
    ATSI_TYPE_Q4_0 = 2,
    ATSI_TYPE_Q4_1 = 3,
    ATSI_TYPE_Q5_0 = 6,
    ATSI_TYPE_Q5_1 = 7,
    ATSI_TYPE_Q8_0 = 8,
    ATSI_TYPE_Q2_K = 10,
    ATSI_TYPE_Q3_K = 11,
    ATSI_TYPE_Q4_K = 12,
    ATSI_TYPE_Q5_K = 13,
    ATSI_TYPE_Q6_K = 14,
    ATSI_TYPE_IQ4_NL = 20,
    ATSI_TYPE_IQ4_XS = 23,
    ATSI_TYPE_I32 = 26,
    ATSI_TYPE_BF16 = 30,
    ATSI_TYPE_MXFP4 = 39,
    ATSI_TYPE_COUNT = 40 /* one past the largest id; most ids below it are unused */
};

/* Blocks of 32: byte j of qs holds element j in its low and element j + 16 in its high nibble. */
struct atsi_block_q4_0 { /* value = d * (q - 8) */
    uint16_t d;          /* f16 */
    uint8_t qs[16];
};
struct atsi_block_q4_1 { /* value = d * q + m */
    uint16_t d, m;       /* f16 */
    uint8_t qs[16];
};
struct atsi_block_q5_0 { /* value = d * (q - 16); bit e of the 32-bit word qh is bit 4 of element e
                          */
    uint16_t d;
    uint8_t qh[4];
    uint8_t qs[16];
};
struct atsi_block_q5_1 { /* value = d * q + m */
    uint16_t d, m;
    uint8_t qh[4];
    uint8_t qs[16];
};
struct atsi_block_q8_0 { /* value = d * q */
    uint16_t d;
    int8_t qs[32];
};
struct atsi_block_iq4_nl { /* value = d * atsi_iq4_values[q] */
    uint16_t d;
    uint8_t qs[16];
};
struct atsi_block_mxfp4 { /* value = 2^(e-128) * atsi_mxfp4_values[q] (the table is doubled) */
    uint8_t e;            /* e8m0 */
    uint8_t qs[16];
};

/* Super-blocks of 256. */
struct atsi_block_q2_k { /* 16 sub-blocks of 16: d * lo(scales) * q - dmin * hi(scales) */
    uint8_t scales[16];
    uint8_t qs[64];
    uint16_t d, dmin;
};
struct atsi_block_q3_k { /* 16 sub-blocks of 16, 6-bit scales - 32 */
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint16_t d;
};
struct atsi_block_q4_k { /* 8 sub-blocks of 32, 6-bit scale and min pairs */
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
};
struct atsi_block_q5_k {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
};
struct atsi_block_q6_k { /* 16 sub-blocks of 16, signed 8-bit scales, q - 32 */
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
};
struct atsi_block_iq4_xs { /* 8 sub-blocks of 32, 6-bit scales - 32, table as IQ4_NL */
    uint16_t d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
};

ATSI_STATIC_ASSERT(sizeof(struct atsi_block_q4_0) == 18, "Q4_0 block");
ATSI_STATIC_ASSERT(sizeof(struct atsi_block_q4_1) == 20, "Q4_1 block");
ATSI_STATIC_ASSERT(sizeof(struct atsi_block_q5_0) == 22, "Q5_0 block");
ATSI_STATIC_ASSERT(sizeof(struct atsi_block_q5_1) == 24, "Q5_1 block");
ATSI_STATIC_ASSERT(sizeof(struct atsi_block_q8_0) == 34, "Q8_0 block");
ATSI_STATIC_ASSERT(sizeof(struct atsi_block_iq4_nl) == 18, "IQ4_NL block");
ATSI_STATIC_ASSERT(sizeof(struct atsi_block_mxfp4) == 17, "MXFP4 block");
ATSI_STATIC_ASSERT(sizeof(struct atsi_block_q2_k) == 84, "Q2_K block");
ATSI_STATIC_ASSERT(sizeof(struct atsi_block_q3_k) == 110, "Q3_K block");
ATSI_STATIC_ASSERT(sizeof(struct atsi_block_q4_k) == 144, "Q4_K block");
ATSI_STATIC_ASSERT(sizeof(struct atsi_block_q5_k) == 176, "Q5_K block");
ATSI_STATIC_ASSERT(sizeof(struct atsi_block_q6_k) == 210, "Q6_K block");
ATSI_STATIC_ASSERT(sizeof(struct atsi_block_iq4_xs) == 136, "IQ4_XS block");

static const int8_t atsi_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t atsi_mxfp4_values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};

/* How the rounding of activations follows from the weight's type (docs/formats.md, "Activations"):
 * the same on every backend, so that answers do not depend on where an operator runs. */
enum atsi_act {
    ATSI_ACT_F32 = 0,   /* exact float activations */
    ATSI_ACT_Q8_32 = 1, /* 8-bit, one scale per 32 elements */
    ATSI_ACT_Q8_256 = 2 /* 8-bit, one scale per 256 elements */
};

struct atsi_type_info {
    const char *name; /* NULL: not a type this library computes with */
    uint32_t block_elems;
    uint32_t block_bytes;
    enum atsi_act act; /* for matrix products with weights of this type */
};

/* [any thread]  Facts of `type`, or NULL when this library does not compute with it. */
static inline const struct atsi_type_info *atsi_type_info(uint32_t type)
{
    static const struct atsi_type_info table[ATSI_TYPE_COUNT] = {
        /* 0 */ {"F32", 1, 4, ATSI_ACT_F32},
        /* 1 */ {"F16", 1, 2, ATSI_ACT_F32},
        /* 2 */ {"Q4_0", 32, 18, ATSI_ACT_Q8_32},
        /* 3 */ {"Q4_1", 32, 20, ATSI_ACT_Q8_32},
        /* 4 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 5 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 6 */ {"Q5_0", 32, 22, ATSI_ACT_Q8_32},
        /* 7 */ {"Q5_1", 32, 24, ATSI_ACT_Q8_32},
        /* 8 */ {"Q8_0", 32, 34, ATSI_ACT_Q8_32},
        /* 9 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 10 */ {"Q2_K", 256, 84, ATSI_ACT_Q8_256},
        /* 11 */ {"Q3_K", 256, 110, ATSI_ACT_Q8_256},
        /* 12 */ {"Q4_K", 256, 144, ATSI_ACT_Q8_256},
        /* 13 */ {"Q5_K", 256, 176, ATSI_ACT_Q8_256},
        /* 14 */ {"Q6_K", 256, 210, ATSI_ACT_Q8_256},
        /* 15 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 16 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 17 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 18 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 19 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 20 */ {"IQ4_NL", 32, 18, ATSI_ACT_Q8_32},
        /* 21 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 22 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 23 */ {"IQ4_XS", 256, 136, ATSI_ACT_Q8_256},
        /* 24 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 25 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 26 */ {"I32", 1, 4, ATSI_ACT_F32},
        /* 27 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 28 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 29 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 30 */ {"BF16", 1, 2, ATSI_ACT_F32},
        /* 31 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 32 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 33 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 34 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 35 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 36 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 37 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 38 */ {NULL, 0, 0, ATSI_ACT_F32},
        /* 39 */ {"MXFP4", 32, 17, ATSI_ACT_Q8_32},
    };
    if (type >= ATSI_TYPE_COUNT || table[type].name == NULL)
        return NULL;
    return &table[type];
}

/* [any thread]  Bytes of one row of `elems` elements, or 0 when the type is unknown or `elems` is
 * no multiple of its block.  Does not overflow for elems < 2^56. */
static inline uint64_t atsi_row_bytes(uint32_t type, uint64_t elems)
{
    const struct atsi_type_info *ti = atsi_type_info(type);
    if (ti == NULL || elems % ti->block_elems != 0)
        return 0;
    return elems / ti->block_elems * ti->block_bytes;
}

/* IEEE binary16 to binary32, exact.  Portable, for reference code and single values. */
static inline float atsi_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 31u, man = h & 1023u, bits;
    float f;
    if (exp == 31u) { /* infinity, NaN */
        bits = sign | 0x7f800000u | (man << 13);
    } else if (exp != 0u) {
        bits = sign | ((exp + 112u) << 23) | (man << 13);
    } else if (man == 0u) {
        bits = sign;
    } else { /* subnormal: normalise */
        uint32_t shift = 0;
        while ((man & 1024u) == 0u) {
            man <<= 1;
            shift++;
        }
        bits = sign | ((113u - shift) << 23) | ((man & 1023u) << 13);
    }
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* binary32 to binary16, round to nearest even. */
static inline uint16_t atsi_f32_to_f16(float f)
{
    uint32_t bits, sign, man;
    int32_t exp;
    memcpy(&bits, &f, sizeof bits);
    sign = (bits >> 16) & 0x8000u;
    man = bits & 0x7fffffu;
    exp = (int32_t)((bits >> 23) & 255u) - 127;
    if (exp == 128) /* infinity, NaN (kept quiet) */
        return (uint16_t)(sign | 0x7c00u | (man != 0u ? 0x200u | (man >> 13) : 0u));
    if (exp > 15)
        return (uint16_t)(sign | 0x7c00u);
    if (exp >= -14) {
        uint32_t half = sign | ((uint32_t)(exp + 15) << 10) | (man >> 13), rest = man & 0x1fffu;
        if (rest > 0x1000u || (rest == 0x1000u && (half & 1u) != 0u))
            half++; /* may carry into the exponent, up to infinity: correct */
        return (uint16_t)half;
    }
    if (exp >= -25) { /* subnormal */
        uint32_t full = man | 0x800000u, shift = (uint32_t)(-exp - 1), half = full >> shift;
        uint32_t rest = full & ((1u << shift) - 1u), mid = 1u << (shift - 1u);
        if (rest > mid || (rest == mid && (half & 1u) != 0u))
            half++;
        return (uint16_t)(sign | half);
    }
    return (uint16_t)sign;
}

static inline float atsi_bf16_to_f32(uint16_t b)
{
    uint32_t bits = (uint32_t)b << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* MXFP4's halved scale 2^(e-128), subnormals included. */
static inline float atsi_e8m0_half(uint8_t e)
{
    uint32_t bits = e >= 2 ? (uint32_t)(e - 1) << 23 : (e == 1 ? 0x00400000u : 0x00200000u);
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

#ifdef __cplusplus
}
#endif
#endif
