/* SPDX-License-Identifier: Apache-2.0
 *
 * Fixed placements: what other systems do, on the same kernels.  Nothing moves in decode, but in
 * mode stream; in prefill everything that can move does from a number of tokens on.
 */
#include "sched/answer.h"
#include "sched/arena.h"
#include "sched/fit.h"
#include "sched/place.h"
#include "static.h"

#include <string.h>

/* The scratch of one call. */
struct call {
    struct static_settings s;
    struct sched_view view;
    uint8_t *b, *rb;
    int32_t *after; /* [n] the operator before each; NULL: transfers overlap what they can */
    unsigned char *work;
    size_t room; /* bytes of work */
};

struct memory {
    struct sched_stamp stamp[2]; /* by phase */
};

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t work_bytes(uint32_t n)
{
    return most(sched_fit_room(n), most(sched_predict_scratch(n), sched_grain_scratch(n)));
}

static size_t scratch_bytes(uint32_t n)
{
    return sched_view_scratch(n) + 2 * SCHED_ROOM(uint8_t, n) + SCHED_ROOM(int32_t, n) +
           work_bytes(n);
}

static int open_call(struct call *c, const struct atsi_problem *p, uint32_t phase,
                     struct atsi_err *err)
{
    unsigned char *at = p->scratch;
    int rc = static_settings_get(&c->s, err);
    if (rc != ATSI_OK)
        return rc;
    rc = sched_view_read(p, phase, at, &c->view, err);
    if (rc != ATSI_OK)
        return rc;
    at += sched_view_scratch(p->n_items);
    c->b = SCHED_TAKE(&at, uint8_t, p->n_items);
    c->rb = SCHED_TAKE(&at, uint8_t, p->n_items);
    c->after = SCHED_TAKE(&at, int32_t, p->n_items);
    for (uint32_t i = 0; i < p->n_items; i++)
        c->after[i] = (int32_t)i - 1;
    if (c->s.overlap)
        c->after = NULL;
    c->work = at;
    c->room = work_bytes(p->n_items);
    return ATSI_OK;
}

/* ---------------------------------------------------------------- rounds */
static int streams(const struct static_settings *s, uint32_t phase, uint32_t n_tokens)
{
    if (s->mode == STATIC_STREAM)
        return 1;
    return phase == ATSI_PHASE_PREFILL && s->stream_min > 0 && n_tokens >= s->stream_min;
}

static void make_plan(struct call *c, uint32_t phase, uint32_t n_tokens)
{
    int all = streams(&c->s, phase, n_tokens);
    c->view.chain.b = c->b;
    for (uint32_t i = 0; i < c->view.chain.n; i++)
        c->rb[i] = c->b[i] == SCHED_GPU || (all && sched_is_free(&c->view.chain, i));
}

/* Whether the plan in force is the one in c->rb, and was given by this policy. */
static int stands(const struct call *c, const struct atsi_round *in)
{
    const struct memory *m = in->state;
    if (m == NULL || in->state_bytes < sizeof *m || !sched_stamp_holds(&m->stamp[in->phase], in))
        return 0;
    for (uint32_t i = 0; i < c->view.chain.n; i++)
        if (in->in_force[i] != c->rb[i])
            return 0;
    return 1;
}

static int schedule(const struct atsi_round *in, struct atsi_schedule *out, struct atsi_err *err)
{
    struct memory *m = in->state;
    struct call c;
    int rc = open_call(&c, in->problem, in->phase, err);
    if (rc == ATSI_OK)
        rc = sched_read_sides(in->problem, in->placed, c.b, err);
    if (rc != ATSI_OK)
        return rc;
    make_plan(&c, in->phase, in->n_tokens);
    out->evals = 1;
    if (stands(&c, in)) {
        out->keep = 1;
        return ATSI_OK;
    }
    sched_write_schedule(&c.view.chain, c.rb, c.after != NULL, out);
    sched_predict(&c.view.chain, c.rb, in->phase, c.work, out);
    if (m != NULL && in->state_bytes >= sizeof *m)
        sched_stamp_set(&m->stamp[in->phase], in);
    return ATSI_OK;
}

static size_t state_bytes(uint32_t n)
{
    (void)n;
    return sizeof(struct memory);
}

/* ---------------------------------------------------------------- placement */
/* What the two counts leave to the host is pinned there; what the user pinned stays. */
static void apply_counts(const struct static_settings *s, struct sched_view *v)
{
    int64_t last = -1, first;
    for (uint32_t i = 0; i < v->chain.n; i++)
        last = v->op[i].layer > last ? v->op[i].layer : last;
    first = last + 1 - s->n_gpu_layers;
    for (uint32_t i = 0; i < v->chain.n; i++) {
        struct sched_op *op = &v->op[i];
        int left = s->n_gpu_layers >= 0 && op->layer < first;
        left |= op->is_exp && op->layer < s->n_cpu_moe;
        if (left && op->pinned < 0)
            op->pinned = SCHED_CPU;
    }
}

static int find_placement(struct call *c, struct atsi_err *err)
{
    static const enum sched_grain grains[] = {[STATIC_LAYER] = SCHED_BY_LAYER,
                                              [STATIC_EXPERT] = SCHED_BY_EXPERT,
                                              [STATIC_STREAM] = SCHED_BY_LAYER,
                                              [STATIC_DENSITY] = SCHED_BY_DENSITY};
    if (c->s.mode == STATIC_ALG1)
        return sched_fit(&c->view, SCHED_UNIT, c->work, c->room, c->b, err);
    if (c->s.mode != STATIC_DENSITY)
        apply_counts(&c->s, &c->view);
    return sched_place_grain(&c->view.chain, grains[c->s.mode], 0, c->work, c->b, err);
}

/* Duration of a round of a phase on the placement in c->b. */
static int predict(struct call *c, const struct atsi_problem *p, uint32_t phase, uint64_t *ns_out,
                   struct atsi_err *err)
{
    int rc = sched_view_read(p, phase, p->scratch, &c->view, err);
    if (rc != ATSI_OK)
        return rc;
    make_plan(c, phase, phase == ATSI_PHASE_PREFILL ? sched_problem_chunk_tokens(p) : 1);
    *ns_out = (uint64_t)sched_judge(&c->view.chain, c->rb, sched_predict_rounds(phase), c->after,
                                    c->work);
    return ATSI_OK;
}

static int place(const struct atsi_problem *in, struct atsi_placement *out, struct atsi_err *err)
{
    struct call c;
    int rc;
    static_settings_again();
    rc = open_call(&c, in, ATSI_PHASE_DECODE, err);
    if (rc == ATSI_OK)
        rc = sched_view_check_pins(&c.view, err);
    if (rc == ATSI_OK)
        rc = find_placement(&c, err);
    if (rc == ATSI_OK)
        rc = sched_write_placement(in, c.b, out, err);
    if (rc == ATSI_OK)
        rc = predict(&c, in, ATSI_PHASE_DECODE, &out->predicted_decode_ns, err);
    if (rc == ATSI_OK)
        rc = predict(&c, in, ATSI_PHASE_PREFILL, &out->predicted_prefill_ns, err);
    return rc;
}

const struct atsi_policy_ops static_policy_ops = {.struct_size = sizeof static_policy_ops,
                                                  .scratch_bytes = scratch_bytes,
                                                  .place = place,
                                                  .schedule = schedule,
                                                  .state_bytes = state_bytes};
