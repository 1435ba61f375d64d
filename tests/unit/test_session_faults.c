/* SPDX-License-Identifier: Apache-2.0
 *
 * A system that refuses: every allocation, every read and every step of writing a session file
 * fails in turn, and reads bring other bytes than a moment ago.  There is always an error with
 * words, the old file stays whole, no file is left behind, and a session is either as it was or
 * empty.  The program is linked with --wrap for the functions below. */
#include "tests/unit/fake_session.h"
#include "tests/unit/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SEED = 1, OTHER = 2, N_SAVED = 12, N_BEFORE = 9 };

#define FILE_NAME "a.session"

/* ---------------------------------------------------------------- faults */
enum call { C_MALLOC, C_CALLOC, C_PREAD, C_WRITE, C_FSYNC, C_CLOSE, C_RENAME, C_RESERVE, N_CALLS };

enum fault {
    FAIL,      /* fails with `fault_errno` */
    SHORT,     /* moves one byte only */
    INTERRUPT, /* fails with EINTR, once */
    FLIP       /* brings a changed byte */
};

static struct {
    bool on;
    enum call call;
    enum fault fault;
    long countdown; /* calls of that kind before it happens */
    int error;
} plan;

static bool struck(enum call call)
{
    return plan.on && plan.call == call && plan.countdown-- == 0;
}

static bool fails(enum call call)
{
    if (!struck(call))
        return false;
    errno = plan.error;
    return true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __real_write(int fd, const void *p, size_t n);
int __real_fsync(int fd);
int __real_close(int fd);
int __real_rename(const char *from, const char *to);
int __real_fallocate(int fd, int mode, off_t at, off_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_write(int fd, const void *p, size_t n);
int __wrap_fsync(int fd);
int __wrap_close(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_fallocate(int fd, int mode, off_t at, off_t n);

void *__wrap_malloc(size_t n)
{
    return fails(C_MALLOC) ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails(C_CALLOC) ? NULL : __real_calloc(n, size);
}

ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    bool now = struck(C_PREAD);
    ssize_t got;
    if (now && (plan.fault == FAIL || plan.fault == INTERRUPT)) {
        errno = plan.fault == FAIL ? EIO : EINTR;
        return -1;
    }
    got = __real_pread(fd, p, now && plan.fault == SHORT && n > 1 ? 1 : n, at);
    if (now && plan.fault == FLIP && got > 0)
        ((unsigned char *)p)[got / 2] ^= 4;
    return got;
}

ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    bool now = struck(C_WRITE);
    if (now && plan.fault != SHORT) {
        errno = plan.fault == FAIL ? plan.error : EINTR;
        return -1;
    }
    return __real_write(fd, p, now && n > 1 ? 1 : n);
}

int __wrap_fsync(int fd)
{
    return fails(C_FSYNC) ? -1 : __real_fsync(fd);
}

int __wrap_close(int fd)
{
    int rc = __real_close(fd);
    return fails(C_CLOSE) ? -1 : rc;
}

int __wrap_rename(const char *from, const char *to)
{
    return fails(C_RENAME) ? -1 : __real_rename(from, to);
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t n)
{
    return fails(C_RESERVE) ? -1 : __real_fallocate(fd, mode, at, n);
}

static void arm(enum call call, enum fault fault, long countdown, int error)
{
    plan.call = call;
    plan.fault = fault;
    plan.countdown = countdown;
    plan.error = error;
    plan.on = true;
}

/* True when what was planned took place. */
static bool disarm(void)
{
    bool happened = plan.on && plan.countdown < 0;
    plan.on = false;
    return happened;
}

/* ---------------------------------------------------------------- sessions */
static struct atsi_runtime *rt;
static struct fake_model model;
static struct atsi_session *saved, *s;
static const char talk[] = "talk";

static int open_all(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int rc = scratch_enter(state);
    rt = fake_runtime();
    fake_model_init(&model, rt, 5, true);
    saved = fake_session(&model, 64, 4, ATSI_TYPE_F16);
    s = fake_session(&model, 64, 3, ATSI_TYPE_F16);
    if (!fake_eval(saved, N_SAVED, SEED) ||
        atsi_session_save(saved, FILE_NAME, talk, sizeof talk, &err) != ATSI_OK)
        return -1;
    return rc;
}

static int close_all(void **state)
{
    atsi_session_close(saved);
    atsi_session_close(s);
    atsi_runtime_close(rt);
    return scratch_leave(state);
}

static uint32_t n_files(void)
{
    DIR *d = opendir(".");
    uint32_t n = 0;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    (void)closedir(d);
    return n;
}

/* The logits of the next token, which tell everything apart. */
static void next_logits(struct atsi_session *from, float out[FAKE_VOCAB])
{
    assert_true(fake_eval(from, 1, SEED));
    memcpy(out, atsi_session_logits(from), FAKE_VOCAB * sizeof *out);
}

static void expected(uint32_t n, uint32_t seed, float out[FAKE_VOCAB])
{
    struct atsi_session *fresh = fake_session(&model, 64, 8, ATSI_TYPE_F16);
    assert_true(fake_eval(fresh, n, seed));
    next_logits(fresh, out);
    atsi_session_close(fresh);
}

/* ---------------------------------------------------------------- loading */
enum end { AS_BEFORE, EMPTY, LOADED };

/* Loads with one fault; how the session ends up is checked for truth. */
static enum end load_with_fault(enum call call, enum fault fault, long n, bool *happened, int *rc,
                                char msg[508])
{
    static const uint32_t lengths[] = {N_BEFORE, 0, N_SAVED};
    struct atsi_err err = ATSI_ERR_INIT;
    float want[FAKE_VOCAB], got[FAKE_VOCAB];
    enum end end;
    void *user = NULL;
    size_t bytes = 0;
    assert_int_equal(atsi_session_truncate(s, 0, &err), ATSI_OK);
    assert_true(fake_eval(s, N_BEFORE, OTHER));
    arm(call, fault, n, EIO);
    *rc = atsi_session_load(s, FILE_NAME, &user, &bytes, &err);
    *happened = disarm();
    end = *rc == ATSI_OK ? LOADED : atsi_session_n_past(s) == 0 ? EMPTY : AS_BEFORE;
    assert_int_equal(atsi_session_n_past(s), lengths[end]);
    if (end == LOADED)
        assert_string_equal(user, talk);
    else
        assert_null(user);
    free(user);
    expected(lengths[end], end == LOADED ? SEED : OTHER, want);
    next_logits(s, got);
    assert_memory_equal(got, want, sizeof want);
    (void)snprintf(msg, 508, "%s", err.msg);
    return end;
}

/* Every call of a kind, until one load makes no more of them. */
static void each_load(enum call call, enum fault fault, int status, uint32_t *n_before,
                      uint32_t *n_empty)
{
    bool happened = true;
    *n_before = *n_empty = 0;
    for (long n = 0; happened; n++) {
        char msg[508];
        int rc;
        enum end end = load_with_fault(call, fault, n, &happened, &rc, msg);
        *n_before += end == AS_BEFORE;
        *n_empty += end == EMPTY;
        if (!happened || status == ATSI_OK) {
            assert_int_equal(rc, ATSI_OK);
        } else if (rc != status || msg[0] == '\0') {
            fail_msg("call %d, number %ld: status %d, \"%s\"", (int)call, n, rc, msg);
        }
        assert_true(n < 1000);
    }
}

static void memory_runs_out_while_loading(void **state)
{
    uint32_t before, empty;
    (void)state;
    each_load(C_MALLOC, FAIL, ATSI_ENOMEM, &before, &empty);
    assert_true(before >= 4 && empty == 0);
    each_load(C_CALLOC, FAIL, ATSI_ENOMEM, &before, &empty);
    assert_true(before >= 2 && empty == 0);
}

static void reads_fail(void **state)
{
    uint32_t before, empty;
    (void)state;
    each_load(C_PREAD, FAIL, ATSI_EIO, &before, &empty);
    assert_true(before >= 8); /* head, lists, each part */
    assert_true(empty >= 4);  /* each part once more */
    each_load(C_PREAD, SHORT, ATSI_OK, &before, &empty);
    each_load(C_PREAD, INTERRUPT, ATSI_OK, &before, &empty);
}

/* Somebody writes to the file while it is read. */
static void bytes_change_while_reading(void **state)
{
    uint32_t before, empty;
    bool happened = true;
    (void)state;
    before = empty = 0;
    for (long n = 0; happened; n++) {
        char msg[508];
        int rc;
        enum end end = load_with_fault(C_PREAD, FLIP, n, &happened, &rc, msg);
        assert_true(!happened || end != LOADED);
        before += end == AS_BEFORE;
        empty += end == EMPTY;
        if (end == EMPTY)
            assert_non_null(strstr(msg, "changed while it was read"));
    }
    assert_true(before >= 8 && empty >= 4);
}

/* ---------------------------------------------------------------- saving */
/* The file holds what it held: a session of N_SAVED tokens. */
static void assert_old_file(void)
{
    struct atsi_err err = ATSI_ERR_INIT;
    assert_int_equal(n_files(), 1);
    if (atsi_session_load(s, FILE_NAME, NULL, NULL, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(atsi_session_n_past(s), N_SAVED);
}

static bool save_with_fault(enum call call, enum fault fault, long n, int error, int *rc,
                            char msg[508])
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session *longer = fake_session(&model, 64, 4, ATSI_TYPE_F16);
    bool happened;
    assert_true(fake_eval(longer, N_SAVED + 3, SEED));
    arm(call, fault, n, error);
    *rc = atsi_session_save(longer, FILE_NAME, talk, sizeof talk, &err);
    happened = disarm();
    atsi_session_close(longer);
    (void)snprintf(msg, 508, "%s", err.msg);
    return happened;
}

static void save_again(void)
{
    struct atsi_err err = ATSI_ERR_INIT;
    assert_int_equal(atsi_session_save(saved, FILE_NAME, talk, sizeof talk, &err), ATSI_OK);
}

static uint32_t each_save(enum call call, int error, int status, const char *word)
{
    uint32_t n = 0;
    for (;; n++) {
        char msg[508];
        int rc;
        if (!save_with_fault(call, FAIL, n, error, &rc, msg)) {
            assert_int_equal(rc, ATSI_OK);
            break;
        }
        if (rc != status || strstr(msg, word) == NULL)
            fail_msg("call %d, number %u: status %d, \"%s\"", (int)call, n, rc, msg);
        assert_old_file();
        assert_true(n < 1000);
    }
    save_again();
    return n;
}

static void a_full_disk(void **state)
{
    (void)state;
    assert_true(each_save(C_WRITE, ENOSPC, ATSI_EIO, "disk full") > 10);
    assert_true(each_save(C_WRITE, EDQUOT, ATSI_EIO, "disk full") > 10);
    assert_int_equal(each_save(C_RESERVE, ENOSPC, ATSI_EIO, "disk full"), 1);
    assert_true(each_save(C_WRITE, EIO, ATSI_EIO, "cannot write: Input/output error") > 10);
    assert_int_equal(each_save(C_RENAME, EACCES, ATSI_EIO, "cannot put in place"), 1);
}

/* A file system that cannot reserve room is no error. */
static void no_reserving(void **state)
{
    char msg[508];
    int rc;
    (void)state;
    assert_true(save_with_fault(C_RESERVE, FAIL, 0, EOPNOTSUPP, &rc, msg));
    assert_int_equal(rc, ATSI_OK);
    save_again();
}

static void flushing_fails(void **state)
{
    char msg[508];
    int rc;
    (void)state;
    assert_true(save_with_fault(C_FSYNC, FAIL, 0, EIO, &rc, msg));
    assert_int_equal(rc, ATSI_EIO);
    assert_non_null(strstr(msg, "flush to disk"));
    assert_old_file();
    assert_true(save_with_fault(C_CLOSE, FAIL, 0, EIO, &rc, msg));
    assert_int_equal(rc, ATSI_EIO);
    assert_old_file();
    /* The folder's own flush: the file is in place, but may not outlast a power cut. */
    assert_true(save_with_fault(C_FSYNC, FAIL, 1, EIO, &rc, msg));
    assert_int_equal(rc, ATSI_EIO);
    assert_non_null(strstr(msg, "flush its folder"));
    assert_int_equal(n_files(), 1);
    assert_true(save_with_fault(C_FSYNC, FAIL, 1, EINVAL, &rc, msg));
    assert_int_equal(rc, ATSI_OK);
    save_again();
}

static void writes_in_pieces(void **state)
{
    char msg[508];
    int rc;
    (void)state;
    for (long n = 0; save_with_fault(C_WRITE, n % 2 == 0 ? SHORT : INTERRUPT, n, 0, &rc, msg);
         n++) {
        assert_int_equal(rc, ATSI_OK);
        assert_int_equal(atsi_session_load(s, FILE_NAME, NULL, NULL, NULL), ATSI_OK);
        assert_int_equal(atsi_session_n_past(s), N_SAVED + 3);
    }
    save_again();
}

static void memory_runs_out_while_saving(void **state)
{
    (void)state;
    assert_true(each_save(C_MALLOC, ENOMEM, ATSI_ENOMEM, "out of memory") >= 1);
    assert_true(each_save(C_CALLOC, ENOMEM, ATSI_ENOMEM, "out of memory") >= 2);
}

static void memory_runs_out_for_a_checkpoint(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (long n = 0;; n++) {
            struct atsi_checkpoint *cp = NULL;
            int rc;
            arm(kind == 0 ? C_MALLOC : C_CALLOC, FAIL, n, ENOMEM);
            rc = atsi_session_checkpoint(saved, &cp, &err);
            if (!disarm()) {
                assert_int_equal(rc, ATSI_OK);
                assert_true(n >= 1);
                atsi_checkpoint_free(cp);
                break;
            }
            assert_int_equal(rc, ATSI_ENOMEM);
            assert_null(cp);
            assert_non_null(strstr(err.msg, "out of memory"));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_runs_out_while_loading),
        cmocka_unit_test(reads_fail),
        cmocka_unit_test(bytes_change_while_reading),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(no_reserving),
        cmocka_unit_test(flushing_fails),
        cmocka_unit_test(writes_in_pieces),
        cmocka_unit_test(memory_runs_out_while_saving),
        cmocka_unit_test(memory_runs_out_for_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
