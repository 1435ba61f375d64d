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

/* ---------------------------------------------------------------- after it was lost */
struct pair {
    struct atsi_runtime *rt[2]; /* the CPU alone; with the accelerator */
    struct atsi_model *m[2];
    struct atsi_session *s[2];
    uint32_t past, n_ctx;
};

static void open_pair(struct pair *p, const char *model, const char *at, const char *times)
{
    const char *settings[] = {"policy.name=policy_static",
                              "plugin.policy_static.mode=stream",
                              "memory.vram=50%m",
                              "plugin.twin.fail_call=work",
                              "plugin.twin.fail_as=lost",
                              at,
                              times,
                              NULL};
    *p = (struct pair){.n_ctx = 160};
    p->rt[0] = hr_cpu();
    p->rt[1] = hr_runtime(settings);
    for (int k = 0; k < 2; k++) {
        p->m[k] = hr_open(p->rt[k], hr_model(model));
        p->s[k] = hr_session(p->m[k], p->n_ctx, CHUNK);
    }
    assert_string_equal(hr_info(p->s[1]).accel, hr_accel());
}

static void close_pair(struct pair *p)
{
    for (int k = 0; k < 2; k++) {
        atsi_session_close(p->s[k]);
        atsi_model_close(p->m[k]);
        atsi_runtime_close(p->rt[k]);
    }
}

/* n requests of one token; a past that is full is cut. */
static void go_on(struct pair *p, uint32_t n, const char *what)
{
    int32_t ids[160];
    hr_ids(ids, p->n_ctx, hr_info(p->s[0]).n_vocab);
    for (uint32_t i = 0; i < n; i++, p->past++) {
        struct hr_rows rows[2];
        if (p->past == p->n_ctx) {
            p->past = 20;
            for (int k = 0; k < 2; k++)
                assert_int_equal(atsi_session_truncate(p->s[k], p->past, NULL), ATSI_OK);
        }
        for (int k = 0; k < 2; k++)
            rows[k] = hr_eval(p->s[k], ids + p->past, 1, false);
        hr_same(&rows[0], &rows[1], what);
        for (int k = 0; k < 2; k++)
            hr_free(&rows[k]);
    }
}

static uint32_t count(const char *text, const char *of)
{
    uint32_t n = 0;
    for (; (text = strstr(text, of)) != NULL; text++)
        n++;
    return n;
}

/* It comes back: its caches and states are those that the CPU has computed meanwhile. */
static void it_comes_back(void **state)
{
    static const char *const names[] = {"qwen3", "gpt-oss", "qwen35moe"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct pair p;
        open_pair(&p, names[i], "plugin.twin.fail_at=60", "plugin.twin.fail_for=1");
        go_on(&p, 12, names[i]);
        if (strcmp(hr_info(p.s[1]).accel, "") != 0 || hr_info(p.s[1]).n_fallbacks != 1)
            fail_msg("%s: not lost\n%s", names[i], hr_log);
        go_on(&p, 20, names[i]);
        assert_string_equal(hr_info(p.s[1]).accel, ""); /* not yet */
        go_on(&p, 20, names[i]);
        if (strcmp(hr_info(p.s[1]).accel, hr_accel()) != 0)
            fail_msg("%s: it did not come back\n%s", names[i], hr_log);
        assert_true(hr_info(p.s[1]).n_resident > 0);
        go_on(&p, 30, names[i]);
        assert_int_equal(hr_info(p.s[1]).n_fallbacks, 1);
        close_pair(&p);
    }
}

/* It does not: some tries, each of which leaves the CPU's work as it is, then none. */
static void tries_end(void **state)
{
    struct pair p;
    uint32_t tries = 0, n = 0;
    (void)state;
    open_pair(&p, "qwen3", "plugin.twin.fail_at=60", "plugin.twin.fail_for=0");
    for (; n < 1000; n += 20) {
        hr_log[0] = '\0';
        go_on(&p, 20, "gone");
        tries += count(hr_log, "tried again");
    }
    assert_int_equal(tries, 3);
    assert_string_equal(hr_info(p.s[1]).accel, "");
    assert_true(hr_info(p.s[1]).n_fallbacks >= 1);
    close_pair(&p);
}

/* A budget of nothing, and another one: at once. */
static void a_budget_brings_it_back(void **state)
{
    struct pair p;
    (void)state;
    open_pair(&p, "qwen35", "plugin.twin.fail_at=0", "plugin.twin.fail_for=1");
    go_on(&p, 5, "before");
    for (int k = 0; k < 5; k++) { /* however often */
        assert_int_equal(atsi_session_set_budget(p.s[1], "0", NULL), ATSI_OK);
        go_on(&p, 3, "without");
        assert_string_equal(hr_info(p.s[1]).accel, "");
        assert_int_equal(atsi_session_set_budget(p.s[1], "40%m", NULL), ATSI_OK);
        go_on(&p, 3, "with");
        assert_string_equal(hr_info(p.s[1]).accel, hr_accel());
    }
    close_pair(&p);
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
        cmocka_unit_test(it_comes_back),
        cmocka_unit_test(tries_end),
        cmocka_unit_test(a_budget_brings_it_back),
    };
    return cmocka_run_group_tests(tests, hr_enter, hr_leave);
}
