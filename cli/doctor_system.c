/* SPDX-License-Identifier: Apache-2.0
 *
 * What `atsinfer doctor` finds out about the processor and the operating system: capabilities and
 * cores in use, memory, huge pages, clock governor, pressure by other programs, process limits.
 * Files of /proc and /sys that are not there (containers, virtual machines) are no fault. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/doctor.h"

/* Above these shares of the last minute other programs cost more than a few percent of speed. */
#define CPU_PRESSURE_PERCENT 10.0
#define MEMORY_PRESSURE_PERCENT 1.0

/* ---------------------------------------------------------------- processor, cores */

static void check_caps(struct doctor *d)
{
    uint64_t masked = machine_masked(d->rt);
    struct finding *f = doctor_add(d, FINDING_OK, "cpu");
    const char *model = atsi_runtime_topo(d->rt)->cpu_model;
    machine_add(&f->text, "%s: ", model[0] != '\0' ? model : "not named");
    machine_add_caps(&f->text, atsi_runtime_host(d->rt)->cpu_caps);
    if (masked == 0)
        return;
    f = doctor_add(d, FINDING_NOTE, "cpu");
    machine_add(&f->text, "masked although this CPU has it: ");
    machine_add_caps(&f->text, masked);
    machine_add(&f->todo, "clear cpu.caps_mask (%s) and cpu.caps_file (%s) for full speed",
                machine_conf(d->rt, "cpu.caps_mask").origin,
                machine_conf(d->rt, "cpu.caps_file").origin);
}

static void check_workers(struct doctor *d)
{
    const struct atsi_topo *t = atsi_runtime_topo(d->rt);
    uint32_t n = atsi_runtime_workers(d->rt, NULL, 0);
    struct finding *f = doctor_add(d, FINDING_OK, "workers");
    machine_add_workers(&f->text, d->rt);
    machine_add(&f->text, "; ");
    machine_add_why(&f->text, d->rt);
    if (n > t->n_usable_cpus) {
        f = doctor_add(d, FINDING_NOTE, "workers");
        machine_add(&f->text, "%u workers share %u CPUs and wait for each other", n,
                    t->n_usable_cpus);
        machine_add(&f->todo, "set cpu.threads = 0 (one per core) or at most %u",
                    t->n_usable_cores);
    } else if (t->cgroup_cpus > 0.0 && (double)n > t->cgroup_cpus) {
        f = doctor_add(d, FINDING_NOTE, "workers");
        machine_add(&f->text, "%u workers, but the control group grants the time of %.2f CPUs", n,
                    t->cgroup_cpus);
        machine_add(&f->todo, "set cpu.threads = 0, or raise the limit (docker --cpus, CPUQuota=)");
    }
}

static void check_topology(struct doctor *d)
{
    const struct atsi_topo *t = atsi_runtime_topo(d->rt);
    struct atsi_conf_entry source = machine_conf(d->rt, "cpu.topology");
    struct finding *f = doctor_add(d, FINDING_OK, "topology");
    machine_add(&f->text, "%u of %u cores and %u of %u CPUs usable, %u NUMA node%s",
                t->n_usable_cores, t->n_cores, t->n_usable_cpus, t->n_cpus, t->n_numa,
                t->n_numa == 1 ? "" : "s");
    if (source.value[0] != '\0') {
        f = doctor_add(d, FINDING_NOTE, "topology");
        machine_add(&f->text, "described by %s (%s), so workers are not pinned", source.value,
                    source.origin);
        machine_add(&f->todo, "clear cpu.topology to run on this machine as it is");
    }
    if (t->n_usable_cores < t->n_cores) {
        f = doctor_add(d, FINDING_NOTE, "topology");
        machine_add(&f->text, "%u of %u cores are outside of the affinity mask or cpuset",
                    t->n_cores - t->n_usable_cores, t->n_cores);
        machine_add(&f->todo, "start without taskset, or widen the cpuset of the container");
    }
    if (t->n_numa > 1) {
        f = doctor_add(d, FINDING_NOTE, "topology");
        machine_add(&f->text,
                    "memory of %u NUMA nodes: where the file was cached decides how far "
                    "weights travel",
                    t->n_numa);
        machine_add(&f->todo, "start with `numactl --interleave=all` on an empty page cache");
    }
    check_workers(d);
}

void doctor_check_cpu(struct doctor *d)
{
    check_caps(d);
    check_topology(d);
}

/* ---------------------------------------------------------------- small files of the kernel */

/* First line without its newline; false when the file is not there. */
static bool read_line(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "re");
    bool ok;
    if (f == NULL)
        return false;
    ok = fgets(out, (int)size, f) != NULL;
    (void)fclose(f); /* opened for reading */
    if (ok)
        out[strcspn(out, "\n")] = '\0';
    return ok;
}

/* The choice in brackets of "always [madvise] never". */
static bool read_choice(const char *path, char *out, size_t size)
{
    char text[128];
    const char *begin;
    if (!read_line(path, text, sizeof text))
        return false;
    begin = strchr(text, '[');
    if (begin == NULL)
        return false;
    (void)snprintf(out, size, "%.*s", (int)strcspn(begin + 1, "]"), begin + 1);
    return true;
}

/* "some avg10=0.07 avg60=0.09 ...": percent of the last minute in which something waited. */
static bool read_pressure(const char *path, double *avg60)
{
    char text[256], *at;
    if (!read_line(path, text, sizeof text))
        return false;
    at = strstr(text, "avg60=");
    if (at == NULL)
        return false;
    *avg60 = strtod(at + 6, NULL);
    return true;
}

/* "HugePages_Total:       0" of /proc/meminfo. */
static uint64_t read_reserved_pages(void)
{
    char text[256];
    uint64_t n = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    if (f == NULL)
        return 0;
    while (fgets(text, sizeof text, f) != NULL)
        if (strncmp(text, "HugePages_Total:", 16) == 0)
            n = strtoull(text + 16, NULL, 10);
    (void)fclose(f); /* opened for reading */
    return n;
}

/* ---------------------------------------------------------------- checks */

static void check_memory(struct doctor *d)
{
    const struct atsi_topo *t = atsi_runtime_topo(d->rt);
    char total[32], available[32];
    struct rlimit as;
    struct finding *f = doctor_add(d, FINDING_OK, "memory");
    machine_add(&f->text, "%s of %s available", cli_bytes(t->mem_available_bytes, available),
                cli_bytes(t->mem_total_bytes, total));
    if (t->mem_available_bytes < t->mem_total_bytes / 10) {
        f->level = FINDING_NOTE;
        machine_add(&f->todo, "end programs that hold memory, or raise the container's limit");
    }
    if (getrlimit(RLIMIT_AS, &as) == 0 && as.rlim_cur != RLIM_INFINITY) {
        f = doctor_add(d, FINDING_NOTE, "memory");
        machine_add(&f->text, "address space is limited to %s; a larger model cannot be mapped",
                    cli_bytes(as.rlim_cur, total));
        machine_add(&f->todo, "ulimit -v unlimited");
    }
}

static void check_huge_pages(struct doctor *d)
{
    const struct atsi_topo *t = atsi_runtime_topo(d->rt);
    uint64_t reserved = read_reserved_pages();
    char choice[32], bytes[32];
    struct finding *f = doctor_add(d, FINDING_OK, "huge pages");
    if (!read_choice("/sys/kernel/mm/transparent_hugepage/enabled", choice, sizeof choice)) {
        machine_add(&f->text, "this kernel offers no transparent huge pages");
    } else {
        machine_add(&f->text, "transparent: %s", choice);
        if (strcmp(choice, "never") == 0) {
            f->level = FINDING_NOTE;
            machine_add(&f->todo, "as root: echo madvise "
                                  ">/sys/kernel/mm/transparent_hugepage/enabled");
        }
    }
    machine_add(&f->text, ", %llu reserved", (unsigned long long)reserved);
    if (reserved > 0 && t->huge_page_bytes > 0) {
        f = doctor_add(d, FINDING_NOTE, "huge pages");
        machine_add(&f->text, "%s are set aside as reserved huge pages, which are not used here",
                    cli_bytes(reserved * t->huge_page_bytes, bytes));
        machine_add(&f->todo, "as root: sysctl vm.nr_hugepages=0, unless another program needs it");
    }
}

/* Governors that leave the clock low until the load has lasted; "powersave" of the drivers that set
 * the clock themselves is not one of them. */
static bool is_slow(const char *governor, const char *driver)
{
    if (strcmp(governor, "conservative") == 0)
        return true;
    return strcmp(governor, "powersave") == 0 && strcmp(driver, "intel_pstate") != 0 &&
           strcmp(driver, "amd-pstate-epp") != 0;
}

static void check_governor(struct doctor *d)
{
    const struct atsi_topo *t = atsi_runtime_topo(d->rt);
    char path[128], governor[64] = "", driver[64] = "";
    struct finding *f = doctor_add(d, FINDING_OK, "clock");
    uint32_t n_slow = 0, n_seen = 0;
    for (uint32_t i = 0; i < t->n_cpus; i++) {
        char here[64], by[64] = "";
        (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cpufreq/scaling_governor",
                       t->cpus[i].os_index);
        if (!t->cpus[i].usable || !read_line(path, here, sizeof here))
            continue;
        (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cpufreq/scaling_driver",
                       t->cpus[i].os_index);
        (void)read_line(path, by, sizeof by); /* "" when there is none */
        n_seen++;
        n_slow += is_slow(here, by);
        if (n_seen == 1 || is_slow(here, by)) {
            memcpy(governor, here, sizeof governor);
            memcpy(driver, by, sizeof driver);
        }
    }
    if (n_seen == 0) {
        machine_add(&f->text, "not set by this system (virtual machine or fixed clock)");
        return;
    }
    machine_add(&f->text, "governor %s, driver %s", governor, driver[0] != '\0' ? driver : "?");
    if (n_slow > 0) {
        f->level = FINDING_NOTE;
        machine_add(&f->text, " on %u of %u CPUs", n_slow, n_seen);
        machine_add(&f->todo, "as root: cpupower frequency-set -g performance");
    }
}

static void check_pressure(struct doctor *d)
{
    double cpu = 0.0, memory = 0.0;
    struct finding *f = doctor_add(d, FINDING_OK, "pressure");
    if (!read_pressure("/proc/pressure/cpu", &cpu) ||
        !read_pressure("/proc/pressure/memory", &memory)) {
        machine_add(&f->text, "not reported by this kernel");
        return;
    }
    machine_add(&f->text, "in the last minute %.1f %% waiting for CPUs, %.1f %% for memory", cpu,
                memory);
    if (cpu >= CPU_PRESSURE_PERCENT) {
        f->level = FINDING_NOTE;
        machine_add(&f->todo, "other programs use the CPUs: end them, or lower cpu.threads");
    }
    if (memory >= MEMORY_PRESSURE_PERCENT) {
        f->level = FINDING_NOTE;
        machine_add(&f->todo, "%smemory is short: end programs or choose a smaller model",
                    f->todo.len > 0 ? "; " : "");
    }
}

/* Weights are mapped and nothing is locked, so a low limit is worth a line and no more. */
static void check_memlock(struct doctor *d)
{
    struct rlimit lock;
    char bytes[32];
    struct finding *f = doctor_add(d, FINDING_OK, "memlock");
    if (getrlimit(RLIMIT_MEMLOCK, &lock) != 0)
        machine_add(&f->text, "limit not known");
    else if (lock.rlim_cur == RLIM_INFINITY)
        machine_add(&f->text, "no limit");
    else
        machine_add(&f->text, "limit %s (ulimit -l); computing on the CPU locks nothing",
                    cli_bytes(lock.rlim_cur, bytes));
}

void doctor_check_system(struct doctor *d)
{
    check_memory(d);
    check_huge_pages(d);
    check_governor(d);
    check_pressure(d);
    check_memlock(d);
}
