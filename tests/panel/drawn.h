/* SPDX-License-Identifier: Apache-2.0
 *
 * Panels read as atsinfer/panel.h draws them, one element at a time and with the drawing's numbers,
 * to judge the code that packs.
 */
#ifndef TEST_DRAWN_H
#define TEST_DRAWN_H

#include <stdint.h>

/* What the drawing says of column `col` of row r of a panel with rows of n_cols columns. */
struct drawn {
    uint32_t head[2]; /* d, dmin or m or scales_h as stored; the value's bits for floats */
    int32_t code; /* as the reference decoder gives it: less its zero point, or through a table */
    int32_t scale, min; /* as the reference decoder gives them; 1 and 0 where there are none */
};

struct drawn drawn_at(uint32_t type, const uint8_t *panel, uint64_t n_cols, uint32_t r,
                      uint64_t col);

#endif
