/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine as struct atsi_topo: CPUs with their core, kind and NUMA node, caches, memory.
 *
 * hwloc describes it, from this machine, from recorded XML or from a synthetic description; nothing
 * else in the core sees hwloc.  Limits of this process (affinity mask, cpuset, control groups) are
 * applied to this machine only: on a described one every CPU is usable.
 */
#include "core/topo.h"

#include "core/cgroup.h"
#include "core/cpu_caps.h"

#include <ctype.h>
#include <errno.h>
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_CPUS 4096u
#define MAX_XML_BYTES (UINT64_C(64) << 20) /* a recorded machine of 4096 CPUs has about 3 MiB */
#define MAX_SYNTHETIC_CHARS 1024u

/* `pub` comes first: the public pointer is the object's. */
struct topo {
    struct atsi_topo pub;
    struct atsi_cpu_info *cpus;     /* [owned] pub.cpus */
    struct atsi_cpu_caches *caches; /* [owned] pub.cpu_caches */
};

/* ---------------------------------------------------------------- descriptions that are refused */

/* A file is an XML description when its name says so. */
static bool is_xml(const char *source)
{
    size_t n = strlen(source);
    return n >= 4 && strcmp(source + n - 4, ".xml") == 0;
}

static int check_xml(const char *path, struct atsi_err *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return atsi_fail(err, ATSI_EIO, "topology %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return atsi_fail(err, ATSI_EIO, "topology %s: not a regular file", path);
    if ((uint64_t)st.st_size > MAX_XML_BYTES)
        return atsi_fail(err, ATSI_EFORMAT, "topology %s: %lld bytes, %llu is the most", path,
                         (long long)st.st_size, (unsigned long long)MAX_XML_BYTES);
    if (access(path, R_OK) != 0)
        return atsi_fail(err, ATSI_EIO, "topology %s: %s", path, strerror(errno));
    return ATSI_OK;
}

static const char *skip_nested(const char *p, char open, char close)
{
    for (int depth = 0; *p != '\0'; p++) {
        depth += *p == open;
        depth -= *p == close;
        if (depth == 0)
            return p + 1;
    }
    return p;
}

/* hwloc builds what it is told to, so "core:1000000 pu:1000" would not end; the arities of
 * "TYPE:N TYPE:N" multiply to the number of CPUs.  Attributes "(memory=1GB)" and attached memory
 * "[numa]" do not count. */
static int check_synthetic(const char *text, struct atsi_err *err)
{
    uint64_t product = 1;
    if (strlen(text) > MAX_SYNTHETIC_CHARS)
        return atsi_fail(err, ATSI_EFORMAT, "topology description: %zu characters, %u is the most",
                         strlen(text), MAX_SYNTHETIC_CHARS);
    for (const char *p = text; *p != '\0';) {
        uint64_t arity = 0;
        size_t word;
        if (*p == '(' || *p == '[') {
            p = skip_nested(p, *p, *p == '(' ? ')' : ']');
            continue;
        }
        word = strcspn(p, " \t:([");
        if (p[word] == ':')
            p += word + 1;
        if (!isdigit((unsigned char)*p)) {
            p += strcspn(p, " \t([");
            p += strspn(p, " \t");
            continue;
        }
        for (; isdigit((unsigned char)*p); p++)
            arity = arity < MAX_CPUS + 1 ? arity * 10 + (uint64_t)(*p - '0') : arity;
        product *= arity < MAX_CPUS + 1 ? arity : MAX_CPUS + 1;
        if (product == 0 || product > MAX_CPUS)
            return atsi_fail(err, ATSI_EFORMAT,
                             "topology \"%.100s\": describes %s CPUs, 1 to %u are possible", text,
                             product == 0 ? "0" : "too many", MAX_CPUS);
    }
    return ATSI_OK;
}

/* ---------------------------------------------------------------- loading */

static int set_source(hwloc_topology_t h, const char *source, struct atsi_err *err)
{
    int rc;
    if (is_xml(source)) {
        rc = check_xml(source, err);
        if (rc != ATSI_OK)
            return rc;
        if (hwloc_topology_set_xml(h, source) != 0)
            return atsi_fail(err, ATSI_EFORMAT, "topology %s: not an hwloc XML description",
                             source);
        return ATSI_OK;
    }
    rc = check_synthetic(source, err);
    if (rc != ATSI_OK)
        return rc;
    if (hwloc_topology_set_synthetic(h, source) != 0)
        return atsi_fail(
            err, ATSI_EFORMAT,
            "topology \"%.100s\": neither a file ending in .xml nor a description such "
            "as \"pack:1 core:4 pu:2\"",
            source);
    return ATSI_OK;
}

/* Whole machine, without I/O devices; CPUs outside of the cpuset are listed as not usable. */
static int load(const char *source, hwloc_topology_t *out, struct atsi_err *err)
{
    hwloc_topology_t h = NULL;
    int rc = ATSI_OK;
    if (hwloc_topology_init(&h) != 0)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory reading the topology");
    if (source[0] != '\0')
        rc = set_source(h, source, err);
    if (rc == ATSI_OK &&
        (hwloc_topology_set_flags(h, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0 ||
         hwloc_topology_load(h) != 0))
        rc = atsi_fail(err, source[0] != '\0' ? ATSI_EFORMAT : ATSI_EIO,
                       "topology %.200s: hwloc cannot read it: %s",
                       source[0] != '\0' ? source : "of this machine", strerror(errno));
    if (rc != ATSI_OK) {
        hwloc_topology_destroy(h);
        return rc;
    }
    *out = h;
    return ATSI_OK;
}

/* ---------------------------------------------------------------- CPUs */

/* Kind of each CPU.  hwloc numbers kinds by rising efficiency when it can rank them; unranked ones
 * (only names differ) count as one. */
static uint32_t count_kinds(hwloc_topology_t h)
{
    int n = hwloc_cpukinds_get_nr(h, 0), efficiency = -1;
    if (n <= 1 || hwloc_cpukinds_get_info(h, 0, NULL, &efficiency, NULL, NULL, 0) != 0)
        return 1;
    return efficiency < 0 ? 1 : (uint32_t)n;
}

static uint32_t kind_of(hwloc_topology_t h, hwloc_obj_t pu, uint32_t n_kinds)
{
    int kind = n_kinds > 1 ? hwloc_cpukinds_get_by_cpuset(h, pu->cpuset, 0) : 0;
    return kind < 0 || (uint32_t)kind >= n_kinds ? 0 : (uint32_t)kind;
}

static uint32_t numa_of(hwloc_topology_t h, hwloc_obj_t pu)
{
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_NUMANODE, node)) != NULL)
        if (node->cpuset != NULL && hwloc_bitmap_isset(node->cpuset, pu->os_index))
            return node->logical_index;
    return 0;
}

/* CPUs that threads of this process may be put on: those of all its threads together, because an
 * earlier runtime may have pinned the calling one. */
static hwloc_bitmap_t usable_set(hwloc_topology_t h)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set == NULL)
        return NULL;
    if (hwloc_topology_is_thissystem(h) == 0)
        hwloc_bitmap_fill(set);
    else if (hwloc_get_cpubind(h, set, HWLOC_CPUBIND_PROCESS) != 0 ||
             hwloc_bitmap_and(set, set, hwloc_topology_get_allowed_cpuset(h)) != 0)
        (void)hwloc_bitmap_copy(set, hwloc_topology_get_allowed_cpuset(h));
    return set;
}

static void fill_cpu_caches(hwloc_topology_t h, hwloc_obj_t pu, struct atsi_cpu_caches *out)
{
    static const hwloc_obj_type_t types[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE};
    for (int i = 0; i < 2; i++) {
        hwloc_obj_t c = hwloc_get_ancestor_obj_by_type(h, types[i], pu);
        int first = c != NULL ? hwloc_bitmap_first(c->cpuset) : -1;
        if (first < 0)
            continue;
        out->bytes[i] = c->attr->cache.size;
        out->first_cpu[i] = (uint32_t)first;
    }
}

static void fill_cpu(hwloc_topology_t h, hwloc_obj_t pu, const struct atsi_topo *t,
                     hwloc_const_bitmap_t usable, struct atsi_cpu_info *out)
{
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(h, HWLOC_OBJ_CORE, pu);
    out->os_index = pu->os_index;
    out->core = core != NULL ? core->logical_index : pu->logical_index;
    out->numa_node = numa_of(h, pu);
    out->kind = kind_of(h, pu, t->n_kinds);
    out->usable = hwloc_bitmap_isset(usable, pu->os_index) != 0;
}

static int fill_cpus(hwloc_topology_t h, struct topo *t, const char *source, struct atsi_err *err)
{
    int n = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_PU);
    int cores = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_CORE);
    int nodes = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_NUMANODE);
    hwloc_bitmap_t usable = usable_set(h), seen = hwloc_bitmap_alloc();
    int rc = ATSI_OK;
    if (n < 1 || (uint32_t)n > MAX_CPUS) {
        rc = atsi_fail(err, ATSI_EFORMAT, "topology %.200s: %d CPUs, 1 to %u are possible", source,
                       n, MAX_CPUS);
        goto done;
    }
    t->cpus = calloc((size_t)n, sizeof *t->cpus);
    t->caches = calloc((size_t)n, sizeof *t->caches);
    if (t->cpus == NULL || t->caches == NULL || usable == NULL || seen == NULL) {
        rc = atsi_fail(err, ATSI_ENOMEM, "out of memory reading the topology");
        goto done;
    }
    t->pub.cpus = t->cpus;
    t->pub.cpu_caches = t->caches;
    t->pub.n_cpus = (uint32_t)n;
    t->pub.n_cores = (uint32_t)(cores > 0 ? cores : n);
    t->pub.n_numa = (uint32_t)(nodes > 0 ? nodes : 1);
    t->pub.n_kinds = count_kinds(h);
    for (int i = 0; i < n; i++) {
        struct atsi_cpu_info *c = &t->cpus[i];
        hwloc_obj_t pu = hwloc_get_obj_by_type(h, HWLOC_OBJ_PU, (unsigned)i);
        fill_cpu(h, pu, &t->pub, usable, c);
        fill_cpu_caches(h, pu, &t->caches[i]);
        if (!c->usable)
            continue;
        t->pub.n_usable_cpus++;
        t->pub.n_usable_cores += hwloc_bitmap_isset(seen, c->core) == 0;
        if (hwloc_bitmap_set(seen, c->core) != 0)
            rc = atsi_fail(err, ATSI_ENOMEM, "out of memory reading the topology");
    }
done:
    hwloc_bitmap_free(usable);
    hwloc_bitmap_free(seen);
    return rc;
}

/* ---------------------------------------------------------------- caches, memory, names */

static void add_cache(struct atsi_topo *t, uint32_t level, uint64_t bytes, uint32_t n_sharing)
{
    for (uint32_t i = 0; i < t->n_caches; i++)
        if (t->caches[i].level == level && t->caches[i].bytes == bytes &&
            t->caches[i].n_sharing == n_sharing)
            return;
    if (t->n_caches < sizeof t->caches / sizeof t->caches[0])
        t->caches[t->n_caches++] = (struct atsi_cache_info){level, bytes, n_sharing};
}

/* Each different cache once: a hybrid machine has two of a level. */
static void fill_caches(hwloc_topology_t h, struct atsi_topo *t)
{
    static const hwloc_obj_type_t types[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE,
                                             HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE,
                                             HWLOC_OBJ_L5CACHE};
    /* Without cores in the description each CPU counts as one, as in fill_cpu(). */
    hwloc_obj_type_t core =
        hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    for (uint32_t level = 1; level <= sizeof types / sizeof types[0]; level++) {
        hwloc_obj_t c = NULL;
        while ((c = hwloc_get_next_obj_by_type(h, types[level - 1], c)) != NULL) {
            int cores = hwloc_get_nbobjs_inside_cpuset_by_type(h, c->cpuset, core);
            add_cache(t, level, c->attr->cache.size, (uint32_t)(cores > 0 ? cores : 1));
        }
    }
}

/* A described machine can have less memory than this one, never more: models are loaded here. */
static void fill_memory(hwloc_topology_t h, const char *source, struct atsi_topo *t)
{
    struct atsi_limits limits;
    long page = sysconf(_SC_PAGESIZE);
    /* hwloc gives each synthetic node 1 GiB when nothing is said about it. */
    bool says = source[0] != '\0' && (is_xml(source) || strstr(source, "memory=") != NULL);
    uint64_t described = says ? hwloc_get_root_obj(h)->total_memory : 0;
    atsi_limits_read("", &limits);
    t->mem_total_bytes = described > 0 ? described : limits.mem_total_bytes;
    t->mem_available_bytes = limits.mem_available_bytes;
    if (described > 0 && described < t->mem_available_bytes)
        t->mem_available_bytes = described;
    t->cgroup_cpus = hwloc_topology_is_thissystem(h) != 0 ? limits.cgroup_cpus : 0.0;
    t->page_bytes = page > 0 ? (uint64_t)page : 4096;
    t->huge_page_bytes = limits.huge_page_bytes;
}

static void fill_name(hwloc_topology_t h, struct atsi_topo *t)
{
    hwloc_obj_t pack = hwloc_get_obj_by_type(h, HWLOC_OBJ_PACKAGE, 0);
    const char *name = pack != NULL ? hwloc_obj_get_info_by_name(pack, "CPUModel") : NULL;
    struct atsi_cpu_caps here = {0};
    if (name == NULL)
        name = hwloc_obj_get_info_by_name(hwloc_get_root_obj(h), "CPUModel");
    if (name == NULL && hwloc_topology_is_thissystem(h) != 0) {
        atsi_cpu_caps_detect(&here);
        name = here.brand;
    }
    (void)snprintf(t->cpu_model, sizeof t->cpu_model, "%s", name != NULL ? name : "");
    for (char *p = t->cpu_model; *p != '\0'; p++) /* a file's text may hold terminal escapes */
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
}

int atsi_topo_open(const char *source, struct atsi_topo **out, struct atsi_err *err)
{
    hwloc_topology_t h = NULL;
    struct topo *t;
    int rc;
    *out = NULL;
    source = source != NULL ? source : "";
    rc = load(source, &h, err);
    if (rc != ATSI_OK)
        return rc;
    t = calloc(1, sizeof *t);
    if (t == NULL) {
        rc = atsi_fail(err, ATSI_ENOMEM, "out of memory reading the topology");
        goto fail;
    }
    rc = fill_cpus(h, t, source[0] != '\0' ? source : "of this machine", err);
    if (rc != ATSI_OK)
        goto fail;
    fill_caches(h, &t->pub);
    fill_memory(h, source, &t->pub);
    fill_name(h, &t->pub);
    hwloc_topology_destroy(h);
    *out = &t->pub;
    return ATSI_OK;
fail:
    hwloc_topology_destroy(h);
    if (t != NULL)
        atsi_topo_close(&t->pub);
    return rc;
}

void atsi_topo_close(struct atsi_topo *pub)
{
    struct topo *t = (struct topo *)pub; /* its first member */
    if (t == NULL)
        return;
    free(t->cpus);
    free(t->caches);
    free(t);
}
