/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions through the public interface, on the demo models: the reference implementation's text
 * comes out, and no way of cutting the work changes a single bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atsinfer/atsinfer.h"

static const char *const backends[] = {"cpu_ref", "cpu_avx2", "cpu_avx512"};
enum { N_BACKENDS = sizeof backends / sizeof backends[0] };

struct open_model {
    struct atsi_runtime *rt;
    struct atsi_model *m;
};

/* NULL-terminated "key=value" settings after the backend. */
static bool open_model(struct open_model *o, const char *backend, const char *file,
                       const char *setting)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char cpu[64], path[512];
    const char *overrides[] = {cpu, "load.pack=off", setting, NULL};
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

static struct atsi_session *open_session(struct open_model *o, uint32_t n_ctx, uint32_t chunk)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session *s = NULL;
    p.n_ctx = n_ctx;
    p.chunk = chunk;
    if (atsi_session_open(o->m, &p, &s, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return s;
}

static void eval(struct atsi_session *s, const int32_t *ids, uint32_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_eval req = {.struct_size = sizeof req, .ids = ids, .n = n};
    if (atsi_session_eval(s, &req, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

static uint32_t vocab(const struct atsi_session *s)
{
    struct atsi_session_info info = {.struct_size = sizeof info};
    atsi_session_info(s, &info);
    return info.n_vocab;
}

/* Best id and its lead over the second. */
static int32_t argmax(const float *x, uint32_t n, double *margin)
{
    uint32_t best = 0, second = 1;
    for (uint32_t i = 1; i < n; i++) {
        if (x[i] > x[best]) {
            second = best;
            best = i;
        } else if (i != best && (second == best || x[i] > x[second])) {
            second = i;
        }
    }
    *margin = (double)x[best] - (double)x[second];
    return (int32_t)best;
}

/* ---------------------------------------------------------------- reference text */
static uint32_t read_ids(const json_t *list, int32_t *out, uint32_t max)
{
    uint32_t n = 0;
    for (size_t i = 0; i < json_array_size(list) && n < max; i++)
        out[n++] = (int32_t)json_integer_value(json_array_get(list, i));
    return n;
}

/* Quantized activations differ in the last bit between engines; below this lead another token is no
 * error (golden.json, "note"). */
#define THIN_MARGIN 0.3

static uint32_t follow(struct atsi_session *s, const int32_t *want, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        double margin;
        int32_t id = argmax(atsi_session_logits(s), vocab(s), &margin);
        if (id != want[i]) {
            assert_true(margin < THIN_MARGIN);
            return i;
        }
        eval(s, &id, 1);
    }
    return n;
}

/* Tokens that agreed, of those compared, over all prompts of a model. */
static void compare_model(const json_t *golden, const char *backend, const char *file,
                          uint32_t *agreed, uint32_t *compared)
{
    const json_t *prompts = json_object_get(golden, "prompts");
    const json_t *outputs =
        json_object_get(json_object_get(json_object_get(golden, "models"), file), "outputs");
    bool ref = strcmp(backend, "cpu_ref") == 0; /* slow: a part is enough */
    struct open_model o;
    if (!open_model(&o, backend, file, NULL))
        return;
    assert_int_equal(json_array_size(prompts), json_array_size(outputs));
    for (size_t i = 0; i < json_array_size(prompts); i += ref ? 4 : 1) {
        int32_t ids[256], want[64];
        uint32_t n = read_ids(json_object_get(json_array_get(prompts, i), "ids"), ids, 256);
        uint32_t n_want =
            read_ids(json_object_get(json_array_get(outputs, i), "ids"), want, ref ? 16 : 64);
        struct atsi_session *s = open_session(&o, 512, 512);
        eval(s, ids, n);
        *agreed += follow(s, want, n_want);
        *compared += n_want;
        atsi_session_close(s);
    }
    close_model(&o);
}

static void compare_with_golden(const char *file)
{
    json_error_t why;
    char path[512];
    json_t *golden;
    (void)snprintf(path, sizeof path, "%s/demo/golden.json", ATSI_SOURCE_DIR);
    golden = json_load_file(path, 0, &why);
    if (golden == NULL)
        fail_msg("%s: %s", path, why.text);
    for (size_t b = 0; b < N_BACKENDS; b++) {
        uint32_t agreed = 0, compared = 0;
        compare_model(golden, backends[b], file, &agreed, &compared);
        print_message("%s %s: %u of %u tokens as the reference\n", file, backends[b], agreed,
                      compared);
        assert_true(agreed * 2 > compared); /* the rest follow a thin margin */
    }
    json_decref(golden);
}

static void dense_tells_the_reference_text(void **state)
{
    (void)state;
    compare_with_golden("demo-dense-q4_k_m.gguf");
    compare_with_golden("demo-dense-q8_0.gguf");
}

static void experts_tell_the_reference_text(void **state)
{
    (void)state;
    compare_with_golden("demo-moe-q4_k_m.gguf");
    compare_with_golden("demo-moe-q8_0.gguf");
}

/* ---------------------------------------------------------------- nothing depends on the cut */
static void fill_ids(int32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * 37u + 11u) % 2000u);
}

struct rows {
    float *data;
    uint32_t n_vocab, n;
};

static int keep_row(void *ctx, uint32_t pos, const float *logits)
{
    struct rows *r = ctx;
    memcpy(r->data + (size_t)pos * r->n_vocab, logits, r->n_vocab * sizeof *logits);
    r->n++;
    return 0;
}

/* Logits of every position, for a chunk size; [owned by caller: free()] */
static struct rows all_logits(struct open_model *o, const int32_t *ids, uint32_t n, uint32_t chunk)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session *s = open_session(o, 512, chunk);
    struct rows r = {.n_vocab = vocab(s)};
    struct atsi_eval req = {
        .struct_size = sizeof req, .ids = ids, .n = n, .want_all = 1, .fn = keep_row, .ctx = &r};
    r.data = calloc((size_t)n * r.n_vocab, sizeof *r.data);
    assert_non_null(r.data);
    if (atsi_session_eval(s, &req, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(r.n, n);
    atsi_session_close(s);
    return r;
}

static void assert_same_rows(const struct rows *a, const struct rows *b)
{
    assert_memory_equal(a->data, b->data, (size_t)a->n * a->n_vocab * sizeof *a->data);
}

enum { N_IDS = 65 };

static void check_cuts(const char *backend, const char *file)
{
    static const uint32_t chunks[] = {1, 7, 512};
    int32_t ids[N_IDS];
    struct open_model o;
    struct rows whole, cut;
    if (!open_model(&o, backend, file, "cpu.threads=2"))
        return;
    fill_ids(ids, N_IDS);
    whole = all_logits(&o, ids, N_IDS, N_IDS);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        cut = all_logits(&o, ids, N_IDS, chunks[i]);
        assert_same_rows(&whole, &cut);
        free(cut.data);
    }
    close_model(&o);
    assert_true(open_model(&o, backend, file, "cpu.threads=1"));
    cut = all_logits(&o, ids, N_IDS, 512);
    assert_same_rows(&whole, &cut);
    free(cut.data);
    close_model(&o);
    assert_true(open_model(&o, backend, file, "cpu.threads=5"));
    cut = all_logits(&o, ids, N_IDS, 512);
    assert_same_rows(&whole, &cut);
    free(cut.data);
    free(whole.data);
    close_model(&o);
}

static void chunks_and_threads_change_no_bit(void **state)
{
    (void)state;
    for (size_t b = 0; b < N_BACKENDS; b++) {
        check_cuts(backends[b], "demo-dense-q4_k_m.gguf");
        check_cuts(backends[b], "demo-moe-q4_k_m.gguf");
    }
}

/* With exact activations backends differ by float rounding alone. */
static void backends_agree(void **state)
{
    int32_t ids[N_IDS];
    struct rows ref = {0};
    (void)state;
    fill_ids(ids, N_IDS);
    for (size_t b = 0; b < N_BACKENDS; b++) {
        struct open_model o;
        struct rows r;
        double worst = 0;
        if (!open_model(&o, backends[b], "demo-moe-q4_k_m.gguf", "cpu.activations=f32"))
            continue;
        r = all_logits(&o, ids, N_IDS, 512);
        close_model(&o);
        if (b == 0) {
            ref = r;
            continue;
        }
        for (size_t i = 0; i < (size_t)r.n * r.n_vocab; i++)
            worst = fmax(worst, fabs((double)r.data[i] - (double)ref.data[i]));
        print_message("%s: largest difference to cpu_ref %g\n", backends[b], worst);
        assert_true(worst < 0.01); /* f16 KV rounds differences up to here */
        free(r.data);
    }
    free(ref.data);
}

/* ---------------------------------------------------------------- session rules */
static void truncation_forgets_exactly(void **state)
{
    int32_t ids[N_IDS];
    struct atsi_err err = ATSI_ERR_INIT;
    struct open_model o;
    struct atsi_session *s;
    float *first;
    uint32_t n_vocab;
    (void)state;
    fill_ids(ids, N_IDS);
    assert_true(open_model(&o, "cpu_ref", "demo-dense-q4_k_m.gguf", NULL));
    s = open_session(&o, 128, 32);
    n_vocab = vocab(s);
    eval(s, ids, 20);
    first = malloc(n_vocab * sizeof *first);
    assert_non_null(first);
    memcpy(first, atsi_session_logits(s), n_vocab * sizeof *first);
    eval(s, ids + 30, 10);
    assert_int_equal(atsi_session_n_past(s), 30);
    assert_int_equal(atsi_session_truncate(s, 19, &err), ATSI_OK);
    assert_null(atsi_session_logits(s));
    eval(s, ids + 19, 1);
    assert_memory_equal(first, atsi_session_logits(s), n_vocab * sizeof *first);
    assert_int_equal(atsi_session_truncate(s, 21, &err), ATSI_EINVAL);
    free(first);
    atsi_session_close(s);
    close_model(&o);
}

static void bad_requests_change_nothing(void **state)
{
    int32_t ids[40] = {0};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_eval req = {.struct_size = sizeof req, .ids = ids, .n = 40};
    volatile int cancel = 1;
    struct open_model o;
    struct atsi_session *s;
    (void)state;
    assert_true(open_model(&o, "cpu_ref", "demo-dense-q4_k_m.gguf", NULL));
    s = open_session(&o, 32, 8);
    assert_int_equal(atsi_session_eval(s, &req, &err), ATSI_ENOFIT);
    assert_non_null(strstr(err.msg, "context of 32"));
    req.n = 4;
    ids[2] = 2048;
    assert_int_equal(atsi_session_eval(s, &req, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "2048"));
    ids[2] = -1;
    assert_int_equal(atsi_session_eval(s, &req, &err), ATSI_EINVAL);
    ids[2] = 0;
    req.cancel = &cancel;
    assert_int_equal(atsi_session_eval(s, &req, &err), ATSI_EINTR);
    assert_int_equal(atsi_session_n_past(s), 0);
    assert_null(atsi_session_logits(s));
    atsi_session_close(s);
    close_model(&o);
}

static void too_long_a_context_names_one_that_fits(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session *s = NULL;
    struct open_model o;
    (void)state;
    assert_true(open_model(&o, "cpu_ref", "demo-dense-q4_k_m.gguf", NULL));
    p.n_ctx = 2000000000;
    assert_int_equal(atsi_session_open(o.m, &p, &s, &err), ATSI_ENOFIT);
    assert_null(s);
    assert_non_null(strstr(err.msg, "would fit"));
    close_model(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_tells_the_reference_text),
        cmocka_unit_test(experts_tell_the_reference_text),
        cmocka_unit_test(chunks_and_threads_change_no_bit),
        cmocka_unit_test(backends_agree),
        cmocka_unit_test(truncation_forgets_exactly),
        cmocka_unit_test(bad_requests_change_nothing),
        cmocka_unit_test(too_long_a_context_names_one_that_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
