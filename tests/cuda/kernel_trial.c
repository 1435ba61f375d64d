/* SPDX-License-Identifier: Apache-2.0
 * See kernel_trial.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/kernel_trial.h"

static uint64_t random_state;

#define CUDA_OK(call) assert_int_equal((call), cudaSuccess)

int kt_setup(void **state)
{
    static struct kt k;
    fixture_open(&k.ref, 1);
    CUDA_OK(cudaStreamCreateWithFlags(&k.stream, cudaStreamNonBlocking));
    k.dev = (struct cuda_device){.sm = 90, .n_sm = 16, .shared_bytes = 160 << 10};
    *state = &k;
    return 0;
}

int kt_teardown(void **state)
{
    struct kt *k = *state;
    CUDA_OK(cudaStreamDestroy(k->stream));
    fixture_close(&k->ref);
    return 0;
}

/* ---------------------------------------------------------------- numbers */
void kt_seed(uint64_t seed)
{
    random_state = seed;
    tensor_seed(seed);
}

uint32_t kt_below(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % n);
}

float kt_unit(void)
{
    return (float)kt_below(1U << 24) / 8388608.0F - 1.0F;
}

/* ---------------------------------------------------------------- tensors */
void kt_open(struct kt_op *o, uint32_t kind, uint32_t n_rows)
{
    memset(o, 0, sizeof *o);
    o->op = (struct atsi_op){.struct_size = sizeof o->op, .kind = kind, .n_rows = n_rows};
}

void kt_close(struct kt_op *o)
{
    for (uint32_t i = 0; i < o->n_t; i++)
        tensor_free(&o->t[i]);
    free(o->kv.k);
    free(o->kv.v);
}

static size_t bytes_of(const struct atsi_tensor *t)
{
    return (size_t)(t->row_bytes * t->ne[1] * t->ne[2]);
}

struct atsi_tensor *kt_tensor(struct kt_op *o, uint32_t type, uint64_t ne0, uint64_t ne1,
                              uint64_t ne2)
{
    struct atsi_tensor *t = &o->t[o->n_t++];
    assert_true(o->n_t <= KT_TENSORS);
    *t = tensor_new(type, ne0, ne1, ne2);
    for (size_t i = 0; type == ATSI_TYPE_F32 && i < bytes_of(t) / 4; i++)
        floats(t)[i] = kt_unit();
    return t;
}

struct atsi_tensor *kt_rows(struct kt_op *o, uint64_t width)
{
    return kt_tensor(o, ATSI_TYPE_F32, width, o->op.n_rows, 1);
}

void kt_dst(struct kt_op *o, int i, uint32_t type, uint64_t width)
{
    o->op.dst[i] = kt_tensor(o, type, width, o->op.n_rows, 1);
    memset(o->op.dst[i]->data, 0xff, bytes_of(o->op.dst[i]));
}

void kt_state(struct kt_op *o, uint64_t ne0, uint64_t ne1, uint64_t ne2)
{
    o->op.state = kt_tensor(o, ATSI_TYPE_F32, ne0, ne1, ne2);
}

static size_t cache_bytes(const struct atsi_kv *kv, bool keys)
{
    return (size_t)(atsi_row_bytes(keys ? kv->type_k : kv->type_v,
                                   keys ? kv->head_dim_k : kv->head_dim_v) *
                    kv->n_head_kv * kv->n_ctx);
}

static void *all_nan(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(p);
    memset(p, 0xff, bytes);
    return p;
}

void kt_cache(struct kt_op *o, uint32_t type_k, uint32_t type_v, uint32_t n_head, uint32_t dk,
              uint32_t dv, uint32_t n_ctx)
{
    o->kv = (struct atsi_kv){.struct_size = sizeof o->kv,
                             .type_k = type_k,
                             .type_v = type_v,
                             .n_head_kv = n_head,
                             .head_dim_k = dk,
                             .head_dim_v = dv,
                             .n_ctx = n_ctx};
    o->kv.k = all_nan(cache_bytes(&o->kv, true));
    o->kv.v = all_nan(cache_bytes(&o->kv, false));
    o->op.kv = &o->kv;
}

void kt_scale(const struct atsi_tensor *t, float by)
{
    for (size_t i = 0; i < bytes_of(t) / 4; i++)
        floats(t)[i] *= by;
}

/* ---------------------------------------------------------------- running */
/* An operation whose tensors lie in device memory. */
struct mirror {
    struct atsi_op op;
    struct atsi_tensor t[9]; /* src, weight, dst, state */
    struct atsi_kv kv;
    void *scratch;
};

static void *to_device(const void *from, size_t bytes)
{
    void *p = NULL;
    CUDA_OK(cudaMalloc(&p, bytes));
    if (from != NULL)
        CUDA_OK(cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice));
    return p;
}

static void *to_host(const void *from, size_t bytes)
{
    void *p = malloc(bytes);
    assert_non_null(p);
    CUDA_OK(cudaMemcpy(p, from, bytes, cudaMemcpyDeviceToHost));
    return p;
}

static const struct atsi_tensor **slot(struct atsi_op *op, uint32_t i)
{
    return i < 4 ? &op->src[i] : i < 6 ? &op->weight[i - 4] : i < 8 ? &op->dst[i - 6] : &op->state;
}

/* A tensor that occurs twice, as a source and a result, does so on the device. */
static void mirror_tensor(struct mirror *m, const struct atsi_op *op, uint32_t i)
{
    struct atsi_op host = *op;
    const struct atsi_tensor *t = *slot(&host, i);
    if (t == NULL)
        return;
    m->t[i] = *t;
    m->t[i].data = NULL;
    for (uint32_t j = 0; j < i; j++)
        if (*slot(&host, j) == t)
            m->t[i].data = m->t[j].data;
    if (m->t[i].data == NULL)
        m->t[i].data = to_device(i == 6 || i == 7 ? NULL : t->data, bytes_of(t));
    *slot(&m->op, i) = &m->t[i];
}

static void mirror_open(struct mirror *m, const struct kt *k, const struct cuda_op *kernel,
                        const struct atsi_op *op)
{
    size_t scratch;
    memset(m, 0, sizeof *m);
    m->op = *op;
    for (uint32_t i = 0; i < 9; i++)
        mirror_tensor(m, op, i);
    if (op->kv != NULL) {
        m->kv = *op->kv;
        m->kv.k = to_device(op->kv->k, cache_bytes(op->kv, true));
        m->kv.v = to_device(op->kv->v, cache_bytes(op->kv, false));
        m->op.kv = &m->kv;
    }
    scratch = kernel->scratch(&k->dev, op);
    m->scratch = scratch > 0 ? to_device(NULL, scratch) : NULL;
}

static void mirror_close(struct mirror *m)
{
    for (uint32_t i = 0; i < 9; i++) {
        for (uint32_t j = 0; j < i; j++)
            if (m->t[j].data == m->t[i].data)
                m->t[i].data = NULL;
        if (m->t[i].data != NULL)
            CUDA_OK(cudaFree(m->t[i].data));
    }
    CUDA_OK(cudaFree(m->kv.k));
    CUDA_OK(cudaFree(m->kv.v));
    CUDA_OK(cudaFree(m->scratch));
}

struct kt_result kt_device(const struct kt *k, const struct cuda_op *kernel, const struct kt_op *o)
{
    struct kt_result r = {.state = NULL};
    struct cuda_rounded rounded = {.src = NULL};
    struct mirror m;
    struct cuda_launch l = {.stream = k->stream, .dev = &k->dev, .rounded = &rounded};
    assert_int_equal(kernel->kind, o->op.kind);
    assert_int_equal(kernel->supports(&k->dev, &o->op), 1);
    mirror_open(&m, k, kernel, &o->op);
    l.scratch = m.scratch;
    l.scratch_bytes = kernel->scratch(&k->dev, &o->op);
    CUDA_OK(kernel->launch(&l, &m.op));
    CUDA_OK(cudaStreamSynchronize(k->stream));
    for (int i = 0; i < 2; i++)
        if (o->op.dst[i] != NULL)
            r.dst[i] = to_host(m.op.dst[i]->data, bytes_of(o->op.dst[i]));
    if (o->op.state != NULL)
        r.state = to_host(m.op.state->data, bytes_of(o->op.state));
    if (o->op.kv != NULL) {
        r.k = to_host(m.kv.k, cache_bytes(&o->kv, true));
        r.v = to_host(m.kv.v, cache_bytes(&o->kv, false));
    }
    mirror_close(&m);
    return r;
}

void kt_result_free(struct kt_result *r)
{
    free(r->dst[0]);
    free(r->dst[1]);
    free(r->state);
    free(r->k);
    free(r->v);
}

void kt_reference(struct kt *k, const struct kt_op *o)
{
    struct atsi_err err = ATSI_ERR_INIT;
    const struct atsi_op *op = &o->op;
    if (fixture_run(&k->ref, &op, 1, &err) != ATSI_OK)
        fail_msg("kind %u: %s", op->kind, err.msg);
}

/* ---------------------------------------------------------------- comparing */
void kt_same(const void *a, const void *b, size_t n, const char *what)
{
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < n * 4; i++)
        if (x[i] != y[i]) {
            uint32_t p, q;
            float f, g;
            memcpy(&p, x + i / 4 * 4, 4);
            memcpy(&q, y + i / 4 * 4, 4);
            memcpy(&f, &p, 4);
            memcpy(&g, &q, 4);
            fail_msg("%s: element %zu is %08x (%g), want %08x (%g)", what, i / 4, p, (double)f, q,
                     (double)g);
        }
}

/* Infinite and missing numbers must be the same ones. */
static void compare_row(const float *got, const float *want, size_t n, double limit,
                        const char *what, size_t row)
{
    double sq = 0;
    size_t n_finite = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(want[i])) {
            sq += (double)want[i] * (double)want[i];
            n_finite++;
        }
    for (size_t i = 0; i < n; i++) {
        double a = (double)got[i], b = (double)want[i];
        double bound = limit * (fabs(b) + sqrt(sq / (double)(n_finite + 1))) + 1e-44;
        if (isfinite(want[i]) ? !(fabs(a - b) <= bound) : !(isnan(b) ? isnan(a) : a == b))
            fail_msg("%s: row %zu, element %zu is %.9g, want %.9g", what, row, i, a, b);
    }
}

static void compare_tensor(const struct atsi_tensor *want, const void *got, double limit,
                           const char *what)
{
    size_t n = (size_t)want->ne[0];
    if (want->type == ATSI_TYPE_I32) {
        kt_same(got, want->data, bytes_of(want) / 4, what);
        return;
    }
    for (size_t t = 0; t < want->ne[1] * want->ne[2]; t++)
        compare_row((const float *)got + t * n, floats(want) + t * n, n, limit, what, t);
}

void kt_compare(struct kt *k, const struct cuda_op *kernel, const struct kt_op *o, double limit,
                const char *what)
{
    struct kt_result r = kt_device(k, kernel, o);
    kt_reference(k, o);
    for (int i = 0; i < 2; i++)
        if (o->op.dst[i] != NULL)
            compare_tensor(o->op.dst[i], r.dst[i], limit, what);
    if (o->op.state != NULL)
        compare_tensor(o->op.state, r.state, limit, what);
    if (o->op.kv != NULL && (memcmp(r.k, o->kv.k, cache_bytes(&o->kv, true)) != 0 ||
                             memcmp(r.v, o->kv.v, cache_bytes(&o->kv, false)) != 0))
        fail_msg("%s: the caches differ", what);
    kt_result_free(&r);
}
