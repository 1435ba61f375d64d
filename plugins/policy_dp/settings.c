/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters of policy_dp.  They are known to the core only after the entry point has returned, so
 * they are read with the first question, and again before a placement.
 */
#include "dp.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char *const algorithms[] = {[DP_PAPER] = "paper",
                                         [DP_PAPER_LITERAL] = "paper-literal",
                                         [DP_REPAIRED] = "repaired",
                                         [DP_BACKLOG] = "backlog",
                                         [DP_BACKLOG_CO] = "backlog-co"};
enum { N_ALGORITHMS = sizeof algorithms / sizeof algorithms[0] };

static const struct atsi_param p_algorithm = {
    .struct_size = sizeof p_algorithm,
    .type = ATSI_PARAM_CHOICE,
    .key = "algorithm",
    .def = "backlog-co",
    .choices = "paper|paper-literal|repaired|backlog|backlog-co",
    .help = "The paper's algorithms with transfers of experts after routing, to the letter, with "
            "promotions in a row; the backlog DP; the same with placement for both phases."};

static const char *const experts[] = {[DP_EXPERTS_FADE] = "fade",
                                      [DP_EXPERTS_LRU] = "lru",
                                      [DP_EXPERTS_LFU] = "lfu",
                                      [DP_EXPERTS_OFF] = "off"};
enum { N_EXPERTS = sizeof experts / sizeof experts[0] };

static const struct atsi_param p_experts = {
    .struct_size = sizeof p_experts,
    .type = ATSI_PARAM_CHOICE,
    .key = "experts",
    .def = "fade",
    .choices = "fade|lru|lfu|off",
    .help = "Expert caches keep what is used most often lately; last; most often ever; off: none."};

static const char *const memories[] = {"auto", "caches"};
static const struct atsi_param p_memory = {
    .struct_size = sizeof p_memory,
    .type = ATSI_PARAM_CHOICE,
    .key = "expert_memory",
    .def = "auto",
    .choices = "auto|caches",
    .help =
        "What experts have of the accelerator's memory. auto: whole stacks or caches, whichever "
        "answers sooner; caches: caches in any case."};

/* A parameter that is a number. */
struct number {
    struct atsi_param p;
    double min, max;
};
enum { UNIT, EVALS, EPS, TAU, REGRET_EPS, REBUILD, N_NUMBERS };

static const struct number numbers[N_NUMBERS] = {
    [UNIT] = {{.struct_size = sizeof(struct atsi_param),
               .type = ATSI_PARAM_INT,
               .key = "unit",
               .def = "1024",
               .choices = "1..1048576",
               .unit = "KiB",
               .help = "Placement counts memory in units of so much."},
              1,
              1048576},
    [EVALS] = {{.struct_size = sizeof(struct atsi_param),
                .type = ATSI_PARAM_INT,
                .key = "search_evals",
                .def = "80",
                .choices = "0..100000",
                .unit = "plans",
                .help = "backlog: how many plans local search may try."},
               0,
               100000},
    [EPS] = {{.struct_size = sizeof(struct atsi_param),
              .type = ATSI_PARAM_FLOAT,
              .key = "eps",
              .def = "0.15",
              .choices = "0..10",
              .help = "paper, repaired: change of a slowdown from which Algorithm 3 plans anew."},
             0,
             10},
    [TAU] = {{.struct_size = sizeof(struct atsi_param),
              .type = ATSI_PARAM_INT,
              .key = "tau",
              .def = "5",
              .choices = "0..1000000",
              .unit = "rounds",
              .help = "paper, repaired: least distance of two plans by Algorithm 3."},
             0,
             1000000},
    [REGRET_EPS] = {{.struct_size = sizeof(struct atsi_param),
                     .type = ATSI_PARAM_FLOAT,
                     .key = "regret_eps",
                     .def = "0.05",
                     .choices = "0..10",
                     .help = "backlog: change of a slowdown from which a better plan is sought."},
                    0,
                    10},
    [REBUILD] = {{.struct_size = sizeof(struct atsi_param),
                  .type = ATSI_PARAM_INT,
                  .key = "rebuild",
                  .def = "200",
                  .choices = "0..1000000000",
                  .unit = "us",
                  .help = "backlog: what changing the plan costs; a better one must earn it back."},
                 0,
                 1000000000},
};

const struct atsi_param *const dp_params[] = {&p_algorithm,        &p_experts,
                                              &p_memory,           &numbers[UNIT].p,
                                              &numbers[EVALS].p,   &numbers[EPS].p,
                                              &numbers[TAU].p,     &numbers[REGRET_EPS].p,
                                              &numbers[REBUILD].p, NULL};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct atsi_host *the_host;
static struct dp_settings settings;
static int known;

void dp_settings_host(const struct atsi_host *host)
{
    (void)pthread_mutex_lock(&lock);
    the_host = host;
    known = 0;
    (void)pthread_mutex_unlock(&lock);
}

void dp_settings_again(void)
{
    (void)pthread_mutex_lock(&lock);
    known = 0;
    (void)pthread_mutex_unlock(&lock);
}

static const char *text_of(const struct atsi_param *p)
{
    const char *text = NULL;
    if (the_host != NULL)
        text = the_host->param_get(the_host->ctx, "policy_dp", p->key);
    return text != NULL ? text : p->def;
}

/* The number of the parameter's value among its choices. */
static int read_choice(const struct atsi_param *p, const char *const *names, int n, int *out,
                       struct atsi_err *err)
{
    const char *text = text_of(p);
    for (int k = 0; k < n; k++)
        if (strcmp(text, names[k]) == 0) {
            *out = k;
            return ATSI_OK;
        }
    return atsi_fail(err, ATSI_ECONF, "policy_dp.%s: \"%.64s\" is not one of %s", p->key, text,
                     p->choices);
}

static int read_number(const struct number *n, double *out, struct atsi_err *err)
{
    const char *text = text_of(&n->p);
    char *end;
    *out = strtod(text, &end);
    if (end != text && *end == '\0' && *out >= n->min && *out <= n->max)
        return ATSI_OK;
    return atsi_fail(err, ATSI_ECONF, "policy_dp.%s: \"%.64s\" is not within %s", n->p.key, text,
                     n->p.choices);
}

static int read_all(struct dp_settings *s, struct atsi_err *err)
{
    double v[N_NUMBERS];
    int algorithm = 0, keep = 0, memory = 0;
    int rc = read_choice(&p_algorithm, algorithms, N_ALGORITHMS, &algorithm, err);
    if (rc == ATSI_OK)
        rc = read_choice(&p_experts, experts, N_EXPERTS, &keep, err);
    if (rc == ATSI_OK)
        rc = read_choice(&p_memory, memories, 2, &memory, err);
    for (int k = 0; rc == ATSI_OK && k < N_NUMBERS; k++)
        rc = read_number(&numbers[k], &v[k], err);
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

int dp_settings_get(struct dp_settings *out, struct atsi_err *err)
{
    int rc = ATSI_OK;
    (void)pthread_mutex_lock(&lock);
    if (!known)
        rc = read_all(&settings, err);
    known = rc == ATSI_OK;
    *out = settings;
    (void)pthread_mutex_unlock(&lock);
    return rc;
}
