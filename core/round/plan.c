/* SPDX-License-Identifier: Apache-2.0
 *
 * The planner: walk the items in order, cut where the device changes, where a weight arrives in a
 * slot, and behind every item somebody waits for.
 */
#include "core/round/plan.h"

#include "core/round/flow.h"

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

static bool open_flow(struct atsi_plan *p, const struct atsi_flow *f)
{
    uint32_t copies = atsi_flow_max_copies(f), units = atsi_flow_max_units(f);
    p->room_list = copies + units + 1;
    p->list = calloc(p->room_list, sizeof *p->list);
    p->valid = calloc((size_t)f->n_pieces + 1, 1);
    p->need = calloc(p->room_list, sizeof *p->need);
    p->made_at = calloc((size_t)f->n_pieces + 1, sizeof *p->made_at);
    p->list_end = calloc((size_t)f->n_items + 1, sizeof *p->list_end);
    return p->list != NULL && p->valid != NULL && p->need != NULL && p->made_at != NULL &&
           p->list_end != NULL;
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
        p->have == NULL || p->value_of == NULL || p->edge_at == NULL || p->edge_of == NULL ||
        (q->items->flow != NULL && !open_flow(p, q->items->flow))) {
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
    free(p->list);
    free(p->valid);
    free(p->need);
    free(p->made_at);
    free(p->list_end);
    free(p);
}

/* Stacks with a cache are a step of their own, once their router's choice is known. */
static void cut_caches(struct atsi_plan *p, const struct atsi_question *q)
{
    for (uint32_t i = 0; i < q->items->n; i++) {
        bool last =
            i + 1 == q->items->n || q->items->items[i + 1].router != q->items->items[i].router;
        if (q->expert_slots[i] == 0)
            continue;
        p->cut[q->items->items[i].router] = 1;
        if (i > 0 && q->items->items[i - 1].router != q->items->items[i].router)
            p->cut[i - 1] = 1;
        if (last)
            p->cut[i] = 1;
    }
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
    if (q->expert_slots != NULL && phase == ATSI_PHASE_DECODE)
        cut_caches(p, q);
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

static void insert_step(struct atsi_plan *p, uint32_t at, struct atsi_step s)
{
    memmove(&p->steps[at + 1], &p->steps[at], (p->n_steps - at) * sizeof s);
    p->n_steps++;
    p->steps[at] = s;
}

/* ---------------------------------------------------------------- with a flow */
static uint64_t bytes_of(const struct atsi_flow *f, const uint32_t *pieces, uint32_t n,
                         uint32_t tokens)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < n; k++) {
        const struct atsi_flow_piece *piece = &f->pieces[pieces[k]];
        bytes += (piece->end - piece->first) * 4 * (f->output_rows[piece->value] ? 1 : tokens);
    }
    return bytes;
}

/* Units of a step lie together: they come from the front of the list, pieces from its end. */
static void add_units(struct atsi_plan *p, struct atsi_step *s, const struct atsi_flow_need *need)
{
    if (need->n_units == 0)
        return;
    if (s->n_list == 0)
        s->list = p->n_list;
    memcpy(p->list + p->n_list, need->units, need->n_units * sizeof *need->units);
    p->n_list += need->n_units;
    s->n_list += need->n_units;
}

static void add_pieces(struct atsi_plan *p, struct atsi_step *s, const struct atsi_flow_need *need)
{
    if (need->n_copies == 0)
        return;
    p->pieces_at -= need->n_copies;
    memcpy(p->list + p->pieces_at, need->copies, need->n_copies * sizeof *need->copies);
    s->list = p->pieces_at;
    s->n_list = need->n_copies;
}

/* What item i needs to run: the bytes that cross, and in p->need its pieces, then its units. */
static struct atsi_flow_need needs_of(struct atsi_plan *p, const struct atsi_flow *f, uint32_t i,
                                      uint32_t device, uint32_t n_beside)
{
    struct atsi_flow_need need = {
        .copies = p->need, .units = p->need + atsi_flow_max_copies(f), .n_beside = n_beside};
    atsi_flow_item(f, p->valid, i, device, &need);
    return need;
}

static void add_result(struct atsi_plan *p, const struct atsi_flow *f)
{
    struct atsi_flow_need need = {.copies = p->need};
    struct atsi_step result = {.list = 0};
    atsi_flow_result(f, p->valid, &need);
    add_pieces(p, &result, &need);
    p->result_at = result.list;
    p->n_result = need.n_copies;
    p->last_device = need.n_copies > 0 ? ATSI_DEVICE_ACCEL : ATSI_DEVICE_HOST;
}

/* ---------------------------------------------------------------- steps */
struct builder {
    struct atsi_plan *p;
    const struct atsi_question *q;
    const struct atsi_items *it;
    const int32_t *device;
    const double *in_bytes;
    uint32_t tokens;
    uint8_t here; /* where the item before ran */
    bool open;    /* the last step is a run that may grow */
};

static void copy_at(struct builder *b, uint32_t at, uint32_t i, uint32_t device,
                    const struct atsi_flow_need *need, uint64_t bytes)
{
    insert_step(b->p, at,
                (struct atsi_step){.kind = ATSI_STEP_COPY,
                                   .device = (uint8_t)device,
                                   .transfer = -1,
                                   .first = i,
                                   .bytes = bytes});
    add_pieces(b->p, &b->p->steps[at], need);
}

/* Light operations of item i behind the item before, on its device; how many.  What they need of
 * the other device was made before that item's step began. */
static uint32_t add_beside(struct builder *b, uint32_t i)
{
    struct atsi_plan *p = b->p;
    const struct atsi_flow *f = b->it->flow;
    struct atsi_flow_need need = {.copies = p->need, .units = p->need + atsi_flow_max_copies(f)};
    uint32_t last = p->n_steps - 1, device = b->here;
    if (p->n_steps == 0 || b->device[i] == (int32_t)device || atsi_plan_is_cached(b->q, p, last) ||
        p->n_steps + 2 * (b->it->n - i) + 1 > 2 * b->it->n ||
        !atsi_flow_beside(f, p->valid, i, b->device, &need))
        return 0;
    add_units(p, &p->steps[last], &need);
    atsi_plan_ran(p, f, &need);
    if (need.n_copies > 0)
        copy_at(b, last, i, device, &need, bytes_of(f, need.copies, need.n_copies, b->tokens));
    return need.n_beside;
}

static void add_item(struct builder *b, uint32_t i)
{
    struct atsi_plan *p = b->p;
    const struct atsi_flow *f = b->it->flow;
    struct atsi_flow_need need = {0};
    uint8_t d = (uint8_t)b->device[i];
    uint64_t bytes = 0;
    bool copy, joins;
    if (f != NULL) {
        need = needs_of(p, f, i, d, add_beside(b, i));
        copy = need.n_copies > 0;
        bytes = bytes_of(f, need.copies, need.n_copies, b->tokens);
    } else if (b->it->chain) {
        copy = d != b->here;
        bytes = copy ? (uint64_t)b->in_bytes[i] : 0;
    } else {
        bytes = bytes_across(p, b->it, b->device, i, b->tokens);
        copy = bytes > 0;
    }
    joins = f != NULL && copy && p->move_of[i] < 0 && atsi_plan_joins(p, d, b->open);
    if (copy)
        copy_at(b,
                joins       ? p->n_steps - 1
                : f != NULL ? atsi_plan_early(p, b->q, i, d, &need)
                            : p->n_steps,
                i, d, &need, bytes);
    if ((copy && !joins) || d != b->here || p->move_of[i] >= 0 || !b->open)
        add_step(p, (struct atsi_step){
                        .kind = ATSI_STEP_RUN, .device = d, .transfer = p->move_of[i], .first = i});
    p->steps[p->n_steps - 1].n++;
    add_units(p, &p->steps[p->n_steps - 1], &need);
    if (f != NULL) {
        p->list_end[i] = p->n_list;
        atsi_plan_ran(p, f, &need);
    }
    b->open = p->cut[i] == 0;
    b->here = d;
}

void atsi_plan_build(struct atsi_plan *p, const struct atsi_question *q,
                     const struct atsi_schedule *s, uint32_t phase, const double *in_bytes,
                     uint32_t tokens)
{
    struct builder b = {.p = p,
                        .q = q,
                        .it = q->items,
                        .device = s->device,
                        .in_bytes = in_bytes,
                        .tokens = tokens,
                        .here = ATSI_DEVICE_HOST};
    p->n_steps = p->n_list = 0;
    p->phase = phase;
    p->built++;
    p->n_slots = q->slot_depth[phase];
    list_moves(p, q, s, phase);
    memset(p->have, 0, q->items->n_edges);
    p->pieces_at = p->room_list;
    if (q->items->flow != NULL)
        atsi_flow_begin(q->items->flow, p->valid);
    for (uint32_t i = 0; i < q->items->n; i++)
        add_item(&b, i);
    p->last_device = b.here;
    if (q->items->flow != NULL)
        add_result(p, q->items->flow);
}
