/* SPDX-License-Identifier: Apache-2.0
 *
 * Methods of strings.  Those of a safe string (MarkupSafe) give safe ones.
 */
#include "text/jinja/methods.h"

#include "text/jinja/compare.h"
#include "text/jinja/format.h"
#include "text/jinja/text_ops.h"
#include "text/jinja/ucs.h"

#define METHOD(name)                                                                               \
    static struct atsi_jv name(struct atsi_jr *r, const struct atsi_jv *a,                         \
                               const struct atsi_jcall *c)

static const struct atsi_jstr space = {" ", 1, 1};

static struct atsi_jv as_safe_as(struct atsi_jv v, struct atsi_jv of)
{
    if (v.type == ATSI_J_STR)
        v.flag = of.flag;
    return v;
}

static struct atsi_jv recase(struct atsi_jr *r, const struct atsi_jcall *c, enum atsi_ucs_case to)
{
    return as_safe_as(atsi_ucs_recase(r, c->self.u.s, to), c->self);
}

METHOD(str_upper)
{
    (void)a;
    return recase(r, c, ATSI_UCS_UPPER);
}

METHOD(str_lower)
{
    (void)a;
    return recase(r, c, ATSI_UCS_LOWER);
}

METHOD(str_title)
{
    (void)a;
    return recase(r, c, ATSI_UCS_TITLE);
}

METHOD(str_capitalize)
{
    (void)a;
    return recase(r, c, ATSI_UCS_CAPITAL);
}

METHOD(str_swapcase)
{
    (void)a;
    return recase(r, c, ATSI_UCS_SWAP);
}

static struct atsi_jv strip(struct atsi_jr *r, struct atsi_jv chars, const struct atsi_jcall *c,
                            unsigned sides)
{
    const struct atsi_jstr *set = NULL;
    if (!atsi_jarg_str(r, chars, "the argument of strip()", &set))
        return atsi_jv_fail();
    return atsi_jv_strip(r, c->self, set, sides);
}

METHOD(str_strip)
{
    return strip(r, a[0], c, ATSI_STRIP_LEFT | ATSI_STRIP_RIGHT);
}

METHOD(str_lstrip)
{
    return strip(r, a[0], c, ATSI_STRIP_LEFT);
}

METHOD(str_rstrip)
{
    return strip(r, a[0], c, ATSI_STRIP_RIGHT);
}

static struct atsi_jv split(struct atsi_jr *r, const struct atsi_jv *a, const struct atsi_jcall *c,
                            bool from_right)
{
    const struct atsi_jstr *sep = NULL;
    int64_t max = -1;
    if (!atsi_jarg_str(r, a[0], "the separator of split()", &sep) ||
        !atsi_jarg_int(r, a[1], "maxsplit of split()", &max))
        return atsi_jv_fail();
    return atsi_jtext_split(r, c->self, sep, max, from_right);
}

METHOD(str_split)
{
    return split(r, a, c, false);
}

METHOD(str_rsplit)
{
    return split(r, a, c, true);
}

METHOD(str_splitlines)
{
    return atsi_jtext_lines(r, c->self, atsi_jarg_flag(a[0], false));
}

static struct atsi_jv partition(struct atsi_jr *r, struct atsi_jv sep, struct atsi_jv v, bool last)
{
    struct atsi_jitems items = atsi_jitems_of(r);
    const struct atsi_jstr *what = NULL;
    size_t at, end = v.u.s->n, from = end, to = end;
    if (!atsi_jarg_str(r, sep, "the separator of partition()", &what) || !atsi_jr_work(r, end))
        return atsi_jv_fail();
    if (what == NULL || what->n == 0)
        return atsi_jr_error(r, "partition() needs a separator that is not empty");
    at = atsi_jtext_find(r, v.u.s, 0, end, what, last);
    if (at != SIZE_MAX) {
        from = at;
        to = at + what->n;
    } else if (last) {
        from = to = 0;
    }
    if (!atsi_jitems_add(&items, atsi_jv_cut(r, v, 0, from)) ||
        !atsi_jitems_add(&items, atsi_jv_cut(r, v, from, to)) ||
        !atsi_jitems_add(&items, atsi_jv_cut(r, v, to, end)))
        return atsi_jv_fail();
    return atsi_jitems_tuple(&items);
}

METHOD(str_partition)
{
    return partition(r, a[0], c->self, false);
}

METHOD(str_rpartition)
{
    return partition(r, a[0], c->self, true);
}

/* ---------------------------------------------------------------- searching */
/* Bytes [*from, *to) that the arguments start and end name; false: failed.  *empty: the start lies
 * behind the end or behind the text, where nothing is found. */
static bool window(struct atsi_jr *r, const struct atsi_jstr *s, struct atsi_jv start,
                   struct atsi_jv end, size_t *from, size_t *to, bool *empty)
{
    int64_t n = (int64_t)s->n_cp, a = 0, b = n;
    if ((start.type != ATSI_J_NONE && !atsi_jarg_int(r, start, "start", &a)) ||
        (end.type != ATSI_J_NONE && !atsi_jarg_int(r, end, "end", &b)))
        return false;
    if (a < 0)
        a = a + n < 0 ? 0 : a + n;
    if (b < 0)
        b = b + n < 0 ? 0 : b + n;
    if (b > n)
        b = n;
    *empty = a > b;
    if (a > n)
        a = n;
    *from = atsi_jstr_offset(s, (size_t)a);
    *to = atsi_jstr_offset(s, (size_t)b);
    return atsi_jr_work(r, s->n);
}

static struct atsi_jv find(struct atsi_jr *r, const struct atsi_jv *a, const struct atsi_jcall *c,
                           bool last, bool must)
{
    const struct atsi_jstr *what = NULL, *s = c->self.u.s;
    size_t from, to, at;
    bool empty;
    if (a[0].type != ATSI_J_STR)
        return atsi_jr_error(r, "find() needs a string, not %s", atsi_jv_type_name(a[0]));
    what = a[0].u.s;
    if (!window(r, s, a[1], a[2], &from, &to, &empty))
        return atsi_jv_fail();
    at = empty ? SIZE_MAX : atsi_jtext_find(r, s, from, to, what, last);
    if (at != SIZE_MAX)
        return atsi_jv_int((int64_t)atsi_jstr_count(s->p, at));
    return must ? atsi_jr_error(r, "substring not found") : atsi_jv_int(-1);
}

METHOD(str_find)
{
    return find(r, a, c, false, false);
}

METHOD(str_rfind)
{
    return find(r, a, c, true, false);
}

METHOD(str_index)
{
    return find(r, a, c, false, true);
}

METHOD(str_rindex)
{
    return find(r, a, c, true, true);
}

METHOD(str_count)
{
    const struct atsi_jstr *s = c->self.u.s;
    size_t from, to, at;
    int64_t n = 0;
    bool empty;
    if (a[0].type != ATSI_J_STR)
        return atsi_jr_error(r, "count() needs a string, not %s", atsi_jv_type_name(a[0]));
    if (!window(r, s, a[1], a[2], &from, &to, &empty))
        return atsi_jv_fail();
    if (empty)
        return atsi_jv_int(0);
    if (a[0].u.s->n == 0)
        return atsi_jv_int((int64_t)atsi_jstr_count(s->p + from, to - from) + 1);
    for (; (at = atsi_jtext_find(r, s, from, to, a[0].u.s, false)) != SIZE_MAX; n++)
        from = at + a[0].u.s->n;
    return atsi_jv_int(n);
}

/* Does [from, to) of s begin (end) with v: 1, 0, or -1: failed? */
static int has_affix(struct atsi_jr *r, const struct atsi_jstr *s, size_t from, size_t to,
                     struct atsi_jv v, bool at_end)
{
    const struct atsi_jstr *x = v.u.s;
    if (v.type != ATSI_J_STR) {
        (void)atsi_jr_error(r,
                            "startswith() and endswith() need a string or a tuple of strings, "
                            "not %s",
                            atsi_jv_type_name(v));
        return -1;
    }
    return x->n <= to - from && memcmp(s->p + (at_end ? to - x->n : from), x->p, x->n) == 0;
}

static struct atsi_jv affix(struct atsi_jr *r, const struct atsi_jv *a, const struct atsi_jcall *c,
                            bool at_end)
{
    const struct atsi_jstr *s = c->self.u.s;
    size_t from, to;
    int has = 0;
    bool empty;
    if (!window(r, s, a[1], a[2], &from, &to, &empty))
        return atsi_jv_fail();
    if (empty)
        return atsi_jv_bool(false);
    if (a[0].type == ATSI_J_TUPLE)
        for (size_t i = 0; has == 0 && i < a[0].u.list->n; i++)
            has = has_affix(r, s, from, to, a[0].u.list->v[i], at_end);
    else
        has = has_affix(r, s, from, to, a[0], at_end);
    return has < 0 ? atsi_jv_fail() : atsi_jv_bool(has == 1);
}

METHOD(str_startswith)
{
    return affix(r, a, c, false);
}

METHOD(str_endswith)
{
    return affix(r, a, c, true);
}

static struct atsi_jv remove_affix(struct atsi_jr *r, struct atsi_jv what, struct atsi_jv v,
                                   bool at_end)
{
    size_t n = v.u.s->n;
    int has = has_affix(r, v.u.s, 0, n, what, at_end);
    if (has <= 0)
        return has < 0 ? atsi_jv_fail() : v;
    return at_end ? atsi_jv_cut(r, v, 0, n - what.u.s->n) : atsi_jv_cut(r, v, what.u.s->n, n);
}

METHOD(str_removeprefix)
{
    return remove_affix(r, a[0], c->self, false);
}

METHOD(str_removesuffix)
{
    return remove_affix(r, a[0], c->self, true);
}

/* ---------------------------------------------------------------- building */
METHOD(str_replace)
{
    int64_t max = -1;
    struct atsi_jv by = a[1];
    if (a[0].type != ATSI_J_STR || by.type != ATSI_J_STR)
        return atsi_jr_error(r, "replace() needs two strings, not %s and %s",
                             atsi_jv_type_name(a[0]), atsi_jv_type_name(by));
    if (!atsi_jarg_int(r, a[2], "count of replace()", &max))
        return atsi_jv_fail();
    if (c->self.flag)
        by = atsi_jv_escape(r, by);
    if (by.type == ATSI_J_FAIL)
        return by;
    return as_safe_as(atsi_jtext_replace(r, c->self.u.s, a[0].u.s, by.u.s, max), c->self);
}

METHOD(str_join)
{
    struct atsi_jbuf b = atsi_jbuf_of(r);
    struct atsi_jiter it;
    struct atsi_jv v;
    bool first = true;
    int more;
    if (!atsi_jiter_open(r, a[0], &it))
        return atsi_jv_fail();
    while ((more = atsi_jiter_next(r, &it, &v)) > 0) {
        if (v.type != ATSI_J_STR)
            return atsi_jr_error(r, "join(): an item is no string but %s", atsi_jv_type_name(v));
        if (c->self.flag)
            v = atsi_jv_escape(r, v);
        if (v.type == ATSI_J_FAIL)
            return v;
        if (!first)
            atsi_jbuf_str(&b, c->self.u.s);
        first = false;
        atsi_jbuf_str(&b, v.u.s);
    }
    return more < 0 ? atsi_jv_fail() : as_safe_as(atsi_jbuf_take(&b), c->self);
}

static struct atsi_jv pad(struct atsi_jr *r, const struct atsi_jv *a, const struct atsi_jcall *c,
                          char side)
{
    const struct atsi_jstr *fill = &space;
    int64_t width = 0;
    if (!atsi_jarg_int(r, a[0], "the width", &width) ||
        !atsi_jarg_str(r, a[1], "the fill character", &fill))
        return atsi_jv_fail();
    return atsi_jtext_pad(r, c->self, width, fill, side);
}

METHOD(str_center)
{
    return pad(r, a, c, 'c');
}

METHOD(str_ljust)
{
    return pad(r, a, c, 'l');
}

METHOD(str_rjust)
{
    return pad(r, a, c, 'r');
}

METHOD(str_zfill)
{
    const struct atsi_jstr *s = c->self.u.s;
    struct atsi_jbuf b = atsi_jbuf_of(r);
    int64_t width = 0;
    size_t sign = s->n > 0 && (s->p[0] == '+' || s->p[0] == '-');
    if (!atsi_jarg_int(r, a[0], "the width", &width))
        return atsi_jv_fail();
    if (width <= 0 || (size_t)width <= s->n_cp)
        return c->self;
    atsi_jbuf_add(&b, s->p, sign);
    atsi_jbuf_fill(&b, "0", 1, (size_t)width - s->n_cp);
    atsi_jbuf_add(&b, s->p + sign, s->n - sign);
    return as_safe_as(atsi_jbuf_take(&b), c->self);
}

METHOD(str_format)
{
    (void)a;
    return atsi_jformat_braces(r, c->self, c);
}

/* ---------------------------------------------------------------- kinds of characters */
static struct atsi_jv all_are(struct atsi_jr *r, const struct atsi_jcall *c,
                              bool (*is)(uint32_t cp), bool when_empty)
{
    const struct atsi_jstr *s = c->self.u.s;
    bool all = s->n > 0 || when_empty;
    if (!atsi_jr_work(r, 8 * s->n))
        return atsi_jv_fail();
    for (size_t at = 0; all && at < s->n;)
        all = is(atsi_ucs_next(s->p, s->n, &at));
    return atsi_jv_bool(all);
}

static bool is_alnum(uint32_t cp)
{
    return atsi_ucs_is_alpha(cp) || atsi_ucs_is_numeric(cp);
}

static bool is_ascii(uint32_t cp)
{
    return cp < 0x80;
}

METHOD(str_isalpha)
{
    (void)a;
    return all_are(r, c, atsi_ucs_is_alpha, false);
}

METHOD(str_isalnum)
{
    (void)a;
    return all_are(r, c, is_alnum, false);
}

METHOD(str_isascii)
{
    (void)a;
    return all_are(r, c, is_ascii, true);
}

METHOD(str_isdecimal)
{
    (void)a;
    return all_are(r, c, atsi_ucs_is_decimal, false);
}

/* Decimal digits, and the superscripts and their like that Unicode counts as digits: those are
 * refused, as the tables here do not tell them from fractions. */
METHOD(str_isdigit)
{
    const struct atsi_jstr *s = c->self.u.s;
    (void)a;
    for (size_t at = 0; at < s->n;) {
        uint32_t cp = atsi_ucs_next(s->p, s->n, &at);
        if (cp >= 0x80 && atsi_ucs_is_numeric(cp) && !atsi_ucs_is_decimal(cp))
            return atsi_jr_notsup(r, "isdigit() of U+%04X is not supported", (unsigned)cp);
    }
    return all_are(r, c, atsi_ucs_is_decimal, false);
}

METHOD(str_isspace)
{
    (void)a;
    return all_are(r, c, atsi_ucs_is_space, false);
}

METHOD(str_isprintable)
{
    (void)a;
    return all_are(r, c, atsi_ucs_is_printable, true);
}

/* Cased characters are there, and all of this case. */
struct atsi_jv atsi_jtext_is_case(struct atsi_jr *r, const struct atsi_jstr *s, bool upper)
{
    bool any = false;
    if (!atsi_jr_work(r, 8 * s->n))
        return atsi_jv_fail();
    for (size_t at = 0; at < s->n;) {
        uint32_t cp = atsi_ucs_next(s->p, s->n, &at);
        bool is_upper = atsi_ucs_is_upper(cp), is_lower = atsi_ucs_is_lower(cp);
        if (atsi_ucs_is_title(cp) || (upper ? is_lower : is_upper))
            return atsi_jv_bool(false);
        any = any || is_upper || is_lower;
    }
    return atsi_jv_bool(any);
}

METHOD(str_isupper)
{
    (void)a;
    return atsi_jtext_is_case(r, c->self.u.s, true);
}

METHOD(str_islower)
{
    (void)a;
    return atsi_jtext_is_case(r, c->self.u.s, false);
}

METHOD(str_istitle)
{
    const struct atsi_jstr *s = c->self.u.s;
    bool any = false, in_word = false;
    (void)a;
    if (!atsi_jr_work(r, 8 * s->n))
        return atsi_jv_fail();
    for (size_t at = 0; at < s->n;) {
        uint32_t cp = atsi_ucs_next(s->p, s->n, &at);
        bool upper = atsi_ucs_is_upper(cp) || atsi_ucs_is_title(cp), lower = atsi_ucs_is_lower(cp);
        if ((upper && in_word) || (lower && !in_word))
            return atsi_jv_bool(false);
        in_word = upper || lower;
        any = any || in_word;
    }
    return atsi_jv_bool(any);
}

const struct atsi_jbuiltin atsi_jmethods_str[] = {
    {"capitalize", str_capitalize, "", 0, true, ATSI_J_STR},
    {"casefold", NULL, "", 0, true, ATSI_J_STR},
    {"center", str_center, "width fillchar", 1, true, ATSI_J_STR},
    {"count", str_count, "sub start end", 1, true, ATSI_J_STR},
    {"encode", NULL, "", 0, true, ATSI_J_STR},
    {"endswith", str_endswith, "suffix start end", 1, true, ATSI_J_STR},
    {"expandtabs", NULL, "", 0, true, ATSI_J_STR},
    {"find", str_find, "sub start end", 1, true, ATSI_J_STR},
    {"format", str_format, NULL, 0, false, ATSI_J_STR},
    {"format_map", NULL, "", 0, true, ATSI_J_STR},
    {"index", str_index, "sub start end", 1, true, ATSI_J_STR},
    {"isalnum", str_isalnum, "", 0, true, ATSI_J_STR},
    {"isalpha", str_isalpha, "", 0, true, ATSI_J_STR},
    {"isascii", str_isascii, "", 0, true, ATSI_J_STR},
    {"isdecimal", str_isdecimal, "", 0, true, ATSI_J_STR},
    {"isdigit", str_isdigit, "", 0, true, ATSI_J_STR},
    {"isidentifier", NULL, "", 0, true, ATSI_J_STR},
    {"islower", str_islower, "", 0, true, ATSI_J_STR},
    {"isnumeric", NULL, "", 0, true, ATSI_J_STR},
    {"isprintable", str_isprintable, "", 0, true, ATSI_J_STR},
    {"isspace", str_isspace, "", 0, true, ATSI_J_STR},
    {"istitle", str_istitle, "", 0, true, ATSI_J_STR},
    {"isupper", str_isupper, "", 0, true, ATSI_J_STR},
    {"join", str_join, "iterable", 1, true, ATSI_J_STR},
    {"ljust", str_ljust, "width fillchar", 1, true, ATSI_J_STR},
    {"lower", str_lower, "", 0, true, ATSI_J_STR},
    {"lstrip", str_lstrip, "chars", 0, true, ATSI_J_STR},
    {"maketrans", NULL, "", 0, true, ATSI_J_STR},
    {"partition", str_partition, "sep", 1, true, ATSI_J_STR},
    {"removeprefix", str_removeprefix, "prefix", 1, true, ATSI_J_STR},
    {"removesuffix", str_removesuffix, "suffix", 1, true, ATSI_J_STR},
    {"replace", str_replace, "old new count", 2, true, ATSI_J_STR},
    {"rfind", str_rfind, "sub start end", 1, true, ATSI_J_STR},
    {"rindex", str_rindex, "sub start end", 1, true, ATSI_J_STR},
    {"rjust", str_rjust, "width fillchar", 1, true, ATSI_J_STR},
    {"rpartition", str_rpartition, "sep", 1, true, ATSI_J_STR},
    {"rsplit", str_rsplit, "sep maxsplit", 0, false, ATSI_J_STR},
    {"rstrip", str_rstrip, "chars", 0, true, ATSI_J_STR},
    {"split", str_split, "sep maxsplit", 0, false, ATSI_J_STR},
    {"splitlines", str_splitlines, "keepends", 0, false, ATSI_J_STR},
    {"startswith", str_startswith, "prefix start end", 1, true, ATSI_J_STR},
    {"strip", str_strip, "chars", 0, true, ATSI_J_STR},
    {"swapcase", str_swapcase, "", 0, true, ATSI_J_STR},
    {"title", str_title, "", 0, true, ATSI_J_STR},
    {"translate", NULL, "", 0, true, ATSI_J_STR},
    {"upper", str_upper, "", 0, true, ATSI_J_STR},
    {"zfill", str_zfill, "width", 1, true, ATSI_J_STR},
    {.name = NULL},
};
