/* SPDX-License-Identifier: Apache-2.0
 *
 * ATSI_LAYOUT_PANELS byte by byte: the one packed layout of weights, for CPUs and GPUs alike.
 *
 * A panel is 16 neighbouring rows, 16 p .. 16 p + 15, of one matrix.  It takes as many bytes as its
 * rows do in the file, and holds the same information: packing loses nothing.  Panels follow one
 * another without gap; the ne[1] % 16 rows that fill no panel lie behind them as in the file; each
 * matrix of a stack is laid out for itself.  So the panel of row 16 p starts where row 16 p starts
 * in the file, and the matrices of a stack start where they do there.
 *
 * Inside a panel, records follow one another along the columns.  A record holds `group` blocks of
 * every row: first what scales them (their heads), then their codes in chunks.  The last record of
 * a panel holds fewer blocks when the number of blocks in a row is no multiple of `group`; it is
 * built the same way (heads, then chunks), only shorter.
 *
 * Why so: dword lanes are rows, so that sums need no shuffles; a chunk meets one activation dword
 * (vpdpbusd, dp4a); scales are whole vectors; the order inside a dword is that of the file, so that
 * activations need no permutation.  Three- and six-bit codes are re-cut, because taking them apart
 * as the file has them costs more instructions than memory leaves time for.
 *
 * panel/pack.h packs and unpacks.  This header is plain C11, C++ and CUDA.
 */
#ifndef ATSINFER_PANEL_H
#define ATSINFER_PANEL_H

#include "atsinfer/quant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off: drawings
 *
 *   f16[16], u8[16], ..   one value per row, row 0 first
 *   chunk                 64 bytes: bytes 4 r .. 4 r + 3 are row r's; x = 0..3 is the byte among
 *                         them.  One 512-bit register, its dword lanes are rows.
 *   column c              counted from the first column of the block; of floats: of the record
 *
 * F32     record = 1 column, 64 bytes
 *            0  chunk: the value
 * F16,    record = 2 columns, 64 bytes
 * BF16       0  chunk: columns 0 and 1          (short record: 32 bytes, value[16])
 *
 * Q4_0,   record = 2 blocks, 64 columns, 576 bytes
 * IQ4_NL     0  d of block 0, f16[16]
 *           32  d of block 1, f16[16]
 *           64  block 0: chunks c = 0..3: qs[4 c + x], low nibble column 4 c + x,
 *                                                      high nibble column 16 + 4 c + x
 *          320  block 1: likewise
 * Q4_1    record = 1 block, 32 columns, 320 bytes
 *            0  d, f16[16]
 *           32  m, f16[16]
 *           64  chunks c = 0..3 as of Q4_0
 * Q5_0    record = 2 blocks, 64 columns, 704 bytes
 *            0  d of block 0, f16[16]
 *           32  d of block 1, f16[16]
 *           64  block 0: a chunk of fifth bits: bit c of byte x is bit 4 of the low nibble's column
 *                        4 c + x, bit 4 + c that of the high nibble's column 16 + 4 c + x, c = 0..3
 *          128           chunks c = 0..3 as of Q4_0
 *          384  block 1: likewise
 * Q5_1    record = 1 block, 32 columns, 384 bytes
 *            0  d, f16[16]
 *           32  m, f16[16]
 *           64  fifth bits as of Q5_0
 *          128  chunks c = 0..3 as of Q4_0
 * Q8_0    record = 2 blocks, 64 columns, 1088 bytes
 *            0  d of block 0, f16[16]
 *           32  d of block 1, f16[16]
 *           64  block 0: chunks c = 0..7: column 4 c + x as q + 128 (the sign bit flipped), so that
 *                        it is the unsigned operand of u8 x s8 products
 *          576  block 1: likewise
 * MXFP4   record = 4 blocks, 128 columns, 1088 bytes
 *            0  e of block 0, u8[16];  16, 32, 48  e of blocks 1, 2, 3
 *           64  block 0: chunks c = 0..3 as of Q4_0;  320, 576, 832  blocks 1, 2, 3
 *
 * Q2_K    record = 1 super-block, 256 columns, 1344 bytes
 *            0  d, f16[16]
 *           32  dmin, f16[16]
 *           64  4 chunks s: scales[4 s + x]: of sub-block 4 s + x (16 columns): low nibble scale,
 *                                            high nibble min
 *          320  16 chunks i: qs[4 i + x]: bits 2 k and 2 k + 1, k = 0..3, are column
 *                                         128 (i / 8) + 32 k + 4 (i % 8) + x
 * Q3_K    record = 2 super-blocks, 512 columns, 3520 bytes
 *            0  d of super-block 0, f16[16]
 *           32  d of super-block 1, f16[16]
 *           64  super-block 0, 1728 bytes:
 *                 0  3 chunks s: scales[4 s + x], coded as in the file
 *               192  for u = 0, 1 (128 columns), for t = 0..3: chunks z = 0, 1, 2.  With v(i) = the
 *                    3-bit code (value + 4) of column 128 u + 16 i + 4 t + x they hold
 *                      z = 0:  v(0) | v(1) << 3 | (v(6) >> 1) << 6
 *                      z = 1:  v(2) | v(3) << 3 | (v(6) & 1) << 6 | (v(7) & 1) << 7
 *                      z = 2:  v(4) | v(5) << 3 | (v(7) >> 1) << 6
 *         1792  super-block 1: likewise
 * Q4_K    record = 1 super-block, 256 columns, 2304 bytes
 *            0  d, f16[16]
 *           32  dmin, f16[16]
 *           64  3 chunks s: scales[4 s + x], coded as in the file
 *          256  32 chunks 8 g + c: qs[32 g + 4 c + x]: low nibble column 64 g + 4 c + x, high
 *                                  nibble column 64 g + 32 + 4 c + x, g = 0..3, c = 0..7
 * Q5_K    record = 1 super-block, 256 columns, 2816 bytes
 *       0..255  as of Q4_K
 *          256  for g = 0..3 (64 columns), 640 bytes: 2 chunks z of fifth bits, chunks c = 0..7
 *               as of Q4_K.  Bit c % 4 of byte x of chunk z = c / 4 is bit 4 of the low nibble of
 *               chunk c, bit 4 + c % 4 that of the high nibble.
 * Q6_K    record = 2 super-blocks, 512 columns, 6720 bytes
 *            0  d of super-block 0, f16[16]
 *           32  d of super-block 1, f16[16]
 *           64  super-block 0, 3328 bytes:
 *                 0  4 chunks s: scales[4 s + x], signed
 *               256  for u = 0..3 (64 columns), for t = 0..3: chunks z = 0, 1, 2.  With v(i) = the
 *                    6-bit code (value + 32) of column 64 u + 16 i + 4 t + x they hold
 *                      v(z) | (v(3) >> (4 - 2 z) & 3) << 6
 *         3392  super-block 1: likewise
 * IQ4_XS  record = 1 super-block, 256 columns, 2176 bytes
 *            0  d, f16[16]
 *           32  scales_h, u16[16]
 *           64  1 chunk: scales_l[x]
 *          128  32 chunks 4 j + c: qs[16 j + 4 c + x]: low nibble column 32 j + 4 c + x, high
 *                                  nibble column 32 j + 16 + 4 c + x, j = 0..7, c = 0..3
 */
/* clang-format on */

#define ATSI_PANEL_ROWS 16u
#define ATSI_PANEL_CHUNK 64u /* bytes: 4 of each row */

/* The shape of a type's records. */
struct atsi_panel_form {
    uint32_t group;      /* blocks of a full record; of F16, BF16 and F32: columns of a chunk */
    uint32_t head_bytes; /* of one row's block: d, and dmin, m or scales_h; 0 for floats */
    uint32_t n_heads;    /* fields they are: each is a run of 16 values */
    uint32_t n_chunks;   /* of one block; 0 for floats, whose records are single chunks */
};

/* [any thread]  The form of a weight type, or NULL when it has no panels (I32, unknown types). */
static inline const struct atsi_panel_form *atsi_panel_form(uint32_t type)
{
    static const struct atsi_panel_form f32 = {1, 0, 0, 0}, f16 = {2, 0, 0, 0};
    static const struct atsi_panel_form q4_0 = {2, 2, 1, 4}, q4_1 = {1, 4, 2, 4};
    static const struct atsi_panel_form q5_0 = {2, 2, 1, 5}, q5_1 = {1, 4, 2, 5};
    static const struct atsi_panel_form q8_0 = {2, 2, 1, 8}, mxfp4 = {4, 1, 1, 4};
    static const struct atsi_panel_form q2_k = {1, 4, 2, 20}, q3_k = {2, 2, 1, 27};
    static const struct atsi_panel_form q4_k = {1, 4, 2, 35}, q5_k = {1, 4, 2, 43};
    static const struct atsi_panel_form q6_k = {2, 2, 1, 52}, iq4_xs = {1, 4, 2, 33};
    switch (type) {
    case ATSI_TYPE_F32:
        return &f32;
    case ATSI_TYPE_F16:
    case ATSI_TYPE_BF16:
        return &f16;
    case ATSI_TYPE_Q4_0:
    case ATSI_TYPE_IQ4_NL:
        return &q4_0;
    case ATSI_TYPE_Q4_1:
        return &q4_1;
    case ATSI_TYPE_Q5_0:
        return &q5_0;
    case ATSI_TYPE_Q5_1:
        return &q5_1;
    case ATSI_TYPE_Q8_0:
        return &q8_0;
    case ATSI_TYPE_MXFP4:
        return &mxfp4;
    case ATSI_TYPE_Q2_K:
        return &q2_k;
    case ATSI_TYPE_Q3_K:
        return &q3_k;
    case ATSI_TYPE_Q4_K:
        return &q4_k;
    case ATSI_TYPE_Q5_K:
        return &q5_k;
    case ATSI_TYPE_Q6_K:
        return &q6_k;
    case ATSI_TYPE_IQ4_XS:
        return &iq4_xs;
    default:
        return NULL;
    }
}

/* [any thread]  Bytes of one panel of rows of `elems` elements; 0 when the type has no panels or
 * elems is no multiple of its block.  No overflow for elems < 2^52. */
static inline uint64_t atsi_panel_bytes(uint32_t type, uint64_t elems)
{
    return atsi_panel_form(type) != NULL ? ATSI_PANEL_ROWS * atsi_row_bytes(type, elems) : 0;
}

/* [any thread]  Panels of one matrix of `rows` rows; rows % 16 more rows follow them. */
static inline uint64_t atsi_panel_count(uint64_t rows)
{
    return rows / ATSI_PANEL_ROWS;
}

/* Where a block of a panel lies, in bytes from the panel's start. */
struct atsi_panel_place {
    uint64_t head; /* its first field, 16 values; further fields follow */
    uint64_t body; /* its first chunk; of floats: row 0's value, row r's is 4 r bytes behind (2 r in
                    * a short record) */
};

/* [any thread]  Place of block `block` of rows of n_blocks blocks (block < n_blocks; a block of a
 * float type is one element).  The type has panels. */
static inline struct atsi_panel_place atsi_panel_place(uint32_t type, uint64_t n_blocks,
                                                       uint64_t block)
{
    const struct atsi_panel_form *f = atsi_panel_form(type);
    uint64_t bytes = atsi_type_info(type)->block_bytes, i = block % f->group, first = block - i;
    uint64_t n = n_blocks - first < f->group ? n_blocks - first : f->group;
    struct atsi_panel_place at;
    at.head = first * bytes * ATSI_PANEL_ROWS;
    if (f->n_chunks == 0) {
        at.body = at.head + i * bytes;
        return at;
    }
    at.body = at.head + n * f->head_bytes * ATSI_PANEL_ROWS + i * f->n_chunks * ATSI_PANEL_CHUNK;
    at.head += i * f->head_bytes * ATSI_PANEL_ROWS;
    return at;
}

#ifdef __cplusplus
}
#endif
#endif
