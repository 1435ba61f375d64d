/* SPDX-License-Identifier: Apache-2.0
 * Storage of items. */
#include "core/round/flow.h"

#include <stdlib.h>

struct atsi_items *atsi_items_new(uint32_t n_items, uint32_t n_edges, size_t name_bytes)
{
    struct atsi_items *it = calloc(1, sizeof *it);
    if (it == NULL)
        return NULL;
    it->items = calloc((size_t)n_items + 1, sizeof *it->items);
    it->ptrs = calloc((size_t)n_items + 1, sizeof(const struct atsi_item *));
    it->work = calloc((size_t)n_items + 1, sizeof *it->work);
    it->places = calloc((size_t)n_items + 1, sizeof *it->places);
    it->edges = calloc((size_t)n_edges + 1, sizeof *it->edges);
    it->names = calloc(name_bytes + 1, 1);
    if (it->items == NULL || it->ptrs == NULL || it->work == NULL || it->places == NULL ||
        it->edges == NULL || it->names == NULL) {
        atsi_items_free(it);
        return NULL;
    }
    it->n = n_items;
    it->n_edges = n_edges;
    for (uint32_t i = 0; i < n_items; i++) {
        it->ptrs[i] = &it->items[i];
        it->items[i] = (struct atsi_item){.struct_size = sizeof(struct atsi_item),
                                          .layer = -1,
                                          .router = -1,
                                          .pinned = -1,
                                          .name = ""};
        it->places[i].weight = -1;
    }
    return it;
}

void atsi_items_free(struct atsi_items *it)
{
    if (it == NULL)
        return;
    atsi_flow_free(it->flow);
    free(it->names);
    free(it->edges);
    free(it->places);
    free(it->work);
    free(it->ptrs);
    free(it->items);
    free(it);
}
