/* SPDX-License-Identifier: Apache-2.0
 *
 * Chains: what is refused and with which words, and that joining runs of GPU residents changes no
 * latency.
 */
#include "sched_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sched/timeline.h"

static struct sched_case c;

/* The chain is refused, and the message holds `word`. */
static void refused(const char *word)
{
    struct atsi_err err = ATSI_ERR_INIT;
    assert_int_equal(sched_chain_check(&c.ch, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, word));
}

static void fresh(void)
{
    struct atsi_err err = ATSI_ERR_INIT;
    case_random(&c, 7, 9, CASE_EXPERTS);
    assert_int_equal(sched_chain_check(&c.ch, &err), ATSI_OK);
}

static void test_times(void **state)
{
    (void)state;
    fresh();
    c.op[4].tc = -1;
    refused("operator 4: tc is -1");
    c.op[4].tc = SCHED_MAX_NS;
    assert_int_equal(sched_chain_check(&c.ch, NULL), ATSI_OK);
    c.op[4].tc = SCHED_MAX_NS + 1;
    refused("operator 4: tc");
    fresh();
    c.op[0].s = SCHED_MAX_BYTES + 1;
    refused("operator 0: s");
    fresh();
    c.op[8].w = INT64_MIN;
    refused("operator 8: w");
    fresh();
    c.ch.gap = -5;
    refused("gap -5");
    fresh();
    c.ch.rlat = INT64_MAX;
    refused("rlat");
    fresh();
    c.ch.budget = -1;
    refused("budget");
}

static void test_speeds(void **state)
{
    const double bad[] = {0, -1, 1.001, 1e-9, NAN, INFINITY};
    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        fresh();
        c.op[3].km = bad[k];
        refused("operator 3: contention");
        fresh();
        c.ch.ax = bad[k];
        refused("contention speeds am");
    }
}

static void test_indices(void **state)
{
    (void)state;
    fresh();
    c.op[2].rel = 2; /* itself */
    refused("operator 2: rel is 2");
    c.op[2].rel = -2;
    refused("operator 2: rel is -2");
    c.op[2].rel = 1;
    c.op[5].role = 1;
    refused("operator 5: slot class 1");
    c.op[5].role = 0;
    c.op[5].promo = 2;
    refused("operator 5: promo");
    c.op[5].promo = 1;
    c.op[5].pinned = 2;
    refused("pinned 2");
    fresh();
    c.b[6] = 9;
    refused("operator 6: b is 9");
    fresh();
    c.depth[0] = 0;
    refused("no slot");
    fresh();
    c.ch.n_classes = SCHED_MAX_CLASSES + 1;
    refused("classes");
    fresh();
    c.ch.n = SCHED_MAX_OPS + 1;
    refused("operators");
}

static void test_plans(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    uint8_t rb[3] = {0, 1, 0};
    (void)state;
    case_plain(&c, 3);
    c.b[1] = SCHED_GPU;
    c.op[2].promo = 0;
    assert_int_equal(sched_plan_check(&c.ch, rb, &err), ATSI_OK);
    rb[1] = SCHED_CPU;
    assert_int_equal(sched_plan_check(&c.ch, rb, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "operator 1 lives on the GPU"));
    rb[1] = SCHED_GPU;
    rb[2] = SCHED_GPU;
    assert_int_equal(sched_plan_check(&c.ch, rb, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "may not be streamed"));
    rb[2] = 2;
    assert_int_equal(sched_plan_check(&c.ch, rb, &err), ATSI_EINVAL);
}

static void test_contended(void **state)
{
    (void)state;
    fresh();
    assert_false(sched_contended(&c.ch));
    c.op[8].kx = 0.9;
    assert_true(sched_contended(&c.ch));
    fresh();
    c.ch.am = 0.5;
    assert_true(sched_contended(&c.ch));
    case_plain(&c, 0);
    assert_false(sched_contended(&c.ch));
}

/* Plans of the merged chain cost what their full forms cost, and survive the way there and back. */
static void test_merged_latency(void **state)
{
    const struct sched_run run = {.rounds = 3};
    uint64_t st = 11;
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        uint32_t n = (uint32_t)case_range(&st, 0, 30);
        void *mem = case_scratch(sched_merge_scratch(n));
        void *scratch = case_scratch(sched_timeline_scratch(n, 3));
        struct sched_merged m;
        uint8_t full[32], merged[32], back[32];
        double a, b;
        case_random(&c, seed, n, (enum case_kind)(seed % CASE_KINDS));
        sched_merge(&c.ch, mem, &m);
        assert_true(m.chain.n <= n);
        assert_int_equal(sched_chain_check(&m.chain, NULL), ATSI_OK);
        case_plan(&c, &st, full);
        sched_merge_plan(&m, full, merged);
        sched_unmerge_plan(&m, merged, back);
        assert_memory_equal(full, back, n);
        assert_int_equal(sched_latency(&c.ch, full, &run, scratch),
                         sched_latency(&m.chain, merged, &run, scratch));
        case_contend(&c, seed);
        sched_merge(&c.ch, mem, &m);
        a = sched_fluid(&c.ch, full, &run, scratch);
        b = sched_fluid(&m.chain, merged, &run, scratch);
        assert_true(a > b - 0.01 && a < b + 0.01);
        free(mem);
        free(scratch);
    }
}

static void test_merge_runs(void **state)
{
    void *mem = case_scratch(sched_merge_scratch(5));
    struct sched_merged m;
    (void)state;
    case_plain(&c, 5);
    memset(c.b, SCHED_GPU, 4);
    for (uint32_t i = 0; i < 5; i++)
        c.op[i].tg = 10 + i;
    sched_merge(&c.ch, mem, &m);
    assert_int_equal(m.chain.n, 2);
    assert_int_equal(m.chain.op[0].tg, 10 + 11 + 12 + 13);
    c.op[4].rel = 1; /* its end must stay known */
    sched_merge(&c.ch, mem, &m);
    assert_int_equal(m.chain.n, 3);
    assert_int_equal(m.chain.op[2].rel, 0);
    assert_int_equal(m.first[1], 2);
    free(mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),          cmocka_unit_test(test_speeds),
        cmocka_unit_test(test_indices),        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_contended),      cmocka_unit_test(test_merge_runs),
        cmocka_unit_test(test_merged_latency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
