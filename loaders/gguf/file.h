/* SPDX-License-Identifier: Apache-2.0
 *
 * One open file of a model (a shard): its descriptor, its head, and the memory of its data. */
#ifndef GGUF_FILE_H
#define GGUF_FILE_H

#include <stdbool.h>

#include "atsinfer/loader.h"
#include "head.h"

struct atsi_host;

/* Memory that holds the data section: bytes first .. last-1 of the file, the byte `first` at
 * `base`.  At least GGUF_PAD_BYTES readable bytes follow. */
struct gguf_memory {
    void *map; /* what to unmap; NULL: none */
    size_t map_bytes;
    bool mapped; /* the file itself, not a copy */
    uint8_t *base;
    uint64_t first, last;
};

#define GGUF_PAD_BYTES 4096

struct gguf_shard {
    char *path; /* [owned] */
    int fd;     /* -1 when closed */
    uint64_t file_bytes;
    struct gguf_head head;
    struct gguf_memory memory;
};

/* Opens a regular file for reading.  ATSI_ENOENT, or ATSI_EIO for what cannot be opened or is a
 * directory, FIFO or device (never blocks). */
int gguf_file_open(const char *path, int *fd_out, uint64_t *bytes_out, struct atsi_err *err);

/* All fail with words that name the file. */
int gguf_shard_open(struct gguf_shard *s, const char *path, struct atsi_err *err);
void gguf_shard_close(struct gguf_shard *s);
/* ATSI_EIO when the file has no longer the size it had at open. */
int gguf_shard_check_unchanged(const struct gguf_shard *s, struct atsi_err *err);

/* Puts the data sections of all shards into memory as params->mode asks, with progress.
 * ATSI_EINTR: cancelled.  ATSI_ENOFIT: more than the free memory (read, direct). */
int gguf_data_load(struct gguf_shard *shards, uint32_t n_shards,
                   const struct atsi_load_params *params, const struct atsi_host *host,
                   struct atsi_err *err);
/* Gives back the memory of whole pages inside [ptr, ptr + bytes), which lies in a data section; it
 * stays readable.  [any thread] */
void gguf_data_release(struct gguf_shard *shards, uint32_t n_shards, const void *ptr, size_t bytes);

#endif
