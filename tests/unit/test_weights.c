/* SPDX-License-Identifier: Apache-2.0
 * The host region: views that change between rounds only, ranges for transfers, and the ladder of
 * pinned memory. */
#include "tests/unit/memory_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIB ((uint64_t)1024)
enum { N = 6 };

static struct mem_model model;
static struct atsi_weights *weights;

/* Four matrices that share pages, a stack of four, a large one. */
static const struct mem_shape shapes[N] = {
    {ATSI_TYPE_F32, {96, 33, 1}}, {ATSI_TYPE_Q8_0, {64, 40, 1}},  {ATSI_TYPE_F32, {64, 16, 1}},
    {ATSI_TYPE_F32, {64, 32, 4}}, {ATSI_TYPE_Q8_0, {256, 64, 1}}, {ATSI_TYPE_F32, {256, 1024, 1}}};

static int open_model(void **state)
{
    (void)state;
    mem_model_open(&model, shapes, N, 1);
    mem_device_reset(64 * KIB * KIB);
    return atsi_weights_open(&model.m, &weights, NULL);
}

static int close_model(void **state)
{
    (void)state;
    atsi_weights_close(weights);
    assert_int_equal(mem_dev.n_blocks, 0); /* nothing stays registered */
    mem_model_close(&model);
    return 0;
}

/* ---------------------------------------------------------------- views */
/* A copy with every byte turned over, offered as panels. */
static void offer(uint32_t tensor)
{
    void *at = NULL;
    uint64_t n = mem_bytes(&model, tensor);
    assert_int_equal(atsi_weights_reserve(weights, &tensor, 1, &at, NULL), ATSI_OK);
    assert_non_null(at);
    for (uint64_t i = 0; i < n; i++)
        ((unsigned char *)at)[i] = (unsigned char)~mem_data(&model, tensor)[i];
    atsi_weights_offer(weights, tensor, ATSI_LAYOUT_PANELS, ATSI_HOME_PACKED, at);
}

static void test_between_rounds(void **state)
{
    const struct atsi_tensor *t = atsi_weights_tensor(weights, 0);
    const void *before = t->data;
    uint64_t v = atsi_weights_begin(weights);
    (void)state;
    assert_ptr_equal(before, mem_data(&model, 0));
    assert_int_equal(atsi_weights_home(weights, 0), ATSI_HOME_FILE);
    offer(0);
    assert_ptr_equal(t->data, before); /* a round is under way */
    assert_true(atsi_weights_waiting(weights));
    /* Another session's round does not change it under the first one. */
    assert_int_equal(atsi_weights_begin(weights), v);
    assert_ptr_equal(t->data, before);
    atsi_weights_end(weights);
    atsi_weights_end(weights);
    assert_int_equal(model.loaded.released, 0);
    assert_true(atsi_weights_begin(weights) > v);
    assert_ptr_equal(t, atsi_weights_tensor(weights, 0));
    assert_ptr_not_equal(t->data, before);
    assert_int_equal(t->layout, ATSI_LAYOUT_PANELS);
    assert_int_equal(((unsigned char *)t->data)[5], (unsigned char)~mem_data(&model, 0)[5]);
    assert_int_equal(atsi_weights_home(weights, 0), ATSI_HOME_PACKED);
    assert_false(atsi_weights_waiting(weights));
    assert_int_equal(model.loaded.released,
                     mem_bytes(&model, 0)); /* the file's pages are given back */
    atsi_weights_end(weights);
    /* Without rounds a replacement is taken over at once. */
    offer(2);
    assert_int_equal(atsi_weights_tensor(weights, 2)->layout, ATSI_LAYOUT_PANELS);
    assert_int_equal(model.loaded.released, mem_bytes(&model, 0) + mem_bytes(&model, 2));
}

static void test_reserved_places(void **state)
{
    static const uint32_t list[3] = {5, 3, 0};
    void *at[3], *again[3];
    (void)state;
    assert_int_equal(atsi_weights_reserve(weights, list, 3, at, NULL), ATSI_OK);
    assert_int_equal((uintptr_t)at[0] % (2048 * KIB), 0);
    for (int k = 0; k < 3; k++) { /* behind one another, with room to read past the end */
        memset(at[k], k + 1, mem_bytes(&model, list[k]) + 64);
        assert_int_equal((uintptr_t)at[k] % 4096, 0);
    }
    assert_true((unsigned char *)at[1] >= (unsigned char *)at[0] + mem_bytes(&model, 5));
    assert_true((unsigned char *)at[2] >= (unsigned char *)at[1] + mem_bytes(&model, 3));
    assert_int_equal(*(unsigned char *)at[0], 1);
    assert_int_equal(atsi_weights_reserve(weights, list, 3, again, NULL), ATSI_OK);
    assert_memory_equal(at, again, sizeof at);
    /* What is given back reads as nothing; its neighbours stay. */
    atsi_weights_discard(weights, 3);
    assert_int_equal(*(unsigned char *)at[1], 0);
    assert_int_equal(*(unsigned char *)at[2], 3);
}

static void test_announce_once(void **state)
{
    (void)state;
    assert_true(atsi_weights_announce(weights, 1));
    assert_false(atsi_weights_announce(weights, 1));
    atsi_weights_discard(weights, 1);
    assert_true(atsi_weights_announce(weights, 1));
    offer(1);
    assert_false(atsi_weights_announce(weights, 1));
}

/* Rounds in one thread, replacements in another: within a round nothing changes. */
static void *offer_all(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < N; i++)
        offer(i);
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t thread;
    uint64_t last = 0;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, offer_all, NULL), 0);
    for (int round = 0; round < 200; round++) {
        struct atsi_tensor seen[N];
        uint64_t v = atsi_weights_begin(weights);
        assert_true(v >= last);
        last = v;
        for (uint32_t i = 0; i < N; i++)
            seen[i] = *atsi_weights_tensor(weights, i);
        for (uint32_t i = 0; i < N; i++) {
            const struct atsi_tensor *t = atsi_weights_tensor(weights, i);
            unsigned char flip = t->layout == ATSI_LAYOUT_PANELS ? 0xff : 0;
            assert_ptr_equal(t->data, seen[i].data);
            assert_int_equal(((const unsigned char *)t->data)[100],
                             mem_data(&model, i)[100] ^ flip);
        }
        atsi_weights_end(weights);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)atsi_weights_begin(weights);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(atsi_weights_tensor(weights, i)->layout, ATSI_LAYOUT_PANELS);
    atsi_weights_end(weights);
}

/* ---------------------------------------------------------------- ranges */
/* The bytes that ranges bring, in the order of their destinations. */
static void check_ranges(const struct atsi_piece *p, uint64_t first, uint64_t n,
                         const unsigned char *expected, uint64_t bytes, uint32_t at_least)
{
    static unsigned char to[1 << 21];
    struct atsi_range r[64];
    uint32_t k = atsi_weights_ranges(weights, p, first, n, to, r, 64);
    unsigned char *next = to;
    assert_true(k >= at_least && k <= 64);
    for (uint32_t i = 0; i < k; i++) {
        assert_ptr_equal(r[i].dst, next);
        memcpy(r[i].dst, r[i].src, r[i].bytes);
        next += r[i].bytes;
    }
    assert_int_equal(next - to, bytes);
    assert_memory_equal(to, expected, bytes);
    if (k > 1) { /* the number is told even when there is no room */
        assert_int_equal(atsi_weights_ranges(weights, p, first, n, to, r, 1), k);
    }
}

static void test_ranges(void **state)
{
    const struct atsi_piece stack = {.tensor = 3}, rows = {3, 16, 32};
    const uint64_t matrix = 32 * 64 * 4;
    unsigned char parts[4 * 16 * 64 * 4];
    const unsigned char *w = mem_data(&model, 3);
    (void)state;
    check_ranges(&(struct atsi_piece){.tensor = 0}, 0, 1, mem_data(&model, 0), mem_bytes(&model, 0),
                 1);
    check_ranges(&stack, 0, 4, w, 4 * matrix, 1);
    check_ranges(&stack, 2, 1, w + 2 * matrix, matrix, 1); /* one expert */
    for (int e = 0; e < 4; e++)
        memcpy(parts + e * (matrix / 2), w + e * matrix + matrix / 2, matrix / 2);
    check_ranges(&rows, 0, 4, parts, sizeof parts, 4);
    assert_int_equal(atsi_weights_ranges(weights, &stack, 3, 2, parts, NULL, 0), 0);
    assert_int_equal(atsi_piece_bytes(weights, &rows), sizeof parts);
    assert_int_equal(atsi_piece_bytes(weights, &(struct atsi_piece){3, 16, 33}), 0);
    assert_int_equal(atsi_piece_bytes(weights, &(struct atsi_piece){N, 0, 0}), 0);
}

/* ---------------------------------------------------------------- pinning */
static bool is_pinned(uint32_t tensor)
{
    const unsigned char *p = atsi_weights_tensor(weights, tensor)->data;
    uint64_t n = mem_bytes(&model, tensor);
    for (uint64_t i = 0; i < n; i += i + 64 < n ? 64 : 1) {
        bool in = false;
        for (uint32_t b = 0; b < mem_dev.n_blocks && !in; b++)
            in = p + i >= mem_dev.blocks[b].p &&
                 p + i < mem_dev.blocks[b].p + mem_dev.blocks[b].bytes;
        if (!in)
            return false;
    }
    return true;
}

static void pin(const uint32_t *ranked, uint32_t n, uint64_t budget)
{
    atsi_weights_pin(weights, &mem_ops, mem_backend(), ranked, n, budget);
    assert_true(mem_dev.pinned <= budget);
}

/* Neighbours share pages; the fixture stops at a page registered twice. */
static void test_pin_order(void **state)
{
    static const uint32_t ranked[] = {5, 0, 4, 3, 2, 1}, other[] = {1, 4};
    struct atsi_pin_state s;
    (void)state;
    pin(ranked, 6, UINT64_MAX / 2);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(is_pinned(i));
        check_ranges(&(struct atsi_piece){.tensor = i}, 0, shapes[i].ne[2], mem_data(&model, i),
                     mem_bytes(&model, i), 1);
    }
    atsi_weights_pin_state(weights, &s);
    assert_int_equal(s.n_pinned, N);
    assert_int_equal(s.pinned, mem_dev.pinned);
    /* Less: the first of the ranking stay. */
    pin(ranked, 6, mem_bytes(&model, 5) + 32 * KIB);
    assert_true(is_pinned(5) && is_pinned(0));
    assert_false(is_pinned(3));
    /* Another ranking: what fell out goes. */
    pin(other, 2, 40 * KIB);
    assert_true(is_pinned(1) && is_pinned(4));
    assert_false(is_pinned(5));
    pin(other, 2, 0);
    assert_int_equal(mem_dev.pinned, 0);
    pin(ranked, 6, UINT64_MAX / 2);
    atsi_weights_unpin(weights);
    assert_int_equal(mem_dev.pinned, 0);
}

/* Every rung may be missing. */
static void test_pin_refused(void **state)
{
    static const uint32_t ranked[] = {0, 5, 1};
    struct atsi_pin_state s;
    (void)state;
    mem_dev.pins_nothing = true;
    pin(ranked, 3, UINT64_MAX / 2);
    assert_int_equal(mem_dev.pinned, 0);
    atsi_weights_pin_state(weights, &s);
    assert_true(s.refused > 0 && s.n_pinned == 0);
    mem_dev.pins_nothing = false;
    mem_dev.pin_limit = 40 * KIB; /* the 1 MiB tensor does not go, and the rest is not tried */
    pin(ranked, 3, UINT64_MAX / 2);
    assert_true(is_pinned(0));
    assert_false(is_pinned(5));
    check_ranges(&(struct atsi_piece){.tensor = 1}, 0, 1, mem_data(&model, 1), mem_bytes(&model, 1),
                 1);
    /* A device without the functions. */
    {
        struct atsi_backend_ops none = mem_ops;
        none.host_register = NULL;
        atsi_weights_unpin(weights);
        atsi_weights_pin(weights, &none, mem_backend(), ranked, 3, UINT64_MAX / 2);
        assert_int_equal(mem_dev.pinned, 0);
    }
}

/* What will be packed is pinned when it is, and a replaced one is released once it is unpinned. */
static void test_pin_and_pack(void **state)
{
    static const uint32_t ranked[] = {5, 4};
    (void)state;
    assert_true(atsi_weights_announce(weights, 5));
    pin(ranked, 2, UINT64_MAX / 2);
    assert_true(is_pinned(4));
    assert_false(is_pinned(5));
    offer(5);
    assert_false(is_pinned(5));
    pin(ranked, 2, UINT64_MAX / 2);
    assert_true(is_pinned(5));
    assert_int_equal(model.loaded.released, mem_bytes(&model, 5));
    offer(4); /* pinned in the file's mapping */
    assert_int_equal(model.loaded.released, mem_bytes(&model, 5));
    pin(ranked, 2, UINT64_MAX / 2);
    assert_true(is_pinned(4) && is_pinned(5));
    assert_int_equal(model.loaded.released, mem_bytes(&model, 5) + mem_bytes(&model, 4));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_model, close_model)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_between_rounds), TEST(test_reserved_places), TEST(test_announce_once),
        TEST(test_threads),        TEST(test_ranges),          TEST(test_pin_order),
        TEST(test_pin_refused),    TEST(test_pin_and_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
