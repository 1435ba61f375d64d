/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of a device's memory a session may take, and what for.
 *
 *     total = fixed (always + compute + workspace + overhead) + slots + place
 *
 *   always     small tensors that items on the device need wherever their matrix lives (norms)
 *   compute    activations
 *   workspace  reserve for libraries of the device (declared per kind of device)
 *   overhead   alignment of every resident, and what kernels may read past the last one
 *   slots      temporary slots for weights on the move
 *   place      resident weights, KV caches and recurrent states: what a placement may fill
 *
 * In this order: atsi_budget_read (settings), atsi_budget_make (before items are cut into tiles,
 * since slots decide how large a tile may be), atsi_budget_check (with the items), and
 * atsi_budget_refresh just before memory is committed, since others use the device too.
 */
#ifndef ATSI_CORE_HYBRID_BUDGET_H
#define ATSI_CORE_HYBRID_BUDGET_H

#include "atsinfer/plan.h"
#include "atsinfer/plugin.h"
#include "core/cgroup.h"
#include "core/conf.h"
#include "core/round/items.h"

/* ---------------------------------------------------------------- settings */
enum atsi_amount_kind {
    ATSI_AMOUNT_AUTO = 0,
    ATSI_AMOUNT_OFF,
    ATSI_AMOUNT_BYTES,
    ATSI_AMOUNT_PERCENT,      /* N% of the whole */
    ATSI_AMOUNT_PERCENT_MODEL /* N%m of the model's weights */
};

struct atsi_amount {
    uint32_t kind; /* enum atsi_amount_kind */
    uint64_t bytes;
    double percent;
};

struct atsi_budget_conf {
    struct atsi_amount vram; /* memory.vram: N% of the device's total */
    struct atsi_amount temp; /* memory.temp: N% of what vram gives */
    struct atsi_amount pin;  /* memory.pin: N% of the available memory */
    uint64_t margin_bytes;   /* memory.vram_margin, for vram = auto */
    uint32_t max_slots;      /* memory.slots */
};

/* memory.* of a configuration.  ATSI_ECONF. */
int atsi_budget_read(const struct atsi_conf *c, struct atsi_budget_conf *out, struct atsi_err *err);
/* memory.vram says: no accelerator. */
bool atsi_budget_is_off(const struct atsi_budget_conf *c);
/* "auto", "off", "6GiB", "80%", "30%m".  ATSI_ECONF. */
int atsi_amount_parse(const char *key, const char *text, struct atsi_amount *out,
                      struct atsi_err *err);

/* ---------------------------------------------------------------- the device's memory */
struct atsi_budget_sizes {
    uint64_t weights;  /* of all items */
    uint64_t largest;  /* the largest matrix (of a stack: all experts) */
    uint64_t always;   /* see above */
    uint64_t compute;  /* see above */
    uint64_t caches;   /* KV caches and states, if all of them lived on the device */
    uint32_t n_wanted; /* pieces that may be resident at once, for alignment */
};

struct atsi_budget {
    bool off;            /* no accelerator: memory.vram = 0 */
    bool caches_counted; /* false under N%m: caches cost a placement nothing (resident_bytes = 0) */
    uint64_t device_total, device_free; /* as the device said; 0: it does not know */
    uint64_t total, always, compute, workspace, overhead, slots, place;
    uint64_t tile; /* for atsi_items_params.tile_bytes: two of them fit the slots; 0: never cut */
    uint32_t max_slots;
    char why[160]; /* for the log: how `total` came about */
};

/* props: of the open device.  ATSI_ENOFIT: the fixed part alone is more than there is (the message
 * has the table and the smallest memory.vram that would do). */
int atsi_budget_make(const struct atsi_budget_conf *c, const struct atsi_props *props,
                     const struct atsi_budget_sizes *s, struct atsi_budget *out,
                     struct atsi_err *err);
/* Free memory was read again (props), and `held` bytes of it are what this session has already
 * taken: shrinks slots and place (never the rest) when there is less than planned.  True: changed,
 * so place again. */
bool atsi_budget_refresh(struct atsi_budget *b, const struct atsi_budget_conf *c,
                         const struct atsi_props *props, const struct atsi_budget_sizes *s,
                         uint64_t held);
/* Do items and their pins fit, with caches for ctx_max positions and ram_bytes (0: not limited) on
 * the host?  Sums as in `atsinfer plan`.  ATSI_ENOFIT: *memory says what is missing and err what
 * would do. */
int atsi_budget_check(const struct atsi_budget *b, const struct atsi_items *it, uint32_t ctx_max,
                      uint64_t ram_bytes, struct atsi_plan_memory *memory, struct atsi_err *err);

/* ---------------------------------------------------------------- the host's memory */
/* Bytes that may be pinned: auto is half of what is available, within RLIMIT_MEMLOCK (memlock;
 * UINT64_MAX: none) and the control group.  why (may be NULL): what bounds it. */
uint64_t atsi_budget_pin(const struct atsi_budget_conf *c, const struct atsi_limits *limits,
                         uint64_t memlock, uint64_t weights, char *why, size_t why_size);
/* RLIMIT_MEMLOCK of this process; UINT64_MAX: no limit, or one that does not bind it. */
uint64_t atsi_budget_memlock(void);

#endif
