/* SPDX-License-Identifier: Apache-2.0
 *
 * map, select, reject, selectattr, rejectattr: generators that run a filter or a test on each item,
 * or look up a part of it.
 */
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/interp.h"

#define FILTER(name)                                                                               \
    static struct atsi_jv name(struct atsi_jr *r, const struct atsi_jv *a,                         \
                               const struct atsi_jcall *c)

/* What a generator does with each item. */
struct work {
    struct atsi_jcall call; /* of the filter or test */
    struct atsi_jv attribute, otherwise;
    struct atsi_jv name; /* of the filter or test; MISSING: none */
    bool keep;           /* select: what passes; reject: what does not */
};

static struct atsi_jv not_there(struct atsi_jr *r, const char *kind, const struct atsi_jv *name)
{
    if (name->type != ATSI_J_STR)
        return atsi_jr_error(r, "the name of a %s must be a string", kind);
    return atsi_jr_notsup(r, "the %s '%.*s' is not supported", kind,
                          (int)(name->u.s->n < 60 ? name->u.s->n : 60), name->u.s->p);
}

/* The call without its first `n` arguments, kept for later. */
static struct work *new_work(struct atsi_jr *r, const struct atsi_jcall *c, size_t n)
{
    struct work *w = atsi_jr_alloc(r, sizeof *w);
    if (w == NULL)
        return NULL;
    w->call = *c;
    w->call.pos = n < c->n_pos ? c->pos + n : NULL;
    w->call.n_pos = n < c->n_pos ? c->n_pos - n : 0;
    w->attribute = w->otherwise = w->name = atsi_jv_of(ATSI_J_MISSING);
    return w;
}

static struct atsi_jv start(struct atsi_jr *r, const struct atsi_jcall *c, struct work *w,
                            int (*next)(struct atsi_jr *, struct atsi_jgen *, struct atsi_jv *))
{
    struct atsi_jv items = c->self;
    struct atsi_jgen *g;
    if (!atsi_jv_truth(items)) /* also none: nothing to go through */
        items = atsi_jv_undef(NULL, ATSI_JUNDEF_NAME);
    g = w != NULL ? atsi_jgen_new(r, items, next) : NULL;
    if (g != NULL)
        g->call = w;
    return atsi_jv_gen(g);
}

/* ---------------------------------------------------------------- map */
static int next_attr(struct atsi_jr *r, struct atsi_jgen *g, struct atsi_jv *out)
{
    const struct work *w = g->call;
    int more = atsi_jiter_next(r, &g->src, out);
    if (more <= 0)
        return more;
    *out = atsi_jv_path_or(r, *out, w->attribute, w->otherwise);
    return out->type == ATSI_J_FAIL ? -1 : 1;
}

static int next_filtered(struct atsi_jr *r, struct atsi_jgen *g, struct atsi_jv *out)
{
    const struct work *w = g->call;
    struct atsi_jcall call = w->call;
    const struct atsi_jbuiltin *f = NULL;
    int more = atsi_jiter_next(r, &g->src, &call.self);
    if (more <= 0)
        return more;
    if (w->name.type == ATSI_J_STR)
        f = atsi_jfilter_find(w->name.u.s);
    *out = f != NULL ? atsi_jbuiltin_call(r, f, &call) : not_there(r, "filter", &w->name);
    return out->type == ATSI_J_FAIL ? -1 : 1;
}

FILTER(do_map)
{
    const struct atsi_jentry *attribute = NULL, *otherwise = NULL;
    struct work *w = new_work(r, c, 1);
    (void)a;
    if (w == NULL)
        return atsi_jv_fail();
    if (c->n_pos > 0) {
        w->name = c->pos[0];
        return start(r, c, w, next_filtered);
    }
    if (c->kw != NULL) {
        attribute = atsi_jdict_find_str(c->kw, "attribute", 9);
        otherwise = atsi_jdict_find_str(c->kw, "default", 7);
    }
    if (attribute == NULL)
        return atsi_jr_error(r, "map needs the name of a filter, or attribute=...");
    if (c->kw->n > 1u + (otherwise != NULL))
        return atsi_jr_error(r, "map: unexpected named argument");
    w->attribute = attribute->value;
    if (otherwise != NULL)
        w->otherwise = otherwise->value;
    return start(r, c, w, next_attr);
}

/* ---------------------------------------------------------------- select and its like */
static int next_selected(struct atsi_jr *r, struct atsi_jgen *g, struct atsi_jv *out)
{
    const struct work *w = g->call;
    struct atsi_jcall call = w->call;
    int more;
    while ((more = atsi_jiter_next(r, &g->src, out)) > 0) {
        struct atsi_jv v = atsi_jv_path(r, *out, w->attribute);
        if (w->name.type != ATSI_J_MISSING && v.type != ATSI_J_FAIL) {
            const struct atsi_jbuiltin *test =
                w->name.type == ATSI_J_STR ? atsi_jtest_find(w->name.u.s) : NULL;
            call.self = v;
            v = test != NULL ? atsi_jbuiltin_call(r, test, &call) : not_there(r, "test", &w->name);
        }
        if (v.type == ATSI_J_FAIL)
            return -1;
        if (atsi_jv_truth(v) == w->keep)
            return 1;
    }
    return more;
}

static struct atsi_jv select_items(struct atsi_jr *r, const struct atsi_jcall *c, bool keep,
                                   bool by_attribute)
{
    size_t n = by_attribute;
    struct work *w = new_work(r, c, n + 1);
    if (w == NULL)
        return atsi_jv_fail();
    if (by_attribute && c->n_pos > 0)
        w->attribute = c->pos[0];
    else if (by_attribute)
        return atsi_jr_error(r, "the name of the attribute is missing");
    if (c->n_pos > n)
        w->name = c->pos[n];
    w->keep = keep;
    return start(r, c, w, next_selected);
}

FILTER(do_select)
{
    (void)a;
    return select_items(r, c, true, false);
}

FILTER(do_reject)
{
    (void)a;
    return select_items(r, c, false, false);
}

FILTER(do_selectattr)
{
    (void)a;
    return select_items(r, c, true, true);
}

FILTER(do_rejectattr)
{
    (void)a;
    return select_items(r, c, false, true);
}

const struct atsi_jbuiltin atsi_jfilters_map[] = {
    {"map", do_map, NULL, 0, false, 0},
    {"select", do_select, NULL, 0, false, 0},
    {"reject", do_reject, NULL, 0, false, 0},
    {"selectattr", do_selectattr, NULL, 0, false, 0},
    {"rejectattr", do_rejectattr, NULL, 0, false, 0},
    {.name = NULL},
};
