/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer doctor`: one screen that tells whether this machine is ready, what is not as good as it
 * could be, and what to do about it. */
#include "cli/doctor.h"

#include "cli/json.h"

#include <stdlib.h>
#include <string.h>

static bool as_json;

static const struct cli_option options[] = {
    {.name = "--json", .help = "one JSON object instead of text", .flag = &as_json},
    {.name = NULL},
};

static const char *const level_name[] = {"ok", "note", "problem"};

struct finding *doctor_add(struct doctor *d, enum finding_level level, const char *topic)
{
    struct finding *f = &d->findings[d->n < DOCTOR_MAX ? d->n++ : DOCTOR_MAX - 1];
    memset(f, 0, sizeof *f);
    f->level = level;
    f->topic = topic;
    return f;
}

struct finding *doctor_problem(struct doctor *d, int code, const char *topic)
{
    if (d->exit_code == CLI_OK)
        d->exit_code = code;
    return doctor_add(d, FINDING_PROBLEM, topic);
}

/* ---------------------------------------------------------------- plugins */

struct plugin_counts {
    struct doctor *d;
    struct machine_text used;
    uint32_t n_backends, n_loaders;
};

static void count_components(struct plugin_counts *c, const struct atsi_plugin *p)
{
    for (const struct atsi_component *const *k = p->components; k != NULL && *k != NULL; k++) {
        const struct atsi_backend_ops *ops = (*k)->ops;
        c->n_loaders += (*k)->kind == ATSI_KIND_LOADER;
        if ((*k)->kind == ATSI_KIND_BACKEND && ATSI_HAS(ops, struct atsi_backend_ops, probe))
            c->n_backends += ops->probe(atsi_runtime_host(c->d->rt)) > 0;
    }
}

static int look_at_plugin(void *ctx, const struct atsi_plugin_info *p)
{
    struct plugin_counts *c = ctx;
    if (p->plugin != NULL && p->why[0] == '\0') {
        machine_add(&c->used, "%s%s %s", c->used.len > 0 ? ", " : "", p->name, p->plugin->version);
        count_components(c, p->plugin);
        return 0;
    }
    struct finding *f = doctor_add(c->d, FINDING_NOTE, "plugin");
    machine_add(&f->text, "%s is not used: %s", p->name, p->why);
    return 0;
}

static int add_folder(void *ctx, const char *dir, const char *origin, const char *found)
{
    struct machine_text *t = ctx;
    machine_add(t, "%s%s (%s): %s", t->len > 0 ? "; " : "searched: ", dir, origin, found);
    return 0;
}

void doctor_check_plugins(struct doctor *d)
{
    static struct plugin_counts c;
    struct finding *f;
    c = (struct plugin_counts){.d = d};
    (void)atsi_runtime_plugins_each(d->rt, look_at_plugin, &c);
    if (c.used.len > 0) {
        f = doctor_add(d, FINDING_OK, "plugins");
        machine_add(&f->text, "in use: %s", c.used.s);
    }
    if (c.n_backends == 0) {
        f = doctor_problem(d, CLI_NO_FIT, "plugins");
        machine_add(&f->text, "no plugin can compute on this machine");
        (void)atsi_runtime_search_each(d->rt, add_folder, &f->todo);
    }
    if (c.n_loaders == 0) {
        f = doctor_problem(d, CLI_RUN_ERROR, "plugins");
        machine_add(&f->text, "no plugin can read model files");
        (void)atsi_runtime_search_each(d->rt, add_folder, &f->todo);
    }
}

/* ---------------------------------------------------------------- configuration */

struct conf_seen {
    struct doctor *d;
    uint32_t n_changed, n_files;
    struct machine_text files;
};

/* "FILE:LINE" -> FILE, when it is a file at all. */
static size_t file_part(const char *origin)
{
    const char *colon = strrchr(origin, ':');
    return colon != NULL && colon[1] >= '0' && colon[1] <= '9' ? (size_t)(colon - origin) : 0;
}

static int look_at_setting(void *ctx, const struct atsi_conf_entry *e)
{
    struct conf_seen *c = ctx;
    size_t n = file_part(e->origin);
    char file[512];
    if (strcmp(e->origin, "built-in") == 0)
        return 0;
    (void)snprintf(file, sizeof file, "%.*s", n < 511 ? (int)n : 511, e->origin);
    if (n > 0 && strstr(c->files.s, file) == NULL) {
        machine_add(&c->files, "%s%s", c->n_files > 0 ? ", " : "", file);
        c->n_files++;
    }
    if (strcmp(e->value, e->def) == 0)
        return 0;
    c->n_changed++;
    struct finding *f = doctor_add(c->d, FINDING_OK, "setting");
    machine_add(&f->text, "%s = %s (default %s), %s", e->key,
                e->value[0] != '\0' ? e->value : "\"\"", e->def[0] != '\0' ? e->def : "\"\"",
                e->origin);
    return 0;
}

void doctor_check_config(struct doctor *d)
{
    static struct conf_seen c;
    struct finding *f = doctor_add(d, FINDING_OK, "config");
    c = (struct conf_seen){.d = d};
    (void)atsi_runtime_conf_each(d->rt, look_at_setting, &c);
    machine_add(&f->text, "%s%s; %u setting%s not at the default",
                c.n_files > 0 ? "from " : "no ini file sets anything", c.files.s, c.n_changed,
                c.n_changed == 1 ? "" : "s");
}

/* ---------------------------------------------------------------- output */

static void print_text(const struct doctor *d)
{
    uint32_t count[3] = {0};
    for (uint32_t i = 0; i < d->n; i++) {
        const struct finding *f = &d->findings[i];
        (void)printf("%-8s %-10s %s\n", level_name[f->level], f->topic, f->text.s);
        if (f->todo.len > 0)
            (void)printf("%-8s %-10s -> %s\n", "", "", f->todo.s);
        count[f->level]++;
    }
    if (count[FINDING_PROBLEM] > 0)
        (void)printf("\nNot ready: %u problem%s, %u note%s.\n", count[FINDING_PROBLEM],
                     count[FINDING_PROBLEM] == 1 ? "" : "s", count[FINDING_NOTE],
                     count[FINDING_NOTE] == 1 ? "" : "s");
    else
        (void)printf("\nReady, %u note%s.\n", count[FINDING_NOTE],
                     count[FINDING_NOTE] == 1 ? "" : "s");
}

static json_t *finding_value(const struct finding *f, bool *ok)
{
    json_t *o = json_object();
    cli_json_set(o, "level", json_string(level_name[f->level]), ok);
    cli_json_set(o, "topic", json_string(f->topic), ok);
    cli_json_set(o, "text", cli_json_text(f->text.s), ok);
    cli_json_set(o, "todo", cli_json_text(f->todo.s), ok);
    return o;
}

static int print_json(const struct doctor *d)
{
    json_t *o = json_object(), *list = json_array();
    bool ok = true;
    for (uint32_t i = 0; i < d->n; i++)
        cli_json_append(list, finding_value(&d->findings[i], &ok), &ok);
    cli_json_set(o, "ready", json_boolean(d->exit_code == CLI_OK), &ok);
    cli_json_set(o, "exit_code", json_integer(d->exit_code), &ok);
    cli_json_set(o, "findings", list, &ok);
    return cli_json_print(o, ok, d->exit_code);
}

static int examine(struct doctor *d)
{
    int rc;
    doctor_check_cpu(d);
    doctor_check_plugins(d);
    doctor_check_system(d);
    doctor_check_config(d);
    doctor_check_model(d);
    rc = d->exit_code;
    if (as_json)
        rc = print_json(d);
    else
        print_text(d);
    return cli_finish_stdout(rc);
}

static int run(int argc, char **argv)
{
    struct doctor *d;
    int n_pos = 0, rc = cli_parse(&cli_cmd_doctor, options, argc, argv, &n_pos);
    if (rc != -1)
        return rc;
    if (n_pos != 0)
        return cli_fail(CLI_USAGE, "doctor takes no argument, \"%s\" given; name a model with -m",
                        argv[1]);
    d = calloc(1, sizeof *d);
    if (d == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    rc = cli_runtime(&d->rt);
    if (rc == CLI_OK) {
        rc = examine(d);
        atsi_runtime_close(d->rt);
    }
    free(d);
    return rc;
}

const struct cli_command cli_cmd_doctor = {
    .name = "doctor",
    .summary = "Tells whether this machine is ready, what could be better, and what to do.",
    .usage = "atsinfer doctor [--json] [-m MODEL] [options]",
    .run = run,
};
