/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers: device memory, pinned host memory, and reserved ranges of addresses where the driver has
 * them (vmm.c).  Each one is in the table of known memory.
 */
#include "cuda_plugin.h"

#include <stdlib.h>

enum buf_kind { BUF_DEVICE, BUF_PINNED, BUF_REGION };

struct atsi_buf {
    enum buf_kind kind;
    void *ptr;
    size_t bytes; /* BUF_REGION: of the range */
    struct cuda_region *region;
};

static void give_back(struct atsi_backend *be, struct atsi_buf *buf)
{
    if (buf->kind == BUF_REGION)
        cuda_region_close(be, buf->region);
    else if (buf->kind == BUF_PINNED)
        cuda_note(be, cudaFreeHost(buf->ptr), "freeing pinned memory");
    else
        cuda_note(be, cudaFree(buf->ptr), "freeing device memory");
}

/* Enters a buffer that has its memory into the table; frees it when that is not possible. */
static int finish(struct atsi_backend *be, struct atsi_buf *buf, struct atsi_buf **out,
                  struct atsi_err *err)
{
    enum cuda_mem mem = buf->kind == BUF_PINNED ? CUDA_MEM_PINNED : CUDA_MEM_DEVICE;
    if (cuda_ranges_add(&be->ranges, buf->ptr, buf->bytes, mem) != ATSI_OK) {
        give_back(be, buf);
        free(buf);
        return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
    }
    *out = buf;
    return ATSI_OK;
}

int cuda_buf_alloc(struct atsi_backend *be, enum atsi_mem mem, size_t bytes, struct atsi_buf **out,
                   struct atsi_err *err)
{
    bool pinned = mem == ATSI_MEM_PINNED;
    struct atsi_buf *buf;
    int rc = cuda_enter(be, err);
    *out = NULL;
    if (rc != ATSI_OK)
        return rc;
    if (mem != ATSI_MEM_DEVICE && mem != ATSI_MEM_PINNED)
        return atsi_fail(err, ATSI_EINVAL, CUDA_PLUGIN_NAME ": unknown kind of memory %d",
                         (int)mem);
    buf = calloc(1, sizeof *buf);
    if (buf == NULL)
        return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
    buf->kind = pinned ? BUF_PINNED : BUF_DEVICE;
    buf->bytes = bytes > 0 ? bytes : 1;
    rc = cuda_check(
        be,
        pinned ? cudaHostAlloc(&buf->ptr, buf->bytes, cudaHostAllocPortable | cudaHostAllocMapped)
               : cudaMalloc(&buf->ptr, buf->bytes),
        err, "allocating %zu bytes of %s memory", bytes, pinned ? "pinned" : "device");
    if (rc != ATSI_OK) {
        free(buf);
        return rc;
    }
    return finish(be, buf, out, err);
}

int cuda_buf_reserve(struct atsi_backend *be, size_t bytes, struct atsi_buf **out,
                     struct atsi_err *err)
{
    struct atsi_buf *buf;
    int rc = cuda_enter(be, err);
    *out = NULL;
    if (rc != ATSI_OK)
        return rc;
    if (be->vmm == NULL)
        return atsi_fail(err, ATSI_ENOTSUP,
                         CUDA_PLUGIN_NAME
                         ": device %d (%s) has no virtual memory: allocate what is needed",
                         be->dev.index, be->name);
    buf = calloc(1, sizeof *buf);
    if (buf == NULL)
        return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
    buf->kind = BUF_REGION;
    rc = cuda_region_open(be, bytes > 0 ? bytes : 1, &buf->region, err);
    if (rc != ATSI_OK) {
        free(buf);
        return rc;
    }
    buf->ptr = cuda_region_ptr(buf->region);
    buf->bytes = cuda_region_bytes(buf->region);
    return finish(be, buf, out, err);
}

int cuda_buf_commit(struct atsi_backend *be, struct atsi_buf *buf, size_t bytes,
                    struct atsi_err *err)
{
    int rc = cuda_enter(be, err);
    if (rc != ATSI_OK)
        return rc;
    if (buf->kind != BUF_REGION || bytes > buf->bytes)
        return atsi_fail(err, ATSI_EINVAL,
                         CUDA_PLUGIN_NAME ": commit of %zu bytes, reserved are %zu", bytes,
                         buf->kind == BUF_REGION ? buf->bytes : 0);
    return cuda_region_commit(be, buf->region, bytes, err);
}

void cuda_buf_free(struct atsi_backend *be, struct atsi_buf *buf)
{
    if (buf == NULL)
        return;
    cuda_note(be, cudaSetDevice(be->dev.index), "making the device current");
    cuda_ranges_remove(&be->ranges, buf->ptr);
    give_back(be, buf);
    free(buf);
}

void *cuda_buf_ptr(const struct atsi_buf *buf)
{
    return buf->ptr;
}
