/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of every weight type to f32, to the bit as the reference: scales are multiplied first, then
 * the quant, then a min is subtracted (or added), each step rounded.
 */
#include "kernels.h"
#include "unpack.h"

/* y[32] = d * (q - zero) + m; is_signed: quants are i8. */
CPU_INLINE void store32(float *y, __m256i q, __m256 d_low, __m256 d_high, __m256 m_low,
                        __m256 m_high, bool has_min)
{
    const __m128i part[2] = {_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1)};
    for (int i = 0; i < 4; i++) {
        __m128i b = i & 1 ? _mm_unpackhi_epi64(part[i >> 1], part[i >> 1]) : part[i >> 1];
        __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b));
        v = _mm256_mul_ps(i < 2 ? d_low : d_high, v);
        if (has_min)
            v = _mm256_add_ps(v, i < 2 ? m_low : m_high);
        _mm256_storeu_ps(y + 8 * i, v);
    }
}

typedef __m256i vec32_fn(const uint8_t *b);
typedef __m256i vec256_fn(const uint8_t *b, int j);
typedef void scale256_fn(const uint8_t *b, __m256i *s, __m256i *m);

/* Blocks of 32 with an f16 scale in front, and an f16 min after it. */
CPU_INLINE void dequant32(const uint8_t *b, size_t bytes, vec32_fn *vec, int zero, bool has_min,
                          float *y, uint32_t k)
{
    for (uint32_t i = 0; i < k; i += 32, b += bytes) {
        const __m256 d = _mm256_set1_ps(f16_at(b));
        const __m256 m = _mm256_set1_ps(has_min ? f16_at(b + sizeof(uint16_t)) : 0);
        store32(y + i, _mm256_sub_epi8(vec(b), _mm256_set1_epi8((char)zero)), d, d, m, m, has_min);
    }
}

/* i16 factors of 16 groups times an f32. */
CPU_INLINE void scaled16(__m256i s, float d, float out[16])
{
    __m256i lo = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(s));
    __m256i hi = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(s, 1));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(lo)));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(hi)));
}

CPU_INLINE void dequant256(const uint8_t *b, size_t bytes, size_t d_at, size_t dmin_at,
                           vec256_fn *vec, scale256_fn *scale, int zero, bool has_min, float *y,
                           uint32_t k)
{
    for (uint32_t i = 0; i < k; i += 256, b += bytes) {
        __m256i s, m;
        float d[16], mins[16] = {0}; /* d: even groups, then odd ones */
        scale(b, &s, &m);
        scaled16(s, f16_at(b + d_at), d);
        if (has_min)
            scaled16(m, -f16_at(b + dmin_at), mins);
        for (int j = 0; j < 8; j++)
            store32(y + i + 32 * j, _mm256_sub_epi8(vec(b, j), _mm256_set1_epi8((char)zero)),
                    _mm256_set1_ps(d[j]), _mm256_set1_ps(d[j + 8]), _mm256_set1_ps(mins[2 * j]),
                    _mm256_set1_ps(mins[2 * j + 1]), has_min);
    }
}

void dequant_f16_avx2(const void *w, float *y, uint32_t k)
{
    const uint8_t *p = w;
    uint32_t i = 0;
    for (; i + 8 <= k; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(load128(p + (size_t)2 * i)));
    for (; i < k; i++)
        y[i] = f16_at(p + (size_t)2 * i);
}

void dequant_bf16_avx2(const void *w, float *y, uint32_t k)
{
    const uint8_t *p = w;
    for (uint32_t i = 0; i < k; i++)
        y[i] = atsi_bf16_to_f32((uint16_t)load_u16(p + (size_t)2 * i));
}

void dequant_q4_0_avx2(const void *w, float *y, uint32_t k)
{
    dequant32(w, sizeof(struct atsi_block_q4_0), vec_q4_0, 8, false, y, k);
}

void dequant_q4_1_avx2(const void *w, float *y, uint32_t k)
{
    dequant32(w, sizeof(struct atsi_block_q4_1), vec_q4_1, 0, true, y, k);
}

void dequant_q5_0_avx2(const void *w, float *y, uint32_t k)
{
    dequant32(w, sizeof(struct atsi_block_q5_0), vec_q5_0, 16, false, y, k);
}

void dequant_q5_1_avx2(const void *w, float *y, uint32_t k)
{
    dequant32(w, sizeof(struct atsi_block_q5_1), vec_q5_1, 0, true, y, k);
}

void dequant_q8_0_avx2(const void *w, float *y, uint32_t k)
{
    dequant32(w, sizeof(struct atsi_block_q8_0), vec_q8_0, 0, false, y, k);
}

void dequant_iq4_nl_avx2(const void *w, float *y, uint32_t k)
{
    dequant32(w, sizeof(struct atsi_block_iq4_nl), vec_iq4_nl, 0, false, y, k);
}

void dequant_mxfp4_avx2(const void *w, float *y, uint32_t k)
{
    const __m256 none = _mm256_setzero_ps();
    const uint8_t *b = w;
    for (uint32_t i = 0; i < k; i += 32, b += sizeof(struct atsi_block_mxfp4)) {
        const __m256 d = _mm256_set1_ps(atsi_e8m0_half(b[0]));
        store32(y + i, _mm256_sub_epi8(vec_mxfp4(b), _mm256_set1_epi8(12)), d, d, none, none,
                false);
    }
}

void dequant_q2_k_avx2(const void *w, float *y, uint32_t k)
{
    dequant256(w, sizeof(struct atsi_block_q2_k), offsetof(struct atsi_block_q2_k, d),
               offsetof(struct atsi_block_q2_k, dmin), vec_q2_k, scale_q2_k, 0, true, y, k);
}

void dequant_q3_k_avx2(const void *w, float *y, uint32_t k)
{
    dequant256(w, sizeof(struct atsi_block_q3_k), offsetof(struct atsi_block_q3_k, d), 0, vec_q3_k,
               scale_q3_k, 4, false, y, k);
}

void dequant_q4_k_avx2(const void *w, float *y, uint32_t k)
{
    dequant256(w, sizeof(struct atsi_block_q4_k), offsetof(struct atsi_block_q4_k, d),
               offsetof(struct atsi_block_q4_k, dmin), vec_q4_k, scale_q4_k, 0, true, y, k);
}

void dequant_q5_k_avx2(const void *w, float *y, uint32_t k)
{
    dequant256(w, sizeof(struct atsi_block_q5_k), offsetof(struct atsi_block_q5_k, d),
               offsetof(struct atsi_block_q5_k, dmin), vec_q5_k, scale_q4_k, 0, true, y, k);
}

void dequant_q6_k_avx2(const void *w, float *y, uint32_t k)
{
    dequant256(w, sizeof(struct atsi_block_q6_k), offsetof(struct atsi_block_q6_k, d), 0, vec_q6_k,
               scale_q6_k, 32, false, y, k);
}

void dequant_iq4_xs_avx2(const void *w, float *y, uint32_t k)
{
    dequant256(w, sizeof(struct atsi_block_iq4_xs), offsetof(struct atsi_block_iq4_xs, d), 0,
               vec_iq4_xs, scale_iq4_xs, 0, false, y, k);
}
