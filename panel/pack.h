/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the file's rows and the panels of atsinfer/panel.h.
 *
 * All functions are pure: they touch nothing but what they are given, so that many threads may work
 * on parts of one tensor.  Source and destination do not overlap.  Types have panels
 * (atsi_panel_form()), row lengths are whole blocks; both are the caller's to check.
 */
#ifndef ATSI_PANEL_PACK_H
#define ATSI_PANEL_PACK_H

#include "atsinfer/panel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* [any thread]  n_panels panels from 16 * n_panels rows of `elems` elements, row_bytes apart. */
void atsi_panel_pack(uint32_t type, uint64_t elems, const void *rows, uint64_t row_bytes,
                     uint64_t n_panels, void *panels);
/* [any thread]  And back. */
void atsi_panel_unpack(uint32_t type, uint64_t elems, const void *panels, uint64_t n_panels,
                       void *rows, uint64_t row_bytes);
/* [any thread]  Blocks first .. first + n - 1 of row `row` (0..15) of a panel, as in the file. */
void atsi_panel_read(uint32_t type, uint64_t elems, const void *panel, uint32_t row, uint64_t first,
                     uint64_t n, void *out);

/* A matrix, or a stack of them without gaps, for work in parts. */
struct atsi_panel_matrix {
    uint32_t type;
    uint64_t elems, rows, n; /* ne[0], ne[1], ne[2] */
};

/* [any thread]  Parts the matrices are packed in: each panel, and the rows left over of each. */
uint64_t atsi_panel_parts(const struct atsi_panel_matrix *m);
/* [any thread]  Packs parts first .. end - 1 of `from`, laid out as in the file, to `to`; the other
 * way with `back`.  Both point to the first byte of the first matrix. */
void atsi_panel_convert(const struct atsi_panel_matrix *m, uint64_t first, uint64_t end, int back,
                        const void *from, void *to);
/* [any thread]  Row `row` of matrix `matrix` of packed `from`, as in the file. */
void atsi_panel_row(const struct atsi_panel_matrix *m, const void *from, uint64_t matrix,
                    uint64_t row, void *out);

#ifdef __cplusplus
}
#endif
#endif
