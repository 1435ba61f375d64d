/* SPDX-License-Identifier: Apache-2.0
 * Strings of a render: making them, joining them, cutting them at code points. */
#ifndef ATSI_TEXT_JINJA_STR_H
#define ATSI_TEXT_JINJA_STR_H

#include <string.h>

#include "text/jinja/render.h"

/* Code points of valid UTF-8. */
size_t atsi_jstr_count(const char *p, size_t n);
/* A string of p[0..n), which is valid UTF-8 and stays where it is; NULL: failed. */
const struct atsi_jstr *atsi_jstr_new(struct atsi_jr *r, const char *p, size_t n);
/* The same as a value. */
struct atsi_jv atsi_jv_text(struct atsi_jr *r, const char *p, size_t n);
/* Of a C string that stays where it is. */
struct atsi_jv atsi_jv_ctext(struct atsi_jr *r, const char *text);
/* Byte offset of code point `i` <= n_cp. */
size_t atsi_jstr_offset(const struct atsi_jstr *s, size_t i);
/* Bytes [from, to) of v, as safe as v is. */
struct atsi_jv atsi_jv_cut(struct atsi_jr *r, struct atsi_jv v, size_t from, size_t to);
/* a then b; grows `a` where it is when it can.  Not safe. */
struct atsi_jv atsi_jstr_concat(struct atsi_jr *r, const struct atsi_jstr *a,
                                const struct atsi_jstr *b);
/* The same string, marked safe. */
struct atsi_jv atsi_jv_safe(struct atsi_jv v);
/* With & < > ' " as entities, marked safe; what is safe already stays. */
struct atsi_jv atsi_jv_escape(struct atsi_jr *r, struct atsi_jv v);

static inline bool atsi_jstr_is(const struct atsi_jstr *s, const char *text)
{
    return s->n == strlen(text) && memcmp(s->p, text, s->n) == 0;
}

static inline bool atsi_jstr_same(const struct atsi_jstr *a, const struct atsi_jstr *b)
{
    return a->n == b->n && memcmp(a->p, b->p, a->n) == 0;
}

/* Text in the making.  A failed append makes all later ones and the taking fail. */
struct atsi_jbuf {
    struct atsi_jr *r;
    char *p;
    size_t n, cap;
    bool bad;
};

static inline struct atsi_jbuf atsi_jbuf_of(struct atsi_jr *r)
{
    struct atsi_jbuf b = {.r = r};
    return b;
}

void atsi_jbuf_add(struct atsi_jbuf *b, const char *p, size_t n);
void atsi_jbuf_text(struct atsi_jbuf *b, const char *text);
void atsi_jbuf_str(struct atsi_jbuf *b, const struct atsi_jstr *s);
void atsi_jbuf_cp(struct atsi_jbuf *b, uint32_t cp);
void atsi_jbuf_fill(struct atsi_jbuf *b, const char *p, size_t n, size_t times);
void atsi_jbuf_int(struct atsi_jbuf *b, int64_t i);
struct atsi_jv atsi_jbuf_take(struct atsi_jbuf *b);

#endif
