/* SPDX-License-Identifier: Apache-2.0
 * Trials of the CUDA plugin's matrix products. */
#include "tests/cuda/product_trial.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "panel/pack.h"
#include "ref_block.h"

const uint32_t product_types[16] = {
    ATSI_TYPE_F32,  ATSI_TYPE_F16,    ATSI_TYPE_BF16,   ATSI_TYPE_Q4_0,
    ATSI_TYPE_Q4_1, ATSI_TYPE_Q5_0,   ATSI_TYPE_Q5_1,   ATSI_TYPE_Q8_0,
    ATSI_TYPE_Q2_K, ATSI_TYPE_Q3_K,   ATSI_TYPE_Q4_K,   ATSI_TYPE_Q5_K,
    ATSI_TYPE_Q6_K, ATSI_TYPE_IQ4_NL, ATSI_TYPE_IQ4_XS, ATSI_TYPE_MXFP4};

static const struct cuda_device fast_device = {0, 80, 4, 99 << 10, true};
static const struct cuda_device old_device = {0, 75, 4, 64 << 10, false};
const struct cuda_device product_device = {0, 80, 4, 99 << 10, false};
cudaStream_t product_stream;
static struct cpu_kernels ref;

static const struct cuda_device *device_of(const struct product *p)
{
    return p->fast_half ? &fast_device : p->old ? &old_device : &product_device;
}

static void good(cudaError_t e)
{
    if (e != cudaSuccess)
        fail_msg("%s: %s", cudaGetErrorName(e), cudaGetErrorString(e));
}

int product_setup(void **state)
{
    (void)state;
    cpu_ref_kernels(&ref);
    good(cudaStreamCreateWithFlags(&product_stream, cudaStreamNonBlocking));
    return 0;
}

int product_teardown(void **state)
{
    (void)state;
    good(cudaStreamDestroy(product_stream));
    return 0;
}

static void *memory(size_t bytes)
{
    void *p = calloc(1, bytes + 1);
    assert_non_null(p);
    return p;
}

/* Device memory of exactly that size, `shift` bytes from an aligned address. */
static void *device_copy(const void *from, size_t bytes, uint32_t shift)
{
    unsigned char *p;
    good(cudaMalloc((void **)&p, bytes + shift));
    good(cudaMemcpyAsync(p + shift, from, bytes, cudaMemcpyHostToDevice, product_stream));
    good(cudaStreamSynchronize(product_stream));
    return p + shift;
}

static void device_free(void *p, uint32_t shift)
{
    if (p != NULL)
        good(cudaFree((unsigned char *)p - shift));
}

/* ---------------------------------------------------------------- an operation */

static bool is_float(uint32_t type)
{
    return atsi_type_info(type)->block_elems == 1;
}

static struct atsi_tensor tensor(uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t ne2,
                                 void *data)
{
    uint32_t n_dims = ne2 > 1 ? 3 : 2;
    return (struct atsi_tensor){sizeof(struct atsi_tensor),
                                type,
                                ATSI_LAYOUT_ROWS,
                                n_dims,
                                {ne0, ne1, ne2, 1},
                                atsi_row_bytes(type, ne0),
                                data,
                                "t"};
}

static uint64_t matrices(const struct product *p)
{
    return p->n_expert != 0 ? p->n_expert : 1;
}

static void make_weight(struct product_trial *t)
{
    const struct product *p = &t->p;
    uint64_t row = atsi_row_bytes(p->type, p->k), bytes = row * p->rows * matrices(p);
    t->w = memory(bytes);
    ck_fill_weights(&t->ck, p->type, p->mode, t->w, (size_t)p->k * p->rows * matrices(p));
    t->t[0] = tensor(p->type, p->k, p->rows, matrices(p), NULL);
    t->t[0].layout = p->layout;
    if (p->layout == ATSI_LAYOUT_PANELS) {
        struct atsi_panel_matrix m = {p->type, p->k, p->rows, matrices(p)};
        void *packed = memory(bytes);
        atsi_panel_convert(&m, 0, atsi_panel_parts(&m), 0, t->w, packed);
        t->dev_w = device_copy(packed, bytes, p->shift);
        free(packed);
    } else {
        t->dev_w = device_copy(t->w, bytes, p->shift);
    }
    t->t[0].data = t->dev_w;
}

/* Ids of every kind, a few of them out of range. */
static void make_ids(struct product_trial *t)
{
    static const int32_t odd[] = {-1, INT32_MIN, INT32_MAX};
    t->ids = memory(t->n_tok * sizeof *t->ids);
    for (uint64_t i = 0; i < t->n_tok; i++) {
        uint64_t r = ck_random(&t->ck);
        t->ids[i] = (int32_t)(r % t->p.n_expert);
        if (r >> 32 & 1) /* one is liked more than others */
            t->ids[i] = (int32_t)(t->p.n_expert - 1);
        if ((r >> 33) % 16 == 0)
            t->ids[i] = (r >> 40) % 4 == 0 ? (int32_t)t->p.n_expert : odd[(r >> 40) % 3];
    }
    t->dev_ids = device_copy(t->ids, t->n_tok * sizeof *t->ids, 0);
    t->t[3] = tensor(ATSI_TYPE_I32, t->p.used, t->p.n_rows, 1, t->dev_ids);
    t->op.src[1] = &t->t[3];
    t->op.p.moe.n_used = t->p.used;
}

static void make_bias(struct product_trial *t)
{
    size_t n = (size_t)t->p.rows * matrices(&t->p);
    t->bias = memory(n * sizeof *t->bias);
    ck_fill_floats(&t->ck, CK_EXACT, t->bias, n);
    t->dev_bias = device_copy(t->bias, n * sizeof *t->bias, 0);
    t->t[4] = tensor(ATSI_TYPE_F32, t->p.rows, matrices(&t->p), 1, t->dev_bias);
    t->op.weight[1] = &t->t[4];
}

static void make_rows(struct product_trial *t)
{
    const struct product *p = &t->p;
    size_t n = (size_t)t->x_rows * p->k;
    uint32_t per_row = p->n_expert != 0 ? p->used : 1;
    t->x = memory(n * sizeof *t->x);
    ck_fill_floats(&t->ck, p->mode, t->x, n);
    if (p->mode == CK_EXACT) /* scales of rounded activations are 1 and -1 then */
        for (size_t i = 0; i < n; i += 32)
            t->x[i] = 127.0F;
    t->dev_x = device_copy(t->x, n * sizeof *t->x, 0);
    t->t[1] =
        tensor(ATSI_TYPE_F32, (uint64_t)p->k * (p->per_slot ? per_row : 1), p->n_rows, 1, t->dev_x);
    t->y_bytes = (size_t)t->n_tok * p->rows * sizeof(float);
    t->y = memory(t->y_bytes);
    memset(t->y, 0xff, t->y_bytes);
    t->dev_y = device_copy(t->y, t->y_bytes, 0);
    t->t[2] = tensor(ATSI_TYPE_F32, (uint64_t)p->rows * per_row, p->n_rows, 1, t->dev_y);
}

const struct cuda_op *product_kernel(const struct product_trial *t)
{
    return t->p.n_expert != 0 ? &cuda_op_matmul_id : &cuda_op_matmul;
}

void product_open(struct product_trial *t, const struct product *p, uint64_t seed)
{
    *t = (struct product_trial){.p = *p, .ck.random = seed};
    t->n_tok = (uint64_t)p->n_rows * (p->n_expert != 0 ? p->used : 1);
    t->x_rows = p->per_slot ? t->n_tok : p->n_rows;
    t->op = (struct atsi_op){.struct_size = sizeof t->op,
                             .kind = p->n_expert != 0 ? ATSI_OP_MATMUL_ID : ATSI_OP_MATMUL,
                             .flags = p->exact ? ATSI_OP_EXACT : 0,
                             .n_rows = p->n_rows};
    make_weight(t);
    make_rows(t);
    if (p->n_expert != 0)
        make_ids(t);
    if (p->bias)
        make_bias(t);
    t->op.src[0] = &t->t[1];
    t->op.weight[0] = &t->t[0];
    t->op.dst[0] = &t->t[2];
    assert_true(product_kernel(t)->supports(&product_device, &t->op));
    t->scratch_bytes = product_kernel(t)->scratch(device_of(&t->p), &t->op);
    if (t->scratch_bytes != 0)
        good(cudaMalloc(&t->dev_scratch, t->scratch_bytes));
}

void product_close(struct product_trial *t)
{
    device_free(t->dev_w, t->p.shift);
    device_free(t->dev_x, 0);
    device_free(t->dev_y, 0);
    device_free(t->dev_ids, 0);
    device_free(t->dev_bias, 0);
    device_free(t->dev_scratch, 0);
    free(t->w);
    free(t->x);
    free(t->y);
    free(t->ids);
    free(t->bias);
}

static void send(void *to, const void *from, size_t bytes)
{
    good(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, product_stream));
    good(cudaStreamSynchronize(product_stream));
}

void product_send_x(struct product_trial *t)
{
    send(t->dev_x, t->x, (size_t)t->x_rows * t->p.k * sizeof *t->x);
}

void product_send_ids(struct product_trial *t)
{
    send(t->dev_ids, t->ids, t->n_tok * sizeof *t->ids);
}

void product_run(struct product_trial *t)
{
    struct cuda_launch l = {.stream = product_stream,
                            .dev = device_of(&t->p),
                            .scratch = t->dev_scratch,
                            .scratch_bytes = t->scratch_bytes,
                            .rounded = &t->rounded};
    memset(t->y, 0xff, t->y_bytes);
    send(t->dev_y, t->y, t->y_bytes);
    good(product_kernel(t)->launch(&l, &t->op));
    good(cudaMemcpyAsync(t->y, t->dev_y, t->y_bytes, cudaMemcpyDeviceToHost, product_stream));
    good(cudaStreamSynchronize(product_stream));
}

/* ---------------------------------------------------------------- what is right */

struct expected {
    double value, sum_abs, tiny;
};

static uint32_t act_block(const struct product *p)
{
    static const uint32_t block[] = {0, 32, 256};
    return p->exact ? 0 : block[atsi_type_info(p->type)->act];
}

static void add_term(struct expected *e, double scale, double sum)
{
    e->value += scale * sum;
    e->sum_abs += fabs(scale * sum);
    e->tiny += fabs(sum);
}

/* A block times rounded activations, in runs of 16. */
static void add_block(struct expected *e, const struct ref_block *b, const int8_t *q, float dx)
{
    for (uint32_t i = 0; i < b->n; i += 16) {
        int32_t dot = 0, sum = 0, g = (int32_t)(i / b->sub);
        for (uint32_t j = i; j < i + 16; j++) {
            dot += b->q[j] * q[j];
            sum += q[j];
        }
        add_term(e, (double)b->d * dx, (double)b->sc[g] * dot);
        add_term(e, -(double)b->dmin * dx, (double)b->mn[g] * sum);
    }
}

static struct expected rounded_product(const struct product *p, const unsigned char *row,
                                       const struct cpu_act *act)
{
    const struct atsi_type_info *ti = atsi_type_info(p->type);
    struct expected e = {0, 0, 0};
    for (uint32_t i = 0; i < p->k / ti->block_elems; i++) {
        struct ref_block b;
        ref_decoder(p->type)(row + (size_t)i * ti->block_bytes, &b);
        add_block(&e, &b, act->q + (size_t)i * b.n, act->d[i]);
    }
    return e;
}

static struct expected float_product(const struct product *p, const unsigned char *row,
                                     const float *x, float *values)
{
    struct expected e = {0, 0, 0};
    ref.dequant[p->type](row, values, p->k);
    for (uint32_t i = 0; i < p->k; i++)
        add_term(&e, (double)values[i], (double)x[i]);
    e.tiny = 0; /* products round as subnormals once each: part of the chain */
    return e;
}

/* The longest chain of additions: of slots (gemv.cuh), or of all blocks or columns in order. */
static double chain_of(const struct product *p)
{
    uint32_t unit = is_float(p->type) ? 8 : 32, slots = p->k >= 4096 ? 64 : 32;
    double per_slot = (double)(p->k / unit / slots + 1);
    bool floats = is_float(p->type) || p->exact;
    if (p->n_rows <= 8 || (p->exact && !is_float(p->type)))
        return (floats ? unit : 2) * per_slot + 8;
    return floats ? p->k : 2.0 * p->k / (atsi_type_info(p->type)->block_elems == 32 ? 32 : 16) + 2;
}

static double bound_of(const struct product *p, const struct expected *e)
{
    double c = chain_of(p);
    if (p->n_rows > 8 && p->k % 8 == 0) /* halves: what two terms leave out, or one */
        c += p->type == ATSI_TYPE_F16    ? (p->fast_half ? 8192 : 8)
             : p->type == ATSI_TYPE_BF16 ? (p->fast_half ? 65536 : 256)
                                         : 0;
    if (p->mode == CK_EXACT && e->sum_abs < 16777216.0)
        return 0;
    return (c + 4) * CK_U * e->sum_abs + (c + e->tiny) * CK_TINY;
}

/* Rounded by the reference. */
static struct cpu_act round_row(const struct product *p, const float *x, void *room)
{
    unsigned char *at = room;
    struct cpu_act act = {.k = p->k, .n_tok = 1, .block = act_block(p), .q = (int8_t *)at};
    act.d = (float *)(void *)(at + (p->k + 63) / 64 * 64);
    act.bsum = (int16_t *)(void *)(act.d + p->k / 32);
    if (act.block == 32)
        ref.quant_32(x, &act, 0);
    else if (act.block == 256)
        ref.quant_256(x, &act, 0);
    return act;
}

static void check_element(struct product_trial *t, uint64_t tok, uint32_t r,
                          const struct expected *e, float bias)
{
    const struct product *p = &t->p;
    double want = e->value + (double)bias, bound = bound_of(p, e);
    float got = t->y[tok * p->rows + r];
    if (bias != 0 && bound > 0)
        bound += CK_U * (e->sum_abs + fabs((double)bias)) * 2;
    if (!(fabs((double)got - want) <= bound))
        fail_msg("%s %s k %u rows %u: token %llu of %llu row %u: %.9g, want %.9g, error %.3g > "
                 "%.3g (%s)",
                 atsi_type_info(p->type)->name, p->layout != 0 ? "panels" : "rows", p->k, p->rows,
                 (unsigned long long)tok, (unsigned long long)t->n_tok, r, (double)got, want,
                 fabs((double)got - want), bound, ck_mode_name[p->mode]);
}

static void check_zero(const struct product_trial *t, uint64_t tok)
{
    for (uint32_t r = 0; r < t->p.rows; r++)
        if (t->y[tok * t->p.rows + r] != 0)
            fail_msg("slot %llu of id %d, row %u: %g instead of 0", (unsigned long long)tok,
                     t->ids[tok], r, (double)t->y[tok * t->p.rows + r]);
}

void product_check(struct product_trial *t)
{
    const struct product *p = &t->p;
    uint64_t row_bytes = atsi_row_bytes(p->type, p->k), matrix = row_bytes * p->rows;
    void *room = memory((size_t)p->k * 8 + 256);
    float *values = memory(p->k * sizeof *values);
    for (uint64_t tok = 0; tok < t->n_tok; tok++) {
        const float *x = t->x + tok / (t->n_tok / t->x_rows) * p->k;
        uint64_t expert = p->n_expert != 0 ? (uint32_t)t->ids[tok] : 0;
        struct cpu_act act = round_row(p, x, room);
        if (expert >= matrices(p)) {
            check_zero(t, tok);
            continue;
        }
        for (uint32_t r = 0; r < p->rows; r++) {
            const unsigned char *row = t->w + expert * matrix + r * row_bytes;
            struct expected e =
                act.block != 0 ? rounded_product(p, row, &act) : float_product(p, row, x, values);
            check_element(t, tok, r, &e, p->bias ? t->bias[expert * p->rows + r] : 0);
        }
    }
    free(room);
    free(values);
}

void product_try(const struct product *p, uint64_t seed)
{
    struct product_trial t;
    product_open(&t, p, seed);
    product_run(&t);
    product_check(&t);
    product_close(&t);
}
