/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer policy solve`: runs one of the scheduling algorithms on every instance of a file.  One
 * JSON object per instance:
 *   alg1*     name, value, b, ns      ns: time the algorithm took
 *   alg2*     name, cost, rb, ns
 *   layer, expert, density   name, value, b, ns
 *   bound     name, bound, ns         lower bound on the period of the instance's own b
 *   backlog   name, latency (contention-free), fluid (with contention), rb, evals, ns
 * or asks a plugin's policy (--policy): name, b, rb, fluid, steady3 (the third of three rounds),
 * evals, ns
 */
#include "cli/policy.h"

#include "cli/json.h"
#include "sched/dynamic.h"
#include "sched/place.h"
#include "sched/timeline.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *path, *algorithm, *policy, *judge = "auto";
static bool place;
static const struct atsi_policy_ops *asked; /* of --policy */
static int64_t evals = 100, rounds = 1;

static const struct cli_option options[] = {
    {.name = "--algorithm",
     .arg = "NAME",
     .help = "of the placement: alg1, alg1_subsequence, layer, expert, density; of a round: alg2, "
             "alg2_literal17, alg2_clip, alg2_repaired, backlog, bound",
     .text = &algorithm},
    {.name = "--policy",
     .arg = "NAME[:MODE]",
     .help = "instead of an algorithm: a plugin's policy, or a plugin's file",
     .text = &policy},
    {.name = "--place", .help = "--policy: it places within M first", .flag = &place},
    {.name = "--instance", .arg = "FILE", .help = "JSON file of instances", .text = &path},
    {.name = "--timeline",
     .arg = "NAME",
     .help = "what backlog is judged by: free, fluid, or auto (fluid where anything slows down)",
     .text = &judge},
    {.name = "--rounds",
     .arg = "N",
     .help = "backlog: judge by the last of N rounds (default 1)",
     .integer = &rounds,
     .min = 1,
     .max = SCHED_MAX_ROUNDS},
    {.name = "--evals",
     .arg = "N",
     .help = "backlog: plans that local search may evaluate (default 100)",
     .integer = &evals,
     .min = 0,
     .max = 1e6},
    {.name = NULL},
};

/* One instance being solved. */
struct job {
    const struct policy_instance *in;
    void *scratch;
    uint8_t *side; /* [n] out */
    char *text;    /* [n + 1] */
    json_t *out;
    bool *ok;
    struct timespec start;
};

struct algorithm {
    const char *name;
    size_t (*scratch)(const struct sched_chain *ch, int arg);
    int (*solve)(struct job *j, int arg);
    int arg;
};

static void begin(struct job *j)
{
    (void)clock_gettime(CLOCK_MONOTONIC, &j->start);
}

static void end(struct job *j)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    cli_json_set(j->out, "ns",
                 json_integer((t.tv_sec - j->start.tv_sec) * INT64_C(1000000000) + t.tv_nsec -
                              j->start.tv_nsec),
                 j->ok);
}

static void report_sides(struct job *j, const char *key)
{
    policy_write_bits(j->side, j->in->chain.n, j->text);
    cli_json_set(j->out, key, json_string(j->text), j->ok);
}

static size_t alg1_scratch(const struct sched_chain *ch, int subsequence)
{
    (void)subsequence;
    return sched_alg1_scratch(ch, SCHED_UNIT);
}

static int solve_alg1(struct job *j, int subsequence)
{
    const struct sched_alg1 how = {.unit = SCHED_UNIT, .subsequence = subsequence};
    struct atsi_err err = ATSI_ERR_INIT;
    int64_t value;
    int rc;
    begin(j);
    rc = sched_alg1(&j->in->chain, &how, j->scratch, j->side, &value, &err);
    end(j);
    if (rc != ATSI_OK)
        return cli_fail(cli_exit_code(rc), "%s: %s: %s", path, j->in->name, err.msg);
    cli_json_set(j->out, "value", json_integer(value), j->ok);
    report_sides(j, "b");
    return CLI_OK;
}

static size_t grain_scratch(const struct sched_chain *ch, int grain)
{
    (void)grain;
    return sched_grain_scratch(ch->n);
}

/* Pins are left aside: these placements stand for programs that know none. */
static int solve_grain(struct job *j, int grain)
{
    const struct sched_chain *ch = &j->in->chain;
    const struct sched_alg1 how = {.unit = SCHED_UNIT};
    struct atsi_err err = ATSI_ERR_INIT;
    int rc;
    begin(j);
    rc = sched_place_grain(ch, (enum sched_grain)grain, 1, j->scratch, j->side, &err);
    end(j);
    if (rc != ATSI_OK)
        return cli_fail(cli_exit_code(rc), "%s: %s: %s", path, j->in->name, err.msg);
    cli_json_set(j->out, "value", json_integer(sched_alg1_value(ch, &how, j->side)), j->ok);
    report_sides(j, "b");
    return CLI_OK;
}

static size_t bound_scratch(const struct sched_chain *ch, int unused)
{
    (void)unused;
    return sched_bound_scratch(ch->n);
}

static int solve_bound(struct job *j, int unused)
{
    int64_t bound;
    (void)unused;
    begin(j);
    bound = sched_bound(&j->in->chain, j->scratch);
    end(j);
    cli_json_set(j->out, "bound", json_integer(bound), j->ok);
    return CLI_OK;
}

static size_t alg2_scratch(const struct sched_chain *ch, int form)
{
    (void)form;
    return sched_alg2_scratch(ch->n);
}

static int solve_alg2(struct job *j, int form)
{
    int64_t cost;
    begin(j);
    cost = sched_alg2(&j->in->chain, (enum sched_alg2_form)form, j->scratch, j->side);
    end(j);
    cli_json_set(j->out, "cost", json_integer(cost), j->ok);
    report_sides(j, "rb");
    return CLI_OK;
}

static size_t repaired_scratch(const struct sched_chain *ch, int unused)
{
    (void)unused;
    return sched_alg2_repaired_scratch(ch->n);
}

static int solve_repaired(struct job *j, int unused)
{
    int64_t cost;
    (void)unused;
    begin(j);
    cost = sched_alg2_repaired(&j->in->chain, j->scratch, j->side);
    end(j);
    cli_json_set(j->out, "cost", json_integer(cost), j->ok);
    report_sides(j, "rb");
    return CLI_OK;
}

static size_t backlog_scratch(const struct sched_chain *ch, int unused)
{
    (void)unused;
    return sched_search_scratch(ch->n, (uint32_t)rounds);
}

static int solve_backlog(struct job *j, int unused)
{
    const struct sched_chain *ch = &j->in->chain;
    struct sched_search how = {.rounds = (uint32_t)rounds, .evals = (uint32_t)evals};
    struct sched_found found;
    (void)unused;
    how.judge = strcmp(judge, "free") == 0    ? SCHED_JUDGE_FREE
                : strcmp(judge, "fluid") == 0 ? SCHED_JUDGE_FLUID
                                              : SCHED_JUDGE_AUTO;
    begin(j);
    sched_search(ch, &how, j->scratch, j->side, &found);
    end(j);
    cli_json_set(j->out, "latency", json_integer(sched_latency(ch, j->side, NULL, j->scratch)),
                 j->ok);
    cli_json_set(j->out, "fluid", json_real(sched_fluid(ch, j->side, NULL, j->scratch)), j->ok);
    cli_json_set(j->out, "judged_by", json_string(found.fluid ? "fluid" : "free"), j->ok);
    cli_json_set(j->out, "judged_ns", json_integer(found.ns), j->ok);
    cli_json_set(j->out, "evals", json_integer(found.evals), j->ok);
    report_sides(j, "rb");
    return CLI_OK;
}

static size_t policy_scratch(const struct sched_chain *ch, int unused)
{
    (void)unused;
    return ch->n; /* b */
}

static int solve_policy(struct job *j, int unused)
{
    struct policy_answer a = {.b = j->scratch, .rb = j->side};
    struct atsi_err err = ATSI_ERR_INIT;
    int rc = policy_ask(asked, &j->in->chain, place, &a, &err);
    (void)unused;
    if (rc != ATSI_OK)
        return cli_fail(cli_exit_code(rc), "%s: %s: policy %s: %s", path, j->in->name, policy,
                        err.msg);
    cli_json_set(j->out, "fluid", json_real(a.fluid), j->ok);
    cli_json_set(j->out, "steady3", json_real(a.steady), j->ok);
    cli_json_set(j->out, "evals", json_integer((json_int_t)a.evals), j->ok);
    cli_json_set(j->out, "ns", json_integer((json_int_t)a.ns), j->ok);
    report_sides(j, "rb");
    policy_write_bits(a.b, j->in->chain.n, j->text);
    cli_json_set(j->out, "b", json_string(j->text), j->ok);
    return CLI_OK;
}
static const struct algorithm by_policy = {"policy", policy_scratch, solve_policy, 0};

static const struct algorithm algorithms[] = {
    {"alg1", alg1_scratch, solve_alg1, 0},
    {"alg1_subsequence", alg1_scratch, solve_alg1, 1},
    {"layer", grain_scratch, solve_grain, SCHED_BY_LAYER},
    {"expert", grain_scratch, solve_grain, SCHED_BY_EXPERT},
    {"density", grain_scratch, solve_grain, SCHED_BY_DENSITY},
    {"bound", bound_scratch, solve_bound, 0},
    {"alg2", alg2_scratch, solve_alg2, SCHED_ALG2_PRINTED},
    {"alg2_literal17", alg2_scratch, solve_alg2, SCHED_ALG2_LITERAL17},
    {"alg2_clip", alg2_scratch, solve_alg2, SCHED_ALG2_CLIPPED},
    {"alg2_repaired", repaired_scratch, solve_repaired, 0},
    {"backlog", backlog_scratch, solve_backlog, 0},
};

static const struct algorithm *find_algorithm(void)
{
    if (policy != NULL)
        return &by_policy;
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++)
        if (strcmp(algorithms[i].name, algorithm) == 0)
            return &algorithms[i];
    return NULL;
}

static int one_instance(const struct algorithm *a, const struct policy_instance *in, json_t *list,
                        bool *ok)
{
    size_t bytes = a->scratch(&in->chain, a->arg);
    struct job j = {.in = in, .ok = ok, .out = json_object()};
    int code = CLI_OK;
    if (bytes == SIZE_MAX)
        return cli_fail(CLI_RUN_ERROR, "%s: %s: a budget of more than %lld MiB is not supported",
                        path, in->name, (long long)SCHED_MAX_UNITS);
    j.scratch = aligned_alloc(64, bytes + 64 - bytes % 64);
    j.side = calloc((size_t)in->chain.n + 1, 1);
    j.text = malloc((size_t)in->chain.n + 1);
    if (j.scratch == NULL || j.side == NULL || j.text == NULL) {
        *ok = false;
    } else {
        memset(j.scratch, 0, bytes); /* or the time measured is that of page faults */
        cli_json_set(j.out, "name", cli_json_text(in->name), ok);
        code = a->solve(&j, a->arg);
    }
    cli_json_append(list, j.out, ok);
    free(j.scratch);
    free(j.side);
    free(j.text);
    return code;
}

static int check_options(void)
{
    if (path == NULL)
        return cli_fail(CLI_USAGE, "--instance FILE is missing");
    if (algorithm == NULL && policy == NULL)
        return cli_fail(CLI_USAGE, "--algorithm NAME is missing");
    if (algorithm != NULL && policy != NULL)
        return cli_fail(CLI_USAGE, "--algorithm and --policy exclude each other");
    if (find_algorithm() == NULL)
        return cli_fail(CLI_USAGE,
                        "--algorithm %s: unknown; `atsinfer policy solve --help` lists "
                        "them",
                        algorithm);
    if (strcmp(judge, "auto") != 0 && strcmp(judge, "free") != 0 && strcmp(judge, "fluid") != 0)
        return cli_fail(CLI_USAGE, "--timeline %s: neither free nor fluid nor auto", judge);
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    struct policy_file f = {0};
    struct atsi_runtime *rt = NULL;
    char name[64];
    int n_pos, code = cli_parse(&policy_cmd_solve, options, argc, argv, &n_pos);
    json_t *out;
    bool ok = true;
    if (code != -1)
        return code;
    if (n_pos > 0)
        return cli_fail(CLI_USAGE, "unexpected argument %s", argv[1]);
    code = check_options();
    if (code == CLI_OK)
        code = policy_file_open(path, &f);
    if (code == CLI_OK && policy != NULL)
        code = policy_open(policy, &rt, name);
    if (rt != NULL && code == CLI_OK)
        asked = atsi_runtime_component(rt, ATSI_KIND_POLICY, name);
    out = json_array();
    for (size_t i = 0; code == CLI_OK && ok && i < f.n; i++)
        code = one_instance(find_algorithm(), &f.item[i], out, &ok);
    policy_file_close(&f);
    atsi_runtime_close(rt);
    if (code != CLI_OK) {
        json_decref(out);
        return code;
    }
    return cli_finish_stdout(cli_json_print(out, ok, CLI_OK));
}

const struct cli_command policy_cmd_solve = {
    .name = "solve",
    .summary = "run a scheduling algorithm on the instances of a file",
    .usage = "atsinfer policy solve --algorithm NAME | --policy NAME --instance FILE",
    .run = run,
};
