/* SPDX-License-Identifier: Apache-2.0
 *
 * Routing traces: which experts each token of a run used, layer by layer; recorded from sessions or
 * made up, and what expert caches make of them.  docs/experts.md describes the file format.
 */
#ifndef ATSINFER_ROUTING_H
#define ATSINFER_ROUTING_H

#include "atsinfer/atsinfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- traces */
struct atsi_routing;

/* A layer that has experts. */
struct atsi_routing_layer {
    uint32_t layer;     /* of the model */
    uint32_t n_experts; /* at most 65535 */
    uint32_t n_used;    /* by a token; at most 64 */
};

struct atsi_routing_info {
    uint32_t struct_size;
    uint32_t n_layers;
    uint64_t n_tokens;
    uint32_t n_used; /* experts of a token, over all layers */
    uint32_t reserved;
    const char *model;                       /* [borrowed until atsi_routing_free] */
    const struct atsi_routing_layer *layers; /* [n_layers]  [likewise] */
};

/* An empty trace.  ATSI_EINVAL: sizes beyond those above, or n_used > n_experts.
 * [owned by caller: atsi_routing_free] */
ATSI_EXPORT int atsi_routing_new(const char *model, const struct atsi_routing_layer *layers,
                                 uint32_t n_layers, struct atsi_routing **out,
                                 struct atsi_err *err);
ATSI_EXPORT void atsi_routing_free(struct atsi_routing *r); /* NULL is allowed */
ATSI_EXPORT void atsi_routing_info(const struct atsi_routing *r, struct atsi_routing_info *out);
/* Appends a token.  ids: [n_used of info] layer after layer, each layer's distinct, best first.
 * phase: enum atsi_phase, of the round that computed it.  ATSI_EINVAL, ATSI_ENOMEM: nothing was
 * appended. */
ATSI_EXPORT int atsi_routing_add(struct atsi_routing *r, uint32_t phase, const int32_t *ids,
                                 struct atsi_err *err);
/* Its experts, and its phase (may be NULL).  ids_out: [n_used of info].  token < n_tokens. */
ATSI_EXPORT void atsi_routing_get(const struct atsi_routing *r, uint64_t token, int32_t *ids_out,
                                  uint32_t *phase);

/* ATSI_EFORMAT: the file, the line and what is wrong with it; ATSI_ENOENT, ATSI_EIO. */
ATSI_EXPORT int atsi_routing_read(const char *path, struct atsi_routing **out,
                                  struct atsi_err *err);
/* Replaces `path` as a whole. */
ATSI_EXPORT int atsi_routing_write(const struct atsi_routing *r, const char *path,
                                   struct atsi_err *err);

/* ---------------------------------------------------------------- recording */
struct atsi_routing_watch;

/* [owned by caller: atsi_routing_watch_close] */
ATSI_EXPORT int atsi_routing_watch_open(struct atsi_routing_watch **out, struct atsi_err *err);
ATSI_EXPORT void atsi_routing_watch_close(struct atsi_routing_watch *w); /* NULL is allowed */
/* An atsi_trace_fn, ctx: a watch: give both to atsi_session_trace() of one session at a time, until
 * take().  Who is chosen does not depend on where it is computed; without an accelerator
 * (backend.accel = none) nothing has to be computed again.  Tokens are kept whose choices are known
 * in all layers: of a prompt without logits of all tokens, the last one. */
ATSI_EXPORT void atsi_routing_watch(void *ctx, const struct atsi_op *op);
/* What was seen so far, and begins anew.  ATSI_ENOTSUP: no router was seen; ATSI_ENOMEM: memory was
 * out at some time.  model: how the trace calls it.  [owned by caller: atsi_routing_free] */
ATSI_EXPORT int atsi_routing_watch_take(struct atsi_routing_watch *w, const char *model,
                                        struct atsi_routing **out, struct atsi_err *err);

/* ---------------------------------------------------------------- made-up traces */
struct atsi_routing_skew {
    uint32_t struct_size;
    uint32_t n_layers, n_experts, n_used;
    uint64_t n_tokens;
    double zipf;   /* exponent: the expert of rank k is drawn with weight k^-zipf; 0: all alike */
    double drift;  /* swaps of two neighbouring ranks per token and layer */
    double follow; /* share of choices that take the ranks of the layer before; 0: independent */
    double repeat; /* share of choices kept from the token before */
    uint64_t seed;
};
/* The same parameters give the same trace everywhere.  ATSI_EINVAL.  [owned by caller:
 * atsi_routing_free] */
ATSI_EXPORT int atsi_routing_generate(const struct atsi_routing_skew *p, struct atsi_routing **out,
                                      struct atsi_err *err);

#ifdef __cplusplus
}
#endif
#endif
