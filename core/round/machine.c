/* SPDX-License-Identifier: Apache-2.0
 * Times from a roofline with fixed costs: the slower of bytes and operations. */
#include "core/round/machine.h"

#include "core/round/number_file.h"

#include <math.h>

#define NUMBER(NAME, MEMBER, REQUIRED, DEF, MIN, MAX)                                              \
    {                                                                                              \
        .name = (NAME), .offset = offsetof(struct atsi_machine, MEMBER), .required = (REQUIRED),   \
        .def = (DEF), .min = (MIN), .max = (MAX)                                                   \
    }

static const struct atsi_number_key keys[] = {
    {.name = "name", .offset = offsetof(struct atsi_machine, name), .text = true, .required = true},
    NUMBER("vram_mib", vram_mib, true, 0, 0, 1e8),
    NUMBER("reserve_mib", reserve_mib, false, 0, 0, 1e8),
    NUMBER("temp_mib", temp_mib, false, 0, 0, 1e8),
    NUMBER("cpu_gbs", cpu_gbs, true, 0, 0.01, 1e6),
    NUMBER("cpu_gbs_sustained", cpu_gbs_sustained, true, 0, 0.01, 1e6),
    NUMBER("dram_gbs", dram_gbs, true, 0, 0.01, 1e6),
    NUMBER("cpu_gflops_q4", cpu_gflops[ATSI_RATE_QUANT], true, 0, 0.01, 1e9),
    NUMBER("cpu_gflops_fp16", cpu_gflops[ATSI_RATE_FLOAT], true, 0, 0.01, 1e9),
    NUMBER("cpu_gflops_mxfp4", cpu_gflops[ATSI_RATE_MXFP4], true, 0, 0.01, 1e9),
    NUMBER("cpu_op_us", cpu_op_us, false, 0, 0, 1e6),
    NUMBER("gpu_gbs", gpu_gbs, true, 0, 0.01, 1e6),
    NUMBER("gpu_tflops_q4", gpu_tflops[ATSI_RATE_QUANT], true, 0, 0.001, 1e6),
    NUMBER("gpu_tflops_fp16", gpu_tflops[ATSI_RATE_FLOAT], true, 0, 0.001, 1e6),
    NUMBER("gpu_tflops_mxfp4", gpu_tflops[ATSI_RATE_MXFP4], true, 0, 0.001, 1e6),
    NUMBER("gpu_moe_eff", gpu_moe_eff, false, 1, 0.001, 1),
    NUMBER("gpu_op_us", gpu_op_us, false, 0, 0, 1e6),
    NUMBER("pcie_gbs", pcie_gbs, true, 0, 0.01, 1e6),
    NUMBER("base_copy_gbs", base_copy_gbs, false, 0, 0, 1e6),
    NUMBER("xfer_us", xfer_us, false, 0, 0, 1e6),
    NUMBER("ck_gbs", ck_gbs, true, 0, 0.01, 1e6),
    NUMBER("cg_us", cg_us, false, 0, 0, 1e6),
    NUMBER("gc_us", gc_us, false, 0, 0, 1e6),
    NUMBER("cg_base_us", cg_base_us, false, 0, 0, 1e6),
    NUMBER("gc_base_us", gc_base_us, false, 0, 0, 1e6),
    NUMBER("evt_us", evt_us, false, 0, 0, 1e6),
    NUMBER("rlat_us", rlat_us, false, 0, 0, 1e6),
    NUMBER("gap_us", gap_us, false, 0, 0, 1e6),
    NUMBER("chunk", chunk, false, 512, 1, 1e6),
    NUMBER("ctx_max", ctx_max, false, 4096, 1, 1e9),
};

int atsi_machine_read(const char *path, struct atsi_machine *out, struct atsi_err *err)
{
    *out = (struct atsi_machine){.name = ""};
    int rc = atsi_number_file_read(path, "platform", keys, sizeof keys / sizeof keys[0], out, err);
    if (rc == ATSI_OK && out->vram_mib > 0 && out->reserve_mib + out->temp_mib > out->vram_mib)
        rc = atsi_fail(err, ATSI_ECONF,
                       "%s: reserve_mib %.0f and temp_mib %.0f are more than vram_mib %.0f", path,
                       out->reserve_mib, out->temp_mib, out->vram_mib);
    return rc;
}

uint32_t atsi_machine_rate(uint32_t type)
{
    switch (type) {
    case ATSI_TYPE_F32:
    case ATSI_TYPE_F16:
    case ATSI_TYPE_BF16:
        return ATSI_RATE_FLOAT;
    case ATSI_TYPE_MXFP4:
        return ATSI_RATE_MXFP4;
    default:
        return ATSI_RATE_QUANT;
    }
}

/* Attention runs at the rate of the model's weights: that of the first matrix. */
static uint32_t model_rate(const struct atsi_items *it)
{
    for (uint32_t i = 0; i < it->n; i++)
        if (it->work[i].kind == ATSI_WORK_MATRIX && it->items[i].can_promote)
            return atsi_machine_rate(it->work[i].type);
    return ATSI_RATE_QUANT;
}

static uint64_t ns(double t)
{
    return (uint64_t)llround(t);
}

/* Speeds of both when reading what the item reads and a transfer at once ask for more than there
 * is. */
static void contended(const struct atsi_machine *m, const struct atsi_conditions *c,
                      const struct atsi_demand *d, double tc, struct atsi_item_cost *cpu)
{
    double want = d->touched_bytes / fmax(tc, 1.0) + m->pcie_gbs / c->load_pcie;
    double speed = c->contention && want > m->dram_gbs ? m->dram_gbs / want : 1.0;
    cpu->contended_run = cpu->contended_copy = (uint32_t)lround(1000.0 * speed);
}

static bool is_cached(const struct atsi_work *w)
{
    return w->kind == ATSI_WORK_ATTENTION || w->kind == ATSI_WORK_RECURRENT;
}

static void one_cost(const struct atsi_machine *m, const struct atsi_work *w, bool can_promote,
                     uint32_t rate, const struct atsi_conditions *c, struct atsi_item_cost *cpu,
                     struct atsi_item_cost *gpu)
{
    double gbs = c->sustained ? m->cpu_gbs_sustained : m->cpu_gbs, us = 1000.0;
    double gflops = m->gpu_tflops[rate] * 1000.0, tc, tg, copy;
    struct atsi_demand d;
    atsi_work_demand(w, c->tokens, c->ctx, c->ctx_max, &d);
    if (w->kind == ATSI_WORK_EXPERTS && c->tokens > 1)
        gflops *= m->gpu_moe_eff;
    if (is_cached(w))
        gflops *= 0.5;
    tc = fmax(d.touched_bytes / gbs, d.flops / m->cpu_gflops[rate]) + m->cpu_op_us * us;
    tg = fmax(d.touched_bytes / m->gpu_gbs, d.flops / gflops) + m->gpu_op_us * us;
    tc *= c->load_cpu;
    tg *= c->load_gpu;
    copy = d.in_bytes / m->ck_gbs * c->load_pcie;
    *cpu =
        (struct atsi_item_cost){.run_ns = ns(tc),
                                .in_ns = ns(copy + (c->blocking ? m->gc_base_us : m->gc_us) * us),
                                .in_copy_ns = ns(d.in_bytes / m->pcie_gbs)};
    *gpu =
        (struct atsi_item_cost){.run_ns = ns(tg),
                                .in_ns = ns(copy + (c->blocking ? m->cg_base_us : m->cg_us) * us),
                                .in_copy_ns = ns(d.in_bytes / m->pcie_gbs),
                                .contended_run = 1000,
                                .contended_copy = 1000};
    /* Blocking systems copy every weight, and the cache with it, in pageable copies for a prompt.
     */
    if (can_promote || (c->blocking && c->tokens > 1 && is_cached(w)))
        gpu->transfer_ns =
            ns((d.touched_bytes / m->pcie_gbs + m->xfer_us * us) * c->load_pcie *
               (c->blocking && m->base_copy_gbs > 0 ? m->pcie_gbs / m->base_copy_gbs : 1));
    contended(m, c, &d, tc, cpu);
}

void atsi_machine_costs(const struct atsi_machine *m, const struct atsi_items *it,
                        const struct atsi_conditions *c, struct atsi_item_cost *cpu,
                        struct atsi_item_cost *gpu)
{
    uint32_t rate = model_rate(it);
    for (uint32_t i = 0; i < it->n; i++) {
        const struct atsi_work *w = &it->work[i];
        one_cost(m, w, it->items[i].can_promote != 0,
                 w->type == ATSI_TYPE_COUNT ? rate : atsi_machine_rate(w->type), c, &cpu[i],
                 &gpu[i]);
    }
}

uint64_t atsi_machine_result_ns(const struct atsi_machine *m, uint64_t bytes, bool blocking)
{
    return ns((blocking ? m->gc_base_us : m->gc_us) * 1000.0 + (double)bytes / m->ck_gbs);
}
