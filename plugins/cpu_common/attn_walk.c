/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a few rows over all they see: the kernel's slot takes one chunk of positions, and
 * what chunks give is joined here, always one after the other.  A state and a chunk's result look
 * alike: [n_row] maxima, [n_row] sums, [n_row] rows of values.
 */
#include "attn_walk.h"

#include <math.h>
#include <string.h>

#define LINE_FLOATS 16u

static size_t whole_lines(size_t floats)
{
    return (floats + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
}

size_t cpu_attn_part(uint32_t n_row, uint32_t dv)
{
    return 2 * whole_lines(n_row) + n_row * CPU_ATTN_OUT(dv);
}

size_t cpu_attn_chunk_scratch(uint32_t n_row, uint32_t dk, uint32_t dv)
{
    return CPU_ATTN_SCRATCH(n_row, dk, dv);
}

size_t cpu_attend_scratch(uint32_t n_row, uint32_t dk, uint32_t dv)
{
    return cpu_attn_chunk_scratch(n_row, dk, dv) + 2 * cpu_attn_part(n_row, dv);
}

uint32_t cpu_attn_chunks(uint32_t start, uint32_t n_kv)
{
    return (start + n_kv - 1) / CPU_ATTN_CELLS - start / CPU_ATTN_CELLS + 1;
}

static uint32_t rows_of(const struct cpu_attn_args *a)
{
    return a->n_tok * a->n_head;
}

/* Positions [from, to) as cells of the chunk that begins at `base`. */
static struct cpu_attn_seen in_chunk(uint32_t from, uint32_t to, uint32_t base)
{
    struct cpu_attn_seen s = {from > base ? from - base : 0, to > base ? to - base : 0};
    s.from = s.from < CPU_ATTN_CELLS ? s.from : CPU_ATTN_CELLS;
    s.to = s.to < CPU_ATTN_CELLS ? s.to : CPU_ATTN_CELLS;
    return s;
}

static void what_rows_see(const struct cpu_attn_args *a, uint32_t base, struct cpu_attn_seen *seen)
{
    for (uint32_t t = 0; t < a->n_tok; t++) {
        uint32_t to = a->start + a->n_kv - (a->n_tok - 1 - t);
        uint32_t from = a->window != 0 && to > a->window ? to - a->window : 0;
        struct cpu_attn_seen s = in_chunk(from > a->start ? from : a->start, to, base);
        for (uint32_t h = 0; h < a->n_head; h++)
            seen[t * a->n_head + h] = s;
    }
}

static const void *cell_at(const void *first, const void *second, uint32_t n_first, uint32_t cell,
                           size_t row)
{
    return cell < n_first ? (const unsigned char *)first + cell * row
                          : (const unsigned char *)second + (cell - n_first) * row;
}

void cpu_attn_chunk(const struct cpu_kernels *k, const struct cpu_attn_args *a, uint32_t i,
                    float *part, float *scratch)
{
    struct cpu_attn_seen seen[CPU_ATTN_ROWS];
    uint32_t base = (a->start / CPU_ATTN_CELLS + i) * CPU_ATTN_CELLS, n_row = rows_of(a);
    struct cpu_attn_seen all = in_chunk(a->start, a->start + a->n_kv, base);
    uint32_t cell = base + all.from - a->start; /* the chunk's first cell */
    uint32_t left = cell < a->n_first ? a->n_first - cell : 0, n = all.to - all.from;
    size_t lines = whole_lines(n_row);
    size_t rk = (size_t)atsi_row_bytes(a->type_k, a->dk),
           rv = (size_t)atsi_row_bytes(a->type_v, a->dv);
    struct cpu_attn_tile t = {.n_row = n_row,
                              .n_head = a->n_head,
                              .dk = a->dk,
                              .dv = a->dv,
                              .at = all.from,
                              .n = n,
                              .n_first = left == 0 || left > n ? n : left,
                              .type_k = a->type_k,
                              .type_v = a->type_v,
                              .scale = a->scale,
                              .q = a->q,
                              .q_stride = a->q_stride,
                              .seen = seen,
                              .k = cell_at(a->k, a->k2, a->n_first, cell, rk),
                              .v = cell_at(a->v, a->v2, a->n_first, cell, rv),
                              .k2 = a->k2,
                              .v2 = a->v2,
                              .max = part,
                              .sum = part + lines,
                              .out = part + 2 * lines,
                              .scratch = scratch};
    what_rows_see(a, base, seen);
    k->attn(&t);
}

/* ---------------------------------------------------------------- joining */
/* A sink joins the softmax and has no value. */
static void begin(const struct cpu_attn_args *a, float *state)
{
    uint32_t n_row = rows_of(a);
    float *sum = state + whole_lines(n_row);
    for (uint32_t r = 0; r < n_row; r++) {
        state[r] = a->sink != NULL ? a->sink[r % a->n_head] : -INFINITY;
        sum[r] = a->sink != NULL ? 1.0F : 0.0F;
    }
    memset(state + 2 * whole_lines(n_row), 0, n_row * CPU_ATTN_OUT(a->dv) * sizeof *state);
}

static void join_row(float *restrict to, const float *restrict from, float a, float b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = to[i] * a + from[i] * b;
}

static void join(const struct cpu_attn_args *a, float *state, const float *part)
{
    uint32_t n_row = rows_of(a);
    size_t lines = whole_lines(n_row), n = CPU_ATTN_OUT(a->dv);
    for (uint32_t r = 0; r < n_row; r++) {
        float max = fmaxf(state[r], part[r]), was, is;
        if (part[lines + r] == 0.0F) /* the row sees nothing of this chunk */
            continue;
        was = expf(state[r] - max);
        is = expf(part[r] - max);
        state[r] = max;
        state[lines + r] = state[lines + r] * was + part[lines + r] * is;
        join_row(state + 2 * lines + r * n, part + 2 * lines + r * n, was, is, n);
    }
}

static void finish(const struct cpu_attn_args *a, const float *state)
{
    uint32_t n_row = rows_of(a);
    size_t lines = whole_lines(n_row), n = CPU_ATTN_OUT(a->dv);
    for (uint32_t r = 0; r < n_row; r++) {
        const float *from = state + 2 * lines + r * n, inv = 1.0F / state[lines + r];
        float *to = a->out + r / a->n_head * a->out_stride + (size_t)(r % a->n_head) * a->dv;
        for (uint32_t i = 0; i < a->dv; i++)
            to[i] = from[i] * inv;
    }
}

void cpu_attn_join(const struct cpu_attn_args *a, const float *parts, float *state)
{
    uint32_t n = cpu_attn_chunks(a->start, a->n_kv);
    size_t each = cpu_attn_part(rows_of(a), a->dv);
    begin(a, state);
    for (uint32_t i = 0; i < n; i++)
        join(a, state, parts + i * each);
    finish(a, state);
}

void cpu_attend(const struct cpu_kernels *k, const struct cpu_attn_args *a, float *scratch)
{
    uint32_t n = cpu_attn_chunks(a->start, a->n_kv);
    float *part = scratch + cpu_attn_chunk_scratch(rows_of(a), a->dk, a->dv);
    float *state = part + cpu_attn_part(rows_of(a), a->dv);
    begin(a, state);
    for (uint32_t i = 0; i < n; i++) {
        cpu_attn_chunk(k, a, i, part, scratch);
        join(a, state, part);
    }
    finish(a, state);
}
