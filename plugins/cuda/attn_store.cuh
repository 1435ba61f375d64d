/* SPDX-License-Identifier: Apache-2.0
 *
 * Storing new keys and values in a KV cache: for an attention itself, or for the rotation before it
 * that stores what it has turned.  Both round the same numbers, in the same way.
 */
#ifndef ATSI_CUDA_ATTN_STORE_CUH
#define ATSI_CUDA_ATTN_STORE_CUH

#include "attn_cache.cuh"

/* New rows, and where they go. */
struct store_args {
    const float *k, *v; /* [n_rows, n_head_kv * dk or dv] */
    const int32_t *position;
    unsigned char *cache_k, *cache_v;
    uint32_t n_rows, n_head_kv, n_ctx;
    uint32_t dk, dv, type_k, type_v, row_k, row_v; /* row_k, row_v: bytes */
};

/* Of an operation of kind ATTN. */
static inline struct store_args store_args_of(const struct atsi_op *op)
{
    struct store_args a = {};
    a.k = (const float *)op->src[1]->data;
    a.v = (const float *)op->src[2]->data;
    a.position = (const int32_t *)op->src[3]->data;
    a.cache_k = (unsigned char *)op->kv->k;
    a.cache_v = (unsigned char *)op->kv->v;
    a.n_rows = op->n_rows;
    a.n_head_kv = op->kv->n_head_kv;
    a.n_ctx = op->kv->n_ctx;
    a.dk = op->kv->head_dim_k;
    a.dv = op->kv->head_dim_v;
    a.type_k = op->kv->type_k;
    a.type_v = op->kv->type_v;
    a.row_k = (uint32_t)atsi_row_bytes(a.type_k, a.dk);
    a.row_v = (uint32_t)atsi_row_bytes(a.type_v, a.dv);
    return a;
}

/* 32 elements from i - lane on of a head's row x, by one warp. */
static __device__ inline void store_32(uint32_t type, const float *x, unsigned char *row,
                                       uint32_t dim, uint32_t i, uint32_t lane)
{
    if (type == ATSI_TYPE_Q8_0)
        cuda_store_q8_0(x[i], row, i / 32, lane);
    else if (i < dim)
        cuda_store_element(type, x[i], row, i);
}

/* The cache's row of a head. */
static __device__ inline unsigned char *cache_row(const struct store_args &a, bool keys,
                                                  uint32_t head, uint32_t cell)
{
    return (keys ? a.cache_k : a.cache_v) +
           ((size_t)head * a.n_ctx + cell) * (keys ? a.row_k : a.row_v);
}

/* The new row of a head. */
static __device__ inline const float *new_row(const struct store_args &a, bool keys, uint32_t head,
                                              uint32_t t)
{
    return (keys ? a.k : a.v) + ((size_t)t * a.n_head_kv + head) * (keys ? a.dk : a.dv);
}

/* A whole head's row, by one warp; nothing when its position is none. */
static __device__ inline void store_head(const struct store_args &a, bool keys, uint32_t head,
                                         uint32_t t, uint32_t lane)
{
    uint32_t dim = keys ? a.dk : a.dv;
    int32_t position = a.position[t];
    if (position < 0)
        return;
    const float *x = new_row(a, keys, head, t);
    unsigned char *row = cache_row(a, keys, head, (uint32_t)position % a.n_ctx);
    for (uint32_t i = lane; i < (dim + 31) / 32 * 32; i += CUDA_WARP)
        store_32(keys ? a.type_k : a.type_v, x, row, dim, i, lane);
}

#endif
