/* SPDX-License-Identifier: Apache-2.0
 * The inside of a routing trace, for those who read, write and make one. */
#ifndef ATSI_CORE_EXPERTS_ROUTING_H
#define ATSI_CORE_EXPERTS_ROUTING_H

#include "atsinfer/policy.h"
#include "atsinfer/routing.h"

#include <stdbool.h>

enum { ATSI_ROUTING_LAYERS = 1024, ATSI_ROUTING_EXPERTS = 65535, ATSI_ROUTING_USED = 64 };

struct atsi_routing {
    char model[96]; /* printable, without line breaks */
    uint32_t n_layers, n_used;
    struct atsi_routing_layer *layers; /* [n_layers] */
    uint32_t *at;                      /* [n_layers] where a layer's ids begin in a token's */
    uint64_t n_tokens, room;
    uint16_t *ids;  /* [room * n_used] */
    uint8_t *phase; /* [room] */
};

/* Ids of a layer of a token. */
static inline const uint16_t *atsi_routing_ids(const struct atsi_routing *r, uint64_t token,
                                               uint32_t layer)
{
    return r->ids + token * r->n_used + r->at[layer];
}

#endif
