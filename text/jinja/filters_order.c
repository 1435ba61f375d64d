/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters that order: sort, dictsort, min, max, unique, groupby.  Unless asked otherwise, letter
 * case does not count.
 */
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/interp.h"
#include "text/jinja/ucs.h"

#define FILTER(name)                                                                               \
    static struct atsi_jv name(struct atsi_jr *r, const struct atsi_jv *a,                         \
                               const struct atsi_jcall *c)

static struct atsi_jv fold(struct atsi_jr *r, struct atsi_jv v, bool case_sensitive)
{
    if (v.type != ATSI_J_STR || case_sensitive)
        return v;
    return atsi_ucs_recase(r, v.u.s, ATSI_UCS_LOWER);
}

/* The list of keys of one item: one for each path of "a,b.c". */
static struct atsi_jv multi_key(struct atsi_jr *r, struct atsi_jv item, struct atsi_jv attribute,
                                bool case_sensitive)
{
    struct atsi_jitems keys = atsi_jitems_of(r);
    size_t from = 0;
    if (attribute.type != ATSI_J_STR) {
        if (!atsi_jitems_add(&keys, fold(r, atsi_jv_path(r, item, attribute), case_sensitive)))
            return atsi_jv_fail();
        return atsi_jitems_list(&keys);
    }
    for (size_t at = 0; at <= attribute.u.s->n; at++) {
        struct atsi_jv path;
        if (at < attribute.u.s->n && attribute.u.s->p[at] != ',')
            continue;
        path = atsi_jv_cut(r, attribute, from, at);
        if (path.type == ATSI_J_FAIL ||
            !atsi_jitems_add(&keys, fold(r, atsi_jv_path(r, item, path), case_sensitive)))
            return atsi_jv_fail();
        from = at + 1;
    }
    return atsi_jitems_list(&keys);
}

/* A copy of the items as an array of its own; NULL: failed. */
static struct atsi_jv *copy_items(struct atsi_jr *r, struct atsi_jv of, size_t *n)
{
    struct atsi_jv list = atsi_jv_to_list(r, of), *v;
    if (list.type != ATSI_J_LIST)
        return NULL;
    *n = list.u.list->n;
    v = atsi_jr_array(r, *n, sizeof *v);
    if (v != NULL && *n > 0)
        memcpy(v, list.u.list->v, *n * sizeof *v);
    return v;
}

static struct atsi_jv as_list(struct atsi_jr *r, struct atsi_jv *v, size_t n)
{
    struct atsi_jlist *l = atsi_jr_alloc(r, sizeof *l);
    if (l != NULL) {
        l->v = v;
        l->n = n;
    }
    return atsi_jv_list(l);
}

FILTER(do_sort)
{
    size_t n = 0;
    struct atsi_jv *v = copy_items(r, c->self, &n), *key = atsi_jr_array(r, n, sizeof *key);
    if (v == NULL || key == NULL)
        return atsi_jv_fail();
    for (size_t i = 0; i < n; i++) {
        key[i] = multi_key(r, v[i], a[2], atsi_jarg_flag(a[1], false));
        if (key[i].type == ATSI_J_FAIL)
            return key[i];
    }
    return atsi_jv_sort(r, v, key, n, atsi_jarg_flag(a[0], false)) ? as_list(r, v, n)
                                                                   : atsi_jv_fail();
}

FILTER(do_dictsort)
{
    const struct atsi_jdict *d = c->self.u.dict;
    const struct atsi_jstr *by = NULL;
    struct atsi_jv *v, *key;
    bool by_value;
    if (c->self.type == ATSI_J_UNDEF)
        return atsi_jv_undefined_error(r, c->self);
    if (c->self.type != ATSI_J_DICT)
        return atsi_jr_error(r, "dictsort needs a mapping, not %s", atsi_jv_type_name(c->self));
    if (!atsi_jarg_str(r, a[1], "by of dictsort", &by))
        return atsi_jv_fail();
    by_value = by != NULL && atsi_jstr_is(by, "value");
    if (by != NULL && !by_value && !atsi_jstr_is(by, "key"))
        return atsi_jr_error(r, "dictsort can only sort by \"key\" or \"value\"");
    v = atsi_jr_array(r, d->n, sizeof *v);
    key = atsi_jr_array(r, d->n, sizeof *key);
    if (v == NULL || key == NULL)
        return atsi_jv_fail();
    for (size_t i = 0; i < d->n; i++) {
        v[i] = atsi_jv_pair(r, d->e[i].key, d->e[i].value);
        key[i] = fold(r, by_value ? d->e[i].value : d->e[i].key, atsi_jarg_flag(a[0], false));
        if (v[i].type == ATSI_J_FAIL || key[i].type == ATSI_J_FAIL)
            return atsi_jv_fail();
    }
    return atsi_jv_sort(r, v, key, d->n, atsi_jarg_flag(a[2], false)) ? as_list(r, v, d->n)
                                                                      : atsi_jv_fail();
}

/* The first item that none is before (behind). */
static struct atsi_jv extreme(struct atsi_jr *r, const struct atsi_jv *a, struct atsi_jv of,
                              bool largest)
{
    static const struct atsi_jstr hint = {"no aggregated item, the sequence was empty", 42, 42};
    struct atsi_jv best = atsi_jv_undef(&hint, ATSI_JUNDEF_HINT), best_key = best, v, key;
    struct atsi_jiter it;
    bool any = false;
    int more;
    if (!atsi_jiter_open(r, of, &it))
        return atsi_jv_fail();
    while ((more = atsi_jiter_next(r, &it, &v)) > 0) {
        int better = 1;
        key = fold(r, atsi_jv_path(r, v, a[1]), atsi_jarg_flag(a[0], false));
        if (key.type == ATSI_J_FAIL)
            return key;
        if (any)
            better = largest ? atsi_jv_less(r, best_key, key) : atsi_jv_less(r, key, best_key);
        if (better < 0)
            return atsi_jv_fail();
        if (better) {
            best = v;
            best_key = key;
        }
        any = true;
    }
    return more < 0 ? atsi_jv_fail() : best;
}

FILTER(do_min)
{
    return extreme(r, a, c->self, false);
}

FILTER(do_max)
{
    return extreme(r, a, c->self, true);
}

/* ---------------------------------------------------------------- unique, groupby */
/* state[0]: the keys seen, as a namespace; state[1]: the attribute; call: not NULL when letter case
 * counts. */
static int next_unique(struct atsi_jr *r, struct atsi_jgen *g, struct atsi_jv *out)
{
    struct atsi_jdict *seen = g->state[0].u.ns;
    int more;
    while ((more = atsi_jiter_next(r, &g->src, out)) > 0) {
        struct atsi_jv key = fold(r, atsi_jv_path(r, *out, g->state[1]), g->call != NULL);
        size_t n = seen->n;
        if (!atsi_jdict_set(r, seen, key, atsi_jv_none()))
            return -1;
        if (seen->n > n)
            return 1;
    }
    return more;
}

FILTER(do_unique)
{
    struct atsi_jgen *g = atsi_jgen_new(r, c->self, next_unique);
    struct atsi_jdict *seen = atsi_jdict_new(r, 0);
    if (g == NULL || seen == NULL)
        return atsi_jv_fail();
    g->state[0] = atsi_jv_of(ATSI_J_NS);
    g->state[0].u.ns = seen;
    g->state[1] = a[1];
    g->call = atsi_jarg_flag(a[0], false) ? g : NULL;
    return atsi_jv_gen(g);
}

static struct atsi_jv group_key(struct atsi_jr *r, struct atsi_jv item, const struct atsi_jv *a,
                                bool folded)
{
    struct atsi_jv key = atsi_jv_path_or(r, item, a[0], a[1]);
    return folded ? fold(r, key, atsi_jarg_flag(a[2], false)) : key;
}

static bool add_group(struct atsi_jr *r, struct atsi_jitems *out, const struct atsi_jv *a,
                      struct atsi_jv *v, size_t n)
{
    struct atsi_jv group = atsi_jv_pair(r, group_key(r, v[0], a, false), as_list(r, v, n));
    if (group.type == ATSI_J_TUPLE)
        group.flag = 1;
    return atsi_jitems_add(out, group);
}

FILTER(do_groupby)
{
    size_t n = 0, from = 0;
    struct atsi_jv *v = copy_items(r, c->self, &n), *key = atsi_jr_array(r, n, sizeof *key);
    struct atsi_jitems out = atsi_jitems_of(r);
    if (v == NULL || key == NULL)
        return atsi_jv_fail();
    for (size_t i = 0; i < n; i++)
        if ((key[i] = group_key(r, v[i], a, true)).type == ATSI_J_FAIL)
            return key[i];
    if (!atsi_jv_sort(r, v, key, n, false))
        return atsi_jv_fail();
    for (size_t i = 0; i < n; i++) /* the keys were not moved along */
        if ((key[i] = group_key(r, v[i], a, true)).type == ATSI_J_FAIL)
            return key[i];
    for (size_t i = 1; i <= n; i++) {
        int same = i < n ? atsi_jv_equal(r, key[from], key[i]) : 0;
        if (same < 0 || (same == 0 && !add_group(r, &out, a, v + from, i - from)))
            return atsi_jv_fail();
        from = same == 0 ? i : from;
    }
    return atsi_jitems_list(&out);
}

const struct atsi_jbuiltin atsi_jfilters_order[] = {
    {"sort", do_sort, "reverse case_sensitive attribute", 0, false, 0},
    {"dictsort", do_dictsort, "case_sensitive by reverse", 0, false, 0},
    {"min", do_min, "case_sensitive attribute", 0, false, 0},
    {"max", do_max, "case_sensitive attribute", 0, false, 0},
    {"unique", do_unique, "case_sensitive attribute", 0, false, 0},
    {"groupby", do_groupby, "attribute default case_sensitive", 1, false, 0},
    {.name = NULL},
};
