/* SPDX-License-Identifier: Apache-2.0
 *
 * Each operation of the CPU backend that keeps nothing from call to call, on random shapes and any
 * number of workers, against kernels called directly and row by row: strides, offsets, roles of
 * operands and parameters are those that op.h states.  The same kernels run on both sides, so
 * results must be equal to the bit.  Every operation that is accepted is then broken in every way
 * its shapes can be, and must be refused with its results untouched.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op_trial.h"

/* ---------------------------------------------------------------- what is expected */
static void embed(struct trial *t, uint32_t type)
{
    uint32_t d = 256 * (1 + below(3)), n = 5 + below(30);
    struct atsi_tensor *ids = trial_tensor(t, ATSI_TYPE_I32, 1, t->rows + 1, 1);
    struct atsi_tensor *w = trial_tensor(t, type, d, n, 1);
    t->op.src[0] = ids;
    t->op.weight[0] = w;
    (void)trial_result(t, 0, ATSI_TYPE_F32, d);
    for (uint32_t r = 0; r < t->rows; r++) {
        ints(ids)[r] = (int32_t)(r == 0 ? n - 1 : below(n));
        k.dequant[type]((unsigned char *)w->data + (size_t)ints(ids)[r] * w->row_bytes,
                        t->want[0] + (size_t)r * d, d);
    }
}

/* Runs one after the other, or with other things between them. */
static void rms_norm(struct trial *t, uint32_t type)
{
    uint32_t n = 16 + below(200), parts = 1 + below(4);
    uint32_t stride = below(2) == 0 ? 0 : n + below(2) * (1 + below(40));
    size_t step = stride != 0 ? stride : n, in = stride != 0 ? (parts - 1) * step + n : n * parts;
    struct atsi_tensor *x, *w = trial_tensor(t, type, n, 1, 1);
    in += stride != 0 ? below(2) * (step - n) : 0; /* what follows the last run may be there */
    x = trial_rows(t, in);
    t->op.src[0] = x;
    t->op.weight[0] = w;
    t->op.p.norm.eps = 0.01F;
    t->op.p.norm.stride = stride;
    (void)trial_result(t, 0, ATSI_TYPE_F32, (uint64_t)n * parts);
    for (uint32_t u = 0; u < t->rows * parts; u++)
        k.rms_norm(floats(x) + u / parts * in + u % parts * step, floats(w),
                   t->want[0] + (size_t)u * n, n, 0.01F);
}

static void break_norm(struct fixture *f, const struct trial *t)
{
    struct atsi_op bad = t->op;
    uint32_t n = (uint32_t)t->op.weight[0]->ne[0];
    bad.p.norm.stride = n - 1;
    trial_refused(f, t, &bad, "runs that overlap");
    bad.p.norm.stride = UINT32_MAX;
    if (t->op.dst[0]->ne[0] > n)
        trial_refused(f, t, &bad, "runs beyond the row");
    if (t->op.p.norm.stride == 0 || t->op.dst[0]->ne[0] == n)
        return;
    bad.p.norm.stride = (uint32_t)t->op.src[0]->ne[0];
    trial_refused(f, t, &bad, "a last run beyond the row");
}

/* One row of activations times all rows of one matrix, rounded into buffers of its own. */
static void product(uint32_t type, const void *w, uint32_t in, uint32_t out, const float *x,
                    bool exact, const float *bias, float *y)
{
    const struct atsi_type_info *ti = atsi_type_info(type);
    struct cpu_act act = {.k = in,
                          .n_tok = 1,
                          .f = x,
                          .f_stride = in,
                          .q_stride = in + 64,
                          .d_stride = in,
                          .bsum_stride = in};
    size_t row = (size_t)atsi_row_bytes(type, in);
    float *dense = malloc(in * sizeof *dense);
    act.q = aligned_alloc(64, in + 64);
    act.d = aligned_alloc(64, (in + 64) * sizeof(float));
    act.bsum = aligned_alloc(64, (in + 64) * sizeof(int16_t));
    assert_true(dense != NULL && act.q != NULL && act.d != NULL && act.bsum != NULL);
    act.block = exact ? 0 : ti->act == ATSI_ACT_Q8_32 ? 32 : ti->act == ATSI_ACT_Q8_256 ? 256 : 0;
    if (act.block != 0)
        (act.block == 32 ? k.quant_32 : k.quant_256)(x, &act, 0);
    for (uint32_t r = 0; r < out; r++) {
        const unsigned char *wr = (const unsigned char *)w + r * row;
        if (exact && ti->block_elems > 1) {
            k.dequant[type](wr, dense, in);
            k.gemm[ATSI_TYPE_F32](dense, in * sizeof *dense, 1, &act, y + r, 1);
        } else {
            k.gemm[type](wr, row, 1, &act, y + r, 1);
        }
        if (bias != NULL)
            y[r] += bias[r];
    }
    free(dense);
    free(act.q);
    free(act.d);
    free(act.bsum);
}

static void matmul(struct trial *t, uint32_t type)
{
    uint32_t in = 256 * (1 + below(2)), out = 1 + below(70);
    struct atsi_tensor *x = trial_rows(t, in), *w = trial_tensor(t, type, in, out, 1);
    struct atsi_tensor *bias = below(2) == 0 ? trial_tensor(t, ATSI_TYPE_F32, out, 1, 1) : NULL;
    t->op.flags = below(3) == 0 ? ATSI_OP_EXACT : 0;
    t->op.src[0] = x;
    t->op.weight[0] = w;
    t->op.weight[1] = bias;
    (void)trial_result(t, 0, ATSI_TYPE_F32, out);
    for (uint32_t r = 0; r < t->rows; r++)
        product(type, w->data, in, out, floats(x) + (size_t)r * in, t->op.flags != 0,
                bias != NULL ? floats(bias) : NULL, t->want[0] + (size_t)r * out);
}

static void experts(struct trial *t, uint32_t type)
{
    uint32_t in = 256, out = 1 + below(below(4) == 0 ? 600 : 40), n = 1 + below(6);
    uint32_t used = 1 + below(3);
    bool per_slot = below(2) == 0;
    struct atsi_tensor *x = trial_rows(t, (uint64_t)in * (per_slot ? used : 1));
    struct atsi_tensor *w = trial_tensor(t, type, in, out, n);
    struct atsi_tensor *bias = below(2) == 0 ? trial_tensor(t, ATSI_TYPE_F32, out, n, 1) : NULL;
    struct atsi_tensor *ids = trial_tensor(t, ATSI_TYPE_I32, used, t->rows + 1, 1);
    t->op.flags = below(3) == 0 ? ATSI_OP_EXACT : 0;
    t->op.p.moe.n_used = used;
    t->op.src[0] = x;
    t->op.src[1] = ids;
    t->op.weight[0] = w;
    t->op.weight[1] = bias;
    (void)trial_result(t, 0, ATSI_TYPE_F32, (uint64_t)used * out);
    for (uint32_t s = 0; s < t->rows * used; s++) {
        uint32_t e = below(n);
        ints(ids)[s] = (int32_t)e;
        product(type, (unsigned char *)w->data + (size_t)e * out * w->row_bytes, in, out,
                floats(x) + (size_t)(per_slot ? s : s / used) * in, t->op.flags != 0,
                bias != NULL ? floats(bias) + (size_t)e * out : NULL, t->want[0] + (size_t)s * out);
    }
}

static void rope_table(struct trial *t, uint32_t type)
{
    uint32_t half = 1 + below(40);
    struct atsi_tensor *pos = trial_tensor(t, ATSI_TYPE_I32, 1, t->rows + 1, 1);
    struct atsi_tensor *freq = trial_tensor(t, type, half, 1, 1);
    t->op.src[0] = pos;
    t->op.weight[0] = freq;
    t->op.p.rope.magnitude = 1.5F;
    (void)trial_result(t, 0, ATSI_TYPE_F32, (uint64_t)2 * half);
    for (uint32_t r = 0; r < t->rows; r++) {
        ints(pos)[r] = (int32_t)below(100000);
        for (uint32_t i = 0; i < half; i++) {
            double angle = (double)ints(pos)[r] * (double)floats(freq)[i];
            t->want[0][(size_t)r * 2 * half + i] = (float)cos(angle) * 1.5F;
            t->want[0][(size_t)r * 2 * half + half + i] = (float)sin(angle) * 1.5F;
        }
    }
}

static void in_place(struct trial *t, const struct atsi_tensor *a)
{
    memcpy(t->op.dst[0]->data, a->data, t->rows * (size_t)a->row_bytes);
    t->op.src[0] = t->op.dst[0];
}

static void rope(struct trial *t, uint32_t type)
{
    uint32_t heads = 1 + below(6), n_rot = 2 + 2 * below(20), dim = n_rot + below(20);
    size_t row = (size_t)heads * dim;
    struct atsi_tensor *x = trial_tensor(t, type, row, t->rows + 1, 1), *cs = trial_rows(t, n_rot);
    t->op.p.rope.n_head = heads;
    t->op.p.rope.head_dim = dim;
    t->op.p.rope.n_rot = n_rot;
    t->op.p.rope.mode = below(2);
    t->op.src[0] = x;
    t->op.src[1] = cs;
    (void)trial_result(t, 0, ATSI_TYPE_F32, row);
    for (uint32_t r = 0; r < t->rows; r++)
        k.rope(floats(x) + r * row, floats(cs) + (size_t)r * n_rot, t->want[0] + r * row, heads,
               dim, n_rot, t->op.p.rope.mode);
    if (below(2) == 0)
        in_place(t, x);
}

static void break_rope(struct fixture *f, const struct trial *t)
{
    struct atsi_op bad = t->op;
    struct atsi_tensor table = *t->op.src[1]; /* agrees, and fits in the spare row */
    table.ne[0]--;
    table.row_bytes -= 4;
    bad.src[1] = &table;
    bad.p.rope.n_rot--;
    trial_refused(f, t, &bad, "an odd rotation");
    bad = t->op;
    bad.p.rope.mode = 2;
    trial_refused(f, t, &bad, "an unknown mode");
    bad = t->op;
    bad.p.rope.head_dim++;
    trial_refused(f, t, &bad, "wider heads");
}

static void add(struct trial *t, uint32_t type)
{
    uint32_t n = 1 + below(600);
    struct atsi_tensor *a = trial_tensor(t, type, n, t->rows + 1, 1), *b = trial_rows(t, n);
    t->op.src[0] = a;
    t->op.src[1] = b;
    (void)trial_result(t, 0, ATSI_TYPE_F32, n);
    for (size_t i = 0; i < (size_t)t->rows * n; i++)
        t->want[0][i] = floats(a)[i] + floats(b)[i];
    if (below(2) == 0)
        in_place(t, a);
}

static void glu(struct trial *t, const float *gate, const float *up, float *y, size_t n)
{
    if (t->op.p.glu.kind == ATSI_GLU_CLAMPED)
        k.swiglu_clamped(gate, up, y, n, t->op.p.glu.alpha, t->op.p.glu.limit);
    else
        k.swiglu(gate, up, y, n);
}

/* Gate and up in two sources, or one behind the other in each group of one. */
static void swiglu(struct trial *t, uint32_t type)
{
    uint32_t groups = 1 + below(4), run = 1 + below(2) * below(400) + below(100);
    uint32_t n = groups * run;
    bool halves = below(2) == 0;
    struct atsi_tensor *a = trial_tensor(t, type, (halves ? 2 : 1) * n, t->rows + 1, 1);
    struct atsi_tensor *b = halves ? NULL : trial_rows(t, n);
    t->op.src[0] = a;
    t->op.src[1] = b;
    t->op.p.glu.kind = below(2);
    t->op.p.glu.n_group = halves ? groups : 0;
    t->op.p.glu.alpha = 1.702F;
    t->op.p.glu.limit = 0.5F;
    (void)trial_result(t, 0, ATSI_TYPE_F32, n);
    for (size_t u = 0; u < (size_t)t->rows * groups; u++) {
        const float *gate = floats(a) + u * run * (halves ? 2 : 1);
        glu(t, gate, halves ? gate + run : floats(b) + u * run, t->want[0] + u * run, run);
    }
    if (!halves && below(2) == 0)
        in_place(t, a);
}

static void break_swiglu(struct fixture *f, const struct trial *t)
{
    struct atsi_op bad = t->op;
    bad.p.glu.kind = 2;
    trial_refused(f, t, &bad, "an unknown kind");
    bad = t->op;
    bad.p.glu.kind = ATSI_GLU_CLAMPED;
    bad.p.glu.limit = -1;
    trial_refused(f, t, &bad, "a negative limit");
    bad.p.glu.limit = NAN;
    trial_refused(f, t, &bad, "no limit");
    bad.p.glu.limit = 7;
    bad.p.glu.alpha = INFINITY;
    trial_refused(f, t, &bad, "an infinite alpha");
    bad = t->op;
    if (t->op.src[1] != NULL)
        return;
    bad.p.glu.n_group = 0;
    trial_refused(f, t, &bad, "no groups");
    bad.p.glu.n_group = (uint32_t)t->op.dst[0]->ne[0] + 1;
    trial_refused(f, t, &bad, "groups of a part of an element");
}

static void gate(struct trial *t, uint32_t type)
{
    uint32_t run = 1 + below(2) * below(500) + below(80), runs = 1 + below(4);
    uint32_t scalar = below(2), n = scalar != 0 ? 1 : run;
    uint32_t stride = n + below(3) * below(20), offset = below(3);
    uint64_t in = (uint64_t)(runs - 1) * stride + offset + n + below(2) * 3;
    struct atsi_tensor *x = trial_tensor(t, type, (uint64_t)run * runs, t->rows + 1, 1);
    struct atsi_tensor *g = trial_rows(t, in);
    t->op.src[0] = x;
    t->op.src[1] = g;
    t->op.p.gate.run = run;
    t->op.p.gate.stride = stride;
    t->op.p.gate.offset = offset;
    t->op.p.gate.scalar = scalar;
    (void)trial_result(t, 0, ATSI_TYPE_F32, (uint64_t)run * runs);
    for (size_t i = 0; i < (size_t)t->rows * runs * run; i++) {
        size_t row = i / run / runs, r = i / run % runs, e = scalar != 0 ? 0 : i % run;
        float z = floats(g)[row * in + r * stride + offset + e];
        t->want[0][i] = floats(x)[i] / (1.0F + expf(-z));
    }
}

static void break_gate(struct fixture *f, const struct trial *t)
{
    struct atsi_op bad = t->op;
    bad.p.gate.run = 0;
    trial_refused(f, t, &bad, "no run");
    bad.p.gate.run = (uint32_t)t->op.src[0]->ne[0] + 1;
    trial_refused(f, t, &bad, "a run longer than the row");
    bad = t->op;
    bad.p.gate.scalar = 2;
    trial_refused(f, t, &bad, "scalar 2");
    bad = t->op;
    bad.p.gate.offset = (uint32_t)t->op.src[1]->ne[0];
    trial_refused(f, t, &bad, "an offset beyond the row");
    bad.p.gate.offset = UINT32_MAX;
    trial_refused(f, t, &bad, "the largest offset");
    bad = t->op;
    bad.p.gate.stride = UINT32_MAX;
    if (t->op.src[0]->ne[0] > t->op.p.gate.run)
        trial_refused(f, t, &bad, "the largest stride");
}

/* Segments in any order, that may leave elements out and take some twice. */
static void regroup(struct trial *t, uint32_t type)
{
    uint32_t groups = 1 + below(5), stride = 4 + below(120), n_seg = 1 + below(ATSI_MAX_SEGMENTS);
    uint64_t out = 0;
    struct atsi_tensor *x = trial_tensor(t, type, (uint64_t)groups * stride, t->rows + 1, 1);
    float *to;
    t->op.src[0] = x;
    t->op.p.regroup.n_group = groups;
    t->op.p.regroup.stride = stride;
    t->op.p.regroup.n_seg = n_seg;
    for (uint32_t s = 0; s < n_seg; s++) {
        t->op.p.regroup.offset[s] = below(stride);
        t->op.p.regroup.len[s] = 1 + below(stride - t->op.p.regroup.offset[s]);
        out += t->op.p.regroup.len[s];
    }
    (void)trial_result(t, 0, ATSI_TYPE_F32, out * groups);
    to = t->want[0];
    for (size_t r = 0; r < t->rows; r++)
        for (uint32_t s = 0; s < n_seg; s++)
            for (uint32_t g = 0; g < groups; g++)
                for (uint32_t i = 0; i < t->op.p.regroup.len[s]; i++)
                    *to++ = floats(x)[(r * groups + g) * stride + t->op.p.regroup.offset[s] + i];
}

static void break_regroup(struct fixture *f, const struct trial *t)
{
    struct atsi_op bad = t->op;
    struct atsi_tensor y = *t->op.dst[0];
    bad.p.regroup.n_group = 0;
    trial_refused(f, t, &bad, "no groups");
    bad.p.regroup.n_group = t->op.p.regroup.n_group + 1;
    trial_refused(f, t, &bad, "another group");
    bad = t->op;
    bad.p.regroup.n_seg = 0;
    trial_refused(f, t, &bad, "no segments");
    bad.p.regroup.n_seg = ATSI_MAX_SEGMENTS + 1;
    trial_refused(f, t, &bad, "too many segments");
    bad = t->op;
    bad.p.regroup.stride++;
    trial_refused(f, t, &bad, "a longer group");
    bad = t->op;
    bad.p.regroup.offset[0] = t->op.p.regroup.stride - t->op.p.regroup.len[0] + 1;
    trial_refused(f, t, &bad, "a segment beyond its group");
    bad.p.regroup.offset[0] = UINT32_MAX;
    trial_refused(f, t, &bad, "the largest offset");
    bad = t->op;
    y.ne[0] -= (uint64_t)bad.p.regroup.len[0] * bad.p.regroup.n_group;
    y.row_bytes = y.ne[0] * 4;
    bad.p.regroup.len[0] = 0;
    bad.dst[0] = &y; /* agrees */
    trial_refused(f, t, &bad, "an empty segment");
}

static void topk(struct trial *t, uint32_t type)
{
    uint32_t n = 1 + below(70), used = 1 + below(n < 9 ? n : 9);
    struct atsi_tensor *x = trial_tensor(t, type, n, t->rows + 1, 1);
    t->op.p.moe.n_used = used;
    t->op.p.moe.gating = below(3);
    t->op.src[0] = x;
    (void)trial_result(t, 0, ATSI_TYPE_I32, used);
    (void)trial_result(t, 1, ATSI_TYPE_F32, used);
    for (uint32_t r = 0; r < t->rows; r++)
        k.topk(floats(x) + (size_t)r * n, n, used, t->op.p.moe.gating,
               (int32_t *)(void *)(t->want[0] + (size_t)r * used), t->want[1] + (size_t)r * used);
}

static void moe_sum(struct trial *t, uint32_t type)
{
    uint32_t n = 1 + below(100), used = 1 + below(4);
    struct atsi_tensor *x = trial_tensor(t, type, (uint64_t)n * used, t->rows + 1, 1);
    struct atsi_tensor *p = trial_rows(t, used);
    t->op.p.moe.n_used = used;
    t->op.src[0] = x;
    t->op.src[1] = p;
    (void)trial_result(t, 0, ATSI_TYPE_F32, n);
    for (size_t r = 0; r < t->rows; r++)
        for (size_t i = 0; i < n; i++) {
            float sum = 0;
            for (size_t j = 0; j < used; j++)
                sum += floats(p)[r * used + j] * floats(x)[(r * used + j) * n + i];
            t->want[0][r * n + i] = sum;
        }
}

static void break_slots(struct fixture *f, const struct trial *t)
{
    struct atsi_op bad = t->op;
    bad.p.moe.n_used++;
    trial_refused(f, t, &bad, "more slots");
    bad.p.moe.n_used = 0;
    trial_refused(f, t, &bad, "no slots");
    bad = t->op;
    bad.p.moe.gating = ATSI_GATING_NONE + 1;
    if (bad.kind == ATSI_OP_TOPK)
        trial_refused(f, t, &bad, "an unknown gating");
}

/* ---------------------------------------------------------------- the trials */
enum { EXPERTS = 0 };

static const struct trial_kind kinds[] = {
    [EXPERTS] = {ATSI_OP_MATMUL_ID, true, experts, break_slots},
    {ATSI_OP_EMBED, true, embed, NULL},
    {ATSI_OP_RMS_NORM, false, rms_norm, break_norm},
    {ATSI_OP_MATMUL, true, matmul, NULL},
    {ATSI_OP_ROPE_TABLE, false, rope_table, NULL},
    {ATSI_OP_ROPE, false, rope, break_rope},
    {ATSI_OP_SWIGLU, false, swiglu, break_swiglu},
    {ATSI_OP_SWIGLU, false, swiglu, break_swiglu},
    {ATSI_OP_ADD, false, add, NULL},
    {ATSI_OP_GATE, false, gate, break_gate},
    {ATSI_OP_REGROUP, false, regroup, break_regroup},
    {ATSI_OP_TOPK, false, topk, break_slots},
    {ATSI_OP_MOE_SUM, false, moe_sum, break_slots},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static void each_operation_is_its_kernels_row_by_row(void **state)
{
    (void)state;
    for (uint64_t seed = 3; seed < 6; seed++) {
        trial_seed(seed);
        trials_run(kinds, N_KINDS);
    }
}

static void what_disagrees_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 4; seed < 8; seed++) {
        trial_seed(seed);
        trials_break(kinds, N_KINDS);
    }
}

/* ---------------------------------------------------------------- ids out of range */
/* An expert is chosen while the split runs: the run reports it, with one row and with many, on one
 * worker and on several, and writes nothing but the operation's own result. */
static void unknown_experts_are_reported(void **state)
{
    static const int32_t ids[] = {-1, INT32_MIN, INT32_MAX, 6};
    (void)state;
    for (uint32_t workers = 1; workers <= 3; workers += 2)
        for (uint32_t rows = 1; rows <= 5; rows += 4)
            for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
                struct atsi_err err = ATSI_ERR_INIT;
                struct fixture f;
                struct trial t;
                const struct atsi_op *op = &t.op;
                trial_seed(5);
                fixture_open(&f, workers);
                trial_open(&t, &kinds[EXPERTS], ATSI_TYPE_Q8_0, rows);
                assert_int_equal(op->kind, ATSI_OP_MATMUL_ID);
                ints(op->src[1])[rows * op->p.moe.n_used - 1] = ids[i];
                assert_true(op->weight[0]->ne[2] <= 6);
                assert_int_equal(fixture_run(&f, &op, 1, &err), ATSI_EINVAL);
                assert_true(err.msg[0] != '\0');
                assert_memory_equal(floats(op->dst[0]) + rows * op->dst[0]->ne[0],
                                    t.want[0] + rows * op->dst[0]->ne[0],
                                    (size_t)op->dst[0]->row_bytes);
                trial_close(&t);
                fixture_close(&f);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_operation_is_its_kernels_row_by_row),
        cmocka_unit_test(what_disagrees_is_refused_and_changes_nothing),
        cmocka_unit_test(unknown_experts_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
