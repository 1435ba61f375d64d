/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of routing traces: lines of text.
 *
 *     atsinfer routing 1
 *     model NAME
 *     layer LAYER EXPERTS USED     one for each layer with experts, ascending
 *     d ID ID ...                  one for each token, p: of a prompt's round, d: of a decode
 *     end                          round: ids of all layers in order, best first
 */
#include "core/experts/routing.h"

#include "core/line.h"
#include "core/newfile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[] = "atsinfer routing 1";

struct reader {
    const char *path;
    uint64_t line;
    char *text, *at; /* the line, and what is left of it */
    char model[96];
    struct atsi_routing_layer layers[ATSI_ROUTING_LAYERS];
    uint32_t n_layers;
    struct atsi_routing *r; /* NULL: still in the head */
    int32_t *ids;
    bool ended;
    struct atsi_err *err;
};

static int bad(const struct reader *r, const char *what)
{
    return atsi_fail(r->err, ATSI_EFORMAT, "%s:%" PRIu64 ": %s", atsi_path_shown(r->path), r->line,
                     what);
}

/* The next word is a number from 0 to most. */
static bool number(struct reader *r, unsigned long most, uint32_t *out)
{
    char *end;
    unsigned long v;
    while (*r->at == ' ')
        r->at++;
    if (*r->at < '0' || *r->at > '9')
        return false;
    errno = 0;
    v = strtoul(r->at, &end, 10);
    if (errno != 0 || v > most || (*end != ' ' && *end != '\0'))
        return false;
    r->at = end;
    *out = (uint32_t)v;
    return true;
}

static bool at_end(struct reader *r)
{
    while (*r->at == ' ')
        r->at++;
    return *r->at == '\0';
}

static int read_layer(struct reader *r)
{
    struct atsi_routing_layer *l = &r->layers[r->n_layers];
    if (r->r != NULL)
        return bad(r, "a layer after the first token");
    if (r->n_layers == ATSI_ROUTING_LAYERS)
        return bad(r, "too many layers");
    if (!number(r, INT32_MAX, &l->layer) || !number(r, ATSI_ROUTING_EXPERTS, &l->n_experts) ||
        !number(r, ATSI_ROUTING_USED, &l->n_used) || !at_end(r))
        return bad(r, "expected \"layer LAYER EXPERTS USED\": three numbers, at most 65535 "
                      "experts of which 64 are used");
    r->n_layers++;
    return ATSI_OK;
}

/* The head is over: the trace begins. */
static int begin(struct reader *r)
{
    struct atsi_err why = ATSI_ERR_INIT;
    int rc = atsi_routing_new(r->model, r->layers, r->n_layers, &r->r, &why);
    if (rc == ATSI_EINVAL)
        return bad(r, why.msg);
    if (rc != ATSI_OK || r->r == NULL)
        return atsi_fail(r->err, rc, "%s", why.msg);
    r->ids = malloc((size_t)r->r->n_used * sizeof *r->ids);
    return r->ids != NULL
               ? ATSI_OK
               : atsi_fail(r->err, ATSI_ENOMEM, "%s: out of memory", atsi_path_shown(r->path));
}

static int read_token(struct reader *r, uint32_t phase)
{
    struct atsi_err why = ATSI_ERR_INIT;
    int rc = r->r == NULL ? begin(r) : ATSI_OK;
    if (rc != ATSI_OK || r->r == NULL)
        return rc;
    for (uint32_t k = 0; k < r->r->n_used; k++) {
        uint32_t id;
        if (!number(r, INT32_MAX, &id))
            return atsi_fail(r->err, ATSI_EFORMAT,
                             "%s:%" PRIu64 ": %u expert numbers, the layers above use %u",
                             atsi_path_shown(r->path), r->line, k, r->r->n_used);
        r->ids[k] = (int32_t)id;
    }
    if (!at_end(r))
        return bad(r, "more expert numbers than the layers above use");
    rc = atsi_routing_add(r->r, phase, r->ids, &why);
    if (rc == ATSI_EINVAL)
        return bad(r, why.msg);
    return rc == ATSI_OK ? rc : atsi_fail(r->err, rc, "%s", why.msg);
}

static int read_line(struct reader *r)
{
    char *t = r->text;
    if (r->line == 1)
        return strcmp(t, magic) == 0 ? ATSI_OK
                                     : bad(r, "this is no routing trace: its first line is not "
                                              "\"atsinfer routing 1\"");
    if (t[0] == '\0' || t[0] == '#')
        return ATSI_OK;
    if (r->ended)
        return bad(r, "a line behind the end");
    r->at = t + 2;
    if (strncmp(t, "d ", 2) == 0)
        return read_token(r, ATSI_PHASE_DECODE);
    if (strncmp(t, "p ", 2) == 0)
        return read_token(r, ATSI_PHASE_PREFILL);
    if (strncmp(t, "layer ", 6) == 0) {
        r->at = t + 6;
        return read_layer(r);
    }
    if (strncmp(t, "model ", 6) == 0 && r->n_layers == 0) {
        (void)snprintf(r->model, sizeof r->model, "%.90s", t + 6);
        return ATSI_OK;
    }
    if (strcmp(t, "end") == 0) {
        r->ended = true;
        return r->r == NULL ? begin(r) : ATSI_OK;
    }
    return bad(r, "expected \"layer\", \"p\", \"d\" or \"end\"");
}

/* Longer than any line: a million numbers. */
#define MOST_LINE ((size_t)8 << 20)

static int read_all(struct reader *r, FILE *f)
{
    size_t room = 0;
    ssize_t n;
    int rc = ATSI_OK;
    while (rc == ATSI_OK && (errno = 0, n = atsi_line_read(&r->text, &room, MOST_LINE, f)) >= 0) {
        r->line++;
        if (r->text[n - 1] != '\n' || memchr(r->text, 0, (size_t)n) != NULL)
            return bad(r, "the line is too long, cut off, or holds a zero byte");
        r->text[n - 1] = '\0';
        rc = read_line(r);
    }
    if (rc != ATSI_OK)
        return rc;
    if (ferror(f) != 0 || errno == ENOMEM)
        return atsi_fail(r->err, errno == ENOMEM ? ATSI_ENOMEM : ATSI_EIO, "%s: cannot be read: %s",
                         atsi_path_shown(r->path), strerror(errno));
    if (!r->ended) {
        r->line++;
        return bad(r, r->line == 1 ? "the file is empty" : "cut off: the line \"end\" is missing");
    }
    return ATSI_OK;
}

int atsi_routing_read(const char *path, struct atsi_routing **out, struct atsi_err *err)
{
    struct reader *r = calloc(1, sizeof *r);
    FILE *f = fopen(path, "re");
    int rc;
    *out = NULL;
    if (f == NULL) {
        rc = atsi_fail(err, errno == ENOENT || errno == ENOTDIR ? ATSI_ENOENT : ATSI_EIO, "%s: %s",
                       atsi_path_shown(path), strerror(errno));
    } else if (r == NULL) {
        rc = atsi_fail(err, ATSI_ENOMEM, "%s: out of memory", atsi_path_shown(path));
    } else {
        r->path = path;
        r->err = err;
        rc = read_all(r, f);
    }
    if (f != NULL)
        (void)fclose(f); /* only read from */
    if (r != NULL) {
        if (rc == ATSI_OK)
            *out = r->r;
        else
            atsi_routing_free(r->r);
        free(r->ids);
        free(r->text);
    }
    free(r);
    return rc;
}

static void print(FILE *f, const struct atsi_routing *r)
{
    (void)fprintf(f, "%s\n", magic);
    if (r->model[0] != '\0')
        (void)fprintf(f, "model %s\n", r->model);
    for (uint32_t l = 0; l < r->n_layers; l++)
        (void)fprintf(f, "layer %u %u %u\n", r->layers[l].layer, r->layers[l].n_experts,
                      r->layers[l].n_used);
    for (uint64_t t = 0; t < r->n_tokens; t++) {
        (void)fputc(r->phase[t] == ATSI_PHASE_DECODE ? 'd' : 'p', f);
        for (uint32_t k = 0; k < r->n_used; k++)
            (void)fprintf(f, " %u", r->ids[t * r->n_used + k]);
        (void)fputc('\n', f);
    }
    (void)fputs("end\n", f);
}

int atsi_routing_write(const struct atsi_routing *r, const char *path, struct atsi_err *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    bool good = f != NULL;
    int rc;
    if (good) {
        print(f, r);
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
