/* SPDX-License-Identifier: Apache-2.0
 * Embedding, norms, rotation and element-wise operations, dealt out by rows or by parts of a row.
 */
#include "backend.h"

#include <math.h>

size_t cpu_embed_scratch(const struct atsi_op *op)
{
    return cpu_row_scratch(op->weight[0]);
}

void cpu_op_embed(struct cpu_worker *w, const struct atsi_op *op)
{
    const struct atsi_tensor *table = op->weight[0];
    size_t first, end;
    cpu_share(w->w, op->n_rows, 1, &first, &end);
    for (size_t t = first; t < end; t++) {
        size_t id = (size_t)((const int32_t *)op->src[0]->data)[t]; /* checked before the region */
        cpu_row_dequant(w, table, table->data, id, w->free,
                        (float *)op->dst[0]->data + t * table->ne[0]);
    }
}

void cpu_op_rms_norm(struct cpu_worker *w, const struct atsi_op *op)
{
    size_t n = op->weight[0]->ne[0], runs = op->dst[0]->ne[0] / n, first, end;
    size_t stride = op->p.norm.stride != 0 ? op->p.norm.stride : n;
    cpu_share(w->w, op->n_rows * runs, 1, &first, &end);
    for (size_t u = first; u < end; u++)
        w->kernels->rms_norm(
            (const float *)op->src[0]->data + u / runs * op->src[0]->ne[0] + u % runs * stride,
            op->weight[0]->data, (float *)op->dst[0]->data + u * n, (uint32_t)n, op->p.norm.eps);
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

/* ---------------------------------------------------------------- element-wise */
/* Rows fall into runs and runs into pieces of at most this many elements, always at the same
 * places: an element meets the same position of the same kernel, however the work was dealt. */
#define PIECE 256U

/* Elements [at, at + n) of run `run` of row `row`. */
struct piece {
    size_t row, run, at, n;
};

static void each_piece(struct cpu_worker *w, const struct atsi_op *op, size_t run,
                       void (*fn)(struct cpu_worker *w, const struct atsi_op *op,
                                  const struct piece *p))
{
    size_t runs = op->dst[0]->ne[0] / run, pieces = (run + PIECE - 1) / PIECE, first, end;
    cpu_share(w->w, op->n_rows * runs * pieces, 1, &first, &end);
    for (size_t u = first; u < end; u++) {
        struct piece p = {.row = u / pieces / runs,
                          .run = u / pieces % runs,
                          .at = u % pieces * PIECE,
                          .n = PIECE};
        if (run - p.at < PIECE)
            p.n = run - p.at;
        fn(w, op, &p);
    }
}

static float *element(const struct atsi_tensor *t, size_t row, size_t at)
{
    return (float *)t->data + row * t->ne[0] + at;
}

static void add_piece(struct cpu_worker *w, const struct atsi_op *op, const struct piece *p)
{
    w->kernels->add(element(op->src[0], p->row, p->at), element(op->src[1], p->row, p->at),
                    element(op->dst[0], p->row, p->at), p->n);
}

void cpu_op_add(struct cpu_worker *w, const struct atsi_op *op)
{
    each_piece(w, op, op->dst[0]->ne[0], add_piece);
}

/* Gate and up lie in two sources, or one behind the other in each run of one. */
static void swiglu_piece(struct cpu_worker *w, const struct atsi_op *op, const struct piece *p)
{
    bool halves = op->src[1] == NULL;
    size_t run = halves ? op->dst[0]->ne[0] / op->p.glu.n_group : 0;
    const float *gate = element(op->src[0], p->row, 2 * p->run * run + p->at);
    const float *up = halves ? gate + run : element(op->src[1], p->row, p->at);
    float *y = element(op->dst[0], p->row, p->run * run + p->at);
    if (op->p.glu.kind == ATSI_GLU_CLAMPED)
        w->kernels->swiglu_clamped(gate, up, y, p->n, op->p.glu.alpha, op->p.glu.limit);
    else
        w->kernels->swiglu(gate, up, y, p->n);
}

void cpu_op_swiglu(struct cpu_worker *w, const struct atsi_op *op)
{
    size_t width = op->dst[0]->ne[0];
    each_piece(w, op, op->src[1] == NULL ? width / op->p.glu.n_group : width, swiglu_piece);
}

static void gate_piece(struct cpu_worker *w, const struct atsi_op *op, const struct piece *p)
{
    size_t gate_at = p->run * op->p.gate.stride + op->p.gate.offset;
    size_t at = p->run * op->p.gate.run + p->at;
    const float *g = element(op->src[1], p->row, gate_at);
    float same[PIECE];
    for (size_t i = 0; i < p->n && op->p.gate.scalar != 0; i++)
        same[i] = *g;
    w->kernels->gate(element(op->src[0], p->row, at), op->p.gate.scalar != 0 ? same : g + p->at,
                     element(op->dst[0], p->row, at), p->n);
}

void cpu_op_gate(struct cpu_worker *w, const struct atsi_op *op)
{
    each_piece(w, op, op->p.gate.run, gate_piece);
}

/* ---------------------------------------------------------------- moving */
static void copy_segment(const struct atsi_op *op, size_t row, uint32_t s, uint32_t g)
{
    size_t n = op->p.regroup.len[s], at = g * n;
    for (uint32_t i = 0; i < s; i++)
        at += (size_t)op->p.regroup.n_group * op->p.regroup.len[i];
    memcpy(element(op->dst[0], row, at),
           element(op->src[0], row, (size_t)g * op->p.regroup.stride + op->p.regroup.offset[s]),
           n * sizeof(float));
}

void cpu_op_regroup(struct cpu_worker *w, const struct atsi_op *op)
{
    size_t groups = op->p.regroup.n_group, segments = op->p.regroup.n_seg * groups, first, end;
    cpu_share(w->w, op->n_rows * segments, 1, &first, &end);
    for (size_t u = first; u < end; u++)
        copy_segment(op, u / segments, (uint32_t)(u % segments / groups), (uint32_t)(u % groups));
}
