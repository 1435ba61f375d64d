/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies to the host, as early as what they carry is there.  The accelerator's queue is in order,
 * so a copy behind everything that was queued so far would make the host wait for all of it: for
 * the shared expert before it computes routed ones, for q before k.  Where items of the accelerator
 * lie between the one that made the values and the one on the host that reads them, their split is
 * cut and the copy goes between.
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

void atsi_plan_ran(struct atsi_plan *p, const struct atsi_flow *f, uint32_t i, uint32_t device,
                   const struct atsi_flow_need *need)
{
    p->list_end[i] = p->n_list;
    for (uint32_t k = 0; device == ATSI_DEVICE_ACCEL && k < need->n_units; k++)
        note_pieces(p, f, p->n_list - need->n_units + k);
}

/* Behind the last unit that the pieces wait for. */
static uint32_t made_until(const struct atsi_plan *p, const struct atsi_flow_need *need)
{
    uint32_t last = 0;
    for (uint32_t k = 0; k < need->n_copies; k++)
        if (p->made_at[need->copies[k]] > last)
            last = p->made_at[need->copies[k]];
    return last + 1;
}

static bool on_accel(const struct atsi_step *s)
{
    return s->kind == ATSI_STEP_RUN && s->device == ATSI_DEVICE_ACCEL;
}

/* Cuts step s behind a unit, or behind its first item when that is not over by then: a step has one
 * at least.  Light units in front of an item may thus be in the step before it.  False: there is
 * nothing behind. */
static bool cut_step(struct atsi_plan *p, uint32_t s, uint32_t until)
{
    struct atsi_step *a = &p->steps[s], *b;
    uint32_t item = a->first, end = a->list + a->n_list;
    if (p->list_end[item] > until)
        until = p->list_end[item];
    if (a->n < 2 || until >= end)
        return false;
    while (p->list_end[item] <= until)
        item++;
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

uint32_t atsi_plan_early(struct atsi_plan *p, uint32_t n_items, uint32_t item,
                         const struct atsi_flow_need *need)
{
    uint32_t s = p->n_steps, until = made_until(p, need);
    /* One step more than without, and two for each item to come: there is room for no more. */
    if (p->n_steps + 2 * (n_items - item) + 1 > 2 * n_items)
        return p->n_steps;
    while (s > 0 && on_accel(&p->steps[s - 1]) && p->steps[s - 1].list >= until)
        s--;
    if (s > 0 && on_accel(&p->steps[s - 1]))
        (void)cut_step(p, s - 1, until);
    return s;
}
