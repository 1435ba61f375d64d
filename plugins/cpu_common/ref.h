/* SPDX-License-Identifier: Apache-2.0
 * The reference kernels' own parts. */
#ifndef CPU_REF_H
#define CPU_REF_H

#include "cpu_kernels.h"

void ref_gemm_fill(struct cpu_kernels *k);
void ref_dequant_fill(struct cpu_kernels *k);
void ref_act_fill(struct cpu_kernels *k);
void ref_ops_fill(struct cpu_kernels *k);
void ref_attn_fill(struct cpu_kernels *k);
void ref_recurrent_fill(struct cpu_kernels *k);

#endif
