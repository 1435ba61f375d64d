/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer kernels`: the matrix products of every CPU backend on this machine, compared: against
 * the reference for rightness, against each other for speed.
 */
#include "cli/kernels_op.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_BACKENDS 16

static const char *backends_text, *type_text, *op_text, *format = "md";
static bool want_list, want_check, want_bench;
static int64_t seed = 1;

static const struct cli_option options[] = {
    {.name = "--list", .help = "backends and the weight types each computes", .flag = &want_list},
    {.name = "--check",
     .help = "compare each with cpu_ref; exit code 4 when one is wrong",
     .flag = &want_check},
    {.name = "--bench", .help = "time each (the default)", .flag = &want_bench},
    {.name = "--backend", .arg = "A,B", .help = "only these backends", .text = &backends_text},
    {.name = "--op", .arg = "OP", .help = "check only this operation (matmul)", .text = &op_text},
    {.name = "--type", .arg = "TYPE", .help = "only this weight type (Q4_K)", .text = &type_text},
    {.name = "--seed",
     .arg = "N",
     .help = "of the random numbers",
     .integer = &seed,
     .min = 0,
     .max = 9e15},
    {.name = "-o|--output", .arg = "FORMAT", .help = "md or tsv", .text = &format},
    {.name = NULL},
};

struct kernels {
    struct atsi_runtime *rt;
    char names[MAX_BACKENDS][64];
    uint32_t n_names;
};

/* ---------------------------------------------------------------- which backends and types */
static int add_backend(void *ctx, const struct atsi_plugin_info *p)
{
    struct kernels *k = ctx;
    for (size_t i = 0; p->plugin != NULL && p->plugin->components[i] != NULL; i++) {
        const struct atsi_component *c = p->plugin->components[i];
        const struct atsi_backend_ops *ops = c->ops;
        if (c->kind == ATSI_KIND_BACKEND && k->n_names < MAX_BACKENDS &&
            ops->probe(atsi_runtime_host(k->rt)) > 0)
            (void)snprintf(k->names[k->n_names++], sizeof k->names[0], "%s", c->name);
    }
    return 0;
}

static int choose_backends(struct kernels *k)
{
    if (backends_text == NULL)
        return atsi_runtime_plugins_each(k->rt, add_backend, k);
    for (const char *p = backends_text; *p != '\0' && k->n_names < MAX_BACKENDS;) {
        size_t n = strcspn(p, ",");
        (void)snprintf(k->names[k->n_names++], sizeof k->names[0], "%.*s", (int)(n < 60 ? n : 60),
                       p);
        p += n + (p[n] == ',');
    }
    return CLI_OK;
}

static bool type_wanted(uint32_t type)
{
    const struct atsi_type_info *ti = atsi_type_info(type);
    return ti != NULL && type != ATSI_TYPE_I32 &&
           (type_text == NULL || strcasecmp(ti->name, type_text) == 0);
}

/* Runs fn for every chosen backend and type it computes. */
typedef int cell_fn(struct kernels *k, struct kernels_backend *b, uint32_t type);

static int supported(struct kernels_backend *b, uint32_t type)
{
    struct kernels_product p;
    int yes;
    if (kernels_product_open(&p, type, 256, 16, 1, 1, 1) != ATSI_OK)
        return 0;
    yes = kernels_product_supported(b, &p);
    kernels_product_close(&p);
    return yes;
}

static int each(struct kernels *k, cell_fn *fn)
{
    int code = CLI_OK;
    for (uint32_t i = 0; i < k->n_names && code == CLI_OK; i++) {
        struct atsi_err err = ATSI_ERR_INIT;
        struct kernels_backend b;
        int rc = kernels_open(k->rt, k->names[i], &b, &err);
        if (rc != ATSI_OK)
            return cli_fail_status(rc, &err);
        for (uint32_t t = 0; t < ATSI_TYPE_COUNT && code == CLI_OK && cli_interrupted == 0; t++)
            if (type_wanted(t) && supported(&b, t) == 1)
                code = fn(k, &b, t);
        kernels_close(&b);
    }
    return cli_interrupted != 0 ? CLI_INTERRUPTED : code;
}

/* ---------------------------------------------------------------- --list */
static int list_cell(struct kernels *k, struct kernels_backend *b, uint32_t type)
{
    (void)k;
    (void)printf("%-16s %-8s %s\n", b->name, atsi_type_info(type)->name, b->detail);
    return CLI_OK;
}

/* ---------------------------------------------------------------- --check */
static int check(struct kernels *k)
{
    struct kernels_wanted wanted = {
        .op = op_text, .typed_only = type_text != NULL, .seed = (uint64_t)seed};
    struct atsi_err err = ATSI_ERR_INIT;
    struct kernels_backend ref, b;
    bool wrong = false;
    uint32_t n_checked = 0;
    int code = CLI_OK, rc = kernels_open(k->rt, "cpu_ref", &ref, &err);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    for (uint32_t t = 0; t < ATSI_TYPE_COUNT; t++)
        wanted.type[t] = type_wanted(t);
    for (uint32_t i = 0; i < k->n_names && code == CLI_OK; i++) {
        if (backends_text == NULL && strcmp(k->names[i], "cpu_ref") == 0)
            continue; /* it would be compared with itself */
        n_checked++;
        rc = kernels_open(k->rt, k->names[i], &b, &err);
        code = rc != ATSI_OK ? cli_fail_status(rc, &err) : kernels_check(&b, &ref, &wanted, &wrong);
        kernels_close(&b);
    }
    kernels_close(&ref);
    if (code == CLI_OK && n_checked == 0)
        cli_warn("nothing to compare: cpu_ref is the only backend for this CPU");
    if (code == CLI_OK && wrong)
        return cli_fail(CLI_SELF_TEST, "a kernel is wrong: do not use that backend, and report it");
    return code;
}

/* ---------------------------------------------------------------- --bench */
#define BENCH_DIM 4096u
#define DECODE_BYTES ((size_t)256 << 20) /* weights rotate over more than caches hold */

/* Median nanoseconds of one product over runs of `per_sample` products. */
static int time_product(struct kernels *k, struct kernels_backend *b, struct kernels_product *p,
                        uint32_t per_sample, double *ns)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct kernels_times t;
    int rc = kernels_product_time(k->rt, b, p, per_sample, UINT64_MAX, &t, &err);
    *ns = t.median_ns;
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

static void print_row(const struct kernels_backend *b, uint32_t type, double gbps, double gmacs)
{
    if (strcmp(format, "tsv") == 0)
        (void)printf("%s\t%s\t%.2f\t%.2f\n", b->name, atsi_type_info(type)->name, gbps, gmacs);
    else
        (void)printf("| %s | %s | %.1f | %.1f |\n", b->name, atsi_type_info(type)->name, gbps,
                     gmacs);
    (void)fflush(stdout);
}

static int bench_cell(struct kernels *k, struct kernels_backend *b, uint32_t type)
{
    bool ref =
        strcmp(b->name, "cpu_ref") == 0; /* hundreds of times slower: a small taste is enough */
    size_t bytes = (size_t)atsi_row_bytes(type, BENCH_DIM) * BENCH_DIM;
    uint32_t copies = ref || bytes == 0 ? 1 : (uint32_t)(DECODE_BYTES / bytes) + 1,
             rows = ref ? 4 : 512;
    uint32_t n_out = ref ? 64 : BENCH_DIM;
    struct kernels_product p;
    double decode = 0, prefill = 0;
    int code;
    if (kernels_product_open(&p, type, BENCH_DIM, n_out, 1, copies, (uint64_t)seed) != ATSI_OK)
        return cli_fail(CLI_NO_FIT, "out of memory");
    code = time_product(k, b, &p, copies, &decode);
    kernels_product_close(&p);
    if (code != CLI_OK)
        return code;
    n_out = ref ? 16 : 1024;
    if (kernels_product_open(&p, type, BENCH_DIM, n_out, rows, 1, (uint64_t)seed) != ATSI_OK)
        return cli_fail(CLI_NO_FIT, "out of memory");
    code = time_product(k, b, &p, 1, &prefill);
    kernels_product_close(&p);
    if (code == CLI_OK)
        print_row(b, type, (double)bytes * (ref ? 64.0 : BENCH_DIM) / BENCH_DIM / decode,
                  (double)BENCH_DIM * n_out * rows / prefill);
    return code;
}

static int bench(struct kernels *k)
{
    (void)fputs(
        strcmp(format, "tsv") == 0
            ? "backend\ttype\tdecode_gbps\tprefill_gmacs\n"
            : "| backend | type | decode GB/s | prefill GMAC/s |\n| --- | --- | ---: | ---: |\n",
        stdout);
    return each(k, bench_cell);
}

static int run_all(struct kernels *k)
{
    int code = choose_backends(k);
    if (code == CLI_OK && want_list)
        code = each(k, list_cell);
    if (code == CLI_OK && want_check)
        code = check(k);
    if (code == CLI_OK && (want_bench || (!want_list && !want_check)))
        code = bench(k);
    return cli_finish_stdout(code);
}

static int run(int argc, char **argv)
{
    struct kernels k = {0};
    int n_pos, code = cli_parse(&cli_cmd_kernels, options, argc, argv, &n_pos);
    bool known = type_text == NULL;
    if (code != -1)
        return code;
    if (n_pos > 0)
        return cli_fail(CLI_USAGE, "unexpected argument %s", argv[1]);
    if (strcmp(format, "md") != 0 && strcmp(format, "tsv") != 0)
        return cli_fail(CLI_USAGE, "-o %s: expected md or tsv", format);
    for (uint32_t t = 0; t < ATSI_TYPE_COUNT; t++)
        known = known || type_wanted(t);
    if (!known)
        return cli_fail(CLI_USAGE, "--type %s: no such weight type", type_text);
    if (op_text != NULL && !kernels_check_known(op_text))
        return cli_fail(CLI_USAGE, "--op %s: no such operation", op_text);
    code = cli_runtime(&k.rt);
    if (code == CLI_OK)
        code = run_all(&k);
    atsi_runtime_close(k.rt);
    return code;
}

const struct cli_command cli_cmd_kernels = {
    .name = "kernels",
    .summary = "compare the kernels of the CPU backends: rightness and speed",
    .usage = "atsinfer kernels [--list] [--check] [--bench] [--backend A,B] [--op O] [--type T]",
    .run = run,
};
