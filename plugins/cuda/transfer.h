/* SPDX-License-Identifier: Apache-2.0
 * The transfer engine between the host and a device: channels, and the ring of pinned memory
 * through which bytes pass whose memory is not pinned. */
#ifndef CUDA_PLUGIN_TRANSFER_H
#define CUDA_PLUGIN_TRANSFER_H

#include "cuda_plugin.h"

int cuda_transfer_open(const struct atsi_host *host, struct atsi_backend *src,
                       struct atsi_backend *dst, struct atsi_transfer **out, struct atsi_err *err);
void cuda_transfer_close(struct atsi_transfer *tx);
int cuda_transfer_channels(const struct atsi_transfer *tx, const struct atsi_channel *const **out);
int cuda_transfer_copyv(struct atsi_transfer *tx, uint32_t channel, struct atsi_queue *q,
                        const struct atsi_copyv *req, struct atsi_err *err);

/* overlap.c */
/* ATSI_EINVAL when something is written twice, or read and written, or no memory at all; `order`
 * has room for n pointers. */
int cuda_copy_check(const struct atsi_range *ranges, uint32_t n, const struct atsi_range **order,
                    struct atsi_err *err);

/* staging.c */
#define CUDA_RING_SLOTS 8u

struct cuda_ring {
    unsigned char *base; /* pinned, CUDA_RING_SLOTS pieces of slot_bytes */
    size_t slot_bytes;
    cudaStream_t stream; /* its host functions are the staging thread */
    cudaEvent_t filled[CUDA_RING_SLOTS], drained[CUDA_RING_SLOTS];
    bool used[CUDA_RING_SLOTS];
    uint32_t next;
    struct cuda_job *jobs;
};

/* ATSI_ENOMEM and the like: copies will be slower. */
int cuda_ring_open(struct atsi_backend *be, size_t bytes, struct cuda_ring **out,
                   struct atsi_err *err);
void cuda_ring_close(struct atsi_backend *be, struct cuda_ring *ring);
/* Queues the copy on `stream` by way of the ring; `to_device` says which end is pageable. */
int cuda_ring_copy(struct atsi_backend *be, struct cuda_ring *ring, cudaStream_t stream, void *dst,
                   const void *src, size_t bytes, bool to_device, struct atsi_err *err);

#endif
