/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer policy resched`: replays Algorithm 3 on recorded sequences of slowdowns.
 */
#include "cli/policy.h"

#include "cli/json.h"
#include "sched/resched.h"

#include <string.h>

enum { MAX_CLASSES = 32 };

static const char *path;
static const struct cli_option options[] = {
    {.name = "--instance", .arg = "FILE", .help = "JSON file of sequences", .text = &path},
    {.name = NULL},
};

/* Names of the classes seen so far in a sequence. */
struct classes {
    const char *name[MAX_CLASSES];
    uint32_t n;
};

static uint32_t class_index(struct classes *c, const char *name)
{
    uint32_t k = 0;
    while (k < c->n && strcmp(c->name[k], name) != 0)
        k++;
    if (k == c->n && k < MAX_CLASSES)
        c->name[c->n++] = name;
    return k;
}

/* A whole number in [0, max] at `key`; false when it is something else. */
static bool get_number(const json_t *o, const char *key, int64_t max, int64_t *out)
{
    const json_t *v = json_object_get(o, key);
    *out = json_integer_value(v);
    return json_is_integer(v) && *out >= 0 && *out <= max;
}

static int read_snapshot(json_t *snap, struct classes *known, uint32_t *cur, size_t seq,
                         size_t step)
{
    const char *name;
    json_t *v;
    memset(cur, 0, MAX_CLASSES * sizeof *cur);
    if (!json_is_object(snap))
        return cli_fail(CLI_RUN_ERROR, "%s: sequence %zu, step %zu: there is no snapshot", path,
                        seq, step);
    json_object_foreach(snap, name, v)
    {
        uint32_t k = class_index(known, name);
        if (k == MAX_CLASSES)
            return cli_fail(CLI_RUN_ERROR, "%s: sequence %zu, step %zu: more than %d classes", path,
                            seq, step, MAX_CLASSES);
        if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > UINT32_MAX)
            return cli_fail(CLI_RUN_ERROR,
                            "%s: sequence %zu, step %zu: %.40s is no positive per mille", path, seq,
                            step, name);
        cur[k] = (uint32_t)json_integer_value(v);
    }
    return CLI_OK;
}

static int one_sequence(const json_t *seq, size_t at, json_t *out, bool *ok)
{
    struct classes known = {.n = 0};
    uint32_t prev[MAX_CLASSES] = {0}, cur[MAX_CLASSES];
    struct sched_resched r = {.prev = prev, .n = MAX_CLASSES};
    const json_t *steps = json_object_get(seq, "steps");
    int64_t eps, tau, now, tpot;
    if (!get_number(seq, "eps_pm", UINT32_MAX, &eps) ||
        !get_number(seq, "tau_tpots", UINT32_MAX, &tau) || !json_is_array(steps))
        return cli_fail(CLI_RUN_ERROR,
                        "%s: sequence %zu: eps_pm, tau_tpots and a list \"steps\" are expected",
                        path, at);
    r.eps_pm = (uint32_t)eps;
    r.tau_tpots = (uint32_t)tau;
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *step = json_array_get(steps, i);
        int code;
        if (!get_number(step, "now", INT64_MAX, &now) ||
            !get_number(step, "tpot", INT64_MAX, &tpot))
            return cli_fail(CLI_RUN_ERROR, "%s: sequence %zu, step %zu: now or tpot is no time",
                            path, at, i);
        code = read_snapshot(json_object_get(step, "snapshot"), &known, cur, at, i);
        if (code != CLI_OK)
            return code;
        cli_json_append(out, json_boolean(sched_resched_step(&r, now, tpot, cur)), ok);
    }
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    int n_pos, code = cli_parse(&policy_cmd_resched, options, argc, argv, &n_pos);
    json_t *root, *out;
    bool ok = true;
    if (code != -1)
        return code;
    if (n_pos > 0)
        return cli_fail(CLI_USAGE, "unexpected argument %s", argv[1]);
    if (path == NULL)
        return cli_fail(CLI_USAGE, "--instance FILE is missing");
    code = policy_load_array(path, &root);
    if (code != CLI_OK)
        return code;
    out = json_array();
    for (size_t i = 0; code == CLI_OK && ok && i < json_array_size(root); i++) {
        json_t *list = json_array();
        code = one_sequence(json_array_get(root, i), i, list, &ok);
        cli_json_append(out, list, &ok);
    }
    json_decref(root);
    if (code != CLI_OK) {
        json_decref(out);
        return code;
    }
    return cli_finish_stdout(cli_json_print(out, ok, CLI_OK));
}

const struct cli_command policy_cmd_resched = {
    .name = "resched",
    .summary = "replay the paper's re-scheduling rule on sequences of slowdowns",
    .usage = "atsinfer policy resched --instance FILE",
    .run = run,
};
