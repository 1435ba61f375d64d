/* SPDX-License-Identifier: Apache-2.0
 *
 * The short causal convolution before a recurrent layer: sixteen channels in the lanes, their taps
 * and the rows they still reach in registers while the rows pass.
 *
 * Every result is silu of one chain of fused multiply-adds, oldest row first, so that it does not
 * matter which rows come from the state and which from this call.
 */
#include "kernels.h"
#include "simd.h"

#define MAX_TAPS 16
#define SPAN 16 /* rows, some pages apart, whose channels are walked together */

/* w[16][4] -> tap[4], lane = channel; n channels are there. */
CPU_INLINE void four_taps(const float *w, size_t n, __m512 tap[4])
{
    __m512i v[4];
    for (size_t i = 0; i < 4; i++) { /* four channels each */
        const size_t left = n > 4 * i ? 4 * (n - 4 * i) : 0;
        tap[i] = _mm512_maskz_loadu_ps(mask_left(left), w + (left > 0 ? 16 * i : 0));
    }
    transpose_quads_4(tap);
    for (int i = 0; i < 4; i++)
        v[i] = _mm512_castps_si512(tap[i]);
    transpose_lanes_4(v);
    for (int i = 0; i < 4; i++)
        tap[i] = _mm512_castsi512_ps(v[i]);
}

/* w[16][n_tap] -> tap[n_tap], for any number of taps. */
CPU_INLINE void any_taps(const float *w, uint32_t n_tap, __mmask16 m, __m512 tap[MAX_TAPS])
{
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i at = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)n_tap));
    for (uint32_t i = 0; i < n_tap; i++)
        tap[i] = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), m, at, w + i, sizeof(float));
}

/* Channels c .. c + n - 1, n <= 16, over all rows. */
CPU_INLINE void channels(const struct cpu_conv_args *a, const uint32_t n_tap, uint32_t c, size_t n)
{
    const __mmask16 m = mask_left(n);
    const float *w = a->w + (size_t)c * n_tap, *x = a->x + c;
    float *y = a->y + c, *state = a->state + c;
    __m512 tap[MAX_TAPS], row[MAX_TAPS];
    if (n_tap == 4)
        four_taps(w, n, tap);
    else
        any_taps(w, n_tap, m, tap);
    for (uint32_t i = 0; i + 1 < n_tap; i++)
        row[i] = _mm512_maskz_loadu_ps(m, state + i * a->x_stride);
    for (uint32_t t = 0; t < a->n_tok; t++) {
        row[n_tap - 1] = _mm512_maskz_loadu_ps(m, x + t * a->x_stride);
        __m512 sum = _mm512_mul_ps(tap[0], row[0]);
        for (uint32_t i = 1; i < n_tap; i++)
            sum = _mm512_fmadd_ps(tap[i], row[i], sum);
        _mm512_mask_storeu_ps(y + t * a->x_stride, m, gated(sum, sum));
        for (uint32_t i = 0; i + 1 < n_tap; i++)
            row[i] = row[i + 1];
    }
    for (uint32_t i = 0; i + 1 < n_tap; i++)
        _mm512_mask_storeu_ps(state + i * a->x_stride, m, row[i]);
}

/* All channels; what the rows leave in the state is where the next ones go on. */
static void rows(const struct cpu_conv_args *a)
{
    for (uint32_t c = 0; c < a->n_ch; c += 16) {
        const size_t n = a->n_ch - c < 16 ? a->n_ch - c : 16;
        if (a->n_tap == 4)
            channels(a, 4, c, n);
        else
            channels(a, a->n_tap, c, n);
    }
}

void conv_avx512(const struct cpu_conv_args *a)
{
    struct cpu_conv_args span = *a;
    for (uint32_t t = 0; t < a->n_tok; t += SPAN) {
        span.n_tok = a->n_tok - t < SPAN ? a->n_tok - t : SPAN;
        span.x = a->x + t * a->x_stride;
        span.y = a->y + t * a->x_stride;
        rows(&span);
    }
}
