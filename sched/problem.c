/* SPDX-License-Identifier: Apache-2.0
 * See problem.h.  The numbers come from a caller that is not trusted to be right: they are clamped
 * into 64 signed bits, and what is out of range is then refused by sched_chain_check(). */
#include "sched/problem.h"

#include "atsinfer/graph.h"
#include "sched/arena.h"

#include <inttypes.h>

/* What older callers may lack. */
#define NEEDED offsetof(struct atsi_problem, prefill_tokens)

static int64_t clamp(uint64_t v)
{
    return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

static int has_chunk(const struct atsi_problem *p)
{
    return p->struct_size >= NEEDED + sizeof p->prefill_tokens && p->prefill_tokens > 0;
}

uint32_t sched_problem_chunk_tokens(const struct atsi_problem *p)
{
    return has_chunk(p) ? p->prefill_tokens : p->mix_prompt;
}

uint32_t sched_problem_chunks(const struct atsi_problem *p)
{
    uint32_t chunk = sched_problem_chunk_tokens(p);
    return chunk > 0 ? p->mix_prompt / chunk + (p->mix_prompt % chunk != 0) : 0;
}

static int check_problem(const struct atsi_problem *p, uint32_t phase, const void *scratch,
                         struct atsi_err *err)
{
    if (p->struct_size < NEEDED)
        return atsi_fail(err, ATSI_EINVAL, "a problem of %u bytes, %zu are needed", p->struct_size,
                         NEEDED);
    if (phase > ATSI_PHASE_DECODE)
        return atsi_fail(err, ATSI_EINVAL, "phase %u, there are 2", phase);
    if (p->n_devices < 1)
        return atsi_fail(err, ATSI_EINVAL, "a problem without devices");
    if (p->n_devices > 2)
        return atsi_fail(err, ATSI_ENOTSUP,
                         "%u devices: this policy places on the CPU and one accelerator",
                         p->n_devices);
    if (p->n_items > SCHED_MAX_OPS)
        return atsi_fail(err, ATSI_EINVAL, "%u items, at most %u are supported", p->n_items,
                         SCHED_MAX_OPS);
    if (p->n_slot_classes > SCHED_MAX_CLASSES)
        return atsi_fail(err, ATSI_EINVAL, "%u slot classes, at most %u are supported",
                         p->n_slot_classes, SCHED_MAX_CLASSES);
    if (scratch == NULL || (uintptr_t)scratch % SCHED_LINE != 0)
        return atsi_fail(err, ATSI_EINVAL, "scratch at %p: %d-byte aligned memory is needed",
                         scratch, SCHED_LINE);
    return ATSI_OK;
}

static int check_item(const struct atsi_problem *p, uint32_t i, struct atsi_err *err)
{
    const struct atsi_item *it = p->items[i];
    if (it->struct_size < sizeof *it)
        return atsi_fail(err, ATSI_EINVAL, "item %u: %u bytes, %zu are needed", i, it->struct_size,
                         sizeof *it);
    if (it->pinned < -1 || it->pinned >= (int32_t)p->n_devices)
        return atsi_fail(err, ATSI_EINVAL, "item %u (%s): pinned to device %d, there are %u", i,
                         it->name, it->pinned, p->n_devices);
    if (p->n_slot_classes > 0 && it->slot_class >= p->n_slot_classes)
        return atsi_fail(err, ATSI_EINVAL, "item %u (%s): slot class %u, there are %u", i, it->name,
                         it->slot_class, p->n_slot_classes);
    return ATSI_OK;
}

/* Slots of a class in a phase; a class without any still gets one in the chain, where nothing may
 * use it. */
static uint32_t slots(const struct atsi_problem *p, uint32_t phase, uint32_t class)
{
    return p->n_slot_classes > 0 ? p->slot_depth[(size_t)phase * p->n_slot_classes + class] : 0;
}

static const struct atsi_item_cost *costs(const struct atsi_problem *p, uint32_t phase)
{
    return phase == ATSI_PHASE_DECODE ? p->decode : p->prefill;
}

static void on_host(const struct atsi_item *it, const struct atsi_item_cost *c, struct sched_op *op)
{
    op->s = clamp(it->resident_bytes);
    op->tc = op->tg = clamp(c->run_ns);
    op->gc = clamp(c->in_ns);
    op->km = c->contended_run / 1000.0;
    op->kx = c->contended_copy / 1000.0;
    op->layer = it->layer;
    op->role = (uint16_t)it->slot_class;
    op->is_exp = it->n_experts > 0 && it->pinned != SCHED_GPU;
    op->pinned = (int8_t)it->pinned;
    op->rel = -1;
}

static void on_accelerator(const struct atsi_problem *p, uint32_t i, uint32_t n_slots,
                           const struct atsi_item_cost *c, struct sched_op *op)
{
    op->tg = clamp(c->run_ns);
    op->cg = clamp(c->in_ns);
    op->c = i > 0 ? clamp(c->in_copy_ns) : 0;
    op->w = clamp(c->transfer_ns);
    op->evt = clamp(p->split_ns);
    op->promo = c->transfer_ns > 0 && n_slots > 0;
}

static void fill_op(const struct atsi_problem *p, uint32_t phase, uint32_t i, struct sched_op *op)
{
    const struct atsi_item *it = p->items[i];
    const struct atsi_item_cost *c = costs(p, phase);
    *op = (struct sched_op){0};
    on_host(it, &c[i], op);
    if (p->n_devices == 2)
        on_accelerator(p, i, slots(p, phase, it->slot_class), &c[(size_t)p->n_items + i], op);
    else
        op->pinned = SCHED_CPU;
    if (p->n_slot_classes == 0)
        op->role = 0;
    if (phase == ATSI_PHASE_DECODE)
        op->rel = it->router;
}

/* Heads have no layer of their own, and belong to the layers that are offloaded first. */
static void number_heads(const struct atsi_problem *p, struct sched_op *op)
{
    int32_t last = -1;
    for (uint32_t i = 0; i < p->n_items; i++)
        last = op[i].layer > last ? op[i].layer : last;
    for (uint32_t i = 0; i < p->n_items && last < INT32_MAX; i++)
        if (op[i].layer < 0 && p->items[i]->role == ATSI_ROLE_HEAD)
            op[i].layer = last + 1;
}

size_t sched_view_scratch(uint32_t n)
{
    return SCHED_ROOM(struct sched_op, n) + SCHED_ROOM(uint8_t, n) +
           SCHED_ROOM(uint32_t, SCHED_MAX_CLASSES);
}

int sched_view_read(const struct atsi_problem *p, uint32_t phase, void *scratch,
                    struct sched_view *out, struct atsi_err *err)
{
    unsigned char *at = scratch;
    int rc = check_problem(p, phase, scratch, err);
    if (rc != ATSI_OK)
        return rc;
    out->op = SCHED_TAKE(&at, struct sched_op, p->n_items);
    out->attn = SCHED_TAKE(&at, uint8_t, p->n_items);
    out->depth = SCHED_TAKE(&at, uint32_t, SCHED_MAX_CLASSES);
    out->chain = (struct sched_chain){
        .n = p->n_items,
        .n_classes = p->n_slot_classes > 0 ? p->n_slot_classes : 1,
        .op = out->op,
        .depth = out->depth,
        .rlat = clamp(p->routing_ns),
        .out = clamp(p->result_ns),
        .gap = phase == ATSI_PHASE_DECODE ? clamp(p->gap_ns) : 0,
        .budget = p->n_devices == 2 ? clamp(p->budget_bytes[1]) : 0,
        .am = p->contended_act / 1000.0,
        .ax = p->contended_act_copy / 1000.0,
    };
    for (uint32_t q = 0; q < out->chain.n_classes; q++)
        out->depth[q] = slots(p, phase, q) > 0 ? slots(p, phase, q) : 1;
    for (uint32_t i = 0; i < p->n_items; i++) {
        rc = check_item(p, i, err);
        if (rc != ATSI_OK)
            return rc;
        fill_op(p, phase, i, &out->op[i]);
        out->attn[i] =
            p->items[i]->role == ATSI_ROLE_ATTN || p->items[i]->role == ATSI_ROLE_RECURRENT;
    }
    number_heads(p, out->op);
    return sched_chain_check(&out->chain, err);
}

int sched_view_check_pins(const struct sched_view *v, struct atsi_err *err)
{
    int64_t need = 0; /* cannot overflow: 2^14 operators of at most 2^48 bytes */
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->chain.n; i++)
        if (v->op[i].pinned == SCHED_GPU) {
            need += v->op[i].s;
            n++;
        }
    if (need <= v->chain.budget)
        return ATSI_OK;
    return atsi_fail(err, ATSI_ENOFIT,
                     "the rules pin %u items of %" PRId64
                     " bytes to the accelerator, its budget is %" PRId64
                     " bytes: pin fewer or raise memory.vram",
                     n, need, v->chain.budget);
}

int sched_read_sides(const struct atsi_problem *p, const int32_t *device, uint8_t *side_out,
                     struct atsi_err *err)
{
    for (uint32_t i = 0; i < p->n_items; i++) {
        if (device[i] < 0 || device[i] >= (int32_t)p->n_devices)
            return atsi_fail(err, ATSI_EINVAL, "item %u (%s): on device %d, there are %u", i,
                             p->items[i]->name, device[i], p->n_devices);
        side_out[i] = (uint8_t)device[i];
    }
    return ATSI_OK;
}
