/* SPDX-License-Identifier: Apache-2.0
 * See cuda_fixture.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_fixture.h"

const struct cuda_host_control *gpu_control;

/* ---------------------------------------------------------------- host */
static struct {
    char key[32], value[32];
} settings[8];
static uint32_t n_settings, n_logged;
static char logged[512];

static void take_log(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
    ATSI_PRINTF(4, 5);
static void take_log(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
{
    va_list ap;
    (void)ctx;
    (void)who;
    if (level > ATSI_LOG_WARN)
        return;
    n_logged++;
    va_start(ap, fmt);
    (void)vsnprintf(logged, sizeof logged, fmt, ap);
    va_end(ap);
}

uint32_t gpu_logged(const char **text)
{
    uint32_t n = n_logged;
    n_logged = 0;
    if (text != NULL)
        *text = logged;
    return n;
}

void gpu_set(const char *key, const char *value)
{
    uint32_t i = 0;
    while (i < n_settings && strcmp(settings[i].key, key) != 0)
        i++;
    if (value == NULL) {
        if (i < n_settings)
            settings[i] = settings[--n_settings];
        return;
    }
    assert_true(i < sizeof settings / sizeof settings[0]);
    if (i == n_settings)
        n_settings++;
    (void)snprintf(settings[i].key, sizeof settings[i].key, "%s", key);
    (void)snprintf(settings[i].value, sizeof settings[i].value, "%s", value);
}

static const char *param_get(void *ctx, const char *plugin, const char *key)
{
    (void)ctx;
    assert_string_equal(plugin, "cuda_host");
    for (uint32_t i = 0; i < n_settings; i++)
        if (strcmp(settings[i].key, key) == 0)
            return settings[i].value;
    return NULL;
}

static uint64_t now_ns(void *ctx)
{
    struct timespec t;
    (void)ctx;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

struct atsi_host gpu_host = {.struct_size = sizeof gpu_host,
                             .abi_major = ATSI_ABI_MAJOR,
                             .abi_minor = ATSI_ABI_MINOR,
                             .log = take_log,
                             .param_get = param_get,
                             .now_ns = now_ns};

/* ---------------------------------------------------------------- the plugin */
const struct atsi_plugin *gpu_plugin(void)
{
    static const struct atsi_plugin *plugin;
    const struct cuda_host_control *(*control)(void);
    atsi_plugin_entry_fn *entry;
    const char *why = NULL;
    void *so;
    if (plugin != NULL)
        return plugin;
    so = dlopen(CUDA_HOST_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (so == NULL)
        fail_msg("%s", dlerror());
    *(void **)&entry = dlsym(so, ATSI_PLUGIN_ENTRY);
    *(void **)&control = dlsym(so, "cuda_host_control");
    if (entry == NULL || control == NULL) {
        fail_msg("%s lacks a symbol", CUDA_HOST_PLUGIN);
        return NULL;
    }
    gpu_control = control();
    plugin = entry(&gpu_host, &why);
    assert_non_null(plugin);
    return plugin;
}

static const void *component(uint32_t kind)
{
    const struct atsi_plugin *p = gpu_plugin();
    for (size_t i = 0; p->components[i] != NULL; i++)
        if (p->components[i]->kind == kind)
            return p->components[i]->ops;
    fail_msg("no component of kind %u", kind);
    return NULL;
}

const struct atsi_backend_ops *gpu_backend_ops(void)
{
    return component(ATSI_KIND_BACKEND);
}

const struct atsi_transfer_ops *gpu_transfer_ops(void)
{
    return component(ATSI_KIND_TRANSFER);
}

int gpu_open(struct gpu *g)
{
    int rc;
    memset(g, 0, sizeof *g);
    g->err.struct_size = sizeof g->err;
    g->ops = gpu_backend_ops();
    g->link_ops = gpu_transfer_ops();
    rc = g->ops->open(&gpu_host, 0, &g->be, &g->err);
    if (rc == ATSI_OK)
        rc = g->ops->queue_open(g->be, &g->queue, &g->err);
    if (rc == ATSI_OK)
        rc = g->ops->event_open(g->be, &g->done, &g->err);
    if (rc == ATSI_OK)
        rc = g->link_ops->open(&gpu_host, NULL, g->be, &g->link, &g->err);
    return rc;
}

void gpu_close(struct gpu *g)
{
    g->link_ops->close(g->link);
    g->ops->event_close(g->done);
    g->ops->queue_close(g->queue);
    g->ops->close(g->be);
    g->be = NULL;
}

void gpu_assert_clean(void)
{
    struct cuda_host_stats s;
    gpu_control->stats(&s);
    assert_int_equal(s.device_bytes, 0);
    assert_int_equal(s.pinned_bytes, 0);
    assert_int_equal(s.streams, 0);
    assert_int_equal(s.events, 0);
    assert_int_equal(s.graphs, 0);
    for (int k = 0; k < CUDA_HOST_REPORTS; k++)
        if (gpu_control->reports((enum cuda_host_report)k) != 0)
            fail_msg("report of kind %d: %s", k, gpu_control->last_report());
}

int gpu_setup(void **state)
{
    static struct gpu g;
    (void)gpu_plugin();
    gpu_control->reset();
    n_settings = 0;
    (void)gpu_logged(NULL);
    if (gpu_open(&g) != ATSI_OK)
        fail_msg("%s", g.err.msg);
    *state = &g;
    return 0;
}

int gpu_teardown(void **state)
{
    struct gpu *g = *state;
    if (g->be != NULL)
        gpu_close(g);
    gpu_assert_clean();
    return 0;
}

/* ---------------------------------------------------------------- helpers */
void gpu_fail(const char *name, uint64_t n, int error, int async)
{
    (gpu_control->fail)(name, n, error, async);
}

void assert_int_equal_text(int got, int want, const char *text)
{
    if (got != want)
        fail_msg("%d, expected %d: %s", got, want, text);
}

struct atsi_buf *gpu_alloc(struct gpu *g, enum atsi_mem mem, size_t bytes)
{
    struct atsi_buf *buf;
    GPU_OK(g, g->ops->buf_alloc(g->be, mem, bytes, &buf, &g->err));
    assert_non_null(g->ops->buf_ptr(buf));
    return buf;
}

void gpu_wait(struct gpu *g, struct atsi_event *ev)
{
    GPU_OK(g, g->ops->event_wait(ev, 1000, &g->err));
}

int gpu_copyv(struct gpu *g, uint32_t channel, const struct atsi_range *ranges, uint32_t n,
              struct atsi_event *wait, struct atsi_event *signal)
{
    struct atsi_event *const list[] = {wait};
    struct atsi_copyv req = {.struct_size = sizeof req,
                             .n_ranges = n,
                             .n_wait = wait != NULL ? 1 : 0,
                             .ranges = ranges,
                             .wait = list,
                             .signal = signal};
    return g->link_ops->copyv(g->link, channel, channel == GPU_KERNEL ? g->queue : NULL, &req,
                              &g->err);
}

static void copy_and_wait(struct gpu *g, void *dst, const void *src, size_t bytes)
{
    struct atsi_range r = {src, dst, bytes};
    GPU_OK(g, gpu_copyv(g, GPU_ENGINE, &r, 1, NULL, g->done));
    gpu_wait(g, g->done);
}

void gpu_put(struct gpu *g, void *dst, const void *src, size_t bytes)
{
    copy_and_wait(g, dst, src, bytes);
}

void gpu_get(struct gpu *g, void *dst, const void *src, size_t bytes)
{
    copy_and_wait(g, dst, src, bytes);
}

int gpu_run(struct gpu *g, const struct atsi_op *op, uint64_t key, struct atsi_event *wait,
            struct atsi_event *signal)
{
    struct atsi_event *const list[] = {wait};
    struct atsi_split split = {.struct_size = sizeof split,
                               .n_ops = 1,
                               .ops = &op,
                               .n_wait = wait != NULL ? 1 : 0,
                               .wait = list,
                               .signal = signal,
                               .graph_key = key};
    return g->ops->run(g->queue, &split, &g->err);
}

size_t gpu_free_bytes(struct gpu *g)
{
    struct atsi_props p = {.struct_size = sizeof p};
    assert_int_equal(g->ops->props(g->be, &p), ATSI_OK);
    return (size_t)p.mem_free_bytes;
}

static struct atsi_tensor matrix(void *data, uint64_t width, uint64_t rows, const char *name)
{
    return (struct atsi_tensor){.struct_size = sizeof(struct atsi_tensor),
                                .type = ATSI_TYPE_F32,
                                .n_dims = 2,
                                .ne = {width, rows, 1, 1},
                                .row_bytes = width * 4,
                                .data = data,
                                .name = name};
}

void gpu_add_make(struct gpu_add *add, void *a, void *b, void *y, uint64_t width, uint32_t rows)
{
    add->a = matrix(a, width, rows, "a");
    add->b = matrix(b, width, rows, "b");
    add->y = matrix(y, width, rows, "the_sum");
    add->op = (struct atsi_op){.struct_size = sizeof add->op,
                               .kind = ATSI_OP_ADD,
                               .n_rows = rows,
                               .src = {&add->a, &add->b},
                               .dst = {&add->y}};
}
