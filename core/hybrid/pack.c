/* SPDX-License-Identifier: Apache-2.0
 *
 * The packer: threads that take parts (about 1 MiB) of one tensor after the other, so that no more
 * tensors than threads are in memory twice.  A tensor comes from the rows of the file, or from the
 * cache file when its bytes there are what they should be.
 */
#include "core/hybrid/pack.h"

#include "core/cgroup.h"
#include "core/hybrid/pack_cache.h"
#include "panel/pack.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MIB 1048576.0
#define KEEP_FREE ((uint64_t)256 << 20) /* memory that packing leaves to others */
#define NICENESS 10                     /* packing yields to workers, yet gets on beside them */

/* Where the bytes of a tensor come from. */
enum source { FROM_ROWS, FROM_CACHE };

struct job {
    uint32_t tensor, source;
    struct atsi_tensor as_file; /* the tensor as it was before */
    struct atsi_panel_matrix m;
    const unsigned char *rows; /* the file's */
    unsigned char *panels;     /* where they are packed to, or lie in the cache file */
    void *place;               /* for packed ones */
    uint64_t bytes, hash;      /* hash: what the cache file says */
    uint64_t parts, step;      /* parts in all, and taken at a time */
    uint64_t next, left;       /* under the lock: first part not taken; parts not done */
    uint64_t sum;              /* under the lock: of the hashes */
    bool started, done;
};

struct part {
    struct job *job;
    uint64_t first, end;
};

struct locks {
    pthread_mutex_t all, say; /* say: progress, by one thread at a time */
    pthread_cond_t ended;
};

struct atsi_packer {
    struct atsi_pack_params p;
    struct job *jobs; /* [n_jobs] */
    uint32_t n_jobs, cursor;
    struct atsi_pack_cache *cache; /* NULL: none */
    struct locks *locks;           /* apart, since reading the state takes one too */
    atomic_bool stop;
    bool interrupted; /* by progress */
    uint32_t alive;   /* threads */
    pthread_t *threads;
    uint32_t n_threads;
    struct atsi_pack_state state;
    uint64_t start_ns;
};

/* ---------------------------------------------------------------- settings */
uint32_t atsi_pack_mode_read(const struct atsi_conf *c)
{
    const char *mode = atsi_conf_get(c, "load.pack");
    if (strcmp(mode, "off") == 0)
        return ATSI_PACK_OFF;
    return strcmp(mode, "now") == 0 ? ATSI_PACK_NOW : ATSI_PACK_AUTO;
}

static bool is_matrix(const struct atsi_tensor *t)
{
    return t->data != NULL && t->layout == ATSI_LAYOUT_ROWS && t->n_dims >= 2 &&
           t->ne[1] >= ATSI_PANEL_ROWS && atsi_panel_bytes(t->type, t->ne[0]) > 0 &&
           t->row_bytes == atsi_row_bytes(t->type, t->ne[0]);
}

/* Does the backend take the op with its k-th weight as panels? */
static bool reads_panels(const struct atsi_backend_ops *ops, const struct atsi_backend *be,
                         const struct atsi_op *op, int k)
{
    struct atsi_tensor panels = *op->weight[k];
    struct atsi_op asked = *op;
    panels.layout = ATSI_LAYOUT_PANELS;
    asked.weight[k] = &panels;
    return is_matrix(op->weight[k]) && ops->supports(be, &asked) == 1;
}

void atsi_pack_mark(const struct atsi_backend_ops *ops, const struct atsi_backend *be,
                    const struct atsi_op *const *list, uint32_t n_ops, struct atsi_weights *w,
                    uint8_t *packable)
{
    uint32_t n = atsi_weights_count(w);
    uint8_t *used = calloc((size_t)n + 1, 1);
    if (used == NULL) { /* then nothing is packed */
        memset(packable, 0, n);
        return;
    }
    (void)atsi_weights_begin(w);
    for (uint32_t i = 0; i < n_ops; i++)
        for (int k = 0; k < 2; k++)
            for (uint32_t t = 0; list[i]->weight[k] != NULL && t < n; t++)
                if (list[i]->weight[k]->name == atsi_weights_tensor(w, t)->name) {
                    used[t] = 1;
                    packable[t] = packable[t] != 0 && reads_panels(ops, be, list[i], k);
                }
    for (uint32_t t = 0; t < n; t++)
        packable[t] = packable[t] != 0 && used[t] != 0;
    atsi_weights_end(w);
    free(used);
}

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
static bool may_start(struct atsi_packer *p, struct job *j)
{
    uint64_t left;
    if (j->started || j->source == FROM_CACHE)
        return true;
    left = memory_left(p);
    return left > KEEP_FREE && left - KEEP_FREE >= j->bytes;
}

static void skip(struct atsi_packer *p, struct job *j)
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
    while (!found && p->cursor < p->n_jobs && !atomic_load(&p->stop)) {
        struct job *j = &p->jobs[p->cursor];
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
    const struct job *j = part->job;
    uint64_t at = part->first * ATSI_PACK_PART, n = j->bytes - at;
    if (j->source == FROM_ROWS) {
        atsi_panel_convert(&j->m, part->first, part->end, 0, j->rows, j->panels);
        return 0;
    }
    return atsi_pack_hash(j->panels + at, (size_t)(n < ATSI_PACK_PART ? n : ATSI_PACK_PART), at);
}

/* ---------------------------------------------------------------- jobs */
static void aim(struct job *j, uint32_t source)
{
    j->source = source;
    j->next = j->sum = 0;
    j->step = 1;
    if (source == FROM_CACHE) {
        j->parts = (j->bytes + ATSI_PACK_PART - 1) / ATSI_PACK_PART;
    } else {
        uint64_t one = atsi_panel_bytes(j->m.type, j->m.elems);
        j->panels = j->place;
        j->parts = atsi_panel_parts(&j->m);
        if (one > 0 && one < ATSI_PACK_PART)
            j->step = ATSI_PACK_PART / one;
    }
    j->left = j->parts;
}

/* One panel from the middle, packed from the model at hand: a cache of other weights, or packed in
 * another way, shows. */
static bool is_ours(const struct job *j)
{
    uint64_t n_panels = atsi_panel_count(j->m.rows), one = atsi_panel_bytes(j->m.type, j->m.elems);
    uint64_t at = n_panels / 2 * one;
    void *panel = one > 0 && n_panels > 0 ? malloc((size_t)one) : NULL;
    bool same = false;
    if (panel != NULL) {
        atsi_panel_pack(j->m.type, j->m.elems, j->rows + at, one / ATSI_PANEL_ROWS, 1, panel);
        same = memcmp(panel, j->panels + at, (size_t)one) == 0;
    }
    free(panel);
    return same;
}

/* Under the lock, after the last part.  False: the cache file was wrong, the job begins again. */
static bool finish(struct atsi_packer *p, struct job *j)
{
    bool cached = j->source == FROM_CACHE;
    if (cached && j->sum != j->hash) {
        atsi_log(p->p.log, ATSI_LOG_WARN, "memory", "%s in the cache of packed weights is damaged",
                 atsi_weights_tensor(p->p.weights, j->tensor)->name);
        j->started = false;
        aim(j, FROM_ROWS);
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
    struct job *j = part->job;
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
                       j->source == FROM_CACHE ? ATSI_HOME_CACHE : ATSI_HOME_PACKED, j->panels);
    tell(p);
}

/* ---------------------------------------------------------------- the end */
static bool all_done(const struct atsi_packer *p)
{
    return p->state.n_done == p->n_jobs;
}

/* By the last thread: a file that has all of it saves the work the next time. */
static void write_cache(struct atsi_packer *p)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_tensor *t = calloc((size_t)p->n_jobs + 1, sizeof *t);
    const struct atsi_tensor **ptrs = calloc((size_t)p->n_jobs + 1, sizeof(void *));
    int rc = ATSI_ENOMEM;
    if (t != NULL && ptrs != NULL) {
        for (uint32_t k = 0; k < p->n_jobs; k++) {
            t[k] = p->jobs[k].as_file;
            t[k].data = p->jobs[k].panels;
            ptrs[k] = &t[k];
        }
        rc = atsi_pack_cache_write(p->cache, ptrs, p->n_jobs, &p->stop, &err);
    } else {
        (void)atsi_fail(&err, rc, "out of memory");
    }
    if (rc == ATSI_OK)
        atsi_log(p->p.log, ATSI_LOG_INFO, "memory", "packed weights are kept in %s",
                 p->cache->path);
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
             p->state.n_done, p->n_jobs, (double)p->state.done_bytes / MIB, p->state.n_cached, s);
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
    if (p->cache != NULL && all_done(p) && p->state.n_cached < p->n_jobs)
        write_cache(p);
    (void)pthread_mutex_lock(&p->locks->all);
    p->alive = 0;
    p->state.running = false;
    (void)pthread_cond_broadcast(&p->locks->ended);
    (void)pthread_mutex_unlock(&p->locks->all);
    return NULL;
}

/* ---------------------------------------------------------------- open */
/* Packable tensors that nobody else packs, in the order of their first use; announced. */
static uint32_t list_tensors(const struct atsi_pack_params *p, uint32_t *list, uint8_t *seen)
{
    const struct atsi_graph *g;
    struct atsi_err ignored = ATSI_ERR_INIT;
    uint32_t total = atsi_weights_count(p->weights), n = 0;
    if (atsi_model_graph(p->model, &g, &ignored) != ATSI_OK)
        return 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < 2; k++) {
            int32_t t = g->nodes[i]->weight[k];
            if (t < 0 || (uint32_t)t >= total || p->packable[t] == 0 || seen[t] != 0)
                continue;
            seen[t] = 1;
            if (is_matrix(atsi_weights_tensor(p->weights, (uint32_t)t)) &&
                atsi_weights_announce(p->weights, (uint32_t)t))
                list[n++] = (uint32_t)t;
        }
    return n;
}

static void set_job(struct atsi_packer *p, struct job *j, uint32_t tensor, void *place)
{
    const struct atsi_tensor *t = atsi_weights_tensor(p->p.weights, tensor);
    const struct atsi_piece whole = {.tensor = tensor};
    const struct atsi_pack_entry *e = p->cache != NULL ? atsi_pack_cache_find(p->cache, t) : NULL;
    *j = (struct job){.tensor = tensor,
                      .as_file = *t,
                      .m = {t->type, t->ne[0], t->ne[1], t->ne[2] * t->ne[3]},
                      .rows = t->data,
                      .place = place,
                      .bytes = atsi_piece_bytes(p->p.weights, &whole)};
    if (e != NULL) {
        j->panels = p->cache->map + e->offset;
        j->hash = e->hash;
    }
    aim(j, e != NULL && is_ours(j) ? FROM_CACHE : FROM_ROWS);
    p->state.bytes += j->bytes;
}

static void open_cache(struct atsi_packer *p)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_pack_cache *c = p->p.cache ? calloc(1, sizeof *c) : NULL;
    if (c == NULL)
        return;
    if (atsi_pack_cache_open(c, p->p.model, &err) != ATSI_OK) {
        atsi_log(p->p.log, ATSI_LOG_WARN, "memory", "no cache of packed weights: %s", err.msg);
        free(c);
        return;
    }
    if (c->map != NULL && atsi_weights_keep(p->p.weights, c->map, c->map_bytes) != ATSI_OK)
        atsi_pack_cache_close(c);
    p->cache = c;
}

struct lists {
    uint32_t *tensors; /* [n] to pack, in order */
    uint8_t *seen;     /* [all tensors] */
    void **at;         /* [n] places */
    uint32_t n;
};

/* Views stay as they are meanwhile. */
static int fill_jobs(struct atsi_packer *p, struct lists *l, struct atsi_err *err)
{
    int rc = ATSI_OK;
    l->n = list_tensors(&p->p, l->tensors, l->seen);
    if (l->n == 0)
        return ATSI_OK;
    open_cache(p);
    rc = atsi_weights_reserve(p->p.weights, l->tensors, l->n, l->at, err);
    for (uint32_t k = 0; k < l->n; k++)
        if (rc == ATSI_OK)
            set_job(p, &p->jobs[p->n_jobs++], l->tensors[k], l->at[k]);
        else
            atsi_weights_discard(p->p.weights, l->tensors[k]);
    p->state.n_tensors = p->n_jobs;
    return rc;
}

static int make_jobs(struct atsi_packer *p, struct atsi_err *err)
{
    size_t n = (size_t)atsi_weights_count(p->p.weights) + 1;
    struct lists l = {.tensors = malloc(n * sizeof *l.tensors),
                      .seen = calloc(n, 1),
                      .at = calloc(n, sizeof(void *))};
    int rc = ATSI_ENOMEM;
    p->jobs = calloc(n, sizeof *p->jobs);
    if (l.tensors != NULL && l.seen != NULL && l.at != NULL && p->jobs != NULL) {
        (void)atsi_weights_begin(p->p.weights);
        rc = fill_jobs(p, &l, err);
        atsi_weights_end(p->p.weights);
    } else {
        (void)atsi_fail(err, rc, "out of memory for packing");
    }
    free(l.at);
    free(l.seen);
    free(l.tensors);
    return rc;
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
    sigset_t all, before;
    p->threads = calloc((size_t)n + 1, sizeof *p->threads);
    if (p->threads == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for packing");
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the other threads */
    (void)pthread_mutex_lock(&p->locks->all);
    while (p->n_threads < n && start_thread(p, &p->threads[p->n_threads]))
        p->n_threads++;
    p->alive = p->n_threads;
    p->state.running = p->n_threads > 0;
    (void)pthread_mutex_unlock(&p->locks->all);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
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
    rc = make_jobs(p, err);
    if (rc == ATSI_OK && p->n_jobs > 0)
        rc = start(p, err);
    if (rc != ATSI_OK || p->n_jobs == 0) {
        atsi_packer_close(p);
        return rc;
    }
    if (params->mode == ATSI_PACK_NOW) {
        while (!atsi_packer_wait(p, 1000))
            ;
        if (p->interrupted)
            rc = atsi_fail(err, ATSI_EINTR, "packing was stopped after %u of %u matrices",
                           p->state.n_done, p->n_jobs);
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
    for (uint32_t k = 0; k < p->n_jobs; k++)
        if (!p->jobs[k].done)
            atsi_weights_discard(p->p.weights, p->jobs[k].tensor);
    free_locks(p->locks);
    free(p->cache); /* its mapping is the host region's */
    free(p->threads);
    free(p->jobs);
    free(p);
}

void atsi_packer_state(const struct atsi_packer *p, struct atsi_pack_state *out)
{
    (void)pthread_mutex_lock(&p->locks->all);
    *out = p->state;
    (void)pthread_mutex_unlock(&p->locks->all);
}
