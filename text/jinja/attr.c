/* SPDX-License-Identifier: Apache-2.0
 *
 * Members: a.name, a[key] and slices.  As in the sandbox of Jinja2, a.name is an attribute of a's
 * type first (a method) and an item second; a[key] is the other way round.
 */
#include "text/jinja/compare.h"
#include "text/jinja/interp.h"
#include "text/jinja/number.h"
#include "text/jinja/repr.h"

/* Methods that would change their object: the immutable sandbox keeps them from templates. */
static bool changes_object(struct atsi_jv v, const struct atsi_jstr *name)
{
    static const char *const of_list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                          "sort",   "extend", "remove", NULL};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *names = v.type == ATSI_J_LIST   ? of_list
                               : v.type == ATSI_J_DICT ? of_dict
                                                       : NULL;
    for (; names != NULL && *names != NULL; names++)
        if (atsi_jstr_is(name, *names))
            return true;
    return false;
}

static struct atsi_jv bind_method(struct atsi_jr *r, struct atsi_jv v,
                                  const struct atsi_jbuiltin *method)
{
    struct atsi_jv bound = atsi_jv_of(ATSI_J_BOUND);
    struct atsi_jbound *b;
    if (method->fn == NULL)
        return atsi_jr_notsup(r, "'%s' of a %s is not supported", method->name,
                              atsi_jv_type_name(v));
    b = atsi_jr_alloc(r, sizeof *b);
    if (b == NULL)
        return atsi_jv_fail();
    b->self = v;
    b->method = method;
    bound.u.bound = b;
    return bound;
}

static struct atsi_jv macro_attr(struct atsi_jr *r, const struct atsi_jmacro *m,
                                 const struct atsi_jstr *name)
{
    struct atsi_jitems names = atsi_jitems_of(r);
    if (atsi_jstr_is(name, "name"))
        return m->def->name != NULL ? atsi_jv_str(m->def->name) : atsi_jv_none();
    if (atsi_jstr_is(name, "catch_kwargs"))
        return atsi_jv_bool(m->def->takes_kwargs);
    if (atsi_jstr_is(name, "catch_varargs"))
        return atsi_jv_bool(m->def->takes_varargs);
    if (atsi_jstr_is(name, "caller"))
        return atsi_jv_bool(m->def->takes_caller || m->def->explicit_caller);
    if (!atsi_jstr_is(name, "arguments"))
        return atsi_jv_of(ATSI_J_MISSING);
    for (size_t i = 0; i < m->def->n_params; i++)
        if (!atsi_jitems_add(&names, atsi_jv_str(m->def->param[i])))
            return atsi_jv_fail();
    return atsi_jitems_tuple(&names);
}

/* An attribute that is no method; MISSING: there is none. */
static struct atsi_jv data_attr(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jstr *name)
{
    const struct atsi_jentry *e;
    switch (v.type) {
    case ATSI_J_NS:
        e = atsi_jdict_find_str(v.u.ns, name->p, name->n);
        if (e == NULL)
            break;
        return name->p[0] == '_' ? atsi_jv_undef(name, ATSI_JUNDEF_UNSAFE) : e->value;
    case ATSI_J_LOOP:
        return atsi_jloop_attr(r, v.u.loop, name);
    case ATSI_J_MACRO:
        return macro_attr(r, v.u.macro, name);
    case ATSI_J_TUPLE: /* (grouper, list) of groupby */
        if (v.flag && atsi_jstr_is(name, "grouper"))
            return v.u.list->v[0];
        if (v.flag && atsi_jstr_is(name, "list"))
            return v.u.list->v[1];
        break;
    case ATSI_J_RANGE:
        if (atsi_jstr_is(name, "start"))
            return atsi_jv_int(v.u.range->start);
        if (atsi_jstr_is(name, "stop"))
            return atsi_jv_int(v.u.range->stop);
        if (atsi_jstr_is(name, "step"))
            return atsi_jv_int(v.u.range->step);
        break;
    case ATSI_J_STR:
        if (v.flag && (atsi_jstr_is(name, "unescape") || atsi_jstr_is(name, "striptags") ||
                       atsi_jstr_is(name, "escape")))
            return atsi_jr_notsup(r, "'%s' of a Markup is not supported", name->p);
        break;
    default:
        break;
    }
    return atsi_jv_of(ATSI_J_MISSING);
}

/* getattr(v, name); MISSING: there is no such attribute. */
static struct atsi_jv type_attr(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jstr *name)
{
    const struct atsi_jbuiltin *method = atsi_jmethod_find(v.type, name);
    if (changes_object(v, name))
        return atsi_jv_undef(name, ATSI_JUNDEF_UNSAFE);
    return method != NULL ? bind_method(r, v, method) : data_attr(r, v, name);
}

struct atsi_jv atsi_jv_attr(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jstr *name)
{
    struct atsi_jv got;
    if (v.type == ATSI_J_UNDEF)
        return atsi_jv_undefined_error(r, v);
    got = type_attr(r, v, name);
    if (got.type != ATSI_J_MISSING)
        return got;
    if (v.type == ATSI_J_DICT) {
        const struct atsi_jentry *e = atsi_jdict_find_str(v.u.dict, name->p, name->n);
        if (e != NULL)
            return e->value;
    }
    return atsi_jv_undef(name, v.type);
}

struct atsi_jv atsi_jv_only_attr(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jstr *name)
{
    struct atsi_jv got;
    if (v.type == ATSI_J_UNDEF)
        return atsi_jv_undefined_error(r, v);
    got = type_attr(r, v, name);
    return got.type != ATSI_J_MISSING ? got : atsi_jv_undef(name, v.type);
}

/* ---------------------------------------------------------------- items */
static bool index_in(int64_t i, size_t n, size_t *out)
{
    if (i < 0)
        i += (int64_t)n;
    *out = (size_t)i;
    return i >= 0 && (size_t)i < n;
}

/* v[key] of Python; MISSING: it raises TypeError or LookupError. */
static struct atsi_jv python_item(struct atsi_jr *r, struct atsi_jv v, struct atsi_jv key)
{
    size_t i = 0, from, to;
    bool bad = false;
    if (v.type == ATSI_J_DICT) {
        const struct atsi_jentry *e = NULL;
        if (key.type != ATSI_J_LIST && key.type != ATSI_J_DICT)
            e = atsi_jdict_find(r, v.u.dict, key, &bad);
        if (bad)
            return atsi_jv_fail();
        return e != NULL ? e->value : atsi_jv_of(ATSI_J_MISSING);
    }
    if (!atsi_jv_is_int(key))
        return atsi_jv_of(ATSI_J_MISSING);
    switch (v.type) {
    case ATSI_J_LIST:
    case ATSI_J_TUPLE:
        if (index_in(atsi_jv_as_int(key), v.u.list->n, &i))
            return v.u.list->v[i];
        break;
    case ATSI_J_RANGE:
        if (index_in(atsi_jv_as_int(key), v.u.range->n, &i))
            return atsi_jrange_at(v.u.range, i);
        break;
    case ATSI_J_STR:
        if (!index_in(atsi_jv_as_int(key), v.u.s->n_cp, &i) || !atsi_jr_work(r, v.u.s->n))
            break;
        from = atsi_jstr_offset(v.u.s, i);
        to = from + 1;
        while (to < v.u.s->n && ((unsigned char)v.u.s->p[to] & 0xC0) == 0x80)
            to++;
        return atsi_jv_cut(r, v, from, to);
    default:
        break;
    }
    return r->status != ATSI_OK ? atsi_jv_fail() : atsi_jv_of(ATSI_J_MISSING);
}

struct atsi_jv atsi_jv_item(struct atsi_jr *r, struct atsi_jv v, struct atsi_jv key)
{
    struct atsi_jv got;
    if (v.type == ATSI_J_UNDEF)
        return atsi_jv_undefined_error(r, v);
    got = python_item(r, v, key);
    if (got.type != ATSI_J_MISSING)
        return got;
    if (key.type == ATSI_J_STR) {
        got = type_attr(r, v, key.u.s);
        return got.type != ATSI_J_MISSING ? got : atsi_jv_undef(key.u.s, v.type);
    }
    if (atsi_jv_is_number(key) || key.type == ATSI_J_NONE) {
        got = atsi_jv_repr(r, key);
        return got.type == ATSI_J_STR ? atsi_jv_undef(got.u.s, v.type) : got;
    }
    return atsi_jv_undef(NULL, v.type);
}

/* ---------------------------------------------------------------- slices */
struct cut {
    int64_t start, stop, step;
    size_t n; /* items */
};

/* One end of a slice as an index (slice.indices() of Python). */
static int64_t clamp(int64_t i, int64_t n, int64_t step)
{
    if (i < 0) {
        i += n; /* no overflow: the signs differ */
        if (i < 0)
            return step < 0 ? -1 : 0;
    }
    if (i >= n)
        return step < 0 ? n - 1 : n;
    return i;
}

static bool slice_ends(struct atsi_jr *r, const struct atsi_jv part[3], size_t size,
                       struct cut *out)
{
    int64_t n = (int64_t)size, given[3] = {0, 0, 1};
    for (size_t i = 0; i < 3; i++) {
        if (atsi_jv_is_int(part[i]))
            given[i] = atsi_jv_as_int(part[i]);
        else if (part[i].type == ATSI_J_UNDEF) {
            (void)atsi_jv_undefined_error(r, part[i]);
            return false;
        } else if (part[i].type != ATSI_J_NONE) {
            (void)atsi_jr_error(r, "slice indices must be integers or none, not %s",
                                atsi_jv_type_name(part[i]));
            return false;
        }
    }
    if (given[2] == 0) {
        (void)atsi_jr_error(r, "slice step cannot be zero");
        return false;
    }
    if (given[2] < -n - 1) /* a longer step takes the same items */
        given[2] = -n - 1;
    if (given[2] > n + 1)
        given[2] = n + 1;
    out->step = given[2];
    out->start =
        part[0].type != ATSI_J_NONE ? clamp(given[0], n, out->step) : (out->step < 0 ? n - 1 : 0);
    out->stop =
        part[1].type != ATSI_J_NONE ? clamp(given[1], n, out->step) : (out->step < 0 ? -1 : n);
    out->n = 0;
    if (out->step > 0 && out->stop > out->start)
        out->n = (size_t)((out->stop - out->start - 1) / out->step + 1);
    if (out->step < 0 && out->start > out->stop)
        out->n = (size_t)((out->start - out->stop - 1) / -out->step + 1);
    return true;
}

static struct atsi_jv slice_text(struct atsi_jr *r, struct atsi_jv v, const struct cut *cut)
{
    const struct atsi_jstr *s = v.u.s;
    struct atsi_jbuf b = atsi_jbuf_of(r);
    size_t *offset, at = 0;
    if (!atsi_jr_work(r, s->n))
        return atsi_jv_fail();
    if (cut->step == 1 || cut->n == 0) {
        size_t from = cut->n > 0 ? atsi_jstr_offset(s, (size_t)cut->start) : 0;
        size_t to = cut->n > 0 ? atsi_jstr_offset(s, (size_t)cut->start + cut->n) : 0;
        return atsi_jv_cut(r, v, from, to);
    }
    offset = atsi_jr_array(r, s->n_cp + 1, sizeof *offset);
    if (offset == NULL)
        return atsi_jv_fail();
    for (size_t i = 0; i < s->n; i++)
        if (((unsigned char)s->p[i] & 0xC0) != 0x80)
            offset[at++] = i;
    offset[at] = s->n;
    for (size_t i = 0; i < cut->n; i++) {
        size_t k = (size_t)(cut->start + (int64_t)i * cut->step);
        atsi_jbuf_add(&b, s->p + offset[k], offset[k + 1] - offset[k]);
    }
    at = v.flag;
    v = atsi_jbuf_take(&b);
    if (v.type == ATSI_J_STR)
        v.flag = (uint8_t)at;
    return v;
}

static struct atsi_jv slice_list(struct atsi_jr *r, struct atsi_jv v, const struct cut *cut)
{
    struct atsi_jitems items = atsi_jitems_of(r);
    for (size_t i = 0; i < cut->n; i++)
        if (!atsi_jitems_add(&items, v.u.list->v[cut->start + (int64_t)i * cut->step]))
            return atsi_jv_fail();
    return v.type == ATSI_J_TUPLE ? atsi_jitems_tuple(&items) : atsi_jitems_list(&items);
}

static struct atsi_jv slice_range(struct atsi_jr *r, const struct atsi_jrange *g,
                                  const struct cut *cut)
{
    int64_t start = 0, stop = 0, step = 0;
    if (__builtin_mul_overflow(g->step, cut->step, &step) ||
        __builtin_mul_overflow(g->step, cut->start, &start) ||
        __builtin_add_overflow(g->start, start, &start) ||
        __builtin_mul_overflow(g->step, cut->stop, &stop) ||
        __builtin_add_overflow(g->start, stop, &stop))
        return atsi_jr_notsup(r, "integers beyond 64 bits are not supported");
    return atsi_jrange_new(r, start, stop, step);
}

struct atsi_jv atsi_jv_slice(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jv part[3])
{
    struct cut cut;
    switch (v.type) {
    case ATSI_J_STR:
        return slice_ends(r, part, v.u.s->n_cp, &cut) ? slice_text(r, v, &cut) : atsi_jv_fail();
    case ATSI_J_LIST:
    case ATSI_J_TUPLE:
        return slice_ends(r, part, v.u.list->n, &cut) ? slice_list(r, v, &cut) : atsi_jv_fail();
    case ATSI_J_RANGE:
        return slice_ends(r, part, v.u.range->n, &cut) ? slice_range(r, v.u.range, &cut)
                                                       : atsi_jv_fail();
    case ATSI_J_UNDEF:
        return atsi_jv_undefined_error(r, v);
    default:
        return atsi_jr_error(r, "a %s cannot be sliced", atsi_jv_type_name(v));
    }
}

/* ---------------------------------------------------------------- paths */
static struct atsi_jv step(struct atsi_jr *r, struct atsi_jv v, struct atsi_jv key,
                           struct atsi_jv otherwise)
{
    if (key.type == ATSI_J_FAIL)
        return key;
    v = atsi_jv_item(r, v, key);
    return v.type == ATSI_J_UNDEF && otherwise.type > ATSI_J_NONE ? otherwise : v;
}

struct atsi_jv atsi_jv_path_or(struct atsi_jr *r, struct atsi_jv v, struct atsi_jv path,
                               struct atsi_jv otherwise)
{
    const struct atsi_jstr *s = path.u.s;
    size_t from = 0;
    if (path.type == ATSI_J_MISSING || path.type == ATSI_J_NONE)
        return v;
    if (path.type != ATSI_J_STR)
        return step(r, v, path, otherwise);
    for (size_t at = 0; at <= s->n && v.type != ATSI_J_FAIL; at++) {
        struct atsi_jv key;
        int64_t i;
        bool number = at > from;
        if (at < s->n && s->p[at] != '.')
            continue;
        for (size_t k = from; k < at; k++)
            number = number && s->p[k] >= '0' && s->p[k] <= '9';
        key = atsi_jv_text(r, s->p + from, at - from);
        if (number && atsi_jint_parse(s->p + from, at - from, 10, &i) == 1)
            key = atsi_jv_int(i);
        v = step(r, v, key, otherwise);
        from = at + 1;
    }
    return v;
}

struct atsi_jv atsi_jv_path(struct atsi_jr *r, struct atsi_jv v, struct atsi_jv path)
{
    return atsi_jv_path_or(r, v, path, atsi_jv_of(ATSI_J_MISSING));
}
