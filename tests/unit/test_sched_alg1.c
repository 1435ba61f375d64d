/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithm 1 against enumeration of all placements, its branch for experts, pins, both readings.
 */
#include "sched_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sched/place.h"

static struct sched_case c;
static uint8_t b[CASE_MAX];

static int solve(const struct sched_alg1 *how, int64_t *value, struct atsi_err *err)
{
    void *scratch = case_scratch(sched_alg1_scratch(&c.ch, how->unit));
    int rc;
    assert_int_equal(sched_chain_check(&c.ch, NULL), ATSI_OK);
    rc = sched_alg1(&c.ch, how, scratch, b, value, err);
    free(scratch);
    return rc;
}

static int64_t units_of(const uint8_t *side, int64_t unit)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < c.ch.n; i++)
        sum += side[i] ? (c.op[i].s + unit - 1) / unit : 0;
    return sum;
}

/* Small integers make ties, sizes that are no multiples of the unit, some gains negative. */
static void random_case(uint64_t *st, uint32_t n, int experts)
{
    case_plain(&c, n);
    c.ch.budget = case_range(st, 0, 60);
    for (uint32_t i = 0; i < n; i++) {
        c.op[i].s = case_range(st, 0, 15);
        c.op[i].tc = case_range(st, 0, 9);
        c.op[i].tg = case_range(st, 0, 5);
        c.op[i].c = case_range(st, 0, 3);
        c.op[i].is_exp = experts && case_range(st, 0, 1);
        if (case_range(st, 0, 5) == 0)
            c.op[i].pinned = (int8_t)case_range(st, 0, 1);
    }
}

/* Whether the branch for experts allows this placement. */
static int allowed(const uint8_t *side, int64_t unit)
{
    int64_t need = 0;
    int experts = 0;
    for (uint32_t i = 0; i < c.ch.n; i++) {
        experts |= c.op[i].is_exp;
        need += !c.op[i].is_exp && c.op[i].pinned != 0 ? (c.op[i].s + unit - 1) / unit : 0;
    }
    for (uint32_t i = 0; i < c.ch.n; i++) {
        int fit = need <= c.ch.budget / unit, want = -1;
        if (experts && fit && !c.op[i].is_exp)
            want = SCHED_GPU;
        if (experts && !fit && c.op[i].is_exp)
            want = SCHED_CPU;
        if (c.op[i].pinned >= 0)
            want = c.op[i].pinned;
        if (want >= 0 && side[i] != want)
            return 0;
    }
    return units_of(side, unit) <= c.ch.budget / unit;
}

static int enumerate(const struct sched_alg1 *how, int64_t *best)
{
    uint8_t side[16];
    int found = 0;
    for (uint32_t bits = 0; bits < 1u << c.ch.n; bits++) {
        int64_t v;
        for (uint32_t i = 0; i < c.ch.n; i++)
            side[i] = bits >> i & 1;
        if (!allowed(side, how->unit))
            continue;
        v = sched_alg1_value(&c.ch, how, side);
        if (!found || v > *best)
            *best = v;
        found = 1;
    }
    return found;
}

static void test_optimal(void **state)
{
    uint64_t st = 42;
    int infeasible = 0;
    (void)state;
    for (int k = 0; k < 3000; k++) {
        struct sched_alg1 how = {.unit = 1 + k % 3};
        int64_t best = 0, value = 0;
        int rc;
        random_case(&st, (uint32_t)case_range(&st, 0, 9), k % 2);
        rc = solve(&how, &value, NULL);
        if (!enumerate(&how, &best)) {
            assert_int_equal(rc, ATSI_ENOFIT);
            infeasible++;
            continue;
        }
        assert_int_equal(rc, ATSI_OK);
        assert_int_equal(value, best);
        assert_true(allowed(b, how.unit));
        assert_int_equal(value, sched_alg1_value(&c.ch, &how, b));
    }
    assert_true(infeasible > 10);
}

static void test_own_gains_and_prices(void **state)
{
    uint64_t st = 4;
    (void)state;
    for (int k = 0; k < 300; k++) {
        int64_t r[8], price[8], best = 0, value;
        struct sched_alg1 how = {.unit = 1, .r = r, .c = price};
        random_case(&st, 8, 0);
        for (int i = 0; i < 8; i++) {
            c.op[i].pinned = -1;
            r[i] = case_range(&st, -5, 9);
            price[i] = case_range(&st, 0, 4);
        }
        assert_int_equal(solve(&how, &value, NULL), ATSI_OK);
        assert_true(enumerate(&how, &best));
        assert_int_equal(value, best);
    }
}

/* Solving experts alone forgets the switches to what lies between them. */
static void test_subsequence(void **state)
{
    struct sched_alg1 how = {.unit = 1};
    int64_t value;
    (void)state;
    case_plain(&c, 4);
    for (uint32_t i = 0; i < 4; i++) {
        c.op[i].s = 1;
        c.op[i].tc = i % 2 ? 5 : 3;
        c.op[i].c = 4;
        c.op[i].is_exp = i % 2;
    }
    c.ch.budget = 4;
    /* all fit: nothing to switch for */
    assert_int_equal(solve(&how, &value, NULL), ATSI_OK);
    assert_int_equal(value, 16);
    c.ch.budget = 3;
    /* The expert left out costs its gain and, in the chain, switches: the last one has but one. */
    assert_int_equal(solve(&how, &value, NULL), ATSI_OK);
    assert_int_equal(value, 11 - 4);
    assert_int_equal(b[3], SCHED_CPU);
    how.subsequence = 1;
    c.op[1].tc = 4; /* alone, the second expert is the one to keep */
    c.op[3].tc = 5;
    assert_int_equal(solve(&how, &value, NULL), ATSI_OK);
    assert_int_equal(b[1], SCHED_CPU);
    assert_int_equal(b[3], SCHED_GPU);
    assert_int_equal(value, 3 + 3 + 5 - 4 - 4);
}

static void test_edges(void **state)
{
    struct sched_alg1 how = {.unit = SCHED_UNIT};
    struct atsi_err err = ATSI_ERR_INIT;
    int64_t value;
    (void)state;
    case_plain(&c, 0);
    assert_int_equal(solve(&how, &value, NULL), ATSI_OK);
    assert_int_equal(value, 0);
    case_plain(&c, 1);
    c.op[0].s = SCHED_UNIT + 1; /* two units */
    c.op[0].tc = 8;
    c.ch.budget = 2 * SCHED_UNIT - 1;
    assert_int_equal(solve(&how, &value, NULL), ATSI_OK);
    assert_int_equal(value, 0);
    assert_int_equal(b[0], SCHED_CPU);
    c.ch.budget = 2 * SCHED_UNIT;
    assert_int_equal(solve(&how, &value, NULL), ATSI_OK);
    assert_int_equal(value, 8);
    c.op[0].pinned = SCHED_GPU;
    c.ch.budget = SCHED_UNIT;
    assert_int_equal(solve(&how, &value, &err), ATSI_ENOFIT);
    assert_non_null(strstr(err.msg, "1048576"));
    /* a budget beyond everything asks for no table of its size */
    c.op[0].s = 3;
    c.ch.budget = INT64_MAX;
    how.unit = 1;
    assert_int_equal(solve(&how, &value, NULL), ATSI_OK);
    assert_int_equal(b[0], SCHED_GPU);
}

static void test_too_fine_a_unit(void **state)
{
    struct sched_alg1 how = {.unit = 1};
    struct atsi_err err = ATSI_ERR_INIT;
    void *scratch = case_scratch(4096);
    int64_t value;
    (void)state;
    case_plain(&c, 2);
    c.op[0].s = c.op[1].s = INT64_C(1) << 40;
    assert_true(sched_alg1_scratch(&c.ch, 1) == SIZE_MAX);
    assert_int_equal(sched_alg1(&c.ch, &how, scratch, b, &value, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "larger unit"));
    free(scratch);
}

static void test_largest_values(void **state)
{
    struct sched_alg1 how = {.unit = SCHED_MAX_BYTES};
    int64_t value;
    (void)state;
    case_plain(&c, CASE_MAX);
    c.ch.budget = INT64_MAX;
    for (uint32_t i = 0; i < CASE_MAX; i++) {
        c.op[i].s = SCHED_MAX_BYTES;
        c.op[i].tc = SCHED_MAX_NS;
        c.op[i].c = SCHED_MAX_NS;
    }
    assert_int_equal(solve(&how, &value, NULL), ATSI_OK);
    assert_int_equal(value, CASE_MAX * SCHED_MAX_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimal),         cmocka_unit_test(test_own_gains_and_prices),
        cmocka_unit_test(test_subsequence),     cmocka_unit_test(test_edges),
        cmocka_unit_test(test_too_fine_a_unit), cmocka_unit_test(test_largest_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
