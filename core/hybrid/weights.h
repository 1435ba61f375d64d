/* SPDX-License-Identifier: Apache-2.0
 *
 * The host region: where the bytes of every tensor of a model are now (the file's mapping, the
 * loader's copy, or packed panels), and which of them the accelerator can read directly.
 *
 * One object per model, shared by its sessions.  A tensor's struct never moves, so that ops keep
 * pointing at it; what it says changes only in atsi_weights_begin(), when no session is in a round.
 *
 *     session:   atsi_weights_begin   run splits, queue transfers   atsi_weights_end
 *     packer:          atsi_weights_offer (any time, any thread)
 */
#ifndef ATSI_CORE_HYBRID_WEIGHTS_H
#define ATSI_CORE_HYBRID_WEIGHTS_H

#include "core/runtime.h"

struct atsi_weights;

/* A piece of a weight: rows [first_row, end_row) of every matrix of a tensor. */
struct atsi_piece {
    uint32_t tensor;             /* index into atsi_loaded_info.tensors */
    uint64_t first_row, end_row; /* 0, 0: all; else multiples of 16, or the end */
};

enum atsi_weight_home {
    ATSI_HOME_NONE = 0, /* a file opened without weights */
    ATSI_HOME_FILE,     /* as the loader gave it: mapped, or read */
    ATSI_HOME_PACKED,   /* panels in memory of ours */
    ATSI_HOME_CACHE     /* panels in a mapped cache file */
};

/* m must outlive it.  ATSI_ENOMEM.  [owned by caller: atsi_weights_close] */
int atsi_weights_open(struct atsi_model *m, struct atsi_weights **out, struct atsi_err *err);
/* No session uses it any more; registrations are undone.  NULL is allowed. */
void atsi_weights_close(struct atsi_weights *w);

/* ---------------------------------------------------------------- views */
/* The tensor as it is on the host now: type, layout, data.  The pointer is for atsi_op.weight and
 * stays valid until close; what it points at is constant between begin() and end(). */
const struct atsi_tensor *atsi_weights_tensor(const struct atsi_weights *w, uint32_t tensor);
uint32_t atsi_weights_count(const struct atsi_weights *w);
enum atsi_weight_home atsi_weights_home(const struct atsi_weights *w, uint32_t tensor);
/* Bytes of a piece, the same in every layout.  0 when it does not exist. */
uint64_t atsi_piece_bytes(const struct atsi_weights *w, const struct atsi_piece *p);

/* ---------------------------------------------------------------- rounds */
/* A round (or any queued work that reads host weights) begins: replacements that wait are taken
 * over first, unless another session is in a round.  Returns a version that grows with every
 * replacement: captured graphs and plans that embed addresses or layouts are made again when it
 * differs from the last one.  [any thread, one per session] */
uint64_t atsi_weights_begin(struct atsi_weights *w);
/* Nothing queued reads host weights any more. */
void atsi_weights_end(struct atsi_weights *w);
/* True when replacements wait for a moment without rounds: let transfers that carry over from round
 * to round run dry, then end() and begin().  [any thread] */
bool atsi_weights_waiting(const struct atsi_weights *w);

/* ---------------------------------------------------------------- replacing */
/* Addresses for packed copies of the tensors of `list`, one behind the other in that order, so that
 * the three stacks of a layer's experts lie together; 2 MiB pages are asked for, no memory is taken
 * before it is written.  at: [n], set.  A tensor that has such a place keeps it.  ATSI_ENOMEM. */
int atsi_weights_reserve(struct atsi_weights *w, const uint32_t *list, uint32_t n, void **at,
                         struct atsi_err *err);
/* The memory that was written at a tensor's reserved place is given back, and the announcement
 * taken back: it will not be offered. */
void atsi_weights_discard(struct atsi_weights *w, uint32_t tensor);
/* Replaces a tensor's bytes: at once when no session is in a round, else at the next begin().  The
 * loader's pages are then released.  data: the tensor in `layout`; at its reserved place (PACKED)
 * or in a mapping that outlives w (CACHE).  [any thread] */
void atsi_weights_offer(struct atsi_weights *w, uint32_t tensor, enum atsi_layout layout,
                        enum atsi_weight_home home, void *data);
/* A mapping that offers point into: [taken], unmapped by close.  ATSI_ENOMEM: it is the caller's.
 */
int atsi_weights_keep(struct atsi_weights *w, void *map, size_t bytes);
/* True when the loader can give the memory of a replaced tensor back, so that nothing stays in
 * memory twice. */
bool atsi_weights_can_release(const struct atsi_weights *w);

/* ---------------------------------------------------------------- transfers */
/* Host bytes of a piece, of matrices [first, first + n) of a stack (0, 1 when it is none), as
 * ranges to `dst`, where they lie one after the other.  Ranges end where one pinned block ends and
 * the next begins, since no copy may span two.  Returns their number; more than `room` when there
 * were too many: nothing past it was written. */
uint32_t atsi_weights_ranges(const struct atsi_weights *w, const struct atsi_piece *p,
                             uint64_t first, uint64_t n, void *dst, struct atsi_range *out,
                             uint32_t room);
/* The tensor that a copy of a piece (all matrices) at `data` is: its layout is the host's now. */
struct atsi_tensor atsi_weights_view(const struct atsi_weights *w, const struct atsi_piece *p,
                                     void *data);

/* ---------------------------------------------------------------- pinning */
struct atsi_pin_state {
    uint64_t budget, pinned, wanted; /* bytes; wanted: ranked tensors */
    uint32_t n_pinned;               /* tensors wholly pinned */
    uint32_t refused;                /* registrations the device refused */
};

/* The ladder: registers the memory of `ranked` tensors (those that plans promote most, first) with
 * the device, in chunks, up to `budget` bytes; what is refused or does not fit goes through the
 * transfer engine's staging or pageable copies.  Never fails; the log says once what was reached
 * and why no more.  Tensors announced to be packed are not pinned before they are.  Called
 * again with another ranking or budget, or when tensors were packed: what fell out is unregistered.
 * budget 0, or a device without host_register: nothing is pinned.  [thread that owns the device;
 * between rounds] */
void atsi_weights_pin(struct atsi_weights *w, const struct atsi_backend_ops *ops,
                      struct atsi_backend *be, const uint32_t *ranked, uint32_t n, uint64_t budget);
/* Before the device is closed; nothing queued reads host weights. */
void atsi_weights_unpin(struct atsi_weights *w);
void atsi_weights_pin_state(const struct atsi_weights *w, struct atsi_pin_state *out);
/* By the packer: the tensor will be offered, or discarded.  False: somebody else announced it, or
 * it is packed.  [any thread] */
bool atsi_weights_announce(struct atsi_weights *w, uint32_t tensor);

#endif
