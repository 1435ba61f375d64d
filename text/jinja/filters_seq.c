/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters that take sequences apart and put them together.
 */
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/interp.h"
#include "text/jinja/number.h"
#include "text/jinja/repr.h"

#define FILTER(name)                                                                               \
    static struct atsi_jv name(struct atsi_jr *r, const struct atsi_jv *a,                         \
                               const struct atsi_jcall *c)

FILTER(do_length)
{
    size_t n;
    (void)a;
    if (atsi_jv_length(r, c->self, &n))
        return atsi_jv_int((int64_t)n);
    return atsi_jr_error(r, "object of type '%s' has no len()", atsi_jv_type_name(c->self));
}

FILTER(do_list)
{
    (void)a;
    return atsi_jv_to_list(r, c->self);
}

static struct atsi_jv no_item(struct atsi_jr *r, const char *hint)
{
    struct atsi_jv v = atsi_jv_ctext(r, hint);
    return v.type == ATSI_J_STR ? atsi_jv_undef(v.u.s, ATSI_JUNDEF_HINT) : v;
}

FILTER(do_first)
{
    struct atsi_jiter it;
    struct atsi_jv v;
    int more;
    (void)a;
    if (!atsi_jiter_open(r, c->self, &it))
        return atsi_jv_fail();
    more = atsi_jiter_next(r, &it, &v);
    if (more < 0)
        return atsi_jv_fail();
    return more > 0 ? v : no_item(r, "no first item, the sequence was empty");
}

FILTER(do_last)
{
    struct atsi_jv list;
    (void)a;
    if (c->self.type == ATSI_J_GEN)
        return atsi_jr_error(r, "'generator' object is not reversible");
    list = atsi_jv_to_list(r, c->self);
    if (list.type == ATSI_J_FAIL)
        return list;
    return list.u.list->n > 0 ? list.u.list->v[list.u.list->n - 1]
                              : no_item(r, "no last item, the sequence was empty");
}

static struct atsi_jv reversed(struct atsi_jr *r, const struct atsi_jlist *l)
{
    struct atsi_jitems items = atsi_jitems_of(r);
    for (size_t i = l->n; i-- > 0;)
        if (!atsi_jitems_add(&items, l->v[i]))
            return atsi_jv_fail();
    return atsi_jitems_list(&items);
}

FILTER(do_reverse)
{
    struct atsi_jv list;
    (void)a;
    if (c->self.type == ATSI_J_STR) {
        struct atsi_jv part[3] = {atsi_jv_none(), atsi_jv_none(), atsi_jv_int(-1)};
        return atsi_jv_slice(r, c->self, part);
    }
    list = atsi_jv_to_list(r, c->self);
    if (list.type == ATSI_J_LIST)
        list = reversed(r, list.u.list);
    if (list.type == ATSI_J_FAIL || c->self.type == ATSI_J_GEN)
        return list;
    return atsi_jv_gen(atsi_jgen_new(r, list, NULL));
}

/* ---------------------------------------------------------------- generators of lists */
/* A list that is made when its first item is wanted: until then nothing can fail. */
struct deferred {
    struct atsi_jv (*make)(struct atsi_jr *r, const struct atsi_jv *a, struct atsi_jv of);
    struct atsi_jv a[2], of;
};

static int next_deferred(struct atsi_jr *r, struct atsi_jgen *g, struct atsi_jv *out)
{
    const struct deferred *d = g->call;
    if (d != NULL) {
        struct atsi_jv list = d->make(r, d->a, d->of);
        if (list.type == ATSI_J_FAIL || !atsi_jiter_open(r, list, &g->src))
            return -1;
        g->call = NULL;
    }
    return atsi_jiter_next(r, &g->src, out);
}

static struct atsi_jv defer(struct atsi_jr *r, const struct atsi_jv *a, const struct atsi_jcall *c,
                            struct atsi_jv (*make)(struct atsi_jr *, const struct atsi_jv *,
                                                   struct atsi_jv))
{
    struct deferred *d = atsi_jr_alloc(r, sizeof *d);
    struct atsi_jgen *g = atsi_jgen_new(r, c->self, next_deferred);
    if (d == NULL || g == NULL)
        return atsi_jv_fail();
    d->make = make;
    d->a[0] = a[0];
    d->a[1] = a[1];
    d->of = c->self;
    g->call = d;
    return atsi_jv_gen(g);
}

static struct atsi_jv make_items(struct atsi_jr *r, const struct atsi_jv *a, struct atsi_jv of)
{
    struct atsi_jitems items = atsi_jitems_of(r);
    (void)a;
    if (of.type == ATSI_J_UNDEF)
        return of;
    if (of.type != ATSI_J_DICT)
        return atsi_jr_error(r, "can only get item pairs from a mapping, not from %s",
                             atsi_jv_type_name(of));
    for (size_t i = 0; i < of.u.dict->n; i++) {
        const struct atsi_jentry *e = &of.u.dict->e[i];
        if (!atsi_jitems_add(&items, atsi_jv_pair(r, e->key, e->value)))
            return atsi_jv_fail();
    }
    return atsi_jitems_list(&items);
}

FILTER(do_items)
{
    return defer(r, a, c, make_items);
}

/* A list of [from, to) of l, filled up to `n` items. */
static struct atsi_jv piece(struct atsi_jr *r, const struct atsi_jlist *l, size_t from, size_t to,
                            struct atsi_jv fill, int64_t n)
{
    struct atsi_jitems items = atsi_jitems_of(r);
    for (size_t i = from; i < to; i++)
        if (!atsi_jitems_add(&items, l->v[i]))
            return atsi_jv_fail();
    while (fill.type != ATSI_J_MISSING && fill.type != ATSI_J_NONE && (int64_t)items.n < n)
        if (!atsi_jitems_add(&items, fill))
            return atsi_jv_fail();
    return atsi_jitems_list(&items);
}

static struct atsi_jv make_batch(struct atsi_jr *r, const struct atsi_jv *a, struct atsi_jv of)
{
    struct atsi_jv all = atsi_jv_to_list(r, of);
    struct atsi_jitems out = atsi_jitems_of(r);
    int64_t n = 1;
    size_t size;
    if (all.type != ATSI_J_LIST || !atsi_jarg_int(r, a[0], "the size of batch", &n))
        return atsi_jv_fail();
    if (n < 1)
        return atsi_jr_notsup(r, "batch: a size of less than 1 is not supported");
    for (size_t from = 0; from < all.u.list->n; from += size) {
        size = all.u.list->n - from;
        if ((uint64_t)n < size)
            size = (size_t)n;
        if (!atsi_jitems_add(&out, piece(r, all.u.list, from, from + size, a[1], n)))
            return atsi_jv_fail();
    }
    return atsi_jitems_list(&out);
}

FILTER(do_batch)
{
    return defer(r, a, c, make_batch);
}

static struct atsi_jv make_slices(struct atsi_jr *r, const struct atsi_jv *a, struct atsi_jv of)
{
    struct atsi_jv all = atsi_jv_to_list(r, of), v;
    struct atsi_jitems out = atsi_jitems_of(r);
    int64_t n = 1;
    size_t each, longer, from = 0;
    if (all.type != ATSI_J_LIST || !atsi_jarg_int(r, a[0], "the number of slices", &n))
        return atsi_jv_fail();
    if (n == 0)
        return atsi_jr_error(r, "slice: the number of slices is 0");
    if (n < 0)
        return atsi_jitems_list(&out);
    each = all.u.list->n / (size_t)n;
    longer = all.u.list->n % (size_t)n; /* the first so many have one item more */
    for (size_t i = 0; i < (size_t)n; i++) {
        size_t to = from + each + (i < longer);
        v = piece(r, all.u.list, from, to, i < longer ? atsi_jv_none() : a[1],
                  (int64_t)(to - from) + 1);
        if (!atsi_jitems_add(&out, v))
            return atsi_jv_fail();
        from = to;
    }
    return atsi_jitems_list(&out);
}

FILTER(do_slice)
{
    return defer(r, a, c, make_slices);
}

/* ---------------------------------------------------------------- putting together */
FILTER(do_join)
{
    struct atsi_jv between =
        atsi_jv_is_given(a[0]) ? atsi_jv_to_text(r, a[0]) : atsi_jv_text(r, "", 0);
    struct atsi_jbuf b = atsi_jbuf_of(r);
    struct atsi_jiter it;
    struct atsi_jv v;
    bool first = true;
    int more;
    if (between.type != ATSI_J_STR || !atsi_jiter_open(r, c->self, &it))
        return atsi_jv_fail();
    while ((more = atsi_jiter_next(r, &it, &v)) > 0) {
        v = atsi_jv_to_text(r, atsi_jv_path(r, v, a[1]));
        if (v.type != ATSI_J_STR)
            return v;
        if (!first)
            atsi_jbuf_str(&b, between.u.s);
        first = false;
        atsi_jbuf_str(&b, v.u.s);
    }
    return more < 0 ? atsi_jv_fail() : atsi_jbuf_take(&b);
}

FILTER(do_sum)
{
    struct atsi_jv sum = atsi_jv_is_given(a[1]) ? a[1] : atsi_jv_int(0), v;
    struct atsi_jiter it;
    int more;
    if (sum.type == ATSI_J_STR)
        return atsi_jr_error(r, "sum() can't sum strings");
    if (!atsi_jiter_open(r, c->self, &it))
        return atsi_jv_fail();
    while ((more = atsi_jiter_next(r, &it, &v)) > 0) {
        v = atsi_jv_path(r, v, a[0]);
        if (v.type != ATSI_J_FAIL)
            sum = atsi_jv_arith(r, '+', sum, v);
        if (v.type == ATSI_J_FAIL || sum.type == ATSI_J_FAIL)
            return atsi_jv_fail();
    }
    return more < 0 ? atsi_jv_fail() : sum;
}

FILTER(do_attr)
{
    if (a[0].type != ATSI_J_STR)
        return atsi_jr_error(r, "attr needs the name of an attribute");
    return atsi_jv_only_attr(r, c->self, a[0].u.s);
}

const struct atsi_jbuiltin atsi_jfilters_seq[] = {
    {"length", do_length, "", 0, true, 0},
    {"count", do_length, "", 0, true, 0},
    {"list", do_list, "", 0, false, 0},
    {"first", do_first, "", 0, false, 0},
    {"last", do_last, "", 0, false, 0},
    {"reverse", do_reverse, "", 0, false, 0},
    {"items", do_items, "", 0, false, 0},
    {"join", do_join, "d attribute", 0, false, 0},
    {"sum", do_sum, "attribute start", 0, false, 0},
    {"batch", do_batch, "linecount fill_with", 1, false, 0},
    {"slice", do_slice, "slices fill_with", 1, false, 0},
    {"attr", do_attr, "name", 1, false, 0},
    {.name = NULL},
};
