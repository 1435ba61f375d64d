/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer profile`: this machine as a profile that `atsinfer simulate` reads.  The CPU and its
 * memory are measured with the kernels that run models here; what an accelerator can do is taken
 * from another profile, or left to be filled in.  With -m, the costs of that model's operations on
 * this machine as well, accelerator included.
 */
#include "cli/profile.h"

#include "atsinfer/profile.h"

#include "cli/file.h"
#include "cli/options.h"
#include "cli/profiles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEAST_SHARE 0.02 /* of the bytes; types with less are left out */

static const char *out_path, *gpu_from, *name, *size_text;
static int64_t seconds = 5;
static bool as_json, force, show;

static const struct cli_option options[] = {
    {.name = "-o|--output",
     .arg = "FILE|md|json",
     .help = "write the machine profile here, not to stdout; md, json: the model's costs alone",
     .text = &out_path},
    {.name = "--force", .help = "measure the model's costs again", .flag = &force},
    {.name = "--show",
     .help = "the model's costs as they are kept; nothing is measured",
     .flag = &show},
    {.name = "--gpu-from",
     .arg = "MACHINE",
     .help = "take what is not measured from this profile: a file, or a shipped one's name",
     .text = &gpu_from},
    {.name = "--name", .arg = "NAME", .help = "of the machine", .text = &name},
    {.name = "--size",
     .arg = "SIZE",
     .help = "memory that reads walk over; default 256MiB, or four times the last cache",
     .text = &size_text},
    {.name = "--seconds",
     .arg = "N",
     .help = "of load before the sustained bandwidth is measured",
     .integer = &seconds,
     .min = 0,
     .max = 600},
    {.name = "--json", .help = "all figures with their spread, as JSON", .flag = &as_json},
    {.name = NULL},
};

/* ---------------------------------------------------------------- what to measure */
/* The backend a session gets.  Its choice does not depend on the model, so the demo model does. */
static int choose_backend(struct profile *p, const char *model)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_model_params mp = {.struct_size = sizeof mp};
    struct atsi_session_params sp = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session_info info = {.struct_size = sizeof info};
    struct atsi_model *m = NULL;
    struct atsi_session *s = NULL;
    char demo[PATH_MAX];
    bool shipped = cli_share_path("demo/demo-dense-q4_k_m.gguf", demo);
    int rc = atsi_model_open(p->rt, shipped ? demo : model, &mp, &m, &err);
    sp.n_ctx = 16;
    if (rc == ATSI_OK)
        rc = atsi_session_open(m, &sp, &s, &err);
    if (rc == ATSI_OK) {
        atsi_session_info(s, &info);
        (void)snprintf(p->backend_name, sizeof p->backend_name, "%s", info.backend);
        (void)snprintf(p->chosen, sizeof p->chosen, "%s", info.chosen);
        atsi_session_close(s);
    }
    atsi_model_close(m);
    if (rc == ATSI_OK)
        rc = kernels_open(p->rt, p->backend_name, &p->backend, &err);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

/* Bytes of weights that a token reads, by type. */
static double count_bytes(const struct atsi_graph *g, const struct atsi_loaded_info *info,
                          double by_type[ATSI_TYPE_COUNT])
{
    double total = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct atsi_graph_node *n = g->nodes[i];
        const struct atsi_tensor *w;
        double bytes;
        if (n->weight[0] < 0 || (n->kind != ATSI_OP_MATMUL && n->kind != ATSI_OP_MATMUL_ID))
            continue;
        w = info->tensors[n->weight[0]];
        bytes = (double)w->row_bytes * (double)w->ne[1];
        if (n->kind == ATSI_OP_MATMUL_ID)
            bytes *= n->p.moe.n_used;
        by_type[w->type] += bytes;
        total += bytes;
    }
    return total;
}

static bool computes(struct profile *p, uint32_t type)
{
    struct kernels_product g;
    bool yes;
    if (kernels_product_open(&g, type, 256, 16, 1, 1, 1) != ATSI_OK)
        return false;
    yes = kernels_product_supported(&p->backend, &g) == 1;
    kernels_product_close(&g);
    return yes;
}

static int choose_types(struct profile *p, const char *path)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_model_params mp = {.struct_size = sizeof mp, .no_weights = ATSI_PLAN_ONLY};
    const struct atsi_graph *g;
    struct atsi_model *m = NULL;
    double by_type[ATSI_TYPE_COUNT] = {0}, total = 0;
    int rc = atsi_model_open(p->rt, path, &mp, &m, &err);
    if (rc == ATSI_OK)
        rc = atsi_model_graph(m, &g, &err);
    if (rc == ATSI_OK)
        total = count_bytes(g, atsi_model_info(m), by_type);
    atsi_model_close(m);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    for (uint32_t t = 0; t < ATSI_TYPE_COUNT && p->n_types < PROFILE_MAX_TYPES; t++)
        if (by_type[t] > LEAST_SHARE * total && computes(p, t))
            p->types[p->n_types++] = (struct profile_type){.type = t, .share = by_type[t] / total};
    return p->n_types > 0 ? CLI_OK
                          : cli_fail(CLI_NO_FIT, "%s: backend %s computes none of its weight types",
                                     path, p->backend_name);
}

#define USUAL_BYTES (UINT64_C(256) << 20)
#define CACHE_TIMES 4u

/* Weights of that size are measured with, and at a time once more what a copy reads. */
static int choose_size(struct profile *p)
{
    const struct atsi_topo *topo = atsi_runtime_topo(p->rt);
    uint64_t cache = topo->n_caches > 0 ? topo->caches[topo->n_caches - 1].bytes : 0;
    int code = CLI_OK;
    p->bytes = cache * CACHE_TIMES > USUAL_BYTES ? cache * CACHE_TIMES : USUAL_BYTES;
    if (size_text != NULL)
        code = cli_parse_size("--size", size_text, &p->bytes);
    if (code == CLI_OK && p->bytes > topo->mem_available_bytes / 3)
        code =
            cli_fail(CLI_NO_FIT,
                     "two areas of %.0f MiB are too much for the %.0f MiB free; see "
                     "--size",
                     (double)p->bytes / 1048576.0, (double)topo->mem_available_bytes / 1048576.0);
    return code;
}

static int prepare(struct profile *p)
{
    const struct atsi_topo *topo = atsi_runtime_topo(p->rt);
    const char *path = cli_model_path(p->rt), *slash;
    char model[PATH_MAX];
    int code;
    if (path == NULL)
        return CLI_USAGE;
    (void)snprintf(model, sizeof model, "%s", path);
    slash = strrchr(model, '/');
    (void)snprintf(p->model, sizeof p->model, "%.150s", slash != NULL ? slash + 1 : model);
    (void)snprintf(p->name, sizeof p->name, "%.90s", name != NULL ? name : topo->cpu_model);
    p->n_threads = atsi_runtime_workers(p->rt, NULL, 0);
    p->load_s = (uint32_t)seconds;
    code = choose_size(p);
    if (code == CLI_OK)
        code = choose_backend(p, model);
    return code == CLI_OK ? choose_types(p, model) : code;
}

/* ---------------------------------------------------------------- measuring and writing */
static int measure(struct profile *p)
{
    int code;
    if (cli_common.level >= ATSI_LOG_WARN)
        (void)fprintf(stderr, "measuring %s with %u threads (%s)\n", p->backend_name, p->n_threads,
                      p->chosen);
    code = profile_types(p);
    if (code == CLI_OK)
        code = profile_small(p);
    if (code == CLI_OK)
        code = profile_dram(p);
    return code == CLI_OK ? profile_sustained(p) : code;
}

static int write_out(const struct profile *p, const struct profile_lines *rest, const char *from)
{
    char *text = as_json ? profile_json(p, rest, from) : profile_ini(p, rest, from);
    int code;
    if (text == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    if (out_path != NULL) {
        code = cli_write_file("-o", out_path, text, strlen(text), true);
    } else {
        (void)fputs(text, stdout); /* a failure shows at the end */
        code = cli_finish_stdout(CLI_OK);
    }
    free(text);
    return code;
}

/* Before time is spent: the folder of -o must be there. */
static int check_output(void)
{
    char folder[PATH_MAX];
    const char *slash = out_path != NULL ? strrchr(out_path, '/') : NULL;
    int n = slash != NULL
                ? snprintf(folder, sizeof folder, "%.*s", (int)(slash - out_path + 1), out_path)
                : 0;
    if (n >= (int)sizeof folder)
        return cli_fail(CLI_USAGE, "-o: the path is too long");
    if (n > 0 && access(folder, W_OK | X_OK) != 0 && access(out_path, W_OK) != 0)
        return cli_fail(CLI_RUN_ERROR, "-o: %s: %s", out_path, strerror(errno));
    return CLI_OK;
}

/* The costs of the model's operations: shown, or with the machine profile only brought up to date.
 */
static int costs(struct atsi_runtime *rt, bool shown)
{
    const char *path = cli_model_path(rt);
    struct profile_costs_params p = {.force = force, .show = show};
    struct atsi_profile *made = NULL;
    char model[PATH_MAX];
    int code = path != NULL ? CLI_OK : CLI_USAGE;
    if (code == CLI_OK) {
        (void)snprintf(model, sizeof model, "%s", path);
        p.model = model;
        code = cli_parse_size("--size", size_text, &p.room_bytes);
    }
    if (code == CLI_OK)
        code = profile_costs_open(rt, &p, &made);
    if (code == CLI_OK && shown)
        code = profile_costs_print(made, out_path != NULL && strcmp(out_path, "json") == 0);
    atsi_profile_close(made);
    return code;
}

static int show_costs(void)
{
    struct atsi_runtime *rt = NULL;
    int code = cli_runtime(&rt);
    if (code == CLI_OK)
        code = costs(rt, true);
    atsi_runtime_close(rt);
    return code;
}

static int profile(struct profile *p)
{
    struct profile_lines rest = {.n = 0};
    char from[PATH_MAX];
    int code = check_output();
    if (code == CLI_OK && gpu_from != NULL)
        code = cli_profile_find("machines", "--gpu-from", gpu_from, from);
    if (code == CLI_OK && gpu_from != NULL)
        code = profile_lines_read(from, &rest);
    if (code == CLI_OK)
        code = cli_runtime(&p->rt);
    if (code == CLI_OK)
        code = prepare(p);
    if (code == CLI_OK)
        code = measure(p);
    if (code == CLI_OK && (force || cli_option_value("model.path") != NULL))
        code = costs(p->rt, false);
    if (code == CLI_OK)
        code = write_out(p, gpu_from != NULL ? &rest : NULL, gpu_from);
    kernels_close(&p->backend);
    atsi_runtime_close(p->rt);
    profile_lines_free(&rest);
    return code;
}

static int run(int argc, char **argv)
{
    struct profile p = {.n_types = 0};
    int n_pos = 0, code = cli_parse(&cli_cmd_profile, options, argc, argv, &n_pos);
    if (code >= 0)
        return code;
    if (n_pos > 0)
        return cli_fail(CLI_USAGE, "unexpected argument \"%.60s\"", argv[1]);
    if (name != NULL && (name[0] == '\0' || strpbrk(name, "\r\n") != NULL || strlen(name) > 90))
        return cli_fail(CLI_USAGE, "--name: expected one line of at most 90 characters");
    if (force && show)
        return cli_fail(CLI_USAGE, "--force measures, --show does not: give one");
    cli_catch_signals();
    if (show ||
        (out_path != NULL && (strcmp(out_path, "md") == 0 || strcmp(out_path, "json") == 0)))
        return show_costs();
    return profile(&p);
}

const struct cli_command cli_cmd_profile = {
    .name = "profile",
    .summary = "measure this machine, and a model's operations on it",
    .usage =
        "atsinfer profile [-m MODEL] [-o FILE|md|json] [--gpu-from MACHINE] [--force | --show]",
    .run = run};
