/* SPDX-License-Identifier: Apache-2.0
 * Values, pieces and units of a graph; what an item needs where. */
#include "core/round/flow.h"

#include <stdlib.h>
#include <string.h>

/* A chain of light operations that a device computes once more is at most this long. */
#define MAX_DEPTH 4
/* So many operations at most begin an item on the device beside it. */
#define MAX_BESIDE 8

static bool is_light(const struct atsi_graph_node *n)
{
    switch (n->kind) {
    case ATSI_OP_RMS_NORM:
    case ATSI_OP_ROPE_TABLE:
    case ATSI_OP_ROPE:
    case ATSI_OP_SWIGLU:
    case ATSI_OP_ADD:
    case ATSI_OP_MOE_SUM:
    case ATSI_OP_GATE:
    case ATSI_OP_REGROUP:
        return true;
    default: /* TOPK too: devices that round differently must not choose different experts */
        return false;
    }
}

/* ---------------------------------------------------------------- making */
static void list_nodes(struct atsi_flow *f, const struct atsi_graph *g)
{
    for (uint32_t v = 0; v < f->n_values; v++)
        f->producer[v] = -1;
    for (uint32_t i = 0; i < f->n_nodes; i++) {
        const struct atsi_graph_node *n = g->nodes[i];
        f->nodes[i].light = is_light(n);
        for (int k = 0; k < 4; k++) {
            f->nodes[i].src[k] = n->src[k];
            if (n->src[k] >= 0)
                f->death[n->src[k]] = i;
        }
        for (int k = 0; k < 2; k++) {
            f->nodes[i].dst[k] = n->dst[k];
            if (n->dst[k] < 0)
                continue;
            f->producer[n->dst[k]] = (int32_t)i;
            f->death[n->dst[k]] = i;
            f->output_rows[n->dst[k]] = (n->flags & ATSI_NODE_OUTPUT_ROWS) != 0;
        }
    }
    f->death[f->result] = f->n_nodes;
}

static void list_items(struct atsi_flow *f, const struct atsi_items *it)
{
    for (uint32_t i = 0; i < f->n_items; i++) {
        const struct atsi_item_place *p = &it->places[i];
        f->items[i] = (struct atsi_flow_item){.first = p->first_node,
                                              .main = p->main_node,
                                              .end = p->first_node + p->n_nodes,
                                              .tile = p->tile,
                                              .n_tiles = p->n_tiles};
    }
}

/* Values that tiles write: the first item of the matrix, by value; else UINT32_MAX. */
static void find_tiled(const struct atsi_flow *f, uint32_t *first_tile)
{
    for (uint32_t v = 0; v < f->n_values; v++)
        first_tile[v] = UINT32_MAX;
    for (uint32_t i = 0; i < f->n_items; i++)
        if (f->items[i].n_tiles > 1 && f->items[i].tile == 0)
            first_tile[f->nodes[f->items[i].main].dst[0]] = i;
}

static uint32_t cut_pieces(struct atsi_flow *f, const struct atsi_graph *g,
                           const struct atsi_items *it, const uint32_t *first_tile)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < f->n_values; v++) {
        uint32_t first = first_tile[v], tiles = first != UINT32_MAX ? f->items[first].n_tiles : 1;
        f->piece_at[v] = n;
        for (uint32_t t = 0; t < tiles && f->pieces != NULL; t++)
            f->pieces[n + t] = tiles == 1
                                   ? (struct atsi_flow_piece){v, 0, g->values[v]->width}
                                   : (struct atsi_flow_piece){v, it->places[first + t].first_row,
                                                              it->places[first + t].end_row};
        n += tiles;
    }
    f->piece_at[f->n_values] = n;
    return n;
}

struct atsi_flow *atsi_flow_make(const struct atsi_graph *g, const struct atsi_items *it)
{
    struct atsi_flow *f = calloc(1, sizeof *f);
    size_t v = (size_t)g->n_values + 1;
    uint32_t *first_tile = calloc(v, sizeof *first_tile);
    if (f == NULL || first_tile == NULL)
        goto fail;
    f->n_nodes = g->n_nodes;
    f->n_values = g->n_values;
    f->n_items = it->n;
    f->result = g->out_logits;
    f->nodes = calloc((size_t)g->n_nodes + 1, sizeof *f->nodes);
    f->items = calloc((size_t)it->n + 1, sizeof *f->items);
    f->producer = calloc(v, sizeof *f->producer);
    f->death = calloc(v, sizeof *f->death);
    f->output_rows = calloc(v, sizeof *f->output_rows);
    f->piece_at = calloc(v + 1, sizeof *f->piece_at);
    if (f->nodes == NULL || f->items == NULL || f->producer == NULL || f->death == NULL ||
        f->output_rows == NULL || f->piece_at == NULL)
        goto fail;
    list_nodes(f, g);
    list_items(f, it);
    find_tiled(f, first_tile);
    f->n_pieces = cut_pieces(f, g, it, first_tile);
    f->pieces = calloc((size_t)f->n_pieces + 1, sizeof *f->pieces);
    if (f->pieces == NULL)
        goto fail;
    (void)cut_pieces(f, g, it, first_tile);
    free(first_tile);
    return f;
fail:
    free(first_tile);
    atsi_flow_free(f);
    return NULL;
}

void atsi_flow_free(struct atsi_flow *f)
{
    if (f == NULL)
        return;
    free(f->nodes);
    free(f->items);
    free(f->producer);
    free(f->death);
    free(f->output_rows);
    free(f->piece_at);
    free(f->pieces);
    free(f);
}

/* ---------------------------------------------------------------- walking */
struct walk {
    const struct atsi_flow *f;
    uint8_t *valid;
    uint8_t bit; /* of the device */
    uint32_t item;
    uint32_t at; /* the node of the item that asks */
    struct atsi_flow_need *need;
};

uint32_t atsi_flow_max_copies(const struct atsi_flow *f)
{
    return 2 * f->n_pieces;
}

/* Every node once, light ones once more on the other device, every tile once. */
uint32_t atsi_flow_max_units(const struct atsi_flow *f)
{
    return 2 * f->n_nodes + f->n_items;
}

void atsi_flow_begin(const struct atsi_flow *f, uint8_t *valid)
{
    for (uint32_t v = 0; v < f->n_values; v++)
        for (uint32_t p = f->piece_at[v]; p < f->piece_at[v + 1]; p++)
            valid[p] = f->producer[v] < 0 ? 1U : 0U;
}

static bool all_valid(const struct walk *w, int32_t v)
{
    for (uint32_t p = w->f->piece_at[v]; p < w->f->piece_at[v + 1]; p++)
        if ((w->valid[p] & w->bit) == 0)
            return false;
    return true;
}

static void run_unit(struct walk *w, uint32_t node)
{
    const struct atsi_flow_node *n = &w->f->nodes[node];
    w->need->units[w->need->n_units++] = node;
    for (int k = 0; k < 2; k++)
        for (uint32_t p = n->dst[k] >= 0 ? w->f->piece_at[n->dst[k]] : 0;
             n->dst[k] >= 0 && p < w->f->piece_at[n->dst[k] + 1]; p++)
            w->valid[p] |= w->bit;
}

/* Whether the value can be computed here from what is here.  Its memory, and that of what it is
 * made of, is not used by anything else as long as somebody at or behind `at` reads it. */
static bool can_compute(const struct walk *w, int32_t v, int depth)
{
    const struct atsi_flow_node *n;
    if (w->f->death[v] < w->at)
        return false;
    if (all_valid(w, v))
        return true;
    if (w->f->producer[v] < 0 || depth == MAX_DEPTH)
        return false;
    n = &w->f->nodes[w->f->producer[v]];
    if (!n->light)
        return false;
    for (int k = 0; k < 4; k++)
        if (n->src[k] >= 0 && !can_compute(w, n->src[k], depth + 1))
            return false;
    return true;
}

static void compute(struct walk *w, int32_t v)
{
    const struct atsi_flow_node *n;
    if (all_valid(w, v))
        return;
    n = &w->f->nodes[w->f->producer[v]];
    for (int k = 0; k < 4; k++)
        if (n->src[k] >= 0)
            compute(w, n->src[k]);
    run_unit(w, (uint32_t)w->f->producer[v]);
}

static void ensure(struct walk *w, int32_t v)
{
    if (can_compute(w, v, 0)) {
        compute(w, v);
        return;
    }
    for (uint32_t p = w->f->piece_at[v]; p < w->f->piece_at[v + 1]; p++)
        if ((w->valid[p] & w->bit) == 0) {
            w->need->copies[w->need->n_copies++] = p;
            w->valid[p] |= w->bit;
        }
}

static void own_node(struct walk *w, uint32_t node)
{
    const struct atsi_flow_item *item = &w->f->items[w->item];
    const struct atsi_flow_node *n = &w->f->nodes[node];
    w->at = node;
    for (int k = 0; k < 4; k++)
        if (n->src[k] >= 0)
            ensure(w, n->src[k]);
    if (node == item->main && item->n_tiles > 1) {
        w->need->units[w->need->n_units++] = w->f->n_nodes + w->item;
        w->valid[w->f->piece_at[n->dst[0]] + item->tile] |= w->bit;
    } else {
        run_unit(w, node);
    }
}

void atsi_flow_item(const struct atsi_flow *f, uint8_t *valid, uint32_t i, uint32_t device,
                    struct atsi_flow_need *need)
{
    const struct atsi_flow_item *item = &f->items[i];
    struct walk w = {
        .f = f, .valid = valid, .bit = (uint8_t)(1U << device), .item = i, .need = need};
    bool first = item->tile == 0, last = item->tile + 1 == item->n_tiles;
    for (uint32_t k = item->first + need->n_beside; k < item->end; k++)
        if (k == item->main || (k < item->main && first) || (k > item->main && last))
            own_node(&w, k);
}

/* ---------------------------------------------------------------- beside */
static bool node_reads(const struct atsi_flow_node *n, int32_t v)
{
    for (int k = 0; k < 4; k++)
        if (n->src[k] == v)
            return true;
    return false;
}

/* Whether a later item on the other device reads value v, which item i's main node reads. */
static bool read_there(const struct atsi_flow *f, const int32_t *device, uint32_t i, int32_t v)
{
    for (uint32_t j = i + 1; j < f->n_items && f->items[j].first <= f->death[v]; j++)
        for (uint32_t k = f->items[j].first; device[j] != device[i] && k < f->items[j].end; k++)
            if (node_reads(&f->nodes[k], v) && k >= f->items[i].main)
                return true;
    return false;
}

/* The first node behind those that shall run beside: behind the one that makes what both devices
 * read; the item's first node: there is none. */
static uint32_t beside_until(const struct atsi_flow *f, const int32_t *device, uint32_t i)
{
    const struct atsi_flow_item *item = &f->items[i];
    const struct atsi_flow_node *main = &f->nodes[item->main];
    uint32_t until = item->first;
    for (int k = 0; k < 4; k++) {
        int32_t v = main->src[k], made = v >= 0 ? f->producer[v] : -1;
        if (made >= (int32_t)until && made < (int32_t)item->main && read_there(f, device, i, v))
            until = (uint32_t)made + 1;
    }
    return until;
}

/* Whether the node can run on w's device, when at most one value is brought there. */
static bool can_run(const struct walk *w, uint32_t node, const bool *made, int32_t *bring)
{
    const struct atsi_flow_node *n = &w->f->nodes[node];
    const struct atsi_flow_item *item = &w->f->items[w->item];
    for (int k = 0; k < 4; k++) {
        int32_t v = n->src[k], from = v >= 0 ? w->f->producer[v] : -1;
        if (v < 0 || can_compute(w, v, 0) || *bring == v ||
            (from >= (int32_t)item->first && made[(uint32_t)from - item->first]))
            continue;
        if (*bring >= 0)
            return false;
        *bring = v;
    }
    return n->light;
}

bool atsi_flow_beside(const struct atsi_flow *f, uint8_t *valid, uint32_t i, const int32_t *device,
                      struct atsi_flow_need *need)
{
    const struct atsi_flow_item *item = &f->items[i];
    struct walk w = {
        .f = f, .valid = valid, .bit = (uint8_t)(1U << (1 - device[i])), .item = i, .need = need};
    uint32_t until = item->tile == 0 ? beside_until(f, device, i) : item->first;
    bool made[MAX_BESIDE] = {false};
    int32_t bring = -1;
    if (until == item->first || until - item->first > MAX_BESIDE)
        return false;
    for (uint32_t k = item->first; k < until; k++) {
        w.at = k;
        if (!can_run(&w, k, made, &bring))
            return false;
        made[k - item->first] = true;
    }
    for (uint32_t k = item->first; k < until; k++)
        own_node(&w, k);
    need->n_beside = until - item->first;
    return true;
}

void atsi_flow_result(const struct atsi_flow *f, uint8_t *valid, struct atsi_flow_need *need)
{
    for (uint32_t p = f->piece_at[f->result]; p < f->piece_at[f->result + 1]; p++)
        if ((valid[p] & 1U) == 0) {
            need->copies[need->n_copies++] = p;
            valid[p] |= 1U;
        }
}
