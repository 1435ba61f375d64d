/* SPDX-License-Identifier: Apache-2.0
 * Matrix products of the CUDA plugin on the emulated device, every type in either layout. */
#include "tests/cuda/product_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_TYPES (sizeof product_types / sizeof *product_types)

/* Row lengths of a type: one block, and several with a part of a stage and of a record left. */
static uint32_t length_of(uint32_t type, int i)
{
    static const uint32_t floats[] = {1, 37, 264}, small[] = {32, 352, 480}, large[] = {256, 768};
    if (atsi_type_info(type)->block_elems == 1)
        return floats[i % 3];
    return atsi_type_info(type)->block_elems == 32 ? small[i % 3] : large[i % 2];
}

/* Numbers of tokens and of rows of the weight around every bound of the kernels. */
static void test_shapes(void **state)
{
    static const uint32_t tokens[] = {1, 2, 3, 4, 7, 8, 9, 65}, rows[] = {1, 16, 37, 64, 83};
    (void)state;
    for (uint32_t i = 0; i < N_TYPES; i++)
        for (uint32_t layout = 0; layout < 2; layout++)
            for (uint32_t n = 0; n < sizeof tokens / sizeof *tokens; n++) {
                struct product p = {.type = product_types[i],
                                    .layout = layout,
                                    .k = length_of(product_types[i], (int)(n + i)),
                                    .rows = rows[(n + i) % 5],
                                    .n_rows = tokens[n],
                                    .bias = n % 2 == 0};
                product_try(&p, 100 * i + n);
            }
}

/* Tiles of 128 tokens, and rows of more columns than a ring of stages holds. */
static void test_wide_tiles(void **state)
{
    static const uint32_t types[] = {ATSI_TYPE_F16,  ATSI_TYPE_BF16, ATSI_TYPE_Q4_1, ATSI_TYPE_Q8_0,
                                     ATSI_TYPE_Q4_K, ATSI_TYPE_Q6_K, ATSI_TYPE_MXFP4};
    (void)state;
    for (uint32_t i = 0; i < sizeof types / sizeof *types; i++)
        for (uint32_t layout = 0; layout < 2; layout++) {
            bool large = atsi_type_info(types[i])->block_elems == 256;
            struct product p = {.type = types[i],
                                .layout = layout,
                                .k = large ? 1024 : 480,
                                .rows = i < 2 ? 517 : 261,
                                .n_rows = i < 2 ? 150 : 259,
                                .bias = layout == 0};
            product_try(&p, 1000 + i);
        }
}

/* As the oldest devices: less shared memory, no bf16. */
static void test_old_device(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_TYPES; i++)
        for (uint32_t layout = 0; layout < 2; layout++) {
            struct product p = {.type = product_types[i],
                                .layout = layout,
                                .k = length_of(product_types[i], 1) == 37 ? 264 : 768,
                                .rows = 35,
                                .n_rows = 11,
                                .old = true};
            product_try(&p, 1200 + i);
        }
}

/* With activations rounded once, halves are off by what that rounding is, and no more. */
static void test_fast_half(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct product p = {.type = i % 2 == 0 ? ATSI_TYPE_F16 : ATSI_TYPE_BF16,
                            .layout = i / 2,
                            .k = 328,
                            .rows = 40,
                            .n_rows = 20,
                            .fast_half = true};
        product_try(&p, 1100 + i);
    }
}

/* Weights and activations at the ends of what they can be. */
static void test_values(void **state)
{
    static const uint32_t tokens[] = {1, 5, 12};
    (void)state;
    for (uint32_t i = 0; i < N_TYPES; i++)
        for (int mode = 0; mode < CK_N_MODES; mode++) {
            struct product p = {.type = product_types[i],
                                .layout = (uint32_t)mode % 2,
                                .k = length_of(product_types[i], mode + 1),
                                .rows = 19,
                                .n_rows = tokens[(uint32_t)mode % 3],
                                .mode = (enum ck_mode)mode};
            product_try(&p, 7000 + 10 * i + (uint32_t)mode);
            p.layout ^= 1;
            p.n_rows = tokens[(uint32_t)(mode + 1) % 3];
            product_try(&p, 8000 + 10 * i + (uint32_t)mode);
        }
}

static void test_exact_activations(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_TYPES; i++)
        for (uint32_t layout = 0; layout < 2; layout++) {
            struct product p = {.type = product_types[i],
                                .layout = layout,
                                .k = length_of(product_types[i], 1),
                                .rows = 21,
                                .n_rows = layout != 0 ? 3 : 11,
                                .exact = true};
            product_try(&p, 300 + i);
        }
}

/* Rows so long that they are dealt to twice as many slots. */
static void test_long_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_TYPES; i++)
        for (uint32_t layout = 0; layout < 2; layout++) {
            struct product p = {.type = product_types[i],
                                .layout = layout,
                                .k = 4096 + 512 * layout,
                                .rows = 17,
                                .n_rows = 1 + layout};
            product_try(&p, 400 + i);
        }
}

/* Weights of the file are not aligned to more than their scales are. */
static void test_unaligned_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_TYPES; i++) {
        uint32_t type = product_types[i];
        struct product p = {.type = type,
                            .k = length_of(type, 2),
                            .rows = 5,
                            .n_rows = i % 2 == 0 ? 1 : 10,
                            .shift = type == ATSI_TYPE_F32     ? 4
                                     : type == ATSI_TYPE_MXFP4 ? 1
                                                               : 2};
        product_try(&p, 500 + i);
    }
}

/* Panels somewhere: slower, not wrong. */
static void test_unaligned_panels(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_TYPES; i++) {
        uint32_t type = product_types[i];
        struct product p = {.type = type,
                            .layout = ATSI_LAYOUT_PANELS,
                            .k = length_of(type, 1),
                            .rows = 20,
                            .n_rows = i % 2 == 0 ? 2 : 10,
                            .exact = i % 3 == 0,
                            .shift = type == ATSI_TYPE_F32     ? 4
                                     : type == ATSI_TYPE_MXFP4 ? 1
                                                               : 2};
        product_try(&p, 550 + i);
    }
}

static void run_tokens(const struct product *p, uint32_t n, uint64_t seed, float *y)
{
    struct product some = *p;
    struct product_trial t;
    some.n_rows = n;
    product_open(&t, &some, seed);
    product_run(&t);
    memcpy(y, t.y, t.y_bytes);
    product_close(&t);
}

/* The first tokens alone and among others: the same bits, below and beyond the tiles' bound. */
static void test_company(void **state)
{
    static const uint32_t pairs[][2] = {{1, 2}, {1, 4}, {1, 8}, {5, 7}, {9, 70}};
    float *few = malloc(70 * 20 * sizeof *few), *many = malloc(70 * 20 * sizeof *many);
    (void)state;
    assert_true(few != NULL && many != NULL);
    for (uint32_t i = 0; i < N_TYPES; i++)
        for (uint32_t n = 0; n < 5; n++) {
            struct product p = {.type = product_types[i], .layout = n % 2, .k = 512, .rows = 20};
            run_tokens(&p, pairs[n][0], 600, few);
            run_tokens(&p, pairs[n][1], 600, many);
            assert_memory_equal(few, many, pairs[n][0] * 20 * sizeof *few);
        }
    free(few);
    free(many);
}

/* Packing changes no bit where units are the same elements in both layouts. */
static void test_layouts_agree(void **state)
{
    float rows[9 * 36], panels[9 * 36];
    (void)state;
    for (uint32_t i = 0; i < N_TYPES; i++)
        for (uint32_t n = 1; n <= 9; n += 8) {
            struct product p = {.type = product_types[i], .k = 768, .rows = 36};
            if (n == 1 && (p.type == ATSI_TYPE_Q3_K || p.type == ATSI_TYPE_Q6_K))
                continue;
            run_tokens(&p, n, 700, rows);
            p.layout = ATSI_LAYOUT_PANELS;
            run_tokens(&p, n, 700, panels);
            assert_memory_equal(rows, panels, n * 36 * sizeof *rows);
        }
}

/* What lies rounded in the scratch is used until the host says that it is stale. */
static void test_rounding_is_kept(void **state)
{
    struct product p = {.type = ATSI_TYPE_Q4_K, .k = 512, .rows = 8, .n_rows = 2};
    struct product_trial t;
    float before[16];
    (void)state;
    product_open(&t, &p, 900);
    product_run(&t);
    memcpy(before, t.y, sizeof before);
    ck_fill_floats(&t.ck, CK_RANDOM, t.x, 2 * 512);
    product_send_x(&t);
    product_run(&t);
    assert_memory_equal(before, t.y, sizeof before);
    t.rounded.src = NULL;
    product_run(&t);
    product_check(&t);
    assert_memory_not_equal(before, t.y, sizeof before);
    product_close(&t);
}

static void refused(const struct product_trial *t, const struct atsi_op *op)
{
    assert_false(product_kernel(t)->supports(&product_device, op));
}

/* Every rule about the operands, one at a time. */
static void test_refusals(void **state)
{
    struct product p = {.type = ATSI_TYPE_Q4_K, .k = 512, .rows = 32, .n_rows = 2, .bias = true};
    struct product_trial t;
    struct atsi_tensor bad;
    struct atsi_op op;
    (void)state;
    product_open(&t, &p, 950);
#define WITH(slot, change)                                                                         \
    bad = *t.op.slot;                                                                              \
    op = t.op;                                                                                     \
    op.slot = &bad;                                                                                \
    bad.change;                                                                                    \
    refused(&t, &op)
    WITH(weight[0], type = ATSI_TYPE_I32);
    WITH(weight[0], type = 5);
    WITH(weight[0], ne[0] = 480);
    WITH(weight[0], ne[1] = 31);
    WITH(weight[0], ne[1] = 0);
    WITH(weight[0], ne[2] = 2);
    WITH(weight[0], n_dims = 3);
    WITH(weight[0], layout = 2);
    WITH(weight[0], row_bytes += 2);
    WITH(weight[0], data = (unsigned char *)t.dev_w + 1);
    WITH(weight[1], ne[0] = 31);
    WITH(weight[1], type = ATSI_TYPE_F16);
    WITH(src[0], ne[0] = 256);
    WITH(src[0], ne[1] = 1);
    WITH(src[0], type = ATSI_TYPE_F16);
    WITH(dst[0], ne[0] = 33);
    WITH(dst[0], row_bytes = 4);
    op = t.op;
    op.n_rows = 0;
    refused(&t, &op);
    op = t.op;
    op.flags = 2;
    refused(&t, &op);
    op = t.op;
    op.kind = ATSI_OP_ADD;
    refused(&t, &op);
    bad = t.t[0];
    bad.layout = ATSI_LAYOUT_PANELS;
    bad.data = NULL;
    op = t.op;
    op.weight[0] = &bad;
    assert_true(product_kernel(&t)->supports(&product_device, &op));
    bad.data = (unsigned char *)t.dev_w + 2;
    assert_true(product_kernel(&t)->supports(&product_device, &op));
    bad.data = (unsigned char *)t.dev_w + 1;
    refused(&t, &op);
#undef WITH
    product_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),           cmocka_unit_test(test_values),
        cmocka_unit_test(test_wide_tiles),       cmocka_unit_test(test_fast_half),
        cmocka_unit_test(test_old_device),       cmocka_unit_test(test_exact_activations),
        cmocka_unit_test(test_long_rows),        cmocka_unit_test(test_unaligned_rows),
        cmocka_unit_test(test_unaligned_panels), cmocka_unit_test(test_company),
        cmocka_unit_test(test_layouts_agree),    cmocka_unit_test(test_rounding_is_kept),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, product_setup, product_teardown);
}
