/* SPDX-License-Identifier: Apache-2.0
 *
 * The question from measured costs.  An item takes the sum of its operations; a row tile its share
 * of the product's rows, the last one the other operations too.  What the accelerator does not
 * compute has no entry for it: such items are pinned to the host.  Without an accelerator in the
 * table there is no memory to place anything in.
 */
#include "core/round/costs.h"

#include <math.h>

struct maker {
    struct atsi_items *it;
    const struct atsi_costs *c;
    const struct atsi_costs_model *m;
    const struct atsi_question_params *p;
    const struct atsi_question_more *more;
    struct atsi_question *q;
    bool accel;  /* there is one */
    double link; /* bytes per ns of a long transfer */
    struct atsi_err *err;
};

static uint64_t ns(double t)
{
    return (uint64_t)llround(fmin(fmax(t, 0), 1e18));
}

/* ---------------------------------------------------------------- operations */
static const struct atsi_cost_op *find_op(const struct maker *k, uint32_t device, uint32_t node,
                                          struct atsi_cost_shape *s)
{
    const struct atsi_cost_op *op;
    for (uint32_t layout = k->m->layout[device];; layout = ATSI_LAYOUT_ROWS) {
        atsi_cost_shape_of(k->m->graph, k->m->tensors, node, layout, k->m->type_k, k->m->type_v, s);
        op = atsi_costs_find(k->c, device, s);
        if (op != NULL || layout == ATSI_LAYOUT_ROWS)
            return op;
    }
}

static int lacks(const struct maker *k, uint32_t node, const struct atsi_cost_shape *s)
{
    const struct atsi_graph_node *n = k->m->graph->nodes[node];
    const struct atsi_type_info *type = atsi_type_info(s->type);
    return atsi_fail(k->err, ATSI_ENOENT,
                     "the measured costs lack %s%s%s of %llu x %llu (%s): they belong to another "
                     "model or chunk; `atsinfer profile -m MODEL --force` measures again",
                     atsi_cost_kind_name(s->kind), type != NULL ? " " : "",
                     type != NULL ? type->name : "", (unsigned long long)s->dims[0],
                     (unsigned long long)s->dims[1],
                     n->weight[0] >= 0 ? k->m->tensors[n->weight[0]]->name : "no weight");
}

/* Which share of a node an item has: of its product by rows, of its other nodes all or nothing. */
static double share_of(const struct maker *k, uint32_t item, uint32_t node)
{
    const struct atsi_item_place *place = &k->it->places[item];
    const struct atsi_graph_node *n = k->m->graph->nodes[node];
    uint64_t rows = place->weight >= 0 ? k->m->tensors[place->weight]->ne[1] : 0;
    if (place->end_row == 0)
        return 1;
    if (n->kind == ATSI_OP_MATMUL && n->weight[0] == place->weight)
        return (double)(place->end_row - place->first_row) / (double)(rows > 0 ? rows : 1);
    return place->end_row >= rows ? 1 : 0;
}

/* ATSI_ENOENT: the device has no entry for one of the operations; the message is set for the host.
 */
static int run_time(const struct maker *k, uint32_t item, uint32_t device, uint32_t phase,
                    double *out)
{
    const struct atsi_conditions *c = &k->p->phase[phase];
    const struct atsi_item_place *place = &k->it->places[item];
    bool warm = device == ATSI_DEVICE_HOST && k->more->warm;
    *out = 0;
    for (uint32_t i = place->first_node; i < place->first_node + place->n_nodes; i++) {
        bool head = (k->m->graph->nodes[i]->flags & ATSI_NODE_OUTPUT_ROWS) != 0;
        double share = share_of(k, item, i);
        struct atsi_cost_shape s;
        const struct atsi_cost_op *op = find_op(k, device, i, &s);
        if (op == NULL)
            return device == ATSI_DEVICE_HOST ? lacks(k, i, &s) : ATSI_ENOENT;
        *out += share * (double)atsi_cost_op_ns(op, head ? 1 : c->tokens, c->ctx, warm);
    }
    *out *= device == ATSI_DEVICE_HOST ? c->load_cpu : c->load_gpu;
    return ATSI_OK;
}

/* ---------------------------------------------------------------- items */
static double copy_time(const struct maker *k, const struct atsi_conditions *c,
                        enum atsi_cost_channel channel, double bytes)
{
    double t = (double)atsi_costs_copy_ns(k->c, channel, (uint64_t)bytes);
    if (c->blocking)
        t += (double)k->c->sync_ns[ATSI_DEVICE_ACCEL];
    return t * c->load_pcie;
}

static uint64_t transfer_time(const struct maker *k, uint32_t item, const struct atsi_conditions *c,
                              double bytes)
{
    bool pageable = c->blocking || (k->more->pageable != NULL && k->more->pageable[item] != 0);
    uint64_t t = ns(copy_time(k, c, pageable ? ATSI_COPY_PAGEABLE : ATSI_COPY_PINNED, bytes));
    return t > 0 ? t : 1;
}

static int one_item(const struct maker *k, uint32_t item, uint32_t phase)
{
    const struct atsi_conditions *c = &k->p->phase[phase];
    struct atsi_item_cost *cpu = &k->q->cost[phase][item], *gpu = cpu + k->it->n;
    struct atsi_item *info = &k->it->items[item];
    struct atsi_demand d;
    double tc, tg;
    int rc = run_time(k, item, ATSI_DEVICE_HOST, phase, &tc);
    bool accel = run_time(k, item, ATSI_DEVICE_ACCEL, phase, &tg) == ATSI_OK;
    if (rc != ATSI_OK)
        return rc;
    atsi_work_demand(&k->it->work[item], c->tokens, c->ctx, c->ctx_max, &d);
    if (!accel && info->pinned == ATSI_DEVICE_ACCEL)
        return atsi_fail(k->err, ATSI_ENOTSUP, "item %s must live on the accelerator, %s",
                         info->name,
                         k->accel ? "which does not compute it" : "but none was measured");
    if (!accel && k->accel)
        info->pinned = ATSI_DEVICE_HOST;
    if (!accel)
        tg = tc;
    *cpu = (struct atsi_item_cost){.run_ns = ns(tc),
                                   .in_ns = ns(copy_time(k, c, ATSI_COPY_TO_HOST, d.in_bytes)),
                                   .contended_run = 1000,
                                   .contended_copy = 1000};
    *gpu = (struct atsi_item_cost){.run_ns = ns(tg),
                                   .in_ns = ns(copy_time(k, c, ATSI_COPY_TO_ACCEL, d.in_bytes)),
                                   .contended_run = 1000,
                                   .contended_copy = 1000};
    if (k->link > 0)
        cpu->in_copy_ns = gpu->in_copy_ns = ns(d.in_bytes / k->link);
    if (accel && info->can_promote != 0 && k->c->n_copies[ATSI_COPY_PINNED] > 0)
        gpu->transfer_ns = transfer_time(k, item, c, d.touched_bytes);
    return ATSI_OK;
}

/* ---------------------------------------------------------------- the whole */
static double link_rate(const struct atsi_costs *c)
{
    uint32_t n = c->n_copies[ATSI_COPY_PINNED];
    const struct atsi_cost_copy *last = n > 0 ? &c->copies[ATSI_COPY_PINNED][n - 1] : NULL;
    return last != NULL && last->ns > 0 ? (double)last->bytes / (double)last->ns : 0;
}

static void note_contention(const struct maker *k)
{
    const struct atsi_cost_memory *m = &k->c->memory;
    if (!k->p->phase[ATSI_PHASE_DECODE].contention || !(m->cpu_alone > 0) || !(m->copy_alone > 0) ||
        !(m->cpu_together > 0))
        return;
    k->q->together = m->cpu_together + m->copy_together;
    k->q->run_lost = fmax(1 - m->cpu_together / m->cpu_alone, 0);
    k->q->copy_lost = fmax(1 - m->copy_together / m->copy_alone, 0);
}

int atsi_question_measured(struct atsi_items *it, const struct atsi_costs *c,
                           const struct atsi_costs_model *m, const struct atsi_question_params *p,
                           const struct atsi_question_more *more, struct atsi_question **out,
                           struct atsi_err *err)
{
    static const struct atsi_question_more nothing = {.warm = false};
    struct atsi_question_params all = *p;
    struct maker k = {.it = it,
                      .c = c,
                      .m = m,
                      .p = &all,
                      .more = more != NULL ? more : &nothing,
                      .q = atsi_question_new(it),
                      .accel = atsi_costs_has_accel(c),
                      .link = link_rate(c),
                      .err = err};
    const struct atsi_question_fixed fixed = {
        .split_ns = c->split_ns,
        .routing_ns = atsi_costs_copy_ns(c, ATSI_COPY_TO_HOST, 64),
        .result_ns = atsi_costs_copy_ns(c, ATSI_COPY_TO_HOST, atsi_question_result_bytes(p)),
        .gap_ns = k.more->gap_ns};
    int rc = ATSI_OK;
    *out = NULL;
    if (k.q == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the costs of %u items", it->n);
    if (!k.accel) /* nothing can live or move there */
        all.vram_bytes = all.temp_bytes = 0;
    for (uint32_t f = 0; f < 2; f++)
        for (uint32_t i = 0; i < it->n && rc == ATSI_OK; i++)
            rc = it->places[i].n_nodes > 0
                     ? one_item(&k, i, f)
                     : atsi_fail(err, ATSI_ENOTSUP,
                                 "measured costs belong to a model file; a shape has none");
    if (rc != ATSI_OK) {
        atsi_question_free(k.q);
        return rc;
    }
    note_contention(&k);
    k.q->costs = c;
    atsi_question_finish(k.q, &all, &fixed);
    *out = k.q;
    return ATSI_OK;
}
