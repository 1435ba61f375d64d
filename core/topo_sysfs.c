/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine as struct atsi_topo without hwloc: Linux's /sys/devices/system (kernel documentation:
 * admin-guide/cputopology, ABI/testing/sysfs-devices-system-cpu).  For builds with
 * ATSINFER_NO_HWLOC, where it is the only source; recorded topologies are refused there.
 */
#include "core/topo_sysfs.h"

#include "core/cgroup.h"
#include "core/cpu_caps.h"
#include "core/topo.h"

#include <dirent.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_CPUS 4096u
#define MAX_NODES 256u
#define MAX_CACHE_INDEX 16u

/* `pub` comes first: the public pointer is the object's. */
struct topo {
    struct atsi_topo pub;
    struct atsi_cpu_info *cpus;     /* [owned] pub.cpus */
    struct atsi_cpu_caches *caches; /* [owned] pub.cpu_caches */
};

/* A set of CPU numbers. */
struct set {
    uint8_t has[MAX_CPUS];
};

/* ---------------------------------------------------------------- files */

/* First line of a file below root; false when there is none. */
static bool read_line(const char *root, const char *path, char *out, size_t size)
{
    char full[PATH_MAX];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = n > 0 && (size_t)n < sizeof full ? fopen(full, "re") : NULL;
    bool ok;
    if (f == NULL)
        return false;
    ok = fgets(out, (int)size, f) != NULL;
    (void)fclose(f); /* only read from */
    return ok;
}

static bool read_number(const char *root, const char *path, long *out)
{
    char text[64], *end;
    if (!read_line(root, path, text, sizeof text))
        return false;
    *out = strtol(text, &end, 10);
    return end != text;
}

/* "0-3,8"; numbers of CPUs that cannot be are left out.  False: no file, or none in it. */
static bool read_list(const char *root, const char *path, struct set *out)
{
    char text[4096];
    const char *p = text;
    bool any = false;
    memset(out, 0, sizeof *out);
    if (!read_line(root, path, text, sizeof text))
        return false;
    while (*p >= '0' && *p <= '9') {
        char *end;
        unsigned long first = strtoul(p, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long i = first; i <= last && i < MAX_CPUS; i++)
            out->has[i] = any = true;
        p = *end == ',' ? end + 1 : end;
    }
    return any;
}

/* ---------------------------------------------------------------- CPUs */

/* CPUs that threads of this process may be put on: those of all its threads together, because an
 * earlier runtime may have pinned the calling one. */
static void add_allowed(pid_t thread, struct set *s)
{
    cpu_set_t *mask = CPU_ALLOC(MAX_CPUS);
    size_t bytes = CPU_ALLOC_SIZE(MAX_CPUS);
    if (mask != NULL && sched_getaffinity(thread, bytes, mask) == 0)
        for (uint32_t i = 0; i < MAX_CPUS; i++)
            s->has[i] |= CPU_ISSET_S(i, bytes, mask) != 0;
    CPU_FREE(mask);
}

static void usable_here(struct set *s)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *e;
    memset(s, 0, sizeof *s);
    add_allowed(0, s);
    while (tasks != NULL && (e = readdir(tasks)) != NULL)
        if (e->d_name[0] != '.')
            add_allowed((pid_t)strtol(e->d_name, NULL, 10), s);
    if (tasks != NULL)
        (void)closedir(tasks); /* only read from */
}

static void online_cpus(const char *root, struct set *s)
{
    long n;
    if (read_list(root, "/sys/devices/system/cpu/online", s))
        return;
    n = root[0] == '\0' ? sysconf(_SC_NPROCESSORS_ONLN) : 1;
    memset(s, 0, sizeof *s);
    for (long i = 0; i < (n > 0 ? n : 1) && i < (long)MAX_CPUS; i++)
        s->has[i] = 1;
}

/* The CPUs of a core have its first CPU in common. */
static uint32_t first_sibling(const char *root, uint32_t cpu)
{
    static const char *const names[] = {"core_cpus_list", "thread_siblings_list"};
    struct set s;
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/%s", cpu,
                       names[i]);
        if (read_list(root, path, &s))
            for (uint32_t k = 0; k < cpu; k++)
                if (s.has[k] != 0)
                    return k;
    }
    return cpu;
}

/* Efficiency cores of Intel's hybrid processors are those of the unit cpu_atom; elsewhere
 * cpu_capacity ranks cores of different kinds (relative to 1024). */
static void find_kinds(const char *root, struct topo *t)
{
    struct set atom;
    long most = 0, capacity;
    char path[128];
    bool small[2] = {false, false}, by_unit = read_list(root, "/sys/devices/cpu_atom/cpus", &atom);
    t->pub.n_kinds = 1;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < t->pub.n_cpus; i++) {
            struct atsi_cpu_info *c = &t->cpus[i];
            (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cpu_capacity",
                           c->os_index);
            if (by_unit || !read_number(root, path, &capacity))
                capacity = by_unit && atom.has[c->os_index] != 0 ? 512 : 1024;
            if (pass == 0) {
                most = capacity > most ? capacity : most;
                continue;
            }
            c->kind = capacity * 4 > most * 3; /* cores of a kind differ by a few per cent */
            small[c->kind] = true;
        }
    if (small[0] && small[1])
        t->pub.n_kinds = 2;
    for (uint32_t i = 0; i < t->pub.n_cpus && t->pub.n_kinds == 1; i++)
        t->cpus[i].kind = 0;
}

static void find_nodes(const char *root, struct topo *t)
{
    struct set nodes, cpus;
    char path[128];
    t->pub.n_numa = 0;
    if (!read_list(root, "/sys/devices/system/node/online", &nodes))
        memset(&nodes, 0, sizeof nodes);
    for (uint32_t n = 0; n < MAX_NODES; n++) {
        if (nodes.has[n] == 0)
            continue;
        (void)snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", n);
        if (read_list(root, path, &cpus))
            for (uint32_t i = 0; i < t->pub.n_cpus; i++)
                if (cpus.has[t->cpus[i].os_index] != 0)
                    t->cpus[i].numa_node = t->pub.n_numa;
        t->pub.n_numa++;
    }
    if (t->pub.n_numa == 0)
        t->pub.n_numa = 1;
}

static int fill_cpus(const char *root, struct topo *t, struct atsi_err *err)
{
    struct set online, usable;
    uint32_t core_of[MAX_CPUS], n = 0;
    uint8_t counted[MAX_CPUS] = {0};
    online_cpus(root, &online);
    usable = online;
    if (root[0] == '\0')
        usable_here(&usable);
    for (uint32_t i = 0; i < MAX_CPUS; i++)
        t->pub.n_cpus += online.has[i];
    t->cpus = calloc((size_t)t->pub.n_cpus + 1, sizeof *t->cpus);
    t->caches = calloc((size_t)t->pub.n_cpus + 1, sizeof *t->caches);
    if (t->cpus == NULL || t->caches == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory reading the topology");
    t->pub.cpus = t->cpus;
    t->pub.cpu_caches = t->caches;
    for (uint32_t i = 0; i < MAX_CPUS; i++) {
        struct atsi_cpu_info *c = &t->cpus[n];
        uint32_t first;
        if (online.has[i] == 0)
            continue;
        first = first_sibling(root, i);
        core_of[i] = first < i && online.has[first] != 0 ? core_of[first] : t->pub.n_cores++;
        *c =
            (struct atsi_cpu_info){.os_index = i, .core = core_of[i], .usable = usable.has[i] != 0};
        t->pub.n_usable_cpus += c->usable;
        t->pub.n_usable_cores += c->usable && counted[c->core] == 0;
        counted[c->core] |= c->usable;
        n++;
    }
    return ATSI_OK;
}

/* ---------------------------------------------------------------- caches, memory */

static void add_cache(struct atsi_topo *t, uint32_t level, uint64_t bytes, uint32_t n_sharing)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < t->n_caches; i++)
        if (t->caches[i].level == level && t->caches[i].bytes == bytes &&
            t->caches[i].n_sharing == n_sharing)
            return;
    if (t->n_caches == sizeof t->caches / sizeof t->caches[0])
        return;
    while (at < t->n_caches && t->caches[at].level <= level)
        at++;
    memmove(&t->caches[at + 1], &t->caches[at], (t->n_caches - at) * sizeof t->caches[0]);
    t->caches[at] = (struct atsi_cache_info){level, bytes, n_sharing};
    t->n_caches++;
}

static void add_cpu_cache(struct atsi_cpu_caches *c, long level, uint64_t bytes,
                          const struct set *cpus)
{
    uint32_t first = 0;
    if (level > 2)
        return;
    while (first < MAX_CPUS && cpus->has[first] == 0)
        first++;
    c->bytes[level - 1] = bytes;
    c->first_cpu[level - 1] = first;
}

static uint32_t cores_in(const struct topo *t, const struct set *cpus)
{
    uint8_t seen[MAX_CPUS] = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->pub.n_cpus; i++)
        if (cpus->has[t->cpus[i].os_index] != 0 && seen[t->cpus[i].core]++ == 0)
            n++;
    return n > 0 ? n : 1;
}

/* Each different cache once: a hybrid machine has two of a level. */
static void fill_caches(const char *root, struct topo *t)
{
    for (uint32_t i = 0; i < t->pub.n_cpus; i++)
        for (uint32_t k = 0; k < MAX_CACHE_INDEX; k++) {
            char folder[112], path[160], type[32];
            struct set shared;
            long level, kib;
            (void)snprintf(folder, sizeof folder, "/sys/devices/system/cpu/cpu%u/cache/index%u",
                           t->cpus[i].os_index, k);
            (void)snprintf(path, sizeof path, "%s/type", folder);
            if (!read_line(root, path, type, sizeof type))
                break;
            (void)snprintf(path, sizeof path, "%s/level", folder);
            if (strncmp(type, "Instruction", 11) == 0 || !read_number(root, path, &level))
                continue;
            (void)snprintf(path, sizeof path, "%s/size", folder); /* "48K" */
            if (!read_number(root, path, &kib) || kib <= 0 || level < 1 || level > 5)
                continue;
            (void)snprintf(path, sizeof path, "%s/shared_cpu_list", folder);
            if (!read_list(root, path, &shared))
                continue;
            add_cache(&t->pub, (uint32_t)level, (uint64_t)kib * 1024, cores_in(t, &shared));
            add_cpu_cache(&t->caches[i], level, (uint64_t)kib * 1024, &shared);
        }
}

static void fill_rest(const char *root, struct atsi_topo *t)
{
    struct atsi_limits limits;
    struct atsi_cpu_caps here = {0};
    long page = sysconf(_SC_PAGESIZE);
    atsi_limits_read(root, &limits);
    t->mem_total_bytes = limits.mem_total_bytes;
    t->mem_available_bytes = limits.mem_available_bytes;
    t->cgroup_cpus = limits.cgroup_cpus;
    t->page_bytes = page > 0 ? (uint64_t)page : 4096;
    t->huge_page_bytes = limits.huge_page_bytes;
    atsi_cpu_caps_detect(&here);
    (void)snprintf(t->cpu_model, sizeof t->cpu_model, "%s", here.brand);
}

/* ---------------------------------------------------------------- life */

int atsi_topo_sysfs_open(const char *root, struct atsi_topo **out, struct atsi_err *err)
{
    struct topo *t = calloc(1, sizeof *t);
    int rc;
    *out = NULL;
    if (t == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory reading the topology");
    rc = fill_cpus(root, t, err);
    if (rc != ATSI_OK) {
        atsi_topo_sysfs_close(&t->pub);
        return rc;
    }
    find_kinds(root, t);
    find_nodes(root, t);
    fill_caches(root, t);
    fill_rest(root, &t->pub);
    *out = &t->pub;
    return ATSI_OK;
}

void atsi_topo_sysfs_close(struct atsi_topo *pub)
{
    struct topo *t = (struct topo *)pub; /* its first member */
    if (t == NULL)
        return;
    free(t->cpus);
    free(t->caches);
    free(t);
}

#ifdef ATSINFER_NO_HWLOC
int atsi_topo_open(const char *source, struct atsi_topo **out, struct atsi_err *err)
{
    *out = NULL;
    if (source != NULL && source[0] != '\0')
        return atsi_fail(err, ATSI_ENOTSUP,
                         "topology %.200s: this build has no hwloc and knows this machine alone",
                         source);
    return atsi_topo_sysfs_open("", out, err);
}

void atsi_topo_close(struct atsi_topo *t)
{
    atsi_topo_sysfs_close(t);
}
#endif
