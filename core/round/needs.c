/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of needs against budgets: what must be on the accelerator, what is left for the host when
 * that is full, and how much more of one of them, or how short a context, would do.
 */
#include "core/round/needs.h"

#define MIB 1048576.0

bool atsi_work_is_cache(const struct atsi_work *w)
{
    return w->kind == ATSI_WORK_ATTENTION || w->kind == ATSI_WORK_RECURRENT;
}

static uint64_t resident(const struct atsi_items *it, uint32_t i, uint32_t ctx_max)
{
    struct atsi_demand d;
    atsi_work_demand(&it->work[i], 1, 0, ctx_max, &d); /* what is resident depends on ctx_max */
    return (uint64_t)d.resident_bytes;
}

/* Two slots of the smallest weight that may be streamed; none without temporary memory. */
static uint64_t least_slots(const struct atsi_items *it, bool slots)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < it->n; i++) {
        struct atsi_demand d;
        atsi_work_demand(&it->work[i], 1, 0, 1, &d);
        if (it->items[i].can_promote != 0 && d.touched_bytes >= 1 &&
            (uint64_t)d.touched_bytes < least)
            least = (uint64_t)d.touched_bytes;
    }
    return least != UINT64_MAX && slots ? 2 * least : 0;
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

void atsi_needs_sum(const struct atsi_items *it, const struct atsi_needs_params *p,
                    struct atsi_plan_memory *m)
{
    *m = (struct atsi_plan_memory){.vram = p->vram,
                                   .ram = p->ram,
                                   .least_slots = least_slots(it, p->slots),
                                   .ctx_max = p->ctx_max};
    for (uint32_t i = 0; i < it->n; i++) {
        uint64_t bytes = resident(it, i, p->ctx_max);
        bool cache = atsi_work_is_cache(&it->work[i]);
        *(cache ? &m->cache : &m->all_weights) += bytes;
        if (it->items[i].pinned == 1)
            *(cache ? &m->pinned_caches : &m->pinned_weights) += bytes;
        else if (it->items[i].pinned == 0)
            *(cache ? &m->host_caches : &m->host_weights) += bytes;
    }
    find_missing(m);
}

static bool fits(const struct atsi_items *it, struct atsi_needs_params p, uint32_t ctx_max)
{
    struct atsi_plan_memory m;
    p.ctx_max = ctx_max;
    atsi_needs_sum(it, &p, &m);
    return m.missing_vram == 0 && m.missing_ram == 0;
}

/* The most positions with which it fits; needs grow with them. */
static uint32_t largest_ctx(const struct atsi_items *it, const struct atsi_needs_params *p)
{
    uint32_t lo = 0, hi = p->ctx_max; /* fits(hi) is false */
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (fits(it, *p, mid))
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

int atsi_needs_judge(const struct atsi_items *it, const struct atsi_needs_params *p,
                     struct atsi_plan_memory *m, struct atsi_err *err)
{
    if (m->missing_vram == 0 && m->missing_ram == 0)
        return ATSI_OK;
    m->fits_ctx = largest_ctx(it, p);
    if (m->missing_vram != 0)
        return atsi_fail(err, ATSI_ENOFIT,
                         "does not fit: the accelerator must hold %.1f MiB (pinned weights %.1f, "
                         "pinned caches %.1f, two slots %.1f), its budget is %.1f MiB",
                         (double)(m->pinned_weights + m->pinned_caches + m->least_slots) / MIB,
                         (double)m->pinned_weights / MIB, (double)m->pinned_caches / MIB,
                         (double)m->least_slots / MIB, (double)m->vram / MIB);
    return atsi_fail(err, ATSI_ENOFIT,
                     "does not fit: weights %.1f MiB and caches %.1f MiB; the accelerator's budget "
                     "is %.1f MiB, the host's %.1f MiB: %.1f MiB too few",
                     (double)m->all_weights / MIB, (double)m->cache / MIB, (double)m->vram / MIB,
                     (double)m->ram / MIB, (double)m->missing_ram / MIB);
}
