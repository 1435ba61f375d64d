/* SPDX-License-Identifier: Apache-2.0
 *
 * The tile instructions this plugin uses, one macro each: operands are register numbers and must be
 * literals.  A test that compiles the kernels for a CPU without tiles names a header of its own in
 * AMX_TILE_OPS.
 */
#ifndef ATSI_CPU_AMX_TILE_OPS_H
#define ATSI_CPU_AMX_TILE_OPS_H

#include <stdint.h>

/* Shapes of all eight tiles (Intel SDM volume 1, 18: palette 1). */
struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

#ifdef AMX_TILE_OPS
#include AMX_TILE_OPS
#else
#include <immintrin.h>
#define AMX_CONFIGURE(config) _tile_loadconfig(config)
#define AMX_RELEASE() _tile_release()
#define AMX_ZERO(tile) _tile_zero(tile)
#define AMX_LOAD(tile, from, stride) _tile_loadd(tile, from, stride)
#define AMX_STORE(tile, to, stride) _tile_stored(tile, to, stride)
/* c[m][n] += sum over k < 64 of a[m][k] (s8) * b[k / 4][n][k % 4] (s8) */
#define AMX_DOT(c, a, b) _tile_dpbssd(c, a, b)
#endif

#endif
