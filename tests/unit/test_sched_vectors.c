/* SPDX-License-Identifier: Apache-2.0
 *
 * Recorded problems with their answers (tests/data/sched), read by the command's own reader.
 */
#include "sched_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/policy.h"
#include "sched/dynamic.h"
#include "sched/place.h"
#include "sched/resched.h"
#include "sched/timeline.h"

static struct policy_file f;
static uint8_t side[CASE_MAX];

/* What the reader needs of the command. */
int cli_fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
    return code;
}

static void load(const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/tests/data/sched/%s", ATSI_SOURCE_DIR, name);
    assert_int_equal(policy_file_open(path, &f), CLI_OK);
    assert_true(f.n > 0);
}

static const json_t *expect(size_t k, const char *what)
{
    return json_object_get(f.item[k].expect, what);
}

static int64_t number(const json_t *o, const char *key)
{
    assert_true(json_is_integer(json_object_get(o, key)));
    return json_integer_value(json_object_get(o, key));
}

static void check_alg1(size_t k, const char *what, int subsequence)
{
    const struct sched_alg1 how = {.unit = SCHED_UNIT, .subsequence = subsequence};
    const struct sched_chain *ch = &f.item[k].chain;
    void *scratch;
    int64_t value;
    if (expect(k, what) == NULL)
        return;
    scratch = case_scratch(sched_alg1_scratch(ch, SCHED_UNIT));
    assert_int_equal(sched_alg1(ch, &how, scratch, side, &value, NULL), ATSI_OK);
    assert_int_equal(value, number(expect(k, what), "value"));
    free(scratch);
}

static void check_alg2(size_t k, const char *what, enum sched_alg2_form form)
{
    const struct sched_chain *ch = &f.item[k].chain;
    void *scratch = case_scratch(sched_alg2_scratch(ch->n));
    if (expect(k, what) != NULL)
        assert_int_equal(sched_alg2(ch, form, scratch, side), number(expect(k, what), "cost"));
    free(scratch);
}

static void check_repaired(size_t k)
{
    const struct sched_chain *ch = &f.item[k].chain;
    void *scratch = case_scratch(sched_alg2_repaired_scratch(ch->n));
    if (expect(k, "alg2_repaired") != NULL)
        assert_int_equal(sched_alg2_repaired(ch, scratch, side),
                         number(expect(k, "alg2_repaired"), "cost"));
    free(scratch);
}

static void check_plans(size_t k)
{
    const struct sched_run steady = {.rounds = 3};
    const struct sched_chain *ch = &f.item[k].chain;
    void *scratch = case_scratch(sched_timeline_scratch(ch->n, 3));
    json_t *plans = json_object_get(f.item[k].expect, "plans"), *p;
    const char *name;
    json_object_foreach(plans, name, p)
    {
        const char *text = json_string_value(json_object_get(p, "rb"));
        const json_t *want = json_object_get(p, "fluid");
        assert_int_equal(policy_read_plan(&f, k, name, text, side), CLI_OK);
        assert_int_equal(sched_latency(ch, side, NULL, scratch), number(p, "latency"));
        assert_int_equal(sched_latency(ch, side, &steady, scratch), number(p, "steady3"));
        if (want != NULL)
            assert_true(fabs(sched_fluid(ch, side, NULL, scratch) - json_real_value(want)) < 0.01);
    }
    free(scratch);
}

static double search(size_t k)
{
    const struct sched_search how = {.rounds = 1, .evals = 100};
    const struct sched_chain *ch = &f.item[k].chain;
    void *scratch = case_scratch(sched_search_scratch(ch->n, 1));
    struct sched_found found;
    sched_search(ch, &how, scratch, side, &found);
    free(scratch);
    return (double)found.ns;
}

static void test_small(void **state)
{
    (void)state;
    load("small.json");
    for (size_t k = 0; k < f.n; k++) {
        check_alg1(k, "alg1", 0);
        check_alg1(k, "alg1_subsequence", 1);
        check_alg2(k, "alg2", SCHED_ALG2_PRINTED);
        check_alg2(k, "alg2_literal17", SCHED_ALG2_LITERAL17);
        check_alg2(k, "alg2_clip", SCHED_ALG2_CLIPPED);
        check_repaired(k);
        check_plans(k);
        assert_true(search(k) <= 1.02 * (double)number(expect(k, "optimum"), "latency"));
    }
    policy_file_close(&f);
}

static void test_fluid(void **state)
{
    (void)state;
    load("fluid.json");
    for (size_t k = 0; k < f.n; k++) {
        double best = json_real_value(json_object_get(expect(k, "optimum"), "fluid"));
        check_plans(k);
        assert_true(search(k) <= 1.05 * best + 1);
        assert_true(search(k) >= best - 1);
    }
    policy_file_close(&f);
}

static void same_bits(const char *want, uint32_t n)
{
    assert_int_equal(strlen(want), n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(side[i], want[i] - '0');
}

/* One decode step of a whole model. */
static void test_full(void **state)
{
    const struct sched_chain *ch;
    void *scratch;
    (void)state;
    load("full.json");
    ch = &f.item[0].chain;
    check_alg1(0, "alg1", 0);
    check_alg2(0, "alg2_clip", SCHED_ALG2_CLIPPED);
    check_repaired(0);
    scratch = case_scratch(sched_grain_scratch(ch->n) + sched_bound_scratch(ch->n));
    assert_int_equal(sched_place_grain(ch, SCHED_BY_LAYER, 1, scratch, side, NULL), ATSI_OK);
    same_bits(json_string_value(expect(0, "layer_granular")), ch->n);
    assert_int_equal(sched_place_grain(ch, SCHED_BY_EXPERT, 1, scratch, side, NULL), ATSI_OK);
    same_bits(json_string_value(expect(0, "expert_granular")), ch->n);
    assert_int_equal(sched_bound(ch, scratch) - ch->gap,
                     json_integer_value(expect(0, "lower_bound")));
    free(scratch);
    (void)search(0);
    scratch = case_scratch(sched_timeline_scratch(ch->n, 1));
    assert_true((double)sched_latency(ch, side, NULL, scratch) <=
                1.01 * (double)number(expect(0, "backlog_dp_w8"), "latency"));
    free(scratch);
    policy_file_close(&f);
}

static void test_resched(void **state)
{
    static const char *const name[] = {"cpu", "gpu", "act", "xfer"};
    char path[512];
    json_t *root;
    (void)state;
    (void)snprintf(path, sizeof path, "%s/tests/data/sched/resched.json", ATSI_SOURCE_DIR);
    assert_int_equal(policy_load_array(path, &root), CLI_OK);
    for (size_t q = 0; q < json_array_size(root); q++) {
        const json_t *seq = json_array_get(root, q), *steps = json_object_get(seq, "steps");
        uint32_t prev[4] = {0}, cur[4];
        struct sched_resched r = {.prev = prev, .n = 4};
        r.eps_pm = (uint32_t)number(seq, "eps_pm");
        r.tau_tpots = (uint32_t)number(seq, "tau_tpots");
        assert_true(json_array_size(steps) > 0);
        for (size_t i = 0; i < json_array_size(steps); i++) {
            const json_t *s = json_array_get(steps, i), *snap = json_object_get(s, "snapshot");
            for (int k = 0; k < 4; k++)
                cur[k] = (uint32_t)json_integer_value(json_object_get(snap, name[k]));
            assert_int_equal(sched_resched_step(&r, number(s, "now"), number(s, "tpot"), cur),
                             json_is_true(json_object_get(s, "reschedule")));
        }
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_fluid),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_resched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
