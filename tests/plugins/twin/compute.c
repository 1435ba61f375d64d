/* SPDX-License-Identifier: Apache-2.0
 * The reference kernels as a device without threads of its own: what it computes is, to the bit,
 * what cpu_ref computes. */
#include "backend.h"
#include "twin.h"

#include <stdlib.h>

struct twin_compute {
    struct atsi_host host; /* regions of one worker, on the calling thread */
    struct atsi_backend be;
    void *scratch;
    size_t scratch_bytes;
    pthread_mutex_t lock;
};

static void no_barrier(struct atsi_worker *w)
{
    (void)w;
}

static int region(void *ctx, void (*fn)(void *arg, struct atsi_worker *w), void *arg,
                  size_t scratch_bytes)
{
    struct twin_compute *c = ctx;
    struct atsi_worker w = {.struct_size = sizeof w, .n_threads = 1, .barrier = no_barrier};
    if (scratch_bytes > c->scratch_bytes) {
        free(c->scratch);
        c->scratch_bytes = cpu_round_up(scratch_bytes, CPU_ALIGN);
        c->scratch = aligned_alloc(CPU_ALIGN, c->scratch_bytes);
        if (c->scratch == NULL) {
            c->scratch_bytes = 0;
            return ATSI_ENOMEM;
        }
    }
    w.scratch = c->scratch;
    fn(arg, &w);
    return ATSI_OK;
}

static uint32_t one_thread(void *ctx)
{
    (void)ctx;
    return 1;
}

static const struct atsi_host *real_host; /* its clock */

static uint64_t now_ns(void *ctx)
{
    (void)ctx;
    return real_host->now_ns(real_host->ctx);
}

struct twin_compute *twin_compute_open(const struct atsi_host *host)
{
    struct twin_compute *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    real_host = host;
    c->host = *host;
    c->host.ctx = c;
    c->host.region = region;
    c->host.n_threads = one_thread;
    c->host.now_ns = now_ns;
    c->be.host = &c->host;
    c->be.name = "twin";
    cpu_ref_kernels(&c->be.kernels);
    (void)pthread_mutex_init(&c->lock, NULL); /* cannot fail on Linux */
    return c;
}

void twin_compute_close(struct twin_compute *c)
{
    if (c == NULL)
        return;
    free(c->be.steps.data);
    free(c->be.shared.data);
    free(c->scratch);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
}

int twin_compute_supports(const struct twin_compute *c, const struct atsi_op *op)
{
    return cpu_supports(&c->be.kernels, op);
}

/* Two queues take turns. */
int twin_compute_run(struct twin_compute *c, const struct atsi_split *split, struct atsi_err *err)
{
    int rc;
    (void)pthread_mutex_lock(&c->lock);
    rc = cpu_run_split(&c->be, split, err);
    (void)pthread_mutex_unlock(&c->lock);
    return rc;
}
