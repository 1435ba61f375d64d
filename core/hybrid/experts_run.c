/* SPDX-License-Identifier: Apache-2.0
 *
 * A group's step of a decode round.  The router's choice is cut into hits and misses, each in the
 * order of choice and packed: products of experts take any number of them.  Values between the
 * products are packed too; of the last ones each row goes to its place in the choice.
 */
#include "core/hybrid/experts_inside.h"

#include <string.h>

#define SPIN_NS 20000u

static const struct atsi_exec_devices *devices(const struct atsi_experts *x)
{
    return &x->p.accel->d;
}

/* The group whose step this is; NULL: none's. */
static struct atsi_expert_group *group_of(struct atsi_experts *x, const struct atsi_plan *plan,
                                          uint32_t step)
{
    const struct atsi_step *s = &plan->steps[step];
    int32_t k = -1;
    if (s->kind == ATSI_STEP_RUN && s->device == ATSI_DEVICE_HOST &&
        plan->phase == ATSI_PHASE_DECODE)
        k = x->group_at[s->first];
    return k >= 0 && x->all[k].g->n == s->n ? &x->all[k] : NULL;
}

static uint32_t number_of(const struct atsi_experts *x, const struct atsi_expert_group *g)
{
    return (uint32_t)(g - x->all);
}

/* ---------------------------------------------------------------- operations of some experts */
/* A value: of m experts, where it has a part for each. */
static struct atsi_tensor part_of(const struct atsi_experts *x, const struct atsi_expert_group *g,
                                  uint32_t device, int32_t value, uint32_t m)
{
    struct atsi_tensor t = x->p.values->all[device][value];
    if (value == g->x)
        return t;
    t.ne[0] = t.ne[0] / g->g->n_used * m;
    t.row_bytes = t.ne[0] * 4;
    return t;
}

/* The experts' own matrices and biases are those in the slots. */
static void point_to_slots(const struct atsi_expert_group *g, uint32_t node, struct atsi_part *part)
{
    for (uint32_t s = 0; s < g->g->n; s++) {
        const struct atsi_stack *st = &g->stack[s];
        if (st->node != node)
            continue;
        part->weight[0].data = st->at;
        part->weight[0].ne[2] = g->g->n_slots;
        part->weight[1].data = st->bias_at;
        part->weight[1].ne[1] = g->g->n_slots;
    }
}

static void make_part(const struct atsi_experts *x, struct atsi_expert_group *g, uint32_t device,
                      uint32_t node, uint32_t m, struct atsi_part *part)
{
    const struct atsi_source *src = x->p.source;
    const struct atsi_graph_node *n = src->g->nodes[node];
    struct atsi_tensor *chosen = device == ATSI_DEVICE_HOST ? &g->miss_ids : &g->hit_slots;
    chosen->ne[0] = m;
    chosen->row_bytes = (uint64_t)m * 4;
    part->op = src->ops[device][node];
    part->op.n_rows = 1;
    for (int k = 0; k < 2; k++) {
        if (n->src[k] >= 0 && n->src[k] != g->ids) {
            part->src[k] = part_of(x, g, device, n->src[k], m);
            part->op.src[k] = &part->src[k];
        } else if (n->src[k] >= 0) {
            part->op.src[k] = chosen;
        }
        if (n->weight[k] >= 0) {
            part->weight[k] = *atsi_weights_tensor(x->p.weights, (uint32_t)n->weight[k]);
            part->op.weight[k] = &part->weight[k];
        }
    }
    part->dst = part_of(x, g, device, n->dst[0], m);
    part->op.dst[0] = &part->dst;
    if (n->kind == ATSI_OP_SWIGLU && n->src[1] < 0)
        part->op.p.glu.n_group = m;
    else if (n->kind == ATSI_OP_MATMUL_ID)
        part->op.p.moe.n_used = m;
    if (device == ATSI_DEVICE_ACCEL)
        point_to_slots(g, node, part);
    else if (n->dst[0] == g->y)
        part->dst.data = g->rows;
}

/* ---------------------------------------------------------------- hits and misses */
static int take_arrivals(struct atsi_experts *x, struct atsi_expert_group *g, struct atsi_err *err)
{
    uint32_t k = number_of(x, g);
    for (uint32_t s = 0; s < g->g->n_slots; s++) {
        int rc;
        if (!atsi_books_locked(x->books, k, s))
            continue;
        rc = devices(x)->ops[ATSI_DEVICE_ACCEL]->event_query(g->arrival[s]);
        if (rc < 0)
            return atsi_fail(err, rc, "the accelerator failed bringing an expert of %s",
                             x->p.items->items[g->g->first].name);
        if (rc == 1)
            atsi_books_arrived(x->books, k, s);
    }
    return ATSI_OK;
}

static int look(struct atsi_experts *x, struct atsi_expert_group *g, struct atsi_err *err)
{
    const int32_t *ids = x->p.values->all[ATSI_DEVICE_HOST][g->ids].data;
    int32_t slot[ATSI_BOOKS_USED];
    for (uint32_t j = 0; j < g->g->n_used; j++) {
        if (ids[j] < 0 || (uint32_t)ids[j] >= g->g->n_experts)
            return atsi_fail(err, ATSI_EINVAL, "%s: expert %d was chosen, there are %u",
                             x->p.items->items[g->g->first].name, ids[j], g->g->n_experts);
        g->used[j] = ids[j];
    }
    atsi_books_look(x->books, number_of(x, g), g->used, slot);
    g->n_hits = g->n_misses = 0;
    for (uint32_t j = 0; j < g->g->n_used; j++) {
        if (slot[j] >= 0) {
            g->slots[g->n_hits] = slot[j];
            g->hit_at[g->n_hits++] = j;
        } else {
            g->misses[g->n_misses] = g->used[j];
            g->miss_at[g->n_misses++] = j;
        }
    }
    g->looked = true;
    return ATSI_OK;
}

static const struct atsi_op *host_op(struct atsi_experts *x, struct atsi_expert_group *g,
                                     uint32_t node)
{
    if (g->n_hits == 0)
        return &x->p.source->ops[ATSI_DEVICE_HOST][node];
    if (g->n_misses == 0)
        return &x->idle_op;
    make_part(x, g, ATSI_DEVICE_HOST, node, g->n_misses, &g->host[node - g->first_node]);
    return &g->host[node - g->first_node].op;
}

int atsi_experts_run(struct atsi_experts *x, const struct atsi_plan *plan, uint32_t step,
                     const struct atsi_op **ops, struct atsi_err *err)
{
    struct atsi_expert_group *g = group_of(x, plan, step);
    const struct atsi_step *s = &plan->steps[step];
    int rc;
    if (g == NULL || x->p.source->routers[g->g->router].ran == 0)
        return ATSI_OK; /* operations are counted before the round */
    g->n_hits = 0;
    rc = ATSI_OK;
    if (g->filled) {
        rc = take_arrivals(x, g, err);
        if (rc == ATSI_OK)
            rc = look(x, g, err);
    }
    for (uint32_t k = 0; k < s->n_list && rc == ATSI_OK; k++) {
        uint32_t unit = plan->list[s->list + k];
        if (unit >= g->first_node && unit < g->first_node + g->n_nodes)
            ops[k] = host_op(x, g, unit);
    }
    return rc;
}

/* ---------------------------------------------------------------- the accelerator's part */
static int queue_copy(struct atsi_experts *x, const struct atsi_range *r, uint32_t n,
                      struct atsi_event *signal, struct atsi_err *err)
{
    const struct atsi_exec_devices *d = devices(x);
    struct atsi_copyv req = {
        .struct_size = sizeof req, .n_ranges = n, .ranges = r, .signal = signal};
    for (uint32_t k = 0; k < n; k++)
        x->p.source->counts.copy_bytes += r[k].bytes;
    x->p.source->counts.n_copies++;
    return d->tx_ops->copyv(d->tx, d->copy_kernel, d->queue[ATSI_DEVICE_ACCEL], &req, err);
}

/* Slots of the hits, and the input, unless the router read it there. */
static int queue_inputs(struct atsi_experts *x, struct atsi_expert_group *g, struct atsi_err *err)
{
    const struct atsi_tensor *here = &x->p.values->all[ATSI_DEVICE_HOST][g->x];
    const struct atsi_tensor *there = &x->p.values->all[ATSI_DEVICE_ACCEL][g->x];
    bool has = x->p.source->routers[g->g->router].ran == 1 + ATSI_DEVICE_ACCEL;
    g->in[0] = (struct atsi_range){g->slots, g->hit_slots.data, (size_t)g->n_hits * 4};
    g->in[1] = (struct atsi_range){here->data, there->data, (size_t)here->ne[0] * 4};
    return queue_copy(x, g->in, has ? 1 : 2, g->there, err);
}

/* Into memory of their own: where they belong, the host still keeps values of this step. */
static int queue_results(struct atsi_experts *x, struct atsi_expert_group *g, struct atsi_err *err)
{
    const void *from = x->p.values->all[ATSI_DEVICE_ACCEL][g->y].data;
    g->out = (struct atsi_range){from, g->back, (size_t)g->n_hits * g->width * 4};
    return queue_copy(x, &g->out, 1, g->done, err);
}

int atsi_experts_before(struct atsi_experts *x, const struct atsi_plan *plan, uint32_t step,
                        struct atsi_err *err)
{
    struct atsi_expert_group *g = group_of(x, plan, step);
    const struct atsi_exec_devices *d = devices(x);
    struct atsi_split split = {.struct_size = sizeof split};
    int rc;
    if (g == NULL || !g->looked || g->n_hits == 0)
        return ATSI_OK;
    rc = queue_inputs(x, g, err);
    for (uint32_t k = 0; k < g->n_nodes; k++) {
        make_part(x, g, ATSI_DEVICE_ACCEL, g->first_node + k, g->n_hits, &g->accel[k]);
        g->queued[k] = &g->accel[k].op;
    }
    split.ops = g->queued;
    split.n_ops = g->n_nodes;
    if (rc == ATSI_OK)
        rc = d->ops[ATSI_DEVICE_ACCEL]->run(d->queue[ATSI_DEVICE_ACCEL], &split, err);
    if (rc == ATSI_OK)
        rc = queue_results(x, g, err);
    if (rc == ATSI_OK && d->wait_each)
        rc = d->ops[ATSI_DEVICE_ACCEL]->event_wait(g->done, SPIN_NS, err);
    return rc;
}

/* ---------------------------------------------------------------- together */
static void place(const struct atsi_experts *x, const struct atsi_expert_group *g,
                  const float *rows, const uint32_t *at, uint32_t n)
{
    float *to = x->p.values->all[ATSI_DEVICE_HOST][g->y].data;
    for (uint32_t k = 0; k < n; k++)
        memcpy(to + at[k] * g->width, rows + k * g->width, (size_t)g->width * 4);
}

int atsi_experts_send(struct atsi_experts *x, uint32_t group, const struct atsi_expert_swaps *s,
                      struct atsi_err *err)
{
    struct atsi_expert_group *g = &x->all[group];
    const struct atsi_exec_devices *d = devices(x);
    int rc = ATSI_OK;
    for (uint32_t k = 0; k < s->n && rc == ATSI_OK; k++) {
        uint32_t slot = (uint32_t)s->evict[k];
        struct atsi_copyv req = {.struct_size = sizeof req, .signal = g->arrival[slot]};
        rc = atsi_experts_ranges(x, g, s->admit[k], slot, &req.n_ranges, err);
        req.ranges = g->move[slot].r;
        if (rc == ATSI_OK)
            rc = d->tx_ops->copyv(d->tx, d->copy_engine, NULL, &req, err);
        if (rc == ATSI_OK && d->wait_each)
            rc = d->ops[ATSI_DEVICE_ACCEL]->event_wait(req.signal, SPIN_NS, err);
        for (uint32_t r = 0; r < req.n_ranges && rc == ATSI_OK; r++)
            x->p.source->counts.move_bytes += req.ranges[r].bytes;
    }
    x->p.source->counts.n_moves += s->n;
    return rc;
}

/* A policy that answers wrongly gets no swaps, and is told of once. */
static int choose(struct atsi_experts *x, struct atsi_expert_group *g, struct atsi_err *err)
{
    const struct atsi_expert_swaps *swaps = NULL;
    struct atsi_err why = ATSI_ERR_INIT;
    uint32_t k = number_of(x, g);
    int rc = atsi_books_choose(x->books, k, g->used, &swaps, &why);
    if (rc == ATSI_OK)
        return atsi_experts_send(x, k, swaps, err);
    if (!x->said)
        atsi_log(x->p.log, ATSI_LOG_WARN, "policy", "%s, swap_experts: %s", x->p.policy->name,
                 why.msg);
    x->said = true;
    return ATSI_OK;
}

int atsi_experts_after(struct atsi_experts *x, const struct atsi_plan *plan, uint32_t step,
                       struct atsi_err *err)
{
    struct atsi_expert_group *g = group_of(x, plan, step);
    int rc;
    if (g == NULL || !g->looked)
        return ATSI_OK;
    if (g->n_hits > 0) {
        rc = devices(x)->ops[ATSI_DEVICE_ACCEL]->event_wait(g->done, SPIN_NS, err);
        if (rc != ATSI_OK)
            return rc;
        place(x, g, g->back, g->hit_at, g->n_hits);
        place(x, g, g->rows, g->miss_at, g->n_misses);
    }
    return choose(x, g, err);
}
