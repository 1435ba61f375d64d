/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of attention against the reference, and against themselves: however the work was cut,
 * wherever the ring begins anew, and however many rows a call holds, a row's result is the same to
 * the bit.
 */
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

extern const struct cuda_op cuda_op_attn;

/* Exponentials of scores that differ by some ulp of their size, which `stretch` makes larger. */
#define LIMIT(stretch) (1e-5 * (double)fmaxf(1, stretch))

enum sink { NO_SINK, SINKS, SINK_HUGE, SINK_TINY };

struct attn_case {
    uint32_t n_q, n_head_kv, dk, dv; /* n_q: query heads of a KV head */
    uint32_t type_k, type_v;
    uint32_t past, rows, window, spare; /* spare: cells of the ring more than needed */
    float stretch;                      /* of queries */
    enum sink sink;
};

static char what[200];

static void name_case(const struct attn_case *a)
{
    (void)snprintf(what, sizeof what,
                   "attention, %u x %u heads of %u and %u, %s and %s, %u rows after %u, window %u, "
                   "queries of %g, sinks %d",
                   a->n_head_kv, a->n_q, a->dk, a->dv, atsi_type_info(a->type_k)->name,
                   atsi_type_info(a->type_v)->name, a->rows, a->past, a->window, (double)a->stretch,
                   (int)a->sink);
}

static uint32_t cells_of(const struct attn_case *a)
{
    uint32_t n_kv = a->past + a->rows, seen = a->window + a->rows - 1;
    return (a->window != 0 && seen < n_kv ? seen : n_kv) + a->spare;
}

/* Random keys or values in the cells of positions that the first row sees. */
static void fill_past(struct kt_op *o, const struct attn_case *a, bool keys)
{
    uint32_t type = keys ? a->type_k : a->type_v, dim = keys ? a->dk : a->dv;
    uint32_t cells = cells_of(a);
    size_t row = (size_t)atsi_row_bytes(type, dim);
    uint32_t from = a->window != 0 && a->past + 1 > a->window ? a->past + 1 - a->window : 0;
    struct atsi_tensor x = tensor_new(type, dim, (uint64_t)a->n_head_kv * (a->past + 1), 1);
    for (uint32_t h = 0; h < a->n_head_kv; h++)
        for (uint32_t p = from; p < a->past; p++)
            memcpy((unsigned char *)(keys ? o->kv.k : o->kv.v) +
                       ((size_t)h * cells + p % cells) * row,
                   (unsigned char *)x.data + ((size_t)h * (a->past + 1) + p) * row, row);
    tensor_free(&x);
}

static void add_sinks(struct kt_op *o, const struct attn_case *a)
{
    struct atsi_tensor *sinks;
    if (a->sink == NO_SINK)
        return;
    sinks = kt_tensor(o, ATSI_TYPE_F32, (uint64_t)a->n_q * a->n_head_kv, 1, 1);
    for (uint64_t h = 0; h < sinks->ne[0] && a->sink != SINKS; h++)
        floats(sinks)[h] = a->sink == SINK_HUGE ? 1e30F : -1e30F;
    o->op.weight[0] = sinks;
}

static void open_attn(struct kt_op *o, const struct attn_case *a)
{
    uint64_t heads = (uint64_t)a->n_q * a->n_head_kv;
    kt_open(o, ATSI_OP_ATTN, a->rows);
    o->op.p.attn.n_head = (uint32_t)heads;
    o->op.p.attn.n_head_kv = a->n_head_kv;
    o->op.p.attn.head_dim_k = a->dk;
    o->op.p.attn.head_dim_v = a->dv;
    o->op.p.attn.n_kv = a->past + a->rows;
    o->op.p.attn.scale = 1 / sqrtf((float)a->dk);
    o->op.p.attn.window = a->window;
    o->op.src[0] = kt_rows(o, heads * a->dk);
    kt_scale(o->op.src[0], a->stretch);
    o->op.src[1] = kt_rows(o, (uint64_t)a->n_head_kv * a->dk);
    o->op.src[2] = kt_rows(o, (uint64_t)a->n_head_kv * a->dv);
    o->op.src[3] = kt_tensor(o, ATSI_TYPE_I32, 1, a->rows, 1);
    for (uint32_t t = 0; t < a->rows; t++)
        ints(o->op.src[3])[t] = (int32_t)(a->past + t);
    kt_dst(o, 0, ATSI_TYPE_F32, heads * a->dv);
    add_sinks(o, a);
    kt_cache(o, a->type_k, a->type_v, a->n_head_kv, a->dk, a->dv, cells_of(a));
    fill_past(o, a, true);
    fill_past(o, a, false);
}

static void attn_case(struct kt *k, const struct attn_case *a)
{
    struct kt_op o;
    name_case(a);
    open_attn(&o, a);
    kt_compare(k, &cuda_op_attn, &o, LIMIT(a->stretch), what);
    kt_close(&o);
}

/* ---------------------------------------------------------------- against the reference */
static const uint32_t types[] = {ATSI_TYPE_F32, ATSI_TYPE_F16, ATSI_TYPE_Q8_0};

static const uint32_t dims[][2] = {{64, 64},   {128, 128}, {32, 96},
                                   {256, 256}, {20, 33},   {192, 130}};

/* Q8_0 rows are whole blocks of 32. */
static uint32_t type_for(uint32_t dim, uint32_t i)
{
    return dim % 32 == 0 ? types[i % 3] : types[i % 2];
}

static void test_shapes(void **state)
{
    static const uint32_t rows[] = {1, 2, 17, 64, 1, 5}, heads[] = {1, 4, 8, 3, 7, 16};
    static const uint32_t past[] = {0, 1, 127, 128, 300, 40};
    uint32_t i = 0;
    kt_seed(30);
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++, i++) {
            struct attn_case a = {.n_q = heads[(d + r) % 6],
                                  .n_head_kv = 1 + i % 2,
                                  .dk = dims[d][0],
                                  .dv = dims[d][1],
                                  .type_k = type_for(dims[d][0], i),
                                  .type_v = type_for(dims[d][1], i / 3),
                                  .past = past[(r + 2 * d) % 6],
                                  .rows = rows[r],
                                  .spare = i % 3 * 100,
                                  .stretch = i % 5 == 4 ? 30 : 1,
                                  .sink = (enum sink)(i % 4)};
            attn_case(*state, &a);
        }
}

/* Windows narrower than a call, and rings that begin anew in the middle of what is seen. */
static void test_windows(void **state)
{
    static const uint32_t windows[] = {1, 3, 16, 100, 128, 129, 300};
    kt_seed(31);
    for (uint32_t i = 0; i < 2 * sizeof windows / sizeof windows[0]; i++) {
        struct attn_case a = {.n_q = i % 2 == 0 ? 4 : 1,
                              .n_head_kv = 2,
                              .dk = 64,
                              .dv = 64,
                              .type_k = types[i % 3],
                              .type_v = types[i % 3],
                              .past = 37 * i + 200 * (i % 3),
                              .rows = i < 7 ? 17 : 1,
                              .window = windows[i % 7],
                              .spare = i % 2 * 7,
                              .stretch = 1,
                              .sink = i % 3 == 0 ? SINKS : NO_SINK};
        attn_case(*state, &a);
    }
}

/* Scores that overflow, and some that are as far below as can be. */
static void test_extremes(void **state)
{
    static const float sizes[] = {1e20F, -1e20F, 0, 1e-30F};
    kt_seed(32);
    for (uint32_t i = 0; i < 8; i++) {
        struct attn_case a = {4,
                              1,
                              64,
                              64,
                              types[i % 2],
                              types[i % 2],
                              130,
                              i < 4 ? 1 : 9,
                              0,
                              0,
                              1,
                              i % 2 == 0 ? NO_SINK : SINKS};
        struct kt_op o;
        name_case(&a);
        open_attn(&o, &a);
        kt_scale(o.op.src[2], sizes[i % 4]); /* values of the new rows */
        for (uint32_t e = 0; e < 64; e++)    /* the first row's key meets queries at -infinity */
            floats(o.op.src[1])[e] = i % 4 == 2 ? -1e38F : floats(o.op.src[1])[e];
        for (uint64_t e = 0; e < o.op.src[0]->ne[0] * a.rows; e++)
            floats(o.op.src[0])[e] = fabsf(floats(o.op.src[0])[e]) * 10 + 1;
        kt_compare(*state, &cuda_op_attn, &o, 1e-4, what);
        kt_close(&o);
    }
}

/* Scores that are all -infinity up to some position, beyond the first chunks, and finite behind. */
static void test_minus_infinity(void **state)
{
    kt_seed(38);
    for (uint32_t i = 0; i < 4; i++) {
        struct attn_case a = {4,
                              1,
                              64,
                              64,
                              ATSI_TYPE_F32,
                              ATSI_TYPE_F32,
                              400,
                              i < 2 ? 1 : 9,
                              0,
                              0,
                              1,
                              i % 2 == 0 ? NO_SINK : SINKS};
        struct kt_op o;
        name_case(&a);
        open_attn(&o, &a);
        for (size_t e = 0; e < (size_t)300 * 64; e++)
            ((float *)o.kv.k)[e] = -3e38F;
        for (uint64_t e = 0; e < o.op.src[0]->ne[0] * a.rows; e++)
            floats(o.op.src[0])[e] = fabsf(floats(o.op.src[0])[e]) + 1;
        kt_compare(*state, &cuda_op_attn, &o, 1e-4, what);
        assert_true(isfinite(floats(o.op.dst[0])[0]));
        kt_close(&o);
    }
}

/* Each type rounds as the CPU does, subnormal numbers and zeros included (the caches are compared
 * to the bit). */
static void test_rounding(void **state)
{
    static const float sizes[] = {1, 1e-6F, 1e-41F, 0, 65000, 1e6F};
    kt_seed(33);
    for (uint32_t i = 0; i < 18; i++) {
        struct attn_case a = {
            .n_q = 1, .n_head_kv = 2, .dk = 96, .dv = 32, .rows = 8, .stretch = 1};
        struct kt_op o;
        a.type_k = types[i % 3];
        a.type_v = types[(i + 1) % 3];
        name_case(&a);
        open_attn(&o, &a);
        kt_scale(o.op.src[0], 0);
        kt_scale(o.op.src[1], sizes[i / 3]);
        kt_scale(o.op.src[2], sizes[i / 3]);
        kt_compare(*state, &cuda_op_attn, &o, 1e-5, what);
        kt_close(&o);
    }
}

/* Tiles on tensor cores: every number of queries, narrow and wide heads, windows, infinite values
 * and keys, which the f32 way takes. */
static void test_tensor_cores(void **state)
{
    static const uint32_t rows[] = {9, 32, 33, 70, 40, 130}, past[] = {0, 200, 127, 300, 128, 5};
    kt_seed(40);
    for (uint32_t i = 0; i < 12; i++) {
        struct attn_case a = {.n_q = i % 3 == 0 ? 4 : 1,
                              .n_head_kv = 2,
                              .dk = i % 2 == 0 ? 128 : 80,
                              .dv = i % 4 < 2 ? 128 : 48,
                              .type_k = ATSI_TYPE_F16,
                              .type_v = ATSI_TYPE_F16,
                              .past = past[i % 6],
                              .rows = rows[i % 6],
                              .window = i % 5 == 4 ? 50 : 0,
                              .stretch = 1,
                              .sink = (enum sink)(i % 2)};
        struct kt_op o;
        name_case(&a);
        open_attn(&o, &a);
        if (i >= 8)
            floats(o.op.src[i % 2 == 0 ? 1 : 2])[(size_t)(a.rows - 2) * 2 *
                                                 (i % 2 == 0 ? a.dk : a.dv)] = 1e30F;
        kt_compare(*state, &cuda_op_attn, &o, LIMIT(a.stretch), what);
        kt_close(&o);
    }
}

/* ---------------------------------------------------------------- to the bit */
static struct kt_result run_on(const struct kt *k, const struct kt_op *o, uint32_t n_sm)
{
    struct kt other = *k;
    other.dev.n_sm = n_sm;
    return kt_device(&other, &cuda_op_attn, o);
}

/* With few tiles for the device there is a block per chunk, with many a block per tile. */
static void test_cuts_agree(void **state)
{
    static const uint32_t rows[] = {1, 2, 4, 20};
    kt_seed(34);
    for (uint32_t i = 0; i < 8; i++) {
        struct attn_case a = {i % 2 == 0 ? 4 : 1,
                              2,
                              64,
                              i < 4 ? 64 : 160,
                              types[i % 3],
                              types[i % 3],
                              i != 6 ? 530 : 17000,
                              rows[i % 4],
                              i == 3 ? 150 : 0,
                              0,
                              3,
                              (enum sink)(i % 2)};
        struct kt_op o;
        struct kt_result parts, whole;
        name_case(&a);
        open_attn(&o, &a);
        assert_true(cuda_op_attn.scratch(&(struct cuda_device){.n_sm = 1000}, &o.op) > 0);
        parts = run_on(*state, &o, 1000);
        whole = run_on(*state, &o, 1);
        kt_same(parts.dst[0], whole.dst[0], (size_t)a.rows * a.n_q * 2 * a.dv, what);
        kt_result_free(&parts);
        kt_result_free(&whole);
        kt_close(&o);
    }
}

/* What a captured launch of another n_kv of the same bucket would compute. */
static void test_bucket(void **state)
{
    struct attn_case a = {4, 2, 64, 64, ATSI_TYPE_F16, ATSI_TYPE_F16, 300, 1, 0, 400, 1, NO_SINK};
    struct kt_op o;
    struct kt_result r, larger;
    kt_seed(35);
    open_attn(&o, &a);
    r = kt_device(*state, &cuda_op_attn, &o);
    o.op.p.attn.n_kv = 512;
    larger = kt_device(*state, &cuda_op_attn, &o);
    kt_same(larger.dst[0], r.dst[0], 2 * 4 * 64, "attention with a larger n_kv");
    kt_result_free(&r);
    kt_result_free(&larger);
    kt_close(&o);
}

/* Copies the cells of all positions below `end` that the other ring can hold. */
static void copy_ring(const struct kt_op *from, struct kt_op *to, uint32_t end, bool keys)
{
    const struct atsi_kv *a = &from->kv, *b = &to->kv;
    size_t row =
        (size_t)atsi_row_bytes(keys ? a->type_k : a->type_v, keys ? a->head_dim_k : a->head_dim_v);
    uint32_t n = a->n_ctx < b->n_ctx ? a->n_ctx : b->n_ctx;
    for (uint32_t h = 0; h < a->n_head_kv; h++)
        for (uint32_t p = end > n ? end - n : 0; p < end; p++)
            memcpy((unsigned char *)(keys ? b->k : b->v) +
                       ((size_t)h * b->n_ctx + p % b->n_ctx) * row,
                   (const unsigned char *)(keys ? a->k : a->v) +
                       ((size_t)h * a->n_ctx + p % a->n_ctx) * row,
                   row);
}

static void near_row(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5F * (1 + fabsf(b[i]))))
            fail_msg("%s: element %zu: %.9g and %.9g", what, i, (double)a[i], (double)b[i]);
}

/* A call per row, over a larger ring, gives what one call gives; but for the roundings of tensor
 * cores, which many rows over two f16 caches meet. */
static void test_rows_agree(void **state)
{
    static const uint32_t windows[] = {0, 70, 150};
    kt_seed(36);
    for (uint32_t i = 0; i < 6; i++) {
        struct attn_case a = {
            i % 2 == 0 ? 4 : 3, 2, 64, 64,   types[i % 3], types[i / 2], 200 + i, 20,
            windows[i / 2],     0, 2,  SINKS};
        struct attn_case single = a;
        struct kt_op o, one;
        struct kt_result all, r;
        size_t q = (size_t)a.n_q * 2 * 64, kv = (size_t)2 * 64;
        name_case(&a);
        open_attn(&o, &a);
        all = kt_device(*state, &cuda_op_attn, &o);
        single.rows = 1;
        single.spare = 300;
        open_attn(&one, &single);
        memcpy(one.op.weight[0]->data, o.op.weight[0]->data, (size_t)a.n_q * 2 * sizeof(float));
        copy_ring(&o, &one, a.past, true);
        copy_ring(&o, &one, a.past, false);
        for (uint32_t t = 0; t < a.rows; t++) {
            memcpy(one.op.src[0]->data, floats(o.op.src[0]) + t * q, q * sizeof(float));
            memcpy(one.op.src[1]->data, floats(o.op.src[1]) + t * kv, kv * sizeof(float));
            memcpy(one.op.src[2]->data, floats(o.op.src[2]) + t * kv, kv * sizeof(float));
            ints(one.op.src[3])[0] = (int32_t)(a.past + t);
            one.op.p.attn.n_kv = a.past + t + 1;
            r = run_on(*state, &one, 1000);
            if (a.type_k == ATSI_TYPE_F16 && a.type_v == ATSI_TYPE_F16)
                near_row(r.dst[0], (const float *)all.dst[0] + t * q, q);
            else
                kt_same(r.dst[0], (const float *)all.dst[0] + t * q, q, what);
            free(one.kv.k);
            free(one.kv.v);
            one.kv.k = r.k;
            one.kv.v = r.v;
            r.k = r.v = NULL;
            kt_result_free(&r);
        }
        kt_result_free(&all);
        kt_close(&o);
        kt_close(&one);
    }
}

/* Positions that cannot be: nothing is touched that is not the operation's, and nothing hangs. */
static void test_wrong_positions(void **state)
{
    static const int32_t wrong[][3] = {{-1, 0, 1}, {2147483647, 5, 3}, {7, -2147483647, 100000}};
    kt_seed(37);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        for (uint32_t n_sm = 1; n_sm < 2000; n_sm += 1000) {
            struct attn_case a = {4, 1, 64, 64, ATSI_TYPE_F32, ATSI_TYPE_F32, 300,
                                  3, 0, 0,  1,  NO_SINK};
            struct kt_op o;
            struct kt_result r;
            open_attn(&o, &a);
            memset(o.kv.k, 0, (size_t)o.kv.n_ctx * 64 * 4);
            memset(o.kv.v, 0, (size_t)o.kv.n_ctx * 64 * 4);
            memcpy(o.op.src[3]->data, wrong[i], sizeof wrong[i]);
            r = run_on(*state, &o, n_sm);
            kt_result_free(&r);
            kt_close(&o);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),     cmocka_unit_test(test_windows),
        cmocka_unit_test(test_extremes),   cmocka_unit_test(test_minus_infinity),
        cmocka_unit_test(test_rounding),   cmocka_unit_test(test_tensor_cores),
        cmocka_unit_test(test_cuts_agree), cmocka_unit_test(test_bucket),
        cmocka_unit_test(test_rows_agree), cmocka_unit_test(test_wrong_positions),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
