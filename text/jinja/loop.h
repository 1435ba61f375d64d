/* SPDX-License-Identifier: Apache-2.0
 * The variable `loop` of a for: where the loop is, and what lies around. */
#ifndef ATSI_TEXT_JINJA_LOOP_H
#define ATSI_TEXT_JINJA_LOOP_H

#include "text/jinja/iter.h"

struct atsi_jnode;
struct atsi_jact;
struct atsi_jcall;

struct atsi_jloop {
    struct atsi_jv iterable;
    struct atsi_jiter it;
    int64_t index0, depth0;
    size_t length;
    bool has_length, has_after;
    struct atsi_jv after;               /* taken early, for loop.last or loop.nextitem */
    struct atsi_jv before, current;     /* MISSING: none */
    struct atsi_jv changed;             /* arguments of the last loop.changed(); MISSING: none */
    const struct atsi_jnode *recursive; /* the for that loop(...) runs again, or NULL */
    struct atsi_jact *act;              /* where that for runs */
};

/* Steps to the next item: 1, 0 at the end, -1: failed. */
int atsi_jloop_next(struct atsi_jr *r, struct atsi_jloop *l, struct atsi_jv *out);
/* false: failed. */
bool atsi_jloop_length(struct atsi_jr *r, struct atsi_jloop *l, size_t *out);
/* loop.NAME; MISSING when it has no such attribute. */
struct atsi_jv atsi_jloop_attr(struct atsi_jr *r, struct atsi_jloop *l,
                               const struct atsi_jstr *name);
/* loop.cycle(...) and loop.changed(...). */
struct atsi_jv atsi_jloop_cycle(struct atsi_jr *r, const struct atsi_jv *a,
                                const struct atsi_jcall *c);
struct atsi_jv atsi_jloop_changed(struct atsi_jr *r, const struct atsi_jv *a,
                                  const struct atsi_jcall *c);

#endif
