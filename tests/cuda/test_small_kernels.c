/* SPDX-License-Identifier: Apache-2.0
 * Norms, rotation, element-wise operations, expert selection and the convolution against the
 * reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/kernel_trial.h"

#define EXACT 0.0
#define ROUNDING 1e-6 /* single roundings, and sums of few terms */

extern const struct cuda_op cuda_op_rms_norm, cuda_op_rope_table, cuda_op_rope, cuda_op_swiglu,
    cuda_op_add, cuda_op_topk, cuda_op_moe_sum, cuda_op_gate, cuda_op_regroup, cuda_op_conv;

static const uint32_t row_counts[] = {1, 2, 17, 64};
#define N_ROW_COUNTS (sizeof row_counts / sizeof row_counts[0])

static char what[160];

/* ---------------------------------------------------------------- norms */
static void norm_case(struct kt *k, uint32_t n, uint32_t runs, uint32_t stride, uint32_t rows,
                      float size)
{
    struct kt_op o;
    (void)snprintf(what, sizeof what, "norm of %u runs of %u, stride %u, %u rows, size %g", runs, n,
                   stride, rows, (double)size);
    kt_open(&o, ATSI_OP_RMS_NORM, rows);
    o.op.p.norm.eps = size < 1 ? 0 : 1e-5F;
    o.op.p.norm.stride = stride;
    o.op.src[0] = kt_rows(&o, stride != 0 ? (uint64_t)runs * stride + 3 : (uint64_t)runs * n);
    kt_scale(o.op.src[0], size);
    if (size == 0) /* 0 / sqrt(0) is no number anywhere; keep it one */
        o.op.p.norm.eps = 1e-6F;
    o.op.weight[0] = kt_tensor(&o, ATSI_TYPE_F32, n, 1, 1);
    kt_dst(&o, 0, ATSI_TYPE_F32, (uint64_t)runs * n);
    kt_compare(k, &cuda_op_rms_norm, &o, ROUNDING, what);
    kt_close(&o);
}

static void test_norms(void **state)
{
    static const uint32_t ns[] = {1, 31, 64, 129, 1024, 1025, 2305};
    static const float sizes[] = {1, 1e20F, 1e-25F, 0, 300};
    kt_seed(1);
    for (size_t i = 0; i < sizeof ns / sizeof ns[0]; i++)
        for (size_t r = 0; r < N_ROW_COUNTS; r++) {
            norm_case(*state, ns[i], 1, 0, row_counts[r], sizes[(i + r) % 5]);
            if (ns[i] <= 129)
                norm_case(*state, ns[i], 3, ns[i] + 5, row_counts[r], sizes[(i + r + 1) % 5]);
        }
    norm_case(*state, 1100, 2, 2000, 3, 1);
}

/* Numbers that are none, and infinite ones, stay in their run. */
static void test_norm_of_nan(void **state)
{
    struct kt_op o;
    kt_seed(2);
    kt_open(&o, ATSI_OP_RMS_NORM, 3);
    o.op.p.norm.eps = 1e-5F;
    o.op.src[0] = kt_rows(&o, 40);
    floats(o.op.src[0])[7] = NAN;
    floats(o.op.src[0])[45] = INFINITY;
    o.op.weight[0] = kt_tensor(&o, ATSI_TYPE_F32, 40, 1, 1);
    kt_dst(&o, 0, ATSI_TYPE_F32, 40);
    kt_compare(*state, &cuda_op_rms_norm, &o, ROUNDING, "norm of NaN and infinity");
    kt_close(&o);
}

/* ---------------------------------------------------------------- rotation */
static void test_rope_table(void **state)
{
    static const int32_t first[] = {0, 1, 4095, 1000003, 2147483000};
    kt_seed(3);
    for (size_t p = 0; p < sizeof first / sizeof first[0]; p++)
        for (uint32_t half = 1; half < 100; half += 31) {
            struct kt_op o;
            kt_open(&o, ATSI_OP_ROPE_TABLE, 1 + half % 17);
            o.op.src[0] = kt_tensor(&o, ATSI_TYPE_I32, 1, o.op.n_rows, 1);
            for (uint32_t t = 0; t < o.op.n_rows; t++)
                ints(o.op.src[0])[t] = first[p] + (int32_t)t;
            o.op.weight[0] = kt_tensor(&o, ATSI_TYPE_F32, half, 1, 1);
            for (uint32_t i = 0; i < half; i++)
                floats(o.op.weight[0])[i] = (float)pow(10000, -(double)i / half);
            o.op.p.rope.magnitude = p % 2 == 0 ? 1 : 1.3465736F;
            kt_dst(&o, 0, ATSI_TYPE_F32, 2 * half);
            (void)snprintf(what, sizeof what, "table of position %d, %u pairs", first[p], half);
            kt_compare(*state, &cuda_op_rope_table, &o, 2e-7, what);
            kt_close(&o);
        }
}

static void rope_case(struct kt *k, uint32_t heads, uint32_t dim, uint32_t n_rot, uint32_t rows,
                      bool in_place)
{
    struct kt_op o;
    kt_open(&o, ATSI_OP_ROPE, rows);
    o.op.p.rope.n_head = heads;
    o.op.p.rope.head_dim = dim;
    o.op.p.rope.n_rot = n_rot;
    o.op.p.rope.mode = (heads + rows) % 2 == 0 ? ATSI_ROPE_PAIRS : ATSI_ROPE_HALVES;
    o.op.src[0] = kt_rows(&o, (uint64_t)heads * dim);
    o.op.src[1] = kt_rows(&o, n_rot);
    if (in_place)
        o.op.dst[0] = o.op.src[0];
    else
        kt_dst(&o, 0, ATSI_TYPE_F32, (uint64_t)heads * dim);
    (void)snprintf(what, sizeof what, "rope of %u heads of %u, %u turned, mode %u, %u rows%s",
                   heads, dim, n_rot, o.op.p.rope.mode, rows, in_place ? ", in place" : "");
    kt_compare(k, &cuda_op_rope, &o, ROUNDING, what);
    kt_close(&o);
}

static void test_rope(void **state)
{
    kt_seed(4);
    for (size_t r = 0; r < N_ROW_COUNTS; r++)
        for (uint32_t heads = 1; heads < 9; heads += 3) {
            rope_case(*state, heads, 64, 64, row_counts[r], heads == 4);
            rope_case(*state, heads, 33, 20, row_counts[r], heads != 4);
            rope_case(*state, heads + 1, 256, 64, row_counts[r], false);
        }
}

/* ---------------------------------------------------------------- element-wise */
static void test_add(void **state)
{
    kt_seed(5);
    for (size_t r = 0; r < N_ROW_COUNTS; r++)
        for (uint32_t width = 1; width < 600; width += 131) {
            struct kt_op o;
            kt_open(&o, ATSI_OP_ADD, row_counts[r]);
            o.op.src[0] = kt_rows(&o, width);
            o.op.src[1] = kt_rows(&o, width);
            if (width == 132)
                o.op.dst[0] = o.op.src[0];
            else
                kt_dst(&o, 0, ATSI_TYPE_F32, width);
            kt_compare(*state, &cuda_op_add, &o, EXACT, "add");
            kt_close(&o);
        }
}

static void glu_case(struct kt *k, uint32_t kind, uint32_t groups, uint32_t run, uint32_t rows,
                     float size)
{
    struct kt_op o;
    uint64_t width = (uint64_t)groups * run;
    kt_open(&o, ATSI_OP_SWIGLU, rows);
    o.op.p.glu.kind = kind;
    o.op.p.glu.n_group = groups;
    o.op.p.glu.alpha = 1.702F;
    o.op.p.glu.limit = 7;
    o.op.src[0] = kt_rows(&o, groups > 1 || rows == 2 ? 2 * width : width);
    kt_scale(o.op.src[0], size);
    floats(o.op.src[0])[0] = NAN;
    if (o.op.src[0]->ne[0] == width) {
        o.op.src[1] = kt_rows(&o, width);
        kt_scale(o.op.src[1], size);
    }
    if (o.op.src[1] != NULL && rows == 1)
        o.op.dst[0] = o.op.src[0];
    else
        kt_dst(&o, 0, ATSI_TYPE_F32, width);
    (void)snprintf(what, sizeof what, "glu kind %u, %u groups of %u, %u rows, size %g", kind,
                   groups, run, rows, (double)size);
    kt_compare(k, &cuda_op_swiglu, &o, ROUNDING, what);
    kt_close(&o);
}

static void test_glu(void **state)
{
    static const float sizes[] = {3, 100, 1e20F, 1e-30F};
    kt_seed(6);
    for (size_t r = 0; r < N_ROW_COUNTS; r++)
        for (uint32_t kind = ATSI_GLU_SILU; kind <= ATSI_GLU_CLAMPED; kind++) {
            glu_case(*state, kind, 1, 300 + (uint32_t)r, row_counts[r], sizes[(r + kind) % 4]);
            glu_case(*state, kind, 4, 37, row_counts[r], sizes[(r + kind + 1) % 4]);
        }
}

static void test_gate(void **state)
{
    kt_seed(7);
    for (size_t r = 0; r < N_ROW_COUNTS; r++)
        for (uint32_t scalar = 0; scalar < 2; scalar++) {
            struct kt_op o;
            kt_open(&o, ATSI_OP_GATE, row_counts[r]);
            o.op.p.gate.scalar = scalar;
            o.op.p.gate.run = 70;
            o.op.p.gate.stride = 141;
            o.op.p.gate.offset = 71;
            o.op.src[0] = kt_rows(&o, 3 * 70);
            o.op.src[1] = kt_rows(&o, 3 * 141);
            kt_scale(o.op.src[1], r % 2 == 0 ? 5 : 150);
            kt_dst(&o, 0, ATSI_TYPE_F32, 3 * 70);
            kt_compare(*state, &cuda_op_gate, &o, ROUNDING, "gate");
            kt_close(&o);
        }
}

static void test_regroup(void **state)
{
    kt_seed(8);
    for (size_t r = 0; r < N_ROW_COUNTS; r++) {
        struct kt_op o;
        kt_open(&o, ATSI_OP_REGROUP, row_counts[r]);
        o.op.p.regroup.n_group = 5;
        o.op.p.regroup.stride = 90;
        o.op.p.regroup.n_seg = 3;
        o.op.p.regroup.offset[0] = 50;
        o.op.p.regroup.len[0] = 40;
        o.op.p.regroup.len[1] = 33;
        o.op.p.regroup.offset[2] = 10;
        o.op.p.regroup.len[2] = 1;
        o.op.src[0] = kt_rows(&o, 5 * 90);
        kt_dst(&o, 0, ATSI_TYPE_F32, 5 * 74);
        kt_compare(*state, &cuda_op_regroup, &o, EXACT, "regroup");
        kt_close(&o);
    }
}

static void test_moe_sum(void **state)
{
    kt_seed(9);
    for (size_t r = 0; r < N_ROW_COUNTS; r++)
        for (uint32_t used = 1; used < 12; used += 5) {
            struct kt_op o;
            kt_open(&o, ATSI_OP_MOE_SUM, row_counts[r]);
            o.op.p.moe.n_used = used;
            o.op.src[0] = kt_rows(&o, (uint64_t)used * 270);
            o.op.src[1] = kt_rows(&o, used);
            kt_dst(&o, 0, ATSI_TYPE_F32, 270);
            kt_compare(*state, &cuda_op_moe_sum, &o, ROUNDING, "moe_sum");
            kt_close(&o);
        }
}

/* ---------------------------------------------------------------- expert selection */
enum {
    LOGITS_RANDOM,
    LOGITS_EQUAL,
    LOGITS_TIES,
    LOGITS_INFINITE,
    LOGITS_FAR,
    LOGITS_NAN,
    N_LOGITS
};

static float logit(int kind, uint32_t i)
{
    static const float zeros[] = {0.0F, -0.0F};
    switch (kind) {
    case LOGITS_EQUAL:
        return 0.25F;
    case LOGITS_TIES: /* both zeros are one value */
        return i % 3 == 0 ? zeros[i / 3 % 2] : (float)kt_below(4) - 2;
    case LOGITS_INFINITE:
        return i % 3 == 1 ? -INFINITY : kt_unit();
    case LOGITS_FAR:
        return kt_unit() * 1e20F;
    case LOGITS_NAN:
        return i % 2 == 0 ? NAN : kt_unit();
    default:
        return kt_unit() * 5;
    }
}

/* Weights where some logit is NaN are none or whatever; ids must be right all the same. */
static void topk_case(struct kt *k, uint32_t n, uint32_t used, int kind, uint32_t rows,
                      uint32_t gating)
{
    struct kt_op o;
    struct kt_result r;
    kt_open(&o, ATSI_OP_TOPK, rows);
    o.op.p.moe.n_used = used;
    o.op.p.moe.gating = gating;
    o.op.src[0] = kt_rows(&o, n);
    for (uint32_t i = 0; i < n * rows; i++)
        floats(o.op.src[0])[i] = logit(kind, i % n);
    kt_dst(&o, 0, ATSI_TYPE_I32, used);
    kt_dst(&o, 1, ATSI_TYPE_F32, used);
    (void)snprintf(what, sizeof what, "top %u of %u, logits %d, %u rows, gating %u", used, n, kind,
                   rows, gating);
    if (kind != LOGITS_NAN) {
        kt_compare(k, &cuda_op_topk, &o, 2e-6, what);
    } else {
        r = kt_device(k, &cuda_op_topk, &o);
        kt_reference(k, &o);
        kt_same(r.dst[0], o.op.dst[0]->data, (size_t)rows * used, what);
        kt_result_free(&r);
    }
    kt_close(&o);
}

static void test_topk(void **state)
{
    static const uint32_t shapes[][2] = {{1, 1},   {2, 2},   {5, 3},    {32, 4},
                                         {33, 33}, {128, 8}, {300, 40}, {1155, 3}};
    kt_seed(10);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int kind = 0; kind < N_LOGITS; kind++)
            topk_case(*state, shapes[i][0], shapes[i][1], kind, row_counts[(i + (size_t)kind) % 3],
                      (uint32_t)(i + (size_t)kind) % 3);
    topk_case(*state, 17000, 1, LOGITS_EQUAL, 2, ATSI_GATING_SOFTMAX); /* less than 2^-14 */
}

/* Rows as long as a vocabulary: many blocks, or, of many rows, one each. */
static void test_topk_wide(void **state)
{
    static const uint32_t used[] = {1, 2, 40, 1000};
    kt_seed(13);
    for (int kind = 0; kind < N_LOGITS; kind++) {
        for (size_t i = 0; i < 4; i++) /* the last part has fewer than are asked for, or all */
            topk_case(*state, 8192 + 41 * ((uint32_t)kind % 3), used[i], kind, 1 + kt_below(2),
                      ATSI_GATING_NONE);
        topk_case(*state, 8192 + 5 * (uint32_t)kind, 20, kind, 1 + (uint32_t)kind % 3,
                  (uint32_t)kind % 2);
        topk_case(*state, 8192 + (uint32_t)kind, 3, kind, 9, (uint32_t)kind % 3);
    }
    topk_case(*state, 8192, 2048, LOGITS_TIES, 1, ATSI_GATING_NONE);
    topk_case(*state, 8192, 2049, LOGITS_RANDOM, 1, ATSI_GATING_NONE);
}

/* ---------------------------------------------------------------- convolution */
static void open_conv(struct kt_op *o, uint32_t channels, uint32_t taps, uint32_t rows)
{
    kt_open(o, ATSI_OP_CONV, rows);
    o->op.src[0] = kt_rows(o, channels);
    o->op.weight[0] = kt_tensor(o, ATSI_TYPE_F32, taps, channels, 1);
    kt_dst(o, 0, ATSI_TYPE_F32, channels);
    kt_state(o, channels, taps - 1, 1);
}

static void test_conv(void **state)
{
    static const float sizes[] = {1, 1e20F, 1e-36F, 100};
    kt_seed(11);
    for (size_t r = 0; r < N_ROW_COUNTS; r++)
        for (uint32_t taps = 2; taps < 9; taps += 2)
            for (uint32_t channels = 1; channels < 400; channels += 150) {
                struct kt_op o;
                open_conv(&o, channels, taps, row_counts[r]);
                kt_scale(o.op.src[0], sizes[(r + taps / 2) % 4]);
                (void)snprintf(what, sizeof what, "conv of %u channels, %u taps, %u rows", channels,
                               taps, row_counts[r]);
                kt_compare(*state, &cuda_op_conv, &o, 4e-6, what);
                kt_close(&o);
            }
}

/* A state longer than most calls. */
static void test_conv_long(void **state)
{
    kt_seed(13);
    for (size_t r = 0; r < N_ROW_COUNTS; r++) {
        struct kt_op o;
        open_conv(&o, 5, 40, row_counts[r]);
        kt_compare(*state, &cuda_op_conv, &o, 4e-6, "conv of 40 taps");
        kt_close(&o);
    }
}

/* A call per row gives what one call gives, to the bit. */
static void test_conv_cut(void **state)
{
    struct kt_op o, one;
    struct kt_result all, r;
    kt_seed(12);
    open_conv(&o, 70, 4, 40);
    all = kt_device(*state, &cuda_op_conv, &o);
    open_conv(&one, 70, 4, 1);
    memcpy(one.op.weight[0]->data, o.op.weight[0]->data, (size_t)70 * 4 * 4);
    memcpy(one.op.state->data, o.op.state->data, (size_t)70 * 3 * 4);
    for (size_t t = 0; t < 40; t++) {
        memcpy(one.op.src[0]->data, floats(o.op.src[0]) + t * 70, 70 * 4);
        r = kt_device(*state, &cuda_op_conv, &one);
        kt_same(r.dst[0], (const float *)all.dst[0] + t * 70, 70, "a row of a convolution");
        memcpy(one.op.state->data, r.state, (size_t)70 * 3 * 4);
        kt_result_free(&r);
    }
    kt_same(one.op.state->data, all.state, (size_t)70 * 3, "the state of a convolution");
    kt_result_free(&all);
    kt_close(&o);
    kt_close(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms),      cmocka_unit_test(test_norm_of_nan),
        cmocka_unit_test(test_rope_table), cmocka_unit_test(test_rope),
        cmocka_unit_test(test_add),        cmocka_unit_test(test_glu),
        cmocka_unit_test(test_gate),       cmocka_unit_test(test_regroup),
        cmocka_unit_test(test_moe_sum),    cmocka_unit_test(test_topk),
        cmocka_unit_test(test_topk_wide),  cmocka_unit_test(test_conv),
        cmocka_unit_test(test_conv_long),  cmocka_unit_test(test_conv_cut),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
