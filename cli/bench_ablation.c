/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer bench --ablation`: the parts of hybrid execution added one by one, as in Figure 15 of
 * the paper (arXiv 2607.10183), on the user's machine and model.
 *
 * Steps take turns, sample after sample, so that a machine that gets warm or busy treats all alike;
 * medians are compared.  Each sample has a runtime of its own: only one session fits the device.
 */
#include "cli/bench.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/session.h"

#include <stdlib.h>
#include <string.h>

#define WARM_TOKENS 4u

struct step {
    const char *name, *what;
    const char *settings[8]; /* key, value, ...; NULL ends them */
};

/* What no step promotes needs no memory for weights on the move. */
static const struct step steps[] = {
    {"base",
     "whole layers, one device at a time",
     {"plugin.policy_static.mode", "layer", "exec.async", "off", NULL}},
    {"+TP",
     "placement per tensor",
     {"plugin.policy_static.mode", "alg1", "exec.async", "off", NULL}},
    {"+TP+AC",
     "devices work at the same time",
     {"plugin.policy_static.mode", "alg1", "exec.async", "on", NULL}},
    {"+TP+AC+DT",
     "weights move, by the paper's algorithms",
     {"plugin.policy_dp.algorithm", "paper", "exec.async", "on", NULL}},
    {"+ours",
     "weights move, by the backlog scheduler",
     {"plugin.policy_dp.algorithm", "backlog", "exec.async", "on", NULL}},
};
enum { N_STEPS = sizeof steps / sizeof steps[0] };

struct result {
    double *prefill, *decode; /* [repeats] tokens per second */
    struct atsi_session_info info;
    struct atsi_accel_stats stats; /* of the last sample */
    double prefill_ts, decode_ts;  /* medians */
};

struct run {
    const struct bench_ablation *a;
    int32_t *ids;
    uint32_t sample; /* the one under way */
    struct result r[N_STEPS];
    char accel[64];
};

/* ---------------------------------------------------------------- settings */
static bool set_all(const char *const *settings)
{
    bool ok = true;
    for (; *settings != NULL && ok; settings += 2)
        ok = cli_override(settings[0], settings[1]);
    return ok;
}

static bool choose(const struct step *s)
{
    static const char *const still[] = {"policy.name",
                                        "policy_static",
                                        "plugin.policy_static.overlap",
                                        "off",
                                        "transfer.dynamic",
                                        "off",
                                        "memory.temp",
                                        "0",
                                        NULL};
    static const char *const moving[] = {"policy.name", "policy_dp", "transfer.dynamic", "on",
                                         NULL};
    static const char *const both[] = {"policy.place", "", "policy.schedule", "", NULL};
    bool moves = strncmp(s->settings[0], "plugin.policy_dp.", 17) == 0;
    return set_all(both) && set_all(moves ? moving : still) && set_all(s->settings);
}

/* ---------------------------------------------------------------- one sample */
static int truncate_to(struct atsi_session *s, uint32_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int rc = atsi_session_truncate(s, n, &err);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

static int decode(const struct run *run, struct atsi_session *s, uint32_t n)
{
    int code = CLI_OK;
    for (uint32_t i = 0; i < n && code == CLI_OK; i++)
        code = bench_eval(s, run->ids + run->a->n_prompt + i, 1);
    return code;
}

/* A prompt and some tokens first, so that plans are made and memory is touched. */
static int measure(const struct run *run, const struct atsi_host *host, struct atsi_session *s,
                   struct result *r)
{
    const struct bench_ablation *a = run->a;
    uint32_t warm = a->n_gen < WARM_TOKENS ? a->n_gen : WARM_TOKENS;
    uint64_t start, middle = 0;
    int code = bench_eval(s, run->ids, a->n_prompt);
    if (code == CLI_OK)
        code = decode(run, s, warm);
    if (code == CLI_OK)
        code = truncate_to(s, 0);
    start = host->now_ns(host->ctx);
    if (code == CLI_OK)
        code = bench_eval(s, run->ids, a->n_prompt);
    middle = host->now_ns(host->ctx);
    if (code == CLI_OK)
        code = decode(run, s, a->n_gen);
    r->prefill[run->sample] = (double)a->n_prompt * 1e9 / (double)((middle - start) | 1);
    r->decode[run->sample] =
        (double)a->n_gen * 1e9 / (double)((host->now_ns(host->ctx) - middle) | 1);
    return code;
}

static int with_session(struct run *run, const struct atsi_host *host, const struct step *step,
                        struct atsi_session *s)
{
    struct result *r = &run->r[step - steps];
    struct atsi_err err = ATSI_ERR_INIT;
    int rc = atsi_session_settle(s, &cli_interrupted, &err), code;
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    r->info.struct_size = sizeof r->info;
    atsi_session_info(s, &r->info);
    if (r->info.accel[0] == '\0')
        return cli_fail(CLI_NO_FIT,
                        "--ablation compares ways to use an accelerator, and none is in use here; "
                        "`atsinfer doctor` says why (see backend.accel and memory.vram)");
    (void)snprintf(run->accel, sizeof run->accel, "%s", r->info.accel);
    bench_random_ids(run->ids, run->a->n_prompt + run->a->n_gen, r->info.n_vocab);
    code = measure(run, host, s, r);
    atsi_session_info(s, &r->info);
    if (code == CLI_OK && r->info.n_fallbacks > 0)
        return cli_fail(CLI_RUN_ERROR, "--ablation: the accelerator was given up in step %s",
                        step->name);
    r->stats.struct_size = sizeof r->stats;
    atsi_session_accel_stats(s, &r->stats);
    return code;
}

static int one_sample(struct run *run, const struct step *step)
{
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_runtime *rt = NULL;
    struct atsi_model *m = NULL;
    struct atsi_session *s = NULL;
    size_t before = cli_common.n_overrides;
    int code = choose(step) ? cli_runtime(&rt) : CLI_USAGE;
    p.n_ctx = run->a->n_prompt + run->a->n_gen;
    if (code == CLI_OK)
        code = cli_model(rt, false, &m);
    if (code == CLI_OK)
        code = cli_session_open(m, &p, step->name, &s);
    if (code == CLI_OK)
        code = with_session(run, atsi_runtime_host(rt), step, s);
    atsi_session_close(s);
    atsi_model_close(m);
    atsi_runtime_close(rt);
    cli_forget_overrides(before);
    return code;
}

/* ---------------------------------------------------------------- the table */
static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, uint32_t n)
{
    qsort(v, n, sizeof *v, ascending);
    return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void print_md(const struct run *run)
{
    const struct result *base = &run->r[0];
    (void)printf("Medians of %u samples on %s, taken in turns; x: of base.\n\n", run->a->repeats,
                 run->accel);
    (void)printf("| step | | pp%u t/s | x | tg%u t/s | x | items there | weights moved |\n"
                 "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
                 run->a->n_prompt, run->a->n_gen);
    for (size_t i = 0; i < N_STEPS; i++) {
        const struct result *r = &run->r[i];
        char moved[32];
        (void)printf("| %s | %s | %.2f | %.2f | %.2f | %.2f | %u of %u | %s |\n", steps[i].name,
                     steps[i].what, r->prefill_ts, r->prefill_ts / base->prefill_ts, r->decode_ts,
                     r->decode_ts / base->decode_ts, r->info.n_resident, r->info.n_items,
                     cli_bytes(r->stats.weight_bytes, moved));
    }
}

static void print_csv(const struct run *run)
{
    const struct result *base = &run->r[0];
    (void)printf("step,accel,n_prompt,n_gen,samples,prefill_ts,prefill_ratio,decode_ts,"
                 "decode_ratio,n_resident,n_items,pcie_weight_bytes\n");
    for (size_t i = 0; i < N_STEPS; i++) {
        const struct result *r = &run->r[i];
        (void)printf("%s,%s,%u,%u,%u,%.6g,%.6g,%.6g,%.6g,%u,%u,%llu\n", steps[i].name, run->accel,
                     run->a->n_prompt, run->a->n_gen, run->a->repeats, r->prefill_ts,
                     r->prefill_ts / base->prefill_ts, r->decode_ts, r->decode_ts / base->decode_ts,
                     r->info.n_resident, r->info.n_items,
                     (unsigned long long)r->stats.weight_bytes);
    }
}

static json_t *step_json(const struct run *run, size_t i, bool *ok)
{
    const struct result *r = &run->r[i], *base = &run->r[0];
    json_t *o = json_object();
    cli_json_set(o, "step", json_string(steps[i].name), ok);
    cli_json_set(o, "what", json_string(steps[i].what), ok);
    cli_json_set(o, "prefill_ts", json_real(r->prefill_ts), ok);
    cli_json_set(o, "prefill_ratio", json_real(r->prefill_ts / base->prefill_ts), ok);
    cli_json_set(o, "decode_ts", json_real(r->decode_ts), ok);
    cli_json_set(o, "decode_ratio", json_real(r->decode_ts / base->decode_ts), ok);
    cli_json_set(o, "n_resident", json_integer(r->info.n_resident), ok);
    cli_json_set(o, "n_items", json_integer(r->info.n_items), ok);
    cli_json_set(o, "pcie_weight_bytes", json_integer((json_int_t)r->stats.weight_bytes), ok);
    return o;
}

static int print_json(const struct run *run)
{
    json_t *o = json_object(), *list = json_array();
    bool ok = true;
    cli_json_set(o, "accel", cli_json_text(run->accel), &ok);
    cli_json_set(o, "n_prompt", json_integer(run->a->n_prompt), &ok);
    cli_json_set(o, "n_gen", json_integer(run->a->n_gen), &ok);
    cli_json_set(o, "samples", json_integer(run->a->repeats), &ok);
    for (size_t i = 0; i < N_STEPS; i++)
        cli_json_append(list, step_json(run, i, &ok), &ok);
    cli_json_set(o, "steps", list, &ok);
    return cli_json_print(o, ok, CLI_OK);
}

static int print(struct run *run)
{
    for (size_t i = 0; i < N_STEPS; i++) {
        run->r[i].prefill_ts = median(run->r[i].prefill, run->a->repeats);
        run->r[i].decode_ts = median(run->r[i].decode, run->a->repeats);
    }
    if (strcmp(run->a->format, "json") == 0)
        return cli_finish_stdout(print_json(run));
    if (strcmp(run->a->format, "csv") == 0)
        print_csv(run);
    else
        print_md(run);
    return cli_finish_stdout(CLI_OK);
}

/* ---------------------------------------------------------------- the whole */
/* The model's file, found and said once. */
static int fix_model(void)
{
    struct atsi_runtime *rt = NULL;
    const char *path;
    int code = cli_runtime(&rt);
    if (code != CLI_OK)
        return code;
    path = cli_model_path(rt);
    code = path != NULL && cli_override("model.path", path) ? CLI_OK : CLI_USAGE;
    atsi_runtime_close(rt);
    return code;
}

int bench_ablation(const struct bench_ablation *a)
{
    struct run run = {.a = a};
    bool ok;
    int code = CLI_OK;
    run.ids = calloc((size_t)a->n_prompt + a->n_gen, sizeof *run.ids);
    ok = run.ids != NULL;
    for (size_t i = 0; i < N_STEPS; i++) {
        run.r[i].prefill = calloc(a->repeats, sizeof *run.r[i].prefill);
        run.r[i].decode = calloc(a->repeats, sizeof *run.r[i].decode);
        ok = ok && run.r[i].prefill != NULL && run.r[i].decode != NULL;
    }
    code = ok ? fix_model() : cli_fail(CLI_RUN_ERROR, "out of memory");
    for (run.sample = 0; run.sample < a->repeats && code == CLI_OK; run.sample++)
        for (size_t i = 0; i < N_STEPS && code == CLI_OK; i++)
            code = one_sample(&run, &steps[i]);
    if (code == CLI_OK)
        code = print(&run);
    for (size_t i = 0; i < N_STEPS; i++) {
        free(run.r[i].prefill);
        free(run.r[i].decode);
    }
    free(run.ids);
    return code;
}
