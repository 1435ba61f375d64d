/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for the values of a graph.  A value lives from the node that writes it to the last node
 * that reads it; placing the values in order of birth at the lowest free offset keeps the arena
 * close to the largest sum of values alive at once, so a long prefill chunk costs a few rows of the
 * widest layers and not one buffer per value.
 */
#include "core/values.h"

#include "core/memory.h"

#include <stdlib.h>

struct life {
    uint32_t birth, death; /* node numbers, death inclusive */
    bool defined;
};

static bool in_range(int32_t index, uint32_t n)
{
    return index >= -1 && (index < 0 || (uint32_t)index < n);
}

static int check_node(const struct atsi_graph *g, uint32_t i, const struct life *lives,
                      struct atsi_err *err)
{
    const struct atsi_graph_node *n = g->nodes[i];
    if (n->kind == 0 || n->kind >= ATSI_OP_COUNT)
        return atsi_fail(err, ATSI_EINVAL, "graph node %u: unknown operation %u", i, n->kind);
    for (int s = 0; s < 4; s++) {
        if (!in_range(n->src[s], g->n_values))
            return atsi_fail(err, ATSI_EINVAL, "graph node %u: input %d, %u values", i, n->src[s],
                             g->n_values);
        if (n->src[s] >= 0 && !lives[n->src[s]].defined)
            return atsi_fail(err, ATSI_EINVAL, "graph node %u reads %s before it is written", i,
                             g->values[n->src[s]]->name);
    }
    for (int d = 0; d < 2; d++) {
        if (!in_range(n->dst[d], g->n_values))
            return atsi_fail(err, ATSI_EINVAL, "graph node %u: output %d, %u values", i, n->dst[d],
                             g->n_values);
        if (n->dst[d] >= 0 && lives[n->dst[d]].defined)
            return atsi_fail(err, ATSI_EINVAL, "graph node %u writes %s, which is written already",
                             i, g->values[n->dst[d]]->name);
    }
    if (!in_range(n->kv, g->n_kv))
        return atsi_fail(err, ATSI_EINVAL, "graph node %u: KV cache %d, %u exist", i, n->kv,
                         g->n_kv);
    if (!in_range(n->state, g->n_states))
        return atsi_fail(err, ATSI_EINVAL, "graph node %u: state %d, %u exist", i, n->state,
                         g->n_states);
    return ATSI_OK;
}

static int find_lives(const struct atsi_graph *g, struct life *lives,
                      struct atsi_value_place *places, struct atsi_err *err)
{
    bool output = false;
    lives[g->in_ids].defined = lives[g->in_pos].defined = true;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct atsi_graph_node *n = g->nodes[i];
        int rc = check_node(g, i, lives, err);
        if (rc != ATSI_OK)
            return rc;
        if (output && (n->flags & ATSI_NODE_OUTPUT_ROWS) == 0)
            return atsi_fail(err, ATSI_EINVAL, "graph node %u needs all rows after an output node",
                             i);
        output = (n->flags & ATSI_NODE_OUTPUT_ROWS) != 0;
        for (int s = 0; s < 4; s++)
            if (n->src[s] >= 0) {
                /* The output part may run several times over one main part. */
                bool again = output && !places[n->src[s]].output_rows;
                lives[n->src[s]].death = again ? g->n_nodes : i;
            }
        for (int d = 0; d < 2; d++)
            if (n->dst[d] >= 0) {
                lives[n->dst[d]] = (struct life){i, i, true};
                places[n->dst[d]].output_rows = output;
            }
    }
    if (g->out_logits < 0 || (uint32_t)g->out_logits >= g->n_values ||
        !lives[g->out_logits].defined || !places[g->out_logits].output_rows)
        return atsi_fail(err, ATSI_EINVAL, "the graph never writes its logits");
    lives[g->out_logits].death = g->n_nodes;
    return ATSI_OK;
}

static int value_bytes(const struct atsi_graph *g, uint32_t v, uint32_t rows, size_t *out,
                       struct atsi_err *err)
{
    size_t bytes;
    if (!atsi_mul_size(g->values[v]->width, 4, &bytes) || !atsi_mul_size(bytes, rows, &bytes) ||
        !atsi_add_size(bytes, 2 * ATSI_ALIGN, &bytes))
        return atsi_fail(err, ATSI_ENOFIT, "%s: %llu values a row for %u rows overflow memory",
                         g->values[v]->name, (unsigned long long)g->values[v]->width, rows);
    /* One line after each value: kernels may read to the end of the last vector. */
    *out = bytes / ATSI_ALIGN * ATSI_ALIGN;
    return ATSI_OK;
}

/* Lowest offset at which `v` overlaps no placed value that lives at the same time. */
static size_t lowest_offset(const struct atsi_value_place *places, const struct life *lives,
                            const uint32_t *placed, uint32_t n_placed, uint32_t v)
{
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < n_placed; i++) {
            uint32_t u = placed[i];
            bool together = lives[u].birth <= lives[v].death && lives[v].birth <= lives[u].death;
            if (together && offset < places[u].offset + places[u].bytes &&
                places[u].offset < offset + places[v].bytes) {
                offset = places[u].offset + places[u].bytes;
                moved = true;
            }
        }
    }
    return offset;
}

static void place_one(struct atsi_value_place *places, const struct life *lives, uint32_t *placed,
                      uint32_t *n_placed, uint32_t v, size_t *top)
{
    places[v].offset = lowest_offset(places, lives, placed, *n_placed, v);
    placed[(*n_placed)++] = v;
    if (places[v].offset + places[v].bytes > *top)
        *top = places[v].offset + places[v].bytes;
}

/* Values still alive at `birth` stay in the list; only those can overlap what is born now. */
static void drop_dead(const struct life *lives, uint32_t *placed, uint32_t *n_placed,
                      uint32_t birth)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n_placed; i++)
        if (lives[placed[i]].death >= birth)
            placed[kept++] = placed[i];
    *n_placed = kept;
}

int atsi_values_place(const struct atsi_graph *g, uint32_t rows, uint32_t out_rows,
                      struct atsi_value_place *places, size_t *arena_bytes_out,
                      struct atsi_err *err)
{
    struct life *lives;
    uint32_t *placed, n_placed = 0;
    int rc;
    if (g->n_values == 0 || g->in_ids < 0 || g->in_pos < 0 || (uint32_t)g->in_ids >= g->n_values ||
        (uint32_t)g->in_pos >= g->n_values)
        return atsi_fail(err, ATSI_EINVAL, "the graph names no inputs");
    lives = calloc(g->n_values, sizeof *lives);
    placed = calloc(g->n_values, sizeof *placed);
    if (lives == NULL || placed == NULL) {
        rc = atsi_fail(err, ATSI_ENOMEM, "out of memory placing %u values", g->n_values);
        goto done;
    }
    for (uint32_t v = 0; v < g->n_values; v++)
        places[v] = (struct atsi_value_place){0, 0, false};
    rc = find_lives(g, lives, places, err);
    for (uint32_t v = 0; v < g->n_values && rc == ATSI_OK; v++)
        rc = value_bytes(g, v, places[v].output_rows ? out_rows : rows, &places[v].bytes, err);
    if (rc != ATSI_OK)
        goto done;
    *arena_bytes_out = 0;
    place_one(places, lives, placed, &n_placed, (uint32_t)g->in_ids, arena_bytes_out);
    place_one(places, lives, placed, &n_placed, (uint32_t)g->in_pos, arena_bytes_out);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        drop_dead(lives, placed, &n_placed, i);
        for (int d = 0; d < 2; d++)
            if (g->nodes[i]->dst[d] >= 0)
                place_one(places, lives, placed, &n_placed, (uint32_t)g->nodes[i]->dst[d],
                          arena_bytes_out);
    }
done:
    free(placed);
    free(lives);
    return rc;
}
