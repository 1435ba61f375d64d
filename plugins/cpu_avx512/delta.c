/* SPDX-License-Identifier: Apache-2.0
 *
 * The gated delta rule for one head.  The columns of the state S [dk][dv] do not depend on each
 * other: a tile of columns stays close while blocks of four rows pass over it in the chunked form.
 *
 * With e(i, t) the decay from after row i to row t of a block and e(t) that from the start to t:
 *   delta_t = beta_t (v_t - e(t) S^T k_t) - sum over i < t of beta_t (k_t . k_i) e(i, t) delta_i
 *   out_t = scale (e(t) S^T q_t + sum over i <= t of (q_t . k_i) e(i, t) delta_i)
 *   S <- e(last) S + sum over i of k_i (e(i, last) delta_i)^T
 * Decays are products of exp(g) <= 1: nothing overflows.  Blocks of four are the largest that leave
 * registers for two vectors of columns.  Per element of S and row they take 2 operations for S^T k
 * and S^T q and 5/4 for the update; a row by itself takes 4, and so do blocks of 64, most of them
 * for what rows owe each other.  Rows that fill no block go one by one, by the same formulas.
 */
#include "kernels.h"
#include "simd.h"

#define ROWS 4          /* of a block */
#define BLOCK_VECTORS 2 /* of sixteen columns in a tile while blocks pass */
#define ROW_VECTORS 8   /* the same while single rows pass */

struct block {
    float beta[ROWS], state_beta[ROWS]; /* beta_t, beta_t e(t) */
    float state_out[ROWS];              /* scale e(t) */
    float rest[ROWS];                   /* e(t, last) */
    float owed[ROWS][ROWS];             /* beta_t (k_t . k_i) e(i, t) */
    float out[ROWS][ROWS];              /* scale (q_t . k_i) e(i, t) */
    float decay;                        /* e(last) */
};

/* ---------------------------------------------------------------- coefficients */

/* x . k_i and y . k_i for `rows` rows k_i of n elements. */
CPU_INLINE void dots(const int rows, const float *x, const float *y, const float *k, size_t n,
                     float x_out[ROWS], float y_out[ROWS])
{
    __m512 xs[ROWS], ys[ROWS];
    for (int i = 0; i < ROWS; i++)
        xs[i] = ys[i] = _mm512_setzero_ps();
    for (size_t j = 0; j < n; j += 16) {
        const __mmask16 m = mask_left(n - j);
        const __m512 xv = _mm512_maskz_loadu_ps(m, x + j), yv = _mm512_maskz_loadu_ps(m, y + j);
        for (int i = 0; i < rows; i++) {
            const __m512 kv = _mm512_maskz_loadu_ps(m, k + (size_t)i * n + j);
            xs[i] = _mm512_fmadd_ps(xv, kv, xs[i]);
            ys[i] = _mm512_fmadd_ps(yv, kv, ys[i]);
        }
    }
    _mm_storeu_ps(x_out, sum_all_4f(xs[0], xs[1], xs[2], xs[3]));
    _mm_storeu_ps(y_out, sum_all_4f(ys[0], ys[1], ys[2], ys[3]));
}

/* The block of rows t .. t + rows - 1; decay[.]: exp(g) of every row. */
CPU_INLINE void prepare(const int rows, const struct cpu_delta_args *a, uint32_t t,
                        const float *decay, struct block *b)
{
    const size_t dk = a->dk;
    const float *q = a->q + t * dk, *k = a->k + t * dk;
    float e[ROWS]; /* e(i, r) */
    b->decay = 1.0f;
    for (int r = 0; r < rows; r++) {
        const float beta = a->beta[t + (uint32_t)r], now = decay[t + (uint32_t)r];
        dots(rows, k + (size_t)r * dk, q + (size_t)r * dk, k, dk, b->owed[r], b->out[r]);
        for (int i = 0; i < r; i++)
            e[i] *= now;
        e[r] = 1.0f;
        b->decay *= now;
        for (int i = 0; i <= r; i++) {
            b->owed[r][i] *= beta * e[i];
            b->out[r][i] *= a->scale * e[i];
        }
        b->beta[r] = beta;
        b->state_beta[r] = beta * b->decay;
        b->state_out[r] = a->scale * b->decay;
    }
    for (int r = 0; r < rows; r++)
        b->rest[r] = e[r];
}

/* ---------------------------------------------------------------- a tile of columns */

/* S in part: nv times 16 columns of its dk rows, the last ones cut by m unless `full`. */
struct tile {
    float *s;
    size_t stride, dk;
    int nv;
    int full;
    __mmask16 m;
};

/* sk[t] = S^T k_t, sq[t] = S^T q_t */
CPU_INLINE void project(const int rows, const struct tile c, const float *k, const float *q,
                        __m512 sk[ROWS][ROW_VECTORS], __m512 sq[ROWS][ROW_VECTORS])
{
    const float *s = c.s;
    for (int t = 0; t < rows; t++)
        for (int z = 0; z < c.nv; z++)
            sk[t][z] = sq[t][z] = _mm512_setzero_ps();
    for (size_t i = 0; i < c.dk; i++, s += c.stride) {
        __m512 v[ROW_VECTORS];
        for (int z = 0; z < c.nv; z++)
            v[z] = load_lanes(s + 16 * z, c.full, c.m);
        for (int t = 0; t < rows; t++) {
            const __m512 kt = _mm512_set1_ps(k[(size_t)t * c.dk + i]);
            for (int z = 0; z < c.nv; z++)
                sk[t][z] = _mm512_fmadd_ps(kt, v[z], sk[t][z]);
            const __m512 qt = _mm512_set1_ps(q[(size_t)t * c.dk + i]);
            for (int z = 0; z < c.nv; z++)
                sq[t][z] = _mm512_fmadd_ps(qt, v[z], sq[t][z]);
        }
    }
}

/* S = decay S + sum over t of k_t d[t]^T */
CPU_INLINE void update(const int rows, const struct tile c, const float *k, float decay,
                       __m512 d[ROWS][ROW_VECTORS])
{
    const __m512 e = _mm512_set1_ps(decay);
    float *s = c.s;
    for (size_t i = 0; i < c.dk; i++, s += c.stride) {
        __m512 v[ROW_VECTORS];
        for (int z = 0; z < c.nv; z++)
            v[z] = _mm512_mul_ps(e, load_lanes(s + 16 * z, c.full, c.m));
        for (int t = 0; t < rows; t++) {
            const __m512 kt = _mm512_set1_ps(k[(size_t)t * c.dk + i]);
            for (int z = 0; z < c.nv; z++)
                v[z] = _mm512_fmadd_ps(kt, d[t][z], v[z]);
        }
        for (int z = 0; z < c.nv; z++)
            store_lanes(s + 16 * z, v[z], c.full, c.m);
    }
}

/* Rows t .. t + rows - 1 in the columns of c, the first of which is j. */
CPU_INLINE void pass(const int rows, const struct tile c, const struct cpu_delta_args *a,
                     uint32_t t, const struct block *b, size_t j)
{
    const float *k = a->k + t * c.dk, *v = a->v + t * a->v_stride + j;
    float *out = a->out + t * a->out_stride + j;
    __m512 d[ROWS][ROW_VECTORS], o[ROWS][ROW_VECTORS];
    project(rows, c, k, a->q + t * c.dk, d, o);
    for (int r = 0; r < rows; r++, v += a->v_stride, out += a->out_stride)
        for (int z = 0; z < c.nv; z++) {
            __m512 x =
                _mm512_mul_ps(_mm512_set1_ps(b->beta[r]), load_lanes(v + 16 * z, c.full, c.m));
            __m512 y = _mm512_mul_ps(_mm512_set1_ps(b->state_out[r]), o[r][z]);
            x = _mm512_fnmadd_ps(_mm512_set1_ps(b->state_beta[r]), d[r][z], x);
            for (int i = 0; i < r; i++) {
                x = _mm512_fnmadd_ps(_mm512_set1_ps(b->owed[r][i]), d[i][z], x);
                y = _mm512_fmadd_ps(_mm512_set1_ps(b->out[r][i]), d[i][z], y);
            }
            d[r][z] = x;
            y = _mm512_fmadd_ps(_mm512_set1_ps(b->out[r][r]), x, y);
            store_lanes(out + 16 * z, y, c.full, c.m);
        }
    for (int r = 0; r < rows; r++)
        for (int z = 0; z < c.nv; z++)
            d[r][z] = _mm512_mul_ps(_mm512_set1_ps(b->rest[r]), d[r][z]);
    update(rows, c, k, b->decay, d);
}

/* ---------------------------------------------------------------- the slot */

/* n blocks from row t on, in all columns. */
CPU_INLINE void blocks(const int rows, const int nv, const struct cpu_delta_args *a, uint32_t t,
                       const struct block *b, uint32_t n)
{
    const size_t width = 16 * (size_t)nv;
    size_t j = 0;
    for (; j + width <= a->dv; j += width) {
        const struct tile c = {a->s + j, a->dv, a->dk, nv, 1, 0};
        for (uint32_t i = 0; i < n; i++)
            pass(rows, c, a, t + i * (uint32_t)rows, b + i, j);
    }
    for (; j < a->dv; j += 16) {
        const struct tile c = {a->s + j, a->dv, a->dk, 1, 0, mask_left(a->dv - j)};
        for (uint32_t i = 0; i < n; i++)
            pass(rows, c, a, t + i * (uint32_t)rows, b + i, j);
    }
}

/* exp(g) of every row */
static void decays(const struct cpu_delta_args *a, float decay[CPU_DELTA_ROWS])
{
    for (uint32_t t = 0; t < a->n_tok; t += 16) {
        const __mmask16 m = mask_left(a->n_tok - t);
        _mm512_mask_storeu_ps(decay + t, m, exp_16(_mm512_maskz_loadu_ps(m, a->log_decay + t)));
    }
}

void delta_avx512(const struct cpu_delta_args *a)
{
    struct block b[CPU_DELTA_ROWS / ROWS];
    float decay[CPU_DELTA_ROWS];
    const uint32_t n = a->n_tok / ROWS;
    decays(a, decay);
    for (uint32_t i = 0; i < n; i++)
        prepare(ROWS, a, i * ROWS, decay, &b[i]);
    if (n > 0)
        blocks(ROWS, BLOCK_VECTORS, a, 0, b, n);
    for (uint32_t t = n * ROWS; t < a->n_tok; t++) {
        prepare(1, a, t, decay, b);
        blocks(1, ROW_VECTORS, a, t, b, 1);
    }
}
