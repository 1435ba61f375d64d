/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of packed weights: written when all of a model's tensors are packed, mapped the next
 * time.
 *
 *     0      head: magic, version, number of tensors, fingerprint of the model, place of the table
 *     4096   tensors, each at a multiple of 4096, in order
 *     ..     a page of zeros (kernels may read a little past the last row)
 *     table  one entry per tensor: name, type, shape, place, hash of its bytes
 *     end    hash of head and table
 *
 * Little-endian.  Head and table are checked when the file is opened; the bytes of a tensor are
 * checked (and one panel compared with the model's) before it is used.
 */
#ifndef ATSI_CORE_HYBRID_PACK_CACHE_H
#define ATSI_CORE_HYBRID_PACK_CACHE_H

#include "core/fingerprint.h"

#include <limits.h>
#include <stdatomic.h>

struct atsi_pack_entry {
    uint64_t name_hash, offset, bytes, hash;
    uint64_t ne[4];
    uint32_t type, reserved;
};

struct atsi_pack_cache {
    char path[PATH_MAX];
    struct atsi_fingerprint of;
    unsigned char *map; /* NULL: there is no usable file */
    size_t map_bytes;
    uint64_t n;
    const struct atsi_pack_entry *table; /* [n], in the mapping */
};

/* Path and fingerprint of a model's file, whose folder is made; maps it when it is there and whole.
 * A file that is not usable is described in the log and will be replaced.  ATSI_EIO: no folder. */
int atsi_pack_cache_open(struct atsi_pack_cache *c, const struct atsi_model *m,
                         struct atsi_err *err);
void atsi_pack_cache_close(struct atsi_pack_cache *c); /* unmaps, unless map was taken (NULL) */
/* The entry of a tensor of this name, type and shape; NULL: none. */
const struct atsi_pack_entry *atsi_pack_cache_find(const struct atsi_pack_cache *c,
                                                   const struct atsi_tensor *t);

/* Hash of a part of a tensor; the hashes of all parts are added. */
uint64_t atsi_pack_hash(const void *part, size_t bytes, uint64_t offset);
#define ATSI_PACK_PART ((size_t)1 << 20) /* parts start at multiples of this */

/* Writes packed tensors (data: panels) to c->path, whole or not at all.  ATSI_EINTR: *stop. */
int atsi_pack_cache_write(const struct atsi_pack_cache *c, const struct atsi_tensor *const *tensors,
                          uint32_t n, const atomic_bool *stop, struct atsi_err *err);

#endif
