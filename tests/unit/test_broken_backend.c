/* SPDX-License-Identifier: Apache-2.0
 *
 * Backends that promise a device and cannot open it (fixtures of tests/plugins), met by the engine:
 * named, they are an error that names them; left to choose, it goes on without them.
 */
#include "atsinfer/atsinfer.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define FIXTURE(name) ATSI_BINARY_DIR "/tests/plugins/atsinfer-" name ".so"

/* Opens a session on the demo model; the name of the backend in use goes to `name`. */
static int demo_session(const char *backend, char name[64], struct atsi_err *err)
{
    static const char *const files[] = {FIXTURE("failing_open"), FIXTURE("lying_probe"), NULL};
    const char *const overrides[] = {backend, "cpu.threads=1", NULL};
    struct atsi_runtime_params rp = {
        .struct_size = sizeof rp, .overrides = overrides, .plugin_files = files};
    struct atsi_model_params mp = {.struct_size = sizeof mp};
    struct atsi_session_params sp = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session_info info = {.struct_size = sizeof info};
    struct atsi_runtime *rt = NULL;
    struct atsi_model *m = NULL;
    struct atsi_session *s = NULL;
    int rc;
    if (atsi_runtime_open(&rp, &rt, err) != ATSI_OK ||
        atsi_model_open(rt, ATSI_SOURCE_DIR "/demo/demo-dense-q8_0.gguf", &mp, &m, err) != ATSI_OK)
        fail_msg("%s", err->msg);
    sp.n_ctx = 64;
    rc = atsi_session_open(m, &sp, &s, err);
    if (rc == ATSI_OK) {
        atsi_session_info(s, &info);
        (void)snprintf(name, 64, "%s", info.backend);
    }
    atsi_session_close(s);
    atsi_model_close(m);
    atsi_runtime_close(rt);
    return rc;
}

static void named(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char name[64] = "";
    (void)state;
    assert_int_equal(demo_session("backend.cpu=failing_open", name, &err), ATSI_ENODEV);
    assert_non_null(strstr(err.msg, "failing_open (command line)"));
    assert_int_equal(demo_session("backend.cpu=lying_probe", name, &err), ATSI_ENODEV);
    assert_non_null(strstr(err.msg, "lying_probe (command line)"));
}

static void left_to_choose(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char name[64] = "";
    (void)state;
    if (demo_session("backend.cpu=auto", name, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_memory_equal(name, "cpu_", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(named, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(left_to_choose, scratch_enter, scratch_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
