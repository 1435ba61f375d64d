/* SPDX-License-Identifier: Apache-2.0
 *
 * "{}".format(...): fields, their attributes and items, conversions and format specifications.
 */
#include "text/jinja/compare.h"
#include "text/jinja/format.h"
#include "text/jinja/interp.h"
#include "text/jinja/number.h"
#include "text/jinja/repr.h"
#include "text/jinja/ucs.h"

struct braces {
    struct atsi_jr *r;
    const struct atsi_jcall *c;
    bool safe;     /* fields are escaped */
    int numbering; /* 0: not known, 1: by us, 2: by the text */
    size_t next;
};

static struct atsi_jv put_fields(struct braces *s, const char *p, size_t n, int depth);

static struct atsi_jv fail(const struct braces *s, const char *what)
{
    return atsi_jr_error(s->r, "format(): %s", what);
}

/* ---------------------------------------------------------------- format specifications */
static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

/* Digits at *p; false when the number is too large. */
static bool read_number(const char **p, const char *end, size_t *out)
{
    for (*out = 0; *p < end && **p >= '0' && **p <= '9'; ++*p) {
        *out = *out * 10 + (size_t)(**p - '0');
        if (*out > ATSI_JMAX_OUTPUT)
            return false;
    }
    return true;
}

static bool take(const char **p, const char *end, const char *set, char *out)
{
    if (*p >= end || **p == '\0' || strchr(set, **p) == NULL)
        return false;
    *out = *(*p)++;
    return true;
}

static bool read_spec(const char *p, size_t n, struct atsi_jspec *spec)
{
    const char *end = p + n;
    size_t fill = 0, number;
    char c;
    spec->fill = " ";
    spec->fill_n = 1;
    spec->precision = -1;
    if (n > 0)
        (void)atsi_ucs_next(p, n, &fill);
    if (fill > 0 && fill < n && is_align(p[fill])) {
        spec->fill = p;
        spec->fill_n = fill;
        spec->align = p[fill];
        p += fill + 1;
    } else {
        (void)take(&p, end, "<>^=", &spec->align);
    }
    (void)take(&p, end, "+- ", &spec->sign);
    spec->alternate = take(&p, end, "#", &c);
    if (take(&p, end, "0", &c)) {
        spec->zero = true;
        if (fill == 0 || spec->fill[0] == ' ')
            spec->fill = "0";
    }
    if (!read_number(&p, end, &spec->width))
        return false;
    (void)take(&p, end, ",_", &spec->group);
    if (take(&p, end, ".", &c)) {
        const char *digits = p;
        if (!read_number(&p, end, &number) || p == digits)
            return false;
        spec->precision = (int)number;
    }
    if (p < end)
        spec->type = *p++;
    return p == end && (unsigned char)spec->type < 0x80;
}

static bool put_text(struct braces *s, struct atsi_jbuf *b, struct atsi_jspec *spec,
                     struct atsi_jv v)
{
    if ((spec->type != 0 && spec->type != 's') || spec->sign != 0 || spec->alternate ||
        spec->align == '=' || spec->group != 0) {
        (void)fail(s, "this specification is not for a string");
        return false;
    }
    if (spec->precision >= 0)
        v = atsi_jv_cut(s->r, v, 0, atsi_jstr_offset(v.u.s, (size_t)spec->precision));
    if (v.type == ATSI_J_STR)
        atsi_jspec_put(b, spec, "", v.u.s->p, v.u.s->n, v.u.s->n_cp, '<');
    return v.type == ATSI_J_STR;
}

static bool put_number(struct braces *s, struct atsi_jbuf *b, struct atsi_jspec *spec,
                       struct atsi_jv v)
{
    char type = spec->type;
    if (type == 'n' || type == 'c' ||
        (v.type == ATSI_J_FLOAT && type == 0 && spec->precision >= 0)) {
        (void)atsi_jr_notsup(s->r, "format(): this specification of a number is not supported");
        return false;
    }
    if (atsi_jv_is_int(v) && (type == 0 || strchr("dboxX", type) != NULL)) {
        if (spec->precision >= 0 || (spec->group == ',' && type != 0 && type != 'd')) {
            (void)fail(s, "this specification is not for an integer");
            return false;
        }
        return atsi_jspec_int(b, spec, atsi_jv_as_int(v));
    }
    if (type != 0 && strchr("eEfFgG%", type) == NULL) {
        (void)fail(s, "an unknown type of number");
        return false;
    }
    return atsi_jspec_float(b, spec, atsi_jv_as_double(v));
}

/* format(v, spec). */
static struct atsi_jv format_value(struct braces *s, struct atsi_jv v, struct atsi_jv text)
{
    struct atsi_jbuf b = atsi_jbuf_of(s->r);
    struct atsi_jspec spec = {.fill = NULL};
    bool ok;
    if (text.u.s->n == 0) {
        v = atsi_jv_to_text(s->r, v);
        return v.type == ATSI_J_STR ? atsi_jv_str(v.u.s) : v;
    }
    if (!read_spec(text.u.s->p, text.u.s->n, &spec))
        return fail(s, "invalid format specifier");
    if (v.type == ATSI_J_STR)
        ok = put_text(s, &b, &spec, v);
    else if (atsi_jv_is_number(v))
        ok = put_number(s, &b, &spec, v);
    else
        return atsi_jr_error(s->r, "format(): unsupported format specifier for %s",
                             atsi_jv_type_name(v));
    return ok ? atsi_jbuf_take(&b) : atsi_jv_fail();
}

/* ---------------------------------------------------------------- fields */
static bool all_digits(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] < '0' || p[i] > '9')
            return false;
    return n > 0;
}

static struct atsi_jv argument(struct braces *s, const char *p, size_t n)
{
    const struct atsi_jentry *e;
    bool number = all_digits(p, n);
    int64_t i = (int64_t)s->next;
    if (n == 0 || number) {
        int numbering = n == 0 ? 1 : 2;
        if (s->numbering != 0 && s->numbering != numbering)
            return fail(s, "fields with and without numbers cannot be mixed");
        s->numbering = numbering;
        if (n == 0)
            s->next++;
        else if (atsi_jint_parse(p, n, 10, &i) != 1)
            i = INT64_MAX;
        return (uint64_t)i < s->c->n_pos ? s->c->pos[i] : fail(s, "not enough arguments");
    }
    e = s->c->kw != NULL ? atsi_jdict_find_str(s->c->kw, p, n) : NULL;
    return e != NULL ? e->value
                     : atsi_jr_error(s->r, "format(): no argument named '%.*s'",
                                     (int)(n < 60 ? n : 60), p);
}

/* ".name" and "[key]" behind a field's argument. */
static struct atsi_jv follow(struct braces *s, struct atsi_jv v, const char *p, size_t n)
{
    for (size_t at = 0; at < n && v.type != ATSI_J_FAIL;) {
        bool attr = p[at] == '.';
        size_t from = ++at;
        struct atsi_jv key;
        while (at < n && (attr ? p[at] != '.' && p[at] != '[' : p[at] != ']'))
            at++;
        if (at == from || (!attr && at >= n))
            return fail(s, "an empty or unfinished attribute");
        key = atsi_jv_text(s->r, p + from, at - from);
        if (key.type == ATSI_J_FAIL)
            return key;
        if (!attr) {
            int64_t i;
            if (all_digits(p + from, at - from) &&
                atsi_jint_parse(p + from, at - from, 10, &i) == 1)
                key = atsi_jv_int(i);
            at++;
            if (at < n && p[at] != '.' && p[at] != '[')
                return fail(s, "only '.' or '[' may follow ']'");
        }
        v = attr ? atsi_jv_attr(s->r, v, key.u.s) : atsi_jv_item(s->r, v, key);
    }
    return v;
}

static struct atsi_jv convert(struct braces *s, struct atsi_jv v, char conversion)
{
    if (conversion == 'r')
        return atsi_jv_repr(s->r, v);
    if (conversion != 's')
        return conversion == 'a' ? atsi_jr_notsup(s->r, "format(): !a is not supported")
                                 : fail(s, "unknown conversion");
    v = atsi_jv_to_text(s->r, v);
    return v.type == ATSI_J_STR ? atsi_jv_str(v.u.s) : v;
}

/* name!conversion:spec */
static struct atsi_jv put_field(struct braces *s, const char *p, size_t n, int depth)
{
    size_t name = 0, first, end;
    struct atsi_jv v, spec = atsi_jv_text(s->r, "", 0);
    int in_item = 0;
    for (; name < n && (in_item || (p[name] != '!' && p[name] != ':')); name++)
        in_item = p[name] == '[' ? 1 : p[name] == ']' ? 0 : in_item;
    first = name;
    for (size_t i = name; i-- > 0;)
        if (p[i] == '.' || p[i] == '[')
            first = i;
    if (first == 0 && name > 0)
        return fail(s, "an attribute needs an argument before it");
    v = argument(s, p, first);
    if (v.type != ATSI_J_FAIL)
        v = follow(s, v, p + first, name - first);
    end = name;
    if (v.type != ATSI_J_FAIL && end < n && p[end] == '!') {
        if (end + 1 >= n || (end + 2 < n && p[end + 2] != ':'))
            return fail(s, "one letter expected behind '!'");
        v = convert(s, v, p[end + 1]);
        end += 2;
    }
    if (v.type != ATSI_J_FAIL && end < n)
        spec = put_fields(s, p + end + 1, n - end - 1, depth + 1);
    if (v.type == ATSI_J_FAIL || spec.type == ATSI_J_FAIL)
        return atsi_jv_fail();
    if (!s->safe)
        return format_value(s, v, spec);
    if (v.type == ATSI_J_STR && v.flag)
        return spec.u.s->n == 0 ? v : fail(s, "no specification can be used for a safe string");
    v = format_value(s, v, spec);
    return v.type == ATSI_J_STR ? atsi_jv_escape(s->r, v) : v;
}

/* Where the field that begins behind "{" ends. */
static size_t field_end(const char *p, size_t n, size_t at)
{
    int open = 1;
    for (; at < n; at++) {
        open += p[at] == '{';
        open -= p[at] == '}';
        if (open == 0)
            break;
    }
    return at;
}

static struct atsi_jv put_fields(struct braces *s, const char *p, size_t n, int depth)
{
    struct atsi_jbuf b = atsi_jbuf_of(s->r);
    if (depth > 1 && memchr(p, '{', n) != NULL)
        return fail(s, "fields nested too deep");
    for (size_t at = 0; at < n; at++) {
        struct atsi_jv v;
        size_t end;
        bool twice = at + 1 < n && p[at + 1] == p[at];
        if (p[at] != '{' && p[at] != '}') {
            atsi_jbuf_add(&b, p + at, 1);
            continue;
        }
        if (twice) {
            atsi_jbuf_add(&b, p + at++, 1);
            continue;
        }
        if (p[at] == '}')
            return fail(s, "a single '}'");
        end = field_end(p, n, at + 1);
        if (end >= n)
            return fail(s, "a single '{'");
        v = atsi_jr_step(s->r, 1) ? put_field(s, p + at + 1, end - at - 1, depth) : atsi_jv_fail();
        if (v.type == ATSI_J_FAIL)
            return v;
        atsi_jbuf_str(&b, v.u.s);
        at = end;
    }
    return atsi_jbuf_take(&b);
}

struct atsi_jv atsi_jformat_braces(struct atsi_jr *r, struct atsi_jv format,
                                   const struct atsi_jcall *c)
{
    struct braces s = {.r = r, .c = c, .safe = format.flag};
    struct atsi_jv v = put_fields(&s, format.u.s->p, format.u.s->n, 0);
    if (v.type == ATSI_J_STR)
        v.flag = format.flag;
    return v;
}
