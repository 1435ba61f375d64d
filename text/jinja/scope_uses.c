/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a body use one of the special names (loop, caller, kwargs, varargs)?  Reading it counts
 * unless it was written before in the text of the template.
 */
#include "text/jinja/scope.h"
#include "text/jinja/str.h"

enum verdict { LOOKING, READ, WRITTEN };

struct search {
    struct atsi_jr *r;
    const char *name;
    enum verdict verdict;
};

static bool visit_body(struct search *s, const struct atsi_jnodes *body);

/* These return false as soon as the verdict is there (or the depth is too much). */
static bool visit_expr(void *ctx, struct atsi_jnode *n)
{
    struct search *s = ctx;
    bool on;
    if (n->kind == ATSI_JN_NAME) {
        if (atsi_jstr_is(n->name, s->name))
            s->verdict = READ;
        return s->verdict == LOOKING;
    }
    on = atsi_jr_enter(s->r) && atsi_jr_step(s->r, 1) && atsi_jnode_children(n, visit_expr, s);
    s->r->depth--;
    return on;
}

static bool visit_target(struct search *s, const struct atsi_jnode *n)
{
    if (n->kind == ATSI_JN_NAME && atsi_jstr_is(n->name, s->name))
        s->verdict = WRITTEN;
    for (size_t i = 0; n->kind == ATSI_JN_TUPLE && s->verdict == LOOKING && i < n->items.n; i++)
        if (!visit_target(s, n->items.v[i]))
            return false;
    return s->verdict == LOOKING;
}

static bool visit_macro(struct search *s, const struct atsi_jmacro_def *m)
{
    for (size_t i = 0; i < m->n_params; i++)
        if (atsi_jstr_is(m->param[i], s->name)) {
            s->verdict = WRITTEN;
            return false;
        }
    for (size_t i = 0; i < m->defaults.n; i++)
        if (!visit_expr(s, m->defaults.v[i]))
            return false;
    return visit_body(s, &m->body);
}

static bool visit_exprs(struct search *s, const struct atsi_jnodes *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (!visit_expr(s, list->v[i]))
            return false;
    return true;
}

static bool visit_statement(struct search *s, const struct atsi_jnode *n)
{
    switch (n->kind) {
    case ATSI_JN_PRINT:
        return visit_exprs(s, &n->items);
    case ATSI_JN_IF:
        return visit_expr(s, n->a) && visit_body(s, &n->body) && visit_body(s, &n->items) &&
               visit_body(s, &n->orelse);
    case ATSI_JN_FOR:
        return visit_target(s, n->a) && visit_expr(s, n->b) && visit_body(s, &n->body) &&
               visit_body(s, &n->orelse) && (n->c == NULL || visit_expr(s, n->c));
    case ATSI_JN_SET:
        return visit_target(s, n->a) && visit_expr(s, n->b);
    case ATSI_JN_SETBLOCK:
        return visit_target(s, n->a) && (n->b == NULL || visit_expr(s, n->b)) &&
               visit_body(s, &n->body);
    case ATSI_JN_FILTERBLOCK:
        return visit_body(s, &n->body) && visit_expr(s, n->b);
    case ATSI_JN_MACRO:
        return visit_macro(s, n->macro);
    case ATSI_JN_CALLBLOCK:
        return (n->a == NULL || visit_expr(s, n->a)) && visit_macro(s, n->macro);
    case ATSI_JN_WITH:
        for (size_t i = 0; i < n->items.n; i += 2)
            if (!visit_target(s, n->items.v[i]))
                return false;
        for (size_t i = 1; i < n->items.n; i += 2)
            if (!visit_expr(s, n->items.v[i]))
                return false;
        return visit_body(s, &n->body);
    default:
        return true;
    }
}

static bool visit_body(struct search *s, const struct atsi_jnodes *body)
{
    bool on = atsi_jr_enter(s->r);
    for (size_t i = 0; on && i < body->n; i++)
        on = atsi_jr_step(s->r, 1) && visit_statement(s, body->v[i]);
    s->r->depth--;
    return on;
}

bool atsi_jscope_uses(struct atsi_jr *r, const struct atsi_jnodes *body, const char *name)
{
    struct search s = {r, name, LOOKING};
    (void)visit_body(&s, body);
    return s.verdict == READ;
}
