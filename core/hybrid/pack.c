/* SPDX-License-Identifier: Apache-2.0
 *
 * The packer: threads that take parts (about 1 MiB) of one tensor after the other, so that no more
 * tensors than threads are in memory twice.  A tensor comes from the rows of the file, or from the
 * cache file when its bytes there are what they should be.
 */
#include "core/hybrid/pack.h"

#include "core/cgroup.h"
#include "core/hybrid/pack_jobs.h"
#include "core/signals.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MIB 1048576.0
#define KEEP_FREE ((uint64_t)256 << 20) /* memory that packing leaves to others */
#define NICENESS 10                     /* packing yields to workers, yet gets on beside them */

struct part {
    struct atsi_pack_job *job;
    uint64_t first, end;
};

struct locks {
    pthread_mutex_t all, say; /* say: progress, by one thread at a time */
    pthread_cond_t ended;
};

struct atsi_packer {
    struct atsi_pack_params p;
    struct atsi_pack_jobs jobs;
    uint32_t cursor;     /* in jobs */
    struct locks *locks; /* apart, since reading the state takes one too */
    atomic_bool stop;
    bool interrupted; /* by progress */
    uint32_t alive;   /* threads */
    pthread_t *threads;
    uint32_t n_threads;
    struct atsi_pack_state state;
    uint64_t start_ns;
};

/* ---------------------------------------------------------------- parts */
static uint64_t memory_left(const struct atsi_packer *p)
{
    struct atsi_limits limits;
    if (p->p.available != NULL)
        return p->p.available(p->p.available_ctx);
    atsi_limits_read("", &limits);
    return limits.mem_available_bytes != 0 ? limits.mem_available_bytes : UINT64_MAX;
}

/* Under the lock.  Memory is looked at before each tensor, since others use it too; what the cache
 * file holds needs none. */
static bool may_start(struct atsi_packer *p, struct atsi_pack_job *j)
{
    uint64_t left;
    if (j->started || j->source == ATSI_PACK_FROM_CACHE)
        return true;
    left = memory_left(p);
    return left > KEEP_FREE && left - KEEP_FREE >= j->bytes;
}

static void skip(struct atsi_packer *p, struct atsi_pack_job *j)
{
    p->state.n_skipped++;
    atsi_weights_discard(p->p.weights, j->tensor);
    if (p->state.n_skipped == 1)
        atsi_log(p->p.log, ATSI_LOG_WARN, "memory",
                 "%s is not packed: %.1f MiB more would leave too little memory free",
                 atsi_weights_tensor(p->p.weights, j->tensor)->name, (double)j->bytes / MIB);
}

static bool take_part(struct atsi_packer *p, struct part *out)
{
    bool found = false;
    (void)pthread_mutex_lock(&p->locks->all);
    while (!found && p->cursor < p->jobs.n && !atomic_load(&p->stop)) {
        struct atsi_pack_job *j = &p->jobs.job[p->cursor];
        if (j->next == j->parts) {
            p->cursor++;
        } else if (!may_start(p, j)) {
            skip(p, j);
            p->cursor++;
        } else {
            j->started = true;
            *out = (struct part){j, j->next, j->next + j->step};
            if (out->end > j->parts)
                out->end = j->parts;
            j->next = out->end;
            found = true;
        }
    }
    (void)pthread_mutex_unlock(&p->locks->all);
    return found;
}

static uint64_t do_part(const struct part *part)
{
    const struct atsi_pack_job *j = part->job;
    uint64_t at = part->first * ATSI_PACK_PART, n = j->bytes - at;
    if (j->source == ATSI_PACK_FROM_ROWS) {
        atsi_panel_convert(&j->m, part->first, part->end, 0, j->rows, j->panels);
        return 0;
    }
    return atsi_pack_hash(j->panels + at, (size_t)(n < ATSI_PACK_PART ? n : ATSI_PACK_PART), at);
}

/* ---------------------------------------------------------------- jobs */
/* Under the lock, after the last part.  False: the cache file was wrong, the job begins again. */
static bool finish(struct atsi_packer *p, struct atsi_pack_job *j)
{
    bool cached = j->source == ATSI_PACK_FROM_CACHE;
    if (cached && j->sum != j->hash) {
        atsi_log(p->p.log, ATSI_LOG_WARN, "memory", "%s in the cache of packed weights is damaged",
                 atsi_weights_tensor(p->p.weights, j->tensor)->name);
        j->started = false;
        atsi_pack_job_aim(j, ATSI_PACK_FROM_ROWS);
        p->cursor = 0;
        return false;
    }
    j->done = true;
    p->state.n_done++;
    p->state.n_cached += cached;
    p->state.done_bytes += j->bytes;
    return true;
}

static void tell(struct atsi_packer *p)
{
    struct atsi_pack_state s;
    if (p->p.progress == NULL)
        return;
    (void)pthread_mutex_lock(&p->locks->say);
    atsi_packer_state(p, &s);
    if (p->p.progress(p->p.progress_ctx, &s) != 0) {
        (void)pthread_mutex_lock(&p->locks->all);
        p->interrupted = true;
        (void)pthread_mutex_unlock(&p->locks->all);
        atomic_store(&p->stop, true);
    }
    (void)pthread_mutex_unlock(&p->locks->say);
}

static void end_part(struct atsi_packer *p, const struct part *part, uint64_t hash)
{
    struct atsi_pack_job *j = part->job;
    bool complete = false;
    (void)pthread_mutex_lock(&p->locks->all);
    j->left -= part->end - part->first;
    j->sum += hash;
    if (j->left == 0)
        complete = finish(p, j);
    (void)pthread_mutex_unlock(&p->locks->all);
    if (!complete)
        return;
    atsi_weights_offer(p->p.weights, j->tensor, ATSI_LAYOUT_PANELS,
                       j->source == ATSI_PACK_FROM_CACHE ? ATSI_HOME_CACHE : ATSI_HOME_PACKED,
                       j->panels);
    tell(p);
}

/* ---------------------------------------------------------------- the end */
static bool all_done(const struct atsi_packer *p)
{
    return p->state.n_done == p->jobs.n;
}

/* By the last thread: a file that has all of it saves the work the next time. */
static void write_cache(struct atsi_packer *p)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_tensor *t = calloc((size_t)p->jobs.n + 1, sizeof *t);
    const struct atsi_tensor **ptrs = calloc((size_t)p->jobs.n + 1, sizeof(void *));
    int rc = ATSI_ENOMEM;
    if (t != NULL && ptrs != NULL) {
        for (uint32_t k = 0; k < p->jobs.n; k++) {
            t[k] = p->jobs.job[k].as_file;
            t[k].data = p->jobs.job[k].panels;
            ptrs[k] = &t[k];
        }
        rc = atsi_pack_cache_write(p->jobs.cache, ptrs, p->jobs.n, &p->stop, &err);
    } else {
        (void)atsi_fail(&err, rc, "out of memory");
    }
    if (rc == ATSI_OK)
        atsi_log(p->p.log, ATSI_LOG_INFO, "memory", "packed weights are kept in %s",
                 p->jobs.cache->path);
    else if (rc != ATSI_EINTR)
        atsi_log(p->p.log, ATSI_LOG_WARN, "memory", "packed weights are not kept: %s", err.msg);
    free(ptrs);
    free(t);
}

static void say_end(const struct atsi_packer *p)
{
    const struct atsi_host *host = &p->p.model->rt->host;
    double s = (double)(host->now_ns(host->ctx) - p->start_ns) / 1e9;
    atsi_log(p->p.log, ATSI_LOG_INFO, "memory",
             "%u of %u matrices are packed (%.1f MiB, %u from the cache file) after %.1f s",
             p->state.n_done, p->jobs.n, (double)p->state.done_bytes / MIB, p->state.n_cached, s);
}

static void *work(void *arg)
{
    struct atsi_packer *p = arg;
    struct part part;
    bool last;
    if (p->p.mode == ATSI_PACK_AUTO)
        (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICENESS); /* a wish */
    while (take_part(p, &part))
        end_part(p, &part, do_part(&part));
    (void)pthread_mutex_lock(&p->locks->all);
    last = p->alive == 1;
    p->alive -= !last;
    (void)pthread_mutex_unlock(&p->locks->all);
    if (!last)
        return NULL;
    say_end(p);
    if (p->jobs.cache != NULL && all_done(p) && p->state.n_cached < p->jobs.n)
        write_cache(p);
    (void)pthread_mutex_lock(&p->locks->all);
    p->alive = 0;
    p->state.running = false;
    (void)pthread_cond_broadcast(&p->locks->ended);
    (void)pthread_mutex_unlock(&p->locks->all);
    return NULL;
}

/* On the CPUs that workers may use, whatever the caller's thread is pinned to. */
static bool start_thread(struct atsi_packer *p, pthread_t *out)
{
    const struct atsi_runtime *rt = p->p.model->rt;
    pthread_attr_t attr;
    cpu_set_t cpus;
    bool ok;
    if (pthread_attr_init(&attr) != 0)
        return false;
    CPU_ZERO(&cpus);
    for (uint32_t i = 0; i < rt->n_workers; i++)
        if (rt->cpus[i] < CPU_SETSIZE)
            CPU_SET(rt->cpus[i], &cpus);
    if (CPU_COUNT(&cpus) > 0)
        (void)pthread_attr_setaffinity_np(&attr, sizeof cpus, &cpus); /* a wish */
    ok = pthread_create(out, &attr, work, p) == 0;
    if (!ok && CPU_COUNT(&cpus) > 0) /* CPUs of a recorded machine are not here */
        ok = pthread_create(out, NULL, work, p) == 0;
    (void)pthread_attr_destroy(&attr);
    return ok;
}

static int start(struct atsi_packer *p, struct atsi_err *err)
{
    uint32_t n = p->p.n_threads != 0 ? p->p.n_threads : p->p.model->rt->n_workers;
    sigset_t before;
    p->threads = calloc((size_t)n + 1, sizeof *p->threads);
    if (p->threads == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for packing");
    if (atsi_signals_block(&before) != 0)
        return atsi_fail(err, ATSI_ENOMEM, "no thread can be started for packing");
    (void)pthread_mutex_lock(&p->locks->all);
    while (p->n_threads < n && start_thread(p, &p->threads[p->n_threads]))
        p->n_threads++;
    p->alive = p->n_threads;
    p->state.running = p->n_threads > 0;
    (void)pthread_mutex_unlock(&p->locks->all);
    atsi_signals_restore(&before);
    return p->n_threads > 0 ? ATSI_OK
                            : atsi_fail(err, ATSI_ENOMEM, "no thread can be started for packing");
}

static struct locks *new_locks(void)
{
    struct locks *l = malloc(sizeof *l);
    if (l == NULL || pthread_mutex_init(&l->all, NULL) != 0)
        goto fail;
    if (pthread_mutex_init(&l->say, NULL) != 0)
        goto fail_say;
    if (pthread_cond_init(&l->ended, NULL) != 0)
        goto fail_ended;
    return l;
fail_ended:
    (void)pthread_mutex_destroy(&l->say);
fail_say:
    (void)pthread_mutex_destroy(&l->all);
fail:
    free(l);
    return NULL;
}

static void free_locks(struct locks *l)
{
    (void)pthread_cond_destroy(&l->ended); /* nobody uses them any more */
    (void)pthread_mutex_destroy(&l->say);
    (void)pthread_mutex_destroy(&l->all);
    free(l);
}

int atsi_packer_open(const struct atsi_pack_params *params, struct atsi_packer **out,
                     struct atsi_err *err)
{
    const struct atsi_host *host = &params->model->rt->host;
    struct atsi_packer *p;
    int rc;
    *out = NULL;
    if (params->mode == ATSI_PACK_OFF)
        return ATSI_OK;
    p = calloc(1, sizeof *p);
    if (p != NULL)
        p->locks = new_locks();
    if (p == NULL || p->locks == NULL) {
        free(p);
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for packing");
    }
    p->p = *params;
    p->start_ns = host->now_ns(host->ctx);
    atomic_init(&p->stop, false);
    rc = atsi_pack_jobs_open(&p->jobs, params, err);
    p->state.n_tensors = p->jobs.n;
    p->state.bytes = p->jobs.bytes;
    if (rc == ATSI_OK && p->jobs.n > 0)
        rc = start(p, err);
    if (rc != ATSI_OK || p->jobs.n == 0) {
        atsi_packer_close(p);
        return rc;
    }
    if (params->mode == ATSI_PACK_NOW) {
        while (!atsi_packer_wait(p, 1000))
            ;
        if (p->interrupted)
            rc = atsi_fail(err, ATSI_EINTR, "packing was stopped after %u of %u matrices",
                           p->state.n_done, p->jobs.n);
    }
    if (rc != ATSI_OK)
        atsi_packer_close(p);
    else
        *out = p;
    return rc;
}

/* ---------------------------------------------------------------- close */
bool atsi_packer_wait(struct atsi_packer *p, uint32_t ms)
{
    struct timespec until;
    bool running;
    int rc = 0;
    (void)clock_gettime(CLOCK_REALTIME, &until); /* what condition variables measure by */
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_mutex_lock(&p->locks->all);
    while (p->state.running && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&p->locks->ended, &p->locks->all, &until);
    running = p->state.running;
    (void)pthread_mutex_unlock(&p->locks->all);
    return !running;
}

void atsi_packer_close(struct atsi_packer *p)
{
    if (p == NULL)
        return;
    atomic_store(&p->stop, true);
    for (uint32_t i = 0; i < p->n_threads; i++)
        (void)pthread_join(p->threads[i], NULL); /* ours, and joined once */
    atsi_pack_jobs_close(&p->jobs, p->p.weights);
    free_locks(p->locks);
    free(p->threads);
    free(p);
}

void atsi_packer_state(const struct atsi_packer *p, struct atsi_pack_state *out)
{
    (void)pthread_mutex_lock(&p->locks->all);
    *out = p->state;
    (void)pthread_mutex_unlock(&p->locks->all);
}
