/* SPDX-License-Identifier: Apache-2.0
 *
 * What there is to pack: one job per tensor, and where its panels come from.
 */
#ifndef ATSI_CORE_HYBRID_PACK_JOBS_H
#define ATSI_CORE_HYBRID_PACK_JOBS_H

#include "core/hybrid/pack.h"
#include "core/hybrid/pack_cache.h"
#include "panel/pack.h"

enum atsi_pack_source { ATSI_PACK_FROM_ROWS = 0, ATSI_PACK_FROM_CACHE };

/* Work is taken in parts: panels of the file's rows, or ATSI_PACK_PART bytes of the cache file. */
struct atsi_pack_job {
    uint32_t tensor, source;
    struct atsi_tensor as_file; /* the tensor as it was before */
    struct atsi_panel_matrix m;
    const unsigned char *rows; /* the file's */
    unsigned char *panels;     /* where they are packed to, or lie in the cache file */
    void *place;               /* for packed ones */
    uint64_t bytes, hash;      /* hash: what the cache file says */
    uint64_t parts, step;      /* parts in all, and taken at a time */
    uint64_t next, left;       /* under the packer's lock: first part not taken; parts not done */
    uint64_t sum;              /* under the packer's lock: of the hashes */
    bool started, done;
};

struct atsi_pack_jobs {
    struct atsi_pack_job *job; /* [n] */
    uint32_t n;
    uint64_t bytes;
    struct atsi_pack_cache *cache; /* NULL: none */
};

/* Announces and lists what nobody else packs, and finds out what of it is in the cache file.  After
 * an error close it too. */
int atsi_pack_jobs_open(struct atsi_pack_jobs *q, const struct atsi_pack_params *p,
                        struct atsi_err *err);
/* Discards the tensors whose jobs are not done.  The mapping of the cache file stays with the
 * weights. */
void atsi_pack_jobs_close(struct atsi_pack_jobs *q, struct atsi_weights *w);
/* From its first part, from `source`. */
void atsi_pack_job_aim(struct atsi_pack_job *j, uint32_t source);
/* Can the tensor be packed at all? */
bool atsi_pack_fits(const struct atsi_tensor *t);

#endif
