/* SPDX-License-Identifier: Apache-2.0
 * The drawings of atsinfer/panel.h, read literally. */
#include "drawn.h"

#include "atsinfer/quant.h"

static uint32_t u16_at(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

/* A record of a panel, and the block of it that a column belongs to. */
struct record {
    const uint8_t *data;
    uint32_t n;   /* blocks it holds */
    uint32_t i;   /* block of the column */
    uint32_t col; /* within the block */
};

/* Records of `group` blocks of `elems` columns, `bytes` long when whole. */
static struct record find(const uint8_t *panel, uint64_t n_cols, uint64_t col, uint32_t elems,
                          uint32_t group, uint32_t bytes)
{
    uint64_t block = col / elems, first = block / group * group, left = n_cols / elems - first;
    return (struct record){panel + first / group * bytes, (uint32_t)(left < group ? left : group),
                           (uint32_t)(block - first), (uint32_t)(col % elems)};
}

/* Byte x of row r in the chunk at p. */
static uint32_t byte_of(const uint8_t *p, uint32_t r, uint32_t x)
{
    return p[4 * r + x];
}

/* Column `col` of 32 in four chunks of nibbles. */
static uint32_t nibble_32(const uint8_t *chunks, uint32_t r, uint32_t col)
{
    uint32_t c = col % 16 / 4, b = byte_of(chunks + 64 * (size_t)c, r, col % 4);
    return col < 16 ? b & 15 : b >> 4;
}

static uint32_t fifth_32(const uint8_t *chunk, uint32_t r, uint32_t col)
{
    uint32_t c = col % 16 / 4;
    return byte_of(chunk, r, col % 4) >> (col < 16 ? c : 4 + c) & 1;
}

static struct drawn draw_32(uint32_t type, const uint8_t *panel, uint64_t n, uint32_t r,
                            uint64_t col)
{
    struct drawn d = {.scale = 1};
    struct record k;
    switch (type) {
    case ATSI_TYPE_Q4_0:
    case ATSI_TYPE_IQ4_NL:
        k = find(panel, n, col, 32, 2, 576);
        d.head[0] = u16_at(k.data + 32 * k.i + 2 * r);
        d.code = (int32_t)nibble_32(k.data + 32 * k.n + 256 * k.i, r, k.col);
        d.code = type == ATSI_TYPE_Q4_0 ? d.code - 8 : atsi_iq4_values[d.code];
        break;
    case ATSI_TYPE_Q4_1:
        k = find(panel, n, col, 32, 1, 320);
        d.head[0] = u16_at(k.data + 2 * r);
        d.head[1] = u16_at(k.data + 32 + 2 * r);
        d.code = (int32_t)nibble_32(k.data + 64, r, k.col);
        d.min = 1;
        break;
    case ATSI_TYPE_Q5_0:
        k = find(panel, n, col, 32, 2, 704);
        d.head[0] = u16_at(k.data + 32 * k.i + 2 * r);
        k.data += 32 * k.n + 320 * k.i;
        d.code = (int32_t)(nibble_32(k.data + 64, r, k.col) + 16 * fifth_32(k.data, r, k.col)) - 16;
        break;
    case ATSI_TYPE_Q5_1:
        k = find(panel, n, col, 32, 1, 384);
        d.head[0] = u16_at(k.data + 2 * r);
        d.head[1] = u16_at(k.data + 32 + 2 * r);
        d.code =
            (int32_t)(nibble_32(k.data + 128, r, k.col) + 16 * fifth_32(k.data + 64, r, k.col));
        d.min = 1;
        break;
    case ATSI_TYPE_Q8_0:
        k = find(panel, n, col, 32, 2, 1088);
        d.head[0] = u16_at(k.data + 32 * k.i + 2 * r);
        d.code = (int32_t)byte_of(k.data + 32 * k.n + 512 * k.i + 64 * (size_t)(k.col / 4), r,
                                  k.col % 4) -
                 128;
        break;
    default: /* MXFP4 */
        k = find(panel, n, col, 32, 4, 1088);
        d.head[0] = k.data[16 * k.i + r];
        d.code = atsi_mxfp4_values[nibble_32(k.data + 16 * k.n + 256 * k.i, r, k.col)];
        break;
    }
    return d;
}

/* Six-bit scale and min j of twelve bytes in three chunks. */
static void scales_k4(const uint8_t *chunks, uint32_t r, uint32_t j, struct drawn *d)
{
    uint32_t s[12];
    for (uint32_t i = 0; i < 12; i++)
        s[i] = byte_of(chunks + 64 * (size_t)(i / 4), r, i % 4);
    d->scale = (int32_t)(j < 4 ? s[j] & 63 : (s[j + 4] & 15) + 16 * (s[j - 4] >> 6));
    /* cppcheck-suppress arrayIndexOutOfBoundsCond ; there are eight: j is 7 at most */
    d->min = (int32_t)(j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) + 16 * (s[j] >> 6));
}

static struct drawn draw_k(uint32_t type, const uint8_t *panel, uint64_t n, uint32_t r,
                           uint64_t col)
{
    struct drawn d = {.scale = 1};
    uint32_t bytes = type == ATSI_TYPE_Q2_K   ? 1344
                     : type == ATSI_TYPE_Q4_K ? 2304
                     : type == ATSI_TYPE_Q5_K ? 2816
                                              : 2176;
    struct record k = find(panel, n, col, 256, 1, bytes);
    uint32_t c = k.col, g = c / 64, h = c / 32 % 2, dword = c % 32 / 4, b;
    d.head[0] = u16_at(k.data + 2 * r);
    d.head[1] = u16_at(k.data + 32 + 2 * r);
    switch (type) {
    case ATSI_TYPE_Q2_K:
        b = byte_of(k.data + 64 + 64 * (size_t)(c / 64), r, c / 16 % 4);
        d.scale = b & 15;
        d.min = (int32_t)(b >> 4);
        b = byte_of(k.data + 320 + 64 * (size_t)(8 * (c / 128) + dword), r, c % 4);
        d.code = b >> (2 * (c % 128 / 32)) & 3;
        break;
    case ATSI_TYPE_Q4_K:
        scales_k4(k.data + 64, r, c / 32, &d);
        b = byte_of(k.data + 256 + 64 * (size_t)(8 * g + dword), r, c % 4);
        d.code = h == 0 ? b & 15 : b >> 4;
        break;
    case ATSI_TYPE_Q5_K:
        scales_k4(k.data + 64, r, c / 32, &d);
        k.data += 256 + 640 * g;
        b = byte_of(k.data + 128 + 64 * (size_t)dword, r, c % 4);
        d.code = h == 0 ? b & 15 : b >> 4;
        b = byte_of(k.data + 64 * (size_t)(dword / 4), r, c % 4);
        d.code += 16 * (int32_t)(b >> (4 * h + dword % 4) & 1);
        break;
    default: { /* IQ4_XS */
        uint32_t j = c / 32;
        b = byte_of(k.data + 64, r, j / 2);
        d.scale = j % 2 == 0 ? b & 15 : b >> 4;
        d.scale += 16 * (int32_t)(d.head[1] >> (2 * j) & 3) - 32;
        d.code = atsi_iq4_values[nibble_32(k.data + 128 + 256 * (size_t)j, r, c % 32)];
        break;
    }
    }
    return d;
}

static struct drawn draw_q3_k(const uint8_t *panel, uint64_t n, uint32_t r, uint64_t col)
{
    struct drawn d = {.scale = 1};
    struct record k = find(panel, n, col, 256, 2, 3520);
    uint32_t c = k.col, u = c / 128, v = c % 128 / 16, t = c % 16 / 4, x = c % 4, g = c / 16, z[3];
    const uint8_t *s = k.data + 32 * k.n + 1728 * k.i, *q = s + 192 + 768 * u + 192 * t;
    uint32_t low = byte_of(s + 64 * (size_t)(g / 4 % 2), r, g % 4) >> (g < 8 ? 0 : 4) & 15;
    d.head[0] = u16_at(k.data + 32 * k.i + 2 * r);
    d.scale = (int32_t)(low + 16 * (byte_of(s + 128, r, g % 4) >> (2 * (g / 4)) & 3)) - 32;
    for (uint32_t i = 0; i < 3; i++)
        z[i] = byte_of(q + 64 * (size_t)i, r, x);
    if (v < 6)
        d.code = z[v / 2] >> (3 * (v % 2)) & 7;
    else if (v == 6)
        d.code = (int32_t)((z[0] >> 6) * 2 + (z[1] >> 6 & 1));
    else
        d.code = (int32_t)((z[2] >> 6) * 2 + (z[1] >> 7));
    d.code -= 4;
    return d;
}

static struct drawn draw_q6_k(const uint8_t *panel, uint64_t n, uint32_t r, uint64_t col)
{
    struct drawn d = {.scale = 1};
    struct record k = find(panel, n, col, 256, 2, 6720);
    uint32_t c = k.col, u = c / 64, v = c % 64 / 16, t = c % 16 / 4, x = c % 4, g = c / 16;
    const uint8_t *s = k.data + 32 * k.n + 3328 * k.i, *q = s + 256 + 768 * u + 192 * t;
    d.head[0] = u16_at(k.data + 32 * k.i + 2 * r);
    d.scale = (int8_t)byte_of(s + 64 * (size_t)(g / 4), r, g % 4);
    if (v < 3)
        d.code = byte_of(q + 64 * (size_t)v, r, x) & 63;
    else
        d.code = (int32_t)((byte_of(q, r, x) >> 6) * 16 + (byte_of(q + 64, r, x) >> 6) * 4 +
                           (byte_of(q + 128, r, x) >> 6));
    d.code -= 32;
    return d;
}

static struct drawn draw_float(uint32_t type, const uint8_t *panel, uint64_t n, uint32_t r,
                               uint64_t col)
{
    struct drawn d = {.scale = 1};
    const uint8_t *p = panel;
    if (type == ATSI_TYPE_F32) {
        p += 64 * col + 4 * (size_t)r;
        d.head[0] = u16_at(p) | u16_at(p + 2) << 16;
    } else if (n % 2 == 1 && col == n - 1) {
        d.head[0] = u16_at(p + 64 * (col / 2) + 2 * (size_t)r);
    } else {
        d.head[0] = u16_at(p + 64 * (col / 2) + 4 * (size_t)r + 2 * (col % 2));
    }
    return d;
}

struct drawn drawn_at(uint32_t type, const uint8_t *panel, uint64_t n_cols, uint32_t r,
                      uint64_t col)
{
    switch (type) {
    case ATSI_TYPE_F32:
    case ATSI_TYPE_F16:
    case ATSI_TYPE_BF16:
        return draw_float(type, panel, n_cols, r, col);
    case ATSI_TYPE_Q2_K:
    case ATSI_TYPE_Q4_K:
    case ATSI_TYPE_Q5_K:
    case ATSI_TYPE_IQ4_XS:
        return draw_k(type, panel, n_cols, r, col);
    case ATSI_TYPE_Q3_K:
        return draw_q3_k(panel, n_cols, r, col);
    case ATSI_TYPE_Q6_K:
        return draw_q6_k(panel, n_cols, r, col);
    default:
        return draw_32(type, panel, n_cols, r, col);
    }
}
