/* SPDX-License-Identifier: Apache-2.0
 *
 * Random legal plans (any placement, promotion, slot, order and start) on queues with random
 * delays: logits stay those of the CPU alone, to the bit.  ATSI_FUZZ_ROUNDS sets how many rounds
 * (200), and ATSI_FUZZ_SEED where to begin. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hybrid/hybrid_run.h"

enum { N_CTX = 64, CHUNK = 16 };

static uint64_t number(const char *name, uint64_t def)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : def;
}

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(*seed >> 33) % n;
}

/* The same pieces of the same text, in both sessions. */
static uint64_t run_pair(struct atsi_session *cpu, struct atsi_session *both, uint64_t *seed,
                         const char *what)
{
    int32_t ids[N_CTX];
    uint32_t past = 0, n;
    struct atsi_session_info info;
    hr_ids(ids, N_CTX, hr_info(cpu).n_vocab);
    for (; past < N_CTX - CHUNK; past += n) {
        struct hr_rows a, b;
        n = draw(seed, 3) == 0 ? 1 + draw(seed, CHUNK) : 1;
        a = hr_eval(cpu, ids + past, n, n > 1);
        b = hr_eval(both, ids + past, n, n > 1);
        hr_same(&a, &b, what);
        hr_free(&a);
        hr_free(&b);
    }
    info = hr_info(both);
    if (info.n_fallbacks != 0 || info.n_refused != 0)
        fail_msg("%s: %u times without the accelerator, %u answers refused\n%s", what,
                 info.n_fallbacks, (unsigned)info.n_refused, hr_log);
    return info.n_rounds;
}

static uint64_t one_seed(struct atsi_runtime *rt_cpu, uint64_t number, uint64_t *moves)
{
    char plan[64], delays[64], vram[64], slots[64], temp[64], what[320];
    const char *settings[] = {"policy.name=twin_random", plan, delays, vram, slots, temp,
                              "plugin.twin.delay_us=40", NULL};
    uint64_t seed = number * 7919 + 17, rounds;
    uint32_t a = 0, n_names = 0;
    struct atsi_runtime *rt;
    struct atsi_model *m[2];
    struct atsi_session *s[2];
    while (am_tiny_names[n_names] != NULL)
        n_names++;
    a = (uint32_t)(number % n_names);
    (void)snprintf(plan, sizeof plan, "plugin.twin.plan_seed=%llu", (unsigned long long)number);
    (void)snprintf(delays, sizeof delays, "plugin.twin.seed=%llu", (unsigned long long)number);
    (void)snprintf(vram, sizeof vram, "memory.vram=%u%%m", 5 + draw(&seed, 90));
    (void)snprintf(slots, sizeof slots, "memory.slots=%u", 1 + draw(&seed, 6));
    (void)snprintf(temp, sizeof temp, "memory.temp=%u%%", 10 + draw(&seed, 80));
    (void)snprintf(what, sizeof what, "seed %llu (%s, %s, %s, %s)", (unsigned long long)number,
                   am_tiny_names[a], vram, slots, temp);
    rt = hr_runtime(settings);
    m[0] = hr_open(rt_cpu, hr_model(am_tiny_names[a]));
    m[1] = hr_open(rt, hr_model(am_tiny_names[a]));
    for (int k = 0; k < 2; k++)
        s[k] = hr_session(m[k], N_CTX, CHUNK);
    if (strcmp(hr_info(s[1]).accel, hr_accel()) != 0)
        fail_msg("%s: no accelerator\n%s", what, hr_log);
    rounds = run_pair(s[0], s[1], &seed, what);
    *moves += hr_info(s[1]).n_transfers;
    for (int k = 0; k < 2; k++) {
        atsi_session_close(s[k]);
        atsi_model_close(m[k]);
    }
    atsi_runtime_close(rt);
    return rounds;
}

static void random_plans_change_nothing(void **state)
{
    uint64_t want = number("ATSI_FUZZ_ROUNDS", 200), first = number("ATSI_FUZZ_SEED", 1);
    uint64_t rounds = 0, moves = 0;
    struct atsi_runtime *cpu = hr_cpu();
    (void)state;
    for (uint64_t k = 0; rounds < want; k++)
        rounds += one_seed(cpu, first + k, &moves);
    print_message("%llu rounds, %llu transfers\n", (unsigned long long)rounds,
                  (unsigned long long)moves);
    assert_true(moves > 0);
    atsi_runtime_close(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_plans_change_nothing),
    };
    return cmocka_run_group_tests(tests, hr_enter, hr_leave);
}
