/* SPDX-License-Identifier: Apache-2.0
 *
 * Block sizes of products of many tokens, from the caches of a core.
 *
 * First cache: two panels of `columns` columns, unpacked, at 45 bytes per column and panel with
 * their scales, used for all tokens of a pass: 512 columns of 32 KiB, in proportion elsewhere.
 * Second cache: of each token of a pass its columns, which every panel of the group reads, and its
 * results in 16 rows of every panel, which are read and written once per `columns`.  They get seven
 * eighths of it; the rest is for weights and unpacked panels passing through.  Where that is too
 * little for 512 tokens, fewer are taken at a time, so that panels are unpacked more often; where
 * it is enough for more panels, activations come from further away half as often, or a third.
 */
#include "cpu_kernels.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

enum {
    STEP_COLUMNS = 256, /* a super-block */
    USUAL_COLUMNS = 512,
    STEP_PANELS = 16,
    MOST_PANELS = 64,
    STEP_TOKENS = 32, /* as tiles of any kernel take them */
    LEAST_TOKENS = 64,
    MOST_TOKENS = 512
};

static uint64_t within(uint64_t bytes, uint64_t least, uint64_t most, uint64_t usual)
{
    return bytes >= least && bytes <= most ? bytes : usual;
}

static uint32_t columns_of(uint64_t l1d)
{
    uint64_t n = l1d * USUAL_COLUMNS / (32 * KIB) / STEP_COLUMNS * STEP_COLUMNS;
    if (n < STEP_COLUMNS)
        return STEP_COLUMNS;
    return n < CPU_BLOCKS_MOST_COLUMNS ? (uint32_t)n : CPU_BLOCKS_MOST_COLUMNS;
}

/* Of the second cache, for a token: a byte per column, a scale in f32 per 32 and a sum in 16 bits
 * per 16; results in f32. */
static uint64_t token_bytes(uint32_t columns, uint32_t panels)
{
    return columns + columns / 4 + (uint64_t)panels * 16 * sizeof(float);
}

struct cpu_blocks cpu_blocks_for(uint64_t l1d_bytes, uint64_t l2_bytes)
{
    const uint64_t l1d = within(l1d_bytes, 4 * KIB, MIB, 32 * KIB);
    const uint64_t room = within(l2_bytes, 64 * KIB, 256 * MIB, MIB) / 8 * 7;
    struct cpu_blocks b = {columns_of(l1d), STEP_PANELS, MOST_TOKENS};
    uint64_t tokens = room / token_bytes(b.columns, b.panels) / STEP_TOKENS * STEP_TOKENS;
    if (tokens < MOST_TOKENS)
        b.tokens = tokens > LEAST_TOKENS ? (uint32_t)tokens : LEAST_TOKENS;
    else
        while (b.panels < MOST_PANELS &&
               b.tokens * token_bytes(b.columns, b.panels + STEP_PANELS) <= room)
            b.panels += STEP_PANELS;
    return b;
}
