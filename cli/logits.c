/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer logits`: the numbers behind the text, as one JSON object, for comparing engines.
 *   ids, top (per position [[id, logit], ...] best first), final_logits, greedy_ids, greedy_logits
 */
#include "cli/generate.h"
#include "cli/session.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *ids_text;
static int64_t n_greedy, n_top = 10;
static bool full, trace;

static const struct cli_option options[] = {
    {.name = "--ids", .arg = "1,2,3", .help = "token ids, fed as they are", .text = &ids_text},
    {.name = "-n|--predict",
     .arg = "N",
     .help = "greedy tokens after them",
     .integer = &n_greedy,
     .min = 0,
     .max = 1e6},
    {.name = "--top",
     .arg = "K",
     .help = "largest logits listed per position",
     .integer = &n_top,
     .min = 1,
     .max = 1e6},
    {.name = "--full", .help = "whole row of logits at the last position", .flag = &full},
    CLI_TRACE_OPTION,
    {.name = "--trace-ops",
     .help = "one JSON line per operation on stderr (name, sum, l2)",
     .flag = &trace},
    {.name = NULL},
};

struct job {
    struct atsi_session *session;
    uint32_t n_vocab;
    json_t *top, *final_logits;
    uint32_t last; /* position whose whole row is wanted */
    bool failed;
};

/* Six significant digits more than f32 has lose nothing. */
#define JSON_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(9))

static bool better(const float *x, int32_t a, int32_t b)
{
    if (x[a] != x[b])
        return x[a] > x[b];
    return a < b;
}

/* The k best ids of a row by insertion into a short sorted list. */
static json_t *top_of(const float *logits, uint32_t n, uint32_t k)
{
    json_t *list = json_array();
    int32_t *best = calloc(k, sizeof *best);
    uint32_t have = 0;
    for (uint32_t i = 0; i < n && best != NULL; i++) {
        uint32_t at = have;
        if (have == k && !better(logits, (int32_t)i, best[k - 1]))
            continue;
        if (have < k)
            have++;
        else
            at = k - 1;
        for (; at > 0 && better(logits, (int32_t)i, best[at - 1]); at--)
            best[at] = best[at - 1];
        best[at] = (int32_t)i;
    }
    for (uint32_t i = 0; i < have; i++)
        (void)json_array_append_new(list, json_pack("[i,f]", best[i], (double)logits[best[i]]));
    free(best);
    return list;
}

static int take_logits(void *ctx, uint32_t pos, const float *logits)
{
    struct job *j = ctx;
    uint32_t k = (uint64_t)n_top < j->n_vocab ? (uint32_t)n_top : j->n_vocab;
    if (json_array_append_new(j->top, top_of(logits, j->n_vocab, k)) != 0)
        return ATSI_ENOMEM;
    if (full && pos == j->last)
        for (uint32_t i = 0; i < j->n_vocab; i++)
            (void)json_array_append_new(j->final_logits, json_real((double)logits[i]));
    return 0;
}

/* A line per operation: sums over all rows, and where the last row begins. */
static void trace_op(void *ctx, const struct atsi_op *op)
{
    const struct atsi_tensor *t = op->dst[0];
    const float *last = (const float *)t->data + (size_t)t->ne[0] * (op->n_rows - 1);
    double sum = 0, sq = 0;
    size_t n = (size_t)t->ne[0] * op->n_rows;
    (void)ctx;
    if (t->type != ATSI_TYPE_F32)
        return;
    for (size_t i = 0; i < n; i++) {
        double x = (double)((const float *)t->data)[i];
        sum += x;
        sq += x * x;
    }
    (void)fprintf(stderr,
                  "{\"name\":\"%s\",\"op\":%u,\"ne\":[%llu,%u],\"sum\":%.9g,\"l2\":%.9g,"
                  "\"last_row_first8\":[",
                  t->name, op->kind, (unsigned long long)t->ne[0], op->n_rows, sum, sqrt(sq));
    for (size_t i = 0; i < t->ne[0] && i < 8; i++)
        (void)fprintf(stderr, "%s%.9g", i > 0 ? "," : "", (double)last[i]);
    (void)fprintf(stderr, "]}\n");
}

/* "1,2,3" to ids; *out: [owned by caller: free()]. */
static int parse_ids(const char *text, int32_t **out, uint32_t *n_out)
{
    size_t room = 1;
    char *end;
    for (const char *p = text; *p != '\0'; p++)
        room += *p == ',';
    *out = calloc(room, sizeof **out);
    *n_out = 0;
    if (*out == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    for (const char *p = text;; p = end + 1) {
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno != 0 || v < INT32_MIN || v > INT32_MAX ||
            (*end != ',' && *end != '\0'))
            return cli_fail(CLI_USAGE, "--ids: \"%.20s\" is no list of token ids", p);
        (*out)[(*n_out)++] = (int32_t)v;
        if (*end == '\0')
            return CLI_OK;
    }
}

static int eval(struct job *j, const int32_t *ids, uint32_t n, bool all)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_eval req = {.struct_size = sizeof req,
                            .ids = ids,
                            .n = n,
                            .want_all = all,
                            .fn = all ? take_logits : NULL,
                            .ctx = j,
                            .cancel = &cli_interrupted};
    int rc = atsi_session_eval(j->session, &req, &err);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

static int greedy(struct job *j, json_t *ids_out, json_t *logits_out)
{
    for (int64_t i = 0; i < n_greedy; i++) {
        const float *logits = atsi_session_logits(j->session);
        int32_t id = cli_argmax(logits, j->n_vocab);
        (void)json_array_append_new(ids_out, json_integer(id));
        (void)json_array_append_new(logits_out, json_real((double)logits[id]));
        if (i + 1 < n_greedy) {
            int code = eval(j, &id, 1, false);
            if (code != CLI_OK)
                return code;
        }
    }
    return CLI_OK;
}

static int print(const json_t *root)
{
    if (json_dumpf(root, stdout, JSON_FLAGS) != 0)
        return cli_fail(CLI_RUN_ERROR, "cannot write the result (is a logit not finite?)");
    (void)putchar('\n');
    return cli_finish_stdout(CLI_OK);
}

static int run_job(struct job *j, const int32_t *ids, uint32_t n)
{
    json_t *greedy_ids = json_array(), *greedy_logits = json_array(), *fed = json_array(), *root;
    int code;
    j->top = json_array();
    j->final_logits = json_array();
    j->last = n - 1;
    for (uint32_t i = 0; i < n; i++)
        (void)json_array_append_new(fed, json_integer(ids[i]));
    root = json_pack("{s:o,s:o,s:o,s:o,s:o}", "ids", fed, "top", j->top, "final_logits",
                     j->final_logits, "greedy_ids", greedy_ids, "greedy_logits", greedy_logits);
    if (root == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    code = eval(j, ids, n, true);
    if (code == CLI_OK)
        code = greedy(j, greedy_ids, greedy_logits);
    if (code == CLI_OK)
        code = print(root);
    json_decref(root);
    return code;
}

static int with_model(struct atsi_model *m, const int32_t *ids, uint32_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session_info info = {.struct_size = sizeof info};
    struct job j = {0};
    int rc, code;
    if ((uint64_t)n + (uint64_t)n_greedy > INT32_MAX)
        return cli_fail(CLI_USAGE, "too many tokens");
    p.n_ctx = n + (uint32_t)n_greedy; /* no more than this run needs */
    code = cli_session_open(m, &p, "logits", &j.session);
    if (code != CLI_OK)
        return code;
    rc = atsi_session_settle(j.session, &cli_interrupted, &err);
    if (rc != ATSI_OK) {
        atsi_session_close(j.session);
        return cli_session_finish(cli_fail_status(rc, &err));
    }
    atsi_session_info(j.session, &info);
    j.n_vocab = info.n_vocab;
    if (trace)
        atsi_session_trace(j.session, trace_op, NULL);
    code = run_job(&j, ids, n);
    atsi_session_close(j.session);
    return cli_session_finish(code);
}

static int run(int argc, char **argv)
{
    struct atsi_runtime *rt = NULL;
    struct atsi_model *m = NULL;
    int32_t *ids = NULL;
    uint32_t n = 0;
    int n_pos, code = cli_parse(&cli_cmd_logits, options, argc, argv, &n_pos);
    if (code != -1)
        return code;
    if (n_pos > 0)
        return cli_fail(CLI_USAGE, "unexpected argument %s", argv[1]);
    if (ids_text == NULL)
        return cli_fail(CLI_USAGE, "--ids is missing: token ids separated by commas");
    code = parse_ids(ids_text, &ids, &n);
    if (code == CLI_OK)
        code = cli_runtime(&rt);
    if (code == CLI_OK)
        code = cli_model(rt, false, &m);
    if (code == CLI_OK)
        code = with_model(m, ids, n);
    atsi_model_close(m);
    atsi_runtime_close(rt);
    free(ids);
    return code;
}

const struct cli_command cli_cmd_logits = {
    .name = "logits",
    .summary = "print the logits of a list of token ids as JSON",
    .usage = "atsinfer logits -m MODEL --ids 1,2,3 [-n N] [--top K] [--full]",
    .run = run,
};
