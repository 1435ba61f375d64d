/* SPDX-License-Identifier: Apache-2.0
 *
 * The question about a session's devices: with the costs that were measured for the model on this
 * machine, or, where they cannot be, with those of a middling one.
 */
#include "core/hybrid/question.h"

#include "core/hybrid/live.h"
#include "core/hybrid/region.h"
#include "core/round/devices.h"
#include "core/round/rules.h"

#include <string.h>

/* ---------------------------------------------------------------- pins */
static bool is_cached(const struct atsi_work *w)
{
    return w->kind == ATSI_WORK_ATTENTION || w->kind == ATSI_WORK_RECURRENT;
}

int atsi_hybrid_pin_items(const struct atsi_hybrid_ask *a, struct atsi_err *err)
{
    const struct atsi_conf *c = a->s->rt->conf;
    const char *kv = atsi_conf_get(c, "kv.device");
    int rc = atsi_rules_apply(c, a->items, err);
    for (uint32_t i = 0; i < a->items->n && rc == ATSI_OK; i++) {
        struct atsi_item *item = &a->items->items[i];
        if (is_cached(&a->items->work[i]) && item->pinned < 0 && strcmp(kv, "auto") != 0)
            item->pinned = strcmp(kv, "cpu") == 0 ? ATSI_DEVICE_HOST : ATSI_DEVICE_ACCEL;
        if (atsi_source_accel_can(a->source, i))
            continue;
        item->pinned = ATSI_DEVICE_HOST;
        item->can_promote = 0;
    }
    return rc;
}

/* ---------------------------------------------------------------- costs */
/* A middling desktop: what is compared are ratios.  For policy.costs = typical, and where measuring
 * fails. */
static const struct atsi_machine middling = {.name = "typical",
                                             .cpu_gbs = 40,
                                             .cpu_gbs_sustained = 40,
                                             .dram_gbs = 50,
                                             .cpu_gflops = {500, 300, 400},
                                             .cpu_op_us = 5,
                                             .gpu_gbs = 400,
                                             .gpu_tflops = {20, 20, 20},
                                             .gpu_moe_eff = 0.5,
                                             .gpu_op_us = 5,
                                             .pcie_gbs = 20,
                                             .xfer_us = 10,
                                             .ck_gbs = 12,
                                             .cg_us = 8,
                                             .gc_us = 15,
                                             .evt_us = 4,
                                             .rlat_us = 15,
                                             .gap_us = 200};

static struct atsi_conditions conditions(const struct atsi_hybrid_ask *a, uint32_t phase)
{
    const struct atsi_session *s = a->s;
    uint32_t tokens = a->tokens != 0 ? a->tokens : s->chunk;
    const struct atsi_live_governed *now = atsi_live_governed(s->live);
    return (struct atsi_conditions){.tokens = phase == ATSI_PHASE_PREFILL ? tokens : 1,
                                    .ctx = phase == ATSI_PHASE_PREFILL ? 0 : s->n_ctx / 4,
                                    .ctx_max = s->n_ctx,
                                    .contention = true,
                                    .load_cpu = now->load_cpu,
                                    .load_gpu = now->load_gpu,
                                    .load_pcie = 1};
}

/* policy.mix = PROMPT:GENERATED */
int atsi_hybrid_mix(const struct atsi_conf *c, uint32_t *prompt, uint32_t *generated,
                    struct atsi_err *err)
{
    const char *text = atsi_conf_get(c, "policy.mix");
    char more;
    if (sscanf(text, "%u:%u%c", prompt, generated, &more) == 2)
        return ATSI_OK;
    return atsi_fail(err, ATSI_ECONF,
                     "policy.mix = %.60s (%s): expected PROMPT:GENERATED, as "
                     "2048:128",
                     text, atsi_conf_origin(c, "policy.mix"));
}

/* Shows a measurement to whoever opened the session. */
static void tell(void *ctx, const struct atsi_measure_progress *p)
{
    const struct atsi_session *s = ctx;
    s->measuring(s->measuring_ctx, p->done, p->total, p->what);
}

/* What `atsinfer profile` measures too, so that one table serves both; more where this session
 * needs it. */
static int request(const struct atsi_hybrid_ask *a, struct atsi_err *err)
{
    struct atsi_session *s = a->s;
    const struct atsi_devices v = {.d = a->accel->d,
                                   .backend = {s->backend_name, a->accel->name},
                                   .transfer = a->accel->engine};
    struct atsi_measure_request *r = &a->costs->request;
    int rc = atsi_measure_usual(s->rt, s->model, &v, r, err);
    r->d = &a->accel->d;
    r->type_k = s->type_k;
    r->type_v = s->type_v;
    if (r->chunk < s->chunk)
        r->chunk = s->chunk;
    if (r->ctx_max < s->n_ctx)
        r->ctx_max = s->n_ctx;
    r->progress = s->measuring != NULL ? tell : NULL;
    r->progress_ctx = s;
    r->cancel = s->cancel_open;
    return rc;
}

/* The table, once; a failure is not tried again. */
static int obtain(const struct atsi_hybrid_ask *a, struct atsi_err *err)
{
    int rc;
    if (a->costs->tried)
        return ATSI_OK;
    a->costs->tried = true;
    rc = request(a, err);
    if (rc == ATSI_OK)
        rc = atsi_costs_obtain(&a->costs->request, false, &a->costs->table, NULL, 0, err);
    if (rc == ATSI_OK)
        atsi_session_take_threads(a->s, a->costs->table);
    a->costs->request.progress = NULL; /* theirs while the session is opened */
    a->costs->request.cancel = NULL;
    return rc;
}

static int ask_measured(const struct atsi_hybrid_ask *a, const struct atsi_question_params *p,
                        struct atsi_question **out, struct atsi_err *err)
{
    const uint32_t as = a->panels ? ATSI_LAYOUT_PANELS : ATSI_LAYOUT_ROWS;
    const uint32_t layout[ATSI_N_DEVICES] = {as, as}; /* where it was measured so */
    struct atsi_hybrid_costs *c = a->costs;
    int rc = obtain(a, err);
    if (rc == ATSI_OK && c->table != NULL)
        rc = atsi_question_from(&c->request, c->table, a->items, layout, p, NULL, out, err);
    return rc;
}

static int ask(const struct atsi_hybrid_ask *a, const struct atsi_question_params *p,
               struct atsi_question **out, struct atsi_err *err)
{
    struct atsi_err why = ATSI_ERR_INIT;
    int rc = ATSI_OK;
    if (strcmp(atsi_conf_get(a->s->rt->conf, "policy.costs"), "measured") == 0)
        rc = ask_measured(a, p, out, &why);
    if (rc == ATSI_EINTR)
        return atsi_fail(err, rc, "interrupted while costs were measured");
    if (rc != ATSI_OK) {
        atsi_log(a->s->rt->log, ATSI_LOG_WARN, "costs",
                 "policies see the costs of a middling machine: %s", why.msg);
        atsi_costs_free(a->costs->table);
        a->costs->table = NULL;
    }
    return *out != NULL ? ATSI_OK : atsi_question_model(a->items, &middling, p, out, err);
}

/* ---------------------------------------------------------------- slots */
/* Slots hold what is really moved: in prefill all experts of a stack, biases, whole alignments. */
static void fit_slots(const struct atsi_hybrid_ask *a, struct atsi_question *q, uint32_t phase)
{
    struct atsi_item_cost *accel = q->cost[phase] + q->items->n;
    uint64_t temp = a->budget->slots, slot = 0;
    for (uint32_t i = 0; i < q->items->n; i++) {
        uint64_t bytes = accel[i].transfer_ns > 0 ? atsi_source_slot_bytes(a->source, i, phase) : 0;
        bytes = (bytes + ATSI_REGION_ALIGN - 1) / ATSI_REGION_ALIGN * ATSI_REGION_ALIGN;
        if (bytes > temp / 2)
            accel[i].transfer_ns = 0;
        else if (bytes > slot)
            slot = bytes;
    }
    q->slot_bytes[phase] = slot;
    q->slot_depth[phase] = 0;
    if (slot > 0) {
        uint64_t n = temp / slot;
        q->slot_depth[phase] = n < a->budget->max_slots ? (uint32_t)n : a->budget->max_slots;
    }
}

/* Under N%m caches cost the budget nothing. */
static void forget_caches(struct atsi_items *it)
{
    for (uint32_t i = 0; i < it->n; i++)
        if (is_cached(&it->work[i]))
            it->items[i].resident_bytes = 0;
}

int atsi_hybrid_question(const struct atsi_hybrid_ask *a, struct atsi_question **out,
                         struct atsi_err *err)
{
    static const uint32_t undisturbed[ATSI_N_CLASSES] = {1000, 1000, 1000, 1000};
    struct atsi_question_params p = {
        .phase = {conditions(a, ATSI_PHASE_PREFILL), conditions(a, ATSI_PHASE_DECODE)},
        .vram_bytes = a->budget->slots + a->budget->place,
        .temp_bytes = a->budget->slots,
        .max_slots = a->budget->max_slots,
        .n_vocab = a->s->g->n_vocab,
        .result_bytes = a->result_bytes};
    int rc = atsi_hybrid_mix(a->s->rt->conf, &p.mix_prompt, &p.mix_generated, err);
    *out = NULL;
    if (rc == ATSI_OK)
        rc = ask(a, &p, out, err);
    if (rc != ATSI_OK || *out == NULL)
        return rc;
    for (uint32_t f = 0; f < 2; f++)
        fit_slots(a, *out, f);
    if (!a->budget->caches_counted)
        forget_caches(a->items);
    atsi_question_slow(*out, undisturbed);
    return ATSI_OK;
}

int atsi_hybrid_price(const struct atsi_hybrid_ask *a, struct atsi_question *q, uint32_t phase,
                      struct atsi_err *err)
{
    struct atsi_question *now = NULL;
    size_t n = q->items->n;
    int rc = atsi_hybrid_question(a, &now, err);
    if (rc != ATSI_OK || now == NULL)
        return rc;
    memcpy(q->cost[phase], now->cost[phase], ATSI_N_DEVICES * n * sizeof *q->cost[phase]);
    memcpy(q->touched[phase], now->touched[phase], n * sizeof *q->touched[phase]);
    q->link[phase] = now->link[phase];
    atsi_question_free(now);
    return ATSI_OK;
}

uint64_t atsi_hybrid_result_ns(const struct atsi_question *q, uint64_t bytes)
{
    return q->costs != NULL ? atsi_costs_copy_ns(q->costs, ATSI_COPY_TO_HOST, bytes)
                            : atsi_machine_result_ns(&middling, bytes, false);
}
