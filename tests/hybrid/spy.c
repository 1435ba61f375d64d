/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/hybrid/spy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_EVENTS = 8192, LABEL = 48 };

/* What an event was last signalled by. */
struct signal {
    const struct atsi_event *event;
    uint32_t round;
    char what[LABEL];
};

struct spy {
    struct spy_params p;
    struct atsi_exec_devices real;
    struct atsi_backend_ops ops[ATSI_N_DEVICES];
    struct atsi_transfer_ops tx_ops;
    struct atsi_exec_source source[2];
    const struct atsi_exec_source *of[2];
    struct signal signals[MAX_EVENTS];
    uint32_t n_signals;
    struct signal user[256]; /* of slots: the split that read each last */
    struct spy_round *rounds;
    uint32_t n_rounds;
    /* Rounds are told apart by the clock, which is read twice in a row only between them. */
    bool clock_read, steps_run, plan_kept;
    /* What the next call of a device is about. */
    const struct atsi_plan *plan;
    int32_t step, copy, item, slot, run_slot;
    bool result;
};

static struct spy *me; /* devices have no room for a context of ours */

/* ---------------------------------------------------------------- writing */
static void write_line(uint32_t lane, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void write_line(uint32_t lane, const char *fmt, ...)
{
    char **to = &me->rounds[me->n_rounds - 1].lane[lane], line[2048];
    size_t had = *to != NULL ? strlen(*to) : 0;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    *to = realloc(*to, had + strlen(line) + 2);
    assert_non_null(*to);
    (void)sprintf(*to + had, "%s\n", line);
}

static struct signal *signal_of(const struct atsi_event *ev)
{
    for (uint32_t i = 0; i < me->n_signals; i++)
        if (me->signals[i].event == ev)
            return &me->signals[i];
    return NULL;
}

static void note(const struct atsi_event *ev, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void note(const struct atsi_event *ev, const char *fmt, ...)
{
    struct signal *s = ev != NULL ? signal_of(ev) : NULL;
    va_list ap;
    if (ev == NULL)
        return;
    if (s == NULL) {
        assert_true(me->n_signals < MAX_EVENTS);
        s = &me->signals[me->n_signals++];
        s->event = ev;
    }
    s->round = me->n_rounds;
    va_start(ap, fmt);
    (void)vsnprintf(s->what, sizeof s->what, fmt, ap);
    va_end(ap);
}

/* Of this round only: all of those before it is over. */
static const char *waits(struct atsi_event *const *wait, uint32_t n)
{
    static char text[1024];
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        const struct signal *s = signal_of(wait[i]);
        if (s == NULL)
            fail_msg("work waits for an event that nothing signals");
        if (s->round == me->n_rounds || strncmp(s->what, "weight", 6) == 0)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s",
                                   at == 0 ? ", waits for " : " and ", s->what);
        assert_true(at < sizeof text);
    }
    return text;
}

/* ---------------------------------------------------------------- rounds */
static void begin_round(void)
{
    struct spy_round *r;
    me->rounds = realloc(me->rounds, (me->n_rounds + 1) * sizeof *me->rounds);
    assert_non_null(me->rounds);
    r = &me->rounds[me->n_rounds++];
    memset(r, 0, sizeof *r);
    r->device = calloc(me->p.n_items, sizeof *r->device);
    r->after = calloc(me->p.n_items, sizeof *r->after);
    r->slot = calloc(me->p.n_items, sizeof *r->slot);
    r->order = calloc(me->p.n_items, sizeof *r->order);
    assert_true(r->device != NULL && r->after != NULL && r->slot != NULL && r->order != NULL);
    for (uint32_t k = 0; k < SPY_LANES; k++) {
        r->lane[k] = calloc(1, 1);
        assert_non_null(r->lane[k]);
    }
    me->plan_kept = me->steps_run = false;
}

/* The plan says all that a policy answered. */
static void keep_plan(const struct atsi_plan *p)
{
    struct spy_round *r = &me->rounds[me->n_rounds - 1];
    if (me->plan_kept)
        return;
    me->plan_kept = true;
    me->plan = p;
    r->phase = p->phase;
    r->n_transfers = p->n_moves;
    for (uint32_t i = 0; i < me->p.n_items; i++)
        r->device[i] = r->after[i] = r->slot[i] = -1;
    for (uint32_t s = 0; s < p->n_steps; s++)
        for (uint32_t i = 0; p->steps[s].kind == ATSI_STEP_RUN && i < p->steps[s].n; i++)
            r->device[p->steps[s].first + i] = p->steps[s].device;
    for (uint32_t i = 0; i < me->p.n_items; i++)
        assert_true(r->device[i] >= 0); /* every item runs */
    for (uint32_t k = 0; k < p->n_moves; k++) {
        r->order[k] = p->moves[k].item;
        r->slot[p->moves[k].item] = (int32_t)p->moves[k].slot;
        r->after[p->moves[k].item] = p->moves[k].after;
    }
}

/* ---------------------------------------------------------------- the source */
static const struct atsi_exec_source *real_source(const void *ctx)
{
    return me->of[ctx == &me->source[1]];
}

static int source_run(void *ctx, const struct atsi_plan *plan, uint32_t step, int32_t slot,
                      struct atsi_split *split, struct atsi_err *err)
{
    const struct atsi_exec_source *of = real_source(ctx);
    keep_plan(plan);
    me->step = (int32_t)step;
    me->run_slot = slot;
    return of->run(of->ctx, plan, step, slot, split, err);
}

static int source_move(void *ctx, uint32_t item, uint32_t slot, struct atsi_copyv *req,
                       struct atsi_err *err)
{
    const struct atsi_exec_source *of = real_source(ctx);
    me->item = (int32_t)item;
    me->slot = (int32_t)slot;
    return of->move(of->ctx, item, slot, req, err);
}

static int source_copy(void *ctx, const struct atsi_plan *plan, uint32_t step,
                       struct atsi_copyv *req, struct atsi_err *err)
{
    const struct atsi_exec_source *of = real_source(ctx);
    me->copy = (int32_t)step;
    return of->copy(of->ctx, plan, step, req, err);
}

static int source_result(void *ctx, const struct atsi_plan *plan, struct atsi_copyv *req,
                         struct atsi_err *err)
{
    const struct atsi_exec_source *of = real_source(ctx);
    me->result = true;
    return of->result(of->ctx, plan, req, err);
}

static int source_before(void *ctx, const struct atsi_plan *plan, uint32_t step,
                         struct atsi_err *err)
{
    const struct atsi_exec_source *of = real_source(ctx);
    return of->before(of->ctx, plan, step, err);
}

static int source_after(void *ctx, const struct atsi_plan *plan, uint32_t step,
                        struct atsi_event *event, struct atsi_err *err)
{
    const struct atsi_exec_source *of = real_source(ctx);
    return of->after(of->ctx, plan, step, event, err);
}

static int source_routed(void *ctx, uint32_t item, bool wait, struct atsi_err *err)
{
    const struct atsi_exec_source *of = real_source(ctx);
    return of->routed(of->ctx, item, wait, err);
}

const struct atsi_exec_source *spy_source(struct spy *s, uint32_t phase,
                                          const struct atsi_exec_source *of)
{
    s->of[phase] = of;
    s->source[phase] =
        (struct atsi_exec_source){.ctx = &s->source[phase],
                                  .run = source_run,
                                  .move = source_move,
                                  .copy = source_copy,
                                  .result = source_result,
                                  .before = of->before != NULL ? source_before : NULL,
                                  .after = of->after != NULL ? source_after : NULL,
                                  .routed = of->routed != NULL ? source_routed : NULL};
    return &s->source[phase];
}

/* ---------------------------------------------------------------- the devices */
/* The items a split computes, as its operations say; of others it may repeat small ones. */
static void check_items(const struct atsi_step *step, const struct atsi_split *split)
{
    uint32_t next = step->first;
    for (uint32_t k = 0; k < split->n_ops; k++)
        if (split->ops[k]->item == next && next < step->first + step->n)
            next++;
    if (next != step->first + step->n)
        fail_msg("items %u to %u: a split without item %u", step->first, step->first + step->n - 1,
                 next);
}

/* Some operation reads the slot's memory, at its start. */
static void check_slot_read(const struct atsi_split *split, int32_t slot)
{
    const void *at = atsi_region_slot(me->p.region, me->plan->phase, (uint32_t)slot);
    for (uint32_t k = 0; k < split->n_ops; k++)
        if (split->ops[k]->weight[0] != NULL && split->ops[k]->weight[0]->data == at)
            return;
    fail_msg("a split for slot %d reads nothing there", slot);
}

static int run(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err)
{
    uint32_t device = q == me->real.queue[ATSI_DEVICE_HOST] ? ATSI_DEVICE_HOST : ATSI_DEVICE_ACCEL;
    const struct atsi_step *step = NULL;
    if (split->n_ops == 0) {
        if (me->n_rounds == 0 || (me->clock_read && me->steps_run))
            begin_round();
        me->clock_read = true;
        return me->real.ops[device]->run(q, split, err);
    }
    me->clock_read = false;
    me->steps_run = true;
    step = &me->plan->steps[me->step];
    assert_int_equal(step->device, device);
    check_items(step, split);
    if (me->run_slot >= 0) {
        if (me->p.region != NULL)
            check_slot_read(split, me->run_slot);
        write_line(SPY_STREAM, "items %u to %u with the weight in slot %d%s", step->first,
                   step->first + step->n - 1, me->run_slot, waits(split->wait, split->n_wait));
    } else {
        write_line(device == ATSI_DEVICE_HOST ? SPY_HOST : SPY_STREAM, "items %u to %u%s",
                   step->first, step->first + step->n - 1, waits(split->wait, split->n_wait));
    }
    note(split->signal, "items %u to %u", step->first, step->first + step->n - 1);
    if (me->run_slot >= 0)
        me->user[me->run_slot] = *signal_of(split->signal);
    return me->real.ops[device]->run(q, split, err);
}

static int event_wait(struct atsi_event *ev, uint64_t spin_ns, struct atsi_err *err)
{
    struct signal *s = signal_of(ev);
    if (s != NULL && s->round == me->n_rounds && strstr(s->what, "host") != NULL) {
        write_line(SPY_HOST, "has %s", s->what);
        (void)strcpy(s->what, "what was had"); /* waited for again when the round ends */
    }
    return me->real.ops[ATSI_DEVICE_ACCEL]->event_wait(ev, spin_ns, err);
}

static uint64_t sum_ranges(const struct atsi_copyv *req)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < req->n_ranges; i++)
        sum += req->ranges[i].bytes;
    return sum;
}

/* All of a weight goes into its slot. */
static void check_slot_written(uint32_t phase, const struct atsi_copyv *req)
{
    const unsigned char *at = atsi_region_slot(me->p.region, phase, (uint32_t)me->slot);
    assert_true(req->n_ranges > 0);
    for (uint32_t i = 0; i < req->n_ranges; i++) {
        const unsigned char *to = req->ranges[i].dst;
        if (to < at || to + req->ranges[i].bytes > at + me->p.slot_bytes[phase])
            fail_msg("item %d: range %u of its weight goes beyond slot %d", me->item, i, me->slot);
    }
}

/* Whoever read the slot before is over, or waited for. */
static void check_slot_free(const struct atsi_copyv *req)
{
    const struct signal *user = &me->user[me->slot];
    bool over = user->event == NULL || user->round < me->n_rounds ||
                me->real.ops[ATSI_DEVICE_ACCEL]->event_query(user->event) == 1;
    for (uint32_t i = 0; i < req->n_wait && !over; i++)
        over = req->wait[i] == user->event;
    if (!over)
        fail_msg("item %d goes into slot %d, which %s still read", me->item, me->slot, user->what);
}

static void write_weight(const struct atsi_copyv *req)
{
    if (me->p.region != NULL)
        check_slot_written(me->plan->phase, req);
    check_slot_free(req);
    write_line(SPY_ENGINE, "weight of item %d into slot %d%s", me->item, me->slot,
               waits(req->wait, req->n_wait));
    note(req->signal, "weight of item %d", me->item);
    me->item = -1;
}

static void write_copy(const struct atsi_copyv *req)
{
    const struct atsi_step *step = &me->plan->steps[me->copy];
    bool up = step->device == ATSI_DEVICE_ACCEL;
    if (req->n_ranges > 0)
        assert_int_equal(sum_ranges(req), step->bytes);
    write_line(SPY_STREAM, "%llu bytes for item %u to the %s%s", (unsigned long long)step->bytes,
               step->first, up ? "accelerator" : "host", waits(req->wait, req->n_wait));
    note(req->signal, "what item %u needs from the %s", step->first, up ? "CPU" : "stream, host");
    me->copy = -1;
}

static int copyv(struct atsi_transfer *tx, uint32_t channel, struct atsi_queue *q,
                 const struct atsi_copyv *req, struct atsi_err *err)
{
    me->clock_read = false;
    if (me->item >= 0) {
        write_weight(req);
    } else if (me->copy >= 0) {
        write_copy(req);
    } else if (me->result) {
        write_line(SPY_STREAM, "the result to the host%s", waits(req->wait, req->n_wait));
        note(req->signal, "the result, host");
        me->result = false;
    } else {
        note(req->signal, "ids");
    }
    return me->real.tx_ops->copyv(tx, channel, q, req, err);
}

/* ---------------------------------------------------------------- life */
struct spy *spy_open(const struct spy_params *p, struct atsi_exec_devices *d)
{
    struct spy *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->p = *p;
    s->real = *d;
    s->item = s->copy = s->step = s->slot = s->run_slot = -1;
    for (int v = 0; v < ATSI_N_DEVICES; v++) {
        s->ops[v] = *d->ops[v];
        s->ops[v].run = run;
        if (v == ATSI_DEVICE_ACCEL)
            s->ops[v].event_wait = event_wait;
        d->ops[v] = &s->ops[v];
    }
    s->tx_ops = *d->tx_ops;
    s->tx_ops.copyv = copyv;
    d->tx_ops = &s->tx_ops;
    me = s;
    return s;
}

void spy_close(struct spy *s)
{
    if (s == NULL)
        return;
    for (uint32_t k = 0; k < s->n_rounds; k++) {
        struct spy_round *r = &s->rounds[k];
        free(r->device);
        free(r->after);
        free(r->slot);
        free(r->order);
        for (uint32_t l = 0; l < SPY_LANES; l++)
            free(r->lane[l]);
    }
    free(s->rounds);
    free(s);
    me = NULL;
}

void spy_use(struct spy *s)
{
    me = s;
}

uint32_t spy_n_rounds(const struct spy *s)
{
    return s->n_rounds;
}

const struct spy_round *spy_round(const struct spy *s, uint32_t k)
{
    return &s->rounds[k];
}
