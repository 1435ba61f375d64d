/* SPDX-License-Identifier: Apache-2.0
 * Products over experts, few rows and many, with ids that name no expert among them. */
#include "tests/cuda/product_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_TYPES (sizeof product_types / sizeof *product_types)

static struct product experts_of(uint32_t i)
{
    uint32_t type = product_types[i % N_TYPES];
    return (struct product){.type = type,
                            .layout = i % 2,
                            .k = atsi_type_info(type)->block_elems == 1 ? 40 : 256,
                            .rows = 48,
                            .n_expert = 5,
                            .used = 2};
}

/* Every type and layout; rows around the bound between walking slots and sorting them. */
static void test_types(void **state)
{
    static const uint32_t n_rows[] = {1, 3, 8, 9, 40};
    (void)state;
    for (uint32_t i = 0; i < 2 * N_TYPES; i++)
        for (uint32_t n = 0; n < 5; n += 1 + i % 2) {
            struct product p = experts_of(i / 2);
            p.layout = i % 2;
            p.n_rows = n_rows[n];
            p.per_slot = n % 2 != 0;
            p.bias = n % 3 == 0;
            product_try(&p, 100 * i + n);
        }
}

/* Matrices whose rows fill no panel, so that most do not start at a multiple of 16 bytes; row
 * lengths that fill no record. */
static void test_odd_matrices(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * N_TYPES; i++) {
        struct product p = experts_of(i / 2);
        bool small = atsi_type_info(p.type)->block_elems == 32;
        p.layout = i % 2;
        p.k = small ? 96 : atsi_type_info(p.type)->block_elems == 1 ? 7 : 256;
        p.rows = 16 + i % 9;
        p.n_rows = i % 3 == 0 ? 20 : 2;
        product_try(&p, 3000 + i);
    }
}

/* Many slots for one expert, more experts than slots, one expert; values of every kind. */
static void test_crowds(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 14; i++) {
        struct product p = experts_of(i + 3);
        p.n_rows = 150;
        p.rows = 16;
        p.used = 1 + i % 3;
        p.n_expert = i % 3 == 0 ? 1 : i % 3 == 1 ? 70 : 3;
        p.mode = (enum ck_mode)(i % CK_N_MODES);
        p.exact = i % 5 == 4;
        product_try(&p, 4000 + i);
    }
}

/* The same launch again, with other ids: nothing about them is remembered. */
static void test_other_ids(void **state)
{
    (void)state;
    for (uint32_t n_rows = 2; n_rows <= 20; n_rows += 18) {
        struct product p = experts_of(7);
        struct product_trial t;
        p.n_rows = n_rows;
        product_open(&t, &p, 5000);
        product_run(&t);
        product_check(&t);
        for (uint64_t i = 0; i < t.n_tok; i++)
            t.ids[i] = (int32_t)((t.n_tok - i) % (p.n_expert + 1)) - 1;
        product_send_ids(&t);
        product_run(&t);
        product_check(&t);
        product_close(&t);
    }
}

/* A row alone and among others. */
static void test_company(void **state)
{
    struct product p = experts_of(10);
    struct product_trial t;
    float *first;
    (void)state;
    for (uint32_t few = 1; few <= 9; few += 8) {
        p.n_rows = few;
        product_open(&t, &p, 6000);
        product_run(&t);
        first = malloc(t.y_bytes);
        assert_non_null(first);
        memcpy(first, t.y, t.y_bytes);
        p.n_rows = few + 6;
        struct product_trial more;
        product_open(&more, &p, 6000);
        memcpy(more.ids, t.ids, t.n_tok * sizeof *t.ids);
        product_send_ids(&more);
        product_run(&more);
        product_check(&more);
        assert_memory_equal(first, more.y, t.y_bytes);
        product_close(&more);
        product_close(&t);
        free(first);
    }
}

static void test_refusals(void **state)
{
    struct product p = experts_of(10);
    struct product_trial t;
    struct atsi_tensor bad;
    struct atsi_op op;
    (void)state;
    p.n_rows = 2;
    p.bias = true;
    product_open(&t, &p, 6500);
#define WITH(slot, change)                                                                         \
    bad = *t.op.slot;                                                                              \
    op = t.op;                                                                                     \
    op.slot = &bad;                                                                                \
    bad.change;                                                                                    \
    assert_false(cuda_op_matmul_id.supports(&product_device, &op))
    WITH(weight[0], ne[2] = 0);
    WITH(weight[0], ne[2] = UINT64_C(1) << 32);
    WITH(weight[0], ne[3] = 2);
    WITH(weight[0], n_dims = 4);
    WITH(weight[1], ne[1] = 4);
    WITH(src[0], ne[0] = 3 * 256);
    WITH(src[1], ne[0] = 3);
    WITH(src[1], type = ATSI_TYPE_F32);
    WITH(dst[0], ne[0] = 48);
#undef WITH
    op = t.op;
    op.p.moe.n_used = 0;
    assert_false(cuda_op_matmul_id.supports(&product_device, &op));
    op.p.moe.n_used = 3;
    assert_false(cuda_op_matmul_id.supports(&product_device, &op));
    product_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),   cmocka_unit_test(test_odd_matrices),
        cmocka_unit_test(test_crowds),  cmocka_unit_test(test_other_ids),
        cmocka_unit_test(test_company), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, product_setup, product_teardown);
}
