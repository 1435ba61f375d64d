/* SPDX-License-Identifier: Apache-2.0
 *
 * Which CPUs workers run on.  A worker waits for the slowest one at every barrier, so by default
 * each has a core of its own, all of the fastest kind, and no more of them than the control group
 * lets run at once.
 */
#include "core/topo.h"

#include <stdlib.h>
#include <string.h>

/* A CPU that workers may use. */
struct candidate {
    const struct atsi_cpu_info *cpu;
    uint32_t sibling; /* 0: first candidate of its core, 1: second hardware thread, ... */
    uint32_t order;   /* where the user or the machine lists it */
};

/* Performance cores first, all first threads before any second one, then the order listed. */
static int compare(const void *pa, const void *pb)
{
    const struct candidate *a = pa, *b = pb;
    if (a->sibling != b->sibling)
        return a->sibling < b->sibling ? -1 : 1;
    if (a->cpu->kind != b->cpu->kind)
        return a->cpu->kind > b->cpu->kind ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static int add(struct candidate *list, uint32_t n, const struct atsi_cpu_info *cpu)
{
    uint32_t sibling = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (list[i].cpu == cpu)
            return 0; /* listed twice */
        sibling += list[i].cpu->core == cpu->core;
    }
    list[n] = (struct candidate){cpu, sibling, n};
    return 1;
}

static const struct atsi_cpu_info *find_cpu(const struct atsi_topo *t, uint32_t os_index)
{
    for (uint32_t i = 0; i < t->n_cpus; i++)
        if (t->cpus[i].os_index == os_index)
            return &t->cpus[i];
    return NULL;
}

/* A number of the list; advances *p.  Larger ones than any CPU are refused by the look-up. */
static bool take_index(const char **p, uint32_t *out)
{
    uint64_t v = 0;
    if (**p < '0' || **p > '9')
        return false;
    for (; **p >= '0' && **p <= '9'; (*p)++)
        v = v * 10 < UINT32_MAX ? v * 10 + (uint64_t)(**p - '0') : UINT32_MAX;
    *out = v < UINT32_MAX ? (uint32_t)v : UINT32_MAX;
    return true;
}

static int add_range(const struct atsi_topo *t, uint32_t first, uint32_t last,
                     struct candidate *list, uint32_t *n, struct atsi_err *err)
{
    for (uint32_t os = first;; os++) {
        const struct atsi_cpu_info *cpu = find_cpu(t, os);
        if (cpu == NULL)
            return atsi_fail(
                err, ATSI_ECONF,
                "cpu.cpus: there is no CPU %u (%u CPUs; `atsinfer topology` lists them)", os,
                t->n_cpus);
        if (!cpu->usable)
            return atsi_fail(
                err, ATSI_ECONF,
                "cpu.cpus: CPU %u may not be used by this process (affinity mask or cpuset)", os);
        *n += (uint32_t)add(list, *n, cpu);
        if (os == last)
            return ATSI_OK;
    }
}

/* "0-3,8" */
static int add_listed(const struct atsi_topo *t, const char *cpus, struct candidate *list,
                      uint32_t *n, struct atsi_err *err)
{
    const char *p = cpus;
    for (;;) {
        uint32_t first = 0, last;
        int rc;
        p += strspn(p, " \t");
        bool ok = take_index(&p, &first);
        last = first;
        if (ok && *p == '-') {
            p++;
            ok = take_index(&p, &last);
        }
        p += strspn(p, " \t");
        if (!ok || (*p != '\0' && *p != ','))
            return atsi_fail(err, ATSI_ECONF,
                             "cpu.cpus is \"%.100s\": expected CPU numbers as in 0-3,8", cpus);
        if (last < first)
            return atsi_fail(err, ATSI_ECONF, "cpu.cpus is \"%.100s\": range %u-%u runs backwards",
                             cpus, first, last);
        rc = add_range(t, first, last, list, n, err);
        if (rc != ATSI_OK)
            return rc;
        if (*p == '\0')
            return ATSI_OK;
        p++;
    }
}

/* Usable CPUs of the highest kind that has any, or of all kinds. */
static void add_usable(const struct atsi_topo *t, bool all_kinds, struct candidate *list,
                       uint32_t *n)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < t->n_cpus; i++)
        if (t->cpus[i].usable && t->cpus[i].kind > best)
            best = t->cpus[i].kind;
    for (uint32_t i = 0; i < t->n_cpus; i++)
        if (t->cpus[i].usable && (all_kinds || t->cpus[i].kind == best))
            *n += (uint32_t)add(list, *n, &t->cpus[i]);
}

/* One worker per core, and not more than run at once under a CPU time limit: the rest would only be
 * stopped in turn while the others wait for them. */
static uint32_t default_threads(const struct atsi_topo *t, const struct candidate *list, uint32_t n)
{
    uint32_t cores = 0;
    for (uint32_t i = 0; i < n; i++)
        cores += list[i].sibling == 0;
    if (t->cgroup_cpus > 0.0 && t->cgroup_cpus < (double)cores)
        cores = t->cgroup_cpus >= 1.0 ? (uint32_t)t->cgroup_cpus : 1;
    return cores;
}

int atsi_topo_pick(const struct atsi_topo *t, const char *cpus, const char *cores, uint32_t threads,
                   uint32_t *out, uint32_t max, struct atsi_err *err)
{
    bool all = strcmp(cores, "all") == 0;
    struct candidate *list;
    uint32_t n = 0;
    int rc = ATSI_OK;
    if (!all && strcmp(cores, "p") != 0)
        return atsi_fail(err, ATSI_ECONF, "cpu.cores is \"%.40s\"; it can be p or all", cores);
    list = calloc((size_t)t->n_cpus + 1, sizeof *list);
    if (list == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory choosing CPUs");
    if (cpus[strspn(cpus, " \t")] != '\0')
        rc = add_listed(t, cpus, list, &n, err);
    else
        add_usable(t, all, list, &n);
    if (rc == ATSI_OK && n == 0)
        rc = atsi_fail(err, ATSI_ENODEV, "none of the %u CPUs may be used", t->n_cpus);
    if (rc != ATSI_OK || n == 0)
        goto done;
    if (threads == 0) {
        threads = default_threads(t, list, n);
        threads = threads < max ? threads : max;
    }
    if (threads > max) {
        rc = atsi_fail(err, ATSI_ECONF, "%u threads asked for, %u is the most", threads, max);
        goto done;
    }
    qsort(list, n, sizeof *list, compare);
    for (uint32_t i = 0; i < threads; i++)
        out[i] = list[i % n].cpu->os_index;
    rc = (int)threads;
done:
    free(list);
    return rc;
}
