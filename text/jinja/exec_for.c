/* SPDX-License-Identifier: Apache-2.0
 *
 * for loops: plain, with a test, recursive.
 */
#include "text/jinja/compare.h"
#include "text/jinja/interp.h"

/* The items of `for ... if`: a generator, so that the test sees what the body changed. */
struct tested {
    const struct atsi_jnode *n;
    struct atsi_jact *act;
};

static int next_tested(struct atsi_jr *r, struct atsi_jgen *g, struct atsi_jv *out)
{
    const struct tested *t = g->call;
    struct atsi_jact *before = r->act;
    bool good = false;
    int more;
    while (!good && (more = atsi_jiter_next(r, &g->src, out)) > 0) {
        struct atsi_jv v = atsi_jv_fail();
        r->act = t->act;
        if (atsi_jassign(r, t->n->test_target, *out))
            v = atsi_jeval(r, t->n->c);
        good = atsi_jv_truth(v);
        if (good)
            *out = atsi_jeval(r, t->n->test_target); /* several targets: a tuple */
        r->act = before;
        if (v.type == ATSI_J_FAIL || out->type == ATSI_J_FAIL)
            return -1;
    }
    return good ? 1 : more;
}

static struct atsi_jv with_test(struct atsi_jr *r, const struct atsi_jnode *n, struct atsi_jv items)
{
    struct tested *t;
    struct atsi_jgen *g;
    if (n->c == NULL)
        return items;
    t = atsi_jr_alloc(r, sizeof *t);
    g = atsi_jgen_new(r, items, next_tested);
    if (t == NULL || g == NULL || !atsi_jscope_enter(r, &n->test))
        return atsi_jv_fail();
    t->n = n;
    t->act = r->act;
    g->call = t;
    return atsi_jv_gen(g);
}

static struct atsi_jloop *new_loop(struct atsi_jr *r, const struct atsi_jnode *n,
                                   struct atsi_jv items, int64_t depth0)
{
    struct atsi_jloop *l = atsi_jr_alloc(r, sizeof *l);
    if (l == NULL || !atsi_jiter_open(r, items, &l->it))
        return NULL;
    l->iterable = items;
    l->index0 = -1;
    l->depth0 = depth0;
    l->before = l->current = l->changed = atsi_jv_of(ATSI_J_MISSING);
    l->recursive = n->flag ? n : NULL;
    return l;
}

/* One round.  *whole: the body ran to its end. */
static enum atsi_jflow run_body(struct atsi_jr *r, const struct atsi_jnode *n, struct atsi_jloop *l,
                                struct atsi_jv item, bool *whole)
{
    enum atsi_jflow flow;
    if (!atsi_jassign(r, n->a, item))
        return ATSI_JFLOW_FAIL;
    if (n->has_loop) {
        struct atsi_jv v = atsi_jv_of(ATSI_J_LOOP);
        v.u.loop = l;
        r->act->v[n->loop_slot] = v;
    }
    if (!atsi_jscope_enter(r, &n->scope))
        return ATSI_JFLOW_FAIL;
    flow = atsi_jexec_body(r, &n->body);
    *whole = *whole || flow == ATSI_JFLOW_ON;
    return flow;
}

static enum atsi_jflow run_loop(struct atsi_jr *r, const struct atsi_jnode *n, struct atsi_jloop *l)
{
    enum atsi_jflow flow = ATSI_JFLOW_ON;
    struct atsi_jv item;
    bool whole = false;
    int more = 1;
    while (flow != ATSI_JFLOW_FAIL && flow != ATSI_JFLOW_BREAK) {
        more = atsi_jloop_next(r, l, &item);
        if (more != 1)
            break;
        flow = run_body(r, n, l, item, &whole);
    }
    atsi_jscope_leave(r, &n->scope);
    if (flow == ATSI_JFLOW_FAIL || more < 0)
        return ATSI_JFLOW_FAIL;
    /* As compiled by Jinja2: a round that `continue` or `break` ended does not count. */
    if (n->orelse.n == 0 || whole)
        return ATSI_JFLOW_ON;
    if (!atsi_jscope_enter(r, &n->else_scope))
        return ATSI_JFLOW_FAIL;
    flow = atsi_jexec_body(r, &n->orelse);
    atsi_jscope_leave(r, &n->else_scope);
    return flow;
}

static enum atsi_jflow start_loop(struct atsi_jr *r, const struct atsi_jnode *n,
                                  struct atsi_jv items, int64_t depth0)
{
    struct atsi_jact *before = r->act;
    struct atsi_jloop *l = NULL;
    enum atsi_jflow flow = ATSI_JFLOW_FAIL;
    if (n->flag) {
        struct atsi_jact *act = atsi_jact_new(r, before, n->n_slots);
        if (act == NULL)
            return ATSI_JFLOW_FAIL;
        r->act = act;
    }
    items = with_test(r, n, items);
    if (items.type != ATSI_J_FAIL)
        l = new_loop(r, n, items, depth0);
    if (l != NULL) {
        l->act = before;
        flow = run_loop(r, n, l);
    }
    r->act = before;
    return flow;
}

enum atsi_jflow atsi_jexec_for(struct atsi_jr *r, const struct atsi_jnode *n)
{
    struct atsi_jv items = atsi_jeval(r, n->b);
    r->line = n->line;
    return items.type == ATSI_J_FAIL ? ATSI_JFLOW_FAIL : start_loop(r, n, items, 0);
}

struct atsi_jv atsi_jloop_again(struct atsi_jr *r, const struct atsi_jloop *l,
                                const struct atsi_jcall *c)
{
    struct atsi_jact *before = r->act;
    size_t start = r->out.n;
    enum atsi_jflow flow;
    if (l->recursive == NULL)
        return atsi_jr_error(r, "the loop must have the 'recursive' marker to be called");
    if (c->n_pos != 1 || c->kw != NULL)
        return atsi_jr_error(r, "loop() takes one argument");
    r->act = l->act;
    flow = start_loop(r, l->recursive, c->pos[0], l->depth0 + 1);
    r->act = before;
    return flow == ATSI_JFLOW_FAIL ? atsi_jv_fail() : atsi_jr_take(r, start);
}
