/* SPDX-License-Identifier: Apache-2.0
 *
 * One chunk of attention (cpu_kernels.h), for every instruction set with vectors.
 *
 * Keys are opened 2 ATTN_LANES cells at a time, a lane per cell, and meet all rows before the next
 * ones come; a score is one chain of fused multiply-adds over dk in order.  The chunk's values are
 * opened in panels of 2 ATTN_LANES columns; an element of the result is one chain over the cells in
 * order.  Few rows that see the same read values where they lie: what lies in the cache is read
 * once either way, and the chains are the same.
 *
 * For kernel files: include it behind definitions of
 *   ATTN_LANES, ATTN_ROWS (of a register tile of two vectors: 12 or 6), attn_vec;
 *   vec_zero(), vec_load(p), vec_store(p, v), vec_all(x), vec_fma(a, b, c) = a * b + c;
 *   cache_vec(type, row, i): elements i .. i + ATTN_LANES - 1 of a row of the cache;
 *   open_keys(type, row[ATTN_LANES], n, row_bytes, to): elements 0 .. n - 1 (n a multiple of 8) of
 * as many rows, element d of row l to to[d * 2 * ATTN_LANES + l]; soften(s, from, to, max, sum):
 * scores s[from .. to) to exp(s - max), lanes by index % ATTN_LANES.
 */
#ifndef ATSI_CPU_ATTN_TILE_H
#define ATSI_CPU_ATTN_TILE_H

#include "cpu_kernels.h"

#define ATTN_TILE (2 * ATTN_LANES) /* cells or columns of a register tile */
#define ATTN_DIRECT_ROWS 4u        /* up to so many rows read values where they lie */
#define ATTN_AHEAD 4096            /* bytes, when they do */

struct attn_work {
    const struct cpu_attn_tile *t;
    float *q;      /* by groups of rows: [dk][rows of the group] */
    float *keys;   /* [dk][ATTN_TILE] */
    float *rows;   /* ATTN_LANES rows of keys that do not lie one after the other */
    float *values; /* [dv / ATTN_TILE][CPU_ATTN_CELLS][ATTN_TILE] */
    float *score;  /* [n_row][CPU_ATTN_SCORES], by cell of the chunk */
};

/* Rows of the next register tile. */
CPU_INLINE uint32_t attn_group(uint32_t left)
{
    if (left >= ATTN_ROWS)
        return ATTN_ROWS;
    if (left >= 8 && ATTN_ROWS > 8)
        return 8;
    return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

CPU_INLINE size_t attn_row_bytes(const uint32_t type, size_t n)
{
    if (type == ATSI_TYPE_Q8_0)
        return n / 32 * sizeof(struct atsi_block_q8_0);
    return n * (type == ATSI_TYPE_F16 ? sizeof(uint16_t) : sizeof(float));
}

CPU_INLINE const uint8_t *attn_cell(const void *first, const void *second, uint32_t n_first,
                                    uint32_t i, size_t row)
{
    return i < n_first ? (const uint8_t *)first + i * row
                       : (const uint8_t *)second + (i - n_first) * row;
}

/* Element i of a row of the cache. */
static float attn_element(const uint32_t type, const uint8_t *row, size_t i)
{
    uint16_t h;
    float f;
    if (type == ATSI_TYPE_F32) {
        __builtin_memcpy(&f, row + 4 * i, sizeof f);
        return f;
    }
    __builtin_memcpy(&h, row + (type == ATSI_TYPE_F16 ? 2 * i : i / 32 * 34), sizeof h);
    f = atsi_f16_to_f32(h);
    return type == ATSI_TYPE_F16 ? f : f * (float)(int8_t)row[i / 32 * 34 + 2 + i % 32];
}

/* acc[r] += a[k * ak + r * ar] * b[k], for n rows and two vectors. */
CPU_INLINE void attn_product(const int n, const float *a, const size_t ak, const size_t ar,
                             const float *b, uint32_t len, attn_vec acc[][2])
{
    for (uint32_t k = 0; k < len; k++, a += ak, b += ATTN_TILE) {
        const attn_vec b0 = vec_load(b), b1 = vec_load(b + ATTN_LANES);
        CPU_UNROLL
        for (int r = 0; r < n; r++) {
            const attn_vec x = vec_all(a[(size_t)r * ar]);
            acc[r][0] = vec_fma(x, b0, acc[r][0]);
            acc[r][1] = vec_fma(x, b1, acc[r][1]);
        }
    }
}

/* ---------------------------------------------------------------- scores */
CPU_INLINE void attn_scores_n(const int n, const float *q, const float *keys, uint32_t dk, float *s)
{
    attn_vec acc[ATTN_ROWS][2];
    CPU_UNROLL
    for (int r = 0; r < n; r++)
        acc[r][0] = acc[r][1] = vec_zero();
    attn_product(n, q, (size_t)n, 1, keys, dk, acc);
    CPU_UNROLL
    for (int r = 0; r < n; r++) {
        vec_store(s + (size_t)r * CPU_ATTN_SCORES, acc[r][0]);
        vec_store(s + (size_t)r * CPU_ATTN_SCORES + ATTN_LANES, acc[r][1]);
    }
}

static void attn_scores(uint32_t n, const float *q, const float *keys, uint32_t dk, float *s)
{
    switch (n) {
    case ATTN_ROWS:
        attn_scores_n(ATTN_ROWS, q, keys, dk, s);
        break;
#if ATTN_ROWS > 8
    case 8:
        attn_scores_n(8, q, keys, dk, s);
        break;
#endif
    case 4:
        attn_scores_n(4, q, keys, dk, s);
        break;
    case 2:
        attn_scores_n(2, q, keys, dk, s);
        break;
    default:
        attn_scores_n(1, q, keys, dk, s);
        break;
    }
}

/* Scaled queries, by groups of rows. */
static void attn_pack_queries(const struct attn_work *w)
{
    const struct cpu_attn_tile *t = w->t;
    for (uint32_t r = 0, n; r < t->n_row; r += n) {
        n = attn_group(t->n_row - r);
        for (uint32_t i = 0; i < n; i++) {
            const float *q =
                t->q + (r + i) / t->n_head * t->q_stride + (size_t)((r + i) % t->n_head) * t->dk;
            float *to = w->q + (size_t)r * t->dk + i;
            for (uint32_t d = 0; d < t->dk; d++)
                to[(size_t)d * n] = q[d] * t->scale;
        }
    }
}

/* Whether cells up to `end` of the chunk may be prefetched: behind the last one in use pages may
 * never have been touched, and a prefetch there walks page tables each time, for nothing. */
CPU_INLINE int attn_more(const struct cpu_attn_tile *t, uint32_t end)
{
    return end <= t->at + t->n || t->at + t->n == CPU_ATTN_CELLS;
}

/* ATTN_LANES rows of keys from cell `first` of the chunk on, one after the other: where they lie,
 * or copied together where they end or the ring begins anew.  One that is not there is another's.
 */
CPU_INLINE const uint8_t *attn_key_rows(const struct attn_work *w, uint32_t first, size_t bytes)
{
    const struct cpu_attn_tile *t = w->t;
    const uint32_t i = first - t->at; /* huge when the tile begins before the first cell */
    uint8_t *to = (uint8_t *)w->rows;
    if (first >= t->at && i < t->n_first && t->n_first - i >= ATTN_LANES)
        return (const uint8_t *)t->k + i * bytes;
    if (first >= t->at + t->n_first && t->at + t->n - first >= ATTN_LANES && first < t->at + t->n)
        return (const uint8_t *)t->k2 + (i - t->n_first) * bytes;
    for (uint32_t l = 0; l < ATTN_LANES; l++) {
        uint32_t c = first + l < t->at ? 0 : first + l - t->at;
        c = c < t->n ? c : t->n - 1;
        __builtin_memcpy(to + l * bytes, attn_cell(t->k, t->k2, t->n_first, c, bytes), bytes);
    }
    return to;
}

/* Keys of cells first .. first + ATTN_TILE - 1 of the chunk. */
CPU_INLINE void attn_open_keys(const uint32_t type, const struct attn_work *w, uint32_t first)
{
    const uint32_t dk = w->t->dk, whole = dk - dk % 8;
    const size_t bytes = attn_row_bytes(type, dk);
    for (uint32_t half = 0; half < ATTN_TILE; half += ATTN_LANES) {
        const uint8_t *rows = attn_key_rows(w, first + half, bytes);
        float *to = w->keys + half;
        open_keys(type, rows, bytes, whole,
                  attn_more(w->t, first + half + ATTN_TILE + ATTN_LANES) ? ATTN_TILE * bytes : 0,
                  to);
        for (uint32_t d = whole; d < dk; d++)
            for (uint32_t l = 0; l < ATTN_LANES; l++)
                to[(size_t)d * ATTN_TILE + l] = attn_element(type, rows + l * bytes, d);
    }
}

/* The cells that at least one of n rows sees. */
CPU_INLINE struct cpu_attn_seen attn_any(const struct cpu_attn_seen *s, uint32_t n)
{
    struct cpu_attn_seen a = {CPU_ATTN_CELLS, 0};
    for (uint32_t i = 0; i < n; i++) {
        if (s[i].from >= s[i].to)
            continue;
        a.from = s[i].from < a.from ? s[i].from : a.from;
        a.to = s[i].to > a.to ? s[i].to : a.to;
    }
    return a;
}

static void attn_all_scores(const struct attn_work *w)
{
    const struct cpu_attn_tile *t = w->t;
    const struct cpu_attn_seen all = attn_any(t->seen, t->n_row);
    for (uint32_t c = all.from / ATTN_TILE * ATTN_TILE; c < all.to; c += ATTN_TILE) {
        if (t->type_k == ATSI_TYPE_F16)
            attn_open_keys(ATSI_TYPE_F16, w, c);
        else if (t->type_k == ATSI_TYPE_Q8_0)
            attn_open_keys(ATSI_TYPE_Q8_0, w, c);
        else
            attn_open_keys(ATSI_TYPE_F32, w, c);
        for (uint32_t r = 0, n; r < t->n_row; r += n) {
            n = attn_group(t->n_row - r);
            const struct cpu_attn_seen s = attn_any(t->seen + r, n);
            if (s.from < c + ATTN_TILE && s.to > c)
                attn_scores(n, w->q + (size_t)r * t->dk, w->keys, t->dk,
                            w->score + (size_t)r * CPU_ATTN_SCORES + c);
        }
    }
}

/* ---------------------------------------------------------------- values */
CPU_INLINE void attn_values_n(const int n, const float *p, const float *values, uint32_t len,
                              float *out, size_t stride)
{
    attn_vec acc[ATTN_ROWS][2];
    CPU_UNROLL
    for (int r = 0; r < n; r++) {
        acc[r][0] = vec_load(out + (size_t)r * stride);
        acc[r][1] = vec_load(out + (size_t)r * stride + ATTN_LANES);
    }
    attn_product(n, p, 1, CPU_ATTN_SCORES, values, len, acc);
    CPU_UNROLL
    for (int r = 0; r < n; r++) {
        vec_store(out + (size_t)r * stride, acc[r][0]);
        vec_store(out + (size_t)r * stride + ATTN_LANES, acc[r][1]);
    }
}

static void attn_values(uint32_t n, const float *p, const float *values, uint32_t len, float *out,
                        size_t stride)
{
    switch (n) {
    case ATTN_ROWS:
        attn_values_n(ATTN_ROWS, p, values, len, out, stride);
        break;
#if ATTN_ROWS > 8
    case 8:
        attn_values_n(8, p, values, len, out, stride);
        break;
#endif
    case 4:
        attn_values_n(4, p, values, len, out, stride);
        break;
    case 2:
        attn_values_n(2, p, values, len, out, stride);
        break;
    default:
        attn_values_n(1, p, values, len, out, stride);
        break;
    }
}

CPU_INLINE void attn_open_values(const uint32_t type, const struct attn_work *w)
{
    const struct cpu_attn_tile *t = w->t;
    const size_t bytes = attn_row_bytes(type, t->dv), n_out = CPU_ATTN_OUT(t->dv);
    const struct cpu_attn_seen all = attn_any(t->seen, t->n_row);
    for (uint32_t c = all.from; c < all.to; c++) {
        const uint8_t *row = attn_cell(t->v, t->v2, t->n_first, c - t->at, bytes);
        float *to = w->values + (size_t)c * ATTN_TILE;
        size_t i = 0;
        const size_t ahead = attn_more(t, c + 1 + ATTN_AHEAD / (uint32_t)bytes) ? ATTN_AHEAD : 0;
        for (size_t b = 0; b < bytes; b += 64)
            _mm_prefetch((const char *)row + b + ahead, _MM_HINT_T1);
        for (; i + ATTN_LANES <= t->dv; i += ATTN_LANES)
            vec_store(to + i / ATTN_TILE * CPU_ATTN_CELLS * ATTN_TILE + i % ATTN_TILE,
                      cache_vec(type, row, i));
        for (; i < n_out; i++)
            to[i / ATTN_TILE * CPU_ATTN_CELLS * ATTN_TILE + i % ATTN_TILE] =
                i < t->dv ? attn_element(type, row, i) : 0.0F;
    }
}

/* n rows over one panel of columns: the cells that all see, and before and behind them what single
 * rows see. */
static void attn_group_values(const struct attn_work *w, uint32_t r, uint32_t n, size_t column)
{
    const struct cpu_attn_seen *seen = w->t->seen + r;
    const float *p = w->score + (size_t)r * CPU_ATTN_SCORES;
    const float *values = w->values + column * CPU_ATTN_CELLS;
    const size_t stride = CPU_ATTN_OUT(w->t->dv);
    float *out = w->t->out + r * stride + column;
    uint32_t from = 0, to = CPU_ATTN_CELLS;
    for (uint32_t i = 0; i < n; i++) {
        from = seen[i].from > from ? seen[i].from : from;
        to = seen[i].to < to ? seen[i].to : to;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t stop = from < seen[i].to ? from : seen[i].to;
        if (seen[i].from < stop)
            attn_values(1, p + (size_t)i * CPU_ATTN_SCORES + seen[i].from,
                        values + (size_t)seen[i].from * ATTN_TILE, stop - seen[i].from,
                        out + i * stride, stride);
    }
    if (from < to)
        attn_values(n, p + from, values + (size_t)from * ATTN_TILE, to - from, out, stride);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t begin = to > from ? to : from;
        begin = begin > seen[i].from ? begin : seen[i].from;
        if (begin < seen[i].to)
            attn_values(1, p + (size_t)i * CPU_ATTN_SCORES + begin,
                        values + (size_t)begin * ATTN_TILE, seen[i].to - begin, out + i * stride,
                        stride);
    }
}

static void attn_all_values(const struct attn_work *w)
{
    const struct cpu_attn_tile *t = w->t;
    if (t->type_v == ATSI_TYPE_F16)
        attn_open_values(ATSI_TYPE_F16, w);
    else if (t->type_v == ATSI_TYPE_Q8_0)
        attn_open_values(ATSI_TYPE_Q8_0, w);
    else
        attn_open_values(ATSI_TYPE_F32, w);
    for (size_t column = 0; column < CPU_ATTN_OUT(t->dv); column += ATTN_TILE)
        for (uint32_t r = 0, n; r < t->n_row; r += n) {
            n = attn_group(t->n_row - r);
            attn_group_values(w, r, n, column);
        }
}

/* ---------------------------------------------------------------- values where they lie */
/* Columns i .. i + nz vectors of n rows over `len` neighbouring rows of the cache, of which the
 * first `more` have others behind them. */
CPU_INLINE void attn_direct_n(const uint32_t type, const int n, const int nz, const float *p,
                              const uint8_t *v, size_t bytes, size_t i, uint32_t len, uint32_t more,
                              float *out, size_t stride)
{
    const size_t at = attn_row_bytes(type, i), wide = attn_row_bytes(type, (size_t)nz * ATTN_LANES);
    attn_vec acc[4][8];
    CPU_UNROLL
    for (int r = 0; r < n; r++) {
        CPU_UNROLL
        for (int z = 0; z < nz; z++)
            acc[r][z] = vec_load(out + (size_t)r * stride + i + (size_t)(z * ATTN_LANES));
    }
    for (uint32_t c = 0; c < len; c++, v += bytes) {
        const size_t ahead = c < more ? ATTN_AHEAD : 0;
        attn_vec x[8];
        for (size_t b = 0; b < wide; b += 64)
            _mm_prefetch((const char *)v + at + b + ahead, _MM_HINT_T1);
        CPU_UNROLL
        for (int z = 0; z < nz; z++)
            x[z] = cache_vec(type, v, i + (size_t)(z * ATTN_LANES));
        CPU_UNROLL
        for (int r = 0; r < n; r++) {
            const attn_vec weight = vec_all(p[(size_t)r * CPU_ATTN_SCORES + c]);
            CPU_UNROLL
            for (int z = 0; z < nz; z++)
                acc[r][z] = vec_fma(weight, x[z], acc[r][z]);
        }
    }
    CPU_UNROLL
    for (int r = 0; r < n; r++) {
        CPU_UNROLL
        for (int z = 0; z < nz; z++)
            vec_store(out + (size_t)r * stride + i + (size_t)(z * ATTN_LANES), acc[r][z]);
    }
}

/* Of `wide` vectors at a time, and two where less is left (dv is a multiple of two). */
CPU_INLINE void attn_direct_rows(const uint32_t type, const int n, const int wide,
                                 const struct cpu_attn_tile *t, const float *p, const uint8_t *v,
                                 uint32_t len, uint32_t more, float *out)
{
    const size_t bytes = attn_row_bytes(type, t->dv), stride = CPU_ATTN_OUT(t->dv);
    size_t i = 0;
    for (; i + (size_t)(wide * ATTN_LANES) <= t->dv; i += (size_t)(wide * ATTN_LANES))
        attn_direct_n(type, n, wide, p, v, bytes, i, len, more, out, stride);
    for (; i < t->dv; i += ATTN_TILE)
        attn_direct_n(type, n, 2, p, v, bytes, i, len, more, out, stride);
}

CPU_INLINE void attn_direct(const uint32_t type, const struct attn_work *w)
{
    const struct cpu_attn_tile *t = w->t;
    const size_t bytes = attn_row_bytes(type, t->dv), stride = CPU_ATTN_OUT(t->dv);
    const struct cpu_attn_seen s = t->seen[0];
    for (uint32_t c = s.from, len, more; c < s.to; c += len) {
        const uint32_t i = c - t->at;
        const uint8_t *v = attn_cell(t->v, t->v2, t->n_first, i, bytes);
        len = (i < t->n_first ? t->n_first - i : t->n - i);
        len = len < s.to - c ? len : s.to - c;
        more = ATTN_AHEAD / (uint32_t)bytes + 1; /* rows behind which nothing need be in use */
        more = attn_more(t, c + len + more) ? len : len > more ? len - more : 0;
        for (uint32_t r = 0, n; r < t->n_row; r += n) {
            const float *p = w->score + (size_t)r * CPU_ATTN_SCORES + c;
            float *out = t->out + r * stride;
            n = attn_group(t->n_row - r);
            if (n == 4)
                attn_direct_rows(type, 4, ATTN_LANES / 4, t, p, v, len, more, out);
            else if (n == 2)
                attn_direct_rows(type, 2, ATTN_LANES == 16 ? 8 : 4, t, p, v, len, more, out);
            else
                attn_direct_rows(type, 1, 8, t, p, v, len, more, out);
        }
    }
}

static void attn_values_in_place(const struct attn_work *w)
{
    if (w->t->type_v == ATSI_TYPE_F16)
        attn_direct(ATSI_TYPE_F16, w);
    else if (w->t->type_v == ATSI_TYPE_Q8_0)
        attn_direct(ATSI_TYPE_Q8_0, w);
    else
        attn_direct(ATSI_TYPE_F32, w);
}

/* ---------------------------------------------------------------- the slot */
/* The first values, on their way while scores are computed. */
CPU_INLINE void attn_call_values(const struct cpu_attn_tile *t)
{
    const size_t bytes = (size_t)atsi_row_bytes(t->type_v, t->dv) * t->n_first;
    for (size_t b = 0; b < bytes && b < ATTN_AHEAD; b += 64)
        _mm_prefetch((const char *)t->v + b, _MM_HINT_T1);
}

CPU_INLINE int attn_few(const struct cpu_attn_tile *t)
{
    if (t->n_row > ATTN_DIRECT_ROWS || t->dv % ATTN_TILE != 0)
        return 0;
    for (uint32_t r = 1; r < t->n_row; r++)
        if (t->seen[r].from != t->seen[0].from || t->seen[r].to != t->seen[0].to)
            return 0;
    return 1;
}

static void attn_chunk(const struct cpu_attn_tile *t)
{
    const size_t dk = ((size_t)t->dk + 15) / 16 * 16, n_out = CPU_ATTN_OUT(t->dv);
    struct attn_work w = {.t = t, .q = t->scratch};
    w.keys = w.q + t->n_row * dk;
    w.rows = w.keys + 32 * dk;
    w.values = w.rows + 16 * dk;
    w.score = w.values + CPU_ATTN_CELLS * n_out;
    attn_call_values(t);
    attn_pack_queries(&w);
    attn_all_scores(&w);
    for (uint32_t r = 0; r < t->n_row; r++) {
        t->max[r] = -__builtin_inff();
        t->sum[r] = 0.0F;
        if (t->seen[r].from < t->seen[r].to)
            soften(w.score + (size_t)r * CPU_ATTN_SCORES, t->seen[r].from, t->seen[r].to,
                   &t->max[r], &t->sum[r]);
    }
    __builtin_memset(t->out, 0, t->n_row * n_out * sizeof *t->out);
    if (attn_few(t))
        attn_values_in_place(&w);
    else
        attn_all_values(&w);
}

#endif
