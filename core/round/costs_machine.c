/* SPDX-License-Identifier: Apache-2.0
 *
 * A table as a roofline, for reports that speak of bandwidths and for what a table of one model
 * cannot price.  Rates are those of all products together: sums of bytes or operations over sums of
 * times.
 */
#include "core/round/costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE_MIB 1024.0 /* of the accelerator's memory, for others */
#define TEMP_MIB 512.0     /* for temporary slots, but no more than an eighth */

struct sums {
    double bytes, bytes_ns, flops[ATSI_N_RATES], flops_ns[ATSI_N_RATES];
    uint64_t least_ns;
};

static void add_op(const struct atsi_cost_op *op, uint32_t chunk, struct sums *s)
{
    const uint64_t *d = op->shape.dims;
    uint32_t rate = atsi_machine_rate(op->shape.type);
    uint64_t one = atsi_cost_op_ns(op, 1, 0, false);
    if (s->least_ns == 0 || one < s->least_ns)
        s->least_ns = one;
    if (op->shape.kind != ATSI_OP_MATMUL)
        return;
    s->bytes += (double)atsi_row_bytes(op->shape.type, d[0]) * (double)d[1];
    s->bytes_ns += (double)one;
    if (d[3] != 0)
        return; /* rows of logits come one by one */
    s->flops[rate] += 2.0 * (double)d[0] * (double)d[1] * chunk;
    s->flops_ns[rate] += (double)atsi_cost_op_ns(op, chunk, 0, false);
}

static double ratio(double a, double b, double otherwise)
{
    return a > 0 && b > 0 ? a / b : otherwise;
}

/* Of a format the model has nothing of: the rate of all. */
static void rates(const struct sums *s, double unit, double out[ATSI_N_RATES])
{
    double flops = 0, time = 0;
    for (int k = 0; k < ATSI_N_RATES; k++) {
        flops += s->flops[k];
        time += s->flops_ns[k];
    }
    for (int k = 0; k < ATSI_N_RATES; k++)
        out[k] = ratio(s->flops[k], s->flops_ns[k], ratio(flops, time, 1)) / unit;
}

/* Fixed cost in us and GB/s of a channel, from its first and last points. */
static void channel(const struct atsi_costs *c, enum atsi_cost_channel k, double *us, double *gbs)
{
    uint32_t n = c->n_copies[k];
    const struct atsi_cost_copy *a = &c->copies[k][0], *b = &c->copies[k][n > 0 ? n - 1 : 0];
    double slope = n > 1 && b->ns > a->ns ? (double)(b->bytes - a->bytes) / (double)(b->ns - a->ns)
                                          : ratio((double)b->bytes, (double)b->ns, 1);
    *gbs = slope;
    *us = n > 0 ? fmax((double)a->ns - (double)a->bytes / slope, 0) / 1000.0 : 0;
}

static void accelerator(const struct atsi_costs *c, const struct sums *s, struct atsi_machine *out)
{
    double none;
    out->vram_mib = (double)(c->mem_bytes[ATSI_DEVICE_ACCEL] >> 20);
    out->reserve_mib = fmin(RESERVE_MIB, floor(out->vram_mib / 8));
    out->temp_mib = fmin(TEMP_MIB, floor(out->vram_mib / 8));
    out->gpu_gbs = ratio(s->bytes, s->bytes_ns, 1);
    rates(s, 1000.0, out->gpu_tflops);
    channel(c, ATSI_COPY_PINNED, &out->xfer_us, &out->pcie_gbs);
    channel(c, ATSI_COPY_PAGEABLE, &none, &out->base_copy_gbs);
    channel(c, ATSI_COPY_TO_ACCEL, &out->cg_us, &out->ck_gbs);
    channel(c, ATSI_COPY_TO_HOST, &out->gc_us, &none);
    out->cg_base_us = out->cg_us + (double)c->sync_ns[ATSI_DEVICE_ACCEL] / 1000.0;
    out->gc_base_us = out->gc_us + (double)c->sync_ns[ATSI_DEVICE_ACCEL] / 1000.0;
    out->evt_us = (double)c->split_ns / 1000.0;
    out->rlat_us = (double)atsi_costs_copy_ns(c, ATSI_COPY_TO_HOST, 64) / 1000.0;
}

void atsi_costs_machine(const struct atsi_costs *c, struct atsi_machine *out)
{
    const struct atsi_cost_memory *m = &c->memory;
    const char *cpu = atsi_costs_key(c, "cpu"), *end = strstr(cpu, ", capabilities");
    size_t named = end != NULL ? (size_t)(end - cpu) : strlen(cpu);
    struct sums s[ATSI_N_DEVICES] = {{.bytes = 0}, {.bytes = 0}};
    *out = (struct atsi_machine){.gpu_moe_eff = 1, .chunk = c->chunk};
    (void)snprintf(out->name, sizeof out->name, "%.*s, measured", (int)(named < 70 ? named : 70),
                   cpu);
    for (uint32_t i = 0; i < c->n_ops; i++)
        add_op(&c->ops[i], c->chunk, &s[c->ops[i].device]);
    out->cpu_gbs = ratio(s[0].bytes, s[0].bytes_ns, 1);
    out->cpu_gbs_sustained = out->cpu_gbs;
    out->dram_gbs = fmax(m->cpu_together + m->copy_together, fmax(m->cpu_alone, m->copy_alone));
    if (!(out->dram_gbs > 0))
        out->dram_gbs = out->cpu_gbs;
    rates(&s[0], 1.0, out->cpu_gflops);
    out->cpu_op_us = (double)s[0].least_ns / 1000.0;
    out->ctx_max = strtod(atsi_costs_key(c, "ctx"), NULL);
    if (!(out->ctx_max >= 1))
        out->ctx_max = 4096;
    if (atsi_costs_has_accel(c)) {
        accelerator(c, &s[1], out);
        return;
    }
    /* Nothing can be placed on an accelerator without memory; rates keep formulas finite. */
    out->gpu_gbs = out->pcie_gbs = out->ck_gbs = out->cpu_gbs;
    for (int k = 0; k < ATSI_N_RATES; k++)
        out->gpu_tflops[k] = out->cpu_gflops[k] / 1000.0;
}
