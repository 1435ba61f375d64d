/* SPDX-License-Identifier: Apache-2.0
 * Routing traces in memory. */
#include "core/experts/routing.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 256u

static int check_layers(const struct atsi_routing_layer *layers, uint32_t n, struct atsi_err *err)
{
    if (n == 0 || n > ATSI_ROUTING_LAYERS)
        return atsi_fail(err, ATSI_EINVAL, "a routing trace of %u layers; 1 to %d are supported", n,
                         ATSI_ROUTING_LAYERS);
    for (uint32_t l = 0; l < n; l++) {
        const struct atsi_routing_layer *x = &layers[l];
        if (x->n_experts == 0 || x->n_experts > ATSI_ROUTING_EXPERTS || x->n_used == 0 ||
            x->n_used > ATSI_ROUTING_USED || x->n_used > x->n_experts)
            return atsi_fail(
                err, ATSI_EINVAL, "layer %u: %u of %u experts; up to %d of up to %d are supported",
                x->layer, x->n_used, x->n_experts, ATSI_ROUTING_USED, ATSI_ROUTING_EXPERTS);
        if (l > 0 && x->layer <= layers[l - 1].layer)
            return atsi_fail(err, ATSI_EINVAL, "layer %u comes after layer %u", x->layer,
                             layers[l - 1].layer);
    }
    return ATSI_OK;
}

static void copy_name(char *to, size_t size, const char *from)
{
    size_t n = 0;
    for (; from != NULL && from[n] != '\0' && n + 1 < size; n++)
        to[n] = (unsigned char)from[n] < ' ' || from[n] == 127 ? '?' : from[n];
    to[n] = '\0';
}

int atsi_routing_new(const char *model, const struct atsi_routing_layer *layers, uint32_t n_layers,
                     struct atsi_routing **out, struct atsi_err *err)
{
    struct atsi_routing *r;
    int rc = check_layers(layers, n_layers, err);
    *out = NULL;
    if (rc != ATSI_OK)
        return rc;
    r = calloc(1, sizeof *r);
    if (r != NULL) {
        r->layers = calloc(n_layers, sizeof *r->layers);
        r->at = calloc(n_layers, sizeof *r->at);
    }
    if (r == NULL || r->layers == NULL || r->at == NULL) {
        atsi_routing_free(r);
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a routing trace");
    }
    copy_name(r->model, sizeof r->model, model);
    r->n_layers = n_layers;
    for (uint32_t l = 0; l < n_layers; l++) {
        r->layers[l] = layers[l];
        r->at[l] = r->n_used;
        r->n_used += layers[l].n_used;
    }
    *out = r;
    return ATSI_OK;
}

void atsi_routing_free(struct atsi_routing *r)
{
    if (r == NULL)
        return;
    free(r->layers);
    free(r->at);
    free(r->ids);
    free(r->phase);
    free(r);
}

void atsi_routing_info(const struct atsi_routing *r, struct atsi_routing_info *out)
{
    struct atsi_routing_info all = {.struct_size = sizeof all,
                                    .n_layers = r->n_layers,
                                    .n_tokens = r->n_tokens,
                                    .n_used = r->n_used,
                                    .model = r->model,
                                    .layers = r->layers};
    if (out->struct_size < sizeof all)
        all.struct_size = out->struct_size;
    memcpy(out, &all, all.struct_size);
}

static int grow(struct atsi_routing *r, struct atsi_err *err)
{
    uint64_t room = r->room == 0 ? FIRST_ROOM : r->room * 2;
    size_t bytes;
    uint16_t *ids = NULL;
    uint8_t *phase = NULL;
    if (r->n_tokens < r->room)
        return ATSI_OK;
    if (atsi_mul_size((size_t)room, (size_t)r->n_used * sizeof *ids, &bytes))
        ids = realloc(r->ids, bytes);
    if (ids != NULL)
        r->ids = ids;
    phase = realloc(r->phase, (size_t)room);
    if (phase != NULL)
        r->phase = phase;
    if (ids == NULL || phase == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a routing trace of %llu tokens",
                         (unsigned long long)room);
    r->room = room;
    return ATSI_OK;
}

static int check_ids(const struct atsi_routing *r, const int32_t *ids, struct atsi_err *err)
{
    for (uint32_t l = 0; l < r->n_layers; l++) {
        const int32_t *of = ids + r->at[l];
        for (uint32_t k = 0; k < r->layers[l].n_used; k++) {
            if (of[k] < 0 || (uint32_t)of[k] >= r->layers[l].n_experts)
                return atsi_fail(err, ATSI_EINVAL, "layer %u: expert %d, there are %u",
                                 r->layers[l].layer, of[k], r->layers[l].n_experts);
            for (uint32_t j = 0; j < k; j++)
                if (of[j] == of[k])
                    return atsi_fail(err, ATSI_EINVAL, "layer %u: expert %d is there twice",
                                     r->layers[l].layer, of[k]);
        }
    }
    return ATSI_OK;
}

int atsi_routing_add(struct atsi_routing *r, uint32_t phase, const int32_t *ids,
                     struct atsi_err *err)
{
    int rc = phase > 1 ? atsi_fail(err, ATSI_EINVAL, "there is no phase %u", phase)
                       : check_ids(r, ids, err);
    if (rc == ATSI_OK)
        rc = grow(r, err);
    if (rc != ATSI_OK)
        return rc;
    for (uint32_t k = 0; k < r->n_used; k++)
        r->ids[r->n_tokens * r->n_used + k] = (uint16_t)ids[k];
    r->phase[r->n_tokens++] = (uint8_t)phase;
    return ATSI_OK;
}

void atsi_routing_get(const struct atsi_routing *r, uint64_t token, int32_t *ids_out,
                      uint32_t *phase)
{
    for (uint32_t k = 0; k < r->n_used; k++)
        ids_out[k] = r->ids[token * r->n_used + k];
    if (phase != NULL)
        *phase = r->phase[token];
}
