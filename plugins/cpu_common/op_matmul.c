/* SPDX-License-Identifier: Apache-2.0
 * Matrix products: each worker computes its own rows of the weight for all rows of activations. */
#include "backend.h"

#include "panel/pack.h"

/* Rows dequantized at a time when activations stay exact. */
#define EXACT_ROWS 16u

static bool is_float(uint32_t type)
{
    return atsi_type_info(type)->block_elems == 1;
}

static bool is_packed(const struct atsi_tensor *weight)
{
    return weight->layout == ATSI_LAYOUT_PANELS;
}

size_t cpu_row_scratch(const struct atsi_tensor *weight)
{
    return is_packed(weight) ? cpu_round_up(weight->row_bytes, CPU_ALIGN) : 0;
}

size_t cpu_matmul_scratch(const struct atsi_op *op)
{
    const struct atsi_tensor *w = op->weight[0];
    if ((op->flags & ATSI_OP_EXACT) == 0 || is_float(w->type))
        return 0;
    return cpu_round_up((size_t)EXACT_ROWS * w->ne[0] * sizeof(float), CPU_ALIGN) +
           cpu_row_scratch(w);
}

void cpu_row_dequant(const struct cpu_worker *w, const struct atsi_tensor *weight, const void *base,
                     size_t row, void *room, float *y)
{
    const void *bytes = (const unsigned char *)base + row * weight->row_bytes;
    if (is_packed(weight)) {
        const struct atsi_panel_matrix m = {weight->type, weight->ne[0], weight->ne[1], 1};
        atsi_panel_row(&m, base, 0, row, room);
        bytes = room;
    }
    w->kernels->dequant[weight->type](bytes, y, (uint32_t)weight->ne[0]);
}

/* Weights to f32 a few rows at a time, then an f32 product. */
static void exact_rows(struct cpu_worker *w, const struct atsi_tensor *weight, const void *base,
                       size_t first, size_t end, const struct cpu_act *act, float *y,
                       size_t y_stride)
{
    uint32_t k = (uint32_t)weight->ne[0];
    float *rows = (float *)(void *)w->free;
    void *room = w->free + cpu_round_up((size_t)EXACT_ROWS * k * sizeof(float), CPU_ALIGN);
    for (size_t r = first; r < end; r += EXACT_ROWS) {
        uint32_t n = (uint32_t)(end - r < EXACT_ROWS ? end - r : EXACT_ROWS);
        for (uint32_t i = 0; i < n; i++)
            cpu_row_dequant(w, weight, base, r + i, room, rows + (size_t)i * k);
        w->kernels->gemm[ATSI_TYPE_F32](rows, k * sizeof(float), n, act, y + (r - first), y_stride);
    }
}

/* Whole panels, then the matrix's last rows, which fill none. */
static void packed_rows(struct cpu_worker *w, const struct atsi_tensor *weight, const void *base,
                        size_t first, size_t end, const struct cpu_act *act, float *y,
                        size_t y_stride)
{
    const unsigned char *rows = base;
    size_t packed = atsi_panel_count(weight->ne[1]) * ATSI_PANEL_ROWS;
    size_t stop = end < packed ? end : packed;
    if (first < stop)
        w->kernels->gemm_panel[weight->type](weight->type, rows + first * weight->row_bytes,
                                             (uint32_t)((stop - first) / ATSI_PANEL_ROWS), act, y,
                                             y_stride);
    if (stop < first)
        stop = first;
    if (stop < end)
        w->kernels->gemm[weight->type](rows + stop * weight->row_bytes, weight->row_bytes,
                                       (uint32_t)(end - stop), act, y + (stop - first), y_stride);
}

void cpu_rows_times(struct cpu_worker *w, const struct atsi_tensor *weight, const void *base,
                    bool exact, size_t first, size_t end, const struct cpu_act *act, float *y,
                    size_t y_stride)
{
    if (first >= end)
        return;
    if (exact && !is_float(weight->type))
        exact_rows(w, weight, base, first, end, act, y, y_stride);
    else if (is_packed(weight))
        packed_rows(w, weight, base, first, end, act, y, y_stride);
    else
        w->kernels->gemm[weight->type]((const unsigned char *)base + first * weight->row_bytes,
                                       weight->row_bytes, (uint32_t)(end - first), act, y,
                                       y_stride);
}

void cpu_op_matmul(struct cpu_worker *w, const struct atsi_op *op)
{
    const struct atsi_tensor *weight = op->weight[0];
    size_t first, end, out = weight->ne[1], stride = op->dst[0]->row_bytes / sizeof(float);
    float *y = op->dst[0]->data;
    cpu_share(w->w, out, CPU_ROW_STEP, &first, &end);
    cpu_rows_times(w, weight, weight->data, (op->flags & ATSI_OP_EXACT) != 0, first, end, &w->act,
                   y + first, stride);
    if (op->weight[1] != NULL && first < end)
        for (uint32_t t = 0; t < op->n_rows; t++)
            w->kernels->add(y + t * stride + first, (const float *)op->weight[1]->data + first,
                            y + t * stride + first, end - first);
}
