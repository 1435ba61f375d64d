/* SPDX-License-Identifier: Apache-2.0
 *
 * Saved tables of `atsinfer kernels`, and what has become slower since.
 */
#include "cli/kernels_table.h"

#include "cli/json.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* Smaller differences than this are not told, however calm the machine was. */
#define LEAST_SPREAD 0.05

int kernels_table_save(const struct kernels_table *t, const char *path)
{
    json_t *o = kernels_table_json(t);
    char temp[4096];
    int n = snprintf(temp, sizeof temp, "%s.%ld", path, (long)getpid());
    bool good = o != NULL && n > 0 && (size_t)n < sizeof temp &&
                json_dump_file(o, temp, JSON_INDENT(1)) == 0 && rename(temp, path) == 0;
    int e = errno;
    json_decref(o);
    if (good)
        return CLI_OK;
    (void)unlink(temp);
    return cli_fail(CLI_RUN_ERROR, "--save %s: cannot be written: %s", path, strerror(e));
}

/* ---------------------------------------------------------------- reading */
static bool get_text(const json_t *o, const char *key, char *out, size_t size)
{
    const char *s = json_string_value(json_object_get(o, key));
    if (s == NULL || strlen(s) >= size)
        return false;
    memcpy(out, s, strlen(s) + 1);
    return true;
}

static bool get_number(const json_t *o, const char *key, double *out)
{
    const json_t *v = json_object_get(o, key);
    *out = json_number_value(v);
    return json_is_number(v) && isfinite(*out) && *out >= 0;
}

static bool read_row(const json_t *o, struct kernels_row *r)
{
    *r = (struct kernels_row){.ns = 0};
    return get_text(o, "backend", r->backend, sizeof r->backend) &&
           get_text(o, "op", r->op, sizeof r->op) && get_text(o, "type", r->type, sizeof r->type) &&
           get_text(o, "layout", r->layout, sizeof r->layout) &&
           get_text(o, "shape", r->shape, sizeof r->shape) &&
           get_text(o, "memory", r->memory, sizeof r->memory) &&
           get_text(o, "unit", r->unit, sizeof r->unit) && get_number(o, "speed", &r->speed) &&
           get_number(o, "spread", &r->spread);
}

static int read_rows(const char *path, const json_t *o, struct kernels_table *out)
{
    const json_t *rows = json_object_get(o, "rows");
    double threads;
    if (!json_is_integer(json_object_get(o, "atsinfer_kernels")) || !json_is_array(rows))
        return cli_fail(CLI_USAGE, "--compare %s: not a table saved by `atsinfer kernels --save`",
                        path);
    if (json_integer_value(json_object_get(o, "atsinfer_kernels")) != 1)
        return cli_fail(CLI_USAGE, "--compare %s: of version %lld, this program reads version 1",
                        path,
                        (long long)json_integer_value(json_object_get(o, "atsinfer_kernels")));
    if (!get_text(o, "cpu", out->cpu, sizeof out->cpu) || !get_number(o, "threads", &threads) ||
        threads > 65536)
        return cli_fail(CLI_USAGE, "--compare %s: without \"cpu\" or \"threads\"", path);
    out->n_threads = (uint32_t)threads;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        struct kernels_row r;
        if (!read_row(json_array_get(rows, i), &r))
            return cli_fail(CLI_USAGE, "--compare %s: rows[%zu] is not a row of a table", path, i);
        if (!kernels_table_add(out, &r))
            return cli_fail(CLI_RUN_ERROR, "out of memory");
    }
    return CLI_OK;
}

int kernels_table_load(const char *path, struct kernels_table *out)
{
    json_error_t e;
    json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    int code;
    *out = (struct kernels_table){.rows = NULL};
    if (o == NULL)
        return cli_fail(CLI_USAGE, "--compare %s: line %d: %s", path, e.line, e.text);
    code = read_rows(path, o, out);
    json_decref(o);
    if (code != CLI_OK)
        kernels_table_free(out);
    return code;
}

/* ---------------------------------------------------------------- comparing */
static bool same(const struct kernels_row *a, const struct kernels_row *b)
{
    return strcmp(a->backend, b->backend) == 0 && strcmp(a->op, b->op) == 0 &&
           strcmp(a->type, b->type) == 0 && strcmp(a->layout, b->layout) == 0 &&
           strcmp(a->shape, b->shape) == 0 && strcmp(a->memory, b->memory) == 0 &&
           strcmp(a->unit, b->unit) == 0;
}

void kernels_table_compare(const struct kernels_table *old, struct kernels_row *row)
{
    for (uint32_t i = 0; i < old->n; i++) {
        const struct kernels_row *o = &old->rows[i];
        double spread = row->spread + o->spread;
        if (!same(o, row))
            continue;
        row->was = o->speed;
        row->slower = row->speed < o->speed * (1 - fmin(fmax(spread, LEAST_SPREAD), 1));
    }
}
