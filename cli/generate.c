/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces that the generating subcommands share: vocabulary, greedy choice, whole files, and the
 * loop from logits to text: sample, decode, look for stop strings, evaluate. */
#include "cli/generate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int find_meta(const void *ctx, const char *key, struct atsi_meta *out)
{
    return atsi_model_meta_find(ctx, key, out);
}

int cli_tokenizer(const struct atsi_model *m, struct atsi_tokenizer **out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_meta_source src = {.ctx = m, .find = find_meta};
    int rc = atsi_tokenizer_open(&src, out, &err);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

int32_t cli_argmax(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

/* No prompt is longer; /dev/zero is. */
#define MAX_TEXT ((size_t)1 << 28)

/* Reads to the end of `f`, growing as needed. */
static int read_all(FILE *f, const char *path, char **text_out, size_t *len_out)
{
    size_t len = 0, cap = 1 << 16;
    char *text = malloc(cap), *grown;
    while (text != NULL) {
        len += fread(text + len, 1, cap - len - 1, f);
        if (len + 1 < cap)
            break;
        if (cap >= MAX_TEXT || cli_interrupted != 0) {
            free(text);
            return cli_interrupted != 0
                       ? CLI_INTERRUPTED
                       : cli_fail(CLI_USAGE, "%s: more than %zu MiB of text", path, MAX_TEXT >> 20);
        }
        grown = realloc(text, cap * 2);
        if (grown == NULL) {
            free(text);
            text = NULL;
            break;
        }
        text = grown;
        cap *= 2;
    }
    if (text == NULL)
        return cli_fail(CLI_RUN_ERROR, "%s: out of memory", path);
    if (ferror(f) != 0 || cli_interrupted != 0) {
        free(text);
        if (cli_interrupted != 0)
            return CLI_INTERRUPTED;
        return cli_fail(CLI_RUN_ERROR, "%s: %s", path, strerror(errno));
    }
    text[len] = '\0';
    *text_out = text;
    *len_out = len;
    return CLI_OK;
}

int cli_read_file(const char *path, char **text_out, size_t *len_out)
{
    struct stat st;
    FILE *f;
    int code;
    if (strcmp(path, "-") == 0)
        return read_all(stdin, "standard input", text_out, len_out);
    f = fopen(path, "re");
    if (f == NULL)
        return cli_fail(CLI_USAGE, "%s: %s", path, strerror(errno));
    if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode))
        code = cli_fail(CLI_USAGE, "%s: is a directory", path);
    else
        code = read_all(f, path, text_out, len_out);
    if (fclose(f) != 0 && code == CLI_OK) {
        free(*text_out);
        code = cli_fail(CLI_RUN_ERROR, "%s: %s", path, strerror(errno));
    }
    return code;
}

/* ---------------------------------------------------------------- generation */
int cli_eval(struct atsi_session *s, const int32_t *ids, size_t n, uint32_t top,
             const volatile int *cancel)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_eval req = {
        .struct_size = sizeof req, .ids = ids, .n = (uint32_t)n, .cancel = cancel, .top = top};
    int rc;
    if (n > UINT32_MAX)
        return cli_fail(CLI_NO_FIT, "%zu tokens are more than any context holds", n);
    rc = atsi_session_eval(s, &req, &err);
    if (rc == ATSI_EINTR)
        return CLI_INTERRUPTED;
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

/* A text being generated. */
struct writer {
    struct cli_generation *g;
    struct atsi_detok detok;
    uint32_t n_ctx;
};

static bool cancelled(const struct cli_generation *g)
{
    return g->cancel != NULL && *g->cancel != 0;
}

/* Hands text on, through the stop strings; sets *stopped when one is complete. */
static int put_text(const struct writer *w, const char *text, size_t len, bool *stopped)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_stop_text shown = {text, len};
    int rc = 0;
    if (w->g->stops != NULL)
        rc = atsi_stops_push(w->g->stops, text, len, &shown, &err);
    if (rc < 0)
        return cli_fail_status(rc, &err);
    *stopped = rc == 1;
    return shown.n > 0 ? w->g->text(w->g->ctx, shown.p, shown.n) : CLI_OK;
}

/* Whether a special token is to be written out. */
static bool is_shown(const struct cli_generation *g, int32_t id)
{
    bool shown = g->special;
    for (size_t i = 0; i < g->n_shown && !shown; i++)
        shown = g->shown[i] == id;
    return shown;
}

/* Whether the token is never seen as text but is what a stop string spells ("<|im_end|>"). */
static bool is_stop_token(const struct cli_generation *g, int32_t id)
{
    char text[256];
    size_t n;
    if (g->stops == NULL || is_shown(g, id) || atsi_token_bytes(g->tok, id, false, NULL, 0) != 0)
        return false;
    n = atsi_token_bytes(g->tok, id, true, text, sizeof text);
    return n > 0 && n <= sizeof text && atsi_stops_has(g->stops, text, n);
}

static int put_token(struct writer *w, int32_t id, bool *stopped)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char *text = NULL;
    size_t len = 0;
    int code, rc;
    *stopped = is_stop_token(w->g, id);
    if (*stopped)
        return CLI_OK;
    rc = atsi_detok_push(&w->detok, w->g->tok, id, is_shown(w->g, id), &text, &len, &err);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    code = put_text(w, text, len, stopped);
    free(text);
    return code;
}

/* The end of a text: bytes of an unfinished character, and what might have become a stop string. */
static int put_rest(struct writer *w)
{
    struct cli_generation *g = w->g;
    char bytes[8];
    bool stopped = false;
    int code = put_text(w, bytes, atsi_detok_flush(&w->detok, bytes), &stopped);
    if (code == CLI_OK && g->stops != NULL && !stopped) {
        struct atsi_stop_text rest = atsi_stops_flush(g->stops);
        if (rest.n > 0)
            code = g->text(g->ctx, rest.p, rest.n);
    }
    if (stopped)
        g->ending = CLI_END_STOP;
    return code;
}

/* From the largest logits when these came alone and decide, else from all.  Negative: none. */
static int32_t sample(struct cli_generation *g)
{
    const int32_t *ids;
    float *logits;
    uint32_t n = atsi_session_top(g->session, &ids, &logits);
    int32_t id = n > 0 ? atsi_sampler_next_of(g->sampler, ids, logits, n) : ATSI_ENOTSUP;
    if (id != ATSI_ENOTSUP)
        return id;
    logits = atsi_session_logits(g->session);
    return logits != NULL ? atsi_sampler_next(g->sampler, logits) : ATSI_ENODEV;
}

/* One token.  CLI_OK with *done false asks for the next. */
static int next_token(const struct atsi_host *host, struct writer *w, bool *done)
{
    struct cli_generation *g = w->g;
    bool stopped = false;
    int32_t id;
    int code;
    *done = true;
    if (cancelled(g)) {
        g->ending = CLI_END_INTERRUPTED;
        return CLI_OK;
    }
    id = sample(g);
    if (id == ATSI_ENODEV)
        return cli_fail(CLI_RUN_ERROR,
                        "the logits of the last token are lost: the accelerator failed");
    if (id < 0)
        return cli_fail(CLI_RUN_ERROR,
                        "no token can be chosen: no logit is a finite number. Either --logit-bias "
                        "forbids all, or the model file is damaged");
    if (g->first_token_ns == 0)
        g->first_token_ns = host->now_ns(host->ctx);
    if (!atsi_ids_add(&g->ids, id))
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    if (!g->ignore_eos && atsi_token_is_eog(g->tok, id)) {
        g->ending = CLI_END_EOG;
        return CLI_OK;
    }
    atsi_sampler_accept(g->sampler, id);
    code = put_token(w, id, &stopped);
    if (code != CLI_OK)
        return code;
    if (stopped)
        g->ending = CLI_END_STOP;
    else if (g->n_predict >= 0 && g->ids.n >= (uint64_t)g->n_predict)
        g->ending = CLI_END_LENGTH;
    else if (atsi_session_n_past(g->session) >= w->n_ctx)
        g->ending = CLI_END_CONTEXT;
    else
        *done = false;
    if (*done)
        return CLI_OK;
    code = cli_eval(g->session, &id, 1, atsi_sampler_top(g->sampler), g->cancel);
    if (code != CLI_INTERRUPTED)
        return code;
    g->ending = CLI_END_INTERRUPTED;
    *done = true;
    return CLI_OK;
}

int cli_generate(const struct atsi_host *host, struct cli_generation *g)
{
    struct writer w = {.g = g};
    struct atsi_session_info info = {.struct_size = sizeof info};
    bool done = g->n_predict == 0;
    int code = CLI_OK;
    atsi_session_info(g->session, &info);
    w.n_ctx = info.n_ctx;
    g->ids = (struct atsi_ids){.p = NULL};
    g->first_token_ns = 0;
    g->ending = CLI_END_LENGTH;
    if (g->stops != NULL)
        atsi_stops_reset(g->stops);
    while (!done && code == CLI_OK)
        code = next_token(host, &w, &done);
    return code == CLI_OK ? put_rest(&w) : code;
}

void cli_print_timings(const struct atsi_session_info *info, const struct atsi_session_times *t,
                       uint64_t ttft_ns)
{
    (void)fprintf(stderr, "\n%s (%s)\n", info->backend, info->chosen);
    if (t->n_prefill > 0)
        (void)fprintf(stderr, "prompt  %6u tokens  %8.1f ms  %8.1f tokens/s\n", t->n_prefill,
                      (double)t->prefill_ns / 1e6,
                      (double)t->n_prefill * 1e9 / (double)(t->prefill_ns | 1));
    if (t->n_decode > 0)
        (void)fprintf(stderr, "decode  %6u tokens  %8.1f ms  %8.1f tokens/s\n", t->n_decode,
                      (double)t->decode_ns / 1e6,
                      (double)t->n_decode * 1e9 / (double)(t->decode_ns | 1));
    if (ttft_ns != 0)
        (void)fprintf(stderr, "first token after %.1f ms\n", (double)ttft_ns / 1e6);
}
