/* SPDX-License-Identifier: Apache-2.0
 *
 * Containers.  Dicts hash with FNV-1a; an attacker who finds collisions spends template steps.
 */
#include "text/jinja/data.h"

#include <math.h>

#include "text/jinja/compare.h"

bool atsi_jitems_add(struct atsi_jitems *items, struct atsi_jv v)
{
    if (v.type == ATSI_J_FAIL)
        return false;
    if (items->n == items->cap) {
        size_t cap = items->cap == 0 ? 4 : 2 * items->cap;
        struct atsi_jv *p = atsi_jr_array(items->r, cap, sizeof *p);
        if (p == NULL)
            return false;
        if (items->n > 0)
            memcpy(p, items->v, items->n * sizeof *p);
        items->v = p;
        items->cap = cap;
    }
    items->v[items->n++] = v;
    return atsi_jr_step(items->r, 1);
}

struct atsi_jv atsi_jitems_list(struct atsi_jitems *items)
{
    struct atsi_jlist *l;
    if (items->r->status != ATSI_OK)
        return atsi_jv_fail();
    l = atsi_jr_alloc(items->r, sizeof *l);
    if (l != NULL) {
        l->n = items->n;
        l->v = items->v;
    }
    return atsi_jv_list(l);
}

struct atsi_jv atsi_jitems_tuple(struct atsi_jitems *items)
{
    struct atsi_jv v = atsi_jitems_list(items);
    if (v.type == ATSI_J_LIST)
        v.type = ATSI_J_TUPLE;
    return v;
}

struct atsi_jv atsi_jv_pair(struct atsi_jr *r, struct atsi_jv a, struct atsi_jv b)
{
    struct atsi_jitems items = atsi_jitems_of(r);
    if (!atsi_jitems_add(&items, a) || !atsi_jitems_add(&items, b))
        return atsi_jv_fail();
    return atsi_jitems_tuple(&items);
}

/* ---------------------------------------------------------------- hashes */
static uint64_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
    const unsigned char *c = p;
    uint64_t h = 0xCBF29CE484222325u ^ seed;
    for (size_t i = 0; i < n; i++)
        h = (h ^ c[i]) * 0x100000001B3u;
    return h ^ (h >> 29);
}

static uint64_t hash_number(struct atsi_jv v)
{
    double f = atsi_jv_as_double(v);
    if (f == 0)
        f = 0; /* -0.0 == 0 */
    return hash_bytes(&f, sizeof f, 1);
}

bool atsi_jv_hash(struct atsi_jr *r, struct atsi_jv v, uint64_t *out)
{
    bool ok = true;
    switch (v.type) {
    case ATSI_J_STR:
        *out = hash_bytes(v.u.s->p, v.u.s->n, 0);
        return atsi_jr_work(r, v.u.s->n);
    case ATSI_J_BOOL:
    case ATSI_J_INT:
    case ATSI_J_FLOAT:
        *out = hash_number(v); /* 1, 1.0 and True are one key */
        return true;
    case ATSI_J_NONE:
    case ATSI_J_UNDEF:
        *out = v.type;
        return true;
    case ATSI_J_TUPLE:
        if (!atsi_jr_enter(r))
            ok = false;
        *out = 7;
        for (size_t i = 0; ok && i < v.u.list->n; i++) {
            uint64_t h = 0;
            ok = atsi_jr_step(r, 1) && atsi_jv_hash(r, v.u.list->v[i], &h);
            *out = hash_bytes(&h, sizeof h, *out);
        }
        r->depth--;
        return ok;
    case ATSI_J_LIST:
    case ATSI_J_DICT:
        (void)atsi_jr_error(r, "unhashable type: '%s'", atsi_jv_type_name(v));
        return false;
    default:
        (void)atsi_jr_notsup(r, "a %s as the key of a dict is not supported", atsi_jv_type_name(v));
        return false;
    }
}

/* ---------------------------------------------------------------- dicts */
enum { SMALL = 8 }; /* up to this many entries a search is as fast as an index */

struct atsi_jdict *atsi_jdict_new(struct atsi_jr *r, size_t n_expected)
{
    struct atsi_jdict *d = atsi_jr_alloc(r, sizeof *d);
    if (d == NULL || n_expected == 0)
        return d;
    d->e = atsi_jr_array(r, n_expected, sizeof *d->e);
    d->cap = n_expected;
    return d->e != NULL ? d : NULL;
}

static void put_index(struct atsi_jdict *d, size_t i)
{
    size_t at = d->e[i].hash & (d->n_index - 1);
    while (d->index[at] != 0)
        at = (at + 1) & (d->n_index - 1);
    d->index[at] = (uint32_t)i + 1;
}

/* Room for one more entry, in the index too (kept at most half full). */
static bool grow(struct atsi_jr *r, struct atsi_jdict *d)
{
    if (d->n == d->cap) {
        size_t cap = d->cap < 4 ? 4 : 2 * d->cap;
        struct atsi_jentry *e = atsi_jr_array(r, cap, sizeof *e);
        if (e == NULL)
            return false;
        if (d->n > 0)
            memcpy(e, d->e, d->n * sizeof *e);
        d->e = e;
        d->cap = cap;
    }
    if (d->n < SMALL || 2 * (d->n + 1) <= d->n_index)
        return true;
    d->n_index = 64;
    while (d->n_index < 4 * (d->n + 1))
        d->n_index *= 2;
    d->index = atsi_jr_array(r, d->n_index, sizeof *d->index);
    if (d->index == NULL)
        return false;
    for (size_t i = 0; i < d->n; i++)
        put_index(d, i);
    return true;
}

static int same_key(struct atsi_jr *r, const struct atsi_jentry *e, struct atsi_jv key,
                    uint64_t hash)
{
    if (e->hash != hash)
        return 0;
    if (key.type == ATSI_J_STR && e->key.type == ATSI_J_STR)
        return atsi_jstr_same(key.u.s, e->key.u.s);
    return atsi_jr_step(r, 1) ? atsi_jv_equal(r, e->key, key) : -1;
}

/* Position of the key, d->n when it is not there, SIZE_MAX when comparing failed. */
static size_t locate(struct atsi_jr *r, const struct atsi_jdict *d, struct atsi_jv key,
                     uint64_t hash)
{
    if (d->index == NULL) {
        for (size_t i = 0; i < d->n; i++) {
            int same = same_key(r, &d->e[i], key, hash);
            if (same != 0)
                return same > 0 ? i : SIZE_MAX;
        }
        return d->n;
    }
    for (size_t at = hash & (d->n_index - 1); d->index[at] != 0; at = (at + 1) & (d->n_index - 1)) {
        int same = same_key(r, &d->e[d->index[at] - 1], key, hash);
        if (same != 0)
            return same > 0 ? d->index[at] - 1 : SIZE_MAX;
        if (!atsi_jr_step(r, 1))
            return SIZE_MAX;
    }
    return d->n;
}

bool atsi_jdict_set(struct atsi_jr *r, struct atsi_jdict *d, struct atsi_jv key,
                    struct atsi_jv value)
{
    uint64_t hash;
    size_t i;
    if (key.type == ATSI_J_FAIL || value.type == ATSI_J_FAIL || !atsi_jv_hash(r, key, &hash))
        return false;
    i = locate(r, d, key, hash);
    if (i == SIZE_MAX)
        return false;
    if (i < d->n) {
        d->e[i].value = value;
        return true;
    }
    if (!grow(r, d))
        return false;
    d->e[i].key = key;
    d->e[i].value = value;
    d->e[i].hash = hash;
    if (d->index != NULL)
        put_index(d, i);
    d->n++;
    return atsi_jr_step(r, 1);
}

bool atsi_jdict_set_text(struct atsi_jr *r, struct atsi_jdict *d, const char *key,
                         struct atsi_jv value)
{
    return atsi_jdict_set(r, d, atsi_jv_ctext(r, key), value);
}

const struct atsi_jentry *atsi_jdict_find(struct atsi_jr *r, const struct atsi_jdict *d,
                                          struct atsi_jv key, bool *bad)
{
    uint64_t hash;
    size_t i = SIZE_MAX;
    if (atsi_jv_hash(r, key, &hash))
        i = locate(r, d, key, hash);
    *bad = i == SIZE_MAX;
    return i < d->n ? &d->e[i] : NULL;
}

const struct atsi_jentry *atsi_jdict_find_str(const struct atsi_jdict *d, const char *p, size_t n)
{
    uint64_t hash = hash_bytes(p, n, 0);
    size_t at = d->index != NULL ? hash & (d->n_index - 1) : 0;
    for (;;) {
        size_t i = at;
        const struct atsi_jentry *e;
        if (d->index != NULL) {
            if (d->index[at] == 0)
                return NULL;
            i = d->index[at] - 1;
            at = (at + 1) & (d->n_index - 1);
        } else if (at++ >= d->n) {
            return NULL;
        }
        e = &d->e[i];
        if (e->hash == hash && e->key.type == ATSI_J_STR && e->key.u.s->n == n &&
            memcmp(e->key.u.s->p, p, n) == 0)
            return e;
    }
}

bool atsi_jdict_update(struct atsi_jr *r, struct atsi_jdict *d, const struct atsi_jdict *from)
{
    for (size_t i = 0; i < from->n; i++)
        if (!atsi_jdict_set(r, d, from->e[i].key, from->e[i].value))
            return false;
    return true;
}

struct atsi_jv atsi_jview_at(struct atsi_jr *r, const struct atsi_jview *view, size_t i)
{
    const struct atsi_jentry *e = &view->dict->e[i];
    if (view->kind == 'i')
        return atsi_jv_pair(r, e->key, e->value);
    return view->kind == 'k' ? e->key : e->value;
}

/* ---------------------------------------------------------------- ranges */
struct atsi_jv atsi_jrange_new(struct atsi_jr *r, int64_t start, int64_t stop, int64_t step)
{
    struct atsi_jrange *g;
    struct atsi_jv v = atsi_jv_of(ATSI_J_RANGE);
    uint64_t span = 0, stride = (uint64_t)step, n;
    if (step == 0)
        return atsi_jr_error(r, "range() arg 3 must not be zero");
    if (step < 0) {
        stride = 0 - stride;
        span = start > stop ? (uint64_t)start - (uint64_t)stop : 0;
    } else if (stop > start) {
        span = (uint64_t)stop - (uint64_t)start;
    }
    n = span / stride + (span % stride != 0);
    if (n > ATSI_JMAX_RANGE)
        return atsi_jr_error(r, "range() of more than %d items", ATSI_JMAX_RANGE);
    g = atsi_jr_alloc(r, sizeof *g);
    if (g == NULL)
        return atsi_jv_fail();
    g->start = start;
    g->stop = stop;
    g->step = step;
    g->n = (size_t)n;
    v.u.range = g;
    return v;
}
