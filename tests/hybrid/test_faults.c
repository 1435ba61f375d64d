/* SPDX-License-Identifier: Apache-2.0
 *
 * Every call of the accelerator failing once, at each place of a short run: the answer is the same,
 * or there is one clear error, and nothing hangs, crashes or leaks.  ATSI_FAULTS_ALL=1 tries every
 * place, else a sample of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hybrid/hybrid_run.h"

enum { N_IDS = 9, N_DECODE = 3, N_CTX = 32, CHUNK = 4 };

struct answer {
    struct hr_rows rows[1 + N_DECODE];
};

static void run_answer(struct atsi_session *s, struct answer *out)
{
    int32_t ids[N_IDS + N_DECODE];
    hr_ids(ids, N_IDS + N_DECODE, hr_info(s).n_vocab);
    out->rows[0] = hr_eval(s, ids, N_IDS, true);
    for (uint32_t k = 0; k < N_DECODE; k++) { /* budgets change on the way */
        if (atsi_session_set_budget(s, k % 2 == 0 ? "20%m" : "70%m", NULL) != ATSI_OK)
            fail_msg("no other budget");
        out->rows[1 + k] = hr_eval(s, ids + N_IDS + k, 1, false);
    }
}

static void free_answer(struct answer *a)
{
    for (uint32_t k = 0; k < 1 + N_DECODE; k++)
        hr_free(&a->rows[k]);
}

static void answer_of_cpu(const char *name, struct answer *out)
{
    struct atsi_runtime *rt = hr_cpu();
    struct atsi_model *m = hr_open(rt, hr_model(name));
    struct atsi_session *s = hr_session(m, N_CTX, CHUNK);
    run_answer(s, out);
    atsi_session_close(s);
    atsi_model_close(m);
    atsi_runtime_close(rt);
}

/* True: the fault was met (by then the session had no accelerator any more, or never had one, or
 * fewer things on it). */
static bool try_fault(const char *name, const struct answer *want, const char *call, const char *as,
                      uint64_t at)
{
    char fail_at[64], fail_call[64], fail_as[64], what[200];
    const char *settings[] = {"policy.name=policy_static",
                              "plugin.policy_static.mode=stream",
                              "memory.vram=50%m",
                              "transfer.dynamic=on",
                              fail_at,
                              fail_call,
                              fail_as,
                              NULL};
    struct atsi_runtime *rt;
    struct atsi_model *m;
    struct atsi_session *s;
    struct answer have;
    bool met;
    (void)snprintf(fail_at, sizeof fail_at, "plugin.twin.fail_at=%llu", (unsigned long long)at);
    (void)snprintf(fail_call, sizeof fail_call, "plugin.twin.fail_call=%s", call);
    (void)snprintf(fail_as, sizeof fail_as, "plugin.twin.fail_as=%s", as);
    (void)snprintf(what, sizeof what, "%s: %s %llu fails (%s)", name, call, (unsigned long long)at,
                   as);
    rt = hr_runtime(settings);
    m = hr_open(rt, hr_model(name));
    s = hr_session(m, N_CTX, CHUNK);
    run_answer(s, &have);
    for (uint32_t k = 0; k < 1 + N_DECODE; k++)
        hr_same(&want->rows[k], &have.rows[k], what);
    met = strstr(hr_log, "as asked") != NULL;
    free_answer(&have);
    atsi_session_close(s);
    atsi_model_close(m);
    atsi_runtime_close(rt);
    return met;
}

/* At 1, 2, 3 ... or ever further apart, until the run is over before the fault. */
static void try_all(const char *name, const char *call, const char *as)
{
    bool all = getenv("ATSI_FAULTS_ALL") != NULL;
    struct answer want;
    uint64_t n = 0;
    answer_of_cpu(name, &want);
    for (uint64_t at = 1; at < 100000; at += all ? 1 : 1 + at / 2) {
        if (!try_fault(name, &want, call, as, at))
            break;
        n++;
    }
    if (n == 0)
        fail_msg("%s: no %s ever failed", name, call);
    free_answer(&want);
}

static void try_models(const char *call, const char *as)
{
    static const char *const names[] = {"qwen3", "gpt-oss", "qwen35moe"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        try_all(names[i], call, as);
}

static void opening(void **state)
{
    (void)state;
    try_models("open", "io");
}

static void memory(void **state)
{
    (void)state;
    try_models("alloc", "memory");
    try_models("pin", "memory");
}

static void objects(void **state)
{
    (void)state;
    try_models("object", "io");
}

static void queueing(void **state)
{
    (void)state;
    try_models("queue", "io");
}

static void waiting(void **state)
{
    (void)state;
    try_models("wait", "io");
}

static void work(void **state)
{
    (void)state;
    try_models("work", "lost");
}

/* A session without its accelerator stays so; the next one opens the device again. */
static void the_next_session_has_it_again(void **state)
{
    static const char *const settings[] = {"policy.name=policy_static",
                                           "plugin.policy_static.mode=stream",
                                           "memory.vram=50%m",
                                           "plugin.twin.fail_at=200",
                                           "plugin.twin.fail_call=work",
                                           "plugin.twin.fail_as=lost",
                                           NULL};
    struct answer want, have[2];
    struct atsi_runtime *rt;
    struct atsi_session *s[2];
    struct atsi_model *m;
    (void)state;
    answer_of_cpu("qwen3", &want);
    rt = hr_runtime(settings);
    m = hr_open(rt, hr_model("qwen3"));
    for (int k = 0; k < 2; k++) {
        s[k] = hr_session(m, N_CTX, CHUNK);
        assert_string_equal(hr_info(s[k]).accel, hr_accel());
        run_answer(s[k], &have[k]);
        for (uint32_t i = 0; i < 1 + N_DECODE; i++)
            hr_same(&want.rows[i], &have[k].rows[i], k == 0 ? "lost" : "again");
    }
    assert_string_equal(hr_info(s[0]).accel, "");
    assert_int_equal(hr_info(s[0]).n_fallbacks, 1);
    assert_string_equal(hr_info(s[1]).accel, hr_accel());
    assert_int_equal(hr_info(s[1]).n_fallbacks, 0);
    for (int k = 0; k < 2; k++) {
        atsi_session_close(s[k]);
        free_answer(&have[k]);
    }
    free_answer(&want);
    atsi_model_close(m);
    atsi_runtime_close(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening),
        cmocka_unit_test(memory),
        cmocka_unit_test(objects),
        cmocka_unit_test(queueing),
        cmocka_unit_test(waiting),
        cmocka_unit_test(work),
        cmocka_unit_test(the_next_session_has_it_again),
    };
    return cmocka_run_group_tests(tests, hr_enter, hr_leave);
}
