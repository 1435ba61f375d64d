/* SPDX-License-Identifier: Apache-2.0
 *
 * The backlog DP and the scheduler around it, against the optimum by enumeration on both timelines.
 */
#include "sched_cases.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sched/dynamic.h"
#include "sched/timeline.h"

static struct sched_case c;
static uint8_t rb[CASE_MAX];

static int64_t backlog(const struct sched_backlog *how)
{
    void *scratch = case_scratch(sched_backlog_scratch(c.ch.n, how->width));
    int64_t t = sched_backlog(&c.ch, how, scratch, rb);
    free(scratch);
    assert_int_equal(sched_plan_check(&c.ch, rb, NULL), ATSI_OK);
    return t;
}

static double cost_of(const uint8_t *plan, int fluid, uint32_t rounds)
{
    const struct sched_run run = {.rounds = rounds, .follows = rounds > 1};
    void *scratch = case_scratch(sched_timeline_scratch(c.ch.n, rounds));
    double t = fluid ? sched_fluid(&c.ch, plan, &run, scratch)
                     : (double)sched_latency(&c.ch, plan, &run, scratch);
    free(scratch);
    return t;
}

static struct sched_found search(const struct sched_search *how)
{
    void *scratch = case_scratch(sched_search_scratch(c.ch.n, how->rounds));
    struct sched_found found;
    sched_search(&c.ch, how, scratch, rb, &found);
    free(scratch);
    assert_int_equal(sched_plan_check(&c.ch, rb, NULL), ATSI_OK);
    return found;
}

/* Three classes of slots, one of them never used by a free operator. */
static void classes(uint64_t seed)
{
    uint64_t st = seed + 1;
    c.ch.n_classes = 4;
    c.depth[1] = 1;
    c.depth[2] = 3;
    c.depth[3] = 2;
    for (uint32_t i = 0; i < c.ch.n; i++)
        c.op[i].role = c.b[i] ? 3 : (uint16_t)case_range(&st, 0, 2);
}

/* What the labels say is what the timeline says, whatever is dropped. */
static void test_labels_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 800; seed++) {
        struct sched_backlog how = {.price = 3, .price_scale = 10};
        how.width = 1 + (uint32_t)(seed % 9);
        case_random(&c, seed, (uint32_t)(seed % 40), (enum case_kind)(seed % CASE_KINDS));
        if (seed % 3 == 0)
            classes(seed);
        assert_true((double)backlog(&how) == cost_of(rb, 0, 1));
    }
}

/* Wide enough, little is lost. */
static void test_near_the_optimum(void **state)
{
    const struct sched_backlog how = {.width = 64, .price = 3, .price_scale = 10};
    double sum = 0, worst = 1;
    int n = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        uint8_t best[16];
        double opt, ratio;
        case_random(&c, seed, 11, (enum case_kind)(seed % CASE_KINDS));
        opt = case_optimum(&c, case_latency, best);
        if (opt <= 0)
            continue;
        ratio = (double)backlog(&how) / opt;
        assert_true(ratio >= 1);
        sum += ratio;
        worst = ratio > worst ? ratio : worst;
        n++;
    }
    assert_true(n > 300);
    assert_true(sum / n < 1.0005);
    assert_true(worst < 1.05);
}

static void test_width(void **state)
{
    (void)state;
    case_plain(&c, 0);
    assert_int_equal(sched_backlog_width(&c.ch), SCHED_MAX_WIDTH);
    case_plain(&c, 100);
    assert_int_equal(sched_backlog_width(&c.ch), 20);
    case_plain(&c, CASE_MAX);
    assert_int_equal(sched_backlog_width(&c.ch), 8);
}

/* An idle engine before the round is used: all weights of the first two slots may have come. */
static void test_idle_before_the_round(void **state)
{
    struct sched_backlog how = {.width = 8, .price = 3, .price_scale = 10};
    (void)state;
    case_plain(&c, 2);
    for (uint32_t i = 0; i < 2; i++) {
        c.op[i].tc = 100;
        c.op[i].tg = 10;
        c.op[i].w = 80;
    }
    assert_int_equal(backlog(&how), 100 + 10);
    how.idle_ns = 160;
    assert_int_equal(backlog(&how), 20);
}

static void test_largest_values(void **state)
{
    const struct sched_backlog how = {
        .width = 8, .price = 3, .price_scale = 10, .slower_pm = 4000000, .lost_pm = 4000000};
    (void)state;
    case_plain(&c, CASE_MAX);
    for (uint32_t i = 0; i < CASE_MAX; i++)
        c.op[i].tc = c.op[i].tg = c.op[i].w = c.op[i].cg = c.op[i].evt = SCHED_MAX_NS;
    assert_int_equal(backlog(&how), CASE_MAX * SCHED_MAX_NS);
}

/* Many classes share what a label remembers. */
static void test_all_classes(void **state)
{
    const struct sched_backlog how = {.width = 8, .price = 3, .price_scale = 10};
    (void)state;
    case_random(&c, 5, 300, CASE_DENSE);
    c.ch.n_classes = SCHED_MAX_CLASSES;
    for (uint32_t q = 0; q < SCHED_MAX_CLASSES; q++)
        c.depth[q] = 1 + q % 5 * 100;
    for (uint32_t i = 0; i < 300; i++)
        c.op[i].role = (uint16_t)(i * 7 % SCHED_MAX_CLASSES);
    /* fewer slots per class are assumed than there are: the labels may be late, never early */
    assert_true((double)backlog(&how) >= cost_of(rb, 0, 1));
}

/* Candidates a search must not lose against. */
static void never_slower(const struct sched_found *found, uint32_t rounds)
{
    uint8_t plan[CASE_MAX];
    void *scratch = case_scratch(sched_alg2_scratch(c.ch.n) + sched_alg2_repaired_scratch(c.ch.n));
    double ns = cost_of(rb, found->fluid, rounds) - 1e-3;
    (void)sched_alg2(&c.ch, SCHED_ALG2_CLIPPED, scratch, plan);
    assert_true(ns <= cost_of(plan, found->fluid, rounds));
    (void)sched_alg2_repaired(&c.ch, scratch, plan);
    assert_true(ns <= cost_of(plan, found->fluid, rounds));
    assert_true(ns <= cost_of(c.b, found->fluid, rounds));
    for (uint32_t i = 0; i < c.ch.n; i++)
        plan[i] = c.b[i] || c.op[i].promo;
    assert_true(ns <= cost_of(plan, found->fluid, rounds));
    free(scratch);
}

static void test_never_slower_than_others(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct sched_search how = {.rounds = 1 + (uint32_t)(seed % 2), .evals = 20};
        struct sched_found found;
        double ns;
        case_random(&c, seed, (uint32_t)(seed % 50), (enum case_kind)(seed % CASE_KINDS));
        if (seed % 3 == 0)
            classes(seed);
        if (seed % 5 > 2)
            case_contend(&c, seed);
        found = search(&how);
        assert_int_equal(found.fluid, sched_contended(&c.ch));
        never_slower(&found, how.rounds);
        ns = cost_of(rb, found.fluid, how.rounds);
        assert_true((double)found.ns > ns - 1 && (double)found.ns < ns + 1);
    }
}

static void gap(int fluid, double mean_below, double worst_below)
{
    double sum = 0, worst = 1;
    int n = 0;
    for (uint64_t seed = 1000; seed < 1150; seed++) {
        const struct sched_search how = {.rounds = 1, .evals = 100};
        struct sched_found found;
        uint8_t best[16];
        double opt;
        case_random(&c, seed, 11, (enum case_kind)(seed % CASE_KINDS));
        if (fluid)
            case_contend(&c, seed);
        opt = case_optimum(&c, fluid ? case_fluid : case_latency, best);
        found = search(&how);
        if (opt <= 0)
            continue;
        assert_true((double)found.ns >= opt - 1);
        sum += (double)found.ns / opt;
        worst = (double)found.ns / opt > worst ? (double)found.ns / opt : worst;
        n++;
    }
    assert_true(sum / n < mean_below);
    assert_true(worst < worst_below);
}

static void test_gap_free(void **state)
{
    (void)state;
    gap(0, 1.0005, 1.02);
}

static void test_gap_fluid(void **state)
{
    (void)state;
    gap(1, 1.005, 1.10);
}

static void test_judges(void **state)
{
    struct sched_search how = {.rounds = 1, .evals = 0};
    struct sched_found found;
    (void)state;
    case_random(&c, 3, 30, CASE_DENSE);
    case_contend(&c, 3);
    how.judge = SCHED_JUDGE_FREE;
    found = search(&how);
    assert_false(found.fluid);
    assert_true((double)found.ns == cost_of(rb, 0, 1));
    how.judge = SCHED_JUDGE_FLUID;
    assert_true(search(&how).fluid);
}

/* The plan in force is a candidate; with no evaluations left over nothing can beat the optimum. */
static void test_extra_candidates(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        uint8_t best[16];
        const uint8_t *extra[1] = {best};
        const struct sched_search how = {
            .rounds = 1, .evals = 0, .width = 1, .quick = 1, .n_extra = 1, .extra = extra};
        double opt;
        case_random(&c, seed, 12, (enum case_kind)(seed % CASE_KINDS));
        opt = case_optimum(&c, case_latency, best);
        assert_true((double)search(&how).ns == opt);
    }
}

static void test_evaluations_are_limited(void **state)
{
    struct sched_search how = {.rounds = 1, .evals = 0};
    uint32_t base, more;
    (void)state;
    case_random(&c, 8, 200, CASE_DENSE);
    memset(c.b, 0, 200);
    base = search(&how).evals;
    assert_true(base >= 3 && base <= 12);
    how.evals = 50;
    more = search(&how).evals;
    assert_true(more >= base + 50 && more <= base + 52);
}

static void test_nothing_to_decide(void **state)
{
    const struct sched_search how = {.rounds = 2, .evals = 10};
    (void)state;
    case_plain(&c, 0);
    assert_int_equal(search(&how).ns, 0);
    case_plain(&c, 2);
    c.op[0].tc = 5;
    c.op[0].promo = 0;
    c.op[1].tg = 3;
    c.b[1] = SCHED_GPU;
    assert_int_equal(search(&how).ns, 8);
    assert_int_equal(rb[1], SCHED_GPU);
}

/* Eight threads, the same problem, the same bits. */
static void *worker(void *out)
{
    const struct sched_search how = {.rounds = 2, .evals = 30};
    void *scratch = case_scratch(sched_search_scratch(c.ch.n, 2));
    struct sched_found found;
    sched_search(&c.ch, &how, scratch, out, &found);
    free(scratch);
    return NULL;
}

static void test_threads(void **state)
{
    static uint8_t out[8][CASE_MAX];
    pthread_t id[8];
    (void)state;
    case_random(&c, 21, 120, CASE_EXPERTS);
    case_contend(&c, 21);
    for (int k = 0; k < 8; k++)
        assert_int_equal(pthread_create(&id[k], NULL, worker, out[k]), 0);
    for (int k = 0; k < 8; k++)
        assert_int_equal(pthread_join(id[k], NULL), 0);
    for (int k = 1; k < 8; k++)
        assert_memory_equal(out[k], out[0], 120);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels_are_exact),
        cmocka_unit_test(test_near_the_optimum),
        cmocka_unit_test(test_width),
        cmocka_unit_test(test_idle_before_the_round),
        cmocka_unit_test(test_largest_values),
        cmocka_unit_test(test_all_classes),
        cmocka_unit_test(test_never_slower_than_others),
        cmocka_unit_test(test_gap_free),
        cmocka_unit_test(test_gap_fluid),
        cmocka_unit_test(test_judges),
        cmocka_unit_test(test_extra_candidates),
        cmocka_unit_test(test_evaluations_are_limited),
        cmocka_unit_test(test_nothing_to_decide),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
