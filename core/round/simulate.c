/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulated request: items and costs from a model and a machine profile, the simulated devices,
 * the configured policies, and rounds as they always are.
 */
#include "atsinfer/simulate.h"

#include "core/conf.h"
#include "core/round/model_source.h"
#include "core/round/rounds.h"
#include "core/round/trace.h"
#include "core/runtime.h"

#include <stdlib.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)

struct run {
    struct atsi_runtime *rt;
    const struct atsi_sim_params *p;
    struct atsi_machine machine;
    struct atsi_items *items;
    struct atsi_exec_devices d;
    struct atsi_rounds_params policies;
    struct atsi_sim_result *out;
    struct atsi_err *err;
};

/* One session of rounds over one question. */
struct session {
    struct atsi_question *told, *truth;
    struct atsi_model_source *source[2];
    struct atsi_rounds *rounds;
};

/* ---------------------------------------------------------------- what is simulated */
static int items_of_file(struct run *r, const char *path)
{
    const struct atsi_model_params mp = {.struct_size = sizeof mp, .no_weights = ATSI_PLAN_ONLY};
    const struct atsi_items_params ip = {.tile_bytes = (uint64_t)(r->machine.temp_mib * MIB / 2),
                                         .type_k = ATSI_TYPE_F16,
                                         .type_v = ATSI_TYPE_F16};
    const struct atsi_graph *g;
    struct atsi_model *m = NULL;
    int rc = atsi_model_open(r->rt, path, &mp, &m, r->err);
    if (rc != ATSI_OK)
        return rc;
    rc = atsi_model_graph(m, &g, r->err);
    if (rc == ATSI_OK)
        rc = atsi_items_from_graph(g, atsi_model_info(m)->tensors, &ip, &r->items, r->err);
    if (rc == ATSI_OK)
        (void)snprintf(r->items->model, sizeof r->items->model, "%s", path);
    atsi_model_close(m);
    return rc;
}

static int open_items(struct run *r)
{
    size_t n = strlen(r->p->model);
    if (n > 4 && strcmp(r->p->model + n - 4, ".ini") == 0)
        return atsi_items_from_shape(r->p->model, &r->items, r->err);
    return items_of_file(r, r->p->model);
}

static uint64_t vocabulary(const struct atsi_items *it)
{
    return it->n > 0 ? it->work[it->n - 1].out : 0;
}

static struct atsi_conditions conditions(const struct run *r, uint32_t phase, bool loaded)
{
    const struct atsi_sim_params *p = r->p;
    bool prefill = phase == ATSI_PHASE_PREFILL;
    return (struct atsi_conditions){
        .tokens = prefill ? (p->chunk != 0 ? p->chunk : (uint32_t)r->machine.chunk) : 1,
        .ctx = prefill ? 0 : p->ctx,
        .ctx_max = (uint32_t)r->machine.ctx_max,
        .sustained = p->sustained != 0,
        .contention = p->contention != 0,
        .blocking = p->mode == ATSI_SIM_SYNC,
        .load_cpu = loaded ? p->load_cpu : 1,
        .load_gpu = loaded ? p->load_gpu : 1,
        .load_pcie = loaded ? p->load_pcie : 1};
}

static int make_question(struct run *r, bool loaded, bool slots, struct atsi_question **out)
{
    const struct atsi_sim_params *p = r->p;
    double own = (r->machine.vram_mib - r->machine.reserve_mib) * MIB;
    struct atsi_question_params qp = {
        .phase = {conditions(r, ATSI_PHASE_PREFILL, loaded),
                  conditions(r, ATSI_PHASE_DECODE, loaded)},
        .vram_bytes = p->vram_bytes != 0 ? p->vram_bytes : (uint64_t)own,
        .temp_bytes = slots ? (uint64_t)(r->machine.temp_mib * MIB) : 0,
        .max_slots = p->mode == ATSI_SIM_SYNC ? 1 : p->max_slots,
        .mix_prompt = p->prompt,
        .mix_generated = p->generated,
        .n_vocab = vocabulary(r->items)};
    return atsi_question_model(r->items, &r->machine, &qp, out, r->err);
}

/* ---------------------------------------------------------------- devices and policies */
static const void *component(struct run *r, enum atsi_kind kind, const char *name, int *rc)
{
    const void *ops = atsi_runtime_component(r->rt, kind, name);
    if (ops == NULL && *rc == ATSI_OK)
        *rc = atsi_fail(r->err, ATSI_ENOENT, "there is no %s \"%s\"; `atsinfer plugins` lists them",
                        kind == ATSI_KIND_POLICY ? "policy" : "simulated device", name);
    return ops;
}

static int open_devices(struct run *r)
{
    static const char *const names[ATSI_N_DEVICES] = {"sim_cpu", "sim_gpu"};
    struct atsi_exec_devices *d = &r->d;
    int rc = ATSI_OK;
    d->host = &r->rt->host;
    for (int v = 0; v < ATSI_N_DEVICES && rc == ATSI_OK; v++) {
        d->ops[v] = component(r, ATSI_KIND_BACKEND, names[v], &rc);
        if (rc == ATSI_OK)
            rc = d->ops[v]->open(d->host, 0, &d->be[v], r->err);
        if (rc == ATSI_OK)
            rc = d->ops[v]->queue_open(d->be[v], &d->queue[v], r->err);
    }
    d->tx_ops = component(r, ATSI_KIND_TRANSFER, "sim", &rc);
    if (rc == ATSI_OK)
        rc = d->tx_ops->open(d->host, d->be[0], d->be[1], &d->tx, r->err);
    return rc == ATSI_OK ? atsi_exec_channels(d, r->err) : rc;
}

static void close_devices(struct run *r)
{
    struct atsi_exec_devices *d = &r->d;
    if (d->tx != NULL)
        d->tx_ops->close(d->tx);
    for (int v = 0; v < ATSI_N_DEVICES; v++) {
        if (d->queue[v] != NULL)
            d->ops[v]->queue_close(d->queue[v]);
        if (d->be[v] != NULL)
            d->ops[v]->close(d->be[v]);
    }
}

/* The policy a key names, or, when empty, policy.name's. */
static struct atsi_policy_use policy_use(struct run *r, const char *key, bool required, int *rc)
{
    const char *name = atsi_conf_get(r->rt->conf, key);
    struct atsi_policy_use use = {.name = name};
    if (name == NULL || name[0] == '\0')
        use.name = name = atsi_conf_get(r->rt->conf, "policy.name");
    use.ops = required ? component(r, ATSI_KIND_POLICY, name, rc)
                       : atsi_runtime_component(r->rt, ATSI_KIND_POLICY, name);
    return use;
}

/* Only a limit that somebody asked for: a busy machine must not change what is simulated. */
static uint64_t time_limit(const struct atsi_conf *c)
{
    if (strcmp(atsi_conf_origin(c, "policy.time_limit"), "built-in") == 0)
        return 0;
    return (uint64_t)atsi_conf_int(c, "policy.time_limit") * 1000;
}

static int find_policies(struct run *r)
{
    int rc = ATSI_OK;
    r->policies =
        (struct atsi_rounds_params){.place = policy_use(r, "policy.place", true, &rc),
                                    .schedule = policy_use(r, "policy.schedule", true, &rc),
                                    .fallback = policy_use(r, "policy.fallback", false, &rc),
                                    .time_limit_ns = time_limit(r->rt->conf),
                                    .frozen = r->p->know == ATSI_SIM_NEVER,
                                    .say = r->p->say,
                                    .say_ctx = r->p->say_ctx};
    return rc;
}

/* ---------------------------------------------------------------- a session */
static void close_session(struct session *s)
{
    atsi_rounds_close(s->rounds);
    for (int f = 0; f < 2; f++)
        atsi_model_source_close(s->source[f]);
    atsi_question_free(s->told);
    atsi_question_free(s->truth);
}

static int open_session(struct run *r, bool slots, bool dynamic, struct session *s)
{
    struct atsi_rounds_work work;
    struct atsi_rounds_params params = r->policies;
    int rc = make_question(r, true, slots, &s->truth);
    if (rc == ATSI_OK)
        rc = make_question(r, r->p->know == ATSI_SIM_TOLD, slots, &s->told);
    for (uint32_t f = 0; f < 2 && rc == ATSI_OK; f++) {
        struct atsi_conditions c = conditions(r, f, true);
        rc = atsi_model_source_open(s->truth, &r->machine, f, &c, &s->source[f], r->err);
        if (rc == ATSI_OK) {
            work.source[f] = atsi_model_source_get(s->source[f]);
            work.in_bytes[f] = atsi_model_source_in_bytes(s->source[f]);
        }
    }
    params.dynamic = dynamic;
    if (rc == ATSI_OK)
        rc = atsi_rounds_open(s->told, &r->d, &work, &params, &s->rounds, r->err);
    return rc;
}

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

static void count_refusals(struct run *r, const struct session *s)
{
    struct atsi_rounds_counts n;
    atsi_rounds_counts(s->rounds, &n);
    r->out->illegal += n.illegal;
    r->out->failed += n.failed;
    r->out->late += n.late;
}

static void trace_round(const struct run *r, const struct session *s, uint32_t phase,
                        uint32_t tokens)
{
    const struct atsi_trace t = {.question = s->truth,
                                 .plan = atsi_rounds_plan(s->rounds, phase),
                                 .record = atsi_rounds_record(s->rounds),
                                 .phase = phase,
                                 .tokens = tokens};
    if (r->p->trace != NULL)
        atsi_trace_round(&t, r->p->trace, r->p->trace_ctx);
}

static int prefill(struct run *r, struct session *s)
{
    struct atsi_conditions c = conditions(r, ATSI_PHASE_PREFILL, true);
    struct atsi_round_result res;
    int rc = atsi_rounds_step(s->rounds, ATSI_PHASE_PREFILL, c.tokens, 0, 1, &res, r->err);
    if (rc != ATSI_OK)
        return rc;
    note_round(&res, &r->out->prefill);
    r->out->prefill.tokens = c.tokens;
    trace_round(r, s, ATSI_PHASE_PREFILL, c.tokens);
    return ATSI_OK;
}

/* The last round counts, with the host's time before it: by then transfers have run ahead. */
static int decode(struct run *r, struct session *s)
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
            rc = atsi_rounds_step(s->rounds, ATSI_PHASE_DECODE, 1, r->p->ctx,
                                  r->p->generated > k ? r->p->generated - k : 2, &res, r->err);
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
static int lower_bound(struct run *r, const struct session *s)
{
    int64_t ns = 0;
    int rc = atsi_question_bound(s->told, ATSI_PHASE_DECODE,
                                 atsi_rounds_placement(s->rounds)->device, &ns, r->err);
    r->out->bound_ns = ns > 0 ? (uint64_t)ns : 0;
    return rc;
}

static void sum_up(struct run *r, const struct session *s)
{
    const struct atsi_sim_params *p = r->p;
    uint32_t chunk = r->out->prefill.tokens;
    uint64_t chunks = chunk != 0 ? (p->prompt + chunk - 1) / chunk : 0;
    const int32_t *placed = atsi_rounds_placement(s->rounds)->device;
    r->out->ttft_ns = chunks * r->out->prefill.ns;
    r->out->request_ns = r->out->ttft_ns + p->generated * r->out->decode.ns;
    r->out->budget_bytes = s->told->budget[ATSI_DEVICE_ACCEL];
    for (uint32_t i = 0; i < r->items->n; i++)
        if (placed[i] == ATSI_DEVICE_ACCEL)
            r->out->resident_bytes += r->items->items[i].resident_bytes;
}

static int both_phases(struct run *r)
{
    bool full = r->p->mode == ATSI_SIM_FULL;
    struct session s = {0}, d = {0};
    int rc = open_session(r, true, true, &s);
    if (rc == ATSI_OK)
        rc = prefill(r, &s);
    if (rc == ATSI_OK && !full) /* decode without slots: a placement of its own */
        rc = open_session(r, false, false, &d);
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
    close_session(&d);
    close_session(&s);
    return rc;
}

int atsi_simulate(struct atsi_runtime *rt, const struct atsi_sim_params *p,
                  struct atsi_sim_result *out, struct atsi_err *err)
{
    struct atsi_sim_params all = {0}; /* a caller built with an older header has fewer */
    struct run r = {.rt = rt, .p = &all, .out = out, .err = err};
    int rc;
    memcpy(&all, p, p->struct_size < sizeof all ? p->struct_size : sizeof all);
    rc = atsi_machine_read(all.machine, &r.machine, err);
    *out = (struct atsi_sim_result){.struct_size = sizeof *out};
    if (rc == ATSI_OK)
        rc = open_items(&r);
    if (rc == ATSI_OK)
        rc = find_policies(&r);
    if (rc == ATSI_OK)
        rc = open_devices(&r);
    if (rc == ATSI_OK) {
        out->n_items = r.items->n;
        (void)snprintf(out->model, sizeof out->model, "%s", r.items->model);
        (void)snprintf(out->machine, sizeof out->machine, "%s", r.machine.name);
        rc = both_phases(&r);
    }
    close_devices(&r);
    atsi_items_free(r.items);
    return rc;
}
