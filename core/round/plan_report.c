/* SPDX-License-Identifier: Apache-2.0
 *
 * Making a plan report: the policy's answers to the first question of each phase, or those of a
 * saved plan, run to a steady state on the simulated devices.
 */
#include "core/round/plan_report.h"

#include "core/conf.h"

#include <stdlib.h>
#include <string.h>

#define DECODE_ROUNDS 3u /* by then transfers run ahead of their round */

/* ---------------------------------------------------------------- rounds */
struct trial {
    struct atsi_round_result phase[2];
    uint64_t tpot_ns;
    int64_t bound_ns[2];
    struct atsi_rounds_counts counts;
};

static int prefill(struct atsi_plan_report *r, struct atsi_sim_session *s, struct trial *t)
{
    uint32_t tokens = atsi_sim_conditions(&r->run, ATSI_PHASE_PREFILL, false).tokens;
    return atsi_rounds_step(s->rounds, ATSI_PHASE_PREFILL, tokens, 0, 1,
                            &t->phase[ATSI_PHASE_PREFILL], r->run.err);
}

static int decode(struct atsi_plan_report *r, struct atsi_sim_session *s, struct trial *t)
{
    struct atsi_exec *x = atsi_rounds_exec(s->rounds);
    struct atsi_round_result *last = &t->phase[ATSI_PHASE_DECODE];
    uint64_t before = 0, after = 0, predicted = 0;
    int rc = ATSI_OK;
    for (uint32_t k = 0; k < DECODE_ROUNDS && rc == ATSI_OK; k++) {
        uint32_t left = r->sim.generated > k + 1 ? r->sim.generated - k : 2;
        rc = atsi_exec_now(x, &before, r->run.err);
        if (rc == ATSI_OK && k > 0)
            rc = atsi_exec_host(x, atsi_model_source_gap(s->source[ATSI_PHASE_DECODE]), r->run.err);
        if (rc == ATSI_OK)
            rc = atsi_rounds_step(s->rounds, ATSI_PHASE_DECODE, 1, r->sim.ctx, left, last,
                                  r->run.err);
        if (k == 0)
            predicted = last->predicted_ns;
    }
    last->predicted_ns = predicted;
    if (rc == ATSI_OK)
        rc = atsi_exec_now(x, &after, r->run.err);
    t->tpot_ns = after - before;
    return rc;
}

/* Where no policy finds a legal placement everything stays on the host, rules or not. */
int atsi_plan_check_placed(struct atsi_plan_report *r, const struct atsi_sim_session *s)
{
    struct atsi_err why = ATSI_ERR_INIT;
    if (atsi_check_placement(s->told, atsi_rounds_placement(s->rounds), &why) == ATSI_OK)
        return ATSI_OK;
    return atsi_fail(r->run.err, ATSI_ENOFIT, "no policy found a placement that fits: %.300s",
                     why.msg);
}

/* Both phases and their bounds; refused answers are counted and said, as they always are. */
static int try_rounds(struct atsi_plan_report *r, struct atsi_sim_session *s, struct trial *t)
{
    int rc = atsi_plan_check_placed(r, s);
    if (rc == ATSI_OK)
        rc = prefill(r, s, t);
    if (rc == ATSI_OK)
        rc = decode(r, s, t);
    for (uint32_t f = 0; f < 2 && rc == ATSI_OK; f++)
        rc = atsi_question_bound(s->told, f, atsi_rounds_placement(s->rounds)->device,
                                 &t->bound_ns[f], r->run.err);
    atsi_rounds_counts(s->rounds, &t->counts);
    return rc;
}

/* ---------------------------------------------------------------- what came out */
static int keep_answer(struct atsi_plan_report *r, const struct atsi_sim_session *s, uint32_t f)
{
    const struct atsi_placement *place = atsi_rounds_placement(s->rounds);
    const struct atsi_schedule *from = atsi_rounds_schedule(s->rounds, f);
    size_t n = r->run.items->n;
    struct atsi_answer *a;
    int rc =
        r->answer[f] != NULL ? ATSI_OK : atsi_answer_open((uint32_t)n, &r->answer[f], r->run.err);
    if (rc != ATSI_OK)
        return rc;
    a = r->answer[f];
    memcpy(a->placed, place->device, n * sizeof *a->placed);
    memcpy(a->place.expert_slots, place->expert_slots, n * sizeof *a->place.expert_slots);
    memcpy(a->schedule.device, from->device, n * sizeof *from->device);
    memcpy(a->schedule.order, from->order, n * sizeof *from->order);
    memcpy(a->schedule.after, from->after, n * sizeof *from->after);
    memcpy(a->schedule.slot, from->slot, n * sizeof *from->slot);
    a->schedule.n_transfers = from->n_transfers;
    a->schedule.predicted_ns = from->predicted_ns;
    return ATSI_OK;
}

static uint64_t ttft(const struct atsi_plan_report *r, uint64_t round_ns)
{
    uint32_t chunk = r->sim.chunk;
    return ((uint64_t)r->sim.prompt + chunk - 1) / chunk * round_ns;
}

static void sum_phase(struct atsi_plan_report *r, const struct atsi_sim_session *s,
                      const struct trial *t, uint32_t f, struct atsi_plan_phase *out)
{
    const struct atsi_round_result *res = &t->phase[f];
    struct atsi_conditions c = atsi_sim_conditions(&r->run, f, false);
    bool same =
        !r->summary.reused || (r->made_for[0] == r->sim.prompt &&
                               r->made_for[1] == r->sim.generated && r->made_for[2] == r->sim.ctx);
    *out = (struct atsi_plan_phase){.ns = f == ATSI_PHASE_DECODE ? t->tpot_ns : res->ns,
                                    .predicted_ns = same ? res->predicted_ns : 0,
                                    .bound_ns = t->bound_ns[f] > 0 ? (uint64_t)t->bound_ns[f] : 0,
                                    .exposed_ns = res->exposed_ns,
                                    .slot_bytes = s->told->slot_bytes[f],
                                    .slots = s->told->slot_depth[f],
                                    .n_moves = res->n_moves,
                                    .tokens = c.tokens,
                                    .ctx = c.ctx};
    memcpy(out->busy_ns, res->busy_ns, sizeof out->busy_ns);
    atsi_plan_find_limit(r, f, out);
}

static int sum_up(struct atsi_plan_report *r, const struct atsi_sim_session *s,
                  const struct trial *t)
{
    struct atsi_plan_summary *sum = &r->summary;
    int rc = keep_answer(r, s, ATSI_PHASE_PREFILL);
    if (rc == ATSI_OK)
        rc = keep_answer(r, s, ATSI_PHASE_DECODE);
    if (rc == ATSI_OK)
        rc = atsi_plan_regions(r);
    if (rc != ATSI_OK)
        return rc;
    atsi_plan_decide(r);
    sum_phase(r, s, t, ATSI_PHASE_PREFILL, &sum->prefill);
    sum_phase(r, s, t, ATSI_PHASE_DECODE, &sum->decode);
    sum->ttft_ns = ttft(r, sum->prefill.ns);
    sum->tpot_ns = sum->decode.ns;
    sum->refused = t->counts.illegal + t->counts.failed + t->counts.late;
    return ATSI_OK;
}

/* Devices of its own for every trial: each starts from the same clock. */
int atsi_plan_open_trial(struct atsi_plan_report *r, struct atsi_sim_session *s)
{
    int rc = atsi_sim_open_devices(&r->run);
    return rc == ATSI_OK ? atsi_sim_open_session(&r->run, true, true, s) : rc;
}

void atsi_plan_close_trial(struct atsi_plan_report *r, struct atsi_sim_session *s)
{
    atsi_sim_close_session(s);
    atsi_sim_close_devices(&r->run);
    r->run.d = (struct atsi_exec_devices){0};
}

static int plan_once(struct atsi_plan_report *r)
{
    const struct atsi_rounds_given given = {{r->answer[0], r->answer[1]}};
    struct atsi_sim_session s = {0};
    struct trial t = {0};
    int rc;
    r->run.policies.given = r->summary.reused != 0 ? &given : NULL;
    rc = atsi_plan_open_trial(r, &s);
    if (rc == ATSI_OK)
        rc = try_rounds(r, &s, &t);
    if (rc == ATSI_OK)
        rc = sum_up(r, &s, &t);
    atsi_plan_close_trial(r, &s);
    r->run.policies.given = NULL;
    return rc;
}

/* ---------------------------------------------------------------- before any round */
static int fill_sim(struct atsi_plan_report *r, const struct atsi_plan_params *p)
{
    struct atsi_sim_params *s = &r->sim;
    if (p->struct_size < sizeof *p || p->machine == NULL || p->model == NULL || p->prompt == 0 ||
        p->max_slots == 0 || (p->n_pins > 0 && p->pins == NULL))
        return atsi_fail(r->run.err, ATSI_EINVAL,
                         "a plan needs a machine, a model, a prompt of at least one token and at "
                         "least one slot");
    *s = (struct atsi_sim_params){.struct_size = sizeof *s,
                                  .mode = ATSI_SIM_FULL,
                                  .machine = p->machine,
                                  .model = p->model,
                                  .chunk = p->chunk,
                                  .ctx = p->ctx,
                                  .rounds = DECODE_ROUNDS,
                                  .prompt = p->prompt,
                                  .generated = p->generated,
                                  .vram_bytes = p->vram_bytes,
                                  .max_slots = p->max_slots,
                                  .sustained = p->sustained,
                                  .contention = p->contention,
                                  .load_cpu = 1,
                                  .load_gpu = 1,
                                  .load_pcie = 1,
                                  .know = ATSI_SIM_NEVER,
                                  .say = p->say,
                                  .say_ctx = p->say_ctx};
    r->run.ram_bytes = p->ram_bytes;
    return ATSI_OK;
}

/* Machine, items, policies; what a plan may be saved under is fixed before anything changes them.
 */
static int read_files(struct atsi_plan_report *r, const struct atsi_plan_params *p)
{
    int rc = atsi_sim_open_machine(&r->run);
    if (rc == ATSI_OK)
        rc = atsi_sim_open_items(&r->run);
    if (rc == ATSI_OK)
        rc = atsi_sim_find_policies(&r->run);
    if (rc != ATSI_OK)
        return rc;
    if (r->sim.chunk == 0 && r->run.costs != NULL)
        r->sim.chunk = (uint32_t)atsi_conf_int(r->run.rt->conf, "prefill.chunk");
    else if (r->sim.chunk == 0)
        r->sim.chunk = (uint32_t)r->run.machine.chunk;
    if (r->sim.chunk == 0 || r->sim.chunk == ATSI_CHUNK_AUTO)
        rc = atsi_sim_choose_chunk(&r->run, p->prompt, &r->sim.chunk);
    if (rc != ATSI_OK)
        return rc;
    if (r->sim.chunk > p->prompt)
        r->sim.chunk = p->prompt;
    rc = atsi_plan_key_make(r, p, r->run.policies.schedule.name);
    if (rc != ATSI_OK)
        return rc;
    if (p->ctx_max != 0)
        r->run.machine.ctx_max = p->ctx_max;
    if ((double)p->ctx > r->run.machine.ctx_max)
        return atsi_fail(r->run.err, ATSI_ECONF,
                         "decode at %u positions, but caches are sized for %.0f (-c)", p->ctx,
                         r->run.machine.ctx_max);
    return atsi_plan_pin_items(r, p);
}

int atsi_plan_question(struct atsi_plan_report *r, struct atsi_question **out)
{
    struct atsi_question_params qp = {.vram_bytes = atsi_sim_vram(&r->run),
                                      .temp_bytes = atsi_sim_slot_memory(&r->run),
                                      .max_slots = r->sim.max_slots};
    for (uint32_t f = 0; f < 2; f++)
        qp.phase[f] = atsi_sim_conditions(&r->run, f, false);
    return atsi_sim_question(&r->run, &qp, out);
}

static void name_things(struct atsi_plan_report *r)
{
    struct atsi_plan_summary *s = &r->summary;
    s->struct_size = sizeof *s;
    s->n_items = r->run.items->n;
    (void)snprintf(s->model, sizeof s->model, "%s", r->run.items->model);
    (void)snprintf(s->machine, sizeof s->machine, "%s", r->run.machine.name);
    (void)snprintf(s->policy, sizeof s->policy, "%s", r->key.policy);
    s->measured = r->run.costs != NULL;
    s->machine_dram = (uint64_t)(r->run.machine.dram_gbs * 1e9);
    s->prompt = r->sim.prompt;
    s->generated = r->sim.generated;
}

static int describe(struct atsi_plan_report *r)
{
    struct atsi_question *q;
    int rc;
    r->items = calloc((size_t)r->run.items->n + 1, sizeof *r->items);
    if (r->items == NULL)
        return atsi_fail(r->run.err, ATSI_ENOMEM, "out of memory for a plan of %u items",
                         r->run.items->n);
    rc = atsi_plan_question(r, &q);
    if (rc == ATSI_OK)
        atsi_plan_describe(r, q);
    atsi_question_free(q);
    return rc;
}

static int make(struct atsi_plan_report *r, const struct atsi_plan_params *p)
{
    int fit, rc = fill_sim(r, p);
    if (rc == ATSI_OK)
        rc = read_files(r, p);
    if (rc != ATSI_OK)
        return rc;
    r->made_for[0] = p->prompt;
    r->made_for[1] = p->generated;
    r->made_for[2] = p->ctx;
    fit = atsi_plan_needs(r);
    if (fit != ATSI_OK && fit != ATSI_ENOFIT)
        return fit;
    rc = describe(r);
    name_things(r);
    if (rc == ATSI_OK)
        rc = fit;
    if (rc == ATSI_OK && p->use != NULL) {
        rc = atsi_plan_load(r, p->use, p->policy == NULL);
        r->summary.reused = 1;
        (void)snprintf(r->summary.policy, sizeof r->summary.policy, "%s", r->key.policy);
    }
    if (rc == ATSI_OK)
        rc = plan_once(r);
    if (rc == ATSI_ENOFIT)
        atsi_plan_suggest(r);
    return rc;
}

/* ---------------------------------------------------------------- the interface */
int atsi_plan_make(struct atsi_runtime *rt, const struct atsi_plan_params *p,
                   struct atsi_plan_report **out, struct atsi_err *err)
{
    struct atsi_plan_report *r = calloc(1, sizeof *r);
    int rc;
    *out = NULL;
    if (r == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a plan");
    r->run = (struct atsi_sim_run){.rt = rt, .p = &r->sim, .err = err};
    rc = make(r, p);
    r->run.err = NULL;
    r->sim.machine = r->sim.model = NULL; /* the caller's */
    if (rc == ATSI_OK || (rc == ATSI_ENOFIT && r->items != NULL))
        *out = r;
    else
        atsi_plan_free(r);
    return rc;
}

void atsi_plan_free(struct atsi_plan_report *r)
{
    if (r == NULL)
        return;
    for (int f = 0; f < 2; f++)
        atsi_answer_close(r->answer[f]);
    free(r->items);
    atsi_items_free(r->run.items);
    atsi_sim_close_machine(&r->run);
    free(r);
}

const struct atsi_plan_summary *atsi_plan_summary(const struct atsi_plan_report *r)
{
    return &r->summary;
}

const struct atsi_plan_item *atsi_plan_item(const struct atsi_plan_report *r, uint32_t index)
{
    return index < r->run.items->n ? &r->items[index] : NULL;
}

/* The policy's answer under the change in force, timed. */
static int time_trial(struct atsi_plan_report *r, struct atsi_plan_times *out)
{
    struct atsi_sim_session s = {0};
    struct trial t = {0};
    const int32_t *placed;
    int rc = atsi_plan_open_trial(r, &s);
    if (rc == ATSI_OK)
        rc = try_rounds(r, &s, &t);
    if (rc == ATSI_OK) {
        placed = atsi_rounds_placement(s.rounds)->device;
        *out = (struct atsi_plan_times){.struct_size = sizeof *out,
                                        .ttft_ns = ttft(r, t.phase[ATSI_PHASE_PREFILL].ns),
                                        .tpot_ns = t.tpot_ns};
        for (uint32_t i = 0; i < r->run.items->n; i++)
            out->n_resident += placed[i] == ATSI_DEVICE_ACCEL;
    }
    atsi_plan_close_trial(r, &s);
    return rc;
}

int atsi_plan_try(struct atsi_plan_report *r, const struct atsi_plan_change *change,
                  struct atsi_plan_times *out, struct atsi_err *err)
{
    struct atsi_plan_memory memory = r->summary.memory;
    uint64_t vram = r->sim.vram_bytes, before = r->run.pinned_bytes;
    struct atsi_item *item = NULL;
    int32_t pinned = -1;
    int rc;
    if (change->struct_size < sizeof *change || change->item < -1 ||
        change->item >= (int32_t)r->run.items->n ||
        (change->item >= 0 && (change->device < 0 || change->device >= ATSI_N_DEVICES)))
        return atsi_fail(err, ATSI_EINVAL, "no such item or device to try: %d, %d", change->item,
                         change->device);
    r->run.err = err;
    if (change->item >= 0) {
        item = &r->run.items->items[change->item];
        pinned = item->pinned;
        item->pinned = change->device;
    }
    r->sim.vram_bytes = memory.vram + change->more_vram;
    rc = atsi_plan_needs(r);
    if (rc == ATSI_OK)
        rc = time_trial(r, out);
    r->summary.memory = memory;
    r->sim.vram_bytes = vram;
    r->run.pinned_bytes = before;
    if (item != NULL)
        item->pinned = pinned;
    r->run.err = NULL;
    return rc;
}
