/* SPDX-License-Identifier: Apache-2.0
 * The sampler with the largest logits alone: token for token what it says with all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/rng.h"
#include "text/sampler.h"

enum { N = 5000, STEPS = 12 };

static float x[N], row[N], top[N];
static int32_t ids[N];

/* Larger first, lower id on a tie, NaN last. */
static int by_rank(const void *p, const void *q)
{
    int32_t a = *(const int32_t *)p, b = *(const int32_t *)q;
    if (isnan(x[a]) || isnan(x[b]))
        return isnan(x[a]) != isnan(x[b]) ? (isnan(x[a]) ? 1 : -1) : a - b;
    if (x[a] != x[b])
        return x[a] > x[b] ? -1 : 1;
    return a - b;
}

static void rank(void)
{
    for (int32_t i = 0; i < N; i++)
        ids[i] = i;
    qsort(ids, N, sizeof *ids, by_rank);
}

enum { RANDOM, TIES, ALL_EQUAL, MOSTLY_FORBIDDEN, EXTREME, ASCENDING, SOME_NAN, N_KINDS };

static void fill(int kind, struct atsi_rng *r)
{
    static const float few[] = {0.0f, -0.0f, 1.5f, -1.5f}, far[] = {3e38f, -3e38f, 1e-40f};
    for (int32_t i = 0; i < N; i++) {
        double u = atsi_rng_unit(r);
        float v = (float)(12 * u - 6);
        if (kind == TIES)
            v = few[(int)(u * 4)];
        if (kind == ALL_EQUAL)
            v = 0.25f;
        if (kind == MOSTLY_FORBIDDEN && i % 700 != 3)
            v = -INFINITY;
        if (kind == EXTREME)
            v = far[(int)(u * 3)];
        if (kind == ASCENDING)
            v = (float)i * 0.01f;
        if (kind == SOME_NAN && i % 3 == 0)
            v = NAN;
        x[i] = v;
    }
    rank();
}

static struct atsi_sampler *open_with(const struct atsi_sampler_params *p)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_sampler *s = NULL;
    if (atsi_sampler_open(p, N, &s, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return s;
}

static int32_t next_of_all(struct atsi_sampler *s)
{
    memcpy(row, x, sizeof row);
    return atsi_sampler_next(s, row);
}

/* From as few as the sampler says suffice, or some more. */
static int32_t next_of_top(struct atsi_sampler *s, uint32_t more)
{
    uint32_t n = atsi_sampler_top(s) + more;
    assert_in_range(n, 1, N);
    for (uint32_t i = 0; i < n; i++)
        top[i] = x[ids[i]];
    return atsi_sampler_next_of(s, ids, top, n);
}

/* Both accept what was chosen, so that penalties have something to look back at. */
static void compare(const struct atsi_sampler_params *p, const char *what)
{
    struct atsi_sampler *a = open_with(p), *b = open_with(p);
    struct atsi_rng r;
    atsi_rng_seed(&r, 5);
    for (int i = 0; i < N_KINDS * STEPS; i++) {
        int32_t want, got;
        fill(i % N_KINDS, &r);
        want = next_of_all(a);
        got = next_of_top(b, (uint32_t)i % 3 * 11);
        if (want != got)
            fail_msg("%s, step %d: token %d of all logits, %d of the largest", what, i, want, got);
        assert_true(want >= 0);
        atsi_sampler_accept(a, want);
        atsi_sampler_accept(b, want);
    }
    atsi_sampler_close(a);
    atsi_sampler_close(b);
}

static struct atsi_sampler_params plain(float temp, uint32_t top_k)
{
    return (struct atsi_sampler_params){
        .temp = temp, .top_k = top_k, .top_p = 1, .typical_p = 1, .penalty_repeat = 1, .seed = 11};
}

static void test_greedy(void **state)
{
    struct atsi_sampler_params p = plain(0, 0);
    (void)state;
    compare(&p, "greedy");
    p.top_k = 40; /* of no meaning here */
    compare(&p, "greedy, top-k given");
}

static void test_top_k(void **state)
{
    static const uint32_t ks[] = {1, 2, 40, 1000, N - 40};
    (void)state;
    for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++) {
        struct atsi_sampler_params p = plain(0.8f, ks[i]);
        compare(&p, "top-k");
        p.temp = 1e-20f;
        compare(&p, "top-k, cold");
    }
}

static void test_filters(void **state)
{
    struct atsi_sampler_params p = plain(1.3f, 40);
    (void)state;
    p.top_p = 0.9f;
    compare(&p, "top-p");
    p.min_p = 0.02f;
    compare(&p, "top-p, min-p");
    p.typical_p = 0.8f;
    compare(&p, "typical, top-p, min-p");
    atsi_sampler_defaults(&p);
    compare(&p, "defaults");
}

/* What they lower lets others in: as many more are asked for. */
static void test_lowered(void **state)
{
    struct atsi_logit_bias bias[60];
    static const float temps[] = {0, 0.7f};
    (void)state;
    for (int i = 0; i < 60; i++)
        bias[i] = (struct atsi_logit_bias){i * 83, i % 2 == 0 ? -INFINITY : -2.5f};
    bias[59].id = bias[58].id; /* twice the same */
    for (size_t i = 0; i < 2; i++) {
        struct atsi_sampler_params p = plain(temps[i], 5);
        p.bias = bias;
        p.n_bias = 60;
        compare(&p, "bias");
        p.penalty_last_n = 8;
        p.penalty_repeat = 1.5f;
        compare(&p, "bias, repetition");
        p.penalty_last_n = -1;
        p.penalty_presence = 0.5f;
        p.penalty_freq = 3;
        compare(&p, "bias, all penalties");
    }
}

static uint32_t top_of(struct atsi_sampler_params p)
{
    struct atsi_sampler *s = open_with(&p);
    uint32_t n = atsi_sampler_top(s);
    atsi_sampler_close(s);
    return n;
}

static void test_how_many(void **state)
{
    struct atsi_logit_bias bias[2] = {{7, -1}, {9, 0.5f}};
    struct atsi_sampler_params p = plain(0.8f, 40);
    (void)state;
    assert_int_equal(top_of(p), 40);
    assert_int_equal(top_of(plain(0, 0)), 1);
    assert_int_equal(top_of(plain(0.8f, 0)), 0); /* the whole distribution */
    assert_int_equal(top_of(plain(0.8f, N)), 0);
    assert_int_equal(top_of(plain(0.8f, N + 1)), 0);
    p.bias = bias;
    p.n_bias = 1;
    assert_int_equal(top_of(p), 41);
    p.n_bias = 2; /* one is raised */
    assert_int_equal(top_of(p), 0);
    p = plain(0.8f, 40);
    p.penalty_last_n = 64;
    p.penalty_repeat = 0.9f;
    assert_int_equal(top_of(p), 0);
    p.penalty_repeat = 1;
    p.penalty_presence = -0.1f;
    assert_int_equal(top_of(p), 0);
    p.penalty_presence = 0;
    p.penalty_freq = -0.1f;
    assert_int_equal(top_of(p), 0);
    p.penalty_last_n = 0;
    assert_int_equal(top_of(p), 40);
    p = plain(0.8f, N - 1);
    p.bias = bias;
    p.n_bias = 1; /* all of them */
    assert_int_equal(top_of(p), 0);
}

/* Lists that do not tell are refused, and nothing is drawn. */
static void test_refused(void **state)
{
    struct atsi_sampler_params p = plain(0.8f, 3);
    struct atsi_sampler *s = open_with(&p), *fresh = open_with(&p), *all;
    struct atsi_rng r;
    (void)state;
    atsi_rng_seed(&r, 6);
    fill(RANDOM, &r);
    for (uint32_t i = 0; i < 3; i++)
        top[i] = x[ids[i]];
    assert_int_equal(atsi_sampler_next_of(s, ids, top, 2), ATSI_ENOTSUP); /* too few */
    assert_int_equal(atsi_sampler_next_of(s, (int32_t[]){0, -1, 2}, top, 3), ATSI_ENOTSUP);
    assert_int_equal(atsi_sampler_next_of(s, (int32_t[]){0, N, 2}, top, 3), ATSI_ENOTSUP);
    x[77] = INFINITY;
    rank();
    assert_int_equal(next_of_top(s, 0), ATSI_ENOTSUP);
    assert_int_equal(next_of_all(s), next_of_all(fresh));
    p.top_k = 0;
    all = open_with(&p);
    assert_int_equal(atsi_sampler_next_of(all, ids, top, 3), ATSI_ENOTSUP);
    atsi_sampler_close(s);
    atsi_sampler_close(fresh);
    atsi_sampler_close(all);
}

static void test_nothing_to_choose(void **state)
{
    static const float temps[] = {0, 0.8f};
    (void)state;
    for (int32_t i = 0; i < N; i++)
        x[i] = i % 2 == 0 ? NAN : -INFINITY;
    rank();
    for (size_t i = 0; i < 2; i++) {
        struct atsi_sampler_params p = plain(temps[i], 3);
        struct atsi_sampler *s = open_with(&p);
        assert_int_equal(next_of_all(s), ATSI_EFAIL);
        assert_int_equal(next_of_top(s, 0), ATSI_EFAIL);
        atsi_sampler_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_lowered),
        cmocka_unit_test(test_how_many),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nothing_to_choose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
