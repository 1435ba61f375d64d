/* SPDX-License-Identifier: Apache-2.0
 *
 * Reserved addresses that get and lose memory in chunks, through the driver's virtual memory
 * functions.  They are looked up at run time, so that the plugin needs no driver to be loaded.
 *
 *   address range   [ chunk 0 | chunk 1 | chunk 2 |        |        ]
 *   memory            mapped    mapped    mapped    nothing  nothing     commit(2.5 chunks)
 */
#include "cuda_plugin.h"

#include <cuda.h>
#include <stdlib.h>

#define VMM_VERSION 10020 /* the functions came with CUDA 10.2 */
#define MIN_CHUNK ((size_t)2 << 20)
#define MAX_CHUNK ((size_t)64 << 20)
#define WANTED_CHUNKS 256u

struct cuda_vmm {
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*release_range)(CUdeviceptr, size_t);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    size_t step; /* chunks are multiples of it */
};

struct cuda_region {
    CUdeviceptr base;
    size_t bytes, chunk;
    uint32_t n; /* chunks that have memory */
    CUmemGenericAllocationHandle handle[];
};

/* The driver numbers its errors as the runtime does. */
static cudaError_t runtime_error(CUresult r)
{
    return (cudaError_t)r;
}

static CUmemAllocationProp where(const struct atsi_backend *be)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = be->dev.index}};
}

/* ---------------------------------------------------------------- entry points */
static bool find(const char *name, void *function)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t e =
        cudaGetDriverEntryPointByVersion(name, function, VMM_VERSION, cudaEnableDefault, &found);
    if (e != cudaSuccess)
        (void)cudaGetLastError(); /* then without it */
    return e == cudaSuccess && found == cudaDriverEntryPointSuccess;
}

static bool find_all(struct cuda_vmm *v)
{
    return find("cuMemGetAllocationGranularity", &v->granularity) &&
           find("cuMemAddressReserve", &v->reserve) &&
           find("cuMemAddressFree", &v->release_range) && find("cuMemCreate", &v->create) &&
           find("cuMemRelease", &v->release) && find("cuMemMap", &v->map) &&
           find("cuMemUnmap", &v->unmap) && find("cuMemSetAccess", &v->access);
}

int cuda_vmm_open(struct atsi_backend *be, struct cuda_vmm **out, struct atsi_err *err)
{
    struct cuda_vmm *v = calloc(1, sizeof *v);
    CUmemAllocationProp prop = where(be);
    *out = NULL;
    if (v == NULL)
        return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
    if (!find_all(v) ||
        v->granularity(&v->step, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
        v->step == 0) {
        be->host->log(be->host->ctx, ATSI_LOG_INFO, CUDA_PLUGIN_NAME,
                      "device %d: no virtual memory: a smaller budget frees no memory",
                      be->dev.index);
        free(v);
        return ATSI_OK;
    }
    *out = v;
    return ATSI_OK;
}

void cuda_vmm_close(struct cuda_vmm *v)
{
    free(v);
}

/* ---------------------------------------------------------------- regions */
static size_t round_up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

/* Small enough not to waste much, large enough that there are few. */
static size_t chunk_of(const struct cuda_vmm *v, size_t bytes)
{
    size_t chunk = bytes / WANTED_CHUNKS;
    if (chunk < MIN_CHUNK)
        chunk = MIN_CHUNK;
    if (chunk > MAX_CHUNK)
        chunk = MAX_CHUNK;
    return round_up(chunk, v->step);
}

int cuda_region_open(struct atsi_backend *be, size_t bytes, struct cuda_region **out,
                     struct atsi_err *err)
{
    struct cuda_vmm *v = be->vmm;
    size_t chunk = chunk_of(v, bytes), n;
    struct cuda_region *r;
    int rc;
    *out = NULL;
    if (cuda_add_overflows(bytes, chunk))
        return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": %zu bytes of addresses", bytes);
    n = (bytes + chunk - 1) / chunk;
    r = n < UINT32_MAX ? calloc(1, sizeof *r + n * sizeof r->handle[0]) : NULL;
    if (r == NULL)
        return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
    r->chunk = chunk;
    r->bytes = n * chunk;
    rc = cuda_check(be, runtime_error(v->reserve(&r->base, r->bytes, 0, 0, 0)), err,
                    "reserving %zu bytes of addresses", r->bytes);
    if (rc != ATSI_OK) {
        free(r);
        return rc;
    }
    *out = r;
    return ATSI_OK;
}

static CUdeviceptr chunk_at(const struct cuda_region *r, uint32_t i)
{
    return r->base + i * r->chunk;
}

static void drop_chunk(struct atsi_backend *be, struct cuda_region *r)
{
    uint32_t i = r->n - 1;
    cuda_note(be, runtime_error(be->vmm->unmap(chunk_at(r, i), r->chunk)), "unmapping memory");
    cuda_note(be, runtime_error(be->vmm->release(r->handle[i])), "releasing memory");
    r->n--;
}

static int add_chunk(struct atsi_backend *be, struct cuda_region *r, struct atsi_err *err)
{
    struct cuda_vmm *v = be->vmm;
    CUmemAllocationProp prop = where(be);
    CUmemAccessDesc use = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = chunk_at(r, r->n);
    CUmemGenericAllocationHandle h;
    int rc = cuda_check(be, runtime_error(v->create(&h, r->chunk, &prop, 0)), err,
                        "allocating %zu bytes behind %zu of device memory", r->chunk,
                        (size_t)r->n * r->chunk);
    if (rc != ATSI_OK)
        return rc;
    rc = cuda_check(be, runtime_error(v->map(at, r->chunk, 0, h, 0)), err, "mapping device memory");
    if (rc != ATSI_OK) {
        cuda_note(be, runtime_error(v->release(h)), "releasing memory");
        return rc;
    }
    r->handle[r->n++] = h;
    rc = cuda_check(be, runtime_error(v->access(at, r->chunk, &use, 1)), err,
                    "opening device memory for use");
    if (rc != ATSI_OK)
        drop_chunk(be, r);
    return rc;
}

int cuda_region_commit(struct atsi_backend *be, struct cuda_region *r, size_t bytes,
                       struct atsi_err *err)
{
    uint32_t before = r->n, want = (uint32_t)((bytes + r->chunk - 1) / r->chunk);
    while (r->n > want)
        drop_chunk(be, r);
    while (r->n < want) {
        int rc = add_chunk(be, r, err);
        if (rc != ATSI_OK) {
            while (r->n > before)
                drop_chunk(be, r);
            return rc;
        }
    }
    return ATSI_OK;
}

void cuda_region_close(struct atsi_backend *be, struct cuda_region *r)
{
    while (r->n > 0)
        drop_chunk(be, r);
    cuda_note(be, runtime_error(be->vmm->release_range(r->base, r->bytes)), "freeing addresses");
    free(r);
}

void *cuda_region_ptr(const struct cuda_region *r)
{
    return (void *)(uintptr_t)r->base; /* NOLINT(performance-no-int-to-ptr): the driver's type */
}

size_t cuda_region_bytes(const struct cuda_region *r)
{
    return r->bytes;
}
