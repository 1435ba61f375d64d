/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the simulated device: budgets, limits, mappings, and what is said of accesses and
 * copies beyond, after and before.  (Accesses that AddressSanitizer stops are in test_errors.c.)
 */
#include "tests/cuda_host/trial.h"

#include <cuda.h>

#include <stdlib.h>
#include <string.h>

static void test_budget(void **state)
{
    struct trial *t = *state;
    size_t free_bytes, total;
    void *p, *q;
    assert_int_equal(t->control->set("MEMORY", "1m"), 0);
    OK(cudaMalloc(&p, 700 << 10));
    assert_int_equal((uintptr_t)p % 256, 0);
    OK(cudaMemGetInfo(&free_bytes, &total));
    assert_int_equal(total, 1 << 20);
    assert_int_equal(free_bytes, 324 << 10);
    FAILS(cudaMalloc(&q, 325 << 10), cudaErrorMemoryAllocation);
    FAILS(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&q, 324 << 10));
    OK(cudaFree(p));
    OK(cudaFree(q));
    OK(cudaFree(NULL));
    FAILS(cudaMalloc(&p, SIZE_MAX / 2), cudaErrorMemoryAllocation);
    (void)cudaGetLastError();
}

static void test_pin_limit(void **state)
{
    struct trial *t = *state;
    void *p, *q, *same;
    char *own = malloc(100000);
    struct cudaPointerAttributes attr;
    assert_non_null(own);
    assert_int_equal(t->control->set("PINNED", "150k"), 0);
    OK(cudaHostRegister(own, 100000, cudaHostRegisterMapped));
    FAILS(cudaHostRegister(own + 50, 10, cudaHostRegisterDefault),
          cudaErrorHostMemoryAlreadyRegistered);
    FAILS(cudaHostAlloc(&p, 100000, cudaHostAllocDefault), cudaErrorMemoryAllocation);
    (void)cudaGetLastError();
    OK(cudaHostAlloc(&q, 50000, cudaHostAllocMapped));
    OK(cudaHostGetDevicePointer(&same, own, 0));
    assert_ptr_equal(same, own);
    OK(cudaPointerGetAttributes(&attr, own));
    assert_int_equal(attr.type, cudaMemoryTypeHost);
    OK(cudaPointerGetAttributes(&attr, &attr));
    assert_int_equal(attr.type, cudaMemoryTypeUnregistered);
    OK(cudaHostUnregister(own));
    FAILS(cudaHostUnregister(own), cudaErrorHostMemoryNotRegistered);
    FAILS(cudaHostGetDevicePointer(&same, own, 0), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    OK(cudaHostAlloc(&p, 100000, cudaHostAllocDefault));
    OK(cudaFreeHost(p));
    OK(cudaFreeHost(q));
    free(own);
}

/* Kernels reach pinned and registered host memory, as the copy kernels of the plugin do. */
static void test_mapped(void **state)
{
    struct trial *t = *state;
    float *pinned = trial_pinned(100), *own = malloc(100 * sizeof(float));
    assert_non_null(own);
    OK(cudaHostRegister(own, 100 * sizeof(float), cudaHostRegisterMapped));
    OK(trial_scale(own, pinned, 2, 1, 100, t->a));
    OK(cudaStreamSynchronize(t->a));
    for (int i = 0; i < 100; i++)
        assert_true(own[i] == 2 * (float)i + 1);
    OK(cudaHostUnregister(own));
    OK(cudaFreeHost(pinned));
    free(own);
}

static void expect_lost(struct trial *t)
{
    FAILS(cudaStreamSynchronize(t->a), cudaErrorIllegalAddress);
    FAILS(cudaGetLastError(), cudaErrorIllegalAddress);
    OK(cudaDeviceReset());
    OK(cudaGetLastError());
    OK(cudaStreamCreateWithFlags(&t->a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&t->b, cudaStreamNonBlocking));
}

/* Far enough outside that no sanitizer is needed. */
static void test_wild_accesses(void **state)
{
    struct trial *t = *state;
    float values[64] = {0}, *in = trial_device(values, 64), *out = trial_device(NULL, 1);
    OK(trial_read_at(out, in, 64, t->a)); /* 256 bytes end where the page does */
    expect_lost(t);
    trial_reported(t, CUDA_HOST_OUT_OF_BOUNDS,
                   "thread (5,0,0): illegal address"); /* and which allocation */
    in = trial_device(values, 64);
    OK(trial_write_at(in, 65, t->a));
    expect_lost(t);
    assert_non_null(
        strstr(t->control->last_report(), "4 bytes after the end of an allocation of 256 bytes"));
    trial_reported(t, CUDA_HOST_OUT_OF_BOUNDS, "kernel write_at");
    /* Host memory that the device cannot reach. */
    OK(trial_read_at(values, values, 0, t->a));
    expect_lost(t);
    trial_reported(t, CUDA_HOST_OUT_OF_BOUNDS, "that the device cannot reach");
}

static void test_after_free(void **state)
{
    struct trial *t = *state;
    float values[64] = {0}, *in = trial_device(values, 64), *out = trial_device(NULL, 1);
    OK(cudaFree(in));
    FAILS(cudaMemcpyAsync(out, in, 4, cudaMemcpyDeviceToDevice, t->a), cudaErrorInvalidValue);
    trial_reported(t, CUDA_HOST_AFTER_FREE, "source");
    FAILS(cudaFree(in), cudaErrorInvalidValue);
    trial_reported(t, CUDA_HOST_AFTER_FREE, "cudaFree");
    (void)cudaGetLastError();
    OK(trial_read_at(out, in, 0, t->a));
    expect_lost(t);
    trial_reported(t, CUDA_HOST_AFTER_FREE, "freed");
}

static void test_copy_bounds(void **state)
{
    struct trial *t = *state;
    float values[64] = {0}, *d = trial_device(values, 60), *pinned = trial_pinned(64);
    FAILS(cudaMemcpyAsync(d, pinned, 61 * 4, cudaMemcpyHostToDevice, t->a), cudaErrorInvalidValue);
    trial_reported(t, CUDA_HOST_OUT_OF_BOUNDS, "4 bytes after an allocation of 240 bytes");
    FAILS(cudaMemcpyAsync(pinned, d + 59, 8, cudaMemcpyDeviceToHost, t->a), cudaErrorInvalidValue);
    trial_reported(t, CUDA_HOST_OUT_OF_BOUNDS, "the source");
    FAILS(cudaMemsetAsync(d + 1, 0, 240, t->a), cudaErrorInvalidValue);
    trial_reported(t, CUDA_HOST_OUT_OF_BOUNDS, "cudaMemsetAsync");
    FAILS(cudaMemcpyAsync(d, pinned, 4, cudaMemcpyDeviceToHost, t->a), cudaErrorInvalidValue);
    trial_reported(t, CUDA_HOST_MISUSE, "destination is memory of the device");
    (void)cudaGetLastError();
    OK(cudaFree(d));
    OK(cudaFreeHost(pinned));
}

static void test_unwritten(void **state)
{
    struct trial *t = *state;
    float *d = trial_device(NULL, 1000), *e = trial_device(NULL, 1000), got[1000];
    OK(cudaMemset(d, 0, 3000));
    OK(cudaMemcpy(got, d, 3000, cudaMemcpyDeviceToHost));
    trial_nothing_reported(t);
    OK(cudaMemcpy(got, d, 4000, cudaMemcpyDeviceToHost));
    trial_reported(t, CUDA_HOST_UNINITIALISED, "from byte 3000 on");
    assert_true(got[999] != got[999]); /* what kernels get is not a number */
    OK(cudaMemcpyAsync(e, d, 4000, cudaMemcpyDeviceToDevice, t->a));
    OK(cudaStreamSynchronize(t->a));
    trial_reported(t, CUDA_HOST_UNINITIALISED, "nobody wrote");
    OK(cudaFree(d));
    OK(cudaFree(e));
}

/* ---- Mapped memory ---- */

static CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
static CUresult (*unreserve)(CUdeviceptr, size_t);
static CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                          unsigned long long);
static CUresult (*release)(CUmemGenericAllocationHandle);
static CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                       unsigned long long);
static CUresult (*unmap)(CUdeviceptr, size_t);
static CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
static CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                               CUmemAllocationGranularity_flags);

static void find(const char *name, void *at)
{
    enum cudaDriverEntryPointQueryResult status;
    OK(cudaGetDriverEntryPointByVersion(name, at, 12000, cudaEnableDefault, &status));
    assert_int_equal(status, cudaDriverEntryPointSuccess);
}

static void test_virtual_memory(void **state)
{
    struct trial *t = *state;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle h[2];
    CUdeviceptr at;
    size_t grain;
    struct cuda_host_stats s;
    void *none;
    enum cudaDriverEntryPointQueryResult status;
    find("cuMemAddressReserve", &reserve);
    find("cuMemAddressFree", &unreserve);
    find("cuMemCreate", &create);
    find("cuMemRelease", &release);
    find("cuMemMap", &map);
    find("cuMemUnmap", &unmap);
    find("cuMemSetAccess", &set_access);
    find("cuMemGetAllocationGranularity", &granularity);
    OK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &none, 12000, cudaEnableDefault, &status));
    assert_int_equal(status, cudaDriverEntryPointSymbolNotFound);
    assert_int_equal(t->control->set("GRANULE", "64k"), 0);
    assert_int_equal(t->control->set("MEMORY", "200k"), 0);
    assert_int_equal(granularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM), 0);
    assert_int_equal(grain, 64 << 10);
    assert_int_equal(reserve(&at, 1 << 20, 0, 0, 0), 0); /* addresses cost nothing */
    assert_int_equal(create(&h[0], 100, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(create(&h[i], grain, &prop, 0), 0);
        assert_int_equal(map(at + i * grain, grain, 0, h[i], 0), 0);
        assert_int_equal(set_access(at + i * grain, grain, &access, 1), 0);
    }
    CUmemGenericAllocationHandle more;
    assert_int_equal(create(&more, 2 * grain, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(map(at, grain, 0, h[1], 0), CUDA_ERROR_ALREADY_MAPPED);
    /* Two mappings beside each other are one piece. */
    float *d = (float *)(uintptr_t)at, *pinned = trial_pinned(32768);
    OK(cudaMemcpyAsync(d, pinned, 2 * grain, cudaMemcpyHostToDevice, t->a));
    OK(trial_scale(d, d, 2, 0, 32768, t->a));
    OK(cudaMemcpyAsync(pinned, d, 2 * grain, cudaMemcpyDeviceToHost, t->a));
    OK(cudaStreamSynchronize(t->a));
    assert_true(pinned[32767] == 65534.0f);
    /* Other memory at the same place, the same memory at another. */
    assert_int_equal(unmap(at, grain), 0);
    assert_int_equal(map(at + 2 * grain, grain, 0, h[0], 0), 0);
    assert_int_equal(set_access(at + 2 * grain, grain, &access, 1), 0);
    trial_fetch(pinned, d + 32768, grain);
    assert_true(pinned[5] == 10.0f);
    OK(trial_read_at(d + 16384, d, 0, t->a)); /* where nothing is mapped any more */
    FAILS(cudaStreamSynchronize(t->a), cudaErrorIllegalAddress);
    assert_true(t->control->reports(CUDA_HOST_OUT_OF_BOUNDS) == 1);
    t->control->clear_reports();
    OK(cudaDeviceReset());
    OK(cudaStreamCreateWithFlags(&t->a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&t->b, cudaStreamNonBlocking));
    t->control->stats(&s);
    assert_int_equal(s.device_bytes, 0);
}

static void test_virtual_memory_release(void **state)
{
    struct trial *t = *state;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle h;
    CUdeviceptr at;
    struct cuda_host_stats s;
    assert_int_equal(t->control->set("GRANULE", "64k"), 0);
    assert_int_equal(reserve(&at, 128 << 10, 0, 0, 0), 0);
    assert_int_equal(create(&h, 64 << 10, &prop, 0), 0);
    assert_int_equal(map(at, 64 << 10, 0, h, 0), 0);
    assert_int_equal(set_access(at, 64 << 10, &access, 1), 0);
    assert_int_equal(release(h), 0); /* lives as long as it is mapped */
    assert_int_equal(release(h), CUDA_ERROR_INVALID_VALUE);
    trial_reported(t, CUDA_HOST_AFTER_FREE, "cuMemRelease");
    t->control->stats(&s);
    assert_int_equal(s.device_bytes, 64 << 10);
    assert_int_equal(unreserve(at, 128 << 10), CUDA_ERROR_INVALID_VALUE);
    trial_reported(t, CUDA_HOST_MISUSE, "addresses that are mapped");
    assert_int_equal(unmap(at, 64 << 10), 0);
    assert_int_equal(unreserve(at, 128 << 10), 0);
    t->control->stats(&s);
    assert_int_equal(s.device_bytes, 0);
}

int main(void)
{
#define TRIAL(f) cmocka_unit_test_setup_teardown(f, trial_setup, trial_teardown)
    const struct CMUnitTest tests[] = {
        TRIAL(test_budget),        TRIAL(test_pin_limit),      TRIAL(test_mapped),
        TRIAL(test_wild_accesses), TRIAL(test_after_free),     TRIAL(test_copy_bounds),
        TRIAL(test_unwritten),     TRIAL(test_virtual_memory), TRIAL(test_virtual_memory_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
