/* SPDX-License-Identifier: Apache-2.0
 *
 * A session whose device changes under it: the governor makes it place weights again, for the
 * reason there is, and answers stay.  The management library is tests/device/fake_nvml.c.
 */
#include "tests/hybrid/hybrid_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/scratch.h"

#define TOTAL_MIB 24576u

static const char *const watched[] = {"memory.vram=50%m", "power.watch=10", "power.root=nowhere",
                                      "policy.costs=typical", NULL};
static const char *const alone[] = {"memory.vram=0", NULL};

/* Whole or not at all: it is read at any time. */
static void set_device(unsigned mhz, unsigned used_mib)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%u %u %u\n", mhz, used_mib, TOTAL_MIB);
    scratch_write("device.new", text);
    assert_int_equal(rename(scratch_path("device.new"), scratch_path("device")), 0);
}

static struct atsi_accel_stats stats_of(const struct atsi_session *s)
{
    struct atsi_accel_stats st = {.struct_size = sizeof st};
    atsi_session_accel_stats(s, &st);
    return st;
}

struct pair {
    struct atsi_runtime *rt[2];
    struct atsi_model *m[2];
    struct atsi_session *s[2]; /* watched, the CPU alone */
    int32_t ids[HR_MAX_IDS];
};

static void open_pair(struct pair *p)
{
    const char *path = hr_model("llama");
    for (int i = 0; i < 2; i++) {
        p->rt[i] = hr_runtime(i == 0 ? watched : alone);
        p->m[i] = hr_open(p->rt[i], path);
        p->s[i] = hr_session(p->m[i], 64, 8);
    }
    hr_ids(p->ids, HR_MAX_IDS, hr_info(p->s[0]).n_vocab);
    assert_true(hr_info(p->s[0]).accel[0] != '\0');
}

static void close_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        atsi_session_close(p->s[i]);
        atsi_model_close(p->m[i]);
        atsi_runtime_close(p->rt[i]);
    }
}

static uint64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The same tokens on both, again and again: until so many plans came from the governor, at most for
 * `ms` (which is far from when the governor plans again, however slow rounds are).  Logits are
 * compared each time. */
static uint64_t decode(struct pair *p, uint64_t until, unsigned ms)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    uint64_t n = 0, end = now_ms() + ms;
    while (n < until && now_ms() < end) {
        struct hr_rows have, want;
        if (atsi_session_n_past(p->s[0]) >= 48)
            for (int k = 0; k < 2; k++)
                assert_int_equal(atsi_session_truncate(p->s[k], 8, NULL), ATSI_OK);
        have = hr_eval(p->s[0], &p->ids[atsi_session_n_past(p->s[0])], 1, false);
        want = hr_eval(p->s[1], &p->ids[atsi_session_n_past(p->s[1])], 1, false);
        hr_same(&want, &have, "governed");
        hr_free(&have);
        hr_free(&want);
        n = stats_of(p->s[0]).n_governed;
        (void)nanosleep(&pause, NULL);
    }
    return n;
}

static void test_slower_device(void **state)
{
    struct pair p;
    (void)state;
    set_device(1980, 1000);
    open_pair(&p);
    assert_int_equal(decode(&p, 1, 300), 0);
    assert_null(stats_of(p.s[0]).n_governed > 0 ? stats_of(p.s[0]).governed_why : NULL);
    set_device(600, 1000);
    assert_int_equal(decode(&p, 1, 60000), 1);
    assert_non_null(strstr(stats_of(p.s[0]).governed_why, "gpu clock 1980 -> "));
    assert_non_null(strstr(hr_log, "re-planned: gpu clock 1980 -> "));
    /* It stays so; what swings now is too soon after the last plan. */
    set_device(1980, 1000);
    assert_int_equal(decode(&p, 2, 300), 1);
    assert_int_equal(hr_info(p.s[0]).n_fallbacks, 0);
    close_pair(&p);
}

/* An idle session is left alone. */
static void test_idle(void **state)
{
    const struct timespec pause = {.tv_nsec = 200000000};
    struct pair p;
    (void)state;
    set_device(1980, 1000);
    open_pair(&p);
    (void)decode(&p, 1, 200);
    set_device(345, 1000);
    (void)nanosleep(&pause, NULL);
    assert_int_equal(stats_of(p.s[0]).n_governed, 0);
    close_pair(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slower_device),
        cmocka_unit_test(test_idle),
    };
    char path[4096];
    (void)argc;
    if (getenv("FAKE_NVML") == NULL) { /* the loader reads its path when a program begins */
        if (setenv("LD_LIBRARY_PATH", ATSI_BINARY_DIR "/tests/fake_nvml", 1) != 0 ||
            setenv("FAKE_NVML", "", 1) != 0)
            return 1;
        (void)execv("/proc/self/exe", argv);
        return 1;
    }
    if (hr_enter(NULL) != 0)
        return 1;
    (void)snprintf(path, sizeof path, "%s", scratch_path("device"));
    if (setenv("FAKE_NVML", path, 1) != 0)
        return 1;
    return cmocka_run_group_tests_name("governed", tests, NULL, hr_leave);
}
