/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that are floats: columns of a row as f32, from either layout, with any number of columns.
 * Columns past the end are 0.
 */
#ifndef ATSI_CUDA_FLOATS_CUH
#define ATSI_CUDA_FLOATS_CUH

#include "product.cuh"

template <uint32_t TYPE>
static __device__ __forceinline__ float float_of_bits(uint32_t bits)
{
    if constexpr (TYPE == ATSI_TYPE_F32)
        return __uint_as_float(bits);
    else if constexpr (TYPE == ATSI_TYPE_F16)
        return float_of_half(bits & 0xffffu);
    else
        return __uint_as_float(bits << 16);
}

/* Columns c .. c + 7 of a row. */
template <uint32_t TYPE>
static __device__ __forceinline__ void float_row_8(float (&w)[8], const uint8_t *row, uint32_t c,
                                                   uint32_t k, bool wide)
{
    constexpr uint32_t size = TYPE == ATSI_TYPE_F32 ? 4 : 2;
    const uint8_t *p = row + (uint64_t)c * size;
    uint32_t v[2 * size];
    if (wide) {
        load_by_vectors<2 * size, 4, uint4>(v, p);
#pragma unroll
        for (int i = 0; i < 8; i++)
            w[i] = float_of_bits<TYPE>(size == 4 ? v[i % (2 * size)]
                                                 : v[i / 2] >> (16 * (i % 2)) & 0xffffu);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t bits = 0;
        if (c + i < k)
            bits = size == 4 ? ((const uint32_t *)(const void *)p)[i] : load_half(p + 2 * i);
        w[i] = float_of_bits<TYPE>(bits);
    }
}

/* Rows r .. r + 3 of a panel, column c (F32), or columns c and c + 1, c even. */
template <uint32_t TYPE, bool LOOSE>
static __device__ __forceinline__ void float_panel_1(float (&w)[4], const uint8_t *panel,
                                                     uint32_t r, uint32_t c)
{
    const panel_rows<4, LOOSE> from = {{panel, panel}, r};
    from.chunk(c, [&](int i, uint32_t x) { w[i] = float_of_bits<TYPE>(x); });
}

template <uint32_t TYPE, bool LOOSE>
static __device__ __forceinline__ void float_panel_2(float (&w)[2][4], const uint8_t *panel,
                                                     uint32_t r, uint32_t c, uint32_t k)
{
    const uint8_t *chunk = panel + (uint64_t)(c / 2) * ATSI_PANEL_CHUNK;
    if (c + 1 < k) {
        const panel_rows<4, LOOSE> from = {{chunk, chunk}, r};
        from.chunk(0, [&](int i, uint32_t x) {
            w[0][i] = float_of_bits<TYPE>(x & 0xffffu);
            w[1][i] = float_of_bits<TYPE>(x >> 16);
        });
    } else {
        load_heads<4, LOOSE>(chunk + 2 * r, [&](int i, uint32_t x) {
            w[0][i] = float_of_bits<TYPE>(x);
            w[1][i] = 0;
        });
    }
}

/* Rows r .. r + 3 of a panel, columns c .. c + 7, c even. */
template <uint32_t TYPE, bool LOOSE>
static __device__ __forceinline__ void float_panel_8(float (&w)[4][8], const uint8_t *panel,
                                                     uint32_t r, uint32_t c, uint32_t k)
{
    constexpr uint32_t step = TYPE == ATSI_TYPE_F32 ? 1 : 2;
#pragma unroll
    for (uint32_t j = 0; j < 8; j += step) {
        float v[2][4] = {};
        if (c + j < k) {
            if constexpr (step == 1)
                float_panel_1<TYPE, LOOSE>(v[0], panel, r, c + j);
            else
                float_panel_2<TYPE, LOOSE>(v, panel, r, c + j, k);
        }
#pragma unroll
        for (uint32_t i = 0; i < 4 * step; i++)
            w[i % 4][j + i / 4] = v[i / 4][i % 4];
    }
}

/* Whether rows of w and of x start at multiples of 16 bytes, and hold whole runs of 8. */
static inline bool cuda_floats_wide(const cuda_product &p)
{
    return p.k % 8 == 0 &&
           ((uintptr_t)p.w | p.row_bytes | p.matrix_bytes | (uintptr_t)p.x) % 16 == 0;
}

#endif
