/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer policy test`: does a policy keep its promises, and how good is it?  A policy is named,
 * with a mode if it has some, or is the file of a plugin.
 */
#include "cli/policy.h"

#include "atsinfer/conform.h"
#include "cli/json.h"

#include <string.h>

static bool as_json, quick;
static int64_t patience = 20, limit_us;

static const struct cli_option options[] = {
    {.name = "--json", .help = "results as JSON", .flag = &as_json},
    {.name = "--quick", .help = "small problems alone", .flag = &quick},
    {.name = "--patience",
     .arg = "SECONDS",
     .help = "a call that takes longer never returns",
     .integer = &patience,
     .min = 1,
     .max = 3600},
    {.name = "--limit",
     .arg = "US",
     .help = "microseconds a schedule may take, 0: policy.time_limit",
     .integer = &limit_us,
     .min = 0,
     .max = 1e9},
    {.name = NULL},
};

/* ---------------------------------------------------------------- results */
static void print_rows(const struct atsi_conform_check *c)
{
    if (c->n_rows > 0)
        (void)printf("            %10s %10s  %10s %10s\n", "decode", "reference", "prefill",
                     "reference");
    for (uint32_t i = 0; i < c->n_rows; i++) {
        const struct atsi_conform_row *r = &c->rows[i];
        (void)printf("            %7.3f ms %7.3f ms  %7.1f ms %7.1f ms  %s\n",
                     (double)r->decode_ns / 1e6, (double)r->reference_decode_ns / 1e6,
                     (double)r->prefill_ns / 1e6, (double)r->reference_prefill_ns / 1e6, r->label);
    }
}

static void print_check(void *ctx, const struct atsi_conform_check *c)
{
    (void)ctx;
    (void)printf("%-9s %s  %s\n", c->name, c->ok ? "ok    " : "FAILED", c->text);
    print_rows(c);
    (void)fflush(stdout); /* one line as soon as it is known; errors are said at the end */
}

struct results {
    json_t *checks;
    bool ok;
};

static json_t *row_json(const struct atsi_conform_row *r, bool *ok)
{
    json_t *o = json_object();
    cli_json_set(o, "case", cli_json_text(r->label), ok);
    cli_json_set(o, "decode_ns", json_integer((json_int_t)r->decode_ns), ok);
    cli_json_set(o, "reference_decode_ns", json_integer((json_int_t)r->reference_decode_ns), ok);
    cli_json_set(o, "prefill_ns", json_integer((json_int_t)r->prefill_ns), ok);
    cli_json_set(o, "reference_prefill_ns", json_integer((json_int_t)r->reference_prefill_ns), ok);
    return o;
}

static void gather_check(void *ctx, const struct atsi_conform_check *c)
{
    struct results *r = ctx;
    json_t *o = json_object(), *rows = json_array();
    cli_json_set(o, "name", json_string(c->name), &r->ok);
    cli_json_set(o, "ok", json_boolean(c->ok), &r->ok);
    cli_json_set(o, "promise", json_string(c->promise), &r->ok);
    cli_json_set(o, "text", cli_json_text(c->text), &r->ok);
    cli_json_set(o, "cases", json_integer(c->n_cases), &r->ok);
    for (uint32_t i = 0; i < c->n_rows; i++)
        cli_json_append(rows, row_json(&c->rows[i], &r->ok), &r->ok);
    cli_json_set(o, "rows", rows, &r->ok);
    cli_json_append(r->checks, o, &r->ok);
}

static int test(struct atsi_runtime *rt, const char *name)
{
    const struct atsi_conform_params p = {.struct_size = sizeof p,
                                          .policy = name,
                                          .patience_ms = (uint32_t)patience * 1000,
                                          .time_limit_ns = (uint64_t)limit_us * 1000,
                                          .quick = quick};
    struct results r = {.checks = as_json ? json_array() : NULL, .ok = true};
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t failed;
    int code, rc = atsi_conform(rt, &p, as_json ? gather_check : print_check, &r, &failed, &err);
    if (rc != ATSI_OK) {
        json_decref(r.checks);
        return cli_fail_status(rc, &err);
    }
    code = failed > 0 ? CLI_SELF_TEST : CLI_OK;
    if (as_json) {
        json_t *o = json_object();
        cli_json_set(o, "policy", cli_json_text(name), &r.ok);
        cli_json_set(o, "failed", json_integer(failed), &r.ok);
        cli_json_set(o, "checks", r.checks, &r.ok);
        return cli_finish_stdout(cli_json_print(o, r.ok, code));
    }
    if (failed > 0)
        (void)printf("%s: %u checks FAILED\n", name, failed);
    return cli_finish_stdout(code);
}

static int run(int argc, char **argv)
{
    struct atsi_runtime *rt = NULL;
    char name[64];
    int n_pos, code = cli_parse(&policy_cmd_test, options, argc, argv, &n_pos);
    if (code != -1)
        return code;
    if (n_pos != 1)
        return cli_fail(CLI_USAGE, "one policy is expected: NAME[:MODE] or FILE.so");
    code = policy_open(argv[1], &rt, name);
    if (code == CLI_OK)
        code = test(rt, name);
    atsi_runtime_close(rt);
    return code;
}

const struct cli_command policy_cmd_test = {
    .name = "test",
    .summary = "check that a policy keeps its promises, and how good it is",
    .usage = "atsinfer policy test NAME[:MODE] | FILE.so [options]",
    .run = run,
};
