/* SPDX-License-Identifier: Apache-2.0
 *
 * Topology: described machines (XML, synthetic) read as what they describe, absurd descriptions are
 * refused, this machine agrees with the kernel, and workers get the CPUs that a user would give
 * them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/topo.h"

#define DATA ATSI_SOURCE_DIR "/tests/data/topo/"
#define HYBRID DATA "hybrid-8p-8e.xml"
#define NUMA DATA "numa-2x4-smt.xml"
#define UNRANKED DATA "unranked-kinds.xml"

static struct atsi_topo *open_topo(const char *source)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_topo *t = NULL;
    if (atsi_topo_open(source, &t, &err) != ATSI_OK)
        fail_msg("%s: %s", source != NULL ? source : "this machine", err.msg);
    assert_non_null(t);
    return t;
}

/* ---------------------------------------------------------------- descriptions */

static const struct {
    const char *source;
    uint32_t n_cpus, n_cores, n_numa, n_kinds, n_caches;
} shapes[] = {
    {HYBRID, 24, 16, 1, 2, 3},
    {NUMA, 16, 8, 2, 1, 3},
    {UNRANKED, 4, 4, 1, 1, 0},
    {"pack:1 core:4 pu:2", 8, 4, 1, 1, 0},
    {"pu:4", 4, 4, 1, 1, 0},
    {"core:2 pu:1", 2, 2, 1, 1, 0},
    {"2 3 4", 24, 24, 6, 1, 0},
    {"pack:64 core:64 pu:1", 4096, 4096, 1, 1, 0},
    {"pack:2 [numa(memory=8GB)] l3:2(size=8388608) core:2 pu:1", 8, 8, 2, 1, 1},
};

static void descriptions_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct atsi_topo *t = open_topo(shapes[i].source);
        assert_int_equal(t->n_cpus, shapes[i].n_cpus);
        assert_int_equal(t->n_cores, shapes[i].n_cores);
        assert_int_equal(t->n_usable_cpus, shapes[i].n_cpus);
        assert_int_equal(t->n_usable_cores, shapes[i].n_cores);
        assert_int_equal(t->n_numa, shapes[i].n_numa);
        assert_int_equal(t->n_kinds, shapes[i].n_kinds);
        assert_int_equal(t->n_caches, shapes[i].n_caches);
        assert_true(t->cgroup_cpus == 0.0);
        assert_true(t->mem_available_bytes <= t->mem_total_bytes);
        for (uint32_t c = 0; c < t->n_cpus; c++) {
            assert_true(t->cpus[c].usable);
            assert_true(t->cpus[c].core < t->n_cores);
            assert_true(t->cpus[c].numa_node < t->n_numa);
            assert_true(t->cpus[c].kind < t->n_kinds);
        }
        atsi_topo_close(t);
    }
}

static void hybrid_machine_has_its_kinds_and_caches(void **state)
{
    struct atsi_topo *t = open_topo(HYBRID);
    (void)state;
    assert_string_equal(t->cpu_model, "Example hybrid processor");
    for (uint32_t c = 0; c < t->n_cpus; c++)
        assert_int_equal(t->cpus[c].kind, t->cpus[c].os_index < 16 ? 1 : 0);
    assert_int_equal(t->caches[0].level, 1);
    assert_int_equal(t->caches[0].bytes, 49152);
    assert_int_equal(t->caches[0].n_sharing, 1);
    assert_int_equal(t->caches[1].bytes, 1310720);
    assert_int_equal(t->caches[2].level, 3);
    assert_int_equal(t->caches[2].bytes, 31457280);
    assert_int_equal(t->caches[2].n_sharing, 16);
    assert_int_equal(t->mem_total_bytes, UINT64_C(32) << 30);
    atsi_topo_close(t);
}

static void numa_machine_has_its_nodes_and_siblings(void **state)
{
    struct atsi_topo *t = open_topo(NUMA);
    (void)state;
    for (uint32_t c = 0; c < t->n_cpus; c++) {
        uint32_t os = t->cpus[c].os_index;
        assert_int_equal(t->cpus[c].core, os % 8);
        assert_int_equal(t->cpus[c].numa_node, os % 8 / 4);
    }
    assert_int_equal(t->mem_total_bytes, UINT64_C(128) << 30);
    atsi_topo_close(t);
}

/* hwloc gives a synthetic node 1 GiB when the description says nothing: no reason to refuse models.
 */
static void synthetic_memory_counts_only_when_described(void **state)
{
    struct atsi_topo *here = open_topo(NULL), *silent = open_topo("core:2 pu:1"),
                     *small = open_topo("numa:1(memory=512MiB) core:2 pu:1");
    (void)state;
    assert_int_equal(silent->mem_total_bytes, here->mem_total_bytes);
    assert_int_equal(small->mem_total_bytes, UINT64_C(512) << 20);
    assert_true(small->mem_available_bytes <= UINT64_C(512) << 20);
    atsi_topo_close(here);
    atsi_topo_close(silent);
    atsi_topo_close(small);
}

static const struct {
    const char *source;
    int status;
    const char *words;
} refused[] = {
    {"core:1000000 pu:1000", ATSI_EFORMAT, "too many"},
    {"pack:4294967295 core:4294967295", ATSI_EFORMAT, "too many"},
    {"pack:99999999999999999999999 core:2", ATSI_EFORMAT, "too many"},
    {"64 65", ATSI_EFORMAT, "too many"},
    {"pack:0 core:4", ATSI_EFORMAT, "0 CPUs"},
    {"core:-4", ATSI_EFORMAT, "neither"},
    {"core:", ATSI_EFORMAT, "neither"},
    {"bogus:4 pu:2", ATSI_EFORMAT, "neither"},
    {"core:4 pu", ATSI_EFORMAT, "neither"},
    {"%s%n", ATSI_EFORMAT, "%s%n"},
    {"(((((", ATSI_EFORMAT, "neither"},
    {"pu:2 core:4", ATSI_EFORMAT, "neither"},
    {"/nonexistent/machine.xml", ATSI_EIO, "No such file"},
    {ATSI_SOURCE_DIR "/tests/data/topo", ATSI_EFORMAT, "neither a file"},
};

static void absurd_descriptions_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct atsi_err err = ATSI_ERR_INIT;
        struct atsi_topo *t = NULL;
        if (atsi_topo_open(refused[i].source, &t, &err) != refused[i].status)
            fail_msg("%s: %s", refused[i].source, err.msg);
        assert_null(t);
        if (strstr(err.msg, refused[i].words) == NULL)
            fail_msg("%s: %s", refused[i].source, err.msg);
    }
}

static void long_description_is_refused(void **state)
{
    char text[4096];
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_topo *t = NULL;
    (void)state;
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = "1 "[i & 1];
    text[sizeof text - 1] = '\0';
    assert_int_equal(atsi_topo_open(text, &t, &err), ATSI_EFORMAT);
    assert_null(t);
}

/* hwloc 2.9 does not free the objects read so far when XML ends early: not our leak. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

static int open_bytes(const char *bytes, size_t n)
{
    char path[] = "/tmp/atsi-topo-XXXXXX.xml";
    int fd = mkstemps(path, 4), rc;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_topo *t = NULL;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    assert_int_equal(close(fd), 0);
    rc = atsi_topo_open(path, &t, &err);
    if (rc != ATSI_OK)
        assert_int_not_equal(err.msg[0], '\0');
    atsi_topo_close(t);
    assert_int_equal(unlink(path), 0);
    return rc;
}

static void damaged_xml_is_refused(void **state)
{
    FILE *f = fopen(UNRANKED, "re");
    char bytes[8192];
    size_t n;
    (void)state;
    assert_non_null(f);
    n = fread(bytes, 1, sizeof bytes, f);
    assert_int_equal(fclose(f), 0);
    assert_in_range(n, 1000, sizeof bytes - 1);
    assert_int_equal(open_bytes(bytes, n), ATSI_OK);
    if (__lsan_disable != NULL)
        __lsan_disable();
    for (size_t cut = 0; cut + 20 < n; cut += 37)
        assert_int_equal(open_bytes(bytes, cut), ATSI_EFORMAT);
    if (__lsan_enable != NULL)
        __lsan_enable();
    assert_int_equal(open_bytes("<topology version=\"2.0\"></topology>", 35), ATSI_EFORMAT);
    assert_int_equal(open_bytes("\0\0\0\0", 4), ATSI_EFORMAT);
}

/* ---------------------------------------------------------------- this machine */

static void this_machine_agrees_with_the_kernel(void **state)
{
    struct atsi_topo *t = open_topo("");
    cpu_set_t set;
    uint32_t usable = 0;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    for (uint32_t c = 0; c < t->n_cpus; c++) {
        usable += t->cpus[c].usable;
        assert_int_equal(t->cpus[c].usable, CPU_ISSET(t->cpus[c].os_index, &set) != 0);
    }
    assert_int_equal(t->n_usable_cpus, usable);
    assert_int_equal(t->n_usable_cpus, CPU_COUNT(&set));
    assert_in_range(t->n_usable_cores, 1, t->n_cores);
    assert_int_equal(t->page_bytes, sysconf(_SC_PAGESIZE));
    assert_true(t->mem_total_bytes > 0);
    assert_in_range(t->mem_available_bytes, 1, t->mem_total_bytes);
    assert_int_not_equal(t->cpu_model[0], '\0');
    atsi_topo_close(t);
}

static void affinity_mask_limits_usable_cpus(void **state)
{
    struct atsi_topo *t;
    cpu_set_t before, one;
    int first = 0;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    t = open_topo(NULL);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(t->n_usable_cpus, 1);
    assert_int_equal(t->n_usable_cores, 1);
    for (uint32_t c = 0; c < t->n_cpus; c++)
        assert_int_equal(t->cpus[c].usable, t->cpus[c].os_index == (uint32_t)first);
    atsi_topo_close(t);
    atsi_topo_close(NULL);
}

/* ---------------------------------------------------------------- the CPUs of workers */

static const struct {
    const char *source, *cpus, *cores;
    uint32_t threads;
    const char *picked; /* space separated OS indices */
} picks[] = {
    /* one per core of the fastest kind */
    {HYBRID, "", "p", 0, "0 2 4 6 8 10 12 14"},
    {HYBRID, "", "all", 0, "0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30"},
    {NUMA, "", "p", 0, "0 1 2 3 4 5 6 7"},
    {NUMA, "", "all", 0, "0 1 2 3 4 5 6 7"},
    {UNRANKED, "", "p", 0, "0 1 2 3"},
    {"core:2 pu:2", "", "p", 0, "0 2"},
    {"core:1 pu:1", "", "p", 0, "0"},
    /* exactly as many as asked: fewer, performance cores first, second threads, then around again
     */
    {HYBRID, "", "p", 3, "0 2 4"},
    {HYBRID, "", "all", 9, "0 2 4 6 8 10 12 14 16"},
    {HYBRID, "", "p", 10, "0 2 4 6 8 10 12 14 1 3"},
    {HYBRID, "", "all", 18, "0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30 1 3"},
    {NUMA, "", "p", 10, "0 1 2 3 4 5 6 7 8 9"},
    {"core:2 pu:1", "", "p", 5, "0 1 0 1 0"},
    /* the user's own list */
    {HYBRID, "16,18,20", "p", 0, "16 18 20"},
    {HYBRID, "0-3", "p", 0, "0 2"},
    {HYBRID, "0-3", "p", 4, "0 2 1 3"},
    {HYBRID, "16,0", "p", 0, "0 16"},
    {NUMA, "7,5,6", "p", 0, "7 5 6"},
    {NUMA, " 4-5 , 12 ", "all", 0, "4 5"},
    {NUMA, "3,3,3-3", "p", 0, "3"},
    {NUMA, "2", "p", 3, "2 2 2"},
};

static void workers_get_sensible_cpus(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof picks / sizeof picks[0]; i++) {
        struct atsi_topo *t = open_topo(picks[i].source);
        struct atsi_err err = ATSI_ERR_INIT;
        uint32_t out[64];
        char text[256] = "";
        size_t len = 0;
        int n = atsi_topo_pick(t, picks[i].cpus, picks[i].cores, picks[i].threads, out, 64, &err);
        for (int k = 0; k < n; k++)
            len +=
                (size_t)snprintf(text + len, sizeof text - len, "%s%u", k > 0 ? " " : "", out[k]);
        assert_string_equal(text, picks[i].picked);
        atsi_topo_close(t);
    }
}

static void quota_and_room_bound_the_default(void **state)
{
    static const struct {
        double quota;
        uint32_t max;
        int n;
    } cases[] = {{0.0, 64, 8}, {2.9, 64, 2},   {0.4, 64, 1},
                 {8.0, 64, 8}, {100.0, 64, 8}, {0.0, 5, 5}};
    struct atsi_topo *t = open_topo(NUMA);
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t out[64];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        t->cgroup_cpus = cases[i].quota;
        assert_int_equal(atsi_topo_pick(t, "", "p", 0, out, cases[i].max, &err), cases[i].n);
    }
    t->cgroup_cpus = 1.0; /* a number that the user names stands */
    assert_int_equal(atsi_topo_pick(t, "", "p", 6, out, 64, &err), 6);
    atsi_topo_close(t);
}

/* Three CPUs of which the fast core may not be used. */
static void unusable_cpus_are_left_alone(void **state)
{
    static const struct atsi_cpu_info cpus[] = {
        {.os_index = 0, .core = 0, .kind = 1, .usable = false},
        {.os_index = 1, .core = 1, .kind = 0, .usable = true},
        {.os_index = 2, .core = 2, .kind = 0, .usable = false},
        {.os_index = 9, .core = 3, .kind = 0, .usable = true}};
    struct atsi_topo t = {.n_cpus = 4, .n_cores = 4, .n_kinds = 2, .cpus = cpus};
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t out[8];
    (void)state;
    assert_int_equal(atsi_topo_pick(&t, "", "p", 0, out, 8, &err), 2);
    assert_int_equal(out[0], 1);
    assert_int_equal(out[1], 9);
    assert_int_equal(atsi_topo_pick(&t, "0-2", "p", 0, out, 8, &err), ATSI_ECONF);
    assert_non_null(strstr(err.msg, "CPU 0 may not be used"));
    t.n_cpus = 1; /* only the one that is not usable */
    assert_int_equal(atsi_topo_pick(&t, "", "p", 0, out, 8, &err), ATSI_ENODEV);
}

static void bad_choices_are_explained(void **state)
{
    static const struct {
        const char *cpus, *cores;
        uint32_t threads;
        const char *words;
    } bad[] = {
        {"0-99", "p", 0, "no CPU 16"},
        {"77", "p", 0, "no CPU 77"},
        {"5-2", "p", 0, "backwards"},
        {"a", "p", 0, "expected CPU numbers"},
        {"1,", "p", 0, "expected CPU"},
        {",", "p", 0, "expected CPU"},
        {"1-", "p", 0, "expected CPU"},
        {"-1", "p", 0, "expected CPU"},
        {"1;2", "p", 0, "expected CPU"},
        {"99999999999999999999", "p", 0, "no CPU 4294967295"},
        {"0-4294967295", "p", 0, "no CPU"},
        {"", "e", 0, "p or all"},
        {"", "", 0, "p or all"},
        {"", "p", 65, "64 is the most"},
    };
    struct atsi_topo *t = open_topo(NUMA);
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct atsi_err err = ATSI_ERR_INIT;
        uint32_t out[64];
        int rc = atsi_topo_pick(t, bad[i].cpus, bad[i].cores, bad[i].threads, out, 64, &err);
        assert_int_equal(rc, ATSI_ECONF);
        assert_non_null(strstr(err.msg, bad[i].words));
    }
    atsi_topo_close(t);
}

/* ---------------------------------------------------------------- caches of workers */
#define CLUSTERS "l2:2(size=4194304) l1:4(size=32768) core:1 pu:1" /* four cores on an L2 */

static const struct {
    const char *source, *cpus, *cores;
    uint32_t threads;
    uint64_t l1d, l2;
} shares[] = {
    {HYBRID, "", "p", 0, 49152, 1310720},
    {HYBRID, "", "all", 0, 49152, 1310720},
    {HYBRID, "", "p", 16, 24576, 655360}, /* both threads of every core */
    {HYBRID, "", "p", 9, 24576, 655360},  /* of one: the others wait for it */
    {CLUSTERS, "", "p", 0, 32768, 1048576},
    {CLUSTERS, "0,4", "p", 0, 32768, 4194304}, /* one worker on each */
    {CLUSTERS, "0-2", "p", 0, 32768, 1398101},
    {CLUSTERS, "0", "p", 3, 32768, 4194304}, /* they take turns on one CPU */
    {"l2:1(size=262144) l1:1(size=32768) core:1 pu:1", "", "p", 0, 32768, 262144},
    {"core:4 pu:2", "", "p", 0, 0, 0},
};

static void workers_have_their_share_of_caches(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        struct atsi_topo *t = open_topo(shares[i].source);
        struct atsi_err err = ATSI_ERR_INIT;
        uint32_t out[64];
        int n =
            atsi_topo_pick(t, shares[i].cpus, shares[i].cores, shares[i].threads, out, 64, &err);
        assert_true(n > 0);
        assert_int_equal(atsi_topo_share(t, out, (uint32_t)n, 1), shares[i].l1d);
        assert_int_equal(atsi_topo_share(t, out, (uint32_t)n, 2), shares[i].l2);
        atsi_topo_close(t);
    }
}

/* One core without a known cache: nothing is known of all. */
static void unknown_caches_are_not_guessed(void **state)
{
    static const struct atsi_cpu_info cpus[] = {{.os_index = 0, .usable = true},
                                                {.os_index = 5, .core = 1, .usable = true}};
    static const struct atsi_cpu_caches caches[] = {{{49152, 2097152}, {0, 0}},
                                                    {{0, 2097152}, {0, 5}}};
    static const uint32_t both[] = {0, 5};
    struct atsi_topo t = {.n_cpus = 2, .cpus = cpus, .cpu_caches = caches};
    (void)state;
    assert_int_equal(atsi_topo_share(&t, both, 1, 1), 49152);
    assert_int_equal(atsi_topo_share(&t, both, 2, 1), 0);
    assert_int_equal(atsi_topo_share(&t, both, 2, 2), 2097152);
    assert_int_equal(atsi_topo_share(&t, both, 0, 2), 0);
    t.cpu_caches = NULL;
    assert_int_equal(atsi_topo_share(&t, both, 1, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptions_are_read),
        cmocka_unit_test(hybrid_machine_has_its_kinds_and_caches),
        cmocka_unit_test(numa_machine_has_its_nodes_and_siblings),
        cmocka_unit_test(synthetic_memory_counts_only_when_described),
        cmocka_unit_test(absurd_descriptions_are_refused),
        cmocka_unit_test(long_description_is_refused),
        cmocka_unit_test(damaged_xml_is_refused),
        cmocka_unit_test(this_machine_agrees_with_the_kernel),
        cmocka_unit_test(affinity_mask_limits_usable_cpus),
        cmocka_unit_test(workers_get_sensible_cpus),
        cmocka_unit_test(quota_and_room_bound_the_default),
        cmocka_unit_test(unusable_cpus_are_left_alone),
        cmocka_unit_test(bad_choices_are_explained),
        cmocka_unit_test(workers_have_their_share_of_caches),
        cmocka_unit_test(unknown_caches_are_not_guessed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
