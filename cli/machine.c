/* SPDX-License-Identifier: Apache-2.0
 *
 * Words about the machine that `topology` and `doctor` share: capabilities in use and masked, CPU
 * lists, kinds of core, and why the workers run where they do. */
#include "cli/machine.h"

#include <string.h>

void machine_add(struct machine_text *t, const char *fmt, ...)
{
    va_list ap;
    int n;
    va_start(ap, fmt);
    n = vsnprintf(t->s + t->len, sizeof t->s - t->len, fmt, ap);
    va_end(ap);
    if (n > 0)
        t->len += (size_t)n;
    if (t->len > sizeof t->s - 1)
        t->len = sizeof t->s - 1;
}

struct find_entry {
    const char *key;
    struct atsi_conf_entry entry;
};

static int match_entry(void *ctx, const struct atsi_conf_entry *e)
{
    struct find_entry *f = ctx;
    if (strcmp(e->key, f->key) != 0)
        return 0;
    f->entry = *e;
    return 1;
}

struct atsi_conf_entry machine_conf(const struct atsi_runtime *rt, const char *key)
{
    struct find_entry f = {.key = key, .entry = {"", "", "", "", "", "", ""}};
    (void)atsi_runtime_conf_each(rt, match_entry, &f); /* 1: found; 0: the empty entry stands */
    return f.entry;
}

uint64_t machine_masked(const struct atsi_runtime *rt)
{
    return atsi_cpu_caps_here() & ~atsi_runtime_host(rt)->cpu_caps;
}

void machine_add_caps(struct machine_text *t, uint64_t caps)
{
    char names[512];
    machine_add(t, "%s",
                atsi_cpu_caps_text(caps, names, sizeof names) > 0 ? names : "none beyond SSE2");
}

void machine_add_cpus(struct machine_text *t, const uint32_t *cpus, uint32_t n)
{
    for (uint32_t i = 0; i < n;) {
        uint32_t last = i;
        while (last + 1 < n && cpus[last + 1] == cpus[last] + 1)
            last++;
        machine_add(t, "%s%u", i > 0 ? "," : "", cpus[i]);
        if (last > i)
            machine_add(t, "-%u", cpus[last]);
        i = last + 1;
    }
}

uint32_t machine_cpus_of(const struct atsi_topo *topo, uint32_t kind, bool usable_only,
                         uint32_t *out, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < topo->n_cpus && n < max; i++)
        if ((kind == UINT32_MAX || topo->cpus[i].kind == kind) &&
            (topo->cpus[i].usable || !usable_only))
            out[n++] = topo->cpus[i].os_index;
    return n;
}

uint32_t machine_cores_of(const struct atsi_topo *topo, uint32_t kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < topo->n_cpus; i++) {
        bool first = topo->cpus[i].kind == kind;
        for (uint32_t k = 0; k < i && first; k++)
            first = topo->cpus[k].core != topo->cpus[i].core;
        n += first;
    }
    return n;
}

const char *machine_kind_name(const struct atsi_topo *topo, uint32_t kind)
{
    if (kind + 1 == topo->n_kinds)
        return "performance";
    return kind == 0 ? "efficiency" : "middle";
}

void machine_add_workers(struct machine_text *t, const struct atsi_runtime *rt)
{
    static int32_t cpus[MACHINE_MAX_WORKERS];
    uint32_t n = atsi_runtime_workers(rt, cpus, MACHINE_MAX_WORKERS), i = 0;
    machine_add(t, "%u", n);
    if (n > MACHINE_MAX_WORKERS)
        n = MACHINE_MAX_WORKERS;
    if (n > 0 && cpus[0] < 0) {
        machine_add(t, ", not pinned");
        return;
    }
    for (; i < n; i++)
        machine_add(t, "%s%d", i == 0 ? ", pinned to CPU " : ", ", cpus[i]);
}

static void add_setting(struct machine_text *t, const struct atsi_conf_entry *e)
{
    machine_add(t, "%s = %s (%s)", e->key, e->value[0] != '\0' ? e->value : "\"\"", e->origin);
}

void machine_add_why(struct machine_text *t, const struct atsi_runtime *rt)
{
    const struct atsi_topo *topo = atsi_runtime_topo(rt);
    struct atsi_conf_entry threads = machine_conf(rt, "cpu.threads"),
                           batch = machine_conf(rt, "cpu.threads_batch"),
                           cpus = machine_conf(rt, "cpu.cpus"),
                           cores = machine_conf(rt, "cpu.cores");
    bool counted = strcmp(threads.value, "0") == 0;
    add_setting(t, &threads);
    machine_add(t, counted ? ": one per " : ", first one on each ");
    if (cpus.value[0] != '\0') {
        machine_add(t, "core in ");
        add_setting(t, &cpus);
    } else if (strcmp(cores.value, "all") == 0 && topo->n_kinds > 1) {
        machine_add(t, "core of any kind, ");
        add_setting(t, &cores);
    } else if (topo->n_kinds > 1) {
        machine_add(t, "performance core, ");
        add_setting(t, &cores);
    } else {
        machine_add(t, "core");
    }
    if (counted && topo->cgroup_cpus > 0.0 && topo->cgroup_cpus < (double)topo->n_usable_cores)
        machine_add(t, "; the control group grants the time of %.2f CPUs", topo->cgroup_cpus);
    if (strcmp(batch.value, "0") != 0) {
        machine_add(t, "; prefill: ");
        add_setting(t, &batch);
    }
}
