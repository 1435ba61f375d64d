/* SPDX-License-Identifier: Apache-2.0
 *
 * What a governor brings: decoding on the emulated device while its clock falls to an eighth and
 * comes back, with and without power.watch.  Kernels do nothing there but take the time that a
 * clock stands for; what the CPU computes is real.
 *
 *     governor_bench PLUGIN MODEL on|off [SECONDS]
 *
 * PLUGIN: atsinfer-cuda_host.so.  Prints ms per token of each third and the plans the governor
 * asked for.  libnvidia-ml.so.1 must be tests/device/fake_nvml.c's (LD_LIBRARY_PATH), and FAKE_NVML
 * a file that may be written.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "atsinfer/atsinfer.h"
#include "tests/cuda_host/control.h"

#define FULL_MHZ 1980u
#define FULL_NS 300000u /* of a kernel */
#define CONTEXT 512u

static const struct cuda_host_control *control;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "governor_bench: %s: %s\n", what, why);
    return 1;
}

/* The device at a part of its clock: kernels take as much longer. */
static int set_clock(unsigned divisor)
{
    char path[4096], ns[32];
    const char *file = getenv("FAKE_NVML");
    FILE *f;
    (void)snprintf(ns, sizeof ns, "%u", FULL_NS * divisor);
    if (file == NULL || control->set("KERNEL_NS", ns) != 0)
        return 1;
    (void)snprintf(path, sizeof path, "%s.new", file);
    f = fopen(path, "we");
    if (f == NULL)
        return 1;
    (void)fprintf(f, "%u 1000 24576\n", FULL_MHZ / divisor);
    return fclose(f) == 0 && rename(path, file) == 0 ? 0 : 1;
}

static int find_control(const char *plugin)
{
    void *lib = dlopen(plugin, RTLD_NOW);
    void *p = lib != NULL ? dlsym(lib, "cuda_host_control") : NULL;
    const struct cuda_host_control *(*get)(void);
    if (p == NULL)
        return 1;
    memcpy(&get, &p, sizeof get);
    control = get();
    return control->set("NULL_KERNELS", "1") != 0 || control->set("CHECK_READS", "0") != 0 ||
           control->set("MEMORY", "4g") != 0;
}

/* Decodes for so long; ms per token of the second half, when all has settled. */
static int third(struct atsi_session *s, const char *name, unsigned divisor, double seconds)
{
    struct atsi_accel_stats st = {.struct_size = sizeof st};
    struct atsi_session_info info = {.struct_size = sizeof info};
    struct atsi_err err = ATSI_ERR_INIT;
    double start, from = 0, t;
    uint32_t n = 0, all = 0;
    if (set_clock(divisor) != 0)
        return fail("the device", "its clock cannot be set");
    start = now();
    for (t = start; t - start < seconds; t = now(), all++) {
        int32_t id = (int32_t)(all % 100 + 1);
        struct atsi_eval req = {.struct_size = sizeof req, .ids = &id, .n = 1};
        if (atsi_session_n_past(s) + 1 >= CONTEXT)
            (void)atsi_session_truncate(s, 16, &err); /* 16 is within */
        if (atsi_session_eval(s, &req, &err) != ATSI_OK)
            return fail(name, err.msg);
        if (t - start > seconds / 2) {
            from = n == 0 ? t : from;
            n++;
        }
    }
    atsi_session_accel_stats(s, &st);
    atsi_session_info(s, &info);
    (void)printf("| %s | %u MHz | %.2f ms | %u of %u | %llu |\n", name, FULL_MHZ / divisor,
                 n > 0 ? 1e3 * (t - from) / n : 0.0, info.n_resident, info.n_items,
                 (unsigned long long)st.n_governed);
    return 0;
}

static void say(void *ctx, enum atsi_log_level level, const char *who, const char *msg)
{
    (void)ctx;
    if (level <= ATSI_LOG_WARN || strcmp(who, "power") == 0)
        (void)fprintf(stderr, "%s: %s\n", who, msg);
}

static int run(const char *plugin, const char *path, bool watch, double seconds)
{
    const char *overrides[] = {"backend.accel=cuda_host",
                               watch ? "power.watch=200" : "power.watch=0", "power.root=/nowhere",
                               "memory.vram=50%m", NULL};
    const char *const plugins[] = {plugin, NULL};
    struct atsi_runtime_params p = {.struct_size = sizeof p,
                                    .overrides = overrides,
                                    .plugin_files = plugins,
                                    .log = say,
                                    .log_level = ATSI_LOG_INFO};
    struct atsi_session_params sp = ATSI_SESSION_PARAMS_INIT;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_runtime *rt = NULL;
    struct atsi_model *m = NULL;
    struct atsi_session *s = NULL;
    int rc = atsi_runtime_open(&p, &rt, &err);
    sp.n_ctx = CONTEXT;
    if (rc == ATSI_OK)
        rc = atsi_model_open(rt, path, NULL, &m, &err);
    if (rc == ATSI_OK)
        rc = atsi_session_open(m, &sp, &s, &err);
    if (rc == ATSI_OK)
        rc = atsi_session_settle(s, NULL, &err);
    rc = rc != ATSI_OK ? fail(path, err.msg) : 0;
    if (rc == 0)
        (void)printf("| power.watch %s | clock | a token | items there | plans of the governor |\n"
                     "| --- | ---: | ---: | ---: | ---: |\n",
                     watch ? "on" : "off");
    if (rc == 0)
        rc = third(s, "full clock", 1, seconds / 3);
    if (rc == 0)
        rc = third(s, "an eighth", 8, seconds / 3);
    if (rc == 0)
        rc = third(s, "full clock again", 1, seconds / 3);
    atsi_session_close(s);
    atsi_model_close(m);
    atsi_runtime_close(rt);
    return rc;
}

int main(int argc, char **argv)
{
    double seconds = argc > 4 ? strtod(argv[4], NULL) : 36;
    if (argc < 4 || !(seconds > 0))
        return fail("usage", "governor_bench PLUGIN MODEL on|off [SECONDS]");
    if (find_control(argv[1]) != 0)
        return fail(argv[1], "not the plugin of the emulated device");
    if (set_clock(1) != 0)
        return fail("FAKE_NVML", "names no file that can be written");
    return run(argv[1], argv[2], strcmp(argv[3], "on") == 0, seconds);
}
