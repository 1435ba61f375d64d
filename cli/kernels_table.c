/* SPDX-License-Identifier: Apache-2.0
 * The table of `atsinfer kernels` and how it is printed. */
#include "cli/kernels_table.h"

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
    (void)printf("%s, %u thread%s", t->cpu, t->n_threads, t->n_threads == 1 ? "" : "s");
    if (t->read_gbps > 0)
        (void)printf("; limits: reads %.1f GB/s", t->read_gbps);
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

int kernels_table_end(const struct kernels_table *t, const char *format)
{
    return strcmp(format, "json") == 0 ? kernels_table_print_json(t) : CLI_OK;
}
