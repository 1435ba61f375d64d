/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers prompts with the CPU alone and then, in one process, under many settings with an
 * accelerator; for scripts/golden_hybrid.py.  Greedy tokens must be equal, and every logit of every
 * position within 0.001.
 *
 *   golden_sweep MODEL N [--plugin FILE] [KEY=VALUE...] < LINES
 *
 * N: greedy tokens.  KEY=VALUE: settings of the runs with an accelerator.  Lines, in this order:
 *   prompt NAME 1,2,3           token ids
 *   case CHUNK KEY=VALUE...     tokens per prefill round, further settings
 * For each case one line: "ok WORST" or "FAIL WORST what". */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atsinfer/atsinfer.h"

#define TOLERANCE 0.001

enum { MAX_PROMPTS = 16, MAX_IDS = 512, MAX_SETTINGS = 48, MAX_LINE = 8192 };

struct prompt {
    char name[32];
    uint32_t n_ids;
    int32_t ids[MAX_IDS];
    float *alone; /* [n_ids + N - 1][n_vocab], of the CPU */
    float *have;  /* of the run with an accelerator */
};

struct sweep {
    const char *model, *plugin;
    uint32_t n_greedy, n_ctx, n_prompts, n_vocab;
    struct prompt *prompts;
    char cpu[80]; /* backend.cpu=NAME, as the CPU alone chose: measuring again takes time */
    const char *settings[MAX_SETTINGS + 1];
    size_t n_common, n_settings;
};

struct engine {
    struct atsi_runtime *rt;
    struct atsi_model *m;
    struct atsi_session *s;
    struct atsi_err err;
};

static void say(void *ctx, enum atsi_log_level level, const char *who, const char *msg)
{
    (void)ctx;
    (void)level;
    (void)fprintf(stderr, "%s: %s\n", who, msg);
}

static void engine_close(struct engine *e)
{
    if (e->s != NULL)
        atsi_session_close(e->s);
    if (e->m != NULL)
        atsi_model_close(e->m);
    if (e->rt != NULL)
        atsi_runtime_close(e->rt);
    *e = (struct engine){.err = e->err};
}

static int engine_open(struct engine *e, const struct sweep *w, const char *const *settings,
                       uint32_t chunk)
{
    const char *plugins[] = {w->plugin, NULL};
    struct atsi_runtime_params p = {.struct_size = sizeof p,
                                    .overrides = settings,
                                    .plugin_files = plugins,
                                    .log = say,
                                    .log_level = ATSI_LOG_WARN};
    struct atsi_session_params sp = ATSI_SESSION_PARAMS_INIT;
    int rc;
    *e = (struct engine){.err = ATSI_ERR_INIT};
    sp.n_ctx = w->n_ctx;
    sp.chunk = chunk;
    sp.type_k = sp.type_v = ATSI_TYPE_F32;
    rc = atsi_runtime_open(&p, &e->rt, &e->err);
    if (rc == ATSI_OK)
        rc = atsi_model_open(e->rt, w->model, NULL, &e->m, &e->err);
    if (rc == ATSI_OK)
        rc = atsi_session_open(e->m, &sp, &e->s, &e->err);
    return rc;
}

/* ---------------------------------------------------------------- answers */
struct rows {
    float *at;
    uint32_t n_vocab;
};

static int keep_row(void *ctx, uint32_t pos, const float *logits)
{
    struct rows *r = ctx;
    memcpy(r->at + (size_t)pos * r->n_vocab, logits, r->n_vocab * sizeof *logits);
    return 0;
}

static int32_t best(const float *row, uint32_t n)
{
    int32_t k = 0;
    for (uint32_t i = 1; i < n; i++)
        if (row[i] > row[k])
            k = (int32_t)i;
    return k;
}

static uint32_t rows_of(const struct sweep *w, const struct prompt *p)
{
    return p->n_ids + (w->n_greedy > 0 ? w->n_greedy - 1 : 0);
}

/* Logits of every position of the prompt and of the greedy tokens but the last. */
static int answer(struct engine *e, const struct sweep *w, const struct prompt *p, float *out)
{
    struct rows rows = {out, w->n_vocab};
    struct atsi_eval req = {.struct_size = sizeof req,
                            .ids = p->ids,
                            .n = p->n_ids,
                            .want_all = 1,
                            .fn = keep_row,
                            .ctx = &rows};
    int rc = atsi_session_truncate(e->s, 0, &e->err);
    if (rc == ATSI_OK)
        rc = atsi_session_eval(e->s, &req, &e->err);
    for (uint32_t i = p->n_ids; rc == ATSI_OK && i < rows_of(w, p); i++) {
        int32_t id = best(out + (size_t)(i - 1) * w->n_vocab, w->n_vocab);
        req = (struct atsi_eval){.struct_size = sizeof req, .ids = &id, .n = 1};
        rc = atsi_session_eval(e->s, &req, &e->err);
        if (rc == ATSI_OK)
            (void)keep_row(&rows, i, atsi_session_logits(e->s));
    }
    return rc;
}

static int no_memory(struct atsi_err *err)
{
    (void)snprintf(err->msg, sizeof err->msg, "out of memory");
    return ATSI_ENOMEM;
}

static int answer_alone(struct sweep *w)
{
    static const char *const none[] = {"backend.accel=none", NULL};
    struct atsi_session_info info = {.struct_size = sizeof info};
    struct engine e;
    int rc = engine_open(&e, w, none, 0);
    if (rc == ATSI_OK) {
        atsi_session_info(e.s, &info);
        w->n_vocab = info.n_vocab;
        (void)snprintf(w->cpu, sizeof w->cpu, "backend.cpu=%s", info.backend);
    }
    for (uint32_t i = 0; rc == ATSI_OK && i < w->n_prompts; i++) {
        struct prompt *p = &w->prompts[i];
        p->alone = calloc((size_t)rows_of(w, p) * w->n_vocab, sizeof *p->alone);
        p->have = calloc((size_t)rows_of(w, p) * w->n_vocab, sizeof *p->have);
        if (p->alone == NULL || p->have == NULL)
            rc = no_memory(&e.err);
        else
            rc = answer(&e, w, p, p->alone);
    }
    if (rc != ATSI_OK)
        (void)fprintf(stderr, "golden_sweep: the CPU alone: %s\n", e.err.msg);
    engine_close(&e);
    return rc;
}

/* ---------------------------------------------------------------- cases */
struct verdict {
    double worst;
    char what[400]; /* empty: equal */
};

__attribute__((format(printf, 2, 3))) static void blame(struct verdict *v, const char *fmt, ...)
{
    va_list ap;
    if (v->what[0] != '\0')
        return; /* the first says most */
    va_start(ap, fmt);
    (void)vsnprintf(v->what, sizeof v->what, fmt, ap);
    va_end(ap);
}

static void compare(const struct sweep *w, const struct prompt *p, struct verdict *v)
{
    for (uint32_t i = 0; i < rows_of(w, p); i++) {
        const float *a = p->alone + (size_t)i * w->n_vocab, *b = p->have + (size_t)i * w->n_vocab;
        int32_t want = best(a, w->n_vocab), got = best(b, w->n_vocab);
        double worst = 0;
        for (uint32_t k = 0; k < w->n_vocab; k++)
            worst = fmax(worst, isnan(b[k]) ? INFINITY : fabs((double)a[k] - (double)b[k]));
        v->worst = fmax(v->worst, worst);
        if (worst > TOLERANCE)
            blame(v, "%s, position %u: logits differ by %g", p->name, i, worst);
        if (i + 1 >= p->n_ids && want != got)
            blame(v, "%s, position %u: token %d, the CPU alone %d", p->name, i, got, want);
    }
}

static void try_case(const struct sweep *w, uint32_t chunk, struct verdict *v)
{
    struct atsi_session_info info = {.struct_size = sizeof info};
    struct engine e;
    int rc = engine_open(&e, w, w->settings, chunk);
    for (uint32_t i = 0; rc == ATSI_OK && i < w->n_prompts; i++) {
        const struct prompt *p = &w->prompts[i];
        rc = answer(&e, w, p, p->have);
        if (rc == ATSI_OK)
            compare(w, p, v);
    }
    if (rc == ATSI_OK) {
        atsi_session_info(e.s, &info);
        if (info.n_fallbacks != 0 || info.n_refused != 0)
            blame(v, "%u times without the accelerator, %u answers of policies refused",
                  info.n_fallbacks, (unsigned)info.n_refused);
    } else {
        blame(v, "%s", e.err.msg);
    }
    engine_close(&e);
}

/* ---------------------------------------------------------------- input */
static int complain(const char *what, const char *line)
{
    (void)fprintf(stderr, "golden_sweep: %s: %.200s\n", what, line);
    return -1;
}

static int read_prompt(struct sweep *w, char *words)
{
    struct prompt *p = &w->prompts[w->n_prompts];
    char *name = strtok(words, " \n"), *ids = strtok(NULL, " \n"), *end;
    if (name == NULL || ids == NULL || w->n_prompts == MAX_PROMPTS)
        return complain("prompt NAME 1,2,3 is meant, 16 of them at most", words);
    (void)snprintf(p->name, sizeof p->name, "%s", name);
    for (;; ids = end + 1) {
        long id = strtol(ids, &end, 10);
        if (end == ids || p->n_ids == MAX_IDS || (*end != ',' && *end != '\0'))
            return complain("no list of up to 512 token ids", ids);
        p->ids[p->n_ids++] = (int32_t)id;
        if (*end == '\0')
            break;
    }
    if (p->n_ids + w->n_greedy > w->n_ctx)
        w->n_ctx = p->n_ids + w->n_greedy;
    w->n_prompts++;
    return 0;
}

/* The CPU answers before the first case. */
static int run_case(struct sweep *w, char *words)
{
    struct verdict v = {0};
    const char *word = strtok(words, " \n");
    long chunk = word != NULL ? strtol(word, NULL, 10) : 0;
    size_t n = w->n_common;
    if (chunk <= 0 || chunk > 65536)
        return complain("case CHUNK KEY=VALUE... is meant", words);
    if (w->cpu[0] == '\0' && answer_alone(w) != ATSI_OK)
        return -1;
    w->settings[n++] = w->cpu;
    while ((word = strtok(NULL, " \n")) != NULL) {
        if (n == MAX_SETTINGS)
            return complain("too many settings", word);
        w->settings[n++] = word;
    }
    w->settings[n] = NULL;
    try_case(w, (uint32_t)chunk, &v);
    (void)printf("%s %.9f%s%s\n", v.what[0] != '\0' ? "FAIL" : "ok", v.worst,
                 v.what[0] != '\0' ? " " : "", v.what);
    return fflush(stdout) == 0 ? 0 : -1;
}

static int run_lines(struct sweep *w)
{
    static char line[MAX_LINE];
    while (fgets(line, sizeof line, stdin) != NULL) {
        int rc = -1;
        if (strncmp(line, "prompt ", 7) == 0 && w->cpu[0] == '\0')
            rc = read_prompt(w, line + 7);
        else if (strncmp(line, "case ", 5) == 0 && w->n_prompts > 0)
            rc = run_case(w, line + 5);
        else
            (void)complain("neither a prompt nor, after prompts, a case", line);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int usage(void)
{
    (void)fprintf(
        stderr, "usage: golden_sweep MODEL N [--plugin FILE] [KEY=VALUE...] < prompts and cases\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct sweep w = {0};
    int rc;
    if (argc < 3)
        return usage();
    w.model = argv[1];
    w.n_greedy = (uint32_t)strtoul(argv[2], NULL, 10);
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "--plugin") == 0 && i + 1 < argc)
            w.plugin = argv[++i];
        else if (strchr(argv[i], '=') != NULL && w.n_common < MAX_SETTINGS / 2)
            w.settings[w.n_common++] = argv[i];
        else
            return usage();
    }
    w.prompts = calloc(MAX_PROMPTS, sizeof *w.prompts);
    rc = w.prompts != NULL ? run_lines(&w) : complain("out of memory", "");
    for (uint32_t i = 0; i < w.n_prompts; i++) {
        free(w.prompts[i].alone);
        free(w.prompts[i].have);
    }
    free(w.prompts);
    return rc == 0 ? 0 : 1;
}
