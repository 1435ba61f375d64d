/* SPDX-License-Identifier: Apache-2.0
 *
 * Time on the device: its events on the engine's clock, and measured pieces of work.
 *
 * CUDA tells the time between two events as float milliseconds, whose steps grow with the distance:
 * half a microsecond at 8 s.  So the event that stands for a known time of the engine's clock is
 * renewed when it is older than a second.
 */
#include "cuda_plugin.h"

#include <math.h>
#include <stdlib.h>

#define TRIES 8
#define RENEW_MS 1000.0F
#define HANDFUL 16 /* pieces */

/* ---------------------------------------------------------------- the engine's clock */
/* Records an event between two readings of the clock and says how far they are apart. */
static int probe(struct atsi_backend *be, uint64_t *at_ns, uint64_t *width_ns, struct atsi_err *err)
{
    const struct atsi_host *host = be->host;
    uint64_t before = host->now_ns(host->ctx);
    int rc = cuda_check(be, cudaEventRecord(be->probe, be->clock), err, "recording an event");
    if (rc == ATSI_OK)
        rc = cuda_check(be, cudaEventSynchronize(be->probe), err, "waiting for an event");
    *width_ns = host->now_ns(host->ctx) - before;
    *at_ns = before + *width_ns / 2;
    return rc;
}

/* Keeps the event whose two readings are closest.  Two that nearly agree end the search: on a busy
 * machine a single one can be off by a time slice. */
static int calibrate(struct atsi_backend *be, struct atsi_err *err)
{
    uint64_t best = UINT64_MAX, width = 0;
    for (int i = 0; i < TRIES; i++) {
        uint64_t at, other = best;
        int rc = probe(be, &at, &width, err);
        if (rc != ATSI_OK)
            return rc;
        if (width < best) {
            cudaEvent_t worse = be->base;
            be->base = be->probe;
            be->probe = worse;
            be->base_ns = at;
            best = width;
        }
        if (i > 0 && (width > other ? width - other : other - width) <= best / 4)
            break;
    }
    return ATSI_OK;
}

int cuda_clock_open(struct atsi_backend *be, struct atsi_err *err)
{
    int rc = cuda_check(be, cudaStreamCreateWithFlags(&be->clock, cudaStreamNonBlocking), err,
                        "creating a stream");
    if (rc == ATSI_OK)
        rc = cuda_check(be, cudaEventCreateWithFlags(&be->base, cudaEventDefault), err,
                        "creating an event");
    if (rc == ATSI_OK)
        rc = cuda_check(be, cudaEventCreateWithFlags(&be->probe, cudaEventDefault), err,
                        "creating an event");
    return rc == ATSI_OK ? calibrate(be, err) : rc;
}

static void drop_all(struct atsi_backend *be)
{
    while (be->timings != NULL) {
        struct cuda_timing *t = be->timings;
        be->timings = t->next;
        cuda_timing_drop(be, t);
    }
    be->timings_end = &be->timings;
}

static void destroy(struct atsi_backend *be, struct cuda_timing *t)
{
    for (uint32_t i = 0; i <= t->room && t->ev[i] != NULL; i++)
        cuda_note(be, cudaEventDestroy(t->ev[i]), "destroying an event");
    free(t);
}

void cuda_clock_close(struct atsi_backend *be)
{
    drop_all(be);
    while (be->spare != NULL) {
        struct cuda_timing *t = be->spare;
        be->spare = t->next;
        destroy(be, t);
    }
    if (be->base != NULL)
        cuda_note(be, cudaEventDestroy(be->base), "destroying an event");
    if (be->probe != NULL)
        cuda_note(be, cudaEventDestroy(be->probe), "destroying an event");
    if (be->clock != NULL)
        cuda_note(be, cudaStreamDestroy(be->clock), "destroying a stream");
    be->base = NULL;
    be->probe = NULL;
    be->clock = NULL;
}

/* Signed nanoseconds from one event to another; both have fired. */
static int between(struct atsi_backend *be, cudaEvent_t from, cudaEvent_t to, int64_t *ns_out,
                   struct atsi_err *err)
{
    float ms = 0;
    int rc =
        cuda_check(be, cudaEventElapsedTime(&ms, from, to), err, "reading the time of an event");
    *ns_out = llround((double)ms * 1e6);
    return rc;
}

int cuda_clock_of(struct atsi_backend *be, cudaEvent_t ev, uint64_t *ns_out, struct atsi_err *err)
{
    int64_t ns = 0;
    int rc = between(be, be->base, ev, &ns, err);
    if (rc != ATSI_OK)
        return rc;
    *ns_out = ns < 0 && (uint64_t)-ns > be->base_ns ? 0 : be->base_ns + (uint64_t)ns;
    if (ns > (int64_t)RENEW_MS * 1000000)
        rc = calibrate(be, err);
    return rc;
}

/* ---------------------------------------------------------------- measured pieces */
/* A spare one with room for n pieces; NULL: there is none. */
static struct cuda_timing *take_spare(struct atsi_backend *be, uint32_t n)
{
    struct cuda_timing **p = &be->spare, *t;
    while (*p != NULL && (*p)->room < n)
        p = &(*p)->next;
    t = *p;
    if (t != NULL)
        *p = t->next;
    return t;
}

static int add_spare(struct atsi_backend *be, uint32_t n, struct atsi_err *err)
{
    size_t events = ((size_t)n + 1) * sizeof(void *); /* what cudaEvent_t is */
    struct cuda_timing *t = calloc(1, sizeof *t + events);
    int rc = t != NULL ? ATSI_OK : atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
    if (t == NULL)
        return rc;
    t->room = n;
    for (uint32_t i = 0; i <= n && rc == ATSI_OK; i++)
        rc = cuda_check(be, cudaEventCreateWithFlags(&t->ev[i], cudaEventDefault), err,
                        "creating an event");
    if (rc == ATSI_OK)
        cuda_timing_drop(be, t);
    else
        destroy(be, t);
    return rc;
}

/* How many are under way at a time differs from round to round: twice as many as were ever needed,
 * and of small ones a handful, so that rounds make none after the first. */
static int add_spares(struct atsi_backend *be, uint32_t n, struct atsi_err *err)
{
    uint32_t n_more = 1 + HANDFUL / n;
    int rc = ATSI_OK;
    for (const struct cuda_timing *t = be->timings; t != NULL; t = t->next)
        n_more += t->room >= n;
    for (uint32_t i = 0; i < n_more && rc == ATSI_OK; i++)
        rc = add_spare(be, n, err);
    return rc;
}

int cuda_timing_open(struct atsi_backend *be, uint32_t n, uint64_t *out, struct cuda_timing **t,
                     struct atsi_err *err)
{
    int rc = ATSI_OK;
    *t = take_spare(be, n);
    if (*t == NULL)
        rc = add_spares(be, n, err);
    if (*t == NULL && rc == ATSI_OK)
        *t = take_spare(be, n);
    if (rc != ATSI_OK)
        return rc;
    (*t)->n = n;
    (*t)->out = out;
    return ATSI_OK;
}

void cuda_timing_drop(struct atsi_backend *be, struct cuda_timing *t)
{
    struct cuda_timing **p = &be->spare;
    if (t == NULL)
        return;
    while (*p != NULL && (*p)->room < t->room)
        p = &(*p)->next;
    t->next = *p;
    *p = t;
}

void cuda_timing_queue(struct atsi_backend *be, struct cuda_timing *t, cudaStream_t stream)
{
    t->stream = stream;
    t->next = NULL;
    *be->timings_end = t;
    be->timings_end = &t->next;
}

static bool done(struct cuda_timing *t)
{
    if (cudaEventQuery(t->ev[t->n]) == cudaSuccess)
        return true;
    (void)cudaGetLastError(); /* not ready, or a failure that whoever waits is told */
    return false;
}

static void write_numbers(struct atsi_backend *be, struct cuda_timing *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        int64_t ns = 0;
        if (between(be, t->ev[i], t->ev[i + 1], &ns, NULL) != ATSI_OK)
            ns = 0; /* a time of 0 is one that could not be measured */
        t->out[i] = ns > 0 ? (uint64_t)ns : 0;
    }
}

void cuda_timing_settle(struct atsi_backend *be)
{
    struct cuda_timing **p = &be->timings;
    while (*p != NULL) {
        struct cuda_timing *t = *p;
        if (!done(t)) {
            p = &t->next;
            continue;
        }
        write_numbers(be, t);
        *p = t->next;
        cuda_timing_drop(be, t);
    }
    be->timings_end = p;
}

void cuda_timing_end(struct atsi_backend *be, cudaStream_t stream)
{
    struct cuda_timing **p = &be->timings;
    if (!be->lost)
        cuda_timing_settle(be);
    while (*p != NULL) {
        struct cuda_timing *t = *p;
        if (t->stream != stream) {
            p = &t->next;
            continue;
        }
        *p = t->next;
        cuda_timing_drop(be, t);
    }
    be->timings_end = p;
}
