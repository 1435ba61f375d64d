/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend whose probe finds FIXTURE_DEVICES devices and whose open then fails with FIXTURE_WORDS.
 * What needs an open backend is never called and says so.
 */
#include "atsinfer/plugin.h"

#ifndef FIXTURE_DEVICES
#define FIXTURE_DEVICES 1
#endif

static int probe(const struct atsi_host *host)
{
    (void)host;
    return FIXTURE_DEVICES;
}

static int open_device(const struct atsi_host *host, int index, struct atsi_backend **out,
                       struct atsi_err *err)
{
    (void)host;
    *out = NULL;
    return atsi_fail(err, ATSI_ENODEV, FIXTURE_WORDS, index);
}

static void close_device(struct atsi_backend *be)
{
    (void)be;
}

static int props(const struct atsi_backend *be, struct atsi_props *out)
{
    (void)be;
    (void)out;
    return ATSI_EINVAL;
}

static int supports(const struct atsi_backend *be, const struct atsi_op *op)
{
    (void)be;
    (void)op;
    return 0;
}

static int buf_alloc(struct atsi_backend *be, enum atsi_mem mem, size_t bytes,
                     struct atsi_buf **out, struct atsi_err *err)
{
    (void)be;
    (void)mem;
    (void)bytes;
    (void)out;
    return atsi_fail(err, ATSI_EINVAL, "no device is open");
}

static void buf_free(struct atsi_backend *be, struct atsi_buf *buf)
{
    (void)be;
    (void)buf;
}

static void *buf_ptr(const struct atsi_buf *buf)
{
    (void)buf;
    return NULL;
}

static int queue_open(struct atsi_backend *be, struct atsi_queue **out, struct atsi_err *err)
{
    (void)be;
    (void)out;
    return atsi_fail(err, ATSI_EINVAL, "no device is open");
}

static void queue_close(struct atsi_queue *q)
{
    (void)q;
}

static int event_open(struct atsi_backend *be, struct atsi_event **out, struct atsi_err *err)
{
    (void)be;
    (void)out;
    return atsi_fail(err, ATSI_EINVAL, "no device is open");
}

static void event_close(struct atsi_event *ev)
{
    (void)ev;
}

static int run(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err)
{
    (void)q;
    (void)split;
    return atsi_fail(err, ATSI_EINVAL, "no device is open");
}

static int event_wait(struct atsi_event *ev, uint64_t spin_ns, struct atsi_err *err)
{
    (void)ev;
    (void)spin_ns;
    return atsi_fail(err, ATSI_EINVAL, "no device is open");
}

static int event_query(const struct atsi_event *ev)
{
    (void)ev;
    return ATSI_EINVAL;
}

static int event_time(const struct atsi_event *ev, uint64_t *ns_out)
{
    (void)ev;
    (void)ns_out;
    return ATSI_EINVAL;
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

static const struct atsi_component backend = {
    .struct_size = sizeof backend, .kind = ATSI_KIND_BACKEND, .name = FIXTURE_NAME, .ops = &ops};

static const struct atsi_component *const components[] = {&backend, NULL};

static const struct atsi_plugin plugin = {.struct_size = sizeof plugin,
                                          .magic = ATSI_PLUGIN_MAGIC,
                                          .abi_major = ATSI_ABI_MAJOR,
                                          .abi_minor = ATSI_ABI_MINOR,
                                          .name = FIXTURE_NAME,
                                          .version = "0.1.0",
                                          .license = "Apache-2.0",
                                          .components = components};

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host, const char **why)
{
    (void)host;
    (void)why;
    return &plugin;
}
