/* SPDX-License-Identifier: Apache-2.0
 * Ways of choosing on a routing trace. */
#include "core/experts/ways.h"

#include "atsinfer/plugin.h"
#include "core/memory.h"
#include "sched/experts.h"

#include <stdlib.h>
#include <string.h>

/* From the last token to the first: when each use is followed by the next one. */
static void look_back(struct atsi_way *w)
{
    const struct atsi_routing *r = w->routing;
    for (uint32_t l = 0; l < r->n_layers; l++) {
        uint64_t *next = w->next + w->next_at[l];
        for (uint32_t e = 0; e < r->layers[l].n_experts; e++)
            next[e] = UINT64_MAX;
        for (uint64_t t = r->n_tokens; t-- > 0;)
            for (uint32_t k = 0; k < r->layers[l].n_used; k++) {
                uint64_t at = t * r->n_used + r->at[l] + k;
                uint64_t *of = &next[r->ids[at]];
                w->next_use[at] = *of == UINT64_MAX ? UINT32_MAX : (uint32_t)*of;
                *of = t;
            }
    }
}

int atsi_way_open(struct atsi_way *w, struct atsi_err *err)
{
    const struct atsi_routing *r = w->routing;
    uint64_t experts = 0;
    size_t uses;
    if (w->way != ATSI_CACHE_CLAIRVOYANT)
        return ATSI_OK;
    w->next_at = calloc(r->n_layers, sizeof *w->next_at);
    for (uint32_t l = 0; l < r->n_layers && w->next_at != NULL; l++) {
        w->next_at[l] = experts;
        experts += r->layers[l].n_experts;
    }
    w->next = calloc((size_t)experts + 1, sizeof *w->next);
    if (atsi_mul_size((size_t)r->n_tokens, (size_t)r->n_used * sizeof *w->next_use, &uses))
        w->next_use = malloc(uses + 1);
    if (w->next_at == NULL || w->next == NULL || w->next_use == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a trace of %llu tokens",
                         (unsigned long long)r->n_tokens);
    look_back(w);
    return ATSI_OK;
}

void atsi_way_close(struct atsi_way *w)
{
    free(w->next_use);
    free(w->next);
    free(w->next_at);
    w->next_use = NULL;
    w->next = w->next_at = NULL;
}

static void move_on(struct atsi_way *w, uint32_t l)
{
    const struct atsi_routing *r = w->routing;
    for (uint32_t k = 0; k < r->layers[l].n_used; k++) {
        uint64_t at = w->token * r->n_used + r->at[l] + k;
        uint32_t next = w->next_use[at];
        w->next[w->next_at[l] + r->ids[at]] = next == UINT32_MAX ? UINT64_MAX : next;
    }
}

int atsi_way_swap(void *ctx, const struct atsi_expert_cache *in, struct atsi_expert_swaps *out,
                  struct atsi_err *err)
{
    struct atsi_way *w = ctx;
    uint32_t l = w->layer_of != NULL ? w->layer_of[in->layer] : in->layer;
    switch (w->way) {
    case ATSI_CACHE_LRU:
        sched_experts_lru(in, out);
        return ATSI_OK;
    case ATSI_CACHE_LFU:
        sched_experts_lfu(in, out);
        return ATSI_OK;
    case ATSI_CACHE_CLAIRVOYANT:
        move_on(w, l);
        sched_experts_clairvoyant(in, w->next + w->next_at[l], out);
        return ATSI_OK;
    default:
        if (w->policy != NULL && ATSI_HAS(w->policy, struct atsi_policy_ops, swap_experts))
            return w->policy->swap_experts(in, out, err);
        sched_experts_fade(in, out);
        return ATSI_OK;
    }
}
