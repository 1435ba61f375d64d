/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker pool: one parallel region at a time, run by the calling thread and pinned helpers.
 *
 * Starting a region is one store to a word that all helpers watch; ending it is one counter that
 * they decrement.  A region is short (microseconds) and the next one follows at once, so waiters
 * spin first and sleep in the kernel after a bounded time (futex.h).  With more workers than CPUs
 * spinning would only keep the worker waited for from running: then nobody spins.
 *
 * What the caller alone owns (started threads, scratch sizes, the job) is plain data: helpers read
 * it after an acquire load of the start word, and the caller changes it only when the counter of
 * the region before has reached zero.
 */
#include "core/pool.h"

#include "core/futex.h"
#include "core/signals.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MAX_WORKERS 4096u /* fits COUNT_BITS */
#define COUNT_BITS 16u
#define COUNT_MASK ((UINT64_C(1) << COUNT_BITS) - 1)
#define LINE_BYTES 64u    /* of a cache; what threads write is kept on lines of its own */
#define SCRATCH_ALIGN 64u /* promised by struct atsi_worker */
#define SCRATCH_STEP_BYTES 4096u
#define CROWDED_YIELDS 4u /* sched_yield() calls before sleeping when CPUs are short */

/* A CPU mask larger than cpu_set_t, which ends at 1024 CPUs. */
union cpu_mask {
    cpu_set_t set;
    unsigned char bytes[8192 / 8];
};

struct worker {
    alignas(
        LINE_BYTES) struct atsi_worker pub; /* first: barrier() gets it; written by the worker */
    struct atsi_pool *pool;

    alignas(LINE_BYTES) _Atomic uint32_t asleep; /* futex word: 1 while asleep between regions */
    void *scratch;                               /* [owned] */
    size_t scratch_cap;
    pthread_t thread;
    uint64_t first_word; /* start word when the thread was created */
    int32_t cpu;         /* to pin to, or -1 */
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): waited-on words on own lines */
struct atsi_pool {
    /* Start word: generation << 16 | workers of the region; 0 workers: helpers end. */
    alignas(LINE_BYTES) _Atomic uint64_t start;
    void (*fn)(void *arg, struct atsi_worker *w); /* the job, published by `start` */
    void *arg;
    size_t scratch_bytes;

    alignas(LINE_BYTES) _Atomic uint32_t pending; /* helpers that have not finished; futex word */
    _Atomic uint32_t caller_asleep;

    alignas(LINE_BYTES) _Atomic uint32_t arrived; /* at the barrier */
    alignas(LINE_BYTES) _Atomic uint32_t phase;   /* of the barrier; futex word */
    _Atomic uint32_t phase_sleepers;

    /* The caller's. */
    alignas(LINE_BYTES) atomic_bool busy; /* a region runs: refuses nesting */
    _Atomic uint64_t spin_ns;             /* for the active count; 0 when CPUs are short */
    uint64_t wanted_spin_ns;
    int nice;
    uint32_t n_threads, n_active, n_started; /* all with worker 0 */
    struct worker *workers;
    bool pins, homed;
    pthread_t home; /* thread pinned as worker 0, when homed */
    pid_t home_tid;
    union cpu_mask home_mask; /* its CPUs before that */
};

/* ---------------------------------------------------------------- floating point */

/* Rounds to nearest, all exceptions masked, no flush-to-zero: the same in every worker, so that
 * results do not depend on who computes them.  The caller's own setting is put back. */
#if defined(__x86_64__)
#define MXCSR_DEFAULT 0x1f80u
#define MXCSR_FLAGS 0x3fu /* sticky exception flags: no setting */

static uint32_t fp_enter(void)
{
    uint32_t before = _mm_getcsr();
    if ((before & ~MXCSR_FLAGS) != MXCSR_DEFAULT)
        _mm_setcsr(MXCSR_DEFAULT);
    return before;
}

static void fp_leave(uint32_t before)
{
    if ((before & ~MXCSR_FLAGS) != MXCSR_DEFAULT)
        _mm_setcsr(before);
}
#else
static uint32_t fp_enter(void)
{
    return 0;
}

static void fp_leave(uint32_t before)
{
    (void)before;
}
#endif

/* ---------------------------------------------------------------- pinning */

/* The kernel may refuse (the CPU went offline or left the cpuset): a normal event. */
static bool pin_self(uint32_t cpu)
{
    union cpu_mask m;
    memset(&m, 0, sizeof m);
    if (cpu >= 8 * sizeof m)
        return false;
    CPU_SET_S(cpu, sizeof m, &m.set);
    return pthread_setaffinity_np(pthread_self(), sizeof m, &m.set) == 0;
}

/* Gives worker 0's thread the CPUs back that it had. */
static void leave_home(struct atsi_pool *p)
{
    if (p->homed) /* the thread may have ended since: then there is nothing to give back */
        (void)sched_setaffinity(p->home_tid, sizeof p->home_mask, &p->home_mask.set);
    p->homed = false;
}

/* The thread that runs regions now is worker 0. */
static void move_home(struct atsi_pool *p)
{
    leave_home(p);
    memset(&p->home_mask, 0, sizeof p->home_mask);
    if (pthread_getaffinity_np(pthread_self(), sizeof p->home_mask, &p->home_mask.set) != 0)
        return; /* without its own mask the thread could not be given it back: not pinned */
    p->home = pthread_self();
    p->home_tid = (pid_t)syscall(SYS_gettid);
    p->homed = true;
    (void)pin_self((uint32_t)p->workers[0].cpu);
}

/* Different CPUs that the first n workers have, at most n. */
static uint32_t count_cpus(const struct atsi_pool *p, uint32_t n)
{
    union cpu_mask m;
    memset(&m, 0, sizeof m);
    if (!p->pins) {
        if (pthread_getaffinity_np(pthread_self(), sizeof m, &m.set) != 0)
            return n;
        return (uint32_t)CPU_COUNT_S(sizeof m, &m.set);
    }
    for (uint32_t i = 0; i < n; i++)
        if ((uint32_t)p->workers[i].cpu < 8 * sizeof m)
            CPU_SET_S((uint32_t)p->workers[i].cpu, sizeof m, &m.set);
    return (uint32_t)CPU_COUNT_S(sizeof m, &m.set);
}

/* ---------------------------------------------------------------- waiting */

static struct spin spin_begin(const struct atsi_pool *p, uint32_t n_yields)
{
    /* Relaxed: a hint; an old value only changes when a waiter goes to sleep. */
    return (struct spin){atomic_load_explicit(&p->spin_ns, memory_order_relaxed), 0, 0, n_yields};
}

/* Sleeps until the caller starts a region for this worker, or finds that the word changed. */
static void sleep_for_job(struct worker *w, uint64_t seen)
{
    /* Sequentially consistent on both: the announcement, then the look (see futex.h). */
    atomic_store_explicit(&w->asleep, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&w->pool->start, memory_order_seq_cst) == seen)
        /* Relaxed: only ends the sleep; the word itself is loaded with acquire afterwards. */
        while (atomic_load_explicit(&w->asleep, memory_order_relaxed) == 1)
            futex_wait(&w->asleep, 1);
    atomic_store_explicit(&w->asleep, 0,
                          memory_order_relaxed); /* ours again; a late wake is harmless */
}

/* Waits for a start word that concerns this worker; *seen is the last one looked at.  Returns the
 * number of workers of the region, 0 to end. */
static uint32_t wait_for_job(struct worker *w, uint64_t *seen)
{
    struct spin s = spin_begin(w->pool, 0);
    for (;;) {
        /* Acquire: pairs with the store in launch(); the job's fields are read after it. */
        uint64_t word = atomic_load_explicit(&w->pool->start, memory_order_acquire);
        uint32_t n = (uint32_t)(word & COUNT_MASK);
        if (word != *seen) {
            *seen = word;
            if (n == 0 || w->pub.tid < n)
                return n;
        }
        if (!spin_step(&s))
            sleep_for_job(w, *seen);
    }
}

static void wait_for_helpers(struct atsi_pool *p)
{
    struct spin s = spin_begin(p, CROWDED_YIELDS);
    /* Acquire: pairs with the decrement in finish(); the helpers' results are read after it. */
    while (atomic_load_explicit(&p->pending, memory_order_acquire) != 0) {
        uint32_t left;
        if (spin_step(&s))
            continue;
        /* Sequentially consistent: announce, look, sleep (see futex.h). */
        atomic_store_explicit(&p->caller_asleep, 1, memory_order_seq_cst);
        left = atomic_load_explicit(&p->pending, memory_order_seq_cst);
        if (left != 0)
            futex_wait(&p->pending, left);
        atomic_store_explicit(&p->caller_asleep, 0, memory_order_relaxed); /* caller's own flag */
    }
}

static void wait_for_phase(struct atsi_pool *p, uint32_t old)
{
    struct spin s = spin_begin(p, CROWDED_YIELDS);
    /* Acquire: pairs with the store of the last to arrive, who saw what all others wrote. */
    while (atomic_load_explicit(&p->phase, memory_order_acquire) == old) {
        if (spin_step(&s))
            continue;
        /* Sequentially consistent: announce, look, sleep (see futex.h). */
        (void)atomic_fetch_add_explicit(&p->phase_sleepers, 1, memory_order_seq_cst);
        if (atomic_load_explicit(&p->phase, memory_order_seq_cst) == old)
            futex_wait(&p->phase, old);
        /* Relaxed: a count too high for a moment costs one needless wake-up. */
        (void)atomic_fetch_sub_explicit(&p->phase_sleepers, 1, memory_order_relaxed);
    }
}

/* All workers meet: each counts itself in and waits for the phase to turn; the last one turns it.
 */
static void barrier(struct atsi_worker *pub)
{
    struct worker *w = (struct worker *)pub; /* its first member */
    struct atsi_pool *p = w->pool;
    uint32_t old;
    if (pub->n_threads == 1)
        return;
    /* Relaxed: the phase cannot turn before this worker has arrived, and it has seen the last turn
     * (or the start of the region) with acquire. */
    old = atomic_load_explicit(&p->phase, memory_order_relaxed);
    /* Acquire and release: the last to arrive sees what every other one wrote before. */
    if (atomic_fetch_add_explicit(&p->arrived, 1, memory_order_acq_rel) + 1 < pub->n_threads) {
        wait_for_phase(p, old);
        return;
    }
    /* Relaxed: published by the turn of the phase, which others see before they arrive again. */
    atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
    /* Sequentially consistent (and so release): change the word, then look for sleepers. */
    atomic_store_explicit(&p->phase, old + 1, memory_order_seq_cst);
    if (atomic_load_explicit(&p->phase_sleepers, memory_order_seq_cst) != 0)
        futex_wake(&p->phase, INT_MAX);
}

/* ---------------------------------------------------------------- helpers */

static void run_job(struct worker *w, uint32_t n_workers)
{
    const struct atsi_pool *p = w->pool;
    uint32_t fp = fp_enter();
    w->pub.n_threads = n_workers;
    w->pub.scratch = p->scratch_bytes > 0 ? w->scratch : NULL;
    p->fn(p->arg, &w->pub);
    fp_leave(fp);
}

static void finish(struct atsi_pool *p)
{
    /* Sequentially consistent (and so release): results are visible to the caller, and the change
     * comes before the look at its flag. */
    if (atomic_fetch_sub_explicit(&p->pending, 1, memory_order_seq_cst) == 1 &&
        atomic_load_explicit(&p->caller_asleep, memory_order_seq_cst) != 0)
        futex_wake(&p->pending, 1);
}

static void *helper_main(void *arg)
{
    struct worker *w = arg;
    uint64_t seen = w->first_word;
    uint32_t n;
    char name[16]; /* the kernel's limit */
    (void)snprintf(name, sizeof name, "atsi-w%u", w->pub.tid);
    (void)pthread_setname_np(pthread_self(), name); /* for top and gdb only */
    if (w->cpu >= 0)
        (void)pin_self((uint32_t)w->cpu); /* refused: stays on the CPUs it was created with */
    if (w->pool->nice != 0) /* of this thread alone, as Linux counts; refused: as before */
        (void)setpriority(PRIO_PROCESS, (id_t)gettid(),
                          getpriority(PRIO_PROCESS, 0) + w->pool->nice);
    while ((n = wait_for_job(w, &seen)) != 0) {
        run_job(w, n);
        finish(w->pool);
    }
    return NULL;
}

/* A thread with the CPUs that the caller had, not the single one that it is pinned to by now. */
static int create_thread(const struct atsi_pool *p, struct worker *w)
{
    pthread_attr_t attr;
    int rc = EINVAL;
    if (p->homed && pthread_attr_init(&attr) == 0) {
        if (pthread_attr_setaffinity_np(&attr, sizeof p->home_mask, &p->home_mask.set) == 0)
            rc = pthread_create(&w->thread, &attr, helper_main, w);
        (void)pthread_attr_destroy(&attr);
    }
    /* Those CPUs may be gone meanwhile; inheriting the caller's mask is better than nothing. */
    return rc == EINVAL ? pthread_create(&w->thread, NULL, helper_main, w) : rc;
}

static int start_thread(struct atsi_pool *p, struct worker *w)
{
    sigset_t before;
    int rc;
    w->first_word = atomic_load_explicit(&p->start, memory_order_relaxed); /* own last store */
    rc = atsi_signals_block(&before);
    if (rc != 0)
        return ATSI_ENOMEM;
    rc = create_thread(p, w);
    atsi_signals_restore(&before);
    return rc == 0 ? ATSI_OK : ATSI_ENOMEM;
}

/* ---------------------------------------------------------------- regions */

static int grow_scratch(struct worker *w, size_t bytes)
{
    size_t cap;
    if (bytes <= w->scratch_cap)
        return ATSI_OK;
    if (bytes > PTRDIFF_MAX - SCRATCH_STEP_BYTES)
        return ATSI_ENOMEM;
    cap = (bytes + SCRATCH_STEP_BYTES - 1) / SCRATCH_STEP_BYTES * SCRATCH_STEP_BYTES;
    free(w->scratch); /* contents are not kept from region to region */
    w->scratch_cap = 0;
    w->scratch = aligned_alloc(SCRATCH_ALIGN, cap);
    if (w->scratch == NULL)
        return ATSI_ENOMEM;
    w->scratch_cap = cap;
    return ATSI_OK;
}

static int prepare(struct atsi_pool *p, size_t scratch_bytes)
{
    if (p->pins && (!p->homed || pthread_equal(p->home, pthread_self()) == 0))
        move_home(p);
    for (uint32_t i = 0; i < p->n_active; i++)
        if (grow_scratch(&p->workers[i], scratch_bytes) != ATSI_OK)
            return ATSI_ENOMEM;
    for (; p->n_started < p->n_active; p->n_started++)
        if (start_thread(p, &p->workers[p->n_started]) != ATSI_OK)
            return ATSI_ENOMEM;
    return ATSI_OK;
}

/* Publishes a start word for n workers (0: end) and wakes those that sleep among the first `wake`.
 */
static void launch(struct atsi_pool *p, uint32_t n, uint32_t wake)
{
    /* Relaxed: only the caller writes it. */
    uint64_t word = atomic_load_explicit(&p->start, memory_order_relaxed);
    word = ((word >> COUNT_BITS) + 1) << COUNT_BITS | n;
    /* Sequentially consistent (and so release): the job is visible with the word, and the change
     * comes before the look at who sleeps. */
    atomic_store_explicit(&p->start, word, memory_order_seq_cst);
    for (uint32_t i = 1; i < wake; i++) {
        struct worker *w = &p->workers[i];
        if (atomic_load_explicit(&w->asleep, memory_order_seq_cst) == 0)
            continue;
        atomic_store_explicit(&w->asleep, 0, memory_order_relaxed); /* ends its loop; see there */
        futex_wake(&w->asleep, 1);
    }
}

int atsi_pool_region(struct atsi_pool *p, void (*fn)(void *arg, struct atsi_worker *w), void *arg,
                     size_t scratch_bytes)
{
    int rc;
    /* Acquire here, release below: the caller's data passes from region to region even when the
     * application moves between threads. */
    if (atomic_exchange_explicit(&p->busy, true, memory_order_acquire))
        return ATSI_EINVAL;
    rc = prepare(p, scratch_bytes);
    if (rc == ATSI_OK) {
        p->fn = fn;
        p->arg = arg;
        p->scratch_bytes = scratch_bytes;
        if (p->n_active > 1) {
            /* Relaxed: published by the start word. */
            atomic_store_explicit(&p->pending, p->n_active - 1, memory_order_relaxed);
            launch(p, p->n_active, p->n_active);
        }
        run_job(&p->workers[0], p->n_active);
        wait_for_helpers(p);
    }
    atomic_store_explicit(&p->busy, false, memory_order_release);
    return rc;
}

/* ---------------------------------------------------------------- the pool */

static void set_active(struct atsi_pool *p, uint32_t n)
{
    p->n_active = n;
    /* Relaxed: see spin_begin(). */
    atomic_store_explicit(&p->spin_ns, n <= count_cpus(p, n) ? p->wanted_spin_ns : 0,
                          memory_order_relaxed);
}

int atsi_pool_set_active(struct atsi_pool *p, uint32_t n, struct atsi_err *err)
{
    if (n == 0 || n > p->n_threads)
        return atsi_fail(err, ATSI_EINVAL, "%u workers asked for, 1..%u possible", n, p->n_threads);
    /* As in atsi_pool_region(). */
    if (atomic_exchange_explicit(&p->busy, true, memory_order_acquire))
        return atsi_fail(err, ATSI_EINVAL, "the number of workers cannot change inside a region");
    if (n != p->n_active)
        set_active(p, n);
    atomic_store_explicit(&p->busy, false, memory_order_release);
    return ATSI_OK;
}

int atsi_pool_set_spin(struct atsi_pool *p, uint64_t spin_ns, struct atsi_err *err)
{
    /* As in atsi_pool_region(). */
    if (atomic_exchange_explicit(&p->busy, true, memory_order_acquire))
        return atsi_fail(err, ATSI_EINVAL, "how long workers wait cannot change inside a region");
    p->wanted_spin_ns = spin_ns;
    set_active(p, p->n_active);
    atomic_store_explicit(&p->busy, false, memory_order_release);
    return ATSI_OK;
}

uint32_t atsi_pool_active(const struct atsi_pool *p)
{
    return p->n_active;
}

static void init_worker(struct atsi_pool *p, uint32_t tid, const uint32_t *cpus)
{
    struct worker *w = &p->workers[tid];
    memset(w, 0, sizeof *w);
    w->pub = (struct atsi_worker){.struct_size = sizeof w->pub, .tid = tid, .barrier = barrier};
    w->pool = p;
    w->cpu = cpus != NULL && cpus[tid] <= INT32_MAX ? (int32_t)cpus[tid] : -1;
    atomic_init(&w->asleep, 0);
}

static void init_words(struct atsi_pool *p)
{
    atomic_init(&p->start, 0);
    atomic_init(&p->pending, 0);
    atomic_init(&p->caller_asleep, 0);
    atomic_init(&p->arrived, 0);
    atomic_init(&p->phase, 0);
    atomic_init(&p->phase_sleepers, 0);
    atomic_init(&p->busy, false);
    atomic_init(&p->spin_ns, 0);
}

int atsi_pool_open(const struct atsi_pool_params *params, struct atsi_pool **out,
                   struct atsi_err *err)
{
    struct atsi_pool *p;
    *out = NULL;
    if (params->n_threads == 0 || params->n_threads > MAX_WORKERS)
        return atsi_fail(err, ATSI_EINVAL, "%u workers asked for, 1..%u possible",
                         params->n_threads, MAX_WORKERS);
    p = aligned_alloc(alignof(struct atsi_pool), sizeof *p);
    if (p == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory opening %u workers", params->n_threads);
    memset(p, 0, sizeof *p);
    init_words(p);
    p->workers = aligned_alloc(alignof(struct worker), params->n_threads * sizeof *p->workers);
    if (p->workers == NULL) {
        free(p);
        return atsi_fail(err, ATSI_ENOMEM, "out of memory opening %u workers", params->n_threads);
    }
    p->n_threads = params->n_threads;
    p->n_started = 1; /* worker 0 is the caller */
    p->wanted_spin_ns = params->spin_ns;
    p->nice = params->nice;
    p->pins = params->cpus != NULL;
    for (uint32_t i = 0; i < p->n_threads; i++)
        init_worker(p, i, params->cpus);
    set_active(p, p->n_threads);
    *out = p;
    return ATSI_OK;
}

void atsi_pool_close(struct atsi_pool *p)
{
    if (p == NULL)
        return;
    launch(p, 0, p->n_started);
    for (uint32_t i = 1; i < p->n_started; i++)
        (void)pthread_join(p->workers[i].thread, NULL);
    leave_home(p);
    for (uint32_t i = 0; i < p->n_threads; i++)
        free(p->workers[i].scratch);
    free(p->workers);
    free(p);
}
