/* SPDX-License-Identifier: Apache-2.0
 *
 * ATSI_OP_EMBED: rows of the table as f32, rounded as the CPU rounds them.  Ids out of range, which
 * the host refuses before, give zeros.  Panels may start anywhere: they are read byte by byte.
 */
#include "floats.cuh"
#include "grid.h"
#include "weight_shape.h"

struct embed_args {
    const int32_t *ids;
    const uint8_t *w;
    float *y;
    uint64_t row_bytes;
    uint32_t n_tok, k, n_rows;
    uint32_t packed_rows; /* those in panels come first */
};

/* Unit u of row `row`. */
template <uint32_t TYPE>
static __device__ __forceinline__ void embed_unit(unit &o, const embed_args &a, uint32_t row,
                                                  uint32_t u)
{
    typedef unit_shape<TYPE> S;
    packed w[1];
    if (row < a.packed_rows) {
        const uint8_t *panel =
            a.w + (uint64_t)(row / ATSI_PANEL_ROWS * ATSI_PANEL_ROWS) * a.row_bytes;
        load_panel<TYPE, 1, true>(w, panel_at<S>(panel, a.k / S::ELEMS, u / S::UNITS),
                                  row % ATSI_PANEL_ROWS, u % S::UNITS);
        unpack<TYPE, CUDA_PANELS>(o, w[0], u % S::UNITS);
    } else {
        load_row<TYPE>(w[0], a.w + row * a.row_bytes + (uint64_t)(u / S::UNITS) * S::BYTES,
                       u % S::UNITS);
        unpack<TYPE, CUDA_ROWS>(o, w[0], u % S::UNITS);
    }
}

/* Element e of it is at y[start of its run + e % 16]. */
template <uint32_t TYPE>
static __device__ __forceinline__ uint32_t embed_run(const embed_args &a, uint32_t row, uint32_t u,
                                                     uint32_t run)
{
    typedef unit_shape<TYPE> S;
    uint32_t first = u / S::UNITS * S::ELEMS;
    return first + (row < a.packed_rows ? unit_run<TYPE, CUDA_PANELS>(u % S::UNITS, run)
                                        : unit_run<TYPE, CUDA_ROWS>(u % S::UNITS, run));
}

/* A unit per thread. */
template <uint32_t TYPE>
static __global__ void embed_kernel(const embed_args a)
{
    uint64_t per_row = a.k / UNIT_ELEMS, n = per_row * a.n_tok;
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        uint64_t t = i / per_row;
        uint32_t u = (uint32_t)(i % per_row), row = (uint32_t)a.ids[t];
        unit o;
        if (row >= a.n_rows) {
            for (uint32_t e = 0; e < UNIT_ELEMS; e++)
                a.y[t * a.k + u * UNIT_ELEMS + e] = 0;
            continue;
        }
        embed_unit<TYPE>(o, a, row, u);
#pragma unroll
        for (int run = 0; run < 2; run++) {
            float *y = a.y + t * a.k + embed_run<TYPE>(a, row, u, (uint32_t)run);
            run_scale s = run_scale_of<TYPE>(o, run);
#pragma unroll
            for (int e = 0; e < 16; e++)
                y[e] = run_value<TYPE>(o, s, run, e);
        }
    }
}

template <uint32_t TYPE>
static __device__ __forceinline__ float embed_float(const embed_args &a, uint32_t row, uint32_t c)
{
    constexpr uint32_t size = TYPE == ATSI_TYPE_F32 ? 4 : 2;
    const uint8_t *at = a.w + row * a.row_bytes + (uint64_t)c * size;
    if (row < a.packed_rows) {
        uint32_t r = row % ATSI_PANEL_ROWS, step = 4 / size, first = c / step * step;
        bool whole = first + step <= a.k; /* a last column of 16 bits alone has a short record */
        at = a.w + (uint64_t)(row - r) * a.row_bytes + (uint64_t)first * (size * ATSI_PANEL_ROWS) +
             (whole ? 4 * r + (c - first) * size : size * r);
    }
    if constexpr (size == 4)
        return *(const float *)(const void *)at;
    else
        return float_of_bits<TYPE>((uint32_t)(at[0] | at[1] << 8));
}

/* An element per thread. */
template <uint32_t TYPE>
static __global__ void embed_float_kernel(const embed_args a)
{
    uint64_t n = (uint64_t)a.k * a.n_tok, step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        uint32_t row = (uint32_t)a.ids[i / a.k];
        a.y[i] = row < a.n_rows ? embed_float<TYPE>(a, row, (uint32_t)(i % a.k)) : 0.0f;
    }
}

template <class KERNEL>
static cudaError_t embed_of(cudaStream_t s, KERNEL kernel, uint64_t n, const embed_args &a)
{
    return ATSI_LAUNCH(kernel, dim3(cuda_blocks(n, CUDA_THREADS)), dim3(CUDA_THREADS), 0, s, a);
}

static int embed_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    return cuda_is_op(op, ATSI_OP_EMBED) && cuda_is_weight(op->weight[0], false) &&
           cuda_is_i32(op->src[0], op, 1) && cuda_is_f32(op->dst[0], op, op->weight[0]->ne[0]);
}

static size_t embed_scratch(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    (void)op;
    return 0;
}

static cudaError_t embed_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    const struct atsi_tensor *w = op->weight[0];
    embed_args a = {(const int32_t *)op->src[0]->data,
                    (const uint8_t *)w->data,
                    (float *)op->dst[0]->data,
                    w->row_bytes,
                    op->n_rows,
                    (uint32_t)w->ne[0],
                    (uint32_t)w->ne[1],
                    0};
    uint64_t elems = w->ne[0] * op->n_rows;
    if (!cuda_is_aligned(w))
        return cudaErrorInvalidValue;
    if (w->layout == ATSI_LAYOUT_PANELS)
        a.packed_rows = a.n_rows / ATSI_PANEL_ROWS * ATSI_PANEL_ROWS;
#define ONE(type)                                                                                  \
    case type:                                                                                     \
        return embed_of(l->stream, embed_kernel<type>, elems / UNIT_ELEMS, a)
    switch (w->type) {
        CUDA_EACH_BLOCK_TYPE(ONE);
    case ATSI_TYPE_F32:
        return embed_of(l->stream, embed_float_kernel<ATSI_TYPE_F32>, elems, a);
    case ATSI_TYPE_F16:
        return embed_of(l->stream, embed_float_kernel<ATSI_TYPE_F16>, elems, a);
    case ATSI_TYPE_BF16:
        return embed_of(l->stream, embed_float_kernel<ATSI_TYPE_BF16>, elems, a);
    default:
        return cudaErrorNotSupported;
    }
#undef ONE
}

extern "C" const struct cuda_op cuda_op_embed = {ATSI_OP_EMBED, embed_supports, embed_scratch,
                                                 embed_launch};
