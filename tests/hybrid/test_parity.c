/* SPDX-License-Identifier: Apache-2.0
 *
 * Every architecture under every policy, budget and chunk gives what the CPU alone gives, to the
 * bit; every mechanism can be switched off alone and changes nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hybrid/hybrid_run.h"

enum { MAX_IDS = 70, N_CTX = 96 };

static const uint32_t chunks[] = {64, 7, 1}, n_ids[] = {MAX_IDS, 40, 16};
enum { N_CHUNKS = sizeof chunks / sizeof chunks[0], MAX_NAMES = 16 };

/* What the CPU alone computes, per architecture and chunk (the delta net's rounding depends on how
 * rows are cut). */
static struct hr_rows wanted[MAX_NAMES][N_CHUNKS];

static void compute_wanted(void)
{
    struct atsi_runtime *rt = hr_cpu();
    for (uint32_t a = 0; am_tiny_names[a] != NULL; a++) {
        struct atsi_model *m = hr_open(rt, hr_model(am_tiny_names[a]));
        for (uint32_t c = 0; c < N_CHUNKS; c++) {
            struct atsi_session *s = hr_session(m, N_CTX, chunks[c]);
            int32_t ids[MAX_IDS];
            hr_ids(ids, n_ids[c], hr_info(s).n_vocab);
            assert_string_equal(hr_info(s).accel, "");
            wanted[a][c] = hr_eval(s, ids, n_ids[c], true);
            atsi_session_close(s);
        }
        atsi_model_close(m);
    }
    atsi_runtime_close(rt);
}

static int enter(void **state)
{
    int rc = hr_enter(state);
    if (rc == 0)
        compute_wanted();
    return rc;
}

static int leave(void **state)
{
    for (uint32_t a = 0; a < MAX_NAMES; a++)
        for (uint32_t c = 0; c < N_CHUNKS; c++)
            hr_free(&wanted[a][c]);
    return hr_leave(state);
}

/* ---------------------------------------------------------------- one configuration */
struct sums {
    uint64_t resident, transfers, copies, caches;
};

static void check_model(struct atsi_runtime *rt, uint32_t a, uint32_t c, const char *what,
                        bool accel, struct sums *sums)
{
    struct atsi_model *m = hr_open(rt, hr_model(am_tiny_names[a]));
    struct atsi_session *s = hr_session(m, N_CTX, chunks[c]);
    struct atsi_session_info info;
    struct hr_rows r;
    int32_t ids[MAX_IDS];
    char name[200];
    (void)snprintf(name, sizeof name, "%s, %s, chunk %u", what, am_tiny_names[a], chunks[c]);
    hr_ids(ids, n_ids[c], hr_info(s).n_vocab);
    if (strcmp(hr_info(s).accel, accel ? hr_accel() : "") != 0)
        fail_msg("%s: accelerator \"%s\"\n%s", name, hr_info(s).accel, hr_log);
    r = hr_eval(s, ids, n_ids[c], true);
    hr_same(&wanted[a][c], &r, name);
    hr_free(&r);
    info = hr_info(s);
    if (info.n_fallbacks != 0 || info.n_refused != 0)
        fail_msg("%s: %u times without the accelerator, %u answers refused\n%s", name,
                 info.n_fallbacks, (unsigned)info.n_refused, hr_log);
    if (accel)
        assert_true(info.n_rounds > 0);
    sums->resident += info.n_resident;
    sums->transfers += info.n_transfers;
    sums->copies += info.n_copies;
    sums->caches += info.accel_caches;
    atsi_session_close(s);
    atsi_model_close(m);
}

/* With ATSI_TEST_FULL every chunk under every configuration; else one each, in turn. */
static struct sums check_all(const char *const *settings, const char *what, bool accel)
{
    static uint32_t turn;
    bool full = getenv("ATSI_TEST_FULL") != NULL;
    struct atsi_runtime *rt = hr_runtime(settings);
    struct sums sums = {0};
    for (uint32_t a = 0; am_tiny_names[a] != NULL; a++)
        for (uint32_t c = 0; c < N_CHUNKS; c++)
            if (full || (a + turn) % N_CHUNKS == c)
                check_model(rt, a, c, what, accel, &sums);
    turn++;
    atsi_runtime_close(rt);
    return sums;
}

/* ---------------------------------------------------------------- policies and budgets */
/* Transfers over all budgets. */
static uint64_t check_policy(const char *name, const char *more)
{
    static const char *const budgets[] = {"0", "10", "30", "60", "100"};
    uint64_t resident = 0, transfers = 0;
    for (size_t b = 0; b < sizeof budgets / sizeof budgets[0]; b++) {
        char policy[64], vram[64], what[128];
        const char *settings[] = {policy, vram, more, NULL};
        struct sums sums;
        (void)snprintf(policy, sizeof policy, "policy.name=%s", name);
        (void)snprintf(vram, sizeof vram, "memory.vram=%s%%m", budgets[b]);
        (void)snprintf(what, sizeof what, "%s, %s, %s", name, more, vram);
        sums = check_all(settings, what, b > 0);
        if (b == 0)
            assert_int_equal(sums.resident, 0);
        resident += sums.resident;
        transfers += sums.transfers;
    }
    assert_true(resident > 0);
    return transfers;
}

static void layer(void **state)
{
    (void)state;
    (void)check_policy("policy_static", "plugin.policy_static.mode=layer");
}

static void expert(void **state)
{
    (void)state;
    (void)check_policy("policy_static", "plugin.policy_static.mode=expert");
}

static void density(void **state)
{
    (void)state;
    (void)check_policy("policy_static", "plugin.policy_static.mode=density");
}

static void stream(void **state)
{
    (void)state;
    assert_true(check_policy("policy_static", "plugin.policy_static.mode=stream") > 0);
}

static void paper(void **state)
{
    (void)state;
    assert_true(check_policy("policy_dp", "plugin.policy_dp.algorithm=paper") > 0);
}

static void backlog(void **state)
{
    (void)state;
    assert_true(check_policy("policy_dp", "plugin.policy_dp.algorithm=backlog") > 0);
}

/* ---------------------------------------------------------------- switches */
#define STREAM "policy.name=policy_static", "plugin.policy_static.mode=stream"

static void without_async(void **state)
{
    static const char *const settings[] = {STREAM, "memory.vram=40%m", "exec.async=off", NULL};
    (void)state;
    assert_true(check_all(settings, "exec.async=off", true).transfers > 0);
}

static void without_dynamic(void **state)
{
    static const char *const settings[] = {STREAM, "memory.vram=40%m", "transfer.dynamic=off",
                                           NULL};
    (void)state;
    assert_int_equal(check_all(settings, "transfer.dynamic=off", true).transfers, 0);
}

static void weights_over_the_copy_kernel(void **state)
{
    static const char *const settings[] = {STREAM, "memory.vram=40%m",
                                           "transfer.engine=copy_kernel", NULL};
    (void)state;
    assert_true(check_all(settings, "transfer.engine=copy_kernel", true).transfers > 0);
}

static void caches_where_one_wants_them(void **state)
{
    static const char *const host[] = {"memory.vram=60%m", "kv.device=cpu", NULL};
    static const char *const accel[] = {"memory.vram=60%m", "kv.device=accel", NULL};
    (void)state;
    assert_int_equal(check_all(host, "kv.device=cpu", true).caches, 0);
    assert_true(check_all(accel, "kv.device=accel", true).caches > 0);
}

static void rules_are_kept(void **state)
{
    static const char *const settings[] = {"memory.vram=100%m", "policy.rule.1=attn_q = cpu",
                                           "policy.rule.2=ffn_(up|down) = cpu",
                                           "policy.rule.3=. = accel", NULL};
    struct sums sums;
    (void)state;
    sums = check_all(settings, "rules", true);
    assert_true(sums.copies > 0);
    assert_true(sums.resident > 0);
}

static void delays_and_many_slots(void **state)
{
    static const char *const settings[] = {STREAM,
                                           "memory.vram=60%m",
                                           "memory.temp=40%",
                                           "memory.slots=5",
                                           "plugin.twin.delay_us=60",
                                           "plugin.twin.seed=3",
                                           NULL};
    (void)state;
    assert_true(check_all(settings, "delays", true).transfers > 0);
}

static void a_device_with_little_memory(void **state)
{
    static const char *const settings[] = {"plugin.twin.memory=67800000", "memory.vram=100%m",
                                           "policy.name=policy_static",
                                           "plugin.policy_static.mode=layer", NULL};
    (void)state;
    (void)check_all(settings, "little memory", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer),
        cmocka_unit_test(expert),
        cmocka_unit_test(density),
        cmocka_unit_test(stream),
        cmocka_unit_test(paper),
        cmocka_unit_test(backlog),
        cmocka_unit_test(without_async),
        cmocka_unit_test(without_dynamic),
        cmocka_unit_test(weights_over_the_copy_kernel),
        cmocka_unit_test(caches_where_one_wants_them),
        cmocka_unit_test(rules_are_kept),
        cmocka_unit_test(delays_and_many_slots),
        cmocka_unit_test(a_device_with_little_memory),
    };
    if (getenv("ATSI_TEST_FILTER") != NULL)
        cmocka_set_test_filter(getenv("ATSI_TEST_FILTER"));
    return cmocka_run_group_tests(tests, enter, leave);
}
