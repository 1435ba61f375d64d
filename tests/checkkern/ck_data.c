/* SPDX-License-Identifier: Apache-2.0
 * Random weights and activations of every kind that has ever hidden an error. */
#include "ck.h"

#include <string.h>

const char *const ck_mode_name[CK_N_MODES] = {"random",        "zero weights", "zero activations",
                                              "extreme codes", "tiny",         "outliers",
                                              "exact integers"};

/* splitmix64 (public domain algorithm by S. Vigna). */
uint64_t ck_random(struct ck *c)
{
    uint64_t z = c->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

float ck_unit(struct ck *c)
{
    return (float)((double)(ck_random(c) >> 40) * 0x1p-23 - 1.0);
}

/* ---------------------------------------------------------------- scales of blocks */
/* Offsets of the f16 scale, and of the f16 minimum (0: none) inside a block. */
struct scale_place {
    size_t d, m;
    bool has_m;
};

static struct scale_place scale_place(uint32_t type)
{
    switch (type) {
    case ATSI_TYPE_Q4_1:
        return (struct scale_place){0, offsetof(struct atsi_block_q4_1, m), true};
    case ATSI_TYPE_Q5_1:
        return (struct scale_place){0, offsetof(struct atsi_block_q5_1, m), true};
    case ATSI_TYPE_Q2_K:
        return (struct scale_place){offsetof(struct atsi_block_q2_k, d),
                                    offsetof(struct atsi_block_q2_k, dmin), true};
    case ATSI_TYPE_Q3_K:
        return (struct scale_place){offsetof(struct atsi_block_q3_k, d), 0, false};
    case ATSI_TYPE_Q4_K:
    case ATSI_TYPE_Q5_K: /* both begin with d, dmin */
        return (struct scale_place){0, offsetof(struct atsi_block_q4_k, dmin), true};
    case ATSI_TYPE_Q6_K:
        return (struct scale_place){offsetof(struct atsi_block_q6_k, d), 0, false};
    default: /* d comes first */
        return (struct scale_place){0, 0, false};
    }
}

static uint16_t random_scale(struct ck *c, enum ck_mode mode)
{
    uint16_t sign = (uint16_t)(ck_random(c) & 0x8000u);
    switch (mode) {
    case CK_EXACT:
        return 0x3c00; /* 1.0 */
    case CK_TINY_D:
        return (uint16_t)(sign | (ck_random(c) & 0x3ffu)); /* subnormal or zero */
    case CK_EXTREME:
        return atsi_f32_to_f16(sign != 0 ? -1.9990234F : 1.9990234F);
    case CK_OUTLIERS:
        return atsi_f32_to_f16(ck_unit(c) * (ck_random(c) % 16 == 0 ? 128.0F : 0.125F));
    default:
        return atsi_f32_to_f16(ck_unit(c) * 0.125F);
    }
}

static uint8_t random_exponent(struct ck *c, enum ck_mode mode)
{
    switch (mode) {
    case CK_EXACT:
        return 128; /* 2^(e - 128) = 1 */
    case CK_TINY_D:
        return (uint8_t)(ck_random(c) % 4); /* subnormal f32 scales at 0 and 1 */
    case CK_OUTLIERS:
        return (uint8_t)(ck_random(c) % 16 == 0 ? 136 : 122);
    default:
        return (uint8_t)(118 + ck_random(c) % 9);
    }
}

static void fill_blocks(struct ck *c, uint32_t type, enum ck_mode mode, unsigned char *w,
                        size_t n_blocks)
{
    static const uint8_t ends[] = {0x00, 0xff, 0x0f, 0xf0, 0x80, 0x7f};
    const struct atsi_type_info *ti = atsi_type_info(type);
    struct scale_place at = scale_place(type);
    for (size_t b = 0; b < n_blocks; b++, w += ti->block_bytes) {
        uint8_t end = ends[ck_random(c) % sizeof ends];
        for (uint32_t i = 0; i < ti->block_bytes; i++)
            w[i] = mode == CK_EXTREME ? end : (uint8_t)ck_random(c);
        if (type == ATSI_TYPE_MXFP4) {
            w[0] = random_exponent(c, mode);
        } else {
            uint16_t d = random_scale(c, mode), m = random_scale(c, mode);
            memcpy(w + at.d, &d, sizeof d);
            if (at.has_m)
                memcpy(w + at.m, &m, sizeof m);
        }
    }
}

/* ---------------------------------------------------------------- floats */
static float random_float(struct ck *c, enum ck_mode mode)
{
    switch (mode) {
    case CK_EXACT:
        return (float)(int32_t)(ck_random(c) % 17) - 8.0F;
    case CK_EXTREME:
        return ck_random(c) % 2 == 0 ? 1.0F : -1.0F;
    case CK_TINY_D:
        return ck_unit(c) * 1e-5F;
    case CK_OUTLIERS:
        return ck_unit(c) * (ck_random(c) % 50 == 0 ? 1000.0F : 1.0F);
    default:
        return ck_unit(c);
    }
}

void ck_fill_floats(struct ck *c, enum ck_mode mode, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = mode == CK_ZERO_X ? 0.0F : random_float(c, mode);
}

static void fill_float_weights(struct ck *c, uint32_t type, enum ck_mode mode, unsigned char *w,
                               size_t n)
{
    for (size_t i = 0; i < n; i++) {
        /* f32 weights of the tiny mode times activations of 1e-5 are subnormal products. */
        float x = random_float(c, mode) * (mode == CK_TINY_D && type != ATSI_TYPE_F16 ? 1e-33F : 1);
        uint32_t bits;
        uint16_t half;
        memcpy(&bits, &x, sizeof bits);
        half = type == ATSI_TYPE_F16 ? atsi_f32_to_f16(x) : (uint16_t)(bits >> 16);
        if (type == ATSI_TYPE_F32)
            memcpy(w + 4 * i, &x, 4);
        else
            memcpy(w + 2 * i, &half, 2);
    }
}

void ck_fill_weights(struct ck *c, uint32_t type, enum ck_mode mode, void *w, size_t n)
{
    const struct atsi_type_info *ti = atsi_type_info(type);
    if (mode == CK_ZERO_W)
        memset(w, 0, n / ti->block_elems * ti->block_bytes);
    else if (ti->block_elems == 1)
        fill_float_weights(c, type, mode, w, n);
    else
        fill_blocks(c, type, mode, w, n / ti->block_elems);
}
