/* SPDX-License-Identifier: Apache-2.0
 *
 * The allocations that the device knows, in one array sorted by address.
 */
#include "tests/cuda_host/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda_host/exec.h"

enum { ALIGNMENT = 256, QUARANTINE = 128 };

struct alloc {
    uintptr_t base;
    size_t size;
    enum ch_memory_kind kind;
    int dead;
    uint64_t died;
    char *map; /* of ours, with a page before and after that cannot be touched; NULL: others' */
    size_t map_size;
};

static struct alloc *allocs;
static size_t n_allocs, room, n_dead;
static uint64_t deaths;

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The last allocation that starts at or before `p`; -1 without one. */
static ptrdiff_t before(uintptr_t p)
{
    size_t lo = 0, hi = n_allocs;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (allocs[mid].base <= p)
            lo = mid + 1;
        else
            hi = mid;
    }
    return (ptrdiff_t)lo - 1;
}

static int insert(const struct alloc *a)
{
    if (n_allocs == room) {
        size_t more = room ? 2 * room : 64;
        struct alloc *p = realloc(allocs, more * sizeof *p);
        if (!p)
            return -1;
        allocs = p;
        room = more;
    }
    size_t at = (size_t)(before(a->base) + 1);
    for (size_t i = n_allocs; i > at; i--)
        allocs[i] = allocs[i - 1];
    allocs[at] = *a;
    n_allocs++;
    return 0;
}

static void drop(size_t at)
{
    for (size_t i = at; i + 1 < n_allocs; i++)
        allocs[i] = allocs[i + 1];
    n_allocs--;
}

/* The red zones: from the first page that can be touched to the allocation, and after it. */
static void zones(const struct alloc *a, char *zone[2], size_t size[2])
{
    char *base = a->map + (a->base - (uintptr_t)a->map);
    zone[0] = a->map + page_size();
    size[0] = (size_t)(base - zone[0]);
    zone[1] = base + a->size;
    size[1] = (size_t)(a->map + a->map_size - page_size() - zone[1]);
}

static void guard(const struct alloc *a)
{
    char *zone[2];
    size_t size[2];
    zones(a, zone, size);
    for (int z = 0; z < 2; z++) {
        for (size_t i = 0; i < size[z]; i++)
            zone[z][i] = (char)0xfa;
        ch_asan_poison(zone[z], size[z]);
    }
}

static void check_guard(const struct alloc *a)
{
    char *zone[2];
    size_t size[2];
    if (CH_ASAN || a->dead || !a->map)
        return;
    zones(a, zone, size);
    for (int z = 0; z < 2; z++)
        for (size_t i = 0; i < size[z]; i++)
            if (zone[z][i] != (char)0xfa) {
                ch_report(CUDA_HOST_OUT_OF_BOUNDS,
                          "somebody wrote %zu bytes %s an allocation of %zu bytes at %p",
                          z ? i : size[0] - i, z ? "after the end of" : "before", a->size,
                          (void *)(zone[0] + size[0]));
                zone[z][i] = (char)0xfa;
                break;
            }
}

void ch_memory_check(void)
{
    for (size_t i = 0; i < n_allocs; i++)
        check_guard(&allocs[i]);
}

static void fill(char *p, size_t n)
{
    const uint64_t poison = CH_POISON;
    size_t i = 0;
    if (ch_get(CH_NULL_DEVICE)) /* pages are zero, and not there before somebody writes */
        return;
    for (; i + 8 <= n; i += 8)
        memcpy(p + i, &poison, 8);
    for (; i < n; i++)
        p[i] = (char)(poison >> 8 * (i % 8));
}

/* The memory of `a`: [page][zone 0][size][zone 1][page]. */
static int map_memory(struct alloc *a)
{
    size_t page = page_size(), rounded = (a->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t body = (rounded + page - 1) / page * page;
    a->map_size = body + 2 * page;
    a->map = mmap(NULL, a->map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (a->map == MAP_FAILED)
        return -1;
    if (mprotect(a->map + page, body, PROT_READ | PROT_WRITE)) {
        munmap(a->map, a->map_size);
        return -1;
    }
    a->base = (uintptr_t)(a->map + page + body - rounded);
    return 0;
}

static void forget_oldest(void)
{
    size_t oldest = n_allocs;
    for (size_t i = 0; i < n_allocs; i++)
        if (allocs[i].dead && (oldest == n_allocs || allocs[i].died < allocs[oldest].died))
            oldest = i;
    if (oldest == n_allocs)
        return;
    munmap(allocs[oldest].map, allocs[oldest].map_size);
    drop(oldest);
    n_dead--;
}

int ch_memory_charge(size_t bytes)
{
    size_t budget = (size_t)ch_get(CH_MEMORY), used = ch_rt.stats.device_bytes;
    if (bytes > budget || used > budget - bytes)
        return -1;
    ch_rt.stats.device_bytes += bytes;
    if (ch_rt.stats.device_bytes > ch_rt.stats.device_peak)
        ch_rt.stats.device_peak = ch_rt.stats.device_bytes;
    return 0;
}

void ch_memory_discharge(size_t bytes)
{
    ch_rt.stats.device_bytes -= bytes;
}

static int pin(size_t bytes)
{
    int64_t limit = ch_get(CH_PINNED);
    size_t used = ch_rt.stats.pinned_bytes;
    if (limit >= 0 && (bytes > (size_t)limit || used > (size_t)limit - bytes))
        return -1;
    ch_rt.stats.pinned_bytes += bytes;
    if (ch_rt.stats.pinned_bytes > ch_rt.stats.pinned_peak)
        ch_rt.stats.pinned_peak = ch_rt.stats.pinned_bytes;
    return 0;
}

static int charge(enum ch_memory_kind kind, size_t size)
{
    return kind == CH_DEVICE ? ch_memory_charge(size) : kind == CH_MAPPED ? 0 : pin(size);
}

static void discharge(enum ch_memory_kind kind, size_t size)
{
    if (kind == CH_DEVICE)
        ch_memory_discharge(size);
    else if (kind != CH_MAPPED)
        ch_rt.stats.pinned_bytes -= size;
}

void *ch_memory_new(enum ch_memory_kind kind, size_t size)
{
    struct alloc a = {.size = size, .kind = kind};
    if (size > PTRDIFF_MAX / 2 || charge(kind, size))
        return NULL;
    if (map_memory(&a)) {
        discharge(kind, size);
        return NULL;
    }
    if (insert(&a)) {
        munmap(a.map, a.map_size);
        discharge(kind, size);
        return NULL;
    }
    char *p = a.map + (a.base - (uintptr_t)a.map);
    fill(p, size);
    guard(&a);
    return p;
}

static void bury(size_t at)
{
    struct alloc *a = &allocs[at];
    check_guard(a);
    discharge(a->kind, a->size);
    ch_asan_unpoison(a->map + page_size(), a->map_size - 2 * page_size());
    /* Gives the pages back and leaves the addresses taken. */
    if (mmap(a->map, a->map_size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        munmap(a->map, a->map_size);
        drop(at);
        return;
    }
    a->dead = 1;
    a->died = deaths++;
    if (++n_dead > QUARANTINE)
        forget_oldest();
}

int ch_memory_delete(enum ch_memory_kind kind, const void *p, const char *call)
{
    ptrdiff_t at = before((uintptr_t)p);
    if (at >= 0 && allocs[at].base == (uintptr_t)p && allocs[at].kind == kind) {
        if (!allocs[at].dead) {
            bury((size_t)at);
            return 0;
        }
        ch_report(CUDA_HOST_AFTER_FREE, "%s of %p, which has been freed before", call, p);
        return -1;
    }
    ch_report(CUDA_HOST_MISUSE, "%s of %p, which is no such allocation", call, p);
    return -1;
}

/* A range of others may lie where one of the quarantine was recycled never: those stay mapped. */
int ch_memory_note(enum ch_memory_kind kind, const void *p, size_t size)
{
    struct alloc a = {.base = (uintptr_t)p, .size = size, .kind = kind};
    if (charge(kind, size))
        return -1;
    if (insert(&a)) {
        discharge(kind, size);
        return -1;
    }
    return 0;
}

int ch_memory_forget(enum ch_memory_kind kind, const void *p)
{
    ptrdiff_t at = before((uintptr_t)p);
    if (at < 0 || allocs[at].base != (uintptr_t)p || allocs[at].kind != kind)
        return -1;
    discharge(kind, allocs[at].size);
    drop((size_t)at);
    return 0;
}

int ch_memory_touches(const void *p, size_t n)
{
    ptrdiff_t at = before((uintptr_t)p + n - 1);
    return at >= 0 && !allocs[at].dead && allocs[at].base + allocs[at].size > (uintptr_t)p;
}

int ch_memory_kind(const void *p, size_t n, char *why, size_t why_size)
{
    uintptr_t start = (uintptr_t)p;
    ptrdiff_t at = before(start);
    if (at >= 0 && allocs[at].dead && start < allocs[at].base + allocs[at].size) {
        (void)snprintf(why, why_size, "%p is in an allocation of %zu bytes that has been freed", p,
                       allocs[at].size);
        return -1;
    }
    if (at < 0 || start >= allocs[at].base + allocs[at].size) {
        ptrdiff_t last = n ? before(start + n - 1) : at;
        if (last == at)
            return CH_PAGEABLE;
        (void)snprintf(why, why_size, "%zu bytes at %p run into an allocation of %zu bytes", n, p,
                       allocs[last].size);
        return -1;
    }
    enum ch_memory_kind kind = allocs[at].kind;
    uintptr_t end = allocs[at].base + allocs[at].size;
    while (start + n > end && kind == CH_MAPPED && (size_t)at + 1 < n_allocs &&
           allocs[at + 1].base == end && allocs[at + 1].kind == kind)
        end += allocs[++at].size; /* neighbouring mappings are one piece of memory */
    if (start + n > end) {
        (void)snprintf(why, why_size,
                       "%zu bytes at %p end %zu bytes after an allocation of %zu bytes", n, p,
                       (size_t)(start + n - end), allocs[at].size);
        return -1;
    }
    return (int)kind;
}

int64_t ch_memory_unwritten(const void *p, size_t n)
{
    const char *c = p;
    size_t i = (8 - (uintptr_t)p % 8) % 8;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, c + i, 8);
        if (word == CH_POISON)
            return (int64_t)i;
    }
    return -1;
}

static int near(const struct alloc *a, uintptr_t p, char *text, size_t size)
{
    uintptr_t end = a->base + a->size;
    if (a->dead) {
        (void)snprintf(text, size, "in an allocation of %zu bytes that has been freed", a->size);
        return CUDA_HOST_AFTER_FREE;
    }
    if (p >= end)
        (void)snprintf(text, size, "%zu bytes after the end of an allocation of %zu bytes",
                       (size_t)(p - end), a->size);
    else
        (void)snprintf(text, size, "%zu bytes before an allocation of %zu bytes",
                       (size_t)(a->base - p), a->size);
    return CUDA_HOST_OUT_OF_BOUNDS;
}

int ch_memory_explain(const void *address, char *text, size_t size)
{
    uintptr_t p = (uintptr_t)address;
    for (size_t i = 0; i < n_allocs; i++) {
        const struct alloc *a = &allocs[i];
        uintptr_t map = (uintptr_t)a->map;
        if (a->map && p >= map && p < map + a->map_size)
            return near(a, p, text, size);
    }
    ptrdiff_t at = before(p);
    if (at >= 0 && allocs[at].kind == CH_MAPPED) /* of a reservation */
        return near(&allocs[at], p, text, size);
    (void)snprintf(text, size, "far from any allocation");
    return -1;
}

void ch_memory_end(int report)
{
    static const char *const by[] = {"", "cudaMalloc", "cudaHostAlloc", "cudaHostRegister",
                                     "cuMemMap"};
    ch_lock();
    for (size_t i = n_allocs; i-- > 0;) {
        struct alloc a = allocs[i];
        if (!a.dead) {
            check_guard(&a);
            if (report)
                ch_report(CUDA_HOST_LEAK, "%zu bytes of %s were not freed", a.size, by[a.kind]);
            discharge(a.kind, a.size);
        }
        if (a.map) {
            ch_asan_unpoison(a.map + page_size(), a.map_size - 2 * page_size());
            munmap(a.map, a.map_size);
        }
    }
    free(allocs);
    allocs = NULL;
    n_allocs = room = n_dead = 0;
    ch_unlock();
}
