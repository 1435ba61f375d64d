/* SPDX-License-Identifier: Apache-2.0
 * The comparison table of `atsinfer simulate`.  Every figure is labelled as simulated. */
#include "cli/json.h"
#include "cli/session.h"
#include "cli/simulate.h"

#include <string.h>

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

/* Tokens per second of a phase. */
static double speed(const struct atsi_sim_phase *f)
{
    return f->ns > 0 ? 1e9 * f->tokens / (double)f->ns : 0.0;
}

/* Executed against predicted, in percent; 0 without a prediction. */
static double surprise(const struct atsi_sim_phase *f)
{
    return f->predicted_ns > 0
               ? 100.0 * ((double)f->ns - (double)f->predicted_ns) / (double)f->predicted_ns
               : 0.0;
}

static void conditions_text(const struct sim_row *r, const struct atsi_sim_params *p, char *buf,
                            size_t size)
{
    (void)snprintf(buf, size,
                   "%s on %s, %u items; prompt %u in rounds of %u, %u generated, decode at %u; %s "
                   "contention, CPU %s, load %g,%g,%g; budget %.0f MiB",
                   r->result.model, r->result.machine, r->result.n_items, p->prompt,
                   r->result.prefill.tokens, p->generated, p->ctx,
                   p->contention != 0 ? "with" : "without", p->sustained != 0 ? "warm" : "cold",
                   p->load_cpu, p->load_gpu, p->load_pcie,
                   (double)r->result.budget_bytes / 1048576.0);
}

static void print_md(const struct sim_row *rows, size_t n, const struct atsi_sim_params *p)
{
    char text[400];
    conditions_text(&rows[0], p, text, sizeof text);
    (void)printf("Simulated, not measured: %s\n\n", text);
    (void)printf(
        "| policy | TTFT s | prefill ms | tok/s | decode ms | tok/s | request s | exposed ms | "
        "CPU / GPU / copy %% | promoted | over bound %% | over predicted %% |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < n; i++) {
        const struct atsi_sim_result *r = &rows[i].result;
        (void)printf(
            "| %s | %.2f | %.1f | %.1f | %.1f | %.2f | %.1f | %.1f | %.0f / %.0f / %.0f | %u | "
            "%.1f | %.1f |\n",
            rows[i].policy, (double)r->ttft_ns / 1e9, ms(r->prefill.ns), speed(&r->prefill),
            ms(r->decode.ns), speed(&r->decode), (double)r->request_ns / 1e9,
            ms(r->decode.exposed_ns), percent(r->decode.busy_ns[0], r->decode.ns),
            percent(r->decode.busy_ns[1], r->decode.ns),
            percent(r->decode.busy_ns[2], r->decode.ns), r->decode.n_moves,
            r->bound_ns > 0
                ? 100.0 * ((double)r->decode.ns - (double)r->bound_ns) / (double)r->bound_ns
                : 0.0,
            surprise(&r->decode));
    }
    for (size_t i = 0; i < n; i++) {
        const struct atsi_sim_result *r = &rows[i].result;
        if (r->illegal + r->failed + r->late > 0)
            (void)printf("\n%s: %u illegal, %u failed, %u late answers were refused\n",
                         rows[i].policy, r->illegal, r->failed, r->late);
    }
}

static void print_csv(const struct sim_row *rows, size_t n)
{
    (void)printf("policy,simulated,ttft_ms,prefill_ms,prefill_tps,decode_ms,decode_tps,request_ms,"
                 "exposed_ms,cpu_busy_ms,gpu_busy_ms,copy_busy_ms,promoted,bound_ms,predicted_ms,"
                 "prefill_predicted_ms,schedule_us,plan_us,refused\n");
    for (size_t i = 0; i < n; i++) {
        const struct atsi_sim_result *r = &rows[i].result;
        (void)printf(
            "%s,yes,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%u,%.3f,%.3f,%.3f,%.1f,%.1f,"
            "%u\n",
            rows[i].policy, ms(r->ttft_ns), ms(r->prefill.ns), speed(&r->prefill), ms(r->decode.ns),
            speed(&r->decode), ms(r->request_ns), ms(r->decode.exposed_ns),
            ms(r->decode.busy_ns[0]), ms(r->decode.busy_ns[1]), ms(r->decode.busy_ns[2]),
            r->decode.n_moves, ms(r->bound_ns), ms(r->decode.predicted_ns),
            ms(r->prefill.predicted_ns), (double)r->decode.schedule_ns / 1e3,
            (double)r->decode.plan_ns / 1e3, r->illegal + r->failed + r->late);
    }
}

static json_t *phase_json(const struct atsi_sim_phase *f, bool *ok)
{
    static const char *const lanes[3] = {"cpu", "gpu", "copy"};
    json_t *o = json_object(), *busy = json_object();
    cli_json_set(o, "ms", json_real(ms(f->ns)), ok);
    cli_json_set(o, "tokens", json_integer(f->tokens), ok);
    cli_json_set(o, "tokens_per_second", json_real(speed(f)), ok);
    cli_json_set(o, "predicted_ms", json_real(ms(f->predicted_ns)), ok);
    cli_json_set(o, "exposed_ms", json_real(ms(f->exposed_ns)), ok);
    for (int k = 0; k < 3; k++)
        cli_json_set(busy, lanes[k], json_real(ms(f->busy_ns[k])), ok);
    cli_json_set(o, "busy_ms", busy, ok);
    cli_json_set(o, "promoted", json_integer(f->n_moves), ok);
    cli_json_set(o, "schedule_us", json_real((double)f->schedule_ns / 1e3), ok);
    cli_json_set(o, "plan_us", json_real((double)f->plan_ns / 1e3), ok);
    return o;
}

static json_t *row_json(const struct sim_row *row, bool *ok)
{
    const struct atsi_sim_result *r = &row->result;
    json_t *o = json_object();
    cli_json_set(o, "policy", cli_json_text(row->policy), ok);
    cli_json_set(o, "ttft_ms", json_real(ms(r->ttft_ns)), ok);
    cli_json_set(o, "request_ms", json_real(ms(r->request_ns)), ok);
    cli_json_set(o, "prefill", phase_json(&r->prefill, ok), ok);
    cli_json_set(o, "decode", phase_json(&r->decode, ok), ok);
    cli_json_set(o, "bound_ms", json_real(ms(r->bound_ns)), ok);
    cli_json_set(o, "resident_bytes", json_integer((json_int_t)r->resident_bytes), ok);
    cli_json_set(o, "budget_bytes", json_integer((json_int_t)r->budget_bytes), ok);
    cli_json_set(o, "illegal", json_integer(r->illegal), ok);
    cli_json_set(o, "failed", json_integer(r->failed), ok);
    cli_json_set(o, "late", json_integer(r->late), ok);
    return o;
}

static int print_json(const struct sim_row *rows, size_t n, const struct atsi_sim_params *p)
{
    char text[400];
    json_t *o = json_object(), *a = json_array();
    bool ok = true;
    conditions_text(&rows[0], p, text, sizeof text);
    cli_json_set(o, "simulated", json_true(), &ok);
    cli_json_set(o, "conditions", cli_json_text(text), &ok);
    cli_json_set(o, "model", cli_json_text(rows[0].result.model), &ok);
    cli_json_set(o, "machine", cli_json_text(rows[0].result.machine), &ok);
    for (size_t i = 0; i < n; i++)
        cli_json_append(a, row_json(&rows[i], &ok), &ok);
    cli_json_set(o, "policies", a, &ok);
    return cli_json_print(o, ok, CLI_OK);
}

int sim_print(const struct sim_row *rows, size_t n, const struct atsi_sim_params *p,
              const char *format)
{
    if (strcmp(format, "json") == 0)
        return print_json(rows, n, p);
    if (strcmp(format, "csv") == 0)
        print_csv(rows, n);
    else
        print_md(rows, n, p);
    return CLI_OK;
}

/* One round, all of it measured. */
static struct atsi_accel_phase phase_stats(const struct atsi_sim_phase *f)
{
    struct atsi_accel_phase p = {.n_rounds = 1,
                                 .n_measured = 1,
                                 .measured_ns = f->ns,
                                 .exposed_ns = f->exposed_ns,
                                 .n_predicted = f->predicted_ns > 0,
                                 .predicted_ns = f->predicted_ns,
                                 .observed_ns = f->ns};
    memcpy(p.busy_ns, f->busy_ns, sizeof p.busy_ns);
    return p;
}

void sim_print_summary(const struct sim_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct atsi_sim_result *r = &rows[i].result;
        const struct atsi_accel_stats s = {
            .struct_size = sizeof s,
            .prefill = phase_stats(&r->prefill),
            .decode = phase_stats(&r->decode),
            .n_made = r->n_made,
            .n_kept = r->n_kept,
            .n_refused = r->illegal + r->failed + r->late,
            .weight_bytes = r->link_bytes[0][0] + r->link_bytes[1][0],
            .activation_bytes = r->link_bytes[0][1] + r->link_bytes[1][1],
            .result_bytes = r->link_bytes[0][2] + r->link_bytes[1][2]};
        (void)fprintf(stderr, "%s, simulated\n", rows[i].policy);
        cli_put_accel_stats(stderr, &s);
    }
}
