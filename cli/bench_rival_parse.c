/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading what another program's bench printed: llama-bench's JSON (one array, or one object per
 * line) or its table.  Messages may stand before and between; nothing in it is trusted.
 */
#include "cli/bench_rival.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes read in vain.  Every line may begin a value that fails only far behind, nested as deep as
 * jansson goes: 4 MiB of "[" a line would take minutes. */
#define MOST_IN_VAIN ((size_t)8 << 20)

struct search {
    const struct bench_rival_test *t;
    double ts;
    uint32_t n_rows, n_found; /* rows that are results; rows of the test */
    size_t in_vain;           /* bytes of what began as JSON and was none */
    bool bad;                 /* a row of the test has no usable speed */
};

/* The lines of a text, without their ends; NULL: there are no more. */
static const char *next_line(const char **at, const char *end, size_t *n)
{
    const char *line = *at, *stop;
    if (line >= end)
        return NULL;
    stop = memchr(line, '\n', (size_t)(end - line));
    *n = (size_t)((stop != NULL ? stop : end) - line);
    *at = stop != NULL ? stop + 1 : end;
    return line;
}

static void found(struct search *s, double ts)
{
    s->n_found++;
    s->ts = ts;
    if (!isfinite(ts) || ts <= 0)
        s->bad = true;
}

/* ---------------------------------------------------------------- JSON */
static bool count_is(const json_t *row, const char *key, uint32_t want, bool optional)
{
    const json_t *v = json_object_get(row, key);
    if (v == NULL)
        return optional && want == 0;
    return json_is_integer(v) && json_integer_value(v) == (json_int_t)want;
}

static void json_row(struct search *s, const json_t *row)
{
    const json_t *ts = json_object_get(row, "avg_ts");
    if (!json_is_object(row) || json_object_get(row, "n_prompt") == NULL)
        return;
    s->n_rows++;
    if (count_is(row, "n_prompt", s->t->n_prompt, false) &&
        count_is(row, "n_gen", s->t->n_gen, false) && count_is(row, "n_depth", s->t->n_depth, true))
        found(s, json_is_number(ts) ? json_number_value(ts) : 0);
}

/* An array or an object that begins at `at`; *used: its length, 0 when it is none. */
static void json_value(struct search *s, const char *at, size_t n, size_t *used)
{
    json_error_t e;
    json_t *v = json_loadb(at, n, JSON_DISABLE_EOF_CHECK, &e);
    *used = v != NULL ? (size_t)e.position : 0;
    if (v == NULL)
        s->in_vain += e.position > 0 ? (size_t)e.position : 1;
    if (json_is_object(v))
        json_row(s, v);
    for (size_t i = 0; i < json_array_size(v); i++) /* 0 of what is no array */
        json_row(s, json_array_get(v, i));
    json_decref(v);
}

/* Values begin at the start of a line. */
static void search_json(struct search *s, const char *text, size_t n)
{
    const char *at = text, *end = text + n, *line;
    size_t len, used;
    while (s->in_vain < MOST_IN_VAIN && (line = next_line(&at, end, &len)) != NULL) {
        if (len == 0 || (line[0] != '[' && line[0] != '{'))
            continue;
        json_value(s, line, (size_t)(end - line), &used);
        if (line + used > at)
            at = line + used;
    }
}

/* ---------------------------------------------------------------- the table */
/* Cell `index` of a line "| a | b |", without the blanks around it. */
static bool cell(const char *line, size_t n, int index, char *out, size_t size)
{
    const char *p = line, *end = line + n, *stop;
    size_t len;
    if (n == 0 || line[0] != '|')
        return false;
    for (p++;; p = stop + 1, index--) {
        stop = memchr(p, '|', (size_t)(end - p));
        if (stop == NULL)
            return false;
        if (index == 0)
            break;
    }
    while (p < stop && *p == ' ')
        p++;
    while (stop > p && stop[-1] == ' ')
        stop--;
    len = (size_t)(stop - p) < size - 1 ? (size_t)(stop - p) : size - 1;
    memcpy(out, p, len);
    out[len] = '\0';
    return true;
}

static void search_table(struct search *s, const char *text, size_t n)
{
    const char *at = text, *end = text + n, *line;
    char want[64], value[64];
    int test = -1, speed = -1;
    size_t len;
    (void)bench_test_name(s->t->n_prompt, s->t->n_gen, s->t->n_depth, want);
    while ((line = next_line(&at, end, &len)) != NULL) {
        bool heading = false;
        for (int i = 0; i < 32 && cell(line, len, i, value, sizeof value); i++) {
            if (strcmp(value, "test") == 0)
                test = i;
            else if (strcmp(value, "t/s") == 0)
                speed = i;
            else
                continue;
            heading = true;
        }
        if (heading || test < 0 || speed < 0 || !cell(line, len, test, value, sizeof value))
            continue;
        s->n_rows += strncmp(value, "---", 3) != 0;
        if (strcmp(value, want) == 0 && cell(line, len, speed, value, sizeof value))
            found(s, strtod(value, NULL)); /* "123.4 +- 5.6"; no number gives 0 */
    }
}

bool bench_rival_parse(const char *text, size_t n, const struct bench_rival_test *t, double *ts,
                       char *why, size_t why_size)
{
    struct search s = {.t = t};
    char test[64];
    (void)bench_test_name(t->n_prompt, t->n_gen, t->n_depth, test);
    search_json(&s, text, n);
    if (s.in_vain >= MOST_IN_VAIN) {
        (void)snprintf(why, why_size, "too much of what it printed begins like JSON and is none");
        return false;
    }
    if (s.n_rows == 0)
        search_table(&s, text, n);
    *ts = s.ts;
    if (s.n_found == 1 && !s.bad)
        return true;
    if (s.n_rows == 0)
        (void)snprintf(why, why_size,
                       "it printed no result (expected llama-bench's JSON, JSON lines or table)");
    else if (s.n_found == 0)
        (void)snprintf(why, why_size, "it printed %u results, none of them %s", s.n_rows, test);
    else if (s.n_found > 1)
        (void)snprintf(why, why_size, "it printed %u results for %s, expected one", s.n_found,
                       test);
    else
        (void)snprintf(why, why_size, "its %s has no speed above 0 (tokens per second)", test);
    return false;
}
