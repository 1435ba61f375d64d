/* SPDX-License-Identifier: Apache-2.0
 * The items of a plan report: costs, decisions, reasons; and what limits a round. */
#include "core/round/plan_report.h"

#define MIB 1048576.0

static double density(uint64_t cpu_ns, uint64_t gpu_ns, uint64_t bytes)
{
    double mib = (double)bytes / MIB;
    return mib > 0 ? ((double)cpu_ns - (double)gpu_ns) / 1000.0 / mib : 0.0;
}

static void describe_phase(struct atsi_plan_item *out, const struct atsi_plan_report *r,
                           const struct atsi_question *q, uint32_t f)
{
    uint32_t i = out->index, n = q->items->n;
    struct atsi_conditions c = atsi_sim_conditions(&r->run, f, false);
    const struct atsi_item_cost *cpu = &q->cost[f][i], *gpu = &q->cost[f][n + i];
    struct atsi_demand d;
    atsi_work_demand(&q->items->work[i], c.tokens, c.ctx, c.ctx_max, &d);
    out->touched[f] = (uint64_t)d.touched_bytes;
    out->flops[f] = d.flops;
    out->cpu_ns[f] = cpu->run_ns;
    out->gpu_ns[f] = gpu->run_ns;
    out->transfer_ns[f] = gpu->transfer_ns;
    out->to_gpu_ns[f] = gpu->in_ns;
    out->to_cpu_ns[f] = cpu->in_ns;
    out->slow_cpu[f] = cpu->contended_run;
    out->slow_copy[f] = cpu->contended_copy;
    out->density[f] = density(cpu->run_ns, gpu->run_ns, out->bytes);
    out->slot[f] = out->after[f] = -1;
}

void atsi_plan_describe(struct atsi_plan_report *r, const struct atsi_question *q)
{
    for (uint32_t i = 0; i < q->items->n; i++) {
        const struct atsi_item *item = &q->items->items[i];
        r->items[i] = (struct atsi_plan_item){.struct_size = sizeof r->items[i],
                                              .index = i,
                                              .name = item->name,
                                              .role = item->role,
                                              .layer = item->layer,
                                              .router = item->router,
                                              .n_experts = item->n_experts,
                                              .pinned = item->pinned,
                                              .can_promote = item->can_promote,
                                              .bytes = item->resident_bytes};
        for (uint32_t f = 0; f < 2; f++)
            describe_phase(&r->items[i], r, q, f);
    }
}

/* ---------------------------------------------------------------- decisions */
static bool gains(const struct atsi_plan_item *it)
{
    return it->gpu_ns[ATSI_PHASE_DECODE] < it->cpu_ns[ATSI_PHASE_DECODE] ||
           it->gpu_ns[ATSI_PHASE_PREFILL] < it->cpu_ns[ATSI_PHASE_PREFILL];
}

static uint32_t reason(const struct atsi_plan_item *it, uint64_t left)
{
    if (it->pinned >= 0)
        return ATSI_PLAN_PINNED;
    if (it->device == ATSI_DEVICE_ACCEL)
        return gains(it) ? ATSI_PLAN_GAINS : ATSI_PLAN_BESIDE;
    if (!gains(it))
        return ATSI_PLAN_SLOWER;
    if (it->promoted[0] != 0 || it->promoted[1] != 0)
        return ATSI_PLAN_STREAMED;
    return it->bytes > left ? ATSI_PLAN_NO_ROOM : ATSI_PLAN_CHOSEN;
}

void atsi_plan_decide(struct atsi_plan_report *r)
{
    uint64_t left = r->summary.memory.left, outside = 0;
    for (uint32_t i = 0; i < r->run.items->n; i++) {
        struct atsi_plan_item *it = &r->items[i];
        it->device = r->answer[0]->placed[i];
        for (int f = 0; f < 2; f++) {
            const struct atsi_schedule *s = &r->answer[f]->schedule;
            it->promoted[f] = s->device[i] != it->device;
            it->slot[f] = it->promoted[f] != 0 ? s->slot[i] : -1;
            it->after[f] = it->promoted[f] != 0 ? s->after[i] : -1;
        }
        it->reason = reason(it, left);
        if (it->device == ATSI_DEVICE_HOST && it->pinned < 0 && gains(it))
            outside += it->bytes;
    }
    r->summary.vram_binds = outside > left;
}

/* ---------------------------------------------------------------- limits */
struct traffic {
    uint64_t memory[2], all[2]; /* per device: ns bound by bytes, and in total */
};

/* A round's time of an item is bytes or arithmetic, whatever takes longer, and a fixed part. */
static void weigh(const struct atsi_plan_report *r, uint32_t f, struct traffic *t,
                  struct atsi_plan_phase *out)
{
    const struct atsi_machine *m = &r->run.machine;
    double gbs[2] = {r->run.p->sustained != 0 ? m->cpu_gbs_sustained : m->cpu_gbs, m->gpu_gbs};
    double fixed[2] = {m->cpu_op_us * 1000.0, m->gpu_op_us * 1000.0};
    for (uint32_t i = 0; i < r->run.items->n; i++) {
        const struct atsi_plan_item *it = &r->items[i];
        int side = it->device == ATSI_DEVICE_ACCEL || it->promoted[f] != 0;
        uint64_t ns = side != 0 ? it->gpu_ns[f] : it->cpu_ns[f];
        double bytes_ns = (double)it->touched[f] / gbs[side];
        t->all[side] += ns;
        if ((double)ns <= bytes_ns + fixed[side] + 1.0)
            t->memory[side] += ns;
        if (it->promoted[f] != 0)
            out->moved_bytes += it->touched[f];
        if (it->device == ATSI_DEVICE_HOST) /* a lookup's table too lies there */
            out->dram_bytes += it->touched[f];
    }
}

void atsi_plan_find_limit(const struct atsi_plan_report *r, uint32_t phase,
                          struct atsi_plan_phase *out)
{
    struct traffic t = {.all = {0}};
    uint64_t use[ATSI_PLAN_N_LIMITS] = {0};
    weigh(r, phase, &t, out);
    use[2 * t.memory[0] >= t.all[0] ? ATSI_PLAN_CPU_MEMORY : ATSI_PLAN_CPU_ARITHMETIC] =
        out->busy_ns[0];
    use[2 * t.memory[1] >= t.all[1] ? ATSI_PLAN_GPU_MEMORY : ATSI_PLAN_GPU_ARITHMETIC] =
        out->busy_ns[1];
    use[ATSI_PLAN_LINK] = out->busy_ns[2];
    use[ATSI_PLAN_DRAM] = (uint64_t)((double)out->dram_bytes / r->run.machine.dram_gbs);
    for (uint32_t k = 1; k < ATSI_PLAN_N_LIMITS; k++)
        if (use[k] > use[out->limit])
            out->limit = k;
    if (out->ns > 0 && out->limit != ATSI_PLAN_NOTHING) {
        uint64_t permille = use[out->limit] * 1000 / out->ns;
        out->limit_permille = permille < 1000 ? (uint32_t)permille : 1000;
    }
}
