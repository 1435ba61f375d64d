/* SPDX-License-Identifier: Apache-2.0
 * Lists, dicts and ranges: making and searching them. */
#ifndef ATSI_TEXT_JINJA_DATA_H
#define ATSI_TEXT_JINJA_DATA_H

#include "text/jinja/str.h"

/* A list in the making; `n` items are there. */
struct atsi_jitems {
    struct atsi_jr *r;
    struct atsi_jv *v;
    size_t n, cap;
};

static inline struct atsi_jitems atsi_jitems_of(struct atsi_jr *r)
{
    struct atsi_jitems items = {.r = r};
    return items;
}

/* false: failed, also when v is a failure. */
bool atsi_jitems_add(struct atsi_jitems *items, struct atsi_jv v);
struct atsi_jv atsi_jitems_list(struct atsi_jitems *items);
struct atsi_jv atsi_jitems_tuple(struct atsi_jitems *items);
/* A tuple of two. */
struct atsi_jv atsi_jv_pair(struct atsi_jr *r, struct atsi_jv a, struct atsi_jv b);

struct atsi_jdict *atsi_jdict_new(struct atsi_jr *r, size_t n_expected);
/* Sets a key; an old one keeps its place (and its key).  false: failed (also: no key can be a list
 * or a dict). */
bool atsi_jdict_set(struct atsi_jr *r, struct atsi_jdict *d, struct atsi_jv key,
                    struct atsi_jv value);
bool atsi_jdict_set_text(struct atsi_jr *r, struct atsi_jdict *d, const char *key,
                         struct atsi_jv value);
/* The entry of a key, or NULL; *bad: the key cannot be one (a failure was noted). */
const struct atsi_jentry *atsi_jdict_find(struct atsi_jr *r, const struct atsi_jdict *d,
                                          struct atsi_jv key, bool *bad);
/* The entry of a key that is text, or NULL. */
const struct atsi_jentry *atsi_jdict_find_str(const struct atsi_jdict *d, const char *p, size_t n);
/* All of `from` into `d`. */
bool atsi_jdict_update(struct atsi_jr *r, struct atsi_jdict *d, const struct atsi_jdict *from);

/* What a view shows at position i of its dict. */
struct atsi_jv atsi_jview_at(struct atsi_jr *r, const struct atsi_jview *view, size_t i);

/* A hash that is the same for equal values; false: failed, v cannot be a key. */
bool atsi_jv_hash(struct atsi_jr *r, struct atsi_jv v, uint64_t *out);

struct atsi_jv atsi_jrange_new(struct atsi_jr *r, int64_t start, int64_t stop, int64_t step);
static inline struct atsi_jv atsi_jrange_at(const struct atsi_jrange *g, size_t i)
{
    return atsi_jv_int(g->start + (int64_t)i * g->step); /* no overflow: i < n */
}

#endif
