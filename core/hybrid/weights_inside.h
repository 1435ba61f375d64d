/* SPDX-License-Identifier: Apache-2.0
 * The inside of the host region, shared by weights.c (views, rounds) and pin.c (the ladder). */
#ifndef ATSI_CORE_HYBRID_WEIGHTS_INSIDE_H
#define ATSI_CORE_HYBRID_WEIGHTS_INSIDE_H

#include "core/hybrid/weights.h"

#include <pthread.h>
#include <stdatomic.h>

#define ATSI_PAGE 4096u /* steps of registrations; also the smallest page of this architecture */

/* A view that waits to replace the one in use. */
struct atsi_offer {
    bool waits;
    uint32_t layout; /* enum atsi_layout */
    uint32_t home;   /* enum atsi_weight_home */
    void *data;
};

struct atsi_weight {
    struct atsi_tensor tensor; /* what ops point at */
    void *file_data;           /* where the loader has it */
    uint64_t bytes;
    uint32_t home;   /* enum atsi_weight_home */
    bool coming;     /* announced */
    bool unreleased; /* replaced, but the loader still holds its memory (pinned then) */
    void *reserved;  /* place for its packed copy, or NULL */
    struct atsi_offer next;
};

/* One address range for packed copies. */
struct atsi_slab {
    void *map;
    size_t bytes;
    struct atsi_slab *older;
};

/* One registration with the device: whole pages, none in two blocks. */
struct atsi_pin_block {
    unsigned char *start;
    uint64_t bytes;
};

struct atsi_pins {
    const struct atsi_backend_ops *ops; /* NULL: nothing is or may be pinned */
    struct atsi_backend *be;
    struct atsi_pin_block *blocks; /* [n_blocks], ascending */
    uint32_t n_blocks, room;
    uint32_t *ranked; /* [n_ranked] */
    uint32_t n_ranked;
    uint64_t budget, bytes;
    uint32_t refused;
    bool files_refused; /* not this kind of memory */
    bool full;          /* the device gave no more */
    bool said;
};

struct atsi_lock {
    pthread_mutex_t mutex;
};

struct atsi_weights {
    struct atsi_model *model;
    const struct atsi_loaded_info *info;
    uint32_t n;
    struct atsi_weight *all; /* [n] */
    struct atsi_lock *lock;  /* of all below; apart, since reading takes it too */
    uint32_t in_round;       /* sessions between begin() and end() */
    uint32_t n_waiting;      /* offers */
    uint64_t version;
    struct atsi_slab *slabs;
    struct atsi_pins pins; /* of the thread that owns the device; blocks under the lock */
};

/* Under the lock: number of the block that holds `at`, or of the next one above it; n_blocks. */
uint32_t atsi_pin_block_at(const struct atsi_weights *w, const unsigned char *at);
/* Under the lock: does any block touch [p, p + bytes)? */
bool atsi_pin_touches(const struct atsi_weights *w, const void *p, uint64_t bytes);
/* Under the lock: gives the loader's memory of a replaced tensor back, once it is not pinned. */
void atsi_weight_release(struct atsi_weights *w, struct atsi_weight *t);
void atsi_pins_close(struct atsi_weights *w);

#endif
