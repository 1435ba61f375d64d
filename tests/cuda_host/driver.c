/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of the driver that are found by name: reserved addresses and memory mapped into them.
 */
#include <cuda.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda_host/exec.h"
#include "tests/cuda_host/memory.h"
#include "tests/cuda_host/stream.h"

/* Physical memory: a file in memory, so that it can be mapped anywhere. */
struct physical {
    struct physical *next;
    int fd;
    size_t size;
    uint32_t refs; /* the handle and its mappings */
    int released;
};

struct mapping {
    struct mapping *next;
    char *at;
    size_t size;
    struct physical *memory;
    int accessible;
};

struct reservation {
    struct reservation *next;
    char *at; /* with a page before and after */
    size_t size;
};

static struct physical *memories;
static struct mapping *mappings;
static struct reservation *reservations;

static CUresult enter(const char *name, int flags)
{
    return (CUresult)ch_enter(name, flags | CH_UNTIMED);
}

static char *pointer_of(CUdeviceptr p)
{
    return (char *)(uintptr_t)p;
}

static size_t granule(void)
{
    return (size_t)ch_get(CH_GRANULE);
}

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- Reservations ---- */

static CUresult reserve(CUdeviceptr *out, size_t size, size_t alignment)
{
    size_t page = page_size(), align = alignment > granule() ? alignment : granule();
    if (!out || !size || size % granule() || (alignment & (alignment - 1)) ||
        size > PTRDIFF_MAX / 2)
        return CUDA_ERROR_INVALID_VALUE;
    struct reservation *r = malloc(sizeof *r);
    if (!r)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t whole = size + align + 2 * page;
    char *map = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        free(r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t skip = (align - (uintptr_t)(map + page) % align) % align;
    char *end = map + page + skip + size + page;
    if (skip)
        munmap(map, skip);
    munmap(end, (size_t)(map + whole - end));
    r->at = map + page + skip;
    r->size = size;
    r->next = reservations;
    reservations = r;
    *out = (CUdeviceptr)(uintptr_t)r->at;
    return CUDA_SUCCESS;
}

static CUresult host_reserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags)
{
    CUresult e = enter("cuMemAddressReserve", CH_ANY);
    (void)hint;
    if (e)
        return e;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    ch_lock();
    e = reserve(out, size, alignment);
    ch_unlock();
    return e;
}

static int overlaps(const struct mapping *m, const char *at, size_t size)
{
    return m->at < at + size && at < m->at + m->size;
}

static void reservation_free(struct reservation **at)
{
    struct reservation *r = *at;
    *at = r->next;
    munmap(r->at - page_size(), r->size + 2 * page_size());
    free(r);
}

static CUresult host_address_free(CUdeviceptr p, size_t size)
{
    CUresult e = enter("cuMemAddressFree", CH_RELEASE);
    if (e)
        return e;
    ch_lock();
    e = CUDA_ERROR_INVALID_VALUE;
    for (struct reservation **at = &reservations; *at; at = &(*at)->next) {
        if ((*at)->at != pointer_of(p) || (*at)->size != size)
            continue;
        e = (CUresult)ch_take_pending();
        for (const struct mapping *m = mappings; m; m = m->next)
            if (overlaps(m, (*at)->at, size)) {
                ch_report(CUDA_HOST_MISUSE, "cuMemAddressFree of addresses that are mapped");
                e = CUDA_ERROR_INVALID_VALUE;
            }
        if (e != CUDA_ERROR_INVALID_VALUE)
            reservation_free(at);
        break;
    }
    ch_unlock();
    return e;
}

/* ---- Memory ---- */

static int poisoned_file(size_t size)
{
    int fd = memfd_create("cuda_host", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    void *map = MAP_FAILED;
    if (!ftruncate(fd, (off_t)size))
        map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        close(fd);
        return -1;
    }
    uint64_t *words = map;
    for (size_t i = 0; i < size / 8 && !ch_get(CH_NULL_DEVICE); i++)
        words[i] = CH_POISON;
    munmap(map, size);
    return fd;
}

static CUresult create(CUmemGenericAllocationHandle *out, size_t size,
                       const CUmemAllocationProp *prop)
{
    if (!out || !prop || !size || size % granule() || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop->location.id)
        return CUDA_ERROR_INVALID_VALUE;
    if (ch_memory_charge(size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct physical *m = malloc(sizeof *m);
    int fd = m ? poisoned_file(size) : -1;
    if (fd < 0) {
        free(m);
        ch_memory_discharge(size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    m->fd = fd;
    m->size = size;
    m->refs = 1;
    m->released = 0;
    m->next = memories;
    memories = m;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)m;
    return CUDA_SUCCESS;
}

static CUresult host_create(CUmemGenericAllocationHandle *out, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUresult e = enter("cuMemCreate", CH_ANY);
    if (e)
        return e;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    ch_lock();
    e = create(out, size, prop);
    ch_unlock();
    return e;
}

static struct physical *find_memory(CUmemGenericAllocationHandle handle)
{
    struct physical *m = memories;
    while (m && (uintptr_t)m != (uintptr_t)handle)
        m = m->next;
    return m && !m->released ? m : NULL;
}

static void memory_drop(struct physical *m)
{
    if (--m->refs)
        return;
    struct physical **at = &memories;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    close(m->fd);
    ch_memory_discharge(m->size);
    free(m);
}

static CUresult host_release(CUmemGenericAllocationHandle handle)
{
    CUresult e = enter("cuMemRelease", CH_RELEASE);
    if (e)
        return e;
    ch_lock();
    struct physical *m = find_memory(handle);
    if (m) {
        m->released = 1;
        memory_drop(m);
        e = (CUresult)ch_take_pending();
    } else {
        ch_report(CUDA_HOST_AFTER_FREE, "cuMemRelease of memory that does not exist (any more)");
        e = CUDA_ERROR_INVALID_VALUE;
    }
    ch_unlock();
    return e;
}

/* ---- Mappings ---- */

static CUresult map_memory(char *at, size_t size, size_t offset, struct physical *memory)
{
    const struct reservation *r = reservations;
    while (r && !(at >= r->at && size <= r->size && at + size <= r->at + r->size))
        r = r->next;
    if (!r || !memory || offset || size != memory->size || (uintptr_t)at % granule())
        return CUDA_ERROR_INVALID_VALUE;
    for (const struct mapping *m = mappings; m; m = m->next)
        if (overlaps(m, at, size))
            return CUDA_ERROR_ALREADY_MAPPED;
    struct mapping *m = malloc(sizeof *m);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (mmap(at, size, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->fd, 0) == MAP_FAILED) {
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    m->at = at;
    m->size = size;
    m->memory = memory;
    m->accessible = 0;
    m->next = mappings;
    mappings = m;
    memory->refs++;
    return CUDA_SUCCESS;
}

static CUresult host_map(CUdeviceptr p, size_t size, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult e = enter("cuMemMap", CH_ANY);
    if (e)
        return e;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    ch_lock();
    e = map_memory(pointer_of(p), size, offset, find_memory(handle));
    ch_unlock();
    return e;
}

static CUresult unmap_one(struct mapping **at)
{
    struct mapping *m = *at;
    if (mmap(m->at, m->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED)
        return CUDA_ERROR_UNKNOWN;
    *at = m->next;
    if (m->accessible)
        ch_memory_forget(CH_MAPPED, m->at);
    memory_drop(m->memory);
    free(m);
    return CUDA_SUCCESS;
}

/* Whole mappings that together are the range.  What still runs on the device is not waited for. */
static CUresult unmap(char *p, size_t size)
{
    size_t found = 0;
    for (const struct mapping *m = mappings; m; m = m->next)
        if (m->at >= p && m->at + m->size <= p + size)
            found += m->size;
    if (!size || found != size)
        return CUDA_ERROR_INVALID_VALUE;
    for (struct mapping **at = &mappings; *at;) {
        if ((*at)->at < p || (*at)->at >= p + size) {
            at = &(*at)->next;
            continue;
        }
        CUresult e = unmap_one(at);
        if (e)
            return e;
    }
    return (CUresult)ch_take_pending();
}

static CUresult host_unmap(CUdeviceptr p, size_t size)
{
    CUresult e = enter("cuMemUnmap", CH_RELEASE);
    if (e)
        return e;
    ch_lock();
    e = unmap(pointer_of(p), size);
    ch_unlock();
    return e;
}

static CUresult make_accessible(struct mapping *m)
{
    if (m->accessible)
        return CUDA_SUCCESS;
    if (ch_memory_note(CH_MAPPED, m->at, m->size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (mprotect(m->at, m->size, PROT_READ | PROT_WRITE)) {
        ch_memory_forget(CH_MAPPED, m->at);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    m->accessible = 1;
    return CUDA_SUCCESS;
}

static CUresult host_set_access(CUdeviceptr p, size_t size, const CUmemAccessDesc *desc, size_t n)
{
    CUresult e = enter("cuMemSetAccess", CH_ANY);
    char *at = pointer_of(p);
    size_t done = 0;
    if (e)
        return e;
    if (!desc || n != 1 || desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        desc->location.id || desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    ch_lock();
    for (struct mapping *m = mappings; m && !e; m = m->next)
        if (m->at >= at && m->at + m->size <= at + size) {
            e = make_accessible(m);
            done += m->size;
        }
    ch_unlock();
    return e ? e : done == size && size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult host_granularity(size_t *out, const CUmemAllocationProp *prop,
                                 CUmemAllocationGranularity_flags option)
{
    CUresult e = enter("cuMemGetAllocationGranularity", CH_ANY);
    (void)option;
    if (!e && (!out || !prop))
        e = CUDA_ERROR_INVALID_VALUE;
    if (!e)
        *out = granule();
    return e;
}

void ch_driver_end(int report)
{
    ch_lock();
    if (report && mappings)
        ch_report(CUDA_HOST_LEAK, "memory was not unmapped (cuMemUnmap)");
    while (mappings && !unmap_one(&mappings))
        ;
    for (struct physical *m = memories, *next; m; m = next) {
        next = m->next;
        if (report)
            ch_report(CUDA_HOST_LEAK, "%zu bytes of cuMemCreate were not released", m->size);
        memory_drop(m);
    }
    if (report && reservations)
        ch_report(CUDA_HOST_LEAK, "reserved addresses were not freed (cuMemAddressFree)");
    while (reservations)
        reservation_free(&reservations);
    ch_unlock();
}

/* ---- Found by name ---- */

static CUresult host_error_string(CUresult e, const char **text)
{
    *text = cudaGetErrorString((cudaError_t)e); /* the numbers are the same where it matters */
    return CUDA_SUCCESS;
}

static CUresult host_error_name(CUresult e, const char **text)
{
    *text = cudaGetErrorName((cudaError_t)e);
    return CUDA_SUCCESS;
}

typedef void (*any_function)(void);
static const struct {
    const char *name;
    any_function f;
} entries[] = {
    {"cuMemAddressReserve", (any_function)host_reserve},
    {"cuMemAddressFree", (any_function)host_address_free},
    {"cuMemCreate", (any_function)host_create},
    {"cuMemRelease", (any_function)host_release},
    {"cuMemMap", (any_function)host_map},
    {"cuMemUnmap", (any_function)host_unmap},
    {"cuMemSetAccess", (any_function)host_set_access},
    {"cuMemGetAllocationGranularity", (any_function)host_granularity},
    {"cuGetErrorString", (any_function)host_error_string},
    {"cuGetErrorName", (any_function)host_error_name},
};

static cudaError_t entry_point(const char *symbol, void **f,
                               enum cudaDriverEntryPointQueryResult *status)
{
    if (!symbol || !f)
        return cudaErrorInvalidValue;
    *f = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (!strcmp(entries[i].name, symbol))
            memcpy(f, &entries[i].f, sizeof *f);
    if (status)
        *status = *f ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return *f || status ? cudaSuccess : cudaErrorSymbolNotFound;
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **f, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status)
{
    cudaError_t e = ch_enter("cudaGetDriverEntryPoint", CH_ANY);
    (void)flags;
    return ch_leave("cudaGetDriverEntryPoint", e ? e : entry_point(symbol, f, status));
}

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **f, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status)
{
    cudaError_t e = ch_enter("cudaGetDriverEntryPointByVersion", CH_ANY);
    (void)flags;
    if (!e && (int64_t)version > ch_get(CH_DRIVER)) {
        if (f)
            *f = NULL;
        if (status)
            *status = cudaDriverEntryPointVersionNotSufficent;
        return status ? cudaSuccess
                      : ch_leave("cudaGetDriverEntryPointByVersion", cudaErrorSymbolNotFound);
    }
    return ch_leave("cudaGetDriverEntryPointByVersion", e ? e : entry_point(symbol, f, status));
}
#endif
