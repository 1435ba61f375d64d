/* SPDX-License-Identifier: Apache-2.0
 * Expert caches of a placement. */
#include "core/round/caches.h"

#include "sched/experts.h"

#include <stdlib.h>

static bool is_cached(const struct atsi_question *q, const struct atsi_placement *p, uint32_t i)
{
    const struct atsi_item *it = &q->items->items[i];
    return q->p.expert_cache != 0 && it->n_experts > 0 && it->router >= 0 &&
           p->device[i] == ATSI_DEVICE_HOST && p->expert_slots[i] > 0;
}

static void describe(const struct atsi_question *q, struct atsi_cache_group *g)
{
    const struct atsi_item_cost *host = q->cost[ATSI_PHASE_DECODE], *accel = host + q->items->n;
    for (uint32_t i = g->first; i < g->first + g->n; i++) {
        g->bytes += q->items->items[i].resident_bytes / g->n_experts;
        g->host_ns += host[i].run_ns / g->n_used;
        g->accel_ns += accel[i].run_ns / g->n_used;
        /* Where it does not fit a slot for all that are used, one alone may still come. */
        g->move_ns += accel[i].transfer_ns / g->n_used;
    }
    if (g->move_ns == 0 && q->link[ATSI_PHASE_PREFILL] > 0)
        g->move_ns = (uint64_t)((double)g->bytes / q->link[ATSI_PHASE_PREFILL]);
    g->to_accel_ns = accel[g->first].in_ns;
    g->to_host_ns = host[g->first].in_ns;
    g->row_ns = host[g->first].in_copy_ns;
}

int atsi_cache_groups(const struct atsi_question *q, const struct atsi_placement *p,
                      struct atsi_cache_group **out, uint32_t *n_out, struct atsi_err *err)
{
    struct atsi_cache_group *groups = calloc((size_t)q->items->n + 1, sizeof *groups);
    uint32_t n = 0;
    *out = groups;
    *n_out = 0;
    if (groups == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for expert caches");
    for (uint32_t i = 0, end; i < q->items->n; i = end) {
        const struct atsi_item *it = &q->items->items[i];
        end = i + 1;
        if (!is_cached(q, p, i))
            continue;
        while (end < q->items->n && q->items->items[end].router == it->router &&
               is_cached(q, p, end))
            end++;
        groups[n] = (struct atsi_cache_group){.first = i,
                                              .n = end - i,
                                              .router = (uint32_t)it->router,
                                              .n_experts = it->n_experts,
                                              .n_used = q->items->work[i].n_used,
                                              .n_slots = p->expert_slots[i]};
        describe(q, &groups[n++]);
    }
    *n_out = n;
    return ATSI_OK;
}

int atsi_question_caches(struct atsi_question *q, const struct atsi_cache_group *groups, uint32_t n,
                         struct atsi_err *err)
{
    static const uint32_t undisturbed[ATSI_N_CLASSES] = {1000, 1000, 1000, 1000};
    struct atsi_item_cost *host = q->cost[ATSI_PHASE_DECODE], *accel = host + q->items->n;
    q->expert_slots = calloc((size_t)q->items->n + 1, sizeof *q->expert_slots);
    if (q->expert_slots == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for expert caches");
    for (uint32_t k = 0; k < n; k++) {
        const struct atsi_cache_group *g = &groups[k];
        struct sched_cache_layer l = {.n_experts = g->n_experts, .n_used = g->n_used};
        double miss;
        if (q->p.expert_uses != NULL)
            l.uses = q->p.expert_uses[g->first];
        miss = 1 - sched_experts_hits(&l, g->n_slots) / g->n_used;
        for (uint32_t i = g->first; i < g->first + g->n; i++) {
            q->expert_slots[i] = g->n_slots;
            host[i].run_ns = (uint64_t)(miss * (double)host[i].run_ns);
            accel[i].transfer_ns = 0;
        }
    }
    atsi_question_slow(q, undisturbed);
    return ATSI_OK;
}

int atsi_cache_books(const struct atsi_cache_group *groups, uint32_t n, float half_life,
                     atsi_swap_fn *swap, void *swap_ctx, struct atsi_books **out,
                     struct atsi_err *err)
{
    struct atsi_books_layer *layers = calloc((size_t)n + 1, sizeof *layers);
    struct atsi_books_params p = {.n_layers = n,
                                  .layers = layers,
                                  .half_life = half_life,
                                  .swap = swap,
                                  .swap_ctx = swap_ctx};
    int rc;
    *out = NULL;
    if (layers == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for expert caches");
    for (uint32_t k = 0; k < n; k++)
        layers[k] = (struct atsi_books_layer){.n_experts = groups[k].n_experts,
                                              .n_used = groups[k].n_used,
                                              .n_slots = groups[k].n_slots,
                                              .admit_ns = groups[k].move_ns,
                                              .hit_ns = groups[k].host_ns};
    rc = atsi_books_open(&p, out, err);
    free(layers);
    return rc;
}
