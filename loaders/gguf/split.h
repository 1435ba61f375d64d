/* SPDX-License-Identifier: Apache-2.0
 *
 * Models split over several files: PREFIX-00001-of-00003.gguf and so on. */
#ifndef GGUF_SPLIT_H
#define GGUF_SPLIT_H

#include "file.h"

/* Name of shard `no` (from 0) of `count`, derived from the name of any other of them.  NULL when
 * `path` does not follow the pattern or memory is out.  [owned by caller: free] */
char *gguf_split_path(const char *path, uint32_t no, uint32_t count);

/* Opens the file at `path` and, when it is the first of a split model, all its companions (which
 * are looked for before any is read).  *shards_out: [owned by caller: gguf_split_close]. */
int gguf_split_open(const char *path, struct gguf_shard **shards_out, uint32_t *n_out,
                    struct atsi_err *err);
void gguf_split_close(struct gguf_shard *shards, uint32_t n);

#endif
