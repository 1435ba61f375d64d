/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a few rows over all they see, chunk by chunk (cpu_kernels.h says why chunks).
 */
#ifndef CPU_ATTN_WALK_H
#define CPU_ATTN_WALK_H

#include "cpu_kernels.h"

/* n_tok neighbouring tokens times n_head heads that share a KV head; n_tok * n_head is at most
 * CPU_ATTN_ROWS.
 *   n_kv cells, in order of position: n_first of them at k and v, the rest at k2 and v2.  `start`
 * is the position of the first one; the last one belongs to the last token.  Token t sees all up to
 * its own, or `window` of them. q and out: rows of n_head * dk (dv) per token, q_stride and
 * out_stride apart; sink [n_head] or NULL. */
struct cpu_attn_args {
    uint32_t n_tok, n_head, dk, dv;
    uint32_t start, n_kv, n_first, window;
    uint32_t type_k, type_v;
    float scale;
    const float *q;
    size_t q_stride;
    const void *k, *v, *k2, *v2;
    const float *sink;
    float *out;
    size_t out_stride;
};

/* Floats of one chunk's result; a multiple of 16. */
size_t cpu_attn_part(uint32_t n_row, uint32_t dv);
/* Floats of scratch for cpu_attn_chunk() and for cpu_attend(). */
size_t cpu_attn_chunk_scratch(uint32_t n_row, uint32_t dk, uint32_t dv);
size_t cpu_attend_scratch(uint32_t n_row, uint32_t dk, uint32_t dv);

/* Chunks that n_kv cells from position `start` on lie in. */
uint32_t cpu_attn_chunks(uint32_t start, uint32_t n_kv);
/* Chunk i of them, to `part`; part and scratch are 64-byte aligned. */
void cpu_attn_chunk(const struct cpu_kernels *k, const struct cpu_attn_args *a, uint32_t i,
                    float *part, float *scratch);
/* The results of all chunks, one after the other, to a->out; state: cpu_attn_part() floats. */
void cpu_attn_join(const struct cpu_attn_args *a, const float *parts, float *state);
/* All of it. */
void cpu_attend(const struct cpu_kernels *k, const struct cpu_attn_args *a, float *scratch);

#endif
