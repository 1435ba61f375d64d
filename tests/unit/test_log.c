/* SPDX-License-Identifier: Apache-2.0
 * Log messages reach the application's sink whole, by level, without disturbing errno. */
#include "core/log.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct sink {
    int calls;
    enum atsi_log_level level;
    char who[32], msg[2048];
};

static void take(void *ctx, enum atsi_log_level level, const char *who, const char *msg)
{
    struct sink *s = ctx;
    s->calls++;
    s->level = level;
    (void)snprintf(s->who, sizeof s->who, "%s", who);
    (void)snprintf(s->msg, sizeof s->msg, "%s", msg);
    errno = EIO; /* a sink may disturb it */
}

static void delivers_by_level(void **state)
{
    struct sink s = {0};
    struct atsi_log *log = NULL;
    (void)state;
    assert_int_equal(atsi_log_open(take, &s, ATSI_LOG_WARN, &log), ATSI_OK);
    atsi_log(log, ATSI_LOG_INFO, "core", "not wanted");
    assert_int_equal(s.calls, 0);
    atsi_log(log, ATSI_LOG_WARN, "core", "%d of %s", 3, "them");
    assert_int_equal(s.calls, 1);
    assert_int_equal(s.level, ATSI_LOG_WARN);
    assert_string_equal(s.who, "core");
    assert_string_equal(s.msg, "3 of them");
    atsi_log(log, ATSI_LOG_ERROR, "core", "%s", "100%s"); /* text is never a format */
    assert_string_equal(s.msg, "100%s");
    atsi_log_close(log);
}

static void keeps_errno(void **state)
{
    struct sink s = {0};
    struct atsi_log *log = NULL;
    (void)state;
    assert_int_equal(atsi_log_open(take, &s, ATSI_LOG_DEBUG, &log), ATSI_OK);
    errno = ENOENT;
    atsi_log(log, ATSI_LOG_ERROR, "core", "x");
    assert_int_equal(errno, ENOENT);
    atsi_log_close(log);
}

static void cuts_long_messages(void **state)
{
    struct sink s = {0};
    struct atsi_log *log = NULL;
    char text[4000];
    (void)state;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(atsi_log_open(take, &s, ATSI_LOG_DEBUG, &log), ATSI_OK);
    atsi_log(log, ATSI_LOG_ERROR, "core", "%s", text);
    assert_int_equal(s.calls, 1);
    assert_int_equal(strlen(s.msg), 1023);
    atsi_log_close(log);
}

static void nothing_to_log_to(void **state)
{
    struct atsi_log *log = NULL;
    (void)state;
    atsi_log(NULL, ATSI_LOG_ERROR, "core", "x");
    assert_int_equal(atsi_log_open(NULL, NULL, ATSI_LOG_DEBUG, &log), ATSI_OK);
    atsi_log(log, ATSI_LOG_ERROR, "core", "x");
    atsi_log_close(log);
    atsi_log_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delivers_by_level),
        cmocka_unit_test(keeps_errno),
        cmocka_unit_test(cuts_long_messages),
        cmocka_unit_test(nothing_to_log_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
