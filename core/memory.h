/* SPDX-License-Identifier: Apache-2.0
 * Host memory: aligned blocks (huge pages where allowed) and bump arenas. */
#ifndef ATSI_CORE_MEMORY_H
#define ATSI_CORE_MEMORY_H

#include "atsinfer/status.h"

#include <stdbool.h>
#include <stddef.h>

#define ATSI_ALIGN 64u

/* Zeroed, ATSI_ALIGN-aligned (2 MiB-aligned with MADV_HUGEPAGE from 4 MiB on), with 64 readable
 * bytes after the end.  bytes = 0 gives a valid block.  [owned by caller: free with atsi_mem_free
 * and the same size]  NULL when out of memory. */
void *atsi_mem_alloc(size_t bytes);
void atsi_mem_free(void *p, size_t bytes); /* NULL is allowed */

/* Bump allocator over one block. */
struct atsi_arena {
    unsigned char *base;
    size_t size, used;
};
int atsi_arena_open(struct atsi_arena *a, size_t bytes, struct atsi_err *err);
void atsi_arena_close(struct atsi_arena *a);
/* ATSI_ALIGN-aligned; NULL when it does not fit. */
void *atsi_arena_take(struct atsi_arena *a, size_t bytes);
void atsi_arena_reset(struct atsi_arena *a);

/* Overflow-checked: true and *out set when a * b (a + b) fits. */
bool atsi_mul_size(size_t a, size_t b, size_t *out);
bool atsi_add_size(size_t a, size_t b, size_t *out);

#endif
