/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer policy test`: does a policy keep its promises, and how good is it?  A policy is named,
 * with a mode if it has some, or is the file of a plugin.
 */
#include "cli/policy.h"

#include "atsinfer/conform.h"
#include "cli/json.h"
#include "cli/options.h"

#include <stdlib.h>
#include <string.h>

static bool as_json, quick;
static int64_t patience = 20, limit_us;

static const struct cli_option options[] = {
    {.name = "--json", .help = "results as JSON", .flag = &as_json},
    {.name = "--quick", .help = "small problems alone", .flag = &quick},
    {.name = "--patience",
     .arg = "SECONDS",
     .help = "a call that takes longer never returns",
     .integer = &patience,
     .min = 1,
     .max = 3600},
    {.name = "--limit",
     .arg = "US",
     .help = "microseconds a schedule may take, 0: policy.time_limit",
     .integer = &limit_us,
     .min = 0,
     .max = 1e9},
    {.name = NULL},
};

/* ---------------------------------------------------------------- which policy */
struct search {
    const char *file, *plugin; /* one of them */
    const char *policy, *key;  /* out: its policy; the parameter that a mode sets */
    char why[256];
};

static bool is_mode(const struct atsi_param *p)
{
    return strcmp(p->key, "mode") == 0 || strcmp(p->key, "algorithm") == 0;
}

static int look(void *ctx, const struct atsi_plugin_info *info)
{
    struct search *s = ctx;
    const struct atsi_plugin *p = info->plugin;
    if (s->file != NULL ? strcmp(info->path, s->file) != 0 : strcmp(info->name, s->plugin) != 0)
        return 0;
    if (p == NULL) {
        (void)snprintf(s->why, sizeof s->why, "%.240s", info->why);
        return 0;
    }
    for (size_t i = 0; p->components[i] != NULL && s->policy == NULL; i++)
        if (p->components[i]->kind == ATSI_KIND_POLICY)
            s->policy = p->components[i]->name;
    for (size_t i = 0; p->params != NULL && p->params[i] != NULL && s->key == NULL; i++)
        if (is_mode(p->params[i]))
            s->key = p->params[i]->key;
    return s->policy != NULL;
}

/* The runtime again, with the mode as a setting. */
static int set_mode(const struct search *s, const char *mode, struct atsi_runtime **rt)
{
    char key[128];
    if (s->key == NULL)
        return cli_fail(CLI_USAGE,
                        "policy %s has no modes: it has neither a parameter \"mode\" nor "
                        "\"algorithm\"",
                        s->plugin);
    (void)snprintf(key, sizeof key, "plugin.%s.%s", s->plugin, s->key);
    if (!cli_override(key, mode))
        return CLI_USAGE;
    atsi_runtime_close(*rt);
    *rt = NULL;
    return cli_runtime(rt);
}

/* "NAME[:MODE]", or a file if there is a slash or it ends in .so. */
static int open_policy(const char *spec, struct atsi_runtime **rt, char name_out[64])
{
    struct search s = {.why = ""};
    const char *colon = strchr(spec, ':');
    size_t len = strlen(spec);
    char plugin[64];
    int code;
    if (strchr(spec, '/') != NULL || (len > 3 && strcmp(spec + len - 3, ".so") == 0)) {
        s.file = spec;
        colon = NULL;
        if (cli_common.n_plugins == CLI_MAX_PLUGINS)
            return cli_fail(CLI_USAGE, "--plugin: more than %d files", CLI_MAX_PLUGINS);
        cli_common.plugins[cli_common.n_plugins++] = spec;
    } else {
        if (colon != NULL)
            len = (size_t)(colon - spec);
        if (len == 0 || len >= sizeof plugin)
            return cli_fail(CLI_USAGE, "\"%.60s\" is no policy", spec);
        (void)snprintf(plugin, sizeof plugin, "%.*s", (int)len, spec);
        s.plugin = plugin;
    }
    code = cli_runtime(rt);
    if (code != CLI_OK)
        return code;
    (void)atsi_runtime_plugins_each(*rt, look, &s);
    if (s.policy == NULL)
        return cli_fail(CLI_USAGE, "%s: %s", spec,
                        s.why[0] != '\0' ? s.why
                        : s.file != NULL
                            ? "the plugin offers no policy"
                            : "there is no such policy; `atsinfer plugins` lists them");
    (void)snprintf(name_out, 64, "%s", s.policy);
    return colon != NULL ? set_mode(&s, colon + 1, rt) : CLI_OK;
}

/* ---------------------------------------------------------------- results */
static void print_rows(const struct atsi_conform_check *c)
{
    if (c->n_rows > 0)
        (void)printf("            %10s %10s  %10s %10s\n", "decode", "reference", "prefill",
                     "reference");
    for (uint32_t i = 0; i < c->n_rows; i++) {
        const struct atsi_conform_row *r = &c->rows[i];
        (void)printf("            %7.3f ms %7.3f ms  %7.1f ms %7.1f ms  %s\n",
                     (double)r->decode_ns / 1e6, (double)r->reference_decode_ns / 1e6,
                     (double)r->prefill_ns / 1e6, (double)r->reference_prefill_ns / 1e6, r->label);
    }
}

static void print_check(void *ctx, const struct atsi_conform_check *c)
{
    (void)ctx;
    (void)printf("%-9s %s  %s\n", c->name, c->ok ? "ok    " : "FAILED", c->text);
    print_rows(c);
    (void)fflush(stdout); /* one line as soon as it is known; errors are said at the end */
}

struct results {
    json_t *checks;
    bool ok;
};

static json_t *row_json(const struct atsi_conform_row *r, bool *ok)
{
    json_t *o = json_object();
    cli_json_set(o, "case", cli_json_text(r->label), ok);
    cli_json_set(o, "decode_ns", json_integer((json_int_t)r->decode_ns), ok);
    cli_json_set(o, "reference_decode_ns", json_integer((json_int_t)r->reference_decode_ns), ok);
    cli_json_set(o, "prefill_ns", json_integer((json_int_t)r->prefill_ns), ok);
    cli_json_set(o, "reference_prefill_ns", json_integer((json_int_t)r->reference_prefill_ns), ok);
    return o;
}

static void gather_check(void *ctx, const struct atsi_conform_check *c)
{
    struct results *r = ctx;
    json_t *o = json_object(), *rows = json_array();
    cli_json_set(o, "name", json_string(c->name), &r->ok);
    cli_json_set(o, "ok", json_boolean(c->ok), &r->ok);
    cli_json_set(o, "promise", json_string(c->promise), &r->ok);
    cli_json_set(o, "text", cli_json_text(c->text), &r->ok);
    cli_json_set(o, "cases", json_integer(c->n_cases), &r->ok);
    for (uint32_t i = 0; i < c->n_rows; i++)
        cli_json_append(rows, row_json(&c->rows[i], &r->ok), &r->ok);
    cli_json_set(o, "rows", rows, &r->ok);
    cli_json_append(r->checks, o, &r->ok);
}

static int test(struct atsi_runtime *rt, const char *name)
{
    const struct atsi_conform_params p = {.struct_size = sizeof p,
                                          .policy = name,
                                          .patience_ms = (uint32_t)patience * 1000,
                                          .time_limit_ns = (uint64_t)limit_us * 1000,
                                          .quick = quick};
    struct results r = {.checks = as_json ? json_array() : NULL, .ok = true};
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t failed;
    int code, rc = atsi_conform(rt, &p, as_json ? gather_check : print_check, &r, &failed, &err);
    if (rc != ATSI_OK) {
        json_decref(r.checks);
        return cli_fail_status(rc, &err);
    }
    code = failed > 0 ? CLI_SELF_TEST : CLI_OK;
    if (as_json) {
        json_t *o = json_object();
        cli_json_set(o, "policy", cli_json_text(name), &r.ok);
        cli_json_set(o, "failed", json_integer(failed), &r.ok);
        cli_json_set(o, "checks", r.checks, &r.ok);
        return cli_finish_stdout(cli_json_print(o, r.ok, code));
    }
    if (failed > 0)
        (void)printf("%s: %u checks FAILED\n", name, failed);
    return cli_finish_stdout(code);
}

static int run(int argc, char **argv)
{
    struct atsi_runtime *rt = NULL;
    char name[64];
    int n_pos, code = cli_parse(&policy_cmd_test, options, argc, argv, &n_pos);
    if (code != -1)
        return code;
    if (n_pos != 1)
        return cli_fail(CLI_USAGE, "one policy is expected: NAME[:MODE] or FILE.so");
    code = open_policy(argv[1], &rt, name);
    if (code == CLI_OK)
        code = test(rt, name);
    atsi_runtime_close(rt);
    return code;
}

const struct cli_command policy_cmd_test = {
    .name = "test",
    .summary = "check that a policy keeps its promises, and how good it is",
    .usage = "atsinfer policy test NAME[:MODE] | FILE.so [options]",
    .run = run,
};
