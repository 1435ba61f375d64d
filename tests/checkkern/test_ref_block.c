/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference dequantizers, bit by bit: starting from a block of zero codes and known scales,
 * each bit of the codes must change exactly one element by its weight, and each bit of the scales
 * exactly one sub-block.  The maps below go from byte and bit to element, the opposite way of the
 * decoders.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cpu_kernels.h"

#define F16_ONE 0x3c00u

/* What one bit of a block means. */
struct meaning {
    enum { NOTHING, CODE, SCALE, MIN } what;
    uint32_t index; /* element, or sub-block */
    int weight;     /* what the bit adds to the integer; sign bits are negative */
};

static struct meaning code(uint32_t e, int weight)
{
    return (struct meaning){CODE, e, weight};
}

/* Blocks of 32: low nibbles are elements 0-15, high nibbles 16-31. */
static struct meaning nibble_32(uint32_t byte, uint32_t bit)
{
    return bit < 4 ? code(byte, 1 << bit) : code(byte + 16, 1 << (bit - 4));
}

static struct meaning map_q4_0(uint32_t at, uint32_t bit)
{
    return at < 2 ? (struct meaning){NOTHING, 0, 0} : nibble_32(at - 2, bit);
}

static struct meaning map_q4_1(uint32_t at, uint32_t bit)
{
    return at < 4 ? (struct meaning){NOTHING, 0, 0} : nibble_32(at - 4, bit);
}

static struct meaning map_q5_0(uint32_t at, uint32_t bit)
{
    if (at < 2)
        return (struct meaning){NOTHING, 0, 0};
    return at < 6 ? code(8 * (at - 2) + bit, 16) : nibble_32(at - 6, bit);
}

static struct meaning map_q5_1(uint32_t at, uint32_t bit)
{
    if (at < 4)
        return (struct meaning){NOTHING, 0, 0};
    return at < 8 ? code(8 * (at - 4) + bit, 16) : nibble_32(at - 8, bit);
}

static struct meaning map_q8_0(uint32_t at, uint32_t bit)
{
    if (at < 2)
        return (struct meaning){NOTHING, 0, 0};
    return code(at - 2, bit == 7 ? -128 : 1 << bit);
}

static struct meaning map_mxfp4(uint32_t at, uint32_t bit)
{
    return at < 1 ? (struct meaning){NOTHING, 0, 0} : nibble_32(at - 1, bit);
}

/* 64 bytes of two-bit codes: 32 bytes for 128 elements, four rounds of 32. */
static struct meaning two_bits(uint32_t byte, uint32_t bit)
{
    return code(128 * (byte / 32) + 32 * (bit / 2) + byte % 32, 1 << bit % 2);
}

static struct meaning map_q2_k(uint32_t at, uint32_t bit)
{
    if (at < 16)
        return bit < 4 ? (struct meaning){SCALE, at, 1 << bit}
                       : (struct meaning){MIN, at, 1 << (bit - 4)};
    return at < 80 ? two_bits(at - 16, bit) : (struct meaning){NOTHING, 0, 0};
}

static struct meaning map_q3_k(uint32_t at, uint32_t bit)
{
    if (at < 32)
        return code(32 * bit + at, 4);
    if (at < 96)
        return two_bits(at - 32, bit);
    if (at < 104)
        return bit < 4 ? (struct meaning){SCALE, at - 96, 1 << bit}
                       : (struct meaning){SCALE, at - 96 + 8, 1 << (bit - 4)};
    if (at < 108)
        return (struct meaning){SCALE, at - 104 + 4 * (bit / 2), 16 << bit % 2};
    return (struct meaning){NOTHING, 0, 0};
}

/* The 12 bytes of six-bit scales and mins. */
static struct meaning scales_12(uint32_t i, uint32_t bit)
{
    if (i < 8) { /* bytes 0-3: scales, 4-7: mins; two bits of each belong to the fourth after */
        int what = i < 4 ? SCALE : MIN;
        return bit < 6 ? (struct meaning){what, i % 4, 1 << bit}
                       : (struct meaning){what, i % 4 + 4, 16 << (bit - 6)};
    }
    return bit < 4 ? (struct meaning){SCALE, i - 8 + 4, 1 << bit}
                   : (struct meaning){MIN, i - 8 + 4, 1 << (bit - 4)};
}

/* 128 bytes of nibbles: 32 bytes for 64 elements. */
static struct meaning nibble_k(uint32_t byte, uint32_t bit)
{
    uint32_t e = 64 * (byte / 32) + byte % 32;
    return bit < 4 ? code(e, 1 << bit) : code(e + 32, 1 << (bit - 4));
}

static struct meaning map_q4_k(uint32_t at, uint32_t bit)
{
    if (at < 4)
        return (struct meaning){NOTHING, 0, 0};
    return at < 16 ? scales_12(at - 4, bit) : nibble_k(at - 16, bit);
}

static struct meaning map_q5_k(uint32_t at, uint32_t bit)
{
    if (at < 4)
        return (struct meaning){NOTHING, 0, 0};
    if (at < 16)
        return scales_12(at - 4, bit);
    return at < 48 ? code(32 * bit + at - 16, 16) : nibble_k(at - 48, bit);
}

static struct meaning map_q6_k(uint32_t at, uint32_t bit)
{
    if (at < 128) /* 64 bytes for 128 elements: low nibbles the first 64, high ones the rest */
        return code(128 * (at / 64) + at % 64 + (bit < 4 ? 0 : 64), 1 << bit % 4);
    if (at < 192) {
        uint32_t byte = at - 128;
        return code(128 * (byte / 32) + 32 * (bit / 2) + byte % 32, 16 << bit % 2);
    }
    if (at < 208)
        return (struct meaning){SCALE, at - 192, bit == 7 ? -128 : 1 << bit};
    return (struct meaning){NOTHING, 0, 0};
}

static struct meaning map_iq4_xs(uint32_t at, uint32_t bit)
{
    if (at < 2)
        return (struct meaning){NOTHING, 0, 0};
    if (at < 4) /* 16 bits, two per sub-block */
        return (struct meaning){SCALE, (8 * (at - 2) + bit) / 2, 16 << bit % 2};
    if (at < 8)
        return (struct meaning){SCALE, 2 * (at - 4) + bit / 4, 1 << bit % 4};
    at -= 8;
    return code(32 * (at / 16) + at % 16 + (bit < 4 ? 0 : 16), 1 << bit % 4);
}

/* ---------------------------------------------------------------- the types */
struct format {
    uint32_t type, sub;
    struct meaning (*map)(uint32_t at, uint32_t bit);
    int zero;            /* integer of a code whose bits are 0 */
    const int8_t *table; /* code -> integer, when it is no binary number */
    double half;         /* factor of the values: 1, or the halved scale of MXFP4 */
};

static const struct format formats[] = {
    {ATSI_TYPE_Q4_0, 32, map_q4_0, -8, NULL, 1},
    {ATSI_TYPE_Q4_1, 32, map_q4_1, 0, NULL, 1},
    {ATSI_TYPE_Q5_0, 32, map_q5_0, -16, NULL, 1},
    {ATSI_TYPE_Q5_1, 32, map_q5_1, 0, NULL, 1},
    {ATSI_TYPE_Q8_0, 32, map_q8_0, 0, NULL, 1},
    {ATSI_TYPE_IQ4_NL, 32, map_q4_0, 0, atsi_iq4_values, 1},
    {ATSI_TYPE_MXFP4, 32, map_mxfp4, 0, atsi_mxfp4_values, 0.5},
    {ATSI_TYPE_Q2_K, 16, map_q2_k, 0, NULL, 1},
    {ATSI_TYPE_Q3_K, 16, map_q3_k, -4, NULL, 1},
    {ATSI_TYPE_Q4_K, 32, map_q4_k, 0, NULL, 1},
    {ATSI_TYPE_Q5_K, 32, map_q5_k, 0, NULL, 1},
    {ATSI_TYPE_Q6_K, 16, map_q6_k, -32, NULL, 1},
    {ATSI_TYPE_IQ4_XS, 32, map_iq4_xs, 0, atsi_iq4_values, 1},
};
#define N_FORMATS (sizeof formats / sizeof formats[0])

/* A block with d = dmin = 1 (m = 0 for Q4_1, Q5_1), every other bit 0. */
static void plain_block(uint32_t type, unsigned char *b)
{
    static const struct {
        uint32_t type;
        size_t at[2];
    } ones[] = {{ATSI_TYPE_Q2_K, {80, 82}},
                {ATSI_TYPE_Q3_K, {108, 108}},
                {ATSI_TYPE_Q4_K, {0, 2}},
                {ATSI_TYPE_Q5_K, {0, 2}},
                {ATSI_TYPE_Q6_K, {208, 208}}};
    const uint16_t one = F16_ONE;
    size_t at[2] = {0, 0};
    memset(b, 0, atsi_type_info(type)->block_bytes);
    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++)
        if (ones[i].type == type)
            memcpy(at, ones[i].at, sizeof at);
    if (type == ATSI_TYPE_MXFP4) {
        b[0] = 127;
        return;
    }
    memcpy(b + at[0], &one, 2);
    memcpy(b + at[1], &one, 2);
}

/* The integer scale of a sub-block whose scale bits are 0. */
static int zero_scale(uint32_t type)
{
    return type == ATSI_TYPE_Q3_K || type == ATSI_TYPE_IQ4_XS ? -32 : 0;
}

static bool has_scales(uint32_t type)
{
    return atsi_type_info(type)->block_elems == 256;
}

static void decode(uint32_t type, const unsigned char *b, float *y)
{
    struct cpu_kernels k;
    cpu_ref_kernels(&k);
    k.dequant[type](b, y, atsi_type_info(type)->block_elems);
}

static void flip(unsigned char *b, uint32_t at, uint32_t bit)
{
    b[at] ^= (unsigned char)(1u << bit);
}

/* Sets scale bits so that every sub-block has scale 1. */
static void unit_scales(const struct format *f, unsigned char *b)
{
    int wanted = 1 - zero_scale(f->type);
    for (uint32_t at = 0; at < atsi_type_info(f->type)->block_bytes; at++)
        for (uint32_t bit = 0; bit < 8; bit++) {
            struct meaning m = f->map(at, bit);
            if (m.what == SCALE && m.weight > 0 && (wanted & m.weight) != 0)
                flip(b, at, bit);
        }
}

static int integer_of(const struct format *f, int bits)
{
    return f->table != NULL ? f->table[bits] : f->zero + bits;
}

/* ---------------------------------------------------------------- tests */
static void each_code_bit_changes_its_element_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        const struct atsi_type_info *ti = atsi_type_info(f->type);
        _Alignas(4) unsigned char b[256];
        float y[256];
        uint32_t n_bits[256] = {0};
        plain_block(f->type, b);
        if (has_scales(f->type))
            unit_scales(f, b);
        for (uint32_t at = 0; at < ti->block_bytes; at++)
            for (uint32_t bit = 0; bit < 8; bit++) {
                struct meaning m = f->map(at, bit);
                if (m.what != CODE)
                    continue;
                n_bits[m.index]++;
                flip(b, at, bit);
                decode(f->type, b, y);
                flip(b, at, bit);
                for (uint32_t e = 0; e < ti->block_elems; e++) {
                    double want = f->half * integer_of(f, e == m.index ? m.weight : 0);
                    if ((double)y[e] != want)
                        fail_msg("%s byte %u bit %u: element %u = %g, want %g", ti->name, at, bit,
                                 e, (double)y[e], want);
                }
            }
        for (uint32_t e = 1; e < ti->block_elems; e++) /* the map itself covers every element */
            assert_int_equal(n_bits[e], n_bits[0]);
    }
}

static void each_scale_bit_changes_its_sub_block_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        const struct atsi_type_info *ti = atsi_type_info(f->type);
        _Alignas(4) unsigned char b[256];
        float y[256];
        uint32_t n_seen = 0;
        int q = integer_of(f, 0), base = zero_scale(f->type);
        plain_block(f->type, b);
        if (q == 0) { /* a code that a scale shows in */
            for (uint32_t at = 0; at < ti->block_bytes; at++)
                for (uint32_t bit = 0; bit < 8; bit++)
                    if (f->map(at, bit).what == CODE && f->map(at, bit).weight == 1)
                        flip(b, at, bit);
            q = 1;
        }
        for (uint32_t at = 0; at < ti->block_bytes; at++)
            for (uint32_t bit = 0; bit < 8; bit++) {
                struct meaning m = f->map(at, bit);
                if (m.what != SCALE && m.what != MIN)
                    continue;
                n_seen++;
                flip(b, at, bit);
                decode(f->type, b, y);
                flip(b, at, bit);
                for (uint32_t e = 0; e < ti->block_elems; e++) {
                    bool mine = e / f->sub == m.index;
                    double want = (double)q * (base + (mine && m.what == SCALE ? m.weight : 0)) -
                                  (mine && m.what == MIN ? m.weight : 0);
                    if ((double)y[e] != want)
                        fail_msg("%s byte %u bit %u: element %u = %g, want %g", ti->name, at, bit,
                                 e, (double)y[e], want);
                }
            }
        assert_true((n_seen > 0) == has_scales(f->type));
    }
}

/* d and m of the small types, d and dmin of the large ones, with their signs. */
static void scale_and_minimum_have_their_places(void **state)
{
    const uint16_t two = 0x4000u, three = 0x4200u, minus_half = 0xb800u;
    struct atsi_block_q4_1 b41 = {two, minus_half, {0x21}};
    struct atsi_block_q5_1 b51 = {minus_half, three, {1}, {0x21}};
    struct atsi_block_q4_k b4k = {.d = two, .dmin = three, .scales = {5, [4] = 7}, .qs = {0x21}};
    struct atsi_block_q2_k b2k = {.d = two, .dmin = three, .scales = {0x75}, .qs = {3}};
    float y[256];
    (void)state;
    decode(ATSI_TYPE_Q4_1, (const unsigned char *)&b41, y);
    assert_float_equal(y[0], 2 * 1 - 0.5, 0);
    assert_float_equal(y[16], 2 * 2 - 0.5, 0);
    assert_float_equal(y[1], -0.5, 0);
    decode(ATSI_TYPE_Q5_1, (const unsigned char *)&b51, y);
    assert_float_equal(y[0], -0.5 * 17 + 3, 0);
    assert_float_equal(y[16], -0.5 * 2 + 3, 0);
    decode(ATSI_TYPE_Q4_K, (const unsigned char *)&b4k, y);
    assert_float_equal(y[0], 2 * 5 * 1 - 3 * 7, 0);
    assert_float_equal(y[1], -3 * 7, 0);
    assert_float_equal(y[32], 0, 0); /* its own scale and minimum are 0 */
    decode(ATSI_TYPE_Q2_K, (const unsigned char *)&b2k, y);
    assert_float_equal(y[0], 2 * 5 * 3 - 3 * 7, 0);
    assert_float_equal(y[16], 0, 0);
}

/* 2^(e - 128) from a byte, subnormal numbers included. */
static void mxfp4_exponents(void **state)
{
    _Alignas(4) unsigned char b[17] = {0, 0x02 /* element 0: 2 */};
    float y[32];
    (void)state;
    for (int e = 0; e < 255; e++) {
        b[0] = (unsigned char)e;
        decode(ATSI_TYPE_MXFP4, b, y);
        assert_true((double)y[0] == ldexp(2, e - 128));
    }
}

static void halves_and_brain_floats(void **state)
{
    static const uint16_t half[] = {0x0000, 0x3c00, 0xc000, 0x0001, 0x8400, 0x7bff, 0x03ff};
    static const double value[] = {0, 1, -2, 0x1p-24, -0x1p-14, 65504, 0x1.ff8p-15};
    static const uint16_t brain[] = {0x3f80, 0xc040, 0x0001};
    static const double brain_value[] = {1, -3, 0x1p-133};
    struct cpu_kernels k;
    float y[7];
    (void)state;
    cpu_ref_kernels(&k);
    k.dequant[ATSI_TYPE_F16](half, y, 7);
    for (int i = 0; i < 7; i++)
        assert_true((double)y[i] == value[i]);
    k.dequant[ATSI_TYPE_BF16](brain, y, 3);
    for (int i = 0; i < 3; i++)
        assert_true((double)y[i] == brain_value[i]);
}

/* The rounding of activations, by hand. */
static void activations_round_as_stated(void **state)
{
    _Alignas(64) float x[256] = {0};
    _Alignas(64) int8_t q[256];
    _Alignas(64) float d[8];
    _Alignas(64) int16_t bsum[16];
    struct cpu_act act = {.k = 32, .n_tok = 1, .block = 32, .q = q, .d = d, .bsum = bsum};
    struct cpu_kernels k;
    (void)state;
    cpu_ref_kernels(&k);
    x[0] = 127; /* 127 / amax = 1: halves are ties */
    x[1] = 0.5F;
    x[2] = 1.5F;
    x[3] = -2.5F;
    x[20] = -127;
    k.quant_32(x, &act, 0);
    assert_true(d[0] == 1.0F);
    assert_int_equal(q[0], 127);
    assert_int_equal(q[1], 0);
    assert_int_equal(q[2], 2);
    assert_int_equal(q[3], -2);
    assert_int_equal(q[20], -127);
    assert_int_equal(bsum[0], 127);
    assert_int_equal(bsum[1], -127);
    x[0] = 1; /* the scale is stored as f16, but codes use the exact one */
    x[20] = -1;
    x[1] = x[2] = x[3] = 0;
    k.quant_32(x, &act, 0);
    assert_true(d[0] == atsi_f16_to_f32(atsi_f32_to_f16(1.0F / 127)));
    assert_int_equal(q[0], 127);
    act.k = act.block = 256;
    x[0] = 0.25F;
    x[20] = 0;
    x[100] = 2; /* the largest magnitude becomes -127, with an f32 scale of the other sign */
    x[200] = -2;
    k.quant_256(x, &act, 0);
    assert_true(d[0] == 1.0F / (-127.0F / 2.0F));
    assert_int_equal(q[100], -127);
    assert_int_equal(q[200], 127);
    assert_int_equal(q[0], -16); /* -15.875 */
    assert_int_equal(bsum[6], -127);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_code_bit_changes_its_element_alone),
        cmocka_unit_test(each_scale_bit_changes_its_sub_block_alone),
        cmocka_unit_test(scale_and_minimum_have_their_places),
        cmocka_unit_test(mxfp4_exponents),
        cmocka_unit_test(halves_and_brain_floats),
        cmocka_unit_test(activations_round_as_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
