/* SPDX-License-Identifier: Apache-2.0
 *
 * A CPU backend that computes nothing, in no time: what a round then takes is the engine's own
 * work.  Operations are accepted whatever they are; results keep what was in their memory.
 */
#include "atsinfer/plugin.h"

#include <stdlib.h>
#include <string.h>

struct atsi_backend {
    const struct atsi_host *host;
};

struct atsi_queue {
    struct atsi_backend *be;
};

struct atsi_event {
    struct atsi_backend *be;
    uint64_t ns;
};

struct atsi_buf {
    void *ptr;
};

static uint64_t splits; /* with operations; of the one thread that computes */

/* For programs that measure, found with dlsym. */
__attribute__((visibility("default"))) uint64_t null_cpu_splits(void);
uint64_t null_cpu_splits(void)
{
    return splits;
}

static int probe(const struct atsi_host *host)
{
    (void)host;
    return 1;
}

static int open_device(const struct atsi_host *host, int index, struct atsi_backend **out,
                       struct atsi_err *err)
{
    (void)index;
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "null_cpu: out of memory");
    (*out)->host = host;
    return ATSI_OK;
}

static void close_device(struct atsi_backend *be)
{
    free(be);
}

static int props(const struct atsi_backend *be, struct atsi_props *out)
{
    (void)be;
    if (out->struct_size < sizeof *out)
        return ATSI_EINVAL;
    *out = (struct atsi_props){.struct_size = sizeof *out,
                               .device_kind = ATSI_DEVICE_CPU,
                               .name = "null_cpu",
                               .detail = "computes nothing",
                               .buf_align_bytes = 64,
                               .buf_pad_bytes = 64};
    return ATSI_OK;
}

static int supports(const struct atsi_backend *be, const struct atsi_op *op)
{
    (void)be;
    (void)op;
    return 1;
}

static int buf_alloc(struct atsi_backend *be, enum atsi_mem mem, size_t bytes,
                     struct atsi_buf **out, struct atsi_err *err)
{
    (void)be;
    (void)mem;
    *out = calloc(1, sizeof **out);
    if (*out != NULL &&
        (bytes > SIZE_MAX - 128 || posix_memalign(&(*out)->ptr, 64, bytes + 64) != 0)) {
        free(*out);
        *out = NULL;
    }
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "null_cpu: out of memory for %zu bytes", bytes);
    memset((*out)->ptr, 0, bytes + 64); /* nobody will write results */
    return ATSI_OK;
}

static void buf_free(struct atsi_backend *be, struct atsi_buf *buf)
{
    (void)be;
    if (buf != NULL)
        free(buf->ptr);
    free(buf);
}

static void *buf_ptr(const struct atsi_buf *buf)
{
    return buf->ptr;
}

static int queue_open(struct atsi_backend *be, struct atsi_queue **out, struct atsi_err *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "null_cpu: out of memory");
    (*out)->be = be;
    return ATSI_OK;
}

static void queue_close(struct atsi_queue *q)
{
    free(q);
}

static int event_open(struct atsi_backend *be, struct atsi_event **out, struct atsi_err *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "null_cpu: out of memory");
    (*out)->be = be;
    return ATSI_OK;
}

static void event_close(struct atsi_event *ev)
{
    free(ev);
}

static int run(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err)
{
    (void)err;
    splits += split->n_ops > 0;
    for (uint32_t i = 0; split->op_ns != NULL && i < split->n_ops; i++)
        split->op_ns[i] = 0;
    if (split->signal != NULL)
        split->signal->ns = q->be->host->now_ns(q->be->host->ctx);
    return ATSI_OK;
}

static int event_wait(struct atsi_event *ev, uint64_t spin_ns, struct atsi_err *err)
{
    (void)ev;
    (void)spin_ns;
    (void)err;
    return ATSI_OK;
}

static int event_query(const struct atsi_event *ev)
{
    (void)ev;
    return 1;
}

static int event_time(const struct atsi_event *ev, uint64_t *ns_out)
{
    *ns_out = ev->ns;
    return ATSI_OK;
}

static const struct atsi_backend_ops ops = {.struct_size = sizeof ops,
                                            .probe = probe,
                                            .open = open_device,
                                            .close = close_device,
                                            .props = props,
                                            .supports = supports,
                                            .buf_alloc = buf_alloc,
                                            .buf_free = buf_free,
                                            .buf_ptr = buf_ptr,
                                            .queue_open = queue_open,
                                            .queue_close = queue_close,
                                            .event_open = event_open,
                                            .event_close = event_close,
                                            .run = run,
                                            .event_wait = event_wait,
                                            .event_query = event_query,
                                            .event_time = event_time};
static const struct atsi_component component = {sizeof component, ATSI_KIND_BACKEND, "null_cpu",
                                                &ops};
static const struct atsi_component *const components[] = {&component, NULL};
static const struct atsi_plugin plugin = {.struct_size = sizeof plugin,
                                          .magic = ATSI_PLUGIN_MAGIC,
                                          .abi_major = ATSI_ABI_MAJOR,
                                          .abi_minor = ATSI_ABI_MINOR,
                                          .name = "null_cpu",
                                          .version = "0.1.0",
                                          .license = "Apache-2.0",
                                          .components = components};

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host, const char **why)
{
    (void)host;
    (void)why;
    return &plugin;
}
