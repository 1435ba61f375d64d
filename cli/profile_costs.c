/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of measured costs of a model: taken from the cache or measured, with progress, and
 * shown as Markdown or JSON.
 */
#include "atsinfer/profile.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/profile.h"

#include <string.h>
#include <unistd.h>

/* ---------------------------------------------------------------- progress */
void profile_show_progress(void *bar, uint32_t done, uint32_t total, const char *what)
{
    struct profile_bar *b = bar;
    uint32_t tenths = total > 0 ? 10 * done / total : 0;
    if (cli_common.level < ATSI_LOG_WARN)
        return;
    if (b->terminal) {
        (void)fprintf(stderr, "\r\033[Kmeasuring costs %u/%u: %.60s", done + 1, total, what);
        if (done + 1 == total)
            (void)fputs("\r\033[K", stderr);
        (void)fflush(stderr);
    } else if (done == 0 || tenths > b->shown) {
        b->shown = tenths;
        (void)fprintf(stderr, "measuring costs %u %%: %.60s\n", 10 * tenths, what);
    }
}

static void tell(const struct atsi_profile_summary *s)
{
    if (cli_common.level < ATSI_LOG_WARN)
        return;
    if (s->measured != 0)
        (void)fprintf(stderr, "costs of %u operations measured in %.1f s (%s)\n", s->n_ops,
                      (double)s->took_ns / 1e9, s->why);
    else if (s->why[0] != '\0')
        (void)fprintf(stderr, "costs of %u operations, out of date: %s\n", s->n_ops, s->why);
    else
        (void)fprintf(stderr, "costs of %u operations, up to date\n", s->n_ops);
    if (s->threads_decode != 0)
        (void)fprintf(stderr, "workers that pay: %u in decode, %u in prefill\n", s->threads_decode,
                      s->threads_prefill);
    if (s->without[0] != '\0')
        (void)fprintf(stderr, "without an accelerator: %s\n", s->without);
    if (s->path[0] != '\0')
        (void)fprintf(stderr, "kept in %s\n", s->path);
}

int profile_costs_open(struct atsi_runtime *rt, const struct profile_costs_params *p,
                       struct atsi_profile **out)
{
    struct profile_bar bar = {.terminal = isatty(STDERR_FILENO) != 0};
    const struct atsi_profile_params params = {.struct_size = sizeof params,
                                               .mode = p->show    ? ATSI_PROFILE_KEPT
                                                       : p->force ? ATSI_PROFILE_FORCE
                                                                  : ATSI_PROFILE_CURRENT,
                                               .model = p->model,
                                               .chunk = p->chunk,
                                               .room_bytes = p->room_bytes,
                                               .progress = profile_show_progress,
                                               .progress_ctx = &bar,
                                               .cancel = &cli_interrupted};
    struct atsi_err err = ATSI_ERR_INIT;
    int rc = atsi_profile_open(rt, &params, out, &err);
    if (rc != ATSI_OK)
        return cli_interrupted != 0 ? CLI_INTERRUPTED : cli_fail_status(rc, &err);
    if (!p->quiet || atsi_profile_summary(*out)->measured != 0)
        tell(atsi_profile_summary(*out));
    return CLI_OK;
}

int profile_costs_ready(const char *model, uint32_t chunk)
{
    const struct profile_costs_params p = {.model = model, .chunk = chunk, .quiet = true};
    struct atsi_runtime *rt = NULL;
    struct atsi_profile *made = NULL;
    int code = cli_runtime(&rt);
    if (code == CLI_OK)
        code = profile_costs_open(rt, &p, &made);
    atsi_profile_close(made);
    atsi_runtime_close(rt);
    return code;
}

/* ---------------------------------------------------------------- Markdown */
static double us(uint64_t ns)
{
    return (double)ns / 1e3;
}

/* "4096 x 14336 x 1": the numbers of a shape up to its last that is not 0. */
static void shape_text(const uint64_t dims[8], char *buf, size_t size)
{
    uint32_t n = 8;
    size_t at = 0;
    while (n > 1 && dims[n - 1] == 0)
        n--;
    for (uint32_t d = 0; d < n && at < size; d++)
        at += (size_t)snprintf(buf + at, size - at, "%s%llu", d > 0 ? " " : "",
                               (unsigned long long)dims[d]);
}

static void md_ops(const struct atsi_profile *p)
{
    struct atsi_profile_op op;
    (void)printf("\n| device | operation | weight | shape | tokens | context | us | low | high | "
                 "in cache us | samples |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; atsi_profile_op(p, i, &op); i++) {
        char shape[200];
        shape_text(op.dims, shape, sizeof shape);
        for (uint32_t k = 0; k < op.n_times; k++) {
            const struct atsi_cost_time *t = &op.times[k];
            (void)printf("| %s | %s | %s%s | %s | %u | %u | %.2f | %.2f | %.2f | ",
                         op.accel != 0 ? "accelerator" : "CPU", op.kind, op.type,
                         op.panels != 0 ? " panels" : "", shape, t->tokens, t->ctx, us(t->cold_ns),
                         us(t->low_ns), us(t->high_ns));
            if (t->warm_ns > 0)
                (void)printf("%.2f", us(t->warm_ns));
            (void)printf(" | %u |\n", t->n);
        }
    }
}

static void md_copies(const struct atsi_profile *p)
{
    struct atsi_cost_copy c;
    const char *channel;
    if (!atsi_profile_copy(p, 0, &channel, &c))
        return;
    (void)printf("\n| copy | bytes | us | low | high | GB/s | samples |\n|---|---|---|---|---|---|"
                 "---|\n");
    for (uint32_t i = 0; atsi_profile_copy(p, i, &channel, &c); i++)
        (void)printf("| %s | %llu | %.2f | %.2f | %.2f | %.2f | %u |\n", channel,
                     (unsigned long long)c.bytes, us(c.ns), us(c.low_ns), us(c.high_ns),
                     (double)c.bytes / (double)c.ns, c.n);
}

/* Speeds against one worker: what a user asks who wonders why not all cores work. */
static void md_threads(const struct atsi_profile *p)
{
    const struct atsi_profile_summary *s = atsi_profile_summary(p);
    struct atsi_cost_threads t;
    const char *phase, *last = "";
    uint64_t one = 0;
    if (!atsi_profile_threads(p, 0, &phase, &t))
        return;
    (void)printf(
        "\nWorkers, where cpu.threads leaves them open: %u in decode, %u in prefill.\n\n"
        "| phase | workers | us | low | high | x | samples |\n|---|---|---|---|---|---|---|\n",
        s->threads_decode, s->threads_prefill);
    for (uint32_t i = 0; atsi_profile_threads(p, i, &phase, &t); i++) {
        if (strcmp(phase, last) != 0)
            one = t.ns;
        last = phase;
        (void)printf("| %s | %u | %.2f | %.2f | %.2f | %.2f | %u |\n", phase, t.threads, us(t.ns),
                     us(t.low_ns), us(t.high_ns), (double)one / (double)t.ns, t.n);
    }
}

static void md_tokens(uint32_t tokens)
{
    if (tokens > 0)
        (void)printf(" %u |", tokens);
    else
        (void)printf(" never |");
}

/* What a user asks who wonders when weights are streamed. */
static void md_streams(const struct atsi_profile *p)
{
    struct atsi_profile_stream s;
    if (!atsi_profile_stream(p, 0, &s))
        return;
    (void)printf("\nStreaming a weight beats the CPU from so many tokens of a round on (of at most "
                 "%u):\n\n| operation | weight | shape | MiB | copy us | copy hidden | alone |\n"
                 "|---|---|---|---|---|---|---|\n",
                 atsi_profile_summary(p)->chunk);
    for (uint32_t i = 0; atsi_profile_stream(p, i, &s); i++) {
        char shape[200];
        shape_text(s.dims, shape, sizeof shape);
        (void)printf("| %s | %s%s | %s | %.2f | %.2f |", s.kind, s.type,
                     s.panels != 0 ? " panels" : "", shape, (double)s.bytes / 1048576.0,
                     us(s.copy_ns));
        md_tokens(s.tokens_hidden);
        md_tokens(s.tokens_alone);
        (void)printf("\n");
    }
}

static void md(const struct atsi_profile *p)
{
    const struct atsi_profile_summary *s = atsi_profile_summary(p);
    const char *name, *value;
    (void)printf("Measured costs, rounds of up to %u tokens.%s%s\n\n", s->chunk,
                 s->measured == 0 && s->why[0] != '\0' ? " Out of date: " : "",
                 s->measured == 0 ? s->why : "");
    for (uint32_t i = 0; atsi_profile_key(p, i, &name, &value); i++)
        (void)printf("* %s: %s\n", name, value);
    (void)printf("* a split: CPU %.2f us, accelerator %.2f us and %.2f us until the host knows; a "
                 "cut in its queue %.2f us\n",
                 us(s->launch_ns[0]), us(s->launch_ns[1]), us(s->sync_ns[1]), us(s->split_ns));
    (void)printf("* memory: CPU alone %.2f GB/s, transfers alone %.2f, together %.2f + %.2f\n",
                 s->cpu_alone, s->copy_alone, s->cpu_together, s->copy_together);
    md_threads(p);
    md_ops(p);
    md_copies(p);
    md_streams(p);
}

/* ---------------------------------------------------------------- JSON */
static json_t *json_times(const struct atsi_profile_op *op, bool *ok)
{
    json_t *list = json_array();
    for (uint32_t k = 0; k < op->n_times; k++) {
        const struct atsi_cost_time *t = &op->times[k];
        json_t *o = json_object();
        cli_json_set(o, "tokens", json_integer(t->tokens), ok);
        cli_json_set(o, "ctx", json_integer(t->ctx), ok);
        cli_json_set(o, "ns", json_integer((json_int_t)t->cold_ns), ok);
        cli_json_set(o, "low_ns", json_integer((json_int_t)t->low_ns), ok);
        cli_json_set(o, "high_ns", json_integer((json_int_t)t->high_ns), ok);
        cli_json_set(o, "warm_ns",
                     t->warm_ns > 0 ? json_integer((json_int_t)t->warm_ns) : json_null(), ok);
        cli_json_set(o, "samples", json_integer(t->n), ok);
        cli_json_append(list, o, ok);
    }
    return list;
}

static json_t *json_dims(const uint64_t dims[8], bool *ok)
{
    json_t *list = json_array();
    for (int d = 0; d < 8; d++)
        cli_json_append(list, json_integer((json_int_t)dims[d]), ok);
    return list;
}

static json_t *json_ops(const struct atsi_profile *p, bool *ok)
{
    json_t *list = json_array();
    struct atsi_profile_op op;
    for (uint32_t i = 0; atsi_profile_op(p, i, &op); i++) {
        json_t *o = json_object();
        cli_json_set(o, "device", json_string(op.accel != 0 ? "accel" : "cpu"), ok);
        cli_json_set(o, "op", json_string(op.kind), ok);
        cli_json_set(o, "type", op.type[0] != '\0' ? json_string(op.type) : json_null(), ok);
        cli_json_set(o, "layout", json_string(op.panels != 0 ? "panels" : "rows"), ok);
        cli_json_set(o, "dims", json_dims(op.dims, ok), ok);
        cli_json_set(o, "times", json_times(&op, ok), ok);
        cli_json_append(list, o, ok);
    }
    return list;
}

static json_t *json_tokens(uint32_t tokens)
{
    return tokens > 0 ? json_integer(tokens) : json_null();
}

static json_t *json_streams(const struct atsi_profile *p, bool *ok)
{
    json_t *list = json_array();
    struct atsi_profile_stream s;
    for (uint32_t i = 0; atsi_profile_stream(p, i, &s); i++) {
        json_t *o = json_object();
        cli_json_set(o, "op", json_string(s.kind), ok);
        cli_json_set(o, "type", json_string(s.type), ok);
        cli_json_set(o, "layout", json_string(s.panels != 0 ? "panels" : "rows"), ok);
        cli_json_set(o, "dims", json_dims(s.dims, ok), ok);
        cli_json_set(o, "bytes", json_integer((json_int_t)s.bytes), ok);
        cli_json_set(o, "copy_ns", json_integer((json_int_t)s.copy_ns), ok);
        cli_json_set(o, "tokens_hidden", json_tokens(s.tokens_hidden), ok);
        cli_json_set(o, "tokens_alone", json_tokens(s.tokens_alone), ok);
        cli_json_append(list, o, ok);
    }
    return list;
}

static json_t *json_copies(const struct atsi_profile *p, bool *ok)
{
    json_t *list = json_array();
    struct atsi_cost_copy c;
    const char *channel;
    for (uint32_t i = 0; atsi_profile_copy(p, i, &channel, &c); i++) {
        json_t *o = json_object();
        cli_json_set(o, "channel", json_string(channel), ok);
        cli_json_set(o, "bytes", json_integer((json_int_t)c.bytes), ok);
        cli_json_set(o, "ns", json_integer((json_int_t)c.ns), ok);
        cli_json_set(o, "low_ns", json_integer((json_int_t)c.low_ns), ok);
        cli_json_set(o, "high_ns", json_integer((json_int_t)c.high_ns), ok);
        cli_json_set(o, "samples", json_integer(c.n), ok);
        cli_json_append(list, o, ok);
    }
    return list;
}

static json_t *json_threads(const struct atsi_profile *p, bool *ok)
{
    json_t *list = json_array();
    struct atsi_cost_threads t;
    const char *phase;
    for (uint32_t i = 0; atsi_profile_threads(p, i, &phase, &t); i++) {
        json_t *o = json_object();
        cli_json_set(o, "phase", json_string(phase), ok);
        cli_json_set(o, "threads", json_integer(t.threads), ok);
        cli_json_set(o, "ns", json_integer((json_int_t)t.ns), ok);
        cli_json_set(o, "low_ns", json_integer((json_int_t)t.low_ns), ok);
        cli_json_set(o, "high_ns", json_integer((json_int_t)t.high_ns), ok);
        cli_json_set(o, "samples", json_integer(t.n), ok);
        cli_json_append(list, o, ok);
    }
    return list;
}

static json_t *json_pair(const uint64_t v[2], bool *ok)
{
    json_t *o = json_object();
    cli_json_set(o, "cpu", json_integer((json_int_t)v[0]), ok);
    cli_json_set(o, "accel", json_integer((json_int_t)v[1]), ok);
    return o;
}

static int print_json(const struct atsi_profile *p)
{
    const struct atsi_profile_summary *s = atsi_profile_summary(p);
    json_t *o = json_object(), *keys = json_object(), *memory = json_object();
    const char *name, *value;
    bool ok = true;
    for (uint32_t i = 0; atsi_profile_key(p, i, &name, &value); i++)
        cli_json_set(keys, name, cli_json_text(value), &ok);
    cli_json_set(memory, "cpu_alone", json_real(s->cpu_alone), &ok);
    cli_json_set(memory, "copy_alone", json_real(s->copy_alone), &ok);
    cli_json_set(memory, "cpu_together", json_real(s->cpu_together), &ok);
    cli_json_set(memory, "copy_together", json_real(s->copy_together), &ok);
    cli_json_set(o, "path", cli_json_text(s->path), &ok);
    cli_json_set(o, "measured", json_boolean(s->measured != 0), &ok);
    cli_json_set(o, "why", cli_json_text(s->why), &ok);
    cli_json_set(o, "chunk", json_integer(s->chunk), &ok);
    cli_json_set(o, "took_ns", json_integer((json_int_t)s->took_ns), &ok);
    cli_json_set(o, "measured_with", keys, &ok);
    cli_json_set(o, "launch_ns", json_pair(s->launch_ns, &ok), &ok);
    cli_json_set(o, "sync_ns", json_pair(s->sync_ns, &ok), &ok);
    cli_json_set(o, "split_ns", json_integer((json_int_t)s->split_ns), &ok);
    cli_json_set(o, "memory_gbs", memory, &ok);
    cli_json_set(o, "threads_decode", json_tokens(s->threads_decode), &ok);
    cli_json_set(o, "threads_prefill", json_tokens(s->threads_prefill), &ok);
    cli_json_set(o, "threads", json_threads(p, &ok), &ok);
    cli_json_set(o, "operations", json_ops(p, &ok), &ok);
    cli_json_set(o, "copies", json_copies(p, &ok), &ok);
    cli_json_set(o, "streaming", json_streams(p, &ok), &ok);
    return cli_json_print(o, ok, CLI_OK);
}

int profile_costs_print(const struct atsi_profile *p, bool json)
{
    if (json)
        return cli_finish_stdout(print_json(p));
    md(p);
    return cli_finish_stdout(CLI_OK);
}
