/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations of a session that runs hybrid: every value has memory on both devices, the host's in
 * memory the accelerator can read.  Memory is shared by lifetime, at the same places on both.
 *
 * The accelerator's work is in order, so nothing there can be overwritten too early.  A queued copy
 * to it, however, reads the host's memory later than it was asked to: before the host writes there,
 * such copies are waited for (atsi_values_about_to_write).
 */
#ifndef ATSI_CORE_HYBRID_VALUES_H
#define ATSI_CORE_HYBRID_VALUES_H

#include "core/hybrid/devices.h"
#include "core/round/flow.h"

struct atsi_pending {
    uintptr_t from, to; /* host memory that a queued copy reads */
    struct atsi_event *event;
};

struct atsi_values {
    const struct atsi_graph *g;
    const struct atsi_accel *a;
    struct atsi_value_place *places; /* [n_values] */
    size_t bytes;                    /* of an arena */
    uint32_t chunk, out_rows;        /* most rows of a round, and of its output part */
    uint32_t rows, out_first, out_n; /* of the round */
    struct atsi_buf *buf[ATSI_N_DEVICES];
    /* [n_values] all rows of the round; main values as the output part sees them. */
    struct atsi_tensor *all[ATSI_N_DEVICES], *view[ATSI_N_DEVICES];
    struct atsi_pending *pending; /* [n_pending] */
    uint32_t n_pending, room;
};

/* Bytes of an arena, before there is one. */
int atsi_values_measure(const struct atsi_graph *g, uint32_t chunk, uint32_t out_rows,
                        size_t *bytes_out, struct atsi_err *err);
/* *v: zeroed by the caller; close it after a failure too. */
int atsi_values_open(struct atsi_values *v, const struct atsi_graph *g, const struct atsi_accel *a,
                     uint32_t chunk, uint32_t out_rows, struct atsi_err *err);
void atsi_values_close(struct atsi_values *v);

/* As they are when opened: all rows there is room for. */
void atsi_values_most_rows(struct atsi_values *v);
/* Rows of the round, and the window of them that the output part works on. */
void atsi_values_set_rows(struct atsi_values *v, uint32_t rows, uint32_t out_first, uint32_t out_n);
/* A value as a node sees it. */
const struct atsi_tensor *atsi_values_seen(const struct atsi_values *v, uint32_t device,
                                           int32_t value, bool by_output);

/* Ranges that copy a piece to a device; as many as are needed, at most `room` are written. */
uint32_t atsi_values_ranges(const struct atsi_values *v, const struct atsi_flow_piece *p,
                            uint32_t to, struct atsi_range *out, uint32_t room);
/* A copy to the accelerator of these ranges is queued. */
int atsi_values_note_read(struct atsi_values *v, const struct atsi_range *r, uint32_t n,
                          struct atsi_event *event, struct atsi_err *err);
/* All queued copies are over. */
void atsi_values_all_read(struct atsi_values *v);
/* The host will write [from, from + bytes): waits for copies that still read it. */
int atsi_values_about_to_write(struct atsi_values *v, const void *from, size_t bytes,
                               struct atsi_err *err);

#endif
