/* SPDX-License-Identifier: Apache-2.0
 * Ways of choosing for caches that decode a routing trace: LRU, LFU, a policy, or somebody who
 * knows the rest of the trace. */
#ifndef ATSI_CORE_EXPERTS_WAYS_H
#define ATSI_CORE_EXPERTS_WAYS_H

#include "atsinfer/policy.h"
#include "atsinfer/simulate.h"
#include "core/experts/routing.h"

struct atsi_way {
    uint32_t way; /* enum atsi_cache_way */
    const struct atsi_routing *routing;
    const struct atsi_policy_ops *policy; /* of ATSI_CACHE_POLICY; NULL: frequency that fades */
    const uint32_t *layer_of;             /* [layers of the books] of the trace; NULL: the same */
    uint64_t token;                       /* of the trace, that is being decoded */
    uint32_t *next_use; /* clairvoyant: [tokens][n_used] token that uses it next, UINT32_MAX */
    uint64_t *next;     /* clairvoyant: by layer, [n_experts] next use as of now */
    uint64_t *next_at;  /* [n_layers] */
};

/* *w: way, routing and policy set, the rest zero.  The caller closes also after a failure. */
int atsi_way_open(struct atsi_way *w, struct atsi_err *err);
void atsi_way_close(struct atsi_way *w);
/* An atsi_swap_fn (books.h), ctx: a struct atsi_way. */
int atsi_way_swap(void *ctx, const struct atsi_expert_cache *in, struct atsi_expert_swaps *out,
                  struct atsi_err *err);

#endif
