/* SPDX-License-Identifier: Apache-2.0
 * What supports() of matrix products asks of a weight. */
#ifndef ATSI_CUDA_WEIGHT_SHAPE_H
#define ATSI_CUDA_WEIGHT_SHAPE_H

#include "atsinfer/panel.h"
#include "shape.h"

static inline bool cuda_is_float_type(uint32_t type)
{
    return type == ATSI_TYPE_F32 || type == ATSI_TYPE_F16 || type == ATSI_TYPE_BF16;
}

/* What a tensor's address is a multiple of (op.h; blocks of MXFP4 have odd sizes). */
static inline bool cuda_is_aligned(const struct atsi_tensor *t)
{
    uint64_t unit = t->type == ATSI_TYPE_F32 ? 4 : t->type == ATSI_TYPE_MXFP4 ? 1 : 2;
    return (uintptr_t)t->data % unit == 0;
}

/* Fast kernels read panels 16 bytes at a time.  Matrices of a stack start at multiples of that, but
 * for odd shapes. */
static inline bool cuda_is_loose(const struct atsi_tensor *t)
{
    uint64_t next = t->ne[2] > 1 ? t->ne[1] * t->row_bytes : 0;
    return t->layout == ATSI_LAYOUT_PANELS && ((uintptr_t)t->data | next) % 16 != 0;
}

/* A matrix, or a stack of them, of any type that there are products for, in either layout. */
static inline bool cuda_is_weight(const struct atsi_tensor *t, bool stack)
{
    if (t == NULL || atsi_panel_form(t->type) == NULL ||
        (t->layout != ATSI_LAYOUT_ROWS && t->layout != ATSI_LAYOUT_PANELS) || t->n_dims < 1 ||
        t->n_dims > (stack ? 3U : 2U))
        return false;
    return t->ne[0] > 0 && t->ne[0] < CUDA_MAX_WIDTH && t->ne[1] > 0 && t->ne[1] < CUDA_MAX_WIDTH &&
           t->ne[2] > 0 && t->ne[2] < (stack ? INT32_MAX : 2) && t->ne[3] == 1 &&
           t->row_bytes == atsi_row_bytes(t->type, t->ne[0]) && t->row_bytes != 0 &&
           cuda_is_aligned(t);
}

#endif
