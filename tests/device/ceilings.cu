/* SPDX-License-Identifier: Apache-2.0
 *
 * What an NVIDIA device can do at most, as JSON lines: reading its memory, copying over the link,
 * multiplying with tensor cores (mma.sync), and half-precision products by cuBLAS where that is
 * found.  The tables of scripts/device_check.sh are shares of these.
 *
 * Each number is the best of several passes, timed with events around many launches.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace
{

constexpr int PASSES = 5;

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t e = (call);                                                                    \
        if (e != cudaSuccess) {                                                                    \
            std::fprintf(stderr, "ceilings: %s: %s\n", #call, cudaGetErrorString(e));              \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

/* ---------------------------------------------------------------- kernels */
__global__ void fill(uint4 *p, size_t n)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        uint32_t x = (uint32_t)i * 2654435761u + 12345u;
        p[i] = make_uint4(x & 0x3bff3bffu, (x >> 3) & 0x3bff3bffu, (x << 5) & 0x3bff3bffu,
                          (x ^ (x >> 16)) & 0x3bff3bffu); /* halves below 1 */
    }
}

/* Eight independent loads of 16 bytes per thread and turn. */
__global__ void read_all(const uint4 *p, size_t n, uint32_t *sink)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    uint32_t sum = 0;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 7 * step < n; i += 8 * step) {
        uint4 v[8];
#pragma unroll
        for (int k = 0; k < 8; k++)
            v[k] = p[i + k * step];
#pragma unroll
        for (int k = 0; k < 8; k++)
            sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < n; i += step)
        sum ^= p[i].x;
    if (sum == 0x12345678u)
        *sink = sum; /* keeps the loads */
}

constexpr int TILES = 8; /* independent accumulators of a warp */

__global__ void mma_half(float *sink, int turns)
{
    float c[TILES][4] = {};
    uint32_t a = 0x3c003c00u + threadIdx.x, b = 0x38003800u + blockIdx.x % 7;
    for (int t = 0; t < turns; t++)
#pragma unroll
        for (int k = 0; k < TILES; k++)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                         "{%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
                         : "+f"(c[k][0]), "+f"(c[k][1]), "+f"(c[k][2]), "+f"(c[k][3])
                         : "r"(a), "r"(b));
    float sum = 0;
    for (int k = 0; k < TILES; k++)
        sum += c[k][0] + c[k][1] + c[k][2] + c[k][3];
    sink[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void mma_int8(int *sink, int turns)
{
    int c[TILES][4] = {};
    uint32_t a = 0x01020304u + threadIdx.x, b = 0x04030201u + blockIdx.x % 7;
    for (int t = 0; t < turns; t++)
#pragma unroll
        for (int k = 0; k < TILES; k++)
            asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                         "{%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
                         : "+r"(c[k][0]), "+r"(c[k][1]), "+r"(c[k][2]), "+r"(c[k][3])
                         : "r"(a), "r"(b));
    int sum = 0;
    for (int k = 0; k < TILES; k++)
        sum += c[k][0] + c[k][1] + c[k][2] + c[k][3];
    sink[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

/* ---------------------------------------------------------------- timing */
cudaStream_t stream, other;
cudaEvent_t first, last;

/* Milliseconds of the fastest of PASSES turns of fn, one before them not counted. */
template <class F>
float best_ms(F fn)
{
    float best = 1e30F;
    for (int pass = -1; pass < PASSES; pass++) {
        float ms;
        CHECK(cudaEventRecord(first, stream));
        fn();
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(last, stream));
        CHECK(cudaEventSynchronize(last));
        CHECK(cudaEventElapsedTime(&ms, first, last));
        if (pass >= 0 && ms < best)
            best = ms;
    }
    return best;
}

void print(const char *what, const char *unit, double value)
{
    std::printf("{\"ceiling\": \"%s\", \"unit\": \"%s\", \"value\": %.6g}\n", what, unit, value);
    std::fflush(stdout);
}

/* ---------------------------------------------------------------- memory and the link */
void measure_memory(const cudaDeviceProp &prop)
{
    size_t free_bytes, total, bytes;
    uint4 *a;
    uint32_t *sink;
    int blocks = prop.multiProcessorCount * 8;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    bytes = free_bytes / 4 < (size_t)4 << 30 ? free_bytes / 4 : (size_t)4 << 30;
    bytes = bytes / 4096 * 4096;
    CHECK(cudaMalloc(&a, bytes));
    CHECK(cudaMalloc(&sink, 256));
    fill<<<blocks, 256, 0, stream>>>(a, bytes / 16);
    print("device read", "GB/s", (double)bytes / 1e6 / best_ms([&] {
                                     read_all<<<blocks, 256, 0, stream>>>(a, bytes / 16, sink);
                                 }));
    print("device copy, read and written", "GB/s",
          (double)bytes / 1e6 / best_ms([&] {
              CHECK(
                  cudaMemcpyAsync(a, a + bytes / 32, bytes / 2, cudaMemcpyDeviceToDevice, stream));
          }));
    CHECK(cudaFree(a));
    CHECK(cudaFree(sink));
}

void measure_link()
{
    constexpr size_t bytes = (size_t)256 << 20;
    char *host, *device;
    CHECK(cudaMallocHost(&host, 2 * bytes));
    CHECK(cudaMalloc(&device, 2 * bytes));
    for (size_t i = 0; i < 2 * bytes; i += 64)
        host[i] = (char)(i * 2654435761u >> 13);
    CHECK(cudaMemset(device, 1, 2 * bytes));
    CHECK(cudaDeviceSynchronize());
    print("host to device, pinned", "GB/s",
          (double)bytes / 1e6 / best_ms([&] {
              CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
          }));
    print("device to host, pinned", "GB/s",
          (double)bytes / 1e6 / best_ms([&] {
              CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
          }));
    print("both ways at once, sum", "GB/s",
          2.0 * bytes / 1e6 / best_ms([&] {
              CHECK(cudaStreamWaitEvent(other, first, 0));
              CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
              CHECK(cudaMemcpyAsync(host + bytes, device + bytes, bytes, cudaMemcpyDeviceToHost,
                                    other));
              cudaEvent_t done;
              CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
              CHECK(cudaEventRecord(done, other));
              CHECK(cudaStreamWaitEvent(stream, done, 0));
              CHECK(cudaEventDestroy(done));
          }));
    constexpr int MANY = 200;
    print("a copy of 4 KiB to the device, queued in a row", "us",
          1e3 * best_ms([&] {
              for (int i = 0; i < MANY; i++)
                  CHECK(cudaMemcpyAsync(device, host, 4096, cudaMemcpyHostToDevice, stream));
          }) / MANY);
    CHECK(cudaFreeHost(host));
    CHECK(cudaFree(device));
}

/* ---------------------------------------------------------------- arithmetic */
void measure_mma(const cudaDeviceProp &prop)
{
    constexpr int threads = 256, turns = 4096;
    int blocks = prop.multiProcessorCount * 4;
    double warps = (double)blocks * threads / 32, tiles = warps * turns * TILES;
    void *sink;
    CHECK(cudaMalloc(&sink, (size_t)blocks * threads * 4));
    print("mma.sync half, f32 sums", "TMAC/s",
          tiles * 16 * 8 * 16 / 1e9 /
              best_ms([&] { mma_half<<<blocks, threads, 0, stream>>>((float *)sink, turns); }));
    print("mma.sync int8", "TMAC/s",
          tiles * 16 * 8 * 32 / 1e9 /
              best_ms([&] { mma_int8<<<blocks, threads, 0, stream>>>((int *)sink, turns); }));
    CHECK(cudaFree(sink));
}

/* Enough of cuBLAS's interface to call one function without its headers. */
using create_fn = int (*)(void **);
using stream_fn = int (*)(void *, cudaStream_t);
using gemm_fn = int (*)(void *, int, int, int, int, int, const void *, const void *, int, int,
                        const void *, int, int, const void *, void *, int, int, int, int);

void measure_cublas()
{
    const char *names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    constexpr int n = 4096, HALF = 2 /* CUDA_R_16F */, SUMS_F32 = 68, DEFAULT = -1;
    void *lib = nullptr, *handle = nullptr;
    __half *x;
    float one = 1, zero = 0;
    for (const char *name : names)
        lib = lib != nullptr ? lib : dlopen(name, RTLD_NOW);
    if (lib == nullptr)
        return;
    auto create = (create_fn)dlsym(lib, "cublasCreate_v2");
    auto use = (stream_fn)dlsym(lib, "cublasSetStream_v2");
    auto gemm = (gemm_fn)dlsym(lib, "cublasGemmEx");
    if (create == nullptr || use == nullptr || gemm == nullptr || create(&handle) != 0 ||
        use(handle, stream) != 0)
        return;
    CHECK(cudaMalloc(&x, 3 * sizeof *x * n * n));
    fill<<<1024, 256, 0, stream>>>((uint4 *)x, 3 * sizeof *x * n * n / 16);
    int rc = 0;
    float ms = best_ms([&] {
        rc |= gemm(handle, 0, 0, n, n, n, &one, x, HALF, n, x + (size_t)n * n, HALF, n, &zero,
                   x + 2 * (size_t)n * n, HALF, n, SUMS_F32, DEFAULT);
    });
    if (rc == 0)
        print("cuBLAS half 4096x4096x4096", "TMAC/s", (double)n * n * n / 1e9 / ms);
    CHECK(cudaFree(x));
}

} // namespace

int main()
{
    cudaDeviceProp prop;
    int runtime = 0, driver = 0;
    CHECK(cudaGetDeviceProperties(&prop, 0));
    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaDriverGetVersion(&driver));
    std::printf("{\"device\": \"%s\", \"sm\": %d, \"multiprocessors\": %d, \"memory_bytes\": %zu, "
                "\"l2_bytes\": %d, \"cuda_runtime\": %d, \"cuda_driver\": %d}\n",
                prop.name, prop.major * 10 + prop.minor, prop.multiProcessorCount,
                prop.totalGlobalMem, prop.l2CacheSize, runtime, driver);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&first));
    CHECK(cudaEventCreate(&last));
    measure_memory(prop);
    measure_link();
    measure_mma(prop);
    measure_cublas();
    return 0;
}
