/* SPDX-License-Identifier: Apache-2.0
 * The inside of the device region: region.c (memory, tables), region_fit.c (places), region_load.c
 * (bytes). */
#ifndef ATSI_CORE_HYBRID_REGION_INSIDE_H
#define ATSI_CORE_HYBRID_REGION_INSIDE_H

#include "core/hybrid/region.h"

#define ATSI_NOWHERE UINT64_MAX

struct atsi_resident {
    struct atsi_piece piece;
    uint64_t bytes, room; /* room: aligned */
    uint64_t at;          /* from the start; ATSI_NOWHERE: no place yet */
    uint32_t layout;      /* enum atsi_layout, as it was loaded */
    bool loaded;
};

/* One transfer under way. */
struct atsi_lane {
    struct atsi_event *done;
    struct atsi_range *ranges; /* [room] */
    uint32_t room, resident;
    bool busy;
};

struct atsi_region {
    struct atsi_region_params p;
    struct atsi_buf *buf;
    unsigned char *base;
    uint64_t reserved, committed, slots, place, used;
    uint64_t align, pad;
    bool can_shrink;
    uint64_t version;
    struct atsi_resident *all; /* [n], in no order */
    uint32_t n;
    uint32_t n_slots[2];
    uint64_t slot_step[2];
    struct atsi_lane *lanes; /* [p.in_flight] */
};

/* region_fit.c: gives every resident without a place one.  Those in the way are sent elsewhere (not
 * loaded any more; counted in *moved_out).  r->used <= r->place.  ATSI_ENOMEM: of the host. */
int atsi_region_fit(struct atsi_region *r, uint32_t *moved_out, struct atsi_err *err);

/* region_load.c */
int atsi_region_open_lanes(struct atsi_region *r, struct atsi_err *err);
void atsi_region_close_lanes(struct atsi_region *r); /* half-opened ones too */
/* Loads every resident that has a place and no contents; adds to sums->loaded and ->bytes. */
int atsi_region_load(struct atsi_region *r,
                     int (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes),
                     void *ctx, struct atsi_region_change *sums, struct atsi_err *err);

#endif
