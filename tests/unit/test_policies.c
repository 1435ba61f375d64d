/* SPDX-License-Identifier: Apache-2.0
 *
 * policy_static and policy_dp through their tables: every answer is legal by the core's rules and
 * has the values of the algorithms it names.
 */
#include "policy_case.h"
#include "sched_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/policy.h"
#include "sched/dynamic.h"
#include "sched/place.h"
#include "sched/problem.h"
#include "sched/timeline.h"

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char *const modes[] = {"mode=layer", "mode=expert", "mode=stream", "mode=density",
                                    "mode=alg1"};
static const char *const algorithms[] = {"algorithm=paper", "algorithm=paper-literal",
                                         "algorithm=repaired", "algorithm=backlog",
                                         "algorithm=backlog-co"};
enum { N_STATIC = 5, N_ALL = 10 };

static struct sched_case decode, prefill;
static uint8_t side[CASE_MAX], want[CASE_MAX];

/* What the reader of recorded problems needs of the command. */
int cli_fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
    return code;
}

/* Policy k of all. */
static const struct atsi_policy_ops *load_any(int k)
{
    static const char *settings[2];
    settings[0] = k < N_STATIC ? modes[k] : algorithms[k - N_STATIC];
    return policy_load(k < N_STATIC ? "policy_static" : "policy_dp", settings);
}

static void open_random(struct policy_case *c, uint64_t seed, uint32_t n, enum case_kind kind)
{
    case_random(&decode, seed, n, kind);
    case_random(&prefill, seed, n, CASE_PREFILL);
    if (seed % 2 != 0) {
        case_contend(&decode, seed);
        case_contend(&prefill, seed);
    }
    decode.ch.budget = (int64_t)n * 12 << 20;
    policy_case_open(c, &decode.ch, &prefill.ch, false);
}

/* ---------------------------------------------------------------- recorded problems */
static void open_file(const char *name, struct policy_file *f)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/tests/data/sched/%s", ATSI_SOURCE_DIR, name);
    assert_int_equal(policy_file_open(path, f), CLI_OK);
    assert_true(f->n > 0);
}

/* The reading of the question is the chain it was made of. */
static void check_view(const struct policy_case *c, const struct sched_chain *ch)
{
    void *scratch = case_scratch(sched_view_scratch(ch->n));
    struct sched_view v;
    assert_int_equal(sched_view_read(&c->q->p, ATSI_PHASE_DECODE, scratch, &v, NULL), ATSI_OK);
    assert_int_equal(v.chain.rlat, ch->rlat);
    assert_int_equal(v.chain.out, ch->out);
    assert_int_equal(v.chain.gap, ch->gap);
    assert_int_equal(v.chain.budget, ch->budget);
    assert_int_equal(v.depth[0], ch->depth[0]);
    for (uint32_t i = 0; i < ch->n; i++) {
        const struct sched_op *a = &v.op[i], *b = &ch->op[i];
        assert_true(a->s == b->s && a->tc == b->tc && a->tg == b->tg && a->c == b->c);
        assert_true(a->cg == b->cg && a->gc == b->gc && a->evt == b->evt && a->rel == b->rel);
        assert_true(a->promo == b->promo && (!a->promo || a->w == b->w));
        assert_true(a->is_exp == b->is_exp && a->layer == b->layer);
        assert_true(a->km - b->km < 0.0006 && b->km - a->km < 0.0006);
    }
    assert_int_equal(sched_view_read(&c->q->p, ATSI_PHASE_PREFILL, scratch, &v, NULL), ATSI_OK);
    assert_int_equal(v.chain.gap, 0);
    for (uint32_t i = 0; i < ch->n; i++)
        assert_int_equal(v.op[i].rel, -1);
    free(scratch);
}

/* Both policies' Algorithm 1 reaches the recorded value. */
static void check_alg1(struct policy_case *c, const struct policy_instance *it)
{
    const struct sched_alg1 how = {.unit = SCHED_UNIT};
    const json_t *value = json_object_get(json_object_get(it->expect, "alg1"), "value");
    assert_non_null(value);
    for (int k = 0; k < 2; k++) {
        const struct atsi_policy_ops *ops =
            k == 0 ? policy_load("policy_static", SETTINGS("mode=alg1"))
                   : policy_load("policy_dp", SETTINGS("algorithm=paper"));
        assert_int_equal(policy_case_place(c, ops, NULL), ATSI_OK);
        policy_case_sides(c, c->answer->placed, side);
        assert_int_equal(sched_alg1_value(&it->chain, &how, side), json_integer_value(value));
    }
}

/* On the recorded placement an algorithm's schedule is the plan in `want`; its prediction is the
 * third round of the timeline. */
static void check_plan(struct policy_case *c, const struct policy_instance *it,
                       const char *algorithm)
{
    const struct sched_run steady = {.rounds = 3};
    void *scratch = case_scratch(sched_timeline_scratch(it->chain.n, 3));
    const struct atsi_policy_ops *ops = policy_load("policy_dp", SETTINGS(algorithm));
    policy_case_put(c, it->b);
    assert_int_equal(policy_case_schedule(c, ops, ATSI_PHASE_DECODE, NULL), ATSI_OK);
    assert_int_equal(c->answer->schedule.keep, 0);
    policy_case_sides(c, c->answer->schedule.device, side);
    assert_memory_equal(side, want, it->chain.n);
    if (!sched_contended(&it->chain))
        assert_int_equal(c->answer->schedule.predicted_ns,
                         sched_latency(&it->chain, side, &steady, scratch));
    assert_true(c->answer->schedule.evals > 0);
    free(scratch);
}

static void check_plans(struct policy_case *c, const struct policy_instance *it)
{
    void *scratch = case_scratch(sched_search_scratch(it->chain.n, 2));
    const struct sched_search how = {.rounds = 2, .evals = 80};
    struct sched_found found;
    (void)sched_alg2(&it->chain, SCHED_ALG2_CLIPPED, scratch, want);
    check_plan(c, it, "algorithm=paper");
    (void)sched_alg2(&it->chain, SCHED_ALG2_PRINTED, scratch, want);
    check_plan(c, it, "algorithm=paper-literal");
    (void)sched_alg2_repaired(&it->chain, scratch, want);
    check_plan(c, it, "algorithm=repaired");
    sched_search(&it->chain, &how, scratch, want, &found);
    if (!sched_contended(&it->chain)) /* speeds are rounded on their way through a question */
        check_plan(c, it, "algorithm=backlog");
    free(scratch);
}

static void test_recorded(void **state)
{
    static const char *const files[] = {"small.json", "full.json", "fluid.json"};
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct policy_file f;
        open_file(files[k], &f);
        for (size_t i = 0; i < f.n; i++) {
            struct policy_case c;
            policy_case_open(&c, &f.item[i].chain, &f.item[i].chain, true);
            check_view(&c, &f.item[i].chain);
            if (k < 2)
                check_alg1(&c, &f.item[i]);
            check_plans(&c, &f.item[i]);
            policy_case_close(&c);
        }
        policy_file_close(&f);
    }
}

static void check_bits(const struct policy_case *c, const json_t *expect)
{
    const char *bits = json_string_value(expect);
    assert_non_null(bits);
    for (uint32_t i = 0; i < c->q->p.n_items; i++)
        assert_int_equal(c->answer->placed[i], bits[i] - '0');
}

static void test_recorded_grains(void **state)
{
    struct policy_file f;
    struct policy_case c;
    const struct atsi_policy_ops *ops;
    (void)state;
    open_file("full.json", &f);
    policy_case_open(&c, &f.item[0].chain, &f.item[0].chain, true);
    ops = policy_load("policy_static", SETTINGS("mode=layer"));
    assert_int_equal(policy_case_place(&c, ops, NULL), ATSI_OK);
    check_bits(&c, json_object_get(f.item[0].expect, "layer_granular"));
    ops = policy_load("policy_static", SETTINGS("mode=expert"));
    assert_int_equal(policy_case_place(&c, ops, NULL), ATSI_OK);
    check_bits(&c, json_object_get(f.item[0].expect, "expert_granular"));
    policy_case_close(&c);
    policy_file_close(&f);
}

/* ---------------------------------------------------------------- any problem */
/* Legality is asserted where the questions are asked. */
static void ask_all(struct policy_case *c, const struct atsi_policy_ops *ops)
{
    struct atsi_err err = ATSI_ERR_INIT;
    if (policy_case_place(c, ops, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    for (uint32_t phase = 0; phase < 2; phase++) {
        c->round.n_tokens = phase == ATSI_PHASE_PREFILL ? 512 : 1;
        c->round.in_force = NULL;
        if (policy_case_schedule(c, ops, phase, &err) != ATSI_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(c->answer->schedule.keep, 0);
        /* What was predicted of the placement is what its schedules predict. */
        assert_int_equal(c->answer->schedule.predicted_ns,
                         phase == ATSI_PHASE_PREFILL ? c->answer->place.predicted_prefill_ns
                                                     : c->answer->place.predicted_decode_ns);
    }
}

static void test_legal(void **state)
{
    (void)state;
    for (int k = 0; k < N_ALL; k++)
        for (uint64_t seed = 1; seed <= 24; seed++) {
            struct policy_case c;
            open_random(&c, seed, 1 + (uint32_t)(seed * 3), (enum case_kind)(seed % CASE_KINDS));
            ask_all(&c, load_any(k));
            policy_case_close(&c);
        }
}

static void test_nothing_to_do(void **state)
{
    (void)state;
    for (int k = 0; k < N_ALL; k++) {
        const struct atsi_policy_ops *ops = load_any(k);
        struct policy_case c;
        open_random(&c, 3, 20, CASE_DENSE); /* no memory */
        c.q->budget[ATSI_DEVICE_ACCEL] = 0;
        ask_all(&c, ops);
        assert_int_equal(policy_case_used(&c), 0);
        policy_case_close(&c);
        open_random(&c, 4, 20, CASE_EXPERTS); /* no slots */
        c.q->slot_depth[0] = c.q->slot_depth[1] = 0;
        ask_all(&c, ops);
        assert_int_equal(c.answer->schedule.n_transfers, 0);
        c.q->p.n_slot_classes = 0;
        ask_all(&c, ops);
        policy_case_close(&c);
        open_random(&c, 5, 20, CASE_DENSE); /* no accelerator */
        c.q->p.n_devices = 1;
        ask_all(&c, ops);
        for (uint32_t i = 0; i < 20; i++)
            assert_int_equal(c.answer->placed[i] + c.answer->schedule.device[i], 0);
        policy_case_close(&c);
        case_plain(&decode, 0); /* no items */
        case_plain(&prefill, 0);
        policy_case_open(&c, &decode.ch, &prefill.ch, false);
        ask_all(&c, ops);
        policy_case_close(&c);
    }
}

/* Same question, same answer, whatever the scratch held before. */
static void test_deterministic(void **state)
{
    (void)state;
    for (int k = 0; k < N_ALL; k++) {
        const struct atsi_policy_ops *ops = load_any(k);
        struct policy_case a, b;
        open_random(&a, 7, 60, CASE_EXPERTS);
        open_random(&b, 7, 60, CASE_EXPERTS);
        ask_all(&a, ops);
        ask_all(&b, ops);
        ask_all(&b, ops);
        assert_memory_equal(a.answer->placed, b.answer->placed, 60 * sizeof(int32_t));
        assert_memory_equal(a.answer->schedule.device, b.answer->schedule.device,
                            60 * sizeof(int32_t));
        assert_int_equal(a.answer->schedule.predicted_ns, b.answer->schedule.predicted_ns);
        policy_case_close(&a);
        policy_case_close(&b);
    }
}

/* ---------------------------------------------------------------- the user's rules */
static void test_rules_hold(void **state)
{
    (void)state;
    for (int k = 0; k < N_ALL; k++)
        for (uint64_t seed = 1; seed <= 8; seed++) {
            const struct atsi_policy_ops *ops = load_any(k);
            struct policy_case c;
            uint64_t st = seed;
            open_random(&c, seed, 50, seed % 2 != 0 ? CASE_EXPERTS : CASE_DENSE);
            for (uint32_t i = 0; i < 50; i++)
                if (case_range(&st, 0, 4) == 0)
                    c.q->items->items[i].pinned = (int32_t)case_range(&st, 0, 1);
            ask_all(&c, ops); /* pins and budget are the core's to check */
            policy_case_close(&c);
        }
}

static void test_rules_fill_the_budget(void **state)
{
    (void)state;
    for (int k = 0; k < N_ALL; k++) {
        const struct atsi_policy_ops *ops = load_any(k);
        struct atsi_err err = ATSI_ERR_INIT;
        struct policy_case c;
        uint64_t need = 0;
        open_random(&c, 11, 40, CASE_EXPERTS);
        for (uint32_t i = 0; i < 40; i++) {
            struct atsi_item *it = &c.q->items->items[i];
            it->resident_bytes += 1; /* in whole MiB these do not fit */
            it->pinned = i % 5 == 2 ? 1 : -1;
            need += i % 5 == 2 ? it->resident_bytes : 0;
        }
        c.q->budget[ATSI_DEVICE_ACCEL] = need;
        ask_all(&c, ops);
        c.q->budget[ATSI_DEVICE_ACCEL] = need - 1;
        assert_int_equal(policy_case_place(&c, ops, &err), ATSI_ENOFIT);
        {
            char numbers[64];
            (void)snprintf(numbers, sizeof numbers, "8 items of %llu bytes",
                           (unsigned long long)need);
            assert_non_null(strstr(err.msg, numbers));
            (void)snprintf(numbers, sizeof numbers, "is %llu bytes", (unsigned long long)need - 1);
            assert_non_null(strstr(err.msg, numbers));
        }
        policy_case_close(&c);
    }
}

/* Experts the user pins take room that Algorithm 1 must not give to the rest of the model. */
static void test_pinned_experts(void **state)
{
    (void)state;
    for (int k = 0; k < N_ALL; k++) {
        struct policy_case c;
        case_plain(&decode, 10);
        for (uint32_t i = 0; i < 10; i++)
            decode.op[i] = (struct sched_op){.s = 10 << 20,
                                             .tc = 1000,
                                             .tg = 100,
                                             .km = 1,
                                             .kx = 1,
                                             .rel = -1,
                                             .layer = (int32_t)i / 5,
                                             .is_exp = i % 5 == 4,
                                             .pinned = -1};
        decode.op[4].tc = 9000; /* it gains most, but experts come after the rest of the model */
        decode.op[9].pinned = SCHED_GPU;
        decode.ch.budget = 80 << 20; /* the eight others, or seven and the pinned one */
        policy_case_open(&c, &decode.ch, &decode.ch, false);
        ask_all(&c, load_any(k));
        assert_int_equal(c.answer->placed[9], 1);
        for (uint32_t i = 0; i < 10; i++)
            assert_int_equal(c.answer->place.expert_slots[i],
                             i % 5 == 4 && c.answer->placed[i] == 1 ? 8 : 0);
        if (k >= N_STATIC - 1 && k < N_ALL - 1) { /* Algorithm 1 fills what is left */
            assert_int_equal(policy_case_used(&c), 80 << 20);
            assert_int_equal(c.answer->placed[4], 0);
        }
        policy_case_close(&c);
    }
}

/* Attention gains little per byte, but decides about prefill: it lives on the GPU if all of it
 * fits. */
static void test_attention(void **state)
{
    (void)state;
    for (int k = N_STATIC - 1; k < N_ALL - 1; k++) {
        struct policy_case c;
        case_plain(&decode, 8);
        for (uint32_t i = 0; i < 8; i++) {
            decode.op[i].s = 4 << 20;
            decode.op[i].tc = i % 2 == 0 ? 200 : 5000;
            decode.op[i].tg = 100;
        }
        policy_case_open(&c, &decode.ch, &decode.ch, false);
        for (uint32_t i = 0; i < 8; i += 2)
            c.q->items->items[i].role = i % 4 == 0 ? ATSI_ROLE_ATTN : ATSI_ROLE_RECURRENT;
        c.q->budget[ATSI_DEVICE_ACCEL] = 20 << 20; /* all four and one more */
        ask_all(&c, load_any(k));
        for (uint32_t i = 0; i < 8; i += 2)
            assert_int_equal(c.answer->placed[i], 1);
        assert_int_equal(policy_case_used(&c), 20 << 20);
        c.q->budget[ATSI_DEVICE_ACCEL] = 15 << 20; /* three: then it is like the rest */
        ask_all(&c, load_any(k));
        for (uint32_t i = 0; i < 8; i += 2)
            assert_int_equal(c.answer->placed[i], 0);
        c.q->budget[ATSI_DEVICE_ACCEL] = 16 << 20;
        c.q->items->items[1].pinned = 1; /* a rule comes first */
        ask_all(&c, load_any(k));
        assert_int_equal(c.answer->placed[0] + c.answer->placed[2], 0);
        policy_case_close(&c);
    }
}

static void test_host_budget(void **state)
{
    (void)state;
    for (int k = 0; k < N_ALL; k++) {
        struct atsi_err err = ATSI_ERR_INIT;
        struct policy_case c;
        open_random(&c, 3, 20, CASE_DENSE);
        c.q->budget[ATSI_DEVICE_ACCEL] = 0;
        c.q->budget[ATSI_DEVICE_HOST] = 12345;
        assert_int_equal(policy_case_place(&c, load_any(k), &err), ATSI_ENOFIT);
        assert_non_null(strstr(err.msg, "12345"));
        policy_case_close(&c);
    }
}

static void test_chunks(void **state)
{
    struct atsi_problem p = {.struct_size = sizeof p, .mix_prompt = 2048, .prefill_tokens = 600};
    (void)state;
    assert_int_equal(sched_problem_chunks(&p), 4);
    p.prefill_tokens = 512;
    assert_int_equal(sched_problem_chunks(&p), 4);
    p.prefill_tokens = 4096;
    assert_int_equal(sched_problem_chunks(&p), 1);
    p.prefill_tokens = 0; /* the prompt at once */
    assert_int_equal(sched_problem_chunks(&p), 1);
    assert_int_equal(sched_problem_chunk_tokens(&p), 2048);
    p.prefill_tokens = 512;
    p.struct_size = offsetof(struct atsi_problem, prefill_tokens); /* a core that says nothing */
    assert_int_equal(sched_problem_chunks(&p), 1);
    p.mix_prompt = 0;
    assert_int_equal(sched_problem_chunks(&p), 0);
}

/* ---------------------------------------------------------------- questions nobody can answer */
static void refuse(const char *says, void (*spoil)(struct policy_case *))
{
    for (int k = 0; k < N_ALL; k++) {
        const struct atsi_policy_ops *ops = load_any(k);
        struct atsi_err err = ATSI_ERR_INIT;
        struct policy_case c;
        open_random(&c, 2, 20, CASE_EXPERTS);
        spoil(&c);
        assert_true(policy_case_place(&c, ops, &err) < 0);
        if (strstr(err.msg, says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.msg, says);
        policy_case_close(&c);
    }
}

static void three_devices(struct policy_case *c)
{
    c->q->p.n_devices = 3;
}
static void long_run(struct policy_case *c)
{
    c->q->cost[1][7].run_ns = UINT64_MAX;
}
static void late_router(struct policy_case *c)
{
    c->q->items->items[7].router = 12;
}
static void bad_class(struct policy_case *c)
{
    c->q->items->items[7].slot_class = 4;
}
static void bad_pin(struct policy_case *c)
{
    c->q->items->items[7].pinned = 2;
}
static void no_speed(struct policy_case *c)
{
    c->q->cost[0][7].contended_run = 0;
}

static void test_refused(void **state)
{
    (void)state;
    refuse("3 devices", three_devices);
    refuse("operator 7: tc is 9223372036854775807", long_run);
    refuse("operator 7: rel is 12", late_router);
    refuse("item 7 (tensor): slot class 4", bad_class);
    refuse("item 7 (tensor): pinned to device 2", bad_pin);
    refuse("operator 7: contention speeds", no_speed);
}

static void test_bad_setting(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct policy_case c;
    (void)state;
    open_random(&c, 2, 5, CASE_DENSE);
    assert_int_equal(
        policy_case_place(&c, policy_load("policy_static", SETTINGS("mode=lay")), &err),
        ATSI_ECONF);
    assert_non_null(strstr(err.msg, "policy_static.mode: \"lay\""));
    assert_int_equal(
        policy_case_place(&c, policy_load("policy_static", SETTINGS("n_cpu_moe=-2")), &err),
        ATSI_ECONF);
    assert_int_equal(policy_case_place(&c, policy_load("policy_dp", SETTINGS("eps=x")), &err),
                     ATSI_ECONF);
    assert_non_null(strstr(err.msg, "policy_dp.eps: \"x\""));
    assert_int_equal(
        policy_case_schedule(&c, policy_load("policy_dp", SETTINGS("algorithm=pa")), 1, &err),
        ATSI_ECONF);
    policy_case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_recorded_grains),
        cmocka_unit_test(test_legal),
        cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_rules_hold),
        cmocka_unit_test(test_rules_fill_the_budget),
        cmocka_unit_test(test_pinned_experts),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_host_budget),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bad_setting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
