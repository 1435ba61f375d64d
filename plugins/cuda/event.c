/* SPDX-License-Identifier: Apache-2.0
 *
 * Events: each one is an event of CUDA, and knows whether anything queued will ever fire it.  An
 * observation that work is done also settles the measurements that came with it.
 */
#include "cuda_plugin.h"

#include <stdlib.h>
#include <string.h>

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

/* A failure of what the event stands for, or around it. */
static int failed(const struct atsi_event *ev, cudaError_t e, const char *doing,
                  struct atsi_err *err)
{
    const struct cuda_work *w = &ev->work;
    unsigned long long n = w->n;
    if (w->op == NULL)
        return cuda_check(ev->be, e, err, "%s%llu %s", doing, n, w->what);
    return cuda_check(ev->be, e, err, "%s%llu %s up to %s of %s", doing, n, w->what, w->op,
                      ev->tensor);
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
    return failed(ev, e, "", err);
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
    cudaError_t e;
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
    e = cudaEventSynchronize(ev->ev);
    if (e != cudaSuccess)
        return failed(ev, e, "", err);
    cuda_timing_settle(ev->be);
    return ATSI_OK;
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

int cuda_events_wait(cudaStream_t stream, struct atsi_event *const *wait, uint32_t n,
                     struct atsi_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        cudaError_t e = cudaStreamWaitEvent(stream, wait[i]->ev, cudaEventWaitDefault);
        if (e != cudaSuccess)
            return failed(wait[i], e, "making a stream wait for ", err);
    }
    return ATSI_OK;
}

int cuda_event_signal(cudaStream_t stream, struct atsi_event *ev, struct atsi_err *err,
                      const struct cuda_work *work)
{
    size_t len = work->tensor != NULL ? strnlen(work->tensor, sizeof ev->tensor - 1) : 0;
    cudaError_t e;
    if (ev == NULL)
        return ATSI_OK;
    ev->work = *work;
    memcpy(ev->tensor, work->tensor != NULL ? work->tensor : "", len);
    ev->tensor[len] = '\0';
    e = cudaEventRecord(ev->ev, stream);
    ev->signalled = e == cudaSuccess;
    return ev->signalled ? ATSI_OK : failed(ev, e, "recording an event behind ", err);
}
