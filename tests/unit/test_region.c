/* SPDX-License-Identifier: Apache-2.0
 * The device region: what is resident, where, and what a change of wants or of the budget moves. */
#include "tests/unit/memory_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIB ((uint64_t)1024)
#define MIB (KIB * 1024)
enum { N = 12 };

static struct mem_model model;
static struct atsi_weights *weights;
static struct atsi_region *region;

/* Matrices of 16 to 192 KiB (F32, rows of 256). */
static int open_model(void **state)
{
    struct mem_shape shapes[N];
    (void)state;
    for (uint32_t i = 0; i < N; i++)
        shapes[i] = (struct mem_shape){ATSI_TYPE_F32, {256, 16 * (i + 1), 1}};
    mem_model_open(&model, shapes, N, 7);
    mem_device_reset(8 * MIB);
    return atsi_weights_open(&model.m, &weights, NULL);
}

static int close_model(void **state)
{
    (void)state;
    atsi_region_close(region);
    region = NULL;
    assert_int_equal(mem_dev.used, 0);
    assert_int_equal(mem_dev.in_flight, 0);
    atsi_weights_close(weights);
    mem_model_close(&model);
    return 0;
}

static int try_open(uint64_t slots, uint64_t place, uint64_t reserve, struct atsi_err *err)
{
    const struct atsi_region_params p = {.ops = &mem_ops,
                                         .be = mem_backend(),
                                         .tx_ops = &mem_tx_ops,
                                         .tx = mem_transfer(),
                                         .weights = weights,
                                         .reserve_bytes = reserve,
                                         .slots_bytes = slots,
                                         .place_bytes = place,
                                         .in_flight = 3};
    return atsi_region_open(&p, &region, err);
}

static void open_region(uint64_t slots, uint64_t place)
{
    assert_int_equal(try_open(slots, place, 4 * MIB, NULL), ATSI_OK);
}

/* Wants by the bits of a mask. */
static uint32_t wants_of(uint32_t mask, struct atsi_piece *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < N; i++)
        if ((mask >> i & 1) != 0)
            out[n++] = (struct atsi_piece){.tensor = i};
    return n;
}

static int place(uint32_t mask, struct atsi_region_change *change, struct atsi_err *err)
{
    struct atsi_piece wants[N];
    uint32_t n = wants_of(mask, wants);
    return atsi_region_place(region, wants, n, NULL, NULL, change, err);
}

/* Exactly these are there, whole, apart from one another. */
static void check_residents(uint32_t mask)
{
    unsigned char *end[N] = {NULL}, *start[N] = {NULL};
    for (uint32_t i = 0; i < N; i++) {
        const struct atsi_piece p = {.tensor = i};
        struct atsi_tensor t;
        bool there = atsi_region_find(region, &p, &t);
        assert_int_equal(there, mask >> i & 1);
        if (!there)
            continue;
        assert_int_equal((uintptr_t)t.data % ATSI_REGION_ALIGN, 0);
        assert_memory_equal(t.data, mem_data(&model, i), mem_bytes(&model, i));
        start[i] = t.data;
        end[i] = start[i] + mem_bytes(&model, i);
        for (uint32_t k = 0; k < i; k++)
            assert_true(start[k] == NULL || start[k] >= end[i] || end[k] <= start[i]);
    }
}

static void test_place_and_change(void **state)
{
    struct atsi_region_change c;
    struct atsi_region_state s;
    uint64_t version;
    (void)state;
    open_region(256 * KIB, MIB);
    assert_int_equal(place(0x0fu, &c, NULL), ATSI_OK);
    check_residents(0x0fu);
    assert_int_equal(c.loaded, 4);
    assert_int_equal(c.bytes, (1 + 2 + 3 + 4) * 16 * KIB);
    version = atsi_region_version(region);
    /* The same again moves nothing. */
    assert_int_equal(place(0x0fu, &c, NULL), ATSI_OK);
    assert_int_equal(c.loaded + c.moved + c.dropped, 0);
    assert_int_equal(c.kept, 4);
    assert_int_equal(atsi_region_version(region), version);
    /* Only what differs is transferred. */
    assert_int_equal(place(0x1eu, &c, NULL), ATSI_OK);
    check_residents(0x1eu);
    assert_int_equal(c.loaded, 1);
    assert_int_equal(c.dropped, 1);
    assert_int_equal(c.kept, 3);
    assert_int_equal(c.bytes, 5 * 16 * KIB);
    assert_true(atsi_region_version(region) > version);
    atsi_region_state(region, &s);
    assert_int_equal(s.n_residents, 4);
    assert_int_equal(s.used, (2 + 3 + 4 + 5) * 16 * KIB);
    assert_true(mem_dev.most_in_flight > 1 && mem_dev.most_in_flight <= 3);
}

/* However wants change, an arena that holds their sum holds them. */
static void test_no_fragmentation(void **state)
{
    uint32_t seed = 3, moved = 0, tried = 0;
    (void)state;
    open_region(0, 40 * 16 * KIB); /* of 78 */
    for (uint32_t round = 0; round < 400; round++) {
        struct atsi_piece wants[N];
        struct atsi_region_change c;
        uint32_t mask;
        uint64_t need;
        seed = seed * 1664525u + 1013904223u;
        mask = seed >> 16 & 0xfffu;
        need = atsi_region_need(region, wants, wants_of(mask, wants));
        if (need > 40 * 16 * KIB) {
            assert_int_equal(place(mask, &c, NULL), ATSI_ENOMEM);
            assert_int_equal(place(0, &c, NULL), ATSI_OK);
            continue;
        }
        assert_int_equal(place(mask, &c, NULL), ATSI_OK);
        check_residents(mask);
        moved += c.moved;
        tried++;
    }
    assert_true(tried > 100 && moved > 0); /* gaps were too small at times */
}

/* Row tiles of one matrix are residents of their own. */
static void test_tiles(void **state)
{
    const struct atsi_piece tiles[2] = {{11, 32, 64}, {11, 128, 192}};
    struct atsi_tensor t;
    (void)state;
    open_region(0, MIB);
    assert_int_equal(atsi_region_place(region, tiles, 2, NULL, NULL, NULL, NULL), ATSI_OK);
    assert_true(atsi_region_find(region, &tiles[1], &t));
    assert_int_equal(t.ne[1], 64);
    assert_memory_equal(t.data, mem_data(&model, 11) + 128 * KIB, 64 * KIB);
    assert_true(atsi_region_find(region, &tiles[0], &t));
    assert_memory_equal(t.data, mem_data(&model, 11) + 32 * KIB, 32 * KIB);
    assert_false(atsi_region_find(region, &(struct atsi_piece){.tensor = 11}, &t));
}

static void test_bad_pieces(void **state)
{
    static const struct atsi_piece bad[] = {{N, 0, 0}, {1, 16, 48}, {1, 16, 16}};
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    open_region(0, MIB);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(atsi_region_place(region, &bad[i], 1, NULL, NULL, NULL, &err),
                         ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "rows 16 to 16"));
    check_residents(0);
}

static void test_slots(void **state)
{
    unsigned char *a, *b;
    (void)state;
    open_region(200 * KIB, MIB);
    assert_int_equal(atsi_region_cut_slots(region, 1, 3, 60 * KIB + 1, NULL), ATSI_OK);
    a = atsi_region_slot(region, 1, 0);
    b = atsi_region_slot(region, 1, 2);
    assert_non_null(a);
    assert_true(b >= a + 2 * (60 * KIB + 1) && (uintptr_t)b % ATSI_REGION_ALIGN == 0);
    assert_null(atsi_region_slot(region, 1, 3));
    assert_null(atsi_region_slot(region, 0, 0));
    assert_int_equal(atsi_region_cut_slots(region, 0, 4, 60 * KIB, NULL), ATSI_ENOMEM);
    /* Residents come and go, slots stay; under another budget it is the other way round. */
    assert_int_equal(place(0x7u, NULL, NULL), ATSI_OK);
    memset(a, 0x55, 180 * KIB);
    check_residents(0x7u);
    assert_int_equal(atsi_region_resize(region, 200 * KIB, 2 * MIB, NULL), ATSI_OK);
    check_residents(0x7u);
    assert_null(atsi_region_slot(region, 1, 0)); /* they lie elsewhere now */
    assert_int_equal(atsi_region_cut_slots(region, 1, 3, 60 * KIB + 1, NULL), ATSI_OK);
    memset(atsi_region_slot(region, 1, 0), 0x55, 180 * KIB);
    check_residents(0x7u);
}

/* Less budget gives memory back; what is beyond the new end goes, the rest stays where it is. */
static void test_live_budget(void **state)
{
    struct atsi_region_state s;
    uint64_t full;
    (void)state;
    open_region(0, MIB);
    full = mem_dev.used;
    assert_int_equal(place(0xfffu & ~0x800u & ~0x400u, NULL, NULL), ATSI_OK); /* 720 KiB */
    assert_int_equal(atsi_region_resize(region, 0, 400 * KIB, NULL), ATSI_OK);
    assert_int_equal(full - mem_dev.used, 624 * KIB);
    atsi_region_state(region, &s);
    assert_true(s.can_shrink && s.used <= 400 * KIB && s.n_residents > 0);
    assert_int_equal(place(0x1fu, NULL, NULL), ATSI_OK);
    check_residents(0x1fu);
    /* More, up to what was reserved. */
    assert_int_equal(atsi_region_resize(region, 64 * KIB, 2 * MIB, NULL), ATSI_OK);
    assert_int_equal(place(0xfffu, NULL, NULL), ATSI_OK);
    check_residents(0xfffu);
    assert_int_equal(atsi_region_resize(region, 0, 5 * MIB, NULL), ATSI_ENOMEM);
    check_residents(0xfffu);
    /* The device may have no more although the range has. */
    mem_dev.total = mem_dev.used + 64 * KIB;
    assert_int_equal(atsi_region_resize(region, 64 * KIB, 3 * MIB, NULL), ATSI_ENOMEM);
    check_residents(0xfffu);
}

static void test_without_ranges(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_region_state s;
    uint64_t used;
    (void)state;
    mem_dev.can_reserve = false;
    assert_int_equal(try_open(0, 9 * MIB, 0, &err), ATSI_ENOMEM);
    assert_int_equal(try_open(0, UINT64_MAX - 5, 0, &err), ATSI_ENOMEM);
    open_region(0, MIB);
    used = mem_dev.used;
    assert_int_equal(place(0x3u, NULL, NULL), ATSI_OK);
    assert_int_equal(atsi_region_resize(region, 0, 64 * KIB, NULL), ATSI_OK);
    assert_int_equal(mem_dev.used, used); /* it cannot be given back, but it is not used */
    assert_int_equal(place(0x8u, NULL, NULL), ATSI_OK);
    assert_int_equal(place(0x10u, NULL, NULL), ATSI_ENOMEM);
    atsi_region_state(region, &s);
    assert_false(s.can_shrink);
    assert_int_equal(atsi_region_resize(region, 0, 2 * MIB, NULL), ATSI_ENOMEM);
}

/* Whatever fails, what had arrived is whole and the rest is not there. */
static void test_failures(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    open_region(0, 2 * MIB);
    for (uint32_t k = 1; k <= 6; k++)
        for (int wait = 0; wait < 2; wait++) {
            struct atsi_region_state s;
            uint32_t mask = 0;
            assert_int_equal(place(0, NULL, NULL), ATSI_OK);
            mem_dev.fail_copy = wait ? 0 : k;
            mem_dev.fail_wait = wait ? k : 0;
            assert_int_equal(place(0x3fu, NULL, &err), ATSI_ENOMEM);
            assert_int_equal(mem_dev.in_flight, 0);
            for (uint32_t i = 0; i < N; i++) {
                struct atsi_tensor t;
                mask |= (uint32_t)atsi_region_find(region, &(struct atsi_piece){.tensor = i}, &t)
                        << i;
            }
            check_residents(mask);
            atsi_region_state(region, &s);
            assert_int_equal(s.n_residents, __builtin_popcount(mask));
            mem_dev.fail_copy = mem_dev.fail_wait = 0;
            assert_int_equal(place(0x3fu, NULL, NULL), ATSI_OK);
            check_residents(0x3fu);
        }
}

static int stop_late(void *ctx, uint64_t done, uint64_t total)
{
    uint64_t *last = ctx;
    assert_true(done > *last && done <= total);
    *last = done;
    return done > total / 2;
}

static void test_cancel(void **state)
{
    struct atsi_piece wants[N];
    uint32_t n = wants_of(0xffu, wants);
    uint64_t last = 0;
    (void)state;
    open_region(0, 2 * MIB);
    assert_int_equal(atsi_region_place(region, wants, n, stop_late, &last, NULL, NULL), ATSI_EINTR);
    assert_int_equal(mem_dev.in_flight, 0);
    assert_int_equal(place(0xffu, NULL, NULL), ATSI_OK);
    check_residents(0xffu);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_model, close_model)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_place_and_change),
        TEST(test_no_fragmentation),
        TEST(test_tiles),
        TEST(test_bad_pieces),
        TEST(test_slots),
        TEST(test_live_budget),
        TEST(test_without_ranges),
        TEST(test_failures),
        TEST(test_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
