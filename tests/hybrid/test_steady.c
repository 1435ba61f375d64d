/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode rounds that are like the ones before allocate nothing, wait for no lock, and make no
 * system call but to wait for threads that compute and to wake them.  Counted on the thread of the
 * session; the workers of the CPU's pool, the packer and the thread that asks policies are others.
 * On the simulated CUDA device, whose own work is left out.
 */
#include "tests/hybrid/hybrid_run.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cuda_host/control.h"
#include "tests/hybrid/steady.h"

/* Rounds are measured in all parts first, then every sixteenth: both kinds are among the counted.
 */
enum { SLOW_ROUNDS = 4, WARM_UP = 40, ROUNDS = 48, N_CTX = 128 };
#define SLOW "2000" /* most microseconds before each operation */

static const struct cuda_host_control *control;

struct trial {
    struct atsi_session *s;
    struct steady_counts counts;
    bool watched;
    int rc;
    struct atsi_err err;
};

static int decode(struct trial *t, uint32_t i)
{
    const int32_t id = (int32_t)(i % 7 + 1);
    const struct atsi_eval req = {.struct_size = sizeof req, .ids = &id, .n = 1, .top = 8};
    return atsi_session_eval(t->s, &req, &t->err);
}

static void *run(void *arg)
{
    struct trial *t = arg;
    (void)control->set("DELAY", SLOW); /* much is under way at a time, as on a busy machine */
    for (uint32_t i = 0; i < WARM_UP && t->rc == ATSI_OK; i++) {
        if (i == SLOW_ROUNDS)
            (void)control->set("DELAY", "0");
        t->rc = decode(t, i);
    }
    t->watched = steady_watch(); /* threads were started by now: they would be watched too */
    steady_begin(control->inside);
    for (uint32_t i = 0; i < ROUNDS && t->rc == ATSI_OK; i++)
        t->rc = decode(t, WARM_UP + i);
    steady_end(&t->counts);
    return NULL;
}

static void judge(const struct trial *t, const char *what)
{
    const struct steady_counts *c = &t->counts;
    char where[1024] = "";
    if (t->rc != ATSI_OK)
        fail_msg("%s: %s", what, t->err.msg);
    if (c->allocations > 0) {
        char **names = backtrace_symbols((void *const *)c->first_allocation, 8);
        for (int k = 0; names != NULL && k < 8 && c->first_allocation[k] != NULL; k++)
            (void)snprintf(where + strlen(where), sizeof where - strlen(where), "\n  %s", names[k]);
        free((void *)names);
    }
    print_message("%s: %u allocations, %u locks waited for, %u waits, %u other system calls\n",
                  what, c->allocations, c->contended, c->waits, c->calls);
    if (c->allocations > 0 || (t->watched && c->calls > 0))
        fail_msg("%s: %u allocations, %u system calls that are no waits, the first number %ld%s",
                 what, c->allocations, c->calls, c->first_call, where);
}

static void check(const char *model, const char *const *settings, const char *what, bool locks)
{
    struct atsi_runtime *rt = hr_runtime(settings);
    struct atsi_model *m = hr_open(rt, hr_model(model));
    struct trial t = {.s = hr_session(m, N_CTX, 8), .err = ATSI_ERR_INIT};
    pthread_t thread;
    assert_string_equal(hr_info(t.s).accel, "cuda_host");
    assert_int_equal(pthread_create(&thread, NULL, run, &t), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    judge(&t, what);
    if (locks)
        assert_int_equal(t.counts.contended, 0);
    assert_int_equal(hr_info(t.s).n_fallbacks, 0);
    atsi_session_close(t.s);
    atsi_model_close(m);
    atsi_runtime_close(rt);
}

/* ---------------------------------------------------------------- the counters count */
static int never(void)
{
    return 0;
}

static int always(void)
{
    return 1;
}

static void *some_work(void *arg)
{
    struct steady_counts *c = arg;
    void *volatile p;
    bool watched = steady_watch();
    steady_begin(never);
    p = malloc(10);
    if (watched)
        (void)getppid();
    steady_end(&c[0]);
    free(p);
    steady_begin(always);
    p = malloc(10);
    (void)getppid();
    steady_end(&c[1]);
    free(p);
    return watched ? c : NULL;
}

static void test_counters(void **state)
{
    struct steady_counts c[2];
    pthread_t thread;
    void *watched;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, some_work, c), 0);
    assert_int_equal(pthread_join(thread, &watched), 0);
    assert_int_equal(c[0].allocations, 1);
    assert_int_equal(c[1].allocations, 0);
    if (watched != NULL)
        assert_true(c[0].calls >= 1);
    assert_int_equal(c[1].calls, 0);
}

/* ---------------------------------------------------------------- rounds */
static void test_experts(void **state)
{
    const char *const s[] = {
        "memory.vram=50%m", "policy.name=policy_static", "plugin.policy_static.mode=expert",
        "load.pack=off",    "transfer.dynamic=off",      NULL};
    (void)state;
    check("qwen3moe", s, "experts on the CPU", true);
}

static void test_streamed(void **state)
{
    const char *const s[] = {"memory.vram=50%m",
                             "memory.temp=25%m",
                             "policy.name=policy_static",
                             "plugin.policy_static.mode=stream",
                             "load.pack=off",
                             NULL};
    (void)state;
    check("llama", s, "weights streamed", false);
    check("qwen3moe", s, "experts streamed", false);
}

static void test_pageable(void **state)
{
    const char *const s[] = {"memory.vram=50%m",
                             "memory.temp=25%m",
                             "policy.name=policy_static",
                             "plugin.policy_static.mode=stream",
                             "load.pack=off",
                             "memory.pin=off",
                             NULL};
    (void)state;
    check("qwen3", s, "weights streamed from pageable memory", false);
}

static void test_layers(void **state)
{
    const char *const s[] = {
        "memory.vram=50%m", "policy.name=policy_static", "plugin.policy_static.mode=layer",
        "load.pack=off",    "transfer.dynamic=off",      NULL};
    (void)state;
    check("qwen35moe", s, "whole layers", true);
}

static int enter(void **state)
{
    const struct cuda_host_control *(*get)(void) = NULL;
    void *sym, *lib = dlopen(getenv("ATSI_TEST_PLUGIN"), RTLD_NOW);
    sym = lib != NULL ? dlsym(lib, "cuda_host_control") : NULL;
    memcpy(&get, &sym, sizeof get);
    if (get == NULL)
        return -1;
    control = get();
    return hr_enter(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counters), cmocka_unit_test(test_experts),
        cmocka_unit_test(test_streamed), cmocka_unit_test(test_pageable),
        cmocka_unit_test(test_layers),
    };
    if (!steady_can_count() || getenv("ATSI_TEST_PLUGIN") == NULL)
        return 77;
    return cmocka_run_group_tests(tests, enter, hr_leave);
}
