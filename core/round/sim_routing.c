/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding a routing trace on simulated devices: placement with expert caches, then a round per
 * token, with the executor and the policies as they are.
 */
#include "core/round/sim_experts.h"
#include "core/round/sim_run.h"

#include <stdlib.h>
#include <string.h>

#define PER_MILLE 1000u

struct routed {
    struct atsi_sim_run r;
    struct atsi_cache_params c;
    struct atsi_sim_session s;
    struct atsi_cache_group *groups;
    uint32_t n_groups;
    struct atsi_cache_result *out;
};

/* Experts of the model, by stacks in a row that wait for one router. */
static uint64_t count_experts(const struct atsi_items *it)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < it->n; i++)
        if (it->items[i].n_experts > 0 && it->items[i].router >= 0 &&
            (i == 0 || it->items[i - 1].router != it->items[i].router))
            n += it->items[i].n_experts;
    return n;
}

static void sum_memory(struct routed *x)
{
    const struct atsi_placement *p = atsi_rounds_placement(x->s.rounds);
    x->out->n_experts = count_experts(x->r.items);
    x->out->budget_bytes = x->s.told->budget[ATSI_DEVICE_ACCEL];
    for (uint32_t i = 0; i < x->r.items->n; i++)
        if (p->device[i] == ATSI_DEVICE_ACCEL)
            x->out->resident_bytes += x->r.items->items[i].resident_bytes;
    for (uint32_t k = 0; k < x->n_groups; k++) {
        x->out->n_slots += x->groups[k].n_slots;
        x->out->resident_bytes += x->groups[k].n_slots * x->groups[k].bytes;
    }
    x->out->n_layers = x->n_groups;
}

static int start(struct routed *x)
{
    int rc = atsi_sim_open_session(&x->r, true, x->r.p->mode == ATSI_SIM_FULL, &x->s);
    if (rc == ATSI_OK)
        rc = atsi_cache_groups(x->s.truth, atsi_rounds_placement(x->s.rounds), &x->groups,
                               &x->n_groups, x->r.err);
    if (rc == ATSI_OK && x->r.experts != NULL)
        rc = atsi_sim_experts_start(x->r.experts, x->s.truth, &x->r.d, x->groups, x->n_groups,
                                    x->r.err);
    if (rc == ATSI_OK)
        rc = atsi_question_caches(x->s.truth, x->groups, x->n_groups, x->r.err);
    if (rc == ATSI_OK)
        rc = atsi_question_caches(x->s.told, x->groups, x->n_groups, x->r.err);
    if (rc == ATSI_OK)
        sum_memory(x);
    return rc;
}

static int decode_tokens(struct routed *x)
{
    struct atsi_exec *exec = atsi_rounds_exec(x->s.rounds);
    struct atsi_round_result res = {0};
    uint64_t n = x->out->n_tokens, first = 0, now = 0;
    uint64_t layers = x->n_groups > 0 ? x->n_groups : 1;
    int rc = ATSI_OK;
    for (uint64_t t = 0; t < n && rc == ATSI_OK; t++) {
        uint64_t grant = res.ns / PER_MILLE * x->c.copy_permille / layers;
        if (t > 0)
            rc = atsi_exec_host(exec, atsi_model_source_gap(x->s.source[ATSI_PHASE_DECODE]),
                                x->r.err);
        if (x->r.experts != NULL)
            atsi_sim_experts_token(x->r.experts, t, grant);
        if (rc == ATSI_OK)
            rc = atsi_rounds_step(x->s.rounds, ATSI_PHASE_DECODE, 1, x->r.p->ctx,
                                  n - t < UINT32_MAX ? (uint32_t)(n - t) : UINT32_MAX, &res,
                                  x->r.err);
        if (rc == ATSI_OK)
            rc = atsi_exec_now(exec, &now, x->r.err);
        if (t == 0)
            first = now;
    }
    if (rc == ATSI_OK && n > 1)
        x->out->tpot_ns = (now - first) / (n - 1);
    return rc;
}

static void sum_up(struct routed *x)
{
    struct atsi_books_counts counts = {0};
    struct atsi_rounds_counts n;
    if (x->r.experts != NULL)
        atsi_sim_experts_counts(x->r.experts, &counts);
    atsi_rounds_counts(x->s.rounds, &n);
    x->out->hits = counts.hits;
    x->out->misses = counts.misses;
    x->out->swaps = counts.swaps;
    x->out->refused = counts.refused + n.illegal + n.failed + n.late;
}

static int simulate(struct routed *x)
{
    struct atsi_sim_run *r = &x->r;
    struct atsi_sim_experts_params p = {
        .routing = x->c.routing, .way = x->c.way, .half_life = (float)x->c.half_life};
    uint64_t have = x->c.routing->n_tokens;
    int rc = atsi_sim_open_machine(r);
    x->out->n_tokens = x->c.n_tokens != 0 && x->c.n_tokens < have ? x->c.n_tokens : have;
    if (rc == ATSI_OK && x->out->n_tokens < 2)
        rc = atsi_fail(r->err, ATSI_EINVAL, "a routing trace of %llu tokens: 2 are needed",
                       (unsigned long long)x->out->n_tokens);
    if (rc == ATSI_OK)
        rc = atsi_sim_open_items(r);
    if (rc == ATSI_OK)
        rc = atsi_sim_find_policies(r);
    p.policy = r->policies.place.ops;
    if (rc == ATSI_OK)
        rc = atsi_sim_open_devices(r);
    if (rc == ATSI_OK && x->c.way != ATSI_CACHE_NONE)
        rc = atsi_sim_experts_open(&p, &r->experts, r->err);
    if (rc == ATSI_OK)
        rc = start(x);
    if (rc == ATSI_OK)
        rc = decode_tokens(x);
    if (rc == ATSI_OK)
        sum_up(x);
    return rc;
}

int atsi_simulate_routing(struct atsi_runtime *rt, const struct atsi_sim_params *p,
                          const struct atsi_cache_params *c, struct atsi_cache_result *out,
                          struct atsi_err *err)
{
    struct atsi_sim_params all = {0}; /* a caller built with an older header has fewer */
    struct routed x = {.r = {.rt = rt, .p = &all, .err = err}, .out = out};
    int rc;
    memcpy(&all, p, p->struct_size < sizeof all ? p->struct_size : sizeof all);
    memcpy(&x.c, c, c->struct_size < sizeof x.c ? c->struct_size : sizeof x.c);
    *out = (struct atsi_cache_result){.struct_size = sizeof *out};
    rc = simulate(&x);
    atsi_sim_close_session(&x.s);
    atsi_sim_experts_close(x.r.experts);
    free(x.groups);
    atsi_sim_close_devices(&x.r);
    atsi_items_free(x.r.items);
    atsi_sim_close_machine(&x.r);
    return rc;
}
