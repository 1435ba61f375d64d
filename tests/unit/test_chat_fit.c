/* SPDX-License-Identifier: Apache-2.0
 * The rule for a context that is full. */
#include "cli/chat_fit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

/* A conversation of turns of `each` tokens after `system` ones; the last turn has `last`. */
struct fake {
    size_t system, each, last, n_turns;
    size_t n_measured;
    int fail_at; /* the call that fails; 0: none */
};

static int measure(void *ctx, size_t drop, size_t *n_tokens)
{
    struct fake *f = ctx;
    assert_true(drop < f->n_turns);
    f->n_measured++;
    if (f->fail_at > 0 && --f->fail_at == 0)
        return 5;
    *n_tokens = f->system + (f->n_turns - 1 - drop) * f->each + f->last;
    return 0;
}

static int fit(struct fake *f, uint32_t n_ctx, uint32_t reserve, struct chat_fit *out)
{
    *out = (struct chat_fit){
        .n_ctx = n_ctx, .reserve = reserve, .n_turns = f->n_turns, .measure = measure, .ctx = f};
    return chat_fit(out);
}

static void test_reserve(void **state)
{
    (void)state;
    assert_int_equal(chat_reserve(4096, -1), 1024);
    assert_int_equal(chat_reserve(1 << 20, -1), 1024);
    assert_int_equal(chat_reserve(512, -1), 128);
    assert_int_equal(chat_reserve(512, 100), 100);
    assert_int_equal(chat_reserve(512, 100000), 256);
    assert_int_equal(chat_reserve(512, INT64_MAX), 256);
    assert_int_equal(chat_reserve(512, 0), 1);
    assert_int_equal(chat_reserve(1, -1), 1);
}

static void test_fits(void **state)
{
    struct fake f = {.system = 10, .each = 20, .last = 10, .n_turns = 4};
    struct chat_fit r;
    (void)state;
    assert_int_equal(fit(&f, 100, 20, &r), 0); /* 80 and 20: exactly */
    assert_int_equal(r.drop, 0);
    assert_int_equal(r.n_tokens, 80);
    assert_int_equal(f.n_measured, 1);
}

static void test_drops(void **state)
{
    struct fake f = {.system = 10, .each = 20, .last = 10, .n_turns = 4};
    struct chat_fit r;
    (void)state;
    /* One token too many: two reserves become free, 80 - 20 <= 99 - 2 * 20 needs two turns. */
    assert_int_equal(fit(&f, 99, 20, &r), 0);
    assert_int_equal(r.drop, 2);
    assert_int_equal(r.n_tokens, 40);
    /* Even the last message alone leaves one reserve only: as much as that needs. */
    f = (struct fake){.system = 10, .each = 20, .last = 50, .n_turns = 4};
    assert_int_equal(fit(&f, 80, 15, &r), 0);
    assert_int_equal(r.drop, 3);
    assert_int_equal(r.n_tokens, 60);
}

/* The smallest drop is found for every size, with few measurements. */
static void test_smallest(void **state)
{
    (void)state;
    for (uint32_t n_ctx = 60; n_ctx < 3000; n_ctx += 7) {
        struct fake f = {.system = 10, .each = 20, .last = 10, .n_turns = 100};
        struct chat_fit r;
        size_t drop = 0;
        assert_int_equal(fit(&f, n_ctx, 20, &r), 0);
        if (f.system + 99 * f.each + f.last + 20 > n_ctx)
            while (f.system + (99 - drop) * f.each + f.last + 40 > n_ctx)
                drop++;
        assert_int_equal(r.drop, drop);
        assert_true(f.n_measured <= 10);
    }
}

static void test_too_long(void **state)
{
    struct fake f = {.system = 10, .each = 20, .last = 80, .n_turns = 4};
    struct chat_fit r;
    (void)state;
    assert_int_equal(fit(&f, 100, 20, &r), CHAT_FIT_TOO_LONG);
    assert_int_equal(r.n_tokens, 90);
    f.n_turns = 1;
    assert_int_equal(fit(&f, 100, 20, &r), CHAT_FIT_TOO_LONG);
    assert_int_equal(r.n_tokens, 90);
    assert_int_equal(fit(&f, 4, 1, &r), CHAT_FIT_TOO_LONG);
}

static void test_measure_fails(void **state)
{
    (void)state;
    for (int i = 1; i <= 3; i++) {
        struct fake f = {.system = 10, .each = 20, .last = 10, .n_turns = 9, .fail_at = i};
        struct chat_fit r;
        assert_int_equal(fit(&f, 100, 20, &r), 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserve),  cmocka_unit_test(test_fits),
        cmocka_unit_test(test_drops),    cmocka_unit_test(test_smallest),
        cmocka_unit_test(test_too_long), cmocka_unit_test(test_measure_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
