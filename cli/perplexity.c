/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer perplexity`: how well a model predicts a text, counted as llama-perplexity counts.
 *
 * The text becomes one list of tokens, cut into windows of n_ctx tokens that do not overlap; what
 * is left over at the end is not used.  A window starts from an empty context, its first token
 * replaced by BOS where the vocabulary adds one.  The logits at positions n_ctx/2 .. n_ctx-2 score
 * the token after them: nll = -ln p(next).  Perplexity is exp(mean nll) over all windows.
 */
#include "cli/generate.h"
#include "cli/options.h"
#include "cli/session.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_CTX 512 /* llama-perplexity's: figures are compared at it */
#define MIN_CTX 4

static const char *file_path;
static int64_t max_chunks = -1;
static bool as_json;

static const struct cli_option options[] = {
    {.name = "-f|--file",
     .arg = "FILE",
     .help = "text to predict, - for standard input",
     .text = &file_path},
    {.name = "--chunks",
     .arg = "N",
     .help = "only the first N windows, -1: all",
     .integer = &max_chunks,
     .min = -1,
     .max = INT32_MAX},
    CLI_TRACE_OPTION,
    CLI_ROUTING_OPTION,
    {.name = "--json", .help = "one JSON object instead of lines", .flag = &as_json},
    {.name = NULL},
};

struct job {
    const struct atsi_host *host;
    struct atsi_session *session;
    struct atsi_vocab_info vocab;
    int32_t *ids; /* [owned] */
    size_t n_ids;
    uint32_t n_ctx, n_vocab;
    size_t n_chunks, chunk; /* all, the one being done */
    json_t *running;        /* perplexity after each window */
    /* Sums over scored tokens. */
    double nll, nll2;
    uint64_t n_scored;
    /* The progress bar. */
    uint64_t start_ns, shown_ns;
    bool bar;
};

/* ---------------------------------------------------------------- the number */
/* -ln p(id) by a log-softmax in double; NaN when some logit is not a number. */
static double nll_of(const float *logits, uint32_t n, int32_t id)
{
    const int32_t best = cli_argmax(logits, n);
    const double top = (double)logits[best];
    double sum = 1; /* the best one's own exp(0) */
    for (uint32_t i = 0; i < n; i++)
        if (i != (uint32_t)best)
            sum += exp((double)logits[i] - top);
    return log(sum) + top - (double)logits[id];
}

static double perplexity(const struct job *j)
{
    return exp(j->nll / (double)j->n_scored);
}

/* Standard error of the perplexity: that of the mean nll, carried through exp. */
static double std_error(const struct job *j)
{
    double n = (double)j->n_scored, mean = j->nll / n, var = j->nll2 / n - mean * mean;
    return n > 1 && var > 0 ? perplexity(j) * sqrt(var / (n - 1)) : 0.0;
}

/* ---------------------------------------------------------------- progress */
static void clear_bar(const struct job *j)
{
    if (j->bar && j->shown_ns != 0)
        (void)fprintf(stderr, "\r%60s\r", "");
}

/* At most five times a second; `done` tokens of the current window. */
static void show_bar(struct job *j, uint32_t done)
{
    enum { WIDTH = 24 };
    char cells[WIDTH + 1];
    uint64_t now = j->bar ? j->host->now_ns(j->host->ctx) : 0;
    double part, left;
    unsigned fill;
    if (!j->bar || now - j->shown_ns < 200000000u)
        return;
    part = ((double)j->chunk + (double)done / j->n_ctx) / (double)j->n_chunks;
    left = (double)(now - j->start_ns) / 1e9 * (1 / part - 1);
    fill = (unsigned)(part * WIDTH);
    memset(cells, '.', WIDTH);
    memset(cells, '#', fill < WIDTH ? fill : WIDTH);
    cells[WIDTH] = '\0';
    (void)fprintf(stderr, "\r[%s] %3.0f %%  %" PRIu64 ":%02u:%02u left ", cells, 100 * part,
                  (uint64_t)left / 3600, (unsigned)((uint64_t)left / 60 % 60),
                  (unsigned)((uint64_t)left % 60));
    j->shown_ns = now;
}

/* ---------------------------------------------------------------- windows */
static int score(void *ctx, uint32_t pos, const float *logits)
{
    struct job *j = ctx;
    double x = nll_of(logits, j->n_vocab, j->ids[j->chunk * j->n_ctx + pos + 1]);
    if (!isfinite(x))
        return ATSI_EFAIL;
    j->nll += x;
    j->nll2 += x * x;
    j->n_scored++;
    show_bar(j, pos + 1);
    return cli_interrupted != 0 ? ATSI_EINTR : 0;
}

static int eval(struct job *j, const int32_t *ids, uint32_t n, bool scored)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_eval req = {.struct_size = sizeof req,
                            .ids = ids,
                            .n = n,
                            .want_all = scored,
                            .fn = scored ? score : NULL,
                            .ctx = j,
                            .cancel = &cli_interrupted};
    int rc = atsi_session_eval(j->session, &req, &err);
    if (rc == ATSI_EINTR)
        return CLI_INTERRUPTED;
    if (rc == ATSI_EFAIL && err.msg[0] == '\0')
        return cli_fail(CLI_RUN_ERROR,
                        "window %zu: no probability for the token at position %u: some logit is "
                        "not a finite number; the model file is damaged",
                        j->chunk + 1, atsi_session_n_past(j->session));
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

/* One window.  An interrupted one leaves the sums as they were. */
static int run_window(struct job *j)
{
    struct atsi_err err = ATSI_ERR_INIT;
    const double nll = j->nll, nll2 = j->nll2;
    const uint64_t n_scored = j->n_scored;
    const uint32_t first = j->n_ctx / 2;
    int32_t *ids = j->ids + j->chunk * j->n_ctx, saved = ids[0];
    int code, rc = atsi_session_truncate(j->session, 0, &err);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    if (j->vocab.add_bos && j->vocab.bos >= 0)
        ids[0] = j->vocab.bos;
    code = eval(j, ids, first, false);
    show_bar(j, first);
    if (code == CLI_OK)
        code = eval(j, ids + first, j->n_ctx - 1 - first, true);
    ids[0] = saved;
    if (code != CLI_OK) {
        j->nll = nll;
        j->nll2 = nll2;
        j->n_scored = n_scored;
    }
    return code;
}

static int report_window(const struct job *j)
{
    if (json_array_append_new(j->running, json_real(perplexity(j))) != 0)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    if (as_json)
        return CLI_OK;
    clear_bar(j);
    (void)printf("%6zu/%zu  %10.4f\n", j->chunk + 1, j->n_chunks, perplexity(j));
    return cli_finish_stdout(CLI_OK);
}

static int run_windows(struct job *j)
{
    int code = CLI_OK;
    j->start_ns = j->host->now_ns(j->host->ctx);
    j->bar = isatty(STDERR_FILENO) != 0 && cli_common.level >= ATSI_LOG_WARN;
    for (j->chunk = 0; j->chunk < j->n_chunks && code == CLI_OK; j->chunk += code == CLI_OK) {
        code = run_window(j);
        if (code == CLI_OK)
            code = report_window(j);
    }
    clear_bar(j);
    return code;
}

/* ---------------------------------------------------------------- the result */
static int print_json(const struct job *j)
{
    json_t *root =
        json_pack("{s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:O}", "perplexity", perplexity(j), "std_error",
                  std_error(j), "mean_nll", j->nll / (double)j->n_scored, "n_ctx",
                  (json_int_t)j->n_ctx, "n_tokens", (json_int_t)j->n_ids, "n_chunks",
                  (json_int_t)j->chunk, "n_scored", (json_int_t)j->n_scored, "running", j->running);
    int rc = root != NULL ? json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) : -1;
    json_decref(root);
    if (rc != 0)
        return cli_fail(CLI_RUN_ERROR, "cannot write the result");
    (void)putchar('\n');
    return cli_finish_stdout(CLI_OK);
}

/* What there is, also after an interruption. */
static int print_result(const struct job *j)
{
    if (j->chunk == 0)
        return CLI_OK;
    if (as_json)
        return print_json(j);
    (void)printf("perplexity %.4f +/- %.4f  (%zu windows of %u tokens, %" PRIu64 " scored)\n",
                 perplexity(j), std_error(j), j->chunk, j->n_ctx, j->n_scored);
    return cli_finish_stdout(CLI_OK);
}

static int measure(struct job *j)
{
    int code, printed;
    j->running = json_array();
    if (j->running == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    code = run_windows(j);
    if (code == CLI_INTERRUPTED)
        cli_warn("interrupted after %zu of %zu windows", j->chunk, j->n_chunks);
    if (code == CLI_OK || code == CLI_INTERRUPTED) {
        printed = print_result(j);
        code = printed != CLI_OK ? printed : code;
    }
    json_decref(j->running);
    return code;
}

/* ---------------------------------------------------------------- set-up */
static int find_ctx(void *ctx, const struct atsi_conf_entry *e)
{
    uint32_t *out = ctx;
    if (strcmp(e->key, "model.ctx") == 0 && strcmp(e->origin, "command line") == 0)
        *out = (uint32_t)strtoul(e->value, NULL, 10);
    return 0;
}

/* -c of the command line, else 512 whatever other sources say: figures at different windows do not
 * compare. */
static int choose_ctx(const struct atsi_runtime *rt, struct atsi_model *m, uint32_t *out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    const struct atsi_graph *g;
    int rc = atsi_model_graph(m, &g, &err);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    *out = DEFAULT_CTX;
    (void)atsi_runtime_conf_each(rt, find_ctx, out);
    if (*out == 0)
        *out = g->n_ctx_train;
    if (*out < MIN_CTX)
        return cli_fail(CLI_USAGE, "-c %u: perplexity needs windows of at least %d tokens", *out,
                        MIN_CTX);
    if (g->n_ctx_train != 0 && *out > g->n_ctx_train)
        cli_warn("windows of %u tokens, but the model was made for %u", *out, g->n_ctx_train);
    return CLI_OK;
}

static int encode(struct job *j, const struct atsi_tokenizer *tok, const char *text, size_t len)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int rc;
    cli_exit_on_signal(true);
    rc = atsi_tokenize(tok, text, len, ATSI_TOK_ADD_SPECIAL, &j->ids, &j->n_ids, &err);
    cli_exit_on_signal(false);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    if (j->n_ids / 2 < j->n_ctx)
        return cli_fail(CLI_USAGE,
                        "%s: the text has %zu tokens, but two windows of %u are needed, %" PRIu64
                        " tokens; give a longer text or a smaller -c",
                        file_path, j->n_ids, j->n_ctx, (uint64_t)j->n_ctx * 2);
    j->n_chunks = j->n_ids / j->n_ctx;
    if (max_chunks >= 0 && (uint64_t)max_chunks < j->n_chunks)
        j->n_chunks = (size_t)max_chunks;
    return CLI_OK;
}

/* The token after the last one fed is never evaluated, only looked up. */
static int check_ids(const struct job *j)
{
    for (size_t i = 0; i < j->n_ids; i++)
        if (j->ids[i] < 0 || (uint32_t)j->ids[i] >= j->n_vocab)
            return cli_fail(CLI_RUN_ERROR,
                            "the vocabulary has a token %d, but the model only logits for %u",
                            j->ids[i], j->n_vocab);
    return CLI_OK;
}

static int with_model(struct atsi_runtime *rt, struct atsi_model *m, const char *text, size_t len)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session_info info = {.struct_size = sizeof info};
    struct atsi_tokenizer *tok = NULL;
    struct job j = {.host = atsi_runtime_host(rt)};
    int rc, code = cli_tokenizer(m, &tok);
    if (code == CLI_OK)
        code = choose_ctx(rt, m, &j.n_ctx);
    if (code == CLI_OK) {
        atsi_tokenizer_info(tok, &j.vocab);
        code = encode(&j, tok, text, len);
    }
    if (code == CLI_OK) {
        p.n_ctx = j.n_ctx;
        code = cli_session_open(m, &p, "perplexity", &j.session);
    }
    if (code == CLI_OK) {
        rc = atsi_session_settle(j.session, &cli_interrupted, &err);
        code = rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
    }
    if (code == CLI_OK) {
        atsi_session_info(j.session, &info);
        j.n_vocab = info.n_vocab;
        code = check_ids(&j);
    }
    if (code == CLI_OK)
        code = measure(&j);
    atsi_session_close(j.session);
    atsi_tokenizer_close(tok);
    free(j.ids);
    return cli_session_finish(code);
}

static int run(int argc, char **argv)
{
    struct atsi_runtime *rt = NULL;
    struct atsi_model *m = NULL;
    char *text = NULL;
    size_t len = 0;
    int n_pos, code = cli_parse(&cli_cmd_perplexity, options, argc, argv, &n_pos);
    if (code != -1)
        return code;
    if (n_pos > 0)
        return cli_fail(CLI_USAGE, "unexpected argument %s; the text is read with -f FILE",
                        argv[1]);
    if (file_path == NULL)
        return cli_fail(CLI_USAGE, "-f is missing: a file with the text to predict");
    if (max_chunks == 0)
        return cli_fail(CLI_USAGE, "--chunks 0: at least one window is needed, or -1 for all");
    code = cli_read_file(file_path, &text, &len);
    if (code == CLI_OK)
        code = cli_runtime(&rt);
    if (code == CLI_OK)
        code = cli_model(rt, false, &m);
    if (code == CLI_OK)
        code = with_model(rt, m, text, len);
    atsi_model_close(m);
    atsi_runtime_close(rt);
    free(text);
    return code;
}

const struct cli_command cli_cmd_perplexity = {
    .name = "perplexity",
    .summary = "how well a model predicts a text",
    .usage = "atsinfer perplexity [-m MODEL] -f FILE [-c N] [--chunks N] [--json]",
    .run = run,
};
