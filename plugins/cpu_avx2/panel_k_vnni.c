/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS weights in panels, with vpdpbusd.
 */
#include "kernels.h"
#include "panel_k.h"

void fill_panel_k_avx2_vnni(struct cpu_kernels *out)
{
    fill_panel_k(out->gemm_panel);
}
