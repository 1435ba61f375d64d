/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer run`: completes a prompt.  The prompt and what the model adds go to stdout as they
 * appear; timings and everything else to stderr.
 */
#include "cli/generate.h"
#include "cli/options.h"
#include "cli/sampling.h"
#include "cli/session.h"

#include <stdlib.h>
#include <string.h>

static const char *prompt, *prompt_file;
static bool hide_prompt, show_special, no_timings;

static const struct cli_option options[] = {
    {.name = "-p|--prompt", .arg = "TEXT", .help = "text to continue", .text = &prompt},
    {.name = "-f|--file",
     .arg = "FILE",
     .help = "prompt from a file, - for standard input",
     .text = &prompt_file},
    {.name = "--no-display-prompt", .help = "print only what the model adds", .flag = &hide_prompt},
    {.name = "--special", .help = "print special tokens too", .flag = &show_special},
    CLI_TRACE_OPTION,
    CLI_ROUTING_OPTION,
    {.name = "--no-timings", .help = "no summary at the end", .flag = &no_timings},
    CLI_GROUP("sampling options", cli_sampling_options),
    {.name = NULL},
};

struct job {
    const struct atsi_host *host;
    struct atsi_session *session;
    struct atsi_tokenizer *tok;
    struct atsi_sampler *sampler;
    struct atsi_stops *stops;
    struct atsi_session_info info;
    uint64_t start_ns;
};

/* ---------------------------------------------------------------- the run */
/* Prompt ids; an empty prompt of a vocabulary without BOS has nothing to start from. */
static int encode(const struct job *j, const char *text, size_t len, int32_t **ids, size_t *n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int rc;
    cli_exit_on_signal(true); /* seconds for a long text; nothing was printed yet */
    rc = atsi_tokenize(j->tok, text, len, ATSI_TOK_ADD_SPECIAL | ATSI_TOK_PARSE_SPECIAL, ids, n,
                       &err);
    cli_exit_on_signal(false);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    if (*n == 0)
        return cli_fail(CLI_USAGE,
                        "the prompt is empty, and this model has no start token to begin "
                        "from; give one with -p");
    if (*n > j->info.n_ctx)
        return cli_fail(CLI_NO_FIT,
                        "the prompt has %zu tokens, the context %u; set a longer one "
                        "with -c",
                        *n, j->info.n_ctx);
    return CLI_OK;
}

/* Text goes out at once; a reader that went away ends the run. */
static int print_piece(void *ctx, const char *text, size_t len)
{
    (void)ctx;
    (void)fwrite(text, 1, len, stdout);
    return cli_finish_stdout(CLI_OK);
}

static void print_times(const struct job *j, uint64_t first_token_ns)
{
    struct atsi_session_times t = {.struct_size = sizeof t};
    if (no_timings || cli_common.level < ATSI_LOG_WARN)
        return;
    atsi_session_times(j->session, &t);
    cli_print_timings(&j->info, &t, first_token_ns != 0 ? first_token_ns - j->start_ns : 0);
    cli_print_accel(j->session);
}

/* The prompt, evaluated; then what the model adds.  Ctrl-C in either ends in CLI_INTERRUPTED with
 * the text so far kept. */
static int feed_and_generate(const struct job *j, const int32_t *ids, size_t n)
{
    struct cli_generation g = {.session = j->session,
                               .tok = j->tok,
                               .sampler = j->sampler,
                               .stops = j->stops,
                               .n_predict = cli_sampling.n_predict,
                               .ignore_eos = cli_sampling.ignore_eos,
                               .special = show_special,
                               .text = print_piece,
                               .cancel = &cli_interrupted};
    int code = cli_eval(j->session, ids, n, atsi_sampler_top(j->sampler), &cli_interrupted);
    if (code == CLI_OK)
        code = cli_generate(j->host, &g);
    free(g.ids.p);
    if (code == CLI_OK && g.ending == CLI_END_INTERRUPTED)
        code = CLI_INTERRUPTED;
    if (code != CLI_OK && code != CLI_INTERRUPTED)
        return code;
    (void)putchar('\n');
    if (cli_finish_stdout(CLI_OK) != CLI_OK)
        return CLI_RUN_ERROR;
    if (code == CLI_OK && g.ending == CLI_END_CONTEXT)
        cli_warn("stopped: the context of %u tokens is full (-c sets a longer one)", j->info.n_ctx);
    print_times(j, g.first_token_ns);
    return code;
}

static int complete(const struct job *j, const char *text, size_t len)
{
    int32_t *ids = NULL;
    size_t n = 0;
    int code = encode(j, text, len, &ids, &n);
    for (size_t i = 0; i < n && code == CLI_OK; i++)
        atsi_sampler_accept(j->sampler, ids[i]);
    if (code == CLI_OK && !hide_prompt)
        code = print_piece(NULL, text, len);
    if (code == CLI_OK)
        code = feed_and_generate(j, ids, n);
    free(ids);
    return code;
}

static int with_model(struct atsi_model *m, struct job *j, const char *text, size_t len)
{
    int code = cli_session_open(m, NULL, "run", &j->session);
    if (code == CLI_OK)
        code = cli_tokenizer(m, &j->tok);
    if (code == CLI_OK) {
        j->info.struct_size = sizeof j->info;
        atsi_session_info(j->session, &j->info);
        code = cli_sampler(m, j->tok, j->info.n_vocab, &j->sampler);
    }
    if (code == CLI_OK)
        code = complete(j, text, len);
    atsi_sampler_close(j->sampler);
    atsi_tokenizer_close(j->tok);
    atsi_session_close(j->session);
    return cli_session_finish(code);
}

static int get_prompt(int n_pos, char **argv, char **text, size_t *len)
{
    if (n_pos > 1 || (n_pos == 1 && (prompt != NULL || prompt_file != NULL)))
        return cli_fail(CLI_USAGE, "unexpected argument %s; quote the prompt",
                        argv[prompt != NULL || prompt_file != NULL ? 1 : 2]);
    if (prompt != NULL && prompt_file != NULL)
        return cli_fail(CLI_USAGE, "-p and -f exclude each other");
    if (prompt_file != NULL)
        return cli_read_file(prompt_file, text, len);
    if (n_pos == 1)
        prompt = argv[1];
    *text = strdup(prompt != NULL ? prompt : "Once upon a time");
    if (*text == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    *len = strlen(*text);
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    struct atsi_runtime *rt = NULL;
    struct atsi_model *m = NULL;
    struct job j = {.start_ns = 0};
    char *text = NULL;
    size_t len = 0;
    int n_pos, code = cli_parse(&cli_cmd_run, options, argc, argv, &n_pos);
    if (code != -1)
        return code;
    code = get_prompt(n_pos, argv, &text, &len);
    if (code == CLI_OK)
        code = cli_stops(&j.stops);
    if (code == CLI_OK)
        code = cli_runtime(&rt);
    if (code == CLI_OK) {
        j.host = atsi_runtime_host(rt);
        j.start_ns = j.host->now_ns(j.host->ctx);
        code = cli_model(rt, false, &m);
    }
    if (code == CLI_OK)
        code = with_model(m, &j, text, len);
    atsi_model_close(m);
    atsi_runtime_close(rt);
    atsi_stops_close(j.stops);
    free(text);
    return code;
}

const struct cli_command cli_cmd_run = {
    .name = "run",
    .summary = "complete a prompt with a model",
    .usage = "atsinfer run [-m MODEL] [-p PROMPT | -f FILE] [options]",
    .run = run,
};
