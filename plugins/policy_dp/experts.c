/* SPDX-License-Identifier: Apache-2.0
 *
 * Expert caches: which groups of stacks get one, how many slots, what a round costs with them, and
 * who comes in.
 */
#include "dp.h"

#include "sched/arena.h"
#include "sched/timeline.h"

size_t dp_caches_scratch(uint32_t n)
{
    return SCHED_ROOM(struct sched_cache_layer, n) + SCHED_ROOM(int32_t, n) +
           SCHED_ROOM(uint32_t, n);
}

static int is_stack(const struct atsi_item *it)
{
    return it->n_experts > 0 && it->router >= 0 && it->resident_bytes >= it->n_experts;
}

/* Experts of a stack that a token uses, by what a decode round reads of it. */
static uint32_t n_used(const struct atsi_item *it)
{
    double share = (double)it->touched_bytes / (double)it->resident_bytes;
    uint32_t k = (uint32_t)(share * it->n_experts + 0.5);
    return k < 1 ? 1 : k < it->n_experts ? k : it->n_experts;
}

static int may_join(const struct atsi_item *it, const struct sched_cache_layer *g)
{
    return it->pinned < 0 && it->n_experts == g->n_experts && n_used(it) == g->n_used;
}

/* Items first to end - 1 wait for one router. */
static void add_group(const struct atsi_problem *p, uint32_t first, uint32_t end,
                      struct dp_caches *c)
{
    struct sched_cache_layer g = {.n_experts = p->items[first]->n_experts,
                                  .n_used = n_used(p->items[first])};
    if (p->expert_uses != NULL)
        g.uses = p->expert_uses[first];
    for (uint32_t i = first; i < end; i++) {
        const struct atsi_item *it = p->items[i];
        if (!may_join(it, &g))
            return;
        g.bytes += it->resident_bytes / it->n_experts;
        g.hit_ns += p->decode[i].run_ns / g.n_used;
    }
    for (uint32_t i = first; i < end; i++)
        c->group_of[i] = (int32_t)c->n_groups;
    c->group[c->n_groups++] = g;
}

void dp_caches_find(const struct atsi_problem *p, const struct dp_settings *s, void *scratch,
                    struct dp_caches *c)
{
    unsigned char *at = scratch;
    c->group = SCHED_TAKE(&at, struct sched_cache_layer, p->n_items);
    c->group_of = SCHED_TAKE(&at, int32_t, p->n_items);
    c->heap = SCHED_TAKE(&at, uint32_t, p->n_items);
    c->n_groups = 0;
    for (uint32_t i = 0; i < p->n_items; i++)
        c->group_of[i] = -1;
    if (p->expert_cache == 0 || s->experts == DP_EXPERTS_OFF || p->n_devices < 2)
        return;
    for (uint32_t i = 0, end; i < p->n_items; i = end) {
        for (end = i + 1; end < p->n_items && is_stack(p->items[i]) && is_stack(p->items[end]) &&
                          p->items[end]->router == p->items[i]->router;)
            end++;
        if (is_stack(p->items[i]))
            add_group(p, i, end, c);
    }
}

void dp_caches_share(const struct atsi_problem *p, struct dp_caches *c, uint8_t *b)
{
    uint64_t used = 0, budget = p->budget_bytes[1];
    for (uint32_t i = 0; i < p->n_items; i++) {
        if (c->group_of[i] >= 0)
            b[i] = SCHED_CPU;
        used += b[i] == SCHED_GPU ? p->items[i]->resident_bytes : 0;
    }
    (void)sched_experts_share(c->group, c->n_groups, budget > used ? budget - used : 0, c->heap);
}

/* Items first to end - 1 are of group g. */
static void price_group(const struct sched_cache_layer *g, struct sched_op *op, uint32_t first,
                        uint32_t end)
{
    double hit = sched_experts_hits(g, g->n_slots) / g->n_used;
    double cpu = 0, gpu = (double)op[first].cg + (double)op[first].gc;
    for (uint32_t i = first; i < end; i++) {
        gpu += hit * (double)op[i].tg;
        op[i].tc = (int64_t)((1 - hit) * (double)op[i].tc);
        op[i].promo = 0;
        cpu += (double)op[i].tc;
    }
    if (gpu > cpu) /* the sum waits for the slower side */
        op[end - 1].tc += (int64_t)(gpu - cpu);
}

void dp_caches_price(const struct dp_caches *c, struct sched_op *op, uint32_t n)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && c->group_of[i] >= 0 && c->group_of[end] == c->group_of[i];)
            end++;
        if (c->group_of[i] >= 0 && c->group[c->group_of[i]].n_slots > 0)
            price_group(&c->group[c->group_of[i]], op, i, end);
    }
}

void dp_caches_write(const struct dp_caches *c, struct atsi_placement *out)
{
    for (uint32_t i = 0; i < out->n_items; i++)
        if (c->group_of[i] >= 0)
            out->expert_slots[i] = c->group[c->group_of[i]].n_slots;
}

int dp_swap_experts(const struct atsi_expert_cache *in, struct atsi_expert_swaps *out,
                    struct atsi_err *err)
{
    struct dp_settings s;
    int rc = dp_settings_get(&s, err);
    if (rc != ATSI_OK)
        return rc;
    if (s.experts == DP_EXPERTS_LRU)
        sched_experts_lru(in, out);
    else if (s.experts == DP_EXPERTS_LFU)
        sched_experts_lfu(in, out);
    else if (s.experts == DP_EXPERTS_FADE)
        sched_experts_fade(in, out);
    else
        out->n = 0;
    return ATSI_OK;
}
