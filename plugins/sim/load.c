/* SPDX-License-Identifier: Apache-2.0
 * Load scripts. */
#include "load.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINES 100000u

struct line {
    double at, factor[3];
};

struct sim_script {
    uint32_t n;
    struct line *lines;
};

static int parse(const char *path, unsigned number, const char *text, double last, struct line *out,
                 struct atsi_err *err)
{
    char rest;
    int n = sscanf(text, "%lf %lf %lf %lf %c", &out->at, &out->factor[0], &out->factor[1],
                   &out->factor[2], &rest);
    if (n != 4 || !isfinite(out->at) || out->at < 0)
        return atsi_fail(err, ATSI_EFORMAT, "%s:%u: expected \"t_ns cpu gpu pcie\"", path, number);
    if (out->at < last)
        return atsi_fail(err, ATSI_EFORMAT, "%s:%u: time %.0f after %.0f; times must ascend", path,
                         number, out->at, last);
    for (int i = 0; i < 3; i++)
        if (!(out->factor[i] >= 0.01 && out->factor[i] <= 1000))
            return atsi_fail(err, ATSI_EFORMAT, "%s:%u: factor %g: expected 0.01..1000", path,
                             number, out->factor[i]);
    return ATSI_OK;
}

static int read_lines(FILE *f, const char *path, struct sim_script *s, struct atsi_err *err)
{
    char text[256];
    double last = 0;
    for (unsigned number = 1; fgets(text, sizeof text, f) != NULL; number++) {
        const char *at = text + strspn(text, " \t");
        struct line *grown;
        int rc;
        if (strchr(text, '\n') == NULL && !feof(f))
            return atsi_fail(err, ATSI_EFORMAT, "%s:%u: line too long", path, number);
        if (*at == '#' || *at == '\n' || *at == '\r' || *at == '\0')
            continue;
        if (s->n >= MAX_LINES)
            return atsi_fail(err, ATSI_EFORMAT, "%s: more than %u lines", path, MAX_LINES);
        grown = realloc(s->lines, (s->n + 1) * sizeof *grown);
        if (grown == NULL)
            return atsi_fail(err, ATSI_ENOMEM, "sim: out of memory");
        s->lines = grown;
        rc = parse(path, number, at, last, &s->lines[s->n], err);
        if (rc != ATSI_OK)
            return rc;
        last = s->lines[s->n++].at;
    }
    return ferror(f) != 0 ? atsi_fail(err, ATSI_EIO, "%s: %s", path, strerror(errno)) : ATSI_OK;
}

int sim_script_read(const char *path, struct sim_script **out, struct atsi_err *err)
{
    struct sim_script *s;
    FILE *f = fopen(path, "re");
    int rc;
    *out = NULL;
    if (f == NULL)
        return atsi_fail(err, ATSI_ENOENT, "%s: %s", path, strerror(errno));
    s = calloc(1, sizeof *s);
    rc =
        s == NULL ? atsi_fail(err, ATSI_ENOMEM, "sim: out of memory") : read_lines(f, path, s, err);
    (void)fclose(f); /* only read from */
    if (rc != ATSI_OK) {
        sim_script_free(s);
        return rc;
    }
    *out = s;
    return ATSI_OK;
}

void sim_script_free(struct sim_script *s)
{
    if (s == NULL)
        return;
    free(s->lines);
    free(s);
}

double sim_script_at(const struct sim_script *s, double now_ns, int what)
{
    double factor = 1;
    for (uint32_t i = 0; i < s->n && s->lines[i].at <= now_ns; i++)
        factor = s->lines[i].factor[what];
    return factor;
}

double sim_script_next(const struct sim_script *s, double now_ns)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->lines[i].at > now_ns)
            return s->lines[i].at;
    return INFINITY;
}
