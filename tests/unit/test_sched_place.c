/* SPDX-License-Identifier: Apache-2.0
 *
 * Placements in coarse grains, the lower bound, the placement for both phases, and the rules for
 * planning anew.
 */
#include "sched_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sched/dynamic.h"
#include "sched/place.h"
#include "sched/resched.h"
#include "sched/sort.h"
#include "sched/spread.h"
#include "sched/timeline.h"

static struct sched_case c, f;
static uint8_t b[CASE_MAX];

static int grain(enum sched_grain how, int ignore_pins)
{
    void *scratch = case_scratch(sched_grain_scratch(c.ch.n));
    int rc = sched_place_grain(&c.ch, how, ignore_pins, scratch, b, NULL);
    free(scratch);
    return rc;
}

static void placed(const char *want)
{
    for (uint32_t i = 0; i < c.ch.n; i++)
        assert_int_equal(b[i], want[i] - '0');
}

/* Three layers of an attention weight (10) and two experts (20 each), a head (5) as the last. */
static void layers(int64_t budget)
{
    case_plain(&c, 10);
    c.ch.budget = budget;
    for (uint32_t i = 0; i < 10; i++) {
        c.op[i].layer = (int32_t)(i / 3);
        c.op[i].is_exp = i % 3 > 0;
        c.op[i].s = i == 9 ? 5 : i % 3 > 0 ? 20 : 10;
        c.op[i].tc = 100 + i;
    }
}

static void test_by_layer(void **state)
{
    (void)state;
    layers(4);
    assert_int_equal(grain(SCHED_BY_LAYER, 0), ATSI_OK);
    placed("0000000000");
    layers(54);
    assert_int_equal(grain(SCHED_BY_LAYER, 0), ATSI_OK);
    placed("0000000001");
    layers(106);
    assert_int_equal(grain(SCHED_BY_LAYER, 0), ATSI_OK);
    placed("0001111111");
    layers(1000);
    c.op[0].layer = -1; /* outside the layers: comes last, but comes */
    assert_int_equal(grain(SCHED_BY_LAYER, 0), ATSI_OK);
    placed("1111111111");
}

static void test_by_expert(void **state)
{
    (void)state;
    layers(34); /* the rest does not fit: by layer */
    assert_int_equal(grain(SCHED_BY_EXPERT, 0), ATSI_OK);
    placed("0000000001");
    layers(74);
    assert_int_equal(grain(SCHED_BY_EXPERT, 0), ATSI_OK);
    placed("1001001001");
    layers(75);
    assert_int_equal(grain(SCHED_BY_EXPERT, 0), ATSI_OK);
    placed("1001001111");
}

static void test_by_density(void **state)
{
    (void)state;
    layers(30);
    c.op[4].tc = 1000; /* 50 per byte: the best; then the head, then what still fits */
    c.op[0].tc = 0;    /* no gain */
    c.op[0].tg = 9;
    assert_int_equal(grain(SCHED_BY_DENSITY, 0), ATSI_OK);
    placed("0000100001");
    layers(35);
    c.op[4].tc = 1000;
    assert_int_equal(grain(SCHED_BY_DENSITY, 0), ATSI_OK);
    placed("0000101001");
}

static void test_pins(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    void *scratch = case_scratch(sched_grain_scratch(10));
    (void)state;
    for (int how = SCHED_BY_LAYER; how <= SCHED_BY_DENSITY; how++) {
        layers(70);
        c.op[0].pinned = SCHED_GPU;
        c.op[9].pinned = SCHED_CPU;
        assert_int_equal(grain((enum sched_grain)how, 0), ATSI_OK);
        assert_int_equal(b[0], SCHED_GPU);
        assert_int_equal(b[9], SCHED_CPU);
        c.ch.budget = 9;
        assert_int_equal(sched_place_grain(&c.ch, (enum sched_grain)how, 0, scratch, b, &err),
                         ATSI_ENOFIT);
        assert_non_null(strstr(err.msg, "10 bytes, the budget is 9"));
        assert_int_equal(grain((enum sched_grain)how, 1), ATSI_OK);
        assert_int_equal(b[0], SCHED_CPU);
    }
    free(scratch);
}

static void test_budget_is_kept(void **state)
{
    uint64_t st = 6;
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        case_random(&c, seed, 40, CASE_EXPERTS);
        c.ch.budget = case_range(&st, 0, 1000) << 20;
        for (int how = SCHED_BY_LAYER; how <= SCHED_BY_DENSITY; how++) {
            int64_t used = 0;
            assert_int_equal(grain((enum sched_grain)how, 0), ATSI_OK);
            for (uint32_t i = 0; i < 40; i++)
                used += b[i] ? c.op[i].s : 0;
            assert_true(used <= c.ch.budget);
        }
    }
}

static void test_sort(void **state)
{
    uint64_t st = 2;
    (void)state;
    for (int k = 0; k < 300; k++) {
        uint32_t n = (uint32_t)case_range(&st, 0, 40), id[40];
        double key[40];
        for (uint32_t i = 0; i < n; i++) {
            id[i] = i;
            key[i] = (double)case_range(&st, -3, 6);
        }
        sched_sort_falling(id, key, n);
        for (uint32_t i = 1; i < n; i++)
            assert_true(key[id[i - 1]] > key[id[i]] ||
                        (key[id[i - 1]] == key[id[i]] && id[i - 1] < id[i]));
    }
}

/* No plan of a round beats the bound, and where streaming is free it is met. */
static void test_bound(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        void *scratch = case_scratch(sched_bound_scratch(10));
        uint8_t best[16];
        int64_t bound;
        case_random(&c, seed, 10, (enum case_kind)(seed % CASE_KINDS));
        bound = sched_bound(&c.ch, scratch) - c.ch.gap;
        assert_true((double)bound <= case_optimum(&c, case_latency, best));
        free(scratch);
    }
}

static void test_bound_by_hand(void **state)
{
    void *scratch = case_scratch(sched_bound_scratch(3));
    (void)state;
    case_plain(&c, 3);
    c.ch.gap = 7;
    for (uint32_t i = 0; i < 3; i++) {
        c.op[i].tc = 100;
        c.op[i].tg = 10;
        c.op[i].w = 110;
    }
    /* one promoted: chain 217, engine 110; of the second the share x: 217 - 90 x = 110 + 110 x */
    assert_int_equal(sched_bound(&c.ch, scratch), 168);
    c.op[1].promo = c.op[2].promo = 0;
    assert_int_equal(sched_bound(&c.ch, scratch), 217);
    case_plain(&c, 3);
    for (uint32_t i = 0; i < 3; i++) {
        c.op[i].tc = c.op[i].w = SCHED_MAX_NS;
        c.op[i].tg = 0;
    }
    assert_int_equal(sched_bound(&c.ch, scratch), 3 * SCHED_MAX_NS / 2);
    case_plain(&c, 0);
    assert_int_equal(sched_bound(&c.ch, scratch), 0);
    free(scratch);
}

/* ---- choosing among equals ---- */

static void test_spread_keeps_sums(void **state)
{
    uint64_t st = 12;
    (void)state;
    for (int k = 0; k < 200; k++) {
        void *scratch = case_scratch(sched_spread_scratch(60));
        struct sched_spread sp;
        uint8_t old[60], side[60];
        case_plain(&c, 60);
        for (uint32_t i = 0; i < 60; i++) { /* layers of four or five, one operator outside */
            uint32_t layer = i * 2 / 9;
            c.op[i].layer = i == 30 ? -1 : (int32_t)layer;
            c.op[i].s = i > 0 && c.op[i - 1].layer == c.op[i].layer ? c.op[i - 1].s + 3 : 1;
            c.op[i].pinned = i == 20 ? SCHED_GPU : -1;
            old[i] = i == 20 || case_range(&st, 0, 1);
        }
        sched_spread_init(&c.ch, &c.ch, scratch, &sp);
        for (int how = 0; how < SCHED_SPREADS; how++) {
            int64_t bytes = 0;
            memcpy(side, old, 60);
            sched_spread_apply(&sp, (enum sched_spread_how)how, side);
            for (uint32_t i = 0; i < 60; i++)
                bytes += (side[i] - old[i]) * c.op[i].s;
            assert_int_equal(bytes, 0);
            assert_int_equal(side[20], SCHED_GPU);
            assert_int_equal(side[30], old[30]);
        }
        free(scratch);
    }
}

/* Eight equal layers of two operators, the last four on the GPU: afterwards no three in a row. */
static void test_spread_spreads(void **state)
{
    void *scratch = case_scratch(sched_spread_scratch(16));
    struct sched_spread sp;
    (void)state;
    case_plain(&c, 16);
    for (uint32_t i = 0; i < 16; i++) {
        c.op[i].layer = (int32_t)(i / 2);
        c.op[i].s = 1 + i % 2;
        b[i] = i >= 8;
    }
    sched_spread_init(&c.ch, &c.ch, scratch, &sp);
    sched_spread_apply(&sp, SCHED_SPREAD_LAYERS, b);
    for (uint32_t l = 0; l < 8; l++) {
        assert_int_equal(b[2 * l], b[2 * l + 1]); /* layers stay whole */
        if (l > 1)
            assert_false(b[2 * l] == b[2 * l - 2] && b[2 * l] == b[2 * l - 4]);
    }
    for (uint32_t i = 0; i < 16; i++)
        b[i] = i >= 8;
    sched_spread_apply(&sp, SCHED_SPREAD_IN_STEP, b);
    placed("1100110011001100");
    free(scratch);
}

/* ---- placement for both phases ---- */

/* A model of `n / 4` layers: attention, two weights, and one that may not be streamed. */
static void both_phases(uint32_t n, int64_t budget)
{
    case_random(&c, 77, n, CASE_DENSE);
    for (uint32_t i = 0; i < n; i++) {
        c.b[i] = 0;
        c.op[i].s = (i % 4 == 0 ? 4 : 20) << 20;
        c.op[i].tc = c.op[i].s / 32 + 6000;
        c.op[i].tg = c.op[i].s / 400 + 4000;
        c.op[i].w = c.op[i].s / 12 + 8000;
        c.op[i].promo = i % 4 != 0;
    }
    c.ch.budget = budget;
    f = c;
    f.ch.op = f.op;
    f.ch.b = f.b;
    f.ch.depth = f.depth;
    for (uint32_t i = 0; i < n; i++) {
        f.op[i].tc *= i % 4 == 0 ? 60 : 15;
        f.op[i].tg *= 5;
    }
}

static double request(const uint8_t *side, uint32_t tokens, uint32_t chunks)
{
    double sum = 0;
    for (int k = 0; k < 2; k++) {
        struct sched_chain ch = k ? f.ch : c.ch;
        const struct sched_search how = {.rounds = k ? 1 : 2, .width = 8, .quick = 1};
        void *scratch = case_scratch(sched_search_scratch(ch.n, 2));
        struct sched_found found;
        uint8_t rb[CASE_MAX];
        ch.b = side;
        sched_search(&ch, &how, scratch, rb, &found);
        sum += (double)found.ns * (k ? chunks : tokens);
        free(scratch);
    }
    return sum;
}

static void test_coplace(void **state)
{
    uint8_t attn[40], alone[CASE_MAX];
    struct sched_coplace how = {.decode = &c.ch,
                                .prefill = &f.ch,
                                .n_tokens = 64,
                                .n_chunks = 4,
                                .decode_rounds = 2,
                                .unit = SCHED_UNIT,
                                .attn = attn};
    const struct sched_alg1 alg1 = {.unit = SCHED_UNIT};
    struct sched_coplaced out;
    void *scratch;
    int64_t value, used = 0;
    (void)state;
    both_phases(40, INT64_C(300) << 20);
    c.op[39].pinned = SCHED_CPU;
    for (uint32_t i = 0; i < 40; i++)
        attn[i] = i % 4 == 0;
    scratch = case_scratch(sched_coplace_scratch(&how));
    assert_int_equal(sched_coplace(&how, scratch, b, &out, NULL), ATSI_OK);
    for (uint32_t i = 0; i < 40; i++)
        used += b[i] ? c.op[i].s : 0;
    assert_true(used <= c.ch.budget);
    assert_int_equal(b[39], SCHED_CPU);
    assert_true(out.tried > 3);
    assert_true(out.request_ns == (double)out.decode_ns * 64 + (double)out.prefill_ns * 4);
    assert_true(out.request_ns == request(b, 64, 4));
    /* at least as good as what it is made from */
    assert_int_equal(sched_alg1(&c.ch, &alg1, scratch, alone, &value, NULL), ATSI_OK);
    assert_true(out.request_ns <= request(alone, 64, 4) * 1.02);
    assert_int_equal(sched_place_grain(&c.ch, SCHED_BY_LAYER, 0, scratch, alone, NULL), ATSI_OK);
    assert_true(out.request_ns <= request(alone, 64, 4));
    free(scratch);
}

static void test_coplace_edges(void **state)
{
    struct sched_coplace how = {.decode = &c.ch,
                                .prefill = &f.ch,
                                .n_tokens = 0,
                                .n_chunks = 1,
                                .decode_rounds = 2,
                                .unit = SCHED_UNIT};
    struct atsi_err err = ATSI_ERR_INIT;
    struct sched_coplaced out;
    void *scratch;
    (void)state;
    for (uint32_t n = 0; n < 3; n++) {
        both_phases(n, INT64_C(10) << 20);
        scratch = case_scratch(sched_coplace_scratch(&how));
        assert_int_equal(sched_coplace(&how, scratch, b, &out, NULL), ATSI_OK);
        free(scratch);
    }
    c.op[1].pinned = SCHED_GPU;
    scratch = case_scratch(sched_coplace_scratch(&how));
    assert_int_equal(sched_coplace(&how, scratch, b, &out, &err), ATSI_ENOFIT);
    free(scratch);
    c.op[0].s = SCHED_MAX_BYTES;
    c.ch.budget = SCHED_MAX_BYTES;
    how.unit = 1;
    assert_true(sched_coplace_scratch(&how) == SIZE_MAX);
}

/* ---- planning anew ---- */

static void test_resched(void **state)
{
    uint32_t prev[2] = {0};
    struct sched_resched r = {.eps_pm = 150, .tau_tpots = 5, .prev = prev, .n = 2};
    (void)state;
    assert_true(sched_resched_step(&r, 100, 10, (const uint32_t[]){1000, 1000})); /* first */
    assert_false(sched_resched_step(&r, 1000, 10, (const uint32_t[]){1149, 851}));
    assert_false(sched_resched_step(&r, 149, 10, (const uint32_t[]){1150, 1000})); /* too early */
    assert_true(sched_resched_step(&r, 150, 10, (const uint32_t[]){1150, 0}));
    /* the absent class kept its value, and being absent is no change */
    assert_int_equal(prev[1], 1000);
    assert_false(sched_resched_step(&r, 1000, 10, (const uint32_t[]){0, 0}));
    assert_true(sched_resched_step(&r, 1000, 10, (const uint32_t[]){1150, 850}));
    /* never seen before: nothing to compare with */
    prev[1] = 0;
    assert_false(sched_resched_step(&r, 9000, 10, (const uint32_t[]){1150, 5000}));
    /* no overflow at the end of time */
    r.tau_tpots = UINT32_MAX;
    assert_false(sched_resched_step(&r, INT64_MAX, INT64_MAX, (const uint32_t[]){5000, 5000}));
    r.tau_tpots = 0;
    assert_true(sched_resched_step(&r, INT64_MAX, INT64_MAX, (const uint32_t[]){UINT32_MAX, 1}));
}

static void test_pays(void **state)
{
    (void)state;
    assert_false(sched_pays(1000, 995, 1000, 0)); /* within 1 % */
    assert_true(sched_pays(1000, 980, 1, 9));
    assert_false(sched_pays(1000, 980, 1, 10));
    assert_true(sched_pays(1000, 980, 64, 639));
    assert_false(sched_pays(1000, 980, 1000, 640)); /* 64 tokens at most count */
    assert_false(sched_pays(1000, 980, 0, 0));
    assert_false(sched_pays(1000, 2000, 10, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_layer),
        cmocka_unit_test(test_by_expert),
        cmocka_unit_test(test_by_density),
        cmocka_unit_test(test_pins),
        cmocka_unit_test(test_budget_is_kept),
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_bound_by_hand),
        cmocka_unit_test(test_spread_keeps_sums),
        cmocka_unit_test(test_spread_spreads),
        cmocka_unit_test(test_coplace),
        cmocka_unit_test(test_coplace_edges),
        cmocka_unit_test(test_resched),
        cmocka_unit_test(test_pays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
