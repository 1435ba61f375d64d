/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters of policy_dp.
 */
#include "sched/settings.h"
#include "dp.h"

#include <math.h>

static const struct atsi_param p_algorithm = {
    .struct_size = sizeof p_algorithm,
    .type = ATSI_PARAM_CHOICE,
    .key = "algorithm",
    .def = "backlog-co",
    .choices = "paper|paper-literal|repaired|backlog|backlog-co",
    .help = "The paper's algorithms with transfers of experts after routing, to the letter, with "
            "promotions in a row; the backlog DP; the same with placement for both phases."};

static const struct atsi_param p_experts = {
    .struct_size = sizeof p_experts,
    .type = ATSI_PARAM_CHOICE,
    .key = "experts",
    .def = "fade",
    .choices = "fade|lru|lfu|off",
    .help = "Expert caches keep what is used most often lately; last; most often ever; off: none."};

static const struct atsi_param p_memory = {
    .struct_size = sizeof p_memory,
    .type = ATSI_PARAM_CHOICE,
    .key = "expert_memory",
    .def = "auto",
    .choices = "auto|caches",
    .help =
        "What experts have of the accelerator's memory. auto: whole stacks or caches, whichever "
        "answers sooner; caches: caches in any case."};

/* Those that are numbers. */
enum { UNIT, EVALS, EPS, TAU, REGRET_EPS, REBUILD, N_NUMBERS };

static const struct atsi_param numbers[N_NUMBERS] = {
    [UNIT] = {.struct_size = sizeof(struct atsi_param),
              .type = ATSI_PARAM_INT,
              .key = "unit",
              .def = "1024",
              .choices = "1..1048576",
              .unit = "KiB",
              .help = "Placement counts memory in units of so much."},
    [EVALS] = {.struct_size = sizeof(struct atsi_param),
               .type = ATSI_PARAM_INT,
               .key = "search_evals",
               .def = "80",
               .choices = "0..100000",
               .unit = "plans",
               .help = "backlog: how many plans local search may try."},
    [EPS] = {.struct_size = sizeof(struct atsi_param),
             .type = ATSI_PARAM_FLOAT,
             .key = "eps",
             .def = "0.15",
             .choices = "0..10",
             .help = "paper, repaired: change of a slowdown from which Algorithm 3 plans anew."},
    [TAU] = {.struct_size = sizeof(struct atsi_param),
             .type = ATSI_PARAM_INT,
             .key = "tau",
             .def = "5",
             .choices = "0..1000000",
             .unit = "rounds",
             .help = "paper, repaired: least distance of two plans by Algorithm 3."},
    [REGRET_EPS] = {.struct_size = sizeof(struct atsi_param),
                    .type = ATSI_PARAM_FLOAT,
                    .key = "regret_eps",
                    .def = "0.05",
                    .choices = "0..10",
                    .help = "backlog: change of a slowdown from which a better plan is sought."},
    [REBUILD] = {.struct_size = sizeof(struct atsi_param),
                 .type = ATSI_PARAM_INT,
                 .key = "rebuild",
                 .def = "200",
                 .choices = "0..1000000000",
                 .unit = "us",
                 .help = "backlog: what changing the plan costs; a better one must earn it back."},
};

const struct atsi_param *const dp_params[] = {
    &p_algorithm,      &p_experts,    &p_memory,     &numbers[UNIT],
    &numbers[EVALS],   &numbers[EPS], &numbers[TAU], &numbers[REGRET_EPS],
    &numbers[REBUILD], NULL};

static int read_all(const struct sched_settings *from, void *kept, struct atsi_err *err)
{
    struct dp_settings *s = kept;
    double v[N_NUMBERS];
    int algorithm = 0, keep = 0, memory = 0;
    int rc = sched_settings_choice(from, &p_algorithm, &algorithm, err);
    if (rc == ATSI_OK)
        rc = sched_settings_choice(from, &p_experts, &keep, err);
    if (rc == ATSI_OK)
        rc = sched_settings_choice(from, &p_memory, &memory, err);
    for (int k = 0; rc == ATSI_OK && k < N_NUMBERS; k++)
        rc = sched_settings_number(from, &numbers[k], &v[k], err);
    if (rc != ATSI_OK)
        return rc;
    s->algorithm = (enum dp_algorithm)algorithm;
    s->experts = (enum dp_experts)keep;
    s->always_cache = memory;
    s->unit = (int64_t)v[UNIT] * 1024;
    s->evals = (uint32_t)v[EVALS];
    s->eps_pm = (uint32_t)lround(1000 * v[EPS]);
    s->tau = (uint32_t)v[TAU];
    s->regret_eps_pm = (uint32_t)lround(1000 * v[REGRET_EPS]);
    s->rebuild_ns = (int64_t)v[REBUILD] * 1000;
    return ATSI_OK;
}

static struct dp_settings settings;
static struct sched_settings state = {.plugin = "policy_dp",
                                      .read = read_all,
                                      .kept = &settings,
                                      .size = sizeof settings,
                                      .lock = PTHREAD_MUTEX_INITIALIZER};

void dp_settings_host(const struct atsi_host *host)
{
    sched_settings_host(&state, host);
}

void dp_settings_again(void)
{
    sched_settings_again(&state);
}

int dp_settings_get(struct dp_settings *out, struct atsi_err *err)
{
    return sched_settings_get(&state, out, err);
}
