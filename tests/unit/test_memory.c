/* SPDX-License-Identifier: Apache-2.0
 * Blocks and arenas: aligned, zeroed, bounded, and sizes that overflow are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "core/memory.h"

static void blocks_are_aligned_and_zeroed(void **state)
{
    static const size_t sizes[] = {
        0, 1, 63, 64, 65, 4096, (4u << 20) - 1, 4u << 20, (9u << 20) + 5};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *p = atsi_mem_alloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % ATSI_ALIGN, 0);
        if (sizes[i] >= 4u << 20)
            assert_int_equal((uintptr_t)p % (2u << 20), 0);
        for (size_t k = 0; k < sizes[i] + 64; k += k < 4096 ? 1 : 509)
            assert_int_equal(p[k], 0);
        memset(p, 0xa5, sizes[i]);
        atsi_mem_free(p, sizes[i]);
    }
    atsi_mem_free(NULL, 5);
    assert_null(atsi_mem_alloc(SIZE_MAX - 10));
    assert_null(atsi_mem_alloc(SIZE_MAX / 2));
}

static void an_arena_gives_what_it_has(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_arena a;
    unsigned char *first, *second;
    (void)state;
    assert_int_equal(atsi_arena_open(&a, 200, &err), ATSI_OK);
    first = atsi_arena_take(&a, 10);
    second = atsi_arena_take(&a, 100);
    assert_non_null(first);
    assert_ptr_equal(second, first + 64);
    assert_null(atsi_arena_take(&a, 20)); /* 64 + 128 are gone */
    assert_null(atsi_arena_take(&a, SIZE_MAX));
    assert_non_null(atsi_arena_take(&a, 8));
    atsi_arena_reset(&a);
    assert_ptr_equal(atsi_arena_take(&a, 200), first);
    assert_null(atsi_arena_take(&a, 1));
    atsi_arena_close(&a);
    atsi_arena_close(&a);
}

static void overflowing_sizes_are_seen(void **state)
{
    size_t out = 0;
    (void)state;
    assert_true(atsi_mul_size(1u << 20, 1u << 20, &out));
    assert_int_equal(out, (size_t)1 << 40);
    assert_false(atsi_mul_size(SIZE_MAX / 2, 3, &out));
    assert_true(atsi_add_size(SIZE_MAX - 1, 1, &out));
    assert_false(atsi_add_size(SIZE_MAX, 1, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_zeroed),
        cmocka_unit_test(an_arena_gives_what_it_has),
        cmocka_unit_test(overflowing_sizes_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
