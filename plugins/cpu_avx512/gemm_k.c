/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS weights for CPUs without VNNI.
 */
#include "gemm_k.h"
#include "kernels.h"
#include "panel_k.h"

void fill_gemm_k_avx512(struct cpu_kernels *out)
{
    fill_gemm_k(out->gemm);
    fill_panel_k(out->gemm_panel);
}
