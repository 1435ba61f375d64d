/* SPDX-License-Identifier: Apache-2.0
 *
 * The sizes of a session, before any memory is taken: context, chunk, cache types, KV cache, states
 * and buffers, and whether all of it fits beside the weights.
 */
#include "core/session.h"

#include "core/memory.h"
#include "core/round/chunk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Output rows computed together: enough to share the head's weights, few enough that the logits of
 * a large vocabulary stay small. */
#define OUT_ROWS 16u

static uint32_t kv_type(const char *name)
{
    if (strcmp(name, "f32") == 0)
        return ATSI_TYPE_F32;
    return strcmp(name, "q8_0") == 0 ? ATSI_TYPE_Q8_0 : ATSI_TYPE_F16;
}

static bool is_kv_type(uint32_t type)
{
    return type == ATSI_TYPE_F16 || type == ATSI_TYPE_F32 || type == ATSI_TYPE_Q8_0;
}

/* Contexts default to the model's, but no longer than this: the KV cache is allocated whole. */
#define DEFAULT_CTX_MAX 8192u

static int choose_sizes(struct atsi_session *s, const struct atsi_session_params *p,
                        struct atsi_err *err)
{
    const struct atsi_conf *c = s->rt->conf;
    int64_t ctx = p->n_ctx != 0 ? (int64_t)p->n_ctx : atsi_conf_int(c, "model.ctx");
    if (ctx < 0 && s->g->n_ctx_train > DEFAULT_CTX_MAX)
        ctx = DEFAULT_CTX_MAX;
    else if (ctx <= 0)
        ctx = s->g->n_ctx_train;
    if (ctx <= 0 || ctx > INT32_MAX)
        return atsi_fail(err, ATSI_ECONF, "context of %lld positions: expected 1..%d",
                         (long long)ctx, INT32_MAX);
    s->n_ctx = (uint32_t)ctx;
    s->chunk = p->chunk != 0 ? p->chunk : (uint32_t)atsi_conf_int(c, "prefill.chunk");
    s->chunk_free = s->chunk == 0;
    if (s->chunk_free)
        s->chunk = ATSI_CHUNK_USUAL;
    if (s->chunk > s->n_ctx)
        s->chunk = s->n_ctx;
    s->type_k = p->type_k != ATSI_TYPE_COUNT ? p->type_k : kv_type(atsi_conf_get(c, "kv.type_k"));
    s->type_v = p->type_v != ATSI_TYPE_COUNT ? p->type_v : kv_type(atsi_conf_get(c, "kv.type_v"));
    if (!is_kv_type(s->type_k) || !is_kv_type(s->type_v))
        return atsi_fail(err, ATSI_EINVAL, "KV cache types must be f16, f32 or q8_0");
    return ATSI_OK;
}

uint32_t atsi_kv_cells(const struct atsi_session *s, const struct atsi_graph_kv *kv)
{
    uint64_t ring = (uint64_t)kv->window + s->chunk;
    return kv->window != 0 && ring < s->n_ctx ? (uint32_t)ring : s->n_ctx;
}

bool atsi_kv_part_bytes(const struct atsi_session *s, const struct atsi_graph_kv *kv, bool keys,
                        size_t *out)
{
    uint32_t type = keys ? s->type_k : s->type_v, dim = keys ? kv->head_dim_k : kv->head_dim_v;
    size_t bytes;
    if (!atsi_mul_size((size_t)kv->n_head_kv * atsi_row_bytes(type, dim), atsi_kv_cells(s, kv),
                       &bytes) ||
        !atsi_add_size(bytes, 2 * ATSI_ALIGN - 1, &bytes))
        return false;
    *out = bytes / ATSI_ALIGN * ATSI_ALIGN; /* at least one spare line after the end */
    return true;
}

static int kv_total(struct atsi_session *s, struct atsi_err *err)
{
    s->kv_bytes = 0;
    for (uint32_t i = 0; i < s->g->n_kv; i++)
        for (int keys = 0; keys < 2; keys++) {
            size_t bytes;
            if (!atsi_kv_part_bytes(s, s->g->kv[i], keys != 0, &bytes) ||
                !atsi_add_size(s->kv_bytes, bytes, &s->kv_bytes))
                return atsi_fail(err, ATSI_ENOFIT, "a KV cache of %u positions overflows memory",
                                 s->n_ctx);
        }
    return ATSI_OK;
}

/* Quantized rows must be whole blocks. */
static int check_kv_types(const struct atsi_session *s, struct atsi_err *err)
{
    for (uint32_t i = 0; i < s->g->n_kv; i++)
        for (int v = 0; v < 2; v++) {
            uint32_t type = v == 0 ? s->type_k : s->type_v;
            uint32_t dim = v == 0 ? s->g->kv[i]->head_dim_k : s->g->kv[i]->head_dim_v;
            const struct atsi_type_info *info = atsi_type_info(type);
            if (dim % info->block_elems != 0)
                return atsi_fail(err, ATSI_ENOTSUP,
                                 "kv.type_%c = %s: blocks of %u values do not divide this model's "
                                 "head dimension of %u; use f16",
                                 v == 0 ? 'k' : 'v', info->name, info->block_elems, dim);
        }
    return ATSI_OK;
}

bool atsi_state_bytes(const struct atsi_graph_state *st, size_t *out)
{
    size_t bytes = sizeof(float);
    for (int d = 0; d < 3; d++)
        if (st->ne[d] == 0 || !atsi_mul_size(bytes, st->ne[d], &bytes))
            return false;
    if (!atsi_add_size(bytes, ATSI_ALIGN - 1, &bytes))
        return false;
    *out = bytes / ATSI_ALIGN * ATSI_ALIGN;
    return true;
}

static int states_total(struct atsi_session *s, struct atsi_err *err)
{
    s->state_bytes = 0;
    for (uint32_t i = 0; i < s->g->n_states; i++) {
        size_t bytes;
        if (!atsi_state_bytes(s->g->states[i], &bytes) ||
            !atsi_add_size(s->state_bytes, bytes, &s->state_bytes))
            return atsi_fail(err, ATSI_EINVAL, "state %s: its size overflows memory",
                             s->g->states[i]->name);
    }
    return ATSI_OK;
}

int atsi_session_check_fit(const struct atsi_session *s, struct atsi_err *err)
{
    const struct atsi_loaded_info *info = atsi_model_info(s->model);
    double mib = 1024.0 * 1024.0, have = (double)s->rt->topo->mem_available_bytes / mib;
    /* Owned weights are gone from "available" already; mapped ones come back into it when needed.
     */
    struct atsi_session_info on = {.struct_size = sizeof on};
    double weights = (double)info->mapped_bytes / mib, kv = (double)s->kv_bytes / mib;
    double compute = (double)(s->arena_bytes + s->state_bytes) / mib;
    double need;
    uint64_t per_ctx = s->kv_bytes / s->n_ctx;
    double rest;
    atsi_session_info(s, &on); /* what the accelerator holds, the host need not */
    weights = fmax(weights - (double)on.accel_weights / mib, 0);
    kv = fmax(kv - (double)on.accel_caches / mib, 0);
    need = weights + kv + compute;
    rest = (have - weights - compute) * mib;
    if (s->rt->topo->mem_available_bytes == 0 || need <= have)
        return ATSI_OK;
    if (per_ctx > 0 && rest > 256.0 * (double)per_ctx)
        return atsi_fail(err, ATSI_ENOFIT,
                         "does not fit: weights %.0f + KV cache %.0f + buffers %.0f = %.0f MiB, "
                         "available %.0f MiB; a context of %.0f tokens would fit (-c %.0f)",
                         weights, kv, compute, need, have, floor(rest / (double)per_ctx),
                         floor(rest / (double)per_ctx));
    return atsi_fail(
        err, ATSI_ENOFIT,
        "does not fit: weights %.0f + KV cache %.0f + buffers %.0f = %.0f MiB, available "
        "%.0f MiB; use a smaller model or quantization, or free memory",
        weights, kv, compute, need, have);
}

int atsi_session_set_chunk(struct atsi_session *s, uint32_t chunk, struct atsi_err *err)
{
    int rc;
    s->chunk = chunk;
    s->out_rows = chunk < OUT_ROWS ? chunk : OUT_ROWS;
    rc = atsi_values_place(s->g, s->chunk, s->out_rows, s->places, &s->arena_bytes, err);
    return rc == ATSI_OK ? kv_total(s, err) : rc;
}

int atsi_session_measure(struct atsi_session *s, const struct atsi_session_params *p,
                         struct atsi_err *err)
{
    int rc = choose_sizes(s, p, err);
    if (rc == ATSI_OK)
        rc = check_kv_types(s, err);
    if (rc != ATSI_OK)
        return rc;
    s->places = calloc(s->g->n_values, sizeof *s->places);
    if (s->places == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory planning %u values", s->g->n_values);
    rc = atsi_session_set_chunk(s, s->chunk, err);
    return rc == ATSI_OK ? states_total(s, err) : rc;
}

int atsi_session_plan(struct atsi_model *m, const struct atsi_session_params *params,
                      struct atsi_session_info *out, struct atsi_err *err)
{
    static const struct atsi_session_params defaults = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session s = {.rt = m->rt, .model = m, .backend_name = ""};
    int rc = atsi_model_graph(m, &s.g, err);
    if (rc == ATSI_OK)
        rc = atsi_session_measure(&s, params != NULL ? params : &defaults, err);
    if (rc == ATSI_OK) {
        out->struct_size = sizeof *out;
        atsi_session_info(&s, out);
        out->backend = out->detail = out->chosen = "";
    }
    free(s.places);
    return rc;
}
