/* SPDX-License-Identifier: Apache-2.0
 *
 * What host memory gives to the CPU's kernels and to a copy at once.  The copy stands for the copy
 * engine of an accelerator, which reads weights and writes elsewhere: it reads from memory into a
 * window that stays in the cache.  Its thread has the place of the last worker, so that both do not
 * take turns on one core (on a machine with one they do).
 */
#include "cli/options.h"
#include "cli/profile.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define WINDOW ((size_t)64 << 10) /* fits a second-level cache */
#define SPAN_NS UINT64_C(500000000)
#define SPAN_SMALL_NS UINT64_C(50000000) /* when there is little to walk over */
#define SMALL_BYTES (UINT64_C(64) << 20)

struct copier {
    unsigned char *from;
    size_t n; /* a multiple of WINDOW */
    _Atomic uint64_t copied;
    atomic_bool stop;
    unsigned char window[WINDOW];
};

static void *copy_on(void *arg)
{
    struct copier *c = arg;
    for (size_t at = 0; !atomic_load_explicit(&c->stop, memory_order_relaxed);
         at = at + WINDOW < c->n ? at + WINDOW : 0) {
        memcpy(c->window, c->from + at, WINDOW);
        /* the window is never read: keep the compiler from leaving the copy out */
        __asm__ volatile("" : : "r"(c->window) : "memory");
        (void)atomic_fetch_add_explicit(&c->copied, WINDOW, memory_order_relaxed);
    }
    return NULL;
}

/* On the last worker's CPU, when workers have CPUs. */
static int start_copier(const struct profile *p, struct copier *c, pthread_t *out)
{
    int32_t cpus[512];
    uint32_t n = atsi_runtime_workers(p->rt, cpus, 512);
    pthread_attr_t attr;
    cpu_set_t set;
    int e = pthread_attr_init(&attr);
    if (e != 0)
        return e;
    if (n > 0 && n <= 512 && cpus[n - 1] >= 0 && cpus[n - 1] < CPU_SETSIZE) {
        CPU_ZERO(&set);
        CPU_SET((unsigned)cpus[n - 1], &set);
        e = pthread_attr_setaffinity_np(&attr, sizeof set, &set);
    }
    if (e == 0)
        e = pthread_create(out, &attr, copy_on, c);
    (void)pthread_attr_destroy(&attr);
    return e;
}

/* Whether a copier that runs, and has copied so much, has copied nothing since: on a busy machine
 * it may get no turn for longer than a measurement. */
static int waits_for_turn(struct copier *c, uint64_t copied)
{
    return copied > 0 && atomic_load(&c->copied) == copied;
}

/* Products for a span of time: GB/s, and those of the copier meanwhile. */
static int run_products(struct profile *p, struct kernels_product *g, struct copier *c,
                        uint64_t span_ns, double *cpu, double *copy)
{
    const struct atsi_host *host = atsi_runtime_host(p->rt);
    struct atsi_err err = ATSI_ERR_INIT;
    double bytes = 0, each = (double)atsi_row_bytes(g->type, g->k) * g->n_out;
    uint64_t copied, start, ns = 0;
    int rc = kernels_product_run(&p->backend, g, &err); /* warms up */
    copied = atomic_load(&c->copied);
    start = host->now_ns(host->ctx);
    while (rc == ATSI_OK && (ns < span_ns || waits_for_turn(c, copied)) && cli_interrupted == 0) {
        rc = kernels_product_run(&p->backend, g, &err);
        bytes += each;
        ns = host->now_ns(host->ctx) - start;
    }
    if (cli_interrupted != 0)
        return CLI_INTERRUPTED;
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    *cpu = bytes / (double)ns;
    *copy = (double)(atomic_load(&c->copied) - copied) / (double)ns;
    return CLI_OK;
}

static double watch_copy(const struct profile *p, struct copier *c, uint64_t span_ns)
{
    const struct atsi_host *host = atsi_runtime_host(p->rt);
    const struct timespec pause = {.tv_nsec = (long)(span_ns / 10)};
    uint64_t start = host->now_ns(host->ctx), copied = atomic_load(&c->copied), ns;
    do {
        (void)nanosleep(&pause, NULL); /* woken early: the loop goes on */
        ns = host->now_ns(host->ctx) - start;
    } while ((ns < span_ns || atomic_load(&c->copied) == copied) && cli_interrupted == 0);
    return (double)(atomic_load(&c->copied) - copied) / (double)ns;
}

static int use_workers(struct profile *p, uint32_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int rc = atsi_runtime_set_threads(p->rt, n, &err);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

static void tell(const struct profile_dram *d)
{
    if (cli_common.level < ATSI_LOG_WARN)
        return;
    (void)fprintf(
        stderr,
        "memory: CPU alone %.2f GB/s (%.2f beside the copy's core), copy alone %.2f GB/s, "
        "together %.2f + %.2f GB/s\n",
        d->cpu_alone, d->cpu_beside, d->copy_alone, d->cpu_together, d->copy_together);
}

/* The four measurements, in order; the copier runs during the last two. */
static int measure(struct profile *p, struct kernels_product *g, struct copier *c)
{
    uint64_t span = p->bytes < SMALL_BYTES ? SPAN_SMALL_NS : SPAN_NS;
    uint32_t fewer = p->n_threads > 1 ? p->n_threads - 1 : 1;
    pthread_t thread;
    double none;
    int e, code = run_products(p, g, c, span, &p->dram.cpu_alone, &none);
    if (code == CLI_OK)
        code = use_workers(p, fewer);
    if (code == CLI_OK)
        code = run_products(p, g, c, span, &p->dram.cpu_beside, &none);
    if (code != CLI_OK)
        return code;
    e = start_copier(p, c, &thread);
    if (e != 0)
        return cli_fail(CLI_RUN_ERROR, "a thread for the copy: %s", strerror(e));
    p->dram.copy_alone = watch_copy(p, c, span);
    code = run_products(p, g, c, span, &p->dram.cpu_together, &p->dram.copy_together);
    atomic_store(&c->stop, true);
    (void)pthread_join(thread, NULL); /* cannot fail for a thread of ours */
    return code;
}

int profile_dram(struct profile *p)
{
    static struct copier c; /* large for a stack */
    struct kernels_product g;
    int back, code = profile_gemv_open(p, p->types[0].type, &g);
    if (code != CLI_OK)
        return code;
    c.n = ((size_t)p->bytes + WINDOW - 1) / WINDOW * WINDOW;
    atomic_store(&c.stop, false);
    c.from = mmap(NULL, c.n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (c.from == MAP_FAILED) {
        kernels_product_close(&g);
        return cli_fail(CLI_NO_FIT, "out of memory for a copy of %zu bytes; see --size", c.n);
    }
    (void)madvise(c.from, c.n, MADV_HUGEPAGE); /* a hint */
    memset(c.from, 1, c.n);                    /* never-written memory reads one shared page */
    code = measure(p, &g, &c);
    back = use_workers(p, p->n_threads);
    (void)munmap(c.from, c.n);
    kernels_product_close(&g);
    if (code == CLI_OK)
        tell(&p->dram);
    return code != CLI_OK ? code : back;
}
