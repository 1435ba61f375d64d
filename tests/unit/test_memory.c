/* SPDX-License-Identifier: Apache-2.0
 * Blocks and arenas: alignment, zeroes, the readable line behind the end, sizes that overflow. */
#include "core/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void blocks(void **state)
{
    static const size_t sizes[] = {
        0, 1, 63, 64, 65, 4095, 4 << 20, (4 << 20) - 1, (4 << 20) + 1, (size_t)6 << 20};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = sizes[i], align = n >= (size_t)4 << 20 ? (size_t)2 << 20 : ATSI_ALIGN;
        unsigned char *p = atsi_mem_alloc(n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % align, 0);
        for (size_t at = 0; at < n + ATSI_ALIGN; at++)
            if (p[at] != 0)
                fail_msg("%zu bytes: byte %zu is %u", n, at, p[at]);
        memset(p, 0xff, n);
        atsi_mem_free(p, n);
    }
    atsi_mem_free(NULL, 64);
}

/* No size wraps to a small block. */
static void impossible_blocks(void **state)
{
    static const size_t less[] = {0,
                                  1,
                                  63,
                                  64,
                                  127,
                                  128,
                                  (size_t)1 << 20,
                                  (size_t)2 << 20,
                                  ((size_t)2 << 20) + 64,
                                  (size_t)3 << 20,
                                  (size_t)5 << 20};
    (void)state;
    for (size_t i = 0; i < sizeof less / sizeof less[0]; i++)
        assert_null(atsi_mem_alloc(SIZE_MAX - less[i]));
}

static void arenas(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_arena a;
    unsigned char *p, *q;
    (void)state;
    assert_int_equal(atsi_arena_open(&a, 200, &err), ATSI_OK);
    p = atsi_arena_take(&a, 1);
    q = atsi_arena_take(&a, 64);
    assert_non_null(p);
    assert_ptr_equal(q, p + 64);
    assert_int_equal((uintptr_t)q % ATSI_ALIGN, 0);
    assert_null(atsi_arena_take(&a, 73)); /* 72 are left */
    assert_null(atsi_arena_take(&a, SIZE_MAX));
    assert_null(atsi_arena_take(&a, SIZE_MAX - 64));
    assert_ptr_equal(atsi_arena_take(&a, 72), p + 128);
    assert_null(atsi_arena_take(&a, 1));
    atsi_arena_reset(&a);
    assert_ptr_equal(atsi_arena_take(&a, 200), p);
    atsi_arena_close(&a);
    assert_null(a.base);
}

static void impossible_arena(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_arena a;
    (void)state;
    assert_int_equal(atsi_arena_open(&a, SIZE_MAX - 1, &err), ATSI_ENOMEM);
    assert_non_null(strstr(err.msg, "18446744073709551614 bytes"));
    assert_null(a.base);
    atsi_arena_close(&a);
}

static void checked_sums(void **state)
{
    size_t out = 0;
    (void)state;
    assert_true(atsi_mul_size(SIZE_MAX / 2, 2, &out));
    assert_true(out == SIZE_MAX - 1);
    assert_false(atsi_mul_size(SIZE_MAX / 2 + 1, 2, &out));
    assert_true(atsi_mul_size(0, SIZE_MAX, &out));
    assert_int_equal(out, 0);
    assert_true(atsi_add_size(SIZE_MAX - 1, 1, &out));
    assert_false(atsi_add_size(SIZE_MAX, 1, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks),       cmocka_unit_test(impossible_blocks),
        cmocka_unit_test(arenas),       cmocka_unit_test(impossible_arena),
        cmocka_unit_test(checked_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
