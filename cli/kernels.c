/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer kernels`: the kernels of every backend on this machine, compared: against the reference
 * for rightness, against each other, the machine's limits and an older table for speed.
 */
#include "cli/kernels_bench.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *backends_text, *type_text, *op_text, *layout_text, *format = "md";
static const char *shapes_text = "4096x4096", *save_path, *compare_path;
static bool want_list, want_check, want_bench;
static int64_t seed = 1;

static const struct cli_option options[] = {
    {.name = "--list", .help = "backends and the weight types each computes", .flag = &want_list},
    {.name = "--check",
     .help = "compare each with cpu_ref; exit code 4 when one is wrong",
     .flag = &want_check},
    {.name = "--bench",
     .help = "time each in turns: speed, share of what the machine allows, ratio to cpu_ref (the "
             "default)",
     .flag = &want_bench},
    {.name = "--backend", .arg = "A,B", .help = "only these backends", .text = &backends_text},
    {.name = "--op", .arg = "OP", .help = "only this operation (matmul)", .text = &op_text},
    {.name = "--type", .arg = "TYPE", .help = "only this weight type (Q4_K)", .text = &type_text},
    {.name = "--seed",
     .arg = "N",
     .help = "of the random numbers",
     .integer = &seed,
     .min = 0,
     .max = 9e15},
    {.name = "--layout",
     .arg = "rows|panels",
     .help = "time only weights in this layout",
     .text = &layout_text},
    {.name = "--shape",
     .arg = "KxN,..",
     .help = "time products of these shapes (4096x4096)",
     .text = &shapes_text},
    {.name = "--save", .arg = "FILE", .help = "write the table, for --compare", .text = &save_path},
    {.name = "--compare",
     .arg = "FILE",
     .help = "mark what is slower than in a saved table, beyond the spread of both; exit code 4 "
             "when anything is",
     .text = &compare_path},
    {.name = "-o|--output", .arg = "FORMAT", .help = "md, csv or json", .text = &format},
    {.name = NULL},
};

struct kernels {
    struct atsi_runtime *rt;
    char names[KERNELS_MAX_BACKENDS][64];
    uint32_t n_names;
};

/* ---------------------------------------------------------------- which backends and types */
static int add_backend(void *ctx, const struct atsi_plugin_info *p)
{
    struct kernels *k = ctx;
    for (size_t i = 0; p->plugin != NULL && p->plugin->components[i] != NULL; i++) {
        const struct atsi_component *c = p->plugin->components[i];
        const struct atsi_backend_ops *ops = c->ops;
        if (c->kind == ATSI_KIND_BACKEND && k->n_names < KERNELS_MAX_BACKENDS &&
            ops->probe(atsi_runtime_host(k->rt)) > 0)
            (void)snprintf(k->names[k->n_names++], sizeof k->names[0], "%s", c->name);
    }
    return 0;
}

static int choose_backends(struct kernels *k)
{
    if (backends_text == NULL)
        return atsi_runtime_plugins_each(k->rt, add_backend, k);
    for (const char *p = backends_text; *p != '\0' && k->n_names < KERNELS_MAX_BACKENDS;) {
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
static int parse_shapes(struct kernels_plan *plan)
{
    const char *p = shapes_text;
    for (;;) {
        char *end;
        long k = strtol(p, &end, 10), n = 0;
        if (end != p && *end == 'x' && k > 0)
            n = strtol(p = end + 1, &end, 10);
        if (end == p || (*end != ',' && *end != '\0') || k < 32 || k > 1 << 20 || k % 32 != 0 ||
            n < 1 || n > 1 << 20 || (uint64_t)k * (uint64_t)n > UINT64_C(1) << 32)
            return cli_fail(CLI_USAGE,
                            "--shape %s: expected COLUMNSxROWS,.. such as 4096x4096, columns in "
                            "multiples of 32",
                            shapes_text);
        if (plan->n_shapes == KERNELS_MAX_SHAPES)
            return cli_fail(CLI_USAGE, "--shape: at most %d", KERNELS_MAX_SHAPES);
        plan->shapes[plan->n_shapes++] = (struct kernels_shape){(uint32_t)k, (uint32_t)n};
        if (*end == '\0')
            return CLI_OK;
        p = end + 1;
    }
}

static int make_plan(struct kernels_plan *plan)
{
    *plan = (struct kernels_plan){.op = op_text,
                                  .layout = layout_text,
                                  .typed_only = type_text != NULL || layout_text != NULL,
                                  .seed = (uint64_t)seed};
    for (uint32_t t = 0; t < ATSI_TYPE_COUNT; t++)
        plan->type[t] = type_wanted(t);
    if (op_text != NULL && !kernels_case_known(op_text))
        return cli_fail(CLI_USAGE,
                        "--op %s: not one of those that are timed (matmul, matmul_id, "
                        "attn, rms_norm, rope, swiglu, topk, delta_net)",
                        op_text);
    if (layout_text != NULL && strcmp(layout_text, "rows") != 0 &&
        strcmp(layout_text, "panels") != 0)
        return cli_fail(CLI_USAGE, "--layout %s: expected rows or panels", layout_text);
    return parse_shapes(plan);
}

/* The chosen backends; cpu_ref is opened in any case, for the ratio. */
static int open_field(struct kernels *k, struct kernels_backend opened[], struct kernels_field *f)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int rc = ATSI_OK;
    f->rt = k->rt;
    for (uint32_t i = 0; i < k->n_names && rc == ATSI_OK; i++) {
        rc = kernels_open(k->rt, k->names[i], &opened[i], &err);
        if (rc != ATSI_OK)
            break;
        if (opened[i].link != NULL) {
            f->there[f->n_there++] = &opened[i];
            continue;
        }
        f->backends[f->n++] = &opened[i];
        if (strcmp(k->names[i], "cpu_ref") == 0)
            f->ref = &opened[i];
    }
    if (rc == ATSI_OK && f->ref == NULL) {
        f->ref = &opened[KERNELS_MAX_BACKENDS];
        rc = kernels_open(k->rt, "cpu_ref", f->ref, &err);
    }
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

static int finish_table(const struct kernels_table *t)
{
    uint32_t n = 0;
    int code = save_path != NULL ? kernels_table_save(t, save_path) : CLI_OK;
    for (uint32_t i = 0; i < t->n; i++)
        n += t->rows[i].slower;
    if (code == CLI_OK && n > 0)
        return cli_fail(CLI_SELF_TEST, "%u of %u kernels are slower than in %s", n, t->n,
                        compare_path);
    return code;
}

static int bench(struct kernels *k)
{
    struct kernels_backend opened[KERNELS_MAX_BACKENDS + 1];
    struct kernels_field f = {.n = 0};
    struct kernels_table table = {.rows = NULL}, old = {.rows = NULL};
    struct kernels_plan plan;
    int code = make_plan(&plan);
    memset(opened, 0, sizeof opened);
    if (code == CLI_OK && compare_path != NULL)
        code = kernels_table_load(compare_path, &old);
    if (code == CLI_OK)
        code = open_field(k, opened, &f);
    if (code == CLI_OK && f.n + f.n_there == 0)
        code = cli_fail(CLI_NO_FIT, "no backend to time; `atsinfer plugins` says why");
    if (code == CLI_OK)
        code = kernels_bench(&f, &plan, format, compare_path != NULL ? &old : NULL, &table);
    if (code == CLI_OK)
        code = finish_table(&table);
    for (uint32_t i = 0; i <= KERNELS_MAX_BACKENDS; i++)
        kernels_close(&opened[i]);
    kernels_table_free(&table);
    kernels_table_free(&old);
    return code;
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
    if (!kernels_table_format_known(format))
        return cli_fail(CLI_USAGE, "-o %s: expected md, csv or json", format);
    for (uint32_t t = 0; t < ATSI_TYPE_COUNT; t++)
        known = known || type_wanted(t);
    if (!known)
        return cli_fail(CLI_USAGE, "--type %s: no such weight type", type_text);
    if (op_text != NULL && want_check && !kernels_check_known(op_text))
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
    .usage = "atsinfer kernels [--list] [--check] [--bench] [--backend A,B] [--op O] [--type T] "
             "[--save FILE] [--compare FILE]",
    .run = run,
};
