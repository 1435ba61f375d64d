/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor.  Two sets of events, one per round in turn: a transfer that was issued ahead for
 * the next round signals that round's event, and what it waits for belongs to the current one.
 */
#include "core/round/exec.h"

#include <stdlib.h>
#include <string.h>

#define SPIN_NS 20000u
#define MAX_WAIT 4u

struct round_events {
    struct atsi_event **item[ATSI_N_DEVICES]; /* [n] its split has ended, per device it ran on */
    struct atsi_event **move;                 /* [n] by item: its weight has arrived */
    unsigned char *queued; /* [n] 0: not yet; 1 + device: its work is queued there (host: done) */
};

struct atsi_exec {
    const struct atsi_question *q;
    struct atsi_exec_devices d;
    struct round_events ev[2];
    uint32_t n, turn;
    struct atsi_event **step_event; /* [2n] ends of steps */
    struct atsi_event *result, *clock;
    struct atsi_event
        *last; /* of the newest work of the accelerator's queue in this round; or NULL */
    struct atsi_event **slot_free; /* [slots] consumer of what is or was in the slot; NULL: free */
    int32_t *slot_item;            /* [slots] issued, consumer not queued yet; -1: none */
    uint32_t n_slots;
    uint32_t turned; /* slots of a plan count from here: they go round from one round to the next */
    struct atsi_move *ahead; /* [n] transfers issued for the next round, in order */
    uint32_t *ahead_slot;    /* [n] where they went */
    uint32_t n_ahead;
    uint32_t ahead_phase; /* of the plan that they belong to */
    bool unmeasured, unmeasured_next;
    const struct atsi_plan *counted; /* whose operations step_op, op_item and end_of are about... */
    uint64_t counted_built;          /* ... as it was built then */
    uint64_t *op_ns;                 /* [room_ops] */
    uint32_t *op_item;               /* [room_ops] */
    uint64_t *copy_ns;               /* [2n] */
    uint64_t *move_ns[2];            /* [n] per transfer of a round, by turn */
    uint32_t *step_op;               /* [2n + 1] first entry of op_ns per step */
    uint32_t *end_of;                /* [n] last item of the split an item is in */
    uint32_t room_ops;
    struct atsi_record rec;
};

/* The round under way. */
struct walk {
    struct atsi_exec *x;
    const struct atsi_plan *plan;
    const struct atsi_exec_source *src;
    bool keeps;
    uint32_t next_move; /* of the plan; beyond its end: of the next round */
    int64_t coming;     /* COPY step to the host that was not waited for yet; -1: none */
    struct atsi_err *err;
};

/* ---------------------------------------------------------------- life */
static int open_events(const struct atsi_exec_devices *d, uint32_t device, uint32_t n,
                       struct atsi_event ***out, struct atsi_err *err)
{
    *out = calloc((size_t)n + 1, sizeof(struct atsi_event *));
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for %u events", n);
    for (uint32_t i = 0; i < n; i++) {
        int rc = d->ops[device]->event_open(d->be[device], &(*out)[i], err);
        if (rc != ATSI_OK)
            return rc;
    }
    return ATSI_OK;
}

static void close_events(const struct atsi_exec_devices *d, uint32_t device, uint32_t n,
                         struct atsi_event **events)
{
    for (uint32_t i = 0; events != NULL && i < n; i++)
        if (events[i] != NULL)
            d->ops[device]->event_close(events[i]);
    free(events);
}

int atsi_exec_channels(struct atsi_exec_devices *d, struct atsi_err *err)
{
    const struct atsi_channel *const *list = NULL;
    int n = d->tx_ops->channels(d->tx, &list), found = 0;
    for (int k = 0; k < n; k++) {
        if (strcmp(list[k]->name, "copy_kernel") == 0) {
            d->copy_kernel = (uint32_t)k;
            found |= 1;
        } else if (strcmp(list[k]->name, "copy_engine") == 0) {
            d->copy_engine = (uint32_t)k;
            found |= 2;
        }
    }
    return found == 3 ? ATSI_OK
                      : atsi_fail(err, ATSI_ENOTSUP, "the transfer engine offers no channel \"%s\"",
                                  (found & 1) != 0 ? "copy_engine" : "copy_kernel");
}

static int open_memory(struct atsi_exec *x, struct atsi_err *err)
{
    size_t n = (size_t)x->n + 1;
    x->slot_free = calloc((size_t)x->n_slots + 1, sizeof(struct atsi_event *));
    x->slot_item = calloc((size_t)x->n_slots + 1, sizeof *x->slot_item);
    x->ahead = calloc(n, sizeof *x->ahead);
    x->ahead_slot = calloc(n, sizeof *x->ahead_slot);
    x->copy_ns = calloc(2 * n, sizeof *x->copy_ns);
    x->step_op = calloc(2 * n + 1, sizeof *x->step_op);
    x->end_of = calloc(n, sizeof *x->end_of);
    x->rec.steps = calloc(2 * n, sizeof *x->rec.steps);
    x->rec.item_ns = calloc(n, sizeof *x->rec.item_ns);
    x->rec.moves = calloc(n, sizeof *x->rec.moves);
    for (int r = 0; r < 2; r++) {
        x->ev[r].queued = calloc(n, 1);
        x->move_ns[r] = calloc(n, sizeof *x->move_ns[r]);
    }
    if (x->slot_free == NULL || x->slot_item == NULL || x->ahead == NULL || x->ahead_slot == NULL ||
        x->copy_ns == NULL || x->move_ns[0] == NULL || x->move_ns[1] == NULL ||
        x->step_op == NULL || x->end_of == NULL || x->rec.steps == NULL || x->rec.item_ns == NULL ||
        x->rec.moves == NULL || x->ev[0].queued == NULL || x->ev[1].queued == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the execution of %u items", x->n);
    for (uint32_t s = 0; s < x->n_slots; s++)
        x->slot_item[s] = -1;
    return ATSI_OK;
}

int atsi_exec_open(const struct atsi_question *q, const struct atsi_exec_devices *d,
                   struct atsi_exec **out, struct atsi_err *err)
{
    struct atsi_exec *x = calloc(1, sizeof *x);
    int rc;
    *out = NULL;
    if (x == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory opening the executor");
    x->q = q;
    x->d = *d;
    x->n = q->items->n;
    x->n_slots = q->slot_depth[0] > q->slot_depth[1] ? q->slot_depth[0] : q->slot_depth[1];
    rc = open_memory(x, err);
    for (int r = 0; r < 2 && rc == ATSI_OK; r++) {
        for (uint32_t dev = 0; dev < ATSI_N_DEVICES && rc == ATSI_OK; dev++)
            rc = open_events(d, dev, x->n, &x->ev[r].item[dev], err);
        if (rc == ATSI_OK)
            rc = open_events(d, ATSI_DEVICE_ACCEL, x->n, &x->ev[r].move, err);
    }
    if (rc == ATSI_OK)
        rc = open_events(d, ATSI_DEVICE_ACCEL, 2 * x->n, &x->step_event, err);
    if (rc == ATSI_OK)
        rc = d->ops[ATSI_DEVICE_ACCEL]->event_open(d->be[ATSI_DEVICE_ACCEL], &x->result, err);
    if (rc == ATSI_OK)
        rc = d->ops[ATSI_DEVICE_HOST]->event_open(d->be[ATSI_DEVICE_HOST], &x->clock, err);
    if (rc != ATSI_OK) {
        atsi_exec_close(x);
        return rc;
    }
    *out = x;
    return ATSI_OK;
}

void atsi_exec_close(struct atsi_exec *x)
{
    if (x == NULL)
        return;
    for (int r = 0; r < 2; r++) {
        for (uint32_t dev = 0; dev < ATSI_N_DEVICES; dev++)
            close_events(&x->d, dev, x->n, x->ev[r].item[dev]);
        close_events(&x->d, ATSI_DEVICE_ACCEL, x->n, x->ev[r].move);
        free(x->ev[r].queued);
        free(x->move_ns[r]);
    }
    close_events(&x->d, ATSI_DEVICE_ACCEL, 2 * x->n, x->step_event);
    if (x->result != NULL)
        x->d.ops[ATSI_DEVICE_ACCEL]->event_close(x->result);
    if (x->clock != NULL)
        x->d.ops[ATSI_DEVICE_HOST]->event_close(x->clock);
    free(x->slot_free);
    free(x->slot_item);
    free(x->ahead);
    free(x->ahead_slot);
    free(x->op_ns);
    free(x->op_item);
    free(x->copy_ns);
    free(x->step_op);
    free(x->end_of);
    free(x->rec.steps);
    free(x->rec.item_ns);
    free(x->rec.moves);
    free(x);
}

static uint64_t time_of(const struct atsi_exec *x, uint32_t device, const struct atsi_event *ev)
{
    uint64_t ns = 0;
    (void)x->d.ops[device]->event_time(ev, &ns); /* 0: never recorded */
    return ns;
}

/* ---------------------------------------------------------------- transfers */
static int wait_for(struct walk *w, struct atsi_event *ev)
{
    return w->x->d.ops[ATSI_DEVICE_ACCEL]->event_wait(ev, SPIN_NS, w->err);
}

/* The slot a plan's number means in the round of `turn`. */
static uint32_t slot_of(const struct walk *w, const struct atsi_move *m, uint32_t turn)
{
    uint32_t ahead = turn != w->x->turn ? w->plan->n_moves : 0;
    return (m->slot + w->x->turned + ahead) % w->plan->n_slots;
}

/* How long the ids of the chosen experts still take to the host: after the event of a router on the
 * accelerator (*delay), or from now when it ran on the host (*hold). */
static int routing_delay(struct walk *w, const struct atsi_move *m, uint64_t *delay, uint64_t *hold)
{
    struct atsi_exec *x = w->x;
    uint64_t now = 0, ready;
    int rc;
    *delay = *hold = 0;
    if (m->router < 0)
        return ATSI_OK;
    if (x->ev[x->turn].queued[m->router] == 1 + ATSI_DEVICE_ACCEL) {
        *delay = x->q->p.routing_ns;
        return ATSI_OK;
    }
    rc = atsi_exec_now(x, &now, w->err);
    ready =
        time_of(x, ATSI_DEVICE_HOST, x->ev[x->turn].item[ATSI_DEVICE_HOST][x->end_of[m->router]]) +
        x->q->p.routing_ns;
    *hold = ready > now ? ready - now : 0;
    return rc;
}

/* Issues one transfer when all it waits for is queued.  Returns 1: issued, 0: not yet, or ATSI_E*.
 */
static int issue(struct walk *w, const struct atsi_move *m, uint32_t turn, uint64_t *copy_ns)
{
    struct atsi_exec *x = w->x;
    struct round_events *ev = &x->ev[turn];
    bool measured = !(turn == x->turn ? x->unmeasured : x->unmeasured_next);
    struct atsi_event *wait[MAX_WAIT];
    struct atsi_copyv req = {.struct_size = sizeof req, .copy_ns = measured ? copy_ns : NULL};
    struct atsi_modelled modelled;
    uint32_t slot = slot_of(w, m, turn);
    uint64_t delay = 0, hold = 0;
    int rc = 1;
    if (x->slot_item[slot] >= 0 || (m->router >= 0 && ev->queued[m->router] == 0) ||
        (m->after >= 0 && ev->queued[m->after] == 0))
        return 0;
    if (m->router >= 0 && w->src->routed != NULL)
        rc = w->src->routed(w->src->ctx, m->item, false, w->err);
    if (rc != 1)
        return rc;
    req.wait = wait;
    req.signal = ev->move[m->item];
    *copy_ns = 0;
    rc = x->d.real ? ATSI_OK : routing_delay(w, m, &delay, &hold);
    if (m->router >= 0 && ev->queued[m->router] == 1 + ATSI_DEVICE_ACCEL)
        wait[req.n_wait++] = ev->item[ATSI_DEVICE_ACCEL][m->router]; /* first: its delay counts */
    if (m->after >= 0 && ev->queued[m->after] == 1 + ATSI_DEVICE_ACCEL)
        wait[req.n_wait++] = ev->item[ATSI_DEVICE_ACCEL][m->after];
    if (x->slot_free[slot] != NULL)
        wait[req.n_wait++] = x->slot_free[slot];
    if (rc == ATSI_OK)
        rc = w->src->move(w->src->ctx, m->item, slot, &req, w->err);
    if (rc == ATSI_OK && req.modelled != NULL) {
        modelled = *req.modelled;
        modelled.delay_ns = delay;
        modelled.hold_ns = hold;
        req.modelled = &modelled;
    }
    if (rc == ATSI_OK)
        rc = x->d.tx_ops->copyv(x->d.tx,
                                x->d.weight_queue != NULL ? x->d.copy_kernel : x->d.copy_engine,
                                x->d.weight_queue, &req, w->err);
    if (rc == ATSI_OK && x->d.wait_each)
        rc = wait_for(w, req.signal);
    if (rc != ATSI_OK)
        return rc;
    x->slot_item[slot] = (int32_t)m->item;
    return 1;
}

/* The plan's transfers in order, then those of the next round that need no router. */
static int issue_all(struct walk *w)
{
    struct atsi_exec *x = w->x;
    int rc = 1;
    while (rc == 1 && w->next_move < w->plan->n_moves) {
        uint32_t k = w->next_move;
        rc = issue(w, &w->plan->moves[k], x->turn, &x->move_ns[x->turn][k]);
        w->next_move += rc == 1;
    }
    while (rc == 1 && w->keeps && x->n_ahead < w->plan->n_moves) {
        struct atsi_move *a = &x->ahead[x->n_ahead];
        *a = w->plan->moves[x->n_ahead];
        if (a->router >= 0 || a->after >= 0)
            break;
        x->ahead_slot[x->n_ahead] = slot_of(w, a, x->turn ^ 1U);
        rc = issue(w, a, x->turn ^ 1U, &x->move_ns[x->turn ^ 1U][x->n_ahead]);
        x->n_ahead += rc == 1;
    }
    return rc < 0 ? rc : ATSI_OK;
}

static bool same_move(const struct atsi_move *a, const struct atsi_move *b)
{
    return a->item == b->item && a->slot == b->slot && a->router == b->router &&
           a->after == b->after;
}

/* A transfer issued ahead that the new plan does not begin with is waited for: its event, its
 * ranges and the slot may be needed for something else at once. */
static int drop(struct walk *w, const struct atsi_move *m, uint32_t slot)
{
    struct atsi_exec *x = w->x;
    if (x->slot_item[slot] != (int32_t)m->item)
        return ATSI_OK;
    x->slot_item[slot] = -1;
    return wait_for(w, x->ev[x->turn].move[m->item]);
}

/* At the start of a round: what was issued ahead is this plan's beginning, or is dropped. */
static int adopt(struct walk *w)
{
    struct atsi_exec *x = w->x;
    bool stays = x->ahead_phase == w->plan->phase; /* else slots lie elsewhere */
    uint32_t k = 0;
    int rc = ATSI_OK;
    while (stays && k < x->n_ahead && k < w->plan->n_moves &&
           same_move(&x->ahead[k], &w->plan->moves[k]))
        k++;
    w->next_move = k;
    for (uint32_t i = k; i < x->n_ahead && rc == ATSI_OK; i++)
        rc = drop(w, &x->ahead[i], x->ahead_slot[i]);
    x->n_ahead = 0;
    return rc;
}

/* ---------------------------------------------------------------- steps */
/* A copy in the order of the accelerator's queue. */
static int queue_copy(struct walk *w, struct atsi_copyv *req)
{
    struct atsi_exec *x = w->x;
    x->last = req->signal;
    return x->d.tx_ops->copyv(x->d.tx, x->d.copy_kernel, x->d.queue[ATSI_DEVICE_ACCEL], req,
                              w->err);
}

/* The host has what was copied to it.  Copies are in order: the last one says it for all. */
static int arrived(struct walk *w)
{
    uint32_t s = (uint32_t)w->coming;
    int rc;
    if (w->coming < 0)
        return ATSI_OK;
    w->coming = -1;
    rc = wait_for(w, w->x->step_event[s]);
    if (rc == ATSI_OK && w->src->after != NULL)
        rc = w->src->after(w->src->ctx, w->plan, s, w->x->step_event[s], w->err);
    return rc;
}

static int copy_step(struct walk *w, uint32_t s)
{
    struct atsi_exec *x = w->x;
    bool to_host = w->plan->steps[s].device == ATSI_DEVICE_HOST;
    struct atsi_copyv req = {.struct_size = sizeof req,
                             .signal = x->step_event[s],
                             .copy_ns = x->unmeasured ? NULL : &x->copy_ns[s]};
    int rc = to_host ? ATSI_OK : arrived(w);
    if (rc == ATSI_OK)
        rc = w->src->copy(w->src->ctx, w->plan, s, &req, w->err);
    if (rc == ATSI_OK)
        rc = queue_copy(w, &req);
    if (to_host) { /* waited for when the host reads it */
        w->coming = s;
        return rc == ATSI_OK && x->d.wait_each ? arrived(w) : rc;
    }
    if (rc == ATSI_OK && x->d.wait_each)
        rc = wait_for(w, x->step_event[s]);
    if (rc == ATSI_OK && w->src->after != NULL)
        rc = w->src->after(w->src->ctx, w->plan, s, req.signal, w->err);
    return rc;
}

static int grow_ops(struct atsi_exec *x, uint32_t n, struct atsi_err *err)
{
    uint64_t *ns;
    uint32_t *item;
    if (n <= x->room_ops)
        return ATSI_OK;
    ns = realloc(x->op_ns, (size_t)n * 2 * sizeof *ns);
    if (ns != NULL)
        x->op_ns = ns;
    item = realloc(x->op_item, (size_t)n * 2 * sizeof *item);
    if (item != NULL)
        x->op_item = item;
    if (ns == NULL || item == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for %u times", n);
    x->room_ops = n * 2;
    return ATSI_OK;
}

/* The weight of a step is under way, at the latest once its router's choice is known. */
static int weight_issued(struct walk *w, const struct atsi_step *step)
{
    while (w->next_move <= (uint32_t)step->transfer) {
        const struct atsi_move *m = &w->plan->moves[w->next_move];
        uint32_t before = w->next_move;
        int rc = 1;
        if (m->router >= 0 && w->src->routed != NULL && w->x->ev[w->x->turn].queued[m->router] != 0)
            rc = w->src->routed(w->src->ctx, m->item, true, w->err);
        if (rc >= 0)
            rc = issue_all(w);
        if (rc < 0)
            return rc;
        if (w->next_move == before)
            return atsi_fail(w->err, ATSI_EINVAL,
                             "item %u runs before its weight could be sent: the order blocks",
                             step->first);
    }
    return ATSI_OK;
}

static int32_t slot_for(const struct walk *w, const struct atsi_step *step)
{
    return step->transfer >= 0 ? (int32_t)slot_of(w, &w->plan->moves[step->transfer], w->x->turn)
                               : -1;
}

static int run_step(struct walk *w, uint32_t s)
{
    struct atsi_exec *x = w->x;
    const struct atsi_step *step = &w->plan->steps[s];
    struct round_events *ev = &x->ev[x->turn];
    uint32_t last = step->first + step->n - 1;
    struct atsi_split split = {.struct_size = sizeof split, .signal = ev->item[step->device][last]};
    int32_t slot = slot_for(w, step);
    int rc = w->src->run(w->src->ctx, w->plan, s, slot, &split, w->err);
    if (rc == ATSI_OK && step->transfer >= 0) {
        rc = weight_issued(w, step);
        split.wait = &ev->move[step->first];
        split.n_wait = 1;
    }
    if (rc == ATSI_OK && step->device == ATSI_DEVICE_HOST)
        rc = arrived(w);
    if (rc == ATSI_OK && step->device == ATSI_DEVICE_HOST && w->src->before != NULL)
        rc = w->src->before(w->src->ctx, w->plan, s, w->err);
    if (rc != ATSI_OK)
        return rc;
    split.op_ns = x->unmeasured ? NULL : x->op_ns + x->step_op[s];
    rc = x->d.ops[step->device]->run(x->d.queue[step->device], &split, w->err);
    if (step->device != ATSI_DEVICE_HOST)
        x->last = split.signal;
    for (uint32_t i = step->first; i <= last && rc == ATSI_OK; i++)
        ev->queued[i] = (unsigned char)(1 + step->device);
    if (rc == ATSI_OK && slot >= 0) { /* the slot is free when this split is over */
        x->slot_free[slot] = ev->item[ATSI_DEVICE_ACCEL][last];
        x->slot_item[slot] = -1;
    }
    if (rc == ATSI_OK && x->d.wait_each && step->device != ATSI_DEVICE_HOST)
        rc = wait_for(w, split.signal);
    if (rc == ATSI_OK && w->src->after != NULL)
        rc = w->src->after(w->src->ctx, w->plan, s, NULL, w->err);
    return rc;
}

/* op_ns must not move while work is queued, so room is made before; once per plan. */
static int count_ops(struct walk *w)
{
    struct atsi_exec *x = w->x;
    uint32_t total = 0;
    if (x->counted == w->plan && x->counted_built == w->plan->built)
        return ATSI_OK;
    x->counted = NULL;
    for (uint32_t s = 0; s < w->plan->n_steps; s++) {
        const struct atsi_step *step = &w->plan->steps[s];
        struct atsi_split split = {.struct_size = sizeof split};
        int rc = ATSI_OK;
        x->step_op[s] = total;
        for (uint32_t i = step->first; i < step->first + step->n; i++)
            x->end_of[i] = step->first + step->n - 1;
        if (step->kind == ATSI_STEP_RUN)
            rc = w->src->run(w->src->ctx, w->plan, s, slot_for(w, step), &split, w->err);
        if (rc == ATSI_OK)
            rc = grow_ops(x, total + split.n_ops, w->err);
        for (uint32_t k = 0; k < split.n_ops && rc == ATSI_OK; k++)
            x->op_item[total + k] = split.ops[k]->item;
        if (rc != ATSI_OK)
            return rc;
        total += split.n_ops;
    }
    x->step_op[w->plan->n_steps] = total;
    x->counted = w->plan;
    x->counted_built = w->plan->built;
    return ATSI_OK;
}

static int one_step(struct walk *w, uint32_t s)
{
    int rc = w->plan->steps[s].kind == ATSI_STEP_COPY ? copy_step(w, s) : run_step(w, s);
    return rc == ATSI_OK ? issue_all(w) : rc;
}

/* Steps behind s, a split of the host, that the accelerator can begin before it: splits that no
 * copy comes before, since then they need nothing of s, and whose weights are under way. */
static uint32_t go_ahead(const struct walk *w, uint32_t s)
{
    const struct atsi_plan *p = w->plan;
    uint32_t n = 0;
    if (p->list == NULL || w->x->d.wait_each || p->steps[s].kind != ATSI_STEP_RUN ||
        p->steps[s].device != ATSI_DEVICE_HOST)
        return 0;
    while (s + 1 + n < p->n_steps) {
        const struct atsi_step *next = &p->steps[s + 1 + n];
        if (next->kind != ATSI_STEP_RUN || next->device == ATSI_DEVICE_HOST ||
            (next->transfer >= 0 && w->next_move <= (uint32_t)next->transfer))
            break;
        n++;
    }
    return n;
}

static int all_steps(struct walk *w)
{
    struct atsi_exec *x = w->x;
    int rc = issue_all(w);
    for (uint32_t s = 0, n; s < w->plan->n_steps && rc == ATSI_OK; s += 1 + n) {
        n = go_ahead(w, s);
        for (uint32_t k = 1; k <= n && rc == ATSI_OK; k++)
            rc = one_step(w, s + k);
        if (rc == ATSI_OK)
            rc = one_step(w, s);
    }
    if (rc == ATSI_OK)
        rc = arrived(w);
    if (rc == ATSI_OK && w->plan->last_device != ATSI_DEVICE_HOST) {
        struct atsi_copyv req = {.struct_size = sizeof req, .signal = x->result};
        rc = w->src->result(w->src->ctx, w->plan, &req, w->err);
        if (rc == ATSI_OK)
            rc = queue_copy(w, &req);
        if (rc == ATSI_OK)
            rc = wait_for(w, x->result);
    } else if (rc == ATSI_OK && x->d.real && x->last != NULL) {
        rc = wait_for(w, x->last);
    }
    return rc;
}

/* ---------------------------------------------------------------- the record */
static void record_step(struct walk *w, uint32_t s)
{
    struct atsi_exec *x = w->x;
    const struct atsi_step *step = &w->plan->steps[s];
    uint64_t took = 0, end;
    if (step->kind == ATSI_STEP_COPY) {
        end = time_of(x, ATSI_DEVICE_ACCEL, x->step_event[s]);
        took = x->copy_ns[s];
    } else {
        uint32_t n_ops = x->step_op[s + 1] - x->step_op[s];
        end =
            time_of(x, step->device, x->ev[x->turn].item[step->device][step->first + step->n - 1]);
        for (uint32_t k = 0; k < n_ops; k++) {
            uint64_t ns = x->op_ns[x->step_op[s] + k];
            took += ns;
            x->rec.item_ns[x->op_item[x->step_op[s] + k]] += ns;
        }
    }
    x->rec.steps[s] = (struct atsi_span){end > took ? end - took : 0, end};
}

static void record(struct walk *w)
{
    struct atsi_exec *x = w->x;
    memset(x->rec.item_ns, 0, x->n * sizeof *x->rec.item_ns);
    x->rec.n_steps = w->plan->n_steps;
    x->rec.n_moves = w->plan->n_moves;
    for (uint32_t s = 0; s < w->plan->n_steps; s++)
        record_step(w, s);
    for (uint32_t k = 0; k < w->plan->n_moves; k++) {
        uint64_t end = time_of(x, ATSI_DEVICE_ACCEL, x->ev[x->turn].move[w->plan->moves[k].item]);
        uint64_t took = x->move_ns[x->turn][k];
        x->rec.moves[k] = (struct atsi_span){end > took ? end - took : 0, end};
    }
}

/* ---------------------------------------------------------------- rounds */
int atsi_exec_now(struct atsi_exec *x, uint64_t *ns_out, struct atsi_err *err)
{
    struct atsi_split split = {.struct_size = sizeof split, .signal = x->clock};
    int rc = x->d.ops[ATSI_DEVICE_HOST]->run(x->d.queue[ATSI_DEVICE_HOST], &split, err);
    return rc == ATSI_OK ? x->d.ops[ATSI_DEVICE_HOST]->event_time(x->clock, ns_out) : rc;
}

int atsi_exec_host(struct atsi_exec *x, const struct atsi_op *op, struct atsi_err *err)
{
    struct atsi_split split = {.struct_size = sizeof split, .n_ops = 1, .ops = &op};
    return x->d.ops[ATSI_DEVICE_HOST]->run(x->d.queue[ATSI_DEVICE_HOST], &split, err);
}

int atsi_exec_settle(struct atsi_exec *x, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t k = 0; k < x->n_ahead && rc == ATSI_OK; k++) {
        rc = x->d.ops[ATSI_DEVICE_ACCEL]->event_wait(x->ev[x->turn].move[x->ahead[k].item], SPIN_NS,
                                                     err);
        if (x->slot_item[x->ahead_slot[k]] == (int32_t)x->ahead[k].item)
            x->slot_item[x->ahead_slot[k]] = -1;
    }
    if (rc == ATSI_OK)
        x->n_ahead = 0;
    return rc;
}

void atsi_exec_use_engine(struct atsi_exec *x)
{
    x->d.weight_queue = NULL;
}

void atsi_exec_measure(struct atsi_exec *x, bool on, bool after)
{
    x->unmeasured = !on;
    x->unmeasured_next = !after;
}

/* All consumers that are over have left their slots. */
static void free_slots(struct atsi_exec *x)
{
    for (uint32_t s = 0; s < x->n_slots; s++)
        if (x->slot_free[s] != NULL &&
            (x->d.real || x->d.ops[ATSI_DEVICE_ACCEL]->event_query(x->slot_free[s]) == 1))
            x->slot_free[s] = NULL;
}

int atsi_exec_round(struct atsi_exec *x, const struct atsi_plan *plan,
                    const struct atsi_exec_source *src, bool keeps, const struct atsi_record **rec,
                    struct atsi_err *err)
{
    struct walk w = {.x = x, .plan = plan, .src = src, .keeps = keeps, .coming = -1, .err = err};
    int rc;
    memset(x->ev[x->turn].queued, 0, x->n);
    x->last = NULL;
    rc = adopt(&w);
    x->ahead_phase = plan->phase;
    if (rc == ATSI_OK)
        rc = count_ops(&w);
    if (rc == ATSI_OK)
        rc = atsi_exec_now(x, &x->rec.round.start_ns, err);
    if (rc == ATSI_OK)
        rc = all_steps(&w);
    if (rc == ATSI_OK)
        rc = atsi_exec_now(x, &x->rec.round.end_ns, err);
    if (rc != ATSI_OK)
        return rc;
    x->rec.measured = !x->unmeasured;
    if (x->rec.measured)
        record(&w);
    free_slots(x); /* the host has seen the result, so all consumers of this round are over */
    x->turn ^= 1U;
    if (plan->n_slots > 0)
        x->turned = (x->turned + plan->n_moves) % plan->n_slots;
    *rec = &x->rec;
    return ATSI_OK;
}
