/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies from one device to the other, as early as what they carry is there.
 *
 * To the host: the accelerator's queue is in order, so a copy behind everything that was queued so
 * far would make the host wait for all of it: for the shared expert before it computes routed ones,
 * for q before k.  To the accelerator: the host computes a split to its end before it goes on, so
 * what is copied behind it comes late: up would wait for gate, when it needs nothing but the norm
 * before both.  Where items of a device lie between the one that made the values and the one of the
 * other device that reads them, their split is cut and the copy goes between.
 */
#include "core/round/plan.h"

#include "core/round/flow.h"

#include <string.h>

/* Where in the list of units the pieces come from that a unit at `at` computes. */
static void note_pieces(struct atsi_plan *p, const struct atsi_flow *f, uint32_t at)
{
    const struct atsi_flow_node *node = &f->nodes[atsi_flow_node_of(f, p->list[at])];
    for (int d = 0; d < 2; d++)
        for (uint32_t k = node->dst[d] >= 0 ? f->piece_at[node->dst[d]] : 0;
             node->dst[d] >= 0 && k < f->piece_at[node->dst[d] + 1]; k++)
            p->made_at[k] = at;
}

void atsi_plan_ran(struct atsi_plan *p, const struct atsi_flow *f,
                   const struct atsi_flow_need *need)
{
    for (uint32_t k = 0; k < need->n_units; k++)
        note_pieces(p, f, p->n_list - need->n_units + k);
}

bool atsi_plan_is_cached(const struct atsi_question *q, const struct atsi_plan *p, uint32_t step)
{
    return q->expert_slots != NULL && p->phase == ATSI_PHASE_DECODE &&
           q->expert_slots[p->steps[step].first] > 0;
}

/* Behind the last unit that the pieces wait for.  A piece that must cross was made on one device
 * only, so it does not matter where; what is given was made nowhere. */
static uint32_t made_until(const struct atsi_plan *p, const struct atsi_flow_need *need)
{
    uint32_t last = 0;
    for (uint32_t k = 0; k < need->n_copies; k++)
        if (p->made_at[need->copies[k]] > last)
            last = p->made_at[need->copies[k]];
    return last + 1;
}

static bool runs_on(const struct atsi_step *s, uint32_t device)
{
    return s->kind == ATSI_STEP_RUN && s->device == device;
}

/* Cuts step s behind a unit, or behind its first item when that is not over by then: a step has one
 * at least.  Light units in front of an item may thus be in the step before it.  False: there is
 * no item behind. */
static bool cut_step(struct atsi_plan *p, uint32_t s, uint32_t until)
{
    struct atsi_step *a = &p->steps[s], *b;
    uint32_t item = a->first, end = a->list + a->n_list;
    if (p->list_end[item] > until)
        until = p->list_end[item];
    while (item < a->first + a->n && p->list_end[item] <= until)
        item++;
    if (item == a->first + a->n || until >= end)
        return false;
    memmove(&p->steps[s + 1], &p->steps[s], (p->n_steps - s) * sizeof *p->steps);
    p->n_steps++;
    b = &p->steps[s + 1];
    b->n = a->first + a->n - item;
    b->first = item;
    b->transfer = -1; /* a transfer is for the first item of a step */
    b->list = until;
    b->n_list = end - until;
    a->n = item - a->first;
    a->n_list = until - a->list;
    return true;
}

uint32_t atsi_plan_early(struct atsi_plan *p, const struct atsi_question *q, uint32_t item,
                         uint32_t device, const struct atsi_flow_need *need)
{
    uint32_t s = p->n_steps, until = made_until(p, need), from = 1 - device, n = q->items->n;
    /* One step more than without, and two for each item to come: there is room for no more. */
    if (p->n_steps + 2 * (n - item) + 1 > 2 * n)
        return p->n_steps;
    while (s > 0 && runs_on(&p->steps[s - 1], from) && p->steps[s - 1].list >= until)
        s--;
    if (s > 0 && runs_on(&p->steps[s - 1], from) && !atsi_plan_is_cached(q, p, s - 1))
        (void)cut_step(p, s - 1, until);
    return s;
}

/* The step waits for a copy just in front of it, and nothing of the accelerator lies between, so
 * that all it made so far was made before. */
bool atsi_plan_joins(const struct atsi_plan *p, uint32_t device, bool open)
{
    const struct atsi_step *last, *before;
    if (!open || device != ATSI_DEVICE_HOST || p->n_steps < 2)
        return false;
    last = &p->steps[p->n_steps - 1];
    before = last - 1;
    return runs_on(last, device) && before->kind == ATSI_STEP_COPY && before->device == device;
}
