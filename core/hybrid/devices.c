/* SPDX-License-Identifier: Apache-2.0
 * Finding, opening and closing the accelerator and its transfer engine. */
#include "core/hybrid/devices.h"

#include <string.h>

#define SPIN_NS 20000u

struct found {
    const char *name, *path;
    const struct atsi_backend_ops *ops;
};

static void say(const struct atsi_session *s, const char *name, const char *why)
{
    atsi_log(s->rt->log, ATSI_LOG_WARN, "session",
             "accelerator %s: %s; everything is computed on the CPU", name, why);
}

/* ---------------------------------------------------------------- the device */
static int find_named(const struct atsi_session *s, const char *name, struct found *out,
                      struct atsi_err *err)
{
    const struct atsi_component *c;
    char names[256];
    for (uint32_t i = 0;
         (c = atsi_registry_at(s->rt->registry, ATSI_KIND_BACKEND, i, &out->path)) != NULL; i++)
        if (strcmp(c->name, name) == 0) {
            out->name = c->name;
            out->ops = c->ops;
            return ATSI_OK;
        }
    (void)atsi_registry_names(s->rt->registry, ATSI_KIND_BACKEND, names, sizeof names);
    return atsi_fail(err, ATSI_ECONF,
                     "backend.accel = %.60s (%s): no such backend here; there are: %s. `atsinfer "
                     "plugins --why %.60s` says more",
                     name, atsi_conf_origin(s->rt->conf, "backend.accel"), names, name);
}

/* Opens a device that computes for real and is no CPU. */
static int open_device(struct atsi_session *s, struct atsi_accel *a, const struct found *f,
                       struct atsi_err *err)
{
    int n = f->ops->probe(&s->rt->host), rc;
    if (n < 1)
        return atsi_fail(err, ATSI_ENODEV, "there is no such device");
    rc = f->ops->open(&s->rt->host, 0, &a->d.be[ATSI_DEVICE_ACCEL], err);
    if (rc != ATSI_OK) {
        a->d.be[ATSI_DEVICE_ACCEL] = NULL;
        return rc;
    }
    a->d.ops[ATSI_DEVICE_ACCEL] = f->ops;
    a->props.struct_size = sizeof a->props;
    rc = f->ops->props(a->d.be[ATSI_DEVICE_ACCEL], &a->props);
    if (rc == ATSI_OK && a->props.device_kind != ATSI_DEVICE_GPU)
        rc = ATSI_ENOTSUP;
    if (rc != ATSI_OK) {
        f->ops->close(a->d.be[ATSI_DEVICE_ACCEL]);
        a->d.be[ATSI_DEVICE_ACCEL] = NULL;
        a->d.ops[ATSI_DEVICE_ACCEL] = NULL;
        return atsi_fail(err, rc, "it is no accelerator");
    }
    return ATSI_OK;
}

/* The first that probes a device.  One that then does not open is said, and the next one tried. */
static int open_auto(struct atsi_session *s, struct atsi_accel *a, struct found *f)
{
    const struct atsi_component *c;
    struct atsi_err why = ATSI_ERR_INIT;
    for (uint32_t i = 0;
         (c = atsi_registry_at(s->rt->registry, ATSI_KIND_BACKEND, i, &f->path)) != NULL; i++) {
        int rc;
        f->name = c->name;
        f->ops = c->ops;
        if (f->ops->probe(&s->rt->host) < 1)
            continue;
        rc = open_device(s, a, f, &why);
        if (rc == ATSI_OK)
            return ATSI_OK;
        if (rc != ATSI_ENOTSUP)
            say(s, c->name, why.msg);
    }
    return ATSI_ENODEV;
}

/* ---------------------------------------------------------------- the transfer engine */
static bool is_channel(const char *engine)
{
    return strcmp(engine, "copy_engine") == 0 || strcmp(engine, "copy_kernel") == 0;
}

/* The engine of the accelerator's own plugin, or the one that is named. */
static const struct atsi_component *find_engine(const struct atsi_session *s, const char *wanted,
                                                const char *path)
{
    const struct atsi_component *c;
    const char *at = "";
    bool own = strcmp(wanted, "auto") == 0 || is_channel(wanted);
    for (uint32_t i = 0;
         (c = atsi_registry_at(s->rt->registry, ATSI_KIND_TRANSFER, i, &at)) != NULL; i++)
        if (own ? strcmp(at, path) == 0 : strcmp(c->name, wanted) == 0)
            return c;
    return NULL;
}

int atsi_accel_start(struct atsi_accel *a, struct atsi_err *err)
{
    struct atsi_exec_devices *d = &a->d;
    const struct atsi_backend_ops *ops = d->ops[ATSI_DEVICE_ACCEL];
    struct atsi_backend *be = d->be[ATSI_DEVICE_ACCEL];
    int rc;
    if (ops == NULL || d->tx_ops == NULL)
        return atsi_fail(err, ATSI_ENOTSUP, "its plugin has no transfer engine");
    rc = ops->queue_open(be, &d->queue[ATSI_DEVICE_ACCEL], err);
    if (rc != ATSI_OK) {
        d->queue[ATSI_DEVICE_ACCEL] = NULL;
        return rc;
    }
    rc = d->tx_ops->open(d->host, d->be[ATSI_DEVICE_HOST], be, &d->tx, err);
    if (rc != ATSI_OK) {
        d->tx = NULL;
        return rc;
    }
    rc = atsi_exec_channels(d, err);
    if (rc == ATSI_OK && a->by_kernel)
        rc = ops->queue_open(be, &d->weight_queue, err);
    if (rc != ATSI_OK)
        d->weight_queue = NULL;
    return rc;
}

void atsi_accel_stop(struct atsi_accel *a)
{
    const struct atsi_backend_ops *ops = a->d.ops[ATSI_DEVICE_ACCEL];
    if (ops == NULL)
        return; /* never opened */
    if (a->d.tx != NULL && a->d.tx_ops != NULL)
        a->d.tx_ops->close(a->d.tx);
    if (a->d.weight_queue != NULL)
        ops->queue_close(a->d.weight_queue);
    if (a->d.queue[ATSI_DEVICE_ACCEL] != NULL)
        ops->queue_close(a->d.queue[ATSI_DEVICE_ACCEL]);
    a->unsure = false;
    a->d.tx = NULL;
    a->d.weight_queue = a->d.queue[ATSI_DEVICE_ACCEL] = NULL;
}

static int check_engine_name(const struct atsi_session *s, const char *wanted, struct atsi_err *err)
{
    char names[256];
    if (strcmp(wanted, "auto") == 0 || is_channel(wanted) ||
        atsi_registry_find(s->rt->registry, ATSI_KIND_TRANSFER, wanted) != NULL)
        return ATSI_OK;
    (void)atsi_registry_names(s->rt->registry, ATSI_KIND_TRANSFER, names, sizeof names);
    return atsi_fail(
        err, ATSI_ECONF,
        "transfer.engine = %.60s (%s): expected auto, copy_engine, copy_kernel, or one "
        "of: %s",
        wanted, atsi_conf_origin(s->rt->conf, "transfer.engine"), names);
}

/* ---------------------------------------------------------------- both */
int atsi_accel_open(struct atsi_session *s, struct atsi_accel *a, struct atsi_err *err)
{
    const char *name = atsi_conf_get(s->rt->conf, "backend.accel");
    const char *engine = atsi_conf_get(s->rt->conf, "transfer.engine");
    struct atsi_err why = ATSI_ERR_INIT;
    struct found f = {0};
    int rc;
    *a = (struct atsi_accel){0};
    a->d = (struct atsi_exec_devices){.host = &s->rt->host,
                                      .ops = {s->be_ops},
                                      .be = {s->be},
                                      .queue = {s->queue},
                                      .wait_each = !atsi_conf_bool(s->rt->conf, "exec.async"),
                                      .real = true};
    if (strcmp(name, "none") == 0)
        return ATSI_OK;
    rc = check_engine_name(s, engine, err);
    if (rc == ATSI_OK && strcmp(name, "auto") != 0)
        rc = find_named(s, name, &f, err);
    if (rc != ATSI_OK)
        return rc;
    if (f.ops == NULL) {
        if (open_auto(s, a, &f) != ATSI_OK)
            return ATSI_OK;
    } else {
        rc = open_device(s, a, &f, &why);
    }
    if (rc == ATSI_OK) {
        const struct atsi_component *c = find_engine(s, engine, f.path);
        a->engine = c != NULL ? c->name : "";
        a->d.tx_ops = c != NULL ? c->ops : NULL;
        a->by_kernel = strcmp(engine, "copy_kernel") == 0;
        rc = atsi_accel_start(a, &why);
    }
    if (rc != ATSI_OK) {
        say(s, f.name, why.msg);
        atsi_accel_close(a);
        return ATSI_OK;
    }
    a->name = f.name;
    return ATSI_OK;
}

void atsi_accel_close(struct atsi_accel *a)
{
    atsi_accel_stop(a);
    if (a->d.be[ATSI_DEVICE_ACCEL] != NULL)
        a->d.ops[ATSI_DEVICE_ACCEL]->close(a->d.be[ATSI_DEVICE_ACCEL]);
    *a = (struct atsi_accel){0};
}

int atsi_accel_alloc(const struct atsi_accel *a, enum atsi_mem mem, size_t bytes,
                     struct atsi_buf **out, struct atsi_err *err)
{
    int rc;
    *out = NULL;
    if (bytes == 0)
        return ATSI_OK;
    rc = a->d.ops[ATSI_DEVICE_ACCEL]->buf_alloc(a->d.be[ATSI_DEVICE_ACCEL], mem, bytes, out, err);
    if (rc != ATSI_OK)
        *out = NULL;
    return rc;
}

void atsi_accel_free(const struct atsi_accel *a, struct atsi_buf *buf)
{
    if (buf != NULL)
        a->d.ops[ATSI_DEVICE_ACCEL]->buf_free(a->d.be[ATSI_DEVICE_ACCEL], buf);
}

int atsi_accel_copy(struct atsi_accel *a, struct atsi_event *ev, void *dst, const void *src,
                    size_t bytes, struct atsi_err *err)
{
    struct atsi_copyv req = {
        .struct_size = sizeof req, .n_ranges = 1, .ranges = &a->range, .signal = ev};
    int rc;
    if (a->unsure)
        return atsi_fail(err, ATSI_ENODEV, "accelerator %s: a copy failed before", a->props.name);
    a->range = (struct atsi_range){src, dst, bytes};
    rc = a->d.tx_ops->copyv(a->d.tx, a->d.copy_kernel, a->d.queue[ATSI_DEVICE_ACCEL], &req, err);
    if (rc == ATSI_OK)
        rc = a->d.ops[ATSI_DEVICE_ACCEL]->event_wait(ev, SPIN_NS, err);
    a->unsure = rc != ATSI_OK;
    return rc;
}
