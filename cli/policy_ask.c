/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking a plugin's policy about an instance: the chain as a problem of policy.h, the answer back
 * as sides, checked on the chain.  What a chain knows per operator and a problem once (the cut
 * before a streamed weight) is the largest of all.
 */
#include "cli/policy.h"

#include "sched/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEADY = 3 /* rounds after which a repeated plan has settled */ };

/* The memory of one question and its answer.  n: operators. */
struct question {
    struct atsi_item *item;        /* [n] */
    const struct atsi_item **ptrs; /* [n] */
    struct atsi_item_cost *cost;   /* [2][n] */
    struct atsi_edge *edge;        /* [n - 1] */
    uint32_t depth[2 * SCHED_MAX_CLASSES];
    uint64_t slot_bytes[2 * SCHED_MAX_CLASSES];
    uint64_t budget[2];
    uint32_t slowdown[4]; /* per mille: CPU, GPU, activations, transfers */
    void *state, *work;
    int32_t *placed;
    struct atsi_problem problem;
    struct atsi_placement place;
    struct atsi_schedule schedule;
};

static void *room(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
}

static void question_close(struct question *q)
{
    free(q->item);
    free((void *)q->ptrs); /* the array, not what it points to */
    free(q->cost);
    free(q->edge);
    free(q->state);
    free(q->work);
    free(q->placed);
    free(q->problem.scratch);
    free(q->place.device);
    free(q->place.expert_slots);
    free(q->schedule.device);
    free(q->schedule.order);
    free(q->schedule.after);
    free(q->schedule.slot);
}

static bool allocate(struct question *q, uint32_t n, const struct atsi_policy_ops *ops)
{
    size_t state = ops->state_bytes != NULL ? ops->state_bytes(n) : 0, scratch;
    size_t work = sched_timeline_scratch(n, STEADY);
    scratch = ops->scratch_bytes(n);
    if (scratch > SIZE_MAX / 2 || state > SIZE_MAX / 2)
        return false;
    q->item = calloc((size_t)n + 1, sizeof *q->item);
    q->ptrs = calloc((size_t)n + 1, sizeof(const struct atsi_item *));
    q->cost = calloc(2 * (size_t)n + 1, sizeof *q->cost);
    q->edge = calloc((size_t)n + 1, sizeof *q->edge);
    q->state = calloc(1, state + 1);
    q->work = room(work);
    q->placed = calloc((size_t)n + 1, sizeof *q->placed);
    q->problem.scratch = room(scratch);
    q->place.device = calloc((size_t)n + 1, sizeof *q->place.device);
    q->place.expert_slots = calloc((size_t)n + 1, sizeof *q->place.expert_slots);
    q->schedule.device = calloc((size_t)n + 1, sizeof *q->schedule.device);
    q->schedule.order = calloc((size_t)n + 1, sizeof *q->schedule.order);
    q->schedule.after = calloc((size_t)n + 1, sizeof *q->schedule.after);
    q->schedule.slot = calloc((size_t)n + 1, sizeof *q->schedule.slot);
    if (q->problem.scratch != NULL)
        memset(q->problem.scratch, 0, scratch); /* or the time measured is that of page faults */
    return q->item != NULL && q->ptrs != NULL && q->cost != NULL && q->edge != NULL &&
           q->state != NULL && q->work != NULL && q->placed != NULL && q->problem.scratch != NULL &&
           q->place.device != NULL && q->place.expert_slots != NULL && q->schedule.device != NULL &&
           q->schedule.order != NULL && q->schedule.after != NULL && q->schedule.slot != NULL;
}

static void fill_item(struct question *q, const struct sched_chain *ch, uint32_t i)
{
    const struct sched_op *op = &ch->op[i];
    q->item[i] = (struct atsi_item){.struct_size = sizeof *q->item,
                                    .role = op->is_exp ? ATSI_ROLE_EXPERT : ATSI_ROLE_FFN,
                                    .layer = op->layer,
                                    .router = op->rel,
                                    .slot_class = op->role,
                                    .can_promote = op->promo,
                                    .pinned = op->pinned,
                                    .n_experts = op->is_exp ? 1 : 0,
                                    .resident_bytes = (uint64_t)op->s,
                                    .touched_bytes = (uint64_t)op->s,
                                    .name = "operator"};
    q->ptrs[i] = &q->item[i];
    q->cost[i] = (struct atsi_item_cost){.run_ns = (uint64_t)op->tc,
                                         .in_ns = (uint64_t)op->gc,
                                         .contended_run = (uint32_t)lround(1000 * op->km),
                                         .contended_copy = (uint32_t)lround(1000 * op->kx)};
    q->cost[ch->n + i] = (struct atsi_item_cost){.run_ns = (uint64_t)op->tg,
                                                 .transfer_ns = op->promo ? (uint64_t)op->w : 0,
                                                 .in_ns = (uint64_t)op->cg,
                                                 .in_copy_ns = (uint64_t)op->c,
                                                 .contended_run = 1000,
                                                 .contended_copy = 1000};
    if (i > 0)
        q->edge[i - 1] = (struct atsi_edge){i - 1, i, 0};
    if ((uint64_t)op->evt > q->problem.split_ns)
        q->problem.split_ns = (uint64_t)op->evt;
    for (uint32_t f = 0; f < 2; f++)
        if ((uint64_t)op->s > q->slot_bytes[f * ch->n_classes + op->role])
            q->slot_bytes[f * ch->n_classes + op->role] = (uint64_t)op->s;
}

static void fill(struct question *q, const struct sched_chain *ch)
{
    void *scratch = q->problem.scratch;
    q->budget[0] = UINT64_MAX;
    q->budget[1] = (uint64_t)ch->budget;
    q->problem = (struct atsi_problem){.struct_size = sizeof q->problem,
                                       .n_items = ch->n,
                                       .n_devices = 2,
                                       .n_edges = ch->n > 0 ? ch->n - 1 : 0,
                                       .n_slot_classes = ch->n_classes,
                                       .items = q->ptrs,
                                       .prefill = q->cost,
                                       .decode = q->cost,
                                       .edges = q->edge,
                                       .budget_bytes = q->budget,
                                       .slot_depth = q->depth,
                                       .slot_bytes = q->slot_bytes,
                                       .mix_prompt = 1,
                                       .mix_generated = 128,
                                       .contended_act = (uint32_t)lround(1000 * ch->am),
                                       .contended_act_copy = (uint32_t)lround(1000 * ch->ax),
                                       .routing_ns = (uint64_t)ch->rlat,
                                       .result_ns = (uint64_t)ch->out,
                                       .gap_ns = (uint64_t)ch->gap,
                                       .scratch = scratch,
                                       .prefill_tokens = 1};
    for (uint32_t k = 0; k < ch->n_classes; k++)
        q->depth[k] = q->depth[ch->n_classes + k] = ch->depth[k];
    for (uint32_t i = 0; i < ch->n; i++)
        fill_item(q, ch, i);
    for (int k = 0; k < 4; k++)
        q->slowdown[k] = 1000;
    q->place.struct_size = sizeof q->place;
    q->schedule.struct_size = sizeof q->schedule;
    q->place.n_items = q->schedule.n_items = ch->n;
}

/* ---------------------------------------------------------------- questions */
static int sides(const struct sched_chain *ch, const int32_t *device, uint8_t *out,
                 struct atsi_err *err)
{
    for (uint32_t i = 0; i < ch->n; i++) {
        if (device[i] != SCHED_CPU && device[i] != SCHED_GPU)
            return atsi_fail(err, ATSI_EINVAL, "operator %u: device %d, there are 2", i, device[i]);
        out[i] = (uint8_t)device[i];
    }
    return ATSI_OK;
}

static int ask_place(const struct atsi_policy_ops *ops, struct question *q,
                     const struct sched_chain *ch, uint8_t *b, struct atsi_err *err)
{
    uint64_t used = 0;
    int rc = ops->place(&q->problem, &q->place, err);
    if (rc == ATSI_OK)
        rc = sides(ch, q->place.device, b, err);
    for (uint32_t i = 0; i < ch->n && rc == ATSI_OK; i++) {
        used += b[i] == SCHED_GPU ? (uint64_t)ch->op[i].s : 0;
        if (ch->op[i].pinned >= 0 && b[i] != ch->op[i].pinned)
            rc = atsi_fail(err, ATSI_EINVAL, "operator %u is pinned to %d and placed on %d", i,
                           ch->op[i].pinned, b[i]);
    }
    if (rc == ATSI_OK && used > q->budget[1])
        rc = atsi_fail(err, ATSI_EINVAL, "over budget: %llu bytes on the GPU, %llu allowed",
                       (unsigned long long)used, (unsigned long long)q->budget[1]);
    return rc;
}

/* One round, and the last of some. */
static int judge(struct question *q, const struct sched_chain *ch, struct sched_run run,
                 struct policy_answer *out, struct atsi_err *err)
{
    int rc;
    run.rounds = 1;
    run.n_order = q->schedule.n_transfers;
    rc = sched_run_check(ch, out->rb, &run, q->work, err);
    if (rc != ATSI_OK)
        return rc;
    out->fluid = sched_fluid(ch, out->rb, &run, q->work);
    run.rounds = STEADY;
    out->steady = sched_fluid(ch, out->rb, &run, q->work);
    if (out->fluid < 0 || out->steady < 0)
        return atsi_fail(err, ATSI_EINVAL, "its order of transfers blocks");
    return ATSI_OK;
}

static int ask_schedule(const struct atsi_policy_ops *ops, struct question *q,
                        const struct sched_chain *ch, struct policy_answer *out,
                        struct atsi_err *err)
{
    struct sched_run run = {.after = q->schedule.after, .order = q->schedule.order};
    struct atsi_round in = {.struct_size = sizeof in,
                            .phase = ATSI_PHASE_DECODE,
                            .n_tokens = 1,
                            .tokens_left = 64,
                            .problem = &q->problem,
                            .placed = q->placed,
                            .now_ns = 1,
                            .slowdown_then = q->slowdown,
                            .slowdown_now = q->slowdown,
                            .n_classes = 4,
                            .state = q->state,
                            .state_bytes = ops->state_bytes != NULL ? ops->state_bytes(ch->n) : 0};
    int rc;
    for (uint32_t i = 0; i < ch->n; i++) {
        q->placed[i] = q->schedule.device[i] = ch->b[i];
        q->schedule.after[i] = q->schedule.slot[i] = -1;
    }
    rc = ops->schedule != NULL ? ops->schedule(&in, &q->schedule, err) : ATSI_OK;
    if (rc == ATSI_OK && q->schedule.keep != 0)
        rc = atsi_fail(err, ATSI_EINVAL, "it keeps a plan, but none is in force");
    if (rc == ATSI_OK)
        rc = sides(ch, q->schedule.device, out->rb, err);
    if (rc == ATSI_OK)
        rc = sched_plan_check(ch, out->rb, err);
    if (rc == ATSI_OK)
        rc = judge(q, ch, run, out, err);
    out->evals = q->schedule.evals;
    return rc;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail for this clock */
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

int policy_ask(const struct atsi_policy_ops *ops, const struct sched_chain *instance, bool place,
               struct policy_answer *out, struct atsi_err *err)
{
    struct sched_chain ch = *instance;
    struct question q = {.item = NULL};
    uint64_t start;
    int rc = ATSI_OK;
    if (!allocate(&q, ch.n, ops)) {
        question_close(&q);
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for %u operators", ch.n);
    }
    fill(&q, &ch);
    memcpy(out->b, ch.b, ch.n);
    ch.b = out->b;
    start = now_ns();
    if (place)
        rc = ask_place(ops, &q, &ch, out->b, err);
    if (rc == ATSI_OK)
        rc = ask_schedule(ops, &q, &ch, out, err);
    out->ns = now_ns() - start;
    question_close(&q);
    return rc;
}
