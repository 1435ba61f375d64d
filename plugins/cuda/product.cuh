/* SPDX-License-Identifier: Apache-2.0
 *
 * One launch of a matrix product, as all its kernels take it, and how the launchers are called.
 *
 * Tokens: rows of activations that meet the weight.  Plain products have n_tok of them.  Expert
 * products have one per slot (row t, j-th expert of it: slot t * n_used + j); its activations are
 * row slot / x_div, its matrix is ids[slot], its result row slot of y.
 */
#ifndef ATSI_CUDA_PRODUCT_CUH
#define ATSI_CUDA_PRODUCT_CUH

#include "halves.h"
#include "load.cuh"
#include "op.h"
#include "rounded.h"
#include "route.h"
#include "unpack.cuh"

struct cuda_product {
    const uint8_t *w;
    uint64_t row_bytes, matrix_bytes;
    uint32_t n_rows; /* of this launch */
    uint32_t k;
    uint32_t first_tok, n_tok; /* tokens first_tok .. n_tok - 1 */
    struct cuda_act act;       /* rounded activations, or */
    const float *x;            /* [.][k], exact ones */
    float *y;                  /* row 0 of this launch, of token 0 */
    uint64_t y_stride;         /* floats from token to token */
    const float *bias;         /* of row 0, or NULL */
    const int32_t *ids;        /* NULL: one matrix */
    uint32_t n_expert, bias_stride;
    uint32_t x_div;
    const struct cuda_tile *tiles; /* GEMM over experts (route.h), or NULL */
    const uint32_t *n_tiles, *slots;
    uint32_t max_tiles;
    bool wide; /* floats: every row of w and x starts at a multiple of 16 bytes, k % 8 == 0 */
};

/* ONE(type); for every type in blocks. */
#define CUDA_EACH_BLOCK_32(ONE)                                                                    \
    ONE(ATSI_TYPE_Q4_0);                                                                           \
    ONE(ATSI_TYPE_Q4_1);                                                                           \
    ONE(ATSI_TYPE_Q5_0);                                                                           \
    ONE(ATSI_TYPE_Q5_1);                                                                           \
    ONE(ATSI_TYPE_Q8_0);                                                                           \
    ONE(ATSI_TYPE_IQ4_NL);                                                                         \
    ONE(ATSI_TYPE_MXFP4)
#define CUDA_EACH_BLOCK_K(ONE)                                                                     \
    ONE(ATSI_TYPE_Q2_K);                                                                           \
    ONE(ATSI_TYPE_Q3_K);                                                                           \
    ONE(ATSI_TYPE_Q4_K);                                                                           \
    ONE(ATSI_TYPE_Q5_K);                                                                           \
    ONE(ATSI_TYPE_Q6_K);                                                                           \
    ONE(ATSI_TYPE_IQ4_XS)
#define CUDA_EACH_BLOCK_TYPE(ONE)                                                                  \
    CUDA_EACH_BLOCK_32(ONE);                                                                       \
    CUDA_EACH_BLOCK_K(ONE)

/* gemv_*.cu: any number of tokens, each with its own matrix when p.ids is there.  What a token's
 * result is does not depend on how many there are. */
cudaError_t cuda_gemv_32(cudaStream_t s, uint32_t type, int layout, const cuda_product &p);
cudaError_t cuda_gemv_k(cudaStream_t s, uint32_t type, int layout, const cuda_product &p);
cudaError_t cuda_gemv_float(cudaStream_t s, uint32_t type, int layout, const cuda_product &p);
/* gemv_exact.cu: block types with exact activations. */
cudaError_t cuda_gemv_exact(cudaStream_t s, uint32_t type, int layout, const cuda_product &p);
/* gemm_*.cu: many tokens, or tiles of experts. */
cudaError_t cuda_gemm_32(cudaStream_t s, const struct cuda_device *dev, uint32_t type, int layout,
                         const cuda_product &p);
cudaError_t cuda_gemm_k(cudaStream_t s, const struct cuda_device *dev, uint32_t type, int layout,
                        const cuda_product &p);
cudaError_t cuda_gemm_float(cudaStream_t s, uint32_t type, int layout, const cuda_product &p);
/* gemm_half.cu: F16 and BF16, 16-byte aligned rows or panels of a multiple of 8 columns. */
cudaError_t cuda_gemm_half(const struct cuda_launch *l, uint32_t type, int layout,
                           const cuda_product &p, const struct cuda_halves &x);

#endif
