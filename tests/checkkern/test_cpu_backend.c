/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend over a kernel table: results do not depend on the number of workers nor on how tokens
 * are grouped, experts equal plain products, exact activations stay exact, and bad input is refused
 * with a message and without touching anything.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend_fixture.h"
#include "panel/pack.h"

/* ---------------------------------------------------------------- one layer of a model */
enum { D = 256, HEADS = 6, KV_HEADS = 2, DIM = 32, FF = 512, EXPERTS = 5, USED = 2, CTX = 64 };
enum { VOCAB = 19, MAX_T = 40 };

/* Weights of a layer with attention and experts, in a mix of types. */
struct layer {
    struct atsi_tensor embed, norm, wq, wk, wv, bias_q, freq, wo, router, gate, up, down, head;
};

enum value {
    V_IDS,
    V_POS,
    V_X,
    V_N,
    V_Q,
    V_K,
    V_V,
    V_CS,
    V_QR,
    V_KR,
    V_A,
    V_O,
    V_X2,
    V_N2,
    V_R,
    V_SEL,
    V_SELW,
    V_G,
    V_U,
    V_H,
    V_DN,
    V_M,
    V_OUT,
    V_LOGITS,
    N_VALUES
};
#define MAX_OPS 24

/* The layer's values and cache for up to MAX_T tokens, and its ops. */
struct pass {
    struct atsi_tensor v[N_VALUES];
    struct atsi_tensor keys, values;
    struct atsi_kv kv;
    struct atsi_op ops[MAX_OPS];
    const struct atsi_op *list[MAX_OPS];
    uint32_t n_ops;
};

static void layer_open(struct layer *l)
{
    tensor_seed(7);
    l->embed = tensor_new(ATSI_TYPE_Q6_K, D, VOCAB, 1);
    l->norm = tensor_new(ATSI_TYPE_F32, D, 1, 1);
    l->wq = tensor_new(ATSI_TYPE_Q4_K, D, (uint64_t)HEADS * DIM, 1);
    l->wk = tensor_new(ATSI_TYPE_Q8_0, D, (uint64_t)KV_HEADS * DIM, 1);
    l->wv = tensor_new(ATSI_TYPE_F16, D, (uint64_t)KV_HEADS * DIM, 1);
    l->bias_q = tensor_new(ATSI_TYPE_F32, (uint64_t)HEADS * DIM, 1, 1);
    l->freq = tensor_new(ATSI_TYPE_F32, DIM / 2, 1, 1);
    l->wo = tensor_new(ATSI_TYPE_Q5_0, (uint64_t)HEADS * DIM, D, 1);
    l->router = tensor_new(ATSI_TYPE_F32, D, EXPERTS, 1);
    l->gate = tensor_new(ATSI_TYPE_Q4_K, D, FF, EXPERTS);
    l->up = tensor_new(ATSI_TYPE_Q4_K, D, FF, EXPERTS);
    l->down = tensor_new(ATSI_TYPE_MXFP4, FF, D, EXPERTS);
    l->head = tensor_new(ATSI_TYPE_BF16, D, VOCAB, 1);
    for (int i = 0; i < DIM / 2; i++)
        floats(&l->freq)[i] = powf(10000.0F, -2.0F * (float)i / DIM);
}

static void layer_close(struct layer *l)
{
    struct atsi_tensor *all[] = {&l->embed,  &l->norm, &l->wq,  &l->wk,     &l->wv,
                                 &l->bias_q, &l->freq, &l->wo,  &l->router, &l->gate,
                                 &l->up,     &l->down, &l->head};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
}

static const uint32_t widths[N_VALUES] = {
    [V_IDS] = 1,
    [V_POS] = 1,
    [V_X] = D,
    [V_N] = D,
    [V_Q] = HEADS * DIM,
    [V_K] = KV_HEADS * DIM,
    [V_V] = KV_HEADS * DIM,
    [V_CS] = DIM,
    [V_QR] = HEADS * DIM,
    [V_KR] = KV_HEADS * DIM,
    [V_A] = HEADS * DIM,
    [V_O] = D,
    [V_X2] = D,
    [V_N2] = D,
    [V_R] = EXPERTS,
    [V_SEL] = USED,
    [V_SELW] = USED,
    [V_G] = USED * FF,
    [V_U] = USED * FF,
    [V_H] = USED * FF,
    [V_DN] = USED * D,
    [V_M] = D,
    [V_OUT] = D,
    [V_LOGITS] = VOCAB,
};

static struct atsi_op *op_of(struct pass *p, uint32_t kind, int dst, int src0, int src1,
                             const struct atsi_tensor *weight)
{
    struct atsi_op *op = &p->ops[p->n_ops];
    *op = (struct atsi_op){.struct_size = sizeof *op,
                           .kind = kind,
                           .src = {&p->v[src0], src1 >= 0 ? &p->v[src1] : NULL},
                           .weight = {weight},
                           .dst = {&p->v[dst]}};
    p->list[p->n_ops++] = op;
    return op;
}

static void rope_of(struct pass *p, int dst, int src, uint32_t n_head)
{
    struct atsi_op *op = op_of(p, ATSI_OP_ROPE, dst, src, V_CS, NULL);
    op->p.rope.n_head = n_head;
    op->p.rope.head_dim = op->p.rope.n_rot = DIM;
    op->p.rope.mode = ATSI_ROPE_HALVES;
}

static void attention_ops(struct pass *p, const struct layer *l)
{
    struct atsi_op *op;
    op_of(p, ATSI_OP_EMBED, V_X, V_IDS, -1, &l->embed);
    op_of(p, ATSI_OP_ROPE_TABLE, V_CS, V_POS, -1, &l->freq)->p.rope.magnitude = 1;
    op_of(p, ATSI_OP_RMS_NORM, V_N, V_X, -1, &l->norm)->p.norm.eps = 1e-5F;
    op_of(p, ATSI_OP_MATMUL, V_Q, V_N, -1, &l->wq)->weight[1] = &l->bias_q;
    op_of(p, ATSI_OP_MATMUL, V_K, V_N, -1, &l->wk);
    op_of(p, ATSI_OP_MATMUL, V_V, V_N, -1, &l->wv);
    rope_of(p, V_QR, V_Q, HEADS);
    rope_of(p, V_KR, V_K, KV_HEADS);
    op = op_of(p, ATSI_OP_ATTN, V_A, V_QR, V_KR, NULL);
    op->src[2] = &p->v[V_V];
    op->src[3] = &p->v[V_POS];
    op->kv = &p->kv;
    op->p.attn.n_head = HEADS;
    op->p.attn.n_head_kv = KV_HEADS;
    op->p.attn.head_dim_k = op->p.attn.head_dim_v = DIM;
    op->p.attn.scale = 0.17F;
    op_of(p, ATSI_OP_MATMUL, V_O, V_A, -1, &l->wo);
    op_of(p, ATSI_OP_ADD, V_X2, V_O, V_X, NULL);
}

static void expert_ops(struct pass *p, const struct layer *l)
{
    op_of(p, ATSI_OP_RMS_NORM, V_N2, V_X2, -1, &l->norm)->p.norm.eps = 1e-5F;
    op_of(p, ATSI_OP_MATMUL, V_R, V_N2, -1, &l->router);
    op_of(p, ATSI_OP_TOPK, V_SEL, V_R, -1, NULL)->dst[1] = &p->v[V_SELW];
    op_of(p, ATSI_OP_MATMUL_ID, V_G, V_N2, V_SEL, &l->gate);
    op_of(p, ATSI_OP_MATMUL_ID, V_U, V_N2, V_SEL, &l->up);
    op_of(p, ATSI_OP_SWIGLU, V_H, V_G, V_U, NULL);
    op_of(p, ATSI_OP_MATMUL_ID, V_DN, V_H, V_SEL, &l->down);
    op_of(p, ATSI_OP_MOE_SUM, V_M, V_DN, V_SELW, NULL);
    op_of(p, ATSI_OP_ADD, V_OUT, V_M, V_X2, NULL);
    op_of(p, ATSI_OP_MATMUL, V_LOGITS, V_OUT, -1, &l->head);
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == ATSI_OP_TOPK || p->ops[i].kind == ATSI_OP_MATMUL_ID ||
            p->ops[i].kind == ATSI_OP_MOE_SUM)
            p->ops[i].p.moe.n_used = USED;
}

static void pass_open(struct pass *p, const struct layer *l)
{
    memset(p, 0, sizeof *p);
    for (int i = 0; i < N_VALUES; i++) {
        bool whole = i == V_IDS || i == V_POS || i == V_SEL;
        p->v[i] = tensor_new(whole ? ATSI_TYPE_I32 : ATSI_TYPE_F32, widths[i], MAX_T, 1);
    }
    p->keys = tensor_new(ATSI_TYPE_F16, DIM, (uint64_t)KV_HEADS * CTX, 1);
    p->values = tensor_new(ATSI_TYPE_F32, DIM, (uint64_t)KV_HEADS * CTX, 1);
    p->kv = (struct atsi_kv){sizeof p->kv, ATSI_TYPE_F16, ATSI_TYPE_F32, KV_HEADS,      DIM,
                             DIM,          CTX,           p->keys.data,  p->values.data};
    attention_ops(p, l);
    expert_ops(p, l);
}

static void pass_close(struct pass *p)
{
    for (int i = 0; i < N_VALUES; i++)
        tensor_free(&p->v[i]);
    tensor_free(&p->keys);
    tensor_free(&p->values);
}

/* Tokens first .. first + n - 1 of a fixed text. */
static void pass_run(struct fixture *f, struct pass *p, uint32_t first, uint32_t n, uint32_t flags)
{
    struct atsi_err err = ATSI_ERR_INIT;
    for (uint32_t t = 0; t < n; t++) {
        ints(&p->v[V_IDS])[t] = (int32_t)((first + t) * 7 % VOCAB);
        ints(&p->v[V_POS])[t] = (int32_t)(first + t);
    }
    for (uint32_t i = 0; i < p->n_ops; i++) {
        bool product = p->ops[i].kind == ATSI_OP_MATMUL || p->ops[i].kind == ATSI_OP_MATMUL_ID;
        p->ops[i].n_rows = n;
        p->ops[i].flags = product ? flags : 0;
        if (p->ops[i].kind == ATSI_OP_ATTN)
            p->ops[i].p.attn.n_kv = first + n;
    }
    if (fixture_run(f, p->list, p->n_ops, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

/* ---------------------------------------------------------------- invariance */
static void same_bits_for_any_number_of_workers(void **state)
{
    static const uint32_t tokens[] = {1, 5, MAX_T};
    struct layer l;
    struct pass one, many;
    (void)state;
    layer_open(&l);
    pass_open(&one, &l);
    pass_open(&many, &l);
    for (uint32_t n_threads = 2; n_threads <= 7; n_threads++)
        for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
            for (uint32_t flags = 0; flags <= ATSI_OP_EXACT; flags++) {
                struct fixture a, b;
                fixture_open(&a, 1);
                fixture_open(&b, n_threads);
                pass_run(&a, &one, 0, tokens[i], flags);
                pass_run(&b, &many, 0, tokens[i], flags);
                for (int v = 0; v < N_VALUES; v++)
                    assert_memory_equal(one.v[v].data, many.v[v].data,
                                        (size_t)tokens[i] * widths[v] * 4);
                fixture_close(&a);
                fixture_close(&b);
            }
    pass_close(&one);
    pass_close(&many);
    layer_close(&l);
}

static void same_bits_for_any_chunks(void **state)
{
    static const uint32_t chunks[] = {1, 3, 7, 16};
    struct layer l;
    struct pass whole, parts;
    struct fixture f;
    (void)state;
    layer_open(&l);
    pass_open(&whole, &l);
    pass_open(&parts, &l);
    fixture_open(&f, 3);
    for (uint32_t flags = 0; flags <= ATSI_OP_EXACT; flags++) {
        pass_run(&f, &whole, 0, MAX_T, flags);
        for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++)
            for (uint32_t at = 0; at < MAX_T; at += chunks[i]) {
                uint32_t n = MAX_T - at < chunks[i] ? MAX_T - at : chunks[i];
                pass_run(&f, &parts, at, n, flags);
                assert_memory_equal(floats(&parts.v[V_LOGITS]),
                                    floats(&whole.v[V_LOGITS]) + (size_t)at * VOCAB,
                                    (size_t)n * VOCAB * sizeof(float));
            }
    }
    fixture_close(&f);
    pass_close(&whole);
    pass_close(&parts);
    layer_close(&l);
}

/* The matrices of a layer in panels; its vectors stay as they are. */
static void layer_pack(struct layer *l)
{
    struct atsi_tensor *all[] = {&l->embed,  &l->wq,   &l->wk, &l->wv,   &l->wo,
                                 &l->router, &l->gate, &l->up, &l->down, &l->head};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct atsi_panel_matrix m = {all[i]->type, all[i]->ne[0], all[i]->ne[1], all[i]->ne[2]};
        struct atsi_tensor rows = *all[i];
        *all[i] = tensor_new(rows.type, rows.ne[0], rows.ne[1], rows.ne[2]);
        all[i]->layout = ATSI_LAYOUT_PANELS;
        atsi_panel_convert(&m, 0, atsi_panel_parts(&m), 0, rows.data, all[i]->data);
        tensor_free(&rows);
    }
}

/* Weights may be packed between two tokens; matrices of 5, 19, 64 .. 512 rows, with experts. */
static void same_bits_for_panels(void **state)
{
    static const uint32_t tokens[] = {1, 5, MAX_T};
    struct layer rows, panels;
    struct pass a, b;
    struct fixture f;
    (void)state;
    layer_open(&rows);
    layer_open(&panels);
    layer_pack(&panels);
    pass_open(&a, &rows);
    pass_open(&b, &panels);
    fixture_open(&f, 3);
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
        for (uint32_t flags = 0; flags <= ATSI_OP_EXACT; flags++) {
            pass_run(&f, &a, 0, tokens[i], flags);
            pass_run(&f, &b, 0, tokens[i], flags);
            for (int v = 0; v < N_VALUES; v++)
                assert_memory_equal(a.v[v].data, b.v[v].data, (size_t)tokens[i] * widths[v] * 4);
        }
    fixture_close(&f);
    pass_close(&a);
    pass_close(&b);
    layer_close(&rows);
    layer_close(&panels);
}

/* ---------------------------------------------------------------- products */
static struct atsi_op product_op(uint32_t kind, const struct atsi_tensor *x,
                                 const struct atsi_tensor *w, const struct atsi_tensor *y,
                                 uint32_t rows)
{
    return (struct atsi_op){.struct_size = sizeof(struct atsi_op),
                            .kind = kind,
                            .n_rows = rows,
                            .src = {x},
                            .weight = {w},
                            .dst = {y}};
}

static void run_one(struct fixture *f, const struct atsi_op *op)
{
    struct atsi_err err = ATSI_ERR_INIT;
    if (fixture_run(f, &op, 1, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

/* Slot j of row t is what MATMUL gives with that expert's matrix and bias, for one input row per
 * token and for one per slot. */
static void experts_equal_plain_products(void **state)
{
    enum { T = 9, K = 3, IN = 64, OUT = 40, E = 4 };
    struct fixture f;
    (void)state;
    fixture_open(&f, 2);
    for (uint32_t per_slot = 0; per_slot < 2; per_slot++)
        for (uint32_t rows = 1; rows <= T; rows += T - 1) {
            uint64_t in = per_slot != 0 ? (uint64_t)K * IN : IN;
            struct atsi_tensor w = tensor_new(ATSI_TYPE_Q5_1, IN, OUT, E);
            struct atsi_tensor bias = tensor_new(ATSI_TYPE_F32, OUT, E, 1);
            struct atsi_tensor x = tensor_new(ATSI_TYPE_F32, in, T, 1);
            struct atsi_tensor ids = tensor_new(ATSI_TYPE_I32, K, T, 1);
            struct atsi_tensor y = tensor_new(ATSI_TYPE_F32, (uint64_t)K * OUT, T, 1);
            struct atsi_tensor want = tensor_new(ATSI_TYPE_F32, OUT, 1, 1);
            struct atsi_op op = product_op(ATSI_OP_MATMUL_ID, &x, &w, &y, rows);
            op.src[1] = &ids;
            op.weight[1] = &bias;
            op.p.moe.n_used = K;
            for (int i = 0; i < T * K; i++)
                ints(&ids)[i] = i * i % E;
            run_one(&f, &op);
            for (uint32_t s = 0; s < rows * K; s++) {
                uint32_t e = (uint32_t)ints(&ids)[s];
                struct atsi_tensor we = w, be = bias, xe = x;
                struct atsi_op plain = product_op(ATSI_OP_MATMUL, &xe, &we, &want, 1);
                we.n_dims = 2;
                we.ne[2] = 1;
                we.data = (char *)w.data + (size_t)e * OUT * w.row_bytes;
                be.n_dims = 1;
                be.ne[1] = 1;
                be.data = floats(&bias) + (size_t)e * OUT;
                xe.ne[0] = IN;
                xe.row_bytes = IN * sizeof(float);
                xe.data = floats(&x) + (size_t)(per_slot != 0 ? s : s / K) * IN;
                plain.weight[1] = &be;
                run_one(&f, &plain);
                assert_memory_equal(floats(&y) + (size_t)s * OUT, want.data, OUT * sizeof(float));
            }
            tensor_free(&w);
            tensor_free(&bias);
            tensor_free(&x);
            tensor_free(&ids);
            tensor_free(&y);
            tensor_free(&want);
        }
    fixture_close(&f);
}

/* With ATSI_OP_EXACT the product is that of the dequantized weights to f32 rounding; without, it
 * carries the rounding of activations. */
static void exact_activations_are_not_rounded(void **state)
{
    enum { IN = 512, OUT = 37, T = 3 };
    static const uint32_t types[] = {ATSI_TYPE_Q4_0, ATSI_TYPE_Q4_K, ATSI_TYPE_Q8_0,
                                     ATSI_TYPE_MXFP4, ATSI_TYPE_F16};
    struct cpu_kernels ref;
    struct fixture f;
    (void)state;
    cpu_ref_kernels(&ref);
    fixture_open(&f, 2);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct atsi_tensor w = tensor_new(types[i], IN, OUT, 1);
        struct atsi_tensor x = tensor_new(ATSI_TYPE_F32, IN, T, 1);
        struct atsi_tensor y = tensor_new(ATSI_TYPE_F32, OUT, T, 1);
        struct atsi_tensor z = tensor_new(ATSI_TYPE_F32, OUT, T, 1);
        struct atsi_op op = product_op(ATSI_OP_MATMUL, &x, &w, &y, T);
        double worst = 0, rounded = 0, size = 0;
        op.flags = ATSI_OP_EXACT;
        run_one(&f, &op);
        op.flags = 0;
        op.dst[0] = &z;
        run_one(&f, &op);
        for (uint32_t r = 0; r < OUT; r++) {
            float row[IN];
            ref.dequant[types[i]]((char *)w.data + r * w.row_bytes, row, IN);
            for (uint32_t t = 0; t < T; t++) {
                double sum = 0;
                for (uint32_t k = 0; k < IN; k++)
                    sum += (double)row[k] * (double)floats(&x)[t * IN + k];
                worst = fmax(worst, fabs((double)floats(&y)[t * OUT + r] - sum));
                rounded = fmax(rounded, fabs((double)floats(&z)[t * OUT + r] - sum));
                size = fmax(size, fabs(sum));
            }
        }
        assert_true(worst < 1e-5 * size);
        if (atsi_type_info(types[i])->act != ATSI_ACT_F32)
            assert_true(rounded > 1e-4 * size);
        tensor_free(&w);
        tensor_free(&x);
        tensor_free(&y);
        tensor_free(&z);
    }
    fixture_close(&f);
}

/* Activations kept from one product to the next must be rounded anew once their source changed, and
 * when the next weight wants another rounding. */
static void kept_activations_are_renewed(void **state)
{
    enum { IN = 256, OUT = 48, T = 4 };
    struct fixture f;
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    fixture_open(&f, 3);
    for (uint32_t rows = 1; rows <= T; rows += T - 1) {
        struct atsi_tensor w32 = tensor_new(ATSI_TYPE_Q8_0, IN, OUT, 1);
        struct atsi_tensor w256 = tensor_new(ATSI_TYPE_Q6_K, IN, OUT, 1);
        struct atsi_tensor a = tensor_new(ATSI_TYPE_F32, IN, T, 1);
        struct atsi_tensor b = tensor_new(ATSI_TYPE_F32, IN, T, 1);
        struct atsi_tensor x = tensor_new(ATSI_TYPE_F32, IN, T, 1);
        struct atsi_tensor y[5];
        struct atsi_op add = product_op(ATSI_OP_ADD, &a, NULL, &x, rows);
        struct atsi_op add2 = product_op(ATSI_OP_ADD, &x, NULL, &x, rows);
        struct atsi_op m[5];
        const struct atsi_op *ops[7] = {&add, &m[0], &m[1], &m[2], &add2, &m[3], &m[4]};
        for (int i = 0; i < 5; i++) {
            y[i] = tensor_new(ATSI_TYPE_F32, OUT, T, 1);
            m[i] = product_op(ATSI_OP_MATMUL, &x, i == 1 || i == 4 ? &w256 : &w32, &y[i], rows);
        }
        add.src[1] = &b;
        add2.src[1] = &b;
        assert_int_equal(fixture_run(&f, ops, 7, &err), ATSI_OK);
        assert_memory_equal(y[0].data, y[2].data, rows * OUT * sizeof(float));
        assert_memory_not_equal(y[0].data, y[3].data, rows * OUT * sizeof(float));
        for (int i = 3; i < 5; i++) { /* alone, from the source as it is now */
            struct atsi_tensor again = tensor_new(ATSI_TYPE_F32, OUT, T, 1);
            struct atsi_op op = m[i];
            op.dst[0] = &again;
            run_one(&f, &op);
            assert_memory_equal(again.data, y[i].data, rows * OUT * sizeof(float));
            tensor_free(&again);
        }
        for (int i = 0; i < 5; i++)
            tensor_free(&y[i]);
        tensor_free(&w32);
        tensor_free(&w256);
        tensor_free(&a);
        tensor_free(&b);
        tensor_free(&x);
    }
    fixture_close(&f);
}

/* ---------------------------------------------------------------- small ops by hand */
static void angles_keep_their_phase_far_away(void **state)
{
    struct fixture f;
    struct atsi_tensor freq = tensor_new(ATSI_TYPE_F32, 2, 1, 1);
    struct atsi_tensor pos = tensor_new(ATSI_TYPE_I32, 1, 2, 1);
    struct atsi_tensor cs = tensor_new(ATSI_TYPE_F32, 4, 2, 1);
    struct atsi_op op = product_op(ATSI_OP_ROPE_TABLE, &pos, &freq, &cs, 2);
    (void)state;
    floats(&freq)[0] = 1;
    floats(&freq)[1] = 0.1F;
    ints(&pos)[0] = 0;
    ints(&pos)[1] = 1000003;
    op.p.rope.magnitude = 2;
    fixture_open(&f, 2);
    run_one(&f, &op);
    assert_float_equal(floats(&cs)[0], 2, 0);
    assert_float_equal(floats(&cs)[2], 0, 0);
    assert_float_equal(floats(&cs)[4], 2 * cos(1000003.0), 1e-6);
    assert_float_equal(floats(&cs)[5], 2 * cos(1000003.0 * (double)0.1F), 1e-6);
    assert_float_equal(floats(&cs)[7], 2 * sin(1000003.0 * (double)0.1F), 1e-6);
    fixture_close(&f);
    tensor_free(&freq);
    tensor_free(&pos);
    tensor_free(&cs);
}

static void weighted_sum_of_experts(void **state)
{
    enum { W = 35, K = 3, T = 2 };
    struct fixture f;
    struct atsi_tensor x = tensor_new(ATSI_TYPE_F32, (uint64_t)K * W, T, 1);
    struct atsi_tensor p = tensor_new(ATSI_TYPE_F32, K, T, 1);
    struct atsi_tensor y = tensor_new(ATSI_TYPE_F32, W, T, 1);
    struct atsi_op op = product_op(ATSI_OP_MOE_SUM, &x, NULL, &y, T);
    (void)state;
    op.src[1] = &p;
    op.p.moe.n_used = K;
    fixture_open(&f, 2);
    for (uint32_t rows = 1; rows <= T; rows++) {
        op.n_rows = rows;
        memset(y.data, 0xff, (size_t)T * W * sizeof(float));
        run_one(&f, &op);
        for (uint32_t i = 0; i < rows * W; i++) {
            double want = 0;
            for (uint32_t j = 0; j < K; j++)
                want += (double)floats(&p)[i / W * K + j] *
                        (double)floats(&x)[(i / W * K + j) * W + i % W];
            assert_float_equal(floats(&y)[i], want, 1e-6);
        }
    }
    fixture_close(&f);
    tensor_free(&x);
    tensor_free(&p);
    tensor_free(&y);
}

/* ---------------------------------------------------------------- bad input */
/* The run fails with `status`, `words` are in the message, and the result stays as it was. */
static void refused(struct fixture *f, const struct atsi_op *op, int status, const char *words)
{
    struct atsi_err err = ATSI_ERR_INIT;
    size_t bytes = op->dst[0] != NULL ? (size_t)(op->dst[0]->row_bytes * op->dst[0]->ne[1]) : 0;
    unsigned char *before = malloc(bytes + 1);
    assert_non_null(before);
    if (bytes > 0)
        memcpy(before, op->dst[0]->data, bytes);
    assert_int_equal(fixture_run(f, &op, 1, &err), status);
    if (strstr(err.msg, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.msg, words);
    if (bytes > 0 && op->kind != ATSI_OP_MATMUL_ID)
        assert_memory_equal(before, op->dst[0]->data, bytes);
    free(before);
}

static void ids_and_positions_are_checked(void **state)
{
    struct layer l;
    struct pass p;
    struct fixture f;
    struct atsi_op *embed, *attn, *experts;
    (void)state;
    layer_open(&l);
    pass_open(&p, &l);
    fixture_open(&f, 2);
    pass_run(&f, &p, 0, 3, 0);
    embed = &p.ops[0];
    ints(&p.v[V_IDS])[2] = VOCAB;
    refused(&f, embed, ATSI_EINVAL, "19");
    ints(&p.v[V_IDS])[2] = -5;
    refused(&f, embed, ATSI_EINVAL, "-5");
    for (attn = p.ops; attn->kind != ATSI_OP_ATTN; attn++)
        ;
    ints(&p.v[V_POS])[1] = CTX + 6;
    refused(&f, attn, ATSI_EINVAL, "70");
    ints(&p.v[V_POS])[1] = -1;
    refused(&f, attn, ATSI_EINVAL, "-1");
    ints(&p.v[V_POS])[1] = 2; /* a gap */
    refused(&f, attn, ATSI_EINVAL, "ascend by one");
    for (experts = p.ops; experts->kind != ATSI_OP_MATMUL_ID; experts++)
        ;
    ints(&p.v[V_SEL])[3] = EXPERTS + 4;
    refused(&f, experts, ATSI_EINVAL, "expert id 9");
    ints(&p.v[V_SEL])[3] = INT32_MIN;
    refused(&f, experts, ATSI_EINVAL, "-2147483648");
    experts->n_rows = 1;
    ints(&p.v[V_SEL])[1] = -1;
    refused(&f, experts, ATSI_EINVAL, "expert id -1");
    fixture_close(&f);
    pass_close(&p);
    layer_close(&l);
}

/* Each change makes a good product or attention one that no kernel computes. */
static void shapes_that_disagree_are_not_supported(void **state)
{
    struct fixture f;
    struct atsi_tensor w = tensor_new(ATSI_TYPE_Q4_K, 512, 32, 1);
    struct atsi_tensor x = tensor_new(ATSI_TYPE_F32, 512, 4, 1);
    struct atsi_tensor y = tensor_new(ATSI_TYPE_F32, 32, 4, 1);
    (void)state;
    fixture_open(&f, 1);
    for (int i = 0; i < 15; i++) {
        struct atsi_tensor w2 = w, x2 = x, y2 = y;
        struct atsi_op op = product_op(ATSI_OP_MATMUL, &x2, &w2, &y2, 4);
        bool good = false;
        switch (i) {
        case 0:
            good = true;
            break;
        case 1:
            w2.type = 9; /* Q8_1 */
            break;
        case 2:
            w2.type = ATSI_TYPE_Q6_K; /* its rows are longer */
            break;
        case 3:
            w2.ne[0] = 500; /* no whole blocks */
            break;
        case 4:
            w2.layout = 7;
            break;
        case 5:
            w2.row_bytes--;
            break;
        case 6:
            x2.ne[0] = 256;
            break;
        case 7:
            x2.ne[1] = 3; /* fewer rows than asked for */
            break;
        case 8:
            y2.ne[0] = 31;
            break;
        case 9:
            y2.type = ATSI_TYPE_F16;
            break;
        case 10:
            op.src[0] = NULL;
            break;
        case 11:
            op.dst[0] = NULL;
            break;
        case 12:
            op.n_rows = 0;
            break;
        case 13:
            op.flags = 0x80; /* unknown to this version */
            break;
        default:
            op.kind = ATSI_OP_COUNT;
            break;
        }
        assert_int_equal(cpu_backend_ops.supports(f.be, &op), good ? 1 : 0);
        if (good)
            run_one(&f, &op);
        else
            refused(&f, &op, ATSI_ENOTSUP, "not supported");
    }
    {
        struct atsi_tensor none = w;
        struct atsi_op op = product_op(ATSI_OP_MATMUL, &x, &none, &y, 4);
        none.data = NULL;
        assert_int_equal(cpu_backend_ops.supports(f.be, &op), 1);
        refused(&f, &op, ATSI_EINVAL, "without data");
    }
    fixture_close(&f);
    tensor_free(&w);
    tensor_free(&x);
    tensor_free(&y);
}

/* ---------------------------------------------------------------- objects */
static void devices_queues_and_events(void **state)
{
    const struct atsi_backend_ops *ops = &cpu_backend_ops;
    struct atsi_tensor a = tensor_new(ATSI_TYPE_F32, 32, 1, 1);
    struct atsi_op add = product_op(ATSI_OP_ADD, &a, NULL, &a, 1);
    const struct atsi_op *list[] = {&add, &add};
    struct atsi_props props = {.struct_size = sizeof props};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_backend *second;
    struct atsi_event *ev, *never;
    struct fixture f;
    uint64_t ns = 0, op_ns[2] = {UINT64_MAX, UINT64_MAX};
    struct atsi_split split = {
        .struct_size = sizeof split, .n_ops = 2, .ops = list, .op_ns = op_ns};
    (void)state;
    add.src[1] = &a;
    fixture_open(&f, 2);
    assert_int_equal(ops->open(&f.host, 1, &second, &err), ATSI_ENODEV);
    assert_null(second);
    assert_int_equal(ops->props(f.be, &props), ATSI_OK);
    assert_string_equal(props.name, "test");
    assert_int_equal(props.device_kind, ATSI_DEVICE_CPU);
    assert_int_equal(ops->event_open(f.be, &ev, &err), ATSI_OK);
    assert_int_equal(ops->event_open(f.be, &never, &err), ATSI_OK);
    split.signal = ev;
    assert_int_equal(ops->event_query(ev), 0);
    assert_int_equal(ops->event_time(ev, &ns), ATSI_EINVAL);
    assert_int_equal(ops->run(f.queue, &split, &err), ATSI_OK);
    assert_int_equal(ops->event_query(ev), 1);
    assert_int_equal(ops->event_wait(ev, 0, &err), ATSI_OK);
    assert_int_equal(ops->event_time(ev, &ns), ATSI_OK);
    assert_true(ns > 0 && op_ns[0] != UINT64_MAX && op_ns[1] != UINT64_MAX);
    split.n_wait = 1;
    split.wait = &ev;
    assert_int_equal(ops->run(f.queue, &split, &err), ATSI_OK);
    split.wait = &never; /* would wait for ever */
    assert_int_equal(ops->run(f.queue, &split, &err), ATSI_EINVAL);
    assert_int_equal(ops->event_wait(never, 0, &err), ATSI_EINVAL);
    f.host.cpu_caps = 0;
    assert_int_equal(ops->probe(&f.host), 0);
    assert_int_equal(ops->open(&f.host, 0, &second, &err), ATSI_ENODEV);
    ops->event_close(ev);
    ops->event_close(never);
    ops->event_close(NULL);
    ops->queue_close(NULL);
    ops->close(NULL);
    fixture_close(&f);
    tensor_free(&a);
}

static void buffers(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, (size_t)5 << 20};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_buf *buf;
    struct fixture f;
    (void)state;
    fixture_open(&f, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(cpu_backend_ops.buf_alloc(f.be, ATSI_MEM_DEVICE, sizes[i], &buf, &err),
                         ATSI_OK);
        assert_int_equal((uintptr_t)cpu_backend_ops.buf_ptr(buf) % 64, 0);
        memset(cpu_backend_ops.buf_ptr(buf), 1, sizes[i]);
        cpu_backend_ops.buf_free(f.be, buf);
    }
    assert_int_equal(cpu_backend_ops.buf_alloc(f.be, ATSI_MEM_DEVICE, SIZE_MAX - 5, &buf, &err),
                     ATSI_ENOMEM);
    assert_null(buf);
    assert_int_equal(cpu_backend_ops.buf_alloc(f.be, (enum atsi_mem)9, 64, &buf, &err),
                     ATSI_EINVAL);
    cpu_backend_ops.buf_free(f.be, NULL);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_for_any_number_of_workers),
        cmocka_unit_test(same_bits_for_any_chunks),
        cmocka_unit_test(same_bits_for_panels),
        cmocka_unit_test(experts_equal_plain_products),
        cmocka_unit_test(exact_activations_are_not_rounded),
        cmocka_unit_test(kept_activations_are_renewed),
        cmocka_unit_test(angles_keep_their_phase_far_away),
        cmocka_unit_test(weighted_sum_of_experts),
        cmocka_unit_test(ids_and_positions_are_checked),
        cmocka_unit_test(shapes_that_disagree_are_not_supported),
        cmocka_unit_test(devices_queues_and_events),
        cmocka_unit_test(buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
