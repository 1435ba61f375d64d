/* SPDX-License-Identifier: Apache-2.0
 * See op_trial.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "op_trial.h"

struct cpu_kernels k;
static uint64_t random_state;

uint32_t below(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % n);
}

void trial_seed(uint64_t seed)
{
    cpu_ref_kernels(&k);
    tensor_seed(seed);
    random_state = seed;
}

struct atsi_tensor *trial_tensor(struct trial *t, uint32_t type, uint64_t ne0, uint64_t ne1,
                                 uint64_t ne2)
{
    assert_true(t->n_t < TRIAL_TENSORS);
    t->t[t->n_t] = tensor_new(type, ne0, ne1, ne2);
    return &t->t[t->n_t++];
}

struct atsi_tensor *trial_rows(struct trial *t, uint64_t width)
{
    return trial_tensor(t, ATSI_TYPE_F32, width, t->rows + 1, 1);
}

struct atsi_tensor *trial_result(struct trial *t, int i, uint32_t type, uint64_t width)
{
    size_t n = (size_t)width * (t->rows + 1);
    struct atsi_tensor *y = trial_tensor(t, type, width, t->rows + 1, 1);
    memset(y->data, 0xff, n * 4);
    t->want[i] = malloc(n * 4);
    assert_non_null(t->want[i]);
    memset(t->want[i], 0xff, n * 4); /* the spare row stays as it is */
    t->op.dst[i] = y;
    return y;
}

static size_t bytes_of(const struct atsi_tensor *t)
{
    return (size_t)(t->row_bytes * t->ne[1] * t->ne[2]);
}

struct atsi_tensor *trial_state(struct trial *t, uint64_t ne0, uint64_t ne1, uint64_t ne2)
{
    struct atsi_tensor *s = trial_tensor(t, ATSI_TYPE_F32, ne0, ne1, ne2);
    t->want_kept = malloc(bytes_of(s));
    assert_non_null(t->want_kept);
    memcpy(t->want_kept, s->data, bytes_of(s));
    t->op.state = s;
    return s;
}

void trial_open(struct trial *t, const struct trial_kind *kind, uint32_t type, uint32_t rows)
{
    memset(t, 0, sizeof *t);
    t->rows = rows;
    t->op = (struct atsi_op){.struct_size = sizeof t->op, .kind = kind->kind, .n_rows = rows};
    kind->build(t, type);
}

void trial_close(struct trial *t)
{
    for (uint32_t i = 0; i < t->n_t; i++)
        tensor_free(&t->t[i]);
    free(t->want[0]);
    free(t->want[1]);
    free(t->want_kept);
}

/* ---------------------------------------------------------------- running them */
static void check_tensor(const struct trial *t, const struct atsi_tensor *y, const float *want,
                         const char *what, uint32_t workers)
{
    for (size_t i = 0; i < bytes_of(y) / 4; i++)
        if (ints(y)[i] != ((const int32_t *)(const void *)want)[i])
            fail_msg("kind %u type %s, %u rows, %u workers: %s [%zu][%zu] = %a, want %a",
                     t->op.kind,
                     t->op.weight[0] != NULL ? atsi_type_info(t->op.weight[0]->type)->name : "",
                     t->rows, workers, what, i / (size_t)y->ne[0], i % (size_t)y->ne[0],
                     (double)floats(y)[i], (double)want[i]);
}

static void run_trial(struct fixture *f, const struct trial_kind *kind, uint32_t type,
                      uint32_t rows, uint32_t workers)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct trial t;
    const struct atsi_op *op = &t.op;
    trial_open(&t, kind, type, rows);
    if (cpu_backend_ops.supports(f->be, op) != 1)
        fail_msg("kind %u, %u rows: not supported", op->kind, rows);
    if (fixture_run(f, &op, 1, &err) != ATSI_OK)
        fail_msg("kind %u: %s", op->kind, err.msg);
    for (int d = 0; d < 2; d++)
        if (op->dst[d] != NULL)
            check_tensor(&t, op->dst[d], t.want[d], d == 0 ? "result" : "second result", workers);
    if (t.want_kept != NULL)
        check_tensor(&t, op->state, t.want_kept, "state", workers);
    trial_close(&t);
}

void trials_run(const struct trial_kind *kinds, size_t n)
{
    static const uint32_t rows[] = {1, 1, 2, 3, 8, 17}, workers[] = {1, 2, 3, 4};
    for (size_t w = 0; w < sizeof workers / sizeof workers[0]; w++) {
        struct fixture f;
        fixture_open(&f, workers[w]);
        for (size_t kind = 0; kind < n; kind++)
            for (uint32_t type = 0; type < ATSI_TYPE_COUNT; type++)
                for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
                    if (kinds[kind].typed ? k.gemm[type] != NULL : type == ATSI_TYPE_F32)
                        run_trial(&f, &kinds[kind], type, rows[r], workers[w]);
        fixture_close(&f);
    }
}

/* ---------------------------------------------------------------- breaking them */
static unsigned char *snapshot(const struct trial *t, size_t *total)
{
    unsigned char *copy, *at;
    *total = 0;
    for (uint32_t i = 0; i < t->n_t; i++)
        *total += bytes_of(&t->t[i]);
    at = copy = malloc(*total + 1);
    assert_non_null(copy);
    for (uint32_t i = 0; i < t->n_t; at += bytes_of(&t->t[i]), i++)
        memcpy(at, t->t[i].data, bytes_of(&t->t[i]));
    return copy;
}

void trial_refused(struct fixture *f, const struct trial *t, const struct atsi_op *bad,
                   const char *how)
{
    struct atsi_err err = ATSI_ERR_INIT;
    size_t total;
    unsigned char *before = snapshot(t, &total), *after;
    if (cpu_backend_ops.supports(f->be, bad) != 0)
        fail_msg("kind %u with %s is supported", bad->kind, how);
    assert_int_equal(fixture_run(f, &bad, 1, &err), ATSI_ENOTSUP);
    assert_true(err.msg[0] != '\0');
    after = snapshot(t, &total);
    assert_memory_equal(before, after, total);
    free(before);
    free(after);
}

enum slot { SRC = 0, WEIGHT = 4, DST = 6, STATE = 8, N_SLOTS = 9 };

static const struct atsi_tensor **slot_of(struct atsi_op *op, int s)
{
    return s < WEIGHT  ? &op->src[s]
           : s < DST   ? &op->weight[s - WEIGHT]
           : s < STATE ? &op->dst[s - DST]
                       : &op->state;
}

/* A bias, and the sinks of an attention. */
static bool may_be_absent(const struct atsi_op *op, int s)
{
    return (s == WEIGHT + 1 && op->kind != ATSI_OP_DELTA_NET) ||
           (s == WEIGHT && op->kind == ATSI_OP_ATTN);
}

static void break_tensor(struct fixture *f, const struct trial *t, int s)
{
    struct atsi_op bad = t->op;
    struct atsi_tensor broken;
    const struct atsi_tensor *good = *slot_of(&bad, s);
    char how[64];
    if (good == NULL)
        return;
#define REFUSED(what)                                                                              \
    do {                                                                                           \
        (void)snprintf(how, sizeof how, "%s in tensor %d", what, s);                               \
        trial_refused(f, t, &bad, how);                                                            \
        broken = *good;                                                                            \
    } while (0)
    *slot_of(&bad, s) = &broken;
    broken = *good;
    broken.ne[0]++; /* row_bytes, another tensor or whole blocks disagree */
    REFUSED("a longer row");
    broken.ne[0] = 0;
    REFUSED("no row");
    broken.type = good->type == ATSI_TYPE_F32 ? ATSI_TYPE_F16 : ATSI_TYPE_COUNT;
    REFUSED("another type");
    if (s < WEIGHT || s >= DST) {
        broken.ne[1] = s == STATE ? good->ne[1] + 1 : t->rows - 1U;
        REFUSED("other rows");
        broken.layout = 3;
        REFUSED("another layout");
        broken.row_bytes += bad.kind == ATSI_OP_MATMUL && s == DST ? 2 : 4;
        REFUSED("a gap behind each row"); /* of products: no whole floats */
    }
    if (s == STATE) {
        broken.ne[2]++;
        REFUSED("more heads");
    }
#undef REFUSED
    if (!may_be_absent(&bad, s)) {
        *slot_of(&bad, s) = NULL;
        trial_refused(f, t, &bad, "a tensor missing");
    }
}

static void break_call(struct fixture *f, const struct trial *t)
{
    struct atsi_op bad = t->op;
    bad.n_rows = 0;
    trial_refused(f, t, &bad, "no rows");
    bad = t->op;
    bad.n_rows = t->rows + 2;
    trial_refused(f, t, &bad, "more rows than room");
    bad = t->op;
    bad.flags |= 0x8000U;
    trial_refused(f, t, &bad, "an unknown flag");
    bad = t->op;
    bad.struct_size -= 8;
    trial_refused(f, t, &bad, "a short struct");
}

void trials_break(const struct trial_kind *kinds, size_t n)
{
    struct fixture f;
    fixture_open(&f, 2);
    for (uint32_t round = 0; round < 4; round++)
        for (size_t kind = 0; kind < n; kind++) {
            struct trial t;
            trial_open(&t, &kinds[kind], kinds[kind].typed ? ATSI_TYPE_Q4_K : ATSI_TYPE_F32,
                       1 + round);
            for (int s = 0; s < N_SLOTS; s++)
                break_tensor(&f, &t, s);
            break_call(&f, &t);
            if (kinds[kind].break_it != NULL)
                kinds[kind].break_it(&f, &t);
            trial_close(&t);
        }
    fixture_close(&f);
}
