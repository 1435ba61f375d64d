/* SPDX-License-Identifier: Apache-2.0
 *
 * Iteration.  A chain of generators that feed each other is as deep as it is long: asking one for
 * an item counts as a level.
 */
#include "text/jinja/iter.h"

#include "text/jinja/compare.h"
#include "text/jinja/loop.h"
#include "text/utf8.h"

bool atsi_jv_is_iterable(struct atsi_jv v)
{
    switch (v.type) {
    case ATSI_J_UNDEF:
    case ATSI_J_STR:
    case ATSI_J_LIST:
    case ATSI_J_TUPLE:
    case ATSI_J_DICT:
    case ATSI_J_RANGE:
    case ATSI_J_VIEW:
    case ATSI_J_GEN:
    case ATSI_J_LOOP:
        return true;
    default:
        return false;
    }
}

bool atsi_jiter_open(struct atsi_jr *r, struct atsi_jv v, struct atsi_jiter *out)
{
    out->of = v;
    out->at = 0;
    if (v.type == ATSI_J_LOOP) {
        (void)atsi_jr_notsup(r, "going through `loop` itself is not supported");
        return false;
    }
    if (atsi_jv_is_iterable(v))
        return true;
    (void)atsi_jr_error(r, "'%s' object is not iterable", atsi_jv_type_name(v));
    return false;
}

static int next_char(struct atsi_jr *r, struct atsi_jiter *it, struct atsi_jv *out)
{
    const struct atsi_jstr *s = it->of.u.s;
    size_t len = 1;
    uint32_t cp;
    if (it->at >= s->n)
        return 0;
    if (s->n != s->n_cp)
        len = atsi_utf8_decode(s->p + it->at, s->n - it->at, &cp);
    *out = atsi_jv_text(r, s->p + it->at, len); /* not safe, also of a safe string */
    it->at += len;
    return out->type == ATSI_J_FAIL ? -1 : 1;
}

static int next_of_gen(struct atsi_jr *r, struct atsi_jgen *g, struct atsi_jv *out)
{
    int more = -1;
    if (g->ended)
        return 0;
    if (g->running) {
        (void)atsi_jr_error(r, "a generator that asks itself for an item");
        return -1;
    }
    g->running = true;
    if (atsi_jr_enter(r))
        more = g->next != NULL ? g->next(r, g, out) : atsi_jiter_next(r, &g->src, out);
    r->depth--;
    g->running = false;
    g->ended = more != 1;
    return more;
}

int atsi_jiter_next(struct atsi_jr *r, struct atsi_jiter *it, struct atsi_jv *out)
{
    size_t n = 0;
    if (!atsi_jr_step(r, 1))
        return -1;
    switch (it->of.type) {
    case ATSI_J_STR:
        return next_char(r, it, out);
    case ATSI_J_GEN:
        return next_of_gen(r, it->of.u.gen, out);
    case ATSI_J_LIST:
    case ATSI_J_TUPLE:
        n = it->of.u.list->n;
        if (it->at < n)
            *out = it->of.u.list->v[it->at];
        break;
    case ATSI_J_DICT:
        n = it->of.u.dict->n;
        if (it->at < n)
            *out = it->of.u.dict->e[it->at].key;
        break;
    case ATSI_J_VIEW:
        n = it->of.u.view->dict->n;
        if (it->at < n)
            *out = atsi_jview_at(r, it->of.u.view, it->at);
        break;
    case ATSI_J_RANGE:
        n = it->of.u.range->n;
        if (it->at < n)
            *out = atsi_jrange_at(it->of.u.range, it->at);
        break;
    case ATSI_J_UNDEF:
        break;
    default: /* of a generator, which is not opened before its first item is wanted */
        (void)atsi_jiter_open(r, it->of, it);
        return -1;
    }
    if (it->at >= n)
        return 0;
    it->at++;
    return out->type == ATSI_J_FAIL ? -1 : 1;
}

bool atsi_jv_length(struct atsi_jr *r, struct atsi_jv v, size_t *out)
{
    switch (v.type) {
    case ATSI_J_UNDEF:
        *out = 0;
        return true;
    case ATSI_J_STR:
        *out = v.u.s->n_cp;
        return true;
    case ATSI_J_LIST:
    case ATSI_J_TUPLE:
        *out = v.u.list->n;
        return true;
    case ATSI_J_DICT:
        *out = v.u.dict->n;
        return true;
    case ATSI_J_VIEW:
        *out = v.u.view->dict->n;
        return true;
    case ATSI_J_RANGE:
        *out = v.u.range->n;
        return true;
    case ATSI_J_LOOP:
        return atsi_jloop_length(r, v.u.loop, out);
    default:
        return false;
    }
}

struct atsi_jv atsi_jv_to_list(struct atsi_jr *r, struct atsi_jv v)
{
    struct atsi_jitems items = atsi_jitems_of(r);
    struct atsi_jiter it;
    int more;
    if (!atsi_jiter_open(r, v, &it))
        return atsi_jv_fail();
    while ((more = atsi_jiter_next(r, &it, &v)) > 0)
        if (!atsi_jitems_add(&items, v))
            return atsi_jv_fail();
    return more < 0 ? atsi_jv_fail() : atsi_jitems_list(&items);
}

struct atsi_jgen *atsi_jgen_new(struct atsi_jr *r, struct atsi_jv v,
                                int (*next)(struct atsi_jr *, struct atsi_jgen *, struct atsi_jv *))
{
    struct atsi_jgen *g = atsi_jr_alloc(r, sizeof *g);
    if (g == NULL)
        return NULL;
    g->src.of = v;
    g->next = next;
    return g;
}
