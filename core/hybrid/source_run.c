/* SPDX-License-Identifier: Apache-2.0
 * The executor's questions to the source, answered for real devices. */
#include "core/hybrid/experts.h"
#include "core/hybrid/source_inside.h"

#include <stdlib.h>
#include <string.h>

#define SPIN_NS 20000u
#define BLOCK_RANGES 4096u

/* ---------------------------------------------------------------- splits */
static void mix(uint64_t *h, uint64_t x)
{
    *h = (*h ^ x) * UINT64_C(1099511628211); /* FNV-1a, by words */
}

/* Same units, rows and bindings (and slot, which run() adds): same operations, shapes, addresses.
 */
static uint64_t key_of(const struct atsi_source *src, const struct atsi_plan *plan,
                       const struct atsi_step *step)
{
    const struct atsi_values *v = src->p.values;
    uint64_t h = UINT64_C(14695981039346656037);
    for (uint32_t k = 0; k < step->n_list; k++)
        mix(&h, plan->list[step->list + k]);
    mix(&h, (uint64_t)v->rows << 32 | v->out_n);
    mix(&h, (uint64_t)v->out_first << 32 | src->phase);
    mix(&h, src->bound);
    return h;
}

/* What all rounds of a plan have in common. */
static void prepare(struct atsi_source *src, const struct atsi_plan *plan)
{
    if (src->prepared == plan && src->prepared_built == plan->built &&
        src->prepared_stamp == src->stamp)
        return;
    for (uint32_t s = 0; s < plan->n_steps; s++) {
        const struct atsi_step *step = &plan->steps[s];
        if (step->kind != ATSI_STEP_RUN)
            continue;
        for (uint32_t k = 0; k < step->n_list; k++) {
            uint32_t unit = plan->list[step->list + k], item = src->unit_item[unit];
            struct atsi_op *op = &src->ops[step->device][unit];
            op->item = item >= step->first && item < step->first + step->n ? item : step->first;
            src->ptrs[step->list + k] = op;
        }
        src->step_key[s] = key_of(src, plan, step);
    }
    src->prepared = plan;
    src->prepared_built = plan->built;
    src->prepared_stamp = src->stamp;
}

/* The matrix of an item that was transferred: in its slot, the chosen experts in a row. */
static int point_to_slot(struct atsi_source *src, uint32_t item, uint32_t slot,
                         struct atsi_err *err)
{
    uint32_t unit = atsi_flow_main_unit(src->flow, item);
    struct atsi_op *op = &src->ops[ATSI_DEVICE_ACCEL][unit];
    struct atsi_tensor *own = &src->wt[ATSI_DEVICE_ACCEL][(size_t)2 * unit];
    const struct atsi_graph_node *n = src->g->nodes[src->flow->items[item].main];
    struct atsi_piece p = atsi_source_piece(src, item);
    unsigned char *at = atsi_region_slot(src->region, src->phase, slot);
    if (at == NULL)
        return atsi_fail(err, ATSI_EINVAL, "item %s: there is no slot %u",
                         src->p.items->items[item].name, slot);
    own[0] = atsi_weights_view(src->p.weights, &p, at);
    if (src->p.items->items[item].n_experts == 0)
        return ATSI_OK;
    op->src[1] = &src->p.values->all[ATSI_DEVICE_ACCEL][n->src[1]];
    if (n->weight[1] >= 0) {
        struct atsi_piece bias = {.tensor = (uint32_t)n->weight[1]};
        (void)atsi_region_find(src->region, &bias, &own[1]); /* always resident */
    }
    if (atsi_source_by_choice(src, item, src->phase)) {
        uint64_t matrix = own[0].row_bytes * own[0].ne[1];
        op->src[1] = &src->order;
        own[0].ne[2] = n->p.moe.n_used;
        if (n->weight[1] >= 0) {
            own[1].data = at + (matrix * n->p.moe.n_used + 63) / 64 * 64;
            own[1].ne[1] = n->p.moe.n_used;
        }
    }
    return ATSI_OK;
}

static int run(void *ctx, const struct atsi_plan *plan, uint32_t s, int32_t slot,
               struct atsi_split *split, struct atsi_err *err)
{
    struct atsi_source *src = ctx;
    const struct atsi_step *step = &plan->steps[s];
    prepare(src, plan);
    split->ops = src->ptrs + step->list;
    split->n_ops = step->n_list;
    if (step->device != ATSI_DEVICE_HOST) {
        split->graph_key = src->step_key[s];
        mix(&split->graph_key, (uint32_t)slot);
        split->graph_key |= split->graph_key == 0;
    }
    if (slot >= 0)
        return point_to_slot(src, step->first, (uint32_t)slot, err);
    return ATSI_OK;
}

static int before(void *ctx, const struct atsi_plan *plan, uint32_t s, struct atsi_err *err)
{
    struct atsi_source *src = ctx;
    const struct atsi_step *step = &plan->steps[s];
    for (uint32_t k = 0; k < step->n_list && src->p.values->n_pending > 0; k++) {
        const struct atsi_op *op = &src->ops[ATSI_DEVICE_HOST][plan->list[step->list + k]];
        for (int d = 0; d < 2 && op->dst[d] != NULL; d++) {
            const struct atsi_tensor *t = op->dst[d];
            size_t bytes = (size_t)(op->n_rows - 1) * t->row_bytes + (size_t)t->ne[0] * 4;
            int rc = atsi_values_about_to_write(src->p.values, t->data, bytes, err);
            if (rc != ATSI_OK)
                return rc;
        }
    }
    return src->experts != NULL
               ? atsi_experts_before(src->experts, plan, s, src->ptrs + step->list, err)
               : ATSI_OK;
}

/* ---------------------------------------------------------------- copies of activations */
static struct atsi_range *take_ranges(struct atsi_source *src, uint32_t n, struct atsi_err *err)
{
    struct atsi_range_block *b = src->blocks;
    while (b != NULL && b->room - b->n < n)
        b = b->next;
    if (b == NULL) {
        uint32_t room = n > BLOCK_RANGES ? n : BLOCK_RANGES;
        b = malloc(sizeof *b + room * sizeof b->r[0]);
        if (b == NULL) {
            (void)atsi_fail(err, ATSI_ENOMEM, "out of memory for %u ranges of a copy", room);
            return NULL;
        }
        *b = (struct atsi_range_block){.next = src->blocks, .room = room};
        src->blocks = b;
    }
    b->n += n;
    return b->r + b->n - n;
}

static int copy_pieces(struct atsi_source *src, const uint32_t *pieces, uint32_t n, uint32_t to,
                       struct atsi_copyv *req, struct atsi_err *err)
{
    struct atsi_values *v = src->p.values;
    struct atsi_range *r;
    uint32_t total = 0, at = 0;
    for (uint32_t k = 0; k < n; k++)
        total += atsi_values_ranges(v, &src->flow->pieces[pieces[k]], to, NULL, 0);
    r = take_ranges(src, total, err);
    if (r == NULL)
        return ATSI_ENOMEM;
    for (uint32_t k = 0; k < n; k++)
        at += atsi_values_ranges(v, &src->flow->pieces[pieces[k]], to, r + at, total - at);
    for (uint32_t k = 0; k < total; k++)
        src->counts.copy_bytes += r[k].bytes;
    src->counts.n_copies++;
    src->last_copy = req->ranges = r;
    src->n_last_copy = req->n_ranges = total;
    return ATSI_OK;
}

static int copy(void *ctx, const struct atsi_plan *plan, uint32_t s, struct atsi_copyv *req,
                struct atsi_err *err)
{
    const struct atsi_step *step = &plan->steps[s];
    return copy_pieces(ctx, plan->list + step->list, step->n_list, step->device, req, err);
}

/* All columns of the logits are the accelerator's. */
static bool is_whole(const struct atsi_source *src, const struct atsi_plan *plan)
{
    const uint32_t *at = &src->flow->piece_at[src->flow->result];
    return plan->n_result == at[1] - at[0];
}

static int result(void *ctx, const struct atsi_plan *plan, struct atsi_copyv *req,
                  struct atsi_err *err)
{
    struct atsi_source *src = ctx;
    uint64_t before = src->counts.copy_bytes;
    int rc;
    if (is_whole(src, plan) && atsi_pick_wanted(&src->pick)) {
        rc = atsi_pick_queue(&src->pick, req, err);
        if (rc == ATSI_OK)
            src->counts.copy_bytes += req->ranges[0].bytes;
        src->counts.n_copies++;
    } else {
        rc = copy_pieces(src, plan->list + plan->result_at, plan->n_result, ATSI_DEVICE_HOST, req,
                         err);
    }
    src->counts.result_bytes += src->counts.copy_bytes - before;
    return rc;
}

struct atsi_pick *atsi_source_pick(struct atsi_source *src)
{
    return &src->pick;
}

int atsi_source_fetch_logits(struct atsi_source *src, struct atsi_err *err)
{
    size_t bytes;
    int rc = atsi_pick_fetch_row(&src->pick, &bytes, err);
    src->counts.n_copies += bytes > 0;
    src->counts.copy_bytes += bytes;
    src->counts.result_bytes += bytes;
    return rc;
}

/* ---------------------------------------------------------------- routers */
static bool is_asked(const struct atsi_plan *plan, uint32_t router)
{
    for (uint32_t k = 0; k < plan->n_moves; k++)
        if (plan->moves[k].router == (int32_t)router)
            return true;
    return false;
}

/* The chosen ids of the one token, to the host. */
static int fetch_ids(struct atsi_source *src, struct atsi_router *r, struct atsi_err *err)
{
    const struct atsi_exec_devices *d = &src->p.a->d;
    const struct atsi_tensor *ids = &src->p.values->all[ATSI_DEVICE_ACCEL][r->ids];
    struct atsi_copyv req = {
        .struct_size = sizeof req, .n_ranges = 1, .ranges = &r->range, .signal = r->event};
    r->range = (struct atsi_range){ids->data, r->copy, (size_t)ids->row_bytes};
    return d->tx_ops->copyv(d->tx, d->copy_kernel, d->queue[ATSI_DEVICE_ACCEL], &req, err);
}

static int after(void *ctx, const struct atsi_plan *plan, uint32_t s, struct atsi_event *event,
                 struct atsi_err *err)
{
    struct atsi_source *src = ctx;
    const struct atsi_step *step = &plan->steps[s];
    uint32_t last = step->first + step->n - 1;
    struct atsi_router *r;
    if (step->kind == ATSI_STEP_COPY) {
        if (step->device != ATSI_DEVICE_HOST)
            return atsi_values_note_read(src->p.values, src->last_copy, src->n_last_copy, event,
                                         err);
        atsi_values_all_read(src->p.values); /* it was waited for, and the queue is in order */
        return ATSI_OK;
    }
    if (src->experts != NULL) {
        int rc = atsi_experts_after(src->experts, plan, s, err);
        if (rc != ATSI_OK)
            return rc;
    }
    r = &src->routers[last]; /* a router that is waited for ends its split */
    if (!r->is || src->phase != ATSI_PHASE_DECODE)
        return ATSI_OK;
    r->ran = (uint8_t)(1 + step->device);
    if (step->device == ATSI_DEVICE_HOST || !is_asked(plan, last))
        return ATSI_OK;
    return fetch_ids(src, r, err);
}

static int routed(void *ctx, uint32_t item, bool wait, struct atsi_err *err)
{
    struct atsi_source *src = ctx;
    const struct atsi_backend_ops *ops = src->p.a->d.ops[ATSI_DEVICE_ACCEL];
    struct atsi_router *r = &src->routers[src->p.items->items[item].router];
    int rc;
    if (r->ran != 1 + ATSI_DEVICE_ACCEL)
        return r->ran != 0;
    if (!wait) {
        rc = ops->event_query(r->event);
        return rc < 0 ? atsi_fail(err, rc, "the accelerator failed at %s",
                                  src->p.items->items[item].name)
                      : rc;
    }
    rc = ops->event_wait(r->event, SPIN_NS, err);
    return rc == ATSI_OK ? 1 : rc;
}

/* ---------------------------------------------------------------- weights on the move */
static int grow_moves(struct atsi_move_ranges *m, uint32_t n, struct atsi_err *err)
{
    struct atsi_range *grown;
    if (n <= m->room)
        return ATSI_OK;
    grown = realloc(m->r, n * sizeof *grown);
    if (grown == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for %u ranges of a transfer", n);
    m->r = grown;
    m->room = n;
    return ATSI_OK;
}

/* Matrices [first, first + n) of the piece, appended. */
static int add_matrices(struct atsi_source *src, struct atsi_move_ranges *m, uint32_t *count,
                        const struct atsi_piece *p, uint64_t first, uint64_t n, void *dst,
                        struct atsi_err *err)
{
    uint32_t had = *count, room = m->room - had;
    uint32_t got = atsi_weights_ranges(src->p.weights, p, first, n, dst,
                                       m->r != NULL ? m->r + had : NULL, room);
    int rc = ATSI_OK;
    if (got > room) {
        rc = grow_moves(m, had + got, err);
        if (rc == ATSI_OK)
            (void)atsi_weights_ranges(src->p.weights, p, first, n, dst, m->r + had, got);
    }
    *count += got;
    return rc;
}

/* Rows of the experts' biases; as f32 vectors they have one layout only. */
static int add_bias(struct atsi_source *src, struct atsi_move_ranges *m, uint32_t *count,
                    const struct atsi_graph_node *n, const int32_t *ids, unsigned char *at,
                    struct atsi_err *err)
{
    int rc = ATSI_OK;
    uint64_t row;
    if (n->weight[1] < 0)
        return ATSI_OK;
    row = atsi_weights_tensor(src->p.weights, (uint32_t)n->weight[1])->row_bytes;
    for (uint32_t j = 0; j < n->p.moe.n_used && rc == ATSI_OK; j++) {
        struct atsi_piece p = {(uint32_t)n->weight[1], (uint64_t)ids[j], (uint64_t)ids[j] + 1};
        rc = add_matrices(src, m, count, &p, 0, 1, at + j * row, err);
    }
    return rc;
}

static int chosen(struct atsi_source *src, struct atsi_move_ranges *m, uint32_t *count,
                  uint32_t item, unsigned char *at, struct atsi_err *err)
{
    const struct atsi_items *it = src->p.items;
    const struct atsi_router *r = &src->routers[it->items[item].router];
    const struct atsi_graph_node *n = src->g->nodes[src->flow->items[item].main];
    const int32_t *ids = r->ran == 1 + ATSI_DEVICE_ACCEL
                             ? r->copy
                             : src->p.values->all[ATSI_DEVICE_HOST][r->ids].data;
    struct atsi_piece p = atsi_source_piece(src, item);
    uint64_t matrix = atsi_piece_bytes(src->p.weights, &p) / it->work[item].n_expert;
    uint64_t used = n->p.moe.n_used;
    int rc = ATSI_OK;
    for (uint32_t j = 0; j < used && rc == ATSI_OK; j++) {
        if (ids[j] < 0 || (uint32_t)ids[j] >= it->work[item].n_expert)
            return atsi_fail(err, ATSI_EINVAL, "%s: expert %d was chosen, there are %u",
                             it->items[item].name, ids[j], it->work[item].n_expert);
        rc = add_matrices(src, m, count, &p, (uint64_t)ids[j], 1, at + j * matrix, err);
    }
    if (rc == ATSI_OK)
        rc = add_bias(src, m, count, n, ids, at + (used * matrix + 63) / 64 * 64, err);
    return rc;
}

static int move(void *ctx, uint32_t item, uint32_t slot, struct atsi_copyv *req,
                struct atsi_err *err)
{
    struct atsi_source *src = ctx;
    uint32_t turn = src->move_turn[item], count = 0;
    struct atsi_move_ranges *m = &src->moves[2 * item + turn];
    unsigned char *at = atsi_region_slot(src->region, src->phase, slot);
    struct atsi_piece p = atsi_source_piece(src, item);
    int rc;
    if (at == NULL)
        return atsi_fail(err, ATSI_EINVAL, "item %s: there is no slot %u",
                         src->p.items->items[item].name, slot);
    src->move_turn[item] = (uint8_t)(turn ^ 1U);
    if (atsi_source_by_choice(src, item, src->phase)) {
        rc = chosen(src, m, &count, item, at, err);
    } else {
        uint64_t n = src->p.items->work[item].n_expert;
        rc = add_matrices(src, m, &count, &p, 0, n > 0 ? n : 1, at, err);
    }
    for (uint32_t k = 0; k < count && rc == ATSI_OK; k++)
        src->counts.move_bytes += m->r[k].bytes;
    src->counts.n_moves++;
    req->ranges = m->r;
    req->n_ranges = count;
    return rc;
}

void atsi_source_callbacks(struct atsi_source *src)
{
    src->source = (struct atsi_exec_source){.ctx = src,
                                            .run = run,
                                            .move = move,
                                            .copy = copy,
                                            .result = result,
                                            .before = before,
                                            .after = after,
                                            .routed = routed};
}
