/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor types as GGUF files number them, including those this library does not compute with. */
#ifndef GGUF_TYPES_H
#define GGUF_TYPES_H

#include <stdint.h>

#include "atsinfer/status.h"

struct gguf_type {
    uint32_t id;
    const char *name;
    uint32_t block_elems, block_bytes; /* 0: not known */
    const char *note;                  /* why not supported; NULL: nothing special */
};

/* Facts of any type that is known by name, or NULL. */
const struct gguf_type *gguf_type_find(uint32_t id);
/* "IQ2_XXS" or "type 4711" in buf; returns its argument or a static name. */
const char *gguf_type_name(uint32_t id, char buf[24]);
/* Writes "type X is not supported[: note]; supported are ..." and returns ATSI_ENOTSUP. */
int gguf_type_refuse(uint32_t id, struct atsi_err *err);

#endif
