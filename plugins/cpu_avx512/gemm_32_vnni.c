/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL MXFP4 weights, with vpdpbusd.
 */
#include "gemm_32.h"
#include "kernels.h"

void fill_gemm_32_avx512_vnni(cpu_gemm_fn *gemm[])
{
    fill_gemm_32(gemm);
}
