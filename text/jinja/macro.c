/* SPDX-License-Identifier: Apache-2.0
 *
 * Macros and calls of any value.
 */
#include "text/jinja/compare.h"
#include "text/jinja/interp.h"

const struct atsi_jstr *atsi_jmacro_name(const struct atsi_jmacro *m)
{
    return m->def->name;
}

struct atsi_jv atsi_jmacro_new(struct atsi_jr *r, const struct atsi_jmacro_def *def)
{
    struct atsi_jmacro *m = atsi_jr_alloc(r, sizeof *m);
    struct atsi_jv v = atsi_jv_of(m == NULL ? ATSI_J_FAIL : ATSI_J_MACRO);
    if (m != NULL) {
        m->def = def;
        m->act = r->act;
        v.u.macro = m;
    }
    return v;
}

static struct atsi_jv bad_call(struct atsi_jr *r, const struct atsi_jmacro_def *def,
                               const char *what, const struct atsi_jstr *arg)
{
    static const struct atsi_jstr nameless = {"caller", 6, 6};
    const struct atsi_jstr *name = def->name != NULL ? def->name : &nameless;
    return atsi_jr_error(r, "macro '%.*s' %s '%.*s'", (int)(name->n < 60 ? name->n : 60), name->p,
                         what, (int)(arg->n < 60 ? arg->n : 60), arg->p);
}

/* The named argument, taken off the list of the unused (used[i] belongs to entry i). */
static struct atsi_jv take_keyword(const struct atsi_jcall *c, bool *used,
                                   const struct atsi_jstr *name)
{
    const struct atsi_jentry *e =
        c->kw != NULL ? atsi_jdict_find_str(c->kw, name->p, name->n) : NULL;
    if (e == NULL)
        return atsi_jv_of(ATSI_J_MISSING);
    used[e - c->kw->e] = true;
    return e->value;
}

/* The rest of the named arguments: for kwargs, else there may be none. */
static bool rest_of_keywords(struct atsi_jr *r, const struct atsi_jmacro_def *def,
                             const struct atsi_jcall *c, const bool *used, struct atsi_jact *act)
{
    struct atsi_jdict *rest = def->takes_kwargs ? atsi_jdict_new(r, 0) : NULL;
    for (size_t i = 0; c->kw != NULL && i < c->kw->n; i++) {
        if (used[i])
            continue;
        if (!def->takes_kwargs) {
            (void)bad_call(r, def, "takes no argument", c->kw->e[i].key.u.s);
            return false;
        }
        if (rest == NULL || !atsi_jdict_set(r, rest, c->kw->e[i].key, c->kw->e[i].value))
            return false;
    }
    if (def->takes_kwargs)
        act->v[def->kwargs_slot] = atsi_jv_dict(rest);
    return r->status == ATSI_OK;
}

static bool rest_of_positions(struct atsi_jr *r, const struct atsi_jmacro_def *def,
                              const struct atsi_jcall *c, struct atsi_jact *act)
{
    struct atsi_jitems rest = atsi_jitems_of(r);
    for (size_t i = def->n_params; i < c->n_pos; i++) {
        if (!def->takes_varargs) {
            (void)atsi_jr_error(
                r, "macro '%.*s' takes not more than %zu argument(s), %zu given",
                def->name != NULL ? (int)(def->name->n < 60 ? def->name->n : 60) : 6,
                def->name != NULL ? def->name->p : "caller", def->n_params, c->n_pos);
            return false;
        }
        if (!atsi_jitems_add(&rest, c->pos[i]))
            return false;
    }
    if (def->takes_varargs)
        act->v[def->varargs_slot] = atsi_jitems_tuple(&rest);
    return r->status == ATSI_OK;
}

static bool bind(struct atsi_jr *r, const struct atsi_jmacro_def *def, const struct atsi_jcall *c,
                 struct atsi_jact *act)
{
    static const struct atsi_jstr caller_name = {"caller", 6, 6};
    static const struct atsi_jstr hint = {"no caller defined", 17, 17};
    bool *used = atsi_jr_array(r, c->kw != NULL ? c->kw->n : 0, sizeof *used);
    if (used == NULL)
        return false;
    for (size_t i = 0; i < def->n_params; i++)
        act->v[def->param_slot[i]] =
            i < c->n_pos ? c->pos[i] : take_keyword(c, used, def->param[i]);
    if (def->takes_caller && !def->explicit_caller) {
        struct atsi_jv caller = take_keyword(c, used, &caller_name);
        if (caller.type == ATSI_J_MISSING || caller.type == ATSI_J_NONE)
            caller = atsi_jv_undef(&hint, ATSI_JUNDEF_HINT);
        act->v[def->caller_slot] = caller;
    }
    return rest_of_keywords(r, def, c, used, act) && rest_of_positions(r, def, c, act);
}

/* Parameters that were not given get their defaults; without one they are undefined. */
static bool fill_defaults(struct atsi_jr *r, const struct atsi_jmacro_def *def)
{
    size_t first = def->n_params - def->defaults.n;
    for (size_t i = 0; i < def->n_params; i++) {
        struct atsi_jv *v = &r->act->v[def->param_slot[i]];
        if (v->type != ATSI_J_MISSING)
            continue;
        *v = i >= first ? atsi_jeval(r, def->defaults.v[i - first])
                        : atsi_jv_undef(def->param[i], ATSI_JUNDEF_NAME);
        if (v->type == ATSI_J_FAIL)
            return false;
    }
    return true;
}

struct atsi_jv atsi_jmacro_call(struct atsi_jr *r, const struct atsi_jmacro *m,
                                const struct atsi_jcall *c)
{
    const struct atsi_jmacro_def *def = m->def;
    struct atsi_jact *before = r->act, *act;
    size_t start = r->out.n;
    enum atsi_jflow flow = ATSI_JFLOW_FAIL;
    if (!atsi_jr_enter(r)) {
        r->depth--;
        return atsi_jv_fail();
    }
    act = atsi_jact_new(r, m->act, def->n_slots);
    if (act != NULL && bind(r, def, c, act)) {
        r->act = act;
        if (atsi_jscope_enter(r, &def->scope) && fill_defaults(r, def))
            flow = atsi_jexec_body(r, &def->body);
    }
    r->act = before;
    r->depth--;
    return flow == ATSI_JFLOW_FAIL ? atsi_jv_fail() : atsi_jr_take(r, start);
}

/* ---------------------------------------------------------------- functions of ours */
/* Position of a name in a list of names with spaces between; -1: it is not there. */
static int param_index(const char *params, const struct atsi_jstr *name, size_t *n_out)
{
    int found = -1, i = 0;
    while (*params != '\0') {
        size_t n = strcspn(params, " ");
        if (n == name->n && memcmp(params, name->p, n) == 0)
            found = i;
        i++;
        params += n + (params[n] == ' ');
    }
    *n_out = (size_t)i;
    return found;
}

static bool bind_keywords(struct atsi_jr *r, const struct atsi_jbuiltin *f,
                          const struct atsi_jcall *c, struct atsi_jv *a)
{
    size_t n;
    for (size_t i = 0; c->kw != NULL && i < c->kw->n; i++) {
        const struct atsi_jstr *name = c->kw->e[i].key.u.s;
        int at = f->by_position ? -1 : param_index(f->params, name, &n);
        if (at < 0 || a[at].type != ATSI_J_MISSING) {
            (void)atsi_jr_error(r,
                                at < 0 ? "%s() takes no argument named '%.*s'"
                                       : "%s(): the argument '%.*s' is given twice",
                                f->name, (int)(name->n < 60 ? name->n : 60), name->p);
            return false;
        }
        a[at] = c->kw->e[i].value;
    }
    return true;
}

struct atsi_jv atsi_jbuiltin_call(struct atsi_jr *r, const struct atsi_jbuiltin *f,
                                  const struct atsi_jcall *c)
{
    static const struct atsi_jstr nothing = {"", 0, 0};
    struct atsi_jv a[ATSI_JMAX_PARAMS];
    size_t n;
    if (f->params == NULL)
        return f->fn(r, NULL, c);
    (void)param_index(f->params, &nothing, &n);
    if (c->n_pos > n)
        return atsi_jr_error(r, "%s() takes at most %zu argument(s), %zu given", f->name, n,
                             c->n_pos);
    for (size_t i = 0; i < ATSI_JMAX_PARAMS; i++)
        a[i] = i < c->n_pos ? c->pos[i] : atsi_jv_of(ATSI_J_MISSING);
    if (!bind_keywords(r, f, c, a))
        return atsi_jv_fail();
    for (size_t i = 0; i < f->n_required; i++)
        if (a[i].type == ATSI_J_MISSING)
            return atsi_jr_error(r, "%s() needs at least %d argument(s)", f->name, f->n_required);
    return f->fn(r, a, c);
}

struct atsi_jv atsi_jv_call(struct atsi_jr *r, struct atsi_jv f, const struct atsi_jcall *c)
{
    struct atsi_jcall bound = *c;
    switch (f.type) {
    case ATSI_J_MACRO:
        return atsi_jmacro_call(r, f.u.macro, c);
    case ATSI_J_FUNC:
        return atsi_jbuiltin_call(r, f.u.func, c);
    case ATSI_J_BOUND:
        bound.self = f.u.bound->self;
        return atsi_jbuiltin_call(r, f.u.bound->method, &bound);
    case ATSI_J_LOOP:
        return atsi_jloop_again(r, f.u.loop, c);
    case ATSI_J_UNDEF:
        return atsi_jv_undefined_error(r, f);
    default:
        return atsi_jr_error(r, "'%s' object is not callable", atsi_jv_type_name(f));
    }
}

bool atsi_jarg_int(struct atsi_jr *r, struct atsi_jv v, const char *what, int64_t *out)
{
    if (v.type == ATSI_J_MISSING)
        return true;
    if (atsi_jv_is_int(v)) {
        *out = atsi_jv_as_int(v);
        return true;
    }
    (void)atsi_jr_error(r, "%s must be an integer, not %s", what, atsi_jv_type_name(v));
    return false;
}

bool atsi_jarg_str(struct atsi_jr *r, struct atsi_jv v, const char *what,
                   const struct atsi_jstr **out)
{
    if (v.type == ATSI_J_MISSING || v.type == ATSI_J_NONE)
        return true;
    if (v.type == ATSI_J_STR) {
        *out = v.u.s;
        return true;
    }
    (void)atsi_jr_error(r, "%s must be a string, not %s", what, atsi_jv_type_name(v));
    return false;
}

bool atsi_jarg_flag(struct atsi_jv v, bool otherwise)
{
    return v.type == ATSI_J_MISSING ? otherwise : atsi_jv_truth(v);
}
