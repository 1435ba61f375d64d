/* SPDX-License-Identifier: Apache-2.0
 *
 * One decoded weight block, in the form all block types share:
 *     value[i] = (d * sc[i / sub]) * q[i] - (dmin * mn[i / sub])
 * so that dequantization, products and checks are written once for every type.
 */
#ifndef CPU_REF_BLOCK_H
#define CPU_REF_BLOCK_H

#include "atsinfer/quant.h"

struct ref_block {
    uint32_t n, sub; /* elements, and elements per scale (16 or 32) */
    float d, dmin;
    int32_t sc[16], mn[16];
    int32_t q[256];
};

typedef void ref_decode_fn(const void *block, struct ref_block *out);

/* The decoder of a block type, NULL for F32, F16, BF16 and types that are not computed with. */
ref_decode_fn *ref_decoder(uint32_t type);

#endif
