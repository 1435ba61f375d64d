/* SPDX-License-Identifier: Apache-2.0
 *
 * Each stop string is followed by its own Knuth-Morris-Pratt automaton (Knuth, Morris and Pratt,
 * "Fast pattern matching in strings", SIAM J. Comput. 6, 1977).  Its state is the length of the
 * longest proper beginning of the string that the text so far ends with, so the largest state is
 * exactly what has to be held back.
 */
#include "text/stop_string.h"

#include "text/buf.h"

struct pattern {
    unsigned char *p;
    size_t n;
    size_t *border; /* border[i]: longest proper border of p[0..i] */
    size_t state;
};

struct atsi_stops {
    struct pattern *patterns;
    size_t n;
    struct atsi_bytes text; /* handed out first, then held back */
    size_t n_shown;         /* of text: handed out by the last call */
    bool found;
};

static bool pattern_init(struct pattern *k, const struct atsi_stop_text *text)
{
    k->n = text->n;
    k->p = malloc(text->n);
    k->border = calloc(text->n, sizeof *k->border);
    if (k->p == NULL || k->border == NULL)
        return false;
    memcpy(k->p, text->p, text->n);
    for (size_t i = 1, b = 0; i < k->n; i++) {
        while (b > 0 && k->p[i] != k->p[b])
            b = k->border[b - 1];
        b += k->p[i] == k->p[b];
        k->border[i] = b;
    }
    return true;
}

/* Whether the string is complete with byte `c`. */
static bool pattern_step(struct pattern *k, unsigned char c)
{
    while (k->state > 0 && k->p[k->state] != c)
        k->state = k->border[k->state - 1];
    k->state += k->p[k->state] == c;
    return k->state == k->n;
}

int atsi_stops_open(const struct atsi_stop_text *texts, size_t n, struct atsi_stops **out,
                    struct atsi_err *err)
{
    struct atsi_stops *s = calloc(1, sizeof *s);
    *out = NULL;
    if (s != NULL)
        s->patterns = calloc(n + 1, sizeof *s->patterns);
    if (s == NULL || s->patterns == NULL)
        goto no_memory;
    for (size_t i = 0; i < n; i++) {
        if (texts[i].n == 0) {
            atsi_stops_close(s);
            return atsi_fail(err, ATSI_EINVAL, "stop string %zu is empty", i + 1);
        }
        s->n++;
        if (!pattern_init(&s->patterns[i], &texts[i]))
            goto no_memory;
    }
    *out = s;
    return ATSI_OK;
no_memory:
    atsi_stops_close(s);
    return atsi_fail(err, ATSI_ENOMEM, "out of memory for %zu stop strings", n);
}

void atsi_stops_close(struct atsi_stops *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->n; i++) {
        free(s->patterns[i].p);
        free(s->patterns[i].border);
    }
    free(s->patterns);
    free(s->text.p);
    free(s);
}

void atsi_stops_reset(struct atsi_stops *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->patterns[i].state = 0;
    s->text.n = s->n_shown = 0;
    s->found = false;
}

bool atsi_stops_has(const struct atsi_stops *s, const char *text, size_t n)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->patterns[i].n == n && memcmp(s->patterns[i].p, text, n) == 0)
            return true;
    return false;
}

/* Drops what the last call handed out. */
static void forget_shown(struct atsi_stops *s)
{
    s->text.n -= s->n_shown;
    if (s->text.n > 0 && s->n_shown > 0)
        memmove(s->text.p, s->text.p + s->n_shown, s->text.n);
    s->n_shown = 0;
}

/* Feeds one byte to every automaton; returns the length of the longest string complete with it. */
static size_t step(struct atsi_stops *s, unsigned char c)
{
    size_t longest = 0;
    for (size_t i = 0; i < s->n; i++)
        if (pattern_step(&s->patterns[i], c) && s->patterns[i].n > longest)
            longest = s->patterns[i].n;
    return longest;
}

static size_t held(const struct atsi_stops *s)
{
    size_t longest = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->patterns[i].state > longest)
            longest = s->patterns[i].state;
    return longest;
}

int atsi_stops_push(struct atsi_stops *s, const char *text, size_t len,
                    struct atsi_stop_text *shown, struct atsi_err *err)
{
    size_t before;
    forget_shown(s);
    *shown = (struct atsi_stop_text){"", 0};
    if (s->found)
        return 1;
    before = s->text.n;
    if (!atsi_bytes_add(&s->text, text, len))
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for %zu bytes of text", len);
    for (size_t i = 0; i < len && !s->found; i++) {
        size_t n = step(s, (unsigned char)text[i]);
        if (n > 0) {
            s->found = true;
            s->text.n = before + i + 1 - n; /* the stop string and what follows it are gone */
        }
    }
    s->n_shown = s->found ? s->text.n : s->text.n - held(s);
    if (s->n_shown > 0)
        *shown = (struct atsi_stop_text){s->text.p, s->n_shown};
    return s->found;
}

struct atsi_stop_text atsi_stops_flush(struct atsi_stops *s)
{
    struct atsi_stop_text rest = {"", 0};
    forget_shown(s);
    if (s->text.n > 0)
        rest = (struct atsi_stop_text){s->text.p, s->text.n};
    s->n_shown = s->text.n;
    for (size_t i = 0; i < s->n; i++)
        s->patterns[i].state = 0;
    return rest;
}
