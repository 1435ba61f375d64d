/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms and activations that round for the products behind them, rotations of queries and keys at
 * once, which store keys and values for the attention behind them: fewer kernels, the same bits.
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

/* ---------------------------------------------------------------- rotation and cache */
enum { Q, KEYS, VALUES, TURNED_Q, TURNED_K, ANGLES, POSITIONS, OUT_Y, N_ATTN_TENSORS };
enum { HEADS = 6, HEADS_KV = 2, CELLS = 40, CACHE_ROWS = HEADS_KV * CELLS };

struct attention {
    struct atsi_tensor t[N_ATTN_TENSORS];
    struct atsi_kv kv;
    struct atsi_op op[3];
    const struct atsi_op *list[3];
    struct atsi_buf *buf;
    unsigned char *cache;
    size_t cache_bytes;
};

/* How one is put together. */
struct trial_attn {
    uint32_t type_k, type_v, dk, dv, n_rot, mode, rows;
    bool in_place, keys_first;
    bool apart; /* the rotations are in splits of their own */
    int32_t first;
    /* What is not what the rotation wrote: SAME: nothing; the keys; or the values, which are. */
    enum { SAME, OTHER_KEYS, TURNED_VALUES } odd;
};

static struct atsi_tensor *put_tensor(struct gpu *g, struct attention *b, int i, uint32_t type,
                                      uint32_t width, unsigned char **at)
{
    struct atsi_tensor *t = &b->t[i];
    *t = tensor_new(type, width, MAX_ROWS, 1);
    gpu_put(g, *at, t->data, bytes_of(t));
    free(t->data);
    t->data = *at;
    *at += (bytes_of(t) + 255) / 256 * 256;
    return t;
}

static void attention_tensors(struct gpu *g, struct attention *b, const struct trial_attn *a)
{
    const uint32_t widths[N_ATTN_TENSORS] = {HEADS * a->dk,
                                             HEADS_KV * a->dk,
                                             HEADS_KV * a->dv,
                                             HEADS * a->dk,
                                             HEADS_KV * a->dk,
                                             a->n_rot,
                                             1,
                                             HEADS * a->dv};
    size_t row_k = atsi_row_bytes(a->type_k, a->dk), row_v = atsi_row_bytes(a->type_v, a->dv);
    unsigned char *at, *empty;
    int32_t positions[MAX_ROWS];
    tensor_seed(78);
    b->cache_bytes = CACHE_ROWS * (row_k + row_v);
    b->buf = gpu_alloc(g, ATSI_MEM_DEVICE, 1 << 20);
    b->cache = at = g->ops->buf_ptr(b->buf);
    empty = calloc(1, b->cache_bytes);
    assert_non_null(empty);
    gpu_put(g, at, empty, b->cache_bytes);
    free(empty);
    at += (b->cache_bytes + 255) / 256 * 256;
    for (int i = 0; i < N_ATTN_TENSORS; i++)
        (void)put_tensor(g, b, i, i == POSITIONS ? ATSI_TYPE_I32 : ATSI_TYPE_F32, widths[i], &at);
    for (uint32_t t = 0; t < MAX_ROWS; t++)
        positions[t] = a->first + (int32_t)t;
    gpu_put(g, b->t[POSITIONS].data, positions, sizeof positions);
    b->kv = (struct atsi_kv){.struct_size = sizeof b->kv,
                             .type_k = a->type_k,
                             .type_v = a->type_v,
                             .n_head_kv = HEADS_KV,
                             .head_dim_k = a->dk,
                             .head_dim_v = a->dv,
                             .n_ctx = CELLS,
                             .k = b->cache,
                             .v = b->cache + CACHE_ROWS * row_k};
}

static struct atsi_op rotation(struct attention *b, const struct trial_attn *a, int from, int to,
                               uint32_t heads)
{
    struct atsi_op op = {.struct_size = sizeof op,
                         .kind = ATSI_OP_ROPE,
                         .n_rows = a->rows,
                         .src = {&b->t[from], &b->t[ANGLES]},
                         .dst = {&b->t[to]}};
    op.p.rope.n_head = heads;
    op.p.rope.head_dim = a->dk;
    op.p.rope.n_rot = a->n_rot;
    op.p.rope.mode = a->mode;
    return op;
}

static void attention_open(struct gpu *g, struct attention *b, const struct trial_attn *a)
{
    int q = a->in_place ? Q : TURNED_Q, k = a->in_place ? KEYS : TURNED_K;
    attention_tensors(g, b, a);
    b->op[a->keys_first] = rotation(b, a, Q, q, HEADS);
    b->op[!a->keys_first] = rotation(b, a, KEYS, k, HEADS_KV);
    b->op[2] = (struct atsi_op){.struct_size = sizeof b->op[2],
                                .kind = ATSI_OP_ATTN,
                                .n_rows = a->rows,
                                .src = {&b->t[q], &b->t[k], &b->t[VALUES], &b->t[POSITIONS]},
                                .dst = {&b->t[OUT_Y]},
                                .kv = &b->kv};
    if (a->odd == OTHER_KEYS)
        b->op[2].src[1] = &b->t[KEYS];
    if (a->odd == TURNED_VALUES)
        b->op[2].src[2] = &b->t[k];
    b->op[2].p.attn.n_head = HEADS;
    b->op[2].p.attn.n_head_kv = HEADS_KV;
    b->op[2].p.attn.head_dim_k = a->dk;
    b->op[2].p.attn.head_dim_v = a->dv;
    b->op[2].p.attn.n_kv = CELLS;
    b->op[2].p.attn.scale = 0.125F;
    for (int i = 0; i < 3; i++)
        b->list[i] = &b->op[i];
}

/* Results and the cache go to `out`; returns kernels queued. */
static uint64_t run_attention(struct gpu *g, const char *fuse, const struct trial_attn *a,
                              unsigned char *out)
{
    struct cuda_host_stats before, after;
    struct attention b;
    struct atsi_split split = {.struct_size = sizeof split};
    memset(&b, 0, sizeof b);
    gpu_close(g);
    gpu_set("fuse", fuse);
    assert_int_equal(gpu_open(g), ATSI_OK);
    attention_open(g, &b, a);
    gpu_control->stats(&before);
    for (uint32_t i = 0; i < 3; i += split.n_ops) { /* in one split, or the first one alone */
        split.n_ops = a->apart && i == 0 ? 1 : 3 - i;
        split.ops = b.list + i;
        split.signal = g->done;
        GPU_OK(g, g->ops->run(g->queue, &split, &g->err));
        gpu_wait(g, g->done);
    }
    gpu_control->stats(&after);
    gpu_get(g, out, b.cache, b.cache_bytes);
    out += b.cache_bytes;
    for (int i = 0; i < N_ATTN_TENSORS; i++) {
        gpu_get(g, out, b.t[i].data, bytes_of(&b.t[i]) / MAX_ROWS * a->rows);
        out += bytes_of(&b.t[i]);
    }
    g->ops->buf_free(g->be, b.buf);
    return after.kernels - before.kernels;
}

static void test_stored_by_rotation(void **state)
{
    static const struct trial_attn trials[] = {
        {ATSI_TYPE_F16, ATSI_TYPE_F16, 64, 64, 64, ATSI_ROPE_HALVES, 1, true, false, false, 7,
         SAME},
        {ATSI_TYPE_Q8_0, ATSI_TYPE_Q8_0, 96, 64, 64, ATSI_ROPE_PAIRS, 3, false, false, false, 0,
         SAME},
        {ATSI_TYPE_F32, ATSI_TYPE_F32, 33, 20, 20, ATSI_ROPE_HALVES, MAX_ROWS, true, true, false,
         15, SAME},
        {ATSI_TYPE_F16, ATSI_TYPE_Q8_0, 128, 96, 128, ATSI_ROPE_PAIRS, MAX_ROWS, false, true, false,
         3, SAME},
        {ATSI_TYPE_Q8_0, ATSI_TYPE_F32, 64, 33, 32, ATSI_ROPE_HALVES, 2, true, false, true, 38,
         SAME},
        {ATSI_TYPE_F16, ATSI_TYPE_F16, 80, 80, 64, ATSI_ROPE_HALVES, 1, false, false, true, 11,
         SAME},
    };
    size_t n = 1 << 20;
    unsigned char *apart = calloc(1, n), *fused = calloc(1, n);
    assert_true(apart != NULL && fused != NULL);
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        uint64_t many = run_attention(*state, "false", &trials[i], apart);
        uint64_t few = run_attention(*state, "true", &trials[i], fused);
        /* The cache's kernel; and, where they are neighbours, one rotation. */
        if (many != few + (trials[i].apart ? 1 : 2))
            fail_msg("trial %zu: %llu kernels apart, %llu fused", i, (unsigned long long)many,
                     (unsigned long long)few);
        assert_memory_equal(apart, fused, n);
    }
    free(apart);
    free(fused);
}

/* Values that a rotation writes, and keys that none has turned: stored afterwards. */
static void test_stored_by_itself(void **state)
{
    struct trial_attn trial = {.type_k = ATSI_TYPE_F16,
                               .type_v = ATSI_TYPE_Q8_0,
                               .dk = 64,
                               .dv = 64,
                               .n_rot = 64,
                               .mode = ATSI_ROPE_HALVES,
                               .rows = 2,
                               .first = 5};
    size_t n = 1 << 20;
    unsigned char *apart = calloc(1, n), *fused = calloc(1, n);
    assert_true(apart != NULL && fused != NULL);
    for (trial.odd = OTHER_KEYS; trial.odd <= TURNED_VALUES; trial.odd++) {
        uint64_t many = run_attention(*state, "false", &trial, apart);
        uint64_t few = run_attention(*state, "true", &trial, fused);
        assert_int_equal(many, few + 1); /* of two rotations one */
        assert_memory_equal(apart, fused, n);
    }
    free(apart);
    free(fused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same_bits, gpu_setup, gpu_teardown),
        cmocka_unit_test_setup_teardown(test_stored_by_rotation, gpu_setup, gpu_teardown),
        cmocka_unit_test_setup_teardown(test_stored_by_itself, gpu_setup, gpu_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
