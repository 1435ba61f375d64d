/* SPDX-License-Identifier: Apache-2.0
 *
 * Grids of launches.  Kernels walk with the grid's size as stride, so that any number of elements
 * is covered by a grid within the limits of the device.
 */
#ifndef ATSI_CUDA_GRID_H
#define ATSI_CUDA_GRID_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#define CUDA_THREADS 256u /* of a block, where nothing speaks for another number */

static inline uint64_t cuda_div_up(uint64_t n, uint64_t step)
{
    return (n + step - 1) / step;
}

static inline unsigned cuda_at_most(uint64_t n, uint32_t limit)
{
    return n < limit ? (unsigned)n : limit;
}

/* Blocks along x for n units, `step` to a block. */
static inline unsigned cuda_blocks(uint64_t n, uint32_t step)
{
    return cuda_at_most(cuda_div_up(n, step), INT32_MAX);
}

/* Blocks along y or z. */
static inline unsigned cuda_blocks_y(uint64_t n)
{
    return cuda_at_most(n, 65535);
}

#endif
