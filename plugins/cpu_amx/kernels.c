/* SPDX-License-Identifier: Apache-2.0
 *
 * The table: that of cpu_avx512, overlaid with products by tiles.
 */
#include "kernels.h"

#include <stdio.h>

void cpu_avx512_kernels(const struct atsi_host *host, struct cpu_kernels *out);

void cpu_amx_kernels(const struct atsi_host *host, struct cpu_kernels *out)
{
    cpu_avx512_kernels(host, out);
    out->isa = "amx";
    (void)snprintf(out->detail, sizeof out->detail, "AMX int8 for prefill, else VNNI");
    fill_panel_k_amx(out);
}
