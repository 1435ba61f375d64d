/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits of several operations against the reference backend: activations that are rounded once for
 * several products, and anew when they were written over, or when something else used the work
 * space in between; op by op and as graphs, with work space that grows on the way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_fixture.h"
#include "tests/checkkern/backend_fixture.h"

#define K 512u
#define OUT 96u
#define DIM 32u /* of a head */
#define CELLS 64u
#define MAX_ROWS 20u
#define N_OPS 7

enum { PLUS = 2, ATTENTION = 5 }; /* places in the list */
enum { X, Z, W1, W2, W3, Y1, Y2, Y3, Y4, POS, ATT, N_TENSORS };

/* Twice the same: tensors in host memory, and their copies in a device's buffer. */
struct both {
    struct atsi_tensor host[N_TENSORS], dev[N_TENSORS];
    struct atsi_kv kv[2]; /* host, device */
    struct atsi_buf *buf;
    struct atsi_op op[2][N_OPS];
    const struct atsi_op *list[2][N_OPS];
};

static size_t bytes_of(const struct atsi_tensor *t)
{
    return (size_t)(t->row_bytes * t->ne[1] * t->ne[2]);
}

static size_t room(size_t n)
{
    return (n + 255) / 256 * 256;
}

static void make_tensors(struct both *b)
{
    static const struct {
        uint32_t type, ne0, ne1;
        const char *name;
    } what[N_TENSORS] = {
        [X] = {ATSI_TYPE_F32, K, MAX_ROWS, "x"},       [Z] = {ATSI_TYPE_F32, K, MAX_ROWS, "z"},
        [W1] = {ATSI_TYPE_Q4_K, K, OUT, "w1"},         [W2] = {ATSI_TYPE_Q8_0, K, OUT, "w2"},
        [W3] = {ATSI_TYPE_Q6_K, K, OUT, "w3"},         [Y1] = {ATSI_TYPE_F32, OUT, MAX_ROWS, "y1"},
        [Y2] = {ATSI_TYPE_F32, OUT, MAX_ROWS, "y2"},   [Y3] = {ATSI_TYPE_F32, OUT, MAX_ROWS, "y3"},
        [Y4] = {ATSI_TYPE_F32, OUT, MAX_ROWS, "y4"},   [POS] = {ATSI_TYPE_I32, 1, MAX_ROWS, "pos"},
        [ATT] = {ATSI_TYPE_F32, OUT, MAX_ROWS, "att"},
    };
    tensor_seed(5);
    for (int i = 0; i < N_TENSORS; i++) {
        b->host[i] = tensor_new(what[i].type, what[i].ne0, what[i].ne1, 1);
        b->host[i].name = what[i].name;
        b->dev[i] = b->host[i];
    }
    for (uint32_t t = 0; t < MAX_ROWS; t++)
        ints(&b->host[POS])[t] = (int32_t)t;
}

/* y1, y2 = w1, w3 times x; x += z; y3 = w1 times the new x; y4 = w2 (rounded in other blocks) times
 * x; attention over y1; y2 = w2 times x again. */
static void make_ops(struct both *b, int side)
{
    static const int product[N_OPS][3] = {{W1, X, Y1}, {W3, X, Y2}, {-1},       {W1, X, Y3},
                                          {W2, X, Y4}, {-1},        {W2, X, Y2}};
    struct atsi_tensor *t = side == 0 ? b->host : b->dev;
    for (int i = 0; i < N_OPS; i++) {
        struct atsi_op *op = &b->op[side][i];
        *op = (struct atsi_op){.struct_size = sizeof *op, .kind = ATSI_OP_MATMUL};
        if (product[i][0] >= 0) {
            op->weight[0] = &t[product[i][0]];
            op->src[0] = &t[product[i][1]];
            op->dst[0] = &t[product[i][2]];
        }
        b->list[side][i] = op;
    }
    b->op[side][ATTENTION] = (struct atsi_op){.struct_size = sizeof(struct atsi_op),
                                              .kind = ATSI_OP_ATTN,
                                              .src = {&t[Y1], &t[Y1], &t[Y1], &t[POS]},
                                              .dst = {&t[ATT]},
                                              .kv = &b->kv[side]};
    b->op[side][ATTENTION].p.attn.n_head = b->op[side][ATTENTION].p.attn.n_head_kv = OUT / DIM;
    b->op[side][ATTENTION].p.attn.head_dim_k = b->op[side][ATTENTION].p.attn.head_dim_v = DIM;
    b->op[side][ATTENTION].p.attn.scale = 0.1F;
    b->op[side][PLUS] = (struct atsi_op){.struct_size = sizeof(struct atsi_op),
                                         .kind = ATSI_OP_ADD,
                                         .src = {&t[X], &t[Z]},
                                         .dst = {&t[X]}};
}

static void both_open(struct gpu *g, struct both *b)
{
    size_t cache = (size_t)(OUT / DIM) * CELLS * DIM * sizeof(float), at = 0;
    unsigned char *base;
    memset(b, 0, sizeof *b);
    make_tensors(b);
    for (int i = 0; i < N_TENSORS; i++)
        at += room(bytes_of(&b->host[i]));
    b->buf = gpu_alloc(g, ATSI_MEM_DEVICE, at + 2 * cache);
    base = g->ops->buf_ptr(b->buf);
    for (int i = 0; i < N_TENSORS; i++) {
        b->dev[i].data = base;
        gpu_put(g, base, b->host[i].data, bytes_of(&b->host[i]));
        base += room(bytes_of(&b->host[i]));
    }
    GPU_OK(g, g->ops->fill(g->queue, base, 0, 2 * cache, g->done, &g->err));
    gpu_wait(g, g->done);
    b->kv[0] = (struct atsi_kv){.struct_size = sizeof b->kv[0],
                                .n_head_kv = OUT / DIM,
                                .head_dim_k = DIM,
                                .head_dim_v = DIM,
                                .n_ctx = CELLS,
                                .k = calloc(1, cache),
                                .v = calloc(1, cache)};
    assert_true(b->kv[0].k != NULL && b->kv[0].v != NULL);
    b->kv[1] = b->kv[0];
    b->kv[1].k = base;
    b->kv[1].v = base + cache;
    make_ops(b, 0);
    make_ops(b, 1);
}

static void both_close(struct gpu *g, struct both *b)
{
    for (int i = 0; i < N_TENSORS; i++)
        tensor_free(&b->host[i]);
    free(b->kv[0].k);
    free(b->kv[0].v);
    g->ops->buf_free(g->be, b->buf);
}

/* The difference in units of the result's size: f32 sums in another order, and now and then an
 * activation that is rounded to the neighbouring integer because of that. */
static void assert_close(struct gpu *g, const struct both *b, int which, uint32_t rows)
{
    size_t n = (size_t)b->host[which].ne[0] * rows;
    const float *want = b->host[which].data;
    float *got = malloc(n * sizeof *got);
    double sq = 0, worst = 0;
    assert_non_null(got);
    gpu_get(g, got, b->dev[which].data, n * sizeof *got);
    for (size_t i = 0; i < n; i++) {
        sq += (double)want[i] * (double)want[i];
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    }
    free(got);
    if (!(worst <= 1e-4 * sqrt(sq / (double)n)))
        fail_msg("%s, %u rows: off by %g", b->host[which].name, rows, worst);
}

static void compare(struct gpu *g, struct fixture *cpu, struct both *b, uint32_t rows, uint64_t key)
{
    static const int results[] = {Y1, Y2, ATT, X, Y3, Y4};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_split split = {.struct_size = sizeof split,
                               .n_ops = N_OPS,
                               .ops = b->list[1],
                               .signal = g->done,
                               .graph_key = key};
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < N_OPS; i++) {
            b->op[side][i].n_rows = rows;
            if (b->op[side][i].kind == ATSI_OP_ATTN)
                b->op[side][i].p.attn.n_kv = rows;
        }
    GPU_OK(g, g->ops->run(g->queue, &split, &g->err));
    gpu_wait(g, g->done);
    assert_int_equal_text(fixture_run(cpu, b->list[0], N_OPS, &err), ATSI_OK, err.msg);
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++)
        assert_close(g, b, results[i], rows);
    for (int i = 0; i < N_TENSORS; i++) /* rounding must not drift apart from round to round */
        gpu_put(g, b->dev[i].data, b->host[i].data, bytes_of(&b->host[i]));
}

static void run_all(struct gpu *g, uint64_t first_key)
{
    static const uint32_t rows[] = {1, 2, 1, 16, 1, 17, MAX_ROWS, 16, 1};
    struct fixture cpu;
    struct both b;
    fixture_open(&cpu, 1);
    both_open(g, &b);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        compare(g, &cpu, &b, rows[i], first_key == 0 ? 0 : first_key + rows[i]);
    both_close(g, &b);
    fixture_close(&cpu);
}

static void test_one_by_one(void **state)
{
    run_all(*state, 0);
}

static void test_graphs(void **state)
{
    struct cuda_host_stats s;
    run_all(*state, 100);
    gpu_control->stats(&s);
    assert_int_equal(s.graph_launches, 4); /* 1 three times more, 16 once more */
}

/* Work space that cannot grow in place is replaced. */
static void test_without_vmm(void **state)
{
    struct gpu *g = *state;
    gpu_close(g);
    gpu_fail("cudaGetDriverEntryPointByVersion", 1, 801 /* cudaErrorNotSupported */, 0);
    assert_int_equal(gpu_open(g), ATSI_OK);
    run_all(g, 100);
}

static void test_times(void **state)
{
    struct gpu *g = *state;
    struct both b;
    uint64_t ns[N_OPS];
    struct atsi_split split = {
        .struct_size = sizeof split, .n_ops = N_OPS, .signal = g->done, .op_ns = ns};
    both_open(g, &b);
    split.ops = b.list[1];
    for (int i = 0; i < N_OPS; i++) {
        b.op[1][i].n_rows = 3;
        ns[i] = UINT64_MAX;
    }
    b.op[1][ATTENTION].p.attn.n_kv = 3;
    GPU_OK(g, g->ops->run(g->queue, &split, &g->err));
    gpu_wait(g, g->done);
    for (int i = 0; i < N_OPS; i++)
        assert_true(ns[i] != UINT64_MAX);
    both_close(g, &b);
}

/* No room for the work space: words, and nothing has run. */
static void test_no_scratch(void **state)
{
    struct gpu *g = *state;
    struct both b;
    struct atsi_split split = {.struct_size = sizeof split, .n_ops = N_OPS};
    float before = 0, after = 1;
    both_open(g, &b);
    for (int i = 0; i < N_OPS; i++)
        b.op[1][i].n_rows = 3;
    b.op[1][ATTENTION].p.attn.n_kv = 3;
    split.ops = b.list[1];
    gpu_get(g, &before, b.dev[X].data, sizeof before);
    gpu_fail("cuMemCreate", 1, 2 /* out of memory */, 0);
    assert_int_equal(g->ops->run(g->queue, &split, &g->err), ATSI_ENOMEM);
    assert_non_null(strstr(g->err.msg, "work space"));
    gpu_get(g, &after, b.dev[X].data, sizeof after);
    assert_true(before == after);
    GPU_OK(g, g->ops->run(g->queue, &split, &g->err)); /* there is room again */
    both_close(g, &b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, gpu_setup, gpu_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_one_by_one), TEST(test_graphs),     TEST(test_without_vmm),
        TEST(test_times),      TEST(test_no_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
