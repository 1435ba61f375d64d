/* SPDX-License-Identifier: Apache-2.0
 *
 * Expressions.
 */
#include "text/jinja/compare.h"
#include "text/jinja/interp.h"
#include "text/jinja/number.h"
#include "text/jinja/repr.h"

static struct atsi_jv eval_name(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jv v = *atsi_jact_at(r, n->var);
    return v.type == ATSI_J_MISSING ? atsi_jv_undef(n->name, ATSI_JUNDEF_NAME) : v;
}

static struct atsi_jv eval_items(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jitems items = atsi_jitems_of(r);
    for (size_t i = 0; i < n->items.n; i++)
        if (!atsi_jitems_add(&items, atsi_jeval(r, n->items.v[i])))
            return atsi_jv_fail();
    return n->kind == ATSI_JN_TUPLE ? atsi_jitems_tuple(&items) : atsi_jitems_list(&items);
}

static struct atsi_jv eval_dict(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jdict *d = atsi_jdict_new(r, n->items.n / 2);
    for (size_t i = 0; d != NULL && i < n->items.n; i += 2) {
        struct atsi_jv key = atsi_jeval(r, n->items.v[i]), value;
        if (key.type == ATSI_J_FAIL)
            return key;
        value = atsi_jeval(r, n->items.v[i + 1]);
        r->line = n->line;
        if (!atsi_jdict_set(r, d, key, value))
            return atsi_jv_fail();
    }
    return atsi_jv_dict(d);
}

static struct atsi_jv eval_cond(struct atsi_jr *r, const struct atsi_jnode *n)
{
    static const struct atsi_jstr hint = {
        "the inline if-expression gave no value: its condition is "
        "false and it has no else",
        78, 78};
    struct atsi_jv cond = atsi_jeval(r, n->b);
    if (cond.type == ATSI_J_FAIL)
        return cond;
    if (atsi_jv_truth(cond))
        return atsi_jeval(r, n->a);
    return n->c != NULL ? atsi_jeval(r, n->c) : atsi_jv_undef(&hint, ATSI_JUNDEF_HINT);
}

static struct atsi_jv eval_logic(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jv v = atsi_jeval(r, n->a);
    if (v.type == ATSI_J_FAIL || atsi_jv_truth(v) == (n->kind == ATSI_JN_OR))
        return v;
    return atsi_jeval(r, n->b);
}

static int compare(struct atsi_jr *r, char op, struct atsi_jv a, struct atsi_jv b)
{
    int result;
    switch (op) {
    case 'E':
        return atsi_jv_equal(r, a, b);
    case 'N':
        result = atsi_jv_equal(r, a, b);
        return result < 0 ? result : !result;
    case '<':
        return atsi_jv_less(r, a, b);
    case '>':
        return atsi_jv_less(r, b, a);
    case 'L':
        return atsi_jv_less_equal(r, a, b);
    case 'G':
        return atsi_jv_less_equal(r, b, a);
    default:
        result = atsi_jv_contains(r, b, a);
        return result < 0 || op == 'i' ? result : !result;
    }
}

/* a < b < c: each neighbours; the first that is false ends it. */
static struct atsi_jv eval_compare(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jv left = atsi_jeval(r, n->a), right;
    int result = 1;
    for (size_t i = 0; i < n->items.n && result == 1; i++) {
        if (left.type == ATSI_J_FAIL)
            return left;
        right = atsi_jeval(r, n->items.v[i]->a);
        if (right.type == ATSI_J_FAIL)
            return right;
        r->line = n->line;
        result = compare(r, n->items.v[i]->op, left, right);
        left = right;
    }
    return result < 0 ? atsi_jv_fail() : atsi_jv_bool(result == 1);
}

static struct atsi_jv eval_binary(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jv a = atsi_jeval(r, n->a), b;
    if (a.type == ATSI_J_FAIL)
        return a;
    b = atsi_jeval(r, n->b);
    if (b.type == ATSI_J_FAIL)
        return b;
    r->line = n->line;
    return atsi_jv_arith(r, n->op, a, b);
}

static struct atsi_jv eval_concat(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jv v = atsi_jv_text(r, "", 0);
    for (size_t i = 0; v.type == ATSI_J_STR && i < n->items.n; i++) {
        struct atsi_jv part = atsi_jeval(r, n->items.v[i]);
        r->line = n->line;
        part = atsi_jv_to_text(r, part);
        v = part.type == ATSI_J_STR ? atsi_jstr_concat(r, v.u.s, part.u.s) : part;
    }
    return v;
}

static struct atsi_jv eval_access(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jv of = atsi_jeval(r, n->a), part[3];
    if (of.type == ATSI_J_FAIL)
        return of;
    if (n->kind == ATSI_JN_ATTR) {
        r->line = n->line;
        return atsi_jv_attr(r, of, n->name);
    }
    if (n->kind == ATSI_JN_ITEM) {
        part[0] = atsi_jeval(r, n->b);
        r->line = n->line;
        return part[0].type == ATSI_J_FAIL ? part[0] : atsi_jv_item(r, of, part[0]);
    }
    for (size_t i = 0; i < 3; i++) {
        part[i] = n->items.v[i] != NULL ? atsi_jeval(r, n->items.v[i]) : atsi_jv_none();
        if (part[i].type == ATSI_J_FAIL)
            return part[i];
    }
    r->line = n->line;
    return atsi_jv_slice(r, of, part);
}

/* ---------------------------------------------------------------- calls */
static bool eval_star(struct atsi_jr *r, const struct atsi_jnode *n, struct atsi_jitems *pos)
{
    struct atsi_jv v = atsi_jeval(r, n);
    struct atsi_jiter it;
    int more;
    if (v.type == ATSI_J_FAIL || !atsi_jiter_open(r, v, &it))
        return false;
    while ((more = atsi_jiter_next(r, &it, &v)) > 0)
        if (!atsi_jitems_add(pos, v))
            return false;
    return more == 0;
}

/* Sets a named argument, which must be new. */
static bool add_keyword(struct atsi_jr *r, struct atsi_jdict *kw, struct atsi_jv key,
                        struct atsi_jv value)
{
    size_t n = kw->n;
    if (value.type == ATSI_J_FAIL)
        return false;
    if (key.type != ATSI_J_STR) {
        (void)atsi_jr_error(r, "keywords must be strings, not %s", atsi_jv_type_name(key));
        return false;
    }
    if (!atsi_jdict_set(r, kw, key, value))
        return false;
    if (kw->n == n)
        (void)atsi_jr_error(r, "the argument '%.*s' is given twice",
                            (int)(key.u.s->n < 60 ? key.u.s->n : 60), key.u.s->p);
    return kw->n > n;
}

static bool eval_keywords(struct atsi_jr *r, const struct atsi_jargs *args, struct atsi_jdict *kw)
{
    struct atsi_jv v;
    for (size_t i = 0; i < args->kw.n; i++)
        if (!add_keyword(r, kw, atsi_jv_str(args->kw_name[i]), atsi_jeval(r, args->kw.v[i])))
            return false;
    if (args->star_star == NULL)
        return true;
    v = atsi_jeval(r, args->star_star);
    if (v.type != ATSI_J_DICT) {
        if (v.type != ATSI_J_FAIL)
            (void)atsi_jr_error(r, "argument after ** must be a mapping, not %s",
                                atsi_jv_type_name(v));
        return false;
    }
    for (size_t i = 0; i < v.u.dict->n; i++)
        if (!add_keyword(r, kw, v.u.dict->e[i].key, v.u.dict->e[i].value))
            return false;
    return true;
}

/* Evaluates the arguments into *c, whose self is set. */
static bool eval_args(struct atsi_jr *r, const struct atsi_jargs *args, struct atsi_jv caller,
                      struct atsi_jcall *c)
{
    struct atsi_jitems pos = atsi_jitems_of(r);
    struct atsi_jdict *kw = NULL;
    c->pos = NULL;
    c->n_pos = 0;
    c->kw = NULL;
    for (size_t i = 0; args != NULL && i < args->pos.n; i++)
        if (!atsi_jitems_add(&pos, atsi_jeval(r, args->pos.v[i])))
            return false;
    if (args != NULL && args->star != NULL && !eval_star(r, args->star, &pos))
        return false;
    c->pos = pos.v;
    c->n_pos = pos.n;
    if (caller.type == ATSI_J_MISSING &&
        (args == NULL || (args->kw.n == 0 && args->star_star == NULL)))
        return true;
    kw = atsi_jdict_new(r, 2);
    if (kw == NULL || (args != NULL && !eval_keywords(r, args, kw)))
        return false;
    c->kw = kw;
    return caller.type == ATSI_J_MISSING || add_keyword(r, kw, atsi_jv_ctext(r, "caller"), caller);
}

struct atsi_jv atsi_jeval_call(struct atsi_jr *r, const struct atsi_jnode *n, struct atsi_jv caller)
{
    struct atsi_jv f = atsi_jeval(r, n->a);
    struct atsi_jcall c = {.self = atsi_jv_of(ATSI_J_MISSING)};
    if (f.type == ATSI_J_FAIL || !eval_args(r, n->args, caller, &c))
        return atsi_jv_fail();
    r->line = n->line;
    return atsi_jv_call(r, f, &c);
}

static struct atsi_jv eval_builtin(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jcall c = {.self = atsi_jeval(r, n->a)};
    if (c.self.type == ATSI_J_FAIL || !eval_args(r, n->args, atsi_jv_of(ATSI_J_MISSING), &c))
        return atsi_jv_fail();
    r->line = n->line;
    if (n->builtin == NULL)
        return atsi_jr_notsup(r, "the %s '%.*s' is not supported",
                              n->kind == ATSI_JN_FILTER ? "filter" : "test",
                              (int)(n->name->n < 60 ? n->name->n : 60), n->name->p);
    return atsi_jbuiltin_call(r, n->builtin, &c);
}

/* ---------------------------------------------------------------- any expression */
static struct atsi_jv eval_kind(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jv v;
    switch (n->kind) {
    case ATSI_JN_LIST:
    case ATSI_JN_TUPLE:
        return eval_items(r, n);
    case ATSI_JN_DICT:
        return eval_dict(r, n);
    case ATSI_JN_COND:
        return eval_cond(r, n);
    case ATSI_JN_OR:
    case ATSI_JN_AND:
        return eval_logic(r, n);
    case ATSI_JN_NOT:
        v = atsi_jeval(r, n->a);
        return v.type == ATSI_J_FAIL ? v : atsi_jv_bool(!atsi_jv_truth(v));
    case ATSI_JN_COMPARE:
        return eval_compare(r, n);
    case ATSI_JN_BINARY:
        return eval_binary(r, n);
    case ATSI_JN_CONCAT:
        return eval_concat(r, n);
    case ATSI_JN_SIGN:
        v = atsi_jeval(r, n->a);
        r->line = n->line;
        return v.type == ATSI_J_FAIL ? v : atsi_jv_negate(r, v, n->op == '-');
    case ATSI_JN_CALL:
        return atsi_jeval_call(r, n, atsi_jv_of(ATSI_J_MISSING));
    case ATSI_JN_FILTER:
    case ATSI_JN_TEST:
        return eval_builtin(r, n);
    default:
        return eval_access(r, n);
    }
}

struct atsi_jv atsi_jeval(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jv v = atsi_jv_fail();
    switch (n->kind) {
    case ATSI_JN_CONST:
        return n->value;
    case ATSI_JN_NAME:
        return eval_name(r, n);
    case ATSI_JN_CAPTURED:
        return r->captured;
    default:
        break;
    }
    r->line = n->line;
    if (atsi_jr_enter(r) && atsi_jr_step(r, 1))
        v = eval_kind(r, n);
    r->depth--;
    return v;
}
