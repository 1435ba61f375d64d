/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of this instruction set: the reference, overlaid with what is faster here.  Products
 * use VNNI where the CPU has it; with and without, they give the same bits.
 */
#include "kernels.h"

#include <stdio.h>

static void fill_products(int vnni, struct cpu_kernels *k)
{
    fill_gemm_f_avx512(k);
    fill_panel_f_avx512(k);
    if (vnni) {
        fill_gemm_32_avx512_vnni(k);
        fill_gemm_k_avx512_vnni(k);
    } else {
        fill_gemm_32_avx512(k);
        fill_gemm_k_avx512(k);
    }
}

void cpu_avx512_kernels(const struct atsi_host *host, struct cpu_kernels *out)
{
    const int vnni = (host->cpu_caps & ATSI_CPU_AVX512VNNI) != 0;
    cpu_ref_kernels(out);
    out->isa = "avx512";
    (void)snprintf(out->detail, sizeof out->detail, vnni ? "VNNI" : "no VNNI");
    out->quant_32 = quant_32_avx512;
    out->quant_256 = quant_256_avx512;
    fill_products(vnni, out);
    fill_dequant_avx512(out);
    out->rms_norm = rms_norm_avx512;
    out->rope = rope_avx512;
    out->l2_norm = l2_norm_avx512;
    out->swiglu = swiglu_avx512;
    out->swiglu_clamped = swiglu_clamped_avx512;
    out->gate = gate_avx512;
    out->add = add_avx512;
    out->axpy = axpy_avx512;
    out->store_f16 = store_f16_avx512;
    out->store_q8_0 = store_q8_0_avx512;
    out->attn = attn_avx512;
    out->conv = conv_avx512;
    out->delta = delta_avx512;
    out->topk = topk_avx512;
}
