/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding activations once for all products that read them.  A single row is rounded by every
 * worker for itself (cheaper than waiting for one that does it); the rows of a batch are dealt out.
 */
#include "backend.h"

uint32_t cpu_act_block(const struct atsi_op *op)
{
    if ((op->flags & ATSI_OP_EXACT) != 0)
        return 0;
    switch (atsi_type_info(op->weight[0]->type)->act) {
    case ATSI_ACT_Q8_32:
        return 32;
    case ATSI_ACT_Q8_256:
        return 256;
    default:
        return 0;
    }
}

/* Rows this far apart fall in the same few sets of a first cache, and tiles read several at once.
 */
#define SET_STRIDE 1024u

struct act_sizes {
    size_t q, d, bsum; /* elements from row to row */
};

static struct act_sizes sizes_of(uint32_t k, uint32_t block)
{
    struct act_sizes s = {0, 0, 0};
    if (block != 0) {
        s.q = cpu_round_up(k, CPU_ALIGN);
        if (s.q % SET_STRIDE == 0)
            s.q += CPU_ALIGN;
        s.d = cpu_round_up(k / block, CPU_ALIGN / sizeof(float));
        s.bsum = cpu_round_up(k / 16, CPU_ALIGN / sizeof(int16_t));
    }
    return s;
}

size_t cpu_act_bytes(uint32_t rows, uint32_t k, uint32_t block)
{
    struct act_sizes s = sizes_of(k, block);
    /* One more line: vector loads of a row's end stay inside. */
    return rows * (s.q + s.d * sizeof(float) + s.bsum * sizeof(int16_t)) + CPU_ALIGN;
}

void cpu_act_layout(struct cpu_act *act, uint32_t rows, uint32_t k, uint32_t block, void *memory)
{
    struct act_sizes s = sizes_of(k, block);
    unsigned char *at = memory;
    *act = (struct cpu_act){.k = k,
                            .n_tok = rows,
                            .block = block,
                            .q = (int8_t *)at,
                            .q_stride = s.q,
                            .d_stride = s.d,
                            .bsum_stride = s.bsum};
    at += rows * s.q;
    act->d = (float *)(void *)at;
    at += rows * s.d * sizeof(float);
    act->bsum = (int16_t *)(void *)at;
}

struct cpu_act cpu_act_row(const struct cpu_act *act, uint32_t row)
{
    struct cpu_act one = *act;
    one.n_tok = 1;
    if (act->block == 0) {
        one.f += row * act->f_stride;
    } else {
        one.q += row * act->q_stride;
        one.d += row * act->d_stride;
        one.bsum += row * act->bsum_stride;
    }
    return one;
}

static void quantize_rows(struct cpu_worker *w, const struct atsi_tensor *x, size_t first,
                          size_t end)
{
    for (size_t r = first; r < end; r++) {
        const float *row = (const float *)x->data + r * w->act.k;
        if (w->act.block == 32)
            w->kernels->quant_32(row, &w->act, (uint32_t)r);
        else
            w->kernels->quant_256(row, &w->act, (uint32_t)r);
    }
}

void cpu_act_prepare(struct cpu_worker *w, const struct atsi_op *op, const struct cpu_step *step)
{
    const struct atsi_tensor *x = op->src[0];
    size_t first = 0, end = step->act_rows;
    bool own = op->n_rows == 1;
    if (step->block == 0) {
        w->act = (struct cpu_act){
            .k = step->act_k, .n_tok = step->act_rows, .f = x->data, .f_stride = step->act_k};
        w->act.blocks = &w->run->be->blocks;
        return;
    }
    cpu_act_layout(&w->act, step->act_rows, step->act_k, step->block,
                   own ? w->w->scratch : w->run->be->shared.data);
    w->act.blocks = &w->run->be->blocks;
    if (!step->quantize)
        return;
    if (!own)
        cpu_share(w->w, step->act_rows, 1, &first, &end);
    quantize_rows(w, x, first, end);
    if (!own)
        w->w->barrier(w->w);
}
