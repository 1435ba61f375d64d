/* SPDX-License-Identifier: Apache-2.0
 *
 * What policies of a session reckon with: the result of a round is priced as it is copied (the
 * largest logits alone where they are picked), wherever the costs come from.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hybrid/inside.h"
#include "tests/hybrid/hybrid_run.h"

enum { N_CTX = 64, CHUNK = 8, VOCAB = 8500, ROW = VOCAB * 4 };

static const char *const on[] = {"memory.vram=100%m", "policy.name=policy_static", NULL};
static const char *const off[] = {"memory.vram=100%m", "policy.name=policy_static", "exec.pick=off",
                                  NULL};

struct place {
    struct atsi_runtime *rt;
    struct atsi_model *m;
    struct atsi_session *s;
};

static struct place open_place(const char *const *settings)
{
    struct am_config c = am_tiny("llama");
    struct place p = {.rt = hr_runtime(settings)};
    c.n_vocab = VOCAB;
    p.m = hr_open(p.rt, hr_model_of(&c, "long"));
    p.s = hr_session(p.m, N_CTX, CHUNK);
    assert_non_null(p.s->hybrid);
    return p;
}

static void close_place(struct place *p)
{
    assert_int_equal(hr_info(p->s).n_fallbacks, 0);
    atsi_session_close(p->s);
    atsi_model_close(p->m);
    atsi_runtime_close(p->rt);
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
    struct atsi_accel_stats before = {.struct_size = sizeof before}, after = before;
    struct atsi_err err = ATSI_ERR_INIT;
    int32_t ids[N_CTX];
    struct atsi_eval req = {.struct_size = sizeof req, .ids = ids, .n = n, .top = top, .fn = fn};
    hr_ids(ids, n, VOCAB);
    atsi_session_accel_stats(p->s, &before);
    if (atsi_session_eval(p->s, &req, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    atsi_session_accel_stats(p->s, &after);
    return after.result_bytes - before.result_bytes;
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
    struct place p = open_place(on);
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
    struct place p = open_place(on);
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
    struct place p = open_place(off);
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
    struct place p = open_place(on);
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
    const char *settings[] = {on[0], on[1], "policy.rule.1=^output = accel", NULL};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_copied), cmocka_unit_test(test_before_and_behind_prompts),
        cmocka_unit_test(test_off),       cmocka_unit_test(test_another_budget),
        cmocka_unit_test(test_elsewhere),
    };
    return cmocka_run_group_tests_name("price", tests, hr_enter, hr_leave);
}
