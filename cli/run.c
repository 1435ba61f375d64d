/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer run`: completes a prompt.  The prompt and what the model adds go to stdout as they
 * appear; timings and everything else to stderr.
 */
#include "cli/generate.h"
#include "cli/options.h"
#include "text/sampler.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static const char *prompt, *prompt_file, *bias_text;
static int64_t n_predict = -1, seed = -1, top_k, last_n;
static double temp, top_p, min_p, typical_p, repeat, presence, frequency;
static bool ignore_eos, hide_prompt, show_special, no_timings;

static const struct cli_option options[] = {
    {.name = "-p|--prompt", .arg = "TEXT", .help = "text to continue", .text = &prompt},
    {.name = "-f|--file",
     .arg = "FILE",
     .help = "prompt from a file, - for standard input",
     .text = &prompt_file},
    {.name = "-n|--predict|--n-predict",
     .arg = "N",
     .help = "tokens to add, -1: until the end of text or context",
     .integer = &n_predict,
     .min = -1,
     .max = INT32_MAX},
    {.name = "-s|--seed",
     .arg = "N",
     .help = "same seed, same text; -1: random",
     .integer = &seed,
     .min = -1,
     .max = 9e15},
    {.name = "--temp",
     .arg = "X",
     .help = "temperature, 0: always the likeliest token",
     .real = &temp,
     .min = 0,
     .max = 100},
    {.name = "--top-k",
     .arg = "N",
     .help = "only the N likeliest tokens, 0: all",
     .integer = &top_k,
     .min = 0,
     .max = INT32_MAX},
    {.name = "--top-p",
     .arg = "X",
     .help = "smallest set of that total probability, 1: off",
     .real = &top_p,
     .min = 0,
     .max = 1},
    {.name = "--min-p",
     .arg = "X",
     .help = "at least X times the best probability, 0: off",
     .real = &min_p,
     .min = 0,
     .max = 1},
    {.name = "--typical",
     .arg = "X",
     .help = "locally typical sampling, 1: off",
     .real = &typical_p,
     .min = 0,
     .max = 1},
    {.name = "--repeat-penalty",
     .arg = "X",
     .help = "divide logits of recent tokens, 1: off",
     .real = &repeat,
     .min = 0.01,
     .max = 100},
    {.name = "--presence-penalty",
     .arg = "X",
     .help = "subtract once for recent tokens",
     .real = &presence,
     .min = -100,
     .max = 100},
    {.name = "--frequency-penalty",
     .arg = "X",
     .help = "subtract per occurrence",
     .real = &frequency,
     .min = -100,
     .max = 100},
    {.name = "--repeat-last-n",
     .arg = "N",
     .help = "tokens the penalties look at, -1: all",
     .integer = &last_n,
     .min = -1,
     .max = INT32_MAX},
    {.name = "--logit-bias",
     .arg = "ID+X,ID-X",
     .help = "add to the logits of tokens (-inf forbids)",
     .text = &bias_text},
    {.name = "--ignore-eos", .help = "go on after end-of-text tokens", .flag = &ignore_eos},
    {.name = "--no-display-prompt", .help = "print only what the model adds", .flag = &hide_prompt},
    {.name = "--special", .help = "print special tokens too", .flag = &show_special},
    {.name = "--no-timings", .help = "no summary at the end", .flag = &no_timings},
    {.name = NULL},
};

struct generation {
    struct atsi_tokenizer *tok;
    struct atsi_session *session;
    struct atsi_sampler *sampler;
    struct atsi_detok detok;
    struct atsi_session_info info;
    uint64_t first_token_ns, start_ns;
    const struct atsi_host *host;
    int64_t n_done;
};

static uint64_t now(const struct generation *g)
{
    return g->host->now_ns(g->host->ctx);
}

static int show(struct generation *g, int32_t id)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char *text = NULL;
    size_t len = 0;
    int rc = atsi_detok_push(&g->detok, g->tok, id, show_special, &text, &len, &err);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    (void)fwrite(text, 1, len, stdout);
    free(text);
    return fflush(stdout) == 0 ? CLI_OK : cli_finish_stdout(CLI_OK);
}

static void show_rest(struct generation *g)
{
    char rest[8];
    size_t n = atsi_detok_flush(&g->detok, rest);
    (void)fwrite(rest, 1, n, stdout);
}

static int eval(struct generation *g, const int32_t *ids, size_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_eval req = {
        .struct_size = sizeof req, .ids = ids, .n = (uint32_t)n, .cancel = &cli_interrupted};
    int rc = atsi_session_eval(g->session, &req, &err);
    if (rc == ATSI_EINTR)
        return CLI_INTERRUPTED;
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

static bool finished(const struct generation *g, int32_t id)
{
    return !ignore_eos && atsi_token_is_eog(g->tok, id);
}

/* Tokens until the end of text, -n, the context or Ctrl-C. */
static int generate(struct generation *g)
{
    while (n_predict < 0 || g->n_done < n_predict) {
        float *logits = atsi_session_logits(g->session);
        int32_t id = atsi_sampler_next(g->sampler, logits);
        int code;
        if (id < 0)
            return cli_fail(CLI_RUN_ERROR,
                            "no logit is a finite number: the model file is damaged");
        if (g->n_done++ == 0)
            g->first_token_ns = now(g);
        if (finished(g, id))
            return CLI_OK;
        atsi_sampler_accept(g->sampler, id);
        code = show(g, id);
        if (code != CLI_OK || cli_interrupted != 0)
            return cli_interrupted != 0 ? CLI_INTERRUPTED : code;
        if (n_predict >= 0 && g->n_done >= n_predict)
            return CLI_OK;
        if (atsi_session_n_past(g->session) >= g->info.n_ctx) {
            show_rest(g);
            (void)fflush(stdout);
            cli_warn("stopped: the context of %u tokens is full (-c sets a longer one)",
                     g->info.n_ctx);
            return CLI_OK;
        }
        code = eval(g, &id, 1);
        if (code != CLI_OK)
            return code;
    }
    return CLI_OK;
}

static void print_timings(const struct generation *g)
{
    struct atsi_session_times t = {.struct_size = sizeof t};
    atsi_session_times(g->session, &t);
    (void)fprintf(stderr, "\n%s (%s)\n", g->info.backend, g->info.chosen);
    if (t.n_prefill > 0)
        (void)fprintf(stderr, "prompt  %6u tokens  %8.1f ms  %8.1f tokens/s\n", t.n_prefill,
                      (double)t.prefill_ns / 1e6,
                      (double)t.n_prefill * 1e9 / (double)(t.prefill_ns | 1));
    if (t.n_decode > 0)
        (void)fprintf(stderr, "decode  %6u tokens  %8.1f ms  %8.1f tokens/s\n", t.n_decode,
                      (double)t.decode_ns / 1e6,
                      (double)t.n_decode * 1e9 / (double)(t.decode_ns | 1));
    if (g->first_token_ns != 0)
        (void)fprintf(stderr, "first token after %.1f ms\n",
                      (double)(g->first_token_ns - g->start_ns) / 1e6);
}

/* ---------------------------------------------------------------- sampling options */
/* "ID+X,ID-X": how llama.cpp users write it. */
static int parse_bias(struct atsi_logit_bias **out, size_t *n_out)
{
    size_t room = 1;
    const char *p = bias_text;
    *n_out = 0;
    for (const char *q = p; *q != '\0'; q++)
        room += *q == ',';
    *out = calloc(room, sizeof **out);
    if (*out == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    for (;;) {
        char *end = NULL, *last = NULL;
        long id = strtol(p, &end, 10);
        float x = end != p && (*end == '+' || *end == '-') ? strtof(end, &last) : 0.0F;
        if (last == NULL || last == end || (*last != ',' && *last != '\0') || id < 0 ||
            id > INT32_MAX || isnan(x))
            return cli_fail(CLI_USAGE, "--logit-bias: \"%.24s\": expected ID+X or ID-X", p);
        (*out)[(*n_out)++] = (struct atsi_logit_bias){(int32_t)id, x};
        if (*last == '\0')
            return CLI_OK;
        p = last + 1;
    }
}

static uint64_t random_seed(void)
{
    uint64_t x = 0;
    if (getrandom(&x, sizeof x, 0) != (ssize_t)sizeof x)
        x = (uint64_t)time(NULL);
    return x;
}

static int open_sampler(struct generation *g)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_logit_bias *bias = NULL;
    struct atsi_sampler_params p;
    int rc, code = CLI_OK;
    atsi_sampler_defaults(&p);
    p.temp = (float)temp;
    p.top_k = (uint32_t)top_k;
    p.top_p = (float)top_p;
    p.min_p = (float)min_p;
    p.typical_p = (float)typical_p;
    p.penalty_repeat = (float)repeat;
    p.penalty_presence = (float)presence;
    p.penalty_freq = (float)frequency;
    p.penalty_last_n = (int32_t)last_n;
    p.seed = seed >= 0 ? (uint64_t)seed : random_seed();
    if (bias_text != NULL)
        code = parse_bias(&bias, &p.n_bias);
    p.bias = bias;
    if (code == CLI_OK) {
        rc = atsi_sampler_open(&p, g->info.n_vocab, &g->sampler, &err);
        if (rc != ATSI_OK)
            code = cli_fail_status(rc == ATSI_EINVAL ? ATSI_ECONF : rc, &err);
    }
    free(bias);
    return code;
}

static void default_options(void)
{
    struct atsi_sampler_params p;
    atsi_sampler_defaults(&p);
    temp = (double)p.temp;
    top_k = p.top_k;
    top_p = (double)p.top_p;
    min_p = (double)p.min_p;
    typical_p = (double)p.typical_p;
    repeat = (double)p.penalty_repeat;
    presence = (double)p.penalty_presence;
    frequency = (double)p.penalty_freq;
    last_n = p.penalty_last_n;
}

/* ---------------------------------------------------------------- the run */
/* Prompt ids; an empty prompt of a vocabulary without BOS has nothing to start from. */
static int encode(struct generation *g, const char *text, size_t len, int32_t **ids, size_t *n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int rc = atsi_tokenize(g->tok, text, len, ATSI_TOK_ADD_SPECIAL | ATSI_TOK_PARSE_SPECIAL, ids, n,
                           &err);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    if (*n == 0)
        return cli_fail(CLI_USAGE,
                        "the prompt is empty, and this model has no start token to begin "
                        "from; give one with -p");
    if (*n > g->info.n_ctx)
        return cli_fail(CLI_NO_FIT,
                        "the prompt has %zu tokens, the context %u; set a longer one "
                        "with -c",
                        *n, g->info.n_ctx);
    return CLI_OK;
}

static int complete(struct generation *g, const char *text, size_t len)
{
    int32_t *ids = NULL;
    size_t n = 0;
    int code = encode(g, text, len, &ids, &n);
    for (size_t i = 0; i < n && code == CLI_OK; i++)
        atsi_sampler_accept(g->sampler, ids[i]);
    if (code == CLI_OK && !hide_prompt) {
        (void)fwrite(text, 1, len, stdout);
        (void)fflush(stdout);
    }
    if (code == CLI_OK)
        code = eval(g, ids, n);
    if (code == CLI_OK)
        code = generate(g);
    free(ids);
    if (code == CLI_OK || code == CLI_INTERRUPTED) {
        show_rest(g);
        (void)putchar('\n');
        (void)cli_finish_stdout(CLI_OK);
        if (!no_timings && cli_common.level >= ATSI_LOG_WARN)
            print_timings(g);
    }
    return cli_finish_stdout(code);
}

static int with_model(struct atsi_runtime *rt, struct atsi_model *m, const char *text, size_t len,
                      uint64_t start_ns)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct generation g = {.host = atsi_runtime_host(rt), .start_ns = start_ns};
    int rc = atsi_session_open(m, NULL, &g.session, &err);
    int code = rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
    if (code == CLI_OK)
        code = cli_tokenizer(m, &g.tok);
    if (code == CLI_OK) {
        g.info.struct_size = sizeof g.info;
        atsi_session_info(g.session, &g.info);
        code = open_sampler(&g);
    }
    if (code == CLI_OK)
        code = complete(&g, text, len);
    atsi_sampler_close(g.sampler);
    atsi_tokenizer_close(g.tok);
    atsi_session_close(g.session);
    return code;
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
    char *text = NULL;
    size_t len = 0;
    uint64_t start_ns = 0;
    int n_pos, code;
    default_options();
    code = cli_parse(&cli_cmd_run, options, argc, argv, &n_pos);
    if (code != -1)
        return code;
    code = get_prompt(n_pos, argv, &text, &len);
    if (code == CLI_OK)
        code = cli_runtime(&rt);
    if (code == CLI_OK) {
        const struct atsi_host *host = atsi_runtime_host(rt);
        start_ns = host->now_ns(host->ctx);
        code = cli_model(rt, false, &m);
    }
    if (code == CLI_OK)
        code = with_model(rt, m, text, len, start_ns);
    atsi_model_close(m);
    atsi_runtime_close(rt);
    free(text);
    return code;
}

const struct cli_command cli_cmd_run = {
    .name = "run",
    .summary = "complete a prompt with a model",
    .usage = "atsinfer run [-m MODEL] [-p PROMPT | -f FILE] [options]",
    .run = run,
};
