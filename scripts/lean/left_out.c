/* SPDX-License-Identifier: Apache-2.0
 *
 * What scripts/lean_build.sh leaves out of the command, since it takes libraries that may be
 * missing: names of models (files alone are known), drawings, the ablation, rivals, tables as JSON,
 * and the bar of first measurements.
 */
#include "cli/bench.h"
#include "cli/bench_rival.h"
#include "cli/kernels_table.h"
#include "cli/trace.h"

#include <string.h>

int cli_resolve(const char *name, char path[PATH_MAX], FILE *say);
int cli_resolve(const char *name, char path[PATH_MAX], FILE *say)
{
    if (strlen(name) >= PATH_MAX) {
        (void)fputs("the name of the model is too long", say);
        return ATSI_ECONF;
    }
    (void)snprintf(path, PATH_MAX, "%s", name);
    return ATSI_OK;
}

void profile_show_progress(void *bar, uint32_t done, uint32_t total, const char *what);
void profile_show_progress(void *bar, uint32_t done, uint32_t total, const char *what)
{
    (void)bar, (void)done, (void)total, (void)what;
}

int cli_trace_write(struct cli_trace *t, const char *path)
{
    (void)t;
    return cli_fail(CLI_USAGE, "--trace %s: this build has no jansson and draws nothing", path);
}

int bench_ablation(const struct bench_ablation *a)
{
    (void)a;
    return cli_fail(CLI_USAGE, "--ablation: this build has no jansson and leaves it out");
}

bool bench_rival_parse(const char *text, size_t n, const struct bench_rival_test *t, double *ts,
                       char *why, size_t why_size)
{
    (void)text, (void)n, (void)t;
    *ts = 0;
    (void)snprintf(why, why_size, "this build has no jansson and cannot read what it printed");
    return false;
}

int kernels_table_print_json(const struct kernels_table *t)
{
    (void)t;
    return cli_fail(CLI_USAGE, "-o json: this build has no jansson; md and csv are there");
}

int kernels_table_save(const struct kernels_table *t, const char *path)
{
    (void)t;
    return cli_fail(CLI_USAGE, "--save %s: this build has no jansson", path);
}

int kernels_table_load(const char *path, struct kernels_table *out)
{
    (void)out;
    return cli_fail(CLI_USAGE, "--compare %s: this build has no jansson", path);
}

void kernels_table_compare(const struct kernels_table *old, struct kernels_row *row)
{
    (void)old, (void)row; /* there is no old one */
}
