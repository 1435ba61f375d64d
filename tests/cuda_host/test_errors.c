/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of the simulated device: calls and operations that are made to fail, contexts that are
 * lost, and what a process is told when it ends.
 */
#include "tests/cuda_host/trial.h"

#include <string.h>

static void test_nth_call(void **state)
{
    struct trial *t = *state;
    void *p, *q;
    (t->control->fail)("cudaMalloc", 2, cudaErrorMemoryAllocation, 0);
    OK(cudaMalloc(&p, 16));
    assert_int_equal(t->control->failed(), 0);
    FAILS(cudaMalloc(&q, 16), cudaErrorMemoryAllocation);
    assert_int_equal(t->control->failed(), 1);
    FAILS(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    FAILS(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(cudaGetLastError());
    OK(cudaMalloc(&q, 16)); /* once only */
    assert_int_equal(t->control->calls("cudaMalloc"), 3);
    OK(cudaFree(p));
    OK(cudaFree(q));
}

/* Of all calls; one that frees does so and returns the error. */
static void test_any_call(void **state)
{
    struct trial *t = *state;
    void *p;
    struct cuda_host_stats s;
    uint64_t before = t->control->calls(NULL);
    (t->control->fail)(NULL, 3, cudaErrorInvalidValue, 0);
    OK(cudaMalloc(&p, 16));
    OK(cudaMemset(p, 0, 16));
    FAILS(cudaFree(p), cudaErrorInvalidValue);
    assert_int_equal(t->control->calls(NULL), before + 3);
    (void)cudaGetLastError();
    t->control->stats(&s);
    assert_int_equal(s.device_bytes, 0);
}

static void test_settings(void **state)
{
    struct trial *t = *state;
    struct cudaDeviceProp prop;
    int count, v;
    assert_int_equal(t->control->set("FAIL", "cudaMemset:1:cudaErrorInvalidValue"), 0);
    FAILS(cudaMemset(NULL, 0, 0), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    assert_int_equal(t->control->set("FAIL", "cudaMemset:x:1"), -1);
    assert_int_equal(t->control->set("FAIL", "cudaMemset:1:cudaErrorOfNobody"), -1);
    assert_int_equal(t->control->set("MEMORY", "12q"), -1);
    assert_int_equal(t->control->set("SM", "7"), -1);
    assert_int_equal(t->control->set("NOTHING", "1"), -1);
    assert_int_equal(t->control->set("GRANULE", "65537"), -1);
    assert_int_equal(t->control->set("SM", "90"), 0);
    assert_int_equal(t->control->set("SMS", "132"), 0);
    OK(cudaGetDeviceProperties(&prop, 0));
    assert_int_equal(prop.major, 9);
    assert_int_equal(prop.multiProcessorCount, 132);
    OK(cudaDeviceGetAttribute(&v, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    assert_int_equal(v, 227 << 10);
    FAILS(cudaDeviceGetAttribute(&v, cudaDevAttrWarpSize, 1), cudaErrorInvalidDevice);
    /* No device, and a driver that is too old or missing. */
    assert_int_equal(t->control->set("DEVICES", "0"), 0);
    FAILS(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    assert_int_equal(count, 0);
    assert_int_equal(t->control->set("DRIVER", "11000"), 0);
    FAILS(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    OK(cudaDriverGetVersion(&v));
    assert_int_equal(v, 11000);
    assert_int_equal(t->control->set("DRIVER", "99000"), 0);
    assert_int_equal(t->control->set("DEVICES", "1"), 0);
    (void)cudaGetLastError();
}

/* An error of an operation comes to whoever waits next, once. */
static void test_async_error(void **state)
{
    struct trial *t = *state;
    float *d = trial_device(NULL, 8);
    (t->control->fail)(NULL, 2, cudaErrorMemoryAllocation, 1);
    OK(cudaMemsetAsync(d, 0, 32, t->a));
    OK(trial_scale(d, d, 1, 0, 8, t->a));
    FAILS(cudaStreamSynchronize(t->a), cudaErrorMemoryAllocation);
    (void)cudaGetLastError();
    OK(cudaStreamSynchronize(t->a));
    OK(cudaFree(d));
}

static void test_lost_context(void **state)
{
    struct trial *t = *state;
    float *d = trial_device(NULL, 8), *pinned = trial_pinned(8);
    cudaEvent_t event;
    struct cuda_host_stats s;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    (t->control->fail)(NULL, 1, cudaErrorIllegalAddress, 1);
    OK(cudaMemcpyAsync(d, pinned, 32, cudaMemcpyHostToDevice, t->a));
    FAILS(cudaStreamSynchronize(t->a), cudaErrorIllegalAddress);
    /* From now on everything says so, and nothing hangs. */
    FAILS(cudaMemcpyAsync(d, pinned, 32, cudaMemcpyHostToDevice, t->a), cudaErrorIllegalAddress);
    FAILS(trial_scale(d, d, 1, 0, 8, t->a), cudaErrorIllegalAddress);
    FAILS(cudaEventRecord(event, t->a), cudaErrorIllegalAddress);
    FAILS(cudaFree(d), cudaErrorIllegalAddress);
    FAILS(cudaGetLastError(), cudaErrorIllegalAddress);
    FAILS(cudaGetLastError(), cudaErrorIllegalAddress);
    OK(cudaDeviceReset());
    OK(cudaGetLastError());
    t->control->stats(&s);
    assert_int_equal(s.streams + s.events, 0);
    assert_int_equal(s.device_bytes + s.pinned_bytes, 0);
    FAILS(cudaFree(d), cudaErrorInvalidValue);
    trial_reported(t, CUDA_HOST_MISUSE, "no such allocation");
    (void)cudaGetLastError();
    OK(cudaStreamCreateWithFlags(&t->a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&t->b, cudaStreamNonBlocking));
}

static void test_unchecked(void **state)
{
    struct trial *t = *state;
    void *p;
    FAILS(cudaMalloc(&p, SIZE_MAX / 4), cudaErrorMemoryAllocation);
    OK(cudaStreamSynchronize(t->a));
    trial_reported(t, CUDA_HOST_UNCHECKED,
                   "cudaMalloc returned cudaErrorMemoryAllocation, and nobody asked for it before "
                   "cudaStreamSynchronize");
    OK(cudaStreamSynchronize(t->a)); /* said once */
    (void)cudaGetLastError();
    trial_nothing_reported(t);
}

/* How processes end. */
static void test_ends(void **state)
{
    static const struct {
        const char *name, *words;
        int status;
    } ends[] = {
        {"clean", "", 0},
        {"checked", "", 0},
        {"unchecked", "nobody asked for it before cudaStreamSynchronize", 86},
        {"unchecked_async", "failed with cudaErrorMemoryAllocation, and nobody asked", 86},
        {"leak", "240 bytes of cudaMalloc were not freed", 86},
        {"leaked_event", "an event was not destroyed", 86},
    };
    char text[65536];
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int status = trial_victim(ends[i].name, text, sizeof text);
        if (status != ends[i].status || !strstr(text, ends[i].words))
            fail_msg("%s: status %d, says: %s", ends[i].name, status, text);
    }
}

/* Within what alignment leaves of an allocation: a write is found when it is freed, a read by
 * AddressSanitizer alone, which sees both at once. */
static void test_red_zones(void **state)
{
    static const struct {
        const char *name, *words;
        int plain;
    } zones[] = {
        {"write_past_end", "wrote 4 bytes after the end of an allocation of 240 bytes", 86},
        {"write_before", "wrote", 86},
        {"read_past_end", "", 0},
    };
    char text[65536];
    (void)state;
    for (size_t i = 0; i < sizeof zones / sizeof *zones; i++) {
        int status = trial_victim(zones[i].name, text, sizeof text);
        int found = trial_asan ? status && strstr(text, "AddressSanitizer") != NULL
                               : !zones[i].plain || (status == 86 && strstr(text, zones[i].words));
        if (!found)
            fail_msg("%s: status %d, says: %s", zones[i].name, status, text);
    }
}

static void test_crashes(void **state)
{
    char text[65536];
    (void)state;
    assert_int_not_equal(trial_victim("small_stack", text, sizeof text), 0);
    assert_non_null(strstr(text, "its stack is too small"));
    assert_int_not_equal(trial_victim("divide_by_zero", text, sizeof text), 0);
    assert_non_null(strstr(text, trial_asan ? "division by zero" : "divided by zero"));
    assert_int_not_equal(trial_victim("host_touches_guard", text, sizeof text), 0);
    assert_non_null(strstr(text, trial_tsan || !trial_asan
                                     ? "0 bytes after the end of an allocation of 256 bytes"
                                     : "AddressSanitizer"));
}

/* ThreadSanitizer knows the order that CUDA promises, and no other. */
static void test_races(void **state)
{
    static const struct {
        const char *name;
        int races;
    } races[] = {
        {"stream_race", 1}, {"stream_no_race", 0}, {"block_race", 1}, {"block_no_race", 0}};
    char text[65536];
    (void)state;
    for (size_t i = 0; i < sizeof races / sizeof *races; i++) {
        trial_victim(races[i].name, text, sizeof text);
        int found = strstr(text, "data race") != NULL;
        if (found != (trial_tsan && races[i].races))
            fail_msg("%s: says: %s", races[i].name, text);
    }
}

int main(void)
{
#define TRIAL(f) cmocka_unit_test_setup_teardown(f, trial_setup, trial_teardown)
    const struct CMUnitTest tests[] = {
        TRIAL(test_nth_call),           TRIAL(test_any_call),
        TRIAL(test_settings),           TRIAL(test_async_error),
        TRIAL(test_unchecked),          TRIAL(test_lost_context),
        cmocka_unit_test(test_ends),    cmocka_unit_test(test_red_zones),
        cmocka_unit_test(test_crashes), cmocka_unit_test(test_races),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
