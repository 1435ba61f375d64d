/* SPDX-License-Identifier: Apache-2.0
 *
 * Splitting, searching, replacing, padding.  Searches run on bytes: in UTF-8 no character's bytes
 * appear within another.
 */
#include "text/jinja/text_ops.h"

#include "text/jinja/ucs.h"

size_t atsi_jtext_find(struct atsi_jr *r, const struct atsi_jstr *s, size_t from, size_t to,
                       const struct atsi_jstr *what, bool last)
{
    const char *hit;
    if (from > to || what->n > to - from)
        return SIZE_MAX;
    if (what->n == 0)
        return last ? to : from;
    if (!last) {
        hit = memmem(s->p + from, to - from, what->p, what->n);
        return hit != NULL ? (size_t)(hit - s->p) : SIZE_MAX;
    }
    for (size_t at = to - what->n;; at--) {
        if (s->p[at] == what->p[0] && memcmp(s->p + at, what->p, what->n) == 0)
            return at;
        if (at == from || (s->p[at] == what->p[0] && !atsi_jr_work(r, what->n)))
            return SIZE_MAX;
    }
}

/* ---------------------------------------------------------------- splitting */
static bool split_at(struct atsi_jr *r, struct atsi_jitems *items, struct atsi_jv v,
                     const struct atsi_jstr *sep, int64_t max)
{
    size_t from = 0, at;
    while (max-- != 0 && (at = atsi_jtext_find(r, v.u.s, from, v.u.s->n, sep, false)) != SIZE_MAX) {
        if (!atsi_jitems_add(items, atsi_jv_cut(r, v, from, at)))
            return false;
        from = at + sep->n;
    }
    return atsi_jitems_add(items, atsi_jv_cut(r, v, from, v.u.s->n));
}

/* The pieces come last to first. */
static bool rsplit_at(struct atsi_jr *r, struct atsi_jitems *items, struct atsi_jv v,
                      const struct atsi_jstr *sep, int64_t max)
{
    size_t to = v.u.s->n, at;
    while (max-- != 0 && (at = atsi_jtext_find(r, v.u.s, 0, to, sep, true)) != SIZE_MAX) {
        if (!atsi_jitems_add(items, atsi_jv_cut(r, v, at + sep->n, to)))
            return false;
        to = at;
    }
    return atsi_jitems_add(items, atsi_jv_cut(r, v, 0, to));
}

static size_t skip_class(const struct atsi_jstr *s, size_t at, bool space)
{
    while (at < s->n) {
        size_t next = at;
        if (atsi_ucs_is_space(atsi_ucs_next(s->p, s->n, &next)) != space)
            break;
        at = next;
    }
    return at;
}

static size_t back_class(const struct atsi_jstr *s, size_t at, bool space)
{
    while (at > 0) {
        size_t before = at;
        if (atsi_ucs_is_space(atsi_ucs_prev(s->p, &before)) != space)
            break;
        at = before;
    }
    return at;
}

static bool split_words(struct atsi_jr *r, struct atsi_jitems *items, struct atsi_jv v, int64_t max)
{
    const struct atsi_jstr *s = v.u.s;
    size_t from = skip_class(s, 0, true);
    while (from < s->n) {
        size_t to = max-- == 0 ? s->n : skip_class(s, from, false);
        if (!atsi_jitems_add(items, atsi_jv_cut(r, v, from, to)))
            return false;
        from = skip_class(s, to, true);
    }
    return true;
}

static bool rsplit_words(struct atsi_jr *r, struct atsi_jitems *items, struct atsi_jv v,
                         int64_t max)
{
    const struct atsi_jstr *s = v.u.s;
    size_t to = back_class(s, s->n, true);
    while (to > 0) {
        size_t from = max-- == 0 ? 0 : back_class(s, to, false);
        if (!atsi_jitems_add(items, atsi_jv_cut(r, v, from, to)))
            return false;
        to = back_class(s, from, true);
    }
    return true;
}

struct atsi_jv atsi_jtext_split(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jstr *sep,
                                int64_t max, bool from_right)
{
    struct atsi_jitems items = atsi_jitems_of(r);
    bool ok;
    if (!atsi_jr_work(r, 8 * v.u.s->n))
        return atsi_jv_fail();
    if (sep != NULL && sep->n == 0)
        return atsi_jr_error(r, "split(): empty separator");
    if (sep == NULL)
        ok = from_right ? rsplit_words(r, &items, v, max) : split_words(r, &items, v, max);
    else
        ok = from_right ? rsplit_at(r, &items, v, sep, max) : split_at(r, &items, v, sep, max);
    for (size_t i = 0; ok && from_right && i < items.n / 2; i++) {
        struct atsi_jv swap = items.v[i];
        items.v[i] = items.v[items.n - 1 - i];
        items.v[items.n - 1 - i] = swap;
    }
    return ok ? atsi_jitems_list(&items) : atsi_jv_fail();
}

struct atsi_jv atsi_jtext_lines(struct atsi_jr *r, struct atsi_jv v, bool keep_ends)
{
    const struct atsi_jstr *s = v.u.s;
    struct atsi_jitems items = atsi_jitems_of(r);
    size_t from = 0, at = 0;
    if (!atsi_jr_work(r, 8 * s->n))
        return atsi_jv_fail();
    while (at < s->n) {
        size_t end = at;
        uint32_t cp = atsi_ucs_next(s->p, s->n, &at);
        if (!atsi_ucs_is_line_end(cp))
            continue;
        if (cp == '\r' && at < s->n && s->p[at] == '\n')
            at++;
        if (!atsi_jitems_add(&items, atsi_jv_cut(r, v, from, keep_ends ? at : end)))
            return atsi_jv_fail();
        from = at;
    }
    if (from < s->n && !atsi_jitems_add(&items, atsi_jv_cut(r, v, from, s->n)))
        return atsi_jv_fail();
    return atsi_jitems_list(&items);
}

/* ---------------------------------------------------------------- replacing, padding */
/* An empty `old` is found before each character and at the end. */
static struct atsi_jv put_between(struct atsi_jr *r, const struct atsi_jstr *s,
                                  const struct atsi_jstr *by, int64_t max)
{
    struct atsi_jbuf b = atsi_jbuf_of(r);
    size_t at = 0;
    while (max != 0 && !b.bad) {
        size_t from = at;
        max--;
        atsi_jbuf_str(&b, by);
        if (at >= s->n)
            break;
        (void)atsi_ucs_next(s->p, s->n, &at);
        atsi_jbuf_add(&b, s->p + from, at - from);
    }
    atsi_jbuf_add(&b, s->p + at, s->n - at);
    return atsi_jbuf_take(&b);
}

struct atsi_jv atsi_jtext_replace(struct atsi_jr *r, const struct atsi_jstr *s,
                                  const struct atsi_jstr *old, const struct atsi_jstr *by,
                                  int64_t max)
{
    struct atsi_jbuf b = atsi_jbuf_of(r);
    size_t from = 0, at;
    if (!atsi_jr_work(r, s->n))
        return atsi_jv_fail();
    if (old->n == 0)
        return put_between(r, s, by, max);
    while (max-- != 0 && (at = atsi_jtext_find(r, s, from, s->n, old, false)) != SIZE_MAX) {
        atsi_jbuf_add(&b, s->p + from, at - from);
        atsi_jbuf_str(&b, by);
        from = at + old->n;
        if (b.bad || !atsi_jr_step(r, 1))
            return atsi_jv_fail();
    }
    if (from == 0)
        return atsi_jv_str(s);
    atsi_jbuf_add(&b, s->p + from, s->n - from);
    return atsi_jbuf_take(&b);
}

struct atsi_jv atsi_jtext_pad(struct atsi_jr *r, struct atsi_jv v, int64_t width,
                              const struct atsi_jstr *fill, char side)
{
    struct atsi_jbuf b = atsi_jbuf_of(r);
    size_t pad, left = 0;
    struct atsi_jv out;
    if (fill->n_cp != 1)
        return atsi_jr_error(r, "the fill character must be exactly one character long");
    if (width <= 0 || (size_t)width <= v.u.s->n_cp)
        return v;
    pad = (size_t)width - v.u.s->n_cp;
    if (side == 'r')
        left = pad;
    else if (side == 'c') /* CPython: the odd one goes left when the width is odd */
        left = pad / 2 + (pad & (size_t)width & 1);
    atsi_jbuf_fill(&b, fill->p, fill->n, left);
    atsi_jbuf_str(&b, v.u.s);
    atsi_jbuf_fill(&b, fill->p, fill->n, pad - left);
    out = atsi_jbuf_take(&b);
    if (out.type == ATSI_J_STR)
        out.flag = v.flag;
    return out;
}
