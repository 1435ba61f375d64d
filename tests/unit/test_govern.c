/* SPDX-License-Identifier: Apache-2.0
 *
 * When a governor asks for new plans: scripted samples of an hour in no time.  What it must do is
 * react once to a change that lasts, and not swing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "core/govern/decide.h"
#include "core/govern/power.h"
#include "tests/unit/scratch.h"

#define SECOND UINT64_C(1000000000)
#define PERIOD (SECOND / 2)
#define GIB (UINT64_C(1) << 30)

/* A machine that is sampled every half second. */
struct bench {
    struct atsi_govern g;
    struct atsi_govern_plan plan;
    struct atsi_sense s;
    uint64_t now;
    uint32_t n; /* decisions */
    struct atsi_govern_decision last;
};

static struct bench make(void)
{
    struct bench b = {.s = {.has = ATSI_HAS_GPU_CLOCK | ATSI_HAS_CPU_CLOCK | ATSI_HAS_PRESSURE |
                                   ATSI_HAS_GPU_MEMORY,
                            .gpu_mhz = 1980,
                            .cpu_mhz = 4000,
                            .gpu_used = 20 * GIB,
                            .gpu_total = 24 * GIB},
                      .plan = {.margin = GIB},
                      .now = 100 * SECOND};
    atsi_govern_begin(&b.g);
    return b;
}

/* So many samples of the values of now; how many decisions came. */
static uint32_t run(struct bench *b, uint32_t samples, bool busy)
{
    uint32_t before = b->n;
    for (uint32_t i = 0; i < samples; i++) {
        struct atsi_govern_decision d;
        b->now += PERIOD;
        atsi_govern_step(&b->g, &b->plan, &b->s, busy, b->now, &d);
        if (d.what == ATSI_GOVERN_NOTHING)
            continue;
        b->n++;
        b->last = d;
        b->plan.version++; /* the session obeys */
    }
    return b->n - before;
}

static void test_steady(void **state)
{
    struct bench b = make();
    (void)state;
    assert_int_equal(run(&b, 7200, true), 0);
}

static void test_slower_once_and_back_once(void **state)
{
    struct bench b = make();
    (void)state;
    (void)run(&b, 20, true);
    b.s.gpu_mhz = 1200;
    assert_int_equal(run(&b, 2, true), 0); /* it might be a moment */
    assert_int_equal(run(&b, 7200, true), 1);
    assert_int_equal(b.last.what, ATSI_GOVERN_COSTS);
    assert_non_null(strstr(b.last.why, "gpu clock 1980 -> 1"));
    assert_true(b.last.load_gpu > 1.3 && b.last.load_gpu < 1.7);
    assert_true(b.last.load_cpu > 0.99 && b.last.load_cpu < 1.01);
    b.s.gpu_mhz = 1980;
    assert_int_equal(run(&b, 7200, true), 1);
    assert_true(b.last.load_gpu > 0.9 && b.last.load_gpu < 1.2);
}

static void test_idle_clocks_mean_nothing(void **state)
{
    struct bench b = make();
    (void)state;
    (void)run(&b, 20, true);
    b.s.gpu_mhz = 345;
    b.s.cpu_mhz = 800;
    assert_int_equal(run(&b, 7200, false), 0);
    b.s.gpu_mhz = 1980;
    b.s.cpu_mhz = 4000;
    assert_int_equal(run(&b, 100, true), 0);
}

static void test_clock_that_rises_at_first(void **state)
{
    struct bench b = make();
    (void)state;
    b.s.gpu_mhz = 345;
    (void)run(&b, 1, true);
    b.s.gpu_mhz = 1980;
    assert_int_equal(run(&b, 100, true), 0);
}

/* Up and down by less than the threshold, and spikes of one sample. */
static void test_noise(void **state)
{
    static const double clocks[] = {1980, 1750, 2050, 1800, 1980, 900, 1980, 1980, 1980, 1980};
    struct bench b = make();
    (void)state;
    for (uint32_t i = 0; i < 7200; i++) {
        b.s.gpu_mhz = clocks[i % 10];
        b.s.cpu_wait = i % 2 == 0 ? 0.02 : 0.12;
        assert_int_equal(run(&b, 1, true), 0);
    }
}

/* A clock that jumps every 20 s for an hour: each plan makes the next one wait longer. */
static void test_swinging_clock(void **state)
{
    struct bench b = make();
    uint32_t first, second;
    (void)state;
    for (uint32_t i = 0; i < 90; i++) {
        b.s.gpu_mhz = i % 2 == 0 ? 1980 : 1100;
        (void)run(&b, 40, true);
    }
    first = b.n;
    for (uint32_t i = 0; i < 90; i++) {
        b.s.gpu_mhz = i % 2 == 0 ? 1980 : 1100;
        (void)run(&b, 40, true);
    }
    second = b.n - first;
    assert_in_range(first, 2, 14); /* of 90 changes */
    assert_in_range(second, 0, 7);
}

static void test_others_on_the_cpus(void **state)
{
    struct bench b = make();
    (void)state;
    (void)run(&b, 20, true);
    b.s.cpu_wait = 0.5;
    assert_int_equal(run(&b, 100, true), 1);
    assert_non_null(strstr(b.last.why, "others use the CPUs 0 -> "));
    assert_true(b.last.load_cpu > 1.3 && b.last.load_cpu < 2.1);
}

static void test_memory_given_and_taken_back(void **state)
{
    struct bench b = make();
    (void)state;
    b.plan.follows_free = b.plan.wants_more = true;
    b.s.gpu_used = 23 * GIB; /* ours and a margin of 1 GiB */
    assert_int_equal(run(&b, 200, false), 0);
    b.s.gpu_used = 24 * GIB - GIB / 4; /* a game takes 768 MiB */
    assert_int_equal(run(&b, 10, false), 1);
    assert_int_equal(b.last.what, ATSI_GOVERN_SHRINK);
    assert_non_null(strstr(b.last.why, "others take 768 MiB more"));
    b.s.gpu_used = 23 * GIB; /* the session shrank */
    assert_int_equal(run(&b, 200, false), 0);
    b.s.gpu_used = 20 * GIB; /* the game ends */
    assert_int_equal(run(&b, 200, false), 1);
    assert_int_equal(b.last.what, ATSI_GOVERN_GROW);
    b.s.gpu_used = 23 * GIB;
    assert_int_equal(run(&b, 7200, false), 0);
}

/* A size the user named is the user's. */
static void test_memory_as_asked_for(void **state)
{
    struct bench b = make();
    (void)state;
    (void)run(&b, 20, false);
    b.s.gpu_used = 24 * GIB;
    assert_int_equal(run(&b, 100, false), 0);
    b.s.gpu_used = 10 * GIB;
    assert_int_equal(run(&b, 100, false), 0); /* it has all that it wants */
    b.plan.wants_more = true;
    b.plan.version++; /* placed with less */
    (void)run(&b, 1, false);
    assert_int_equal(run(&b, 7200, false), 0); /* nobody has given anything back since */
    b.s.gpu_used = 5 * GIB;
    assert_int_equal(run(&b, 100, false), 1);
    assert_int_equal(b.last.what, ATSI_GOVERN_GROW);
}

static void test_machine_that_says_nothing(void **state)
{
    struct bench b = make();
    (void)state;
    b.s = (struct atsi_sense){.has = 0};
    assert_int_equal(run(&b, 1000, true), 0);
}

/* ---------------------------------------------------------------- files */
static void test_files(void **state)
{
    struct atsi_sense s = {.has = 0};
    (void)state;
    scratch_write("m/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3000000\n");
    scratch_write("m/sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "1000000\n");
    scratch_write("m/proc/pressure/cpu", "some avg10=12.50 avg60=3.00 avg300=1.00 total=123\n");
    scratch_write("m/sys/class/power_supply/hid/type", "Battery\n");
    scratch_write("m/sys/class/power_supply/hid/scope", "Device\n");
    scratch_write("m/sys/class/power_supply/hid/status", "Discharging\n");
    atsi_sense_host(scratch_path("m"), &s);
    assert_int_equal(s.has, ATSI_HAS_CPU_CLOCK | ATSI_HAS_PRESSURE);
    assert_true(s.cpu_mhz > 1999 && s.cpu_mhz < 2001);
    assert_true(s.cpu_wait > 0.124 && s.cpu_wait < 0.126);
    scratch_write("m/sys/class/power_supply/BAT0/type", "Battery\n");
    scratch_write("m/sys/class/power_supply/BAT0/status", "Discharging\n");
    atsi_sense_host(scratch_path("m"), &s);
    assert_true((s.has & ATSI_HAS_BATTERY) != 0 && s.on_battery);
    scratch_write("m/sys/class/power_supply/BAT0/status", "Charging\n");
    s = (struct atsi_sense){.has = 0};
    atsi_sense_host(scratch_path("m"), &s);
    assert_true((s.has & ATSI_HAS_BATTERY) != 0 && !s.on_battery);
}

static void test_files_that_lie(void **state)
{
    struct atsi_sense s = {.has = 0};
    (void)state;
    atsi_sense_host(scratch_path("nowhere"), &s);
    scratch_write("bad/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "<unknown>\n");
    scratch_write("bad/proc/pressure/cpu", "some avg10=nan avg60=\n");
    scratch_write("bad/sys/class/power_supply/BAT0/type", "");
    atsi_sense_host(scratch_path("bad"), &s);
    assert_int_equal(s.has, 0);
    scratch_write("bad/proc/pressure/cpu", "some avg10=700\n");
    atsi_sense_host(scratch_path("bad"), &s);
    assert_int_equal(s.has, 0);
}

/* ---------------------------------------------------------------- modes */
static void test_modes(void **state)
{
    (void)state;
    assert_int_equal(atsi_power_spin_ns(ATSI_POWER_PERFORMANCE, 1000000, true), 1000000);
    assert_int_equal(atsi_power_spin_ns(ATSI_POWER_BALANCED, 1000000, false), 50000);
    assert_int_equal(atsi_power_spin_ns(ATSI_POWER_BALANCED, 1000, false), 1000);
    assert_int_equal(atsi_power_spin_ns(ATSI_POWER_BALANCED, 1000000, true), 0);
    assert_int_equal(atsi_power_spin_ns(ATSI_POWER_QUIET, 1000000, false), 0);
    assert_int_equal(atsi_power_threads(ATSI_POWER_QUIET, 8), 4);
    assert_int_equal(atsi_power_threads(ATSI_POWER_QUIET, 1), 1);
    assert_int_equal(atsi_power_threads(ATSI_POWER_BALANCED, 8), 8);
    assert_true(atsi_power_nice(ATSI_POWER_QUIET) > 0);
    assert_int_equal(atsi_power_nice(ATSI_POWER_PERFORMANCE), 0);
    assert_false(atsi_power_probes(ATSI_POWER_QUIET));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady),
        cmocka_unit_test(test_slower_once_and_back_once),
        cmocka_unit_test(test_idle_clocks_mean_nothing),
        cmocka_unit_test(test_clock_that_rises_at_first),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_swinging_clock),
        cmocka_unit_test(test_others_on_the_cpus),
        cmocka_unit_test(test_memory_given_and_taken_back),
        cmocka_unit_test(test_memory_as_asked_for),
        cmocka_unit_test(test_machine_that_says_nothing),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_files_that_lie),
        cmocka_unit_test(test_modes),
    };
    return cmocka_run_group_tests_name("govern", tests, scratch_enter, scratch_leave);
}
