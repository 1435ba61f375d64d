/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan needs where: pins, sums before anything is placed (needs.h), and what lies where
 * after it.
 */
#include "core/round/plan_report.h"

#include "core/conf.h"
#include "core/round/needs.h"

#include <fnmatch.h>
#include <string.h>

#define MIB 1048576.0

/* ---------------------------------------------------------------- pins */
/* kv.device decides for caches that no rule names. */
static int32_t device_of_caches(const struct atsi_plan_report *r)
{
    const char *where = atsi_conf_get(r->run.rt->conf, "kv.device");
    if (where != NULL && strcmp(where, "cpu") == 0)
        return ATSI_DEVICE_HOST;
    return where != NULL && strcmp(where, "accel") == 0 ? ATSI_DEVICE_ACCEL : -1;
}

static int check_pin(const struct atsi_plan_report *r, const struct atsi_plan_pin *pin)
{
    if (pin->device < 0 || pin->device >= ATSI_N_DEVICES)
        return atsi_fail(r->run.err, ATSI_EINVAL, "pin \"%.80s\": device %d, there are %d",
                         pin->pattern, pin->device, ATSI_N_DEVICES);
    for (uint32_t i = 0; i < r->run.items->n; i++)
        if (fnmatch(pin->pattern, r->run.items->items[i].name, 0) == 0)
            return ATSI_OK;
    return atsi_fail(r->run.err, ATSI_ECONF,
                     "pin \"%.80s\": no item has such a name; the first is %s", pin->pattern,
                     r->run.items->n > 0 ? r->run.items->items[0].name : "none");
}

int atsi_plan_pin_items(struct atsi_plan_report *r, const struct atsi_plan_params *p)
{
    struct atsi_items *it = r->run.items;
    int32_t caches = device_of_caches(r);
    for (uint32_t k = 0; k < p->n_pins; k++) {
        int rc = check_pin(r, &p->pins[k]);
        if (rc != ATSI_OK)
            return rc;
    }
    for (uint32_t i = 0; i < it->n; i++) {
        if (atsi_work_is_cache(&it->work[i]) && it->items[i].pinned < 0)
            it->items[i].pinned = caches;
        for (uint32_t k = p->n_pins; k-- > 0;) /* backwards: the first rule stays */
            if (fnmatch(p->pins[k].pattern, it->items[i].name, 0) == 0)
                it->items[i].pinned = p->pins[k].device;
    }
    return ATSI_OK;
}

/* ---------------------------------------------------------------- sums */
int atsi_plan_needs(struct atsi_plan_report *r)
{
    struct atsi_plan_memory *m = &r->summary.memory;
    struct atsi_needs_params p = {.vram = atsi_sim_vram(&r->run),
                                  .ram = r->run.ram_bytes,
                                  .ctx_max = (uint32_t)r->run.machine.ctx_max,
                                  .slots = r->run.machine.temp_mib > 0};
    atsi_needs_sum(r->run.items, &p, m);
    r->run.pinned_bytes = m->pinned_weights + m->pinned_caches;
    m->slots = atsi_sim_slot_memory(&r->run);
    return atsi_needs_judge(r->run.items, &p, m, r->run.err);
}

static uint64_t over(uint64_t need, uint64_t have)
{
    return need > have ? need - have : 0;
}

/* ---------------------------------------------------------------- after placement */
int atsi_plan_regions(struct atsi_plan_report *r)
{
    const struct atsi_items *it = r->run.items;
    const int32_t *placed = r->answer[0]->placed;
    struct atsi_plan_memory *m = &r->summary.memory;
    uint64_t used, host;
    m->weights = m->caches = m->host_weights = m->host_caches = 0;
    for (uint32_t i = 0; i < it->n; i++) {
        bool cache = atsi_work_is_cache(&it->work[i]), there = placed[i] == ATSI_DEVICE_ACCEL;
        uint64_t *sum = there ? (cache ? &m->caches : &m->weights)
                              : (cache ? &m->host_caches : &m->host_weights);
        *sum += it->items[i].resident_bytes;
        r->summary.n_resident += there;
    }
    m->slots = atsi_sim_slot_memory(&r->run);
    used = m->weights + m->caches + m->slots;
    m->left = over(m->vram, used);
    host = m->host_weights + m->host_caches;
    m->missing_ram = m->ram != 0 ? over(host, m->ram) : 0;
    if (m->missing_ram == 0)
        return ATSI_OK;
    return atsi_fail(r->run.err, ATSI_ENOFIT,
                     "does not fit: this placement leaves %.1f MiB on the host, whose limit is "
                     "%.1f MiB",
                     (double)host / MIB, (double)m->ram / MIB);
}
