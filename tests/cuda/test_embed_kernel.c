/* SPDX-License-Identifier: Apache-2.0
 * Rows of embedding tables, and the rounding of activations: the same bits as on the CPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "panel/pack.h"
#include "plugins/cuda/rounded.h"
#include "tests/cuda/product_trial.h"

#define N_TYPES (sizeof product_types / sizeof *product_types)
#define ROWS 37u
#define TOKENS 9u

static struct cpu_kernels ref;

static void good(cudaError_t e)
{
    assert_string_equal(cudaGetErrorName(e), "cudaSuccess");
}

static void *device(const void *from, size_t bytes)
{
    void *p;
    good(cudaMalloc(&p, bytes));
    good(cudaMemcpyAsync(p, from, bytes, cudaMemcpyHostToDevice, product_stream));
    good(cudaStreamSynchronize(product_stream));
    return p;
}

static void fetch(void *to, const void *from, size_t bytes)
{
    good(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, product_stream));
    good(cudaStreamSynchronize(product_stream));
}

/* ---------------------------------------------------------------- embedding */

/* The table in host memory, and on the device in a layout. */
struct table {
    uint32_t type, k;
    size_t bytes;
    unsigned char *w;
    void *dev;
};

static struct table table_open(uint32_t type, uint32_t k, uint32_t layout)
{
    struct ck ck = {.random = type * 31 + k};
    struct table t = {type, k, (size_t)atsi_row_bytes(type, k) * ROWS, NULL, NULL};
    struct atsi_panel_matrix m = {type, k, ROWS, 1};
    unsigned char *packed = malloc(t.bytes);
    t.w = malloc(t.bytes);
    assert_true(packed != NULL && t.w != NULL);
    ck_fill_weights(&ck, type, CK_RANDOM, t.w, (size_t)k * ROWS);
    memcpy(packed, t.w, t.bytes);
    if (layout == ATSI_LAYOUT_PANELS)
        atsi_panel_convert(&m, 0, atsi_panel_parts(&m), 0, t.w, packed);
    t.dev = device(packed, t.bytes);
    free(packed);
    return t;
}

static void check_rows(const struct table *t, const int32_t *ids, const float *y)
{
    float *want = malloc(t->k * sizeof *want);
    assert_non_null(want);
    for (uint32_t i = 0; i < TOKENS; i++) {
        memset(want, 0, t->k * sizeof *want);
        if (ids[i] >= 0 && ids[i] < (int32_t)ROWS)
            ref.dequant[t->type](t->w + (size_t)ids[i] * atsi_row_bytes(t->type, t->k), want, t->k);
        for (uint32_t c = 0; c < t->k; c++)
            if (memcmp(&want[c], &y[i * t->k + c], sizeof *want) != 0)
                fail_msg("%s k %u id %d column %u: %.9g, want %.9g", atsi_type_info(t->type)->name,
                         t->k, ids[i], c, (double)y[i * t->k + c], (double)want[c]);
    }
    free(want);
}

static void try_embed(uint32_t type, uint32_t k, uint32_t layout)
{
    static const int32_t ids[TOKENS] = {0, 36, 35, 15, 16, 31, 32, -1, 37};
    struct table t = table_open(type, k, layout);
    float *y = malloc((size_t)k * TOKENS * sizeof *y);
    assert_non_null(y);
    memset(y, 0xff, (size_t)k * TOKENS * sizeof *y);
    struct atsi_tensor w = {sizeof w, type, layout, 2, {k, ROWS, 1, 1}, atsi_row_bytes(type, k),
                            t.dev,    "w"};
    struct atsi_tensor id = {sizeof id, ATSI_TYPE_I32,           0,    2, {1, TOKENS, 1, 1},
                             4,         device(ids, sizeof ids), "ids"};
    struct atsi_tensor d = {sizeof d,
                            ATSI_TYPE_F32,
                            0,
                            2,
                            {k, TOKENS, 1, 1},
                            (uint64_t)k * 4,
                            device(y, (size_t)k * TOKENS * sizeof *y),
                            "y"};
    struct atsi_op op = {.struct_size = sizeof op,
                         .kind = ATSI_OP_EMBED,
                         .n_rows = TOKENS,
                         .src = {&id},
                         .weight = {&w},
                         .dst = {&d}};
    struct cuda_rounded rounded = {0};
    struct cuda_launch l = {.stream = product_stream, .dev = &product_device, .rounded = &rounded};
    assert_true(cuda_op_embed.supports(&product_device, &op));
    assert_int_equal(cuda_op_embed.scratch(&product_device, &op), 0);
    good(cuda_op_embed.launch(&l, &op));
    fetch(y, d.data, (size_t)k * TOKENS * sizeof *y);
    check_rows(&t, ids, y);
    good(cudaFree(w.data));
    good(cudaFree(id.data));
    good(cudaFree(d.data));
    free(t.w);
    free(y);
}

static void test_embed(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_TYPES; i++) {
        uint32_t elems = atsi_type_info(product_types[i])->block_elems;
        for (uint32_t layout = 0; layout < 2; layout++) {
            try_embed(product_types[i], elems == 1 ? 17 : elems, layout);
            try_embed(product_types[i], 3 * (elems == 1 ? 16 : elems), layout);
        }
    }
}

/* ---------------------------------------------------------------- rounding */

/* Rows of blocks that are zero, tiny, huge, full of ties, of infinities, of NaN. */
static void fill_odd(float *x, uint32_t n, uint32_t kind, struct ck *ck)
{
    for (uint32_t i = 0; i < n; i++) {
        float u = ck_unit(ck);
        uint32_t r = (uint32_t)(ck_random(ck) >> 32);
        switch (kind) {
        case 0:
            x[i] = u;
            break;
        case 1:
            x[i] = r % 2 != 0 ? -0.0F : 0.0F;
            break;
        case 2:
            x[i] = u * 1e-39F;
            break;
        case 3:
            x[i] = u * 3e38F;
            break;
        case 4: /* 127 and its ties: halves to even, the first largest one wins */
            x[i] = (float)((int32_t)(r % 255) - 127) + (r >> 16 & 1 ? 0.5F : 0.0F);
            break;
        case 5:
            x[i] = r % 2 != 0 ? 1.0F : -1.0F;
            break;
        case 6:
            x[i] = r % 40 == 0 ? INFINITY : u;
            break;
        default:
            x[i] = r % 40 == 0 ? NAN : u;
        }
    }
}

static bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Odd rows: products of infinities and NaN are not rounded to any number in particular. */
static void check_rounding(const float *x, uint32_t rows, uint32_t k, uint32_t block,
                           const unsigned char *got, const struct cuda_act *at)
{
    struct cpu_act act = {.k = k, .n_tok = 1, .block = block};
    int8_t *q = malloc(k);
    float *d = malloc(k / 32 * sizeof *d);
    int16_t *sums = malloc(k / 16 * sizeof *sums);
    const unsigned char *base = (const unsigned char *)at->q;
    assert_true(q != NULL && d != NULL && sums != NULL);
    act.q = q;
    act.d = d;
    act.bsum = sums;
    for (uint32_t r = 0; r < rows; r++) {
        const int8_t *gq =
            (const int8_t *)(got + ((const unsigned char *)(at->q) - base)) + (size_t)r * k;
        const float *gd =
            (const float *)(const void *)(got + ((const unsigned char *)at->d - base));
        const int16_t *gs =
            (const int16_t *)(const void *)(got + ((const unsigned char *)at->s - base));
        if (block == 32)
            ref.quant_32(x + (size_t)r * k, &act, 0);
        else
            ref.quant_256(x + (size_t)r * k, &act, 0);
        for (uint32_t i = 0; i < k; i++)
            if (gq[i] != q[i])
                fail_msg("block %u row %u element %u: %d, want %d of %.9g", block, r, i, gq[i],
                         q[i], (double)x[(size_t)r * k + i]);
        for (uint32_t i = 0; i < k / block; i++)
            if (!same_float(gd[r * (k / block) + i], d[i]))
                fail_msg("block %u row %u scale %u: %.9g, want %.9g", block, r, i,
                         (double)gd[r * (k / block) + i], (double)d[i]);
        for (uint32_t i = 0; i < k / 16; i++)
            assert_int_equal(gs[r * (k / 16) + i], sums[i]);
    }
    free(q);
    free(d);
    free(sums);
}

static void try_rounding(uint32_t rows, uint32_t k, uint32_t block)
{
    struct ck ck = {.random = k + block};
    float *x = malloc((size_t)rows * k * sizeof *x);
    size_t bytes = cuda_act_bytes(rows, k, block);
    unsigned char *got = malloc(bytes);
    void *scratch, *dev_x;
    struct cuda_rounded rounded = {0};
    struct cuda_act at;
    assert_true(x != NULL && got != NULL);
    for (uint32_t r = 0; r < rows; r++)
        fill_odd(x + (size_t)r * k, k, r % 8, &ck);
    dev_x = device(x, (size_t)rows * k * sizeof *x);
    memset(got, 0, bytes);
    scratch = device(got, bytes);
    struct cuda_launch l = {.stream = product_stream,
                            .dev = &product_device,
                            .scratch = scratch,
                            .scratch_bytes = bytes,
                            .rounded = &rounded};
    good(cuda_act_round(&l, dev_x, rows, k, block, &at));
    assert_ptr_equal(rounded.src, dev_x);
    fetch(got, scratch, bytes);
    check_rounding(x, rows, k, block, got, &at);
    good(cudaFree(scratch));
    good(cudaFree(dev_x));
    free(x);
    free(got);
}

static void test_rounding(void **state)
{
    (void)state;
    try_rounding(8, 32, 32);
    try_rounding(40, 352, 32);
    try_rounding(8, 256, 256);
    try_rounding(40, 768, 256);
}

static int setup(void **state)
{
    cpu_ref_kernels(&ref);
    return product_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_rounding),
    };
    return cmocka_run_group_tests(tests, setup, product_teardown);
}
