/* SPDX-License-Identifier: Apache-2.0
 * The table of `atsinfer kernels` and how it is printed. */
#include "cli/kernels_table.h"

#include "cli/json.h"

#include <stdlib.h>
#include <string.h>

bool kernels_table_add(struct kernels_table *t, const struct kernels_row *row)
{
    if (t->n == t->room) {
        uint32_t room = t->room > 0 ? 2 * t->room : 64;
        struct kernels_row *more = realloc(t->rows, room * sizeof *more);
        if (more == NULL)
            return false;
        t->rows = more;
        t->room = room;
    }
    t->rows[t->n++] = *row;
    return true;
}

void kernels_table_free(struct kernels_table *t)
{
    free(t->rows);
    *t = (struct kernels_table){.rows = NULL};
}

bool kernels_table_format_known(const char *format)
{
    return strcmp(format, "md") == 0 || strcmp(format, "csv") == 0 || strcmp(format, "json") == 0;
}

/* ---------------------------------------------------------------- md and csv */
static void md_begin(const struct kernels_table *t)
{
    (void)printf("%s, %u thread%s; limits: reads %.1f GB/s", t->cpu, t->n_threads,
                 t->n_threads == 1 ? "" : "s", t->read_gbps);
    if (t->int8_gmacs > 0)
        (void)printf(", 8-bit %.0f GMAC/s (%s), f32 %.0f GMAC/s (%s)", t->int8_gmacs, t->int8_name,
                     t->fma_gmacs, t->fma_name);
    (void)printf("\n\n| backend | op | type | layout | shape | memory | speed | of limit | x "
                 "cpu_ref | spread |%s\n| --- | --- | --- | --- | --- | --- | ---: | ---: | ---: | "
                 "---: |%s\n",
                 t->compared ? " was | change |" : "", t->compared ? " ---: | ---: |" : "");
}

static const char *percent(double share, char buf[16])
{
    buf[0] = '\0';
    if (share > 0)
        (void)snprintf(buf, 16, "%.0f %%", 100 * share);
    return buf;
}

static void md_row(const struct kernels_table *t, const struct kernels_row *r)
{
    char limit[16], ref[16] = "";
    if (r->of_ref > 0)
        (void)snprintf(ref, sizeof ref, r->of_ref < 10 ? "%.1f" : "%.0f", r->of_ref);
    (void)printf("| %s | %s | %s | %s | %s | %s | %.1f %s | %s | %s | %.0f %% |", r->backend, r->op,
                 r->type, r->layout, r->shape, r->memory, r->speed, r->unit,
                 percent(r->of_limit, limit), ref, 100 * r->spread);
    if (t->compared && r->was > 0)
        (void)printf(" %.1f | %+.0f %%%s |", r->was, 100 * (r->speed / r->was - 1),
                     r->slower ? " **slower**" : "");
    else if (t->compared)
        (void)printf(" | new |");
    (void)putchar('\n');
}

static void csv_row(const struct kernels_row *r)
{
    (void)printf("%s,%s,%s,%s,\"%s\",%s,%.3f,%s,%.4f,%.3f,%.4f,%.0f,%.3f,%d\n", r->backend, r->op,
                 r->type, r->layout, r->shape, r->memory, r->speed, r->unit, r->of_limit, r->of_ref,
                 r->spread, r->ns, r->was, r->slower);
}

void kernels_table_begin(const struct kernels_table *t, const char *format)
{
    if (strcmp(format, "md") == 0)
        md_begin(t);
    else if (strcmp(format, "csv") == 0)
        (void)puts("backend,op,type,layout,shape,memory,speed,unit,of_limit,of_ref,spread,ns,was,"
                   "slower");
}

void kernels_table_print(const struct kernels_table *t, const char *format,
                         const struct kernels_row *row)
{
    if (strcmp(format, "md") == 0)
        md_row(t, row);
    else if (strcmp(format, "csv") == 0)
        csv_row(row);
    (void)fflush(stdout);
}

/* ---------------------------------------------------------------- json */
static json_t *row_json(const struct kernels_table *t, const struct kernels_row *r, bool *ok)
{
    json_t *o = json_object();
    cli_json_set(o, "backend", cli_json_text(r->backend), ok);
    cli_json_set(o, "op", cli_json_text(r->op), ok);
    cli_json_set(o, "type", cli_json_text(r->type), ok);
    cli_json_set(o, "layout", cli_json_text(r->layout), ok);
    cli_json_set(o, "shape", cli_json_text(r->shape), ok);
    cli_json_set(o, "memory", cli_json_text(r->memory), ok);
    cli_json_set(o, "unit", cli_json_text(r->unit), ok);
    cli_json_set(o, "speed", json_real(r->speed), ok);
    cli_json_set(o, "of_limit", json_real(r->of_limit), ok);
    cli_json_set(o, "of_ref", json_real(r->of_ref), ok);
    cli_json_set(o, "spread", json_real(r->spread), ok);
    cli_json_set(o, "ns", json_real(r->ns), ok);
    if (t->compared) {
        cli_json_set(o, "was", json_real(r->was), ok);
        cli_json_set(o, "slower", json_boolean(r->slower), ok);
    }
    return o;
}

json_t *kernels_table_json(const struct kernels_table *t)
{
    json_t *o = json_object(), *rows = json_array();
    bool ok = true;
    cli_json_set(o, "atsinfer_kernels", json_integer(1), &ok);
    cli_json_set(o, "cpu", cli_json_text(t->cpu), &ok);
    cli_json_set(o, "threads", json_integer(t->n_threads), &ok);
    cli_json_set(o, "read_gbps", json_real(t->read_gbps), &ok);
    cli_json_set(o, "int8_gmacs", json_real(t->int8_gmacs), &ok);
    cli_json_set(o, "fma_gmacs", json_real(t->fma_gmacs), &ok);
    for (uint32_t i = 0; i < t->n; i++)
        cli_json_append(rows, row_json(t, &t->rows[i], &ok), &ok);
    cli_json_set(o, "rows", rows, &ok);
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

int kernels_table_end(const struct kernels_table *t, const char *format)
{
    json_t *o;
    if (strcmp(format, "json") != 0)
        return CLI_OK;
    o = kernels_table_json(t);
    return cli_json_print(o, o != NULL, CLI_OK);
}
