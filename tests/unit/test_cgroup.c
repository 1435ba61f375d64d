/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits of control groups, version 1 and 2, as containers and service managers set them, read from
 * folders that look like /proc and /sys.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cgroup.h"

#define MIB (UINT64_C(1) << 20)
#define MEMINFO                                                                                    \
    "MemTotal:        8388608 kB\nMemFree:         1048576 kB\nMemAvailable:    6291456 kB\n"      \
    "Hugepagesize:       2048 kB\n"

static const char v2_mount[] =
    "25 1 0:22 / /proc rw - proc proc rw\n"
    "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
static const char v1_mounts[] =
    "30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:4 - cgroup cgroup rw,cpu,cpuacct\n"
    "31 25 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "32 25 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
/* Of a container without a cgroup namespace: only its own part is mounted. */
static const char v1_part_mounts[] =
    "30 25 0:26 /docker/ab /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "32 25 0:28 /docker/ab /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

struct file {
    const char *path, *text;
};

static const struct scene {
    const char *name;
    struct file files[14];
    double cpus;
    uint64_t total_mib, available_mib, limit_mib; /* limit 0: none */
} scenes[] = {
    {"nothing at all", {{NULL, NULL}}, 0.0, 0, 0, 0},
    {"no groups", {{"proc/meminfo", MEMINFO}}, 0.0, 8192, 6144, 0},
    {"v2, no limits",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/user.slice/run.scope\n"},
      {"proc/self/mountinfo", v2_mount},
      {"sys/fs/cgroup/user.slice/run.scope/cpu.max", "max 100000\n"},
      {"sys/fs/cgroup/user.slice/run.scope/memory.max", "max\n"},
      {"sys/fs/cgroup/user.slice/run.scope/memory.current", "104857600\n"}},
     0.0,
     8192,
     6144,
     0},
    {"v2, limits of the group",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/a\n"},
      {"proc/self/mountinfo", v2_mount},
      {"sys/fs/cgroup/a/cpu.max", "250000 100000\n"},
      {"sys/fs/cgroup/a/memory.max", "1073741824\n"},
      {"sys/fs/cgroup/a/memory.current", "734003200\n"}, /* 700 MiB, 600 of them page cache */
      {"sys/fs/cgroup/a/memory.stat",
       "anon 104857600\nfile 629145600\ninactive_file 419430400\nactive_file 209715200\n"}},
     2.5,
     8192,
     924,
     1024},
    {"v2, an ancestor is tighter",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/a/b/c\n"},
      {"proc/self/mountinfo", v2_mount},
      {"sys/fs/cgroup/a/cpu.max", "50000 100000\n"},
      {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"},
      {"sys/fs/cgroup/a/b/c/cpu.max", "400000 100000\n"},
      {"sys/fs/cgroup/a/memory.max", "2147483648\n"},
      {"sys/fs/cgroup/a/memory.current", "2097152000\n"}, /* 2000 MiB, a neighbour's */
      {"sys/fs/cgroup/a/b/c/memory.max", "1073741824\n"},
      {"sys/fs/cgroup/a/b/c/memory.current", "0\n"}},
     0.5,
     8192,
     48,
     1024},
    {"v2, over its limit",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/\n"},
      {"proc/self/mountinfo", v2_mount},
      {"sys/fs/cgroup/memory.max", "1048576\n"},
      {"sys/fs/cgroup/memory.current", "2097152\n"}},
     0.0,
     8192,
     0,
     1},
    {"v2, a group outside of the namespace",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/../../other\n"},
      {"proc/self/mountinfo", v2_mount},
      {"sys/fs/cgroup/cpu.max", "100000 100000\n"}},
     1.0,
     8192,
     6144,
     0},
    {"v2, a mount point with a space",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/a\n"},
      {"proc/self/mountinfo", "30 25 0:26 / /my\\040groups rw - cgroup2 none rw\n"},
      {"my groups/a/cpu.max", "300000 100000\n"}},
     3.0,
     8192,
     6144,
     0},
    {"v1, limits",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "5:cpu,cpuacct:/box\n4:cpuset:/\n3:memory:/box/inner\n0::/\n"},
      {"proc/self/mountinfo", v1_mounts},
      {"sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "150000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/memory/box/inner/memory.limit_in_bytes", "9223372036854771712\n"},
      {"sys/fs/cgroup/memory/box/inner/memory.usage_in_bytes", "104857600\n"},
      {"sys/fs/cgroup/memory/box/memory.limit_in_bytes", "536870912\n"},
      {"sys/fs/cgroup/memory/box/memory.usage_in_bytes", "209715200\n"},
      {"sys/fs/cgroup/memory/box/memory.stat",
       "cache 1\ninactive_file 1\ntotal_inactive_file 52428800\ntotal_active_file 52428800\n"}},
     1.5,
     8192,
     412,
     512},
    {"v1, only the container's part is mounted",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "5:cpu:/docker/ab\n3:memory:/docker/ab\n"},
      {"proc/self/mountinfo", v1_part_mounts},
      {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"},
      {"sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n"}},
     2.0,
     8192,
     1024,
     1024},
    {"files full of nonsense",
     {{"proc/meminfo", "MemTotal: x kB\nMemAvailable: 99999999999999999999999 kB\nHuge\n:::\n"},
      {"proc/self/cgroup", "::\n0:\nx\n0::/a\n"},
      {"proc/self/mountinfo",
       "- cgroup2\n - \n1 - cgroup2 x y\n30 25 0:26 / /g rw - cgroup2 c rw\n"},
      {"g/a/cpu.max", "100000\n"},
      {"g/a/memory.max", "-5\n"},
      {"g/a/memory.current", "12\n"},
      {"g/cpu.max", "100000 0\n"},
      {"g/memory.max", "\n"}},
     0.0,
     0,
     0,
     0},
};

/* Creates the folders that `path` is in. */
static void make_folders(char *path)
{
    for (char *p = path + 1; *p != '\0'; p++)
        if (*p == '/') {
            *p = '\0';
            assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
            *p = '/';
        }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void limits_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        const struct scene *s = &scenes[i];
        char root[] = "/tmp/atsi-cgroup-XXXXXX";
        struct atsi_limits l;
        assert_non_null(mkdtemp(root));
        for (const struct file *f = s->files; f->path != NULL; f++) {
            char path[512];
            FILE *out;
            (void)snprintf(path, sizeof path, "%s/%s", root, f->path);
            make_folders(path);
            out = fopen(path, "we");
            assert_non_null(out);
            assert_true(fputs(f->text, out) >= 0);
            assert_int_equal(fclose(out), 0);
        }
        atsi_limits_read(root, &l);
        assert_int_equal(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
        if (l.cgroup_cpus != s->cpus || l.mem_total_bytes != s->total_mib * MIB ||
            l.mem_available_bytes != s->available_mib * MIB ||
            l.cgroup_mem_bytes != (s->limit_mib > 0 ? s->limit_mib * MIB : UINT64_MAX))
            fail_msg("%s: %g CPUs, %llu of %llu bytes, limit %llu", s->name, l.cgroup_cpus,
                     (unsigned long long)l.mem_available_bytes,
                     (unsigned long long)l.mem_total_bytes, (unsigned long long)l.cgroup_mem_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(limits_are_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
