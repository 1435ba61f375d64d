/* SPDX-License-Identifier: Apache-2.0
 * Expert caches on simulated devices. */
#include "core/round/sim_experts.h"

#include "core/experts/ways.h"

#include <stdlib.h>
#include <string.h>

#define NOT_YET 0xFFU

struct group {
    const struct atsi_cache_group *g;
    struct atsi_modelled miss, hit, there, back, move; /* of the round */
    struct atsi_op miss_op, hit_op, idle_op;
    const struct atsi_op **host_ops; /* [g->n] the misses' work, then nothing */
    const struct atsi_op *accel_ops[1];
    struct atsi_event *ready, *done; /* inputs are there; results are back */
    struct atsi_event **arrival;     /* [n_slots] */
    int32_t used[ATSI_BOOKS_USED];
    uint32_t n_hits;
};

struct atsi_sim_experts {
    struct atsi_sim_experts_params p;
    struct atsi_exec_source source;
    const struct atsi_exec_source *inner;
    const struct atsi_question *q;
    const struct atsi_exec_devices *d;
    struct atsi_books *books;
    struct group *groups;
    uint32_t n_groups;
    int32_t *group_at;  /* [n_items] group that begins there, -1 */
    uint8_t *ran_on;    /* [n_items] device in this round, NOT_YET */
    uint32_t *layer_of; /* [n_groups] of the trace */
    struct atsi_way way;
    struct atsi_modelled nothing;
};

/* ---------------------------------------------------------------- who comes in */
/* The bound's copies cost nothing and are not limited. */
static bool is_free(const struct atsi_sim_experts *x)
{
    return x->p.way == ATSI_CACHE_CLAIRVOYANT;
}

static int send(struct atsi_sim_experts *x, uint32_t l, const struct atsi_expert_swaps *s,
                struct atsi_err *err)
{
    struct group *g = &x->groups[l];
    int rc = ATSI_OK;
    for (uint32_t k = 0; k < s->n && rc == ATSI_OK; k++) {
        struct atsi_copyv req = {
            .struct_size = sizeof req, .signal = g->arrival[s->evict[k]], .modelled = &g->move};
        if (is_free(x))
            atsi_books_arrived(x->books, l, (uint32_t)s->evict[k]);
        else
            rc = x->d->tx_ops->copyv(x->d->tx, x->d->copy_engine, NULL, &req, err);
    }
    return rc;
}

static void take_arrivals(struct atsi_sim_experts *x, uint32_t l)
{
    struct group *g = &x->groups[l];
    for (uint32_t s = 0; s < g->g->n_slots; s++)
        if (atsi_books_locked(x->books, l, s) &&
            x->d->ops[ATSI_DEVICE_ACCEL]->event_query(g->arrival[s]) == 1)
            atsi_books_arrived(x->books, l, s);
}

/* ---------------------------------------------------------------- a group's step */
static int32_t group_of(const struct atsi_sim_experts *x, const struct atsi_plan *plan,
                        uint32_t step)
{
    const struct atsi_step *s = &plan->steps[step];
    bool host = s->kind == ATSI_STEP_RUN && s->device == ATSI_DEVICE_HOST;
    return x->group_at != NULL && host ? x->group_at[s->first] : -1;
}

static void route(struct atsi_sim_experts *x, uint32_t l)
{
    struct group *g = &x->groups[l];
    const uint16_t *ids = atsi_routing_ids(x->p.routing, x->way.token, x->layer_of[l]);
    int32_t slot[ATSI_BOOKS_USED];
    uint64_t used = g->g->n_used;
    take_arrivals(x, l);
    for (uint32_t k = 0; k < used; k++)
        g->used[k] = ids[k];
    atsi_books_look(x->books, l, g->used, slot);
    g->n_hits = 0;
    for (uint32_t k = 0; k < used; k++)
        g->n_hits += slot[k] >= 0;
    g->miss.run_ns = g->g->host_ns * (used - g->n_hits);
    g->hit.run_ns = g->g->accel_ns * g->n_hits;
    g->there.run_ns = x->ran_on[g->g->router] == ATSI_DEVICE_ACCEL ? 0 : g->g->to_accel_ns;
    g->back.run_ns = g->g->to_host_ns + (g->n_hits > 1 ? g->n_hits - 1 : 0) * g->g->row_ns;
}

/* Also called to count operations, before the round begins: as many as later. */
static int run(void *ctx, const struct atsi_plan *plan, uint32_t step, int32_t slot,
               struct atsi_split *split, struct atsi_err *err)
{
    struct atsi_sim_experts *x = ctx;
    int32_t l = group_of(x, plan, step);
    struct group *g;
    if (l < 0)
        return x->inner->run(x->inner->ctx, plan, step, slot, split, err);
    g = &x->groups[l];
    if (x->ran_on[g->g->router] != NOT_YET)
        route(x, (uint32_t)l);
    split->ops = g->host_ops;
    split->n_ops = g->g->n;
    return ATSI_OK;
}

static int queue_copy(struct atsi_sim_experts *x, const struct atsi_modelled *m,
                      struct atsi_event *signal, struct atsi_err *err)
{
    struct atsi_copyv req = {.struct_size = sizeof req, .signal = signal, .modelled = m};
    return x->d->tx_ops->copyv(x->d->tx, x->d->copy_kernel, x->d->queue[ATSI_DEVICE_ACCEL], &req,
                               err);
}

static int before(void *ctx, const struct atsi_plan *plan, uint32_t step, struct atsi_err *err)
{
    struct atsi_sim_experts *x = ctx;
    int32_t l = group_of(x, plan, step);
    struct group *g = l >= 0 ? &x->groups[l] : NULL;
    struct atsi_split split = {.struct_size = sizeof split, .n_ops = 1};
    int rc = ATSI_OK;
    if (g == NULL || g->n_hits == 0)
        return ATSI_OK;
    if (g->there.run_ns > 0)
        rc = queue_copy(x, &g->there, g->ready, err);
    split.ops = g->accel_ops;
    if (rc == ATSI_OK)
        rc = x->d->ops[ATSI_DEVICE_ACCEL]->run(x->d->queue[ATSI_DEVICE_ACCEL], &split, err);
    return rc == ATSI_OK ? queue_copy(x, &g->back, g->done, err) : rc;
}

static int after(void *ctx, const struct atsi_plan *plan, uint32_t step, struct atsi_event *event,
                 struct atsi_err *err)
{
    struct atsi_sim_experts *x = ctx;
    const struct atsi_step *s = &plan->steps[step];
    const struct atsi_expert_swaps *swaps = NULL;
    int32_t l = group_of(x, plan, step);
    int rc = ATSI_OK;
    (void)event;
    for (uint32_t i = s->first;
         s->kind == ATSI_STEP_RUN && x->ran_on != NULL && i < s->first + s->n; i++)
        x->ran_on[i] = s->device;
    if (l < 0)
        return ATSI_OK;
    if (x->groups[l].n_hits > 0)
        rc = x->d->ops[ATSI_DEVICE_ACCEL]->event_wait(x->groups[l].done, 0, err);
    if (rc == ATSI_OK)
        rc = atsi_books_choose(x->books, (uint32_t)l, x->groups[l].used, &swaps, err);
    return rc == ATSI_OK ? send(x, (uint32_t)l, swaps, err) : rc;
}

/* ---------------------------------------------------------------- all other steps */
static int move(void *ctx, uint32_t item, uint32_t slot, struct atsi_copyv *req,
                struct atsi_err *err)
{
    const struct atsi_exec_source *in = ((struct atsi_sim_experts *)ctx)->inner;
    return in->move(in->ctx, item, slot, req, err);
}

static int copy(void *ctx, const struct atsi_plan *plan, uint32_t step, struct atsi_copyv *req,
                struct atsi_err *err)
{
    const struct atsi_exec_source *in = ((struct atsi_sim_experts *)ctx)->inner;
    return in->copy(in->ctx, plan, step, req, err);
}

static int result(void *ctx, const struct atsi_plan *plan, struct atsi_copyv *req,
                  struct atsi_err *err)
{
    const struct atsi_exec_source *in = ((struct atsi_sim_experts *)ctx)->inner;
    return in->result(in->ctx, plan, req, err);
}

/* ---------------------------------------------------------------- life */
int atsi_sim_experts_open(const struct atsi_sim_experts_params *p, struct atsi_sim_experts **out,
                          struct atsi_err *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for expert caches");
    (*out)->p = *p;
    return ATSI_OK;
}

void atsi_sim_experts_close(struct atsi_sim_experts *x)
{
    if (x == NULL)
        return;
    for (uint32_t l = 0; l < x->n_groups; l++) {
        struct group *g = &x->groups[l];
        const struct atsi_backend_ops *ops = x->d->ops[ATSI_DEVICE_ACCEL];
        ops->event_close(g->ready);
        ops->event_close(g->done);
        for (uint32_t s = 0; g->arrival != NULL && s < g->g->n_slots; s++)
            ops->event_close(g->arrival[s]);
        free(g->arrival);
        free(g->host_ops);
    }
    atsi_books_close(x->books);
    free(x->groups);
    free(x->group_at);
    free(x->ran_on);
    free(x->layer_of);
    atsi_way_close(&x->way);
    free(x);
}

const struct atsi_exec_source *atsi_sim_experts_wrap(struct atsi_sim_experts *x,
                                                     const struct atsi_exec_source *inner)
{
    x->inner = inner;
    x->source = (struct atsi_exec_source){.ctx = x,
                                          .run = run,
                                          .move = move,
                                          .copy = copy,
                                          .result = result,
                                          .before = before,
                                          .after = after};
    return &x->source;
}

/* Layers of the trace are the model's layers with experts, in order; x->layer_of: those of groups.
 */
static int match_trace(struct atsi_sim_experts *x, const struct atsi_items *it,
                       const struct atsi_cache_group *groups, uint32_t n, struct atsi_err *err)
{
    const struct atsi_routing *r = x->p.routing;
    uint32_t layers = 0, k = 0;
    for (uint32_t i = 0; i < it->n; i++) {
        if (it->items[i].n_experts == 0 || it->items[i].router < 0 ||
            (i > 0 && it->items[i - 1].router == it->items[i].router))
            continue;
        if (k < n && groups[k].first == i)
            x->layer_of[k++] = layers;
        layers++;
    }
    if (layers != r->n_layers || k != n)
        return atsi_fail(err, ATSI_EINVAL, "the trace has %u layers with experts, the model has %u",
                         r->n_layers, layers);
    for (k = 0; k < n; k++) {
        const struct atsi_routing_layer *l = &r->layers[x->layer_of[k]];
        if (groups[k].n_experts != l->n_experts || groups[k].n_used != l->n_used)
            return atsi_fail(err, ATSI_EINVAL,
                             "layer %u of the trace uses %u of %u experts, the model's %u of %u",
                             l->layer, l->n_used, l->n_experts, groups[k].n_used,
                             groups[k].n_experts);
    }
    return ATSI_OK;
}

static struct atsi_modelled busy(const struct atsi_question *q, uint32_t device, uint32_t item)
{
    const struct atsi_item_cost *c =
        &q->cost[ATSI_PHASE_DECODE][(size_t)device * q->items->n + item];
    return (struct atsi_modelled){.struct_size = sizeof(struct atsi_modelled),
                                  .contended_run = c->contended_run,
                                  .contended_copy = c->contended_copy};
}

static int open_group(struct atsi_sim_experts *x, struct group *g,
                      const struct atsi_cache_group *of, struct atsi_err *err)
{
    const struct atsi_backend_ops *ops = x->d->ops[ATSI_DEVICE_ACCEL];
    struct atsi_backend *be = x->d->be[ATSI_DEVICE_ACCEL];
    int rc = ATSI_OK;
    g->g = of;
    g->host_ops = calloc(of->n, sizeof(const struct atsi_op *));
    g->arrival = calloc((size_t)of->n_slots + 1, sizeof(struct atsi_event *));
    if (g->host_ops == NULL || g->arrival == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for expert caches");
    g->miss = busy(x->q, ATSI_DEVICE_HOST, of->first);
    g->hit = busy(x->q, ATSI_DEVICE_ACCEL, of->first);
    g->there = g->back = g->move = x->nothing;
    g->there.contended_run = g->back.contended_run = x->q->p.contended_act;
    g->there.contended_copy = g->back.contended_copy = x->q->p.contended_act_copy;
    g->move.run_ns = of->move_ns;
    g->miss_op = (struct atsi_op){
        .struct_size = sizeof g->miss_op, .item = of->first, .n_rows = 1, .modelled = &g->miss};
    g->hit_op = g->idle_op = g->miss_op;
    g->hit_op.modelled = &g->hit;
    g->idle_op.modelled = &x->nothing;
    g->accel_ops[0] = &g->hit_op;
    for (uint32_t k = 0; k < of->n; k++)
        g->host_ops[k] = k == 0 ? &g->miss_op : &g->idle_op;
    rc = ops->event_open(be, &g->ready, err);
    if (rc == ATSI_OK)
        rc = ops->event_open(be, &g->done, err);
    for (uint32_t s = 0; s < of->n_slots && rc == ATSI_OK; s++)
        rc = ops->event_open(be, &g->arrival[s], err);
    return rc;
}

int atsi_sim_experts_start(struct atsi_sim_experts *x, const struct atsi_question *q,
                           const struct atsi_exec_devices *d, const struct atsi_cache_group *groups,
                           uint32_t n, struct atsi_err *err)
{
    int rc;
    x->q = q;
    x->d = d;
    x->nothing = (struct atsi_modelled){
        .struct_size = sizeof x->nothing, .contended_run = 1000, .contended_copy = 1000};
    x->group_at = malloc(((size_t)q->items->n + 1) * sizeof *x->group_at);
    x->ran_on = calloc((size_t)q->items->n + 1, 1);
    x->groups = calloc((size_t)n + 1, sizeof *x->groups);
    x->layer_of = calloc((size_t)n + 1, sizeof *x->layer_of);
    if (x->group_at == NULL || x->ran_on == NULL || x->groups == NULL || x->layer_of == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for expert caches");
    rc = match_trace(x, q->items, groups, n, err);
    memset(x->group_at, 0xFF, q->items->n * sizeof *x->group_at);
    for (uint32_t l = 0; l < n && rc == ATSI_OK; l++) {
        x->group_at[groups[l].first] = (int32_t)l;
        x->n_groups = l + 1;
        rc = open_group(x, &x->groups[l], &groups[l], err);
    }
    x->way = (struct atsi_way){
        .way = x->p.way, .routing = x->p.routing, .policy = x->p.policy, .layer_of = x->layer_of};
    if (rc == ATSI_OK)
        rc = atsi_way_open(&x->way, err);
    if (rc == ATSI_OK)
        rc = atsi_cache_books(groups, n, x->p.half_life, atsi_way_swap, &x->way, &x->books, err);
    for (uint32_t l = 0; l < n && rc == ATSI_OK; l++)
        atsi_books_fill(x->books, l);
    return rc;
}

void atsi_sim_experts_token(struct atsi_sim_experts *x, uint64_t token, uint64_t grant_ns)
{
    x->way.token = token;
    memset(x->ran_on, NOT_YET, x->q->items->n);
    atsi_books_grant(x->books, is_free(x) ? UINT64_MAX / 8 : grant_ns);
}

void atsi_sim_experts_counts(const struct atsi_sim_experts *x, struct atsi_books_counts *out)
{
    atsi_books_counts(x->books, out);
}
