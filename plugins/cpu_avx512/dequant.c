/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of every weight type to f32, each product and sum rounded on its own in the order of
 * docs/formats.md.
 */
#include "kernels.h"
#include "unpack_32.h"
#include "unpack_k.h"

/* 16 codes minus zero, as f32. */
CPU_INLINE __m512 values_16(const uint8_t *code, const int zero)
{
    __m512i c = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)code));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(c, _mm512_set1_epi32(zero)));
}

/* A unit of 128 elements, n_blocks of them wanted. */
CPU_INLINE void unit_to_f32(const int type, const uint8_t *p, uint32_t n_blocks, float *y)
{
    const struct form_32 *f = &forms_32[type];
    const uint8_t *const rows[4] = {p, p, p, p};
    _Alignas(64) uint8_t code[UNIT_ELEMS];
    _Alignas(64) float d[4][4], m[4][4];
    __m512i c[2];
    __m512 vd, vm;
    codes_32(type, p, c);
    scales_32(type, rows, &vd, &vm);
    _mm512_store_si512(code, c[0]);
    _mm512_store_si512(code + 64, c[1]);
    _mm512_store_ps(d[0], vd);
    _mm512_store_ps(m[0], vm);
    for (uint32_t g = 0; g < 2 * n_blocks; g++) { /* groups of 16 */
        const uint32_t b = g / 2, lane = f->natural ? g : g % 2 * 4 + b;
        __m512 v = _mm512_mul_ps(_mm512_set1_ps(d[b][0]), values_16(code + 16 * lane, f->zero));
        if (f->has_min)
            v = _mm512_add_ps(v, _mm512_set1_ps(m[b][0]));
        _mm512_storeu_ps(y + (size_t)g * 16, v);
    }
}

CPU_INLINE void dequant_32(const int type, const void *w, float *y, uint32_t k)
{
    const size_t bytes = (size_t)forms_32[type].bytes;
    const uint8_t *p = w;
    const uint32_t left = k % UNIT_ELEMS / 32;
    uint8_t last[UNIT_MAX_BYTES] = {0};
    for (; k >= UNIT_ELEMS; k -= UNIT_ELEMS, p += UNIT_BLOCKS * bytes, y += UNIT_ELEMS)
        unit_to_f32(type, p, UNIT_BLOCKS, y);
    if (left != 0) {
        __builtin_memcpy(last, p, left * bytes);
        unit_to_f32(type, last, left, y);
    }
}

CPU_INLINE void super_to_f32(const int type, const uint8_t *p, float *y)
{
    const struct form_k *f = &forms_k[type];
    const uint8_t *group = groups_k[f->order];
    const uint8_t *const rows[4] = {p, p, p, p};
    _Alignas(64) uint8_t code[SUPER], min[64];
    _Alignas(64) int8_t scale[64];
    struct head_k h;
    __m512i c[4];
    float d, dmin;
    decode_head_k(type, rows, &h);
    d = _mm_cvtss_f32(h.d);
    dmin = _mm_cvtss_f32(h.dmin);
    _mm512_store_si512(scale, h.scale);
    _mm512_store_si512(min, h.min);
    codes_k(type, p, c);
    for (int u = 0; u < 4; u++)
        _mm512_store_si512(code + 64 * u, c[u]);
    for (int lane = 0; lane < 16; lane++) {
        const size_t g = group[lane];
        __m512 v = _mm512_mul_ps(_mm512_set1_ps(d * (float)scale[g]),
                                 values_16(code + 16 * lane, f->zero));
        if (f->has_min)
            v = _mm512_sub_ps(v, _mm512_set1_ps(dmin * (float)min[g]));
        _mm512_storeu_ps(y + 16 * g, v);
    }
}

CPU_INLINE void dequant_k(const int type, const void *w, float *y, uint32_t k)
{
    const uint8_t *p = w;
    for (uint32_t i = 0; i < k; i += SUPER, p += forms_k[type].bytes)
        super_to_f32(type, p, y + i);
}

static void dequant_f32_avx512(const void *w, float *y, uint32_t k)
{
    __builtin_memcpy(y, w, (size_t)k * sizeof *y);
}

static void dequant_f16_avx512(const void *w, float *y, uint32_t k)
{
    const uint16_t *h = w;
    for (uint32_t i = 0; i < k; i += 16) {
        const __mmask16 m = mask_left(k - i);
        _mm512_mask_storeu_ps(y + i, m, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, h + i)));
    }
}

static void dequant_bf16_avx512(const void *w, float *y, uint32_t k)
{
    const uint16_t *h = w;
    for (uint32_t i = 0; i < k; i += 16) {
        const __mmask16 m = mask_left(k - i);
        __m512i v = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, h + i));
        _mm512_mask_storeu_ps(y + i, m, _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)));
    }
}

static void dequant_q4_0_avx512(const void *w, float *y, uint32_t k)
{
    dequant_32(ATSI_TYPE_Q4_0, w, y, k);
}

static void dequant_q4_1_avx512(const void *w, float *y, uint32_t k)
{
    dequant_32(ATSI_TYPE_Q4_1, w, y, k);
}

static void dequant_q5_0_avx512(const void *w, float *y, uint32_t k)
{
    dequant_32(ATSI_TYPE_Q5_0, w, y, k);
}

static void dequant_q5_1_avx512(const void *w, float *y, uint32_t k)
{
    dequant_32(ATSI_TYPE_Q5_1, w, y, k);
}

static void dequant_q8_0_avx512(const void *w, float *y, uint32_t k)
{
    dequant_32(ATSI_TYPE_Q8_0, w, y, k);
}

static void dequant_iq4_nl_avx512(const void *w, float *y, uint32_t k)
{
    dequant_32(ATSI_TYPE_IQ4_NL, w, y, k);
}

static void dequant_mxfp4_avx512(const void *w, float *y, uint32_t k)
{
    dequant_32(ATSI_TYPE_MXFP4, w, y, k);
}

static void dequant_q2_k_avx512(const void *w, float *y, uint32_t k)
{
    dequant_k(ATSI_TYPE_Q2_K, w, y, k);
}

static void dequant_q3_k_avx512(const void *w, float *y, uint32_t k)
{
    dequant_k(ATSI_TYPE_Q3_K, w, y, k);
}

static void dequant_q4_k_avx512(const void *w, float *y, uint32_t k)
{
    dequant_k(ATSI_TYPE_Q4_K, w, y, k);
}

static void dequant_q5_k_avx512(const void *w, float *y, uint32_t k)
{
    dequant_k(ATSI_TYPE_Q5_K, w, y, k);
}

static void dequant_q6_k_avx512(const void *w, float *y, uint32_t k)
{
    dequant_k(ATSI_TYPE_Q6_K, w, y, k);
}

static void dequant_iq4_xs_avx512(const void *w, float *y, uint32_t k)
{
    dequant_k(ATSI_TYPE_IQ4_XS, w, y, k);
}

void fill_dequant_avx512(struct cpu_kernels *out)
{
    out->dequant[ATSI_TYPE_F32] = dequant_f32_avx512;
    out->dequant[ATSI_TYPE_F16] = dequant_f16_avx512;
    out->dequant[ATSI_TYPE_BF16] = dequant_bf16_avx512;
    out->dequant[ATSI_TYPE_Q4_0] = dequant_q4_0_avx512;
    out->dequant[ATSI_TYPE_Q4_1] = dequant_q4_1_avx512;
    out->dequant[ATSI_TYPE_Q5_0] = dequant_q5_0_avx512;
    out->dequant[ATSI_TYPE_Q5_1] = dequant_q5_1_avx512;
    out->dequant[ATSI_TYPE_Q8_0] = dequant_q8_0_avx512;
    out->dequant[ATSI_TYPE_IQ4_NL] = dequant_iq4_nl_avx512;
    out->dequant[ATSI_TYPE_MXFP4] = dequant_mxfp4_avx512;
    out->dequant[ATSI_TYPE_Q2_K] = dequant_q2_k_avx512;
    out->dequant[ATSI_TYPE_Q3_K] = dequant_q3_k_avx512;
    out->dequant[ATSI_TYPE_Q4_K] = dequant_q4_k_avx512;
    out->dequant[ATSI_TYPE_Q5_K] = dequant_q5_k_avx512;
    out->dequant[ATSI_TYPE_Q6_K] = dequant_q6_k_avx512;
    out->dequant[ATSI_TYPE_IQ4_XS] = dequant_iq4_xs_avx512;
}
