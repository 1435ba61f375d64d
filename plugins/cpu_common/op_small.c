/* SPDX-License-Identifier: Apache-2.0
 * Embedding, norms, rotation and element-wise operations, dealt out by rows or by parts of a row.
 */
#include "backend.h"

#include <math.h>

void cpu_op_embed(struct cpu_worker *w, const struct atsi_op *op)
{
    const struct atsi_tensor *table = op->weight[0];
    size_t first, end;
    cpu_share(w->w, op->n_rows, 1, &first, &end);
    for (size_t t = first; t < end; t++) {
        size_t id = (size_t)((const int32_t *)op->src[0]->data)[t]; /* checked before the region */
        w->kernels->dequant[table->type]((const unsigned char *)table->data + id * table->row_bytes,
                                         (float *)op->dst[0]->data + t * table->ne[0],
                                         (uint32_t)table->ne[0]);
    }
}

void cpu_op_rms_norm(struct cpu_worker *w, const struct atsi_op *op)
{
    size_t n = op->weight[0]->ne[0], units = op->n_rows * (op->src[0]->ne[0] / n), first, end;
    cpu_share(w->w, units, 1, &first, &end);
    for (size_t u = first; u < end; u++)
        w->kernels->rms_norm((const float *)op->src[0]->data + u * n, op->weight[0]->data,
                             (float *)op->dst[0]->data + u * n, (uint32_t)n, op->p.norm.eps);
}

/* Angles in double: a position times a frequency may be large, and f32 would lose the phase. */
void cpu_op_rope_table(struct cpu_worker *w, const struct atsi_op *op)
{
    const float *freq = op->weight[0]->data;
    size_t half = op->weight[0]->ne[0], first, end;
    cpu_share(w->w, op->n_rows, 1, &first, &end);
    for (size_t t = first; t < end; t++) {
        double pos = (double)((const int32_t *)op->src[0]->data)[t];
        float *cs = (float *)op->dst[0]->data + t * 2 * half;
        for (size_t i = 0; i < half; i++) {
            double angle = pos * (double)freq[i];
            cs[i] = (float)cos(angle) * op->p.rope.magnitude;
            cs[half + i] = (float)sin(angle) * op->p.rope.magnitude;
        }
    }
}

void cpu_op_rope(struct cpu_worker *w, const struct atsi_op *op)
{
    uint32_t heads = op->p.rope.n_head, dim = op->p.rope.head_dim, n_rot = op->p.rope.n_rot;
    size_t first, end;
    cpu_share(w->w, (size_t)op->n_rows * heads, 1, &first, &end);
    for (size_t u = first; u < end; u++)
        w->kernels->rope((const float *)op->src[0]->data + u * dim,
                         (const float *)op->src[1]->data + u / heads * n_rot,
                         (float *)op->dst[0]->data + u * dim, 1, dim, n_rot, op->p.rope.mode);
}

/* Rows of a batch, or parts of a single row cut at whole vectors: an element always meets the same
 * position of the same kernel, however the work was dealt. */
static void element_wise(struct cpu_worker *w, const struct atsi_op *op,
                         void (*kernel)(const float *a, const float *b, float *y, size_t n))
{
    size_t width = op->dst[0]->ne[0], first = 0, end = width, t0 = 0, t1 = 1;
    if (op->n_rows == 1)
        cpu_share(w->w, width, CPU_ROW_STEP, &first, &end);
    else
        cpu_share(w->w, op->n_rows, 1, &t0, &t1);
    for (size_t t = t0; t < t1 && first < end; t++) {
        size_t at = t * width + first;
        kernel((const float *)op->src[0]->data + at, (const float *)op->src[1]->data + at,
               (float *)op->dst[0]->data + at, end - first);
    }
}

void cpu_op_swiglu(struct cpu_worker *w, const struct atsi_op *op)
{
    element_wise(w, op, w->kernels->swiglu);
}

void cpu_op_add(struct cpu_worker *w, const struct atsi_op *op)
{
    element_wise(w, op, w->kernels->add);
}
