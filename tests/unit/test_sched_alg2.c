/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithm 2 in all forms against the plain recurrences, which try every start point: the same
 * cost, and the plan that is returned has that cost when it is evaluated as it stands.
 */
#include "sched_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sched/dynamic.h"
#include "sched/timeline.h"

#define INF (INT64_MAX / 4)

static struct sched_case c;
static uint8_t rb[CASE_MAX];

/* ---- the recurrences, counting from 1 ---- */

static int home(uint32_t i)
{
    return i == 0 ? SCHED_CPU : c.b[i - 1];
}

static int64_t price(uint32_t i)
{
    return i > 1 ? c.op[i - 1].c : 0;
}

/* Time of operator i at its default side. */
static int64_t takes(uint32_t i)
{
    if (i == 0)
        return 0;
    return home(i) ? c.op[i - 1].tg : c.op[i - 1].tc;
}

static void prefix(int64_t *P)
{
    P[0] = 0;
    for (uint32_t i = 1; i <= c.ch.n; i++)
        P[i] = P[i - 1] + takes(i) + (home(i) != home(i - 1) ? price(i) : 0);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The least cost, over the plans that agree with `fixed` if that is not NULL. */
static int64_t plain(enum sched_alg2_form form, const uint8_t *fixed)
{
    int64_t P[CASE_MAX + 1], d[CASE_MAX + 1][2];
    uint32_t last = 0; /* promoted operator before i, of the fixed plan */
    prefix(P);
    d[0][0] = 0;
    d[0][1] = INF;
    for (uint32_t i = 1; i <= c.ch.n; i++) {
        const struct sched_op *op = &c.op[i - 1];
        int paying = form == SCHED_ALG2_LITERAL17 ? SCHED_GPU : SCHED_CPU;
        int64_t stay = d[i - 1][0], best = INF;
        uint32_t first = form == SCHED_ALG2_CLIPPED ? (uint32_t)(op->rel + 1) : 0;
        d[i][0] = d[i][1] = INF;
        if (home(i) == SCHED_GPU) {
            int64_t come = stay + price(i);
            d[i][1] = (come < d[i - 1][1] ? come : d[i - 1][1]) + op->tg;
            continue;
        }
        if (fixed == NULL || fixed[i - 1] == SCHED_CPU) {
            int64_t come = d[i - 1][1] + price(i);
            d[i][0] = (come < stay ? come : stay) + op->tc;
        }
        if (!op->promo || (fixed != NULL && fixed[i - 1] == SCHED_CPU))
            continue;
        for (uint32_t j = first; j < i; j++) {
            /* a fixed plan has nothing promoted inside the window */
            int router = j == first && first > 0 && home(j) == SCHED_GPU;
            if (last > 0 && j <= last)
                continue;
            if (home(j) == SCHED_CPU || router) {
                int64_t v = d[j][home(j)] + larger(op->w, P[i - 1] - P[j]);
                best = v < best ? v : best;
            }
        }
        d[i][1] = best >= INF ? INF : best + op->tg + (home(i - 1) == paying ? price(i) : 0);
        last = fixed != NULL ? i : 0;
    }
    return d[c.ch.n][0] < d[c.ch.n][1] ? d[c.ch.n][0] : d[c.ch.n][1];
}

static int64_t plain_repaired(void)
{
    int64_t P[CASE_MAX + 1], d[CASE_MAX + 1][2];
    prefix(P);
    d[0][0] = 0;
    d[0][1] = INF;
    for (uint32_t i = 1; i <= c.ch.n; i++) {
        const struct sched_op *op = &c.op[i - 1];
        int side = home(i);
        int64_t come = d[i - 1][!side] + price(i), best = INF;
        d[i][!side] = INF;
        d[i][side] = (come < d[i - 1][side] ? come : d[i - 1][side]) + (side ? op->tg : op->tc);
        for (uint32_t j = (uint32_t)(op->rel + 1); side == SCHED_CPU && op->promo && j < i; j++)
            for (int st = 0; st < 2; st++) {
                int64_t seg = 0, v;
                int at = st;
                for (uint32_t k = j + 1; k < i; k++) {
                    seg += takes(k) + (home(k) != at ? price(k) : 0);
                    at = home(k);
                }
                v = d[j][st] + larger(op->w, seg) + (at == SCHED_CPU ? price(i) : 0);
                best = v < best ? v : best;
            }
        if (best < INF)
            d[i][1] = best + op->tg;
    }
    return d[c.ch.n][0] < d[c.ch.n][1] ? d[c.ch.n][0] : d[c.ch.n][1];
}

/* ---- tests ---- */

static int64_t solve(enum sched_alg2_form form)
{
    void *scratch = case_scratch(sched_alg2_scratch(c.ch.n));
    int64_t cost = sched_alg2(&c.ch, form, scratch, rb);
    free(scratch);
    assert_int_equal(sched_plan_check(&c.ch, rb, NULL), ATSI_OK);
    return cost;
}

static int64_t solve_repaired(void)
{
    void *scratch = case_scratch(sched_alg2_repaired_scratch(c.ch.n));
    int64_t cost = sched_alg2_repaired(&c.ch, scratch, rb);
    free(scratch);
    assert_int_equal(sched_plan_check(&c.ch, rb, NULL), ATSI_OK);
    return cost;
}

static void test_equals_plain(void **state)
{
    uint64_t st = 9;
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        uint32_t n = (uint32_t)case_range(&st, 0, seed % 10 ? 12 : 60);
        case_random(&c, seed, n, (enum case_kind)(seed % CASE_KINDS));
        for (int form = SCHED_ALG2_PRINTED; form <= SCHED_ALG2_CLIPPED; form++) {
            int64_t cost = solve((enum sched_alg2_form)form);
            assert_int_equal(cost, plain((enum sched_alg2_form)form, NULL));
            assert_int_equal(cost, plain((enum sched_alg2_form)form, rb));
        }
        assert_int_equal(solve_repaired(), plain_repaired());
    }
}

static void test_edges(void **state)
{
    (void)state;
    case_plain(&c, 0);
    assert_int_equal(solve(SCHED_ALG2_CLIPPED), 0);
    assert_int_equal(solve_repaired(), 0);
    case_plain(&c, 1);
    c.op[0].tc = 50;
    c.op[0].tg = 5;
    c.op[0].w = 30;
    assert_int_equal(solve(SCHED_ALG2_PRINTED), 35);
    assert_int_equal(rb[0], SCHED_GPU);
    c.op[0].w = 45; /* a tie stays on the CPU */
    assert_int_equal(solve(SCHED_ALG2_PRINTED), 50);
    assert_int_equal(rb[0], SCHED_CPU);
    assert_int_equal(solve_repaired(), 50);
    assert_int_equal(rb[0], SCHED_CPU);
    c.op[0].promo = 0;
    c.op[0].w = 0;
    assert_int_equal(solve(SCHED_ALG2_PRINTED), 50);
}

/* Line 17 as printed charges the switch where the operator before lives on the GPU. */
static void test_line_17(void **state)
{
    (void)state;
    case_plain(&c, 2);
    c.op[0].tc = 10;
    c.op[1].tc = 100;
    c.op[1].tg = 1;
    c.op[1].w = 10;
    c.op[1].c = 7;
    c.op[0].promo = 0;
    assert_int_equal(solve(SCHED_ALG2_PRINTED), 10 + 10 + 7 + 1 - 10);
    assert_int_equal(solve(SCHED_ALG2_LITERAL17), 10 + 10 + 1 - 10);
}

/* Transfers of experts wait for their router in the clipped form only. */
static void test_clipped(void **state)
{
    (void)state;
    case_plain(&c, 3);
    for (uint32_t i = 0; i < 3; i++) {
        c.op[i].tc = 100;
        c.op[i].promo = i == 2;
    }
    c.op[2].w = 150;
    c.op[2].rel = 1;
    assert_int_equal(solve(SCHED_ALG2_PRINTED), 200);
    assert_int_equal(solve(SCHED_ALG2_CLIPPED), 300);
    c.op[2].w = 60;
    assert_int_equal(solve(SCHED_ALG2_CLIPPED), 260);
    c.b[1] = SCHED_GPU; /* the router on the GPU is a start point too */
    assert_int_equal(solve(SCHED_ALG2_CLIPPED), 160);
}

/* Two promotions in a row need the repaired form. */
static void test_consecutive(void **state)
{
    (void)state;
    case_plain(&c, 4);
    for (uint32_t i = 0; i < 4; i++) {
        c.op[i].tc = 1000;
        c.op[i].tg = 10;
        c.op[i].w = 100;
    }
    assert_int_equal(solve_repaired(), 440);
    assert_true(solve(SCHED_ALG2_PRINTED) > 2000);
}

/* With equal switch prices on both timelines, no cuts and no routers the cost bounds the latency.
 */
static void test_bounds_the_timeline(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        void *scratch = case_scratch(sched_timeline_scratch(14, 1));
        int64_t cost;
        case_random(&c, seed, 14, seed % 2 ? CASE_DENSE : CASE_PREFILL);
        c.ch.out = 0;
        for (uint32_t i = 0; i < 14; i++) {
            c.op[i].cg = c.op[i].gc = c.op[i].c;
            c.op[i].evt = 0;
        }
        cost = solve(SCHED_ALG2_PRINTED);
        assert_true(sched_latency(&c.ch, rb, NULL, scratch) <= cost);
        free(scratch);
    }
}

/* The repaired form is the optimum for one slot without switches. */
static void test_repaired_is_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        uint8_t best[16];
        case_random(&c, seed, 10, seed % 2 ? CASE_DENSE : CASE_WILD);
        c.depth[0] = 1;
        c.ch.out = 0;
        for (uint32_t i = 0; i < 10; i++) {
            c.op[i].cg = c.op[i].gc = c.op[i].c = c.op[i].evt = 0;
            c.op[i].rel = -1;
        }
        assert_true((double)solve_repaired() == case_optimum(&c, case_latency, best));
    }
}

static void test_largest_values(void **state)
{
    (void)state;
    case_plain(&c, CASE_MAX);
    for (uint32_t i = 0; i < CASE_MAX; i++)
        c.op[i].tc = c.op[i].tg = c.op[i].w = c.op[i].c = SCHED_MAX_NS;
    assert_int_equal(solve(SCHED_ALG2_CLIPPED), CASE_MAX * SCHED_MAX_NS);
    assert_int_equal(solve_repaired(), CASE_MAX * SCHED_MAX_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_plain),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_line_17),
        cmocka_unit_test(test_clipped),
        cmocka_unit_test(test_consecutive),
        cmocka_unit_test(test_repaired_is_exact),
        cmocka_unit_test(test_bounds_the_timeline),
        cmocka_unit_test(test_largest_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
