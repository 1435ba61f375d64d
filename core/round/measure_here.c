/* SPDX-License-Identifier: Apache-2.0
 * Costs of the machine that this runs on: what to measure by the settings, and the question. */
#include "core/round/chunk.h"
#include "core/round/devices.h"

#include <string.h>

#define USUAL_CTX 8192u /* as sessions default to */

static uint32_t kv_type(const char *name)
{
    if (strcmp(name, "f32") == 0)
        return ATSI_TYPE_F32;
    return strcmp(name, "q8_0") == 0 ? ATSI_TYPE_Q8_0 : ATSI_TYPE_F16;
}

int atsi_measure_usual(struct atsi_runtime *rt, struct atsi_model *model,
                       const struct atsi_devices *v, struct atsi_measure_request *out,
                       struct atsi_err *err)
{
    const struct atsi_conf *c = rt->conf;
    int64_t ctx = atsi_conf_int(c, "model.ctx"), chunk = atsi_conf_int(c, "prefill.chunk");
    const struct atsi_graph *g;
    int rc = atsi_model_graph(model, &g, err);
    if (rc != ATSI_OK)
        return rc;
    if (ctx < 0 && g->n_ctx_train > USUAL_CTX)
        ctx = USUAL_CTX;
    else if (ctx <= 0)
        ctx = g->n_ctx_train;
    *out = (struct atsi_measure_request){
        .rt = rt,
        .model = model,
        .d = &v->d,
        .backend = {v->backend[0], v->backend[1]},
        .transfer = v->transfer,
        .chunk = chunk > 0 ? (uint32_t)chunk : ATSI_CHUNK_USUAL,
        .ctx_max = (uint32_t)ctx,
        .type_k = kv_type(atsi_conf_get(c, "kv.type_k")),
        .type_v = kv_type(atsi_conf_get(c, "kv.type_v")),
        .exact = strcmp(atsi_conf_get(c, "cpu.activations"), "f32") == 0};
    if (out->chunk > out->ctx_max && out->ctx_max > 0)
        out->chunk = out->ctx_max;
    return ATSI_OK;
}

/* Everything a decode round reads on the host fits half of the last cache. */
static bool stays_in_cache(const struct atsi_runtime *rt, const struct atsi_items *it,
                           const struct atsi_conditions *c)
{
    const struct atsi_topo *topo = rt->topo;
    double cache = topo->n_caches > 0 ? (double)topo->caches[topo->n_caches - 1].bytes : 0, sum = 0;
    for (uint32_t i = 0; i < it->n; i++) {
        struct atsi_demand d;
        atsi_work_demand(&it->work[i], c->tokens, c->ctx, c->ctx_max, &d);
        sum += d.touched_bytes;
    }
    return sum <= cache / 2;
}

int atsi_question_from(const struct atsi_measure_request *r, const struct atsi_costs *c,
                       struct atsi_items *it, const uint32_t layout[ATSI_N_DEVICES],
                       const struct atsi_question_params *p, const struct atsi_question_more *more,
                       struct atsi_question **out, struct atsi_err *err)
{
    struct atsi_costs_model m = {.tensors = atsi_model_info(r->model)->tensors,
                                 .type_k = r->type_k,
                                 .type_v = r->type_v,
                                 .layout = {layout[0], layout[1]}};
    struct atsi_question_more own = {.warm = false};
    int rc = atsi_model_graph(r->model, &m.graph, err);
    *out = NULL;
    if (rc != ATSI_OK)
        return rc;
    own.warm = stays_in_cache(r->rt, it, &p->phase[ATSI_PHASE_DECODE]);
    return atsi_question_measured(it, c, &m, p, more != NULL ? more : &own, out, err);
}

int atsi_question_here(const struct atsi_measure_request *r, struct atsi_items *it,
                       const uint32_t layout[ATSI_N_DEVICES], const struct atsi_question_params *p,
                       const struct atsi_question_more *more, struct atsi_question **out,
                       struct atsi_costs **costs_out, struct atsi_err *err)
{
    struct atsi_costs *c = NULL;
    int rc = atsi_costs_obtain(r, false, &c, NULL, 0, err);
    *out = NULL;
    if (costs_out != NULL)
        *costs_out = NULL;
    if (rc == ATSI_OK)
        rc = atsi_question_from(r, c, it, layout, p, more, out, err);
    if (rc == ATSI_OK && costs_out != NULL) {
        *costs_out = c;
        return ATSI_OK;
    }
    if (rc == ATSI_OK)
        (*out)->costs = NULL; /* nobody keeps it */
    atsi_costs_free(c);
    return rc;
}
