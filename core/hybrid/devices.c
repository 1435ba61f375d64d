/* SPDX-License-Identifier: Apache-2.0
 * The accelerator of a session, and copies between its memory and the host's. */
#include "core/hybrid/devices.h"

#include "core/round/accel.h"

#define SPIN_NS 20000u

int atsi_accel_open(struct atsi_session *s, struct atsi_accel *a, struct atsi_err *err)
{
    static const struct atsi_accel_use use = {.without = "everything is computed on the CPU",
                                              .moves_weights = true};
    struct atsi_err why = ATSI_ERR_INIT;
    struct atsi_accel_found f;
    int rc;
    *a = (struct atsi_accel){0};
    a->d = (struct atsi_exec_devices){.host = &s->rt->host,
                                      .ops = {s->be_ops},
                                      .be = {s->be},
                                      .queue = {s->queue},
                                      .wait_each = !atsi_conf_bool(s->rt->conf, "exec.async"),
                                      .real = true};
    rc = atsi_accel_choose(s->rt, &use, &a->d, &f, &why);
    if (rc != ATSI_OK && f.name == NULL)
        return atsi_fail(err, rc, "%s", why.msg);
    if (rc != ATSI_OK) {
        atsi_log(s->rt->log, ATSI_LOG_WARN, "session", "accelerator %s: %s; %s", f.name, why.msg,
                 use.without);
        atsi_accel_close(a);
        return ATSI_OK;
    }
    a->name = f.name;
    a->engine = f.engine;
    a->props = f.props;
    a->by_kernel = f.by_kernel;
    return ATSI_OK;
}

void atsi_accel_stop(struct atsi_accel *a)
{
    atsi_link_close(&a->d);
    a->unsure = false;
}

int atsi_accel_start(struct atsi_accel *a, struct atsi_err *err)
{
    return atsi_link_open(&a->d, a->by_kernel, err);
}

void atsi_accel_close(struct atsi_accel *a)
{
    atsi_accel_put(&a->d);
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
