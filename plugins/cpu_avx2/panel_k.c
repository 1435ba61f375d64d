/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS weights in panels, without VNNI.
 */
#include "panel_k.h"
#include "kernels.h"

void fill_panel_k_avx2(struct cpu_kernels *out)
{
    fill_panel_k(out->gemm_panel);
}
