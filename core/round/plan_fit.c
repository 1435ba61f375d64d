/* SPDX-License-Identifier: Apache-2.0
 *
 * Which change would make a plan fit.  Sums give the least that could do; whether a policy then
 * finds a placement of whole weights is tried.
 */
#include "core/round/plan_report.h"

/* A variation of the budgets. */
struct variant {
    uint64_t vram, ram; /* ram 0: not limited */
    uint32_t ctx_max;
};

static uint64_t on_host(const struct atsi_plan_report *r, const int32_t *placed)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < r->run.items->n; i++)
        if (placed[i] == ATSI_DEVICE_HOST)
            sum += r->run.items->items[i].resident_bytes;
    return sum;
}

static bool places(struct atsi_plan_report *r, uint64_t *host_out)
{
    struct atsi_sim_session s = {0};
    int rc = atsi_plan_needs(r);
    if (rc == ATSI_OK)
        rc = atsi_plan_open_trial(r, &s);
    if (rc == ATSI_OK)
        rc = atsi_plan_check_placed(r, &s);
    if (rc == ATSI_OK)
        *host_out = on_host(r, atsi_rounds_placement(s.rounds)->device);
    atsi_plan_close_trial(r, &s);
    return rc == ATSI_OK;
}

/* Silently, and with everything as it was in the end. */
static bool fits(struct atsi_plan_report *r, const struct variant *v, uint64_t *host_out)
{
    const struct atsi_plan_memory memory = r->summary.memory;
    const struct atsi_sim_run run = r->run;
    const struct atsi_sim_params sim = r->sim;
    struct atsi_err quiet = ATSI_ERR_INIT;
    bool ok;
    r->sim.vram_bytes = v->vram;
    r->run.ram_bytes = v->ram;
    r->run.machine.ctx_max = v->ctx_max;
    r->run.policies.say = NULL;
    r->run.err = &quiet;
    ok = places(r, host_out);
    r->run = run;
    r->sim = sim;
    r->summary.memory = memory;
    return ok;
}

/* The largest item: whole weights may leave so much of a budget unused. */
static uint64_t largest(const struct atsi_plan_report *r)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < r->run.items->n; i++)
        if (r->items[i].bytes > most)
            most = r->items[i].bytes;
    return most;
}

static void more_vram(struct atsi_plan_report *r, const struct variant *now)
{
    struct atsi_plan_memory *m = &r->summary.memory;
    uint64_t temp = (uint64_t)(r->run.machine.temp_mib * 1048576.0), host;
    uint64_t all = m->all_weights + m->cache + temp;
    const uint64_t tries[] = {m->enough_vram, m->enough_vram + temp,
                              m->enough_vram + temp + largest(r), all};
    struct variant v = *now;
    if (m->enough_vram == 0)
        return;
    m->enough_vram = 0;
    for (size_t k = 0; k < sizeof tries / sizeof tries[0] && m->enough_vram == 0; k++) {
        v.vram = tries[k];
        if (v.vram > now->vram && fits(r, &v, &host))
            m->enough_vram = v.vram;
    }
}

/* Without a limit a policy leaves on the host what it leaves there. */
static void more_ram(struct atsi_plan_report *r, const struct variant *now)
{
    struct atsi_plan_memory *m = &r->summary.memory;
    struct variant v = *now;
    uint64_t host = 0;
    m->enough_ram = 0;
    if (now->ram == 0)
        return;
    v.ram = 0;
    if (!fits(r, &v, &host))
        return;
    v.ram = host;
    if (host > now->ram && fits(r, &v, &host))
        m->enough_ram = v.ram;
}

void atsi_plan_suggest(struct atsi_plan_report *r)
{
    struct atsi_plan_memory *m = &r->summary.memory;
    struct variant now = {m->vram, m->ram, m->ctx_max};
    uint64_t host;
    more_vram(r, &now);
    more_ram(r, &now);
    now.ctx_max = m->fits_ctx;
    if (m->fits_ctx != 0 && !fits(r, &now, &host))
        m->fits_ctx = 0;
}
