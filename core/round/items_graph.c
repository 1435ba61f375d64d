/* SPDX-License-Identifier: Apache-2.0
 *
 * Items of an op graph.  The loader numbered them; here each gets its work, its name, the router it
 * waits for and the values that reach it from other items.  A weight larger than a slot is cut into
 * tiles of whole rows, each an item: the same inputs, the same cost per byte.
 */
#include "core/round/flow.h"

#include <stdlib.h>
#include <string.h>

#define TILE_ROWS 16u /* tiles begin at multiples of this: kernels see whole groups of rows */
#define NAME_ROOM 96u

struct maker {
    const struct atsi_graph *g;
    const struct atsi_tensor *const *tensors;
    const struct atsi_items_params *p;
    uint32_t *first_node; /* [n_items + 1] of the graph's items */
    uint32_t *n_tiles;    /* [n_items] */
    uint32_t *first_tile; /* [n_items] index of an item's first tile among the made items */
    struct atsi_items *it;
};

/* The node an item is named after: the one with a large weight, a cache or a state. */
static uint32_t main_index(const struct maker *m, uint32_t item)
{
    uint32_t found = m->first_node[item];
    for (uint32_t i = m->first_node[item]; i < m->first_node[item + 1]; i++) {
        const struct atsi_graph_node *n = m->g->nodes[i];
        if (n->kind == ATSI_OP_EMBED || n->kind == ATSI_OP_MATMUL || n->kind == ATSI_OP_MATMUL_ID ||
            n->kind == ATSI_OP_ATTN || n->kind == ATSI_OP_DELTA_NET)
            found = i;
    }
    return found;
}

static const struct atsi_graph_node *main_node(const struct maker *m, uint32_t item)
{
    return m->g->nodes[main_index(m, item)];
}

static const struct atsi_tensor *weight_of(const struct maker *m, const struct atsi_graph_node *n)
{
    return n->weight[0] >= 0 ? m->tensors[n->weight[0]] : NULL;
}

static uint64_t dim(const struct atsi_tensor *t, uint32_t d)
{
    return d < t->n_dims ? t->ne[d] : 1;
}

static uint64_t width(const struct maker *m, int32_t value)
{
    return value >= 0 ? m->g->values[value]->width : 0;
}

/* ---------------------------------------------------------------- counting */
/* Items own runs of nodes, in order; small nodes may name a router before them. */
static int find_nodes(struct maker *m, struct atsi_err *err)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < m->g->n_items; i++) {
        m->first_node[i] = at;
        while (at < m->g->n_nodes && m->g->nodes[at]->item == i)
            at++;
        if (at == m->first_node[i])
            return atsi_fail(err, ATSI_EINVAL, "graph item %u has no node", i);
    }
    if (at != m->g->n_nodes)
        return atsi_fail(err, ATSI_EINVAL, "graph node %u belongs to no item in order", at);
    m->first_node[m->g->n_items] = at;
    return ATSI_OK;
}

static uint32_t tiles_of(const struct maker *m, uint32_t item)
{
    const struct atsi_graph_node *n = main_node(m, item);
    const struct atsi_tensor *w = weight_of(m, n);
    uint64_t rows, per;
    if (n->kind != ATSI_OP_MATMUL || m->p->tile_bytes == 0 || w == NULL || w->row_bytes == 0)
        return 1;
    rows = dim(w, 1);
    if (w->row_bytes * rows <= m->p->tile_bytes)
        return 1;
    per = m->p->tile_bytes / w->row_bytes / TILE_ROWS * TILE_ROWS;
    return per == 0 ? 1 : (uint32_t)((rows + per - 1) / per);
}

static uint32_t count_tiles(struct maker *m)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < m->g->n_items; i++) {
        m->n_tiles[i] = tiles_of(m, i);
        m->first_tile[i] = total;
        total += m->n_tiles[i];
    }
    return total;
}

/* ---------------------------------------------------------------- work */
static void matrix_work(const struct maker *m, const struct atsi_graph_node *n, struct atsi_work *w)
{
    const struct atsi_tensor *t = weight_of(m, n);
    w->in = dim(t, 0);
    w->out = dim(t, 1);
    w->type = t->type;
    w->weight_bytes = t->row_bytes * dim(t, 1) * dim(t, 2);
    w->last_only = (n->flags & ATSI_NODE_OUTPUT_ROWS) != 0;
    if (n->kind == ATSI_OP_EMBED) {
        w->kind = ATSI_WORK_LOOKUP;
        w->out = w->in;
        w->in = 1;
    } else if (n->kind == ATSI_OP_MATMUL_ID) {
        w->kind = ATSI_WORK_EXPERTS;
        w->n_expert = (uint32_t)dim(t, 2);
        w->n_used = n->p.moe.n_used;
        w->own_inputs = width(m, n->src[0]) != w->in;
    }
}

static void attention_work(const struct maker *m, const struct atsi_graph_node *n,
                           struct atsi_work *w)
{
    const struct atsi_graph_kv *kv = m->g->kv[n->kv];
    uint32_t h = n->p.attn.n_head, dk = kv->head_dim_k, dv = kv->head_dim_v;
    w->kind = ATSI_WORK_ATTENTION;
    w->cell_bytes = (uint64_t)kv->n_head_kv *
                    (atsi_row_bytes(m->p->type_k, dk) + atsi_row_bytes(m->p->type_v, dv));
    w->window = kv->window;
    w->in_width = width(m, n->src[0]) + width(m, n->src[1]) + width(m, n->src[2]);
    w->flops_per_pair = 2.0 * (double)h * ((double)dk + (double)dv);
}

static uint64_t state_bytes(const struct atsi_graph_state *s)
{
    return s->ne[0] * s->ne[1] * s->ne[2] * sizeof(float);
}

static void recurrent_work(const struct maker *m, uint32_t item, const struct atsi_graph_node *n,
                           struct atsi_work *w)
{
    w->kind = ATSI_WORK_RECURRENT;
    w->in_width = width(m, n->src[0]);
    w->flops_per_token =
        8.0 * (double)n->p.delta.n_head_v * (double)n->p.delta.dim_k * (double)n->p.delta.dim_v;
    for (uint32_t i = m->first_node[item]; i < m->first_node[item + 1]; i++)
        if (m->g->nodes[i]->state >= 0)
            w->state_bytes += state_bytes(m->g->states[m->g->nodes[i]->state]);
}

static void describe(const struct maker *m, uint32_t item, struct atsi_work *w)
{
    const struct atsi_graph_node *n = main_node(m, item);
    *w = (struct atsi_work){.type = ATSI_TYPE_COUNT};
    if (n->kind == ATSI_OP_ATTN)
        attention_work(m, n, w);
    else if (n->kind == ATSI_OP_DELTA_NET)
        recurrent_work(m, item, n, w);
    else if (weight_of(m, n) != NULL)
        matrix_work(m, n, w);
}

/* ---------------------------------------------------------------- items */
static char *name_item(struct maker *m, uint32_t made, uint32_t item, uint32_t tile)
{
    const struct atsi_graph_node *n = main_node(m, item);
    const struct atsi_tensor *w = n->kind == ATSI_OP_DELTA_NET ? NULL : weight_of(m, n);
    const char *base = w != NULL && n->kind != ATSI_OP_ATTN
                           ? w->name
                           : m->g->values[n->dst[0] >= 0 ? n->dst[0] : 0]->name;
    char *name = m->it->names + (size_t)made * NAME_ROOM;
    if (m->n_tiles[item] > 1)
        (void)snprintf(name, NAME_ROOM, "%.72s#%u/%u", base, tile + 1, m->n_tiles[item]);
    else
        (void)snprintf(name, NAME_ROOM, "%.90s", base);
    return name;
}

/* Rows of one tile: as equal as whole groups allow. */
static void tile_rows(const struct maker *m, uint32_t item, uint32_t tile,
                      struct atsi_item_place *place, struct atsi_work *w)
{
    uint64_t groups = (w->out + TILE_ROWS - 1) / TILE_ROWS, n = m->n_tiles[item];
    uint64_t row = w->weight_bytes / (w->out > 0 ? w->out : 1);
    place->first_row = groups * tile / n * TILE_ROWS;
    place->end_row = groups * (tile + 1) / n * TILE_ROWS;
    if (place->end_row > w->out)
        place->end_row = w->out;
    w->out = place->end_row - place->first_row;
    w->weight_bytes = row * w->out;
}

static void fill_item(struct maker *m, uint32_t item, uint32_t tile, int32_t router)
{
    const struct atsi_graph_node *n = main_node(m, item);
    uint32_t made = m->first_tile[item] + tile;
    struct atsi_item *out = &m->it->items[made];
    struct atsi_work *w = &m->it->work[made];
    struct atsi_item_place *place = &m->it->places[made];
    describe(m, item, w);
    place->first_node = m->first_node[item];
    place->n_nodes = m->first_node[item + 1] - m->first_node[item];
    place->weight = w->type != ATSI_TYPE_COUNT ? n->weight[0] : -1;
    place->main_node = main_index(m, item);
    place->tile = tile;
    place->n_tiles = m->n_tiles[item];
    if (m->n_tiles[item] > 1)
        tile_rows(m, item, tile, place, w);
    out->role = n->role;
    out->layer = n->layer;
    out->n_experts = w->n_expert;
    out->router = w->kind == ATSI_WORK_EXPERTS ? router : -1;
    out->can_promote = (w->kind == ATSI_WORK_MATRIX || w->kind == ATSI_WORK_EXPERTS) &&
                       n->role != ATSI_ROLE_ROUTER;
    if (w->kind == ATSI_WORK_LOOKUP)
        out->pinned = 0;
    out->name = name_item(m, made, item, tile);
}

static void fill_items(struct maker *m)
{
    int32_t router = -1;
    for (uint32_t i = 0; i < m->g->n_items; i++) {
        for (uint32_t t = 0; t < m->n_tiles[i]; t++)
            fill_item(m, i, t, router);
        if (main_node(m, i)->role == ATSI_ROLE_ROUTER)
            router = (int32_t)(m->first_tile[i] + m->n_tiles[i] - 1);
    }
}

/* ---------------------------------------------------------------- edges */
/* One edge per value and consuming item: from the last tile of its producer to the first of its
 * consumer.  With `out` NULL they are only counted. */
static uint32_t collect_edges(const struct maker *m, const uint32_t *producer,
                              struct atsi_edge *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->g->n_items; i++)
        for (uint32_t k = m->first_node[i]; k < m->first_node[i + 1]; k++)
            for (int s = 0; s < 4; s++) {
                int32_t v = m->g->nodes[k]->src[s];
                bool seen = false;
                if (v < 0 || producer[v] == UINT32_MAX || producer[v] == i)
                    continue;
                for (uint32_t j = m->first_node[i]; j <= k && !seen; j++)
                    for (int r = 0; r < (j == k ? s : 4); r++)
                        seen = seen || m->g->nodes[j]->src[r] == v;
                if (seen)
                    continue;
                if (out != NULL)
                    out[n] = (struct atsi_edge){.from = m->first_tile[producer[v]] +
                                                        m->n_tiles[producer[v]] - 1,
                                                .to = m->first_tile[i],
                                                .bytes = m->g->values[v]->width * 4};
                n++;
            }
    return n;
}

static uint32_t *find_producers(const struct maker *m)
{
    uint32_t *producer = malloc(((size_t)m->g->n_values + 1) * sizeof *producer);
    if (producer == NULL)
        return NULL;
    for (uint32_t v = 0; v < m->g->n_values; v++)
        producer[v] = UINT32_MAX;
    for (uint32_t i = 0; i < m->g->n_nodes; i++)
        for (int d = 0; d < 2; d++)
            if (m->g->nodes[i]->dst[d] >= 0)
                producer[m->g->nodes[i]->dst[d]] = m->g->nodes[i]->item;
    return producer;
}

int atsi_items_from_graph(const struct atsi_graph *g, const struct atsi_tensor *const *tensors,
                          const struct atsi_items_params *p, struct atsi_items **out,
                          struct atsi_err *err)
{
    struct maker m = {.g = g, .tensors = tensors, .p = p};
    uint32_t *producer = find_producers(&m), n = 0;
    int rc = ATSI_ENOMEM;
    *out = NULL;
    m.first_node = calloc((size_t)g->n_items + 1, sizeof *m.first_node);
    m.n_tiles = calloc((size_t)g->n_items + 1, sizeof *m.n_tiles);
    m.first_tile = calloc((size_t)g->n_items + 1, sizeof *m.first_tile);
    if (producer != NULL && m.first_node != NULL && m.n_tiles != NULL && m.first_tile != NULL)
        rc = find_nodes(&m, err);
    if (rc == ATSI_OK) {
        n = count_tiles(&m);
        m.it = atsi_items_new(n, collect_edges(&m, producer, NULL), (size_t)n * NAME_ROOM);
        rc = m.it != NULL ? ATSI_OK : ATSI_ENOMEM;
    }
    if (rc == ATSI_OK) {
        fill_items(&m);
        (void)collect_edges(&m, producer, m.it->edges);
        m.it->n_params = g->n_params;
        if (p->flow && (m.it->flow = atsi_flow_make(g, m.it)) == NULL) {
            atsi_items_free(m.it);
            rc = ATSI_ENOMEM;
        }
    }
    if (rc == ATSI_OK)
        *out = m.it;
    else if (rc == ATSI_ENOMEM)
        rc = atsi_fail(err, ATSI_ENOMEM, "out of memory listing the items of the graph");
    free(m.first_tile);
    free(m.n_tiles);
    free(m.first_node);
    free(producer);
    return rc;
}
