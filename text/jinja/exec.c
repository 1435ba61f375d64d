/* SPDX-License-Identifier: Apache-2.0
 *
 * Statements, and the variables they work on.
 */
#include "text/jinja/compare.h"
#include "text/jinja/interp.h"
#include "text/jinja/repr.h"

/* ---------------------------------------------------------------- variables */
struct atsi_jact *atsi_jact_new(struct atsi_jr *r, struct atsi_jact *parent, uint32_t n_slots)
{
    struct atsi_jact *act = atsi_jr_alloc(r, sizeof *act);
    if (act == NULL)
        return NULL;
    act->parent = parent;
    act->v = atsi_jr_array(r, n_slots, sizeof *act->v);
    if (act->v == NULL)
        return NULL;
    for (uint32_t i = 0; i < n_slots; i++)
        act->v[i].type = ATSI_J_MISSING;
    return act;
}

struct atsi_jv *atsi_jact_at(struct atsi_jr *r, struct atsi_jvar var)
{
    struct atsi_jact *act = r->act;
    while (var.up-- > 0)
        act = act->parent;
    return &act->v[var.slot];
}

bool atsi_jscope_enter(struct atsi_jr *r, const struct atsi_jscope *s)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct atsi_jload *l = &s->load[i];
        struct atsi_jv v = atsi_jv_of(ATSI_J_MISSING);
        if (l->kind == 'a') {
            v = *atsi_jact_at(r, l->from);
        } else if (l->kind == 'r') {
            const struct atsi_jentry *e = atsi_jdict_find_str(r->context, l->name->p, l->name->n);
            if (e != NULL)
                v = e->value;
        }
        r->act->v[l->slot] = v;
    }
    return atsi_jr_step(r, 1 + s->n / 4);
}

void atsi_jscope_leave(struct atsi_jr *r, const struct atsi_jscope *s)
{
    for (size_t i = 0; i < s->n_own; i++)
        r->act->v[s->own[i]] = atsi_jv_of(ATSI_J_MISSING);
}

static bool assign_attr(struct atsi_jr *r, const struct atsi_jnode *target, struct atsi_jv v)
{
    struct atsi_jv ns = *atsi_jact_at(r, target->var);
    if (ns.type == ATSI_J_NS)
        return atsi_jdict_set(r, ns.u.ns, atsi_jv_str(target->attr), v);
    r->line = target->line;
    (void)atsi_jr_error(r, "cannot assign attribute '%.*s' on what is no namespace",
                        (int)(target->attr->n < 60 ? target->attr->n : 60), target->attr->p);
    return false;
}

static bool unpack(struct atsi_jr *r, const struct atsi_jnode *target, struct atsi_jv v)
{
    struct atsi_jiter it;
    struct atsi_jv item;
    size_t n = 0;
    int more;
    r->line = target->line;
    if (!atsi_jiter_open(r, v, &it))
        return false;
    while ((more = atsi_jiter_next(r, &it, &item)) > 0 && n < target->items.n)
        if (!atsi_jassign(r, target->items.v[n++], item))
            return false;
    if (more < 0 || (more == 0 && n == target->items.n))
        return more == 0;
    r->line = target->line;
    (void)atsi_jr_error(r, "%s values to unpack (expected %zu)",
                        more > 0 ? "too many" : "not enough", target->items.n);
    return false;
}

bool atsi_jassign(struct atsi_jr *r, const struct atsi_jnode *target, struct atsi_jv v)
{
    if (v.type == ATSI_J_FAIL)
        return false;
    if (target->kind == ATSI_JN_TUPLE)
        return unpack(r, target, v);
    if (target->kind == ATSI_JN_NSREF)
        return assign_attr(r, target, v);
    *atsi_jact_at(r, target->var) = v;
    return true;
}

struct atsi_jv atsi_jr_take(struct atsi_jr *r, size_t start)
{
    size_t n = r->out.n - start;
    char *p = atsi_arena_chars(&r->arena, n);
    if (p == NULL)
        return atsi_jr_nomem(r);
    if (n > 0)
        memcpy(p, r->out.p + start, n);
    r->out.n = start;
    return atsi_jv_text(r, p, n);
}

/* ---------------------------------------------------------------- statements */
static bool print_value(struct atsi_jr *r, struct atsi_jv v)
{
    v = atsi_jv_to_text(r, v);
    return v.type == ATSI_J_STR && atsi_jr_print(r, v.u.s->p, v.u.s->n);
}

static enum atsi_jflow done(bool ok)
{
    return ok ? ATSI_JFLOW_ON : ATSI_JFLOW_FAIL;
}

static enum atsi_jflow exec_print(struct atsi_jr *r, const struct atsi_jnode *n)
{
    for (size_t i = 0; i < n->items.n; i++) {
        struct atsi_jv v = atsi_jeval(r, n->items.v[i]);
        r->line = n->line;
        if (v.type == ATSI_J_FAIL || !print_value(r, v))
            return ATSI_JFLOW_FAIL;
    }
    return ATSI_JFLOW_ON;
}

static enum atsi_jflow exec_if(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jv v = atsi_jeval(r, n->a);
    if (v.type == ATSI_J_FAIL)
        return ATSI_JFLOW_FAIL;
    if (atsi_jv_truth(v))
        return atsi_jexec_body(r, &n->body);
    for (size_t i = 0; i < n->items.n; i++) {
        v = atsi_jeval(r, n->items.v[i]->a);
        if (v.type == ATSI_J_FAIL)
            return ATSI_JFLOW_FAIL;
        if (atsi_jv_truth(v))
            return atsi_jexec_body(r, &n->items.v[i]->body);
    }
    return atsi_jexec_body(r, &n->orelse);
}

/* {% set x %}...{% endset %} and {% filter f %}...{% endfilter %}: the text of the body, through
 * the filter.  A break or continue within it drops the text. */
static enum atsi_jflow capture(struct atsi_jr *r, const struct atsi_jnode *n, struct atsi_jv *out)
{
    size_t start = r->out.n;
    struct atsi_jv before = r->captured;
    enum atsi_jflow flow = ATSI_JFLOW_FAIL;
    if (atsi_jscope_enter(r, &n->scope))
        flow = atsi_jexec_body(r, &n->body);
    if (flow == ATSI_JFLOW_ON) {
        *out = atsi_jr_take(r, start);
        if (n->b != NULL && out->type == ATSI_J_STR) {
            r->captured = *out;
            *out = atsi_jeval(r, n->b);
            r->captured = before;
        }
        if (out->type == ATSI_J_FAIL)
            flow = ATSI_JFLOW_FAIL;
    } else {
        r->out.n = start;
    }
    atsi_jscope_leave(r, &n->scope);
    return flow;
}

static enum atsi_jflow exec_capture(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jv text;
    enum atsi_jflow flow = capture(r, n, &text);
    if (flow != ATSI_JFLOW_ON)
        return flow;
    r->line = n->line;
    return done(n->kind == ATSI_JN_SETBLOCK ? atsi_jassign(r, n->a, text) : print_value(r, text));
}

static enum atsi_jflow exec_set(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jv v = atsi_jeval(r, n->b);
    return done(v.type != ATSI_J_FAIL && atsi_jassign(r, n->a, v));
}

static enum atsi_jflow exec_macro(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jv v = atsi_jmacro_new(r, n->macro);
    if (v.type == ATSI_J_FAIL)
        return ATSI_JFLOW_FAIL;
    *atsi_jact_at(r, n->var) = v;
    return ATSI_JFLOW_ON;
}

static enum atsi_jflow exec_call_block(struct atsi_jr *r, const struct atsi_jnode *n)
{
    static const struct atsi_jcall nothing = {.self = {.type = ATSI_J_MISSING}};
    struct atsi_jv v = atsi_jmacro_new(r, n->macro);
    if (v.type == ATSI_J_FAIL)
        return ATSI_JFLOW_FAIL;
    v = n->a != NULL ? atsi_jeval_call(r, n->a, v) : atsi_jmacro_call(r, v.u.macro, &nothing);
    r->line = n->line;
    return done(v.type != ATSI_J_FAIL && print_value(r, v));
}

static enum atsi_jflow exec_with(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jitems values = atsi_jitems_of(r);
    enum atsi_jflow flow = ATSI_JFLOW_FAIL;
    bool ok = true;
    for (size_t i = 1; ok && i < n->items.n; i += 2)
        ok = atsi_jitems_add(&values, atsi_jeval(r, n->items.v[i]));
    ok = ok && atsi_jscope_enter(r, &n->scope);
    for (size_t i = 0; ok && i < values.n; i++)
        ok = atsi_jassign(r, n->items.v[2 * i], values.v[i]);
    if (ok)
        flow = atsi_jexec_body(r, &n->body);
    atsi_jscope_leave(r, &n->scope);
    return flow;
}

static enum atsi_jflow exec(struct atsi_jr *r, const struct atsi_jnode *n)
{
    r->line = n->line;
    switch (n->kind) {
    case ATSI_JN_DATA:
        return done(atsi_jr_print(r, n->value.u.s->p, n->value.u.s->n));
    case ATSI_JN_PRINT:
        return exec_print(r, n);
    case ATSI_JN_IF:
        return exec_if(r, n);
    case ATSI_JN_FOR:
        return atsi_jexec_for(r, n);
    case ATSI_JN_SET:
        return exec_set(r, n);
    case ATSI_JN_SETBLOCK:
    case ATSI_JN_FILTERBLOCK:
        return exec_capture(r, n);
    case ATSI_JN_MACRO:
        return exec_macro(r, n);
    case ATSI_JN_CALLBLOCK:
        return exec_call_block(r, n);
    case ATSI_JN_WITH:
        return exec_with(r, n);
    case ATSI_JN_BREAK:
        return ATSI_JFLOW_BREAK;
    default:
        return ATSI_JFLOW_CONTINUE;
    }
}

enum atsi_jflow atsi_jexec_body(struct atsi_jr *r, const struct atsi_jnodes *body)
{
    enum atsi_jflow flow = atsi_jr_enter(r) ? ATSI_JFLOW_ON : ATSI_JFLOW_FAIL;
    for (size_t i = 0; flow == ATSI_JFLOW_ON && i < body->n; i++)
        flow = atsi_jr_step(r, 1) ? exec(r, body->v[i]) : ATSI_JFLOW_FAIL;
    r->depth--;
    return flow;
}
