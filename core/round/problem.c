/* SPDX-License-Identifier: Apache-2.0
 *
 * Building the question.  Temporary slots are equal, as large as the largest weight that at least
 * two slots of the temporary memory hold; what is larger does not move in that phase.
 */
#include "core/round/problem.h"

#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t touched(const struct atsi_items *it, uint32_t i, const struct atsi_conditions *c)
{
    struct atsi_demand d;
    atsi_work_demand(&it->work[i], c->tokens, c->ctx, c->ctx_max, &d);
    return (uint64_t)d.touched_bytes;
}

/* Slot size and number for one phase; unsets the transfer time of what does not fit a slot. */
static void size_slots(struct atsi_question *q, const struct atsi_question_params *p, int phase)
{
    const struct atsi_items *it = q->items;
    struct atsi_item_cost *gpu = q->cost[phase] + it->n;
    uint64_t slot = 0;
    for (uint32_t i = 0; i < it->n; i++) {
        uint64_t bytes = touched(it, i, &p->phase[phase]);
        if (gpu[i].transfer_ns > 0 && bytes <= p->temp_bytes / 2 && bytes > slot)
            slot = bytes;
    }
    for (uint32_t i = 0; i < it->n; i++)
        if (touched(it, i, &p->phase[phase]) > slot)
            gpu[i].transfer_ns = 0;
    q->slot_bytes[phase] = slot;
    q->slot_depth[phase] = 0;
    if (slot > 0) {
        uint64_t n = p->temp_bytes / slot;
        q->slot_depth[phase] = n < p->max_slots ? (uint32_t)n : p->max_slots;
    }
}

/* What contention was modelled from: bytes per item, and the rate of the link. */
static void note_traffic(struct atsi_question *q, const struct atsi_question_params *p, int phase)
{
    const struct atsi_item_cost *gpu = q->cost[phase] + q->items->n;
    double most = 0;
    for (uint32_t i = 0; i < q->items->n; i++) {
        double bytes = (double)touched(q->items, i, &p->phase[phase]);
        q->touched[phase][i] = bytes;
        if (gpu[i].transfer_ns > 0 && bytes > most) {
            most = bytes;
            q->link[phase] = bytes / (double)gpu[i].transfer_ns;
        }
    }
}

static void size_items(struct atsi_question *q, const struct atsi_question_params *p)
{
    const struct atsi_conditions *c = &p->phase[ATSI_PHASE_DECODE];
    for (uint32_t i = 0; i < q->items->n; i++) {
        struct atsi_item *item = &q->items->items[i];
        struct atsi_demand d;
        atsi_work_demand(&q->items->work[i], c->tokens, c->ctx, c->ctx_max, &d);
        item->resident_bytes = (uint64_t)d.resident_bytes;
        item->touched_bytes = (uint64_t)d.touched_bytes;
    }
}

static void fill_problem(struct atsi_question *q, const struct atsi_question_params *p,
                         const struct atsi_question_fixed *fixed)
{
    const struct atsi_items *it = q->items;
    uint32_t together = p->phase[ATSI_PHASE_DECODE].contention ? 500 : 1000;
    q->budget[ATSI_DEVICE_HOST] = UINT64_MAX;
    q->budget[ATSI_DEVICE_ACCEL] =
        p->vram_bytes > p->temp_bytes ? p->vram_bytes - p->temp_bytes : 0;
    q->p = (struct atsi_problem){.struct_size = sizeof q->p,
                                 .n_items = it->n,
                                 .n_devices = ATSI_N_DEVICES,
                                 .n_edges = it->n_edges,
                                 .n_slot_classes = 1,
                                 .items = it->ptrs,
                                 .prefill = q->now[ATSI_PHASE_PREFILL],
                                 .decode = q->now[ATSI_PHASE_DECODE],
                                 .edges = it->edges,
                                 .budget_bytes = q->budget,
                                 .slot_depth = q->slot_depth,
                                 .slot_bytes = q->slot_bytes,
                                 .mix_prompt = p->mix_prompt,
                                 .mix_generated = p->mix_generated,
                                 .contended_act = together,
                                 .contended_act_copy = together,
                                 .split_ns = fixed->split_ns,
                                 .routing_ns = fixed->routing_ns,
                                 .result_ns = fixed->result_ns,
                                 .gap_ns = fixed->gap_ns,
                                 .prefill_tokens = p->phase[ATSI_PHASE_PREFILL].tokens};
}

struct atsi_question *atsi_question_new(struct atsi_items *it)
{
    struct atsi_question *q = calloc(1, sizeof *q);
    if (q == NULL)
        return NULL;
    q->items = it;
    for (int f = 0; f < 2; f++) {
        q->cost[f] = calloc((size_t)ATSI_N_DEVICES * it->n + 1, sizeof *q->cost[f]);
        q->now[f] = calloc((size_t)ATSI_N_DEVICES * it->n + 1, sizeof *q->now[f]);
        q->touched[f] = calloc((size_t)it->n + 1, sizeof *q->touched[f]);
        if (q->cost[f] == NULL || q->now[f] == NULL || q->touched[f] == NULL) {
            atsi_question_free(q);
            return NULL;
        }
    }
    return q;
}

void atsi_question_finish(struct atsi_question *q, const struct atsi_question_params *p,
                          const struct atsi_question_fixed *fixed)
{
    static const uint32_t undisturbed[ATSI_N_CLASSES] = {1000, 1000, 1000, 1000};
    for (int f = 0; f < 2; f++) {
        size_slots(q, p, f);
        note_traffic(q, p, f);
    }
    size_items(q, p);
    fill_problem(q, p, fixed);
    atsi_question_slow(q, undisturbed);
    if (q->together > 0) /* what was modelled from shares is there already */
        for (int f = 0; f < 2; f++)
            for (uint32_t i = 0; i < q->items->n; i++) {
                q->cost[f][i].contended_run = q->now[f][i].contended_run;
                q->cost[f][i].contended_copy = q->now[f][i].contended_copy;
            }
}

uint64_t atsi_question_result_bytes(const struct atsi_question_params *p)
{
    return p->result_bytes != 0 ? p->result_bytes : p->n_vocab * sizeof(float);
}

int atsi_question_model(struct atsi_items *it, const struct atsi_machine *m,
                        const struct atsi_question_params *p, struct atsi_question **out,
                        struct atsi_err *err)
{
    const double us = 1000.0;
    const struct atsi_question_fixed fixed = {
        .split_ns = (uint64_t)(m->evt_us * us),
        .routing_ns = (uint64_t)(m->rlat_us * us),
        .result_ns = atsi_machine_result_ns(m, atsi_question_result_bytes(p),
                                            p->phase[ATSI_PHASE_DECODE].blocking),
        .gap_ns = (uint64_t)(m->gap_us * us)};
    struct atsi_question *q = atsi_question_new(it);
    *out = NULL;
    if (q == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the costs of %u items", it->n);
    for (int f = 0; f < 2; f++)
        atsi_machine_costs(m, it, &p->phase[f], q->cost[f], q->cost[f] + it->n);
    atsi_question_finish(q, p, &fixed);
    *out = q;
    return ATSI_OK;
}

void atsi_question_free(struct atsi_question *q)
{
    if (q == NULL)
        return;
    for (int f = 0; f < 2; f++) {
        free(q->cost[f]);
        free(q->now[f]);
        free(q->touched[f]);
    }
    free(q->expert_slots);
    free(q->scratch);
    free(q);
}

static uint64_t scaled(uint64_t ns, uint32_t per_mille)
{
    return (ns * per_mille + 500) / 1000;
}

static uint32_t speed(double share)
{
    return share < 0.001 ? 1 : share < 1 ? (uint32_t)lround(1000.0 * share) : 1000;
}

/* Speeds of an item on the host and of a transfer beside it, at the slowdowns in force: a slower
 * reader leaves the other one more.  Modelled: both asked for demand + link and got the share D of
 * it; the same D is shared by what they ask for now.  Measured: what is asked for beyond D is taken
 * from the two as it was when both read as fast as they could. */
static void contention_now(const struct atsi_question *q, int phase, uint32_t i,
                           const uint32_t *slowdown, struct atsi_item_cost *c)
{
    double link = q->link[phase], share;
    double demand = q->touched[phase][i] / (double)(c->run_ns > 0 ? c->run_ns : 1);
    double run = demand * 1000.0 / (double)slowdown[ATSI_CLASS_CPU];
    double copy = link * 1000.0 / (double)slowdown[ATSI_CLASS_XFER];
    if (q->together > 0) {
        double excess = run + copy - q->together;
        double gives = q->run_lost * run + q->copy_lost * copy;
        share = excess > 0 && gives > 0 ? excess / gives : 0;
        c->contended_run = speed(1 - share * q->run_lost);
        c->contended_copy = speed(1 - share * q->copy_lost);
    } else if (c->contended_run < 1000) {
        share = (double)c->contended_run / 1000.0 * ((demand + link) / (run + copy));
        c->contended_run = c->contended_copy = speed(share);
    }
}

void atsi_question_slow(struct atsi_question *q, const uint32_t slowdown[ATSI_N_CLASSES])
{
    uint32_t n = q->items->n;
    for (int f = 0; f < 2; f++)
        for (uint32_t k = 0; k < ATSI_N_DEVICES * n; k++) {
            struct atsi_item_cost c = q->cost[f][k];
            if (k < n)
                contention_now(q, f, k, slowdown, &c);
            c.run_ns = scaled(c.run_ns, slowdown[k < n ? ATSI_CLASS_CPU : ATSI_CLASS_GPU]);
            c.in_ns = scaled(c.in_ns, slowdown[ATSI_CLASS_ACT]);
            c.transfer_ns = scaled(c.transfer_ns, slowdown[ATSI_CLASS_XFER]);
            q->now[f][k] = c;
        }
}

int atsi_question_scratch(struct atsi_question *q, size_t bytes, struct atsi_err *err)
{
    void *grown;
    if (bytes > SIZE_MAX - ATSI_ALIGN)
        return atsi_fail(err, ATSI_ENOMEM, "a policy asks for %zu bytes of scratch", bytes);
    bytes = (bytes + ATSI_ALIGN - 1) / ATSI_ALIGN * ATSI_ALIGN;
    if (bytes > q->scratch_bytes) {
        grown = aligned_alloc(ATSI_ALIGN, bytes);
        if (grown == NULL)
            return atsi_fail(err, ATSI_ENOMEM, "a policy asks for %zu bytes of scratch", bytes);
        free(q->scratch);
        q->scratch = grown;
        q->scratch_bytes = bytes;
    }
    q->p.scratch = q->scratch;
    return ATSI_OK;
}
