/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer bench --vram 25%m,50%m --policy layer,backlog`: the model is loaded once and placed
 * again for each cell, a session each.  With --verify every cell's logits are compared with those
 * of the CPU alone, over the same tokens: one prompt, then token by token.
 *
 * Rows are printed as they come, so that a run that is cut short has told what it knows.
 */
#include "cli/bench_sweep.h"

#include "cli/bench.h"
#include "cli/bench_sweep_row.h"
#include "cli/options.h"
#include "cli/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CELLS 64
#define AS_SET "-" /* the policy that the settings name */
#define WARM_TOKENS 4u
#define VERIFY_PROMPT 24u
/* Kernels round differently, and a router that hesitates may choose another expert; a wrong kernel
 * gives about 1.4. */
#define VERIFY_WORST 0.5

struct sweep {
    const struct bench_sweep *p;
    struct atsi_runtime *rt;
    struct atsi_model *m;
    int32_t *ids;
    uint32_t n_ids, n_vocab;
    double *prefill, *decode; /* [repeats] */
    float *alone;             /* [n_verify + 1][n_vocab]: logits of the CPU alone */
    uint64_t begin_ns;
    uint32_t n_cells, n_skipped;
};

/* ---------------------------------------------------------------- settings */
struct alias {
    const char *word, *name, *key;
};

/* Words for --policy: a mode of policy_static, or an algorithm of policy_dp. */
static const struct alias aliases[] = {
    {"layer", "policy_static", "plugin.policy_static.mode"},
    {"expert", "policy_static", "plugin.policy_static.mode"},
    {"stream", "policy_static", "plugin.policy_static.mode"},
    {"density", "policy_static", "plugin.policy_static.mode"},
    {"alg1", "policy_static", "plugin.policy_static.mode"},
    {"paper", "policy_dp", "plugin.policy_dp.algorithm"},
    {"paper-literal", "policy_dp", "plugin.policy_dp.algorithm"},
    {"repaired", "policy_dp", "plugin.policy_dp.algorithm"},
    {"backlog", "policy_dp", "plugin.policy_dp.algorithm"},
    {"backlog-co", "policy_dp", "plugin.policy_dp.algorithm"},
};

static int set(const struct sweep *w, const char *key, const char *value)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int rc = atsi_runtime_set(w->rt, key, value, &err);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

static int set_policy(const struct sweep *w, const char *word)
{
    const char *name = word, *key = NULL;
    int code;
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(aliases[i].word, word) == 0) {
            name = aliases[i].name;
            key = aliases[i].key;
        }
    if (atsi_runtime_component(w->rt, ATSI_KIND_POLICY, name) == NULL)
        return cli_fail(CLI_USAGE, "--policy %s: no such policy; `atsinfer plugins` lists them",
                        word);
    code = set(w, "policy.name", name);
    if (code == CLI_OK)
        code = set(w, "policy.place", "");
    if (code == CLI_OK)
        code = set(w, "policy.schedule", "");
    return code == CLI_OK && key != NULL ? set(w, key, word) : code;
}

/* The next of a list with commas; false at its end. */
static bool next_word(const char **list, char out[64])
{
    size_t n = strcspn(*list, ",");
    if (**list == '\0')
        return false;
    (void)snprintf(out, 64, "%.*s", (int)(n < 63 ? n : 63), *list);
    *list += n + ((*list)[n] == ',');
    return true;
}

/* ---------------------------------------------------------------- one session */
static uint64_t now_ns(const struct sweep *w)
{
    const struct atsi_host *host = atsi_runtime_host(w->rt);
    return host->now_ns(host->ctx);
}

static int open_session(struct sweep *w, const char *label, struct atsi_session **out)
{
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_err err = ATSI_ERR_INIT;
    int code, rc;
    p.n_ctx = w->n_ids;
    code = cli_session_open(w->m, &p, label, out);
    if (code != CLI_OK)
        return code;
    rc = atsi_session_settle(*out, &cli_interrupted, &err);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

static int forget(struct atsi_session *s)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int rc = atsi_session_truncate(s, 0, &err);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

static int decode(const struct sweep *w, struct atsi_session *s, uint32_t from, uint32_t n)
{
    int code = CLI_OK;
    for (uint32_t i = 0; i < n && code == CLI_OK; i++)
        code = bench_eval(s, w->ids + from + i, 1);
    return code;
}

/* ---------------------------------------------------------------- comparing with the CPU alone */
/* Root mean square of the difference over that of `a`, both without their mean: a constant added to
 * all logits changes nothing. */
static double distance(const float *a, const float *b, uint32_t n)
{
    double mean_a = 0, mean_b = 0, diff = 0, size = 0;
    for (uint32_t i = 0; i < n; i++) {
        mean_a += a[i];
        mean_b += b[i];
    }
    mean_a /= n;
    mean_b /= n;
    for (uint32_t i = 0; i < n; i++) {
        double x = a[i] - mean_a, y = b[i] - mean_b;
        diff += (x - y) * (x - y);
        size += x * x;
    }
    return size > 0 ? sqrt(diff / size) : diff > 0 ? 1 : 0;
}

static uint32_t largest(const float *v, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (v[i] > v[best])
            best = i;
    return best;
}

/* Logits after the prompt and after each of n_verify tokens: kept, or (row) compared. */
static int walk(struct sweep *w, struct atsi_session *s, struct sweep_row *row)
{
    uint32_t n = w->p->n_verify + 1;
    int code = bench_eval(s, w->ids, VERIFY_PROMPT);
    for (uint32_t i = 0; i < n && code == CLI_OK; i++) {
        float *alone = w->alone + (size_t)i * w->n_vocab;
        const float *got = atsi_session_logits(s);
        if (row == NULL) {
            memcpy(alone, got, w->n_vocab * sizeof *alone);
        } else {
            double d = distance(alone, got, w->n_vocab);
            if (!isnan(row->verify_worst) && !(d <= row->verify_worst))
                row->verify_worst = d;
            row->verify_same += largest(alone, w->n_vocab) == largest(got, w->n_vocab);
        }
        if (i + 1 < n)
            code = bench_eval(s, w->ids + VERIFY_PROMPT + i, 1);
    }
    return code == CLI_OK ? forget(s) : code;
}

static int compute_alone(struct sweep *w)
{
    struct atsi_session *s = NULL;
    int code;
    w->alone = calloc((size_t)(w->p->n_verify + 1) * w->n_vocab, sizeof *w->alone);
    if (w->alone == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    code = set(w, "memory.vram", "0");
    if (code == CLI_OK)
        code = open_session(w, "CPU", &s);
    if (code == CLI_OK)
        code = walk(w, s, NULL);
    atsi_session_close(s);
    return code;
}

static int verify(struct sweep *w, struct atsi_session *s, struct sweep_row *row)
{
    int code;
    if (w->alone == NULL)
        return CLI_OK;
    row->verify_n = w->p->n_verify + 1;
    code = walk(w, s, row);
    if (code == CLI_OK && !(row->verify_worst <= VERIFY_WORST))
        return cli_fail(CLI_SELF_TEST,
                        "--vram %s --policy %s: logits differ from the CPU's by %.3g of their size "
                        "(at most %.1f is rounding)",
                        row->vram, row->policy, row->verify_worst, VERIFY_WORST);
    return code;
}

/* ---------------------------------------------------------------- measuring */
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

static int sample(struct sweep *w, struct atsi_session *s, double *prefill_ts, double *decode_ts)
{
    const struct bench_sweep *p = w->p;
    uint64_t start = now_ns(w), middle;
    int code = bench_eval(s, w->ids, p->n_prompt);
    middle = now_ns(w);
    if (code == CLI_OK)
        code = decode(w, s, p->n_prompt, p->n_gen);
    *prefill_ts = (double)p->n_prompt * 1e9 / (double)((middle - start) | 1);
    *decode_ts = (double)p->n_gen * 1e9 / (double)((now_ns(w) - middle) | 1);
    return code == CLI_OK ? forget(s) : code;
}

/* A prompt and some tokens first, so that plans are made and memory is touched. */
static int measure(struct sweep *w, struct atsi_session *s, struct sweep_row *row)
{
    const struct bench_sweep *p = w->p;
    int code = bench_eval(s, w->ids, p->n_prompt);
    if (code == CLI_OK)
        code = decode(w, s, p->n_prompt, p->n_gen < WARM_TOKENS ? p->n_gen : WARM_TOKENS);
    if (code == CLI_OK)
        code = forget(s);
    for (uint32_t i = 0; i < p->repeats && code == CLI_OK; i++)
        code = sample(w, s, &w->prefill[i], &w->decode[i]);
    if (code != CLI_OK)
        return code;
    row->prefill_ts = p->n_prompt > 0 ? median(w->prefill, p->repeats) : 0;
    row->decode_ts = p->n_gen > 0 ? median(w->decode, p->repeats) : 0;
    return CLI_OK;
}

static double share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

static void describe(const struct atsi_session *s, struct sweep_row *row)
{
    struct atsi_session_info info = {.struct_size = sizeof info};
    struct atsi_accel_stats all = {.struct_size = sizeof all};
    atsi_session_info(s, &info);
    atsi_session_accel_stats(s, &all);
    row->accel = info.accel;
    row->backend = info.backend;
    row->n_items = info.n_items;
    row->n_resident = info.n_resident;
    row->weights_there = info.accel_weights;
    row->slots_there = info.accel_slots;
    row->caches_there = info.accel_caches;
    row->pinned = info.pinned_bytes;
    row->weights_moved = all.weight_bytes;
    row->cpu_share = share(all.decode.busy_ns[0], all.decode.measured_ns);
    row->stream_share = share(all.decode.busy_ns[1], all.decode.measured_ns);
    row->transfer_share = share(all.decode.busy_ns[2], all.decode.measured_ns);
    row->exposed_share = share(all.decode.exposed_ns, all.decode.measured_ns);
    row->predicted_ms = share(all.decode.predicted_ns, all.decode.n_predicted) / 1e6;
    row->observed_ms = share(all.decode.observed_ns, all.decode.n_predicted) / 1e6;
    row->plans_refused = all.n_refused;
    row->fallbacks = info.n_fallbacks;
}

static int run_cell(struct sweep *w, const char *vram, const char *policy)
{
    struct sweep_row row = {.model = cli_model_path(w->rt),
                            .vram = vram,
                            .policy = policy,
                            .n_prompt = w->p->n_prompt,
                            .n_gen = w->p->n_gen,
                            .repeats = w->p->repeats};
    struct atsi_session *s = NULL;
    char label[160];
    uint64_t start = now_ns(w);
    int code = set(w, "memory.vram", vram);
    if (code == CLI_OK && strcmp(policy, AS_SET) != 0)
        code = set_policy(w, policy);
    (void)snprintf(label, sizeof label, "%s %s", vram, policy);
    if (code == CLI_OK)
        code = open_session(w, label, &s);
    row.open_s = (double)(now_ns(w) - start) / 1e9;
    if (code == CLI_OK)
        code = verify(w, s, &row);
    if (code == CLI_OK)
        code = measure(w, s, &row);
    if (code == CLI_OK) {
        describe(s, &row);
        sweep_print(w->p->format, &row);
    }
    atsi_session_close(s);
    return code;
}

/* ---------------------------------------------------------------- the whole */
static bool over(const struct sweep *w)
{
    return w->p->limit_s > 0 && now_ns(w) - w->begin_ns > (uint64_t)w->p->limit_s * 1000000000u;
}

static int run_cells(struct sweep *w)
{
    char vram[64], policy[64];
    int code = CLI_OK;
    for (const char *v = w->p->vrams; next_word(&v, vram);)
        for (const char *p = w->p->policies; next_word(&p, policy);) {
            int one;
            if (cli_interrupted != 0)
                return CLI_INTERRUPTED;
            if (over(w) || w->n_cells >= MAX_CELLS) {
                w->n_skipped++;
                continue;
            }
            w->n_cells++;
            one = run_cell(w, vram, policy);
            code = one != CLI_OK ? one : code;
            if (strcmp(vram, "0") == 0)
                break; /* nothing to place */
        }
    if (w->n_skipped > 0)
        cli_warn("%u of %u cells were not begun (--limit)", w->n_skipped,
                 w->n_cells + w->n_skipped);
    return code;
}

static int prepare(struct sweep *w)
{
    const struct bench_sweep *p = w->p;
    const struct atsi_graph *g = NULL;
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t timed = p->n_prompt + p->n_gen, verified = VERIFY_PROMPT + p->n_verify + 1;
    int rc = atsi_model_graph(w->m, &g, &err);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    w->n_vocab = g->n_vocab;
    w->n_ids = p->n_verify > 0 && verified > timed ? verified : timed;
    w->ids = calloc(w->n_ids, sizeof *w->ids);
    w->prefill = calloc(p->repeats, sizeof *w->prefill);
    w->decode = calloc(p->repeats, sizeof *w->decode);
    if (w->ids == NULL || w->prefill == NULL || w->decode == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    bench_random_ids(w->ids, w->n_ids, w->n_vocab);
    return p->n_verify > 0 ? compute_alone(w) : CLI_OK;
}

int bench_sweep(const struct bench_sweep *params)
{
    struct bench_sweep p = *params;
    struct sweep w = {.p = &p};
    char vram[64];
    int code;
    if (!sweep_format_known(p.format))
        return cli_fail(CLI_USAGE, "--vram, --policy: -o %s: expected md, csv, json or jsonl",
                        p.format);
    code = cli_runtime(&w.rt);
    if (code == CLI_OK)
        code = cli_model(w.rt, false, &w.m);
    if (code != CLI_OK)
        goto done;
    w.begin_ns = now_ns(&w);
    if (p.vrams == NULL) { /* copied: setting it frees the text */
        (void)snprintf(vram, sizeof vram, "%s", atsi_runtime_conf(w.rt, "memory.vram"));
        p.vrams = vram;
    }
    p.policies = p.policies != NULL ? p.policies : AS_SET;
    code = prepare(&w);
    if (code == CLI_OK) {
        sweep_begin(p.format, p.n_prompt, p.n_gen);
        code = run_cells(&w);
        sweep_end(p.format);
    }
done:
    free(w.ids);
    free(w.prefill);
    free(w.decode);
    free(w.alone);
    atsi_model_close(w.m);
    atsi_runtime_close(w.rt);
    return cli_finish_stdout(cli_session_finish(code));
}
