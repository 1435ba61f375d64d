/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of this folder, by file.  Contracts: ../cpu_common/cpu_kernels.h.
 */
#ifndef CPU_AVX2_KERNELS_H
#define CPU_AVX2_KERNELS_H

#include "../cpu_common/cpu_kernels.h"

void cpu_avx2_kernels(const struct atsi_host *host, struct cpu_kernels *out);

/* act.c */
void quant_32_avx2(const float *x, struct cpu_act *act, uint32_t t);
void quant_256_avx2(const float *x, struct cpu_act *act, uint32_t t);
void store_q8_0_avx2(const float *x, void *y, size_t n);

/* gemm_f.c, gemm_32.c, gemm_k.c */
cpu_gemm_fn gemm_f32_avx2, gemm_f16_avx2, gemm_bf16_avx2;
cpu_gemm_fn gemm_q4_0_avx2, gemm_q4_1_avx2, gemm_q5_0_avx2, gemm_q5_1_avx2, gemm_q8_0_avx2,
    gemm_iq4_nl_avx2, gemm_mxfp4_avx2;
cpu_gemm_fn gemm_q2_k_avx2, gemm_q3_k_avx2, gemm_q4_k_avx2, gemm_q5_k_avx2, gemm_q6_k_avx2,
    gemm_iq4_xs_avx2;

/* Products on panels; each fills the slots of its weight types.  The _vnni twins need
 * ATSI_CPU_AVX_VNNI. */
void fill_panel_f_avx2(struct cpu_kernels *out);
void fill_panel_32_avx2(struct cpu_kernels *out);
void fill_panel_32_avx2_vnni(struct cpu_kernels *out);
void fill_panel_k_avx2(struct cpu_kernels *out);
void fill_panel_k_avx2_vnni(struct cpu_kernels *out);

/* dequant.c */
void dequant_f16_avx2(const void *w, float *y, uint32_t k);
void dequant_bf16_avx2(const void *w, float *y, uint32_t k);
void dequant_q4_0_avx2(const void *w, float *y, uint32_t k);
void dequant_q4_1_avx2(const void *w, float *y, uint32_t k);
void dequant_q5_0_avx2(const void *w, float *y, uint32_t k);
void dequant_q5_1_avx2(const void *w, float *y, uint32_t k);
void dequant_q8_0_avx2(const void *w, float *y, uint32_t k);
void dequant_iq4_nl_avx2(const void *w, float *y, uint32_t k);
void dequant_mxfp4_avx2(const void *w, float *y, uint32_t k);
void dequant_q2_k_avx2(const void *w, float *y, uint32_t k);
void dequant_q3_k_avx2(const void *w, float *y, uint32_t k);
void dequant_q4_k_avx2(const void *w, float *y, uint32_t k);
void dequant_q5_k_avx2(const void *w, float *y, uint32_t k);
void dequant_q6_k_avx2(const void *w, float *y, uint32_t k);
void dequant_iq4_xs_avx2(const void *w, float *y, uint32_t k);

/* ops.c */
void rms_norm_avx2(const float *x, const float *w, float *y, uint32_t n, float eps);
void l2_norm_avx2(const float *x, float *y, uint32_t n, float eps);
void rope_avx2(const float *x, const float *cs, float *y, uint32_t n_head, uint32_t head_dim,
               uint32_t n_rot, uint32_t mode);
void swiglu_avx2(const float *gate, const float *up, float *y, size_t n);
void swiglu_clamped_avx2(const float *gate, const float *up, float *y, size_t n, float alpha,
                         float limit);
void gate_avx2(const float *x, const float *g, float *y, size_t n);
void add_avx2(const float *a, const float *b, float *y, size_t n);
void axpy_avx2(float s, const float *x, float *y, size_t n);
void store_f16_avx2(const float *x, uint16_t *y, size_t n);

/* attn.c */
void attn_avx2(const struct cpu_attn_tile *t);

/* conv.c */
void conv_avx2(const struct cpu_conv_args *a);

/* delta.c */
void delta_avx2(const struct cpu_delta_args *a);

#endif
