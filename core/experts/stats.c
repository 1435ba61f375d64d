/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of experts' scores:
 *
 *     atsinfer experts 1
 *     layer LAYER EXPERTS SCORE SCORE ...     one for each layer with experts
 *     end
 */
#include "core/experts/stats.h"

#include "core/cache_dir.h"
#include "core/fingerprint.h"
#include "core/line.h"
#include "core/newfile.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LAYERS 4096u
#define MOST_EXPERTS 65535u
#define MOST_SCORE 1e9F

static const char magic[] = "atsinfer experts 1";

void atsi_expert_stats_free(struct atsi_expert_stats *s)
{
    for (uint32_t k = 0; k < s->n; k++)
        free(s->layers[k].score);
    free(s->layers);
    *s = (struct atsi_expert_stats){0};
}

float *atsi_expert_stats_layer(struct atsi_expert_stats *s, uint32_t layer, uint32_t n_experts)
{
    struct atsi_expert_layer *grown;
    float *score;
    for (uint32_t k = 0; k < s->n; k++)
        if (s->layers[k].layer == layer)
            return s->layers[k].n_experts == n_experts ? s->layers[k].score : NULL;
    score = calloc((size_t)n_experts + 1, sizeof *score);
    grown = realloc(s->layers, ((size_t)s->n + 1) * sizeof *grown);
    if (grown != NULL)
        s->layers = grown;
    if (score == NULL || grown == NULL) {
        free(score);
        return NULL;
    }
    s->layers[s->n++] = (struct atsi_expert_layer){layer, n_experts, score};
    return score;
}

int atsi_expert_stats_path(const struct atsi_model *m, bool make, char *out, size_t size,
                           struct atsi_err *err)
{
    struct atsi_fingerprint f;
    char name[64];
    int rc = atsi_model_fingerprint(m, &f, err);
    if (rc != ATSI_OK)
        return rc;
    (void)snprintf(name, sizeof name, "%016" PRIx64 "-%016" PRIx64 ".txt", f.tensors ^ f.meta,
                   f.weights);
    return atsi_cache_path("experts", name, make, out, size)
               ? ATSI_OK
               : atsi_fail(err, ATSI_ENOTSUP, "there is no cache folder");
}

/* ---------------------------------------------------------------- reading */
struct reader {
    struct atsi_expert_stats *s;
    const char *path;
    uint32_t line;
    bool ended;
    struct atsi_err *err;
};

static int bad(const struct reader *r, const char *what)
{
    return atsi_fail(r->err, ATSI_EFORMAT, "%s:%u: %s", atsi_path_shown(r->path), r->line, what);
}

static bool whole(char **at, unsigned long most, uint32_t *out)
{
    char *end;
    unsigned long v;
    errno = 0;
    v = strtoul(*at, &end, 10);
    if (end == *at || errno != 0 || v > most || (*end != ' ' && *end != '\0') || **at == '-')
        return false;
    *at = end + (*end == ' ');
    *out = (uint32_t)v;
    return true;
}

static int read_layer(struct reader *r, char *at)
{
    uint32_t layer, n;
    float *score;
    if (!whole(&at, INT32_MAX, &layer) || !whole(&at, MOST_EXPERTS, &n) || n == 0)
        return bad(r, "expected \"layer LAYER EXPERTS SCORE ...\"");
    for (uint32_t k = 0; k < r->s->n; k++)
        if (r->s->layers[k].layer == layer)
            return bad(r, "this layer a second time");
    if (r->s->n == MOST_LAYERS)
        return bad(r, "too many layers");
    score = atsi_expert_stats_layer(r->s, layer, n);
    if (score == NULL)
        return atsi_fail(r->err, ATSI_ENOMEM, "%s: out of memory", atsi_path_shown(r->path));
    for (uint32_t e = 0; e < n; e++) {
        char *end;
        float v = strtof(at, &end);
        if (end == at || !(v >= 0 && v <= MOST_SCORE) || (*end != ' ' && *end != '\0'))
            return atsi_fail(r->err, ATSI_EFORMAT,
                             "%s:%u: score %u of %u is no number of 0..1e9 or missing",
                             atsi_path_shown(r->path), r->line, e + 1, n);
        score[e] = v;
        at = end + (*end == ' ');
    }
    return *at == '\0' ? ATSI_OK : bad(r, "more scores than experts");
}

static int read_line(struct reader *r, char *t)
{
    if (r->line == 1)
        return strcmp(t, magic) == 0 ? ATSI_OK : bad(r, "no statistics of experts");
    if (r->ended)
        return bad(r, "a line behind the end");
    r->ended = strcmp(t, "end") == 0;
    if (r->ended)
        return ATSI_OK;
    return strncmp(t, "layer ", 6) == 0 ? read_layer(r, t + 6)
                                        : bad(r, "expected \"layer\" or \"end\"");
}

/* Longer than any line: 65535 scores. */
#define MOST_LINE ((size_t)2 << 20)

int atsi_expert_stats_read(struct atsi_expert_stats *s, const char *path, struct atsi_err *err)
{
    struct reader r = {.s = s, .path = path, .err = err};
    FILE *f = fopen(path, "re");
    char *text = NULL;
    size_t room = 0;
    ssize_t n;
    int rc = ATSI_OK;
    if (f == NULL)
        return atsi_fail(err, errno == ENOENT || errno == ENOTDIR ? ATSI_ENOENT : ATSI_EIO,
                         "%s: %s", atsi_path_shown(path), strerror(errno));
    while (rc == ATSI_OK && (n = atsi_line_read(&text, &room, MOST_LINE, f)) > 0) {
        r.line++;
        if (text[n - 1] != '\n' || memchr(text, 0, (size_t)n) != NULL) {
            rc = bad(&r, "the line is too long, cut off, or holds a zero byte");
            break;
        }
        text[n - 1] = '\0';
        rc = read_line(&r, text);
    }
    if (rc == ATSI_OK && !r.ended)
        rc = bad(&r, "cut off: the line \"end\" is missing");
    free(text);
    (void)fclose(f); /* only read from */
    if (rc != ATSI_OK)
        atsi_expert_stats_free(s);
    return rc;
}

/* ---------------------------------------------------------------- writing */
static void print(FILE *f, const struct atsi_expert_stats *s)
{
    (void)fprintf(f, "%s\n", magic);
    for (uint32_t k = 0; k < s->n; k++) {
        (void)fprintf(f, "layer %u %u", s->layers[k].layer, s->layers[k].n_experts);
        for (uint32_t e = 0; e < s->layers[k].n_experts; e++)
            (void)fprintf(f, " %.6g", (double)s->layers[k].score[e]);
        (void)fputc('\n', f);
    }
    (void)fputs("end\n", f);
}

int atsi_expert_stats_write(const struct atsi_expert_stats *s, const char *path,
                            struct atsi_err *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    bool good = f != NULL;
    int rc;
    if (good) {
        print(f, s);
        good = ferror(f) == 0;
        good = fclose(f) == 0 && good;
    }
    if (!good) {
        free(text);
        return atsi_fail(err, ATSI_ENOMEM, "%s: out of memory", atsi_path_shown(path));
    }
    rc = atsi_newfile_put(path, text, size, err);
    free(text);
    return rc;
}
