/* SPDX-License-Identifier: Apache-2.0
 *
 * Watching routers: each time one has chosen, its rows are kept until the round is over; it is when
 * the first router is there again.  The last layer may choose for the last rows of a round alone.
 */
#include "core/experts/routing.h"

#include <stdlib.h>
#include <string.h>

struct watched {
    struct atsi_routing_layer layer;
    int32_t *ids; /* [room][n_used] of this round */
    uint32_t n, room;
};

struct atsi_routing_watch {
    struct watched layers[ATSI_ROUTING_LAYERS];
    uint32_t n_layers;
    struct atsi_routing *r; /* NULL: the first round is not over */
    int32_t *token;
    struct atsi_err why; /* what went wrong, for take() */
    int rc;
};

int atsi_routing_watch_open(struct atsi_routing_watch **out, struct atsi_err *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for watching routers");
    (*out)->why = (struct atsi_err)ATSI_ERR_INIT;
    return ATSI_OK;
}

static void forget(struct atsi_routing_watch *w)
{
    for (uint32_t l = 0; l < w->n_layers; l++)
        free(w->layers[l].ids);
    memset(w->layers, 0, sizeof w->layers);
    w->n_layers = 0;
    free(w->token);
    w->token = NULL;
    w->r = NULL;
    w->rc = ATSI_OK;
}

void atsi_routing_watch_close(struct atsi_routing_watch *w)
{
    if (w == NULL)
        return;
    atsi_routing_free(w->r);
    forget(w);
    free(w);
}

/* "ffn_moe_topk-17": the number behind the last '-'; false: there is none. */
static bool layer_of(const struct atsi_op *op, uint32_t *out)
{
    const char *at = strrchr(op->dst[0]->name, '-');
    char *end;
    unsigned long v;
    if (at == NULL || at[1] < '0' || at[1] > '9')
        return false;
    v = strtoul(at + 1, &end, 10);
    *out = (uint32_t)v;
    return *end == '\0' && v <= INT32_MAX;
}

static int begin(struct atsi_routing_watch *w)
{
    struct atsi_routing_layer layers[ATSI_ROUTING_LAYERS];
    int rc;
    for (uint32_t l = 0; l < w->n_layers; l++)
        layers[l] = w->layers[l].layer;
    rc = atsi_routing_new("", layers, w->n_layers, &w->r, &w->why);
    if (rc != ATSI_OK)
        return rc;
    w->token = malloc((size_t)w->r->n_used * sizeof *w->token);
    return w->token != NULL ? ATSI_OK
                            : atsi_fail(&w->why, ATSI_ENOMEM, "out of memory for watching routers");
}

/* Tokens that every layer knows: the last ones of the round. */
static int end_round(struct atsi_routing_watch *w)
{
    uint32_t n = UINT32_MAX, most = 0;
    int rc = w->r == NULL ? begin(w) : ATSI_OK;
    for (uint32_t l = 0; l < w->n_layers; l++) {
        n = w->layers[l].n < n ? w->layers[l].n : n;
        most = w->layers[l].n > most ? w->layers[l].n : most;
    }
    for (uint32_t t = 0; t < n && rc == ATSI_OK && w->r != NULL; t++) {
        for (uint32_t l = 0; l < w->n_layers; l++) {
            const struct watched *x = &w->layers[l];
            uint32_t k = x->layer.n_used;
            memcpy(w->token + w->r->at[l], x->ids + (size_t)(x->n - n + t) * k,
                   k * sizeof *w->token);
        }
        rc = atsi_routing_add(w->r, most == 1 ? ATSI_PHASE_DECODE : ATSI_PHASE_PREFILL, w->token,
                              &w->why);
    }
    for (uint32_t l = 0; l < w->n_layers; l++)
        w->layers[l].n = 0;
    return rc;
}

static int find_layer(struct atsi_routing_watch *w, const struct atsi_op *op, struct watched **out)
{
    struct atsi_routing_layer l = {.n_experts = (uint32_t)op->src[0]->ne[0],
                                   .n_used = op->p.moe.n_used};
    if (!layer_of(op, &l.layer))
        return atsi_fail(&w->why, ATSI_ENOTSUP, "router %.60s has no number of a layer",
                         op->dst[0]->name);
    for (uint32_t k = 0; k < w->n_layers; k++)
        if (w->layers[k].layer.layer == l.layer) {
            *out = &w->layers[k];
            return ATSI_OK;
        }
    if (w->n_layers == ATSI_ROUTING_LAYERS)
        return atsi_fail(&w->why, ATSI_ENOTSUP, "more than %d layers choose experts",
                         ATSI_ROUTING_LAYERS);
    atsi_routing_free(w->r); /* rounds of a prompt end before the last layer: not known in all */
    w->r = NULL;
    free(w->token);
    w->token = NULL;
    *out = &w->layers[w->n_layers++];
    (*out)->layer = l;
    return ATSI_OK;
}

static int keep_rows(struct atsi_routing_watch *w, struct watched *x, const struct atsi_op *op)
{
    uint32_t k = x->layer.n_used, need = x->n + op->n_rows;
    const struct atsi_tensor *ids = op->dst[0];
    if (need > x->room) {
        int32_t *grown = realloc(x->ids, (size_t)need * 2 * k * sizeof *grown);
        if (grown == NULL)
            return atsi_fail(&w->why, ATSI_ENOMEM, "out of memory for watching routers");
        x->ids = grown;
        x->room = need * 2;
    }
    for (uint32_t t = 0; t < op->n_rows; t++)
        memcpy(x->ids + (size_t)(x->n + t) * k, (const char *)ids->data + t * ids->row_bytes,
               k * sizeof *x->ids);
    x->n = need;
    return ATSI_OK;
}

void atsi_routing_watch(void *ctx, const struct atsi_op *op)
{
    struct atsi_routing_watch *w = ctx;
    struct watched *x = NULL;
    if (op->kind != ATSI_OP_TOPK || w->rc != ATSI_OK)
        return;
    w->rc = find_layer(w, op, &x);
    /* The output part of a round comes in pieces: the last layer again, without the others. */
    if (w->rc == ATSI_OK && x == &w->layers[0] && w->layers[0].n > 0)
        w->rc = end_round(w);
    if (w->rc == ATSI_OK && x != NULL)
        w->rc = keep_rows(w, x, op);
}

int atsi_routing_watch_take(struct atsi_routing_watch *w, const char *model,
                            struct atsi_routing **out, struct atsi_err *err)
{
    int rc = w->rc;
    *out = NULL;
    if (rc == ATSI_OK && w->n_layers == 0)
        return atsi_fail(err, ATSI_ENOTSUP,
                         "no router chose experts: this model has none, or nothing was computed");
    if (rc == ATSI_OK)
        rc = end_round(w);
    if (rc != ATSI_OK || w->r == NULL) {
        atsi_routing_free(w->r);
        (void)atsi_fail(err, rc, "%s", w->why.msg);
    } else {
        (void)snprintf(w->r->model, sizeof w->r->model, "%.90s", model);
        for (char *c = w->r->model; *c != '\0'; c++)
            if ((unsigned char)*c < ' ' || *c == 127)
                *c = '?';
        *out = w->r;
    }
    forget(w);
    return rc;
}
