/* SPDX-License-Identifier: Apache-2.0
 *
 * str() and repr().  What Python would show with a memory address is refused.
 */
#include "text/jinja/repr.h"

#include "text/jinja/interp.h"
#include "text/jinja/loop.h"
#include "text/jinja/number.h"
#include "text/jinja/ucs.h"

const char *atsi_jv_type_name(struct atsi_jv v)
{
    static const char *const names[] = {
        [ATSI_J_FAIL] = "failure",     [ATSI_J_MISSING] = "missing", [ATSI_J_UNDEF] = "Undefined",
        [ATSI_J_NONE] = "NoneType",    [ATSI_J_BOOL] = "bool",       [ATSI_J_INT] = "int",
        [ATSI_J_FLOAT] = "float",      [ATSI_J_STR] = "str",         [ATSI_J_LIST] = "list",
        [ATSI_J_TUPLE] = "tuple",      [ATSI_J_DICT] = "dict",       [ATSI_J_RANGE] = "range",
        [ATSI_J_VIEW] = "dict view",   [ATSI_J_GEN] = "generator",   [ATSI_J_NS] = "Namespace",
        [ATSI_J_LOOP] = "LoopContext", [ATSI_J_MACRO] = "Macro",     [ATSI_J_FUNC] = "function",
        [ATSI_J_BOUND] = "method",
    };
    if (v.type == ATSI_J_STR && v.flag)
        return "Markup";
    return v.type < sizeof names / sizeof names[0] ? names[v.type] : "?";
}

static void add_escaped(struct atsi_jbuf *b, uint32_t cp)
{
    char text[12];
    const char *format = cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x";
    if (cp == '\n' || cp == '\r' || cp == '\t') {
        atsi_jbuf_text(b, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
        return;
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* one of the three above */
    (void)snprintf(text, sizeof text, format, (unsigned)cp);
#pragma GCC diagnostic pop
    atsi_jbuf_text(b, text);
}

/* Single quotes unless the text has some and no double ones. */
static void repr_str(struct atsi_jbuf *b, const struct atsi_jstr *s)
{
    bool single = memchr(s->p, '\'', s->n) != NULL, twice = memchr(s->p, '"', s->n) != NULL;
    char quote = single && !twice ? '"' : '\'';
    if (!atsi_jr_work(b->r, s->n))
        b->bad = true;
    atsi_jbuf_add(b, &quote, 1);
    for (size_t at = 0; at < s->n && !b->bad;) {
        size_t from = at;
        uint32_t cp = atsi_ucs_next(s->p, s->n, &at);
        if (cp == (uint32_t)quote || cp == '\\') {
            atsi_jbuf_text(b, "\\");
            atsi_jbuf_cp(b, cp);
        } else if (atsi_ucs_is_printable(cp)) {
            atsi_jbuf_add(b, s->p + from, at - from);
        } else {
            add_escaped(b, cp);
        }
    }
    atsi_jbuf_add(b, &quote, 1);
}

static void add_repr(struct atsi_jbuf *b, struct atsi_jv v);

static void repr_list(struct atsi_jbuf *b, struct atsi_jv v)
{
    const struct atsi_jlist *l = v.u.list;
    bool tuple = v.type == ATSI_J_TUPLE;
    atsi_jbuf_text(b, tuple ? "(" : "[");
    for (size_t i = 0; i < l->n && !b->bad; i++) {
        if (i > 0)
            atsi_jbuf_text(b, ", ");
        add_repr(b, l->v[i]);
    }
    atsi_jbuf_text(b, tuple ? l->n == 1 ? ",)" : ")" : "]");
}

static void repr_dict(struct atsi_jbuf *b, const struct atsi_jdict *d)
{
    atsi_jbuf_text(b, "{");
    for (size_t i = 0; i < d->n && !b->bad; i++) {
        if (i > 0)
            atsi_jbuf_text(b, ", ");
        add_repr(b, d->e[i].key);
        atsi_jbuf_text(b, ": ");
        add_repr(b, d->e[i].value);
    }
    atsi_jbuf_text(b, "}");
}

static void repr_view(struct atsi_jbuf *b, const struct atsi_jview *view)
{
    atsi_jbuf_text(b, view->kind == 'k'   ? "dict_keys(["
                      : view->kind == 'v' ? "dict_values(["
                                          : "dict_items([");
    for (size_t i = 0; i < view->dict->n && !b->bad; i++) {
        if (i > 0)
            atsi_jbuf_text(b, ", ");
        add_repr(b, atsi_jview_at(b->r, view, i));
    }
    atsi_jbuf_text(b, "])");
}

static void repr_range(struct atsi_jbuf *b, const struct atsi_jrange *g)
{
    atsi_jbuf_text(b, "range(");
    atsi_jbuf_int(b, g->start);
    atsi_jbuf_text(b, ", ");
    atsi_jbuf_int(b, g->stop);
    if (g->step != 1) {
        atsi_jbuf_text(b, ", ");
        atsi_jbuf_int(b, g->step);
    }
    atsi_jbuf_text(b, ")");
}

static void repr_loop(struct atsi_jbuf *b, struct atsi_jloop *l)
{
    size_t n;
    if (!atsi_jloop_length(b->r, l, &n)) {
        b->bad = true;
        return;
    }
    atsi_jbuf_text(b, "<LoopContext ");
    atsi_jbuf_int(b, l->index0 + 1);
    atsi_jbuf_text(b, "/");
    atsi_jbuf_int(b, (int64_t)n);
    atsi_jbuf_text(b, ">");
}

static void repr_macro(struct atsi_jbuf *b, const struct atsi_jmacro *m)
{
    const struct atsi_jstr *name = atsi_jmacro_name(m);
    if (name == NULL) {
        atsi_jbuf_text(b, "<Macro anonymous>");
        return;
    }
    atsi_jbuf_text(b, "<Macro ");
    repr_str(b, name);
    atsi_jbuf_text(b, ">");
}

static void repr_object(struct atsi_jbuf *b, struct atsi_jv v)
{
    switch (v.type) {
    case ATSI_J_LIST:
    case ATSI_J_TUPLE:
        repr_list(b, v);
        break;
    case ATSI_J_DICT:
        repr_dict(b, v.u.dict);
        break;
    case ATSI_J_VIEW:
        repr_view(b, v.u.view);
        break;
    case ATSI_J_NS:
        atsi_jbuf_text(b, "<Namespace ");
        repr_dict(b, v.u.ns);
        atsi_jbuf_text(b, ">");
        break;
    case ATSI_J_RANGE:
        repr_range(b, v.u.range);
        break;
    case ATSI_J_LOOP:
        repr_loop(b, v.u.loop);
        break;
    case ATSI_J_MACRO:
        repr_macro(b, v.u.macro);
        break;
    default:
        if (v.type != ATSI_J_FAIL)
            (void)atsi_jr_notsup(b->r, "printing a %s is not supported (it shows a memory address)",
                                 atsi_jv_type_name(v));
        b->bad = true;
    }
}

static void add_repr(struct atsi_jbuf *b, struct atsi_jv v)
{
    char number[ATSI_JFLOAT_SIZE];
    if (!atsi_jr_enter(b->r) || !atsi_jr_step(b->r, 1))
        b->bad = true;
    else if (v.type == ATSI_J_UNDEF)
        atsi_jbuf_text(b, "Undefined");
    else if (v.type == ATSI_J_NONE)
        atsi_jbuf_text(b, "None");
    else if (v.type == ATSI_J_BOOL)
        atsi_jbuf_text(b, v.flag ? "True" : "False");
    else if (v.type == ATSI_J_INT)
        atsi_jbuf_int(b, v.u.i);
    else if (v.type == ATSI_J_FLOAT)
        atsi_jbuf_text(b, atsi_jfloat_repr(v.u.f, number));
    else if (v.type == ATSI_J_STR) {
        atsi_jbuf_text(b, v.flag ? "Markup(" : "");
        repr_str(b, v.u.s);
        atsi_jbuf_text(b, v.flag ? ")" : "");
    } else
        repr_object(b, v);
    b->r->depth--;
}

struct atsi_jv atsi_jv_repr(struct atsi_jr *r, struct atsi_jv v)
{
    struct atsi_jbuf b = atsi_jbuf_of(r);
    add_repr(&b, v);
    return atsi_jbuf_take(&b);
}

struct atsi_jv atsi_jv_to_text(struct atsi_jr *r, struct atsi_jv v)
{
    if (v.type == ATSI_J_STR || v.type == ATSI_J_FAIL)
        return v;
    if (v.type == ATSI_J_UNDEF)
        return atsi_jv_text(r, "", 0);
    return atsi_jv_repr(r, v);
}
