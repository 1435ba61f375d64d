/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory of callers that the device may read.  CUDA pins whole pages and refuses a page twice,
 * while callers register tensors that share pages.  So a request is widened to pages, what is not
 * pinned yet of it becomes one or several pieces, and a piece is let go with the last request that
 * touches it.
 */
#include "cuda_plugin.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ranges are kept as numbers, for arithmetic across objects. */
static void *pointer(uintptr_t address)
{
    return (void *)address; /* NOLINT(performance-no-int-to-ptr): it was one */
}

/* Read-only mappings of files can be pinned for reading alone, on some systems. */
static cudaError_t pin(struct atsi_backend *be, void *ptr, size_t bytes)
{
    unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
    int read_only = 0;
    cudaError_t e = cudaHostRegister(ptr, bytes, flags);
    if (e == cudaSuccess || e == cudaErrorMemoryAllocation || cuda_is_fatal(e))
        return e;
    (void)cudaGetLastError(); /* once more, for reading */
    if (cudaDeviceGetAttribute(&read_only, cudaDevAttrHostRegisterReadOnlySupported,
                               be->dev.index) != cudaSuccess ||
        read_only == 0) {
        (void)cudaGetLastError(); /* the first answer counts */
        return e;
    }
    return cudaHostRegister(ptr, bytes, flags | cudaHostRegisterReadOnly);
}

static int pin_piece(struct atsi_backend *be, uintptr_t from, uintptr_t to, struct atsi_err *err)
{
    void *ptr = pointer(from);
    cudaError_t e = pin(be, ptr, to - from);
    int rc = cuda_check(be, e, err, "pinning %zu bytes", (size_t)(to - from));
    if (rc == ATSI_ELOST || rc == ATSI_ENOMEM)
        return rc;
    if (rc != ATSI_OK) /* not this memory, or not by this user */
        return ATSI_ENOTSUP;
    if (cuda_ranges_add(&be->ranges, ptr, to - from, CUDA_MEM_REGISTERED) == ATSI_OK)
        return ATSI_OK;
    cuda_note(be, cudaHostUnregister(ptr), "unpinning memory");
    return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
}

static bool wanted(const struct cuda_registered *r, uintptr_t from, uintptr_t to)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (r->at[i].from < to && from < r->at[i].to)
            return true;
    return false;
}

/* Lets go of the pieces within [from, to) that no request touches any more. */
static void unpin(struct atsi_backend *be, uintptr_t from, uintptr_t to)
{
    uint32_t i = cuda_ranges_find(&be->ranges, from);
    while (i < be->ranges.n && be->ranges.at[i].from < to) {
        struct cuda_range piece = be->ranges.at[i];
        void *ptr = pointer(piece.from);
        if (piece.mem != CUDA_MEM_REGISTERED || wanted(&be->registered, piece.from, piece.to)) {
            i++;
            continue;
        }
        cuda_ranges_remove(&be->ranges, ptr);
        cuda_note(be, cudaHostUnregister(ptr), "unpinning memory");
    }
}

/* Pins what is not pinned of [from, to). */
static int pin_gaps(struct atsi_backend *be, uintptr_t from, uintptr_t to, struct atsi_err *err)
{
    while (from < to) {
        size_t bytes = to - from;
        enum cuda_mem mem = cuda_ranges_kind(&be->ranges, pointer(from), &bytes);
        if (mem == CUDA_MEM_PAGEABLE) {
            int rc = pin_piece(be, from, from + bytes, err);
            if (rc != ATSI_OK)
                return rc;
        }
        from += bytes;
    }
    return ATSI_OK;
}

static int remember(struct cuda_registered *r, uintptr_t key, uintptr_t from, uintptr_t to)
{
    if (r->n == r->cap) {
        uint32_t cap = r->cap == 0 ? 16 : 2 * r->cap;
        struct cuda_range *at = realloc(r->at, cap * sizeof *at);
        uintptr_t *keys;
        if (at == NULL)
            return ATSI_ENOMEM;
        r->at = at;
        keys = realloc(r->key, cap * sizeof *keys);
        if (keys == NULL)
            return ATSI_ENOMEM;
        r->key = keys;
        r->cap = cap;
    }
    r->key[r->n] = key;
    r->at[r->n++] = (struct cuda_range){from, to, CUDA_MEM_REGISTERED};
    return ATSI_OK;
}

static bool same_address_on_device(struct atsi_backend *be)
{
    int yes = 0;
    if (cudaDeviceGetAttribute(&yes, cudaDevAttrCanUseHostPointerForRegisteredMem, be->dev.index) !=
        cudaSuccess)
        (void)cudaGetLastError(); /* counts as no */
    return yes != 0;
}

int cuda_host_register(struct atsi_backend *be, void *ptr, size_t bytes, struct atsi_err *err)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), key = (uintptr_t)ptr, from, to;
    int rc = cuda_enter(be, err);
    if (rc != ATSI_OK)
        return rc;
    if (ptr == NULL || bytes == 0 || key > UINTPTR_MAX - page || bytes > UINTPTR_MAX - page - key)
        return atsi_fail(err, ATSI_EINVAL, CUDA_PLUGIN_NAME ": no memory to register");
    if (!same_address_on_device(be))
        return atsi_fail(err, ATSI_ENOTSUP,
                         CUDA_PLUGIN_NAME
                         ": device %d cannot use the host's addresses of registered memory",
                         be->dev.index);
    from = key / page * page;
    to = (key + bytes + page - 1) / page * page;
    rc = remember(&be->registered, key, from, to);
    if (rc != ATSI_OK)
        return atsi_fail(err, rc, CUDA_PLUGIN_NAME ": out of memory");
    rc = pin_gaps(be, from, to, err);
    if (rc != ATSI_OK) {
        be->registered.n--;
        unpin(be, from, to);
    }
    return rc;
}

void cuda_host_unregister(struct atsi_backend *be, void *ptr)
{
    struct cuda_registered *r = &be->registered;
    for (uint32_t i = r->n; i-- > 0;) {
        struct cuda_range gone = r->at[i];
        if (r->key[i] != (uintptr_t)ptr)
            continue;
        r->n--;
        r->at[i] = r->at[r->n];
        r->key[i] = r->key[r->n];
        cuda_note(be, cudaSetDevice(be->dev.index), "making the device current");
        unpin(be, gone.from, gone.to);
        return;
    }
}

void cuda_host_unregister_all(struct atsi_backend *be)
{
    while (be->registered.n > 0)
        cuda_host_unregister(be, pointer(be->registered.key[be->registered.n - 1]));
    free(be->registered.at);
    free(be->registered.key);
}
