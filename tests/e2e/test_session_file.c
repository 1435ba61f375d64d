/* SPDX-License-Identifier: Apache-2.0
 *
 * Session files and checkpoints through the public interface, on the demo models and every backend:
 * what is loaded goes on as if it had never been away, bit for bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "atsinfer/atsinfer.h"
#include "tests/unit/scratch.h"

static const char *const backends[] = {"cpu_ref", "cpu_avx2", "cpu_avx512"};
enum { N_BACKENDS = sizeof backends / sizeof backends[0], N_PAST = 70, N_MORE = 3 };

#define FILE_NAME "demo.session"

struct open_model {
    struct atsi_runtime *rt;
    struct atsi_model *m;
};

/* False: the backend is not usable on this machine. */
static bool open_model(struct open_model *o, const char *backend, const char *file,
                       const char *threads)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char cpu[64], path[512];
    const char *overrides[] = {cpu, threads, "load.pack=off", NULL};
    struct atsi_runtime_params p = {.struct_size = sizeof p, .overrides = overrides};
    (void)snprintf(cpu, sizeof cpu, "backend.cpu=%s", backend);
    (void)snprintf(path, sizeof path, "%s/demo/%s", ATSI_SOURCE_DIR, file);
    memset(o, 0, sizeof *o);
    if (atsi_runtime_open(&p, &o->rt, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    if (atsi_runtime_component(o->rt, ATSI_KIND_BACKEND, backend) == NULL) {
        print_message("%s is not usable here: skipped\n", backend);
        atsi_runtime_close(o->rt);
        return false;
    }
    if (atsi_model_open(o->rt, path, NULL, &o->m, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return true;
}

static void close_model(struct open_model *o)
{
    atsi_model_close(o->m);
    atsi_runtime_close(o->rt);
}

static struct atsi_session *open_session(struct open_model *o, uint32_t n_ctx, uint32_t chunk,
                                         uint32_t type)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session_params p = {
        .struct_size = sizeof p, .n_ctx = n_ctx, .chunk = chunk, .type_k = type, .type_v = type};
    struct atsi_session *s = NULL;
    if (atsi_session_open(o->m, &p, &s, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return s;
}

/* n tokens that depend on position and seed. */
static void eval(struct atsi_session *s, uint32_t n, uint32_t seed)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int32_t ids[N_PAST];
    struct atsi_eval req = {.struct_size = sizeof req, .ids = ids, .n = n};
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(((atsi_session_n_past(s) + i) * 37u + seed) % 2000u);
    if (atsi_session_eval(s, &req, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

/* Logits after N_MORE further tokens, one at a time.  [owned by caller: free()] */
static float *go_on(struct atsi_session *s, size_t *bytes_out)
{
    struct atsi_session_info info = {.struct_size = sizeof info};
    float *copy;
    for (int i = 0; i < N_MORE; i++)
        eval(s, 1, 11);
    atsi_session_info(s, &info);
    *bytes_out = info.n_vocab * sizeof *copy;
    copy = malloc(*bytes_out);
    assert_non_null(copy);
    memcpy(copy, atsi_session_logits(s), *bytes_out);
    return copy;
}

/* Saved on two threads and loaded on one, with another context and chunk. */
static void check_file(const char *backend, const char *file, uint32_t type)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct open_model o;
    struct atsi_session *s;
    float *want, *got;
    size_t bytes;
    if (!open_model(&o, backend, file, "cpu.threads=2"))
        return;
    s = open_session(&o, 512, 512, type);
    eval(s, N_PAST, 11);
    if (atsi_session_save(s, FILE_NAME, NULL, 0, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    want = go_on(s, &bytes);
    atsi_session_close(s);
    close_model(&o);
    assert_true(open_model(&o, backend, file, "cpu.threads=1"));
    s = open_session(&o, 90, 7, type);
    if (atsi_session_load(s, FILE_NAME, NULL, NULL, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    got = go_on(s, &bytes);
    assert_memory_equal(got, want, bytes);
    free(got);
    free(want);
    atsi_session_close(s);
    close_model(&o);
}

static void loading_goes_on_bit_for_bit(void **state)
{
    static const uint32_t types[] = {ATSI_TYPE_F16, ATSI_TYPE_F32, ATSI_TYPE_Q8_0};
    (void)state;
    for (size_t b = 0; b < N_BACKENDS; b++)
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            check_file(backends[b], "demo-dense-q4_k_m.gguf", types[t]);
            check_file(backends[b], "demo-moe-q8_0.gguf", types[t]);
        }
}

/* A file of one backend serves the others: they agree but for rounding. */
static void backends_share_files(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct open_model o;
    struct atsi_session *s;
    (void)state;
    assert_true(open_model(&o, "cpu_ref", "demo-dense-q8_0.gguf", NULL));
    s = open_session(&o, 128, 64, ATSI_TYPE_F16);
    eval(s, N_PAST, 11);
    if (atsi_session_save(s, FILE_NAME, NULL, 0, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    atsi_session_close(s);
    close_model(&o);
    for (size_t b = 1; b < N_BACKENDS; b++) {
        float *logits;
        size_t bytes;
        if (!open_model(&o, backends[b], "demo-dense-q8_0.gguf", NULL))
            continue;
        s = open_session(&o, 128, 64, ATSI_TYPE_F16);
        if (atsi_session_load(s, FILE_NAME, NULL, NULL, &err) != ATSI_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(atsi_session_n_past(s), N_PAST);
        logits = go_on(s, &bytes);
        free(logits);
        atsi_session_close(s);
        close_model(&o);
    }
}

static void checkpoints_go_back_bit_for_bit(void **state)
{
    (void)state;
    for (size_t b = 0; b < N_BACKENDS; b++) {
        struct atsi_err err = ATSI_ERR_INIT;
        struct open_model o;
        struct atsi_checkpoint *cp = NULL;
        struct atsi_session *s;
        float *want, *got;
        size_t bytes;
        if (!open_model(&o, backends[b], "demo-moe-q4_k_m.gguf", NULL))
            continue;
        s = open_session(&o, 256, 32, ATSI_TYPE_F16);
        eval(s, N_PAST, 11);
        assert_int_equal(atsi_session_checkpoint(s, &cp, &err), ATSI_OK);
        want = go_on(s, &bytes);
        eval(s, N_PAST, 500);
        if (atsi_session_restore(s, cp, &err) != ATSI_OK)
            fail_msg("%s", err.msg);
        got = go_on(s, &bytes);
        assert_memory_equal(got, want, bytes);
        free(got);
        free(want);
        atsi_checkpoint_free(cp);
        atsi_session_close(s);
        close_model(&o);
    }
}

static void refuse(const char *file, const char *model, const char *word)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct open_model o;
    struct atsi_session *s;
    assert_true(open_model(&o, "cpu_ref", model, NULL));
    s = open_session(&o, 128, 64, ATSI_TYPE_F16);
    assert_int_equal(atsi_session_load(s, file, NULL, NULL, &err), ATSI_EINVAL);
    if (strstr(err.msg, word) == NULL || strstr(err.msg, file) == NULL)
        fail_msg("%s", err.msg);
    atsi_session_close(s);
    close_model(&o);
}

static void other_models_are_refused_by_name(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct open_model o;
    struct atsi_session *s;
    (void)state;
    assert_true(open_model(&o, "cpu_ref", "demo-dense-q8_0.gguf", NULL));
    s = open_session(&o, 128, 64, ATSI_TYPE_F16);
    eval(s, 4, 11);
    assert_int_equal(atsi_session_save(s, FILE_NAME, NULL, 0, &err), ATSI_OK);
    atsi_session_close(s);
    close_model(&o);
    refuse(FILE_NAME, "demo-moe-q8_0.gguf", "saved with \"demo-dense\"");
    refuse(FILE_NAME, "demo-moe-q8_0.gguf", "this is \"demo-moe\"");
    refuse(FILE_NAME, "demo-dense-q4_k_m.gguf", "quantization");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading_goes_on_bit_for_bit),
        cmocka_unit_test(backends_share_files),
        cmocka_unit_test(checkpoints_go_back_bit_for_bit),
        cmocka_unit_test(other_models_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
