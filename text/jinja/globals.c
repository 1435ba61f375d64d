/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that every template can see.
 */
#include "text/jinja/compare.h"
#include "text/jinja/interp.h"
#include "text/jinja/repr.h"
#include "text/jinja/strftime.h"

static struct atsi_jv fn_range(struct atsi_jr *r, const struct atsi_jv *a,
                               const struct atsi_jcall *c)
{
    int64_t v[3] = {0, 0, 1};
    (void)c;
    for (size_t i = 0; i < 3; i++) {
        if (a[i].type == ATSI_J_UNDEF)
            return atsi_jv_undefined_error(r, a[i]);
        if (!atsi_jarg_int(r, a[i], "an argument of range()", &v[i]))
            return atsi_jv_fail();
    }
    return a[1].type == ATSI_J_MISSING ? atsi_jrange_new(r, 0, v[0], 1)
                                       : atsi_jrange_new(r, v[0], v[1], v[2]);
}

/* Adds the pairs of an iterable. */
static bool add_pairs(struct atsi_jr *r, struct atsi_jdict *d, struct atsi_jv pairs)
{
    struct atsi_jiter it;
    struct atsi_jv v;
    int more;
    if (!atsi_jiter_open(r, pairs, &it))
        return false;
    while ((more = atsi_jiter_next(r, &it, &v)) > 0) {
        v = atsi_jv_to_list(r, v);
        if (v.type == ATSI_J_LIST && v.u.list->n != 2)
            (void)atsi_jr_error(r, "dict(): an item has length %zu; 2 is required", v.u.list->n);
        if (r->status != ATSI_OK || !atsi_jdict_set(r, d, v.u.list->v[0], v.u.list->v[1]))
            return false;
    }
    return more == 0;
}

/* dict(...) of Python, for dict() and namespace(). */
static struct atsi_jdict *make_dict(struct atsi_jr *r, const struct atsi_jcall *c)
{
    struct atsi_jdict *d = atsi_jdict_new(r, 4);
    if (d == NULL)
        return NULL;
    if (c->n_pos > 1) {
        (void)atsi_jr_error(r, "dict() takes at most 1 argument, %zu given", c->n_pos);
        return NULL;
    }
    if (c->n_pos == 1 && c->pos[0].type == ATSI_J_DICT) {
        if (!atsi_jdict_update(r, d, c->pos[0].u.dict))
            return NULL;
    } else if (c->n_pos == 1 && !add_pairs(r, d, c->pos[0])) {
        return NULL;
    }
    return c->kw == NULL || atsi_jdict_update(r, d, c->kw) ? d : NULL;
}

static struct atsi_jv fn_dict(struct atsi_jr *r, const struct atsi_jv *a,
                              const struct atsi_jcall *c)
{
    (void)a;
    return atsi_jv_dict(make_dict(r, c));
}

static struct atsi_jv fn_namespace(struct atsi_jr *r, const struct atsi_jv *a,
                                   const struct atsi_jcall *c)
{
    struct atsi_jdict *d = make_dict(r, c);
    struct atsi_jv v = atsi_jv_of(d != NULL ? ATSI_J_NS : ATSI_J_FAIL);
    (void)a;
    v.u.ns = d;
    return v;
}

static struct atsi_jv fn_raise(struct atsi_jr *r, const struct atsi_jv *a,
                               const struct atsi_jcall *c)
{
    struct atsi_jv text = atsi_jv_to_text(r, a[0]);
    (void)c;
    if (text.type != ATSI_J_STR)
        return text;
    r->raised = text.u.s;
    return atsi_jr_fail(r, ATSI_EFAIL, "%.*s", (int)(text.u.s->n < 400 ? text.u.s->n : 400),
                        text.u.s->p);
}

static struct atsi_jv fn_strftime(struct atsi_jr *r, const struct atsi_jv *a,
                                  const struct atsi_jcall *c)
{
    const struct atsi_jstr *format = NULL;
    (void)c;
    if (!atsi_jarg_str(r, a[0], "the format of strftime_now()", &format))
        return atsi_jv_fail();
    if (format == NULL)
        return atsi_jr_error(r, "strftime_now() needs a format");
    if (r->now.tm_mday == 0)
        return atsi_jr_error(r, "strftime_now(): no date was given");
    return atsi_jstrftime(r, format, &r->now);
}

static struct atsi_jv fn_unsupported(struct atsi_jr *r, const struct atsi_jv *a,
                                     const struct atsi_jcall *c)
{
    (void)a;
    (void)c;
    return atsi_jr_notsup(r, "the functions cycler, joiner and lipsum are not supported");
}

const struct atsi_jbuiltin *atsi_jglobal_at(size_t i)
{
    static const struct atsi_jbuiltin table[] = {
        {"range", fn_range, "start stop step", 1, true, 0},
        {"dict", fn_dict, NULL, 0, false, 0},
        {"namespace", fn_namespace, NULL, 0, false, 0},
        {"raise_exception", fn_raise, "message", 1, false, 0},
        {"strftime_now", fn_strftime, "format", 1, false, 0},
        {"cycler", fn_unsupported, NULL, 0, false, 0},
        {"joiner", fn_unsupported, NULL, 0, false, 0},
        {"lipsum", fn_unsupported, NULL, 0, false, 0},
    };
    return i < sizeof table / sizeof table[0] ? &table[i] : NULL;
}
