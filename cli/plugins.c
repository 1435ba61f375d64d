/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer plugins`: what was found where, what it offers, and why anything was refused.
 */
#include "cli/cli.h"

#include <jansson.h>
#include <string.h>

static const char *why_name;
static bool as_json;

static const struct cli_option options[] = {
    {.name = "--why",
     .arg = "NAME",
     .help = "where NAME was looked for and what came of it",
     .text = &why_name},
    {.name = "--json", .help = "machine-readable", .flag = &as_json},
    {.name = NULL},
};

struct view {
    const struct atsi_runtime *rt;
    const char *only; /* NULL: all */
    uint32_t shown;
    json_t *list;
};

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = {"?", "backend", "transfer", "policy", "loader"};
    return kind < sizeof names / sizeof names[0] ? names[kind] : names[0];
}

static bool wanted(const struct view *v, const struct atsi_plugin_info *p)
{
    return v->only == NULL || strcmp(v->only, p->name) == 0;
}

/* "2 devices", "on this machine", or why not; for a loaded backend. */
static void backend_state(const struct view *v, const struct atsi_component *c, char *out,
                          size_t size)
{
    const struct atsi_backend_ops *ops = c->ops;
    int n = ops->probe(atsi_runtime_host(v->rt));
    if (n > 0)
        (void)snprintf(out, size, "usable");
    else
        (void)snprintf(out, size, "%s", n == 0 ? "no device here" : atsi_strerror(n));
}

static void print_params(const struct view *v, const struct atsi_plugin *p)
{
    for (size_t i = 0; p->params != NULL && p->params[i] != NULL; i++) {
        const struct atsi_param *q = p->params[i];
        char key[160];
        const char *value;
        (void)snprintf(key, sizeof key, "plugin.%s.%s", p->name, q->key);
        value = atsi_runtime_conf(v->rt, key);
        (void)printf("    %s = %s%s%s  (default %s%s%s) %s\n", key, value != NULL ? value : q->def,
                     q->unit != NULL ? " " : "", q->unit != NULL ? q->unit : "", q->def,
                     q->choices != NULL ? ", " : "", q->choices != NULL ? q->choices : "", q->help);
    }
}

static int print_plugin(void *ctx, const struct atsi_plugin_info *p)
{
    struct view *v = ctx;
    if (!wanted(v, p))
        return 0;
    v->shown++;
    if (p->plugin == NULL) {
        (void)printf("%-16s refused: %s\n    %s\n", p->name, p->why, p->path);
        return 0;
    }
    (void)printf("%-16s version %s, interface %u.%u, %s\n    %s\n", p->name, p->plugin->version,
                 p->plugin->abi_major, p->plugin->abi_minor, p->plugin->license, p->path);
    for (size_t i = 0; p->plugin->components[i] != NULL; i++) {
        const struct atsi_component *c = p->plugin->components[i];
        char state[64] = "";
        if (c->kind == ATSI_KIND_BACKEND)
            backend_state(v, c, state, sizeof state);
        (void)printf("    %s %s%s%s\n", kind_name(c->kind), c->name, state[0] != '\0' ? ": " : "",
                     state);
    }
    print_params(v, p->plugin);
    return 0;
}

static json_t *components_json(const struct view *v, const struct atsi_plugin *p)
{
    json_t *list = json_array();
    for (size_t i = 0; p->components[i] != NULL; i++) {
        const struct atsi_component *c = p->components[i];
        char state[64] = "loaded";
        if (c->kind == ATSI_KIND_BACKEND)
            backend_state(v, c, state, sizeof state);
        (void)json_array_append_new(list, json_pack("{s:s,s:s,s:s}", "kind", kind_name(c->kind),
                                                    "name", c->name, "state", state));
    }
    return list;
}

static json_t *params_json(const struct atsi_plugin *p)
{
    json_t *list = json_array();
    for (size_t i = 0; p->params != NULL && p->params[i] != NULL; i++) {
        const struct atsi_param *q = p->params[i];
        (void)json_array_append_new(list, json_pack("{s:s,s:s,s:s*,s:s*,s:s}", "key", q->key,
                                                    "default", q->def, "choices", q->choices,
                                                    "unit", q->unit, "help", q->help));
    }
    return list;
}

static int add_json(void *ctx, const struct atsi_plugin_info *p)
{
    struct view *v = ctx;
    json_t *o;
    if (!wanted(v, p))
        return 0;
    v->shown++;
    o = json_pack("{s:s,s:s,s:b}", "name", p->name, "path", p->path, "loaded", p->plugin != NULL);
    if (p->plugin == NULL) {
        (void)json_object_set_new(o, "why", json_string(p->why));
    } else {
        (void)json_object_set_new(o, "version", json_string(p->plugin->version));
        (void)json_object_set_new(o, "license", json_string(p->plugin->license));
        (void)json_object_set_new(
            o, "abi", json_sprintf("%u.%u", p->plugin->abi_major, p->plugin->abi_minor));
        (void)json_object_set_new(o, "components", components_json(v, p->plugin));
        (void)json_object_set_new(o, "params", params_json(p->plugin));
    }
    return json_array_append_new(v->list, o);
}

static int print_folder(void *ctx, const char *dir, const char *origin, const char *found)
{
    (void)ctx;
    (void)printf("  %s (%s): %s\n", dir, origin, found);
    return 0;
}

static int print_all(struct view *v)
{
    (void)atsi_runtime_plugins_each(v->rt, print_plugin, v);
    if (v->shown > 0 && why_name == NULL)
        return cli_finish_stdout(CLI_OK);
    if (v->shown == 0)
        (void)printf("%s was not found\n", v->only != NULL ? v->only : "no plugin");
    (void)printf("looked in, in this order:\n");
    (void)atsi_runtime_search_each(v->rt, print_folder, NULL);
    return cli_finish_stdout(v->shown > 0 ? CLI_OK : CLI_RUN_ERROR);
}

static int print_json(struct view *v)
{
    int code = CLI_OK;
    v->list = json_array();
    if (v->list == NULL || atsi_runtime_plugins_each(v->rt, add_json, v) != 0)
        code = cli_fail(CLI_RUN_ERROR, "out of memory");
    else if (json_dumpf(v->list, stdout, JSON_INDENT(2)) != 0)
        code = cli_fail(CLI_RUN_ERROR, "cannot write to standard output");
    json_decref(v->list);
    (void)putchar('\n');
    if (code == CLI_OK && v->only != NULL && v->shown == 0)
        code = CLI_RUN_ERROR;
    return cli_finish_stdout(code);
}

static int run(int argc, char **argv)
{
    struct atsi_runtime *rt = NULL;
    struct view v = {0};
    int n_pos, code = cli_parse(&cli_cmd_plugins, options, argc, argv, &n_pos);
    if (code != -1)
        return code;
    if (n_pos > 1 || (n_pos == 1 && why_name != NULL))
        return cli_fail(CLI_USAGE, "one NAME at most");
    v.only = n_pos == 1 ? argv[1] : why_name;
    code = cli_runtime(&rt);
    if (code == CLI_OK) {
        v.rt = rt;
        code = as_json ? print_json(&v) : print_all(&v);
    }
    atsi_runtime_close(rt);
    return code;
}

const struct cli_command cli_cmd_plugins = {
    .name = "plugins",
    .summary = "list plugins, what they offer, and why any was refused",
    .usage = "atsinfer plugins [NAME] [--why NAME] [--json]",
    .run = run,
};
