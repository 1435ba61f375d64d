/* SPDX-License-Identifier: Apache-2.0
 *
 * Caches as cpu.topology describes them: plugins are told what a worker has of them, and answers
 * are the same bits for tiny caches, huge ones and none that are known, in both layouts of weights.
 */
#include "core/runtime.h"
#include "core/session.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_PROMPT = 70 }; /* more than a pass of the smallest caches, and some */

static const struct {
    const char *source;
    uint64_t l1d, l2; /* for two workers */
} machines[] = {
    {"core:2 pu:1", 0, 0},
    {"l2:2(size=65536) l1:1(size=4096) core:1 pu:1", 4096, 65536},
    {"l2:2(size=67108864) l1:1(size=524288) core:1 pu:1", 524288, 67108864},
    {"l2:1(size=2097152) l1:2(size=49152) core:1 pu:1", 49152, 1048576},
};

/* NULL: the backend does not run here. */
static struct atsi_runtime *open_runtime(const char *backend, const char *source, const char *pack)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_runtime *rt = NULL;
    char cpu[64], topology[128];
    const char *const overrides[] = {cpu, topology, pack, "cpu.threads=2", NULL};
    struct atsi_runtime_params p = {.struct_size = sizeof p, .overrides = overrides};
    (void)snprintf(cpu, sizeof cpu, "backend.cpu=%s", backend);
    (void)snprintf(topology, sizeof topology, "cpu.topology=%s", source);
    if (atsi_runtime_open(&p, &rt, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    if (atsi_runtime_component(rt, ATSI_KIND_BACKEND, backend) == NULL) {
        atsi_runtime_close(rt);
        return NULL;
    }
    return rt;
}

/* The logits behind a prompt.  [owned by caller: free] */
static float *answer(struct atsi_runtime *rt, const char *file, size_t *n_out)
{
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_model *m = NULL;
    struct atsi_session *s = NULL;
    int32_t ids[N_PROMPT];
    struct atsi_eval req = {.struct_size = sizeof req, .ids = ids, .n = N_PROMPT};
    char path[512];
    float *logits;
    for (int32_t i = 0; i < N_PROMPT; i++)
        ids[i] = 1 + i * 37 % 300;
    p.n_ctx = 128;
    p.chunk = N_PROMPT;
    (void)snprintf(path, sizeof path, "%s/demo/%s", ATSI_SOURCE_DIR, file);
    if (atsi_model_open(rt, path, NULL, &m, &err) != ATSI_OK ||
        atsi_session_open(m, &p, &s, &err) != ATSI_OK ||
        atsi_session_eval(s, &req, &err) != ATSI_OK)
        fail_msg("%s: %s", file, err.msg);
    *n_out = s->g->n_vocab;
    logits = malloc(*n_out * sizeof *logits);
    assert_non_null(logits);
    memcpy(logits, atsi_session_logits(s), *n_out * sizeof *logits);
    atsi_session_close(s);
    atsi_model_close(m);
    return logits;
}

static void same_on_every_machine(const char *backend, const char *file, const char *pack)
{
    float *first = NULL;
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        struct atsi_runtime *rt = open_runtime(backend, machines[i].source, pack);
        size_t n = 0;
        float *logits;
        if (rt == NULL) {
            print_message("%s is not usable here: skipped\n", backend);
            return;
        }
        assert_int_equal(atsi_runtime_host(rt)->l1d_bytes, machines[i].l1d);
        assert_int_equal(atsi_runtime_host(rt)->l2_bytes, machines[i].l2);
        logits = answer(rt, file, &n);
        atsi_runtime_close(rt);
        if (first == NULL) {
            first = logits;
            continue;
        }
        assert_memory_equal(first, logits, n * sizeof *logits);
        free(logits);
    }
    free(first);
}

static void answers_do_not_depend_on_caches(void **state)
{
    static const char *const files[] = {"demo-moe-q4_k_m.gguf", "demo-dense-q8_0.gguf"};
    (void)state;
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        same_on_every_machine("cpu_avx2", files[f], "load.pack=now");
        same_on_every_machine("cpu_avx512", files[f], "load.pack=now");
        same_on_every_machine("cpu_avx512", files[f], "load.pack=off");
        if (f == 0) /* slow, and everywhere */
            same_on_every_machine("cpu_ref", files[f], "load.pack=off");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers_do_not_depend_on_caches, scratch_enter,
                                        scratch_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
