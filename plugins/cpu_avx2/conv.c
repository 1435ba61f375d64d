/* SPDX-License-Identifier: Apache-2.0
 *
 * The short causal convolution before a recurrent layer: eight channels in the lanes, their taps
 * and the rows they still reach in registers while the rows pass.
 *
 * Every result is silu of one chain of fused multiply-adds, oldest row first, so that it does not
 * matter which rows come from the state and which from this call.
 */
#include "kernels.h"
#include "simd.h"

#define MAX_TAPS 16
#define SPAN 16 /* rows, some pages apart, whose channels are walked together */

/* w[8][4] -> tap[4], lane = channel */
CPU_INLINE void four_taps(const float *w, __m256 tap[4])
{
    __m128 v[8];
    for (int c = 0; c < 8; c++)
        v[c] = _mm_loadu_ps(w + 4 * c);
    _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
    _MM_TRANSPOSE4_PS(v[4], v[5], v[6], v[7]);
    for (int i = 0; i < 4; i++)
        tap[i] = _mm256_set_m128(v[i + 4], v[i]);
}

/* w[8][n_tap] -> tap[n_tap], for any number of taps and channels. */
CPU_INLINE void any_taps(const float *w, uint32_t n_tap, __m256i mask, __m256 tap[MAX_TAPS])
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i at = _mm256_mullo_epi32(lane, _mm256_set1_epi32((int)n_tap));
    for (uint32_t i = 0; i < n_tap; i++)
        tap[i] = _mm256_mask_i32gather_ps(_mm256_setzero_ps(), w + i, at, _mm256_castsi256_ps(mask),
                                          sizeof(float));
}

/* Eight channels from c on, or those of m, over all rows. */
CPU_INLINE void channels(const struct cpu_conv_args *a, const uint32_t n_tap, uint32_t c,
                         const bool full, __m256i m)
{
    const float *w = a->w + (size_t)c * n_tap, *x = a->x + c;
    float *y = a->y + c, *state = a->state + c;
    __m256 tap[MAX_TAPS], row[MAX_TAPS];
    if (n_tap == 4 && full)
        four_taps(w, tap);
    else
        any_taps(w, n_tap, m, tap);
    for (uint32_t i = 0; i + 1 < n_tap; i++)
        row[i] = load_lanes(state + i * a->x_stride, full, m);
    for (uint32_t t = 0; t < a->n_tok; t++) {
        row[n_tap - 1] = load_lanes(x + t * a->x_stride, full, m);
        __m256 sum = _mm256_mul_ps(tap[0], row[0]);
        for (uint32_t i = 1; i < n_tap; i++)
            sum = _mm256_fmadd_ps(tap[i], row[i], sum);
        store_lanes(y + t * a->x_stride, gated8(sum, sum), full, m);
        for (uint32_t i = 0; i + 1 < n_tap; i++)
            row[i] = row[i + 1];
    }
    for (uint32_t i = 0; i + 1 < n_tap; i++)
        store_lanes(state + i * a->x_stride, row[i], full, m);
}

/* All channels; what the rows leave in the state is where the next ones go on. */
static void rows(const struct cpu_conv_args *a)
{
    uint32_t c = 0;
    for (; a->n_tap == 4 && a->n_ch - c >= 8; c += 8)
        channels(a, 4, c, true, lane_mask(8));
    for (; c < a->n_ch; c += 8)
        channels(a, a->n_tap, c, false, lane_mask(a->n_ch - c));
}

void conv_avx2(const struct cpu_conv_args *a)
{
    struct cpu_conv_args span = *a;
    for (uint32_t t = 0; t < a->n_tok; t += SPAN) {
        span.n_tok = a->n_tok - t < SPAN ? a->n_tok - t : SPAN;
        span.x = a->x + t * a->x_stride;
        span.y = a->y + t * a->x_stride;
        rows(&span);
    }
}
