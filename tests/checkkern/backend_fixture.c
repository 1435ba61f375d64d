/* SPDX-License-Identifier: Apache-2.0
 * See backend_fixture.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend_fixture.h"
#include "ck.h"

static void no_log(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
{
    (void)ctx;
    (void)level;
    (void)who;
    (void)fmt;
}

static int region(void *ctx, void (*fn)(void *arg, struct atsi_worker *w), void *arg, size_t bytes)
{
    return atsi_pool_region(ctx, fn, arg, bytes);
}

static uint32_t n_threads_of(void *ctx)
{
    return atsi_pool_active(ctx);
}

static uint64_t now_ns(void *ctx)
{
    struct timespec t;
    (void)ctx;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static void kernels(const struct atsi_host *host, struct cpu_kernels *out)
{
    (void)host;
    cpu_ref_kernels(out);
}

void fixture_open(struct fixture *f, uint32_t n_threads)
{
    static const struct cpu_plugin_desc desc = {"test", ATSI_CPU_AVX, kernels};
    struct atsi_pool_params p = {.n_threads = n_threads};
    struct atsi_err err = ATSI_ERR_INIT;
    memset(f, 0, sizeof *f);
    assert_int_equal(atsi_pool_open(&p, &f->pool, &err), ATSI_OK);
    f->host = (struct atsi_host){.struct_size = sizeof f->host,
                                 .cpu_caps = ATSI_CPU_AVX,
                                 .ctx = f->pool,
                                 .log = no_log,
                                 .region = region,
                                 .n_threads = n_threads_of,
                                 .now_ns = now_ns};
    cpu_backend_describe(&desc);
    assert_int_equal(cpu_backend_ops.open(&f->host, 0, &f->be, &err), ATSI_OK);
    assert_int_equal(cpu_backend_ops.queue_open(f->be, &f->queue, &err), ATSI_OK);
}

void fixture_close(struct fixture *f)
{
    cpu_backend_ops.queue_close(f->queue);
    cpu_backend_ops.close(f->be);
    atsi_pool_close(f->pool);
}

int fixture_run(struct fixture *f, const struct atsi_op *const *ops, uint32_t n,
                struct atsi_err *err)
{
    struct atsi_split split = {.struct_size = sizeof split, .n_ops = n, .ops = ops};
    return cpu_backend_ops.run(f->queue, &split, err);
}

/* ---------------------------------------------------------------- tensors */
static struct ck numbers;

void tensor_seed(uint64_t seed)
{
    numbers.random = seed;
}

struct atsi_tensor tensor_new(uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t ne2)
{
    struct atsi_tensor t = {.struct_size = sizeof t,
                            .type = type,
                            .n_dims = ne2 > 1 ? 3 : (ne1 > 1 ? 2 : 1),
                            .ne = {ne0, ne1, ne2, 1},
                            .row_bytes = atsi_row_bytes(type, ne0),
                            .name = "t"};
    size_t bytes = (size_t)(t.row_bytes * ne1 * ne2);
    t.data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(t.data);
    if (type == ATSI_TYPE_I32)
        memset(t.data, 0, bytes);
    else
        ck_fill_weights(&numbers, type, CK_RANDOM, t.data, (size_t)(ne0 * ne1 * ne2));
    return t;
}

void tensor_free(struct atsi_tensor *t)
{
    free(t->data);
    t->data = NULL;
}

float *floats(const struct atsi_tensor *t)
{
    return t->data;
}

int32_t *ints(const struct atsi_tensor *t)
{
    return t->data;
}
