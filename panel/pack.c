/* SPDX-License-Identifier: Apache-2.0
 *
 * Panels from rows and rows from panels: sixteen rows' blocks are cut (cut.c) and interleaved.
 */
#include "panel/pack.h"

#include <stdbool.h>

#include "panel/cut.h"

/* Four dwords of a row, or the same dword of four rows. */
typedef uint32_t dwords4 __attribute__((vector_size(16)));

/* One block of sixteen rows, cut. */
struct cut16 {
    uint8_t head[ATSI_PANEL_ROWS][PANEL_MAX_HEAD];
    uint8_t body[ATSI_PANEL_ROWS][PANEL_MAX_BODY];
};

static void transpose4x4(dwords4 v[4])
{
    dwords4 a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
    dwords4 b = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
    dwords4 c = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
    dwords4 d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
    v[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    v[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    v[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    v[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

/* Four dwords of each of sixteen rows to four chunks, `step` chunks apart. */
static void interleave4(const uint8_t *rows, size_t row_bytes, size_t step, uint8_t *chunks)
{
    for (size_t r = 0; r < ATSI_PANEL_ROWS; r += 4) {
        dwords4 v[4];
        for (size_t i = 0; i < 4; i++)
            memcpy(&v[i], rows + (r + i) * row_bytes, sizeof v[i]);
        transpose4x4(v);
        for (size_t i = 0; i < 4; i++)
            memcpy(chunks + i * step * ATSI_PANEL_CHUNK + 4 * r, &v[i], sizeof v[i]);
    }
}

static void deinterleave4(const uint8_t *chunks, size_t step, uint8_t *rows, size_t row_bytes)
{
    for (size_t r = 0; r < ATSI_PANEL_ROWS; r += 4) {
        dwords4 v[4];
        for (size_t i = 0; i < 4; i++)
            memcpy(&v[i], chunks + i * step * ATSI_PANEL_CHUNK + 4 * r, sizeof v[i]);
        transpose4x4(v);
        for (size_t i = 0; i < 4; i++)
            memcpy(rows + (r + i) * row_bytes, &v[i], sizeof v[i]);
    }
}

/* n dwords of each of sixteen rows to n chunks. */
static void interleave(const uint8_t *rows, size_t row_bytes, uint64_t n, uint8_t *chunks)
{
    uint64_t c = 0;
    for (; c + 4 <= n; c += 4)
        interleave4(rows + 4 * c, row_bytes, 1, chunks + ATSI_PANEL_CHUNK * c);
    for (; c < n; c++)
        for (size_t r = 0; r < ATSI_PANEL_ROWS; r++)
            memcpy(chunks + ATSI_PANEL_CHUNK * c + 4 * r, rows + r * row_bytes + 4 * c, 4);
}

/* Not inlined: gcc 12 then believes that n may exceed what a cut holds. */
__attribute__((noinline)) static void deinterleave(const uint8_t *chunks, uint64_t n, uint8_t *rows,
                                                   size_t row_bytes)
{
    uint64_t c = 0;
    for (; c + 4 <= n; c += 4)
        deinterleave4(chunks + ATSI_PANEL_CHUNK * c, 1, rows + 4 * c, row_bytes);
    for (; c < n; c++)
        for (size_t r = 0; r < ATSI_PANEL_ROWS; r++)
            memcpy(rows + r * row_bytes + 4 * c, chunks + ATSI_PANEL_CHUNK * c + 4 * r, 4);
}

/* Chunk of the first dword of run i of those cut in triples (cut.h), behind the plain ones. */
static size_t triple_at(uint32_t i)
{
    return ATSI_PANEL_CHUNK * (12 * (size_t)(i / 3) + i % 3);
}

/* ---------------------------------------------------------------- floats */
/* Bytes of a row behind its last whole dword: one value of two bytes, or none. */
static void pack_floats(uint64_t row, const uint8_t *rows, size_t row_bytes, uint8_t *panel)
{
    interleave(rows, row_bytes, row / 4, panel);
    if (row % 4 != 0)
        for (size_t r = 0; r < ATSI_PANEL_ROWS; r++)
            memcpy(panel + row / 4 * ATSI_PANEL_CHUNK + 2 * r, rows + r * row_bytes + row / 4 * 4,
                   2);
}

static void unpack_floats(uint64_t row, const uint8_t *panel, uint8_t *rows, size_t row_bytes)
{
    deinterleave(panel, row / 4, rows, row_bytes);
    if (row % 4 != 0)
        for (size_t r = 0; r < ATSI_PANEL_ROWS; r++)
            memcpy(rows + r * row_bytes + row / 4 * 4, panel + row / 4 * ATSI_PANEL_CHUNK + 2 * r,
                   2);
}

/* ---------------------------------------------------------------- blocks */
/* Heads of sixteen rows, field by field. */
static void pack_heads(const struct atsi_panel_form *f, const struct cut16 *cut, uint8_t *to)
{
    uint32_t size = f->head_bytes / f->n_heads;
    for (uint32_t h = 0; h < f->n_heads; h++)
        for (uint32_t r = 0; r < ATSI_PANEL_ROWS; r++)
            memcpy(to + (h * ATSI_PANEL_ROWS + r) * size, cut->head[r] + h * size, size);
}

static void unpack_head(const struct atsi_panel_form *f, const uint8_t *from, uint32_t row,
                        uint8_t *head)
{
    uint32_t size = f->head_bytes / f->n_heads;
    for (uint32_t h = 0; h < f->n_heads; h++)
        memcpy(head + h * size, from + (h * ATSI_PANEL_ROWS + row) * size, size);
}

static void interleave_body(const struct atsi_panel_form *f, const struct panel_cutter *cutter,
                            const struct cut16 *cut, uint8_t *chunks)
{
    const uint32_t plain = cutter->plain, runs = (f->n_chunks - plain) / 4;
    interleave(cut->body[0], sizeof cut->body[0], plain, chunks);
    for (uint32_t i = 0; i < runs; i++)
        interleave4(cut->body[0] + 4 * (size_t)plain + 16 * (size_t)i, sizeof cut->body[0], 3,
                    chunks + ATSI_PANEL_CHUNK * plain + triple_at(i));
}

static void deinterleave_body(const struct atsi_panel_form *f, const struct panel_cutter *cutter,
                              const uint8_t *chunks, struct cut16 *cut)
{
    const uint32_t plain = cutter->plain, runs = (f->n_chunks - plain) / 4;
    deinterleave(chunks, plain, cut->body[0], sizeof cut->body[0]);
    for (uint32_t i = 0; i < runs; i++)
        deinterleave4(chunks + ATSI_PANEL_CHUNK * plain + triple_at(i), 3,
                      cut->body[0] + 4 * (size_t)plain + 16 * (size_t)i, sizeof cut->body[0]);
}

/* The body of one row: as deinterleave_body(), a dword at a time. */
static void read_body(const struct atsi_panel_form *f, const struct panel_cutter *cutter,
                      const uint8_t *chunks, uint32_t row, uint8_t *body)
{
    const uint32_t plain = cutter->plain;
    for (uint32_t c = 0; c < f->n_chunks; c++) {
        size_t at = ATSI_PANEL_CHUNK * (size_t)c;
        if (c >= plain)
            at = ATSI_PANEL_CHUNK * (size_t)(plain + (c - plain) % 4 * 3) +
                 triple_at((c - plain) / 4);
        memcpy(body + 4 * (size_t)c, chunks + at + 4 * (size_t)row, 4);
    }
}

static void pack_blocks(uint32_t type, uint64_t n_blocks, const uint8_t *rows, size_t row_bytes,
                        uint8_t *panel)
{
    const struct atsi_panel_form *f = atsi_panel_form(type);
    const struct panel_cutter *cutter = panel_cutter(type);
    size_t bytes = atsi_type_info(type)->block_bytes;
    struct cut16 cut;
    for (uint64_t b = 0; b < n_blocks; b++) {
        struct atsi_panel_place at = atsi_panel_place(type, n_blocks, b);
        for (size_t r = 0; r < ATSI_PANEL_ROWS; r++)
            cutter->cut(rows + r * row_bytes + b * bytes, cut.head[r], cut.body[r]);
        pack_heads(f, &cut, panel + at.head);
        interleave_body(f, cutter, &cut, panel + at.body);
    }
}

static void unpack_blocks(uint32_t type, uint64_t n_blocks, const uint8_t *panel, uint8_t *rows,
                          size_t row_bytes)
{
    const struct atsi_panel_form *f = atsi_panel_form(type);
    const struct panel_cutter *cutter = panel_cutter(type);
    size_t bytes = atsi_type_info(type)->block_bytes;
    struct cut16 cut;
    for (uint64_t b = 0; b < n_blocks; b++) {
        struct atsi_panel_place at = atsi_panel_place(type, n_blocks, b);
        deinterleave_body(f, cutter, panel + at.body, &cut);
        for (uint32_t r = 0; r < ATSI_PANEL_ROWS; r++) {
            unpack_head(f, panel + at.head, r, cut.head[r]);
            cutter->join(cut.head[r], cut.body[r], rows + r * row_bytes + b * bytes);
        }
    }
}

/* ---------------------------------------------------------------- panels */
static bool is_float(uint32_t type)
{
    return atsi_type_info(type)->block_elems == 1;
}

static uint64_t blocks_of(uint32_t type, uint64_t elems)
{
    return elems / atsi_type_info(type)->block_elems;
}

void atsi_panel_pack(uint32_t type, uint64_t elems, const void *rows, uint64_t row_bytes,
                     uint64_t n_panels, void *panels)
{
    uint64_t bytes = atsi_panel_bytes(type, elems);
    for (uint64_t p = 0; p < n_panels; p++) {
        const uint8_t *from = (const uint8_t *)rows + p * ATSI_PANEL_ROWS * row_bytes;
        uint8_t *to = (uint8_t *)panels + p * bytes;
        if (is_float(type))
            pack_floats(bytes / ATSI_PANEL_ROWS, from, row_bytes, to);
        else
            pack_blocks(type, blocks_of(type, elems), from, row_bytes, to);
    }
}

void atsi_panel_unpack(uint32_t type, uint64_t elems, const void *panels, uint64_t n_panels,
                       void *rows, uint64_t row_bytes)
{
    uint64_t bytes = atsi_panel_bytes(type, elems);
    for (uint64_t p = 0; p < n_panels; p++) {
        const uint8_t *from = (const uint8_t *)panels + p * bytes;
        uint8_t *to = (uint8_t *)rows + p * ATSI_PANEL_ROWS * row_bytes;
        if (is_float(type))
            unpack_floats(bytes / ATSI_PANEL_ROWS, from, to, row_bytes);
        else
            unpack_blocks(type, blocks_of(type, elems), from, to, row_bytes);
    }
}

static void read_float(uint32_t type, uint64_t elems, const uint8_t *panel, uint32_t row,
                       uint64_t i, uint8_t *out)
{
    uint64_t size = atsi_type_info(type)->block_bytes, group = 4 / size, first = i - i % group;
    uint64_t step = elems - first < group ? size : 4; /* a short record has no whole dwords */
    memcpy(out, panel + atsi_panel_place(type, elems, i).body + row * step, size);
}

void atsi_panel_read(uint32_t type, uint64_t elems, const void *panel, uint32_t row, uint64_t first,
                     uint64_t n, void *out)
{
    const struct atsi_panel_form *f = atsi_panel_form(type);
    uint64_t n_blocks = blocks_of(type, elems), bytes = atsi_type_info(type)->block_bytes;
    for (uint64_t b = 0; b < n; b++) {
        struct atsi_panel_place at = atsi_panel_place(type, n_blocks, first + b);
        uint8_t head[PANEL_MAX_HEAD], body[PANEL_MAX_BODY], *to = (uint8_t *)out + b * bytes;
        if (is_float(type)) {
            read_float(type, elems, panel, row, first + b, to);
            continue;
        }
        unpack_head(f, (const uint8_t *)panel + at.head, row, head);
        read_body(f, panel_cutter(type), (const uint8_t *)panel + at.body, row, body);
        panel_cutter(type)->join(head, body, to);
    }
}

/* ---------------------------------------------------------------- matrices */
static uint64_t parts_of_one(const struct atsi_panel_matrix *m)
{
    return (m->rows + ATSI_PANEL_ROWS - 1) / ATSI_PANEL_ROWS;
}

uint64_t atsi_panel_parts(const struct atsi_panel_matrix *m)
{
    return parts_of_one(m) * m->n;
}

void atsi_panel_convert(const struct atsi_panel_matrix *m, uint64_t first, uint64_t end, int back,
                        const void *from, void *to)
{
    uint64_t row_bytes = atsi_row_bytes(m->type, m->elems), per = parts_of_one(m);
    for (uint64_t i = first; i < end; i++) {
        uint64_t row = i % per * ATSI_PANEL_ROWS;
        uint64_t at = (i / per * m->rows + row) * row_bytes;
        const uint8_t *src = (const uint8_t *)from + at;
        uint8_t *dst = (uint8_t *)to + at;
        if (m->rows - row < ATSI_PANEL_ROWS)
            memcpy(dst, src, (m->rows - row) * row_bytes);
        else if (back != 0)
            atsi_panel_unpack(m->type, m->elems, src, 1, dst, row_bytes);
        else
            atsi_panel_pack(m->type, m->elems, src, row_bytes, 1, dst);
    }
}

void atsi_panel_row(const struct atsi_panel_matrix *m, const void *from, uint64_t matrix,
                    uint64_t row, void *out)
{
    uint64_t row_bytes = atsi_row_bytes(m->type, m->elems), first = row - row % ATSI_PANEL_ROWS;
    const uint8_t *base = (const uint8_t *)from + matrix * m->rows * row_bytes;
    if (m->rows - first < ATSI_PANEL_ROWS)
        memcpy(out, base + row * row_bytes, row_bytes);
    else
        atsi_panel_read(m->type, m->elems, base + first * row_bytes, (uint32_t)(row - first), 0,
                        blocks_of(m->type, m->elems), out);
}
