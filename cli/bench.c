/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer bench`: prompt and generation speed in llama-bench's terms, beside what memory allows.
 */
#include "cli/bench.h"
#include "cli/bench_rival.h"
#include "cli/bench_sweep.h"
#include "cli/options.h"
#include "cli/session.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_VALUES 16
#define MAX_REPEATS 100
#define READS_PER_SAMPLE 5 /* passes over memory between samples of generation */

static const char *prompts = "512", *gens = "128", *depths = "0", *threads, *format_name = "md";
static int64_t repeats = 5;
static bool bandwidth_only, no_warmup, ablation;
static struct cli_texts rival_texts;

/* The model under several budgets and policies. */
static const char *sweep_vrams, *sweep_policies;
static int64_t sweep_verify, sweep_limit;

static const struct cli_option options[] = {
    {.name = "-p|--n-prompt",
     .arg = "N,..",
     .help = "prompt lengths to time, 0: none",
     .text = &prompts},
    {.name = "-n|--n-gen", .arg = "N,..", .help = "tokens to generate, 0: none", .text = &gens},
    {.name = "-d|--n-depth",
     .arg = "N,..",
     .help = "tokens in the context before each test",
     .text = &depths},
    {.name = "-t|--threads", .arg = "N,..", .help = "worker threads", .text = &threads},
    {.name = "-r|--repetitions",
     .arg = "N",
     .help = "samples per test",
     .integer = &repeats,
     .min = 1,
     .max = MAX_REPEATS},
    {.name = "-o|--output",
     .arg = "FORMAT",
     .help = "md, csv, json, jsonl or sql",
     .text = &format_name},
    {.name = "--no-warmup", .help = "no untimed run before each test", .flag = &no_warmup},
    {.name = "--vram",
     .arg = "B,..",
     .help = "budgets of accelerator memory (memory.vram) to place the model under, one by one: "
             "25%m,50%m,6GiB; 0: the CPU alone",
     .text = &sweep_vrams},
    {.name = "--policy",
     .arg = "P,..",
     .help = "policies for each budget: layer, expert, stream, density, alg1, paper, repaired, "
             "backlog, backlog-co, or a policy's name",
     .text = &sweep_policies},
    {.name = "--verify",
     .arg = "N",
     .help = "with --vram or --policy: compare the logits of N rounds with the CPU's alone",
     .integer = &sweep_verify,
     .min = 0,
     .max = 1024},
    {.name = "--limit",
     .arg = "SECONDS",
     .help = "with --vram or --policy: begin no budget or policy later than this",
     .integer = &sweep_limit,
     .min = 0,
     .max = 1e6},
    CLI_TRACE_OPTION,
    CLI_ROUTING_OPTION,
    {.name = "--ablation",
     .help = "what placement, overlap and transfers each bring with the accelerator here",
     .flag = &ablation},
    {.name = "--bandwidth",
     .help = "only measure how fast memory is read, by pattern and number of threads (-t)",
     .flag = &bandwidth_only},
    {.name = "--rival",
     .arg = "[NAME=]CMD",
     .help = "alternate each sample with one of another program's bench (llama-bench's options "
             "are added, or {model} {p} {n} {d} {t} filled in); prints medians and the ratio. May "
             "be repeated",
     .texts = &rival_texts},
    {.name = NULL},
};

struct list {
    uint32_t n, v[MAX_VALUES];
};

struct bench {
    struct atsi_runtime *rt;
    struct atsi_model *m;
    const struct atsi_graph *graph;
    const struct bench_format *format;
    struct bench_row row; /* what all rows share */
    struct list prompts, gens, depths, threads;
    uint64_t samples[MAX_REPEATS];
    struct bench_limits limits;
    struct read_yardstick yard;
    double reads[MAX_REPEATS * READS_PER_SAMPLE]; /* GB/s between samples of generation */
    uint32_t n_reads;
    struct bench_rival rivals[BENCH_MAX_RIVALS];
    uint32_t n_rivals;
};

static int parse_list(const char *flag, const char *text, uint32_t min, struct list *out)
{
    const char *p = text;
    out->n = 0;
    for (;;) {
        char *end;
        long v = strtol(p, &end, 10);
        if (end == p || (*end != ',' && *end != '\0') || v < (long)min || v > 1 << 24)
            return cli_fail(CLI_USAGE, "%s %s: expected numbers from %u on, separated by commas",
                            flag, text, min);
        if (out->n == MAX_VALUES)
            return cli_fail(CLI_USAGE, "%s %s: more than %d values", flag, text, MAX_VALUES);
        out->v[out->n++] = (uint32_t)v;
        if (*end == '\0')
            return CLI_OK;
        p = end + 1;
    }
}

/* ---------------------------------------------------------------- running */
int bench_eval(struct atsi_session *s, const int32_t *ids, uint32_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_eval req = {
        .struct_size = sizeof req, .ids = ids, .n = n, .cancel = &cli_interrupted};
    int rc = n == 0 ? ATSI_OK : atsi_session_eval(s, &req, &err);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

void bench_random_ids(int32_t *ids, uint32_t n, uint32_t n_vocab)
{
    uint32_t state = 1;
    for (uint32_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)((state >> 8) % n_vocab);
    }
}

static int one_sample(struct bench *b, struct atsi_session *s, const struct bench_row *r,
                      const int32_t *ids, uint64_t *ns)
{
    struct atsi_err err = ATSI_ERR_INIT;
    const struct atsi_host *host = atsi_runtime_host(b->rt);
    uint64_t start;
    int code = CLI_OK;
    if (atsi_session_truncate(s, r->n_depth, &err) != ATSI_OK)
        return cli_fail(CLI_RUN_ERROR, "%s", err.msg);
    start = host->now_ns(host->ctx);
    if (r->n_gen == 0)
        code = bench_eval(s, ids, r->n_prompt);
    for (uint32_t i = 0; i < r->n_gen && code == CLI_OK; i++)
        code = bench_eval(s, ids + i, 1);
    *ns = host->now_ns(host->ctx) - start;
    return code;
}

/* The share of what is possible, of medians. */
static void set_share(const struct bench *b, struct bench_row *r)
{
    const uint32_t tokens = r->n_gen > 0 ? r->n_gen : r->n_prompt;
    double limit_ns = 0;
    if (r->n_gen == 0)
        limit_ns = bench_prompt_limit_ns(b->m, b->graph, &b->limits, r->n_prompt);
    else if (r->read_gbps > 0)
        limit_ns = r->bytes_per_token * r->n_gen / r->read_gbps;
    r->limit_share = limit_ns * r->median_ts / (1e9 * tokens);
}

/* What reading gives just now. */
static void read_memory(struct bench *b)
{
    for (int i = 0; i < READS_PER_SAMPLE; i++) {
        double gbps = read_yardstick_pass(b->rt, &b->yard);
        if (gbps > 0)
            b->reads[b->n_reads++] = gbps;
    }
}

static void stamp(struct bench_row *r)
{
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm) == NULL ||
        strftime(r->test_time, sizeof r->test_time, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        r->test_time[0] = '\0';
}

static double share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

/* A test has rounds of one phase, or, behind a depth, of both: its own are meant. */
static void describe_accel(const struct atsi_session *s, struct bench_row *r)
{
    struct atsi_accel_stats all = {.struct_size = sizeof all};
    const struct atsi_accel_phase *p = r->n_gen > 0 ? &all.decode : &all.prefill;
    atsi_session_accel_stats(s, &all);
    r->cpu_share = share(p->busy_ns[0], p->measured_ns);
    r->stream_share = share(p->busy_ns[1], p->measured_ns);
    r->transfer_share = share(p->busy_ns[2], p->measured_ns);
    r->exposed_share = share(p->exposed_ns, p->measured_ns);
    r->predicted_ms = share(p->predicted_ns, p->n_predicted) / 1e6;
    r->observed_ms = share(p->observed_ns, p->n_predicted) / 1e6;
    r->pcie_weight_bytes = all.weight_bytes;
    r->pcie_activation_bytes = all.activation_bytes;
    r->pcie_result_bytes = all.result_bytes;
    r->plans_made = all.n_made;
    r->plans_kept = all.n_kept;
    r->plans_refused = all.n_refused;
}

/* One turn: a sample of ours and of every rival. */
static int one_turn(struct bench *b, struct atsi_session *s, const struct bench_row *r,
                    const int32_t *ids, uint32_t i)
{
    const struct bench_rival_test t = {.model = r->model_filename,
                                       .n_prompt = r->n_prompt,
                                       .n_gen = r->n_gen,
                                       .n_depth = r->n_depth,
                                       .n_threads = r->n_threads};
    int code = one_sample(b, s, r, ids, &b->samples[i]);
    if (r->n_gen > 0)
        read_memory(b);
    for (uint32_t k = 0; k < b->n_rivals && code == CLI_OK; k++)
        code = bench_rival_sample(&b->rivals[k], &t);
    return code;
}

static void print_rows(struct bench *b, struct bench_row *own)
{
    own->ratio = b->n_rivals > 0 ? 1 : 0;
    bench_print(b->format, own);
    for (uint32_t k = 0; k < b->n_rivals; k++) {
        const struct bench_rival *v = &b->rivals[k];
        struct bench_row r = *own;
        r.backend = v->name;
        r.accel = r.type_k = r.type_v = "";
        r.cpu_share = r.stream_share = r.transfer_share = r.exposed_share = 0;
        r.predicted_ms = r.observed_ms = 0;
        r.pcie_weight_bytes = r.pcie_activation_bytes = r.pcie_result_bytes = 0;
        r.plans_made = r.plans_kept = r.plans_refused = 0;
        r.n_ubatch = 0;
        r.samples_ns = v->samples_ns;
        bench_statistics(&r);
        set_share(b, &r);
        r.ratio = own->median_ts / r.median_ts;
        bench_print(b->format, &r);
    }
}

static int run_samples(struct bench *b, struct atsi_session *s, struct bench_row *r,
                       const int32_t *ids)
{
    uint64_t ns;
    int code = bench_eval(s, ids, r->n_depth);
    if (code == CLI_OK && !no_warmup)
        code = one_sample(b, s, r, ids, &ns);
    stamp(r);
    b->n_reads = 0;
    for (uint32_t k = 0; k < b->n_rivals; k++)
        b->rivals[k].n_samples = 0;
    for (uint32_t i = 0; i < (uint32_t)repeats && code == CLI_OK; i++)
        code = one_turn(b, s, r, ids, i);
    if (code != CLI_OK)
        return code;
    describe_accel(s, r);
    r->samples_ns = b->samples;
    r->n_samples = (uint32_t)repeats;
    if (r->n_gen > 0)
        r->bytes_per_token = bench_bytes_per_token(b->m, b->graph, s, r->n_depth + r->n_gen / 2);
    if (b->n_reads > 0)
        r->read_gbps = bench_median(b->reads, b->n_reads);
    bench_statistics(r);
    set_share(b, r);
    print_rows(b, r);
    return CLI_OK;
}

static int run_test(struct bench *b, uint32_t n_prompt, uint32_t n_gen, uint32_t depth)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session_info info = {.struct_size = sizeof info};
    struct atsi_session *s = NULL;
    struct bench_row r = b->row;
    uint32_t n = n_prompt > n_gen ? n_prompt : n_gen;
    char label[64];
    int32_t *ids;
    int rc, code;
    n = n > depth ? n : depth;
    p.n_ctx = depth + (n_prompt > n_gen ? n_prompt : n_gen);
    (void)snprintf(label, sizeof label, "%s%u @ d%u", n_gen > 0 ? "tg" : "pp",
                   n_gen > 0 ? n_gen : n_prompt, depth);
    code = cli_session_open(b->m, &p, label, &s);
    if (code != CLI_OK)
        return code;
    rc = atsi_session_settle(s, &cli_interrupted, &err);
    if (rc != ATSI_OK) {
        atsi_session_close(s);
        return cli_fail_status(rc, &err);
    }
    ids = calloc(n, sizeof *ids);
    if (ids == NULL) {
        atsi_session_close(s);
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    }
    atsi_session_info(s, &info);
    bench_random_ids(ids, n, info.n_vocab);
    r.backend = info.backend;
    r.accel = info.accel;
    r.n_ubatch = info.chunk;
    r.n_threads = n_gen > 0 ? info.threads_decode : info.threads_prefill;
    r.type_k = info.type_k == ATSI_TYPE_F32 ? "f32" : "f16";
    r.type_v = info.type_v == ATSI_TYPE_F32 ? "f32" : "f16";
    r.n_prompt = n_prompt;
    r.n_gen = n_gen;
    r.n_depth = depth;
    code = run_samples(b, s, &r, ids);
    if (code == CLI_OK && cli_common.level >= ATSI_LOG_WARN)
        cli_print_accel(s);
    free(ids);
    atsi_session_close(s);
    return code;
}

static int run_threads(struct bench *b, uint32_t n_threads)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int code = CLI_OK, rc;
    if (n_threads > 0) {
        rc = atsi_runtime_set_threads(b->rt, n_threads, &err);
        if (rc != ATSI_OK)
            return cli_fail(CLI_USAGE, "%s", err.msg);
    }
    b->row.n_threads = n_threads > 0 ? n_threads : atsi_runtime_workers(b->rt, NULL, 0);
    bench_limits_measure(b->rt, &b->yard, &b->limits);
    b->row.read_gbps = b->limits.read_gbps;
    b->row.peak_gmacs = b->limits.int8_gmacs;
    for (uint32_t d = 0; d < b->depths.n && code == CLI_OK; d++) {
        for (uint32_t i = 0; i < b->prompts.n && code == CLI_OK; i++)
            if (b->prompts.v[i] > 0)
                code = run_test(b, b->prompts.v[i], 0, b->depths.v[d]);
        for (uint32_t i = 0; i < b->gens.n && code == CLI_OK; i++)
            if (b->gens.v[i] > 0)
                code = run_test(b, 0, b->gens.v[i], b->depths.v[d]);
    }
    read_yardstick_close(&b->yard);
    return code;
}

/* ---------------------------------------------------------------- setting up */
static void describe_model(struct bench *b, char *type, size_t size)
{
    const struct atsi_loaded_info *info = atsi_model_info(b->m);
    uint64_t bytes = 0, largest = 0, by_type[ATSI_TYPE_COUNT] = {0};
    uint32_t main_type = 0;
    for (uint32_t i = 0; i < info->n_tensors; i++) {
        uint64_t t = (uint64_t)bench_weight_bytes(info->tensors[i]);
        bytes += t;
        if (info->tensors[i]->type < ATSI_TYPE_COUNT)
            by_type[info->tensors[i]->type] += t;
    }
    for (uint32_t t = 0; t < ATSI_TYPE_COUNT; t++)
        if (by_type[t] > largest) {
            largest = by_type[t];
            main_type = t;
        }
    (void)snprintf(type, size, "%s %s", info->arch,
                   atsi_type_info(main_type) != NULL ? atsi_type_info(main_type)->name : "?");
    b->row.model_type = type;
    b->row.model_size = bytes;
    b->row.model_n_params = b->graph->n_params;
}

static int run_all(struct bench *b)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char type[96];
    int code = cli_model(b->rt, false, &b->m), rc;
    if (code != CLI_OK)
        return code;
    rc = atsi_model_graph(b->m, &b->graph, &err);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    b->row.cpu_info = atsi_runtime_topo(b->rt)->cpu_model;
    b->row.model_filename = cli_model_path(b->rt);
    describe_model(b, type, sizeof type);
    bench_begin(b->format, b->n_rivals > 0);
    if (b->threads.n == 0)
        code = run_threads(b, 0);
    for (uint32_t i = 0; i < b->threads.n && code == CLI_OK; i++)
        code = run_threads(b, b->threads.v[i]);
    bench_end(b->format);
    return cli_finish_stdout(cli_session_finish(code));
}

static int parse_lists(struct bench *b)
{
    uint32_t most = 0;
    char text[16];
    int code = parse_list("-p", prompts, 0, &b->prompts);
    if (code == CLI_OK)
        code = parse_list("-n", gens, 0, &b->gens);
    if (code == CLI_OK)
        code = parse_list("-d", depths, 0, &b->depths);
    if (code != CLI_OK || threads == NULL)
        return code;
    code = parse_list("-t", threads, 1, &b->threads);
    for (uint32_t i = 0; i < b->threads.n; i++)
        most = b->threads.v[i] > most ? b->threads.v[i] : most;
    (void)snprintf(text, sizeof text, "%u", most);
    if (code == CLI_OK && !cli_override("cpu.threads", text))
        code = CLI_USAGE;
    return code;
}

static int open_rivals(struct bench *b)
{
    int code = CLI_OK;
    if (rival_texts.n > BENCH_MAX_RIVALS)
        return cli_fail(CLI_USAGE, "--rival: at most %d", BENCH_MAX_RIVALS);
    for (size_t i = 0; i < rival_texts.n && code == CLI_OK; i++) {
        code = bench_rival_open(&b->rivals[i], rival_texts.items[i], (uint32_t)repeats);
        b->n_rivals += code == CLI_OK;
    }
    return code;
}

/* One size of each kind, all other settings as they are. */
static int run_ablation(const struct bench *b)
{
    const struct bench_ablation a = {.n_prompt = b->prompts.v[0],
                                     .n_gen = b->gens.v[0],
                                     .repeats = (uint32_t)repeats,
                                     .format = format_name};
    if (b->prompts.n != 1 || b->gens.n != 1 || a.n_prompt == 0 || a.n_gen == 0)
        return cli_fail(CLI_USAGE, "--ablation: give one -p and one -n, both above 0");
    if (b->threads.n > 1 || b->depths.n != 1 || b->depths.v[0] != 0)
        return cli_fail(CLI_USAGE, "--ablation: one -t at most, and no -d");
    if (strcmp(format_name, "md") != 0 && strcmp(format_name, "csv") != 0 &&
        strcmp(format_name, "json") != 0)
        return cli_fail(CLI_USAGE, "--ablation -o %s: expected md, csv or json", format_name);
    cli_catch_signals();
    return cli_session_finish(bench_ablation(&a));
}

static int run_sweep(const struct bench *b)
{
    const struct bench_sweep p = {.vrams = sweep_vrams,
                                  .policies = sweep_policies,
                                  .n_prompt = b->prompts.v[0],
                                  .n_gen = b->gens.v[0],
                                  .repeats = (uint32_t)repeats,
                                  .n_verify = (uint32_t)sweep_verify,
                                  .limit_s = (uint32_t)sweep_limit,
                                  .format = format_name};
    if (b->prompts.n != 1 || b->gens.n != 1 || p.n_prompt == 0)
        return cli_fail(CLI_USAGE, "--vram, --policy: give one -p, above 0, and one -n");
    if (b->threads.n > 1 || b->depths.n != 1 || b->depths.v[0] != 0)
        return cli_fail(CLI_USAGE, "--vram, --policy: one -t at most, and no -d");
    cli_catch_signals();
    return bench_sweep(&p);
}

static int run_with_rivals(struct bench *b)
{
    int code = open_rivals(b);
    if (code == CLI_OK && b->n_rivals > 0)
        cli_catch_signals(); /* the other program must not outlive us */
    if (code == CLI_OK)
        code = run_all(b);
    for (uint32_t i = 0; i < b->n_rivals; i++)
        bench_rival_close(&b->rivals[i]);
    return code;
}

static int run(int argc, char **argv)
{
    static struct bench b; /* large for a stack */
    int n_pos, code = cli_parse(&cli_cmd_bench, options, argc, argv, &n_pos);
    if (code != -1)
        return code;
    if (n_pos > 0)
        return cli_fail(CLI_USAGE, "unexpected argument %s", argv[1]);
    b.format = bench_format_find(format_name);
    if (b.format == NULL)
        return cli_fail(CLI_USAGE, "-o %s: expected md, csv, json, jsonl or sql", format_name);
    code = parse_lists(&b);
    if (code == CLI_OK && ablation)
        return run_ablation(&b);
    if (code == CLI_OK && (sweep_vrams != NULL || sweep_policies != NULL))
        return run_sweep(&b);
    bench_rival_remember_cpus();
    if (code == CLI_OK)
        code = cli_runtime(&b.rt);
    if (code == CLI_OK && bandwidth_only)
        code = bench_bandwidth(b.rt, b.threads.v, b.threads.n, format_name);
    else if (code == CLI_OK)
        code = run_with_rivals(&b);
    atsi_model_close(b.m);
    atsi_runtime_close(b.rt);
    return code;
}

const struct cli_command cli_cmd_bench = {
    .name = "bench",
    .summary = "measure prompt and generation speed",
    .usage = "atsinfer bench [-m MODEL] [-p 512] [-n 128] [-d 0] [-t 1,2] [-r 5] [--rival CMD] "
             "[-o md|csv|json|jsonl|sql]",
    .run = run,
};
