/* SPDX-License-Identifier: Apache-2.0
 * Architectures: from metadata and tensors to the op graph of a forward pass. */
#ifndef ARCH_H
#define ARCH_H

#include "loaders/gguf/gguf.h"

/* Builds the graph of m's architecture and stores it with gguf_set_graph().  ATSI_ENOTSUP: unknown
 * architecture (the known ones are listed) or a variant that is not covered; ATSI_EFORMAT: keys or
 * tensors that are missing or disagree. */
int arch_build_graph(struct atsi_loaded *m, struct atsi_err *err);

#endif
