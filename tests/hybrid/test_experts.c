/* SPDX-License-Identifier: Apache-2.0
 *
 * Caches of experts: whoever is in a slot, whoever comes and goes, the logits are those of the CPU,
 * to the bit; a copy that fails loses the accelerator and nothing else; statistics of who was
 * chosen make the next session begin warm, and a spoilt file is said. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hybrid/hybrid_run.h"
#include "tests/unit/scratch.h"

enum { N_CTX = 96, N_PROMPT = 7, N_DECODE = 16, CHUNK = 5 };

#define CACHES                                                                                     \
    "policy.name=policy_dp", "plugin.policy_dp.expert_memory=caches", "experts.copy_share=100",    \
        "experts.cache=auto"

static const char *const models[] = {"qwen3moe", "gpt-oss", "qwen3next", "mixtral"};
enum { N_MODELS = sizeof models / sizeof models[0] };

struct answer {
    struct hr_rows rows[1 + N_DECODE];
};

static struct answer wanted[N_MODELS];

static void run_answer(struct atsi_session *s, struct answer *out)
{
    int32_t ids[N_PROMPT + N_DECODE];
    hr_ids(ids, N_PROMPT + N_DECODE, hr_info(s).n_vocab);
    out->rows[0] = hr_eval(s, ids, N_PROMPT, true);
    for (uint32_t k = 0; k < N_DECODE; k++)
        out->rows[1 + k] = hr_eval(s, ids + N_PROMPT + k, 1, false);
}

static void free_answer(struct answer *a)
{
    for (uint32_t k = 0; k < 1 + N_DECODE; k++)
        hr_free(&a->rows[k]);
}

static int enter(void **state)
{
    int rc = hr_enter(state);
    if (rc != 0)
        return rc;
    (void)setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
    for (uint32_t i = 0; i < N_MODELS; i++) {
        struct atsi_runtime *rt = hr_cpu();
        struct atsi_model *m = hr_open(rt, hr_model(models[i]));
        struct atsi_session *s = hr_session(m, N_CTX, CHUNK);
        run_answer(s, &wanted[i]);
        atsi_session_close(s);
        atsi_model_close(m);
        atsi_runtime_close(rt);
    }
    return 0;
}

static int leave(void **state)
{
    for (uint32_t i = 0; i < N_MODELS; i++)
        free_answer(&wanted[i]);
    return hr_leave(state);
}

/* The statistics know of a cache just when there was one. */
static void check_stats(const struct atsi_session *s, unsigned long slots, bool may_fall_back)
{
    struct atsi_accel_stats st = {.struct_size = sizeof st};
    atsi_session_accel_stats(s, &st);
    if (may_fall_back)
        return;
    assert_int_equal(st.expert_bytes > 0, slots > 0);
    assert_int_equal(st.expert_hits + st.expert_misses > 0, slots > 0);
}

/* Transfers; slots: of the log, 0 when there was no cache. */
static uint64_t check(const char *const *settings, uint32_t model, const char *what,
                      bool may_fall_back, unsigned long *slots)
{
    struct atsi_runtime *rt = hr_runtime(settings);
    struct atsi_model *m = hr_open(rt, hr_model(models[model]));
    struct atsi_session *s = hr_session(m, N_CTX, CHUNK);
    struct atsi_session_info info;
    struct answer have;
    const char *said = strstr(hr_log, "slots for ");
    *slots = said != NULL ? strtoul(said + 10, NULL, 10) : 0;
    run_answer(s, &have);
    for (uint32_t k = 0; k < 1 + N_DECODE; k++)
        hr_same(&wanted[model].rows[k], &have.rows[k], what);
    info = hr_info(s);
    if (!may_fall_back && (info.n_fallbacks != 0 || info.n_refused != 0))
        fail_msg("%s, %s: %u times without the accelerator, %u answers refused\n%s", what,
                 models[model], info.n_fallbacks, (unsigned)info.n_refused, hr_log);
    check_stats(s, *slots, may_fall_back);
    free_answer(&have);
    atsi_session_close(s);
    atsi_model_close(m);
    atsi_runtime_close(rt);
    return info.n_transfers;
}

/* With some budgets experts have slots; transfers of all. */
static uint64_t check_budgets(const char *way, const char *more)
{
    static const char *const budgets[] = {"20%m", "50%m", "80%m"};
    uint64_t transfers = 0;
    for (uint32_t i = 0; i < N_MODELS; i++) {
        unsigned long most = 0;
        for (size_t b = 0; b < sizeof budgets / sizeof budgets[0]; b++) {
            char vram[64], name[64], what[160];
            const char *settings[] = {CACHES, vram, name, more, NULL};
            unsigned long slots;
            (void)snprintf(vram, sizeof vram, "memory.vram=%s", budgets[b]);
            (void)snprintf(name, sizeof name, "plugin.policy_dp.experts=%s", way);
            (void)snprintf(what, sizeof what, "%s, %s, %s", way, vram, more);
            transfers += check(settings, i, what, false, &slots);
            most = slots > most ? slots : most;
        }
        if (most == 0)
            fail_msg("%s: no expert of %s ever had a slot\n%s", way, models[i], hr_log);
    }
    return transfers;
}

static void who_is_used_lately(void **state)
{
    (void)state;
    (void)check_budgets("fade", "memory.temp=0%");
}

static void somebody_comes_in_every_round(void **state)
{
    (void)state;
    assert_true(check_budgets("lru", "memory.temp=0%") > 0);
}

static void who_is_used_most(void **state)
{
    (void)state;
    (void)check_budgets("lfu", "memory.slots=2");
}

static void one_after_the_other(void **state)
{
    (void)state;
    assert_true(check_budgets("lru", "exec.async=off") > 0);
}

static void without_transfers_of_weights(void **state)
{
    (void)state;
    (void)check_budgets("lru", "transfer.dynamic=off");
}

static void a_slow_device(void **state)
{
    static const char *const settings[] = {CACHES,
                                           "plugin.policy_dp.experts=lru",
                                           "memory.vram=70%m",
                                           "memory.temp=0%",
                                           "plugin.twin.delay_us=60",
                                           "plugin.twin.seed=3",
                                           NULL};
    (void)state;
    for (uint32_t i = 0; i < N_MODELS; i++) {
        unsigned long slots;
        (void)check(settings, i, "delays", false, &slots);
    }
}

static void weights_are_packed_meanwhile(void **state)
{
    static const char *const settings[] = {CACHES, "plugin.policy_dp.experts=lru",
                                           "memory.vram=70%m", "load.pack=auto", NULL};
    (void)state;
    for (uint32_t i = 0; i < N_MODELS; i++) {
        unsigned long slots;
        (void)check(settings, i, "packing", false, &slots);
    }
}

static void no_cache_when_switched_off(void **state)
{
    static const char *const settings[] = {CACHES, "memory.vram=70%m", "experts.cache=off", NULL};
    (void)state;
    for (uint32_t i = 0; i < N_MODELS; i++) {
        unsigned long slots;
        (void)check(settings, i, "off", false, &slots);
        assert_int_equal(slots, 0);
    }
}

/* ---------------------------------------------------------------- faults */
static void a_call_fails(void **state)
{
    static const char *const calls[] = {"queue", "wait", "work", "alloc", "object"};
    (void)state;
    if (strcmp(hr_accel(), "twin") != 0)
        skip();
    for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++)
        for (uint64_t at = 1; at < 100000; at += 1 + at) {
            char fail_at[64], fail_call[64], what[96];
            const char *settings[] = {CACHES,
                                      "plugin.policy_dp.experts=lru",
                                      "memory.vram=70%m",
                                      "memory.temp=0%",
                                      "plugin.twin.fail_as=io",
                                      fail_at,
                                      fail_call,
                                      NULL};
            unsigned long slots;
            (void)snprintf(fail_at, sizeof fail_at, "plugin.twin.fail_at=%llu",
                           (unsigned long long)at);
            (void)snprintf(fail_call, sizeof fail_call, "plugin.twin.fail_call=%s", calls[c]);
            (void)snprintf(what, sizeof what, "%s %llu fails", calls[c], (unsigned long long)at);
            (void)check(settings, (uint32_t)(at % N_MODELS), what, true, &slots);
            if (strstr(hr_log, "as asked") == NULL)
                break;
        }
}

/* ---------------------------------------------------------------- statistics */
/* The one file in the folder of statistics; false: there is not one. */
static bool find_file(char *path, size_t size)
{
    char folder[512];
    struct dirent *e;
    DIR *d;
    int n = 0;
    (void)snprintf(folder, sizeof folder, "%s/atsinfer/experts", getenv("XDG_CACHE_HOME"));
    d = opendir(folder);
    while (d != NULL && (e = readdir(d)) != NULL)
        if (e->d_name[0] != '.') {
            (void)snprintf(path, size, "%s/%s", folder, e->d_name);
            n++;
        }
    if (d != NULL)
        (void)closedir(d);
    return n == 1;
}

static void forget(void)
{
    char path[1024];
    (void)setenv("XDG_CACHE_HOME", scratch_path("cache2"), 1);
    if (find_file(path, sizeof path))
        (void)remove(path);
}

static void statistics_are_kept(void **state)
{
    static const char *const settings[] = {CACHES, "memory.vram=70%m", "memory.temp=0%",
                                           "experts.statistics=on", NULL};
    static const char *const not_kept[] = {CACHES, "memory.vram=70%m", "memory.temp=0%",
                                           "experts.statistics=off", NULL};
    char path[1024], text[4096];
    unsigned long slots;
    size_t n;
    FILE *f;
    (void)state;
    forget();
    (void)check(not_kept, 0, "not kept", false, &slots);
    assert_false(find_file(path, sizeof path));
    (void)check(settings, 0, "kept", false, &slots);
    assert_true(slots > 0);
    assert_true(find_file(path, sizeof path));
    f = fopen(path, "r");
    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    assert_non_null(strstr(text, "atsinfer experts 1\nlayer "));
    (void)check(settings, 0, "warm", false, &slots);
    assert_null(strstr(hr_log, "begun anew"));
    f = fopen(path, "w"); /* spoilt */
    assert_non_null(f);
    (void)fputs("atsinfer experts 1\nlayer 0 8 1 2 nan\nend\n", f);
    (void)fclose(f);
    (void)check(settings, 0, "spoilt", false, &slots);
    assert_non_null(strstr(hr_log, "begun anew"));
    assert_non_null(strstr(hr_log, ":2: score 3 of 8"));
    (void)check(settings, 0, "made anew", false, &slots);
    assert_null(strstr(hr_log, "begun anew"));
    forget();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_used_lately),
        cmocka_unit_test(somebody_comes_in_every_round),
        cmocka_unit_test(who_is_used_most),
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(without_transfers_of_weights),
        cmocka_unit_test(a_slow_device),
        cmocka_unit_test(weights_are_packed_meanwhile),
        cmocka_unit_test(no_cache_when_switched_off),
        cmocka_unit_test(a_call_fails),
        cmocka_unit_test(statistics_are_kept),
    };
    if (getenv("ATSI_TEST_FILTER") != NULL)
        cmocka_set_test_filter(getenv("ATSI_TEST_FILTER"));
    return cmocka_run_group_tests(tests, enter, leave);
}
