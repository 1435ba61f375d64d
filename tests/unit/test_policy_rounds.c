/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds of policy_static and policy_dp: what moves when, what is remembered from round to round,
 * and that threads do not meet.
 */
#include "policy_case.h"
#include "sched_cases.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sched/answer.h"
#include "sched/problem.h"

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct sched_case decode, prefill;

static void open_random(struct policy_case *c, uint64_t seed, uint32_t n, enum case_kind kind)
{
    case_random(&decode, seed, n, kind);
    case_random(&prefill, seed, n, CASE_PREFILL);
    decode.ch.budget = (int64_t)n * 8 << 20;
    policy_case_open(c, &decode.ch, &prefill.ch, false);
}

static void place(struct policy_case *c, const struct atsi_policy_ops *ops)
{
    struct atsi_err err = ATSI_ERR_INIT;
    if (policy_case_place(c, ops, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

/* 1: a new schedule, 0: the plan in force stays. */
static int ask(struct policy_case *c, const struct atsi_policy_ops *ops, uint32_t phase)
{
    struct atsi_err err = ATSI_ERR_INIT;
    if (policy_case_schedule(c, ops, phase, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return c->answer->schedule.keep == 0;
}

/* ---------------------------------------------------------------- policy_static */
/* Four layers of three operators, the last one of experts, and a head without a layer. */
static void open_layers(struct policy_case *c)
{
    case_plain(&decode, 13);
    for (uint32_t i = 0; i < 13; i++) {
        struct sched_op *op = &decode.op[i];
        op->s = 1 << 20;
        op->tc = 10000;
        op->tg = 1000;
        op->w = 4000;
        op->layer = i < 12 ? (int32_t)i / 3 : -1;
        op->is_exp = i < 12 && i % 3 == 2;
    }
    policy_case_open(c, &decode.ch, &decode.ch, false);
    c->q->items->items[12].role = ATSI_ROLE_HEAD;
}

static void expect_places(const char *bits, int64_t budget_mib, const char *const *settings)
{
    struct policy_case c;
    open_layers(&c);
    c.q->budget[ATSI_DEVICE_ACCEL] = (uint64_t)budget_mib << 20;
    place(&c, policy_load("policy_static", settings));
    for (uint32_t i = 0; i < 13; i++)
        if (c.answer->placed[i] != bits[i] - '0')
            fail_msg("%s: item %u is on device %d", settings[0], i, c.answer->placed[i]);
    policy_case_close(&c);
}

static void test_counts(void **state)
{
    (void)state;
    expect_places("0000000001111", 6, SETTINGS("mode=layer"));
    expect_places("0000000000001", 1, SETTINGS("mode=layer"));
    expect_places("1111111111111", 13, SETTINGS("mode=layer"));
    expect_places("0000000001111", 6, SETTINGS("mode=stream"));
    expect_places("0000000000001", 13, SETTINGS("mode=layer", "n_gpu_layers=1"));
    expect_places("0000001111111", 13, SETTINGS("mode=layer", "n_gpu_layers=3"));
    expect_places("0000000001111", 4, SETTINGS("mode=layer", "n_gpu_layers=99"));
    expect_places("0000000000000", 13, SETTINGS("mode=layer", "n_gpu_layers=0"));
    expect_places("1101101101111", 10, SETTINGS("mode=expert"));
    expect_places("1101101111111", 13, SETTINGS("mode=expert", "n_cpu_moe=2"));
    expect_places("1101101101111", 10, SETTINGS("mode=expert", "n_cpu_moe=0"));
    expect_places("0000001101111", 13, SETTINGS("mode=layer", "n_gpu_layers=3", "n_cpu_moe=3"));
    expect_places("0000000001111", 6, SETTINGS("mode=expert"));
    expect_places("1111000000000", 4, SETTINGS("mode=density"));
}

/* Promoted items of a round, and that their transfers wait for the operators before (serial) or for
 * nothing. */
static uint32_t moves(struct policy_case *c, const struct atsi_policy_ops *ops, uint32_t phase,
                      uint32_t n_tokens, bool serial)
{
    const struct atsi_schedule *s = &c->answer->schedule;
    c->round.n_tokens = n_tokens;
    assert_int_equal(ask(c, ops, phase), 1);
    for (uint32_t k = 0; k < s->n_transfers; k++) {
        uint32_t i = s->order[k];
        assert_int_equal(s->after[i], serial ? (int32_t)i - 1 : -1);
        assert_int_equal(s->slot[i], k % 2);
        assert_true(k == 0 || i > s->order[k - 1]);
    }
    return s->n_transfers;
}

static void test_streaming(void **state)
{
    const struct atsi_policy_ops *ops;
    struct policy_case c;
    uint64_t serial_ns;
    (void)state;
    open_layers(&c);
    c.q->budget[ATSI_DEVICE_ACCEL] = 4 << 20;
    ops = policy_load("policy_static", SETTINGS("mode=layer"));
    place(&c, ops);
    assert_int_equal(moves(&c, ops, ATSI_PHASE_DECODE, 1, true), 0);
    assert_int_equal(moves(&c, ops, ATSI_PHASE_PREFILL, 31, true), 0);
    assert_int_equal(moves(&c, ops, ATSI_PHASE_PREFILL, 32, true), 9);
    serial_ns = c.answer->schedule.predicted_ns;
    assert_int_equal(serial_ns, 9 * (4000 + 1000) + 4 * 1000);
    ops = policy_load("policy_static", SETTINGS("mode=layer", "overlap=on"));
    assert_int_equal(moves(&c, ops, ATSI_PHASE_PREFILL, 32, false), 9);
    assert_true(c.answer->schedule.predicted_ns < serial_ns);
    ops = policy_load("policy_static", SETTINGS("mode=layer", "prefill_stream_min=0"));
    assert_int_equal(moves(&c, ops, ATSI_PHASE_PREFILL, 4096, true), 0);
    ops = policy_load("policy_static", SETTINGS("mode=stream"));
    assert_int_equal(moves(&c, ops, ATSI_PHASE_DECODE, 1, false), 9);
    assert_int_equal(moves(&c, ops, ATSI_PHASE_PREFILL, 1, false), 9);
    ops = policy_load("policy_static", SETTINGS("mode=stream", "overlap=off"));
    assert_int_equal(moves(&c, ops, ATSI_PHASE_DECODE, 1, true), 9);
    policy_case_close(&c);
}

static void test_static_keeps(void **state)
{
    const struct atsi_policy_ops *ops = policy_load("policy_static", SETTINGS("mode=stream"));
    struct policy_case c;
    (void)state;
    open_layers(&c);
    c.q->budget[ATSI_DEVICE_ACCEL] = 4 << 20;
    place(&c, ops);
    c.round.now_ns = 1000;
    assert_int_equal(ask(&c, ops, ATSI_PHASE_DECODE), 1);
    policy_case_adopt(&c);
    c.round.now_ns = 2000;
    assert_int_equal(ask(&c, ops, ATSI_PHASE_DECODE), 0);
    c.round.n_tokens = 2;
    assert_int_equal(ask(&c, ops, ATSI_PHASE_DECODE), 1);
    c.round.planned_ns = 1500; /* another policy's */
    c.round.n_tokens = 1;
    assert_int_equal(ask(&c, ops, ATSI_PHASE_DECODE), 1);
    policy_case_close(&c);
}

/* ---------------------------------------------------------------- what a schedule holds */
static void test_slot_classes(void **state)
{
    const struct atsi_policy_ops *ops = policy_load("policy_static", SETTINGS("mode=stream"));
    const uint32_t depth[4] = {7, 8, 2, 3}; /* prefill, decode */
    uint32_t next[2] = {0, 0};
    struct policy_case c;
    size_t bytes = ops->scratch_bytes(13);
    (void)state;
    open_layers(&c);
    c.q->p.n_slot_classes = 2;
    c.q->p.slot_depth = depth;
    for (uint32_t i = 0; i < 13; i++)
        c.q->items->items[i].slot_class = i % 3 == 1;
    c.q->p.scratch = case_scratch(bytes);
    c.round.phase = ATSI_PHASE_DECODE; /* asked by hand: core has one class */
    assert_int_equal(ops->schedule(&c.round, &c.answer->schedule, NULL), ATSI_OK);
    assert_int_equal(c.answer->schedule.n_transfers, 13);
    for (uint32_t k = 0; k < 13; k++) {
        uint32_t i = c.answer->schedule.order[k], q = i % 3 == 1;
        assert_int_equal(i, k);
        assert_int_equal(c.answer->schedule.slot[i], next[q]++ % depth[2 + q]);
    }
    free(c.q->p.scratch);
    policy_case_close(&c);
}

static void test_spans(void **state)
{
    const struct atsi_policy_ops *ops = policy_load("policy_dp", SETTINGS("algorithm=backlog"));
    uint64_t start[40] = {0}, end[40] = {0};
    (void)state;
    for (uint32_t contended = 0; contended < 2; contended++)
        for (uint32_t phase = 0; phase < 2; phase++) {
            struct policy_case c;
            case_random(&decode, 21, 40, CASE_DENSE);
            if (contended)
                case_contend(&decode, 21);
            policy_case_open(&c, &decode.ch, &decode.ch, false);
            policy_case_put(&c, decode.b);
            c.answer->schedule.start_ns = start;
            c.answer->schedule.end_ns = end;
            assert_int_equal(ask(&c, ops, phase), 1);
            for (uint32_t i = 0; i < 40; i++) {
                assert_true(start[i] <= end[i]);
                assert_true(start[i] >= (i > 0 ? end[i - 1] : 0));
            }
            assert_true(end[39] <= c.answer->schedule.predicted_ns + 1); /* each is rounded */
            policy_case_close(&c);
        }
}

/* ---------------------------------------------------------------- Algorithm 3 */
/* Asks at a time with the CPU's slowdown. */
static int at(struct policy_case *c, const struct atsi_policy_ops *ops, uint64_t now_ns,
              uint32_t cpu)
{
    c->round.now_ns = now_ns;
    c->slowdown[ATSI_CLASS_CPU] = cpu;
    return ask(c, ops, ATSI_PHASE_DECODE);
}

static void test_algorithm3(void **state)
{
    static const char *const which[] = {"algorithm=paper", "algorithm=paper-literal",
                                        "algorithm=repaired"};
    (void)state;
    for (int k = 0; k < 3; k++) {
        const struct atsi_policy_ops *ops = policy_load("policy_dp", SETTINGS(which[k]));
        struct policy_case c;
        uint64_t t;
        open_random(&c, 5, 30, CASE_DENSE);
        place(&c, ops);
        assert_int_equal(at(&c, ops, 1000, 1000), 1);
        policy_case_adopt(&c);
        t = c.round.observed_ns;
        assert_int_equal(at(&c, ops, 1000 + 9 * t, 1000), 0);
        assert_int_equal(at(&c, ops, 1000 + 9 * t, 1149), 0);     /* less than 15 % */
        assert_int_equal(at(&c, ops, 1000 + 5 * t - 1, 1500), 0); /* sooner than 5 rounds */
        assert_int_equal(at(&c, ops, 1000 + 5 * t, 1150), 1);
        policy_case_adopt(&c);
        assert_int_equal(at(&c, ops, 1000 + 20 * t, 1300), 0); /* 13 % since then */
        assert_int_equal(at(&c, ops, 1000 + 20 * t, 0), 0);    /* not measured */
        assert_int_equal(at(&c, ops, 1000 + 20 * t, 978), 0);
        assert_int_equal(at(&c, ops, 1000 + 20 * t, 977), 1);
        policy_case_close(&c);
    }
}

static void test_thresholds_are_settings(void **state)
{
    const struct atsi_policy_ops *ops =
        policy_load("policy_dp", SETTINGS("algorithm=paper", "eps=0.5", "tau=0"));
    struct policy_case c;
    (void)state;
    open_random(&c, 5, 30, CASE_DENSE);
    place(&c, ops);
    assert_int_equal(at(&c, ops, 1000, 1000), 1);
    policy_case_adopt(&c);
    assert_int_equal(at(&c, ops, 1001, 1499), 0);
    assert_int_equal(at(&c, ops, 1001, 1500), 1);
    policy_case_close(&c);
}

/* What no slowdown says: another number of tokens, placement, plan, phase. */
static void test_always_anew(void **state)
{
    static const char *const which[] = {"algorithm=paper", "algorithm=backlog-co"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        const struct atsi_policy_ops *ops = policy_load("policy_dp", SETTINGS(which[k]));
        struct policy_case c;
        open_random(&c, 6, 30, CASE_EXPERTS);
        place(&c, ops);
        assert_int_equal(at(&c, ops, 1000, 1000), 1);
        policy_case_adopt(&c);
        assert_int_equal(at(&c, ops, 2000, 1000), 0);
        c.round.n_tokens = 3;
        assert_int_equal(at(&c, ops, 3000, 1000), 1);
        policy_case_adopt(&c);
        assert_int_equal(at(&c, ops, 4000, 1000), 0);
        c.answer->placed[0] ^= 1;
        assert_int_equal(at(&c, ops, 5000, 1000), 1);
        /* That answer came late: the plan in force is still the one before. */
        assert_int_equal(at(&c, ops, 6000, 1000), 1);
        policy_case_adopt(&c);
        assert_int_equal(at(&c, ops, 7000, 1000), 0);
        c.round.in_force = NULL; /* the other phase has none */
        assert_int_equal(ask(&c, ops, ATSI_PHASE_PREFILL), 1);
        c.round.in_force = c.in_force;
        assert_int_equal(at(&c, ops, 8000, 1000), 0);
        c.round.state = NULL;
        c.state_bytes = 0; /* a core that keeps no state */
        assert_int_equal(at(&c, ops, 9000, 1000), 1);
        policy_case_close(&c);
    }
}

/* ---------------------------------------------------------------- the regret test */
static void slow_transfers(struct policy_case *c, uint32_t times)
{
    for (uint32_t i = 0; i < c->q->p.n_items; i++)
        c->q->cost[ATSI_PHASE_DECODE][c->q->p.n_items + i].transfer_ns *= times;
    c->slowdown[ATSI_CLASS_XFER] = 1000 * times;
}

static void begin(struct policy_case *c, const struct atsi_policy_ops *ops)
{
    open_random(c, 5, 40, CASE_DENSE);
    place(c, ops);
    assert_int_equal(at(c, ops, 1000, 1000), 1);
    assert_true(c->answer->schedule.n_transfers > 0);
    policy_case_adopt(c);
}

static void test_regret(void **state)
{
    const struct atsi_policy_ops *ops = policy_load("policy_dp", SETTINGS("algorithm=backlog"));
    struct policy_case c;
    (void)state;
    begin(&c, ops);
    assert_int_equal(at(&c, ops, 2000, 1049), 0); /* less than 5 % */
    assert_int_equal(c.answer->schedule.evals, 0);
    assert_int_equal(at(&c, ops, 3000, 1050), 0); /* sought, none is better: costs are the same */
    assert_true(c.answer->schedule.evals > 0);
    assert_int_equal(at(&c, ops, 4000, 1050), 0); /* that was decided */
    assert_int_equal(c.answer->schedule.evals, 0);
    slow_transfers(&c, 8);
    c.round.tokens_left = 0; /* nothing left to win */
    assert_int_equal(at(&c, ops, 5000, 1050), 0);
    assert_true(c.answer->schedule.evals > 0);
    policy_case_close(&c);

    begin(&c, ops);
    slow_transfers(&c, 8);
    assert_int_equal(at(&c, ops, 5000, 1000), 1);
    assert_true(c.answer->schedule.predicted_ns > 0);
    policy_case_close(&c);

    ops = policy_load("policy_dp", SETTINGS("algorithm=backlog", "rebuild=1000000000"));
    begin(&c, ops);
    slow_transfers(&c, 8); /* the change would cost 1000 s */
    assert_int_equal(at(&c, ops, 5000, 1000), 0);
    assert_true(c.answer->schedule.evals > 0);
    policy_case_close(&c);
}

/* ---------------------------------------------------------------- quality */
static int64_t judge(const struct policy_case *c, uint32_t phase)
{
    uint8_t b[CASE_MAX], rb[CASE_MAX];
    struct sched_view v;
    void *scratch = case_scratch(sched_view_scratch(c->q->p.n_items));
    void *work = case_scratch(sched_judge_scratch(c->q->p.n_items, 2));
    int64_t ns;
    assert_int_equal(sched_view_read(&c->q->p, phase, scratch, &v, NULL), ATSI_OK);
    policy_case_sides(c, c->answer->placed, b);
    policy_case_sides(c, c->answer->schedule.device, rb);
    v.chain.b = b;
    ns = sched_judge(&v.chain, rb, phase == ATSI_PHASE_DECODE ? 2 : 1, NULL, work);
    free(work);
    free(scratch);
    return ns;
}

static void test_backlog_is_never_slower(void **state)
{
    static const char *const which[] = {"algorithm=paper", "algorithm=repaired",
                                        "algorithm=backlog"};
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++)
        for (uint32_t phase = 0; phase < 2; phase++) {
            struct policy_case c;
            int64_t ns[3];
            case_random(&decode, seed, 60, (enum case_kind)(seed % CASE_KINDS));
            if (seed % 3 != 0)
                case_contend(&decode, seed);
            policy_case_open(&c, &decode.ch, &decode.ch, false);
            policy_case_put(&c, decode.b);
            for (int k = 0; k < 3; k++) {
                c.round.in_force = NULL;
                (void)ask(&c, policy_load("policy_dp", SETTINGS(which[k])), phase);
                ns[k] = judge(&c, phase);
            }
            assert_true(ns[2] <= ns[0] && ns[2] <= ns[1]);
            policy_case_close(&c);
        }
}

static uint64_t request(struct policy_case *c, const char *algorithm, uint64_t chunks)
{
    place(c, policy_load("policy_dp", SETTINGS(algorithm)));
    return 128 * c->answer->place.predicted_decode_ns +
           chunks * c->answer->place.predicted_prefill_ns;
}

static void test_placement_for_both_phases(void **state)
{
    int better = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct policy_case c;
        uint64_t both, alone;
        open_random(&c, seed, 40, seed % 2 != 0 ? CASE_DENSE : CASE_EXPERTS);
        c.q->p.prefill_tokens = seed % 3 != 0 ? 600 : 0; /* 4 chunks, or the prompt at once */
        both = request(&c, "algorithm=backlog-co", seed % 3 != 0 ? 4 : 1);
        alone = request(&c, "algorithm=backlog", seed % 3 != 0 ? 4 : 1);
        assert_true(both <= alone);
        better += both < alone;
        policy_case_close(&c);
    }
    assert_true(better > 0);
}

/* ---------------------------------------------------------------- threads */
struct job {
    const struct atsi_policy_ops *ops;
    struct policy_case c;
    int rc;
};

static void *work(void *arg)
{
    struct job *j = arg;
    j->c.round.phase = ATSI_PHASE_DECODE;
    j->rc = j->ops->place(&j->c.q->p, &j->c.answer->place, NULL);
    if (j->rc == ATSI_OK)
        j->rc = j->ops->schedule(&j->c.round, &j->c.answer->schedule, NULL);
    return NULL;
}

static void test_threads(void **state)
{
    enum { N = 4, ITEMS = 60 };
    static const char *const plugins[] = {"policy_static", "policy_dp"};
    static struct job jobs[N];
    pthread_t thread[N];
    (void)state;
    for (int k = 0; k < 2; k++) {
        const struct atsi_policy_ops *ops = policy_load(plugins[k], NULL); /* read in the race */
        for (int t = 0; t < N; t++) {
            jobs[t].ops = ops;
            open_random(&jobs[t].c, 9, ITEMS, CASE_EXPERTS);
            jobs[t].c.q->p.scratch = case_scratch(ops->scratch_bytes(ITEMS));
        }
        for (int t = 0; t < N; t++)
            assert_int_equal(pthread_create(&thread[t], NULL, work, &jobs[t]), 0);
        for (int t = 0; t < N; t++)
            assert_int_equal(pthread_join(thread[t], NULL), 0);
        for (int t = 0; t < N; t++) {
            assert_int_equal(jobs[t].rc, ATSI_OK);
            assert_memory_equal(jobs[t].c.answer->schedule.device,
                                jobs[0].c.answer->schedule.device, ITEMS * sizeof(int32_t));
        }
        for (int t = 0; t < N; t++) {
            free(jobs[t].c.q->p.scratch);
            policy_case_close(&jobs[t].c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_streaming),
        cmocka_unit_test(test_static_keeps),
        cmocka_unit_test(test_slot_classes),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_algorithm3),
        cmocka_unit_test(test_thresholds_are_settings),
        cmocka_unit_test(test_always_anew),
        cmocka_unit_test(test_regret),
        cmocka_unit_test(test_backlog_is_never_slower),
        cmocka_unit_test(test_placement_for_both_phases),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
