/* SPDX-License-Identifier: Apache-2.0
 * Machine profiles as text: what was measured, and the rest from another profile. */
#include "cli/json.h"
#include "cli/profile.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Keys of [platform] that are not measured here; docs/scheduling.md describes them. */
static const struct {
    const char *key, *what;
    bool required;
} others[] = {
    {"vram_mib", "device memory, MiB", true},
    {"reserve_mib", "of it not for the model, MiB", false},
    {"temp_mib", "of it for temporary slots, MiB", false},
    {"gpu_gbs", "bandwidth of device memory, GB/s", true},
    {"gpu_tflops_q4", "prompts with quantised weights, TFLOP/s", true},
    {"gpu_tflops_fp16", "with floating-point weights, TFLOP/s", true},
    {"gpu_tflops_mxfp4", "with MXFP4 weights, TFLOP/s", true},
    {"gpu_moe_eff", "factor on them for experts", false},
    {"gpu_op_us", "fixed cost of an operator, us", false},
    {"pcie_gbs", "weight transfers, GB/s", true},
    {"base_copy_gbs", "blocking ones, GB/s", false},
    {"xfer_us", "fixed cost of one, us", false},
    {"ck_gbs", "activation copies, GB/s", true},
    {"cg_us", "a switch to the GPU, us", false},
    {"gc_us", "a switch to the CPU, us", false},
    {"cg_base_us", "a blocking switch to the GPU, us", false},
    {"gc_base_us", "a blocking switch to the CPU, us", false},
    {"evt_us", "a cut before a streamed operator, us", false},
    {"rlat_us", "expert ids to the host, us", false},
    {"gap_us", "between two rounds, us", false},
    {"chunk", "tokens of a prefill round", false},
    {"ctx_max", "tokens that caches are sized for", false},
};
enum { N_OTHERS = sizeof others / sizeof others[0] };

static const char *const group_key[PROFILE_GROUPS] = {"cpu_gflops_q4", "cpu_gflops_fp16",
                                                      "cpu_gflops_mxfp4"};

/* ---------------------------------------------------------------- another profile */
static bool measured_key(const char *key)
{
    static const char *const keys[] = {"name", "cpu_gbs", "cpu_gbs_sustained", "dram_gbs",
                                       "cpu_op_us"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    for (size_t i = 0; i < PROFILE_GROUPS; i++)
        if (strcmp(group_key[i], key) == 0)
            return true;
    return false;
}

static const char *find(const struct profile_lines *l, const char *key)
{
    for (uint32_t i = 0; l != NULL && i < l->n; i++)
        if (strcmp(l->line[i].key, key) == 0)
            return l->line[i].value;
    return NULL;
}

static char *trim(char *s)
{
    char *end;
    s += strspn(s, " \t");
    end = s + strlen(s);
    while (end > s && strchr(" \t\r\n", end[-1]) != NULL)
        *--end = '\0';
    return s;
}

static int keep(struct profile_lines *l, const char *path, unsigned number, const char *key,
                const char *value)
{
    char *end;
    double v = strtod(value, &end);
    bool known = false;
    for (size_t i = 0; i < N_OTHERS; i++)
        known = known || strcmp(others[i].key, key) == 0;
    if (!known)
        return cli_fail(CLI_USAGE, "%s:%u: unknown key \"%.40s\"", path, number, key);
    if (end == value || *end != '\0' || !isfinite(v) || v < 0)
        return cli_fail(CLI_USAGE, "%s:%u: %s = \"%.40s\": expected a number", path, number, key,
                        value);
    if (find(l, key) != NULL)
        return cli_fail(CLI_USAGE, "%s:%u: %s a second time", path, number, key);
    l->line[l->n].key = strdup(key);
    l->line[l->n].value = strdup(value);
    l->n++;
    if (l->line[l->n - 1].key == NULL || l->line[l->n - 1].value == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    return CLI_OK;
}

static int take_line(struct profile_lines *l, const char *path, unsigned number, char *text)
{
    char *key, *equals;
    text = trim(text);
    if (text[0] == '\0' || text[0] == '#' || text[0] == ';' || strcmp(text, "[platform]") == 0)
        return CLI_OK;
    equals = strchr(text, '=');
    if (equals == NULL)
        return cli_fail(CLI_USAGE, "%s:%u: expected [platform] or key = value: \"%.60s\"", path,
                        number, text);
    *equals = '\0';
    key = trim(text);
    return measured_key(key) ? CLI_OK : keep(l, path, number, key, trim(equals + 1));
}

int profile_lines_read(const char *path, struct profile_lines *out)
{
    char text[4096];
    FILE *f = fopen(path, "re");
    int code = CLI_OK;
    *out = (struct profile_lines){.n = 0};
    if (f == NULL)
        return cli_fail(CLI_USAGE, "--gpu-from: %s: %s", path, strerror(errno));
    for (unsigned n = 1; code == CLI_OK && fgets(text, sizeof text, f) != NULL; n++)
        if (n == 10000)
            code = cli_fail(CLI_USAGE, "%s: too long for a profile", path);
        else if (strchr(text, '\n') == NULL && feof(f) == 0)
            code = cli_fail(CLI_USAGE, "%s:%u: the line is too long or holds a zero byte", path, n);
        else
            code = take_line(out, path, n, text);
    if (code == CLI_OK && ferror(f) != 0)
        code = cli_fail(CLI_RUN_ERROR, "--gpu-from: %s: cannot be read", path);
    for (size_t i = 0; i < N_OTHERS && code == CLI_OK; i++)
        if (others[i].required && find(out, others[i].key) == NULL)
            code = cli_fail(CLI_USAGE, "%s: section [platform] lacks %s", path, others[i].key);
    (void)fclose(f); /* only read from */
    return code;
}

void profile_lines_free(struct profile_lines *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        free(l->line[i].key);
        free(l->line[i].value);
    }
    l->n = 0;
}

/* ---------------------------------------------------------------- ini */
/* What CPU and copy read together; at least what one of them reads alone. */
static double dram_gbs(const struct profile_dram *d)
{
    return fmax(d->cpu_together + d->copy_together, fmax(d->cpu_alone, d->copy_alone));
}

/* Profiles take no smaller rate, which only a machine that was busy with something else measures.
 */
#define LEAST_FIGURE 0.01

static void figure(FILE *f, const char *key, const struct profile_figure *g, const char *what)
{
    (void)fprintf(f, "# %s: median of %u, %.4g to %.4g\n%s = %.6g\n", what, g->n, g->low, g->high,
                  key, fmax(g->value, LEAST_FIGURE));
}

static void stamp(char out[40])
{
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm) == NULL || strftime(out, 40, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        out[0] = '\0';
}

static void head_ini(FILE *f, const struct profile *p)
{
    char when[40];
    stamp(when);
    (void)fprintf(f,
                  "# Written by `atsinfer profile` (%s) on %s: measured here, %u threads, backend "
                  "%s.\n# CPU: %s\n# Weight types of %s, by what a token reads:",
                  atsi_version(), when, p->n_threads, p->backend_name,
                  atsi_runtime_topo(p->rt)->cpu_model, p->model);
    for (uint32_t k = 0; k < p->n_types; k++)
        (void)fprintf(f, " %s %.0f %%%s", atsi_type_info(p->types[k].type)->name,
                      100 * p->types[k].share, k + 1 < p->n_types ? "," : "");
    (void)fprintf(f, "\n[platform]\nname = %s\n", p->name);
}

static void measured_ini(FILE *f, const struct profile *p)
{
    const struct profile_dram *d = &p->dram;
    char what[120];
    figure(f, "cpu_gbs", &p->gbs, "weights read by products with one row, GB/s");
    (void)snprintf(what, sizeof what, "the same after %u s of load", p->load_s);
    figure(f, "cpu_gbs_sustained", &p->sustained, what);
    (void)fprintf(f,
                  "# CPU and a copy reading together %.4g + %.4g GB/s; CPU alone %.4g (%.4g with a "
                  "worker less),\n# copy alone %.4g\ndram_gbs = %.6g\n",
                  d->cpu_together, d->copy_together, d->cpu_alone, d->cpu_beside, d->copy_alone,
                  fmax(dram_gbs(d), LEAST_FIGURE));
    for (uint32_t g = 0; g < PROFILE_GROUPS; g++) {
        const char *type = p->group_type[g] < ATSI_TYPE_COUNT
                               ? atsi_type_info(p->group_type[g])->name
                               : "the model's types";
        (void)snprintf(what, sizeof what, "products with 512 rows, GFLOP/s, %s", type);
        figure(f, group_key[g], &p->gflops[g], what);
    }
    figure(f, "cpu_op_us", &p->op_us, "a product of 64 by 16, us");
}

static void others_ini(FILE *f, const struct profile_lines *rest, const char *from)
{
    if (rest == NULL)
        (void)fputs("# Of the accelerator nothing was measured.  Fill in what is needed and remove "
                    "its #, or run\n# `atsinfer profile --gpu-from MACHINE`.\n",
                    f);
    else
        (void)fprintf(f, "# Not measured: from %s\n", from);
    for (size_t i = 0; i < N_OTHERS; i++) {
        const char *value = find(rest, others[i].key);
        if (rest == NULL)
            (void)fprintf(f, "# %s, %s:\n# %s =\n", others[i].what,
                          others[i].required ? "needed" : "optional", others[i].key);
        else if (value != NULL)
            (void)fprintf(f, "%s = %s\n", others[i].key, value);
    }
}

char *profile_ini(const struct profile *p, const struct profile_lines *rest, const char *from)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    bool bad;
    if (f == NULL)
        return NULL;
    head_ini(f, p);
    measured_ini(f, p);
    others_ini(f, rest, from);
    bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---------------------------------------------------------------- JSON */
static json_t *figure_json(const struct profile_figure *g, bool *ok)
{
    json_t *o = json_object();
    cli_json_set(o, "value", json_real(g->value), ok);
    cli_json_set(o, "low", json_real(g->low), ok);
    cli_json_set(o, "high", json_real(g->high), ok);
    cli_json_set(o, "samples", json_integer(g->n), ok);
    return o;
}

static json_t *types_json(const struct profile *p, bool *ok)
{
    json_t *a = json_array();
    for (uint32_t k = 0; k < p->n_types; k++) {
        const struct profile_type *t = &p->types[k];
        json_t *o = json_object();
        cli_json_set(o, "type", json_string(atsi_type_info(t->type)->name), ok);
        cli_json_set(o, "share", json_real(t->share), ok);
        cli_json_set(o, "gbs", figure_json(&t->gbs, ok), ok);
        cli_json_set(o, "gflops", figure_json(&t->gflops, ok), ok);
        cli_json_append(a, o, ok);
    }
    return a;
}

static json_t *dram_json(const struct profile_dram *d, bool *ok)
{
    json_t *o = json_object();
    cli_json_set(o, "value", json_real(dram_gbs(d)), ok);
    cli_json_set(o, "cpu_alone", json_real(d->cpu_alone), ok);
    cli_json_set(o, "cpu_beside", json_real(d->cpu_beside), ok);
    cli_json_set(o, "copy_alone", json_real(d->copy_alone), ok);
    cli_json_set(o, "cpu_together", json_real(d->cpu_together), ok);
    cli_json_set(o, "copy_together", json_real(d->copy_together), ok);
    return o;
}

static json_t *platform_json(const struct profile *p, bool *ok)
{
    json_t *o = json_object();
    cli_json_set(o, "cpu_gbs", figure_json(&p->gbs, ok), ok);
    cli_json_set(o, "cpu_gbs_sustained", figure_json(&p->sustained, ok), ok);
    cli_json_set(o, "dram_gbs", dram_json(&p->dram, ok), ok);
    for (uint32_t g = 0; g < PROFILE_GROUPS; g++)
        cli_json_set(o, group_key[g], figure_json(&p->gflops[g], ok), ok);
    cli_json_set(o, "cpu_op_us", figure_json(&p->op_us, ok), ok);
    return o;
}

/* Numbers as they stand in the other profile. */
static json_t *others_json(const struct profile_lines *rest, bool *ok)
{
    json_t *o = json_object();
    for (uint32_t i = 0; i < rest->n; i++)
        cli_json_set(o, rest->line[i].key, json_real(strtod(rest->line[i].value, NULL)), ok);
    return o;
}

char *profile_json(const struct profile *p, const struct profile_lines *rest, const char *from)
{
    json_t *o = json_object();
    char when[40], *text = NULL;
    bool ok = true;
    stamp(when);
    cli_json_set(o, "name", cli_json_text(p->name), &ok);
    cli_json_set(o, "time", json_string(when), &ok);
    cli_json_set(o, "cpu", cli_json_text(atsi_runtime_topo(p->rt)->cpu_model), &ok);
    cli_json_set(o, "backend", cli_json_text(p->backend_name), &ok);
    cli_json_set(o, "threads", json_integer(p->n_threads), &ok);
    cli_json_set(o, "model", cli_json_text(p->model), &ok);
    cli_json_set(o, "types", types_json(p, &ok), &ok);
    cli_json_set(o, "measured", platform_json(p, &ok), &ok);
    if (rest != NULL) {
        cli_json_set(o, "not_measured_from", cli_json_text(from), &ok);
        cli_json_set(o, "not_measured", others_json(rest, &ok), &ok);
    }
    if (ok)
        text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(o);
    if (text != NULL) { /* a file ends with a line */
        size_t n = strlen(text);
        char *grown = realloc(text, n + 2);
        if (grown == NULL) {
            free(text);
            return NULL;
        }
        text = grown;
        memcpy(text + n, "\n", 2);
    }
    return text;
}
