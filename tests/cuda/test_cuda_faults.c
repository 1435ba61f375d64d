/* SPDX-License-Identifier: Apache-2.0
 *
 * A small script of everything the plugin does, with each call to the CUDA runtime failing once:
 * the script ends, right or with one error in words; what a call refused has not happened; nothing
 * is left and nothing went unchecked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_fixture.h"

#define N 512u
#define MOST_CALLS 2000u /* far more than the script has */

enum { MEMORY_ERROR = 2, INVALID_VALUE = 1, NOT_SUPPORTED = 801, ILLEGAL_ADDRESS = 700 };

struct script {
    struct gpu gpu;
    struct atsi_buf *dev, *pinned, *range;
    struct atsi_event *copied;
    float *host; /* [3 * N], page-aligned */
    float got[N];
    uint64_t op_ns, copy_ns;
};

static int open_all(struct script *s)
{
    struct gpu *g = &s->gpu;
    int rc = gpu_open(g);
    if (rc == ATSI_OK)
        rc = g->ops->event_open(g->be, &s->copied, &g->err);
    if (rc == ATSI_OK)
        rc = g->ops->buf_alloc(g->be, ATSI_MEM_DEVICE, 3 * N * sizeof(float), &s->dev, &g->err);
    if (rc == ATSI_OK)
        rc = g->ops->buf_alloc(g->be, ATSI_MEM_PINNED, N * sizeof(float), &s->pinned, &g->err);
    if (rc != ATSI_OK)
        return rc;
    rc = g->ops->buf_reserve(g->be, (size_t)16 << 20, &s->range, &g->err);
    if (rc == ATSI_ENOTSUP) /* no virtual memory: goes on without */
        return ATSI_OK;
    if (rc == ATSI_OK)
        rc = g->ops->buf_commit(g->be, s->range, (size_t)5 << 20, &g->err);
    if (rc == ATSI_OK)
        rc = g->ops->buf_commit(g->be, s->range, (size_t)1 << 20, &g->err);
    return rc;
}

/* Refusals of pinning are normal. */
static int register_host(struct script *s)
{
    struct gpu *g = &s->gpu;
    int rc = g->ops->host_register(g->be, s->host, 4096, &g->err);
    return rc == ATSI_ENOTSUP || rc == ATSI_ENOMEM ? ATSI_OK : rc;
}

/* y = a + b: a, b from pageable, registered and pinned memory, y back; four times as one graph. */
static int compute(struct script *s)
{
    struct gpu *g = &s->gpu;
    float *a = g->ops->buf_ptr(s->dev), *b = a + N, *y = b + N;
    float *pinned = g->ops->buf_ptr(s->pinned);
    struct atsi_range in[] = {{s->host, a, N * 4}, {s->host + 2 * (size_t)N, b, N * 4}};
    struct atsi_range out = {y, pinned, N * 4}, last = {y, s->got, N * 4};
    struct atsi_event *const wait[] = {s->copied};
    struct atsi_copyv req = {.struct_size = sizeof req,
                             .n_ranges = 2,
                             .ranges = in,
                             .signal = s->copied,
                             .copy_ns = &s->copy_ns};
    struct gpu_add add;
    const struct atsi_op *ops[] = {&add.op};
    struct atsi_split split = {.struct_size = sizeof split, .n_ops = 1, .ops = ops};
    int rc = g->ops->fill(g->queue, y, 0, N * 4, NULL, &g->err);
    gpu_add_make(&add, a, b, y, N, 1);
    for (int i = 0; i < 4 && rc == ATSI_OK; i++) {
        rc = g->link_ops->copyv(g->link, GPU_ENGINE, NULL, &req, &g->err);
        split.n_wait = 1;
        split.wait = wait;
        split.graph_key = 9;
        split.op_ns = i == 3 ? &s->op_ns : NULL;
        add.op.n_rows = 1;
        add.a.ne[0] = add.b.ne[0] = add.y.ne[0] = i == 2 ? N / 2 : N; /* an update */
        add.a.row_bytes = add.b.row_bytes = add.y.row_bytes = add.y.ne[0] * 4;
        if (rc == ATSI_OK)
            rc = g->ops->run(g->queue, &split, &g->err);
        if (rc == ATSI_OK)
            rc = gpu_copyv(g, GPU_KERNEL, &out, 1, NULL, g->done);
        if (rc == ATSI_OK)
            rc = g->ops->event_wait(g->done, 1000, &g->err);
    }
    if (rc == ATSI_OK)
        rc = gpu_copyv(g, GPU_ENGINE, &last, 1, NULL, g->done);
    return rc == ATSI_OK ? g->ops->event_wait(g->done, 0, &g->err) : rc;
}

static int times(struct script *s)
{
    struct atsi_props p = {.struct_size = sizeof p};
    uint64_t ns;
    int rc = s->gpu.ops->event_time(s->gpu.done, &ns);
    return rc == ATSI_OK ? s->gpu.ops->props(s->gpu.be, &p) : rc;
}

static void close_all(struct script *s)
{
    struct gpu *g = &s->gpu;
    if (g->be != NULL) {
        g->ops->host_unregister(g->be, s->host);
        g->ops->event_close(s->copied);
        g->ops->buf_free(g->be, s->dev);
        g->ops->buf_free(g->be, s->pinned);
        g->ops->buf_free(g->be, s->range);
    }
    gpu_close(g);
}

/* Runs the script; ATSI_OK only with the right answer. */
static int run_script(float *host, bool *words)
{
    struct script s = {.host = host};
    const float *pinned = NULL;
    int rc = open_all(&s);
    if (rc == ATSI_OK)
        rc = register_host(&s);
    if (rc == ATSI_OK)
        rc = compute(&s);
    if (rc == ATSI_OK) {
        pinned = s.gpu.ops->buf_ptr(s.pinned);
        for (uint32_t i = 0; i < N; i++)
            if (s.got[i] != 3 * (float)i || pinned[i] != 3 * (float)i)
                fail_msg("element %u is %g", i, (double)s.got[i]);
        *words = true;
        rc = times(&s); /* no words come with these */
    } else {
        *words = s.gpu.err.msg[0] != '\0';
    }
    close_all(&s);
    return rc;
}

static float *host_numbers(void)
{
    float *host = aligned_alloc(4096, 3 * N * sizeof(float) / 4096 * 4096 + 4096);
    assert_non_null(host);
    for (uint32_t i = 0; i < 3 * N; i++)
        host[i] = (float)(i < 2 * N ? i : 2 * (i - 2 * N));
    return host;
}

static int start(void **state)
{
    (void)gpu_plugin();
    gpu_control->reset();
    gpu_set("staging", "1");
    *state = host_numbers();
    return 0;
}

static int finish(void **state)
{
    free(*state);
    return 0;
}

static void test_script(void **state)
{
    bool words = false;
    assert_int_equal(run_script(*state, &words), ATSI_OK);
    gpu_assert_clean();
}

static void fail_each(float *host, int error, int async)
{
    uint32_t n = 1, finished = 0;
    for (; n < MOST_CALLS; n++) {
        bool words = false;
        int rc;
        (void)alarm(60); /* a hang is a failure */
        gpu_control->reset();
        gpu_fail(NULL, n, error, async);
        rc = run_script(host, &words);
        if (!gpu_control->failed())
            break;
        if (rc != ATSI_OK && !words)
            fail_msg("call %u failing with %d: status %d without a word", n, error, rc);
        if (rc == ATSI_OK)
            finished++;
        gpu_fail(NULL, 0, 0, 0);
        gpu_assert_clean();
        (void)gpu_logged(NULL);
    }
    (void)alarm(0);
    assert_true(n > 10 && n < MOST_CALLS);
    assert_true(finished < n - 1); /* some were noticed */
}

static void test_out_of_memory(void **state)
{
    fail_each(*state, MEMORY_ERROR, 0);
}

static void test_not_supported(void **state)
{
    fail_each(*state, NOT_SUPPORTED, 0);
}

static void test_context_lost(void **state)
{
    fail_each(*state, ILLEGAL_ADDRESS, 0);
}

static void test_fault_on_device(void **state)
{
    fail_each(*state, ILLEGAL_ADDRESS, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_script, start, finish),
        cmocka_unit_test_setup_teardown(test_out_of_memory, start, finish),
        cmocka_unit_test_setup_teardown(test_not_supported, start, finish),
        cmocka_unit_test_setup_teardown(test_context_lost, start, finish),
        cmocka_unit_test_setup_teardown(test_fault_on_device, start, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
