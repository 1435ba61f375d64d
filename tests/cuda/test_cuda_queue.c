/* SPDX-License-Identifier: Apache-2.0
 * Queues and events of the CUDA plugin: order, times, refusals, no driver, lost devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cuda_fixture.h"

#define N 1024u

/* Three vectors of N numbers: 1, 2, ... and 1000, and room for sums. */
struct vectors {
    struct atsi_buf *buf;
    float *a, *b, *y;
};

static struct vectors vectors_open(struct gpu *g)
{
    struct vectors v = {.buf = gpu_alloc(g, ATSI_MEM_DEVICE, 3 * N * sizeof(float))};
    float host[3 * N];
    for (uint32_t i = 0; i < N; i++) {
        host[i] = (float)(i + 1);
        host[N + i] = 1000;
        host[2 * N + i] = -1;
    }
    v.a = g->ops->buf_ptr(v.buf);
    v.b = v.a + N;
    v.y = v.a + 2 * (size_t)N;
    gpu_put(g, v.a, host, sizeof host);
    return v;
}

static float number_at(struct gpu *g, const float *at)
{
    float x;
    gpu_get(g, &x, at, sizeof x);
    return x;
}

static void test_unsignalled(void **state)
{
    struct gpu *g = *state;
    struct vectors v = vectors_open(g);
    struct atsi_event *never;
    struct atsi_range r = {v.a, v.y, 4};
    struct gpu_add add;
    uint64_t ns;
    GPU_OK(g, g->ops->event_open(g->be, &never, &g->err));
    gpu_add_make(&add, v.a, v.b, v.y, N, 1);
    assert_int_equal(g->ops->event_query(never), 0);
    assert_int_equal(g->ops->event_time(never, &ns), ATSI_EINVAL);
    assert_int_equal(g->ops->event_wait(never, 0, &g->err), ATSI_EINVAL);
    assert_int_equal(gpu_run(g, &add.op, 0, never, g->done), ATSI_EINVAL);
    assert_int_equal(gpu_copyv(g, GPU_ENGINE, &r, 1, never, NULL), ATSI_EINVAL);
    assert_true(number_at(g, v.y) == -1); /* nothing ran */
    g->ops->event_close(never);
    g->ops->event_close(NULL);
    g->ops->buf_free(g->be, v.buf);
}

static void test_refusals(void **state)
{
    struct gpu *g = *state;
    struct vectors v = vectors_open(g);
    struct gpu_add add, wrong;
    const struct atsi_op *ops[] = {&add.op, &wrong.op};
    struct atsi_split split = {.struct_size = sizeof split, .n_ops = 2, .ops = ops};
    gpu_add_make(&add, v.a, v.b, v.y, N, 1);
    gpu_add_make(&wrong, v.a, v.b, v.y, N, 1);
    assert_int_equal(g->ops->supports(g->be, &add.op), 1);
    wrong.b.ne[0]--; /* shapes that disagree */
    assert_int_equal(g->ops->supports(g->be, &wrong.op), 0);
    assert_int_equal(g->ops->run(g->queue, &split, &g->err), ATSI_ENOTSUP);
    assert_non_null(strstr(g->err.msg, "add of the_sum"));
    assert_true(number_at(g, v.y) == -1); /* the good one has not run either */
    wrong.b.ne[0]++;
    wrong.b.data = NULL;
    assert_int_equal(g->ops->supports(g->be, &wrong.op), 1);
    assert_int_equal(g->ops->run(g->queue, &split, &g->err), ATSI_EINVAL);
    assert_non_null(strstr(g->err.msg, "tensor b"));
    wrong.op.kind = ATSI_OP_COUNT;
    assert_int_equal(g->ops->supports(g->be, &wrong.op), 0);
    wrong.op.kind = ATSI_OP_ADD;
    wrong.op.struct_size--;
    assert_int_equal(g->ops->supports(g->be, &wrong.op), 0);
    assert_int_equal(g->ops->supports(g->be, NULL), 0);
    g->ops->buf_free(g->be, v.buf);
}

/* Two events and three measured operators of 2 ms: are their times on the engine's clock where they
 * must be?  A machine that gives the program no time just then can make them late. */
static int times_fit(struct gpu *g)
{
    struct vectors v = vectors_open(g);
    struct gpu_add add;
    const struct atsi_op *ops[] = {&add.op, &add.op, &add.op};
    uint64_t op_ns[3] = {0}, begin, end, at[2] = {0}, sum;
    struct atsi_event *first;
    struct atsi_split split = {
        .struct_size = sizeof split, .n_ops = 3, .ops = ops, .signal = g->done, .op_ns = op_ns};
    gpu_add_make(&add, v.a, v.b, v.y, N, 1);
    GPU_OK(g, g->ops->event_open(g->be, &first, &g->err));
    begin = gpu_host.now_ns(gpu_host.ctx);
    GPU_OK(g, gpu_run(g, &add.op, 0, NULL, first));
    GPU_OK(g, g->ops->run(g->queue, &split, &g->err));
    gpu_wait(g, g->done);
    end = gpu_host.now_ns(gpu_host.ctx);
    assert_int_equal(g->ops->event_query(first), 1);
    assert_int_equal(g->ops->event_time(first, &at[0]), ATSI_OK);
    assert_int_equal(g->ops->event_time(g->done, &at[1]), ATSI_OK);
    assert_true(at[0] < at[1]);
    sum = op_ns[0] + op_ns[1] + op_ns[2];
    for (int i = 0; i < 3; i++)
        assert_true(op_ns[i] >= 1990000); /* emulated time is real, at least that long */
    g->ops->event_close(first);
    g->ops->buf_free(g->be, v.buf);
    return begin <= at[0] && at[1] <= end && sum <= at[1] - at[0] + 1000000;
}

static void test_times(void **state)
{
    struct gpu *g = *state;
    int fit = 0;
    assert_int_equal(gpu_control->set("KERNEL_NS", "2000000"), 0); /* 2 ms */
    for (int i = 0; i < 10 && !fit; i++) {
        if (i > 0) { /* a new backend sets its clock anew */
            gpu_close(g);
            assert_int_equal(gpu_open(g), ATSI_OK);
        }
        fit = times_fit(g);
    }
    assert_true(fit);
}

/* The second queue must not start before the first has finished, however long that takes. */
static void test_across_queues(void **state)
{
    struct gpu *g = *state;
    struct vectors v = vectors_open(g);
    struct atsi_queue *other, *mine = g->queue;
    struct atsi_event *half;
    struct gpu_add one, two;
    GPU_OK(g, g->ops->queue_open(g->be, &other, &g->err));
    GPU_OK(g, g->ops->event_open(g->be, &half, &g->err));
    gpu_add_make(&one, v.a, v.b, v.y, N, 1);
    gpu_add_make(&two, v.y, v.y, v.y, N, 1);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(gpu_control->set("DELAY", "2000"), 0);
        GPU_OK(g, gpu_run(g, &one.op, 0, NULL, half));
        g->queue = other;
        GPU_OK(g, gpu_run(g, &two.op, 0, half, g->done));
        g->queue = mine;
        gpu_wait(g, g->done);
        assert_int_equal(gpu_control->set("DELAY", "0"), 0);
        assert_true(number_at(g, v.y + 9) == 2 * 1010);
    }
    g->ops->event_close(half);
    g->ops->queue_close(other);
    g->ops->queue_close(NULL);
    g->ops->buf_free(g->be, v.buf);
}

static void test_fill(void **state)
{
    struct gpu *g = *state;
    struct vectors v = vectors_open(g);
    uint32_t got[3];
    float local[4];
    GPU_OK(g, g->ops->fill(g->queue, v.y, 0x7f, 8, g->done, &g->err));
    gpu_wait(g, g->done);
    gpu_get(g, got, v.y, sizeof got);
    assert_int_equal(got[0], 0x7f7f7f7f);
    assert_int_equal(got[1], 0x7f7f7f7f);
    assert_int_equal(got[2], 0xbf800000); /* -1 as before */
    GPU_OK(g, g->ops->fill(g->queue, v.y, 0, 0, NULL, &g->err));
    assert_int_equal(g->ops->fill(g->queue, local, 0, sizeof local, NULL, &g->err), ATSI_EINVAL);
    assert_int_equal(g->ops->fill(g->queue, v.y, 0, N * 4 + 1, NULL, &g->err), ATSI_EINVAL);
    g->ops->buf_free(g->be, v.buf);
}

/* Splits without operations still wait and signal. */
static void test_empty(void **state)
{
    struct gpu *g = *state;
    struct atsi_split split = {.struct_size = sizeof split, .signal = g->done, .graph_key = 7};
    GPU_OK(g, g->ops->run(g->queue, &split, &g->err));
    gpu_wait(g, g->done);
    GPU_OK(g, g->ops->run(g->queue, &split, &g->err));
    gpu_wait(g, g->done);
}

static void test_no_driver(void **state)
{
    const char *text;
    (void)state;
    assert_int_equal(gpu_control->set("DRIVER", "0"), 0);
    assert_int_equal(gpu_backend_ops()->probe(&gpu_host), 0);
    assert_int_equal(gpu_logged(NULL), 0); /* nothing to warn of */
    assert_int_equal(gpu_control->set("DRIVER", "11040"), 0);
    assert_int_equal(gpu_backend_ops()->probe(&gpu_host), 0);
    assert_int_equal(gpu_logged(&text), 1);
    assert_non_null(strstr(text, "CUDA 11.4"));
    gpu_control->reset();
    assert_int_equal(gpu_control->set("DEVICES", "0"), 0);
    assert_int_equal(gpu_backend_ops()->probe(&gpu_host), 0);
    gpu_control->reset();
    assert_int_equal(gpu_control->set("SM", "61"), 0);
    assert_int_equal(gpu_backend_ops()->probe(&gpu_host), 0);
    gpu_control->reset();
    gpu_set("device", "3");
    assert_int_equal(gpu_backend_ops()->probe(&gpu_host), 0);
    gpu_set("device", "0");
    assert_int_equal(gpu_backend_ops()->probe(&gpu_host), 1);
}

static void test_open_no_such(void **state)
{
    struct gpu *g = *state;
    struct atsi_backend *be = g->be;
    assert_int_equal(g->ops->open(&gpu_host, 1, &be, &g->err), ATSI_ENODEV);
    assert_null(be);
    assert_int_equal(g->ops->open(&gpu_host, -1, &be, &g->err), ATSI_ENODEV);
}

/* A fault on the device: whoever waits is told, everything afterwards says so at once, and after
 * closing all of it the device may be opened anew. */
static void test_lost(void **state)
{
    struct gpu *g = *state;
    struct vectors v = vectors_open(g);
    struct atsi_props p = {.struct_size = sizeof p};
    struct atsi_buf *buf;
    struct gpu_add add;
    int rc;
    gpu_add_make(&add, v.a, v.b, v.y, N, 1);
    gpu_fail(NULL, 1, 700 /* cudaErrorIllegalAddress */, 1);
    rc = gpu_run(g, &add.op, 0, NULL, g->done);
    if (rc == ATSI_OK)
        rc = g->ops->event_wait(g->done, 0, &g->err);
    assert_int_equal(rc, ATSI_ELOST);
    assert_non_null(strstr(g->err.msg, "device 0"));
    assert_int_equal(gpu_run(g, &add.op, 0, NULL, g->done), ATSI_ELOST);
    assert_int_equal(g->ops->event_query(g->done), ATSI_ELOST);
    assert_int_equal(g->ops->buf_alloc(g->be, ATSI_MEM_DEVICE, 16, &buf, &g->err), ATSI_ELOST);
    assert_non_null(strstr(g->err.msg, "was lost"));
    assert_int_equal(g->ops->props(g->be, &p), ATSI_ELOST);
    assert_true(gpu_logged(NULL) >= 1);
    g->ops->buf_free(g->be, v.buf);
    gpu_close(g);
    gpu_fail(NULL, 0, 0, 0);
    assert_int_equal(gpu_open(g), ATSI_OK);
    v = vectors_open(g);
    gpu_add_make(&add, v.a, v.b, v.y, N, 1);
    GPU_OK(g, gpu_run(g, &add.op, 0, NULL, g->done));
    gpu_wait(g, g->done);
    assert_true(number_at(g, v.y) == 1001);
    g->ops->buf_free(g->be, v.buf);
}

/* With `step`, the failing operation is named by the call that queued it. */
static void test_step(void **state)
{
    struct gpu *g = *state;
    struct vectors v;
    struct gpu_add add;
    gpu_close(g);
    gpu_set("step", "true");
    assert_int_equal(gpu_open(g), ATSI_OK);
    v = vectors_open(g);
    gpu_add_make(&add, v.a, v.b, v.y, N, 1);
    gpu_fail(NULL, 1, 719 /* cudaErrorLaunchFailure */, 1);
    assert_int_equal(gpu_run(g, &add.op, 5, NULL, g->done), ATSI_ELOST);
    assert_non_null(strstr(g->err.msg, "add of the_sum"));
    g->ops->buf_free(g->be, v.buf);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, gpu_setup, gpu_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_unsignalled), TEST(test_refusals), TEST(test_times),     TEST(test_across_queues),
        TEST(test_fill),        TEST(test_empty),    TEST(test_no_driver), TEST(test_open_no_such),
        TEST(test_lost),        TEST(test_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
