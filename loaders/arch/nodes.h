/* SPDX-License-Identifier: Apache-2.0
 * Between the two halves of the builder: growing the graph, and filling nodes in. */
#ifndef ARCH_NODES_H
#define ARCH_NODES_H

#include "loaders/arch/builder.h"

/* Index of a new value, or -1 after a failure. */
int32_t arch_value_add(struct arch_builder *b, const char *name, uint32_t type, uint64_t width);
/* A node of the current layer and item that writes dst; NULL after a failure. */
struct atsi_graph_node *arch_node_add(struct arch_builder *b, uint32_t kind, int32_t dst);
int32_t arch_kv_add(struct arch_builder *b, uint32_t n_head_kv, uint32_t window);
int32_t arch_state_add(struct arch_builder *b, const char *name, struct arch_shape shape);

uint64_t arch_width(const struct arch_builder *b, int32_t value);
uint64_t arch_ne(const struct arch_builder *b, int32_t tensor, uint32_t dim);
/* The inputs of an operation exist and widths fit weights: our own bug otherwise, but no crash. */
bool arch_ready(struct arch_builder *b, int32_t x, int32_t y);
bool arch_fits(struct arch_builder *b, const char *name, int32_t x, uint64_t want);
/* A vector the kernels read as f32 (norms, biases, frequencies); -1 is fine. */
void arch_need_f32(struct arch_builder *b, int32_t tensor);

#endif
