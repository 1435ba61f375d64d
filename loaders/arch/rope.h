/* SPDX-License-Identifier: Apache-2.0
 * Rotary embedding: all kinds of scaling folded into one angular frequency per pair. */
#ifndef ARCH_ROPE_H
#define ARCH_ROPE_H

#include "loaders/arch/builder.h"

/* Reads rope.* keys and the optional rope_freqs tensor, adds the constant vector of n_rot/2 angular
 * frequencies and the table node; *table_out is its value ([T, n_rot]).  Scaling kinds: none,
 * linear, YaRN (its magnitude goes into the table); others: ATSI_ENOTSUP. */
void arch_rope_setup(struct arch_builder *b, int32_t pos, int32_t *table_out);

#endif
