/* SPDX-License-Identifier: Apache-2.0
 * Opening the devices that the settings choose. */
#include "core/round/devices.h"

#include "core/round/accel.h"
#include "core/select.h"

#include <string.h>

static int open_host(struct atsi_runtime *rt, struct atsi_devices *v, struct atsi_err *err)
{
    struct atsi_exec_devices *d = &v->d;
    const struct atsi_backend_ops *ops = NULL;
    int rc =
        atsi_select_cpu(rt, &v->backend[ATSI_DEVICE_HOST], &ops, v->chosen, sizeof v->chosen, err);
    if (rc != ATSI_OK)
        return rc;
    rc = ops->open(d->host, 0, &d->be[ATSI_DEVICE_HOST], err);
    if (rc != ATSI_OK) {
        d->be[ATSI_DEVICE_HOST] = NULL;
        return rc;
    }
    d->ops[ATSI_DEVICE_HOST] = ops;
    rc = ops->queue_open(d->be[ATSI_DEVICE_HOST], &d->queue[ATSI_DEVICE_HOST], err);
    if (rc != ATSI_OK)
        d->queue[ATSI_DEVICE_HOST] = NULL;
    return rc;
}

int atsi_devices_open(struct atsi_runtime *rt, struct atsi_devices *out, struct atsi_err *err)
{
    static const struct atsi_accel_use use = {.without = "going on without it"};
    struct atsi_accel_found f = {0};
    int rc;
    *out = (struct atsi_devices){.d = {.host = &rt->host}};
    rc = open_host(rt, out, err);
    if (rc == ATSI_OK)
        rc = atsi_accel_choose(rt, &use, &out->d, &f, err);
    if (rc != ATSI_OK)
        return rc;
    out->backend[ATSI_DEVICE_ACCEL] = f.name;
    out->transfer = f.engine;
    if (f.name == NULL)
        (void)snprintf(out->without, sizeof out->without, "%s", f.why);
    return ATSI_OK;
}

void atsi_devices_close(struct atsi_devices *v)
{
    struct atsi_exec_devices *d = &v->d;
    atsi_accel_put(d);
    if (d->queue[ATSI_DEVICE_HOST] != NULL)
        d->ops[ATSI_DEVICE_HOST]->queue_close(d->queue[ATSI_DEVICE_HOST]);
    if (d->be[ATSI_DEVICE_HOST] != NULL)
        d->ops[ATSI_DEVICE_HOST]->close(d->be[ATSI_DEVICE_HOST]);
    *v = (struct atsi_devices){0};
}
