/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer simulate`: a request on a modelled machine, under several policies side by side.  Each
 * policy gets a runtime of its own, so that its settings are those of the command line.
 */
#include "cli/simulate.h"

#include "cli/options.h"
#include "cli/policy_spec.h"
#include "cli/simulated.h"
#include "cli/trace.h"

#include <stdlib.h>
#include <string.h>

static const char *policies, *format, *load, *trace;
static int64_t chunk, rounds = 3;
static bool frozen, told, last, summary;

static const struct cli_option options[] = {
    {.name = "--policy",
     .arg = "A,B,...",
     .help = "policies to compare: layer, expert, stream, density, alg1, paper, paper-literal, "
             "repaired, backlog, backlog-co, or PLUGIN[:MODE]; each with /static or /sync",
     .text = &policies},
    {.name = "--round",
     .arg = "N",
     .help = "tokens of a prefill round, 0: the machine's; -1: chosen",
     .integer = &chunk,
     .min = -1,
     .max = 65536},
    {.name = "--rounds",
     .arg = "N",
     .help = "decode rounds; the last one counts",
     .integer = &rounds,
     .min = 1,
     .max = 100000},
    {.name = "--last",
     .help = "no round follows the last one: no weight is fetched ahead of it, as in published "
             "tables",
     .flag = &last},
    {.name = "--load",
     .arg = "CPU,GPU,PCIE",
     .help = "slowdown factors of the whole run, as 2.5,1,1; scripts over time: plugin.sim.load",
     .text = &load},
    {.name = "--told", .help = "policies know the load from the start", .flag = &told},
    {.name = "--frozen",
     .help = "the first plan of a phase stays, whatever is measured",
     .flag = &frozen},
    {.name = "--trace",
     .arg = "FILE",
     .help = "write the last rounds as a JSON trace for ui.perfetto.dev or chrome://tracing",
     .text = &trace},
    {.name = "--summary",
     .help = "what the last rounds of each policy were like, in the words of a real run",
     .flag = &summary},
    {.name = "--routing",
     .arg = "FILE",
     .help =
         "decode a recorded routing trace with expert caches (docs/experts.md); --vram may then "
         "be a list",
     .text = &sim_routing_args.path},
    {.name = "--routing-skew",
     .arg = "KEY=N,...",
     .help = "make a trace instead: layers, experts, used, tokens, zipf, drift, follow, repeat, "
             "seed",
     .text = &sim_routing_args.skew},
    {.name = "--routing-out",
     .arg = "FILE",
     .help = "write the trace that --routing-skew makes",
     .text = &sim_routing_args.out},
    {.name = "--cache-slots",
     .arg = "N,...",
     .help = "without --machine: hits of caches with so many slots in every layer",
     .text = &sim_routing_args.slots},
    {.name = "--copy-hits",
     .arg = "N",
     .help = "with --cache-slots: so many hits are worth one copy",
     .real = &sim_routing_args.copy_hits,
     .min = 0,
     .max = 1e6},
    {.name = "--half-life",
     .arg = "TOKENS",
     .help = "after which the use of an expert counts half",
     .real = &sim_routing_args.half_life,
     .min = 0,
     .max = 1e9},
    {.name = "--copy-share",
     .arg = "PERCENT",
     .help = "of a round's time that transfers of experts may take",
     .real = &sim_routing_args.copy_percent,
     .min = 0,
     .max = 1000},
    {.name = "-o|--output", .arg = "FORMAT", .help = "md, csv or json", .text = &format},
    CLI_GROUP("machine, model and request", cli_simulated_options),
    {.name = NULL},
};

static void say(void *policy, const char *text)
{
    cli_warn("%s: %s", (const char *)policy, text);
}

static int simulate_one(struct sim_row *row, struct atsi_sim_params *p)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_runtime *rt = NULL;
    size_t before = cli_common.n_overrides;
    int code = cli_policy_spec(row->policy, &p->mode), rc;
    if (code == CLI_OK)
        code = cli_runtime(&rt);
    if (code == CLI_OK) {
        p->say_ctx = row->policy;
        if (p->trace != NULL)
            cli_trace_process(p->trace_ctx, row->policy);
        rc = atsi_simulate(rt, p, &row->result, &err);
        if (rc != ATSI_OK)
            code = cli_fail_status(rc, &err);
        atsi_runtime_close(rt);
    }
    cli_forget_overrides(before);
    return code;
}

static int parse_load(struct atsi_sim_params *p)
{
    char rest;
    p->load_cpu = p->load_gpu = p->load_pcie = 1;
    if (load == NULL)
        return CLI_OK;
    if (sscanf(load, "%lf,%lf,%lf%c", &p->load_cpu, &p->load_gpu, &p->load_pcie, &rest) != 3 ||
        !(p->load_cpu >= 0.01 && p->load_cpu <= 1000) ||
        !(p->load_gpu >= 0.01 && p->load_gpu <= 1000) ||
        !(p->load_pcie >= 0.01 && p->load_pcie <= 1000))
        return cli_fail(CLI_USAGE, "--load %.40s: expected three factors of 0.01..1000, as 2.5,1,1",
                        load);
    return CLI_OK;
}

static bool has_routing(void)
{
    return sim_routing_args.path != NULL || sim_routing_args.skew != NULL;
}

static int fill_params(struct atsi_sim_params *p)
{
    const struct cli_simulated *in = &cli_simulated;
    int code = cli_simulated_read(has_routing());
    if (code != CLI_OK)
        return code;
    *p = (struct atsi_sim_params){.struct_size = sizeof *p,
                                  .machine = in->machine_path,
                                  .model = in->model_path,
                                  .chunk = chunk < 0 ? ATSI_CHUNK_AUTO : (uint32_t)chunk,
                                  .ctx = (uint32_t)in->ctx,
                                  .rounds = (uint32_t)rounds,
                                  .prompt = (uint32_t)in->prompt,
                                  .generated = (uint32_t)in->generated,
                                  .vram_bytes = in->vram_bytes,
                                  .max_slots = (uint32_t)in->slots,
                                  .sustained = in->sustained,
                                  .contention = !in->no_contention,
                                  .know = frozen ? ATSI_SIM_NEVER
                                          : told ? ATSI_SIM_TOLD
                                                 : ATSI_SIM_MEASURED,
                                  .last = last,
                                  .say = say};
    return parse_load(p);
}

static int run_all(struct sim_row *rows, size_t n, struct atsi_sim_params *p)
{
    int code = CLI_OK;
    cli_exit_on_signal(true); /* one policy's rounds may take minutes; nothing was printed yet */
    for (size_t i = 0; i < n && code == CLI_OK; i++)
        code = simulate_one(&rows[i], p);
    cli_exit_on_signal(false);
    if (code == CLI_OK && p->trace != NULL)
        code = cli_trace_write(p->trace_ctx, trace);
    if (code == CLI_OK)
        code = sim_print(rows, n, p, format != NULL ? format : "md");
    if (code == CLI_OK && summary)
        sim_print_summary(rows, n);
    return code == CLI_OK ? cli_finish_stdout(CLI_OK) : code;
}

/* Splits the list in place; `rows` has room for every word. */
static int run_list(char *list, struct sim_row *rows, struct atsi_sim_params *p)
{
    char *save = NULL;
    size_t n = 0;
    for (char *word = strtok_r(list, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save))
        rows[n++].policy = word;
    return n > 0 ? run_all(rows, n, p) : cli_fail(CLI_USAGE, "--policy names none");
}

static int compare(struct atsi_sim_params *p)
{
    static const char *const standard = "layer/sync,expert/sync,stream,alg1/sync,alg1/static,paper,"
                                        "repaired,backlog,backlog-co";
    char *list = strdup(policies != NULL ? policies : standard);
    struct cli_trace *t = trace != NULL ? cli_trace_new(true) : NULL;
    struct sim_row *rows;
    size_t room = 1;
    int code;
    for (const char *c = list; c != NULL && *c != '\0'; c++)
        room += *c == ',';
    rows = calloc(room, sizeof *rows);
    if (t != NULL) {
        p->trace = cli_trace_span;
        p->trace_ctx = t;
    }
    code = list == NULL || rows == NULL || (trace != NULL && t == NULL)
               ? cli_fail(CLI_RUN_ERROR, "out of memory")
               : run_list(list, rows, p);
    cli_trace_free(t);
    free(rows);
    free(list);
    return code;
}

static int run(int argc, char **argv)
{
    struct atsi_sim_params p;
    int n_pos = 0, code = cli_parse(&cli_cmd_simulate, options, argc, argv, &n_pos);
    if (code >= 0)
        return code;
    if (n_pos > 0)
        return cli_fail(CLI_USAGE, "unexpected argument \"%.60s\"", argv[1]);
    if (format != NULL && strcmp(format, "md") != 0 && strcmp(format, "csv") != 0 &&
        strcmp(format, "json") != 0)
        return cli_fail(CLI_USAGE, "-o %.20s: expected md, csv or json", format);
    if (cli_simulated.machine == NULL &&
        (sim_routing_args.out != NULL || sim_routing_args.slots != NULL))
        return sim_routing_alone();
    code = fill_params(&p);
    if (code != CLI_OK)
        return code;
    cli_catch_signals();
    if (has_routing())
        return sim_routing(&p, policies, cli_simulated.vram, format != NULL ? format : "md");
    code = cli_simulated_measure(p.chunk);
    return code == CLI_OK ? compare(&p) : code;
}

const struct cli_command cli_cmd_simulate = {
    .name = "simulate",
    .summary = "predict a request on a modelled machine, policy by policy",
    .usage = "atsinfer simulate --machine MACHINE (-m MODEL | --shape SHAPE) [--policy A,B,...]",
    .run = run};
