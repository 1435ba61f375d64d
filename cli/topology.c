/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer topology`: the CPU, its cores, caches and memory as the program sees them, and which
 * CPUs the workers will use and why. */
#include <string.h>

#include "cli/json.h"
#include "cli/machine.h"

#define MAX_CPUS 4096

static bool as_json;

static const struct cli_option options[] = {
    {.name = "--json", .help = "one JSON object instead of text", .flag = &as_json},
    {.name = NULL},
};

/* ---------------------------------------------------------------- text */

static void line(const char *label, const struct machine_text *t)
{
    (void)printf("%-12s %s\n", label, t->s);
}

static void print_caps(const struct atsi_runtime *rt)
{
    const struct atsi_host *host = atsi_runtime_host(rt);
    struct machine_text t = {.len = 0};
    machine_add_caps(&t, host->cpu_caps);
    line("in use", &t);
    if (machine_masked(rt) != 0) {
        struct atsi_conf_entry mask = machine_conf(rt, "cpu.caps_mask"),
                               file = machine_conf(rt, "cpu.caps_file");
        t = (struct machine_text){.len = 0};
        machine_add_caps(&t, machine_masked(rt));
        if (file.value[0] != '\0')
            machine_add(&t, "; cpu.caps_file = %s (%s)", file.value, file.origin);
        if (mask.value[0] != '\0')
            machine_add(&t, "; cpu.caps_mask = %s (%s)", mask.value, mask.origin);
        line("masked", &t);
    }
    if ((host->cpu_tune & ATSI_TUNE_SLOW_GATHER) != 0)
        (void)printf("%-12s %s\n", "slow here", "gathers");
    if ((host->cpu_tune & ATSI_TUNE_SLOW_512) != 0)
        (void)printf("%-12s %s\n", "slow here", "512-bit code (it lowers the clock)");
}

static void print_cores(const struct atsi_topo *topo)
{
    static uint32_t cpus[MAX_CPUS];
    struct machine_text t = {.len = 0};
    machine_add(&t, "%u, %u CPUs", topo->n_cores, topo->n_cpus);
    if (topo->n_usable_cpus < topo->n_cpus) {
        machine_add(&t, "; usable here: %u, CPU ", topo->n_usable_cores);
        machine_add_cpus(&t, cpus, machine_cpus_of(topo, UINT32_MAX, true, cpus, MAX_CPUS));
    }
    line("cores", &t);
    for (uint32_t k = topo->n_kinds; topo->n_kinds > 1 && k-- > 0;) {
        t = (struct machine_text){.len = 0};
        machine_add(&t, "%u %s cores, CPU ", machine_cores_of(topo, k), machine_kind_name(topo, k));
        machine_add_cpus(&t, cpus, machine_cpus_of(topo, k, false, cpus, MAX_CPUS));
        line("kind", &t);
    }
}

static void print_caches(const struct atsi_topo *topo)
{
    struct machine_text t = {.len = 0};
    char bytes[32];
    for (uint32_t i = 0; i < topo->n_caches; i++) {
        const struct atsi_cache_info *c = &topo->caches[i];
        machine_add(&t, "%sL%u %s per ", i > 0 ? ", " : "", c->level, cli_bytes(c->bytes, bytes));
        if (c->n_sharing > 1)
            machine_add(&t, "%u cores", c->n_sharing);
        else
            machine_add(&t, "core");
    }
    if (topo->n_caches == 0)
        machine_add(&t, "not known");
    line("caches", &t);
}

static void print_memory(const struct atsi_topo *topo)
{
    static uint32_t cpus[MAX_CPUS];
    struct machine_text t = {.len = 0};
    char total[32], available[32], page[32], huge[32];
    machine_add(&t, "%s, %s available; pages of %s and %s", cli_bytes(topo->mem_total_bytes, total),
                cli_bytes(topo->mem_available_bytes, available), cli_bytes(topo->page_bytes, page),
                topo->huge_page_bytes > 0 ? cli_bytes(topo->huge_page_bytes, huge) : "no other");
    line("memory", &t);
    for (uint32_t node = 0; topo->n_numa > 1 && node < topo->n_numa; node++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < topo->n_cpus && n < MAX_CPUS; i++)
            if (topo->cpus[i].numa_node == node)
                cpus[n++] = topo->cpus[i].os_index;
        t = (struct machine_text){.len = 0};
        machine_add(&t, "%u, CPU ", node);
        machine_add_cpus(&t, cpus, n);
        line("NUMA node", &t);
    }
}

static int print_text(const struct atsi_runtime *rt)
{
    const struct atsi_topo *topo = atsi_runtime_topo(rt);
    struct atsi_conf_entry source = machine_conf(rt, "cpu.topology");
    struct machine_text t = {.len = 0};
    (void)printf("%-12s %s\n", "CPU", topo->cpu_model[0] != '\0' ? topo->cpu_model : "not named");
    print_caps(rt);
    if (source.value[0] != '\0')
        (void)printf("%-12s %s (%s), not this machine\n", "described", source.value, source.origin);
    print_cores(topo);
    print_caches(topo);
    print_memory(topo);
    if (topo->cgroup_cpus > 0.0)
        (void)printf("%-12s control group: the time of %.2f CPUs\n", "limit", topo->cgroup_cpus);
    machine_add_workers(&t, rt);
    line("workers", &t);
    t = (struct machine_text){.len = 0};
    machine_add_why(&t, rt);
    line("why", &t);
    return CLI_OK;
}

/* ---------------------------------------------------------------- JSON */

static json_t *caps_value(uint64_t caps, bool *ok)
{
    json_t *a = json_array();
    char name[64];
    for (unsigned bit = 0; bit < 64; bit++)
        if ((caps >> bit & 1) != 0 && atsi_cpu_caps_text(UINT64_C(1) << bit, name, sizeof name) > 0)
            cli_json_append(a, json_string(name), ok);
    return a;
}

static json_t *cpus_value(const struct atsi_topo *topo, bool *ok)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < topo->n_cpus; i++) {
        const struct atsi_cpu_info *c = &topo->cpus[i];
        json_t *o = json_object();
        cli_json_set(o, "cpu", json_integer(c->os_index), ok);
        cli_json_set(o, "core", json_integer(c->core), ok);
        cli_json_set(o, "numa", json_integer(c->numa_node), ok);
        cli_json_set(o, "kind", json_integer(c->kind), ok);
        cli_json_set(o, "usable", json_boolean(c->usable), ok);
        cli_json_append(a, o, ok);
    }
    return a;
}

static json_t *caches_value(const struct atsi_topo *topo, bool *ok)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < topo->n_caches; i++) {
        json_t *o = json_object();
        cli_json_set(o, "level", json_integer(topo->caches[i].level), ok);
        cli_json_set(o, "bytes", json_integer((json_int_t)topo->caches[i].bytes), ok);
        cli_json_set(o, "cores", json_integer(topo->caches[i].n_sharing), ok);
        cli_json_append(a, o, ok);
    }
    return a;
}

static json_t *workers_value(const struct atsi_runtime *rt, bool *ok)
{
    static int32_t cpus[MACHINE_MAX_WORKERS];
    uint32_t n = atsi_runtime_workers(rt, cpus, MACHINE_MAX_WORKERS);
    json_t *a = json_array();
    for (uint32_t i = 0; i < n && i < MACHINE_MAX_WORKERS; i++)
        cli_json_append(a, cpus[i] >= 0 ? json_integer(cpus[i]) : json_null(), ok);
    return a;
}

static json_t *build_json(const struct atsi_runtime *rt, bool *ok)
{
    const struct atsi_topo *t = atsi_runtime_topo(rt);
    const struct atsi_host *host = atsi_runtime_host(rt);
    struct machine_text why = {.len = 0};
    json_t *o = json_object();
    machine_add_why(&why, rt);
    cli_json_set(o, "cpu_model", cli_json_text(t->cpu_model), ok);
    cli_json_set(o, "caps", caps_value(host->cpu_caps, ok), ok);
    cli_json_set(o, "caps_masked", caps_value(machine_masked(rt), ok), ok);
    cli_json_set(o, "slow_gather", json_boolean((host->cpu_tune & ATSI_TUNE_SLOW_GATHER) != 0), ok);
    cli_json_set(o, "slow_512", json_boolean((host->cpu_tune & ATSI_TUNE_SLOW_512) != 0), ok);
    cli_json_set(o, "described_by", cli_json_text(machine_conf(rt, "cpu.topology").value), ok);
    cli_json_set(o, "n_cpus", json_integer(t->n_cpus), ok);
    cli_json_set(o, "n_cores", json_integer(t->n_cores), ok);
    cli_json_set(o, "n_usable_cpus", json_integer(t->n_usable_cpus), ok);
    cli_json_set(o, "n_usable_cores", json_integer(t->n_usable_cores), ok);
    cli_json_set(o, "n_numa", json_integer(t->n_numa), ok);
    cli_json_set(o, "n_kinds", json_integer(t->n_kinds), ok);
    cli_json_set(o, "cgroup_cpus", t->cgroup_cpus > 0.0 ? json_real(t->cgroup_cpus) : json_null(),
                 ok);
    cli_json_set(o, "mem_total_bytes", json_integer((json_int_t)t->mem_total_bytes), ok);
    cli_json_set(o, "mem_available_bytes", json_integer((json_int_t)t->mem_available_bytes), ok);
    cli_json_set(o, "page_bytes", json_integer((json_int_t)t->page_bytes), ok);
    cli_json_set(o, "huge_page_bytes", json_integer((json_int_t)t->huge_page_bytes), ok);
    cli_json_set(o, "caches", caches_value(t, ok), ok);
    cli_json_set(o, "cpus", cpus_value(t, ok), ok);
    cli_json_set(o, "workers", workers_value(rt, ok), ok); /* CPU of each, null when not pinned */
    cli_json_set(o, "workers_why", cli_json_text(why.s), ok);
    return o;
}

static int print_json(const struct atsi_runtime *rt)
{
    bool ok = true;
    json_t *o = build_json(rt, &ok);
    return cli_json_print(o, ok, CLI_OK);
}

static int run(int argc, char **argv)
{
    struct atsi_runtime *rt = NULL;
    int n_pos = 0, rc = cli_parse(&cli_cmd_topology, options, argc, argv, &n_pos);
    if (rc != -1)
        return rc;
    if (n_pos != 0)
        return cli_fail(CLI_USAGE, "topology takes no argument, \"%s\" given", argv[1]);
    rc = cli_runtime(&rt);
    if (rc != CLI_OK)
        return rc;
    rc = cli_finish_stdout(as_json ? print_json(rt) : print_text(rt));
    atsi_runtime_close(rt);
    return rc;
}

const struct cli_command cli_cmd_topology = {
    .name = "topology",
    .summary = "Shows the CPU, its cores, caches and memory, and where the workers run and why.",
    .usage = "atsinfer topology [--json] [options]",
    .run = run,
};
