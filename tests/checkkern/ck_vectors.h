/* SPDX-License-Identifier: Apache-2.0
 * Vectors in guarded memory for the checks of operations on one row. */
#ifndef CK_VECTORS_H
#define CK_VECTORS_H

#include "ck.h"

struct ck_op_case {
    const struct cpu_kernels *k;
    uint32_t n, n_head, head_dim, n_rot, mode;
    enum ck_mode data;
    bool in_place;
};

/* Three vectors; y starts as a copy of a when the result goes in place. */
struct ck_vectors {
    struct ck_mem a, b, y;
    const float *x, *z;
    float *out;
};

struct ck_vectors ck_vectors_open(struct ck *c, const struct ck_op_case *o, size_t na, size_t nb,
                                  size_t ny);
/* Operands must be as they were, and nothing around the result may be written. */
void ck_vectors_close(struct ck *c, struct ck_vectors *v);
/* The first operand, as the kernel gets it. */
const float *ck_source(const struct ck_vectors *v, const struct ck_op_case *o);
/* Stretches an operand of n elements, element i by first + i % 257 * step. */
void ck_vectors_scale(struct ck_vectors *v, const struct ck_op_case *o, float first, float step);
void ck_vectors_scale_second(struct ck_vectors *v, const struct ck_op_case *o, float by);
/* fn over all lengths, kinds of data, in place and not. */
void ck_over_lengths(struct ck *c, const struct cpu_kernels *k, const char *name,
                     void (*fn)(struct ck *c, const void *arg), bool in_place_too);
/* Two operands to one result, the first n elements. */
typedef void ck_pair_fn(const struct cpu_kernels *k, const float *a, const float *b, float *y,
                        size_t n);
/* A worker gets whole multiples of 16 elements: the same bits as in one call. */
void ck_pair_cut(struct ck *c, const struct ck_op_case *o, ck_pair_fn *fn);

#endif
