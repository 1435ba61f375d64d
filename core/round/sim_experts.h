/* SPDX-License-Identifier: Apache-2.0
 *
 * Expert caches on simulated devices: wraps the source of decode rounds.  Groups with a cache run
 * as a routing trace says: misses on the host, hits on the accelerator beside them, then swaps on
 * the copy engine.
 */
#ifndef ATSI_CORE_ROUND_SIM_EXPERTS_H
#define ATSI_CORE_ROUND_SIM_EXPERTS_H

#include "atsinfer/simulate.h"
#include "core/experts/routing.h"
#include "core/round/caches.h"
#include "core/round/exec.h"

struct atsi_sim_experts;

struct atsi_sim_experts_params {
    const struct atsi_routing *routing;
    uint32_t way; /* enum atsi_cache_way */
    float half_life;
    const struct atsi_policy_ops *policy; /* of ATSI_CACHE_POLICY */
};

int atsi_sim_experts_open(const struct atsi_sim_experts_params *p, struct atsi_sim_experts **out,
                          struct atsi_err *err);
void atsi_sim_experts_close(struct atsi_sim_experts *x); /* NULL is allowed; before the devices */
/* The source to use instead of `inner`, which stays in use behind it. */
const struct atsi_exec_source *atsi_sim_experts_wrap(struct atsi_sim_experts *x,
                                                     const struct atsi_exec_source *inner);
/* The placement is known; q: the costs that are simulated, before atsi_question_caches().  groups:
 * [borrowed until close].  ATSI_EINVAL: the trace is of other layers. */
int atsi_sim_experts_start(struct atsi_sim_experts *x, const struct atsi_question *q,
                           const struct atsi_exec_devices *d, const struct atsi_cache_group *groups,
                           uint32_t n, struct atsi_err *err);
/* The next decode round computes that token; transfers of swaps may take grant_ns of it. */
void atsi_sim_experts_token(struct atsi_sim_experts *x, uint64_t token, uint64_t grant_ns);
void atsi_sim_experts_counts(const struct atsi_sim_experts *x, struct atsi_books_counts *out);

#endif
