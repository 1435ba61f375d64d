/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/hybrid/hybrid_run.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/scratch.h"

#define TWIN ATSI_BINARY_DIR "/tests/twin/atsinfer-twin.so"

char hr_log[4096];

int hr_enter(void **state)
{
    return scratch_enter(state);
}

int hr_leave(void **state)
{
    return scratch_leave(state);
}

static void keep_log(void *ctx, enum atsi_log_level level, const char *who, const char *msg)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* runtimes have threads that pack */
    size_t n;
    (void)ctx;
    (void)level;
    (void)pthread_mutex_lock(&lock);
    n = strlen(hr_log);
    if (n > sizeof hr_log - 600) { /* the newest count */
        memmove(hr_log, hr_log + n / 2, n - n / 2 + 1);
        n -= n / 2;
    }
    (void)snprintf(hr_log + n, sizeof hr_log - n, "%s: %s\n", who, msg);
    (void)pthread_mutex_unlock(&lock);
}

#define TOLERANCE 0.001

const char *hr_accel(void)
{
    const char *name = getenv("ATSI_TEST_ACCEL");
    return name != NULL ? name : "twin";
}

static struct atsi_runtime *open_runtime(const char *const *settings, bool accel)
{
    const char *plugins[] = {TWIN, getenv("ATSI_TEST_PLUGIN"), NULL};
    char name[64];
    const char *all[32] = {"backend.cpu=cpu_ref",
                           "cpu.threads=2",
                           name,
                           "kv.type_k=f32",
                           "kv.type_v=f32",
                           "policy.costs=typical",       /* measuring takes seconds */
                           "policy.time_limit=10000000", /* machines that run tests are busy */
                           "power.watch=0"};             /* and become busier */
    struct atsi_runtime_params p = {.struct_size = sizeof p,
                                    .overrides = all,
                                    .plugin_files = plugins,
                                    .log = keep_log,
                                    .log_level = ATSI_LOG_INFO};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_runtime *rt = NULL;
    size_t n = 8;
    (void)snprintf(name, sizeof name, "backend.accel=%s", accel ? hr_accel() : "none");
    for (; settings != NULL && *settings != NULL && n < 31; settings++)
        all[n++] = *settings;
    hr_log[0] = '\0';
    if (atsi_runtime_open(&p, &rt, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return rt;
}

struct atsi_runtime *hr_runtime(const char *const *settings)
{
    return open_runtime(settings, true);
}

struct atsi_runtime *hr_cpu(void)
{
    return open_runtime(NULL, false);
}

const char *hr_model_of(const struct am_config *c, const char *name)
{
    struct am m;
    char file[64];
    const char *path;
    (void)snprintf(file, sizeof file, "%s.gguf", name);
    path = scratch_path(file);
    if (access(path, R_OK) == 0)
        return path;
    am_build(&m, c, false);
    if (!am_save(&m, path))
        fail_msg("%s cannot be written", path);
    am_free(&m);
    return path;
}

const char *hr_model(const char *name)
{
    struct am_config c = am_tiny(name);
    return hr_model_of(&c, name);
}

struct atsi_model *hr_open(struct atsi_runtime *rt, const char *path)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_model *m = NULL;
    if (atsi_model_open(rt, path, NULL, &m, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return m;
}

struct atsi_session *hr_session(struct atsi_model *m, uint32_t n_ctx, uint32_t chunk)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session *s = NULL;
    p.n_ctx = n_ctx;
    p.chunk = chunk;
    if (atsi_session_open(m, &p, &s, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return s;
}

struct atsi_session_info hr_info(const struct atsi_session *s)
{
    struct atsi_session_info info = {.struct_size = sizeof info};
    atsi_session_info(s, &info);
    return info;
}

/* ---------------------------------------------------------------- rows */
void hr_ids(int32_t *ids, uint32_t n, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * i * 31u + i * 17u + 5u) % n_vocab);
}

static int keep_row(void *ctx, uint32_t pos, const float *logits)
{
    struct hr_rows *r = ctx;
    (void)pos;
    memcpy(r->data + (size_t)r->n * r->n_vocab, logits, r->n_vocab * sizeof *logits);
    r->n++;
    return 0;
}

struct hr_rows hr_eval(struct atsi_session *s, const int32_t *ids, uint32_t n, bool all)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct hr_rows r = {.n_vocab = hr_info(s).n_vocab};
    struct atsi_eval req = {.struct_size = sizeof req,
                            .ids = ids,
                            .n = n,
                            .want_all = all ? 1 : 0,
                            .fn = all ? keep_row : NULL,
                            .ctx = &r};
    r.data = calloc((size_t)n * r.n_vocab, sizeof *r.data);
    assert_non_null(r.data);
    if (atsi_session_eval(s, &req, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_non_null(atsi_session_logits(s));
    if (!all)
        (void)keep_row(&r, 0, atsi_session_logits(s));
    assert_int_equal(r.n, all ? n : 1);
    assert_memory_equal(r.data + (size_t)(r.n - 1) * r.n_vocab, atsi_session_logits(s),
                        r.n_vocab * sizeof *r.data);
    return r;
}

void hr_free(struct hr_rows *r)
{
    free(r->data);
    r->data = NULL;
}

static uint32_t best(const float *row, const struct hr_rows *of)
{
    uint32_t k = 0;
    for (uint32_t i = 1; i < of->n_vocab; i++)
        if (row[i] > row[k])
            k = i;
    return k;
}

void hr_same(const struct hr_rows *want, const struct hr_rows *have, const char *what)
{
    assert_int_equal(want->n, have->n);
    assert_int_equal(want->n_vocab, have->n_vocab);
    for (uint32_t i = 0; i < want->n; i++) {
        const float *a = want->data + (size_t)i * want->n_vocab;
        const float *b = have->data + (size_t)i * want->n_vocab;
        double worst = 0;
        if (memcmp(a, b, want->n_vocab * sizeof *a) == 0)
            continue;
        for (uint32_t k = 0; k < want->n_vocab; k++)
            worst = fmax(worst, isnan(b[k]) ? INFINITY : fabs((double)a[k] - (double)b[k]));
        if (strcmp(hr_accel(), "twin") == 0 || worst > TOLERANCE || best(a, want) != best(b, want))
            fail_msg("%s: row %u of %u: logits differ by %g\n%s", what, i, want->n, worst, hr_log);
    }
}
