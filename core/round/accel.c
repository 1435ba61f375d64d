/* SPDX-License-Identifier: Apache-2.0
 * Finding, opening and closing an accelerator and its transfer engine. */
#include "core/round/accel.h"

#include <string.h>

/* ---------------------------------------------------------------- the transfer engine */
static bool is_channel(const char *engine)
{
    return strcmp(engine, "copy_engine") == 0 || strcmp(engine, "copy_kernel") == 0;
}

/* The engine of the accelerator's own plugin, or the one that is named. */
static const struct atsi_component *find_engine(const struct atsi_runtime *rt, const char *plugin)
{
    const char *wanted = atsi_conf_get(rt->conf, "transfer.engine"), *at = "";
    bool own = strcmp(wanted, "auto") == 0 || is_channel(wanted);
    const struct atsi_component *c;
    for (uint32_t i = 0; (c = atsi_registry_at(rt->registry, ATSI_KIND_TRANSFER, i, &at)) != NULL;
         i++)
        if (own ? strcmp(at, plugin) == 0 : strcmp(c->name, wanted) == 0)
            return c;
    return NULL;
}

static int check_engine_name(const struct atsi_runtime *rt, struct atsi_err *err)
{
    const char *wanted = atsi_conf_get(rt->conf, "transfer.engine");
    char names[256];
    if (strcmp(wanted, "auto") == 0 || is_channel(wanted) ||
        atsi_registry_find(rt->registry, ATSI_KIND_TRANSFER, wanted) != NULL)
        return ATSI_OK;
    (void)atsi_registry_names(rt->registry, ATSI_KIND_TRANSFER, names, sizeof names);
    return atsi_fail(
        err, ATSI_ECONF,
        "transfer.engine = %.60s (%s): expected auto, copy_engine, copy_kernel, or one "
        "of: %s",
        wanted, atsi_conf_origin(rt->conf, "transfer.engine"), names);
}

int atsi_link_open(struct atsi_exec_devices *d, bool by_kernel, struct atsi_err *err)
{
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
    if (rc == ATSI_OK && by_kernel)
        rc = ops->queue_open(be, &d->weight_queue, err);
    if (rc != ATSI_OK)
        d->weight_queue = NULL;
    return rc;
}

void atsi_link_close(struct atsi_exec_devices *d)
{
    const struct atsi_backend_ops *ops = d->ops[ATSI_DEVICE_ACCEL];
    if (ops == NULL)
        return; /* never opened */
    if (d->tx != NULL && d->tx_ops != NULL)
        d->tx_ops->close(d->tx);
    if (d->weight_queue != NULL)
        ops->queue_close(d->weight_queue);
    if (d->queue[ATSI_DEVICE_ACCEL] != NULL)
        ops->queue_close(d->queue[ATSI_DEVICE_ACCEL]);
    d->tx = NULL;
    d->weight_queue = d->queue[ATSI_DEVICE_ACCEL] = NULL;
}

/* ---------------------------------------------------------------- the device */
/* Opens a device that computes for real and is no CPU, and the way to it. */
static int open_one(struct atsi_runtime *rt, const struct atsi_accel_use *use,
                    struct atsi_exec_devices *d, const struct atsi_component *c, const char *plugin,
                    struct atsi_accel_found *out, struct atsi_err *err)
{
    const struct atsi_component *engine = find_engine(rt, plugin);
    const struct atsi_backend_ops *ops = c->ops;
    const char *wanted = atsi_conf_get(rt->conf, "transfer.engine");
    int rc;
    if (ops->probe(&rt->host) < 1)
        return atsi_fail(err, ATSI_ENODEV, "there is no such device");
    rc = ops->open(&rt->host, 0, &d->be[ATSI_DEVICE_ACCEL], err);
    if (rc != ATSI_OK) {
        d->be[ATSI_DEVICE_ACCEL] = NULL;
        return rc;
    }
    d->ops[ATSI_DEVICE_ACCEL] = ops;
    out->props = (struct atsi_props){.struct_size = sizeof out->props};
    rc = ops->props(d->be[ATSI_DEVICE_ACCEL], &out->props);
    if (rc != ATSI_OK) {
        out->props = (struct atsi_props){0};
        return atsi_fail(err, rc, "it does not say what it is");
    }
    if (out->props.device_kind != ATSI_DEVICE_GPU)
        return atsi_fail(err, ATSI_ENOTSUP, "it is no accelerator");
    out->engine = engine != NULL ? engine->name : "";
    d->tx_ops = engine != NULL ? engine->ops : NULL;
    out->by_kernel = use->moves_weights && strcmp(wanted, "copy_kernel") == 0;
    return atsi_link_open(d, out->by_kernel, err);
}

void atsi_accel_put(struct atsi_exec_devices *d)
{
    atsi_link_close(d);
    if (d->be[ATSI_DEVICE_ACCEL] != NULL)
        d->ops[ATSI_DEVICE_ACCEL]->close(d->be[ATSI_DEVICE_ACCEL]);
    d->be[ATSI_DEVICE_ACCEL] = NULL;
    d->ops[ATSI_DEVICE_ACCEL] = NULL;
    d->tx_ops = NULL;
}

/* Left to choose: devices that are there and come with an engine to fill their memory. */
static bool may_be_accel(const struct atsi_runtime *rt, const struct atsi_component *c,
                         const char *plugin)
{
    const struct atsi_backend_ops *ops = c->ops;
    return find_engine(rt, plugin) != NULL && ops->probe(&rt->host) > 0;
}

static int choose_any(struct atsi_runtime *rt, const struct atsi_accel_use *use,
                      struct atsi_exec_devices *d, struct atsi_accel_found *out)
{
    const struct atsi_component *c;
    const char *plugin = "";
    (void)snprintf(out->why, sizeof out->why, "no backend of an accelerator runs here");
    for (uint32_t i = 0;
         (c = atsi_registry_at(rt->registry, ATSI_KIND_BACKEND, i, &plugin)) != NULL; i++) {
        struct atsi_err why = ATSI_ERR_INIT;
        if (!may_be_accel(rt, c, plugin))
            continue;
        out->props = (struct atsi_props){0};
        if (open_one(rt, use, d, c, plugin, out, &why) == ATSI_OK) {
            out->name = c->name;
            return ATSI_OK;
        }
        atsi_accel_put(d);
        if (out->props.struct_size != 0 && out->props.device_kind != ATSI_DEVICE_GPU)
            continue; /* it opened, as a CPU or a simulated device */
        (void)snprintf(out->why, sizeof out->why, "%.500s", why.msg);
        atsi_log(rt->log, ATSI_LOG_WARN, "devices", "accelerator %s: %s; %s", c->name, why.msg,
                 use->without);
    }
    return ATSI_OK;
}

static int choose_named(struct atsi_runtime *rt, const struct atsi_accel_use *use, const char *name,
                        struct atsi_exec_devices *d, struct atsi_accel_found *out,
                        struct atsi_err *err)
{
    const struct atsi_component *c;
    const char *plugin = "";
    char names[256];
    for (uint32_t i = 0;
         (c = atsi_registry_at(rt->registry, ATSI_KIND_BACKEND, i, &plugin)) != NULL; i++)
        if (strcmp(c->name, name) == 0) {
            out->name = c->name;
            return open_one(rt, use, d, c, plugin, out, err);
        }
    (void)atsi_registry_names(rt->registry, ATSI_KIND_BACKEND, names, sizeof names);
    return atsi_fail(err, ATSI_ECONF,
                     "backend.accel = %.60s (%s): no such backend here; there are: %s. `atsinfer "
                     "plugins --why %.60s` says more",
                     name, atsi_conf_origin(rt->conf, "backend.accel"), names, name);
}

int atsi_accel_choose(struct atsi_runtime *rt, const struct atsi_accel_use *use,
                      struct atsi_exec_devices *d, struct atsi_accel_found *out,
                      struct atsi_err *err)
{
    const char *name = atsi_conf_get(rt->conf, "backend.accel");
    int rc;
    *out = (struct atsi_accel_found){0};
    (void)snprintf(out->why, sizeof out->why, "backend.accel = %s", name);
    if (strcmp(name, "none") == 0)
        return ATSI_OK;
    rc = check_engine_name(rt, err);
    if (rc != ATSI_OK)
        return rc;
    if (strcmp(name, "auto") == 0)
        return choose_any(rt, use, d, out);
    return choose_named(rt, use, name, d, out, err);
}
