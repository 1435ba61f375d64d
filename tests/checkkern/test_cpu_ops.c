/* SPDX-License-Identifier: Apache-2.0
 *
 * Each operation of the CPU backend, on random shapes and any number of workers, against kernels
 * called directly and row by row: strides, offsets, roles of operands and parameters are those that
 * op.h states.  The same kernels run on both sides, so results must be equal to the bit.  Every
 * operation that is accepted is then broken in every way its shapes can be, and must be refused
 * with its results untouched.
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

#define MAX_TENSORS 10
enum { CTX = 24 };

/* An operation, its tensors, and what its results must be. */
struct trial {
    struct atsi_op op;
    struct atsi_tensor t[MAX_TENSORS];
    uint32_t n_t, rows;
    struct atsi_kv kv;
    float *want[2]; /* ids as bits */
};

static struct cpu_kernels k;
static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % n);
}

static struct atsi_tensor *tensor(struct trial *t, uint32_t type, uint64_t ne0, uint64_t ne1,
                                  uint64_t ne2)
{
    t->t[t->n_t] = tensor_new(type, ne0, ne1, ne2);
    return &t->t[t->n_t++];
}

/* Room for one more row than the operation has. */
static struct atsi_tensor *activations(struct trial *t, uint64_t width)
{
    return tensor(t, ATSI_TYPE_F32, width, t->rows + 1, 1);
}

static struct atsi_tensor *result(struct trial *t, int i, uint32_t type, uint64_t width)
{
    size_t n = (size_t)width * (t->rows + 1);
    struct atsi_tensor *y = tensor(t, type, width, t->rows + 1, 1);
    memset(y->data, 0xff, n * 4);
    t->want[i] = malloc(n * 4);
    assert_non_null(t->want[i]);
    memset(t->want[i], 0xff, n * 4); /* the spare row stays as it is */
    t->op.dst[i] = y;
    return y;
}

static void trial_close(struct trial *t)
{
    for (uint32_t i = 0; i < t->n_t; i++)
        tensor_free(&t->t[i]);
    free(t->want[0]);
    free(t->want[1]);
}

/* ---------------------------------------------------------------- what is expected */
static void embed(struct trial *t, uint32_t type)
{
    uint32_t d = 256 * (1 + below(3)), n = 5 + below(30);
    struct atsi_tensor *ids = tensor(t, ATSI_TYPE_I32, 1, t->rows + 1, 1);
    struct atsi_tensor *w = tensor(t, type, d, n, 1);
    t->op.src[0] = ids;
    t->op.weight[0] = w;
    (void)result(t, 0, ATSI_TYPE_F32, d);
    for (uint32_t r = 0; r < t->rows; r++) {
        ints(ids)[r] = (int32_t)(r == 0 ? n - 1 : below(n));
        k.dequant[type]((unsigned char *)w->data + (size_t)ints(ids)[r] * w->row_bytes,
                        t->want[0] + (size_t)r * d, d);
    }
}

static void rms_norm(struct trial *t, uint32_t type)
{
    uint32_t n = 16 + below(200), parts = 1 + below(4);
    struct atsi_tensor *x = activations(t, (uint64_t)n * parts);
    struct atsi_tensor *w = tensor(t, type, n, 1, 1);
    t->op.src[0] = x;
    t->op.weight[0] = w;
    t->op.p.norm.eps = 0.01F;
    (void)result(t, 0, ATSI_TYPE_F32, (uint64_t)n * parts);
    for (uint32_t u = 0; u < t->rows * parts; u++)
        k.rms_norm(floats(x) + (size_t)u * n, floats(w), t->want[0] + (size_t)u * n, n, 0.01F);
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
    struct atsi_tensor *x = activations(t, in), *w = tensor(t, type, in, out, 1);
    struct atsi_tensor *bias = below(2) == 0 ? tensor(t, ATSI_TYPE_F32, out, 1, 1) : NULL;
    t->op.flags = below(3) == 0 ? ATSI_OP_EXACT : 0;
    t->op.src[0] = x;
    t->op.weight[0] = w;
    t->op.weight[1] = bias;
    (void)result(t, 0, ATSI_TYPE_F32, out);
    for (uint32_t r = 0; r < t->rows; r++)
        product(type, w->data, in, out, floats(x) + (size_t)r * in, t->op.flags != 0,
                bias != NULL ? floats(bias) : NULL, t->want[0] + (size_t)r * out);
}

static void experts(struct trial *t, uint32_t type)
{
    uint32_t in = 256, out = 1 + below(40), n = 1 + below(6), used = 1 + below(3);
    bool per_slot = below(2) == 0;
    struct atsi_tensor *x = activations(t, (uint64_t)in * (per_slot ? used : 1));
    struct atsi_tensor *w = tensor(t, type, in, out, n);
    struct atsi_tensor *bias = below(2) == 0 ? tensor(t, ATSI_TYPE_F32, out, n, 1) : NULL;
    struct atsi_tensor *ids = tensor(t, ATSI_TYPE_I32, used, t->rows + 1, 1);
    t->op.flags = below(3) == 0 ? ATSI_OP_EXACT : 0;
    t->op.p.moe.n_used = used;
    t->op.src[0] = x;
    t->op.src[1] = ids;
    t->op.weight[0] = w;
    t->op.weight[1] = bias;
    (void)result(t, 0, ATSI_TYPE_F32, (uint64_t)used * out);
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
    struct atsi_tensor *pos = tensor(t, ATSI_TYPE_I32, 1, t->rows + 1, 1);
    struct atsi_tensor *freq = tensor(t, type, half, 1, 1);
    t->op.src[0] = pos;
    t->op.weight[0] = freq;
    t->op.p.rope.magnitude = 1.5F;
    (void)result(t, 0, ATSI_TYPE_F32, (uint64_t)2 * half);
    for (uint32_t r = 0; r < t->rows; r++) {
        ints(pos)[r] = (int32_t)below(100000);
        for (uint32_t i = 0; i < half; i++) {
            double angle = (double)ints(pos)[r] * (double)floats(freq)[i];
            t->want[0][(size_t)r * 2 * half + i] = (float)cos(angle) * 1.5F;
            t->want[0][(size_t)r * 2 * half + half + i] = (float)sin(angle) * 1.5F;
        }
    }
}

static void rope(struct trial *t, uint32_t type)
{
    uint32_t heads = 1 + below(6), n_rot = 2 + 2 * below(20), dim = n_rot + below(20);
    size_t row = (size_t)heads * dim;
    struct atsi_tensor *x = tensor(t, type, row, t->rows + 1, 1), *cs = activations(t, n_rot);
    t->op.p.rope.n_head = heads;
    t->op.p.rope.head_dim = dim;
    t->op.p.rope.n_rot = n_rot;
    t->op.p.rope.mode = below(2);
    t->op.src[0] = x;
    t->op.src[1] = cs;
    (void)result(t, 0, ATSI_TYPE_F32, row);
    for (uint32_t r = 0; r < t->rows; r++)
        k.rope(floats(x) + r * row, floats(cs) + (size_t)r * n_rot, t->want[0] + r * row, heads,
               dim, n_rot, t->op.p.rope.mode);
    if (below(2) == 0) { /* in place */
        memcpy(t->op.dst[0]->data, x->data, t->rows * row * sizeof(float));
        t->op.src[0] = t->op.dst[0];
    }
}

static void pair(struct trial *t, uint32_t type)
{
    uint32_t n = 1 + below(300);
    struct atsi_tensor *a = tensor(t, type, n, t->rows + 1, 1), *b = activations(t, n);
    t->op.src[0] = a;
    t->op.src[1] = b;
    (void)result(t, 0, ATSI_TYPE_F32, n);
    for (uint32_t r = 0; r < t->rows; r++)
        (t->op.kind == ATSI_OP_ADD ? k.add : k.swiglu)(
            floats(a) + (size_t)r * n, floats(b) + (size_t)r * n, t->want[0] + (size_t)r * n, n);
    if (below(2) == 0) { /* in place */
        memcpy(t->op.dst[0]->data, a->data, (size_t)t->rows * n * sizeof(float));
        t->op.src[0] = t->op.dst[0];
    }
}

static void topk(struct trial *t, uint32_t type)
{
    uint32_t n = 1 + below(70), used = 1 + below(n < 9 ? n : 9);
    struct atsi_tensor *x = tensor(t, type, n, t->rows + 1, 1);
    t->op.p.moe.n_used = used;
    t->op.src[0] = x;
    (void)result(t, 0, ATSI_TYPE_I32, used);
    (void)result(t, 1, ATSI_TYPE_F32, used);
    for (uint32_t r = 0; r < t->rows; r++)
        k.topk(floats(x) + (size_t)r * n, n, used,
               (int32_t *)(void *)(t->want[0] + (size_t)r * used), t->want[1] + (size_t)r * used);
}

static void moe_sum(struct trial *t, uint32_t type)
{
    uint32_t n = 1 + below(100), used = 1 + below(4);
    struct atsi_tensor *x = tensor(t, type, (uint64_t)n * used, t->rows + 1, 1);
    struct atsi_tensor *p = activations(t, used);
    t->op.p.moe.n_used = used;
    t->op.src[0] = x;
    t->op.src[1] = p;
    (void)result(t, 0, ATSI_TYPE_F32, n);
    for (size_t r = 0; r < t->rows; r++)
        for (size_t i = 0; i < n; i++) {
            float sum = 0;
            for (size_t j = 0; j < used; j++)
                sum += floats(p)[r * used + j] * floats(x)[(r * used + j) * n + i];
            t->want[0][r * n + i] = sum;
        }
}

/* The cache as op.h lays it out, [head][cell][dim], brought up to date by hand. */
static void cache_by_hand(const struct trial *t, uint32_t type, unsigned char *cache,
                          const struct atsi_tensor *x, uint32_t dim, uint32_t first)
{
    size_t row = (size_t)atsi_row_bytes(type, dim);
    for (uint32_t r = 0; r < t->rows; r++)
        for (uint32_t h = 0; h < t->kv.n_head_kv; h++)
            for (uint32_t i = 0; i < dim; i++) {
                float f = floats(x)[((size_t)r * t->kv.n_head_kv + h) * dim + i];
                uint16_t half = atsi_f32_to_f16(f);
                unsigned char *cell = cache + ((size_t)h * CTX + first + r) * row;
                if (type == ATSI_TYPE_F16)
                    memcpy(cell + (size_t)2 * i, &half, 2);
                else
                    memcpy(cell + (size_t)4 * i, &f, 4);
            }
}

static void attend(const struct trial *t, const unsigned char *keys, const unsigned char *values,
                   uint32_t first)
{
    uint32_t dk = t->kv.head_dim_k, dv = t->kv.head_dim_v, heads = t->op.p.attn.n_head;
    uint32_t group = heads / t->kv.n_head_kv;
    float score[CTX + 16];
    for (uint32_t r = 0; r < t->rows; r++)
        for (uint32_t h = 0; h < heads; h++) {
            size_t head = (size_t)(h / group) * CTX;
            struct cpu_attn_args a = {.n_q = 1,
                                      .dk = dk,
                                      .dv = dv,
                                      .n_kv = first + r + 1,
                                      .type_k = t->kv.type_k,
                                      .type_v = t->kv.type_v,
                                      .scale = t->op.p.attn.scale,
                                      .q = floats(t->op.src[0]) + ((size_t)r * heads + h) * dk,
                                      .k = keys + head * (size_t)atsi_row_bytes(t->kv.type_k, dk),
                                      .v = values + head * (size_t)atsi_row_bytes(t->kv.type_v, dv),
                                      .out = t->want[0] + ((size_t)r * heads + h) * dv,
                                      .score = score};
            k.attn(&a);
        }
}

static void attn(struct trial *t, uint32_t type)
{
    uint32_t hkv = 1 + below(3), heads = hkv * (1 + below(4));
    uint32_t dk = 8 + below(40), dv = 8 + below(40), first = below(CTX - t->rows + 1);
    uint32_t type_k = below(2) == 0 ? ATSI_TYPE_F16 : ATSI_TYPE_F32;
    uint32_t type_v = below(2) == 0 ? ATSI_TYPE_F16 : ATSI_TYPE_F32;
    struct atsi_tensor *keys = tensor(t, type_k, dk, (uint64_t)hkv * CTX, 1);
    struct atsi_tensor *values = tensor(t, type_v, dv, (uint64_t)hkv * CTX, 1);
    struct atsi_tensor *pos = tensor(t, ATSI_TYPE_I32, 1, t->rows + 1, 1);
    size_t key_bytes = (size_t)(keys->row_bytes * hkv * CTX);
    size_t value_bytes = (size_t)(values->row_bytes * hkv * CTX);
    unsigned char *key_copy = malloc(key_bytes), *value_copy = malloc(value_bytes);
    assert_non_null(key_copy);
    assert_non_null(value_copy);
    memcpy(key_copy, keys->data, key_bytes);
    memcpy(value_copy, values->data, value_bytes);
    t->kv =
        (struct atsi_kv){sizeof t->kv, type_k, type_v, hkv, dk, dv, CTX, keys->data, values->data};
    t->op.kv = &t->kv;
    t->op.p.attn.n_head = heads;
    t->op.p.attn.n_head_kv = hkv;
    t->op.p.attn.head_dim_k = dk;
    t->op.p.attn.head_dim_v = dv;
    t->op.p.attn.n_kv = first + t->rows;
    t->op.p.attn.scale = 0.3F;
    t->op.src[0] = tensor(t, type, (uint64_t)heads * dk, t->rows + 1, 1);
    t->op.src[1] = activations(t, (uint64_t)hkv * dk);
    t->op.src[2] = activations(t, (uint64_t)hkv * dv);
    t->op.src[3] = pos;
    for (uint32_t r = 0; r < t->rows; r++)
        ints(pos)[r] = (int32_t)(first + r);
    (void)result(t, 0, ATSI_TYPE_F32, (uint64_t)heads * dv);
    cache_by_hand(t, type_k, key_copy, t->op.src[1], dk, first);
    cache_by_hand(t, type_v, value_copy, t->op.src[2], dv, first);
    attend(t, key_copy, value_copy, first);
    free(key_copy);
    free(value_copy);
}

/* ---------------------------------------------------------------- the trials */
static const struct {
    uint32_t kind;
    bool typed; /* for each weight type; else once, with f32 */
    void (*build)(struct trial *t, uint32_t type);
} kinds[] = {
    {ATSI_OP_EMBED, true, embed},      {ATSI_OP_RMS_NORM, false, rms_norm},
    {ATSI_OP_MATMUL, true, matmul},    {ATSI_OP_ROPE_TABLE, false, rope_table},
    {ATSI_OP_ROPE, false, rope},       {ATSI_OP_ATTN, false, attn},
    {ATSI_OP_SWIGLU, false, pair},     {ATSI_OP_ADD, false, pair},
    {ATSI_OP_TOPK, false, topk},       {ATSI_OP_MATMUL_ID, true, experts},
    {ATSI_OP_MOE_SUM, false, moe_sum},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static void trial_open(struct trial *t, size_t kind, uint32_t type, uint32_t rows)
{
    memset(t, 0, sizeof *t);
    t->rows = rows;
    t->op = (struct atsi_op){.struct_size = sizeof t->op, .kind = kinds[kind].kind, .n_rows = rows};
    kinds[kind].build(t, type);
}

static void check_results(const struct trial *t, const char *when)
{
    for (int d = 0; d < 2; d++) {
        const struct atsi_tensor *y = t->op.dst[d];
        size_t n = y != NULL ? (size_t)(y->ne[0] * y->ne[1]) : 0;
        for (size_t i = 0; i < n; i++)
            if (ints(y)[i] != ((const int32_t *)(const void *)t->want[d])[i])
                fail_msg("kind %u type %s, %u rows, %s: result %d [%zu][%zu] = %a, want %a",
                         t->op.kind,
                         t->op.weight[0] != NULL ? atsi_type_info(t->op.weight[0]->type)->name : "",
                         t->rows, when, d, i / (size_t)y->ne[0], i % (size_t)y->ne[0],
                         (double)floats(y)[i], (double)t->want[d][i]);
    }
}

static void each_operation_is_its_kernels_row_by_row(void **state)
{
    static const uint32_t rows[] = {1, 1, 2, 3, 8, 17};
    static const uint32_t workers[] = {1, 2, 4};
    (void)state;
    tensor_seed(3);
    random_state = 3;
    for (size_t w = 0; w < sizeof workers / sizeof workers[0]; w++) {
        struct fixture f;
        fixture_open(&f, workers[w]);
        for (size_t kind = 0; kind < N_KINDS; kind++)
            for (uint32_t type = 0; type < ATSI_TYPE_COUNT; type++)
                for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
                    struct atsi_err err = ATSI_ERR_INIT;
                    struct trial t;
                    const struct atsi_op *op = &t.op;
                    if (kinds[kind].typed ? k.gemm[type] == NULL : type != ATSI_TYPE_F32)
                        continue;
                    trial_open(&t, kind, type, rows[r]);
                    assert_int_equal(cpu_backend_ops.supports(f.be, op), 1);
                    if (fixture_run(&f, &op, 1, &err) != ATSI_OK)
                        fail_msg("kind %u: %s", op->kind, err.msg);
                    check_results(&t, workers[w] == 1 ? "one worker" : "several workers");
                    trial_close(&t);
                }
        fixture_close(&f);
    }
}

/* ---------------------------------------------------------------- breaking them */
static unsigned char *snapshot(const struct trial *t)
{
    size_t total = 0, at = 0;
    unsigned char *copy;
    for (uint32_t i = 0; i < t->n_t; i++)
        total += (size_t)(t->t[i].row_bytes * t->t[i].ne[1] * t->t[i].ne[2]);
    copy = malloc(total + 1);
    assert_non_null(copy);
    for (uint32_t i = 0; i < t->n_t; i++) {
        size_t n = (size_t)(t->t[i].row_bytes * t->t[i].ne[1] * t->t[i].ne[2]);
        memcpy(copy + at, t->t[i].data, n);
        at += n;
    }
    return copy;
}

/* Nothing the operation knows may change: results, cache, sources. */
static void refused(struct fixture *f, const struct trial *t, const struct atsi_op *bad,
                    const char *how, int which)
{
    struct atsi_err err = ATSI_ERR_INIT;
    unsigned char *before = snapshot(t), *after;
    if (cpu_backend_ops.supports(f->be, bad) != 0)
        fail_msg("kind %u with %s %d is supported", bad->kind, how, which);
    assert_int_equal(fixture_run(f, &bad, 1, &err), ATSI_ENOTSUP);
    assert_true(err.msg[0] != '\0');
    after = snapshot(t);
    {
        size_t total = 0;
        for (uint32_t i = 0; i < t->n_t; i++)
            total += (size_t)(t->t[i].row_bytes * t->t[i].ne[1] * t->t[i].ne[2]);
        assert_memory_equal(before, after, total);
    }
    free(before);
    free(after);
}

enum slot { SRC = 0, WEIGHT = 4, DST = 6, N_SLOTS = 8 };

static const struct atsi_tensor **slot_of(struct atsi_op *op, int s)
{
    return s < WEIGHT ? &op->src[s] : s < DST ? &op->weight[s - WEIGHT] : &op->dst[s - DST];
}

static void break_tensor(struct fixture *f, const struct trial *t, int s)
{
    struct atsi_op bad = t->op;
    struct atsi_tensor broken;
    const struct atsi_tensor *good = *slot_of(&bad, s);
    bool weight = s >= WEIGHT && s < DST;
    if (good == NULL)
        return;
    *slot_of(&bad, s) = &broken;
    broken = *good;
    broken.ne[0]++; /* row_bytes, another tensor or whole blocks disagree */
    refused(f, t, &bad, "a longer row in tensor", s);
    broken = *good;
    broken.ne[0] = 0;
    refused(f, t, &bad, "no row in tensor", s);
    broken = *good;
    broken.type = good->type == ATSI_TYPE_F32 ? ATSI_TYPE_F16 : ATSI_TYPE_COUNT;
    refused(f, t, &bad, "another type in tensor", s);
    if (!weight) {
        broken = *good;
        broken.ne[1] = t->rows - 1U;
        refused(f, t, &bad, "too few rows in tensor", s);
        broken = *good;
        broken.layout = 3;
        refused(f, t, &bad, "another layout in tensor", s);
    }
    if (s != WEIGHT + 1) { /* a bias may be absent */
        *slot_of(&bad, s) = NULL;
        refused(f, t, &bad, "no tensor", s);
    }
}

static void break_parameters(struct fixture *f, const struct trial *t)
{
    struct atsi_op bad = t->op;
    bad.n_rows = 0;
    refused(f, t, &bad, "no rows", 0);
    bad = t->op;
    bad.n_rows = t->rows + 2;
    refused(f, t, &bad, "more rows than room", 0);
    bad = t->op;
    bad.flags |= 0x8000U;
    refused(f, t, &bad, "an unknown flag", 0);
    bad = t->op;
    bad.struct_size -= 8;
    refused(f, t, &bad, "a short struct", 0);
    bad = t->op;
    if (bad.kind == ATSI_OP_TOPK || bad.kind == ATSI_OP_MATMUL_ID || bad.kind == ATSI_OP_MOE_SUM) {
        bad.p.moe.n_used++;
        refused(f, t, &bad, "more slots", 0);
        bad.p.moe.n_used = 0;
        refused(f, t, &bad, "no slots", 0);
    } else if (bad.kind == ATSI_OP_ROPE) {
        struct atsi_tensor table = *t->op.src[1]; /* agrees, and fits in the spare row */
        table.ne[0]--;
        table.row_bytes -= 4;
        bad.src[1] = &table;
        bad.p.rope.n_rot--;
        refused(f, t, &bad, "an odd rotation", 0);
        bad = t->op;
        bad.p.rope.mode = 2;
        refused(f, t, &bad, "an unknown mode", 0);
        bad = t->op;
        bad.p.rope.head_dim++;
        refused(f, t, &bad, "wider heads", 0);
    } else if (bad.kind == ATSI_OP_ATTN) {
        bad.p.attn.n_kv = CTX + 1;
        refused(f, t, &bad, "more cells than the cache", 0);
        bad = t->op;
        bad.p.attn.n_head_kv++;
        refused(f, t, &bad, "other heads than the cache", 0);
        bad = t->op;
        bad.kv = NULL;
        refused(f, t, &bad, "no cache", 0);
    }
}

static void what_disagrees_is_refused_and_changes_nothing(void **state)
{
    struct fixture f;
    (void)state;
    tensor_seed(4);
    random_state = 4;
    fixture_open(&f, 2);
    for (int round = 0; round < 4; round++)
        for (size_t kind = 0; kind < N_KINDS; kind++) {
            struct trial t;
            trial_open(&t, kind, kinds[kind].typed ? ATSI_TYPE_Q4_K : ATSI_TYPE_F32,
                       1 + (uint32_t)round);
            for (int s = 0; s < N_SLOTS; s++)
                break_tensor(&f, &t, s);
            break_parameters(&f, &t);
            trial_close(&t);
        }
    fixture_close(&f);
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
                tensor_seed(5);
                random_state = 5;
                fixture_open(&f, workers);
                trial_open(&t, N_KINDS - 2, ATSI_TYPE_Q8_0, rows);
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
    cpu_ref_kernels(&k);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
