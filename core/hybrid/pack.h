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
    uint64_t bytes, done_bytes;
    bool running;
};

struct atsi_pack_params {
    struct atsi_model *model;
    struct atsi_weights *weights;
    struct atsi_log *log;    /* or NULL */
    const uint8_t *packable; /* [atsi_weights_count]: 1: every backend reads it as panels */
    uint32_t mode;           /* enum atsi_pack_mode */
    uint32_t n_threads;      /* 0: 1 */
    bool cache;              /* load.pack_cache */
    /* May be NULL.  AUTO: called on a packing thread; NOW: on the caller's; non-zero stops. */
    int (*progress)(void *ctx, const struct atsi_pack_state *s);
    void *progress_ctx;
};

/* load.pack of a configuration. */
uint32_t atsi_pack_mode_read(const struct atsi_conf *c);
/* Marks the tensors that `ops` use as matrices and that `be` reads as panels in every one of them;
 * clears those it does not.  Call for each backend, over an array of ones. */
void atsi_pack_mark(const struct atsi_backend_ops *ops, const struct atsi_backend *be,
                    const struct atsi_op *const *list, uint32_t n_ops, struct atsi_weights *w,
                    uint8_t *packable);
/* Starts packing.  NOW: ATSI_ENOMEM, ATSI_EINTR (what was packed stays so); AUTO: failures are
 * logged, tensors keep their layout. */
int atsi_packer_open(const struct atsi_pack_params *p, struct atsi_packer **out,
                     struct atsi_err *err);
/* Stops within a piece and waits.  NULL is allowed. */
void atsi_packer_close(struct atsi_packer *p);
void atsi_packer_state(const struct atsi_packer *p, struct atsi_pack_state *out);
/* Waits until all is packed, stopped or failed. */
void atsi_packer_wait(struct atsi_packer *p);

#endif
