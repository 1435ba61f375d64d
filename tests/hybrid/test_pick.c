/* SPDX-License-Identifier: Apache-2.0
 *
 * Logits that an accelerator picked: the largest of the row in order, few bytes over the link, the
 * whole row for whoever asks, and the same tokens as without. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hybrid/place.h"
#include "tests/unit/scratch.h"
#include "text/sampler.h"

enum { N_CTX = 64, CHUNK = 8, FIRST = 9 };

static struct place open_place(const char *const *settings, const char *path)
{
    return place_open(settings, path, N_CTX, CHUNK);
}

static void eval(struct atsi_session *s, const int32_t *ids, uint32_t n, uint32_t top)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_eval req = {.struct_size = sizeof req, .ids = ids, .n = n, .top = top};
    if (atsi_session_eval(s, &req, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

/* ---------------------------------------------------------------- the list */
static void check_order(const float *row, uint32_t n_vocab, const int32_t *ids, const float *top,
                        uint32_t n)
{
    for (uint32_t j = 0; j < n; j++) {
        uint32_t rank = 0;
        float x;
        assert_in_range(ids[j], 0, n_vocab - 1);
        x = row[ids[j]];
        for (uint32_t i = 0; i < n_vocab; i++)
            rank += row[i] > x || (row[i] == x && i < (uint32_t)ids[j]);
        assert_int_equal(rank, j);
        assert_memory_equal(&x, &top[j], sizeof x);
    }
}

/* A prompt and some tokens; lists against rows of the CPU. */
static void check_lists(const char *path, const uint32_t *ks, uint32_t n_ks)
{
    struct place cpu = open_place(NULL, path), acc = open_place(place_on, path);
    uint32_t n_vocab = hr_info(acc.s).n_vocab;
    int32_t ids[40];
    hr_ids(ids, 40, n_vocab);
    assert_string_equal(hr_info(acc.s).accel, hr_accel());
    for (uint32_t k = 0, at = 0; k < n_ks; k++) {
        uint32_t n = k == 0 ? 11 : 1,
                 got; /* a prompt of two rounds, of which nobody sees the first */
        uint64_t before = place_result_bytes(&acc), bytes;
        struct hr_rows want = hr_eval(cpu.s, ids + at, n, false), have = want;
        const int32_t *top_ids;
        float *top;
        eval(acc.s, ids + at, n, ks[k]);
        at += n;
        bytes = place_result_bytes(&acc) - before;
        got = atsi_session_top(acc.s, &top_ids, &top);
        assert_int_equal(got, ks[k]);
        /* And the row that was asked for behind the round before. */
        assert_int_equal(bytes, (uint64_t)ks[k] * 8 + (k == 0 ? 8 : n_vocab * sizeof(float)));
        have.data = atsi_session_logits(acc.s); /* all of them, after all */
        assert_non_null(have.data);
        hr_same(&want, &have, "the row");
        check_order(have.data, n_vocab, top_ids, top, got);
        assert_int_equal(atsi_session_top(acc.s, &top_ids, &top), ks[k]); /* it stays */
        hr_free(&want);
    }
    assert_int_equal(hr_info(acc.s).n_fallbacks, 0);
    place_close(&cpu);
    place_close(&acc);
}

static void test_lists(void **state)
{
    static const uint32_t few[] = {1, 3, 48, 40, 1, 1, 7}, many[] = {40, 1, 1000, 40, 2048};
    (void)state;
    check_lists(hr_model("qwen3"), few, 7);
    check_lists(hr_model("qwen35moe"), few, 7);
    check_lists(place_long_model(), many, 5);
}

/* ---------------------------------------------------------------- when there is none */
static int count_row(void *ctx, uint32_t pos, const float *logits)
{
    (void)pos;
    *(double *)ctx += (double)logits[0];
    return 0;
}

static void expect_row(struct atsi_session *s, const char *what)
{
    const int32_t *ids;
    float *top;
    if (atsi_session_top(s, &ids, &top) != 0 || ids != NULL || top != NULL)
        fail_msg("%s: there is a list", what);
    assert_non_null(atsi_session_logits(s));
}

static void test_whole_rows(void **state)
{
    struct place p = open_place(place_on, hr_model("qwen3"));
    uint32_t n_vocab = hr_info(p.s).n_vocab;
    struct atsi_err err = ATSI_ERR_INIT;
    const int32_t id = 5, *ids;
    double sum = 0;
    float *top;
    struct atsi_eval req = {
        .struct_size = sizeof req, .ids = &id, .n = 1, .fn = count_row, .ctx = &sum, .top = 3};
    (void)state;
    assert_int_equal(atsi_session_top(p.s, &ids, &top), 0); /* nothing yet */
    eval(p.s, &id, 1, 0);
    expect_row(p.s, "nobody asked");
    eval(p.s, &id, 1, n_vocab / 2 + 1);
    expect_row(p.s, "a list as long as the row");
    eval(p.s, &id, 1, UINT32_MAX);
    expect_row(p.s, "far too long a list");
    assert_int_equal(atsi_session_eval(p.s, &req, &err), ATSI_OK);
    expect_row(p.s, "a function takes the row");
    req.want_all = 1;
    assert_int_equal(atsi_session_eval(p.s, &req, &err), ATSI_OK);
    expect_row(p.s, "a function takes all rows");
    assert_true(sum != 0);
    req = (struct atsi_eval){.struct_size = offsetof(struct atsi_eval, top), .ids = &id, .n = 1};
    req.top = 3; /* behind the end of what that caller knows */
    assert_int_equal(atsi_session_eval(p.s, &req, &err), ATSI_OK);
    expect_row(p.s, "a caller of before");
    eval(p.s, &id, 1, 3);
    assert_int_equal(atsi_session_top(p.s, &ids, &top), 3);
    assert_int_equal(atsi_session_truncate(p.s, 2, &err), ATSI_OK);
    assert_int_equal(atsi_session_top(p.s, &ids, &top), 0); /* of a token that is no more */
    place_close(&p);
}

/* Switched off, on the CPU, and with the last product there. */
static void test_elsewhere(void **state)
{
    static const char *const small[] = {"memory.vram=30%m", "policy.name=policy_static",
                                        "plugin.policy_static.mode=layer",
                                        "policy.rule.1=^output = cpu", NULL};
    static const char *const *const settings[] = {place_off, NULL, small};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct place p = open_place(settings[i], hr_model("qwen3"));
        const int32_t id = 5;
        uint64_t before;
        eval(p.s, &id, 1, 3);
        before = place_result_bytes(&p);
        eval(p.s, &id, 1, 3);
        expect_row(p.s, i == 0 ? "exec.pick = off" : i == 1 ? "the CPU" : "a head on the CPU");
        if (i == 0)
            assert_int_equal(place_result_bytes(&p) - before, hr_info(p.s).n_vocab * sizeof(float));
        place_close(&p);
    }
}

/* ---------------------------------------------------------------- tokens */
static int32_t sample(struct atsi_session *s, struct atsi_sampler *by, uint32_t *n_lists)
{
    const int32_t *ids;
    float *logits;
    uint32_t n = atsi_session_top(s, &ids, &logits);
    *n_lists += n > 0;
    return n > 0 ? atsi_sampler_next_of(by, ids, logits, n)
                 : atsi_sampler_next(by, atsi_session_logits(s));
}

/* A prompt of two rounds, the first of which nobody looks at, and what follows it. */
static uint32_t write_text(const char *const *settings, const char *path,
                           const struct atsi_sampler_params *params, int32_t *out, uint32_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct place p = open_place(settings, path);
    struct atsi_sampler *by;
    uint32_t n_lists = 0;
    int32_t ids[11];
    assert_int_equal(atsi_sampler_open(params, hr_info(p.s).n_vocab, &by, &err), ATSI_OK);
    hr_ids(ids, 11, hr_info(p.s).n_vocab);
    for (uint32_t i = 0; i < 11; i++)
        atsi_sampler_accept(by, ids[i]);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t top = atsi_sampler_top(by), had = n_lists, rounds = i == 0 ? 2 : 1;
        uint64_t before = place_result_bytes(&p), row = hr_info(p.s).n_vocab * sizeof(float), want;
        eval(p.s, ids, i == 0 ? 11 : 1, top);
        ids[0] = out[i] = sample(p.s, by, &n_lists);
        want = n_lists > had ? (uint64_t)top * 8 + (rounds - 1) * 8 : rounds * row;
        assert_int_equal(place_result_bytes(&p) - before, want);
        assert_true(ids[0] >= 0);
        atsi_sampler_accept(by, ids[0]);
    }
    atsi_sampler_close(by);
    place_close(&p);
    return n_lists;
}

static void test_tokens(void **state)
{
    enum { N = 24 };
    static const struct atsi_logit_bias bias[] = {{3, -INFINITY}, {40, -1.5f}};
    static const uint32_t ks[] = {0, 1, 40, 1000};
    const char *path = place_long_model();
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        struct atsi_sampler_params params;
        int32_t a[N], b[N];
        atsi_sampler_defaults(&params);
        params.seed = 3;
        params.top_k = ks[i / 2];
        params.temp = i / 2 == 0 ? 0 : 0.9f;
        params.penalty_repeat = i % 2 == 0 ? 1 : 1.3f;
        params.bias = bias;
        params.n_bias = i % 2 == 0 ? 0 : 2;
        assert_int_equal(write_text(place_on, path, &params, a, N), N);
        assert_int_equal(write_text(place_off, path, &params, b, N), 0);
        assert_memory_equal(a, b, sizeof a);
    }
}

/* ---------------------------------------------------------------- failing */
static uint32_t n_lost; /* times that a row was lost with the accelerator */

/* One call fails, also those that copy the row later: the same rows, from the CPU.  The first
 * request is a prompt of two rounds. */
static bool try_fault(const struct hr_rows *want, const int32_t *ids, uint32_t n, const char *call,
                      uint32_t at)
{
    char fail_at[64], fail_call[64];
    const char *const settings[] = {place_on[0], place_on[1], fail_at, fail_call, NULL};
    const int32_t *top_ids;
    struct place p;
    float *top;
    bool met;
    (void)snprintf(fail_at, sizeof fail_at, "plugin.twin.fail_at=%u", at);
    (void)snprintf(fail_call, sizeof fail_call, "plugin.twin.fail_call=%s", call);
    p = open_place(settings, hr_model("qwen35"));
    for (uint32_t i = 0; i < n; i++) {
        struct hr_rows have = want[i];
        uint32_t got;
        eval(p.s, ids + (i == 0 ? 0 : FIRST - 1 + i), i == 0 ? FIRST : 1, 4);
        got = atsi_session_top(p.s, &top_ids, &top);
        assert_true(got == 0 || got == 4);
        have.data = atsi_session_logits(p.s);
        assert_non_null(have.data);
        hr_same(&want[i], &have, call);
        if (atsi_session_top(p.s, &top_ids, &top) > 0)
            check_order(have.data, have.n_vocab, top_ids, top, got);
        assert_int_equal(atsi_session_n_past(p.s), FIRST + i);
    }
    met = strstr(hr_log, "as asked") != NULL || hr_info(p.s).n_fallbacks > 0;
    n_lost += strstr(hr_log, "it kept logits that cannot be copied") != NULL;
    place_close(&p);
    return met;
}

static void test_faults(void **state)
{
    enum { N = 3 };
    static const char *const calls[] = {"queue", "wait", "alloc", "object"};
    struct hr_rows want[N];
    int32_t ids[FIRST + N];
    struct place cpu;
    (void)state;
    if (strcmp(hr_accel(), "twin") != 0)
        skip();
    cpu = open_place(NULL, hr_model("qwen35"));
    hr_ids(ids, FIRST + N, hr_info(cpu.s).n_vocab);
    want[0] = hr_eval(cpu.s, ids, FIRST, false);
    for (uint32_t i = 1; i < N; i++)
        want[i] = hr_eval(cpu.s, ids + FIRST - 1 + i, 1, false);
    place_close(&cpu);
    for (size_t c = 0; c < 4; c++) {
        uint32_t at = 1;
        while (at < 10000 && try_fault(want, ids, N, calls[c], at))
            at += getenv("ATSI_FAULTS_ALL") != NULL || c == 1 ? 1 : 1 + at / 8;
        assert_true(at > 1 && at < 10000);
    }
    assert_true(n_lost > 0);
    for (uint32_t i = 0; i < N; i++)
        hr_free(&want[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),     cmocka_unit_test(test_whole_rows),
        cmocka_unit_test(test_elsewhere), cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, hr_enter, hr_leave);
}
