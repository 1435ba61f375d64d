/* SPDX-License-Identifier: Apache-2.0
 *
 * The planner: walk the items in order, cut where the device changes, where a weight arrives in a
 * slot, and behind every item somebody waits for.
 */
#include "core/round/plan.h"

#include <stdlib.h>
#include <string.h>

int atsi_answer_open(uint32_t n, struct atsi_answer **out, struct atsi_err *err)
{
    struct atsi_answer *a = calloc(1, sizeof *a);
    size_t room = (size_t)n + 1;
    *out = NULL;
    if (a != NULL) {
        a->place = (struct atsi_placement){.struct_size = sizeof a->place, .n_items = n};
        a->schedule = (struct atsi_schedule){.struct_size = sizeof a->schedule, .n_items = n};
        a->placed = a->place.device = calloc(room, sizeof(int32_t));
        a->place.expert_slots = calloc(room, sizeof(uint32_t));
        a->schedule.device = calloc(room, sizeof(int32_t));
        a->schedule.order = calloc(room, sizeof(uint32_t));
        a->schedule.after = calloc(room, sizeof(int32_t));
        a->schedule.slot = calloc(room, sizeof(int32_t));
    }
    if (a == NULL || a->placed == NULL || a->place.expert_slots == NULL ||
        a->schedule.device == NULL || a->schedule.order == NULL || a->schedule.after == NULL ||
        a->schedule.slot == NULL) {
        atsi_answer_close(a);
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for an answer about %u items", n);
    }
    *out = a;
    return ATSI_OK;
}

void atsi_answer_close(struct atsi_answer *a)
{
    if (a == NULL)
        return;
    free(a->place.device);
    free(a->place.expert_slots);
    free(a->schedule.device);
    free(a->schedule.order);
    free(a->schedule.after);
    free(a->schedule.slot);
    free(a);
}

/* Edges grouped by consumer, once per question. */
static void index_edges(struct atsi_plan *p, const struct atsi_items *it)
{
    for (uint32_t e = 0; e < it->n_edges; e++)
        p->edge_at[it->edges[e].to + 1]++;
    for (uint32_t i = 0; i < it->n; i++)
        p->edge_at[i + 1] += p->edge_at[i];
    for (uint32_t e = it->n_edges; e > 0; e--)
        p->edge_of[--p->edge_at[it->edges[e - 1].to + 1]] = e - 1;
    /* edge_at[i + 1] is the first edge of item i now */
    memmove(p->edge_at, p->edge_at + 1, it->n * sizeof *p->edge_at);
    p->edge_at[it->n] = it->n_edges;
    for (uint32_t e = 0; e < it->n_edges; e++) {
        uint32_t f = 0;
        while (it->edges[f].from != it->edges[e].from || it->edges[f].bytes != it->edges[e].bytes)
            f++;
        p->value_of[e] = f;
    }
}

int atsi_plan_open(const struct atsi_question *q, struct atsi_plan **out, struct atsi_err *err)
{
    struct atsi_plan *p = calloc(1, sizeof *p);
    size_t n = (size_t)q->items->n + 1, m = (size_t)q->items->n_edges + 1;
    *out = NULL;
    if (p != NULL) {
        p->steps = calloc(2 * n, sizeof *p->steps);
        p->moves = calloc(n, sizeof *p->moves);
        p->cut = calloc(n, 1);
        p->move_of = calloc(n, sizeof *p->move_of);
        p->have = calloc(m, 1);
        p->value_of = calloc(m, sizeof *p->value_of);
        p->edge_at = calloc(n + 1, sizeof *p->edge_at);
        p->edge_of = calloc(m, sizeof *p->edge_of);
    }
    if (p == NULL || p->steps == NULL || p->moves == NULL || p->cut == NULL || p->move_of == NULL ||
        p->have == NULL || p->value_of == NULL || p->edge_at == NULL || p->edge_of == NULL) {
        atsi_plan_close(p);
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a plan of %u items", q->items->n);
    }
    index_edges(p, q->items);
    *out = p;
    return ATSI_OK;
}

void atsi_plan_close(struct atsi_plan *p)
{
    if (p == NULL)
        return;
    free(p->steps);
    free(p->moves);
    free(p->cut);
    free(p->move_of);
    free(p->have);
    free(p->value_of);
    free(p->edge_at);
    free(p->edge_of);
    free(p);
}

static void list_moves(struct atsi_plan *p, const struct atsi_question *q,
                       const struct atsi_schedule *s, uint32_t phase)
{
    uint32_t n = q->items->n;
    memset(p->cut, 0, n);
    for (uint32_t i = 0; i < n; i++)
        p->move_of[i] = -1;
    p->n_moves = s->n_transfers;
    for (uint32_t k = 0; k < s->n_transfers; k++) {
        uint32_t i = s->order[k];
        int32_t router = phase == ATSI_PHASE_DECODE ? q->items->items[i].router : -1;
        p->moves[k] = (struct atsi_move){i, (uint32_t)s->slot[i], router, s->after[i]};
        p->move_of[i] = (int32_t)k;
        p->cut[i] = 1;
        if (router >= 0)
            p->cut[router] = 1;
        if (s->after[i] >= 0)
            p->cut[s->after[i]] = 1;
    }
}

/* Bytes that must reach item i on its device: what lies on the other one and was not copied yet. */
static uint64_t bytes_across(struct atsi_plan *p, const struct atsi_items *it,
                             const int32_t *device, uint32_t i, uint32_t tokens)
{
    uint64_t bytes = 0;
    for (uint32_t k = p->edge_at[i]; k < p->edge_at[i + 1]; k++) {
        uint32_t e = p->edge_of[k], v = p->value_of[e];
        uint8_t bit = (uint8_t)(1U << (unsigned)device[i]);
        if (device[it->edges[e].from] == device[i] || (p->have[v] & bit) != 0)
            continue;
        p->have[v] |= bit;
        bytes += it->edges[e].bytes * tokens;
    }
    return bytes;
}

static void add_step(struct atsi_plan *p, struct atsi_step s)
{
    p->steps[p->n_steps++] = s;
}

void atsi_plan_build(struct atsi_plan *p, const struct atsi_question *q,
                     const struct atsi_schedule *s, uint32_t phase, const double *in_bytes,
                     uint32_t tokens)
{
    const struct atsi_items *it = q->items;
    uint8_t here = ATSI_DEVICE_HOST;
    bool open = false; /* the last step is a run that may grow */
    p->n_steps = 0;
    p->n_slots = q->slot_depth[phase];
    list_moves(p, q, s, phase);
    memset(p->have, 0, it->n_edges);
    for (uint32_t i = 0; i < it->n; i++) {
        uint8_t d = (uint8_t)s->device[i];
        uint64_t bytes = 0;
        bool copy;
        if (it->chain) {
            copy = d != here;
            bytes = copy ? (uint64_t)in_bytes[i] : 0;
        } else {
            bytes = bytes_across(p, it, s->device, i, tokens);
            copy = bytes > 0;
        }
        if (copy)
            add_step(p, (struct atsi_step){.kind = ATSI_STEP_COPY,
                                           .device = d,
                                           .transfer = -1,
                                           .first = i,
                                           .bytes = bytes});
        if (copy || d != here || p->move_of[i] >= 0 || !open)
            add_step(
                p, (struct atsi_step){
                       .kind = ATSI_STEP_RUN, .device = d, .transfer = p->move_of[i], .first = i});
        p->steps[p->n_steps - 1].n++;
        open = p->cut[i] == 0;
        here = d;
    }
    p->last_device = here;
}
