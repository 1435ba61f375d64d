/* SPDX-License-Identifier: Apache-2.0
 * Running the tree. */
#ifndef ATSI_TEXT_JINJA_INTERP_H
#define ATSI_TEXT_JINJA_INTERP_H

#include "text/jinja/ast.h"
#include "text/jinja/call.h"
#include "text/jinja/loop.h"

/* Variables of a running function. */
struct atsi_jact {
    struct atsi_jact *parent; /* of the function around it */
    struct atsi_jv *v;
};

/* A macro as a value: its definition, and where it was defined. */
struct atsi_jmacro {
    const struct atsi_jmacro_def *def;
    struct atsi_jact *act;
};

enum atsi_jflow { ATSI_JFLOW_FAIL, ATSI_JFLOW_ON, ATSI_JFLOW_BREAK, ATSI_JFLOW_CONTINUE };

/* New variables, none of them set; NULL: failed. */
struct atsi_jact *atsi_jact_new(struct atsi_jr *r, struct atsi_jact *parent, uint32_t n_slots);
struct atsi_jv *atsi_jact_at(struct atsi_jr *r, struct atsi_jvar var);
/* What entering and leaving a scope does. */
bool atsi_jscope_enter(struct atsi_jr *r, const struct atsi_jscope *s);
void atsi_jscope_leave(struct atsi_jr *r, const struct atsi_jscope *s);

struct atsi_jv atsi_jeval(struct atsi_jr *r, const struct atsi_jnode *n);
/* The call `n`, with `caller` as one more argument unless MISSING. */
struct atsi_jv atsi_jeval_call(struct atsi_jr *r, const struct atsi_jnode *n,
                               struct atsi_jv caller);
/* Assigns to a name, to ns.attr, or to a tuple of them. */
bool atsi_jassign(struct atsi_jr *r, const struct atsi_jnode *target, struct atsi_jv v);

enum atsi_jflow atsi_jexec_body(struct atsi_jr *r, const struct atsi_jnodes *body);
enum atsi_jflow atsi_jexec_for(struct atsi_jr *r, const struct atsi_jnode *n);
/* loop(items): the recursive loop again, one level deeper; its text. */
struct atsi_jv atsi_jloop_again(struct atsi_jr *r, const struct atsi_jloop *l,
                                const struct atsi_jcall *c);

/* A macro value of this definition, here. */
struct atsi_jv atsi_jmacro_new(struct atsi_jr *r, const struct atsi_jmacro_def *def);
struct atsi_jv atsi_jmacro_call(struct atsi_jr *r, const struct atsi_jmacro *m,
                                const struct atsi_jcall *c);
const struct atsi_jstr *atsi_jmacro_name(const struct atsi_jmacro *m);

/* The output behind `start` as a string, taken away from it. */
struct atsi_jv atsi_jr_take(struct atsi_jr *r, size_t start);

/* a.name and a[key], as the sandbox has them; a slice. */
struct atsi_jv atsi_jv_attr(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jstr *name);
struct atsi_jv atsi_jv_item(struct atsi_jr *r, struct atsi_jv v, struct atsi_jv key);
struct atsi_jv atsi_jv_slice(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jv part[3]);
/* What `map(attribute=...)` and its like look up: names and numbers with points between. */
struct atsi_jv atsi_jv_path(struct atsi_jr *r, struct atsi_jv v, struct atsi_jv path);
/* The same; what is undefined on the way becomes `otherwise`, unless that is none or not given. */
struct atsi_jv atsi_jv_path_or(struct atsi_jr *r, struct atsi_jv v, struct atsi_jv path,
                               struct atsi_jv otherwise);
/* v.name without looking at items. */
struct atsi_jv atsi_jv_only_attr(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jstr *name);

#endif
