/* SPDX-License-Identifier: Apache-2.0
 *
 * What policies of a session reckon with: the result of a round is priced as it is copied (the
 * largest logits alone where they are picked), and prompts shorter than a round are priced, and
 * planned, as short as they are, with the loads that the governor has seen last.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hybrid/inside.h"
#include "core/hybrid/live.h"
#include "tests/hybrid/place.h"

enum { N_CTX = 64, CHUNK = 8, ROW = PLACE_LONG * 4 };

static struct place open_place(const char *const *settings)
{
    struct place p = place_open(settings, place_long_model(), N_CTX, CHUNK);
    assert_non_null(p.s->hybrid);
    return p;
}

static void close_place(struct place *p)
{
    assert_int_equal(hr_info(p->s).n_fallbacks, 0);
    place_close(p);
}

static const struct atsi_question *question(const struct place *p)
{
    if (p->s->hybrid == NULL)
        fail_msg("the accelerator was given up\n%s", hr_log);
    return p->s->hybrid->question;
}

/* ---------------------------------------------------------------- results */
/* Bytes of logits that came to the host for some tokens. */
static uint64_t bytes_of(const struct place *p, uint32_t n, uint32_t top, atsi_logits_fn *fn)
{
    uint64_t before = place_result_bytes(p);
    struct atsi_err err = ATSI_ERR_INIT;
    int32_t ids[N_CTX];
    struct atsi_eval req = {.struct_size = sizeof req, .ids = ids, .n = n, .top = top, .fn = fn};
    hr_ids(ids, n, PLACE_LONG);
    if (atsi_session_eval(p->s, &req, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return place_result_bytes(p) - before;
}

static void expect_price(const struct place *p, uint64_t bytes)
{
    const struct atsi_question *q = question(p);
    assert_int_equal(q->p.result_ns, atsi_hybrid_result_ns(q, bytes));
    assert_true(bytes == ROW || q->p.result_ns < atsi_hybrid_result_ns(q, ROW));
}

static int ignore(void *ctx, uint32_t pos, const float *logits)
{
    (void)ctx;
    (void)pos;
    (void)logits;
    return 0;
}

/* Of lists of any length, of rows, and of lists that are not made: the price of what was copied. */
static void test_as_copied(void **state)
{
    static const uint32_t tops[] = {3, 64, 2048, 0, 40, 2049, 1, UINT32_MAX, 40};
    struct place p = open_place(place_on);
    uint64_t least = UINT64_MAX, most = 0;
    (void)state;
    for (size_t k = 0; k < sizeof tops / sizeof tops[0]; k++) {
        uint64_t bytes = bytes_of(&p, 1, tops[k], NULL);
        assert_int_equal(bytes, tops[k] == 0 || tops[k] > 2048 ? ROW : tops[k] * 8);
        expect_price(&p, bytes);
        least = question(&p)->p.result_ns < least ? question(&p)->p.result_ns : least;
        most = question(&p)->p.result_ns > most ? question(&p)->p.result_ns : most;
    }
    assert_true(least < most);
    assert_int_equal(bytes_of(&p, 1, 40, ignore), ROW); /* a function takes the row */
    expect_price(&p, ROW);
    close_place(&p);
}

/* What is placed before anybody asks is placed for a sampler; of a prompt its last round counts. */
static void test_before_and_behind_prompts(void **state)
{
    struct place p = open_place(place_on);
    (void)state;
    expect_price(&p, 8 * ATSI_PICK_USUAL);
    assert_int_equal(bytes_of(&p, 2 * CHUNK + 1, 0, NULL), 8 + 8 + ROW);
    expect_price(&p, ROW);
    assert_int_equal(bytes_of(&p, CHUNK + 1, 5, NULL), 8 + 40);
    expect_price(&p, 40);
    close_place(&p);
}

static void test_off(void **state)
{
    struct place p = open_place(place_off);
    (void)state;
    expect_price(&p, ROW);
    assert_int_equal(bytes_of(&p, 1, 3, NULL), ROW);
    expect_price(&p, ROW);
    close_place(&p);
}

/* Another budget is a new question, about what is asked for now. */
static void test_another_budget(void **state)
{
    static const uint32_t tops[] = {0, 7};
    struct place p = open_place(place_on);
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        (void)bytes_of(&p, 1, tops[k], NULL);
        hr_log[0] = '\0';
        assert_int_equal(atsi_session_set_budget(p.s, k == 0 ? "90MiB" : "100MiB", &err), ATSI_OK);
        expect_price(&p, bytes_of(&p, 1, tops[k], NULL));
        assert_non_null(strstr(hr_log, "another budget"));
    }
    close_place(&p);
}

/* ---------------------------------------------------------------- what policies make of it */
/* Time of a decode round as the policy that schedules predicts it. */
static uint64_t predicted(const struct place *p, uint64_t result_ns)
{
    const struct atsi_policy_ops *ops =
        atsi_registry_find(p->rt->registry, ATSI_KIND_POLICY, "policy_dp");
    struct atsi_question *q = p->s->hybrid->question;
    struct atsi_err err = ATSI_ERR_INIT;
    uint64_t was = q->p.result_ns, ns;
    struct atsi_answer *a;
    assert_non_null(ops);
    assert_int_equal(atsi_answer_open(q->items->n, &a, &err), ATSI_OK);
    assert_int_equal(atsi_question_scratch(q, ops->scratch_bytes(q->items->n), &err), ATSI_OK);
    q->p.result_ns = result_ns;
    if (ops->place(&q->p, &a->place, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    ns = a->place.predicted_decode_ns;
    q->p.result_ns = was;
    atsi_answer_close(a);
    return ns;
}

/* Logits that the CPU computes are there already. */
static void test_elsewhere(void **state)
{
    const char *settings[] = {place_on[0], place_on[1], "policy.rule.1=^output = accel", NULL};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct place p = open_place(settings);
        const struct atsi_question *q = question(&p);
        uint64_t pick = atsi_hybrid_result_ns(q, 320), row = atsi_hybrid_result_ns(q, ROW);
        uint64_t bytes = bytes_of(&p, 1, 40, NULL);
        assert_int_equal(bytes, k == 0 ? 320 : 0);
        assert_int_equal(predicted(&p, row) - predicted(&p, pick), k == 0 ? row - pick : 0);
        close_place(&p);
        settings[2] = "policy.rule.1=^output = cpu";
    }
}

/* ---------------------------------------------------------------- prompts of other sizes */
enum { LONG_CTX = 1024, ROUND = 256 };

/* Matrices that are worth moving for a round, and not for a few tokens. */
static struct place open_wide(const char *const *settings)
{
    struct am_config c = am_tiny("llama");
    struct place p;
    c.n_embd = 256;
    c.n_head = 8;
    c.n_ff = 512;
    c.n_layer = 2;
    p = place_open(settings, hr_model_of(&c, "wide"), LONG_CTX, ROUND);
    assert_non_null(p.s->hybrid);
    return p;
}

static struct atsi_question *ask(const struct place *p, struct atsi_hybrid_ask *a)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_question *q = NULL;
    *a = atsi_hybrid_ask_of(p->s->hybrid);
    if (atsi_hybrid_question(a, &q, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_non_null(q);
    return q;
}

/* The question for prompts of so many tokens. */
static void price(struct atsi_hybrid_ask *a, struct atsi_question *q, uint32_t tokens)
{
    struct atsi_err err = ATSI_ERR_INIT;
    a->tokens = tokens;
    if (atsi_hybrid_price(a, q, ATSI_PHASE_PREFILL, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

static void expect_same(const struct atsi_question *a, const struct atsi_question *b, uint32_t f)
{
    size_t n = a->items->n;
    assert_memory_equal(a->cost[f], b->cost[f], ATSI_N_DEVICES * n * sizeof *a->cost[f]);
    assert_memory_equal(a->touched[f], b->touched[f], n * sizeof *a->touched[f]);
    assert_memory_equal(&a->link[f], &b->link[f], sizeof a->link[f]);
}

static uint64_t sum_of(const struct atsi_question *q, uint32_t device)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < q->items->n; i++)
        sum += q->cost[ATSI_PHASE_PREFILL][device * q->items->n + i].run_ns;
    return sum;
}

/* Computing and activations are less for fewer tokens; what a weight's way takes, where weights may
 * go, and all of decode stay. */
static void check_shorter(const struct atsi_question *q, const struct atsi_question *whole)
{
    size_t n = q->items->n;
    expect_same(q, whole, ATSI_PHASE_DECODE);
    for (size_t k = 0; k < ATSI_N_DEVICES * n; k++) {
        const struct atsi_item_cost *a = &q->cost[ATSI_PHASE_PREFILL][k];
        const struct atsi_item_cost *b = &whole->cost[ATSI_PHASE_PREFILL][k];
        assert_true(a->run_ns <= b->run_ns && a->in_ns <= b->in_ns);
        assert_int_equal(a->transfer_ns, b->transfer_ns);
    }
    assert_memory_equal(q->slot_bytes, whole->slot_bytes, sizeof q->slot_bytes);
    assert_memory_equal(q->slot_depth, whole->slot_depth, sizeof q->slot_depth);
    assert_memory_equal(q->budget, whole->budget, sizeof q->budget);
    assert_int_equal(q->p.result_ns, whole->p.result_ns);
}

/* Returns how often it took longer with more tokens, on either device; a measured table may say
 * that it does not. */
static uint32_t check_sizes(const struct place *p, uint32_t round)
{
    static const uint32_t parts[] = {4, 2, 1}; /* of a round: longer and longer prompts */
    struct atsi_hybrid_ask a;
    struct atsi_question *whole = ask(p, &a), *q = ask(p, &a);
    uint64_t cpu = 0, accel = 0;
    uint32_t longer = 0;
    expect_same(q, whole, ATSI_PHASE_PREFILL);
    for (size_t k = 0; k < 3; k++) {
        price(&a, q, round / parts[k]);
        check_shorter(q, whole);
        assert_true(sum_of(q, ATSI_DEVICE_HOST) >= cpu && sum_of(q, ATSI_DEVICE_ACCEL) >= accel);
        longer += (sum_of(q, ATSI_DEVICE_HOST) > cpu) + (sum_of(q, ATSI_DEVICE_ACCEL) > accel);
        cpu = sum_of(q, ATSI_DEVICE_HOST);
        accel = sum_of(q, ATSI_DEVICE_ACCEL);
    }
    expect_same(q, whole, ATSI_PHASE_PREFILL); /* a round is a round again */
    price(&a, q, 2);
    price(&a, q, 0); /* whole ones */
    expect_same(q, whole, ATSI_PHASE_PREFILL);
    atsi_question_free(whole);
    atsi_question_free(q);
    return longer;
}

static const char *const half[] = {"memory.vram=50%m", "memory.temp=40%m", "policy.name=policy_dp",
                                   "policy.rule.1=^output = cpu", NULL};

static void test_sizes(void **state)
{
    struct place p = open_wide(half);
    (void)state;
    assert_int_equal(check_sizes(&p, ROUND), 6);
    close_place(&p);
}

/* The governor's loads: those that it saw last, in prices as in questions. */
static void test_loads(void **state)
{
    struct atsi_govern_decision slow = {
        .what = ATSI_GOVERN_COSTS, .load_cpu = 2, .load_gpu = 4, .why = "a test"};
    struct place p = open_wide(half);
    struct atsi_hybrid_ask a;
    struct atsi_question *q = ask(&p, &a), *loaded;
    const int32_t id = 1;
    struct atsi_eval req = {.struct_size = sizeof req, .ids = &id, .n = 1};
    struct atsi_err err = ATSI_ERR_INIT;
    uint64_t cpu, accel;
    (void)state;
    price(&a, q, 8);
    cpu = sum_of(q, ATSI_DEVICE_HOST);
    accel = sum_of(q, ATSI_DEVICE_ACCEL);
    atsi_question_free(q);
    atsi_live_decide(p.s->live, &slow);
    assert_int_equal(atsi_session_eval(p.s, &req, &err), ATSI_OK); /* takes it up */
    loaded = ask(&p, &a);
    price(&a, loaded, 8);
    /* Nanoseconds of each item are rounded. */
    assert_in_range(sum_of(loaded, ATSI_DEVICE_HOST), 2 * cpu - 2 * loaded->items->n,
                    2 * cpu + 2 * loaded->items->n);
    assert_in_range(sum_of(loaded, ATSI_DEVICE_ACCEL), 4 * accel - 4 * loaded->items->n,
                    4 * accel + 4 * loaded->items->n);
    atsi_question_free(loaded);
    close_place(&p);
}

/* A failure leaves the question as it was. */
static void test_no_price(void **state)
{
    static const char *const wrong[] = {"policy.mix=2048", NULL};
    struct place p = open_wide(half);
    struct atsi_runtime *rt = hr_runtime(wrong);
    struct atsi_session other = *p.s;
    struct atsi_hybrid_ask a;
    struct atsi_question *whole = ask(&p, &a), *q = ask(&p, &a);
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    other.rt = rt;
    a.s = &other;
    a.tokens = 2;
    assert_int_equal(atsi_hybrid_price(&a, q, ATSI_PHASE_PREFILL, &err), ATSI_ECONF);
    assert_non_null(strstr(err.msg, "policy.mix = 2048"));
    for (uint32_t f = 0; f < 2; f++)
        expect_same(q, whole, f);
    check_shorter(q, whole);
    atsi_question_free(whole);
    atsi_question_free(q);
    atsi_runtime_close(rt);
    close_place(&p);
}

/* With costs that were measured: of the same table, which nobody measures again. */
static void test_measured(void **state)
{
    static const char *const settings[] = {"memory.vram=80%m", "policy.name=policy_dp",
                                           "policy.costs=measured", "prefill.chunk=8", NULL};
    struct place p = open_place(settings);
    const struct atsi_costs *table = p.s->hybrid->costs.table;
    (void)state;
    assert_non_null(table);
    assert_true(check_sizes(&p, CHUNK) >= 2);
    assert_ptr_equal(p.s->hybrid->costs.table, table);
    assert_null(strstr(hr_log, "middling"));
    close_place(&p);
}

/* What it is for: a prompt of a round moves weights, a few tokens do not wait for any.  First
 * rounds of sessions: later ones are planned with what the ones before took here. */
static void test_plans(void **state)
{
    static const uint32_t prompts[] = {ROUND, 2, 3};
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        struct place p = open_wide(half);
        const struct atsi_schedule *plan;
        struct atsi_err err = ATSI_ERR_INIT;
        int32_t ids[ROUND];
        struct atsi_eval req = {.struct_size = sizeof req, .ids = ids, .n = prompts[k], .top = 1};
        hr_ids(ids, prompts[k], hr_info(p.s).n_vocab);
        if (atsi_session_eval(p.s, &req, &err) != ATSI_OK)
            fail_msg("%s", err.msg);
        plan = atsi_rounds_schedule(p.s->hybrid->rounds, ATSI_PHASE_PREFILL);
        assert_non_null(plan);
        if ((plan->n_transfers > 0) != (prompts[k] == ROUND))
            fail_msg("a prompt of %u tokens moves %u weights", prompts[k], plan->n_transfers);
        close_place(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_copied), cmocka_unit_test(test_before_and_behind_prompts),
        cmocka_unit_test(test_off),       cmocka_unit_test(test_another_budget),
        cmocka_unit_test(test_elsewhere), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_loads),     cmocka_unit_test(test_no_price),
        cmocka_unit_test(test_measured),  cmocka_unit_test(test_plans),
    };
    return cmocka_run_group_tests_name("price", tests, hr_enter, hr_leave);
}
