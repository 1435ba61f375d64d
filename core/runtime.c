/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime: brings settings, CPU capabilities, topology, workers and plugins up in the order in
 * which they need each other, and lends their services to plugins through struct atsi_host.
 */
#include "core/runtime.h"

#include "core/govern/power.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void host_log(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
    ATSI_PRINTF(4, 5);
static void host_log(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
{
    const struct atsi_runtime *rt = ctx;
    va_list ap;
    va_start(ap, fmt);
    atsi_logv(rt->log, level, who, fmt, ap);
    va_end(ap);
}

static const char *host_param_get(void *ctx, const char *plugin, const char *key)
{
    const struct atsi_runtime *rt = ctx;
    char full[128];
    int n = snprintf(full, sizeof full, "plugin.%s.%s", plugin, key);
    return n > 0 && (size_t)n < sizeof full ? atsi_conf_get(rt->conf, full) : NULL;
}

static int host_region(void *ctx, void (*fn)(void *arg, struct atsi_worker *w), void *arg,
                       size_t scratch_bytes)
{
    const struct atsi_runtime *rt = ctx;
    return atsi_pool_region(rt->pool, fn, arg, scratch_bytes);
}

static uint32_t host_n_threads(void *ctx)
{
    const struct atsi_runtime *rt = ctx;
    return atsi_pool_active(rt->pool);
}

static uint64_t host_now_ns(void *ctx)
{
    struct timespec ts;
    (void)ctx;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void fill_host(struct atsi_runtime *rt)
{
    rt->host =
        (struct atsi_host){.struct_size = sizeof rt->host,
                           .abi_major = ATSI_ABI_MAJOR,
                           .abi_minor = ATSI_ABI_MINOR,
                           .cpu_caps = rt->cpu.caps,
                           .cpu_tune = rt->cpu.tune,
                           .ctx = rt,
                           .log = host_log,
                           .param_get = host_param_get,
                           .region = host_region,
                           .n_threads = host_n_threads,
                           .now_ns = host_now_ns,
                           .l1d_bytes = atsi_topo_share(rt->topo, rt->cpus, rt->n_workers, 1),
                           .l2_bytes = atsi_topo_share(rt->topo, rt->cpus, rt->n_workers, 2)};
}

/* CPUID of this machine or of a recorded one, less what the user masked. */
static int open_cpu(struct atsi_runtime *rt, struct atsi_err *err)
{
    const char *file = atsi_conf_get(rt->conf, "cpu.caps_file");
    struct atsi_err why = ATSI_ERR_INIT;
    int rc = ATSI_OK;
    atsi_cpu_caps_detect(&rt->cpu);
    if (file != NULL && file[0] != '\0') {
        uint64_t here = rt->cpu.caps;
        rc = atsi_cpu_caps_from_dump(file, &rt->cpu, &why);
        if (rc != ATSI_OK)
            return atsi_fail(err, ATSI_ECONF, "cpu.caps_file (%s): %s",
                             atsi_conf_origin(rt->conf, "cpu.caps_file"), why.msg);
        rt->cpu.caps &= here; /* what this machine lacks cannot be run, whatever the dump says */
    }
    rc = atsi_cpu_caps_mask(rt->cpu.caps, atsi_conf_get(rt->conf, "cpu.caps_mask"), &rt->cpu.caps,
                            &why);
    if (rc != ATSI_OK)
        return atsi_fail(err, ATSI_ECONF, "cpu.caps_mask (%s): %s",
                         atsi_conf_origin(rt->conf, "cpu.caps_mask"), why.msg);
    return rc;
}

static int open_topology(struct atsi_runtime *rt, struct atsi_err *err)
{
    const char *source = atsi_conf_get(rt->conf, "cpu.topology");
    struct atsi_err why = ATSI_ERR_INIT;
    int rc = atsi_topo_open(source, &rt->topo, &why);
    if (rc != ATSI_OK && source[0] != '\0')
        return atsi_fail(err, ATSI_ECONF, "cpu.topology (%s): %s",
                         atsi_conf_origin(rt->conf, "cpu.topology"), why.msg);
    return rc != ATSI_OK ? atsi_fail(err, rc, "%s", why.msg) : rc;
}

static int open_workers(struct atsi_runtime *rt, struct atsi_err *err)
{
    const struct atsi_conf *c = rt->conf;
    uint32_t decode = (uint32_t)atsi_conf_int(c, "cpu.threads");
    uint32_t prefill = (uint32_t)atsi_conf_int(c, "cpu.threads_batch");
    uint32_t want = decode > prefill ? decode : prefill;
    enum atsi_power_mode mode = atsi_power_mode(c);
    struct atsi_pool_params p = {.nice = atsi_power_nice(mode)};
    int n;
    rt->open_decode = decode == 0;
    rt->open_prefill = decode == 0 && prefill == 0;
    if (decode == 0 || prefill == 0) { /* one of them counts the cores */
        n = atsi_topo_pick(rt->topo, atsi_conf_get(c, "cpu.cpus"), atsi_conf_get(c, "cpu.cores"), 0,
                           rt->cpus, ATSI_MAX_WORKERS, err);
        if (n < 0)
            return n;
        n = (int)atsi_power_threads(mode, (uint32_t)n);
        decode = decode == 0 ? (uint32_t)n : decode;
        prefill = prefill == 0 ? decode : prefill;
        want = decode > prefill ? decode : prefill;
    }
    n = atsi_topo_pick(rt->topo, atsi_conf_get(c, "cpu.cpus"), atsi_conf_get(c, "cpu.cores"), want,
                       rt->cpus, ATSI_MAX_WORKERS, err);
    if (n < 0)
        return n;
    rt->n_workers = (uint32_t)n;
    rt->n_decode = decode < rt->n_workers ? decode : rt->n_workers;
    rt->n_prefill = prefill < rt->n_workers ? prefill : rt->n_workers;
    p.n_threads = rt->n_workers;
    /* CPUs of a recorded or synthetic topology are not ours to pin to. */
    p.cpus = atsi_conf_get(c, "cpu.topology")[0] == '\0' ? rt->cpus : NULL;
    p.spin_ns = atsi_power_spin_ns(mode, (uint64_t)atsi_conf_int(c, "cpu.spin") * 1000u, false);
    return atsi_pool_open(&p, &rt->pool, err);
}

static int open_plugins(struct atsi_runtime *rt, const char *const *files, struct atsi_err *err)
{
    struct atsi_registry_params p = {
        .host = &rt->host, .conf = rt->conf, .log = rt->log, .plugin_files = files};
    int rc = atsi_registry_open(&p, &rt->registry, err);
    return rc != ATSI_OK ? rc : atsi_conf_check_plugins(rt->conf, rt->log, err);
}

int atsi_runtime_open(const struct atsi_runtime_params *params, struct atsi_runtime **out,
                      struct atsi_err *err)
{
    struct atsi_runtime *rt;
    int rc;
    *out = NULL;
    if (params->struct_size < sizeof *params)
        return atsi_fail(err, ATSI_EINVAL, "runtime parameters: %u bytes given, %zu needed",
                         params->struct_size, sizeof *params);
    rt = calloc(1, sizeof *rt);
    if (rt == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory opening the runtime");
    rc = atsi_log_open(params->log, params->log_ctx, params->log_level, &rt->log);
    if (rc != ATSI_OK) {
        (void)atsi_fail(err, rc, "out of memory opening the log");
        goto fail;
    }
    rc = atsi_conf_open(params->config_path, params->overrides, &rt->conf, err);
    if (rc != ATSI_OK)
        goto fail;
    rc = open_cpu(rt, err);
    if (rc != ATSI_OK)
        goto fail;
    rc = open_topology(rt, err);
    if (rc != ATSI_OK)
        goto fail;
    rc = open_workers(rt, err);
    if (rc != ATSI_OK)
        goto fail;
    fill_host(rt);
    rc = open_plugins(rt, params->plugin_files, err);
    if (rc != ATSI_OK)
        goto fail;
    *out = rt;
    return ATSI_OK;
fail:
    atsi_runtime_close(rt);
    return rc;
}

void atsi_runtime_close(struct atsi_runtime *rt)
{
    if (rt == NULL)
        return;
    atsi_registry_close(rt->registry);
    atsi_pool_close(rt->pool);
    atsi_topo_close(rt->topo);
    atsi_conf_close(rt->conf);
    atsi_log_close(rt->log);
    free(rt);
}

const struct atsi_host *atsi_runtime_host(const struct atsi_runtime *rt)
{
    return &rt->host;
}

const char *atsi_runtime_conf(const struct atsi_runtime *rt, const char *key)
{
    return atsi_conf_get(rt->conf, key);
}

int atsi_runtime_conf_each(const struct atsi_runtime *rt,
                           int (*fn)(void *ctx, const struct atsi_conf_entry *e), void *ctx)
{
    return atsi_conf_each(rt->conf, fn, ctx);
}

int atsi_runtime_set(struct atsi_runtime *rt, const char *key, const char *value,
                     struct atsi_err *err)
{
    return atsi_conf_set(rt->conf, key, value, "atsi_runtime_set", err);
}

int atsi_runtime_plugins_each(const struct atsi_runtime *rt,
                              int (*fn)(void *ctx, const struct atsi_plugin_info *p), void *ctx)
{
    return atsi_registry_plugins_each(rt->registry, fn, ctx);
}

int atsi_runtime_search_each(const struct atsi_runtime *rt,
                             int (*fn)(void *ctx, const char *dir, const char *origin,
                                       const char *found),
                             void *ctx)
{
    return atsi_registry_search_each(rt->registry, fn, ctx);
}

const void *atsi_runtime_component(const struct atsi_runtime *rt, enum atsi_kind kind,
                                   const char *name)
{
    return atsi_registry_find(rt->registry, kind, name);
}

const struct atsi_topo *atsi_runtime_topo(const struct atsi_runtime *rt)
{
    return rt->topo;
}

uint32_t atsi_runtime_workers(const struct atsi_runtime *rt, int32_t *cpus_out, uint32_t max)
{
    bool pinned = atsi_conf_get(rt->conf, "cpu.topology")[0] == '\0';
    for (uint32_t i = 0; i < rt->n_workers && i < max; i++)
        cpus_out[i] = pinned ? (int32_t)rt->cpus[i] : -1;
    return rt->n_workers;
}

int atsi_runtime_set_threads(struct atsi_runtime *rt, uint32_t n, struct atsi_err *err)
{
    if (n == 0 || n > rt->n_workers)
        return atsi_fail(err, ATSI_EINVAL, "%u threads asked for, 1..%u possible (cpu.threads)", n,
                         rt->n_workers);
    rt->n_decode = n;
    rt->n_prefill = n;
    rt->open_decode = rt->open_prefill = false;
    return atsi_pool_set_active(rt->pool, n, err);
}
