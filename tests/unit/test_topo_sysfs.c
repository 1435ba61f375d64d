/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine without hwloc: folders that look like /sys, and this machine beside what hwloc says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "core/topo.h"
#include "core/topo_sysfs.h"
#include "tests/unit/scratch.h"

static void put(const char *machine, unsigned cpu, const char *file, const char *text)
{
    char path[160];
    (void)snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%u/%s", machine, cpu, file);
    scratch_write(path, text);
}

/* Two performance cores with two threads each (CPUs 0-3) and two efficiency cores (4-5). */
static void make_hybrid(void)
{
    static const char *const core[] = {"0-1\n", "0-1\n", "2-3\n", "2-3\n", "4\n", "5\n"};
    scratch_write("h/sys/devices/system/cpu/online", "0-5\n");
    scratch_write("h/sys/devices/cpu_atom/cpus", "4-5\n");
    scratch_write("h/sys/devices/system/node/online", "0-1\n");
    scratch_write("h/sys/devices/system/node/node0/cpulist", "0-3\n");
    scratch_write("h/sys/devices/system/node/node1/cpulist", "4-5\n");
    for (unsigned i = 0; i < 6; i++) {
        put("h", i, "topology/core_cpus_list", core[i]);
        put("h", i, "cache/index0/type", "Data\n");
        put("h", i, "cache/index0/level", "1\n");
        put("h", i, "cache/index0/size", i < 4 ? "48K\n" : "32K\n");
        put("h", i, "cache/index0/shared_cpu_list", core[i]);
        put("h", i, "cache/index1/type", "Instruction\n");
        put("h", i, "cache/index2/type", "Unified\n");
        put("h", i, "cache/index2/level", "3\n");
        put("h", i, "cache/index2/size", "24576K\n");
        put("h", i, "cache/index2/shared_cpu_list", "0-5\n");
    }
}

static void test_hybrid(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_topo *t;
    uint32_t cpus[8];
    (void)state;
    make_hybrid();
    assert_int_equal(atsi_topo_sysfs_open(scratch_path("h"), &t, &err), ATSI_OK);
    assert_int_equal(t->n_cpus, 6);
    assert_int_equal(t->n_cores, 4);
    assert_int_equal(t->n_usable_cores, 4);
    assert_int_equal(t->n_kinds, 2);
    assert_int_equal(t->n_numa, 2);
    assert_int_equal(t->cpus[1].core, t->cpus[0].core);
    assert_int_equal(t->cpus[3].kind, 1);
    assert_int_equal(t->cpus[4].kind, 0);
    assert_int_equal(t->cpus[5].numa_node, 1);
    assert_int_equal(t->n_caches, 3);
    assert_int_equal(t->caches[0].level, 1);
    assert_int_equal(t->caches[0].n_sharing, 1);
    assert_int_equal(t->caches[2].bytes, 24576 * 1024);
    assert_int_equal(t->caches[2].n_sharing, 4);
    /* Workers: one per performance core. */
    assert_int_equal(atsi_topo_pick(t, "", "p", 0, cpus, 8, &err), 2);
    assert_int_equal(cpus[0], 0);
    assert_int_equal(cpus[1], 2);
    assert_int_equal(atsi_topo_share(t, cpus, 2, 1), 48 * 1024);
    assert_int_equal(atsi_topo_share(t, cpus, 2, 2), 0);
    cpus[1] = 1; /* both on one core */
    assert_int_equal(atsi_topo_share(t, cpus, 2, 1), 24 * 1024);
    cpus[1] = 4;
    assert_int_equal(atsi_topo_share(t, cpus, 2, 1), 32 * 1024);
    atsi_topo_sysfs_close(t);
}

/* Capacities that differ by a few per cent are one kind. */
static void test_capacities(void **state)
{
    static const char *const capacity[] = {"1024\n", "1003\n", "446\n"};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_topo *t;
    (void)state;
    scratch_write("c/sys/devices/system/cpu/online", "0-2\n");
    for (unsigned i = 0; i < 3; i++)
        put("c", i, "cpu_capacity", capacity[i]);
    assert_int_equal(atsi_topo_sysfs_open(scratch_path("c"), &t, &err), ATSI_OK);
    assert_int_equal(t->n_kinds, 2);
    assert_int_equal(t->cpus[1].kind, 1);
    assert_int_equal(t->cpus[2].kind, 0);
    atsi_topo_sysfs_close(t);
}

/* Files that say nothing or nonsense: a core per CPU. */
static void test_little(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_topo *t;
    (void)state;
    scratch_write("l/sys/devices/system/cpu/online", "0-1,7-99999999\n");
    put("l", 0, "topology/core_cpus_list", "\n");
    put("l", 0, "cache/index0/type", "Data\n");
    put("l", 0, "cache/index0/level", "-1\n");
    scratch_write("l/sys/devices/system/node/online", "x\n");
    assert_int_equal(atsi_topo_sysfs_open(scratch_path("l"), &t, &err), ATSI_OK);
    assert_in_range(t->n_cpus, 3, 4096);
    assert_int_equal(t->n_cores, t->n_cpus);
    assert_int_equal(t->n_numa, 1);
    assert_int_equal(t->n_caches, 0);
    atsi_topo_sysfs_close(t);
    assert_int_equal(atsi_topo_sysfs_open(scratch_path("nothing"), &t, &err), ATSI_OK);
    assert_int_equal(t->n_cpus, 1);
    atsi_topo_sysfs_close(t);
}

static void test_here(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_topo *t, *other;
    (void)state;
    assert_int_equal(atsi_topo_sysfs_open("", &t, &err), ATSI_OK);
    assert_int_equal(atsi_topo_open("", &other, &err), ATSI_OK);
    assert_int_equal(t->n_usable_cpus, other->n_usable_cpus);
    assert_int_equal(t->n_usable_cores, other->n_usable_cores);
    assert_true(t->mem_total_bytes > 0);
    atsi_topo_close(other);
    atsi_topo_sysfs_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hybrid),
        cmocka_unit_test(test_capacities),
        cmocka_unit_test(test_little),
        cmocka_unit_test(test_here),
    };
    return cmocka_run_group_tests_name("topo_sysfs", tests, scratch_enter, scratch_leave);
}
