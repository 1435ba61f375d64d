/* SPDX-License-Identifier: Apache-2.0
 * A budget that changes while a session lives: set by the application, or read again from the ini
 * after a signal. */
#include "core/hybrid/live.h"
#include "core/runtime.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct atsi_runtime *rt;
static struct atsi_live_budget *live;
static struct atsi_budget_conf conf;
static char last_warning[512];

static void keep_log(void *ctx, enum atsi_log_level level, const char *who, const char *text)
{
    (void)ctx;
    (void)who;
    if (level == ATSI_LOG_WARN)
        (void)snprintf(last_warning, sizeof last_warning, "%s", text);
}

static int setup(void **state)
{
    static const char *const overrides[] = {"memory.slots=3", "cpu.threads=1", NULL};
    struct atsi_runtime_params p = {.struct_size = sizeof p,
                                    .overrides = overrides,
                                    .log = keep_log,
                                    .log_level = ATSI_LOG_INFO};
    int rc = scratch_enter(state);
    scratch_write("config/atsinfer/atsinfer.ini", "[memory]\nvram = 4GiB\n");
    last_warning[0] = '\0';
    if (rc == 0)
        rc = atsi_runtime_open(&p, &rt, NULL);
    if (rc == 0)
        rc = atsi_live_open(&live, NULL);
    return rc == 0 ? atsi_budget_read(rt->conf, &conf, NULL) : rc;
}

static int teardown(void **state)
{
    atsi_live_close(live);
    atsi_runtime_close(rt);
    return scratch_leave(state);
}

static void test_set(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    assert_false(atsi_live_take(live, rt, &conf));
    assert_int_equal(atsi_live_set(live, "2GiB", NULL), ATSI_OK);
    assert_int_equal(atsi_live_set(live, "30%m", NULL), ATSI_OK); /* the last one counts */
    assert_int_equal(atsi_live_set(live, "plenty", &err), ATSI_ECONF);
    assert_non_null(strstr(err.msg, "plenty"));
    assert_true(atsi_live_take(live, rt, &conf));
    assert_int_equal(conf.vram.kind, ATSI_AMOUNT_PERCENT_MODEL);
    assert_false(atsi_live_take(live, rt, &conf));
    assert_int_equal(atsi_live_set(live, "30%m", NULL), ATSI_OK);
    assert_false(atsi_live_take(live, rt, &conf)); /* nothing new */
}

static void on_signal(int sig)
{
    (void)sig;
    atsi_settings_changed();
}

static void test_reread(void **state)
{
    struct sigaction sa = {.sa_handler = on_signal}, old;
    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &sa, &old), 0);
    assert_int_equal(conf.vram.bytes, UINT64_C(4) << 30);
    scratch_write("config/atsinfer/atsinfer.ini",
                  "[memory]\nvram = 2GiB\nslots = 9\n[plugin.some]\nthing = 1\n");
    assert_false(atsi_live_take(live, rt, &conf)); /* nobody said so */
    assert_int_equal(raise(SIGUSR1), 0);
    assert_true(atsi_live_take(live, rt, &conf));
    assert_int_equal(conf.vram.bytes, UINT64_C(2) << 30);
    assert_int_equal(conf.max_slots, 3); /* the command line still wins */
    assert_int_equal(raise(SIGUSR1), 0);
    assert_false(atsi_live_take(live, rt, &conf)); /* the same again */
    /* What is wrong changes nothing. */
    scratch_write("config/atsinfer/atsinfer.ini", "[memory]\nvram = a lot\n");
    assert_int_equal(raise(SIGUSR1), 0);
    assert_false(atsi_live_take(live, rt, &conf));
    assert_int_equal(conf.vram.bytes, UINT64_C(2) << 30);
    assert_non_null(strstr(last_warning, "atsinfer.ini"));
    assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_set, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reread, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
