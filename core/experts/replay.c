/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaying a routing trace with caches of a given size: hits alone, without a machine.  What comes
 * in is there for the next token.
 */
#include "core/experts/books.h"
#include "core/experts/ways.h"

#include <stdlib.h>
#include <string.h>

/* A hit is worth so much in the books; copies are priced in hits. */
#define HIT_NS 1000U

static int open_books(const struct atsi_replay_params *p, struct atsi_way *w,
                      struct atsi_books **out, struct atsi_err *err)
{
    const struct atsi_routing *r = p->routing;
    struct atsi_books_layer *layers = calloc((size_t)r->n_layers, sizeof *layers);
    struct atsi_books_params bp = {.n_layers = r->n_layers,
                                   .layers = layers,
                                   .half_life = (float)p->half_life,
                                   .swap = atsi_way_swap,
                                   .swap_ctx = w};
    int rc;
    *out = NULL;
    if (layers == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a cache of experts");
    for (uint32_t l = 0; l < r->n_layers; l++)
        layers[l] = (struct atsi_books_layer){
            .n_experts = r->layers[l].n_experts,
            .n_used = r->layers[l].n_used,
            .n_slots = p->n_slots < r->layers[l].n_experts ? p->n_slots : r->layers[l].n_experts,
            .admit_ns = (uint64_t)(p->copy_hits * HIT_NS),
            .hit_ns = HIT_NS};
    rc = atsi_books_open(&bp, out, err);
    free(layers);
    return rc;
}

static int one_layer(struct atsi_books *b, const struct atsi_routing *r, uint64_t token, uint32_t l,
                     struct atsi_err *err)
{
    const uint16_t *ids = atsi_routing_ids(r, token, l);
    const struct atsi_expert_swaps *swaps = NULL;
    int32_t used[ATSI_BOOKS_USED], slot[ATSI_BOOKS_USED];
    int rc;
    for (uint32_t k = 0; k < r->layers[l].n_used; k++)
        used[k] = ids[k];
    atsi_books_look(b, l, used, slot);
    rc = atsi_books_choose(b, l, used, &swaps, err);
    for (uint32_t k = 0; k < swaps->n; k++)
        atsi_books_arrived(b, l, (uint32_t)swaps->evict[k]);
    return rc;
}

int atsi_routing_replay(const struct atsi_replay_params *params, struct atsi_replay_result *out,
                        struct atsi_err *err)
{
    struct atsi_replay_params p = {0};
    struct atsi_books_counts counts = {0};
    struct atsi_books *b = NULL;
    struct atsi_way w;
    int rc;
    memcpy(&p, params, params->struct_size < sizeof p ? params->struct_size : sizeof p);
    *out = (struct atsi_replay_result){.struct_size = sizeof *out};
    if (!(p.copy_hits >= 0 && p.copy_hits <= 1e9) || !(p.half_life >= 0 && p.half_life <= 1e9))
        return atsi_fail(err, ATSI_EINVAL, "half-life %g, copies at %g hits: expected 0..1e9",
                         p.half_life, p.copy_hits);
    w = (struct atsi_way){.way = p.way, .routing = p.routing};
    rc = atsi_way_open(&w, err);
    if (rc == ATSI_OK)
        rc = open_books(&p, &w, &b, err);
    for (uint32_t l = 0; l < p.routing->n_layers && rc == ATSI_OK; l++)
        atsi_books_fill(b, l);
    for (w.token = 0; w.token < p.routing->n_tokens && rc == ATSI_OK; w.token++) {
        atsi_books_grant(b, UINT64_MAX / 8);
        for (uint32_t l = 0; l < p.routing->n_layers && rc == ATSI_OK; l++)
            rc = one_layer(b, p.routing, w.token, l, err);
    }
    if (rc == ATSI_OK) {
        atsi_books_counts(b, &counts);
        out->hits = counts.hits;
        out->misses = counts.misses;
        out->swaps = counts.swaps;
    }
    atsi_books_close(b);
    atsi_way_close(&w);
    return rc;
}
