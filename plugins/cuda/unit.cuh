/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights as matrix products see them: units of 32 elements of one row, as signed bytes in two runs
 * of 16 neighbouring elements, with an integer scale and min per run and float ones for all:
 *
 *     value = (d * sc[run]) * (q - ZERO) - (m * mn[run])
 *
 * unit_shape<TYPE> says which of these a type has and where the runs lie; how the bytes of either
 * layout become a unit is in load.cuh and unpack.cuh.  Formats: docs/formats.md, quant.h, panel.h.
 */
#ifndef ATSI_CUDA_UNIT_CUH
#define ATSI_CUDA_UNIT_CUH

#include "atsinfer/op.h"
#include "atsinfer/panel.h"
#include "launch.cuh"

#define CUDA_ROWS ATSI_LAYOUT_ROWS
#define CUDA_PANELS ATSI_LAYOUT_PANELS
/* Panels that start anywhere: those of a stack whose matrices have an odd shape. */
#define CUDA_LOOSE_PANELS 2

#define UNIT_ELEMS 32u

/* What is read of a unit, still packed.  Each type uses a part of it, the rest takes no registers.
 */
struct packed {
    uint32_t q[12]; /* codes */
    uint32_t h[8];  /* higher bits of them */
    uint32_t s[3];  /* integer scales */
    uint32_t d, m;  /* f16 (e8m0 of MXFP4); m: f16, or scales_h of IQ4_XS */
};

struct unit {
    int32_t q[8]; /* four elements each: 0..3 of the first run, 4..7 of the second */
    int32_t sc[2], mn[2];
    float d, m;
};

/* ELEMS, BYTES of a block; SUB elements under one integer scale; group, head bytes and chunks of a
 * panel's record; ZERO; what the type has: SCALED integer scales, MINS integer mins, OFFSET a float
 * added (Q4_1, Q5_1). */
template <uint32_t ELEMS_, uint32_t SUB_, uint32_t BYTES_, uint32_t GROUP_, uint32_t HEAD_,
          uint32_t CHUNKS_, int ZERO_, bool SCALED_, bool MINS_, bool OFFSET_>
struct shape {
    static constexpr uint32_t ELEMS = ELEMS_, SUB = SUB_, BYTES = BYTES_, GROUP = GROUP_,
                              HEAD = HEAD_, CHUNKS = CHUNKS_, UNITS = ELEMS_ / UNIT_ELEMS;
    static constexpr int ZERO = ZERO_;
    static constexpr bool SCALED = SCALED_, MINS = MINS_, OFFSET = OFFSET_;
};

template <uint32_t TYPE>
struct unit_shape;

/* clang-format off */
template <> struct unit_shape<ATSI_TYPE_Q4_0>   : shape<32, 32, 18, 2, 2, 4, 8, false, false, false> {};
template <> struct unit_shape<ATSI_TYPE_Q4_1>   : shape<32, 32, 20, 1, 4, 4, 0, false, false, true> {};
template <> struct unit_shape<ATSI_TYPE_Q5_0>   : shape<32, 32, 22, 2, 2, 5, 16, false, false, false> {};
template <> struct unit_shape<ATSI_TYPE_Q5_1>   : shape<32, 32, 24, 1, 4, 5, 0, false, false, true> {};
template <> struct unit_shape<ATSI_TYPE_Q8_0>   : shape<32, 32, 34, 2, 2, 8, 0, false, false, false> {};
template <> struct unit_shape<ATSI_TYPE_IQ4_NL> : shape<32, 32, 18, 2, 2, 4, 0, false, false, false> {};
template <> struct unit_shape<ATSI_TYPE_MXFP4>  : shape<32, 32, 17, 4, 1, 4, 0, false, false, false> {};
template <> struct unit_shape<ATSI_TYPE_Q2_K>   : shape<256, 16, 84, 1, 4, 20, 0, true, true, false> {};
template <> struct unit_shape<ATSI_TYPE_Q3_K>   : shape<256, 16, 110, 2, 2, 27, 4, true, false, false> {};
template <> struct unit_shape<ATSI_TYPE_Q4_K>   : shape<256, 32, 144, 1, 4, 35, 0, true, true, false> {};
template <> struct unit_shape<ATSI_TYPE_Q5_K>   : shape<256, 32, 176, 1, 4, 43, 0, true, true, false> {};
template <> struct unit_shape<ATSI_TYPE_Q6_K>   : shape<256, 16, 210, 2, 2, 52, 32, true, false, false> {};
template <> struct unit_shape<ATSI_TYPE_IQ4_XS> : shape<256, 32, 136, 1, 4, 33, 0, true, false, false> {};
/* clang-format on */

/* First element, within its block, of run 0 or 1 of unit u < UNITS.  A unit is what a few whole
 * words hold, so that this depends on the layout where panels are cut differently (Q3_K, Q6_K). */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ uint32_t unit_run(uint32_t u, uint32_t run)
{
    constexpr bool rows = LAYOUT == CUDA_ROWS;
    if constexpr (TYPE == ATSI_TYPE_Q4_K || TYPE == ATSI_TYPE_Q5_K)
        return 64 * (u >> 1) + 16 * (u & 1) + 32 * run;
    else if constexpr (TYPE == ATSI_TYPE_Q2_K || (TYPE == ATSI_TYPE_Q3_K && rows))
        return 64 * (u >> 1) + 16 * (u & 1) + 32 * run;
    else if constexpr (TYPE == ATSI_TYPE_Q6_K && rows)
        return 128 * (u >> 2) + 16 * (u & 3) + 64 * run;
    else
        return 32 * u + 16 * run;
}

#endif
