/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations of every unit on both devices, built once; a round changes row counts, a transfer the
 * address of one weight.
 */
#include "core/hybrid/pack.h"
#include "core/hybrid/source_inside.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- operations */
static void find_unit_items(struct atsi_source *src)
{
    for (uint32_t i = 0; i < src->n_items; i++) {
        const struct atsi_flow_item *it = &src->flow->items[i];
        for (uint32_t k = it->first; k < it->end; k++)
            if (k < it->main ? it->tile == 0 : it->tile + 1 == it->n_tiles)
                src->unit_item[k] = i;
        src->unit_item[src->flow->n_nodes + i] = i;
    }
}

static const struct atsi_tensor *host_tensor(const struct atsi_source *src, int32_t weight)
{
    return atsi_weights_tensor(src->p.weights, (uint32_t)weight);
}

/* Columns of the result that a tile writes. */
static const struct atsi_tensor *tile_result(struct atsi_source *src, uint32_t device,
                                             uint32_t item, const struct atsi_tensor *whole)
{
    const struct atsi_item_place *p = &src->p.items->places[item];
    struct atsi_tensor *t = &src->tile[device][item];
    *t = *whole;
    t->ne[0] = p->end_row - p->first_row;
    t->data = (unsigned char *)whole->data + p->first_row * 4;
    return t;
}

/* Rows of a vector that belong to a tile. */
static void cut_vector(struct atsi_tensor *t, const struct atsi_item_place *p)
{
    t->data = (unsigned char *)t->data + p->first_row * 4;
    t->ne[0] = p->end_row - p->first_row;
    t->row_bytes = t->ne[0] * 4;
}

/* A row tile's own weights: rows of the matrix, and of the bias. */
static void cut_weights(const struct atsi_source *src, uint32_t item, uint32_t device)
{
    const struct atsi_graph_node *n = src->g->nodes[src->flow->items[item].main];
    const struct atsi_item_place *p = &src->p.items->places[item];
    struct atsi_piece piece = atsi_source_piece(src, item);
    const struct atsi_tensor *w = host_tensor(src, n->weight[0]);
    struct atsi_tensor *own = &src->wt[device][2 * (size_t)(src->flow->n_nodes + item)];
    own[0] = atsi_weights_view(src->p.weights, &piece,
                               (unsigned char *)w->data + p->first_row * w->row_bytes);
    if (n->weight[1] >= 0) {
        own[1] = *host_tensor(src, n->weight[1]);
        cut_vector(&own[1], p);
    }
}

static void build_op(struct atsi_source *src, uint32_t unit, uint32_t device, uint32_t flags)
{
    const struct atsi_graph_node *n = src->g->nodes[atsi_flow_node_of(src->flow, unit)];
    struct atsi_session *s = src->p.s;
    struct atsi_values *v = src->p.values;
    bool output = (n->flags & ATSI_NODE_OUTPUT_ROWS) != 0;
    int32_t tile = atsi_flow_tile_of(src->flow, unit);
    struct atsi_op *op = &src->ops[device][unit];
    *op = (struct atsi_op){.struct_size = sizeof *op,
                           .kind = n->kind,
                           .flags = flags,
                           .n_rows = output ? v->out_rows : v->chunk,
                           .item = src->unit_item[unit],
                           .kv = n->kv >= 0 ? &s->kv[n->kv] : NULL,
                           .p = n->p,
                           .state = n->state >= 0 ? &s->states[n->state] : NULL};
    for (int k = 0; k < 4; k++)
        op->src[k] = atsi_values_seen(v, device, n->src[k], output);
    for (int k = 0; k < 2; k++) {
        struct atsi_tensor *own = &src->wt[device][2 * unit + (uint32_t)k];
        op->dst[k] = n->dst[k] >= 0 ? &v->all[device][n->dst[k]] : NULL;
        if (n->weight[k] < 0)
            continue;
        *own = *host_tensor(src, n->weight[k]);
        op->weight[k] =
            device == ATSI_DEVICE_HOST && tile < 0 ? host_tensor(src, n->weight[k]) : own;
    }
    if (tile >= 0)
        cut_weights(src, (uint32_t)tile, device);
    if (tile >= 0)
        op->dst[0] = tile_result(src, device, (uint32_t)tile, op->dst[0]);
    if (n->kind != ATSI_OP_ATTN)
        return;
    op->p.attn.n_kv = s->n_ctx;
    if (device == ATSI_DEVICE_HOST)
        src->attention[src->n_attention++] = unit;
}

static int cannot(const struct atsi_session *s, const struct atsi_op *op, struct atsi_err *err)
{
    const struct atsi_type_info *type =
        op->weight[0] != NULL ? atsi_type_info(op->weight[0]->type) : NULL;
    return atsi_fail(err, ATSI_ENOTSUP, "backend %s cannot compute %s (operation %u, weights %s)",
                     s->backend_name, op->dst[0] != NULL ? op->dst[0]->name : "?", op->kind,
                     type != NULL ? type->name : "none");
}

/* A unit nobody runs: the whole matrix of an item that is cut into tiles, or no tile's. */
static bool is_unused(const struct atsi_source *src, uint32_t unit)
{
    const struct atsi_flow_item *it = &src->flow->items[src->unit_item[unit]];
    bool tile = unit >= src->flow->n_nodes;
    return it->n_tiles > 1 ? !tile && unit == it->main : tile;
}

static bool is_matrix(const struct atsi_graph_node *n, int k)
{
    return k == 0 &&
           (n->kind == ATSI_OP_EMBED || n->kind == ATSI_OP_MATMUL || n->kind == ATSI_OP_MATMUL_ID);
}

/* Items have one matrix at most. */
static int check_items(const struct atsi_source *src, struct atsi_err *err)
{
    for (uint32_t i = 0; i < src->n_items; i++) {
        const struct atsi_flow_item *it = &src->flow->items[i];
        for (uint32_t k = it->first; k < it->end; k++)
            if (k != it->main && is_matrix(src->g->nodes[k], 0))
                return atsi_fail(err, ATSI_ENOTSUP, "item %s has more than one matrix",
                                 src->p.items->items[i].name);
    }
    return ATSI_OK;
}

static int build_ops(struct atsi_source *src, struct atsi_err *err)
{
    const struct atsi_exec_devices *d = &src->p.a->d;
    bool exact = strcmp(atsi_conf_get(src->p.s->rt->conf, "cpu.activations"), "f32") == 0;
    memset(src->can, 1, src->n_items);
    src->can_light = true;
    for (uint32_t u = 0; u < src->n_units; u++) {
        if (is_unused(src, u))
            continue;
        for (uint32_t dev = 0; dev < ATSI_N_DEVICES; dev++)
            build_op(src, u, dev, exact ? ATSI_OP_EXACT : 0);
        if (d->ops[0]->supports(d->be[0], &src->ops[0][u]) != 1)
            return cannot(src->p.s, &src->ops[0][u], err);
        if (d->ops[1]->supports(d->be[1], &src->ops[1][u]) == 1)
            continue;
        if (u < src->flow->n_nodes && src->flow->nodes[u].light)
            src->can_light = false;
        else
            src->can[src->unit_item[u]] = 0;
    }
    return ATSI_OK;
}

bool atsi_source_accel_can(const struct atsi_source *src, uint32_t item)
{
    return src->can_light && src->can[item] != 0;
}

void atsi_source_packable(const struct atsi_source *src, uint8_t *packable)
{
    const struct atsi_exec_devices *d = &src->p.a->d;
    const struct atsi_op **list = calloc((size_t)src->n_units + 1, sizeof(const struct atsi_op *));
    for (uint32_t dev = 0; dev < ATSI_N_DEVICES && list != NULL; dev++) {
        uint32_t n = 0;
        for (uint32_t u = 0; u < src->n_units; u++) /* tables stay on the host */
            if (!is_unused(src, u) &&
                (dev == ATSI_DEVICE_HOST || src->ops[dev][u].kind != ATSI_OP_EMBED))
                list[n++] = &src->ops[dev][u];
        atsi_pack_mark(d->ops[dev], d->be[dev], list, n, src->p.weights, packable);
    }
    if (list == NULL) /* then nothing is packed */
        memset(packable, 0, atsi_weights_count(src->p.weights));
    free((void *)list);
}

bool atsi_source_can_tile(const struct atsi_session *s, const struct atsi_accel *a,
                          const struct atsi_items *items)
{
    const struct atsi_loaded_info *info = atsi_model_info(s->model);
    for (uint32_t i = 0; i < items->n; i++) {
        const struct atsi_item_place *p = &items->places[i];
        struct atsi_tensor w, x, y;
        struct atsi_op op = {.struct_size = sizeof op, .kind = ATSI_OP_MATMUL, .n_rows = 2};
        if (p->n_tiles < 2)
            continue;
        w = *info->tensors[p->weight];
        x = (struct atsi_tensor){.struct_size = sizeof x,
                                 .type = ATSI_TYPE_F32,
                                 .n_dims = 2,
                                 .ne = {w.ne[0], 2, 1, 1},
                                 .row_bytes = w.ne[0] * 4,
                                 .name = "x"};
        y = x;
        y.ne[0] = p->end_row - p->first_row;
        y.row_bytes = w.ne[1] * 4;
        w.ne[1] = y.ne[0];
        op.src[0] = &x;
        op.weight[0] = &w;
        op.dst[0] = &y;
        for (uint32_t d = 0; d < ATSI_N_DEVICES; d++)
            if (a->d.ops[d]->supports(a->d.be[d], &op) != 1)
                return false;
    }
    return true;
}

/* ---------------------------------------------------------------- routers */
static int find_routers(struct atsi_source *src, uint32_t *most, struct atsi_err *err)
{
    const struct atsi_items *it = src->p.items;
    *most = 0;
    for (uint32_t i = 0; i < it->n; i++)
        if (it->items[i].router >= 0)
            src->routers[it->items[i].router].is = true;
    for (uint32_t i = 0; i < it->n; i++) {
        struct atsi_router *r = &src->routers[i];
        r->ids = -1;
        for (uint32_t k = 0; r->is && k < it->places[i].n_nodes; k++) {
            const struct atsi_graph_node *n = src->g->nodes[it->places[i].first_node + k];
            if (n->kind == ATSI_OP_TOPK)
                r->ids = n->dst[0];
        }
        if (r->is && r->ids < 0)
            return atsi_fail(err, ATSI_EINVAL, "router %s chooses no experts", it->items[i].name);
        if (r->is && src->g->values[r->ids]->width > *most)
            *most = (uint32_t)src->g->values[r->ids]->width;
    }
    return ATSI_OK;
}

static int upload_order(struct atsi_source *src, uint32_t n, struct atsi_event *ev,
                        struct atsi_err *err)
{
    struct atsi_accel *a = src->p.a;
    const struct atsi_backend_ops *ops = a->d.ops[ATSI_DEVICE_ACCEL];
    int32_t *list = ops->buf_ptr(src->ids_buf);
    for (uint32_t i = 0; i < n; i++)
        list[i] = (int32_t)i;
    src->order = (struct atsi_tensor){.struct_size = sizeof src->order,
                                      .type = ATSI_TYPE_I32,
                                      .n_dims = 2,
                                      .ne = {n, 1, 1, 1},
                                      .row_bytes = (uint64_t)n * 4,
                                      .data = ops->buf_ptr(src->order_buf),
                                      .name = "order of experts"};
    return atsi_accel_copy(a, ev, src->order.data, list, (size_t)n * 4, err);
}

/* Chosen ids come to the host; experts are then in a slot in that order, under ids 0, 1, 2 ... */
static int open_routers(struct atsi_source *src, struct atsi_err *err)
{
    const struct atsi_accel *a = src->p.a;
    const struct atsi_backend_ops *ops = a->d.ops[ATSI_DEVICE_ACCEL];
    struct atsi_event *first = NULL;
    uint32_t most, stride;
    int rc = find_routers(src, &most, err);
    if (rc != ATSI_OK || most == 0)
        return rc;
    stride = (most + 15) / 16 * 16;
    rc =
        atsi_accel_alloc(a, ATSI_MEM_PINNED, (size_t)stride * 4 * src->n_items, &src->ids_buf, err);
    if (rc == ATSI_OK)
        rc = atsi_accel_alloc(a, ATSI_MEM_DEVICE, (size_t)stride * 4, &src->order_buf, err);
    for (uint32_t i = 0; i < src->n_items && rc == ATSI_OK; i++) {
        struct atsi_router *r = &src->routers[i];
        if (!r->is)
            continue;
        r->copy = (int32_t *)ops->buf_ptr(src->ids_buf) + (size_t)stride * i;
        rc = ops->event_open(a->d.be[ATSI_DEVICE_ACCEL], &r->event, err);
        if (first == NULL)
            first = r->event;
    }
    return rc == ATSI_OK ? upload_order(src, most, first, err) : rc;
}

/* ---------------------------------------------------------------- life */
static int open_tables(struct atsi_source *src, struct atsi_err *err)
{
    size_t units = (size_t)src->n_units + 1, items = (size_t)src->n_items + 1;
    size_t list = (size_t)atsi_flow_max_copies(src->flow) + atsi_flow_max_units(src->flow) + 1;
    bool ok = true;
    src->unit_item = calloc(units, sizeof *src->unit_item);
    src->can = calloc(items, 1);
    src->ptrs = calloc(list, sizeof(const struct atsi_op *));
    src->routers = calloc(items, sizeof *src->routers);
    src->step_key = calloc(2 * items, sizeof *src->step_key);
    src->attention = calloc(units, sizeof *src->attention);
    src->moves = calloc(2 * items, sizeof *src->moves);
    src->move_turn = calloc(items, 1);
    for (int d = 0; d < ATSI_N_DEVICES; d++) {
        src->ops[d] = calloc(units, sizeof *src->ops[d]);
        src->wt[d] = calloc(2 * units, sizeof *src->wt[d]);
        src->tile[d] = calloc(items, sizeof *src->tile[d]);
        ok = ok && src->ops[d] != NULL && src->wt[d] != NULL && src->tile[d] != NULL;
    }
    if (!ok || src->unit_item == NULL || src->can == NULL || src->ptrs == NULL ||
        src->routers == NULL || src->moves == NULL || src->move_turn == NULL ||
        src->step_key == NULL || src->attention == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the operations of %u items",
                         src->n_items);
    return ATSI_OK;
}

int atsi_source_open(const struct atsi_source_params *p, struct atsi_source **out,
                     struct atsi_err *err)
{
    struct atsi_source *src = calloc(1, sizeof *src);
    int rc;
    *out = NULL;
    if (src == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for operations");
    src->p = *p;
    src->g = p->s->g;
    src->flow = p->items->flow;
    src->n_items = p->items->n;
    src->n_units = atsi_flow_n_units(src->flow);
    rc = open_tables(src, err);
    if (rc == ATSI_OK) {
        find_unit_items(src);
        rc = check_items(src, err);
    }
    if (rc == ATSI_OK)
        rc = build_ops(src, err);
    if (rc == ATSI_OK)
        rc = open_routers(src, err);
    if (rc == ATSI_OK)
        rc = atsi_pick_open(&src->pick, p->s->rt->conf, p->a, p->values, err);
    if (rc != ATSI_OK) {
        atsi_source_close(src);
        return rc;
    }
    atsi_source_callbacks(src);
    *out = src;
    return ATSI_OK;
}

void atsi_source_close(struct atsi_source *src)
{
    if (src == NULL)
        return;
    for (uint32_t i = 0; src->routers != NULL && i < src->n_items; i++)
        if (src->routers[i].event != NULL)
            src->p.a->d.ops[ATSI_DEVICE_ACCEL]->event_close(src->routers[i].event);
    for (uint32_t i = 0; src->moves != NULL && i < 2 * src->n_items; i++)
        free(src->moves[i].r);
    while (src->blocks != NULL) {
        struct atsi_range_block *next = src->blocks->next;
        free(src->blocks);
        src->blocks = next;
    }
    atsi_pick_close(&src->pick);
    atsi_accel_free(src->p.a, src->order_buf);
    atsi_accel_free(src->p.a, src->ids_buf);
    for (int d = 0; d < ATSI_N_DEVICES; d++) {
        free(src->ops[d]);
        free(src->wt[d]);
        free(src->tile[d]);
    }
    free(src->unit_item);
    free(src->can);
    free(src->ptrs);
    free(src->routers);
    free(src->step_key);
    free(src->attention);
    free(src->moves);
    free(src->move_turn);
    free(src);
}

const struct atsi_exec_source *atsi_source_get(const struct atsi_source *src)
{
    return &src->source;
}

void atsi_source_counts(const struct atsi_source *src, struct atsi_source_counts *out)
{
    *out = src->counts;
}

/* ---------------------------------------------------------------- where weights are */
uint32_t atsi_source_max_wants(const struct atsi_source *src)
{
    return 2 * src->g->n_nodes + src->n_items;
}

static void add_want(struct atsi_piece *out, uint32_t *n, struct atsi_piece p)
{
    for (uint32_t i = 0; i < *n; i++)
        if (out[i].tensor == p.tensor && out[i].first_row == p.first_row &&
            out[i].end_row == p.end_row)
            return;
    out[(*n)++] = p;
}

uint32_t atsi_source_wants(const struct atsi_source *src, const int32_t *placed,
                           struct atsi_piece *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < src->g->n_nodes; i++)
        for (int k = 0; k < 2; k++)
            if (src->g->nodes[i]->weight[k] >= 0 && !is_matrix(src->g->nodes[i], k))
                add_want(out, &n,
                         (struct atsi_piece){.tensor = (uint32_t)src->g->nodes[i]->weight[k]});
    for (uint32_t i = 0; i < src->n_items; i++)
        if (placed[i] == ATSI_DEVICE_ACCEL && src->p.items->places[i].weight >= 0)
            add_want(out, &n, atsi_source_piece(src, i));
    return n;
}

/* Biases of experts travel with them. */
static uint64_t bias_bytes(const struct atsi_source *src, uint32_t item)
{
    const struct atsi_graph_node *n = src->g->nodes[src->flow->items[item].main];
    return n->weight[1] >= 0 ? host_tensor(src, n->weight[1])->row_bytes : 0;
}

uint64_t atsi_source_slot_bytes(const struct atsi_source *src, uint32_t item, uint32_t phase)
{
    struct atsi_piece p = atsi_source_piece(src, item);
    uint64_t bytes = atsi_piece_bytes(src->p.weights, &p);
    const struct atsi_work *w = &src->p.items->work[item];
    if (!atsi_source_by_choice(src, item, phase))
        return bytes;
    return (bytes / w->n_expert + bias_bytes(src, item)) * w->n_used + 64;
}

/* Small weights are always resident; a matrix that is not keeps no address: only a transfer gives
 * it one. */
static void bind_accel(struct atsi_source *src, uint32_t unit)
{
    const struct atsi_graph_node *n = src->g->nodes[atsi_flow_node_of(src->flow, unit)];
    int32_t tile = atsi_flow_tile_of(src->flow, unit);
    for (int k = 0; k < 2; k++) {
        struct atsi_tensor *own = &src->wt[ATSI_DEVICE_ACCEL][2 * unit + (uint32_t)k];
        struct atsi_piece p;
        if (n->weight[k] < 0)
            continue;
        p = is_matrix(n, k) ? atsi_source_piece(src, src->unit_item[unit])
                            : (struct atsi_piece){.tensor = (uint32_t)n->weight[k]};
        if (src->region == NULL || !atsi_region_find(src->region, &p, own)) {
            *own = *host_tensor(src, n->weight[k]);
            own->data = NULL;
        } else if (k == 1 && tile >= 0) {
            cut_vector(own, &src->p.items->places[tile]);
        }
    }
}

void atsi_source_bind(struct atsi_source *src, const struct atsi_region *region)
{
    src->region = region;
    src->bound++;
    src->stamp++;
    src->prepared = NULL;
    for (uint32_t i = 0; i < src->n_items; i++)
        if (src->flow->items[i].n_tiles > 1)
            cut_weights(src, i, ATSI_DEVICE_HOST);
    for (uint32_t u = 0; u < src->n_units; u++)
        if (!is_unused(src, u))
            bind_accel(src, u);
}

/* Rows that operations have, where they are others than in the round before. */
static void set_rows(struct atsi_source *src)
{
    const struct atsi_values *v = src->p.values;
    if (src->rows == v->rows && src->out_n == v->out_n && src->out_first == v->out_first)
        return;
    src->rows = v->rows;
    src->out_n = v->out_n;
    src->out_first = v->out_first;
    src->stamp++;
    for (uint32_t u = 0; u < src->n_units; u++) {
        const struct atsi_graph_node *n = src->g->nodes[atsi_flow_node_of(src->flow, u)];
        uint32_t rows = (n->flags & ATSI_NODE_OUTPUT_ROWS) != 0 ? v->out_n : v->rows;
        for (int d = 0; d < ATSI_N_DEVICES; d++) {
            src->ops[d][u].n_rows = rows;
            if (u >= src->flow->n_nodes && src->tile[d][u - src->flow->n_nodes].ne[0] > 0)
                src->tile[d][u - src->flow->n_nodes].ne[1] = rows;
        }
    }
}

void atsi_source_use_experts(struct atsi_source *src, struct atsi_experts *x)
{
    src->experts = x;
}

void atsi_source_begin(struct atsi_source *src, uint32_t phase, uint32_t n_kv)
{
    src->stamp += src->phase != phase;
    src->phase = phase;
    for (struct atsi_range_block *b = src->blocks; b != NULL; b = b->next)
        b->n = 0;
    for (uint32_t i = 0; i < src->n_items; i++)
        src->routers[i].ran = 0;
    set_rows(src);
    for (uint32_t i = 0; i < src->n_attention; i++)
        for (int d = 0; d < ATSI_N_DEVICES; d++)
            src->ops[d][src->attention[i]].p.attn.n_kv = n_kv;
}
