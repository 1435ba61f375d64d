/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of one row as panels hold it: its head (what scales it) and its body, the dwords that
 * go to the row's place in the block's chunks.  The first `plain` dwords go to one chunk after the
 * other; behind them, where codes are cut in triples of chunks, follow runs of four dwords: run
 * 3 u + z goes to chunks z, z + 3, z + 6 and z + 9 of the u-th twelve.
 */
#ifndef ATSI_PANEL_CUT_H
#define ATSI_PANEL_CUT_H

#include "atsinfer/panel.h"

#define PANEL_MAX_HEAD 4u   /* bytes */
#define PANEL_MAX_BODY 208u /* bytes: Q6_K */

typedef void panel_cut_fn(const uint8_t *block, uint8_t *head, uint8_t *body);
typedef void panel_join_fn(const uint8_t *head, const uint8_t *body, uint8_t *block);

/* How a type's blocks are cut and joined; floats have no entry. */
struct panel_cutter {
    panel_cut_fn *cut;
    panel_join_fn *join;
    uint32_t plain;
};
const struct panel_cutter *panel_cutter(uint32_t type);

#endif
