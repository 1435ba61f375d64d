/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL MXFP4 weights in panels, with vpdpbusd.
 */
#include "kernels.h"
#include "panel_32.h"

void fill_panel_32_avx2_vnni(struct cpu_kernels *out)
{
    fill_panel_32(out->gemm_panel);
}
