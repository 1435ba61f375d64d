/* SPDX-License-Identifier: Apache-2.0
 *
 * Second half of resolving: goes through the tree, opens scopes and functions, and gives every name
 * its variable.  A macro, the body of a call block and a recursive loop are functions: each run of
 * one has variables of its own, and sees those of the functions around it.
 */
#include "text/jinja/scope.h"
#include "text/jinja/str.h"

struct resolver {
    struct atsi_jr *r;
    struct atsi_jsyms *syms;
    uint32_t n_conditions; /* if statements and expressions around */
    uint32_t n_for;        /* loops around */
};

/* The test of a loop has variables apart from those of the loop's body. */
enum { TEST_LEVEL = 1u << 30 };

static bool resolve_body(struct resolver *v, const struct atsi_jnodes *body);

/* ---------------------------------------------------------------- expressions */
static bool resolve_name(struct resolver *v, struct atsi_jnode *n)
{
    if (atsi_jsyms_find(v->syms, v->syms->fn, n->name, &n->var))
        return true;
    v->r->line = n->line;
    (void)atsi_jr_notsup(v->r, "the name '%.*s' in this place is not supported",
                         (int)(n->name->n < 60 ? n->name->n : 60), n->name->p);
    return false;
}

/* Jinja2 lets a template name a filter that does not exist within a condition. */
static bool check_builtin(struct resolver *v, const struct atsi_jnode *n)
{
    if (n->builtin != NULL || v->n_conditions > 0)
        return true;
    v->r->line = n->line;
    (void)atsi_jr_notsup(v->r, "the %s '%.*s' is not supported",
                         n->kind == ATSI_JN_FILTER ? "filter" : "test",
                         (int)(n->name->n < 60 ? n->name->n : 60), n->name->p);
    return false;
}

static bool resolve_expr(void *ctx, struct atsi_jnode *n)
{
    struct resolver *v = ctx;
    bool ok;
    if (n->kind == ATSI_JN_NAME)
        return resolve_name(v, n);
    if ((n->kind == ATSI_JN_FILTER || n->kind == ATSI_JN_TEST) && !check_builtin(v, n))
        return false;
    v->n_conditions += n->kind == ATSI_JN_COND;
    ok = atsi_jr_enter(v->r) && atsi_jnode_children(n, resolve_expr, v);
    v->r->depth--;
    v->n_conditions -= n->kind == ATSI_JN_COND;
    return ok;
}

static bool resolve_exprs(struct resolver *v, const struct atsi_jnodes *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (!resolve_expr(v, list->v[i]))
            return false;
    return true;
}

static bool resolve_target(struct resolver *v, struct atsi_jnode *n)
{
    if (n->kind == ATSI_JN_NAME && v->n_for > 0 && atsi_jstr_is(n->name, "loop")) {
        v->r->line = n->line;
        (void)atsi_jr_error(v->r, "'loop' cannot be assigned to within a for");
        return false;
    }
    if (n->kind == ATSI_JN_NAME || n->kind == ATSI_JN_NSREF)
        return resolve_name(v, n);
    for (size_t i = 0; i < n->items.n; i++)
        if (!resolve_target(v, n->items.v[i]))
            return false;
    return true;
}

/* ---------------------------------------------------------------- scopes */
static void open_scope(struct resolver *v, struct atsi_jsyms *s, struct atsi_jfn *fn)
{
    memset(s, 0, sizeof *s);
    s->parent = v->syms;
    s->fn = fn != NULL ? fn : v->syms->fn;
    s->level = v->syms->level + 1;
}

static void open_fn(struct resolver *v, struct atsi_jfn *fn)
{
    memset(fn, 0, sizeof *fn);
    fn->depth = v->syms->fn->depth + 1;
}

/* Writes down what entering and leaving the scope does. */
static bool close_scope(struct atsi_jr *r, const struct atsi_jsyms *s, struct atsi_jscope *out)
{
    out->n = 0;
    out->n_own = s->n;
    if (s->n == 0)
        return true;
    out->load = atsi_jr_array(r, s->n, sizeof *out->load);
    out->own = atsi_jr_array(r, s->n, sizeof *out->own);
    if (out->load == NULL || out->own == NULL)
        return false;
    for (size_t i = 0; i < s->n; i++) {
        const struct atsi_jsym *sym = &s->v[i];
        struct atsi_jload *load = &out->load[out->n];
        out->own[i] = sym->slot;
        if (sym->kind == 'p')
            continue;
        load->slot = sym->slot;
        load->kind = sym->kind;
        load->from = sym->from;
        load->name = sym->name;
        out->n++;
    }
    return true;
}

/* The body in the scope `s`, whose names are noted. */
static bool resolve_inside(struct resolver *v, struct atsi_jsyms *s, const struct atsi_jnodes *body,
                           struct atsi_jscope *out)
{
    struct atsi_jsyms *outer = v->syms;
    bool ok;
    v->syms = s;
    ok = resolve_body(v, body) && close_scope(v->r, s, out);
    v->syms = outer;
    return ok;
}

/* ---------------------------------------------------------------- loops */
static struct atsi_jnode *clone_target(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jnode *copy = atsi_jr_alloc(r, sizeof *copy);
    if (copy == NULL)
        return NULL;
    *copy = *n;
    if (n->kind != ATSI_JN_TUPLE || n->items.n == 0)
        return copy;
    copy->items.v = atsi_jr_array(r, n->items.n, sizeof(struct atsi_jnode *));
    for (size_t i = 0; copy->items.v != NULL && i < n->items.n; i++)
        copy->items.v[i] = clone_target(r, n->items.v[i]);
    return copy->items.v != NULL ? copy : NULL;
}

static bool resolve_test(struct resolver *v, struct atsi_jnode *n, struct atsi_jfn *fn)
{
    struct atsi_jsyms test, *outer = v->syms;
    bool ok;
    open_scope(v, &test, fn);
    test.level |= TEST_LEVEL;
    n->test_target = clone_target(v->r, n->a);
    if (v->r->status != ATSI_OK || !atsi_jsyms_target(v->r, &test, n->a, true) ||
        !atsi_jsyms_expr(v->r, &test, n->c))
        return false;
    v->syms = &test;
    ok = resolve_target(v, n->test_target) && resolve_expr(v, n->c) &&
         close_scope(v->r, &test, &n->test);
    v->syms = outer;
    return ok;
}

static bool resolve_loop_body(struct resolver *v, struct atsi_jnode *n, struct atsi_jfn *fn)
{
    static const struct atsi_jstr loop_name = {"loop", 4, 4};
    struct atsi_jsyms body, *outer = v->syms;
    bool ok;
    open_scope(v, &body, fn);
    n->has_loop = n->flag || atsi_jscope_uses(v->r, &n->body, "loop");
    if (n->has_loop && !atsi_jsyms_param(v->r, &body, &loop_name, &n->loop_slot))
        return false;
    if (!atsi_jsyms_target(v->r, &body, n->a, true) || !atsi_jsyms_body(v->r, &body, &n->body))
        return false;
    v->syms = &body;
    ok = resolve_target(v, n->a);
    v->syms = outer;
    return ok && resolve_inside(v, &body, &n->body, &n->scope);
}

static bool resolve_for(struct resolver *v, struct atsi_jnode *n)
{
    struct atsi_jfn fn = {.depth = 0}, *inner = NULL;
    struct atsi_jsyms otherwise;
    bool ok;
    if (!resolve_expr(v, n->b))
        return false;
    if (n->flag) {
        open_fn(v, &fn);
        inner = &fn;
    }
    v->n_for++;
    ok = (n->c == NULL || resolve_test(v, n, inner)) && resolve_loop_body(v, n, inner);
    if (ok && n->orelse.n > 0) {
        open_scope(v, &otherwise, inner);
        ok = atsi_jsyms_body(v->r, &otherwise, &n->orelse) &&
             resolve_inside(v, &otherwise, &n->orelse, &n->else_scope);
    }
    v->n_for--;
    n->n_slots = (uint32_t)fn.n;
    return ok;
}

/* ---------------------------------------------------------------- macros */
/* One of caller, kwargs, varargs: a parameter when the body uses it and no parameter has its name.
 */
static bool special_param(struct resolver *v, struct atsi_jsyms *s, struct atsi_jmacro_def *m,
                          const struct atsi_jstr *name, bool *takes, uint32_t *slot)
{
    bool written = false;
    for (size_t i = 0; i < m->n_params; i++)
        written = written || atsi_jstr_same(m->param[i], name);
    if (!atsi_jscope_uses(v->r, &m->body, name->p))
        return v->r->status == ATSI_OK;
    *takes = !written;
    return written || atsi_jsyms_param(v->r, s, name, slot);
}

static bool special_params(struct resolver *v, struct atsi_jsyms *s, struct atsi_jmacro_def *m)
{
    static const struct atsi_jstr caller = {"caller", 6, 6}, kwargs = {"kwargs", 6, 6},
                                  varargs = {"varargs", 7, 7};
    for (size_t i = 0; i < m->n_params; i++)
        m->explicit_caller = m->explicit_caller || atsi_jstr_same(m->param[i], &caller);
    for (size_t i = 0; i + m->defaults.n < m->n_params; i++)
        if (atsi_jstr_same(m->param[i], &caller) && atsi_jscope_uses(v->r, &m->body, "caller")) {
            (void)atsi_jr_error(v->r, "the parameter 'caller' of a macro must have a default");
            return false;
        }
    return special_param(v, s, m, &caller, &m->takes_caller, &m->caller_slot) &&
           special_param(v, s, m, &kwargs, &m->takes_kwargs, &m->kwargs_slot) &&
           special_param(v, s, m, &varargs, &m->takes_varargs, &m->varargs_slot);
}

static bool resolve_macro(struct resolver *v, struct atsi_jmacro_def *m)
{
    struct atsi_jfn fn;
    struct atsi_jsyms s, *outer = v->syms;
    bool ok = true;
    open_fn(v, &fn);
    open_scope(v, &s, &fn);
    m->param_slot = atsi_jr_array(v->r, m->n_params, sizeof *m->param_slot);
    if (m->param_slot == NULL)
        return false;
    for (size_t i = 0; ok && i < m->n_params; i++)
        ok = atsi_jsyms_param(v->r, &s, m->param[i], &m->param_slot[i]);
    if (!ok || !special_params(v, &s, m))
        return false;
    for (size_t i = 0; ok && i < m->defaults.n; i++)
        ok = atsi_jsyms_expr(v->r, &s, m->defaults.v[i]);
    if (!ok || !atsi_jsyms_body(v->r, &s, &m->body))
        return false;
    v->syms = &s;
    ok = resolve_exprs(v, &m->defaults);
    v->syms = outer;
    ok = ok && resolve_inside(v, &s, &m->body, &m->scope);
    m->n_slots = (uint32_t)fn.n;
    return ok;
}

/* ---------------------------------------------------------------- statements */
static bool resolve_block(struct resolver *v, struct atsi_jnode *n)
{
    struct atsi_jsyms s, *outer = v->syms;
    bool ok;
    open_scope(v, &s, NULL);
    if (!atsi_jsyms_body(v->r, &s, &n->body) || (n->b != NULL && !atsi_jsyms_expr(v->r, &s, n->b)))
        return false;
    v->syms = &s;
    ok = n->b == NULL || resolve_expr(v, n->b);
    v->syms = outer;
    return ok && resolve_inside(v, &s, &n->body, &n->scope);
}

static bool resolve_with(struct resolver *v, struct atsi_jnode *n)
{
    struct atsi_jsyms s, *outer = v->syms;
    bool ok = true;
    for (size_t i = 1; i < n->items.n; i += 2)
        if (!resolve_expr(v, n->items.v[i]))
            return false;
    open_scope(v, &s, NULL);
    for (size_t i = 0; i < n->items.n; i += 2)
        if (!atsi_jsyms_target(v->r, &s, n->items.v[i], true))
            return false;
    if (!atsi_jsyms_body(v->r, &s, &n->body))
        return false;
    v->syms = &s;
    for (size_t i = 0; ok && i < n->items.n; i += 2)
        ok = resolve_target(v, n->items.v[i]);
    v->syms = outer;
    return ok && resolve_inside(v, &s, &n->body, &n->scope);
}

static bool resolve_if(struct resolver *v, struct atsi_jnode *n)
{
    bool ok;
    v->n_conditions++;
    ok = resolve_expr(v, n->a) && resolve_body(v, &n->body) && resolve_body(v, &n->items) &&
         resolve_body(v, &n->orelse);
    v->n_conditions--;
    return ok;
}

static bool resolve_statement(struct resolver *v, struct atsi_jnode *n)
{
    v->r->line = n->line;
    switch (n->kind) {
    case ATSI_JN_PRINT:
        return resolve_exprs(v, &n->items);
    case ATSI_JN_IF:
        return resolve_if(v, n);
    case ATSI_JN_FOR:
        return resolve_for(v, n);
    case ATSI_JN_SET:
        return resolve_expr(v, n->b) && resolve_target(v, n->a);
    case ATSI_JN_SETBLOCK:
        return resolve_block(v, n) && resolve_target(v, n->a);
    case ATSI_JN_FILTERBLOCK:
        return resolve_block(v, n);
    case ATSI_JN_MACRO:
        return resolve_macro(v, n->macro) && resolve_name(v, n);
    case ATSI_JN_CALLBLOCK:
        return resolve_macro(v, n->macro) && (n->a == NULL || resolve_expr(v, n->a));
    case ATSI_JN_WITH:
        return resolve_with(v, n);
    default:
        return true;
    }
}

static bool resolve_body(struct resolver *v, const struct atsi_jnodes *body)
{
    bool ok = atsi_jr_enter(v->r);
    for (size_t i = 0; ok && i < body->n; i++)
        ok = resolve_statement(v, body->v[i]);
    v->r->depth--;
    return ok;
}

bool atsi_jscope_resolve(struct atsi_jr *r, const struct atsi_jnodes *body,
                         struct atsi_jscope *root_out, uint32_t *n_slots_out)
{
    struct atsi_jfn fn = {.depth = 0};
    struct atsi_jsyms root = {.fn = &fn};
    struct resolver v = {.r = r, .syms = &root};
    bool ok = atsi_jsyms_body(r, &root, body) && resolve_body(&v, body) &&
              close_scope(r, &root, root_out);
    *n_slots_out = (uint32_t)fn.n;
    return ok;
}
