/* SPDX-License-Identifier: Apache-2.0
 * The sampler: exact functions, filters with distributions worked out by hand, and draws. */
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

enum { MAX_VOCAB = 8 };

/* Everything off: the plain distribution. */
static struct atsi_sampler_params plain(void)
{
    return (struct atsi_sampler_params){
        .temp = 1, .top_p = 1, .typical_p = 1, .penalty_repeat = 1, .seed = 7};
}

static struct atsi_sampler *open_with(const struct atsi_sampler_params *p, uint32_t n_vocab)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_sampler *s = NULL;
    if (atsi_sampler_open(p, n_vocab, &s, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return s;
}

/* Draws many times and compares with probabilities by chi square.  The limit is the 99.99 % point
 * of chi square with 7 degrees of freedom; seeds are fixed, so this passes always or never. */
static void expect_distribution(const struct atsi_sampler_params *p, const float *logits,
                                const double *want, uint32_t n)
{
    enum { DRAWS = 20000 };
    struct atsi_sampler *s = open_with(p, n);
    uint32_t count[MAX_VOCAB] = {0};
    double chi2 = 0;
    for (int i = 0; i < DRAWS; i++) {
        float x[MAX_VOCAB];
        int32_t id;
        memcpy(x, logits, n * sizeof *x);
        id = atsi_sampler_next(s, x);
        assert_in_range(id, 0, n - 1);
        count[id]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        double expected = want[i] * DRAWS, d = count[i] - expected;
        if (want[i] <= 0)
            assert_int_equal(count[i], 0);
        else
            chi2 += d * d / expected;
    }
    if (chi2 > 29.9)
        fail_msg("chi square %.1f", chi2);
    atsi_sampler_close(s);
}

/* Logits of given probabilities. */
static void logits_of(const double *p, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)log(p[i]) + 3.0f; /* a shift changes nothing */
}

static void test_exact_functions(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        double x = -0.0373 * i, want = x < -708 ? 0 : exp(x), got = atsi_exact_exp(x);
        assert_true(fabs(got - want) <= 4.5e-16 * want);
    }
    assert_true(atsi_exact_exp(0) == 1.0);
    assert_true(atsi_exact_exp(-INFINITY) == 0.0);
    assert_true(atsi_exact_exp(NAN) == 0.0);
    for (int i = -300; i < 300; i++) {
        double x = pow(10, i + 0.37);
        assert_true(fabs(atsi_exact_log(x) - log(x)) <= 1e-15 * (1 + fabs(log(x))));
    }
    assert_true(atsi_exact_log(1) == 0.0);
}

/* First outputs of xoshiro256** seeded by splitmix64, from the authors' programs for seed 0. */
static void test_random_numbers(void **state)
{
    struct atsi_rng r;
    (void)state;
    atsi_rng_seed(&r, 0);
    assert_true(r.s[0] == 0xE220A8397B1DCDAFu); /* splitmix64's published first output */
    assert_true(r.s[1] == 0x6E789E6AA1B965F4u);
    assert_true(atsi_rng_next(&r) == 0x99EC5F36CB75F2B4u);
    for (int i = 0; i < 1000; i++) {
        double u = atsi_rng_unit(&r);
        assert_true(u >= 0.0 && u < 1.0);
    }
}

static const double probs[5] = {0.1, 0.4, 0.05, 0.3, 0.15};

static void test_plain_and_temperature(void **state)
{
    struct atsi_sampler_params p = plain();
    float x[5];
    double squared[5], sum = 0;
    (void)state;
    logits_of(probs, x, 5);
    expect_distribution(&p, x, probs, 5);
    for (int i = 0; i < 5; i++)
        sum += squared[i] = probs[i] * probs[i];
    for (int i = 0; i < 5; i++)
        squared[i] /= sum;
    p.temp = 0.5f; /* squares the probabilities */
    expect_distribution(&p, x, squared, 5);
}

static void test_filters(void **state)
{
    static const struct {
        uint32_t top_k;
        float top_p, min_p, typical_p;
        double want[5];
    } rows[] = {
        {2, 1, 0, 1, {0, 4. / 7, 0, 3. / 7, 0}},
        {5, 1, 0, 1, {0.1, 0.4, 0.05, 0.3, 0.15}},
        {100, 1, 0, 1, {0.1, 0.4, 0.05, 0.3, 0.15}},
        {1, 1, 0, 1, {0, 1, 0, 0, 0}},
        {0, 0.6f, 0, 1, {0, 4. / 7, 0, 3. / 7, 0}}, /* 0.4 + 0.3 reach 0.6 */
        {0, 0.8f, 0, 1, {0, 0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85}},
        {0, 0, 0, 1, {0, 1, 0, 0, 0}},              /* one at least */
        {3, 0.8f, 0, 1, {0, 4. / 7, 0, 3. / 7, 0}}, /* of 0.85: (0.4 + 0.3) / 0.85 > 0.8 */
        {0, 1, 0.3f, 1, {0, 0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85}}, /* at least 0.12 */
        {0, 1, 1, 1, {0, 1, 0, 0, 0}},
        /* Entropy 1.39: -log p is 2.30 0.92 3.00 1.20 1.90, so closest are 0.3, 0.4, 0.15. */
        {0, 1, 0, 0.29f, {0, 0, 0, 1, 0}},
        {0, 1, 0, 0.6f, {0, 4. / 7, 0, 3. / 7, 0}},
        {0, 1, 0, 0.8f, {0, 0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85}},
    };
    float x[5];
    (void)state;
    logits_of(probs, x, 5);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct atsi_sampler_params p = plain();
        p.top_k = rows[i].top_k;
        p.top_p = rows[i].top_p;
        p.min_p = rows[i].min_p;
        p.typical_p = rows[i].typical_p;
        expect_distribution(&p, x, rows[i].want, 5);
    }
}

static int32_t greedy_of(const struct atsi_sampler_params *p, const int32_t *accepted, size_t n,
                         const float *logits)
{
    struct atsi_sampler *s = open_with(p, 4);
    float x[4];
    int32_t id;
    memcpy(x, logits, sizeof x);
    for (size_t i = 0; i < n; i++)
        atsi_sampler_accept(s, accepted[i]);
    id = atsi_sampler_next(s, x);
    atsi_sampler_close(s);
    return id;
}

static void test_greedy(void **state)
{
    struct atsi_sampler_params p = plain();
    (void)state;
    p.temp = 0;
    assert_int_equal(greedy_of(&p, NULL, 0, (float[]){1, 3, 2, 3}), 1); /* a tie: the lower id */
    assert_int_equal(greedy_of(&p, NULL, 0, (float[]){-5, -3, -4, -9}), 1);
    assert_int_equal(greedy_of(&p, NULL, 0, (float[]){NAN, -1, INFINITY, -2}), 1);
    assert_int_equal(greedy_of(&p, NULL, 0, (float[]){NAN, -INFINITY, NAN, NAN}), ATSI_EFAIL);
    p.temp = -1;
    assert_int_equal(greedy_of(&p, NULL, 0, (float[]){0, 0, 0, 1}), 3);
}

/* The adjusted logits themselves, which next() leaves in the caller's array. */
static void expect_adjusted(const struct atsi_sampler_params *p, const int32_t *accepted, size_t n,
                            const float *logits, const float *want)
{
    struct atsi_sampler *s = open_with(p, 4);
    float x[4];
    memcpy(x, logits, sizeof x);
    for (size_t i = 0; i < n; i++)
        atsi_sampler_accept(s, accepted[i]);
    (void)atsi_sampler_next(s, x);
    for (int i = 0; i < 4; i++)
        if (x[i] != want[i])
            fail_msg("logit %d is %g, expected %g", i, (double)x[i], (double)want[i]);
    atsi_sampler_close(s);
}

static void test_penalties(void **state)
{
    static const float x[4] = {4, -2, 1, 0};
    static const int32_t seen[] = {0, 1, 0, 0, 1, -1, 99}; /* the last two are no tokens */
    struct atsi_sampler_params p = plain();
    (void)state;
    p.penalty_last_n = 64;
    p.penalty_repeat = 2;
    expect_adjusted(&p, seen, 7, x, (float[]){2, -4, 1, 0});
    p.penalty_repeat = 1;
    p.penalty_presence = 0.5f;
    expect_adjusted(&p, seen, 7, x, (float[]){3.5f, -2.5f, 1, 0});
    p.penalty_freq = 0.25f;
    expect_adjusted(&p, seen, 7, x, (float[]){2.75f, -3, 1, 0});
    p.penalty_last_n = 2; /* only 0 and 1 are left, once each */
    expect_adjusted(&p, seen, 5, x, (float[]){3.25f, -2.75f, 1, 0});
    p.penalty_last_n = 0;
    expect_adjusted(&p, seen, 5, x, x);
    p.penalty_last_n = -1;
    expect_adjusted(&p, seen, 5, x, (float[]){2.75f, -3, 1, 0});
    p.penalty_presence = -0.5f; /* negative penalties reward */
    p.penalty_freq = 0;
    expect_adjusted(&p, seen, 5, x, (float[]){4.5f, -1.5f, 1, 0});
}

static void test_bias(void **state)
{
    static const struct atsi_logit_bias bias[] = {{1, -INFINITY}, {3, 10}, {3, -1}};
    struct atsi_sampler_params p = plain();
    static const double want[4] = {0.5, 0, 0.5, 0};
    (void)state;
    p.bias = bias;
    p.n_bias = 3;
    expect_adjusted(&p, NULL, 0, (float[]){1, 2, 3, 4}, (float[]){1, -INFINITY, 3, 13});
    p.n_bias = 1;
    expect_distribution(&p, (float[]){1, 50, 1, -200}, want, 4);
}

static void test_no_finite_logit(void **state)
{
    static const uint32_t top_k[] = {0, 2};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct atsi_sampler_params p = plain();
        struct atsi_sampler *s;
        float none[4] = {NAN, INFINITY, -INFINITY, NAN}, one[4] = {NAN, NAN, -1e30f, INFINITY};
        p.top_k = top_k[i];
        s = open_with(&p, 4);
        assert_int_equal(atsi_sampler_next(s, none), ATSI_EFAIL);
        assert_int_equal(atsi_sampler_next(s, one), 2);
        atsi_sampler_close(s);
    }
}

static void test_extreme_logits(void **state)
{
    struct atsi_sampler_params p = plain();
    static const double first[3] = {1, 0, 0}, half[3] = {0.5, 0, 0.5};
    (void)state;
    expect_distribution(&p, (float[]){3e38f, -3e38f, 0}, first, 3);
    expect_distribution(&p, (float[]){-3e38f, -3.4e38f, -3e38f}, half, 3);
    p.temp = 1e-30f;
    expect_distribution(&p, (float[]){1.0000001f, 1, -1}, first, 3);
}

/* The same seed gives the same tokens, another seed others; top-k over a large vocabulary equals
 * a full sort. */
static void test_large_vocabulary(void **state)
{
    enum { N = 150000, K = 40 };
    struct atsi_sampler_params p = plain();
    struct atsi_sampler *a, *b, *c;
    float *x = malloc(N * sizeof *x), *work = malloc(N * sizeof *work);
    int differ = 0;
    (void)state;
    assert_true(x != NULL && work != NULL);
    for (int i = 0; i < N; i++)
        x[i] = (float)((i * 7919LL) % N) / 15000.0f; /* every value once */
    p.top_k = K;
    a = open_with(&p, N);
    b = open_with(&p, N);
    p.seed = 8;
    c = open_with(&p, N);
    for (int i = 0; i < 50; i++) {
        int32_t id_a, id_b, id_c;
        memcpy(work, x, N * sizeof *x);
        id_a = atsi_sampler_next(a, work);
        id_b = atsi_sampler_next(b, work);
        id_c = atsi_sampler_next(c, work);
        assert_int_equal(id_a, id_b);
        assert_true(x[id_a] >= (float)(N - K) / 15000.0f);
        differ += id_a != id_c;
    }
    assert_true(differ > 25);
    atsi_sampler_close(a);
    atsi_sampler_close(b);
    atsi_sampler_close(c);
    free(x);
    free(work);
}

/* Two equal halves: the draw is the generator's unit number against one half. */
static void test_draws_follow_the_generator(void **state)
{
    struct atsi_sampler_params p = plain();
    struct atsi_rng r;
    struct atsi_sampler *s;
    (void)state;
    p.seed = 42;
    s = open_with(&p, 2);
    atsi_rng_seed(&r, 42);
    for (int i = 0; i < 200; i++) {
        float x[2] = {0.25f, 0.25f};
        int32_t want = atsi_rng_unit(&r) < 0.5 ? 0 : 1;
        assert_int_equal(atsi_sampler_next(s, x), want);
    }
    atsi_sampler_close(s);
}

static void test_refusals(void **state)
{
    static const struct atsi_logit_bias outside = {4, 1}, negative = {-1, 1}, nan_bias = {0, NAN},
                                        inf_bias = {0, INFINITY};
    struct atsi_sampler_params bad[16];
    static const char *const names[] = {"temperature", "temperature", "top_p",      "top_p",
                                        "min_p",       "typical_p",   "repetition", "repetition",
                                        "presence",    "frequency",   "last_n",     "last_n",
                                        "token 4",     "token -1",    "token 0",    "token 0"};
    (void)state;
    for (size_t i = 0; i < 16; i++)
        bad[i] = plain();
    bad[0].temp = NAN;
    bad[1].temp = INFINITY;
    bad[2].top_p = -0.1f;
    bad[3].top_p = NAN;
    bad[4].min_p = 1.5f;
    bad[5].typical_p = -1;
    bad[6].penalty_repeat = 0;
    bad[7].penalty_repeat = -1;
    bad[8].penalty_presence = NAN;
    bad[9].penalty_freq = INFINITY;
    bad[10].penalty_last_n = -2;
    bad[11].penalty_last_n = INT32_MAX;
    bad[12].bias = &outside;
    bad[13].bias = &negative;
    bad[14].bias = &nan_bias;
    bad[15].bias = &inf_bias;
    for (size_t i = 0; i < 16; i++) {
        struct atsi_err err = ATSI_ERR_INIT;
        struct atsi_sampler *s = NULL;
        bad[i].n_bias = i >= 12;
        assert_int_equal(atsi_sampler_open(&bad[i], 4, &s, &err), ATSI_EINVAL);
        assert_null(s);
        if (strstr(err.msg, names[i]) == NULL)
            fail_msg("\"%s\" does not name %s", err.msg, names[i]);
    }
    atsi_sampler_close(NULL);
}

static void test_defaults(void **state)
{
    struct atsi_sampler_params p;
    (void)state;
    atsi_sampler_defaults(&p);
    assert_true(p.temp == 0.8f && p.top_k == 40 && p.top_p == 0.95f && p.min_p == 0.05f);
    assert_true(p.typical_p == 1 && p.penalty_repeat == 1 && p.penalty_last_n == 64);
    assert_true(p.penalty_presence == 0 && p.penalty_freq == 0 && p.n_bias == 0);
    atsi_sampler_close(open_with(&p, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_functions),
        cmocka_unit_test(test_random_numbers),
        cmocka_unit_test(test_plain_and_temperature),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_no_finite_logit),
        cmocka_unit_test(test_extreme_logits),
        cmocka_unit_test(test_large_vocabulary),
        cmocka_unit_test(test_draws_follow_the_generator),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
