/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel files of this plugin offer to its table (kernels.c).  The contracts of the
 * functions are those of the slots in plugins/cpu_common/cpu_kernels.h.
 */
#ifndef ATSI_CPU_AVX512_KERNELS_H
#define ATSI_CPU_AVX512_KERNELS_H

#include "../cpu_common/cpu_kernels.h"

/* kernels.c */
void cpu_avx512_kernels(const struct atsi_host *host, struct cpu_kernels *out);

/* act.c */
void quant_32_avx512(const float *x, struct cpu_act *act, uint32_t t);
void quant_256_avx512(const float *x, struct cpu_act *act, uint32_t t);
void store_q8_0_avx512(const float *x, void *y, size_t n);

/* Each fills the slots of its weight types, the _32 and _k ones in both layouts; the _vnni twins
 * need ATSI_CPU_AVX512VNNI. */
void fill_gemm_f_avx512(struct cpu_kernels *out);
void fill_panel_f_avx512(struct cpu_kernels *out);
void fill_gemm_32_avx512(struct cpu_kernels *out);
void fill_gemm_32_avx512_vnni(struct cpu_kernels *out);
void fill_gemm_k_avx512(struct cpu_kernels *out);
void fill_gemm_k_avx512_vnni(struct cpu_kernels *out);
void fill_dequant_avx512(struct cpu_kernels *out);

/* ops.c */
void rms_norm_avx512(const float *x, const float *w, float *y, uint32_t n, float eps);
void l2_norm_avx512(const float *x, float *y, uint32_t n, float eps);
void rope_avx512(const float *x, const float *cs, float *y, uint32_t n_head, uint32_t head_dim,
                 uint32_t n_rot, uint32_t mode);
void swiglu_avx512(const float *gate, const float *up, float *y, size_t n);
void swiglu_clamped_avx512(const float *gate, const float *up, float *y, size_t n, float alpha,
                           float limit);
void gate_avx512(const float *x, const float *g, float *y, size_t n);
void add_avx512(const float *a, const float *b, float *y, size_t n);
void axpy_avx512(float s, const float *x, float *y, size_t n);
void store_f16_avx512(const float *x, uint16_t *y, size_t n);
void topk_avx512(const float *logits, uint32_t n, uint32_t k, uint32_t gating, int32_t *ids,
                 float *w);

/* attn.c */
void attn_avx512(const struct cpu_attn_tile *t);

/* conv.c */
void conv_avx512(const struct cpu_conv_args *a);

/* delta.c */
void delta_avx512(const struct cpu_delta_args *a);

#endif
