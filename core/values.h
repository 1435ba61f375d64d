/* SPDX-License-Identifier: Apache-2.0
 * Memory for the values of a graph: offsets such that values alive together never overlap. */
#ifndef ATSI_CORE_VALUES_H
#define ATSI_CORE_VALUES_H

#include "atsinfer/graph.h"
#include "atsinfer/status.h"

#include <stdbool.h>
#include <stddef.h>

struct atsi_value_place {
    size_t offset, bytes; /* in the arena; both multiples of 64 */
    bool output_rows;     /* written by a node that works on the output rows only */
};

/* Checks the graph's indices and order (every value written before it is read, by one node), then
 * places values for `rows` rows (`out_rows` for output-row values).  places: [n_values].
 * ATSI_EINVAL: the loader built a malformed graph; ATSI_ENOFIT: sizes overflow. */
int atsi_values_place(const struct atsi_graph *g, uint32_t rows, uint32_t out_rows,
                      struct atsi_value_place *places, size_t *arena_bytes_out,
                      struct atsi_err *err);

#endif
