/* SPDX-License-Identifier: Apache-2.0
 *
 * What the codes of a block in a panel (atsinfer/panel.h) are, for every block type and whatever
 * instruction set reads them.
 *
 * The codes of a block are cut in strips, whose sums are kept side by side; a strip is n_unit
 * units, and a unit is what one to three chunks hold: n_code registers of codes.  Register k of
 * unit u of strip s belongs to sub-block panel_group(type, s, k) and meets the activation dword
 * panel_dword(type, s, k, u) of the block.
 *
 * For kernel files: include it behind the plugin's simd.h (CPU_INLINE).
 */
#ifndef ATSI_CPU_PANEL_FORM_H
#define ATSI_CPU_PANEL_FORM_H

#include "atsinfer/panel.h"

struct panel_form {
    int n_strip, n_unit, n_code;
    int scale_chunks; /* in front of the strips */
    int strip_chunks;
    int n_sum;   /* sums of a strip */
    int zero;    /* the code that means 0 */
    int has_min; /* dmin or m is the second head field */
    int wide;    /* registers may exceed 127 */
    int group;   /* elements that share a scale */
};

static const struct panel_form panel_forms[ATSI_TYPE_COUNT] = {
    [ATSI_TYPE_Q4_0] = {1, 4, 2, 0, 4, 1, 8, 0, 0, 32},
    [ATSI_TYPE_Q4_1] = {1, 4, 2, 0, 4, 1, 0, 1, 0, 32},
    [ATSI_TYPE_Q5_0] = {1, 4, 2, 0, 5, 1, 16, 0, 0, 32},
    [ATSI_TYPE_Q5_1] = {1, 4, 2, 0, 5, 1, 0, 1, 0, 32},
    [ATSI_TYPE_Q8_0] = {1, 8, 1, 0, 8, 1, 128, 0, 1, 32},
    [ATSI_TYPE_IQ4_NL] = {1, 4, 2, 0, 4, 1, 128, 0, 1, 32},
    [ATSI_TYPE_MXFP4] = {1, 4, 2, 0, 4, 1, 12, 0, 0, 32},
    [ATSI_TYPE_Q2_K] = {4, 4, 4, 4, 4, 4, 0, 1, 0, 16},
    [ATSI_TYPE_Q3_K] = {2, 4, 8, 3, 12, 8, 4, 0, 0, 16},
    [ATSI_TYPE_Q4_K] = {4, 8, 2, 3, 8, 2, 0, 1, 0, 32},
    [ATSI_TYPE_Q5_K] = {4, 8, 2, 3, 10, 2, 0, 1, 0, 32},
    [ATSI_TYPE_Q6_K] = {4, 4, 4, 4, 12, 4, 32, 0, 0, 16},
    [ATSI_TYPE_IQ4_XS] = {8, 4, 2, 1, 4, 1, 128, 0, 1, 32},
};

CPU_INLINE int panel_group(const int type, const int s, const int k)
{
    if (type == ATSI_TYPE_Q2_K) /* 32 columns from one field to the next */
        return 8 * (s / 2) + 2 * k + s % 2;
    return s * panel_forms[type].n_sum + k % panel_forms[type].n_sum;
}

CPU_INLINE int panel_dword(const int type, const int s, const int k, const int u)
{
    const int n = panel_forms[type].group / 4;
    const int half = panel_forms[type].n_sum == 1 ? 4 * k : 0; /* nibbles of one sub-block */
    return panel_group(type, s, k) * n + half + u;
}

#endif
