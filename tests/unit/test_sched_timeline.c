/* SPDX-License-Identifier: Apache-2.0
 *
 * Both timelines: small rounds worked out by hand, one property each, and that they agree where
 * nothing slows anything down.
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
static struct sched_span op_span[CASE_MAX], xfer_span[CASE_MAX];

/* Runs on both timelines, which must agree, with spans. */
static int64_t cost(const uint8_t *rb, const struct sched_run *how)
{
    struct sched_run run = how != NULL ? *how : (struct sched_run){.rounds = 1};
    struct sched_span op2[CASE_MAX], xfer2[CASE_MAX];
    void *scratch = case_scratch(sched_timeline_scratch(c.ch.n, run.rounds));
    int64_t t;
    double f;
    assert_int_equal(sched_chain_check(&c.ch, NULL), ATSI_OK);
    assert_int_equal(sched_plan_check(&c.ch, rb, NULL), ATSI_OK);
    assert_int_equal(sched_run_check(&c.ch, rb, &run, scratch, NULL), ATSI_OK);
    run.op_span = op2;
    run.xfer_span = xfer2;
    f = sched_fluid(&c.ch, rb, &run, scratch);
    run.op_span = op_span;
    run.xfer_span = xfer_span;
    t = sched_latency(&c.ch, rb, &run, scratch);
    assert_true(fabs(f - (double)t) < 1e-3);
    for (uint32_t i = 0; i < c.ch.n; i++) {
        assert_int_equal(op2[i].start, op_span[i].start);
        assert_int_equal(op2[i].end, op_span[i].end);
        if (sched_promoted(&c.ch, rb, i)) {
            assert_int_equal(xfer2[i].start, xfer_span[i].start);
            assert_int_equal(xfer2[i].end, xfer_span[i].end);
        }
    }
    free(scratch);
    return t;
}

/* Three operators: 100 on the CPU, 10 on the GPU, 150 to move. */
static void three(void)
{
    case_plain(&c, 3);
    for (uint32_t i = 0; i < 3; i++) {
        c.op[i].tc = 100;
        c.op[i].tg = 10;
        c.op[i].w = 150;
    }
}

static void test_promotion_waits(void **state)
{
    const uint8_t rb[3] = {0, 1, 0};
    (void)state;
    three();
    /* 0 ends at 100, the weight of 1 arrives at 150. */
    assert_int_equal(cost(rb, NULL), 150 + 10 + 100);
    assert_int_equal(xfer_span[1].start, 0);
    assert_int_equal(xfer_span[1].end, 150);
    assert_int_equal(op_span[1].start, 150);
    assert_int_equal(op_span[2].end, 260);
}

static void test_activations_hide_in_the_wait(void **state)
{
    const uint8_t rb[3] = {0, 1, 0};
    (void)state;
    three();
    c.op[1].cg = 30;
    c.op[1].evt = 15;
    c.op[2].gc = 7;
    assert_int_equal(cost(rb, NULL), 150 + 10 + 7 + 100);
    c.op[1].evt = 25; /* now the cut is what is waited for */
    assert_int_equal(cost(rb, NULL), 100 + 30 + 25 + 10 + 7 + 100);
}

static void test_result_copy(void **state)
{
    const uint8_t rb[3] = {0, 0, 1};
    (void)state;
    three();
    c.ch.out = 40;
    assert_int_equal(cost(rb, NULL), 200 + 10 + 40);
    c.b[2] = SCHED_GPU;
    assert_int_equal(cost(rb, NULL), 200 + 10 + 40);
}

static void test_slots_are_reused_in_turn(void **state)
{
    const uint8_t rb[3] = {1, 1, 1};
    (void)state;
    three();
    c.depth[0] = 3; /* the engine never rests */
    assert_int_equal(cost(rb, NULL), 450 + 10);
    c.depth[0] = 1; /* each transfer waits for the use before */
    assert_int_equal(cost(rb, NULL), 3 * 160);
    c.depth[0] =
        2; /* the third waits for the first, which ends at 160, before the engine is free */
    assert_int_equal(cost(rb, NULL), 450 + 10);
    assert_int_equal(xfer_span[2].start, 300);
    c.op[0].tg = 500; /* ... and now long after */
    assert_int_equal(cost(rb, NULL), 650 + 150 + 10);
}

static void test_classes_have_their_own_slots(void **state)
{
    const uint8_t rb[3] = {1, 1, 1};
    (void)state;
    three();
    c.depth[0] = 1;
    c.depth[1] = 1;
    c.ch.n_classes = 2;
    c.op[1].role = 1;
    c.op[0].tg = 400;
    /* 1 is not kept waiting by 0; 2 is, until 550 */
    assert_int_equal(cost(rb, NULL), 550 + 150 + 10);
    assert_int_equal(xfer_span[1].start, 150);
}

static void test_router_releases(void **state)
{
    const uint8_t rb[3] = {0, 0, 1};
    (void)state;
    three();
    c.op[2].rel = 0;
    c.ch.rlat = 20;
    assert_int_equal(cost(rb, NULL), 100 + 20 + 150 + 10);
}

static void test_after(void **state)
{
    const uint8_t rb[3] = {0, 1, 1};
    const int32_t after[3] = {-1, 0, 1};
    const struct sched_run run = {.rounds = 1, .after = after};
    (void)state;
    three();
    /* the serialised baseline: nothing overlaps */
    assert_int_equal(cost(rb, &run), 100 + 160 + 160);
}

static void test_steady_state_prefetches(void **state)
{
    const uint8_t rb[3] = {1, 0, 0};
    const struct sched_run two = {.rounds = 2};
    (void)state;
    three();
    c.ch.gap = 5;
    assert_int_equal(cost(rb, NULL), 150 + 10 + 200);
    /* from the second round on the weight of 0 comes while 1 and 2 of the round before run */
    assert_int_equal(cost(rb, &two), 5 + 10 + 200);
    assert_int_equal(xfer_span[0].start, 150 - 360 - 5);
}

static void test_many_slots_reach_over_rounds(void **state)
{
    const uint8_t rb[3] = {1, 0, 0};
    const struct sched_run run = {.rounds = 4};
    (void)state;
    three();
    c.op[0].w = 1000;
    c.depth[0] = 50;
    assert_int_equal(cost(rb, &run), 1000);
    assert_int_equal(xfer_span[0].end, xfer_span[0].start + 1000);
}

static void test_empty_and_single(void **state)
{
    const uint8_t rb[1] = {1};
    (void)state;
    case_plain(&c, 0);
    assert_int_equal(cost(rb, NULL), 0);
    case_plain(&c, 1);
    c.op[0].tc = 9;
    c.op[0].w = 4;
    c.op[0].tg = 1;
    assert_int_equal(cost(rb, NULL), 5);
    assert_int_equal(cost(c.b, NULL), 9);
}

static void test_largest(void **state)
{
    static struct sched_op op[SCHED_MAX_OPS];
    static uint8_t b[SCHED_MAX_OPS], rb[SCHED_MAX_OPS];
    const struct sched_run run = {.rounds = SCHED_MAX_ROUNDS};
    const int64_t top = SCHED_MAX_NS;
    int64_t n = SCHED_MAX_OPS;
    void *scratch = case_scratch(sched_timeline_scratch(SCHED_MAX_OPS, SCHED_MAX_ROUNDS));
    (void)state;
    case_plain(&c, 0);
    c.ch.op = op;
    c.ch.b = b;
    c.ch.n = SCHED_MAX_OPS;
    c.ch.gap = c.ch.out = top;
    c.depth[0] = 1;
    for (uint32_t i = 0; i < SCHED_MAX_OPS; i++) {
        op[i] = (struct sched_op){.tc = top,
                                  .tg = top,
                                  .w = top,
                                  .cg = top,
                                  .gc = top,
                                  .evt = top,
                                  .km = 1,
                                  .kx = 1,
                                  .rel = -1,
                                  .promo = 1,
                                  .pinned = -1};
        rb[i] = SCHED_GPU;
    }
    assert_int_equal(sched_chain_check(&c.ch, NULL), ATSI_OK);
    /* One slot: every weight is waited for in full, but for the first of a round, which comes
     * during the result copy and the gap: gap, cg, evt, tg, then w and tg each, out. */
    assert_int_equal(sched_latency(&c.ch, rb, &run, scratch), (4 + 2 * (n - 1) + 1) * top);
    for (uint32_t i = 0; i < SCHED_MAX_OPS; i += 2)
        rb[i] = SCHED_CPU;
    assert_true(sched_latency(&c.ch, rb, &run, scratch) > 0);
    free(scratch);
}

static void test_agree_without_contention(void **state)
{
    uint64_t st = 3;
    (void)state;
    for (uint64_t seed = 0; seed < 600; seed++) {
        uint32_t n = (uint32_t)case_range(&st, 1, 25);
        int32_t after[32];
        uint8_t rb[32];
        struct sched_run run = {.rounds = (uint32_t)case_range(&st, 1, 4)};
        case_random(&c, seed, n, (enum case_kind)(seed % CASE_KINDS));
        if (seed % 3 == 0) { /* three classes */
            c.ch.n_classes = 3;
            c.depth[1] = 1;
            c.depth[2] = 40;
            for (uint32_t i = 0; i < n; i++)
                c.op[i].role = (uint16_t)case_range(&st, 0, 2);
        }
        for (uint32_t i = 0; i < n; i++)
            after[i] = (int32_t)case_range(&st, -1, (int64_t)i - 1);
        run.after = seed % 2 ? after : NULL;
        case_plan(&c, &st, rb);
        (void)cost(rb, &run);
    }
}

static double fluid(const uint8_t *rb, const struct sched_run *run)
{
    void *scratch = case_scratch(sched_timeline_scratch(c.ch.n, run != NULL ? run->rounds : 1));
    double t = sched_fluid(&c.ch, rb, run, scratch);
    free(scratch);
    return t;
}

static void near(double a, double b)
{
    assert_true(fabs(a - b) < 1e-6);
}

static void test_contention_on_the_cpu(void **state)
{
    const uint8_t rb[3] = {0, 1, 0};
    (void)state;
    three();
    c.op[0].km = 0.5;
    c.op[0].kx = 0.25;
    /* 0 at half speed ends at 200; the transfer has done 50 and needs 100 more alone. */
    near(fluid(rb, NULL), 300 + 10 + 100);
    c.op[0].kx = 1;
    /* The transfer ends at 150, when 0 has done 75; the rest at full speed: 175. */
    near(fluid(rb, NULL), 175 + 10 + 100);
}

static void test_contention_of_copies(void **state)
{
    const uint8_t rb[3] = {0, 1, 0};
    (void)state;
    three();
    c.op[1].cg = 40;
    c.ch.am = 0.5;
    c.ch.ax = 0.5;
    /* At 100 the transfer lacks 50; the copy takes 80 beside it, in which 40 are moved. */
    near(fluid(rb, NULL), 180 + 10 + 10 + 100);
}

/* A round that follows lengthens the last one exactly where its first transfer is in the way. */
static void test_follows(void **state)
{
    const uint8_t rb[3] = {0, 1, 0};
    struct sched_run run = {.rounds = 1};
    double alone;
    (void)state;
    three();
    c.depth[0] = 1;
    alone = fluid(rb, &run);
    run.follows = 1;
    near(fluid(rb, &run), alone); /* nothing is slowed down */
    c.op[0].km = c.op[2].km = 0.5;
    c.op[0].kx = c.op[2].kx = 1;
    run.follows = 0;
    /* Operator 0 does 75 beside the transfer's 150 and 25 more: 175, 10, then 100 undisturbed. */
    near(fluid(rb, &run), 175 + 10 + 100);
    run.follows = 1;
    /* Its slot is free at 185: the next transfer slows operator 2, 75 done in 150, 25 alone. */
    near(fluid(rb, &run), 175 + 10 + 175);
}

static void test_gpu_does_not_contend(void **state)
{
    uint8_t rb[3] = {0, 0, 1};
    (void)state;
    three();
    c.b[0] = c.b[1] = SCHED_GPU;
    rb[0] = rb[1] = SCHED_GPU;
    for (uint32_t i = 0; i < 3; i++)
        c.op[i].km = c.op[i].kx = 0.5;
    near(fluid(rb, NULL), 150 + 10);
}

static void test_orders(void **state)
{
    const uint8_t rb[3] = {1, 1, 1};
    const uint32_t backwards[3] = {2, 1, 0}, swapped[3] = {1, 0, 2}, twice[3] = {0, 0, 1};
    struct sched_run run = {.rounds = 1, .order = swapped, .n_order = 3};
    void *scratch = case_scratch(sched_timeline_scratch(3, 1));
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    three();
    /* 1 comes first, so 0 can begin at 300 only; 2 needs the slot of 0 and comes by 460. */
    near(fluid(rb, &run), 310 + 150 + 10);
    run.order = backwards; /* both slots hold what is used last */
    assert_true(fluid(rb, &run) < 0);
    run.order = twice;
    assert_int_equal(sched_run_check(&c.ch, rb, &run, scratch, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "order[1] is 0"));
    run.n_order = 2;
    assert_int_equal(sched_run_check(&c.ch, rb, &run, scratch, &err), ATSI_EINVAL);
    run = (struct sched_run){.rounds = 0};
    assert_int_equal(sched_run_check(&c.ch, rb, &run, scratch, &err), ATSI_EINVAL);
    run = (struct sched_run){.rounds = 1, .after = (const int32_t[]){-1, 1, 0}};
    assert_int_equal(sched_run_check(&c.ch, rb, &run, scratch, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "operator 1"));
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_promotion_waits),
        cmocka_unit_test(test_activations_hide_in_the_wait),
        cmocka_unit_test(test_result_copy),
        cmocka_unit_test(test_slots_are_reused_in_turn),
        cmocka_unit_test(test_classes_have_their_own_slots),
        cmocka_unit_test(test_router_releases),
        cmocka_unit_test(test_after),
        cmocka_unit_test(test_steady_state_prefetches),
        cmocka_unit_test(test_many_slots_reach_over_rounds),
        cmocka_unit_test(test_empty_and_single),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_agree_without_contention),
        cmocka_unit_test(test_contention_on_the_cpu),
        cmocka_unit_test(test_contention_of_copies),
        cmocka_unit_test(test_follows),
        cmocka_unit_test(test_gpu_does_not_contend),
        cmocka_unit_test(test_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
