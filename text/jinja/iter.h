/* SPDX-License-Identifier: Apache-2.0
 * Going through values item by item, and values that are nothing but that (generators). */
#ifndef ATSI_TEXT_JINJA_ITER_H
#define ATSI_TEXT_JINJA_ITER_H

#include "text/jinja/data.h"

struct atsi_jiter {
    struct atsi_jv of;
    size_t at; /* of the next item; bytes in a string */
};

/* iter(v); false: failed, v cannot be gone through. */
bool atsi_jiter_open(struct atsi_jr *r, struct atsi_jv v, struct atsi_jiter *out);
/* 1: *out is the next item; 0: there is none; -1: failed. */
int atsi_jiter_next(struct atsi_jr *r, struct atsi_jiter *it, struct atsi_jv *out);
/* `v is iterable`. */
bool atsi_jv_is_iterable(struct atsi_jv v);
/* len(v) without going through it: false when v has no length (no failure is noted). */
bool atsi_jv_length(struct atsi_jr *r, struct atsi_jv v, size_t *out);
/* list(v). */
struct atsi_jv atsi_jv_to_list(struct atsi_jr *r, struct atsi_jv v);

/* A generator: items come from `src` and go through `next`, one at a time and once. */
struct atsi_jgen {
    struct atsi_jiter src;
    int (*next)(struct atsi_jr *r, struct atsi_jgen *g,
                struct atsi_jv *out); /* NULL: as they are */
    bool ended, running;
    struct atsi_jv state[2]; /* of `next` */
    const void *call;        /* the filter or test at work, with its arguments */
};
/* A generator over v, which only fails when it is asked for an item of what has none.  `next` and
 * its state are set by the caller before use.  NULL: failed. */
struct atsi_jgen *atsi_jgen_new(struct atsi_jr *r, struct atsi_jv v,
                                int (*next)(struct atsi_jr *, struct atsi_jgen *,
                                            struct atsi_jv *));
static inline struct atsi_jv atsi_jv_gen(struct atsi_jgen *g)
{
    struct atsi_jv v = atsi_jv_of(g == NULL ? ATSI_J_FAIL : ATSI_J_GEN);
    v.u.gen = g;
    return v;
}

#endif
