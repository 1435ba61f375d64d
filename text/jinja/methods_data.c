/* SPDX-License-Identifier: Apache-2.0
 *
 * Methods of everything but strings.
 */
#include <math.h>

#include "text/jinja/compare.h"
#include "text/jinja/loop.h"
#include "text/jinja/methods.h"

#define METHOD(name)                                                                               \
    static struct atsi_jv name(struct atsi_jr *r, const struct atsi_jv *a,                         \
                               const struct atsi_jcall *c)

/* ---------------------------------------------------------------- dicts */
METHOD(dict_get)
{
    bool bad;
    const struct atsi_jentry *e = atsi_jdict_find(r, c->self.u.dict, a[0], &bad);
    if (bad)
        return atsi_jv_fail();
    if (e != NULL)
        return e->value;
    return a[1].type != ATSI_J_MISSING ? a[1] : atsi_jv_none();
}

static struct atsi_jv view(struct atsi_jr *r, const struct atsi_jcall *c, char kind)
{
    struct atsi_jv v = atsi_jv_of(ATSI_J_VIEW);
    struct atsi_jview *p = atsi_jr_alloc(r, sizeof *p);
    if (p == NULL)
        return atsi_jv_fail();
    p->dict = c->self.u.dict;
    p->kind = kind;
    v.u.view = p;
    return v;
}

METHOD(dict_keys)
{
    (void)a;
    return view(r, c, 'k');
}

METHOD(dict_values)
{
    (void)a;
    return view(r, c, 'v');
}

METHOD(dict_items)
{
    (void)a;
    return view(r, c, 'i');
}

/* Nothing can change the original: it may stand for its copy. */
METHOD(itself)
{
    (void)r;
    (void)a;
    return c->self;
}

/* ---------------------------------------------------------------- lists and tuples */
METHOD(list_count)
{
    const struct atsi_jlist *l = c->self.u.list;
    int64_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        int same = atsi_jr_step(r, 1) ? atsi_jv_equal(r, l->v[i], a[0]) : -1;
        if (same < 0)
            return atsi_jv_fail();
        n += same;
    }
    return atsi_jv_int(n);
}

METHOD(list_index)
{
    const struct atsi_jlist *l = c->self.u.list;
    int64_t n = (int64_t)l->n, from = 0, to = n;
    if (!atsi_jarg_int(r, a[1], "start", &from) || !atsi_jarg_int(r, a[2], "stop", &to))
        return atsi_jv_fail();
    if (from < 0)
        from = from + n < 0 ? 0 : from + n;
    if (to < 0)
        to += n;
    for (int64_t i = from; i < to && i < n; i++) {
        int same = atsi_jr_step(r, 1) ? atsi_jv_equal(r, l->v[i], a[0]) : -1;
        if (same != 0)
            return same < 0 ? atsi_jv_fail() : atsi_jv_int(i);
    }
    return atsi_jr_error(r, "the value is not in the %s", atsi_jv_type_name(c->self));
}

/* float.is_integer(); int has it from Python 3.12 on. */
METHOD(float_is_integer)
{
    (void)r;
    (void)a;
    return atsi_jv_bool(isfinite(c->self.u.f) && floor(c->self.u.f) == c->self.u.f);
}

const struct atsi_jbuiltin atsi_jmethods_data[] = {
    {"get", dict_get, "key default", 1, true, ATSI_J_DICT},
    {"keys", dict_keys, "", 0, true, ATSI_J_DICT},
    {"values", dict_values, "", 0, true, ATSI_J_DICT},
    {"items", dict_items, "", 0, true, ATSI_J_DICT},
    {"copy", itself, "", 0, true, ATSI_J_DICT},
    {"fromkeys", NULL, "", 0, true, ATSI_J_DICT},
    {"count", list_count, "value", 1, true, ATSI_J_LIST},
    {"index", list_index, "value start stop", 1, true, ATSI_J_LIST},
    {"copy", itself, "", 0, true, ATSI_J_LIST},
    {"count", list_count, "value", 1, true, ATSI_J_TUPLE},
    {"index", list_index, "value start stop", 1, true, ATSI_J_TUPLE},
    {"cycle", atsi_jloop_cycle, NULL, 0, true, ATSI_J_LOOP},
    {"changed", atsi_jloop_changed, NULL, 0, true, ATSI_J_LOOP},
    {"count", NULL, "", 0, true, ATSI_J_RANGE},
    {"index", NULL, "", 0, true, ATSI_J_RANGE},
    {"mapping", NULL, "", 0, true, ATSI_J_VIEW},
    {"isdisjoint", NULL, "", 0, true, ATSI_J_VIEW},
    {"is_integer", float_is_integer, "", 0, true, ATSI_J_FLOAT},
    {"as_integer_ratio", NULL, "", 0, true, ATSI_J_FLOAT},
    {"conjugate", NULL, "", 0, true, ATSI_J_FLOAT},
    {"fromhex", NULL, "", 0, true, ATSI_J_FLOAT},
    {"hex", NULL, "", 0, true, ATSI_J_FLOAT},
    {"imag", NULL, "", 0, true, ATSI_J_FLOAT},
    {"real", NULL, "", 0, true, ATSI_J_FLOAT},
    {"as_integer_ratio", NULL, "", 0, true, ATSI_J_INT},
    {"bit_count", NULL, "", 0, true, ATSI_J_INT},
    {"bit_length", NULL, "", 0, true, ATSI_J_INT},
    {"conjugate", NULL, "", 0, true, ATSI_J_INT},
    {"denominator", NULL, "", 0, true, ATSI_J_INT},
    {"from_bytes", NULL, "", 0, true, ATSI_J_INT},
    {"imag", NULL, "", 0, true, ATSI_J_INT},
    {"numerator", NULL, "", 0, true, ATSI_J_INT},
    {"real", NULL, "", 0, true, ATSI_J_INT},
    {"to_bytes", NULL, "", 0, true, ATSI_J_INT},
    {"close", NULL, "", 0, true, ATSI_J_GEN},
    {"send", NULL, "", 0, true, ATSI_J_GEN},
    {"throw", NULL, "", 0, true, ATSI_J_GEN},
    {.name = NULL},
};

const struct atsi_jbuiltin *atsi_jmethod_find(enum atsi_jtype type, const struct atsi_jstr *name)
{
    const struct atsi_jbuiltin *table = type == ATSI_J_STR ? atsi_jmethods_str : atsi_jmethods_data;
    if (type == ATSI_J_BOOL)
        type = ATSI_J_INT;
    for (; table->name != NULL; table++)
        if (table->self_type == type && atsi_jstr_is(name, table->name))
            return table;
    return NULL;
}
