/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing weights into panels while answers are already being computed from the file's layout.
 * Threads of low priority take pieces of one tensor after the other; a packed tensor is offered to
 * the host region, which takes it over between rounds.  load.pack, load.pack_cache.
 */
#ifndef ATSI_CORE_HYBRID_PACK_H
#define ATSI_CORE_HYBRID_PACK_H

#include "core/hybrid/weights.h"

struct atsi_packer;

enum atsi_pack_mode {
    ATSI_PACK_OFF = 0,
    ATSI_PACK_AUTO, /* in the background */
    ATSI_PACK_NOW   /* before start() returns */
};

struct atsi_pack_state {
    uint32_t n_tensors, n_done, n_cached; /* to pack; done; of these from the cache file */
    uint32_t n_skipped;                   /* for want of memory */
    uint64_t bytes, done_bytes;
    bool running;
};

struct atsi_pack_params {
    struct atsi_model *model;
    struct atsi_weights *weights;
    struct atsi_log *log;    /* or NULL */
    const uint8_t *packable; /* [atsi_weights_count]: 1: every backend reads it as panels */
    uint32_t mode;           /* enum atsi_pack_mode */
    uint32_t n_threads;      /* 0: one per worker of the runtime */
    bool cache;              /* load.pack_cache */
    /* May be NULL.  Called on a packing thread, by one at a time; non-zero stops. */
    int (*progress)(void *ctx, const struct atsi_pack_state *s);
    void *progress_ctx;
    /* NULL, or for tests: bytes of memory that may still be used. */
    uint64_t (*available)(void *ctx);
    void *available_ctx;
};

/* load.pack of a configuration. */
uint32_t atsi_pack_mode_read(const struct atsi_conf *c);
/* Marks the tensors that `ops` use as matrices and that `be` reads as panels in every one of them;
 * clears those it does not.  Call for each backend, over an array of ones.  Weights of ops may be
 * copies of the tensors' structs: the name's address tells which tensor it is. */
void atsi_pack_mark(const struct atsi_backend_ops *ops, const struct atsi_backend *be,
                    const struct atsi_op *const *list, uint32_t n_ops, struct atsi_weights *w,
                    uint8_t *packable);
/* Starts packing, in the order in which the model's graph uses its tensors.  NOW: returns when it
 * is done; ATSI_EINTR: progress stopped it (what was packed stays so).  Whatever cannot be packed
 * keeps its layout, and the log says why; ATSI_ENOMEM: there were no threads or tables.  *out may
 * be NULL after ATSI_OK: there is nothing to do. */
int atsi_packer_open(const struct atsi_pack_params *p, struct atsi_packer **out,
                     struct atsi_err *err);
/* Stops within a piece and waits.  NULL is allowed. */
void atsi_packer_close(struct atsi_packer *p);
void atsi_packer_state(const struct atsi_packer *p, struct atsi_pack_state *out);
/* Waits until all is packed, stopped or failed; at most so long.  False: it goes on. */
bool atsi_packer_wait(struct atsi_packer *p, uint32_t ms);

#endif
