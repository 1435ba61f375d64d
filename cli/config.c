/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer config`: the settings in force, and where each came from.
 */
#include "cli/cli.h"

#include <jansson.h>
#include <string.h>

static bool show_origin, as_json;

static const struct cli_option options[] = {
    {.name = "--show-origin",
     .help = "file and line, variable or command line of each value",
     .flag = &show_origin},
    {.name = "--json", .help = "machine-readable", .flag = &as_json},
    {.name = NULL},
};

struct view {
    const char *only; /* a key or a section, NULL: all */
    uint32_t shown;
    char section[64];
    json_t *list;
};

static bool wanted(const struct view *v, const char *key)
{
    size_t n = v->only != NULL ? strlen(v->only) : 0;
    return v->only == NULL || (strncmp(v->only, key, n) == 0 && (key[n] == '\0' || key[n] == '.'));
}

static int print_entry(void *ctx, const struct atsi_conf_entry *e)
{
    struct view *v = ctx;
    const char *dot = strrchr(e->key, '.');
    size_t n = (size_t)(dot - e->key);
    if (!wanted(v, e->key))
        return 0;
    if (strlen(v->section) != n || strncmp(v->section, e->key, n) != 0) {
        (void)printf("%s[%.*s]\n", v->shown > 0 ? "\n" : "", (int)n, e->key);
        (void)snprintf(v->section, sizeof v->section, "%.*s", (int)n, e->key);
    }
    v->shown++;
    if (show_origin)
        (void)printf("%s = %s    ; %s\n", dot + 1, e->value, e->origin);
    else
        (void)printf("%s = %s\n", dot + 1, e->value);
    return 0;
}

static int add_json(void *ctx, const struct atsi_conf_entry *e)
{
    struct view *v = ctx;
    if (!wanted(v, e->key))
        return 0;
    v->shown++;
    return json_array_append_new(v->list,
                                 json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "key", e->key, "value",
                                           e->value, "default", e->def, "origin", e->origin, "type",
                                           e->type, "range", e->range, "help", e->help));
}

static int print_json(const struct atsi_runtime *rt, struct view *v)
{
    int code = CLI_OK;
    v->list = json_array();
    if (v->list == NULL || atsi_runtime_conf_each(rt, add_json, v) != 0)
        code = cli_fail(CLI_RUN_ERROR, "out of memory");
    else if (json_dumpf(v->list, stdout, JSON_INDENT(2)) != 0)
        code = cli_fail(CLI_RUN_ERROR, "cannot write to standard output");
    json_decref(v->list);
    (void)putchar('\n');
    return code;
}

static int run(int argc, char **argv)
{
    struct atsi_runtime *rt = NULL;
    struct view v = {0};
    int n_pos, code = cli_parse(&cli_cmd_config, options, argc, argv, &n_pos);
    if (code != -1)
        return code;
    if (n_pos > 1)
        return cli_fail(CLI_USAGE, "one key or section at most");
    v.only = n_pos == 1 ? argv[1] : NULL;
    code = cli_runtime(&rt);
    if (code == CLI_OK && as_json)
        code = print_json(rt, &v);
    else if (code == CLI_OK)
        (void)atsi_runtime_conf_each(rt, print_entry, &v);
    if (code == CLI_OK && v.shown == 0)
        code = cli_fail(CLI_USAGE, "no key or section %s; `atsinfer config` lists all", v.only);
    atsi_runtime_close(rt);
    return cli_finish_stdout(code);
}

const struct cli_command cli_cmd_config = {
    .name = "config",
    .summary = "print the settings in force",
    .usage = "atsinfer config [KEY|SECTION] [--show-origin] [--json]",
    .run = run,
};
