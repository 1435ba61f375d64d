/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers while weights are packed: the same tokens whether they are packed never, before the
 * first token, in the middle or at any time, whatever load.mode says, and for a second session of
 * the model.
 */
#include "core/fingerprint.h"
#include "core/hybrid/pack.h"
#include "core/session.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_PROMPT = 9, N_TOKENS = 16 };

struct opened {
    struct atsi_runtime *rt;
    struct atsi_model *m;
    struct atsi_session *s;
};

static struct atsi_session *open_session(struct atsi_model *m)
{
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session *s = NULL;
    p.n_ctx = 64;
    p.chunk = 4;
    if (atsi_session_open(m, &p, &s, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return s;
}

/* False: the backend does not run here. */
static bool open_all(struct opened *o, const char *backend, const char *file, const char *pack,
                     const char *mode)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char cpu[64], path[512];
    const char *const overrides[] = {cpu, pack, mode, "cpu.threads=2", NULL};
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
    o->s = open_session(o->m);
    return true;
}

static void close_all(struct opened *o)
{
    atsi_session_close(o->s);
    atsi_model_close(o->m);
    atsi_runtime_close(o->rt);
}

static void eval(struct atsi_session *s, const int32_t *ids, uint32_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_eval req = {.struct_size = sizeof req, .ids = ids, .n = n};
    if (atsi_session_eval(s, &req, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

static int32_t best(struct atsi_session *s)
{
    const float *x = atsi_session_logits(s);
    uint32_t n = s->g->n_vocab, b = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[b])
            b = i;
    return (int32_t)b;
}

/* Tokens first .. end - 1 of the greedy answer; the prompt before the first one. */
static void answer(struct atsi_session *s, int32_t *out, uint32_t first, uint32_t end)
{
    static const int32_t prompt[N_PROMPT] = {1, 40, 77, 12, 300, 5, 91, 204, 33};
    if (first == 0)
        eval(s, prompt, N_PROMPT);
    for (uint32_t i = first; i < end; i++) {
        out[i] = best(s);
        eval(s, &out[i], 1);
    }
}

static uint32_t n_packed(const struct atsi_session *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; s->weights != NULL && i < atsi_weights_count(s->weights); i++)
        n += atsi_weights_home(s->weights, i) == ATSI_HOME_PACKED;
    return n;
}

/* What load.pack = auto does when it comes to it now. */
static void pack_now(struct atsi_session *s)
{
    uint8_t *packable = malloc(atsi_weights_count(s->weights) + 1);
    struct atsi_pack_params p = {
        .model = s->model, .weights = s->weights, .packable = packable, .mode = ATSI_PACK_NOW};
    struct atsi_packer *packer = NULL;
    assert_non_null(packable);
    memset(packable, 1, atsi_weights_count(s->weights));
    atsi_pack_mark(s->be_ops, s->be, s->op_ptrs, s->g->n_nodes, s->weights, packable);
    assert_int_equal(atsi_packer_open(&p, &packer, NULL), ATSI_OK);
    atsi_packer_close(packer);
    free(packable);
}

static const char *const backends[] = {"cpu_ref", "cpu_avx2", "cpu_avx512"};
static const char *const files[] = {"demo-moe-q4_k_m.gguf", "demo-dense-q8_0.gguf"};

static void packed_and_not(const char *backend, const char *file, const char *mode)
{
    int32_t off[N_TOKENS], other[N_TOKENS];
    struct atsi_weights *w;
    struct opened o;
    uint32_t n;
    if (!open_all(&o, backend, file, "load.pack=off", mode))
        return;
    assert_int_equal(n_packed(o.s), 0);
    answer(o.s, off, 0, N_TOKENS);
    /* In the middle, the model's views made before: a new session looks at them. */
    assert_int_equal(atsi_model_weights(o.m, &w, NULL), ATSI_OK);
    atsi_session_close(o.s);
    o.s = open_session(o.m);
    answer(o.s, other, 0, N_TOKENS / 2);
    pack_now(o.s);
    n = n_packed(o.s);
    answer(o.s, other, N_TOKENS / 2, N_TOKENS);
    assert_memory_equal(off, other, sizeof off);
    if (strcmp(backend, "cpu_ref") == 0)
        assert_true(n > 4);
    /* A second session finds them packed. */
    atsi_session_close(o.s);
    o.s = open_session(o.m);
    answer(o.s, other, 0, N_TOKENS);
    assert_memory_equal(off, other, sizeof off);
    assert_int_equal(n_packed(o.s), n);
    close_all(&o);
    /* Before the first token. */
    assert_true(open_all(&o, backend, file, "load.pack=now", mode));
    assert_int_equal(n_packed(o.s), n);
    answer(o.s, other, 0, N_TOKENS);
    assert_memory_equal(off, other, sizeof off);
    close_all(&o);
    /* In the background, whenever that may be. */
    assert_true(open_all(&o, backend, file, "load.pack=auto", mode));
    answer(o.s, other, 0, N_TOKENS);
    assert_memory_equal(off, other, sizeof off);
    close_all(&o);
}

static void test_same_answers(void **state)
{
    (void)state;
    for (size_t b = 0; b < sizeof backends / sizeof backends[0]; b++)
        for (size_t f = 0; f < sizeof files / sizeof files[0]; f++)
            packed_and_not(backends[b], files[f], b == 0 ? "load.mode=read" : "load.mode=mmap");
}

/* The file's tensors stay what they were, although their memory was given back. */
static void test_still_readable(void **state)
{
    static const char *const modes[] = {"load.mode=mmap", "load.mode=read"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct atsi_fingerprint before, after;
        struct opened o;
        assert_true(open_all(&o, "cpu_ref", files[0], "load.pack=off", modes[k]));
        assert_int_equal(atsi_model_fingerprint(o.m, &before, NULL), ATSI_OK);
        close_all(&o);
        assert_true(open_all(&o, "cpu_ref", files[0], "load.pack=now", modes[k]));
        assert_true(n_packed(o.s) > 4);
        assert_int_equal(atsi_model_fingerprint(o.m, &after, NULL), ATSI_OK);
        assert_int_equal(before.weights, after.weights);
        close_all(&o);
    }
}

/* A session that is closed at once stops its packing. */
static void test_closed_early(void **state)
{
    (void)state;
    for (int k = 0; k < 10; k++) {
        struct opened o;
        if (open_all(&o, "cpu_avx2", files[0], "load.pack=auto", "load.mode=mmap"))
            close_all(&o);
    }
}

/* On its own the engine packs only for kernels that are faster on panels. */
static void test_only_where_faster(void **state)
{
    struct opened o;
    (void)state;
    for (size_t b = 0; b < sizeof backends / sizeof backends[0]; b++) {
        if (!open_all(&o, backends[b], files[0], "load.pack=auto", "load.mode=mmap"))
            continue;
        assert_int_equal(o.s->props.prefers_panels, strcmp(backends[b], "cpu_ref") != 0);
        assert_int_equal(atsi_session_settle(o.s, NULL, NULL), ATSI_OK);
        eval(o.s, (const int32_t[]){1}, 1); /* takes over what is packed */
        assert_int_equal(n_packed(o.s) > 4, o.s->props.prefers_panels);
        close_all(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same_answers, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(test_still_readable, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(test_closed_early, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(test_only_where_faster, scratch_enter, scratch_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
