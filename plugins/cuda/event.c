/* SPDX-License-Identifier: Apache-2.0
 *
 * Events: each one is an event of CUDA, and knows whether anything queued will ever fire it.  An
 * observation that work is done also settles the measurements that came with it.
 */
#include "cuda_plugin.h"

#include <stdlib.h>

int cuda_event_open(struct atsi_backend *be, struct atsi_event **out, struct atsi_err *err)
{
    struct atsi_event *ev;
    int rc = cuda_enter(be, err);
    *out = NULL;
    if (rc != ATSI_OK)
        return rc;
    ev = calloc(1, sizeof *ev);
    if (ev == NULL)
        return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
    ev->be = be;
    rc = cuda_check(be, cudaEventCreateWithFlags(&ev->ev, cudaEventBlockingSync), err,
                    "creating an event");
    if (rc != ATSI_OK) {
        free(ev);
        return rc;
    }
    *out = ev;
    return ATSI_OK;
}

void cuda_event_close(struct atsi_event *ev)
{
    if (ev == NULL)
        return;
    cuda_note(ev->be, cudaSetDevice(ev->be->dev.index), "making the device current");
    cuda_note(ev->be, cudaEventDestroy(ev->ev), "destroying an event");
    free(ev);
}

/* 1: fired; 0: not yet; or ATSI_E*. */
static int query(const struct atsi_event *ev, struct atsi_err *err)
{
    cudaError_t e = cudaEventQuery(ev->ev);
    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* no failure, but it would look like one of the next launch */
        return 0;
    }
    if (e == cudaSuccess) {
        cuda_timing_settle(ev->be);
        return 1;
    }
    return cuda_check(ev->be, e, err, "%s", ev->what);
}

int cuda_event_query(const struct atsi_event *ev)
{
    int rc = cuda_enter(ev->be, NULL);
    if (rc != ATSI_OK || !ev->signalled)
        return rc;
    return query(ev, NULL);
}

int cuda_event_wait(struct atsi_event *ev, uint64_t spin_ns, struct atsi_err *err)
{
    const struct atsi_host *host = ev->be->host;
    uint64_t start = host->now_ns(host->ctx);
    int rc = cuda_enter(ev->be, err);
    if (rc != ATSI_OK)
        return rc;
    if (!ev->signalled)
        return atsi_fail(err, ATSI_EINVAL,
                         CUDA_PLUGIN_NAME ": waiting for an event that nothing signals");
    if (spin_ns < ev->be->set.spin_ns)
        spin_ns = ev->be->set.spin_ns;
    do {
        rc = query(ev, err);
        if (rc != 0)
            return rc == 1 ? ATSI_OK : rc;
    } while (host->now_ns(host->ctx) - start < spin_ns);
    rc = cuda_check(ev->be, cudaEventSynchronize(ev->ev), err, "%s", ev->what);
    if (rc == ATSI_OK)
        cuda_timing_settle(ev->be);
    return rc;
}

int cuda_event_time(const struct atsi_event *ev, uint64_t *ns_out)
{
    int rc = cuda_event_query(ev);
    if (rc != 1)
        return rc == 0 ? ATSI_EINVAL : rc;
    return cuda_clock_of(ev->be, ev->ev, ns_out, NULL);
}

int cuda_events_check(struct atsi_event *const *wait, uint32_t n, struct atsi_err *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (!wait[i]->signalled)
            return atsi_fail(err, ATSI_EINVAL,
                             CUDA_PLUGIN_NAME
                             ": event %u of the list to wait for never fires: nothing signals it",
                             i);
    return ATSI_OK;
}

int cuda_events_wait(struct atsi_backend *be, cudaStream_t stream, struct atsi_event *const *wait,
                     uint32_t n, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t i = 0; i < n && rc == ATSI_OK; i++)
        rc = cuda_check(be, cudaStreamWaitEvent(stream, wait[i]->ev, cudaEventWaitDefault), err,
                        "making a stream wait for %s", wait[i]->what);
    return rc;
}

int cuda_event_signal(struct atsi_backend *be, cudaStream_t stream, struct atsi_event *ev,
                      struct atsi_err *err, const char *fmt, ...)
{
    va_list ap;
    int rc;
    if (ev == NULL)
        return ATSI_OK;
    va_start(ap, fmt);
    (void)vsnprintf(ev->what, sizeof ev->what, fmt, ap);
    va_end(ap);
    rc = cuda_check(be, cudaEventRecord(ev->ev, stream), err, "recording an event behind %s",
                    ev->what);
    ev->signalled = rc == ATSI_OK;
    return rc;
}
