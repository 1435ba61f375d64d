/* SPDX-License-Identifier: Apache-2.0
 *
 * What the engine's own work takes per decode round: sessions on the simulated CUDA device with a
 * device (NULL_DEVICE) and a CPU backend (null_cpu) that do nothing.  Time in calls of the CUDA
 * runtime is measured by the simulation and left out.
 *
 *     host_overhead [-n ROUNDS] [-s KEY=VALUE]... [MODEL.gguf]
 *
 * Without a file: models of two architectures with as many layers as models in use have, and narrow
 * ones, since the host's work does not depend on widths.  Exit status 1: above the target.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "atsinfer/atsinfer.h"
#include "tests/cuda_host/control.h"
#include "tests/unit/arch_config.h"

#define CUDA_HOST ATSI_BINARY_DIR "/tests/cuda_host/atsinfer-cuda_host.so"
#define NULL_CPU ATSI_BINARY_DIR "/tests/null_cpu/atsinfer-null_cpu.so"

enum { WARM_UP = 40, MAX_SETTINGS = 24, MAX_ROUNDS = 4000 };

/* Microseconds of own work that a decode round may take, and each of its splits. */
static const double round_us = 50, split_us = 5;

static const struct cuda_host_control *control;
static uint64_t (*cpu_splits)(void);
static const char *more[MAX_SETTINGS];
static uint32_t n_more, n_rounds = 400;

/* ---------------------------------------------------------------- placements */
struct way {
    const char *name;
    const char *settings[6];
};

static const struct way ways[] = {
    {"all", {"memory.vram=100%", "policy.name=policy_static", "plugin.policy_static.mode=layer"}},
    {"layers",
     {"memory.vram=50%m", "policy.name=policy_static", "plugin.policy_static.mode=layer"}},
    {"experts",
     {"memory.vram=50%m", "policy.name=policy_static", "plugin.policy_static.mode=expert"}},
    {"streamed",
     {"memory.vram=50%m", "memory.temp=25%m", "policy.name=policy_static",
      "plugin.policy_static.mode=stream"}},
    {"paper",
     {"memory.vram=50%m", "memory.temp=25%m", "policy.name=policy_dp",
      "plugin.policy_dp.algorithm=paper"}},
    {"backlog", {"memory.vram=50%m", "memory.temp=25%m", "policy.name=policy_dp"}},
    {"mixed", {"memory.vram=100%", "policy.rule.1=ffn_(down|gate_exps|up)=cpu"}},
};

/* ---------------------------------------------------------------- rounds */
struct sums {
    double own_us[MAX_ROUNDS], driver_us;
    uint64_t accel_splits, host_splits, calls;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int decode(struct atsi_session *s, struct atsi_err *err)
{
    const int32_t id = 1;
    const struct atsi_eval req = {.struct_size = sizeof req, .ids = &id, .n = 1};
    return atsi_session_eval(s, &req, err);
}

static int measure(struct atsi_session *s, struct sums *m, struct atsi_err *err)
{
    struct cuda_host_stats before, after;
    uint64_t driver, host, calls;
    int rc = ATSI_OK;
    for (uint32_t i = 0; i < WARM_UP && rc == ATSI_OK; i++)
        rc = decode(s, err);
    control->stats(&before);
    calls = control->calls(NULL);
    host = cpu_splits();
    driver = control->driver_ns();
    for (uint32_t i = 0; i < n_rounds && rc == ATSI_OK; i++) {
        uint64_t start = now_ns(), inside = control->driver_ns();
        rc = decode(s, err);
        m->own_us[i] =
            ((double)(now_ns() - start) - (double)(control->driver_ns() - inside)) / 1000.0;
    }
    m->driver_us = (double)(control->driver_ns() - driver) / 1000.0;
    m->host_splits = cpu_splits() - host;
    m->calls = control->calls(NULL) - calls;
    control->stats(&after);
    m->accel_splits = after.graph_launches - before.graph_launches;
    return rc;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* 0: within the target. */
static int print(const char *model, const char *way, struct sums *m,
                 const struct atsi_session_info *info)
{
    double n = n_rounds, mean = 0, median, accel, host, allowed;
    for (uint32_t i = 0; i < n_rounds; i++)
        mean += m->own_us[i] / n;
    qsort(m->own_us, n_rounds, sizeof m->own_us[0], compare);
    median = m->own_us[n_rounds / 2];
    /* Rounds whose operations are measured launch no graphs: one in 16. */
    accel = (double)m->accel_splits / (n - n / 16.0);
    host = (double)m->host_splits / n;
    allowed = round_us + split_us * (accel + host);
    printf("%-22s %-9s %5u %7.1f %7.1f %8.1f %8.1f %8.1f %8.1f %8.1f  %s\n", model, way,
           info->n_items, accel, host, median, mean, allowed, (double)m->calls / n,
           m->driver_us / n, median <= allowed ? "" : "ABOVE");
    (void)fflush(stdout);
    return median <= allowed ? 0 : 1;
}

/* ---------------------------------------------------------------- sessions */
static struct atsi_runtime *open_runtime(const struct way *w, struct atsi_err *err)
{
    static const char *const plugins[] = {CUDA_HOST, NULL_CPU, NULL};
    const char *all[2 * MAX_SETTINGS + 8] = {
        "backend.cpu=null_cpu", "backend.accel=cuda_host", "cpu.threads=1", "policy.costs=typical",
        "load.pack=off",        "memory.vram_margin=0",    "power.watch=0"};
    struct atsi_runtime_params p = {
        .struct_size = sizeof p, .overrides = all, .plugin_files = plugins};
    struct atsi_runtime *rt = NULL;
    size_t n = 7;
    for (uint32_t i = 0; i < 6 && w->settings[i] != NULL; i++)
        all[n++] = w->settings[i];
    for (uint32_t i = 0; i < n_more; i++)
        all[n++] = more[i];
    return atsi_runtime_open(&p, &rt, err) == ATSI_OK ? rt : NULL;
}

static int run_way(const char *name, const char *path, const struct way *w)
{
    static struct sums m;
    struct atsi_session_info info = {.struct_size = sizeof info};
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_runtime *rt = open_runtime(w, &err);
    struct atsi_model *model = NULL;
    struct atsi_session *s = NULL;
    int rc = rt != NULL ? ATSI_OK : ATSI_ECONF, above = 1;
    p.n_ctx = MAX_ROUNDS + WARM_UP;
    p.chunk = 32;
    if (rc == ATSI_OK)
        rc = atsi_model_open(rt, path, NULL, &model, &err);
    if (rc == ATSI_OK)
        rc = atsi_session_open(model, &p, &s, &err);
    if (rc == ATSI_OK)
        rc = measure(s, &m, &err);
    if (rc == ATSI_OK) {
        atsi_session_info(s, &info);
        if (info.accel[0] == '\0')
            rc = atsi_fail(&err, ATSI_ENODEV, "the session runs without the accelerator");
    }
    if (rc == ATSI_OK)
        above = print(name, w->name, &m, &info);
    else
        (void)fprintf(stderr, "%s, %s: %s\n", name, w->name, err.msg);
    atsi_session_close(s);
    atsi_model_close(model);
    atsi_runtime_close(rt);
    return above;
}

static int run_model(const char *name, const char *path)
{
    int above = 0;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        above |= run_way(name, path, &ways[i]);
    return above;
}

/* ---------------------------------------------------------------- models */
static int run_made(const char *arch, uint32_t layers, const char *folder)
{
    struct am_config c = am_tiny(arch);
    struct am m;
    char path[300], name[64];
    int above;
    c.n_layer = layers;
    c.n_ctx = MAX_ROUNDS + WARM_UP;
    if (c.n_expert > 0) {
        c.n_expert = 128;
        c.n_used = 8;
    }
    (void)snprintf(path, sizeof path, "%s/%s.gguf", folder, arch);
    (void)snprintf(name, sizeof name, "%s, %u layers", arch, layers);
    am_build(&m, &c, true);
    if (!am_save(&m, path)) {
        (void)fprintf(stderr, "%s cannot be written\n", path);
        return 1;
    }
    am_free(&m);
    above = run_model(name, path);
    (void)unlink(path);
    return above;
}

static int run_all(void)
{
    char folder[] = "/tmp/host_overhead_XXXXXX";
    int above;
    if (mkdtemp(folder) == NULL) {
        perror("host_overhead: a temporary folder");
        return 2;
    }
    above = run_made("qwen3", 40, folder) | run_made("qwen3moe", 48, folder);
    (void)rmdir(folder);
    return above;
}

/* ---------------------------------------------------------------- the program */
static int load(void)
{
    const struct cuda_host_control *(*get)(void) = NULL;
    void *dev = dlopen(CUDA_HOST, RTLD_NOW), *cpu = dlopen(NULL_CPU, RTLD_NOW), *sym;
    sym = dev != NULL ? dlsym(dev, "cuda_host_control") : NULL;
    memcpy(&get, &sym, sizeof get);
    sym = cpu != NULL ? dlsym(cpu, "null_cpu_splits") : NULL;
    memcpy(&cpu_splits, &sym, sizeof cpu_splits);
    if (get == NULL || cpu_splits == NULL) {
        (void)fprintf(stderr, "host_overhead: %s\n", dlerror());
        return -1;
    }
    control = get();
    return control->set("NULL_DEVICE", "1");
}

static int usage(void)
{
    (void)fprintf(stderr, "usage: host_overhead [-n ROUNDS] [-s KEY=VALUE]... [MODEL.gguf]\n");
    return 2;
}

int main(int argc, char **argv)
{
    int c;
    while ((c = getopt(argc, argv, "n:s:")) != -1) {
        if (c == 'n')
            n_rounds = (uint32_t)strtoul(optarg, NULL, 10);
        else if (c == 's' && n_more < MAX_SETTINGS)
            more[n_more++] = optarg;
        else
            return usage();
    }
    if (argc - optind > 1 || n_rounds < 16 || n_rounds > MAX_ROUNDS)
        return usage();
    if (load() != 0)
        return 2;
    printf("%-22s %-9s %5s %7s %7s %8s %8s %8s %8s %8s\n", "model", "placement", "items", "splits",
           "CPU", "own us", "mean", "allowed", "calls", "in calls");
    return argc > optind ? run_model(argv[optind], argv[optind]) : run_all();
}
