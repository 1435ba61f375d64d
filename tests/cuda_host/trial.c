/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the tests of the simulated device.
 */
#include "tests/cuda_host/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/cuda_host/fiber.h"

const int trial_asan = CH_ASAN, trial_tsan = CH_TSAN;

int trial_setup(void **state)
{
    struct trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->control = cuda_host_control();
    t->control->reset();
    OK(cudaDeviceReset()); /* whatever a failed test left */
    assert_int_equal(t->control->set("QUIET", "1"), 0);
    OK(cudaStreamCreateWithFlags(&t->a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&t->b, cudaStreamNonBlocking));
    *state = t;
    return 0;
}

int trial_teardown(void **state)
{
    struct trial *t = *state;
    struct cuda_host_stats s;
    cudaStreamDestroy(t->a);
    cudaStreamDestroy(t->b);
    (void)cudaGetLastError();
    t->control->stats(&s);
    assert_int_equal(s.streams + s.events + s.graphs, 0);
    assert_int_equal(s.device_bytes + s.pinned_bytes, 0);
    trial_nothing_reported(t);
    t->control->reset();
    free(t);
    return 0;
}

float *trial_device(const float *values, size_t n)
{
    float *p;
    OK(cudaMalloc((void **)&p, n * sizeof *p));
    if (values)
        OK(cudaMemcpy(p, values, n * sizeof *p, cudaMemcpyHostToDevice));
    return p;
}

void trial_fetch(void *host, const void *device, size_t bytes)
{
    OK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}

float *trial_pinned(size_t n)
{
    float *p;
    OK(cudaHostAlloc((void **)&p, n * sizeof *p, cudaHostAllocMapped));
    for (size_t i = 0; i < n; i++)
        p[i] = (float)i;
    return p;
}

void trial_reported(struct trial *t, enum cuda_host_report kind, const char *words)
{
    const char *text = t->control->last_report();
    if (!t->control->reports(kind) || !strstr(text, words))
        fail_msg("%llu reports of kind %d; the last: \"%s\", wanted \"%s\"",
                 (unsigned long long)t->control->reports(kind), (int)kind, text, words);
    t->control->clear_reports();
}

void trial_nothing_reported(struct trial *t)
{
    for (int k = 0; k < CUDA_HOST_REPORTS; k++)
        if (t->control->reports((enum cuda_host_report)k))
            fail_msg("reported: %s", t->control->last_report());
}

int trial_victim(const char *name, char *text, size_t size)
{
    char command[4096];
    size_t n = 0;
    snprintf(command, sizeof command, "'%s' %s 2>&1", CUDA_HOST_VICTIM, name);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while (n + 1 < size) {
        size_t got = fread(text + n, 1, size - 1 - n, f);
        if (!got)
            break;
        n += got;
    }
    text[n] = 0;
    int status = pclose(f);
    assert_int_not_equal(status, -1);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}
