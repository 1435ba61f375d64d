/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixture of experts.  Of a single token's K experts each worker computes its own rows.  A batch is
 * first sorted by expert, so that each expert's weights are read once for all the tokens that chose
 * it, and workers take experts, cut by rows only where shares meet: what gathers tokens is then
 * done once, not once per worker.  A token's result does not depend on its company or on the
 * shares.
 */
#include "backend.h"

/* Rows of an expert at a time, whose results wait side by side to be sent to their tokens. */
#define ROWS_AT_ONCE 256u
/* What an expert costs whatever the tokens, in tokens: its weights are read and opened. */
#define EXPERT_COST 16u

/* Slots of a batch sorted by expert. */
struct routing {
    uint32_t *start; /* [n_expert + 1] */
    uint32_t *slot;  /* t * K + j, grouped by expert, ascending inside a group */
};

static size_t routing_bytes(const struct atsi_op *op)
{
    size_t slots = (size_t)op->n_rows * op->p.moe.n_used, e = op->weight[0]->ne[2];
    return cpu_round_up((slots + 2 * (e + 1)) * sizeof(uint32_t), CPU_ALIGN);
}

static size_t gathered_bytes(uint32_t k, uint32_t block)
{
    return cpu_round_up(block != 0 ? cpu_act_bytes(CPU_GATHER, k, block)
                                   : (size_t)CPU_GATHER * k * sizeof(float),
                        CPU_ALIGN);
}

size_t cpu_experts_scratch(const struct atsi_op *op)
{
    return cpu_matmul_scratch(op) + routing_bytes(op) +
           gathered_bytes((uint32_t)op->weight[0]->ne[0], cpu_act_block(op)) +
           (size_t)CPU_GATHER * ROWS_AT_ONCE * sizeof(float);
}

/* Remembers an id out of range once; its slot's result stays zero. */
static bool good_expert(struct cpu_worker *w, const struct atsi_op *op, int32_t e)
{
    if (e >= 0 && (uint64_t)e < op->weight[0]->ne[2])
        return true;
    atomic_store_explicit(&w->run->bad_expert, e, memory_order_relaxed); /* read after the region */
    return false;
}

static const void *expert_base(const struct atsi_op *op, uint32_t e)
{
    const struct atsi_tensor *t = op->weight[0];
    return (const unsigned char *)t->data + (size_t)e * t->ne[1] * t->row_bytes;
}

/* Whether src0 holds one row per slot instead of one per token. */
static bool row_per_slot(const struct atsi_op *op)
{
    return op->src[0]->ne[0] != op->weight[0]->ne[0];
}

static void add_bias(struct cpu_worker *w, const struct atsi_op *op, uint32_t e, float *y,
                     size_t first, size_t end)
{
    if (op->weight[1] != NULL) {
        const float *b = (const float *)op->weight[1]->data + (size_t)e * op->weight[0]->ne[1];
        w->kernels->add(y, b + first, y, end - first);
    }
}

static void one_token(struct cpu_worker *w, const struct atsi_op *op, size_t first, size_t end)
{
    size_t out = op->weight[0]->ne[1];
    const int32_t *ids = op->src[1]->data;
    for (uint32_t j = 0; j < op->p.moe.n_used; j++) {
        struct cpu_act act = cpu_act_row(&w->act, row_per_slot(op) ? j : 0);
        float *y = (float *)op->dst[0]->data + j * out + first;
        if (!good_expert(w, op, ids[j])) {
            memset(y, 0, (end - first) * sizeof *y);
            continue;
        }
        cpu_rows_times(w, op->weight[0], expert_base(op, (uint32_t)ids[j]),
                       (op->flags & ATSI_OP_EXACT) != 0, first, end, &act, y, out);
        add_bias(w, op, (uint32_t)ids[j], y, first, end);
    }
}

/* Counting sort of the slots by expert, into the worker's own scratch. */
static struct routing sort_slots(struct cpu_worker *w, const struct atsi_op *op, void *memory)
{
    uint32_t n_expert = (uint32_t)op->weight[0]->ne[2], slots = op->n_rows * op->p.moe.n_used;
    struct routing r = {memory, (uint32_t *)memory + 2 * ((size_t)n_expert + 1)};
    uint32_t *next = r.start + n_expert + 1;
    const int32_t *ids = op->src[1]->data;
    memset(r.start, 0, 2 * ((size_t)n_expert + 1) * sizeof *r.start);
    for (uint32_t s = 0; s < slots; s++)
        if (good_expert(w, op, ids[s]))
            r.start[ids[s] + 1]++;
    for (uint32_t e = 0; e < n_expert; e++)
        r.start[e + 1] += r.start[e];
    memcpy(next, r.start, n_expert * sizeof *next);
    for (uint32_t s = 0; s < slots; s++)
        if (good_expert(w, op, ids[s]))
            r.slot[next[ids[s]]++] = s;
    return r;
}

/* Copies the activations of n slots side by side. */
static void gather(const struct cpu_worker *w, const struct atsi_op *op, const uint32_t *slot,
                   uint32_t n, void *memory, struct cpu_act *out)
{
    const struct cpu_act *a = &w->act;
    if (a->block == 0)
        *out = (struct cpu_act){.k = a->k, .n_tok = n, .f = memory, .f_stride = a->k};
    else
        cpu_act_layout(out, n, a->k, a->block, memory);
    out->blocks = a->blocks;
    for (uint32_t i = 0; i < n; i++) {
        struct cpu_act from =
            cpu_act_row(a, row_per_slot(op) ? slot[i] : slot[i] / op->p.moe.n_used);
        if (a->block == 0) {
            memcpy((float *)memory + (size_t)i * a->k, from.f, a->k * sizeof(float));
        } else {
            memcpy(out->q + i * out->q_stride, from.q, a->k);
            memcpy(out->d + i * out->d_stride, from.d, a->k / a->block * sizeof(float));
            memcpy(out->bsum + i * out->bsum_stride, from.bsum, a->k / 16 * sizeof(int16_t));
        }
    }
}

/* Rows [first, end) of expert e for gathered tokens, to the results of their slots. */
static void gathered_rows(struct cpu_worker *w, const struct atsi_op *op, uint32_t e,
                          const uint32_t *slot, const struct cpu_act *act, size_t first, size_t end,
                          float *y)
{
    const size_t out = op->weight[0]->ne[1], n = end - first;
    cpu_rows_times(w, op->weight[0], expert_base(op, e), (op->flags & ATSI_OP_EXACT) != 0, first,
                   end, act, y, n);
    for (uint32_t i = 0; i < act->n_tok; i++) {
        float *to = (float *)op->dst[0]->data + slot[i] * out + first;
        memcpy(to, y + i * n, n * sizeof *to);
        add_bias(w, op, e, to, first, end);
    }
}

static void one_expert(struct cpu_worker *w, const struct atsi_op *op, uint32_t e,
                       const uint32_t *slot, uint32_t n, size_t first, size_t end,
                       unsigned char *memory)
{
    const uint32_t k = (uint32_t)op->weight[0]->ne[0];
    float *y = (float *)(void *)(memory + gathered_bytes(k, w->act.block));
    uint32_t parts = (n + CPU_GATHER - 1) / CPU_GATHER, each = (n + parts - 1) / parts;
    for (uint32_t done = 0; done < n; done += each) {
        uint32_t m = n - done < each ? n - done : each;
        struct cpu_act act;
        gather(w, op, slot + done, m, memory, &act);
        for (size_t r = first; r < end; r += ROWS_AT_ONCE)
            gathered_rows(w, op, e, slot + done, &act, r,
                          end - r < ROWS_AT_ONCE ? end : r + ROWS_AT_ONCE, y);
    }
}

/* ---------------------------------------------------------------- shares of a batch */
static uint64_t expert_cost(const struct routing *r, uint32_t e)
{
    uint32_t n = r->start[e + 1] - r->start[e];
    return n > 0 ? n + EXPERT_COST : 0;
}

struct cpu_cut cpu_cut_open(uint64_t length, uint32_t tid, uint32_t n_threads)
{
    return (struct cpu_cut){0, length * tid / n_threads, length * (tid + 1) / n_threads};
}

/* The row that lies `at` behind the beginning of a matrix whose rows have length `cost`. */
static size_t row_at(uint64_t at, uint64_t cost, size_t rows)
{
    size_t row = (size_t)(at / cost / CPU_ROW_STEP * CPU_ROW_STEP);
    return row < rows ? row : rows;
}

bool cpu_cut_next(struct cpu_cut *c, uint64_t cost, size_t rows, size_t *first, size_t *end)
{
    const uint64_t at = c->at, next = at + cost * rows;
    c->at = next;
    *first = *end = 0;
    if (cost == 0 || next <= c->from || at >= c->to)
        return false;
    *first = c->from > at ? row_at(c->from - at, cost, rows) : 0;
    *end = c->to < next ? row_at(c->to - at, cost, rows) : rows;
    return *first < *end;
}

static void batch(struct cpu_worker *w, const struct atsi_op *op)
{
    unsigned char *memory = w->free + cpu_matmul_scratch(op);
    const struct routing r = sort_slots(w, op, memory);
    const uint32_t n_expert = (uint32_t)op->weight[0]->ne[2];
    const size_t out = op->weight[0]->ne[1];
    struct cpu_cut cut;
    uint64_t length = 0;
    for (uint32_t e = 0; e < n_expert; e++)
        length += expert_cost(&r, e) * out;
    cut = cpu_cut_open(length, w->w->tid, w->w->n_threads);
    memory += routing_bytes(op);
    for (uint32_t e = 0; e < n_expert; e++) {
        size_t first, end;
        if (cpu_cut_next(&cut, expert_cost(&r, e), out, &first, &end))
            one_expert(w, op, e, r.slot + r.start[e], r.start[e + 1] - r.start[e], first, end,
                       memory);
    }
}

void cpu_op_experts(struct cpu_worker *w, const struct atsi_op *op)
{
    size_t first, end;
    if (op->n_rows > 1) {
        batch(w, op);
        return;
    }
    cpu_share(w->w, op->weight[0]->ne[1], CPU_ROW_STEP, &first, &end);
    if (first < end)
        one_token(w, op, first, end);
}

void cpu_op_topk(struct cpu_worker *w, const struct atsi_op *op)
{
    size_t first, end, k = op->p.moe.n_used, n = op->src[0]->ne[0];
    cpu_share(w->w, op->n_rows, 1, &first, &end);
    for (size_t t = first; t < end; t++)
        w->kernels->topk((const float *)op->src[0]->data + t * n, (uint32_t)n, (uint32_t)k,
                         op->p.moe.gating, (int32_t *)op->dst[0]->data + t * k,
                         (float *)op->dst[1]->data + t * k);
}

void cpu_op_moe_sum(struct cpu_worker *w, const struct atsi_op *op)
{
    size_t d = op->dst[0]->ne[0], k = op->p.moe.n_used, first = 0, end = d, t0 = 0, t1 = 1;
    if (op->n_rows == 1)
        cpu_share(w->w, d, CPU_ROW_STEP, &first, &end);
    else
        cpu_share(w->w, op->n_rows, 1, &t0, &t1);
    if (first >= end)
        return;
    for (size_t t = t0; t < t1; t++) {
        float *y = (float *)op->dst[0]->data + t * d + first;
        const float *weights = (const float *)op->src[1]->data + t * k;
        memset(y, 0, (end - first) * sizeof *y);
        for (size_t j = 0; j < k; j++)
            w->kernels->axpy(weights[j], (const float *)op->src[0]->data + (t * k + j) * d + first,
                             y, end - first);
    }
}
