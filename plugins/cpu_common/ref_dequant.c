/* SPDX-License-Identifier: Apache-2.0
 * Reference dequantization of one row, from the same decoded blocks that products use. */
#include "ref.h"
#include "ref_block.h"

static void dequant_blocks(uint32_t type, const void *w, float *y, uint32_t k)
{
    ref_decode_fn *decode = ref_decoder(type);
    const struct atsi_type_info *ti = atsi_type_info(type);
    struct ref_block b;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t e = i % ti->block_elems, g;
        if (e == 0)
            decode((const unsigned char *)w + (size_t)(i / ti->block_elems) * ti->block_bytes, &b);
        g = e / b.sub;
        y[i] = b.d * (float)b.sc[g] * (float)b.q[e] - b.dmin * (float)b.mn[g];
    }
}

static void dequant_f32_ref(const void *w, float *y, uint32_t k)
{
    memcpy(y, w, (size_t)k * sizeof *y);
}

static void dequant_f16_ref(const void *w, float *y, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++)
        y[i] = atsi_f16_to_f32(((const uint16_t *)w)[i]);
}

static void dequant_bf16_ref(const void *w, float *y, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++)
        y[i] = atsi_bf16_to_f32(((const uint16_t *)w)[i]);
}

static void dequant_q4_0_ref(const void *w, float *y, uint32_t k)
{
    dequant_blocks(ATSI_TYPE_Q4_0, w, y, k);
}

static void dequant_q4_1_ref(const void *w, float *y, uint32_t k)
{
    dequant_blocks(ATSI_TYPE_Q4_1, w, y, k);
}

static void dequant_q5_0_ref(const void *w, float *y, uint32_t k)
{
    dequant_blocks(ATSI_TYPE_Q5_0, w, y, k);
}

static void dequant_q5_1_ref(const void *w, float *y, uint32_t k)
{
    dequant_blocks(ATSI_TYPE_Q5_1, w, y, k);
}

static void dequant_q8_0_ref(const void *w, float *y, uint32_t k)
{
    dequant_blocks(ATSI_TYPE_Q8_0, w, y, k);
}

static void dequant_q2_k_ref(const void *w, float *y, uint32_t k)
{
    dequant_blocks(ATSI_TYPE_Q2_K, w, y, k);
}

static void dequant_q3_k_ref(const void *w, float *y, uint32_t k)
{
    dequant_blocks(ATSI_TYPE_Q3_K, w, y, k);
}

static void dequant_q4_k_ref(const void *w, float *y, uint32_t k)
{
    dequant_blocks(ATSI_TYPE_Q4_K, w, y, k);
}

static void dequant_q5_k_ref(const void *w, float *y, uint32_t k)
{
    dequant_blocks(ATSI_TYPE_Q5_K, w, y, k);
}

static void dequant_q6_k_ref(const void *w, float *y, uint32_t k)
{
    dequant_blocks(ATSI_TYPE_Q6_K, w, y, k);
}

static void dequant_iq4_nl_ref(const void *w, float *y, uint32_t k)
{
    dequant_blocks(ATSI_TYPE_IQ4_NL, w, y, k);
}

static void dequant_iq4_xs_ref(const void *w, float *y, uint32_t k)
{
    dequant_blocks(ATSI_TYPE_IQ4_XS, w, y, k);
}

static void dequant_mxfp4_ref(const void *w, float *y, uint32_t k)
{
    dequant_blocks(ATSI_TYPE_MXFP4, w, y, k);
}

void ref_dequant_fill(struct cpu_kernels *k)
{
    k->dequant[ATSI_TYPE_F32] = dequant_f32_ref;
    k->dequant[ATSI_TYPE_F16] = dequant_f16_ref;
    k->dequant[ATSI_TYPE_BF16] = dequant_bf16_ref;
    k->dequant[ATSI_TYPE_Q4_0] = dequant_q4_0_ref;
    k->dequant[ATSI_TYPE_Q4_1] = dequant_q4_1_ref;
    k->dequant[ATSI_TYPE_Q5_0] = dequant_q5_0_ref;
    k->dequant[ATSI_TYPE_Q5_1] = dequant_q5_1_ref;
    k->dequant[ATSI_TYPE_Q8_0] = dequant_q8_0_ref;
    k->dequant[ATSI_TYPE_Q2_K] = dequant_q2_k_ref;
    k->dequant[ATSI_TYPE_Q3_K] = dequant_q3_k_ref;
    k->dequant[ATSI_TYPE_Q4_K] = dequant_q4_k_ref;
    k->dequant[ATSI_TYPE_Q5_K] = dequant_q5_k_ref;
    k->dequant[ATSI_TYPE_Q6_K] = dequant_q6_k_ref;
    k->dequant[ATSI_TYPE_IQ4_NL] = dequant_iq4_nl_ref;
    k->dequant[ATSI_TYPE_IQ4_XS] = dequant_iq4_xs_ref;
    k->dequant[ATSI_TYPE_MXFP4] = dequant_mxfp4_ref;
}
