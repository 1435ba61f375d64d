/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder: from what rounds took to the slowdowns in force, per cost class and in per mille of
 * the profile's times.
 */
#ifndef ATSI_CORE_ROUND_RECORD_H
#define ATSI_CORE_ROUND_RECORD_H

#include "core/round/exec.h"

#define ATSI_RECORD_ROUNDS 5 /* the median of so many, so that one outlier changes nothing */

struct atsi_recorder {
    uint32_t ratio[ATSI_N_CLASSES][ATSI_RECORD_ROUNDS];
    uint32_t n[ATSI_N_CLASSES]; /* rounds seen, at most ATSI_RECORD_ROUNDS */
    uint32_t at[ATSI_N_CLASSES];
    uint32_t since[ATSI_N_CLASSES]; /* rounds since something of the class was measured */
};

void atsi_recorder_reset(struct atsi_recorder *r);
/* Takes one round in.  Times of host items and transfers that overlapped are first freed of what
 * they cost each other by the profile, so that a slowdown means load and not our own traffic. */
void atsi_recorder_take(struct atsi_recorder *r, const struct atsi_question *q, uint32_t phase,
                        const struct atsi_plan *plan, const struct atsi_record *rec);
/* A round that was not measured went by. */
void atsi_recorder_skip(struct atsi_recorder *r);
/* Takes a probe of a class in: what was known of it is too old to count. */
void atsi_recorder_probed(struct atsi_recorder *r, uint32_t cls, uint64_t seen_ns,
                          uint64_t profile_ns);
/* Slowdowns now; a class that was never measured is 1000. */
void atsi_recorder_now(const struct atsi_recorder *r, uint32_t out[ATSI_N_CLASSES]);

#endif
