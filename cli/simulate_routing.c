/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer simulate --routing`: a routing trace, recorded or made, decoded with expert caches of
 * several sizes: how many choices are hits, and what a token takes.
 */
#include "atsinfer/routing.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/policy_spec.h"
#include "cli/simulate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sim_routing_args sim_routing_args = {.half_life = 128, .copy_percent = 10, .copy_hits = 3};

#define MOST_ROWS 512u

struct row {
    char policy[64];
    uint64_t vram;
    uint32_t way;
    struct atsi_cache_result r;
};

struct table {
    struct atsi_sim_params *p;
    const struct atsi_routing *routing;
    struct row rows[MOST_ROWS];
    size_t n;
};

/* ---------------------------------------------------------------- the trace */
/* Whole numbers, then shares and exponents, in the order of their targets. */
static int take_key(struct atsi_routing_skew *k, const char *key, const char *value)
{
    const struct {
        const char *name;
        uint32_t *whole;
        uint64_t *large;
        double *real;
    } keys[] = {{"layers", &k->n_layers, NULL, NULL}, {"experts", &k->n_experts, NULL, NULL},
                {"used", &k->n_used, NULL, NULL},     {"tokens", NULL, &k->n_tokens, NULL},
                {"seed", NULL, &k->seed, NULL},       {"zipf", NULL, NULL, &k->zipf},
                {"drift", NULL, NULL, &k->drift},     {"follow", NULL, NULL, &k->follow},
                {"repeat", NULL, NULL, &k->repeat}};
    char *end;
    double v = strtod(value, &end);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(keys[i].name, key) != 0)
            continue;
        if (end == value || *end != '\0' || !(v >= 0 && v <= 1e9) ||
            (keys[i].real == NULL && v != floor(v)))
            return cli_fail(CLI_USAGE, "--routing-skew: %s=%.40s: expected a %snumber of 0..1e9",
                            key, value, keys[i].real == NULL ? "whole " : "");
        if (keys[i].whole != NULL)
            *keys[i].whole = (uint32_t)v;
        else if (keys[i].large != NULL)
            *keys[i].large = (uint64_t)v;
        else
            *keys[i].real = v;
        return CLI_OK;
    }
    return cli_fail(CLI_USAGE,
                    "--routing-skew: unknown \"%.40s\"; there are layers, experts, used, tokens, "
                    "zipf, drift, follow, repeat, seed",
                    key);
}

static int parse_skew(struct atsi_routing_skew *k)
{
    char *list = strdup(sim_routing_args.skew), *save = NULL;
    int code = list != NULL ? CLI_OK : cli_fail(CLI_RUN_ERROR, "out of memory");
    *k = (struct atsi_routing_skew){.struct_size = sizeof *k, .n_tokens = 2000, .seed = 1};
    for (char *word = list != NULL ? strtok_r(list, ",", &save) : NULL;
         word != NULL && code == CLI_OK; word = strtok_r(NULL, ",", &save)) {
        char *value = strchr(word, '=');
        if (value == NULL) {
            code = cli_fail(CLI_USAGE, "--routing-skew: \"%.40s\": expected KEY=NUMBER", word);
            break;
        }
        *value = '\0';
        code = take_key(k, word, value + 1);
    }
    free(list);
    return code;
}

static int get_trace(struct atsi_routing **out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_routing_skew k;
    int rc, code;
    *out = NULL;
    if (sim_routing_args.path != NULL && sim_routing_args.skew != NULL)
        return cli_fail(CLI_USAGE, "--routing and --routing-skew exclude each other");
    if (sim_routing_args.path != NULL) {
        rc = atsi_routing_read(sim_routing_args.path, out, &err);
        return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
    }
    if (sim_routing_args.skew == NULL)
        return cli_fail(CLI_USAGE, "--routing or --routing-skew is needed");
    code = parse_skew(&k);
    if (code != CLI_OK)
        return code;
    rc = atsi_routing_generate(&k, out, &err);
    if (rc == ATSI_OK && sim_routing_args.out != NULL)
        rc = atsi_routing_write(*out, sim_routing_args.out, &err);
    if (rc == ATSI_OK)
        return CLI_OK;
    atsi_routing_free(*out);
    *out = NULL;
    return cli_fail(rc == ATSI_EINVAL ? CLI_USAGE : cli_exit_code(rc), "%s", err.msg);
}

/* ---------------------------------------------------------------- hits alone */
static const struct {
    const char *name;
    uint32_t way;
} replayed[] = {{"fade", ATSI_CACHE_POLICY},
                {"lru", ATSI_CACHE_LRU},
                {"lfu", ATSI_CACHE_LFU},
                {"clairvoyant", ATSI_CACHE_CLAIRVOYANT}};

static int replay_size(const struct atsi_routing *r, uint32_t n_slots)
{
    struct atsi_routing_info info = {.struct_size = sizeof info};
    atsi_routing_info(r, &info);
    (void)printf("| %u |", n_slots);
    for (size_t k = 0; k < sizeof replayed / sizeof replayed[0]; k++) {
        const struct atsi_replay_params p = {.struct_size = sizeof p,
                                             .way = replayed[k].way,
                                             .routing = r,
                                             .half_life = sim_routing_args.half_life,
                                             .copy_hits = sim_routing_args.copy_hits,
                                             .n_slots = n_slots};
        struct atsi_err err = ATSI_ERR_INIT;
        struct atsi_replay_result out;
        int rc = atsi_routing_replay(&p, &out, &err);
        if (rc != ATSI_OK)
            return cli_fail_status(rc, &err);
        (void)printf(" %.1f (%.2f) |",
                     100.0 * (double)out.hits / (double)(out.hits + out.misses + (out.hits == 0)),
                     (double)out.swaps / (double)(info.n_tokens > 0 ? info.n_tokens : 1));
    }
    (void)printf("\n");
    return CLI_OK;
}

/* A table of hits by slots per layer. */
static int replay(const struct atsi_routing *r)
{
    struct atsi_routing_info info = {.struct_size = sizeof info};
    char *list = strdup(sim_routing_args.slots), *save = NULL;
    int code = list != NULL ? CLI_OK : cli_fail(CLI_RUN_ERROR, "out of memory");
    atsi_routing_info(r, &info);
    (void)printf("Replayed: trace \"%s\", %u layers, %" PRIu64 " tokens; half-life %g tokens, a "
                 "copy costs %g hits\n\n| slots per layer | fade: hits %% (copies per token) | lru "
                 "| lfu | clairvoyant |\n|---|---|---|---|---|\n",
                 info.model, info.n_layers, info.n_tokens, sim_routing_args.half_life,
                 sim_routing_args.copy_hits);
    for (char *word = list != NULL ? strtok_r(list, ",", &save) : NULL;
         word != NULL && code == CLI_OK; word = strtok_r(NULL, ",", &save)) {
        char *end;
        unsigned long n = strtoul(word, &end, 10);
        code = end == word || *end != '\0' || word[0] == '-' || n > 65535
                   ? cli_fail(CLI_USAGE, "--cache-slots: %.40s: expected numbers of 0..65535", word)
                   : replay_size(r, (uint32_t)n);
    }
    free(list);
    return code;
}

int sim_routing_alone(void)
{
    struct atsi_routing *r = NULL;
    int code = get_trace(&r);
    if (code == CLI_OK && sim_routing_args.slots != NULL)
        code = replay(r);
    atsi_routing_free(r);
    return code == CLI_OK ? cli_finish_stdout(CLI_OK) : code;
}

/* ---------------------------------------------------------------- simulating */
static const char *const way_names[] = {[ATSI_CACHE_POLICY] = "policy",
                                        [ATSI_CACHE_LRU] = "lru",
                                        [ATSI_CACHE_LFU] = "lfu",
                                        [ATSI_CACHE_CLAIRVOYANT] = "clairvoyant",
                                        [ATSI_CACHE_NONE] = "none"};
static const uint32_t ways[] = {ATSI_CACHE_NONE, ATSI_CACHE_POLICY, ATSI_CACHE_LRU, ATSI_CACHE_LFU,
                                ATSI_CACHE_CLAIRVOYANT};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

static int simulate_row(struct table *t, struct row *row)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_runtime *rt = NULL;
    const struct atsi_cache_params c = {.struct_size = sizeof c,
                                        .way = row->way,
                                        .routing = t->routing,
                                        .half_life = sim_routing_args.half_life,
                                        .copy_permille =
                                            (uint32_t)lround(10 * sim_routing_args.copy_percent)};
    size_t before = cli_common.n_overrides;
    int code = cli_policy_spec(row->policy, &t->p->mode), rc;
    if (code == CLI_OK)
        code = cli_runtime(&rt);
    if (code == CLI_OK) {
        t->p->vram_bytes = row->vram;
        t->p->say_ctx = row->policy;
        rc = atsi_simulate_routing(rt, t->p, &c, &row->r, &err);
        if (rc != ATSI_OK)
            code = cli_fail_status(rc, &err);
        atsi_runtime_close(rt);
    }
    cli_forget_overrides(before);
    return code == CLI_OK && cli_interrupted != 0 ? CLI_INTERRUPTED : code;
}

static int simulate_size(struct table *t, const char *policy, uint64_t vram)
{
    int code = CLI_OK;
    for (uint32_t w = 0; w < N_WAYS && code == CLI_OK; w++) {
        struct row *row = &t->rows[t->n];
        if (t->n == MOST_ROWS)
            return cli_fail(CLI_USAGE, "more than %u rows: fewer policies or sizes", MOST_ROWS);
        (void)snprintf(row->policy, sizeof row->policy, "%.60s", policy);
        row->vram = vram;
        row->way = ways[w];
        code = simulate_row(t, row);
        t->n++;
    }
    return code;
}

/* Every size of a list; NULL: the machine's. */
static int simulate_sizes(struct table *t, const char *policy, const char *vram)
{
    char *list = strdup(vram != NULL ? vram : ""), *save = NULL;
    int code = list != NULL ? CLI_OK : cli_fail(CLI_RUN_ERROR, "out of memory");
    if (code == CLI_OK && vram == NULL)
        code = simulate_size(t, policy, 0);
    for (char *word = list != NULL ? strtok_r(list, ",", &save) : NULL;
         word != NULL && code == CLI_OK; word = strtok_r(NULL, ",", &save)) {
        uint64_t bytes = 0;
        code = cli_parse_size("--vram", word, &bytes);
        if (code == CLI_OK)
            code = simulate_size(t, policy, bytes);
    }
    free(list);
    return code;
}

static int simulate_all(struct table *t, const char *policies, const char *vram)
{
    char *list = strdup(policies != NULL ? policies : "backlog-co"), *save = NULL;
    int code = list != NULL ? CLI_OK : cli_fail(CLI_RUN_ERROR, "out of memory");
    for (char *word = list != NULL ? strtok_r(list, ",", &save) : NULL;
         word != NULL && code == CLI_OK; word = strtok_r(NULL, ",", &save))
        code = simulate_sizes(t, word, vram);
    free(list);
    if (code == CLI_OK && t->n == 0)
        code = cli_fail(CLI_USAGE, "--policy and --vram name nothing to simulate");
    return code;
}

/* ---------------------------------------------------------------- the table */
static double percent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static double hit_percent(const struct row *r)
{
    return percent(r->r.hits, r->r.hits + r->r.misses);
}

static double copies(const struct row *r)
{
    return r->r.n_tokens > 0 ? (double)r->r.swaps / (double)r->r.n_tokens : 0.0;
}

/* Time of a token against that without a cache, of the same policy and size: the row that began
 * them. */
static double gain(const struct table *t, size_t i)
{
    const struct row *none = &t->rows[i / N_WAYS * N_WAYS];
    return none->r.tpot_ns > 0
               ? 100.0 * ((double)t->rows[i].r.tpot_ns / (double)none->r.tpot_ns - 1)
               : 0.0;
}

static void print_md(const struct table *t)
{
    struct atsi_routing_info info = {.struct_size = sizeof info};
    atsi_routing_info(t->routing, &info);
    (void)printf("Simulated, not measured: %s on %s; trace \"%s\", %" PRIu64
                 " tokens; half-life %g tokens, copies at most %g %% of a round\n\n",
                 t->p->model, t->p->machine, info.model, t->rows[0].r.n_tokens,
                 sim_routing_args.half_life, sim_routing_args.copy_percent);
    (void)printf(
        "| policy | budget MiB | experts in slots %% | cache | hits %% | copies per token | "
        "TPOT ms | against none %% |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < t->n; i++) {
        const struct row *r = &t->rows[i];
        (void)printf("| %s | %.0f | %.1f | %s | %.1f | %.2f | %.2f | %+.1f |\n", r->policy,
                     (double)r->r.budget_bytes / 1048576.0, percent(r->r.n_slots, r->r.n_experts),
                     way_names[r->way], hit_percent(r), copies(r), (double)r->r.tpot_ns / 1e6,
                     gain(t, i));
    }
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i].r.refused > 0)
            (void)printf("\n%s, %s: %" PRIu64 " answers were refused\n", t->rows[i].policy,
                         way_names[t->rows[i].way], t->rows[i].r.refused);
}

static void print_csv(const struct table *t)
{
    (void)printf("policy,simulated,budget_bytes,slots,experts,cache,tokens,hits,misses,copies,"
                 "tpot_ms,refused\n");
    for (size_t i = 0; i < t->n; i++) {
        const struct atsi_cache_result *r = &t->rows[i].r;
        (void)printf("%s,yes,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%s,%" PRIu64 ",%" PRIu64
                     ",%" PRIu64 ",%" PRIu64 ",%.4f,%" PRIu64 "\n",
                     t->rows[i].policy, r->budget_bytes, r->n_slots, r->n_experts,
                     way_names[t->rows[i].way], r->n_tokens, r->hits, r->misses, r->swaps,
                     (double)r->tpot_ns / 1e6, r->refused);
    }
}

static int print_json(const struct table *t)
{
    json_t *o = json_object(), *a = json_array();
    bool ok = true;
    cli_json_set(o, "simulated", json_true(), &ok);
    cli_json_set(o, "model", cli_json_text(t->p->model), &ok);
    cli_json_set(o, "machine", cli_json_text(t->p->machine), &ok);
    cli_json_set(o, "half_life", json_real(sim_routing_args.half_life), &ok);
    for (size_t i = 0; i < t->n; i++) {
        const struct row *r = &t->rows[i];
        json_t *e = json_object();
        cli_json_set(e, "policy", cli_json_text(r->policy), &ok);
        cli_json_set(e, "cache", cli_json_text(way_names[r->way]), &ok);
        cli_json_set(e, "budget_bytes", json_integer((json_int_t)r->r.budget_bytes), &ok);
        cli_json_set(e, "slots", json_integer((json_int_t)r->r.n_slots), &ok);
        cli_json_set(e, "experts", json_integer((json_int_t)r->r.n_experts), &ok);
        cli_json_set(e, "tokens", json_integer((json_int_t)r->r.n_tokens), &ok);
        cli_json_set(e, "hits", json_integer((json_int_t)r->r.hits), &ok);
        cli_json_set(e, "misses", json_integer((json_int_t)r->r.misses), &ok);
        cli_json_set(e, "copies", json_integer((json_int_t)r->r.swaps), &ok);
        cli_json_set(e, "tpot_ms", json_real((double)r->r.tpot_ns / 1e6), &ok);
        cli_json_set(e, "refused", json_integer((json_int_t)r->r.refused), &ok);
        cli_json_append(a, e, &ok);
    }
    cli_json_set(o, "rows", a, &ok);
    return cli_json_print(o, ok, CLI_OK);
}

static int print(const struct table *t, const char *format)
{
    if (strcmp(format, "json") == 0)
        return print_json(t);
    if (strcmp(format, "csv") == 0)
        print_csv(t);
    else
        print_md(t);
    return CLI_OK;
}

int sim_routing(struct atsi_sim_params *p, const char *policies, const char *vram,
                const char *format)
{
    struct table *t = calloc(1, sizeof *t);
    struct atsi_routing *r = NULL;
    int code;
    if (t == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    code = get_trace(&r);
    if (code == CLI_OK) {
        t->p = p;
        t->routing = r;
        code = simulate_all(t, policies, vram);
    }
    if (code == CLI_OK)
        code = print(t, format);
    atsi_routing_free(r);
    free(t);
    return code == CLI_OK ? cli_finish_stdout(CLI_OK) : code;
}
