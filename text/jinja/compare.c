/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing.  Numbers are compared as long double, which holds every int64_t and every double
 * exactly on the machines we know (x86: 64-bit mantissa; AArch64: 113).
 */
#include "text/jinja/compare.h"

#include <float.h>

#include "text/jinja/iter.h"

_Static_assert(LDBL_MANT_DIG >= 64, "a long double must hold an int64_t");

struct atsi_jv atsi_jv_undefined_error(struct atsi_jr *r, struct atsi_jv v)
{
    static const char *const owner[] = {
        [ATSI_J_NONE] = "None",      [ATSI_J_BOOL] = "bool",    [ATSI_J_INT] = "int",
        [ATSI_J_FLOAT] = "float",    [ATSI_J_STR] = "str",      [ATSI_J_LIST] = "list",
        [ATSI_J_TUPLE] = "tuple",    [ATSI_J_DICT] = "dict",    [ATSI_J_RANGE] = "range",
        [ATSI_J_VIEW] = "dict view", [ATSI_J_GEN] = "iterator", [ATSI_J_NS] = "namespace",
        [ATSI_J_LOOP] = "loop",      [ATSI_J_MACRO] = "macro",  [ATSI_J_FUNC] = "function",
        [ATSI_J_BOUND] = "method",
    };
    int n = v.u.s != NULL ? (int)(v.u.s->n < 100 ? v.u.s->n : 100) : 0;
    const char *name = v.u.s != NULL ? v.u.s->p : "";
    if (v.flag == ATSI_JUNDEF_HINT)
        return atsi_jr_error(r, "%.*s", n, name);
    if (v.flag == ATSI_JUNDEF_UNSAFE)
        return atsi_jr_error(r, "'%.*s' may not be used in templates: it could change a value", n,
                             name);
    if (v.flag >= sizeof owner / sizeof owner[0]) /* ATSI_JUNDEF_NAME */
        return atsi_jr_error(r, "'%.*s' is undefined", n, name);
    return atsi_jr_error(r, "%s object has no attribute '%.*s'", owner[v.flag], n, name);
}

bool atsi_jv_truth(struct atsi_jv v)
{
    switch (v.type) {
    case ATSI_J_BOOL:
        return v.flag;
    case ATSI_J_INT:
        return v.u.i != 0;
    case ATSI_J_FLOAT:
        return v.u.f != 0;
    case ATSI_J_STR:
        return v.u.s->n > 0;
    case ATSI_J_LIST:
    case ATSI_J_TUPLE:
        return v.u.list->n > 0;
    case ATSI_J_DICT:
        return v.u.dict->n > 0;
    case ATSI_J_VIEW:
        return v.u.view->dict->n > 0;
    case ATSI_J_RANGE:
        return v.u.range->n > 0;
    default:
        return v.type > ATSI_J_NONE;
    }
}

/* ---------------------------------------------------------------- equality */
static int equal_lists(struct atsi_jr *r, const struct atsi_jlist *a, const struct atsi_jlist *b)
{
    int same = 1;
    if (a->n != b->n)
        return 0;
    if (!atsi_jr_enter(r))
        same = -1;
    for (size_t i = 0; i < a->n && same == 1; i++)
        same = atsi_jr_step(r, 1) ? atsi_jv_equal(r, a->v[i], b->v[i]) : -1;
    r->depth--;
    return same;
}

static int equal_dicts(struct atsi_jr *r, const struct atsi_jdict *a, const struct atsi_jdict *b)
{
    int same = 1;
    if (a->n != b->n)
        return 0;
    if (!atsi_jr_enter(r))
        same = -1;
    for (size_t i = 0; i < a->n && same == 1; i++) {
        bool bad;
        const struct atsi_jentry *e = atsi_jdict_find(r, b, a->e[i].key, &bad);
        if (bad)
            same = -1;
        else
            same = e != NULL ? atsi_jv_equal(r, a->e[i].value, e->value) : 0;
    }
    r->depth--;
    return same;
}

static bool equal_ranges(const struct atsi_jrange *a, const struct atsi_jrange *b)
{
    return a->n == b->n &&
           (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

int atsi_jv_equal(struct atsi_jr *r, struct atsi_jv a, struct atsi_jv b)
{
    if (atsi_jv_is_number(a) && atsi_jv_is_number(b)) {
        if (a.type == ATSI_J_FLOAT || b.type == ATSI_J_FLOAT) {
            long double x = a.type == ATSI_J_FLOAT ? a.u.f : (long double)atsi_jv_as_int(a);
            long double y = b.type == ATSI_J_FLOAT ? b.u.f : (long double)atsi_jv_as_int(b);
            return x == y;
        }
        return atsi_jv_as_int(a) == atsi_jv_as_int(b);
    }
    if (a.type != b.type)
        return 0;
    switch (a.type) {
    case ATSI_J_UNDEF:
    case ATSI_J_NONE:
        return 1;
    case ATSI_J_STR:
        return atsi_jr_work(r, a.u.s->n) ? atsi_jstr_same(a.u.s, b.u.s) : -1;
    case ATSI_J_LIST:
    case ATSI_J_TUPLE:
        return equal_lists(r, a.u.list, b.u.list);
    case ATSI_J_DICT:
        return equal_dicts(r, a.u.dict, b.u.dict);
    case ATSI_J_RANGE:
        return equal_ranges(a.u.range, b.u.range);
    case ATSI_J_VIEW:
        (void)atsi_jr_notsup(r, "comparing the %s of dicts is not supported", atsi_jv_type_name(a));
        return -1;
    case ATSI_J_BOUND:
        (void)atsi_jr_notsup(r, "comparing methods is not supported");
        return -1;
    default:
        return a.u.list == b.u.list; /* the same object */
    }
}

/* ---------------------------------------------------------------- order */
static int no_order(struct atsi_jr *r, struct atsi_jv a, struct atsi_jv b)
{
    if (a.type == ATSI_J_UNDEF || b.type == ATSI_J_UNDEF)
        (void)atsi_jv_undefined_error(r, a.type == ATSI_J_UNDEF ? a : b);
    else if (a.type == ATSI_J_VIEW && b.type == ATSI_J_VIEW)
        (void)atsi_jr_notsup(r, "comparing views of dicts is not supported");
    else
        (void)atsi_jr_error(r, "'<' not supported between instances of '%s' and '%s'",
                            atsi_jv_type_name(a), atsi_jv_type_name(b));
    return -1;
}

static int compare_text(const struct atsi_jstr *a, const struct atsi_jstr *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int c = n > 0 ? memcmp(a->p, b->p, n) : 0; /* the order of UTF-8 is that of code points */
    if (c != 0)
        return c;
    return (a->n > b->n) - (a->n < b->n);
}

/* The first items that differ decide. */
static int order_lists(struct atsi_jr *r, const struct atsi_jlist *a, const struct atsi_jlist *b,
                       bool or_equal)
{
    size_t i = 0, n = a->n < b->n ? a->n : b->n;
    int same = 1, result;
    if (!atsi_jr_enter(r))
        same = -1;
    for (; i < n && same == 1; i += same == 1)
        same = atsi_jr_step(r, 1) ? atsi_jv_equal(r, a->v[i], b->v[i]) : -1;
    if (same < 0)
        result = -1;
    else if (i == n)
        result = or_equal ? a->n <= b->n : a->n < b->n;
    else
        result =
            or_equal ? atsi_jv_less_equal(r, a->v[i], b->v[i]) : atsi_jv_less(r, a->v[i], b->v[i]);
    r->depth--;
    return result;
}

static int order(struct atsi_jr *r, struct atsi_jv a, struct atsi_jv b, bool or_equal)
{
    if (atsi_jv_is_number(a) && atsi_jv_is_number(b)) {
        long double x = a.type == ATSI_J_FLOAT ? a.u.f : (long double)atsi_jv_as_int(a);
        long double y = b.type == ATSI_J_FLOAT ? b.u.f : (long double)atsi_jv_as_int(b);
        return or_equal ? x <= y : x < y;
    }
    if (a.type == b.type && a.type == ATSI_J_STR) {
        int c = compare_text(a.u.s, b.u.s);
        return atsi_jr_work(r, a.u.s->n) ? (or_equal ? c <= 0 : c < 0) : -1;
    }
    if (a.type == b.type && (a.type == ATSI_J_LIST || a.type == ATSI_J_TUPLE))
        return order_lists(r, a.u.list, b.u.list, or_equal);
    return no_order(r, a, b);
}

int atsi_jv_less(struct atsi_jr *r, struct atsi_jv a, struct atsi_jv b)
{
    return order(r, a, b, false);
}

int atsi_jv_less_equal(struct atsi_jr *r, struct atsi_jv a, struct atsi_jv b)
{
    return order(r, a, b, true);
}

/* ---------------------------------------------------------------- membership */
static int contains_text(struct atsi_jr *r, const struct atsi_jstr *s, struct atsi_jv item)
{
    if (item.type != ATSI_J_STR) {
        (void)atsi_jr_error(r, "'in <string>' requires string as left operand, not %s",
                            atsi_jv_type_name(item));
        return -1;
    }
    if (!atsi_jr_work(r, s->n))
        return -1;
    return item.u.s->n == 0 || memmem(s->p, s->n, item.u.s->p, item.u.s->n) != NULL;
}

static int contains_key(struct atsi_jr *r, const struct atsi_jdict *d, struct atsi_jv key)
{
    bool bad;
    const struct atsi_jentry *e = atsi_jdict_find(r, d, key, &bad);
    return bad ? -1 : e != NULL;
}

int atsi_jv_contains(struct atsi_jr *r, struct atsi_jv whole, struct atsi_jv item)
{
    struct atsi_jiter it;
    struct atsi_jv v;
    int more, same = 0;
    if (whole.type == ATSI_J_STR)
        return contains_text(r, whole.u.s, item);
    if (whole.type == ATSI_J_DICT)
        return contains_key(r, whole.u.dict, item);
    if (whole.type == ATSI_J_VIEW && whole.u.view->kind == 'k')
        return contains_key(r, whole.u.view->dict, item);
    if (!atsi_jiter_open(r, whole, &it))
        return -1;
    while (same == 0 && (more = atsi_jiter_next(r, &it, &v)) != 0)
        same = more < 0 ? -1 : atsi_jv_equal(r, v, item);
    return same;
}

/* ---------------------------------------------------------------- sorting */
/* Merges the sorted [0, mid) and [mid, n); the right one goes first only when it must. */
static bool merge(struct atsi_jr *r, struct atsi_jv (*a)[2], struct atsi_jv (*tmp)[2], size_t mid,
                  size_t n, bool reverse)
{
    size_t i = 0, j = mid, at = 0;
    memcpy(tmp, a, n * sizeof *a);
    while (i < mid && j < n) {
        int right =
            reverse ? atsi_jv_less(r, tmp[i][0], tmp[j][0]) : atsi_jv_less(r, tmp[j][0], tmp[i][0]);
        if (right < 0 || !atsi_jr_step(r, 1))
            return false;
        memcpy(a[at++], tmp[right ? j++ : i++], sizeof *a);
    }
    memcpy(a + at, tmp + i, (mid - i) * sizeof *a);
    at += mid - i;
    memcpy(a + at, tmp + j, (n - j) * sizeof *a);
    return true;
}

bool atsi_jv_sort(struct atsi_jr *r, struct atsi_jv *v, struct atsi_jv *key, size_t n, bool reverse)
{
    struct atsi_jv(*a)[2], (*tmp)[2];
    if (n < 2)
        return true;
    a = atsi_jr_array(r, n, sizeof *a);
    tmp = atsi_jr_array(r, n, sizeof *tmp);
    if (a == NULL || tmp == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        a[i][0] = key[i];
        a[i][1] = v[i];
    }
    for (size_t width = 1; width < n; width *= 2)
        for (size_t at = 0; at + width < n; at += 2 * width) {
            size_t len = n - at < 2 * width ? n - at : 2 * width;
            if (!merge(r, a + at, tmp, width, len, reverse))
                return false;
        }
    for (size_t i = 0; i < n; i++)
        v[i] = a[i][1];
    return true;
}
