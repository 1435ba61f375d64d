/* SPDX-License-Identifier: Apache-2.0
 * Captured splits: replayed, updated in place, built again, dropped; the results are those of
 * splits that run op by op. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_fixture.h"

#define N 256u
#define ROWS 4u
#define UPDATE_FAILURE 910 /* cudaErrorGraphExecUpdateFailure */

static uint64_t launches(void)
{
    struct cuda_host_stats s;
    gpu_control->stats(&s);
    return s.graph_launches;
}

/* [ROWS, N] numbers of value, value, ... in a, twice that in b, in one buffer with y. */
struct sums {
    struct atsi_buf *buf;
    float *a, *b, *y;
    struct gpu_add add;
};

static void set_numbers(struct gpu *g, struct sums *s, float value)
{
    float host[2 * ROWS * N];
    for (uint32_t i = 0; i < ROWS * N; i++) {
        host[i] = value;
        host[ROWS * N + i] = 2 * value;
    }
    gpu_put(g, s->a, host, sizeof host);
}

static void sums_open(struct gpu *g, struct sums *s)
{
    s->buf = gpu_alloc(g, ATSI_MEM_DEVICE, 3 * ROWS * N * sizeof(float));
    s->a = g->ops->buf_ptr(s->buf);
    s->b = s->a + (size_t)ROWS * N;
    s->y = s->b + (size_t)ROWS * N;
    gpu_add_make(&s->add, s->a, s->b, s->y, N, ROWS);
}

/* Runs it under `key`, after y was cleared; the first n_rows rows are sums, the others are not. */
static void run_and_check(struct gpu *g, struct sums *s, uint64_t key, float value)
{
    float got[ROWS * N];
    set_numbers(g, s, value);
    GPU_OK(g, g->ops->fill(g->queue, s->y, 0, sizeof got, NULL, &g->err));
    GPU_OK(g, gpu_run(g, &s->add.op, key, NULL, g->done));
    gpu_wait(g, g->done);
    gpu_get(g, got, s->y, sizeof got);
    for (uint32_t i = 0; i < ROWS * N; i++)
        assert_true(got[i] == (i < s->add.op.n_rows * N ? 3 * value : 0.0F));
}

static void test_replay(void **state)
{
    struct gpu *g = *state;
    struct sums s;
    sums_open(g, &s);
    run_and_check(g, &s, 11, 1); /* seen */
    assert_int_equal(launches(), 0);
    run_and_check(g, &s, 11, 2); /* captured */
    assert_int_equal(launches(), 1);
    run_and_check(g, &s, 11, 3); /* replayed with other contents */
    run_and_check(g, &s, 11, 4);
    assert_int_equal(launches(), 3);
    assert_int_equal(gpu_control->calls("cudaGraphInstantiate"), 1);
    assert_int_equal(gpu_control->calls("cudaStreamBeginCapture"), 1);
    run_and_check(g, &s, 0, 5); /* no promise: no graph */
    run_and_check(g, &s, 0, 6);
    run_and_check(g, &s, 0, 7);
    assert_int_equal(launches(), 3);
    g->ops->buf_free(g->be, s.buf);
}

/* A key that does not hold its promise costs time, not rightness. */
static void test_rows_and_addresses(void **state)
{
    struct gpu *g = *state;
    struct sums s, t;
    sums_open(g, &s);
    sums_open(g, &t);
    for (int i = 0; i < 3; i++)
        run_and_check(g, &s, 5, (float)i);
    for (uint32_t rows = 1; rows <= ROWS; rows++) {
        s.add.op.n_rows = rows;
        run_and_check(g, &s, 5, (float)rows);
    }
    for (int i = 0; i < 3; i++)
        run_and_check(g, &t, 5, (float)i);
    assert_true(gpu_control->calls("cudaGraphExecUpdate") > 0);
    assert_int_equal(launches(), 2 + ROWS + 3); /* all but the very first */
    g->ops->buf_free(g->be, s.buf);
    g->ops->buf_free(g->be, t.buf);
}

static void test_update_refused(void **state)
{
    struct gpu *g = *state;
    struct sums s;
    sums_open(g, &s);
    run_and_check(g, &s, 5, 1);
    run_and_check(g, &s, 5, 2);
    gpu_fail("cudaGraphExecUpdate", 1, UPDATE_FAILURE, 0);
    s.add.op.n_rows = 2;
    run_and_check(g, &s, 5, 3);
    assert_true(gpu_control->failed());
    assert_int_equal(gpu_control->calls("cudaGraphInstantiate"), 2);
    assert_int_equal(launches(), 2);
    assert_int_equal(gpu_logged(NULL), 0); /* nothing unusual */
    g->ops->buf_free(g->be, s.buf);
}

/* What cannot be captured runs without a graph, and the log says so once. */
static void test_capture_fails(void **state)
{
    static const char *const calls[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture",
                                        "cudaGraphInstantiate"};
    struct gpu *g = *state;
    struct sums s;
    sums_open(g, &s);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const char *text;
        run_and_check(g, &s, i + 1, 1);
        gpu_fail(calls[i], 1, 2 /* cudaErrorMemoryAllocation */, 0);
        run_and_check(g, &s, i + 1, 2);
        assert_true(gpu_control->failed());
        assert_int_equal(gpu_logged(&text), 1);
        assert_non_null(strstr(text, "without a graph"));
        run_and_check(g, &s, i + 1, 3);
        assert_int_equal(gpu_logged(NULL), 0);
    }
    assert_int_equal(launches(), 0);
    g->ops->buf_free(g->be, s.buf);
}

static void test_limit(void **state)
{
    struct gpu *g = *state;
    struct sums s, t;
    struct cuda_host_stats stats;
    gpu_close(g);
    gpu_set("graph_limit", "2");
    assert_int_equal(gpu_open(g), ATSI_OK);
    sums_open(g, &s);
    sums_open(g, &t);
    for (uint64_t i = 0; i < 4; i++)
        for (uint64_t key = 1; key <= 2; key++)
            run_and_check(g, key == 1 ? &s : &t, key, (float)(i + key));
    assert_int_equal(launches(), 2 * 3);
    for (uint64_t i = 0; i < 3; i++) /* drives the older of the two out */
        run_and_check(g, &s, 3, (float)i);
    run_and_check(g, &t, 2, 9); /* still there */
    assert_int_equal(launches(), 2 * 3 + 2 + 1);
    for (uint64_t key = 10; key < 40; key++)
        run_and_check(g, &s, key, (float)key);
    gpu_control->stats(&stats);
    assert_true(stats.graphs <= 2);
    g->ops->buf_free(g->be, s.buf);
    g->ops->buf_free(g->be, t.buf);
}

static void test_off(void **state)
{
    struct gpu *g = *state;
    struct sums s;
    gpu_close(g);
    gpu_set("graphs", "off");
    assert_int_equal(gpu_open(g), ATSI_OK);
    sums_open(g, &s);
    for (int i = 0; i < 4; i++)
        run_and_check(g, &s, 1, (float)i);
    assert_int_equal(launches(), 0);
    g->ops->buf_free(g->be, s.buf);
}

/* Measured operations run one by one, whatever the key. */
static void test_times(void **state)
{
    struct gpu *g = *state;
    struct sums s;
    uint64_t ns = UINT64_MAX;
    const struct atsi_op *ops[] = {&s.add.op};
    struct atsi_split split = {.struct_size = sizeof split,
                               .n_ops = 1,
                               .ops = ops,
                               .signal = g->done,
                               .graph_key = 1,
                               .op_ns = &ns};
    sums_open(g, &s);
    for (int i = 0; i < 3; i++)
        run_and_check(g, &s, 1, (float)i);
    set_numbers(g, &s, 4);
    GPU_OK(g, g->ops->run(g->queue, &split, &g->err));
    gpu_wait(g, g->done);
    assert_true(ns != UINT64_MAX);
    assert_int_equal(launches(), 2);
    g->ops->buf_free(g->be, s.buf);
}

/* ---------------------------------------------------------------- attention that grows */
#define DIM 32u
#define CELLS 1024u

/* One head of DIM over f32 caches, a row at a time: decoding. */
struct decoding {
    struct atsi_buf *buf;
    float *q, *k, *v, *y;
    int32_t *pos;
    struct atsi_tensor tq, tk, tv, tp, ty;
    struct atsi_kv kv;
    struct atsi_op op;
};

static struct atsi_tensor row(void *data, uint32_t width, uint32_t type, const char *name)
{
    return (struct atsi_tensor){.struct_size = sizeof(struct atsi_tensor),
                                .type = type,
                                .n_dims = 2,
                                .ne = {width, 1, 1, 1},
                                .row_bytes = (uint64_t)width * 4,
                                .data = data,
                                .name = name};
}

static void decoding_open(struct gpu *g, struct decoding *d)
{
    size_t cache = (size_t)CELLS * DIM;
    unsigned char *base;
    d->buf = gpu_alloc(g, ATSI_MEM_DEVICE, (2 * cache + 5 * 64) * sizeof(float));
    base = g->ops->buf_ptr(d->buf);
    GPU_OK(g,
           g->ops->fill(g->queue, base, 0, (2 * cache + 5 * 64) * sizeof(float), g->done, &g->err));
    gpu_wait(g, g->done);
    d->q = (float *)base + 2 * cache;
    d->k = d->q + 64;
    d->v = d->k + 64;
    d->y = d->v + 64;
    d->pos = (int32_t *)(d->y + 64);
    d->tq = row(d->q, DIM, ATSI_TYPE_F32, "q");
    d->tk = row(d->k, DIM, ATSI_TYPE_F32, "k");
    d->tv = row(d->v, DIM, ATSI_TYPE_F32, "v");
    d->ty = row(d->y, DIM, ATSI_TYPE_F32, "seen");
    d->tp = row(d->pos, 1, ATSI_TYPE_I32, "position");
    d->kv = (struct atsi_kv){.struct_size = sizeof d->kv,
                             .n_head_kv = 1,
                             .head_dim_k = DIM,
                             .head_dim_v = DIM,
                             .n_ctx = CELLS,
                             .k = base,
                             .v = (float *)base + cache};
    d->op = (struct atsi_op){.struct_size = sizeof d->op,
                             .kind = ATSI_OP_ATTN,
                             .n_rows = 1,
                             .src = {&d->tq, &d->tk, &d->tv, &d->tp},
                             .dst = {&d->ty},
                             .kv = &d->kv};
    d->op.p.attn.n_head = d->op.p.attn.n_head_kv = 1;
    d->op.p.attn.head_dim_k = d->op.p.attn.head_dim_v = DIM;
    d->op.p.attn.scale = 1;
}

/* All keys are 0, so every visible value counts the same: the answer is the mean of 0..p. */
static void decode(struct gpu *g, struct decoding *d, int32_t p)
{
    float value[DIM], got[DIM];
    for (uint32_t i = 0; i < DIM; i++)
        value[i] = (float)p;
    gpu_put(g, d->v, value, sizeof value);
    gpu_put(g, d->pos, &p, sizeof p);
    d->op.p.attn.n_kv = (uint32_t)p + 1;
    GPU_OK(g, gpu_run(g, &d->op, 77, NULL, g->done));
    gpu_wait(g, g->done);
    gpu_get(g, got, d->y, sizeof got);
    assert_true(fabsf(got[DIM - 1] - (float)p / 2) <= 1e-4F * (float)(p + 1));
}

static void test_kv_bucket(void **state)
{
    struct gpu *g = *state;
    struct decoding d;
    uint64_t captures;
    decoding_open(g, &d);
    for (int32_t p = 0; p < 256; p++)
        decode(g, &d, p);
    captures = gpu_control->calls("cudaStreamBeginCapture");
    assert_int_equal(captures, 1); /* one for the whole bucket */
    assert_int_equal(launches(), 255);
    for (int32_t p = 256; p < 600; p++)
        decode(g, &d, p);
    assert_int_equal(gpu_control->calls("cudaStreamBeginCapture"), 3);
    assert_int_equal(launches(), 599);
    g->ops->buf_free(g->be, d.buf);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, gpu_setup, gpu_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_replay), TEST(test_rows_and_addresses), TEST(test_update_refused),
        TEST(test_limit),  TEST(test_capture_fails),      TEST(test_off),
        TEST(test_times),  TEST(test_kv_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
