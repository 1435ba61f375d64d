/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer plan`: what the configured policy would keep, stream and leave where on a machine, why,
 * and what that costs.
 */
#include "cli/plan.h"

#include "atsinfer/simulate.h"
#include "cli/options.h"
#include "cli/policy_spec.h"
#include "cli/simulated.h"

#include <stdlib.h>
#include <string.h>

#define GIB (1ULL << 30)

static const char *policy, *ram, *explain, *svg, *save, *use;
static bool as_json;
static struct cli_texts pins;

static const struct cli_option options[] = {
    {.name = "--policy",
     .arg = "NAME",
     .help = "layer, expert, stream, density, alg1, paper, paper-literal, repaired, backlog, "
             "backlog-co, or PLUGIN[:MODE]; else that of the configuration",
     .text = &policy},
    {.name = "--ram",
     .arg = "SIZE",
     .help = "host memory for weights and caches; else not limited",
     .text = &ram},
    {.name = "--pin",
     .arg = "PATTERN=cpu|gpu",
     .help = "items that must live there, as \"*attn*=gpu\"; several times: the first match counts",
     .texts = &pins},
    {.name = "--explain",
     .arg = "PATTERN",
     .help = "all about the items of that name, as \"*.7.ffn_*\"",
     .text = &explain},
    {.name = "--json", .help = "all of it as JSON", .flag = &as_json},
    {.name = "--svg", .arg = "FILE", .help = "write a picture: layers by items", .text = &svg},
    {.name = "--save", .arg = "FILE", .help = "write the plan for --use", .text = &save},
    {.name = "--use", .arg = "FILE", .help = "a saved plan instead of a new one", .text = &use},
    CLI_GROUP("machine, model and request", cli_simulated_options),
    {.name = NULL},
};

static void say(void *who, const char *text)
{
    (void)who;
    cli_warn("%s", text);
}

/* ---------------------------------------------------------------- parameters */
/* "PATTERN=cpu" to a pin; *pattern_out: its text. [owned: free] */
static int parse_pin(const char *text, struct atsi_plan_pin *out, char **pattern_out)
{
    const char *eq = strrchr(text, '=');
    if (eq == NULL || eq == text || (strcmp(eq, "=cpu") != 0 && strcmp(eq, "=gpu") != 0))
        return cli_fail(CLI_USAGE, "--pin %.60s: expected PATTERN=cpu or PATTERN=gpu", text);
    out->device = strcmp(eq, "=gpu") == 0;
    out->pattern = *pattern_out = strndup(text, (size_t)(eq - text));
    return out->pattern != NULL ? CLI_OK : cli_fail(CLI_RUN_ERROR, "out of memory");
}

/* A whole number that the command line gave a setting, or 0. */
static uint32_t setting(const char *key)
{
    const char *v = cli_option_value(key);
    long n = v != NULL ? strtol(v, NULL, 10) : 0;
    return n > 0 && n <= INT32_MAX ? (uint32_t)n : 0;
}

/* 0 asks for the best one. */
static uint32_t chunk_setting(void)
{
    const char *v = cli_option_value("prefill.chunk");
    return v != NULL && strcmp(v, "0") == 0 ? ATSI_CHUNK_AUTO : setting("prefill.chunk");
}

static int fill_params(struct atsi_plan_params *p, struct atsi_plan_pin *pin, char **pattern)
{
    const struct cli_simulated *in = &cli_simulated;
    int code = cli_simulated_read(false);
    if (code != CLI_OK)
        return code;
    *p = (struct atsi_plan_params){.struct_size = sizeof *p,
                                   .chunk = chunk_setting(),
                                   .machine = in->machine_path,
                                   .model = in->model_path,
                                   .use = use,
                                   .policy = policy,
                                   .prompt = (uint32_t)in->prompt,
                                   .generated = (uint32_t)in->generated,
                                   .ctx = (uint32_t)in->ctx,
                                   .ctx_max = setting("model.ctx"),
                                   .vram_bytes = in->vram_bytes,
                                   .max_slots = (uint32_t)in->slots,
                                   .sustained = in->sustained,
                                   .contention = !in->no_contention,
                                   .n_pins = (uint32_t)pins.n,
                                   .pins = pin,
                                   .say = say};
    code = cli_parse_size("--ram", ram, &p->ram_bytes);
    for (size_t k = 0; k < pins.n && code == CLI_OK; k++)
        code = parse_pin(pins.items[k], &pin[k], &pattern[k]);
    return code;
}

static int choose_policy(void)
{
    uint32_t mode = 0;
    int code = policy != NULL ? cli_policy_spec(policy, &mode) : CLI_OK;
    if (code == CLI_OK && mode != 0)
        return cli_fail(CLI_USAGE, "--policy %.60s: /static and /sync are for `atsinfer simulate`",
                        policy);
    return code;
}

/* ---------------------------------------------------------------- variations */
static void try_change(const struct plan_show *v, int32_t item, int32_t device, uint64_t more,
                       struct plan_trial *out)
{
    const struct atsi_plan_change change = {
        .struct_size = sizeof change, .item = item, .device = device, .more_vram = more};
    struct atsi_err err = ATSI_ERR_INIT;
    out->tried = true;
    out->status = atsi_plan_try(v->report, &change, &out->times, &err);
    if (out->status != ATSI_OK)
        (void)snprintf(out->why, sizeof out->why, "%s", err.msg);
}

/* More memory, and the first of the explained items on the other side. */
static int try_changes(struct plan_show *v)
{
    uint32_t n = 0, matches = 0;
    v->more_bytes = GIB;
    if (v->fits)
        try_change(v, -1, 0, v->more_bytes, &v->more);
    for (uint32_t i = 0; i < v->sum->n_items; i++) {
        const struct atsi_plan_item *it = atsi_plan_item(v->report, i);
        if (!plan_explained(v, it))
            continue;
        matches++;
        if (cli_interrupted != 0)
            return CLI_INTERRUPTED;
        if (v->fits && n < PLAN_WHAT_IFS)
            try_change(v, (int32_t)i, it->device == 0 ? 1 : 0, 0, &v->other[n++]);
    }
    if (explain != NULL && matches == 0)
        return cli_fail(CLI_USAGE, "--explain %.60s: no item has such a name; the first is %s",
                        explain, atsi_plan_item(v->report, 0)->name);
    return CLI_OK;
}

/* ---------------------------------------------------------------- results */
static int write_files(const struct plan_show *v)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int rc, code = CLI_OK;
    if (save != NULL) {
        rc = atsi_plan_save(v->report, save, &err);
        if (rc != ATSI_OK)
            return cli_fail_status(rc, &err);
    }
    if (svg != NULL)
        code = plan_write_svg(v, svg);
    return code;
}

static int show(struct plan_show *v)
{
    int code = try_changes(v);
    if (code != CLI_OK)
        return code;
    if (v->fits)
        code = write_files(v);
    if (code != CLI_OK)
        return code;
    if (as_json)
        code = plan_print_json(v);
    else if (!v->fits)
        code = plan_print_no_fit(v);
    else
        code = explain != NULL ? plan_print_explain(v) : plan_print(v);
    return cli_finish_stdout(code);
}

static int plan(struct atsi_runtime *rt, const struct atsi_plan_params *p)
{
    struct plan_show v = {.explain = explain};
    struct atsi_err err = ATSI_ERR_INIT;
    int code, rc = atsi_plan_make(rt, p, &v.report, &err);
    if (rc != ATSI_OK)
        (void)cli_fail_status(rc, &err);
    if (v.report == NULL)
        return cli_exit_code(rc);
    v.fits = rc == ATSI_OK;
    v.sum = atsi_plan_summary(v.report);
    code = plan_find_rows(&v) ? show(&v) : cli_fail(CLI_RUN_ERROR, "out of memory");
    free(v.rows);
    atsi_plan_free(v.report);
    return code;
}

static int run(int argc, char **argv)
{
    struct atsi_plan_pin pin[CLI_MAX_TEXTS] = {{NULL, 0}};
    char *pattern[CLI_MAX_TEXTS] = {NULL};
    struct atsi_runtime *rt = NULL;
    struct atsi_plan_params p;
    int n_pos = 0, code = cli_parse(&cli_cmd_plan, options, argc, argv, &n_pos);
    if (code >= 0)
        return code;
    if (n_pos > 0)
        return cli_fail(CLI_USAGE, "unexpected argument \"%.60s\"", argv[1]);
    cli_catch_signals();
    code = fill_params(&p, pin, pattern);
    if (code == CLI_OK)
        code = cli_simulated_measure(p.chunk);
    if (code == CLI_OK)
        code = choose_policy();
    if (code == CLI_OK)
        code = cli_runtime(&rt);
    if (code == CLI_OK) {
        code = plan(rt, &p);
        atsi_runtime_close(rt);
    }
    for (size_t k = 0; k < CLI_MAX_TEXTS; k++)
        free(pattern[k]);
    return code;
}

const struct cli_command cli_cmd_plan = {
    .name = "plan",
    .summary = "show what would live where on a machine, and why",
    .usage = "atsinfer plan --machine FILE (-m MODEL | --shape FILE) [options]",
    .run = run};
