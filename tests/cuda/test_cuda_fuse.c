/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms and activations that round for the products behind them, and rotations of queries and keys
 * at once: fewer kernels, the same bits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_fixture.h"
#include "tests/checkkern/backend_fixture.h"

#define K 1280u /* a row that a whole block normalizes */
#define FF 512u
#define OUT 48u
#define MAX_ROWS 20u

#define DIM 64u /* of a head */

enum { X, SCALE, N, W_GATE, W_UP, W_DOWN, GATE, UP, ACT, DOWN, TABLE, N_TENSORS };
enum { NORM, MUL_GATE, MUL_UP, ROPE_GATE, ROPE_UP, GLU, MUL_DOWN, N_OPS };

/* A feed-forward block on the device. */
struct block {
    struct atsi_tensor t[N_TENSORS];
    struct atsi_op op[N_OPS];
    const struct atsi_op *list[N_OPS];
    struct atsi_buf *buf;
};

static size_t bytes_of(const struct atsi_tensor *t)
{
    return (size_t)(t->row_bytes * t->ne[1]);
}

static void make_tensors(struct gpu *g, struct block *b, uint32_t type, uint32_t down)
{
    const struct {
        uint32_t type, ne0, ne1;
    } what[N_TENSORS] = {
        [X] = {ATSI_TYPE_F32, K, MAX_ROWS},
        [SCALE] = {ATSI_TYPE_F32, K, 1},
        [N] = {ATSI_TYPE_F32, K, MAX_ROWS},
        [W_GATE] = {type, K, FF},
        [W_UP] = {type, K, FF},
        [W_DOWN] = {down, FF, OUT},
        [GATE] = {ATSI_TYPE_F32, FF, MAX_ROWS},
        [UP] = {ATSI_TYPE_F32, FF, MAX_ROWS},
        [ACT] = {ATSI_TYPE_F32, FF, MAX_ROWS},
        [DOWN] = {ATSI_TYPE_F32, OUT, MAX_ROWS},
        [TABLE] = {ATSI_TYPE_F32, DIM, MAX_ROWS},
    };
    size_t at = 0;
    unsigned char *base;
    tensor_seed(77);
    for (int i = 0; i < N_TENSORS; i++)
        at += (atsi_row_bytes(what[i].type, what[i].ne0) * what[i].ne1 + 255) / 256 * 256;
    b->buf = gpu_alloc(g, ATSI_MEM_DEVICE, at);
    base = g->ops->buf_ptr(b->buf);
    for (int i = 0; i < N_TENSORS; i++) {
        b->t[i] = tensor_new(what[i].type, what[i].ne0, what[i].ne1, 1);
        if (i == SCALE)
            b->t[i].n_dims = 1;
        gpu_put(g, base, b->t[i].data, bytes_of(&b->t[i]));
        free(b->t[i].data);
        b->t[i].data = base;
        base += (bytes_of(&b->t[i]) + 255) / 256 * 256;
    }
}

static void block_open(struct gpu *g, struct block *b, uint32_t type, uint32_t down)
{
    struct atsi_tensor *t = b->t;
    make_tensors(g, b, type, down);
    b->op[NORM] = (struct atsi_op){
        .kind = ATSI_OP_RMS_NORM, .src = {&t[X]}, .weight = {&t[SCALE]}, .dst = {&t[N]}};
    b->op[NORM].p.norm.eps = 1e-5F;
    b->op[MUL_GATE] = (struct atsi_op){
        .kind = ATSI_OP_MATMUL, .src = {&t[N]}, .weight = {&t[W_GATE]}, .dst = {&t[GATE]}};
    b->op[MUL_UP] = (struct atsi_op){
        .kind = ATSI_OP_MATMUL, .src = {&t[N]}, .weight = {&t[W_UP]}, .dst = {&t[UP]}};
    for (int i = 0; i < 2; i++) {
        struct atsi_op *op = &b->op[ROPE_GATE + i];
        *op = (struct atsi_op){
            .kind = ATSI_OP_ROPE, .src = {&t[GATE + i], &t[TABLE]}, .dst = {&t[GATE + i]}};
        op->p.rope.n_head = FF / DIM;
        op->p.rope.head_dim = op->p.rope.n_rot = DIM;
        op->p.rope.mode = ATSI_ROPE_HALVES;
    }
    b->op[GLU] =
        (struct atsi_op){.kind = ATSI_OP_SWIGLU, .src = {&t[GATE], &t[UP]}, .dst = {&t[ACT]}};
    b->op[GLU].p.glu.kind = ATSI_GLU_SILU;
    b->op[GLU].p.glu.n_group = 1;
    b->op[MUL_DOWN] = (struct atsi_op){
        .kind = ATSI_OP_MATMUL, .src = {&t[ACT]}, .weight = {&t[W_DOWN]}, .dst = {&t[DOWN]}};
    for (int i = 0; i < N_OPS; i++) {
        b->op[i].struct_size = sizeof b->op[i];
        b->list[i] = &b->op[i];
    }
}

/* Runs it on a device opened with `fuse`; results go to n, act, down.  Returns kernels queued. */
static uint64_t run(struct gpu *g, const char *fuse, const uint32_t *types, uint32_t rows,
                    float *out)
{
    static const int results[] = {N, GATE, UP, ACT, DOWN};
    struct cuda_host_stats before, after;
    struct block b;
    struct atsi_split split = {.struct_size = sizeof split, .n_ops = N_OPS, .ops = b.list};
    memset(&b, 0, sizeof b);
    gpu_close(g);
    gpu_set("fuse", fuse);
    assert_int_equal(gpu_open(g), ATSI_OK);
    block_open(g, &b, types[0], types[1]);
    split.signal = g->done;
    for (int i = 0; i < N_OPS; i++)
        b.op[i].n_rows = rows;
    gpu_control->stats(&before);
    GPU_OK(g, g->ops->run(g->queue, &split, &g->err));
    gpu_wait(g, g->done);
    gpu_control->stats(&after);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        size_t n = (size_t)b.t[results[i]].ne[0] * rows;
        gpu_get(g, out, b.t[results[i]].data, n * sizeof *out);
        out += n;
    }
    g->ops->buf_free(g->be, b.buf);
    return after.kernels - before.kernels;
}

static void test_same_bits(void **state)
{
    static const uint32_t types[][2] = {{ATSI_TYPE_Q4_K, ATSI_TYPE_Q8_0},
                                        {ATSI_TYPE_Q4_0, ATSI_TYPE_Q6_K}};
    static const uint32_t rows[] = {1, 3, MAX_ROWS};
    size_t n = (size_t)MAX_ROWS * (K + 3 * FF + OUT) * sizeof(float);
    float *apart = calloc(1, n), *fused = calloc(1, n);
    assert_true(apart != NULL && fused != NULL);
    for (int t = 0; t < 2; t++)
        for (int r = 0; r < 3; r++) {
            uint64_t many = run(*state, "false", types[t], rows[r], apart);
            uint64_t few = run(*state, "true", types[t], rows[r], fused);
            assert_int_equal(many, few + 3); /* two roundings, and a rotation */
            assert_memory_equal(apart, fused, n);
        }
    free(apart);
    free(fused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same_bits, gpu_setup, gpu_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
