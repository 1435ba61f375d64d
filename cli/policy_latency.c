/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer policy latency`: what the plans of an instance file cost on the two timelines.
 */
#include "cli/policy.h"

#include "cli/json.h"
#include "sched/timeline.h"

#include <stdlib.h>

enum { STEADY = 3 /* rounds after which a repeated plan has settled */ };

static const char *path;
static const struct cli_option options[] = {
    {.name = "--instance",
     .arg = "FILE",
     .help = "JSON file of instances with plans",
     .text = &path},
    {.name = NULL},
};

static json_t *costs(const struct sched_chain *ch, const uint8_t *rb, void *scratch, bool *ok)
{
    const struct sched_run steady = {.rounds = STEADY};
    json_t *o = json_object();
    cli_json_set(o, "latency", json_integer(sched_latency(ch, rb, NULL, scratch)), ok);
    cli_json_set(o, "steady3", json_integer(sched_latency(ch, rb, &steady, scratch)), ok);
    cli_json_set(o, "fluid", json_real(sched_fluid(ch, rb, NULL, scratch)), ok);
    return o;
}

/* Object of plan name -> costs for one instance, appended to `out`. */
static int one_instance(const struct policy_file *f, size_t item, json_t *out, bool *ok)
{
    const struct sched_chain *ch = &f->item[item].chain;
    json_t *plans = json_object_get(f->item[item].expect, "plans"), *v, *o = json_object();
    void *scratch = aligned_alloc(64, sched_timeline_scratch(ch->n, STEADY) + 64);
    uint8_t *rb = malloc((size_t)ch->n + 1);
    const char *name;
    int code = CLI_OK;
    if (scratch == NULL || rb == NULL)
        *ok = false;
    else
        json_object_foreach(plans, name, v)
        {
            code = policy_read_plan(f, item, name, json_string_value(json_object_get(v, "rb")), rb);
            if (code != CLI_OK)
                break;
            cli_json_set(o, name, costs(ch, rb, scratch, ok), ok);
        }
    cli_json_append(out, o, ok);
    free(rb);
    free(scratch);
    return code;
}

static int run(int argc, char **argv)
{
    struct policy_file f = {0};
    int n_pos, code = cli_parse(&policy_cmd_latency, options, argc, argv, &n_pos);
    json_t *out;
    bool ok = true;
    if (code != -1)
        return code;
    if (n_pos > 0)
        return cli_fail(CLI_USAGE, "unexpected argument %s", argv[1]);
    if (path == NULL)
        return cli_fail(CLI_USAGE, "--instance FILE is missing");
    code = policy_file_open(path, &f);
    if (code != CLI_OK)
        return code;
    out = json_array();
    for (size_t i = 0; code == CLI_OK && ok && i < f.n; i++)
        code = one_instance(&f, i, out, &ok);
    policy_file_close(&f);
    if (code != CLI_OK) {
        json_decref(out);
        return code;
    }
    return cli_finish_stdout(cli_json_print(out, ok, CLI_OK));
}

const struct cli_command policy_cmd_latency = {
    .name = "latency",
    .summary = "cost of the plans in an instance file, with and without contention",
    .usage = "atsinfer policy latency --instance FILE",
    .run = run,
};
