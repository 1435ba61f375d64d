/* SPDX-License-Identifier: Apache-2.0
 * See policy_case.h. */
#include "policy_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>

#include "atsinfer/plugin.h"

/* ---------------------------------------------------------------- plugins */
static const char *param_get(void *ctx, const char *plugin, const char *key)
{
    const char *const *settings = *(const char *const **)ctx;
    size_t len = strlen(key);
    (void)plugin;
    for (; settings != NULL && *settings != NULL; settings++)
        if (strncmp(*settings, key, len) == 0 && (*settings)[len] == '=')
            return *settings + len + 1;
    return NULL;
}

const struct atsi_policy_ops *policy_load(const char *plugin, const char *const *settings)
{
    static const char *const *now;
    static struct atsi_host host = {
        .struct_size = sizeof host, .ctx = &now, .param_get = param_get};
    const struct atsi_plugin *p;
    const char *why = NULL;
    char path[512];
    atsi_plugin_entry_fn *entry;
    void *handle, *symbol;
    (void)snprintf(path, sizeof path, "%s/lib/atsinfer/atsinfer-%s.so", ATSI_BINARY_DIR, plugin);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(handle);
    symbol = dlsym(handle, ATSI_PLUGIN_ENTRY);
    assert_non_null(symbol);
    memcpy(&entry, &symbol, sizeof entry);
    now = settings;
    p = entry(&host, &why);
    assert_non_null(p);
    assert_string_equal(p->name, plugin);
    assert_int_equal(p->components[0]->kind, ATSI_KIND_POLICY);
    return p->components[0]->ops;
}

/* ---------------------------------------------------------------- questions */
static void fill_item(struct atsi_item *it, const struct sched_op *op, bool attention)
{
    it->role = attention ? ATSI_ROLE_ATTN : op->is_exp ? ATSI_ROLE_EXPERT : ATSI_ROLE_FFN;
    it->layer = op->layer;
    it->router = op->rel;
    it->slot_class = op->role;
    it->can_promote = op->promo;
    it->pinned = attention ? -1 : op->pinned;
    it->n_experts = op->is_exp ? 8 : 0;
    it->resident_bytes = it->touched_bytes = (uint64_t)op->s;
    it->name = "tensor";
}

static void fill_costs(const struct sched_chain *ch, struct atsi_item_cost *cost)
{
    for (uint32_t i = 0; i < ch->n; i++) {
        const struct sched_op *op = &ch->op[i];
        cost[i] = (struct atsi_item_cost){.run_ns = (uint64_t)op->tc,
                                          .in_ns = (uint64_t)op->gc,
                                          .contended_run = (uint32_t)lround(1000 * op->km),
                                          .contended_copy = (uint32_t)lround(1000 * op->kx)};
        cost[ch->n + i] = (struct atsi_item_cost){.run_ns = (uint64_t)op->tg,
                                                  .transfer_ns = op->promo ? (uint64_t)op->w : 0,
                                                  .in_ns = (uint64_t)op->cg,
                                                  .in_copy_ns = (uint64_t)op->c,
                                                  .contended_run = 1000,
                                                  .contended_copy = 1000};
    }
}

static void fill_problem(struct policy_case *c, const struct sched_chain *ch)
{
    struct atsi_question *q = c->q;
    q->budget[ATSI_DEVICE_HOST] = UINT64_MAX;
    q->budget[ATSI_DEVICE_ACCEL] = (uint64_t)ch->budget;
    q->p = (struct atsi_problem){.struct_size = sizeof q->p,
                                 .n_items = ch->n,
                                 .n_devices = ATSI_N_DEVICES,
                                 .n_slot_classes = 1,
                                 .items = q->items->ptrs,
                                 .prefill = q->cost[ATSI_PHASE_PREFILL],
                                 .decode = q->cost[ATSI_PHASE_DECODE],
                                 .budget_bytes = q->budget,
                                 .slot_depth = q->slot_depth,
                                 .slot_bytes = q->slot_bytes,
                                 .mix_prompt = 2048,
                                 .mix_generated = 128,
                                 .contended_act = (uint32_t)lround(1000 * ch->am),
                                 .contended_act_copy = (uint32_t)lround(1000 * ch->ax),
                                 .split_ns = ch->n > 0 ? (uint64_t)ch->op[0].evt : 0,
                                 .routing_ns = (uint64_t)ch->rlat,
                                 .result_ns = (uint64_t)ch->out,
                                 .gap_ns = (uint64_t)ch->gap,
                                 .prefill_tokens = 512};
}

void policy_case_open(struct policy_case *c, const struct sched_chain *decode,
                      const struct sched_chain *prefill, bool pins_are_attention)
{
    const struct sched_chain *phase[2] = {prefill, decode};
    *c = (struct policy_case){.slowdown = {1000, 1000, 1000, 1000}};
    c->q = calloc(1, sizeof *c->q);
    assert_non_null(c->q);
    c->q->items = atsi_items_new(decode->n, 0, 1);
    assert_non_null(c->q->items);
    for (int f = 0; f < 2; f++) {
        c->q->cost[f] = calloc(2 * (size_t)decode->n + 1, sizeof *c->q->cost[f]);
        assert_non_null(c->q->cost[f]);
        fill_costs(phase[f], c->q->cost[f]);
        c->q->slot_depth[f] = phase[f]->depth[0];
    }
    for (uint32_t i = 0; i < decode->n; i++)
        fill_item(&c->q->items->items[i], &decode->op[i],
                  pins_are_attention && decode->op[i].pinned == SCHED_GPU);
    fill_problem(c, decode);
    assert_int_equal(atsi_answer_open(decode->n, &c->answer, NULL), ATSI_OK);
    c->in_force = calloc((size_t)decode->n + 1, sizeof *c->in_force);
    assert_non_null(c->in_force);
    c->round = (struct atsi_round){.struct_size = sizeof c->round,
                                   .n_tokens = 1,
                                   .tokens_left = 100,
                                   .problem = &c->q->p,
                                   .placed = c->answer->placed,
                                   .slowdown_then = c->slowdown,
                                   .slowdown_now = c->slowdown,
                                   .n_classes = ATSI_N_CLASSES};
}

void policy_case_close(struct policy_case *c)
{
    atsi_answer_close(c->answer);
    atsi_items_free(c->q->items);
    free(c->q->cost[0]);
    free(c->q->cost[1]);
    free(c->q);
    free(c->in_force);
    free(c->state);
}

static void lend_scratch(struct policy_case *c, const struct atsi_policy_ops *ops)
{
    size_t bytes = ops->scratch_bytes(c->q->p.n_items);
    assert_int_equal(bytes % 64, 0);
    c->q->p.scratch = aligned_alloc(64, bytes);
    assert_non_null(c->q->p.scratch);
    memset(c->q->p.scratch, 0xA5, bytes < 1 << 20 ? bytes : 1 << 20);
}

static void take_scratch(struct policy_case *c)
{
    free(c->q->p.scratch);
    c->q->p.scratch = NULL;
}

int policy_case_place(struct policy_case *c, const struct atsi_policy_ops *ops,
                      struct atsi_err *err)
{
    struct atsi_err why = ATSI_ERR_INIT;
    int rc;
    lend_scratch(c, ops);
    rc = ops->place(&c->q->p, &c->answer->place, err);
    take_scratch(c);
    if (rc == ATSI_OK && atsi_check_placement(c->q, &c->answer->place, &why) != ATSI_OK)
        fail_msg("%s", why.msg);
    return rc;
}

int policy_case_schedule(struct policy_case *c, const struct atsi_policy_ops *ops, uint32_t phase,
                         struct atsi_err *err)
{
    struct atsi_schedule *s = &c->answer->schedule;
    struct atsi_err why = ATSI_ERR_INIT;
    int rc;
    if (c->state == NULL) {
        c->state_bytes = ops->state_bytes(c->q->p.n_items);
        c->state = calloc(1, c->state_bytes);
        assert_non_null(c->state);
    }
    c->round.phase = phase;
    c->round.state = c->state;
    c->round.state_bytes = c->state_bytes;
    s->keep = s->n_transfers = 77; /* must be set */
    lend_scratch(c, ops);
    rc = ops->schedule(&c->round, s, err);
    take_scratch(c);
    if (rc != ATSI_OK)
        return rc;
    if (s->keep == 0 && atsi_check_schedule(c->q, phase, c->answer->placed, s, &why) != ATSI_OK)
        fail_msg("%s", why.msg);
    assert_true(s->keep <= 1);
    assert_true(s->keep == 0 || c->round.in_force != NULL);
    return rc;
}

void policy_case_adopt(struct policy_case *c)
{
    memcpy(c->in_force, c->answer->schedule.device, c->q->p.n_items * sizeof *c->in_force);
    c->round.in_force = c->in_force;
    c->round.planned_ns = c->round.now_ns;
    c->round.predicted_ns = c->answer->schedule.predicted_ns;
    c->round.observed_ns = c->round.predicted_ns;
}

void policy_case_put(struct policy_case *c, const uint8_t *b)
{
    for (uint32_t i = 0; i < c->q->p.n_items; i++)
        c->answer->place.device[i] = b[i];
}

void policy_case_sides(const struct policy_case *c, const int32_t *device, uint8_t *side)
{
    for (uint32_t i = 0; i < c->q->p.n_items; i++)
        side[i] = (uint8_t)device[i];
}

uint64_t policy_case_used(const struct policy_case *c)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < c->q->p.n_items; i++)
        used += c->answer->place.device[i] == 1 ? c->q->items->items[i].resident_bytes : 0;
    return used;
}
