/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan needs where: pins, sums before anything is placed, and whether that fits; when it
 * does not, the smallest change that would.
 */
#include "core/round/plan_report.h"

#include "core/conf.h"

#include <fnmatch.h>
#include <string.h>

#define MIB 1048576.0

bool atsi_plan_is_cache(const struct atsi_work *w)
{
    return w->kind == ATSI_WORK_ATTENTION || w->kind == ATSI_WORK_RECURRENT;
}

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
        if (atsi_plan_is_cache(&it->work[i]) && it->items[i].pinned < 0)
            it->items[i].pinned = caches;
        for (uint32_t k = p->n_pins; k-- > 0;) /* backwards: the first rule stays */
            if (fnmatch(p->pins[k].pattern, it->items[i].name, 0) == 0)
                it->items[i].pinned = p->pins[k].device;
    }
    return ATSI_OK;
}

/* ---------------------------------------------------------------- sums */
static uint64_t resident(const struct atsi_plan_report *r, uint32_t i, uint32_t ctx_max)
{
    struct atsi_demand d;
    atsi_work_demand(&r->run.items->work[i], 1, r->sim.ctx, ctx_max, &d);
    return (uint64_t)d.resident_bytes;
}

/* Two slots of the smallest weight that may be streamed; none where the machine has no temporary
 * memory. */
static uint64_t least_slots(const struct atsi_plan_report *r)
{
    const struct atsi_items *it = r->run.items;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < it->n; i++) {
        struct atsi_demand d;
        atsi_work_demand(&it->work[i], 1, 0, 1, &d);
        if (it->items[i].can_promote != 0 && d.touched_bytes >= 1 &&
            (uint64_t)d.touched_bytes < least)
            least = (uint64_t)d.touched_bytes;
    }
    return least != UINT64_MAX && r->run.machine.temp_mib > 0 ? 2 * least : 0;
}

static void sum_needs(const struct atsi_plan_report *r, uint32_t ctx_max,
                      struct atsi_plan_memory *m)
{
    const struct atsi_items *it = r->run.items;
    *m = (struct atsi_plan_memory){.vram = atsi_sim_vram(&r->run),
                                   .ram = r->run.ram_bytes,
                                   .least_slots = least_slots(r),
                                   .ctx_max = ctx_max};
    for (uint32_t i = 0; i < it->n; i++) {
        uint64_t bytes = resident(r, i, ctx_max);
        bool cache = atsi_plan_is_cache(&it->work[i]);
        *(cache ? &m->cache : &m->all_weights) += bytes;
        if (it->items[i].pinned == ATSI_DEVICE_ACCEL)
            *(cache ? &m->pinned_caches : &m->pinned_weights) += bytes;
        else if (it->items[i].pinned == ATSI_DEVICE_HOST)
            *(cache ? &m->host_caches : &m->host_weights) += bytes;
    }
}

static uint64_t over(uint64_t need, uint64_t have)
{
    return need > have ? need - have : 0;
}

/* What must be on the accelerator, what is left for the host when that is full, and what would do.
 */
static void find_missing(struct atsi_plan_memory *m)
{
    uint64_t total = m->all_weights + m->cache + m->least_slots;
    uint64_t there = m->pinned_weights + m->pinned_caches + m->least_slots;
    uint64_t here = m->host_weights + m->host_caches, spill = over(total, m->vram), more;
    m->missing_vram = over(there, m->vram);
    m->missing_ram = m->ram != 0 ? over(spill > here ? spill : here, m->ram) : 0;
    m->enough_vram = m->enough_ram = 0;
    more = m->ram != 0 ? over(spill, m->ram) : 0;
    if (m->ram == 0 || here <= m->ram)
        m->enough_vram = m->vram + (more > m->missing_vram ? more : m->missing_vram);
    if (m->missing_vram == 0 && m->ram != 0)
        m->enough_ram = m->ram + m->missing_ram;
}

static bool fits(const struct atsi_plan_report *r, uint32_t ctx_max)
{
    struct atsi_plan_memory m;
    sum_needs(r, ctx_max, &m);
    find_missing(&m);
    return m.missing_vram == 0 && m.missing_ram == 0;
}

/* The most positions with which it fits; needs grow with them. */
static uint32_t largest_ctx(const struct atsi_plan_report *r, uint32_t ctx_max)
{
    uint32_t lo = 0, hi = ctx_max; /* fits(hi) is false */
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (fits(r, mid))
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

int atsi_plan_needs(struct atsi_plan_report *r)
{
    struct atsi_plan_memory *m = &r->summary.memory;
    sum_needs(r, (uint32_t)r->run.machine.ctx_max, m);
    find_missing(m);
    r->run.pinned_bytes = m->pinned_weights + m->pinned_caches;
    m->slots = atsi_sim_slot_memory(&r->run);
    if (m->missing_vram == 0 && m->missing_ram == 0)
        return ATSI_OK;
    m->fits_ctx = largest_ctx(r, m->ctx_max);
    if (m->missing_vram != 0)
        return atsi_fail(r->run.err, ATSI_ENOFIT,
                         "does not fit: the accelerator must hold %.1f MiB (pinned weights %.1f, "
                         "pinned caches %.1f, two slots %.1f), its budget is %.1f MiB",
                         (double)(r->run.pinned_bytes + m->least_slots) / MIB,
                         (double)m->pinned_weights / MIB, (double)m->pinned_caches / MIB,
                         (double)m->least_slots / MIB, (double)m->vram / MIB);
    return atsi_fail(r->run.err, ATSI_ENOFIT,
                     "does not fit: weights %.1f MiB and caches %.1f MiB; the accelerator's budget "
                     "is %.1f MiB, the host's %.1f MiB: %.1f MiB too few",
                     (double)m->all_weights / MIB, (double)m->cache / MIB, (double)m->vram / MIB,
                     (double)m->ram / MIB, (double)m->missing_ram / MIB);
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
        bool cache = atsi_plan_is_cache(&it->work[i]), there = placed[i] == ATSI_DEVICE_ACCEL;
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
