/* SPDX-License-Identifier: Apache-2.0
 *
 * First half of resolving: the names of one scope, in the order in which its statements use them.
 *
 * Jinja2 decides when a template is compiled where a name lives (jinja2/idtracking.py is the
 * definition): a scope that writes a name has a variable of its own, which starts as a copy of the
 * outer one; a name that is only read is the outer one, or else is looked up among what the render
 * was given.  `if` opens no scope; a name that only some of its branches write starts out as the
 * outer one.
 */
#include "text/jinja/scope.h"
#include "text/jinja/str.h"

static uint32_t slot_of(struct atsi_jr *r, struct atsi_jfn *fn, uint32_t level,
                        const struct atsi_jstr *name)
{
    for (size_t i = 0; i < fn->n; i++)
        if (fn->slot[i].level == level && atsi_jstr_same(fn->slot[i].name, name))
            return (uint32_t)i;
    if (fn->n == fn->cap) {
        size_t cap = fn->cap == 0 ? 8 : 2 * fn->cap;
        struct atsi_jslot *slot = atsi_jr_array(r, cap, sizeof *slot);
        if (slot == NULL)
            return 0;
        if (fn->n > 0)
            memcpy(slot, fn->slot, fn->n * sizeof *slot);
        fn->slot = slot;
        fn->cap = cap;
    }
    fn->slot[fn->n].level = level;
    fn->slot[fn->n].name = name;
    return (uint32_t)fn->n++;
}

static struct atsi_jsym *own(const struct atsi_jsyms *s, const struct atsi_jstr *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (atsi_jstr_same(s->v[i].name, name))
            return &s->v[i];
    return NULL;
}

bool atsi_jsyms_find(const struct atsi_jsyms *s, const struct atsi_jfn *fn,
                     const struct atsi_jstr *name, struct atsi_jvar *out)
{
    for (; s != NULL; s = s->parent) {
        const struct atsi_jsym *sym = own(s, name);
        if (sym == NULL)
            continue;
        out->up = fn->depth - s->fn->depth;
        out->slot = sym->slot;
        return true;
    }
    return false;
}

static struct atsi_jsym *define(struct atsi_jr *r, struct atsi_jsyms *s,
                                const struct atsi_jstr *name, char kind)
{
    struct atsi_jsym *sym = own(s, name);
    if (!atsi_jr_step(r, 1 + (s->n + s->fn->n) / 16))
        return NULL;
    if (sym == NULL) {
        if (s->n == s->cap) {
            size_t cap = s->cap == 0 ? 8 : 2 * s->cap;
            struct atsi_jsym *v = atsi_jr_array(r, cap, sizeof *v);
            if (v == NULL)
                return NULL;
            if (s->n > 0)
                memcpy(v, s->v, s->n * sizeof *v);
            s->v = v;
            s->cap = cap;
        }
        sym = &s->v[s->n++];
        sym->name = name;
        sym->slot = slot_of(r, s->fn, s->level, name);
        sym->stored = false;
    }
    sym->kind = kind;
    return r->status == ATSI_OK ? sym : NULL;
}

bool atsi_jsyms_load(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jstr *name)
{
    struct atsi_jvar found;
    return atsi_jsyms_find(s, s->fn, name, &found) || define(r, s, name, 'r') != NULL;
}

/* What a variable of this scope starts as when something outside has its name. */
static void start_as_outer(const struct atsi_jsyms *s, struct atsi_jsym *sym, char otherwise)
{
    sym->kind = atsi_jsyms_find(s->parent, s->fn, sym->name, &sym->from) ? 'a' : otherwise;
}

bool atsi_jsyms_store(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jstr *name)
{
    struct atsi_jsym *sym = own(s, name);
    if (sym == NULL) {
        sym = define(r, s, name, 'u');
        if (sym == NULL)
            return false;
        start_as_outer(s, sym, 'u');
    }
    sym->stored = true;
    return true;
}

bool atsi_jsyms_param(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jstr *name,
                      uint32_t *slot_out)
{
    struct atsi_jsym *sym = define(r, s, name, 'p');
    if (sym == NULL)
        return false;
    sym->stored = true;
    if (slot_out != NULL)
        *slot_out = sym->slot;
    return true;
}

/* ---------------------------------------------------------------- expressions */
static bool visit_list(const struct atsi_jnodes *list,
                       bool (*visit)(void *ctx, struct atsi_jnode *child), void *ctx)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i] != NULL && !visit(ctx, list->v[i]))
            return false;
    return true;
}

bool atsi_jnode_children(const struct atsi_jnode *n,
                         bool (*visit)(void *ctx, struct atsi_jnode *child), void *ctx)
{
    const struct atsi_jargs *args = n->args;
    if ((n->a != NULL && !visit(ctx, n->a)) || (n->b != NULL && !visit(ctx, n->b)) ||
        (n->c != NULL && !visit(ctx, n->c)) || !visit_list(&n->items, visit, ctx))
        return false;
    return args == NULL ||
           (visit_list(&args->pos, visit, ctx) && visit_list(&args->kw, visit, ctx) &&
            (args->star == NULL || visit(ctx, args->star)) &&
            (args->star_star == NULL || visit(ctx, args->star_star)));
}

struct noting {
    struct atsi_jr *r;
    struct atsi_jsyms *s;
};

static bool note_expr(void *ctx, struct atsi_jnode *n)
{
    struct noting *to = ctx;
    return atsi_jsyms_expr(to->r, to->s, n);
}

bool atsi_jsyms_expr(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jnode *n)
{
    struct noting ctx = {r, s};
    bool ok;
    if (n->kind == ATSI_JN_NAME)
        return atsi_jsyms_load(r, s, n->name);
    ok = atsi_jr_enter(r) && atsi_jnode_children(n, note_expr, &ctx);
    r->depth--;
    return ok;
}

bool atsi_jsyms_target(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jnode *n,
                       bool param)
{
    if (n->kind == ATSI_JN_NAME)
        return param ? atsi_jsyms_param(r, s, n->name, NULL) : atsi_jsyms_store(r, s, n->name);
    if (n->kind == ATSI_JN_NSREF)
        return atsi_jsyms_load(r, s, n->name);
    for (size_t i = 0; i < n->items.n; i++) {
        bool ok = atsi_jr_enter(r) && atsi_jsyms_target(r, s, n->items.v[i], param);
        r->depth--;
        if (!ok)
            return false;
    }
    return true;
}

/* ---------------------------------------------------------------- branches */
static bool copy_syms(struct atsi_jr *r, const struct atsi_jsyms *s, struct atsi_jsyms *out)
{
    *out = *s;
    out->cap = s->n;
    if (s->n == 0) {
        out->v = NULL;
        return true;
    }
    if (!atsi_jr_step(r, 1 + s->n / 4))
        return false;
    out->v = atsi_jr_array(r, s->n, sizeof *out->v);
    if (out->v == NULL)
        return false;
    for (size_t i = 0; i < s->n; i++)
        out->v[i] = s->v[i];
    return true;
}

/* Takes over what a branch found. */
static bool merge_branch(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jsyms *branch)
{
    for (size_t i = 0; i < branch->n; i++) {
        const struct atsi_jsym *from = &branch->v[i];
        struct atsi_jsym *to = define(r, s, from->name, from->kind);
        if (to == NULL)
            return false;
        to->from = from->from;
        to->stored = to->stored || from->stored;
    }
    return true;
}

static bool note_if(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jnode *n)
{
    const struct atsi_jnodes *branches[] = {&n->body, &n->items, &n->orelse};
    struct atsi_jsyms before, branch[3];
    if (!atsi_jsyms_expr(r, s, n->a) || !copy_syms(r, s, &before))
        return false;
    for (size_t i = 0; i < 3; i++)
        if (!copy_syms(r, &before, &branch[i]) || !atsi_jsyms_body(r, &branch[i], branches[i]))
            return false;
    for (size_t i = 0; i < 3; i++)
        if (!merge_branch(r, s, &branch[i]))
            return false;
    for (size_t i = 0; i < s->n; i++) {
        const struct atsi_jsym *old = own(&before, s->v[i].name);
        if (s->v[i].stored && (old == NULL || !old->stored))
            start_as_outer(s, &s->v[i], 'r');
    }
    return true;
}

static bool note_statement(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jnode *n)
{
    switch (n->kind) {
    case ATSI_JN_PRINT:
        for (size_t i = 0; i < n->items.n; i++)
            if (!atsi_jsyms_expr(r, s, n->items.v[i]))
                return false;
        return true;
    case ATSI_JN_IF:
        return note_if(r, s, n);
    case ATSI_JN_FOR:
    case ATSI_JN_FILTERBLOCK:
        return atsi_jsyms_expr(r, s, n->b);
    case ATSI_JN_SET:
        return atsi_jsyms_expr(r, s, n->b) && atsi_jsyms_target(r, s, n->a, false);
    case ATSI_JN_SETBLOCK:
        return atsi_jsyms_target(r, s, n->a, false);
    case ATSI_JN_MACRO:
        return atsi_jsyms_store(r, s, n->name);
    case ATSI_JN_CALLBLOCK:
        return n->a == NULL || atsi_jsyms_expr(r, s, n->a);
    case ATSI_JN_WITH:
        for (size_t i = 1; i < n->items.n; i += 2)
            if (!atsi_jsyms_expr(r, s, n->items.v[i]))
                return false;
        return true;
    default:
        return true;
    }
}

bool atsi_jsyms_body(struct atsi_jr *r, struct atsi_jsyms *s, const struct atsi_jnodes *body)
{
    bool ok = atsi_jr_enter(r);
    for (size_t i = 0; ok && i < body->n; i++)
        ok = note_statement(r, s, body->v[i]);
    r->depth--;
    return ok;
}
