/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of this instruction set: the reference, overlaid with what is faster here.  TOPK stays
 * the reference: its few hundred logits per token do not show beside the experts' weights.
 * Products on panels use VNNI where the CPU has it; with and without, they give the same bits, and
 * those of weights in rows.
 */
#include "kernels.h"

#include <stdio.h>

static void fill_products(struct cpu_kernels *k)
{
    k->gemm[ATSI_TYPE_F32] = gemm_f32_avx2;
    k->gemm[ATSI_TYPE_F16] = gemm_f16_avx2;
    k->gemm[ATSI_TYPE_BF16] = gemm_bf16_avx2;
    k->gemm[ATSI_TYPE_Q4_0] = gemm_q4_0_avx2;
    k->gemm[ATSI_TYPE_Q4_1] = gemm_q4_1_avx2;
    k->gemm[ATSI_TYPE_Q5_0] = gemm_q5_0_avx2;
    k->gemm[ATSI_TYPE_Q5_1] = gemm_q5_1_avx2;
    k->gemm[ATSI_TYPE_Q8_0] = gemm_q8_0_avx2;
    k->gemm[ATSI_TYPE_IQ4_NL] = gemm_iq4_nl_avx2;
    k->gemm[ATSI_TYPE_MXFP4] = gemm_mxfp4_avx2;
    k->gemm[ATSI_TYPE_Q2_K] = gemm_q2_k_avx2;
    k->gemm[ATSI_TYPE_Q3_K] = gemm_q3_k_avx2;
    k->gemm[ATSI_TYPE_Q4_K] = gemm_q4_k_avx2;
    k->gemm[ATSI_TYPE_Q5_K] = gemm_q5_k_avx2;
    k->gemm[ATSI_TYPE_Q6_K] = gemm_q6_k_avx2;
    k->gemm[ATSI_TYPE_IQ4_XS] = gemm_iq4_xs_avx2;
}

static void fill_panels(bool vnni, struct cpu_kernels *k)
{
    fill_panel_f_avx2(k);
    if (vnni) {
        fill_panel_32_avx2_vnni(k);
        fill_panel_k_avx2_vnni(k);
    } else {
        fill_panel_32_avx2(k);
        fill_panel_k_avx2(k);
    }
}

static void fill_dequant(struct cpu_kernels *k)
{
    k->dequant[ATSI_TYPE_F16] = dequant_f16_avx2;
    k->dequant[ATSI_TYPE_BF16] = dequant_bf16_avx2;
    k->dequant[ATSI_TYPE_Q4_0] = dequant_q4_0_avx2;
    k->dequant[ATSI_TYPE_Q4_1] = dequant_q4_1_avx2;
    k->dequant[ATSI_TYPE_Q5_0] = dequant_q5_0_avx2;
    k->dequant[ATSI_TYPE_Q5_1] = dequant_q5_1_avx2;
    k->dequant[ATSI_TYPE_Q8_0] = dequant_q8_0_avx2;
    k->dequant[ATSI_TYPE_IQ4_NL] = dequant_iq4_nl_avx2;
    k->dequant[ATSI_TYPE_MXFP4] = dequant_mxfp4_avx2;
    k->dequant[ATSI_TYPE_Q2_K] = dequant_q2_k_avx2;
    k->dequant[ATSI_TYPE_Q3_K] = dequant_q3_k_avx2;
    k->dequant[ATSI_TYPE_Q4_K] = dequant_q4_k_avx2;
    k->dequant[ATSI_TYPE_Q5_K] = dequant_q5_k_avx2;
    k->dequant[ATSI_TYPE_Q6_K] = dequant_q6_k_avx2;
    k->dequant[ATSI_TYPE_IQ4_XS] = dequant_iq4_xs_avx2;
}

void cpu_avx2_kernels(const struct atsi_host *host, struct cpu_kernels *out)
{
    const bool vnni = (host->cpu_caps & ATSI_CPU_AVX_VNNI) != 0;
    cpu_ref_kernels(out);
    out->isa = "avx2";
    (void)snprintf(out->detail, sizeof out->detail, "FMA F16C%s",
                   vnni ? ", VNNI for packed weights" : "");
    out->quant_32 = quant_32_avx2;
    out->quant_256 = quant_256_avx2;
    fill_products(out);
    fill_panels(vnni, out);
    fill_dequant(out);
    out->rms_norm = rms_norm_avx2;
    out->rope = rope_avx2;
    out->l2_norm = l2_norm_avx2;
    out->swiglu = swiglu_avx2;
    out->swiglu_clamped = swiglu_clamped_avx2;
    out->gate = gate_avx2;
    out->add = add_avx2;
    out->axpy = axpy_avx2;
    out->store_f16 = store_f16_avx2;
    out->store_q8_0 = store_q8_0_avx2;
    out->attn = attn_avx2;
    out->conv = conv_avx2;
    out->delta = delta_avx2;
}
