/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer config`: the settings in force, and where each came from.  The text is a valid ini.
 */
#include "cli/cli.h"

#include "cli/json.h"

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
    char section[128];
    json_t *list; /* JSON */
    bool ok;      /* JSON: nothing failed so far */
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
    if (strcmp(dot, ".*") == 0) { /* stands for numbered keys, is none itself */
        (void)printf("# N =\n");
        return 0;
    }
    if (show_origin)
        (void)printf("# %s\n", e->origin);
    (void)printf("%s =%s%s\n", dot + 1, e->value[0] != '\0' ? " " : "", e->value);
    return 0;
}

static int add_entry(void *ctx, const struct atsi_conf_entry *e)
{
    struct view *v = ctx;
    json_t *o;
    if (!wanted(v, e->key))
        return 0;
    v->shown++;
    o = json_object();
    cli_json_set(o, "key", cli_json_text(e->key), &v->ok);
    cli_json_set(o, "value", cli_json_text(e->value), &v->ok);
    cli_json_set(o, "default", cli_json_text(e->def), &v->ok);
    cli_json_set(o, "origin", cli_json_text(e->origin), &v->ok);
    cli_json_set(o, "type", json_string(e->type), &v->ok);
    cli_json_set(o, "range", cli_json_text(e->range), &v->ok);
    cli_json_set(o, "help", cli_json_text(e->help), &v->ok);
    cli_json_append(v->list, o, &v->ok);
    return 0;
}

static int print(const struct atsi_runtime *rt, struct view *v)
{
    int code = CLI_OK;
    if (as_json) {
        v->ok = true;
        v->list = json_array();
        (void)atsi_runtime_conf_each(rt, add_entry, v);
        code = cli_json_print(v->list, v->ok, CLI_OK);
    } else {
        (void)atsi_runtime_conf_each(rt, print_entry, v);
    }
    if (code == CLI_OK && v->shown == 0)
        code = cli_fail(CLI_USAGE, "no key or section %s; `atsinfer config` lists all", v->only);
    return cli_finish_stdout(code);
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
    if (code == CLI_OK)
        code = print(rt, &v);
    atsi_runtime_close(rt);
    return code;
}

const struct cli_command cli_cmd_config = {
    .name = "config",
    .summary = "print the settings in force",
    .usage = "atsinfer config [KEY|SECTION] [--show-origin] [--json]",
    .run = run,
};
