/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring of pinned staging buffers.  A copy from or to pageable memory goes through it in pieces
 * of a slot.  A stream of its own runs host functions, which move bytes between pageable memory and
 * slots; the copy stream moves slots over the link; events keep the two in step:
 *
 *   to the device      ring stream   drained(s) > memcpy into slot s > filled(s)
 *                      copy stream                 filled(s) > slot s to the device > drained(s)
 *
 * and the other way round from the device.  Everything is queued at once, however many pieces there
 * are, so the caller never waits and events for the end can be recorded behind it right away.
 */
#include "transfer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct piece {
    struct cuda_job *job;
    void *dst;
    const void *src;
    size_t bytes;
};

struct cuda_job {
    struct cuda_job *next;
    _Atomic uint32_t left; /* host functions that have not run */
    size_t room;
    struct piece piece[]; /* [room] */
};

/* ---------------------------------------------------------------- jobs */
/* Runs on a thread of the CUDA runtime. */
static void CUDART_CB move_piece(void *arg)
{
    struct piece *p = arg;
    memcpy(p->dst, p->src, p->bytes);
    atomic_fetch_sub_explicit(&p->job->left, 1, memory_order_release); /* read by is_over() */
}

/* Whether all host functions of a job have run; acquire: after the last use by one of them. */
static bool is_over(struct cuda_job *job)
{
    return atomic_load_explicit(&job->left, memory_order_acquire) == 0;
}

static struct cuda_job *add_job(struct cuda_ring *ring, size_t n)
{
    struct cuda_job *job = NULL;
    if (n <= (SIZE_MAX - sizeof *job) / sizeof job->piece[0])
        job = calloc(1, sizeof *job + n * sizeof job->piece[0]);
    if (job == NULL)
        return NULL;
    atomic_init(&job->left, 0);
    job->room = n;
    job->next = ring->jobs;
    ring->jobs = job;
    return job;
}

/* A job for n pieces: one that is over, or a new one.  How many are under way at a time differs
 * from round to round; twice as many as were ever needed, and rounds allocate none after the first.
 */
static struct cuda_job *take_job(struct cuda_ring *ring, size_t n)
{
    struct cuda_job *job = ring->jobs, *more;
    size_t n_busy = 0;
    for (; job != NULL && (job->room < n || !is_over(job)); job = job->next)
        n_busy += job->room >= n;
    if (job != NULL)
        return job;
    job = more = add_job(ring, n);
    for (size_t i = 0; i < n_busy && more != NULL; i++)
        more = add_job(ring, n);
    return job;
}

/* Frees jobs whose host functions have all run. */
static void reap(struct cuda_job **list)
{
    while (*list != NULL) {
        struct cuda_job *job = *list;
        if (!is_over(job)) {
            list = &job->next;
            continue;
        }
        *list = job->next;
        free(job);
    }
}

/* What is left on a device that was lost: functions that may be running or never will.  They stay
 * until the device has been reset. */
static void leave_jobs(struct atsi_backend *be, struct cuda_ring *ring)
{
    struct cuda_job **end = &ring->jobs;
    reap(&ring->jobs);
    while (*end != NULL)
        end = &(*end)->next;
    *end = be->jobs;
    be->jobs = ring->jobs;
}

void cuda_jobs_free(struct atsi_backend *be)
{
    while (be->jobs != NULL) {
        struct cuda_job *job = be->jobs;
        be->jobs = job->next;
        free(job);
    }
}

/* ---------------------------------------------------------------- the ring */
void cuda_ring_close(struct atsi_backend *be, struct cuda_ring *ring)
{
    if (ring == NULL)
        return;
    if (ring->stream != NULL) {
        cuda_stream_drain(be, ring->stream);
        cuda_note(be, cudaStreamDestroy(ring->stream), "destroying a stream");
    }
    for (uint32_t i = 0; i < CUDA_RING_SLOTS; i++) {
        if (ring->filled[i] != NULL)
            cuda_note(be, cudaEventDestroy(ring->filled[i]), "destroying an event");
        if (ring->drained[i] != NULL)
            cuda_note(be, cudaEventDestroy(ring->drained[i]), "destroying an event");
    }
    if (ring->base != NULL)
        cuda_note(be, cudaFreeHost(ring->base), "freeing pinned memory");
    leave_jobs(be, ring);
    free(ring);
}

static int open_events(struct atsi_backend *be, struct cuda_ring *ring, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t i = 0; i < CUDA_RING_SLOTS && rc == ATSI_OK; i++) {
        rc = cuda_check(be, cudaEventCreateWithFlags(&ring->filled[i], cudaEventDisableTiming), err,
                        "creating an event");
        if (rc == ATSI_OK)
            rc = cuda_check(be, cudaEventCreateWithFlags(&ring->drained[i], cudaEventDisableTiming),
                            err, "creating an event");
    }
    return rc;
}

int cuda_ring_open(struct atsi_backend *be, size_t bytes, struct cuda_ring **out,
                   struct atsi_err *err)
{
    struct cuda_ring *ring = calloc(1, sizeof *ring);
    void *base = NULL;
    int rc;
    *out = NULL;
    if (ring == NULL)
        return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
    ring->slot_bytes = bytes / CUDA_RING_SLOTS / CUDA_ALIGN * CUDA_ALIGN;
    rc = cuda_check(be,
                    cudaHostAlloc(&base, ring->slot_bytes * CUDA_RING_SLOTS, cudaHostAllocPortable),
                    err, "allocating %zu bytes of pinned memory for staging", bytes);
    ring->base = base;
    if (rc == ATSI_OK)
        rc = cuda_check(be, cudaStreamCreateWithFlags(&ring->stream, cudaStreamNonBlocking), err,
                        "creating a stream");
    if (rc == ATSI_OK)
        rc = open_events(be, ring, err);
    if (rc != ATSI_OK) {
        cuda_ring_close(be, ring);
        return rc;
    }
    *out = ring;
    return ATSI_OK;
}

/* ---------------------------------------------------------------- copies */
/* One piece on its way: the slot, and the two ends. */
struct step {
    struct atsi_backend *be;
    struct cuda_ring *ring;
    cudaStream_t stream;
    uint32_t slot;
    struct piece *piece;
    struct atsi_err *err;
};

static int wait_for(const struct step *s, cudaStream_t stream, cudaEvent_t ev)
{
    return cuda_check(s->be, cudaStreamWaitEvent(stream, ev, cudaEventWaitDefault), s->err,
                      "waiting for a staging buffer");
}

static int record(const struct step *s, cudaStream_t stream, cudaEvent_t ev)
{
    return cuda_check(s->be, cudaEventRecord(ev, stream), s->err, "recording an event");
}

static int queue_piece(const struct step *s)
{
    int rc;
    /* Counted first: the function may run before the call returns. */
    atomic_fetch_add_explicit(&s->piece->job->left, 1, memory_order_relaxed);
    rc = cuda_check(s->be, cudaLaunchHostFunc(s->ring->stream, move_piece, s->piece), s->err,
                    "queueing a host function");
    if (rc != ATSI_OK)
        atomic_fetch_sub_explicit(&s->piece->job->left, 1, memory_order_relaxed);
    return rc;
}

static int link_copy(const struct step *s, void *dst, const void *src, enum cudaMemcpyKind kind)
{
    return cuda_check(s->be, cudaMemcpyAsync(dst, src, s->piece->bytes, kind, s->stream), s->err,
                      "copying %zu bytes", s->piece->bytes);
}

static int step_to_device(const struct step *s, void *dst)
{
    struct cuda_ring *ring = s->ring;
    int rc = ring->used[s->slot] ? wait_for(s, ring->stream, ring->drained[s->slot]) : ATSI_OK;
    if (rc == ATSI_OK)
        rc = queue_piece(s);
    if (rc == ATSI_OK)
        rc = record(s, ring->stream, ring->filled[s->slot]);
    if (rc == ATSI_OK)
        rc = wait_for(s, s->stream, ring->filled[s->slot]);
    if (rc == ATSI_OK)
        rc = link_copy(s, dst, s->piece->dst, cudaMemcpyHostToDevice);
    if (rc == ATSI_OK)
        rc = record(s, s->stream, ring->drained[s->slot]);
    return rc;
}

static int step_to_host(const struct step *s, const void *src, void *slot)
{
    struct cuda_ring *ring = s->ring;
    int rc = ring->used[s->slot] ? wait_for(s, s->stream, ring->drained[s->slot]) : ATSI_OK;
    if (rc == ATSI_OK)
        rc = link_copy(s, slot, src, cudaMemcpyDeviceToHost);
    if (rc == ATSI_OK)
        rc = record(s, s->stream, ring->filled[s->slot]);
    if (rc == ATSI_OK)
        rc = wait_for(s, ring->stream, ring->filled[s->slot]);
    if (rc == ATSI_OK)
        rc = queue_piece(s);
    if (rc == ATSI_OK)
        rc = record(s, ring->stream, ring->drained[s->slot]);
    return rc;
}

int cuda_ring_copy(struct atsi_backend *be, struct cuda_ring *ring, cudaStream_t stream, void *dst,
                   const void *src, size_t bytes, bool to_device, struct atsi_err *err)
{
    size_t n = (bytes + ring->slot_bytes - 1) / ring->slot_bytes;
    struct step s = {.be = be, .ring = ring, .stream = stream, .err = err};
    struct cuda_job *job;
    int rc = ATSI_OK;
    job = take_job(ring, n);
    if (job == NULL)
        return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
    for (size_t i = 0; i < n && rc == ATSI_OK; i++) {
        size_t at = i * ring->slot_bytes, rest = bytes - at;
        unsigned char *slot, *to = (unsigned char *)dst + at;
        const unsigned char *from = (const unsigned char *)src + at;
        s.slot = ring->next;
        s.piece = &job->piece[i];
        slot = ring->base + s.slot * ring->slot_bytes;
        *s.piece = (struct piece){.job = job,
                                  .dst = to_device ? (void *)slot : (void *)to,
                                  .src = to_device ? from : slot,
                                  .bytes = rest < ring->slot_bytes ? rest : ring->slot_bytes};
        rc = to_device ? step_to_device(&s, to) : step_to_host(&s, from, slot);
        ring->used[s.slot] = true;
        ring->next = (ring->next + 1) % CUDA_RING_SLOTS;
    }
    /* What is queued behind on the copy stream comes after the last bytes have reached the host. */
    if (rc == ATSI_OK && !to_device)
        rc = wait_for(&s, stream, ring->drained[s.slot]);
    return rc;
}
