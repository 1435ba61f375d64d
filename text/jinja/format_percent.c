/* SPDX-License-Identifier: Apache-2.0
 *
 * "..." % values, the printf of Python.
 */
#include <math.h>

#include "text/jinja/compare.h"
#include "text/jinja/format.h"
#include "text/jinja/repr.h"
#include "text/jinja/ucs.h"

struct percent {
    struct atsi_jr *r;
    struct atsi_jbuf b;
    const struct atsi_jstr *format;
    size_t at;
    struct atsi_jv value; /* as given: a tuple, a dict, or one value */
    bool safe;            /* values are escaped */
    size_t next;          /* value of the tuple (or 0 / 1 for one value) */
    bool named;           /* some were taken by name */
};

static bool fail(struct percent *p, const char *what)
{
    (void)atsi_jr_error(p->r, "format with %%: %s", what);
    return false;
}

static bool next_value(struct percent *p, struct atsi_jv *out)
{
    bool tuple = p->value.type == ATSI_J_TUPLE;
    size_t n = tuple ? p->value.u.list->n : 1;
    if (p->next >= n)
        return fail(p, "not enough values");
    *out = tuple ? p->value.u.list->v[p->next] : p->value;
    p->next++;
    return true;
}

/* "(name)": the value of that name. */
static bool named_value(struct percent *p, struct atsi_jv *out)
{
    size_t from = ++p->at, depth = 1;
    const struct atsi_jentry *e;
    for (; p->at < p->format->n; p->at++) {
        char c = p->format->p[p->at];
        depth += c == '(';
        depth -= c == ')';
        if (depth == 0)
            break;
    }
    if (depth > 0)
        return fail(p, "a name without its closing bracket");
    if (p->value.type != ATSI_J_DICT)
        return fail(p, "names need a mapping");
    e = atsi_jdict_find_str(p->value.u.dict, p->format->p + from, p->at - from);
    if (e == NULL)
        return fail(p, "no value of that name");
    p->at++;
    p->named = true;
    *out = e->value;
    return true;
}

static char peek(const struct percent *p)
{
    return p->at < p->format->n ? p->format->p[p->at] : '\0';
}

/* A number, or "*": the next value. */
static bool read_size(struct percent *p, int64_t *out)
{
    struct atsi_jv v;
    *out = 0;
    if (peek(p) == '*') {
        p->at++;
        if (!next_value(p, &v))
            return false;
        if (!atsi_jv_is_int(v))
            return fail(p, "* needs an integer");
        *out = atsi_jv_as_int(v);
    } else {
        for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
            *out = *out * 10 + (peek(p) - '0');
            if (*out > ATSI_JMAX_OUTPUT)
                return fail(p, "a width that is too large");
        }
    }
    return true;
}

static bool read_spec(struct percent *p, struct atsi_jspec *spec)
{
    int64_t size;
    spec->fill = " ";
    spec->fill_n = 1;
    spec->precision = -1;
    for (;; p->at++) {
        char c = peek(p);
        if (c == '-')
            spec->align = '<';
        else if (c == '+' || (c == ' ' && spec->sign == 0))
            spec->sign = c;
        else if (c == '#')
            spec->alternate = true;
        else if (c == '0')
            spec->zero = true;
        else if (c != ' ')
            break;
    }
    if (!read_size(p, &size))
        return false;
    if (size < 0) {
        spec->align = '<';
        size = size > -ATSI_JMAX_OUTPUT ? -size : ATSI_JMAX_OUTPUT;
    }
    spec->width = (size_t)(size < ATSI_JMAX_OUTPUT ? size : ATSI_JMAX_OUTPUT);
    if (peek(p) == '.') {
        p->at++;
        if (!read_size(p, &size))
            return false;
        spec->precision = (int)(size < 0 ? 0 : size < ATSI_JMAX_OUTPUT ? size : ATSI_JMAX_OUTPUT);
    }
    while (peek(p) == 'h' || peek(p) == 'l' || peek(p) == 'L')
        p->at++;
    return true;
}

static bool put_text(struct percent *p, const struct atsi_jspec *spec, struct atsi_jv v, bool repr)
{
    struct atsi_jv text = repr ? atsi_jv_repr(p->r, v) : atsi_jv_to_text(p->r, v);
    if (text.type == ATSI_J_STR && p->safe)
        text = atsi_jv_escape(p->r, text);
    if (text.type == ATSI_J_STR && spec->precision >= 0)
        text = atsi_jv_cut(p->r, text, 0, atsi_jstr_offset(text.u.s, (size_t)spec->precision));
    if (text.type != ATSI_J_STR)
        return false;
    atsi_jspec_put(&p->b, spec, "", text.u.s->p, text.u.s->n, text.u.s->n_cp, '>');
    return !p->b.bad;
}

static bool put_int(struct percent *p, struct atsi_jspec *spec, struct atsi_jv v)
{
    int64_t i;
    bool decimal = spec->type == 'd' || spec->type == 'i' || spec->type == 'u';
    if (atsi_jv_is_int(v)) {
        i = atsi_jv_as_int(v);
    } else if (decimal && v.type == ATSI_J_FLOAT) {
        if (!(fabs(v.u.f) < 9.2e18)) {
            (void)atsi_jr_notsup(p->r, "integers beyond 64 bits are not supported");
            return false;
        }
        i = (int64_t)v.u.f;
    } else if (v.type == ATSI_J_UNDEF) {
        return atsi_jv_undefined_error(p->r, v).type != ATSI_J_FAIL;
    } else {
        return fail(p, decimal ? "%d needs a number" : "%x and %o need an integer");
    }
    if (decimal)
        spec->type = 'd';
    if (spec->precision > 0) {
        (void)atsi_jr_notsup(p->r, "format with %%: a precision for integers is not supported");
        return false;
    }
    spec->precision = -1;
    return atsi_jspec_int(&p->b, spec, i);
}

static bool put_char(struct percent *p, const struct atsi_jspec *spec, struct atsi_jv v)
{
    struct atsi_jbuf b = atsi_jbuf_of(p->r);
    if (v.type == ATSI_J_STR && v.u.s->n_cp == 1) {
        atsi_jspec_put(&p->b, spec, "", v.u.s->p, v.u.s->n, 1, '>');
        return !p->b.bad;
    }
    if (!atsi_jv_is_int(v) || atsi_jv_as_int(v) < 0 || atsi_jv_as_int(v) > 0x10FFFF ||
        (atsi_jv_as_int(v) >= 0xD800 && atsi_jv_as_int(v) < 0xE000))
        return fail(p, "%c needs a character or its number");
    atsi_jbuf_cp(&b, (uint32_t)atsi_jv_as_int(v));
    atsi_jspec_put(&p->b, spec, "", b.p, b.n, 1, '>');
    return !p->b.bad;
}

static bool put_value(struct percent *p, struct atsi_jspec *spec, struct atsi_jv v)
{
    switch (spec->type) {
    case 's':
    case 'r':
        return put_text(p, spec, v, spec->type == 'r');
    case 'c':
        return put_char(p, spec, v);
    default:
        break;
    }
    if (spec->zero && spec->align == 0)
        spec->fill = "0";
    else
        spec->zero = false;
    if (strchr("diuxXo", spec->type) != NULL)
        return put_int(p, spec, v);
    if (v.type == ATSI_J_UNDEF)
        return atsi_jv_undefined_error(p->r, v).type != ATSI_J_FAIL;
    if (!atsi_jv_is_number(v))
        return fail(p, "%f needs a number");
    return atsi_jspec_float(&p->b, spec, atsi_jv_as_double(v));
}

/* What follows a "%". */
static bool put_one(struct percent *p)
{
    struct atsi_jspec spec = {.fill = NULL};
    struct atsi_jv v = atsi_jv_of(ATSI_J_MISSING);
    if (peek(p) == '%') {
        p->at++;
        atsi_jbuf_text(&p->b, "%");
        return !p->b.bad;
    }
    if (peek(p) == '(' && !named_value(p, &v))
        return false;
    if (!read_spec(p, &spec))
        return false;
    spec.type = peek(p);
    if (p->at++ >= p->format->n)
        return fail(p, "it ends within a conversion");
    if (spec.type == '\0' || strchr("diuoxXeEfFgGcrs", spec.type) == NULL)
        return fail(p, "a conversion that is not supported");
    if (v.type == ATSI_J_MISSING && !next_value(p, &v))
        return false;
    return put_value(p, &spec, v);
}

struct atsi_jv atsi_jformat_percent(struct atsi_jr *r, struct atsi_jv format, struct atsi_jv value)
{
    struct percent p = {
        .r = r, .b = atsi_jbuf_of(r), .format = format.u.s, .value = value, .safe = format.flag};
    struct atsi_jv out;
    bool many;
    while (p.at < p.format->n) {
        const char *c = memchr(p.format->p + p.at, '%', p.format->n - p.at);
        size_t to = c != NULL ? (size_t)(c - p.format->p) : p.format->n;
        atsi_jbuf_add(&p.b, p.format->p + p.at, to - p.at);
        p.at = to + 1;
        if (c != NULL && (!atsi_jr_step(r, 1) || !put_one(&p)))
            return atsi_jv_fail();
    }
    /* A mapping need not be used up; Python takes everything with items for one. */
    many = value.type == ATSI_J_DICT || value.type == ATSI_J_LIST || value.type == ATSI_J_RANGE ||
           value.type == ATSI_J_UNDEF;
    if (p.next < (value.type == ATSI_J_TUPLE ? value.u.list->n : 1) && !many && !p.named)
        return atsi_jr_error(r, "not all arguments converted during string formatting");
    out = atsi_jbuf_take(&p.b);
    if (out.type == ATSI_J_STR)
        out.flag = format.flag;
    return out;
}
