/* SPDX-License-Identifier: Apache-2.0
 * The tables of cpu_amx, for the kernel checker. */
#ifndef AMX_TABLES_H
#define AMX_TABLES_H

#include "../../plugins/cpu_common/cpu_kernels.h"

void amx_emulated_kernels(const struct atsi_host *host, struct cpu_kernels *out);
void amx_kernels(const struct atsi_host *host, struct cpu_kernels *out);

#endif
