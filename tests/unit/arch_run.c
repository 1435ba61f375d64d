/* SPDX-License-Identifier: Apache-2.0
 * The engine behind the tests of architectures. */
#include "tests/unit/arch_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/scratch.h"

static const char *const wanted[AR_MAX_BACKENDS] = {"cpu_ref", "cpu_avx2", "cpu_avx512"};
uint32_t ar_n_backends;
struct atsi_runtime *ar_runtimes[AR_MAX_BACKENDS];
const char *ar_names[AR_MAX_BACKENDS];

static int open_runtime(const char *name)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char cpu[64];
    const char *overrides[] = {cpu, "cpu.threads=2", "load.pack=off", NULL};
    struct atsi_runtime_params p = {.struct_size = sizeof p, .overrides = overrides};
    struct atsi_runtime *rt = NULL;
    (void)snprintf(cpu, sizeof cpu, "backend.cpu=%s", name);
    if (atsi_runtime_open(&p, &rt, &err) != ATSI_OK) {
        print_error("%s\n", err.msg);
        return -1;
    }
    if (atsi_runtime_component(rt, ATSI_KIND_BACKEND, name) == NULL) {
        print_message("%s is not usable here: skipped\n", name);
        atsi_runtime_close(rt);
        return 0;
    }
    ar_names[ar_n_backends] = name;
    ar_runtimes[ar_n_backends++] = rt;
    return 0;
}

int ar_enter(void **state)
{
    int rc = scratch_enter(state);
    for (uint32_t i = 0; i < AR_MAX_BACKENDS && rc == 0; i++)
        rc = open_runtime(wanted[i]);
    return rc == 0 && ar_n_backends > 0 ? 0 : -1;
}

int ar_leave(void **state)
{
    while (ar_n_backends > 0)
        atsi_runtime_close(ar_runtimes[--ar_n_backends]);
    return scratch_leave(state);
}

/* ---------------------------------------------------------------- models */
static const char *save(const struct am *m)
{
    const char *path = scratch_path("model.gguf");
    (void)unlink(path); /* an open model keeps its own file */
    if (!am_save(m, path))
        fail_msg("%s cannot be written", path);
    return path;
}

struct atsi_model *ar_open(uint32_t backend, const struct am *m)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_model *out = NULL;
    if (atsi_model_open(ar_runtimes[backend], save(m), NULL, &out, &err) != ATSI_OK)
        fail_msg("%s: %s", m->arch, err.msg);
    return out;
}

/* ---------------------------------------------------------------- sessions */
struct atsi_session *ar_session(struct atsi_model *m, const struct ar_how *how)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session *s = NULL;
    p.n_ctx = how->n_ctx != 0 ? how->n_ctx : AR_MAX_IDS;
    p.chunk = how->chunk != 0 ? how->chunk : 512;
    p.type_k = p.type_v = how->type_kv;
    if (atsi_session_open(m, &p, &s, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return s;
}

struct atsi_session_info ar_info(const struct atsi_session *s)
{
    struct atsi_session_info info = {.struct_size = sizeof info};
    atsi_session_info(s, &info);
    return info;
}

void ar_eval(struct atsi_session *s, const int32_t *ids, uint32_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_eval req = {.struct_size = sizeof req, .ids = ids, .n = n};
    if (atsi_session_eval(s, &req, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

static int keep_row(void *ctx, uint32_t pos, const float *logits)
{
    struct ar_rows *r = ctx;
    memcpy(r->data + (size_t)pos * r->n_vocab, logits, r->n_vocab * sizeof *logits);
    r->n++;
    return 0;
}

void ar_ids(int32_t *ids, uint32_t n, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * i * 31u + i * 17u + 5u) % n_vocab);
}

static void check_alive(const struct ar_rows *r)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < (size_t)r->n * r->n_vocab; i++) {
        assert_true(isfinite(r->data[i]));
        low = fmin(low, (double)r->data[i]);
        high = fmax(high, (double)r->data[i]);
    }
    assert_true(high - low > 1);
    for (uint32_t i = 1; i < r->n; i++)
        assert_memory_not_equal(r->data, r->data + (size_t)i * r->n_vocab,
                                r->n_vocab * sizeof *r->data);
}

static struct ar_rows all_rows(struct atsi_session *s, uint32_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct ar_rows r = {.n_vocab = ar_info(s).n_vocab};
    int32_t ids[AR_MAX_IDS];
    struct atsi_eval req = {
        .struct_size = sizeof req, .ids = ids, .n = n, .want_all = 1, .fn = keep_row, .ctx = &r};
    ar_ids(ids, n, r.n_vocab);
    r.data = calloc((size_t)n * r.n_vocab, sizeof *r.data);
    assert_non_null(r.data);
    if (atsi_session_eval(s, &req, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(r.n, n);
    return r;
}

struct ar_rows ar_logits(uint32_t backend, const struct am *m, uint32_t n, const struct ar_how *how)
{
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t threads = how->threads != 0 ? how->threads : 2;
    struct atsi_model *model = ar_open(backend, m);
    struct atsi_session *s;
    struct ar_rows r;
    if (atsi_runtime_set_threads(ar_runtimes[backend], threads, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    s = ar_session(model, how);
    r = all_rows(s, n);
    check_alive(&r);
    atsi_session_close(s);
    atsi_model_close(model);
    return r;
}

struct ar_rows ar_fresh(struct atsi_model *m, const int32_t *ids, uint32_t n,
                        const struct ar_how *how)
{
    struct atsi_session *s = ar_session(m, how);
    struct ar_rows r = {.n = 1, .n_vocab = ar_info(s).n_vocab};
    ar_eval(s, ids, n);
    r.data = calloc(r.n_vocab, sizeof *r.data);
    assert_non_null(r.data);
    memcpy(r.data, atsi_session_logits(s), r.n_vocab * sizeof *r.data);
    atsi_session_close(s);
    return r;
}

void ar_free(struct ar_rows *r)
{
    free(r->data);
    r->data = NULL;
}

/* ---------------------------------------------------------------- comparing */
double ar_difference(const struct ar_rows *a, const struct ar_rows *b)
{
    double worst = 0;
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->n_vocab, b->n_vocab);
    for (size_t i = 0; i < (size_t)a->n * a->n_vocab; i++)
        worst = fmax(worst, fabs((double)a->data[i] - (double)b->data[i]));
    return worst;
}

enum { N_ROWS = 37 };

void ar_same(const struct am *a, const struct am *b, double within, const char *what)
{
    static const struct ar_how how = {.chunk = 16};
    for (uint32_t i = 0; i < ar_n_backends; i++) {
        struct ar_rows x = ar_logits(i, a, N_ROWS, &how), y = ar_logits(i, b, N_ROWS, &how);
        double d = ar_difference(&x, &y);
        if (d > within)
            fail_msg("%s, %s: logits differ by %g", what, ar_names[i], d);
        ar_free(&x);
        ar_free(&y);
    }
}

void ar_differ(const struct am *a, const struct am *b, double by, const char *what)
{
    static const struct ar_how how = {.chunk = 16};
    struct ar_rows x = ar_logits(0, a, N_ROWS, &how), y = ar_logits(0, b, N_ROWS, &how);
    double d = ar_difference(&x, &y);
    if (d <= by)
        fail_msg("%s: logits differ by %g only", what, d);
    ar_free(&x);
    ar_free(&y);
}
