/* SPDX-License-Identifier: Apache-2.0
 * Calls: their arguments, and the functions, filters, tests and methods that are ours. */
#ifndef ATSI_TEXT_JINJA_CALL_H
#define ATSI_TEXT_JINJA_CALL_H

#include "text/jinja/data.h"

/* Arguments of a call, evaluated. */
struct atsi_jcall {
    struct atsi_jv self; /* what a method, filter or test works on; else MISSING */
    struct atsi_jv *pos;
    size_t n_pos;
    const struct atsi_jdict *kw; /* NULL: none */
};

enum { ATSI_JMAX_PARAMS = 6 };

/* A function of ours.  With `params` the arguments are matched to the names; a[i] is MISSING when
 * not given, and `c` is the call as it was. */
struct atsi_jbuiltin {
    const char *name;
    struct atsi_jv (*fn)(struct atsi_jr *r, const struct atsi_jv *a, const struct atsi_jcall *c);
    const char *params; /* names with spaces between; "" none; NULL: fn looks at `c` itself */
    uint8_t n_required;
    bool by_position;  /* may not be given by name */
    uint8_t self_type; /* methods: the enum atsi_jtype they belong to */
};

struct atsi_jbound {
    struct atsi_jv self;
    const struct atsi_jbuiltin *method;
};

/* Runs a function of ours. */
struct atsi_jv atsi_jbuiltin_call(struct atsi_jr *r, const struct atsi_jbuiltin *f,
                                  const struct atsi_jcall *c);
/* Calls any value. */
struct atsi_jv atsi_jv_call(struct atsi_jr *r, struct atsi_jv f, const struct atsi_jcall *c);

/* The tables; NULL when there is no such name. */
const struct atsi_jbuiltin *atsi_jfilter_find(const struct atsi_jstr *name);
const struct atsi_jbuiltin *atsi_jtest_find(const struct atsi_jstr *name);
const struct atsi_jbuiltin *atsi_jmethod_find(enum atsi_jtype type, const struct atsi_jstr *name);
/* Functions that every template can see: i from 0, NULL behind the last. */
const struct atsi_jbuiltin *atsi_jglobal_at(size_t i);

/* Helpers for arguments.  Each notes a failure and returns false when the value does not fit; a
 * MISSING (or, where said, none) value leaves *out. */
bool atsi_jarg_int(struct atsi_jr *r, struct atsi_jv v, const char *what, int64_t *out);
bool atsi_jarg_str(struct atsi_jr *r, struct atsi_jv v, const char *what,
                   const struct atsi_jstr **out); /* none leaves *out, too */
/* The truth of an argument; `otherwise` when it is not given. */
bool atsi_jarg_flag(struct atsi_jv v, bool otherwise);

#endif
