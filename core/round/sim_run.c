/* SPDX-License-Identifier: Apache-2.0
 * What simulated requests and plans run on. */
#include "core/round/sim_run.h"

#include "core/round/chunk.h"
#include "core/round/rules.h"
#include "core/round/sim_experts.h"

#include "core/conf.h"

#include <stdlib.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)

/* ---------------------------------------------------------------- what is simulated */
static int items_of_file(struct atsi_sim_run *r, const char *path)
{
    const struct atsi_model_params mp = {.struct_size = sizeof mp, .no_weights = ATSI_PLAN_ONLY};
    const struct atsi_items_params ip = {
        .tile_bytes = (uint64_t)(r->machine.temp_mib * MIB / 2),
        .type_k = r->costs != NULL ? r->made_of.type_k : ATSI_TYPE_F16,
        .type_v = r->costs != NULL ? r->made_of.type_v : ATSI_TYPE_F16,
        .flow = true}; /* splits and copies as a session has them */
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

int atsi_sim_open_items(struct atsi_sim_run *r)
{
    size_t n = strlen(r->p->model);
    bool shape = n > 4 && strcmp(r->p->model + n - 4, ".ini") == 0;
    int rc = shape ? atsi_items_from_shape(r->p->model, &r->items, r->err)
                   : items_of_file(r, r->p->model);
    return rc == ATSI_OK ? atsi_rules_apply(r->rt->conf, r->items, r->err) : rc;
}

static uint64_t vocabulary(const struct atsi_items *it)
{
    return it->n > 0 ? it->work[it->n - 1].out : 0;
}

struct atsi_conditions atsi_sim_conditions(const struct atsi_sim_run *r, uint32_t phase,
                                           bool loaded)
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

uint64_t atsi_sim_vram(const struct atsi_sim_run *r)
{
    uint64_t vram = r->p->vram_bytes;
    if (vram == 0)
        vram = (uint64_t)((r->machine.vram_mib - r->machine.reserve_mib) * MIB);
    return vram > r->rows_bytes ? vram - r->rows_bytes : 0;
}

/* As much as the machine wants, as far as pinned items leave it. */
uint64_t atsi_sim_slot_memory(const struct atsi_sim_run *r)
{
    uint64_t want = (uint64_t)(r->machine.temp_mib * MIB), vram = atsi_sim_vram(r);
    uint64_t left = vram > r->pinned_bytes ? vram - r->pinned_bytes : 0;
    return want < left ? want : left;
}

static int make_question(struct atsi_sim_run *r, bool loaded, bool slots,
                         struct atsi_question **out)
{
    const struct atsi_sim_params *p = r->p;
    struct atsi_question_params qp = {.phase = {atsi_sim_conditions(r, ATSI_PHASE_PREFILL, loaded),
                                                atsi_sim_conditions(r, ATSI_PHASE_DECODE, loaded)},
                                      .vram_bytes = atsi_sim_vram(r),
                                      .temp_bytes = slots ? atsi_sim_slot_memory(r) : 0,
                                      .max_slots = p->mode == ATSI_SIM_SYNC ? 1 : p->max_slots,
                                      .mix_prompt = p->prompt,
                                      .mix_generated = p->generated,
                                      .n_vocab = vocabulary(r->items)};
    int rc = atsi_sim_question(r, &qp, out);
    if (rc == ATSI_OK)
        (*out)->p.expert_cache = r->experts != NULL;
    if (rc == ATSI_OK && r->ram_bytes != 0)
        (*out)->budget[ATSI_DEVICE_HOST] = r->ram_bytes;
    return rc;
}

/* ---------------------------------------------------------------- devices and policies */
static const void *component(struct atsi_sim_run *r, enum atsi_kind kind, const char *name, int *rc)
{
    const void *ops = atsi_runtime_component(r->rt, kind, name);
    if (ops == NULL && *rc == ATSI_OK)
        *rc = atsi_fail(r->err, ATSI_ENOENT, "there is no %s \"%s\"; `atsinfer plugins` lists them",
                        kind == ATSI_KIND_POLICY ? "policy" : "simulated device", name);
    return ops;
}

int atsi_sim_open_devices(struct atsi_sim_run *r)
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

void atsi_sim_close_devices(struct atsi_sim_run *r)
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
static struct atsi_policy_use policy_use(struct atsi_sim_run *r, const char *key, bool required,
                                         int *rc)
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

int atsi_sim_find_policies(struct atsi_sim_run *r)
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
void atsi_sim_close_session(struct atsi_sim_session *s)
{
    atsi_rounds_close(s->rounds);
    for (int f = 0; f < 2; f++)
        atsi_model_source_close(s->source[f]);
    atsi_question_free(s->told);
    atsi_question_free(s->truth);
}

int atsi_sim_open_session(struct atsi_sim_run *r, bool slots, bool dynamic,
                          struct atsi_sim_session *s)
{
    struct atsi_rounds_work work;
    struct atsi_rounds_params params = r->policies;
    int rc = make_question(r, true, slots, &s->truth);
    if (rc == ATSI_OK)
        rc = make_question(r, r->p->know == ATSI_SIM_TOLD, slots, &s->told);
    for (uint32_t f = 0; f < 2 && rc == ATSI_OK; f++) {
        struct atsi_conditions c = atsi_sim_conditions(r, f, true);
        rc = atsi_model_source_open(s->truth, &r->machine, f, &c, &s->source[f], r->err);
        if (rc == ATSI_OK) {
            work.source[f] = atsi_model_source_get(s->source[f]);
            work.in_bytes[f] = atsi_model_source_in_bytes(s->source[f]);
            if (f == ATSI_PHASE_DECODE && r->experts != NULL)
                work.source[f] = atsi_sim_experts_wrap(r->experts, work.source[f]);
        }
    }
    params.dynamic = dynamic;
    if (rc == ATSI_OK)
        rc = atsi_rounds_open(s->told, &r->d, &work, &params, &s->rounds, r->err);
    return rc;
}

/* ---------------------------------------------------------------- the size of prefill rounds */
static void set_rows(struct atsi_sim_run *r, uint32_t tokens)
{
    uint64_t more = tokens > ATSI_CHUNK_USUAL ? tokens - ATSI_CHUNK_USUAL : 0;
    r->rows_bytes = more * atsi_chunk_row_bytes(r->items);
}

static int ask(void *ctx, uint32_t tokens, struct atsi_question **out, struct atsi_err *err)
{
    struct atsi_sim_run *r = ctx;
    const struct atsi_sim_params *was = r->p;
    struct atsi_sim_params p = *was;
    int rc;
    set_rows(r, tokens);
    *out = NULL;
    if (atsi_sim_vram(r) == 0)
        return atsi_fail(err, ATSI_ENOFIT, "rounds of %u tokens leave no accelerator memory",
                         tokens);
    p.chunk = tokens;
    r->p = &p;
    rc = make_question(r, false, true, out);
    r->p = was;
    return rc;
}

int atsi_sim_choose_chunk(struct atsi_sim_run *r, uint32_t most, uint32_t *tokens)
{
    const struct atsi_chunk_params p = {.place = &r->policies.place,
                                        .prompt = r->p->prompt,
                                        .generated = r->p->generated,
                                        .most = most,
                                        .ctx = r,
                                        .ask = ask};
    struct atsi_chunk_choice c;
    int rc;
    set_rows(r, 0);
    if (atsi_sim_vram(r) == 0) { /* no accelerator: nothing to choose for */
        *tokens = most < ATSI_CHUNK_USUAL ? most : ATSI_CHUNK_USUAL;
        return ATSI_OK;
    }
    rc = atsi_chunk_choose(&p, &c, r->err);
    if (rc != ATSI_OK)
        return rc;
    set_rows(r, c.tokens);
    *tokens = c.tokens;
    if (r->p->say != NULL)
        r->p->say(r->p->say_ctx, c.why);
    return ATSI_OK;
}
