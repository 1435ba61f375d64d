/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs on the simulated device: capture over streams that events join, replay, update in place,
 * and what must not be captured.
 */
#include "tests/cuda_host/trial.h"

enum { N = 256 };

struct gear {
    float *in, *out, *d[4];
    cudaEvent_t fork, join;
};

static void gear_make(struct gear *g)
{
    g->in = trial_pinned(N);
    g->out = trial_pinned(N);
    for (int i = 0; i < 4; i++)
        g->d[i] = trial_device(NULL, N);
    OK(cudaEventCreateWithFlags(&g->fork, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&g->join, cudaEventDisableTiming));
}

static void gear_drop(struct gear *g)
{
    OK(cudaEventDestroy(g->fork));
    OK(cudaEventDestroy(g->join));
    for (int i = 0; i < 4; i++)
        OK(cudaFree(g->d[i]));
    OK(cudaFreeHost(g->in));
    OK(cudaFreeHost(g->out));
}

/* in -> d0; in a d1 = x * d0, in b d2 = y * d0; joined, d3 = 10 * d2 + 1 -> out. */
static cudaGraph_t capture(struct trial *t, struct gear *g, float x, float y, int join)
{
    cudaGraph_t graph = NULL;
    size_t bytes = N * sizeof(float);
    OK(cudaStreamBeginCapture(t->a, cudaStreamCaptureModeThreadLocal));
    OK(cudaMemcpyAsync(g->d[0], g->in, bytes, cudaMemcpyHostToDevice, t->a));
    OK(cudaEventRecord(g->fork, t->a));
    OK(cudaStreamWaitEvent(t->b, g->fork, 0));
    OK(trial_scale(g->d[1], g->d[0], x, 0, N, t->a));
    OK(trial_scale(g->d[2], g->d[0], y, 0, N, t->b));
    if (join) {
        OK(cudaEventRecord(g->join, t->b));
        OK(cudaStreamWaitEvent(t->a, g->join, 0));
    }
    OK(trial_scale(g->d[3], g->d[2], 10, 1, N, t->a));
    OK(cudaMemcpyAsync(g->out, g->d[3], bytes, cudaMemcpyDeviceToHost, t->a));
    if (join)
        OK(cudaStreamEndCapture(t->a, &graph));
    else
        FAILS(cudaStreamEndCapture(t->a, &graph), cudaErrorStreamCaptureUnjoined);
    return graph;
}

static void run(struct trial *t, struct gear *g, cudaGraphExec_t exec, float factor)
{
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < N; i++)
            g->in[i] = (float)(i + round);
        OK(cudaGraphLaunch(exec, round % 2 ? t->a : t->b));
        OK(cudaStreamSynchronize(round % 2 ? t->a : t->b));
        for (int i = 0; i < N; i++)
            assert_true(g->out[i] == 10 * factor * (float)(i + round) + 1);
    }
}

static void test_capture_replay_update(void **state)
{
    struct trial *t = *state;
    struct gear g;
    struct cuda_host_stats s;
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info;
    size_t n = 0;
    gear_make(&g);
    assert_int_equal(t->control->set("DELAY", "50"), 0);
    cudaGraph_t graph = capture(t, &g, 2, 3, 1);
    t->control->stats(&s);
    assert_int_equal(s.kernels + s.copies[0], 0); /* nothing has run */
    OK(cudaGraphGetNodes(graph, NULL, &n));
    assert_int_equal(n, 5);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    run(t, &g, exec, 3);
    graph = capture(t, &g, 2, 7, 1);
    OK(cudaGraphExecUpdate(exec, graph, &info));
    assert_int_equal(info.result, cudaGraphExecUpdateSuccess);
    OK(cudaGraphDestroy(graph));
    run(t, &g, exec, 7);
    /* Another shape is refused, and the old one goes on. */
    OK(cudaStreamBeginCapture(t->a, cudaStreamCaptureModeRelaxed));
    OK(trial_scale(g.d[1], g.d[0], 1, 0, N, t->a));
    OK(cudaStreamEndCapture(t->a, &graph));
    FAILS(cudaGraphExecUpdate(exec, graph, &info), cudaErrorGraphExecUpdateFailure);
    assert_int_equal(info.result, cudaGraphExecUpdateErrorTopologyChanged);
    (void)cudaGetLastError();
    OK(cudaGraphDestroy(graph));
    run(t, &g, exec, 7);
    t->control->stats(&s);
    assert_int_equal(s.graph_launches, 24);
    OK(cudaGraphExecDestroy(exec));
    gear_drop(&g);
}

/* An update serves launches after it, not those that are queued. */
static void test_update_of_queued(void **state)
{
    struct trial *t = *state;
    struct gear g;
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info;
    gear_make(&g);
    cudaGraph_t graph = capture(t, &g, 2, 3, 1);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    graph = capture(t, &g, 2, 9, 1);
    OK(trial_slow_scale(g.d[1], g.in, 1, N, 20000, t->a));
    OK(cudaGraphLaunch(exec, t->a));
    OK(cudaGraphExecUpdate(exec, graph, &info));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamSynchronize(t->a));
    assert_true(g.out[1] == 31);
    OK(cudaGraphLaunch(exec, t->b));
    OK(cudaGraphExecDestroy(exec)); /* what is queued still runs */
    OK(cudaStreamSynchronize(t->b));
    assert_true(g.out[1] == 91);
    gear_drop(&g);
}

/* A dependency that no event expresses is not there: the random order of nodes shows it. */
static void test_missing_dependency(void **state)
{
    struct trial *t = *state;
    struct gear g;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int wrong = 0;
    gear_make(&g);
    for (int i = 0; i < 4; i++)
        OK(cudaMemset(g.d[i], 0, N * sizeof(float)));
    OK(cudaStreamBeginCapture(t->a, cudaStreamCaptureModeRelaxed));
    OK(cudaMemcpyAsync(g.d[0], g.in, N * sizeof(float), cudaMemcpyHostToDevice, t->a));
    OK(cudaEventRecord(g.fork, t->a));
    OK(cudaStreamWaitEvent(t->b, g.fork, 0));
    OK(trial_scale(g.d[2], g.d[0], 5, 0, N, t->b));
    OK(trial_scale(g.d[3], g.d[2], 10, 1, N, t->a)); /* reads what b makes */
    OK(cudaEventRecord(g.join, t->b));
    OK(cudaStreamWaitEvent(t->a, g.join, 0));
    OK(cudaMemcpyAsync(g.out, g.d[3], N * sizeof(float), cudaMemcpyDeviceToHost, t->a));
    OK(cudaStreamEndCapture(t->a, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < N; i++)
            g.in[i] = (float)(round + 1);
        OK(cudaGraphLaunch(exec, t->a));
        OK(cudaStreamSynchronize(t->a));
        wrong += !(g.out[0] == 50 * (float)(round + 1) + 1);
    }
    assert_true(wrong > 0 && wrong < 20);
    OK(cudaGraphExecDestroy(exec));
    gear_drop(&g);
}

static void test_bad_captures(void **state)
{
    struct trial *t = *state;
    struct gear g;
    cudaGraph_t graph;
    enum cudaStreamCaptureStatus status;
    void *p;
    gear_make(&g);
    assert_null(capture(t, &g, 1, 1, 0)); /* b's work is never joined */
    FAILS(cudaStreamEndCapture(t->a, &graph), cudaErrorIllegalState);
    /* Work of outside cannot be waited for. */
    OK(cudaEventRecord(g.fork, t->b));
    OK(cudaStreamBeginCapture(t->a, cudaStreamCaptureModeRelaxed));
    FAILS(cudaStreamWaitEvent(t->a, g.fork, 0), cudaErrorStreamCaptureIsolation);
    trial_reported(t, CUDA_HOST_MISUSE, "recorded outside");
    OK(cudaStreamIsCapturing(t->a, &status));
    assert_int_equal(status, cudaStreamCaptureStatusInvalidated);
    FAILS(trial_scale(g.d[1], g.d[0], 1, 0, N, t->a), cudaErrorStreamCaptureInvalidated);
    FAILS(cudaStreamEndCapture(t->a, &graph), cudaErrorStreamCaptureInvalidated);
    /* Waiting spoils a capture, and so does allocating unless it is relaxed. */
    OK(cudaStreamBeginCapture(t->a, cudaStreamCaptureModeRelaxed));
    OK(cudaMalloc(&p, 16));
    OK(cudaFree(p));
    FAILS(cudaStreamSynchronize(t->a), cudaErrorStreamCaptureUnsupported);
    trial_reported(t, CUDA_HOST_MISUSE, "cudaStreamSynchronize");
    FAILS(cudaStreamEndCapture(t->a, &graph), cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamBeginCapture(t->a, cudaStreamCaptureModeGlobal));
    FAILS(cudaMalloc(&p, 16), cudaErrorStreamCaptureUnsupported);
    trial_reported(t, CUDA_HOST_MISUSE, "cudaMalloc");
    FAILS(cudaStreamEndCapture(t->a, &graph), cudaErrorStreamCaptureInvalidated);
    /* An event of a capture is of no use outside. */
    OK(cudaStreamBeginCapture(t->a, cudaStreamCaptureModeRelaxed));
    OK(trial_scale(g.d[1], g.d[0], 1, 0, N, t->a));
    OK(cudaEventRecord(g.fork, t->a));
    OK(cudaStreamEndCapture(t->a, &graph));
    OK(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
    FAILS(cudaEventSynchronize(g.fork), cudaErrorCapturedEvent);
    FAILS(cudaStreamWaitEvent(t->b, g.fork, 0), cudaErrorCapturedEvent);
    OK(cudaEventRecord(g.fork, t->a));
    (void)cudaGetLastError();
    OK(cudaEventSynchronize(g.fork));
    gear_drop(&g);
}

int main(void)
{
#define TRIAL(f) cmocka_unit_test_setup_teardown(f, trial_setup, trial_teardown)
    const struct CMUnitTest tests[] = {
        TRIAL(test_capture_replay_update),
        TRIAL(test_update_of_queued),
        TRIAL(test_missing_dependency),
        TRIAL(test_bad_captures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
