/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that end as tests cannot: with reports that nobody reads, or stopped by a sanitizer.
 */
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "tests/cuda_host/control.h"
#include "tests/cuda_host/trial_kernels.h"

static cudaStream_t stream;
static float *device; /* 60 floats */

static void clean(void)
{
    cudaMalloc((void **)&device, 240);
    cudaMemset(device, 0, 240);
    cudaStreamSynchronize(stream);
    cudaFree(device);
    cudaStreamDestroy(stream);
}

/* A launch that fails, and nobody looks. */
static void unchecked(void)
{
    trial_scale(NULL, NULL, 1, 0, 0, stream); /* an empty grid */
    clean();
}

static void checked(void)
{
    if (trial_scale(NULL, NULL, 1, 0, 0, stream))
        cudaGetLastError();
    clean();
}

/* A copy that fails while it runs, and nobody waits. */
static void unchecked_async(void)
{
    cuda_host_control()->fail(NULL, 1, cudaErrorMemoryAllocation, 1);
    cudaMalloc((void **)&device, 240);
    cudaMemsetAsync(device, 0, 240, stream);
    while (!cuda_host_control()->failed())
        ;
}

static void leak(void)
{
    clean();
    cudaMalloc((void **)&device, 240);
    cudaMemset(device, 0, 240);
}

static void leaked_event(void)
{
    cudaEvent_t event;
    clean();
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
}

/* One element past the end, within what alignment leaves. */
static void read_past_end(void)
{
    cudaMalloc((void **)&device, 240);
    cudaMemset(device, 0, 240);
    trial_read_at(device, device, 60, stream);
    cudaStreamSynchronize(stream);
}

static void write_past_end(void)
{
    cudaMalloc((void **)&device, 240);
    trial_write_at(device, 61, stream);
    cudaStreamSynchronize(stream);
    cudaFree(device);
    cudaStreamDestroy(stream);
}

static void write_before(void)
{
    cudaMalloc((void **)&device, 240);
    trial_write_at(device, -1, stream);
    cudaStreamSynchronize(stream);
    cudaFree(device);
    cudaStreamDestroy(stream);
}

static void small_stack(void)
{
    cudaMalloc((void **)&device, 256);
    trial_deep_stack(device, 100000, stream);
    cudaStreamSynchronize(stream);
}

static void divide_by_zero(void)
{
    int32_t *out;
    cudaMalloc((void **)&out, 4);
    trial_divide_by(out, 0, stream);
    cudaStreamSynchronize(stream);
    cudaGetLastError();
    cudaDeviceReset();
}

static void host_touches_guard(void)
{
    cudaMalloc((void **)&device, 256);
    ((volatile float *)device)[64] = 1;
}

/* In ThreadSanitizer builds with RACES=1: threads of a block that race. */
static void block_race(void)
{
    float *in, *out;
    cuda_host_control()->set("RACES", "1");
    cuda_host_control()->set("WORKERS", "1");
    cudaMalloc((void **)&in, 256);
    cudaMalloc((void **)&out, 512);
    cudaMemset(in, 0, 256);
    trial_missing_barrier(out, in, stream);
    cudaStreamSynchronize(stream);
    cudaDeviceReset();
}

static void block_no_race(void)
{
    float *in, *out;
    cuda_host_control()->set("RACES", "1");
    cudaMalloc((void **)&in, 4000);
    cudaMalloc((void **)&out, 512);
    cudaMemset(in, 0, 4000);
    for (int dynamic = 0; dynamic < 2; dynamic++)
        trial_block_sum(out, in, 1000, 8, dynamic, stream);
    cudaStreamSynchronize(stream);
    cudaDeviceReset();
}

/* In ThreadSanitizer builds: a kernel that does not wait for the copy it needs. */
static void stream_race(void)
{
    cudaStream_t other;
    float *in, *d, *out;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaHostAlloc((void **)&in, 4096, cudaHostAllocDefault);
    memset(in, 0, 4096);
    cudaMalloc((void **)&d, 4096);
    cudaMalloc((void **)&out, 4096);
    cudaMemcpyAsync(d, in, 4096, cudaMemcpyHostToDevice, stream);
    trial_slow_scale(out, d, 1, 1024, 20000, other);
    cudaDeviceSynchronize();
    cudaDeviceReset();
}

static void stream_no_race(void)
{
    cudaStream_t other;
    cudaEvent_t event;
    float *in, *d, *out;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaHostAlloc((void **)&in, 4096, cudaHostAllocDefault);
    cudaMalloc((void **)&d, 4096);
    cudaMalloc((void **)&out, 4096);
    for (int round = 0; round < 20; round++) {
        memset(in, 0, 4096);
        cudaMemcpyAsync(d, in, 4096, cudaMemcpyHostToDevice, stream);
        cudaEventRecord(event, stream);
        cudaStreamWaitEvent(other, event, 0);
        trial_scale(out, d, 1, 0, 1024, other);
        cudaMemcpyAsync(in, out, 4096, cudaMemcpyDeviceToHost, other);
        cudaEventRecord(event, other);
        if (round % 2)
            cudaEventSynchronize(event);
        else
            cudaStreamSynchronize(other);
    }
    cudaDeviceReset();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } victims[] = {
        {"clean", clean},
        {"unchecked", unchecked},
        {"checked", checked},
        {"unchecked_async", unchecked_async},
        {"leak", leak},
        {"leaked_event", leaked_event},
        {"read_past_end", read_past_end},
        {"write_past_end", write_past_end},
        {"write_before", write_before},
        {"small_stack", small_stack},
        {"divide_by_zero", divide_by_zero},
        {"host_touches_guard", host_touches_guard},
        {"block_race", block_race},
        {"block_no_race", block_no_race},
        {"stream_race", stream_race},
        {"stream_no_race", stream_no_race},
    };
    if (argc != 2 || cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))
        return 2;
    for (size_t i = 0; i < sizeof victims / sizeof *victims; i++)
        if (!strcmp(victims[i].name, argv[1])) {
            victims[i].run();
            return 0;
        }
    fprintf(stderr, "no %s\n", argv[1]);
    return 2;
}
