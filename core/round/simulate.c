/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulated request: items and costs from a model and a machine profile, the simulated devices,
 * the configured policies, and rounds as they always are.
 */
#include "core/round/sim_run.h"

#include "core/round/chunk.h"
#include "core/round/trace.h"

#include <string.h>

static void note_round(const struct atsi_round_result *res, struct atsi_sim_phase *out)
{
    out->ns = res->ns;
    if (!res->kept)
        out->predicted_ns = res->predicted_ns;
    out->exposed_ns = res->exposed_ns;
    memcpy(out->busy_ns, res->busy_ns, sizeof out->busy_ns);
    out->n_moves = res->n_moves;
    if (res->schedule_ns > out->schedule_ns)
        out->schedule_ns = res->schedule_ns;
    if (res->plan_ns > out->plan_ns)
        out->plan_ns = res->plan_ns;
}

static void count_refusals(struct atsi_sim_run *r, const struct atsi_sim_session *s)
{
    struct atsi_rounds_counts n;
    atsi_rounds_counts(s->rounds, &n);
    r->out->n_made += n.rounds - n.kept;
    r->out->n_kept += n.kept;
    r->out->illegal += n.illegal;
    r->out->failed += n.failed;
    r->out->late += n.late;
}

static uint64_t resident(const struct atsi_sim_run *r, const struct atsi_sim_session *s)
{
    const int32_t *placed = atsi_rounds_placement(s->rounds)->device;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < r->items->n; i++)
        if (placed[i] == ATSI_DEVICE_ACCEL)
            bytes += r->items->items[i].resident_bytes;
    return bytes;
}

static void trace_round(const struct atsi_sim_run *r, const struct atsi_sim_session *s,
                        uint32_t phase, uint32_t tokens)
{
    uint64_t logits = s->truth->items->work[s->truth->items->n - 1].out * sizeof(float);
    const struct atsi_trace t = {.question = s->truth,
                                 .plan = atsi_rounds_plan(s->rounds, phase),
                                 .record = atsi_rounds_record(s->rounds),
                                 .phase = phase,
                                 .tokens = tokens,
                                 .resident_bytes = resident(r, s)};
    atsi_trace_bytes(&t, logits, r->out->link_bytes[phase == ATSI_PHASE_PREFILL ? 0 : 1]);
    if (r->p->trace != NULL)
        atsi_trace_round(&t, r->p->trace, r->p->trace_ctx);
}

static int prefill(struct atsi_sim_run *r, struct atsi_sim_session *s)
{
    struct atsi_conditions c = atsi_sim_conditions(r, ATSI_PHASE_PREFILL, true);
    struct atsi_round_result res;
    int rc = atsi_rounds_step(s->rounds, ATSI_PHASE_PREFILL, c.tokens, 0, 1, &res, r->err);
    if (rc != ATSI_OK)
        return rc;
    note_round(&res, &r->out->prefill);
    r->out->prefill.tokens = c.tokens;
    trace_round(r, s, ATSI_PHASE_PREFILL, c.tokens);
    return ATSI_OK;
}

/* Rounds still to come before round k, as far as anybody may know. */
static uint32_t rounds_left(const struct atsi_sim_params *p, uint32_t k)
{
    if (p->last != 0 && k + 1 == p->rounds)
        return 1;
    return p->generated > k ? p->generated - k : 2;
}

/* The last round counts, with the host's time before it: by then transfers have run ahead. */
static int decode(struct atsi_sim_run *r, struct atsi_sim_session *s)
{
    struct atsi_exec *x = atsi_rounds_exec(s->rounds);
    struct atsi_round_result res;
    uint64_t before = 0, after = 0;
    int rc = ATSI_OK;
    for (uint32_t k = 0; k < r->p->rounds && rc == ATSI_OK; k++) {
        rc = atsi_exec_now(x, &before, r->err);
        if (rc == ATSI_OK && k > 0)
            rc = atsi_exec_host(x, atsi_model_source_gap(s->source[ATSI_PHASE_DECODE]), r->err);
        if (rc == ATSI_OK)
            rc = atsi_rounds_step(s->rounds, ATSI_PHASE_DECODE, 1, r->p->ctx, rounds_left(r->p, k),
                                  &res, r->err);
        if (rc == ATSI_OK)
            note_round(&res, &r->out->decode);
    }
    if (rc == ATSI_OK)
        trace_round(r, s, ATSI_PHASE_DECODE, 1);
    if (rc == ATSI_OK)
        rc = atsi_exec_now(x, &after, r->err);
    r->out->decode.ns = after - before;
    r->out->decode.tokens = 1;
    return rc;
}

/* ---------------------------------------------------------------- what came out */
static int lower_bound(struct atsi_sim_run *r, const struct atsi_sim_session *s)
{
    int64_t ns = 0;
    int rc = atsi_question_bound(s->told, ATSI_PHASE_DECODE,
                                 atsi_rounds_placement(s->rounds)->device, &ns, r->err);
    r->out->bound_ns = ns > 0 ? (uint64_t)ns : 0;
    return rc;
}

static void sum_up(struct atsi_sim_run *r, const struct atsi_sim_session *s)
{
    const struct atsi_sim_params *p = r->p;
    uint32_t chunk = r->out->prefill.tokens;
    uint64_t chunks = chunk != 0 ? (p->prompt + chunk - 1) / chunk : 0;
    r->out->ttft_ns = chunks * r->out->prefill.ns;
    r->out->request_ns = r->out->ttft_ns + p->generated * r->out->decode.ns;
    r->out->budget_bytes = s->told->budget[ATSI_DEVICE_ACCEL];
    r->out->resident_bytes = resident(r, s);
}

static int both_phases(struct atsi_sim_run *r)
{
    bool full = r->p->mode == ATSI_SIM_FULL;
    struct atsi_sim_session s = {0}, d = {0};
    int rc = atsi_sim_open_session(r, true, true, &s);
    if (rc == ATSI_OK)
        rc = prefill(r, &s);
    if (rc == ATSI_OK && !full) /* decode without slots: a placement of its own */
        rc = atsi_sim_open_session(r, false, false, &d);
    if (rc == ATSI_OK)
        rc = decode(r, full ? &s : &d);
    if (rc == ATSI_OK)
        rc = lower_bound(r, full ? &s : &d);
    if (rc == ATSI_OK) {
        count_refusals(r, &s);
        if (!full)
            count_refusals(r, &d);
        sum_up(r, full ? &s : &d);
    }
    atsi_sim_close_session(&d);
    atsi_sim_close_session(&s);
    return rc;
}

int atsi_simulate(struct atsi_runtime *rt, const struct atsi_sim_params *p,
                  struct atsi_sim_result *out, struct atsi_err *err)
{
    struct atsi_sim_params all = {0}; /* a caller built with an older header has fewer */
    struct atsi_sim_run r = {.rt = rt, .p = &all, .out = out, .err = err};
    int rc;
    memcpy(&all, p, p->struct_size < sizeof all ? p->struct_size : sizeof all);
    rc = atsi_sim_open_machine(&r);
    *out = (struct atsi_sim_result){.struct_size = sizeof *out};
    if (rc == ATSI_OK)
        rc = atsi_sim_open_items(&r);
    if (rc == ATSI_OK)
        rc = atsi_sim_find_policies(&r);
    if (rc == ATSI_OK && all.chunk == ATSI_CHUNK_AUTO)
        rc = atsi_sim_choose_chunk(&r, ATSI_CHUNK_MOST, &all.chunk);
    if (rc == ATSI_OK)
        rc = atsi_sim_open_devices(&r);
    if (rc == ATSI_OK) {
        out->n_items = r.items->n;
        (void)snprintf(out->model, sizeof out->model, "%s", r.items->model);
        (void)snprintf(out->machine, sizeof out->machine, "%s", r.machine.name);
        rc = both_phases(&r);
    }
    atsi_sim_close_devices(&r);
    atsi_items_free(r.items);
    atsi_sim_close_machine(&r);
    return rc;
}
