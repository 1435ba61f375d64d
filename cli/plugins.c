/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer plugins`: what was found where, what it offers, and why anything was refused.
 */
#include "cli/cli.h"

#include "cli/json.h"
#include "cli/plugins_backend.h"

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
    const char *only; /* one plugin, with all that is known of it; NULL: all */
    uint32_t shown;
    json_t *list; /* JSON */
    bool ok;      /* JSON: nothing failed so far */
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

/* Value in force of a plugin's parameter; its full key in `key`. */
static const char *param_value(const struct view *v, const struct atsi_plugin *p,
                               const struct atsi_param *q, char key[160])
{
    const char *value;
    (void)snprintf(key, 160, "plugin.%s.%s", p->name, q->key);
    value = atsi_runtime_conf(v->rt, key);
    return value != NULL ? value : q->def;
}

/* ---------------------------------------------------------------- text */
static void print_params(const struct view *v, const struct atsi_plugin *p)
{
    for (size_t i = 0; p->params != NULL && p->params[i] != NULL; i++) {
        const struct atsi_param *q = p->params[i];
        char key[160];
        const char *value = param_value(v, p, q, key);
        (void)printf("    %s = %s%s%s  (default %s%s%s) %s\n", key, value,
                     q->unit != NULL ? " " : "", q->unit != NULL ? q->unit : "", q->def,
                     q->choices != NULL ? ", " : "", q->choices != NULL ? q->choices : "", q->help);
    }
}

static void print_backend(const struct view *v, const struct atsi_component *c)
{
    struct plugins_backend b;
    bool any = false;
    plugins_backend_ask(v->rt, c, v->only != NULL, &b);
    (void)printf("    backend %s: %s\n", c->name, b.state);
    if (b.device[0] != '\0')
        (void)printf("        device %s\n", b.device);
    for (uint32_t type = 0; type < ATSI_TYPE_COUNT; type++)
        if (b.types[type]) {
            (void)printf("%s %s", any ? "" : "        weights", atsi_type_info(type)->name);
            any = true;
        }
    if (any)
        (void)putchar('\n');
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
        if (c->kind == ATSI_KIND_BACKEND)
            print_backend(v, c);
        else
            (void)printf("    %s %s\n", kind_name(c->kind), c->name);
    }
    print_params(v, p->plugin);
    return 0;
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
    if (why_name == NULL && v->shown > 0)
        return CLI_OK;
    if (v->shown == 0)
        (void)printf("%s was not found\n", v->only != NULL ? v->only : "no plugin");
    (void)printf("looked in, in this order:\n");
    (void)atsi_runtime_search_each(v->rt, print_folder, NULL);
    return v->shown > 0 ? CLI_OK : CLI_RUN_ERROR;
}

/* ---------------------------------------------------------------- JSON */
static json_t *component_json(struct view *v, const struct atsi_component *c)
{
    json_t *o = json_object(), *types;
    struct plugins_backend b;
    cli_json_set(o, "kind", json_string(kind_name(c->kind)), &v->ok);
    cli_json_set(o, "name", json_string(c->name), &v->ok);
    if (c->kind != ATSI_KIND_BACKEND)
        return o;
    plugins_backend_ask(v->rt, c, v->only != NULL, &b);
    cli_json_set(o, "state", cli_json_text(b.state), &v->ok);
    if (b.device[0] == '\0')
        return o;
    cli_json_set(o, "device", cli_json_text(b.device), &v->ok);
    types = json_array();
    for (uint32_t type = 0; type < ATSI_TYPE_COUNT; type++)
        if (b.types[type])
            cli_json_append(types, json_string(atsi_type_info(type)->name), &v->ok);
    cli_json_set(o, "weights", types, &v->ok);
    return o;
}

static json_t *components_json(struct view *v, const struct atsi_plugin *p)
{
    json_t *list = json_array();
    for (size_t i = 0; p->components[i] != NULL; i++)
        cli_json_append(list, component_json(v, p->components[i]), &v->ok);
    return list;
}

static json_t *params_json(struct view *v, const struct atsi_plugin *p)
{
    json_t *list = json_array();
    for (size_t i = 0; p->params != NULL && p->params[i] != NULL; i++) {
        const struct atsi_param *q = p->params[i];
        json_t *o = json_object();
        char key[160];
        cli_json_set(o, "value", cli_json_text(param_value(v, p, q, key)), &v->ok);
        cli_json_set(o, "key", json_string(key), &v->ok);
        cli_json_set(o, "default", cli_json_text(q->def), &v->ok);
        if (q->choices != NULL)
            cli_json_set(o, "range", cli_json_text(q->choices), &v->ok);
        if (q->unit != NULL)
            cli_json_set(o, "unit", cli_json_text(q->unit), &v->ok);
        cli_json_set(o, "help", cli_json_text(q->help), &v->ok);
        cli_json_append(list, o, &v->ok);
    }
    return list;
}

static int add_plugin(void *ctx, const struct atsi_plugin_info *p)
{
    struct view *v = ctx;
    json_t *o;
    if (!wanted(v, p))
        return 0;
    v->shown++;
    o = json_object();
    cli_json_set(o, "name", cli_json_text(p->name), &v->ok);
    cli_json_set(o, "path", cli_json_text(p->path), &v->ok);
    cli_json_set(o, "loaded", json_boolean(p->plugin != NULL), &v->ok);
    if (p->plugin == NULL) {
        cli_json_set(o, "why", cli_json_text(p->why), &v->ok);
    } else {
        cli_json_set(o, "version", cli_json_text(p->plugin->version), &v->ok);
        cli_json_set(o, "license", cli_json_text(p->plugin->license), &v->ok);
        cli_json_set(o, "abi", json_sprintf("%u.%u", p->plugin->abi_major, p->plugin->abi_minor),
                     &v->ok);
        cli_json_set(o, "components", components_json(v, p->plugin), &v->ok);
        cli_json_set(o, "params", params_json(v, p->plugin), &v->ok);
    }
    cli_json_append(v->list, o, &v->ok);
    return 0;
}

static int add_folder(void *ctx, const char *dir, const char *origin, const char *found)
{
    struct view *v = ctx;
    json_t *o = json_object();
    cli_json_set(o, "folder", cli_json_text(dir), &v->ok);
    cli_json_set(o, "origin", json_string(origin), &v->ok);
    cli_json_set(o, "found", cli_json_text(found), &v->ok);
    cli_json_append(v->list, o, &v->ok);
    return 0;
}

static int print_json(struct view *v)
{
    json_t *root = json_object();
    v->ok = true;
    v->list = json_array();
    (void)atsi_runtime_plugins_each(v->rt, add_plugin, v);
    cli_json_set(root, "abi", json_sprintf("%u.%u", ATSI_ABI_MAJOR, ATSI_ABI_MINOR), &v->ok);
    cli_json_set(root, "plugins", v->list, &v->ok);
    v->list = json_array();
    (void)atsi_runtime_search_each(v->rt, add_folder, v);
    cli_json_set(root, "searched", v->list, &v->ok);
    return cli_json_print(root, v->ok, v->shown > 0 ? CLI_OK : CLI_RUN_ERROR);
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
        code = cli_finish_stdout(as_json ? print_json(&v) : print_all(&v));
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
