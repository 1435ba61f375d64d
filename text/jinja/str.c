/* SPDX-License-Identifier: Apache-2.0
 *
 * Strings.  Their bytes are never written again, so that cuts share them, and so that a string
 * whose bytes were made last can be made longer in place: a template that gathers text piece by
 * piece then costs what the text is long, not its square.
 */
#include "text/jinja/str.h"

#include <assert.h>

#include "text/utf8.h"

size_t atsi_jstr_count(const char *p, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)p[i] & 0xC0) != 0x80;
    return count;
}

enum { LONG_STRING = 4096 }; /* bytes from which on a joined string gets room to grow */

static const struct atsi_jstr *header(struct atsi_jr *r, const char *p, size_t n, size_t n_cp)
{
    struct atsi_jstr *s = atsi_jr_alloc(r, sizeof *s);
    if (s == NULL)
        return NULL;
    s->p = p;
    s->n = n;
    s->n_cp = n_cp;
    return s;
}

const struct atsi_jstr *atsi_jstr_new(struct atsi_jr *r, const char *p, size_t n)
{
    return atsi_jr_work(r, n) ? header(r, p, n, atsi_jstr_count(p, n)) : NULL;
}

struct atsi_jv atsi_jv_text(struct atsi_jr *r, const char *p, size_t n)
{
    return atsi_jv_str(atsi_jstr_new(r, p, n));
}

struct atsi_jv atsi_jv_ctext(struct atsi_jr *r, const char *text)
{
    return atsi_jv_text(r, text, strlen(text));
}

size_t atsi_jstr_offset(const struct atsi_jstr *s, size_t i)
{
    size_t at = 0;
    if (s->n == s->n_cp || i == 0)
        return i;
    if (i >= s->n_cp)
        return s->n;
    for (; at < s->n; at++)
        if (((unsigned char)s->p[at] & 0xC0) != 0x80 && i-- == 0)
            break;
    return at;
}

struct atsi_jv atsi_jv_cut(struct atsi_jr *r, struct atsi_jv v, size_t from, size_t to)
{
    struct atsi_jv cut;
    if (from == 0 && to == v.u.s->n)
        return v;
    cut = atsi_jv_text(r, v.u.s->p + from, to - from);
    cut.flag = v.flag;
    return cut;
}

struct atsi_jv atsi_jstr_concat(struct atsi_jr *r, const struct atsi_jstr *a,
                                const struct atsi_jstr *b)
{
    char *p;
    if (a->n == 0)
        return atsi_jv_str(b);
    if (b->n == 0)
        return atsi_jv_str(a);
    p = atsi_arena_extend(&r->arena, a->p + a->n, b->n);
    if (p != NULL) {
        memcpy(p, b->p, b->n); /* b may be a, but these bytes are new */
        p -= a->n;
    } else {
        size_t n = a->n + b->n;
        p = n < LONG_STRING ? atsi_arena_chars(&r->arena, n) : atsi_arena_growable(&r->arena, n);
        if (p == NULL)
            return atsi_jr_nomem(r);
        memcpy(p, a->p, a->n);
        memcpy(p + a->n, b->p, b->n);
        if (!atsi_jr_work(r, a->n))
            return atsi_jv_fail();
    }
    if (!atsi_jr_work(r, b->n))
        return atsi_jv_fail();
    return atsi_jv_str(header(r, p, a->n + b->n, a->n_cp + b->n_cp));
}

struct atsi_jv atsi_jv_safe(struct atsi_jv v)
{
    if (v.type == ATSI_J_STR)
        v.flag = 1;
    return v;
}

/* The entities are those of MarkupSafe. */
static const char *entity(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '\'':
        return "&#39;";
    case '"':
        return "&#34;";
    default:
        return NULL;
    }
}

struct atsi_jv atsi_jv_escape(struct atsi_jr *r, struct atsi_jv v)
{
    struct atsi_jbuf b = atsi_jbuf_of(r);
    const struct atsi_jstr *s = v.u.s;
    size_t from = 0;
    if (v.flag)
        return v;
    for (size_t i = 0; i < s->n; i++) {
        const char *text = entity(s->p[i]);
        if (text == NULL)
            continue;
        atsi_jbuf_add(&b, s->p + from, i - from);
        atsi_jbuf_text(&b, text);
        from = i + 1;
    }
    if (from == 0)
        return atsi_jv_safe(v);
    atsi_jbuf_add(&b, s->p + from, s->n - from);
    return atsi_jv_safe(atsi_jbuf_take(&b));
}

/* ---------------------------------------------------------------- text in the making */
static bool reserve(struct atsi_jbuf *b, size_t more)
{
    size_t want, cap;
    char *p;
    if (b->bad)
        return false;
    if (more <= b->cap - b->n)
        return true;
    want = b->n + more;
    if (want < b->n || want > ATSI_JMAX_OUTPUT) {
        (void)atsi_jr_error(b->r, "a string of more than %d MiB", ATSI_JMAX_OUTPUT >> 20);
        b->bad = true;
        return false;
    }
    cap = want + want / 2 + 32;
    if (b->p != NULL && atsi_arena_extend(&b->r->arena, b->p + b->cap, cap - b->cap) != NULL) {
        b->cap = cap;
        return true;
    }
    p = atsi_arena_chars(&b->r->arena, cap);
    if (p == NULL) {
        (void)atsi_jr_nomem(b->r);
        b->bad = true;
        return false;
    }
    if (b->p != NULL)
        memcpy(p, b->p, b->n);
    b->p = p;
    b->cap = cap;
    return true;
}

void atsi_jbuf_add(struct atsi_jbuf *b, const char *p, size_t n)
{
    if (n == 0 || !reserve(b, n))
        return;
    assert(b->p != NULL);
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void atsi_jbuf_text(struct atsi_jbuf *b, const char *text)
{
    atsi_jbuf_add(b, text, strlen(text));
}

void atsi_jbuf_str(struct atsi_jbuf *b, const struct atsi_jstr *s)
{
    atsi_jbuf_add(b, s->p, s->n);
}

void atsi_jbuf_cp(struct atsi_jbuf *b, uint32_t cp)
{
    char utf8[4] = {0};
    size_t n = atsi_utf8_encode(cp, utf8);
    atsi_jbuf_add(b, utf8, n);
}

void atsi_jbuf_fill(struct atsi_jbuf *b, const char *p, size_t n, size_t times)
{
    size_t total;
    if (__builtin_mul_overflow(n, times, &total))
        total = SIZE_MAX;
    if (total == 0 || !reserve(b, total))
        return;
    for (size_t i = 0; i < times; i++)
        memcpy(b->p + b->n + i * n, p, n);
    b->n += total;
}

void atsi_jbuf_int(struct atsi_jbuf *b, int64_t i)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)i);
    atsi_jbuf_text(b, text);
}

struct atsi_jv atsi_jbuf_take(struct atsi_jbuf *b)
{
    if (b->bad || b->r->status != ATSI_OK)
        return atsi_jv_fail();
    if (b->p == NULL)
        return atsi_jv_text(b->r, "", 0);
    atsi_arena_shrink(&b->r->arena, b->p + b->cap, b->cap - b->n);
    return atsi_jv_text(b->r, b->p, b->n);
}
