/* SPDX-License-Identifier: Apache-2.0
 * Opening the devices that the settings choose. */
#include "core/round/devices.h"

#include "core/select.h"

#include <string.h>

static void close_one(struct atsi_devices *v, uint32_t device)
{
    struct atsi_exec_devices *d = &v->d;
    if (d->ops[device] == NULL)
        return;
    if (d->queue[device] != NULL)
        d->ops[device]->queue_close(d->queue[device]);
    if (d->be[device] != NULL)
        d->ops[device]->close(d->be[device]);
    d->queue[device] = NULL;
    d->be[device] = NULL;
    d->ops[device] = NULL;
    v->backend[device] = NULL;
}

static void close_accel(struct atsi_devices *v)
{
    if (v->d.tx != NULL)
        v->d.tx_ops->close(v->d.tx);
    v->d.tx = NULL;
    v->d.tx_ops = NULL;
    v->transfer = NULL;
    close_one(v, ATSI_DEVICE_ACCEL);
}

void atsi_devices_close(struct atsi_devices *v)
{
    close_accel(v);
    close_one(v, ATSI_DEVICE_HOST);
}

static int open_one(struct atsi_devices *v, uint32_t device, const char *name,
                    const struct atsi_backend_ops *ops, struct atsi_err *err)
{
    struct atsi_exec_devices *d = &v->d;
    int rc;
    d->ops[device] = ops;
    v->backend[device] = name;
    rc = ops->open(d->host, 0, &d->be[device], err);
    return rc == ATSI_OK ? ops->queue_open(d->be[device], &d->queue[device], err) : rc;
}

/* ---------------------------------------------------------------- the accelerator */
/* A transfer engine out of the backend's own plugin, or the one that is named. */
static const struct atsi_component *find_transfer(const struct atsi_runtime *rt, const char *plugin)
{
    const char *name = atsi_conf_get(rt->conf, "transfer.engine"), *path = NULL;
    const struct atsi_component *c;
    bool any = strcmp(name, "auto") == 0 || strncmp(name, "copy_", 5) == 0; /* a channel's name */
    for (uint32_t i = 0; (c = atsi_registry_at(rt->registry, ATSI_KIND_TRANSFER, i, &path)) != NULL;
         i++)
        if (any ? strcmp(path, plugin) == 0 : strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static bool is_accel(const struct atsi_devices *v)
{
    const struct atsi_exec_devices *d = &v->d;
    struct atsi_props props = {.struct_size = sizeof props};
    return d->ops[ATSI_DEVICE_ACCEL]->props(d->be[ATSI_DEVICE_ACCEL], &props) == ATSI_OK &&
           props.device_kind == ATSI_DEVICE_GPU;
}

/* 1: opened, but left to choose (any) it is none: a CPU, or a simulated device. */
static int open_accel(struct atsi_runtime *rt, struct atsi_devices *v,
                      const struct atsi_component *c, const char *plugin, bool any,
                      struct atsi_err *err)
{
    const struct atsi_component *tx = find_transfer(rt, plugin);
    int rc;
    if (tx == NULL)
        return atsi_fail(err, ATSI_ECONF,
                         "%s: no transfer engine \"%s\" here (transfer.engine, %s)", c->name,
                         atsi_conf_get(rt->conf, "transfer.engine"),
                         atsi_conf_origin(rt->conf, "transfer.engine"));
    rc = open_one(v, ATSI_DEVICE_ACCEL, c->name, c->ops, err);
    if (rc == ATSI_OK && any && !is_accel(v))
        return 1;
    if (rc == ATSI_OK) {
        v->d.tx_ops = tx->ops;
        v->transfer = tx->name;
        rc = v->d.tx_ops->open(v->d.host, v->d.be[ATSI_DEVICE_HOST], v->d.be[ATSI_DEVICE_ACCEL],
                               &v->d.tx, err);
    }
    return rc == ATSI_OK ? atsi_exec_channels(&v->d, err) : rc;
}

/* Left to choose: only devices with memory of their own, which come with an engine to fill it. */
static bool may_be_accel(const struct atsi_runtime *rt, const struct atsi_component *c,
                         const char *plugin)
{
    const struct atsi_backend_ops *ops = c->ops;
    return find_transfer(rt, plugin) != NULL && ops->probe(&rt->host) > 0;
}

static int choose_accel(struct atsi_runtime *rt, struct atsi_devices *v, struct atsi_err *err)
{
    const char *name = atsi_conf_get(rt->conf, "backend.accel"), *path = NULL;
    bool any = strcmp(name, "auto") == 0;
    const struct atsi_component *c;
    struct atsi_err why = ATSI_ERR_INIT;
    int rc;
    (void)snprintf(v->without, sizeof v->without, "backend.accel = %s", name);
    if (strcmp(name, "none") == 0)
        return ATSI_OK;
    if (any)
        (void)snprintf(v->without, sizeof v->without, "no backend of an accelerator runs here");
    for (uint32_t i = 0; (c = atsi_registry_at(rt->registry, ATSI_KIND_BACKEND, i, &path)) != NULL;
         i++) {
        if (any ? !may_be_accel(rt, c, path) : strcmp(c->name, name) != 0)
            continue;
        rc = open_accel(rt, v, c, path, any, any ? &why : err);
        if (!any || rc == ATSI_OK) {
            v->without[0] = '\0';
            return rc < 0 ? rc : ATSI_OK;
        }
        close_accel(v);
        if (rc > 0)
            continue;
        (void)snprintf(v->without, sizeof v->without, "%.500s", why.msg);
        atsi_log(rt->log, ATSI_LOG_WARN, "devices", "going on without %s: %s", c->name, why.msg);
    }
    return any ? ATSI_OK
               : atsi_fail(
                     err, ATSI_ECONF,
                     "backend.accel = %s (%s): no such backend here; `atsinfer plugins` lists "
                     "them",
                     name, atsi_conf_origin(rt->conf, "backend.accel"));
}

int atsi_devices_open(struct atsi_runtime *rt, struct atsi_devices *out, struct atsi_err *err)
{
    const struct atsi_backend_ops *ops = NULL;
    const char *name = NULL;
    int rc;
    *out = (struct atsi_devices){.d = {.host = &rt->host}};
    rc = atsi_select_cpu(rt, &name, &ops, out->chosen, sizeof out->chosen, err);
    if (rc == ATSI_OK)
        rc = open_one(out, ATSI_DEVICE_HOST, name, ops, err);
    return rc == ATSI_OK ? choose_accel(rt, out, err) : rc;
}
