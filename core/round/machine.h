/* SPDX-License-Identifier: Apache-2.0
 *
 * A machine as a roofline: bandwidths, rates and fixed costs, from which the time of every item
 * follows.  Used where nothing was measured: by the simulator and by plans for other machines.
 * Section [machine] (or [platform]) of an ini file; docs/scheduling.md describes the keys.
 */
#ifndef ATSI_CORE_ROUND_MACHINE_H
#define ATSI_CORE_ROUND_MACHINE_H

#include "core/round/items.h"

/* Weight formats that differ in arithmetic rate. */
enum { ATSI_RATE_QUANT = 0, ATSI_RATE_FLOAT, ATSI_RATE_MXFP4, ATSI_N_RATES };

/* GB/s are 10^9 bytes per second, which is bytes per nanosecond. */
struct atsi_machine {
    char name[96];
    double vram_mib, reserve_mib, temp_mib;
    double cpu_gbs, cpu_gbs_sustained, dram_gbs, cpu_gflops[ATSI_N_RATES], cpu_op_us;
    double gpu_gbs, gpu_tflops[ATSI_N_RATES], gpu_moe_eff, gpu_op_us;
    double pcie_gbs, base_copy_gbs, xfer_us, ck_gbs;
    double cg_us, gc_us, cg_base_us, gc_base_us; /* _base: blocking switches */
    double evt_us, rlat_us, gap_us;
    double chunk, ctx_max;
};

int atsi_machine_read(const char *path, struct atsi_machine *out, struct atsi_err *err);

/* One phase under which conditions. */
struct atsi_conditions {
    uint32_t tokens, ctx, ctx_max;
    bool sustained;                       /* the CPU's bandwidth when it is warm */
    bool contention;                      /* transfers and CPU reads share the DRAM */
    bool blocking;                        /* switches with device synchronisation */
    double load_cpu, load_gpu, load_pcie; /* slowdown factors, 1: none */
};

/* cpu, gpu: [it->n].  gpu[i].transfer_ns is set for items that may be promoted at all. */
void atsi_machine_costs(const struct atsi_machine *m, const struct atsi_items *it,
                        const struct atsi_conditions *c, struct atsi_item_cost *cpu,
                        struct atsi_item_cost *gpu);
/* Which of the rates a weight type is computed at. */
uint32_t atsi_machine_rate(uint32_t type);
/* So many bytes of logits to the host: a launch, and they. */
uint64_t atsi_machine_result_ns(const struct atsi_machine *m, uint64_t bytes, bool blocking);

#endif
