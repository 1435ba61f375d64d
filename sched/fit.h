/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithm 1 as policies use it: attention lives on the GPU if all of it fits, and budgets are
 * counted in units as fine as asked and the lent scratch allow.
 */
#ifndef ATSI_SCHED_FIT_H
#define ATSI_SCHED_FIT_H

#include "sched/problem.h"

/* Scratch under which Algorithm 1, and placement for both phases, keep to the unit asked for up to
 * 2^17 units of budget: 128 GiB in MiB. */
size_t sched_fit_room(uint32_t n);

/* The smallest unit, the one asked for times a power of two, whose table fits `room` bytes; 0 when
 * none does.  needs: bytes of scratch by unit. */
int64_t sched_fit_unit(int64_t unit, size_t room, size_t (*needs)(const void *ctx, int64_t unit),
                       const void *ctx);

/* Pins the attention that is not pinned yet to the GPU, if all of it fits there beside what is. */
void sched_fit_pin_attention(struct sched_view *v, int64_t unit);

/* b_out: Algorithm 1's placement of a phase, whose pins change as above.  When rounding up to units
 * leaves no room for pins that do fit in bytes: by gain per byte, which counts bytes.  `room` bytes
 * of scratch.  Call sched_view_check_pins() before. */
int sched_fit(struct sched_view *v, int64_t unit, void *scratch, size_t room, uint8_t *b_out,
              struct atsi_err *err);

#endif
