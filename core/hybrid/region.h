/* SPDX-License-Identifier: Apache-2.0
 *
 * The device region: one arena on the accelerator.
 *
 *     | residents, packed ...................... | slots ...... | not committed |
 *     0                                       place         committed       reserved
 *
 * Slots hold nothing from one round to the next, so that they may lie elsewhere under another
 * budget; residents stay.
 *
 * Reserved as a range of addresses where the device can (buf_reserve, buf_commit), so that a
 * smaller budget gives memory back; else allocated once.  The host always has every weight: what
 * must move is loaded again, so that no order of moves matters and nothing is ever half moved.
 * [one thread: the device's]
 */
#ifndef ATSI_CORE_HYBRID_REGION_H
#define ATSI_CORE_HYBRID_REGION_H

#include "core/hybrid/weights.h"

/* Residents and slots start at multiples of this, or of what the device asks for. */
#define ATSI_REGION_ALIGN 256u

struct atsi_region;

struct atsi_region_params {
    const struct atsi_backend_ops *ops; /* of the accelerator */
    struct atsi_backend *be;
    const struct atsi_transfer_ops *tx_ops; /* host to accelerator */
    struct atsi_transfer *tx;
    uint32_t channel;
    struct atsi_queue *queue;     /* of the accelerator, for a channel that uses_compute; or NULL */
    struct atsi_weights *weights; /* where bytes come from */
    struct atsi_log *log;         /* or NULL */
    uint64_t reserve_bytes;       /* the most it may ever be (0: slots + place): address space only
                                   * where the device can reserve */
    uint64_t slots_bytes;         /* temporary slots */
    uint64_t place_bytes;         /* residents */
    uint32_t in_flight;           /* transfers queued at once while loading; 0: 8 */
};

/* ATSI_ENOMEM: the device has not so much: ask for less. */
int atsi_region_open(const struct atsi_region_params *p, struct atsi_region **out,
                     struct atsi_err *err);
/* Queued work no longer touches it.  NULL is allowed. */
void atsi_region_close(struct atsi_region *r);

/* ---------------------------------------------------------------- residents */
/* Bytes that wants take, aligned as in the region. */
uint64_t atsi_region_need(const struct atsi_region *r, const struct atsi_piece *wants, uint32_t n);
struct atsi_region_change {
    uint32_t loaded, moved, dropped, kept; /* pieces */
    uint64_t bytes;                        /* transferred */
};
/* Makes exactly `wants` resident: drops others, keeps those that are there where they are, loads
 * the rest (several transfers in flight), and loads again at another place what is in the way, when
 * nothing else helps.  Nothing queued may read residents.  What was loaded in another layout than
 * the host has now stays as it is.
 *   ATSI_ENOMEM  wants need more than the region has (both numbers), or a transfer failed for want
 *                of memory: shrink and place again
 *   ATSI_EINTR   progress returned non-zero
 * After a failure what had arrived is resident, the rest is not (atsi_region_find). */
int atsi_region_place(struct atsi_region *r, const struct atsi_piece *wants, uint32_t n,
                      int (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes),
                      void *ctx, struct atsi_region_change *change, struct atsi_err *err);
/* The resident as a tensor on the device; false when it is not there.  Valid until the next
 * place(), resize() or close(). */
bool atsi_region_find(const struct atsi_region *r, const struct atsi_piece *p,
                      struct atsi_tensor *out);
/* Grows with every place() or resize() that changed an address or a layout. */
uint64_t atsi_region_version(const struct atsi_region *r);

/* ---------------------------------------------------------------- slots */
/* Cuts the slots' memory into n equal ones of `bytes` for a phase (enum atsi_phase).  Both phases
 * use the same memory: let transfers run dry when the phase changes.  ATSI_ENOMEM: too many. */
int atsi_region_cut_slots(struct atsi_region *r, uint32_t phase, uint32_t n, uint64_t bytes,
                          struct atsi_err *err);
/* Fixed until the next cut_slots of that phase or resize; NULL: there is none. */
void *atsi_region_slot(const struct atsi_region *r, uint32_t phase, uint32_t slot);

/* ---------------------------------------------------------------- live budget */
/* Other sizes: residents beyond the new end are dropped (place again), memory is given back where
 * the device can, and slots are to be cut again.  ATSI_ENOMEM: the device has not so much; all is
 * as before. */
int atsi_region_resize(struct atsi_region *r, uint64_t slots_bytes, uint64_t place_bytes,
                       struct atsi_err *err);
struct atsi_region_state {
    uint64_t reserved, committed; /* bytes of the device's memory range, and really held */
    uint64_t slots, place, used;  /* used: by residents, alignment included */
    uint32_t n_residents;
    bool can_shrink; /* resize gives memory back */
};
void atsi_region_state(const struct atsi_region *r, struct atsi_region_state *out);

#endif
