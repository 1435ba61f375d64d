/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, events and copy engines of the simulated device: what they order, and that they order
 * nothing else, so that a missing wait shows.
 */
#include "tests/cuda_host/trial.h"

#include <sched.h>
#include <string.h>

/* What happens only if the threads of two streams get to run in time may take several tries. */
enum { N = 4096, TRIES = 50 };

struct gear {
    float *in, *out;     /* pinned */
    float *d_in, *d_out; /* device */
    cudaEvent_t event;
};

static void gear_make(struct gear *g)
{
    g->in = trial_pinned(N);
    g->out = trial_pinned(N);
    g->d_in = trial_device(NULL, N);
    g->d_out = trial_device(NULL, N);
    OK(cudaEventCreateWithFlags(&g->event, cudaEventDisableTiming));
}

static void gear_drop(struct gear *g)
{
    OK(cudaEventDestroy(g->event));
    OK(cudaFree(g->d_in));
    OK(cudaFree(g->d_out));
    OK(cudaFreeHost(g->in));
    OK(cudaFreeHost(g->out));
}

static void copy_in(const struct gear *g, cudaStream_t s)
{
    OK(cudaMemcpyAsync(g->d_in, g->in, N * sizeof(float), cudaMemcpyHostToDevice, s));
}

static void copy_out(const struct gear *g, cudaStream_t s)
{
    OK(cudaMemcpyAsync(g->out, g->d_out, N * sizeof(float), cudaMemcpyDeviceToHost, s));
}

static int right(const struct gear *g, float a)
{
    for (int i = 0; i < N; i++)
        if (!(g->out[i] == a * g->in[i]))
            return 0;
    return 1;
}

/* A stream that gets no further until the gate is opened. */
static void wait_at_gate(void *gate)
{
    while (!__atomic_load_n((int *)gate, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void open_gate(int *gate)
{
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
}

/* In one stream operations follow each other whatever the delays; events carry the order over. */
static void test_order(void **state)
{
    struct trial *t = *state;
    struct gear g;
    gear_make(&g);
    for (int round = 0; round < 20; round++) {
        assert_int_equal(t->control->set("DELAY", round % 2 ? "300" : "0"), 0);
        for (int i = 0; i < N; i++)
            g.in[i] = (float)(i + round);
        copy_in(&g, t->a);
        OK(cudaEventRecord(g.event, t->a));
        OK(cudaStreamWaitEvent(t->b, g.event, 0));
        OK(trial_scale(g.d_out, g.d_in, 3, 0, N, t->b));
        copy_out(&g, t->b);
        OK(cudaStreamSynchronize(t->b));
        assert_true(right(&g, 3));
    }
    gear_drop(&g);
}

/* Without the wait the kernel of the other stream comes too early in some of the rounds. */
static void test_missing_wait(void **state)
{
    struct trial *t = *state;
    struct gear g;
    int wrong = 0;
    if (trial_tsan)
        skip(); /* it would be told of every round */
    gear_make(&g);
    assert_int_equal(t->control->set("DELAY", "2000"), 0);
    assert_int_equal(t->control->set("CHECK_READS", "0"), 0);
    OK(cudaMemset(g.d_in, 0, N * sizeof(float)));
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < N; i++)
            g.in[i] = (float)(1 + i + round);
        copy_in(&g, t->a);
        OK(trial_scale(g.d_out, g.d_in, 3, 0, N, t->b));
        copy_out(&g, t->b);
        OK(cudaStreamSynchronize(t->b));
        wrong += !right(&g, 3);
        OK(cudaStreamSynchronize(t->a));
    }
    assert_true(wrong > 0);
    gear_drop(&g);
}

/* A slot that is filled again while a kernel still reads it; right with the wait, wrong without. */
static int slot_round(struct trial *t, struct gear *g, int wait)
{
    float *result = trial_pinned(N);
    int bad = 0;
    copy_in(g, t->a);
    OK(cudaEventRecord(g->event, t->a));
    OK(cudaStreamWaitEvent(t->b, g->event, 0));
    OK(trial_slow_scale(g->d_out, g->d_in, 2, N, 3000, t->b));
    OK(cudaEventRecord(g->event, t->b));
    if (wait)
        OK(cudaStreamWaitEvent(t->a, g->event, 0));
    OK(cudaMemsetAsync(g->d_in, 0, N * sizeof(float), t->a)); /* the next weights */
    OK(cudaMemcpyAsync(result, g->d_out, N * sizeof(float), cudaMemcpyDeviceToHost, t->b));
    OK(cudaStreamSynchronize(t->b));
    OK(cudaStreamSynchronize(t->a));
    for (int i = 1; i < N; i++)
        bad += !(result[i] == 2 * g->in[i]);
    OK(cudaFreeHost(result));
    return bad;
}

static void test_slot_reuse(void **state)
{
    struct trial *t = *state;
    struct gear g;
    gear_make(&g);
    for (int round = 0; round < 3; round++)
        assert_int_equal(slot_round(t, &g, 1), 0);
    int wrong = 0;
    for (int round = 0; !trial_tsan && !wrong && round < TRIES; round++)
        wrong = slot_round(t, &g, 0);
    assert_true(trial_tsan || wrong > 0);
    gear_drop(&g);
}

/* A wait is for the record that was the last when it was called; none: it waits for nothing. */
static void test_records(void **state)
{
    struct trial *t = *state;
    struct gear g;
    int gate = 0;
    gear_make(&g);
    OK(cudaEventQuery(g.event));
    OK(cudaEventSynchronize(g.event));
    OK(cudaStreamWaitEvent(t->b, g.event, 0));
    OK(cudaStreamSynchronize(t->b));
    copy_in(&g, t->a);
    OK(cudaEventRecord(g.event, t->a));
    OK(cudaStreamWaitEvent(t->b, g.event, 0));
    /* Recorded anew behind something slow: b does not wait for that. */
    OK(cudaLaunchHostFunc(t->a, wait_at_gate, &gate));
    OK(cudaEventRecord(g.event, t->a));
    OK(trial_scale(g.d_out, g.d_in, 5, 0, N, t->b));
    copy_out(&g, t->b);
    OK(cudaStreamSynchronize(t->b));
    assert_true(right(&g, 5));
    FAILS(cudaEventQuery(g.event), cudaErrorNotReady);
    FAILS(cudaStreamQuery(t->a), cudaErrorNotReady);
    FAILS(cudaGetLastError(), cudaErrorNotReady); /* as on a device: it stays until asked for */
    open_gate(&gate);
    OK(cudaEventSynchronize(g.event));
    OK(cudaEventQuery(g.event));
    OK(cudaStreamQuery(t->a));
    gear_drop(&g);
}

static void test_elapsed(void **state)
{
    struct trial *t = *state;
    struct gear g;
    cudaEvent_t start, end;
    float ms = 0;
    int gate = 0;
    gear_make(&g);
    OK(cudaEventCreateWithFlags(&start, cudaEventDefault));
    OK(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
    copy_in(&g, t->a);
    FAILS(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(start, t->a));
    OK(trial_slow_scale(g.d_out, g.d_in, 1, N, 20000, t->a));
    OK(cudaLaunchHostFunc(t->a, wait_at_gate, &gate));
    OK(cudaEventRecord(end, t->a));
    FAILS(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
    (void)cudaGetLastError();
    open_gate(&gate);
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, start, end));
    assert_true(ms >= 20.0f);
    OK(cudaEventRecord(g.event, t->a)); /* without timing */
    OK(cudaEventSynchronize(g.event));
    FAILS(cudaEventElapsedTime(&ms, start, g.event), cudaErrorInvalidResourceHandle);
    (void)cudaGetLastError();
    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(end));
    gear_drop(&g);
}

/* The time that two copies take that are queued together, one in each stream. */
static float time_of_two(struct trial *t, const struct gear *g, int opposite)
{
    cudaEvent_t start, end[2];
    float ms[2];
    OK(cudaEventCreate(&start));
    OK(cudaEventRecord(start, t->a));
    OK(cudaEventSynchronize(start)); /* else the other stream could be ahead of it */
    for (int i = 0; i < 2; i++) {
        OK(cudaEventCreate(&end[i]));
        if (i && opposite)
            copy_out(g, t->b);
        else
            OK(cudaMemcpyAsync(i ? g->d_out : g->d_in, g->in, N * sizeof(float),
                               cudaMemcpyHostToDevice, i ? t->b : t->a));
        OK(cudaEventRecord(end[i], i ? t->b : t->a));
    }
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 2; i++) {
        OK(cudaEventElapsedTime(&ms[i], start, end[i]));
        OK(cudaEventDestroy(end[i]));
    }
    OK(cudaEventDestroy(start));
    return ms[0] > ms[1] ? ms[0] : ms[1];
}

/* One engine per direction: copies of two streams take turns, those of two directions do not. */
static void test_copy_engines(void **state)
{
    struct trial *t = *state;
    struct cuda_host_stats s;
    struct gear g;
    gear_make(&g);
    OK(cudaMemset(g.d_out, 0, N * sizeof(float)));
    /* 16 KiB at 400 KiB/s take 40 ms. */
    assert_int_equal(t->control->set("H2D", "400k"), 0);
    assert_int_equal(t->control->set("D2H", "400k"), 0);
    assert_true(time_of_two(t, &g, 0) >= 79.0f);
    t->control->stats(&s);
    assert_int_equal(s.copies[0], 2);
    assert_int_equal(s.copies[1], 0);
    assert_true(s.busy_ns[0] >= 2 * 39000000ull);
    assert_int_equal(s.copied_bytes[0], 2 * N * sizeof(float));
    int tries = 0;
    while (time_of_two(t, &g, 1) >= 79.0f)
        assert_true(tries++ < TRIES);
    gear_drop(&g);
}

/* Copies of one direction run in the order in which they become ready. */
static void test_engine_fifo(void **state)
{
    struct trial *t = *state;
    struct gear g;
    cudaEvent_t end[2];
    float ms;
    int gate = 0;
    gear_make(&g);
    for (int i = 0; i < 2; i++)
        OK(cudaEventCreate(&end[i]));
    assert_int_equal(t->control->set("H2D", "1m"), 0);
    /* b's copy is queued first and becomes ready last. */
    OK(cudaLaunchHostFunc(t->b, wait_at_gate, &gate));
    OK(cudaMemcpyAsync(g.d_out, g.in, 64, cudaMemcpyHostToDevice, t->b));
    OK(cudaEventRecord(end[1], t->b));
    OK(cudaMemcpyAsync(g.d_in, g.in, 64, cudaMemcpyHostToDevice, t->a));
    OK(cudaEventRecord(end[0], t->a));
    OK(cudaEventSynchronize(end[0]));
    open_gate(&gate);
    OK(cudaDeviceSynchronize());
    OK(cudaEventElapsedTime(&ms, end[0], end[1]));
    assert_true(ms > 0);
    for (int i = 0; i < 2; i++)
        OK(cudaEventDestroy(end[i]));
    gear_drop(&g);
}

/* Time that kernels and copies take together is told. */
static void test_overlap(void **state)
{
    struct trial *t = *state;
    struct cuda_host_stats s;
    struct gear g;
    gear_make(&g);
    OK(cudaMemset(g.d_out, 0, N * sizeof(float)));
    assert_int_equal(t->control->set("H2D", "400k"), 0);
    assert_int_equal(t->control->set("KERNEL_NS", "60000000"), 0);
    assert_int_equal(t->control->set("NULL_KERNELS", "1"), 0);
    int tries = 0;
    do {
        assert_true(tries++ < TRIES);
        OK(trial_scale(g.d_out, g.d_out, 1, 0, N, t->a));
        copy_in(&g, t->b);
        OK(cudaDeviceSynchronize());
        t->control->stats(&s);
    } while (!s.overlap_ns);
    assert_true(s.overlap_ns <= s.busy_ns[2]);
    assert_true(s.busy_ns[2] >= (uint64_t)tries * 60000000u);
    assert_int_equal(s.kernels, tries);
    uint64_t before = s.overlap_ns;
    copy_in(&g, t->a); /* and not, if they are in one stream */
    OK(trial_scale(g.d_out, g.d_in, 1, 0, N, t->a));
    OK(cudaDeviceSynchronize());
    t->control->stats(&s);
    assert_true(s.overlap_ns == before);
    gear_drop(&g);
}

static void set_flag(void *at)
{
    *(int *)at = 7;
}

static void call_runtime(void *at)
{
    *(cudaError_t *)at = cudaMemset(NULL, 0, 0);
}

static void test_host_functions(void **state)
{
    struct trial *t = *state;
    int flag = 0;
    cudaError_t inner = cudaSuccess;
    OK(cudaLaunchHostFunc(t->a, set_flag, &flag));
    OK(cudaStreamSynchronize(t->a));
    assert_int_equal(flag, 7);
    OK(cudaLaunchHostFunc(t->a, call_runtime, &inner));
    OK(cudaStreamSynchronize(t->a));
    FAILS(inner, cudaErrorNotPermitted);
    trial_reported(t, CUDA_HOST_MISUSE, "called by a host function");
}

/* Host memory that is not pinned holds the host up, and what was copied is what was there then. */
static void test_pageable(void **state)
{
    struct trial *t = *state;
    struct cuda_host_stats s;
    struct gear g;
    static float values[N], back[64 * 1024];
    gear_make(&g);
    assert_int_equal(t->control->set("DELAY", "20000"), 0);
    for (int i = 0; i < N; i++)
        values[i] = g.in[i] = (float)i;
    OK(cudaMemcpyAsync(g.d_in, values, sizeof values, cudaMemcpyHostToDevice, t->a));
    memset(values, 0, sizeof values); /* too late to matter */
    OK(trial_scale(g.d_out, g.d_in, 1, 0, N, t->a));
    OK(cudaMemcpyAsync(back, g.d_out, N * sizeof(float), cudaMemcpyDeviceToHost, t->a));
    memcpy(g.out, back, N * sizeof(float)); /* has arrived */
    assert_true(right(&g, 1));
    t->control->stats(&s);
    assert_int_equal(s.pageable_copies, 2);
    gear_drop(&g);
}

static void test_rows(void **state)
{
    struct trial *t = *state;
    float *in = trial_pinned(60), *d = trial_device(NULL, 12), got[12];
    /* 3 rows of 4 floats out of a matrix with rows of 20. */
    OK(cudaMemcpy2DAsync(d, 16, in + 5, 80, 16, 3, cudaMemcpyHostToDevice, t->a));
    OK(cudaStreamSynchronize(t->a));
    trial_fetch(got, d, sizeof got);
    for (int i = 0; i < 12; i++)
        assert_true(got[i] == (float)(5 + i / 4 * 20 + i % 4));
    FAILS(cudaMemcpy2DAsync(d, 8, in, 80, 16, 3, cudaMemcpyHostToDevice, t->a),
          cudaErrorInvalidPitchValue);
    (void)cudaGetLastError();
    OK(cudaFree(d));
    OK(cudaFreeHost(in));
}

static void test_priorities(void **state)
{
    struct trial *t = *state;
    int least, greatest, got;
    cudaStream_t s;
    (void)t;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    assert_int_equal(least, 0);
    assert_true(greatest < 0);
    OK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, greatest - 10));
    OK(cudaStreamGetPriority(s, &got));
    assert_int_equal(got, greatest); /* clamped */
    OK(cudaStreamDestroy(s));
}

/* Destroying a stream lets what is queued run. */
static void test_destroy(void **state)
{
    struct trial *t = *state;
    struct gear g;
    cudaStream_t s;
    gear_make(&g);
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    copy_in(&g, s);
    OK(trial_slow_scale(g.d_out, g.d_in, 4, N, 20000, s));
    copy_out(&g, s);
    OK(cudaStreamDestroy(s));
    OK(cudaDeviceSynchronize());
    assert_true(right(&g, 4));
    FAILS(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
    trial_reported(t, CUDA_HOST_AFTER_FREE, "the stream does not exist");
    FAILS(trial_scale(g.d_out, g.d_in, 4, 0, N, NULL), cudaErrorInvalidResourceHandle);
    trial_reported(t, CUDA_HOST_MISUSE, "default stream");
    (void)cudaGetLastError();
    gear_drop(&g);
}

int main(void)
{
#define TRIAL(f) cmocka_unit_test_setup_teardown(f, trial_setup, trial_teardown)
    const struct CMUnitTest tests[] = {
        TRIAL(test_order),       TRIAL(test_missing_wait), TRIAL(test_slot_reuse),
        TRIAL(test_records),     TRIAL(test_elapsed),      TRIAL(test_copy_engines),
        TRIAL(test_engine_fifo), TRIAL(test_overlap),      TRIAL(test_host_functions),
        TRIAL(test_pageable),    TRIAL(test_rows),         TRIAL(test_priorities),
        TRIAL(test_destroy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
