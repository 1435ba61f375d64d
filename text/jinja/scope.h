/* SPDX-License-Identifier: Apache-2.0
 * Variables of a template: which one each name means, and what scopes do with them. */
#ifndef ATSI_TEXT_JINJA_SCOPE_H
#define ATSI_TEXT_JINJA_SCOPE_H

#include "text/jinja/ast.h"
#include "text/jinja/render.h"

/* Fills `var`, the scopes and the slots in the whole tree.  *root_out: the scope of the template
 * itself, *n_slots_out: its variables.  false: a failure was noted (also: a filter or test that is
 * not supported, outside of every condition). */
bool atsi_jscope_resolve(struct atsi_jr *r, const struct atsi_jnodes *body,
                         struct atsi_jscope *root_out, uint32_t *n_slots_out);

/* ---------------------------------------------------------------- between the files of scopes */
struct atsi_jsym {
    const struct atsi_jstr *name;
    uint32_t slot;
    char kind; /* p: parameter; a, r, u: as atsi_jload */
    struct atsi_jvar from;
    bool stored;
};

/* Slots of a function, one for each name at each level. */
struct atsi_jfn {
    uint32_t depth; /* functions around it */
    struct atsi_jslot {
        uint32_t level;
        const struct atsi_jstr *name;
    } * slot;
    size_t n, cap;
};

/* The names of one scope. */
struct atsi_jsyms {
    struct atsi_jsyms *parent;
    struct atsi_jfn *fn;
    uint32_t level;
    struct atsi_jsym *v;
    size_t n, cap;
};

/* The variable that `name` is here, seen from function `fn`; false when there is none. */
bool atsi_jsyms_find(const struct atsi_jsyms *s, const struct atsi_jfn *fn,
                     const struct atsi_jstr *name, struct atsi_jvar *out);
/* Notes that a name is read, written, or a parameter.  false: failed. */
bool atsi_jsyms_load(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jstr *name);
bool atsi_jsyms_store(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jstr *name);
bool atsi_jsyms_param(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jstr *name,
                      uint32_t *slot_out);
/* Notes the names of an expression, of a target, of statements without their inner scopes. */
bool atsi_jsyms_expr(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jnode *n);
bool atsi_jsyms_target(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jnode *n,
                       bool param);
bool atsi_jsyms_body(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jnodes *body);

/* Calls visit(ctx, child) for each expression in n, as written; false as soon as visit is. */
bool atsi_jnode_children(const struct atsi_jnode *n,
                         bool (*visit)(void *ctx, struct atsi_jnode *child), void *ctx);

/* Is `name` read in these statements before it is written there?  (Also in inner scopes.) */
bool atsi_jscope_uses(struct atsi_jr *r, const struct atsi_jnodes *body, const char *name);

#endif
