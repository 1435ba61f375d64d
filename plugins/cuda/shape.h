/* SPDX-License-Identifier: Apache-2.0
 *
 * What supports() of the operations is made of: the shapes that op.h asks for, so that kernels need
 * no checks.  Data pointers are not looked at.
 */
#ifndef ATSI_CUDA_SHAPE_H
#define ATSI_CUDA_SHAPE_H

#include <stdbool.h>

#include "op.h"

/* No row is wider: products of two such numbers fit 64 bits, and one fits an int. */
#define CUDA_MAX_WIDTH (UINT32_MAX / 2)

static inline bool cuda_is_op(const struct atsi_op *op, uint32_t kind)
{
    return op != NULL && op->struct_size >= sizeof *op && op->kind == kind && op->n_rows > 0 &&
           op->n_rows <= INT32_MAX && (op->flags & ~ATSI_OP_EXACT) == 0;
}

static inline uint64_t cuda_width(const struct atsi_tensor *t)
{
    return t != NULL ? t->ne[0] : 0;
}

/* Rows of an activation, one right after the other. */
static inline bool cuda_is_rows(const struct atsi_tensor *t, const struct atsi_op *op,
                                uint64_t width, uint32_t type)
{
    return t != NULL && t->type == type && t->layout == ATSI_LAYOUT_ROWS && t->ne[0] == width &&
           width > 0 && width < CUDA_MAX_WIDTH && t->ne[1] >= op->n_rows &&
           t->row_bytes == width * 4;
}

static inline bool cuda_is_f32(const struct atsi_tensor *t, const struct atsi_op *op,
                               uint64_t width)
{
    return cuda_is_rows(t, op, width, ATSI_TYPE_F32);
}

static inline bool cuda_is_i32(const struct atsi_tensor *t, const struct atsi_op *op,
                               uint64_t width)
{
    return cuda_is_rows(t, op, width, ATSI_TYPE_I32);
}

/* n f32 numbers without gap: a vector, or a matrix of that many elements. */
static inline bool cuda_is_vector(const struct atsi_tensor *t, uint64_t n)
{
    uint64_t elems = 1;
    if (t == NULL || t->type != ATSI_TYPE_F32 || t->layout != ATSI_LAYOUT_ROWS || t->n_dims > 4)
        return false;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (t->ne[d] == 0 || t->ne[d] > n / elems)
            return false;
        elems *= t->ne[d];
    }
    return elems == n && t->row_bytes == t->ne[0] * 4;
}

/* A dense f32 matrix {ne0, ne1}, or a stack of ne2. */
static inline bool cuda_is_matrix(const struct atsi_tensor *t, uint64_t ne0, uint64_t ne1,
                                  uint64_t ne2)
{
    return t != NULL && t->type == ATSI_TYPE_F32 && t->layout == ATSI_LAYOUT_ROWS &&
           t->n_dims <= 4 && t->ne[0] == ne0 && t->ne[1] == ne1 && t->ne[2] == ne2 &&
           t->ne[3] == 1 && t->row_bytes == ne0 * 4;
}

/* scratch() of operations that need none. */
static inline size_t cuda_no_scratch(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    (void)op;
    return 0;
}

/* The last of `runs` runs of n elements, `stride` from start to start, ends within `width`. */
static inline bool cuda_runs_fit(uint64_t runs, uint64_t stride, uint64_t offset, uint64_t n,
                                 uint64_t width)
{
    return runs > 0 && runs < CUDA_MAX_WIDTH && (runs - 1) * stride + offset + n <= width;
}

#endif
