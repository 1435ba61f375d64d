/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedule of a round, and whether there is to be a new one.  A plan of another phase,
 * placement or number of tokens, or one that is not this policy's, is always replaced.  Otherwise
 * the paper's algorithms plan anew by Algorithm 3; the backlog ones look for a better plan when a
 * slowdown has changed, and take it if it pays.
 */
#include "dp.h"
#include "sched/answer.h"
#include "sched/arena.h"
#include "sched/resched.h"

#include <string.h>

enum { MAX_COST_CLASSES = 64 };

/* What is remembered of a phase. */
struct phase_memory {
    struct sched_stamp stamp;
    struct sched_resched decided;
    uint32_t slowdown[MAX_COST_CLASSES]; /* at the last decision */
};

struct memory {
    struct phase_memory phase[2];
};

struct call {
    struct dp_settings s;
    struct sched_view view;
    uint8_t *b, *rb, *old; /* placement, new plan, plan in force */
    unsigned char *work;
    struct phase_memory *m; /* NULL: no state was lent */
};

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t dp_schedule_scratch(uint32_t n)
{
    return sched_view_scratch(n) + 3 * SCHED_ROOM(uint8_t, n) +
           most(dp_plan_scratch(n), sched_predict_scratch(n));
}

size_t dp_schedule_state(uint32_t n)
{
    (void)n;
    return sizeof(struct memory);
}

static int open_call(struct call *c, const struct atsi_round *in, struct atsi_err *err)
{
    const struct atsi_problem *p = in->problem;
    unsigned char *at = p->scratch;
    struct memory *memory = in->state;
    int rc = dp_settings_get(&c->s, err);
    if (rc != ATSI_OK)
        return rc;
    if (in->n_classes > MAX_COST_CLASSES)
        return atsi_fail(err, ATSI_EINVAL, "%u cost classes, at most %d are supported",
                         in->n_classes, MAX_COST_CLASSES);
    rc = sched_view_read(p, in->phase, at, &c->view, err);
    if (rc != ATSI_OK)
        return rc;
    at += sched_view_scratch(p->n_items);
    c->b = SCHED_TAKE(&at, uint8_t, p->n_items);
    c->rb = SCHED_TAKE(&at, uint8_t, p->n_items);
    c->old = SCHED_TAKE(&at, uint8_t, p->n_items);
    c->work = at;
    c->m = NULL;
    if (memory != NULL && in->state_bytes >= sizeof *memory)
        c->m = &memory->phase[in->phase];
    c->view.chain.b = c->b;
    return sched_read_sides(p, in->placed, c->b, err);
}

static int by_backlog(const struct dp_settings *s)
{
    return s->algorithm == DP_BACKLOG || s->algorithm == DP_BACKLOG_CO;
}

/* The plan in force, if it is this policy's answer to the same question and still legal. */
static int plan_in_force(struct call *c, const struct atsi_round *in)
{
    return c->m != NULL && sched_stamp_holds(&c->m->stamp, in) &&
           sched_read_sides(in->problem, in->in_force, c->old, NULL) == ATSI_OK &&
           sched_plan_check(&c->view.chain, c->old, NULL) == ATSI_OK;
}

/* Whether slowdowns ask for a decision; if so they are remembered. */
static int must_decide(struct call *c, const struct atsi_round *in, int have_plan)
{
    struct sched_resched *r = &c->m->decided;
    if (!have_plan) {
        memset(c->m->slowdown, 0, sizeof c->m->slowdown);
        *r = (struct sched_resched){0};
    }
    r->eps_pm = by_backlog(&c->s) ? c->s.regret_eps_pm : c->s.eps_pm;
    r->tau_tpots = by_backlog(&c->s) ? 0 : c->s.tau;
    r->prev = c->m->slowdown;
    r->n = in->n_classes;
    return sched_resched_step(r, (int64_t)in->now_ns, (int64_t)in->observed_ns, in->slowdown_now);
}

/* Whether the new plan is worth the change. */
static int pays(struct call *c, const struct atsi_round *in)
{
    uint32_t rounds = dp_plan_rounds(in->phase);
    int64_t before, after;
    if (!by_backlog(&c->s))
        return 1;
    before = sched_judge(&c->view.chain, c->old, rounds, NULL, c->work);
    after = sched_judge(&c->view.chain, c->rb, rounds, NULL, c->work);
    return sched_pays(before, after, in->tokens_left, c->s.rebuild_ns);
}

int dp_schedule(const struct atsi_round *in, struct atsi_schedule *out, struct atsi_err *err)
{
    struct call c;
    int have_plan, rc = open_call(&c, in, err);
    if (rc != ATSI_OK)
        return rc;
    have_plan = plan_in_force(&c, in);
    out->evals = 0;
    out->keep = 1;
    if (c.m != NULL && !must_decide(&c, in, have_plan))
        return ATSI_OK;
    out->evals =
        dp_plan_make(&c.s, &c.view.chain, in->phase, have_plan ? c.old : NULL, c.work, c.rb);
    if (have_plan && !pays(&c, in))
        return ATSI_OK;
    sched_write_schedule(&c.view.chain, c.rb, 0, out);
    sched_predict(&c.view.chain, c.rb, in->phase, c.work, out);
    if (c.m != NULL)
        sched_stamp_set(&c.m->stamp, in);
    return ATSI_OK;
}
