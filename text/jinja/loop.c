/* SPDX-License-Identifier: Apache-2.0
 *
 * `loop`.  It looks ahead only when asked about the next item, so that a loop over a generator
 * sees the changes that its body makes.
 */
#include "text/jinja/loop.h"

#include "text/jinja/call.h"
#include "text/jinja/compare.h"

int atsi_jloop_next(struct atsi_jr *r, struct atsi_jloop *l, struct atsi_jv *out)
{
    int more = 1;
    if (l->has_after)
        *out = l->after;
    else
        more = atsi_jiter_next(r, &l->it, out);
    l->has_after = false;
    if (more != 1)
        return more;
    l->index0++;
    l->before = l->current;
    l->current = *out;
    return 1;
}

/* Takes the next item early; 1, 0: there is none, -1: failed. */
static int peek(struct atsi_jr *r, struct atsi_jloop *l)
{
    int more = l->has_after ? 1 : atsi_jiter_next(r, &l->it, &l->after);
    l->has_after = more == 1;
    return more;
}

bool atsi_jloop_length(struct atsi_jr *r, struct atsi_jloop *l, size_t *out)
{
    if (!l->has_length && !atsi_jv_length(r, l->iterable, &l->length)) {
        /* What is left of the generator is taken now and handed out later. */
        struct atsi_jv rest = l->it.of;
        if (r->status == ATSI_OK)
            rest = atsi_jv_to_list(r, rest);
        if (rest.type != ATSI_J_LIST || !atsi_jiter_open(r, rest, &l->it))
            return false;
        l->length = rest.u.list->n + (size_t)l->index0 + 1 + l->has_after;
    }
    l->has_length = true;
    *out = l->length;
    return true;
}

static struct atsi_jv hint(struct atsi_jr *r, const char *text)
{
    struct atsi_jv v = atsi_jv_ctext(r, text);
    return v.type == ATSI_J_FAIL ? v : atsi_jv_undef(v.u.s, ATSI_JUNDEF_HINT);
}

static struct atsi_jv near_item(struct atsi_jr *r, struct atsi_jloop *l, bool next)
{
    int more;
    if (!next)
        return l->index0 > 0 ? l->before : hint(r, "there is no previous item");
    more = peek(r, l);
    if (more < 0)
        return atsi_jv_fail();
    return more ? l->after : hint(r, "there is no next item");
}

/* Those that need the length. */
static struct atsi_jv from_length(struct atsi_jr *r, struct atsi_jloop *l, int64_t back)
{
    size_t n;
    return atsi_jloop_length(r, l, &n) ? atsi_jv_int((int64_t)n - back) : atsi_jv_fail();
}

static struct atsi_jv last(struct atsi_jr *r, struct atsi_jloop *l)
{
    int more = peek(r, l);
    return more < 0 ? atsi_jv_fail() : atsi_jv_bool(more == 0);
}

struct atsi_jv atsi_jloop_attr(struct atsi_jr *r, struct atsi_jloop *l,
                               const struct atsi_jstr *name)
{
    if (atsi_jstr_is(name, "index"))
        return atsi_jv_int(l->index0 + 1);
    if (atsi_jstr_is(name, "index0"))
        return atsi_jv_int(l->index0);
    if (atsi_jstr_is(name, "first"))
        return atsi_jv_bool(l->index0 == 0);
    if (atsi_jstr_is(name, "last"))
        return last(r, l);
    if (atsi_jstr_is(name, "length"))
        return from_length(r, l, 0);
    if (atsi_jstr_is(name, "revindex"))
        return from_length(r, l, l->index0);
    if (atsi_jstr_is(name, "revindex0"))
        return from_length(r, l, l->index0 + 1);
    if (atsi_jstr_is(name, "previtem"))
        return near_item(r, l, false);
    if (atsi_jstr_is(name, "nextitem"))
        return near_item(r, l, true);
    if (atsi_jstr_is(name, "depth"))
        return atsi_jv_int(l->depth0 + 1);
    if (atsi_jstr_is(name, "depth0"))
        return atsi_jv_int(l->depth0);
    return atsi_jv_of(ATSI_J_MISSING);
}

struct atsi_jv atsi_jloop_cycle(struct atsi_jr *r, const struct atsi_jv *a,
                                const struct atsi_jcall *c)
{
    const struct atsi_jloop *l = c->self.u.loop;
    (void)a;
    if (c->n_pos == 0)
        return atsi_jr_error(r, "no items for cycling given");
    return c->pos[l->index0 >= 0 ? (size_t)l->index0 % c->n_pos : 0];
}

struct atsi_jv atsi_jloop_changed(struct atsi_jr *r, const struct atsi_jv *a,
                                  const struct atsi_jcall *c)
{
    struct atsi_jloop *l = c->self.u.loop;
    struct atsi_jitems items = atsi_jitems_of(r);
    struct atsi_jv now;
    int same = 0;
    (void)a;
    for (size_t i = 0; i < c->n_pos; i++)
        if (!atsi_jitems_add(&items, c->pos[i]))
            return atsi_jv_fail();
    now = atsi_jitems_tuple(&items);
    if (now.type == ATSI_J_FAIL)
        return now;
    if (l->changed.type == ATSI_J_TUPLE)
        same = atsi_jv_equal(r, l->changed, now);
    if (same < 0)
        return atsi_jv_fail();
    l->changed = now;
    return atsi_jv_bool(!same);
}
