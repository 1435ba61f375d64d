/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters that make text.
 */
#include "text/jinja/filters.h"

#include "text/jinja/compare.h"
#include "text/jinja/format.h"
#include "text/jinja/repr.h"
#include "text/jinja/text_ops.h"
#include "text/jinja/ucs.h"

#define FILTER(name)                                                                               \
    static struct atsi_jv name(struct atsi_jr *r, const struct atsi_jv *a,                         \
                               const struct atsi_jcall *c)

static struct atsi_jv as_safe_as(struct atsi_jv v, struct atsi_jv of)
{
    if (v.type == ATSI_J_STR)
        v.flag = of.flag;
    return v;
}

static struct atsi_jv plain(struct atsi_jv v)
{
    return v.type == ATSI_J_STR ? atsi_jv_str(v.u.s) : v;
}

static struct atsi_jv recase(struct atsi_jr *r, const struct atsi_jcall *c, enum atsi_ucs_case to)
{
    struct atsi_jv v = atsi_jv_to_text(r, c->self);
    return v.type == ATSI_J_STR ? as_safe_as(atsi_ucs_recase(r, v.u.s, to), v) : v;
}

FILTER(do_upper)
{
    (void)a;
    return recase(r, c, ATSI_UCS_UPPER);
}

FILTER(do_lower)
{
    (void)a;
    return recase(r, c, ATSI_UCS_LOWER);
}

FILTER(do_capitalize)
{
    (void)a;
    return recase(r, c, ATSI_UCS_CAPITAL);
}

/* Words begin behind these (and at the start). */
static bool parts_words(uint32_t cp)
{
    return cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' || atsi_ucs_is_space(cp);
}

/* [from, to): the first character in upper, the others in lower case. */
static bool add_word(struct atsi_jbuf *b, const struct atsi_jstr *s, size_t from, size_t to)
{
    struct atsi_jv text = atsi_jv_str(s), first, rest;
    size_t second = from;
    if (from == to)
        return true;
    (void)atsi_ucs_next(s->p, to, &second);
    first = atsi_jv_cut(b->r, text, from, second);
    rest = atsi_jv_cut(b->r, text, second, to);
    if (first.type == ATSI_J_STR)
        first = atsi_ucs_recase(b->r, first.u.s, ATSI_UCS_UPPER);
    if (rest.type == ATSI_J_STR)
        rest = atsi_ucs_recase(b->r, rest.u.s, ATSI_UCS_LOWER);
    if (first.type != ATSI_J_STR || rest.type != ATSI_J_STR)
        return false;
    atsi_jbuf_str(b, first.u.s);
    atsi_jbuf_str(b, rest.u.s);
    return true;
}

FILTER(do_title)
{
    struct atsi_jv v = atsi_jv_to_text(r, c->self);
    struct atsi_jbuf b = atsi_jbuf_of(r);
    size_t from = 0, at = 0;
    (void)a;
    if (v.type != ATSI_J_STR)
        return v;
    while (at < v.u.s->n) {
        size_t here = at;
        if (!parts_words(atsi_ucs_next(v.u.s->p, v.u.s->n, &at)))
            continue;
        if (!add_word(&b, v.u.s, from, here))
            return atsi_jv_fail();
        atsi_jbuf_add(&b, v.u.s->p + here, at - here);
        from = at;
    }
    return add_word(&b, v.u.s, from, at) ? atsi_jbuf_take(&b) : atsi_jv_fail();
}

FILTER(do_trim)
{
    const struct atsi_jstr *chars = NULL;
    struct atsi_jv v = atsi_jv_to_text(r, c->self);
    if (v.type != ATSI_J_STR || !atsi_jarg_str(r, a[0], "the argument of trim", &chars))
        return atsi_jv_fail();
    return atsi_jv_strip(r, v, chars, ATSI_STRIP_LEFT | ATSI_STRIP_RIGHT);
}

FILTER(do_replace)
{
    struct atsi_jv v = atsi_jv_to_text(r, c->self), old = atsi_jv_to_text(r, a[0]),
                   by = atsi_jv_to_text(r, a[1]);
    int64_t max = -1;
    if (v.type != ATSI_J_STR || old.type != ATSI_J_STR || by.type != ATSI_J_STR)
        return atsi_jv_fail();
    if (a[2].type != ATSI_J_NONE && !atsi_jarg_int(r, a[2], "count of replace", &max))
        return atsi_jv_fail();
    return plain(atsi_jtext_replace(r, v.u.s, old.u.s, by.u.s, max));
}

FILTER(do_string)
{
    (void)a;
    return atsi_jv_to_text(r, c->self);
}

FILTER(do_safe)
{
    (void)a;
    return atsi_jv_safe(atsi_jv_to_text(r, c->self));
}

FILTER(do_escape)
{
    struct atsi_jv v = atsi_jv_to_text(r, c->self);
    (void)a;
    return v.type == ATSI_J_STR ? atsi_jv_escape(r, v) : v;
}

FILTER(do_forceescape)
{
    struct atsi_jv v = plain(atsi_jv_to_text(r, c->self));
    (void)a;
    return v.type == ATSI_J_STR ? atsi_jv_escape(r, v) : v;
}

FILTER(do_center)
{
    static const struct atsi_jstr space = {" ", 1, 1};
    struct atsi_jv v = atsi_jv_to_text(r, c->self);
    int64_t width = 80;
    if (v.type != ATSI_J_STR || !atsi_jarg_int(r, a[0], "the width of center", &width))
        return atsi_jv_fail();
    return atsi_jtext_pad(r, v, width, &space, 'c');
}

FILTER(do_format)
{
    struct atsi_jv v = atsi_jv_to_text(r, c->self);
    struct atsi_jlist values = {c->n_pos, c->pos};
    (void)a;
    if (v.type != ATSI_J_STR)
        return v;
    if (c->n_pos > 0 && c->kw != NULL && c->kw->n > 0)
        return atsi_jr_error(r, "format: positional and named arguments cannot be mixed");
    if (c->kw != NULL && c->kw->n > 0)
        return atsi_jformat_percent(r, v, atsi_jv_dict(c->kw));
    return atsi_jformat_percent(r, v, atsi_jv_tuple(&values));
}

/* ---------------------------------------------------------------- lines and words */
/* The indentation: spaces, or the text given. */
static bool indentation(struct atsi_jr *r, struct atsi_jv width, struct atsi_jv *out)
{
    struct atsi_jbuf b = atsi_jbuf_of(r);
    int64_t n = 4;
    if (width.type == ATSI_J_STR) {
        *out = width;
        return true;
    }
    if (!atsi_jarg_int(r, width, "the width of indent", &n))
        return false;
    atsi_jbuf_fill(&b, " ", 1, n > 0 ? (size_t)n : 0);
    *out = atsi_jbuf_take(&b);
    return out->type == ATSI_J_STR;
}

FILTER(do_indent)
{
    bool first = atsi_jarg_flag(a[1], false), blank = atsi_jarg_flag(a[2], false);
    struct atsi_jbuf b = atsi_jbuf_of(r);
    struct atsi_jv space, lines, v = c->self;
    if (v.type == ATSI_J_UNDEF)
        return atsi_jv_undefined_error(r, v);
    if (v.type != ATSI_J_STR)
        return atsi_jr_error(r, "indent needs a string, not %s", atsi_jv_type_name(v));
    if (!indentation(r, a[0], &space))
        return atsi_jv_fail();
    v = atsi_jstr_concat(r, v.u.s, &(const struct atsi_jstr){"\n", 1, 1});
    lines = v.type == ATSI_J_STR ? atsi_jtext_lines(r, v, false) : v;
    if (lines.type != ATSI_J_LIST)
        return lines;
    for (size_t i = 0; i < lines.u.list->n; i++) {
        const struct atsi_jstr *line = lines.u.list->v[i].u.s;
        if (i > 0)
            atsi_jbuf_text(&b, "\n");
        if (i == 0 ? first : blank || line->n > 0)
            atsi_jbuf_str(&b, space.u.s);
        atsi_jbuf_str(&b, line);
    }
    return as_safe_as(atsi_jbuf_take(&b), c->self);
}

FILTER(do_truncate)
{
    static const struct atsi_jstr dots = {"...", 3, 3}, blank = {" ", 1, 1};
    const struct atsi_jstr *end = &dots;
    struct atsi_jv v = c->self, tail;
    int64_t length = 255, leeway = 5;
    size_t cut, at, n;
    if (!atsi_jv_length(r, v, &n))
        return atsi_jr_error(r, "truncate needs a string, not %s", atsi_jv_type_name(v));
    if (!atsi_jarg_int(r, a[0], "the length of truncate", &length) ||
        !atsi_jarg_str(r, a[2], "the end of truncate", &end) ||
        (a[3].type != ATSI_J_NONE && !atsi_jarg_int(r, a[3], "the leeway of truncate", &leeway)))
        return atsi_jv_fail();
    if (length < (int64_t)end->n_cp || leeway < 0)
        return atsi_jr_error(r, "truncate: a length shorter than the end, or a negative leeway");
    if ((int64_t)n - leeway <= length)
        return v;
    if (v.type != ATSI_J_STR)
        return atsi_jr_error(r, "truncate needs a string, not %s", atsi_jv_type_name(v));
    cut = atsi_jstr_offset(v.u.s, (size_t)length - end->n_cp);
    if (!atsi_jarg_flag(a[1], false)) {
        at = atsi_jtext_find(r, v.u.s, 0, cut, &blank, true);
        cut = at != SIZE_MAX ? at : cut;
    }
    v = atsi_jv_cut(r, v, 0, cut);
    tail = atsi_jv_str(end);
    if (v.type == ATSI_J_STR && v.flag)
        tail = atsi_jv_escape(r, tail);
    if (v.type != ATSI_J_STR || tail.type != ATSI_J_STR)
        return atsi_jv_fail();
    return as_safe_as(atsi_jstr_concat(r, v.u.s, tail.u.s), v);
}

FILTER(do_wordcount)
{
    struct atsi_jv v = atsi_jv_to_text(r, c->self);
    int64_t n = 0;
    bool in_word = false;
    (void)a;
    if (v.type != ATSI_J_STR || !atsi_jr_work(r, 8 * v.u.s->n))
        return atsi_jv_fail();
    for (size_t at = 0; at < v.u.s->n;) {
        bool word = atsi_ucs_is_word(atsi_ucs_next(v.u.s->p, v.u.s->n, &at));
        n += word && !in_word;
        in_word = word;
    }
    return atsi_jv_int(n);
}

/* ---------------------------------------------------------------- JSON */
/* separators=(item, key). */
static bool json_separators(struct atsi_jr *r, struct atsi_jv v, struct atsi_jjson *how)
{
    static const struct atsi_jstr comma = {",", 1, 1}, comma_blank = {", ", 2, 2},
                                  colon = {": ", 2, 2};
    how->item_separator = how->indent != NULL ? &comma : &comma_blank;
    how->key_separator = &colon;
    if (v.type == ATSI_J_MISSING || v.type == ATSI_J_NONE)
        return true;
    if ((v.type != ATSI_J_TUPLE && v.type != ATSI_J_LIST) || v.u.list->n != 2 ||
        v.u.list->v[0].type != ATSI_J_STR || v.u.list->v[1].type != ATSI_J_STR) {
        (void)atsi_jr_error(r, "tojson: separators must be two strings");
        return false;
    }
    how->item_separator = v.u.list->v[0].u.s;
    how->key_separator = v.u.list->v[1].u.s;
    return true;
}

/* As the usual library defines it: json.dumps, without HTML escapes. */
FILTER(do_tojson)
{
    struct atsi_jjson how = {.ascii = atsi_jarg_flag(a[0], false),
                             .sort_keys = atsi_jarg_flag(a[3], false)};
    struct atsi_jv indent;
    if (a[1].type != ATSI_J_MISSING && a[1].type != ATSI_J_NONE) {
        if (!indentation(r, a[1], &indent))
            return atsi_jv_fail();
        how.indent = indent.u.s;
    }
    if (!json_separators(r, a[2], &how))
        return atsi_jv_fail();
    return atsi_jv_to_json(r, c->self, &how);
}

const struct atsi_jbuiltin atsi_jfilters_text[] = {
    {"tojson", do_tojson, "ensure_ascii indent separators sort_keys", 0, false, 0},
    {"trim", do_trim, "chars", 0, false, 0},
    {"string", do_string, "", 0, false, 0},
    {"upper", do_upper, "", 0, false, 0},
    {"lower", do_lower, "", 0, false, 0},
    {"capitalize", do_capitalize, "", 0, false, 0},
    {"title", do_title, "", 0, false, 0},
    {"replace", do_replace, "old new count", 2, false, 0},
    {"safe", do_safe, "", 0, false, 0},
    {"e", do_escape, "", 0, false, 0},
    {"escape", do_escape, "", 0, false, 0},
    {"forceescape", do_forceescape, "", 0, false, 0},
    {"center", do_center, "width", 0, false, 0},
    {"format", do_format, NULL, 0, false, 0},
    {"indent", do_indent, "width first blank", 0, false, 0},
    {"truncate", do_truncate, "length killwords end leeway", 0, false, 0},
    {"wordcount", do_wordcount, "", 0, false, 0},
    {.name = NULL},
};
