/* SPDX-License-Identifier: Apache-2.0
 * What the files of this plugin offer to its table. */
#ifndef ATSI_CPU_AMX_KERNELS_H
#define ATSI_CPU_AMX_KERNELS_H

#include "../cpu_common/cpu_kernels.h"

/* kernels.c */
void cpu_amx_kernels(const struct atsi_host *host, struct cpu_kernels *out);

/* panel_k.c: Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS in panels. */
void fill_panel_k_amx(struct cpu_kernels *out);

#endif
