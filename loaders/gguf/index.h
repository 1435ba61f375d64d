/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash index over an array of names: duplicates are found and names looked up in constant time,
 * whatever the names are (the hash is keyed per index, so a file cannot aim at collisions). */
#ifndef GGUF_INDEX_H
#define GGUF_INDEX_H

#include "atsinfer/loader.h"

struct gguf_index {
    const struct atsi_str *names; /* [borrowed] */
    uint32_t *slots;              /* position + 1; 0: free */
    uint64_t n_slots;             /* a power of two, more than twice the names */
    uint64_t key[2];
};

/* Indexes names[0..n-1]; room for `room` >= n names in all, added by gguf_index_add().
 * ATSI_EINVAL when two are equal: their positions are dup_out[0] < dup_out[1].  ATSI_ENOMEM. */
int gguf_index_open(struct gguf_index *ix, const struct atsi_str *names, uint32_t n, uint32_t room,
                    uint32_t dup_out[2]);
void gguf_index_close(struct gguf_index *ix);
/* Adds names[at]; returns the position of an equal name instead when there is one, else `at`. */
uint32_t gguf_index_add(struct gguf_index *ix, uint32_t at);
/* Position of the name, or -1. */
int64_t gguf_index_find(const struct gguf_index *ix, const char *name, uint64_t len);

#endif
