/* SPDX-License-Identifier: Apache-2.0
 *
 * Worker pool: every worker runs each region once, barriers separate phases, scratch is aligned,
 * private and reused, threads sit on the CPUs they were given, and nothing depends on how many CPUs
 * there are.  Also run under TSan.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "core/pool.h"

/* Sanitizers end the program at an impossible malloc() unless told that it may fail. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

#define MAX_N 16u
#define SPIN_NS 20000u

static struct atsi_pool *open_pool(uint32_t n, const uint32_t *cpus, uint64_t spin_ns)
{
    struct atsi_pool_params p = {.n_threads = n, .cpus = cpus, .spin_ns = spin_ns};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_pool *pool = NULL;
    assert_int_equal(atsi_pool_open(&p, &pool, &err), ATSI_OK);
    assert_non_null(pool);
    return pool;
}

/* Threads of this process, as the kernel counts them. */
static unsigned count_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    unsigned n = 0;
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        n += e->d_name[0] != '.';
    assert_int_equal(closedir(d), 0);
    return n;
}

/* ---------------------------------------------------------------- regions */

struct runs {
    uint32_t n_expected;
    _Atomic uint32_t count[MAX_N]; /* calls seen by each worker */
    _Atomic uint32_t wrong;        /* workers with an unexpected view */
};

static void count_run(void *arg, struct atsi_worker *w)
{
    struct runs *r = arg;
    if (w->struct_size < sizeof *w || w->n_threads != r->n_expected || w->tid >= r->n_expected ||
        w->scratch != NULL)
        atomic_fetch_add(&r->wrong, 1);
    else
        atomic_fetch_add(&r->count[w->tid], 1);
}

static void check_runs(const struct runs *r, uint32_t n, uint32_t each)
{
    assert_int_equal(atomic_load(&r->wrong), 0);
    for (uint32_t i = 0; i < MAX_N; i++)
        assert_int_equal(atomic_load(&r->count[i]), i < n ? each : 0);
}

static void every_worker_runs_once(void **state)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 7, 16};
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct atsi_pool *pool = open_pool(counts[i], NULL, SPIN_NS);
        struct runs r = {.n_expected = counts[i]};
        for (uint32_t k = 1; k <= 20; k++) {
            assert_int_equal(atsi_pool_region(pool, count_run, &r, 0), ATSI_OK);
            check_runs(&r, counts[i], k);
        }
        atsi_pool_close(pool);
    }
}

static void thousands_of_tiny_regions(void **state)
{
    static const uint64_t spins[] = {0, 2000, 1000000};
    (void)state;
    for (size_t i = 0; i < sizeof spins / sizeof spins[0]; i++)
        for (uint32_t n = 2; n <= 4; n++) {
            struct atsi_pool *pool = open_pool(n, NULL, spins[i]);
            struct runs r = {.n_expected = n};
            for (uint32_t k = 0; k < 3000; k++)
                assert_int_equal(atsi_pool_region(pool, count_run, &r, 0), ATSI_OK);
            check_runs(&r, n, 3000);
            atsi_pool_close(pool);
        }
}

/* Workers that have gone to sleep are woken: pauses far longer than the spin. */
static void sleeping_workers_wake_up(void **state)
{
    struct atsi_pool *pool = open_pool(3, NULL, 1000);
    struct runs r = {.n_expected = 3};
    (void)state;
    for (uint32_t k = 0; k < 20; k++) {
        assert_int_equal(usleep(2000), 0);
        assert_int_equal(atsi_pool_region(pool, count_run, &r, 0), ATSI_OK);
    }
    check_runs(&r, 3, 20);
    atsi_pool_close(pool);
}

/* Threads of this process other than the caller's that are on a CPU or wait for one. */
static unsigned count_awake(pid_t but)
{
    DIR *d = opendir("/proc/self/task");
    unsigned n = 0;
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char path[300], line[128] = "";
        const char *state;
        FILE *f;
        if (e->d_name[0] == '.' || strtol(e->d_name, NULL, 10) == (long)but)
            continue;
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
        f = fopen(path, "r");
        assert_non_null(f);
        assert_non_null(fgets(line, sizeof line, f));
        assert_int_equal(fclose(f), 0);
        state = strrchr(line, ')'); /* "pid (name) state .." */
        assert_non_null(state);
        n += state[2] == 'R';
    }
    assert_int_equal(closedir(d), 0);
    return n;
}

/* What a pool may cost while nothing is asked of it: its workers end up asleep, not spinning.  The
 * wait is long for slow machines; the workers' own limit is the spin of 1 ms. */
static void idle_workers_sleep(void **state)
{
    struct atsi_pool *pool = open_pool(3, NULL, 1000000);
    struct runs r = {.n_expected = 3};
    (void)state;
    for (uint32_t k = 1; k <= 3; k++) {
        unsigned tries = 0;
        assert_int_equal(atsi_pool_region(pool, count_run, &r, 0), ATSI_OK);
        while (count_awake((pid_t)syscall(SYS_gettid)) > 0 && tries++ < 5000)
            (void)usleep(2000);
        assert_true(tries < 5000);
        check_runs(&r, 3, k);
    }
    atsi_pool_close(pool);
}

static void slow_helper(void *arg, struct atsi_worker *w)
{
    _Atomic uint32_t *done = arg;
    if (w->tid != 0)
        (void)usleep(3000);
    atomic_fetch_add(done, 1);
}

static void the_caller_waits_for_slow_workers(void **state)
{
    struct atsi_pool *pool = open_pool(3, NULL, 1000);
    (void)state;
    for (uint32_t k = 0; k < 10; k++) {
        _Atomic uint32_t done = 0;
        assert_int_equal(atsi_pool_region(pool, slow_helper, &done, 0), ATSI_OK);
        assert_int_equal(atomic_load(&done), 3);
    }
    atsi_pool_close(pool);
}

/* ---------------------------------------------------------------- barriers */

/* Plain (not atomic) data that is exchanged across barriers: TSan checks the ordering. */
struct phases {
    uint32_t n_phases;
    uint32_t value[MAX_N][16]; /* a line of its own for each worker */
    uint32_t sum[MAX_N];
    uint32_t wrong[MAX_N];
};

static void exchange_phases(void *arg, struct atsi_worker *w)
{
    struct phases *p = arg;
    for (uint32_t phase = 1; phase <= p->n_phases; phase++) {
        uint32_t sum = 0;
        p->value[w->tid][0] = phase * (w->tid + 1);
        w->barrier(w);
        for (uint32_t i = 0; i < w->n_threads; i++)
            sum += p->value[i][0];
        p->wrong[w->tid] += sum != phase * w->n_threads * (w->n_threads + 1) / 2;
        w->barrier(w);
    }
    p->sum[w->tid]++;
}

static void barriers_separate_phases(void **state)
{
    static const struct {
        uint32_t n, phases;
        uint64_t spin_ns;
    } cases[] = {{1, 100, SPIN_NS}, {2, 3000, SPIN_NS}, {2, 500, 0},   {3, 500, SPIN_NS},
                 {4, 300, SPIN_NS}, {4, 300, 0},        {16, 50, 100}, {2, 1000, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct atsi_pool *pool = open_pool(cases[i].n, NULL, cases[i].spin_ns);
        struct phases p = {.n_phases = cases[i].phases};
        for (uint32_t k = 1; k <= 3; k++) {
            assert_int_equal(atsi_pool_region(pool, exchange_phases, &p, 0), ATSI_OK);
            for (uint32_t t = 0; t < cases[i].n; t++) {
                assert_int_equal(p.sum[t], k);
                assert_int_equal(p.wrong[t], 0);
            }
        }
        atsi_pool_close(pool);
    }
}

/* One worker sleeps before it arrives, so the others outlast their spin and sleep as well. */
static void late_phases(void *arg, struct atsi_worker *w)
{
    uint32_t *seen = arg; /* one word per phase */
    for (uint32_t phase = 0; phase < 6; phase++) {
        if (phase % w->n_threads == w->tid) {
            (void)usleep(2000);
            seen[phase] = phase + 1;
        }
        w->barrier(w);
        if (seen[phase] != phase + 1)
            seen[6] = 1; /* never, so no two workers write it */
    }
}

static void barriers_outlast_their_spin(void **state)
{
    struct atsi_pool *pool = open_pool(3, NULL, 1000);
    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t seen[7] = {0};
        assert_int_equal(atsi_pool_region(pool, late_phases, seen, 0), ATSI_OK);
        assert_int_equal(seen[6], 0);
    }
    atsi_pool_close(pool);
}

/* ---------------------------------------------------------------- number of workers */

static void active_count_changes(void **state)
{
    static const uint32_t order[] = {4, 1, 3, 2, 4, 4, 1, 2, 3, 4};
    struct atsi_pool *pool = open_pool(4, NULL, SPIN_NS);
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t total[MAX_N] = {0};
    struct runs r = {.n_expected = 4};
    (void)state;
    assert_int_equal(atsi_pool_active(pool), 4);
    for (uint32_t k = 0; k < 400; k++) {
        uint32_t n = order[k % 10];
        struct phases p = {.n_phases = 2};
        assert_int_equal(atsi_pool_set_active(pool, n, &err), ATSI_OK);
        assert_int_equal(atsi_pool_active(pool), n);
        r.n_expected = n;
        assert_int_equal(atsi_pool_region(pool, count_run, &r, 0), ATSI_OK);
        assert_int_equal(atsi_pool_region(pool, exchange_phases, &p, 0), ATSI_OK);
        for (uint32_t t = 0; t < n; t++) {
            total[t]++;
            assert_int_equal(p.wrong[t], 0);
        }
    }
    assert_int_equal(atomic_load(&r.wrong), 0);
    for (uint32_t t = 0; t < 4; t++)
        assert_int_equal(atomic_load(&r.count[t]), total[t]);
    atsi_pool_close(pool);
}

static void threads_start_when_needed_and_stay(void **state)
{
    unsigned before = count_threads();
    struct atsi_pool *pool = open_pool(4, NULL, SPIN_NS);
    struct atsi_err err = ATSI_ERR_INIT;
    struct runs r = {.n_expected = 2};
    (void)state;
    assert_int_equal(count_threads(), before);
    assert_int_equal(atsi_pool_set_active(pool, 2, &err), ATSI_OK);
    assert_int_equal(atsi_pool_region(pool, count_run, &r, 0), ATSI_OK);
    assert_int_equal(count_threads(), before + 1);
    assert_int_equal(atsi_pool_set_active(pool, 4, &err), ATSI_OK);
    r.n_expected = 4;
    assert_int_equal(atsi_pool_region(pool, count_run, &r, 0), ATSI_OK);
    assert_int_equal(count_threads(), before + 3);
    assert_int_equal(atsi_pool_set_active(pool, 1, &err), ATSI_OK);
    assert_int_equal(count_threads(), before + 3);
    atsi_pool_close(pool);
}

static void wrong_counts_are_refused(void **state)
{
    static const uint32_t bad[] = {0, 5000, UINT32_MAX};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_pool *pool;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct atsi_pool_params p = {.n_threads = bad[i]};
        assert_int_equal(atsi_pool_open(&p, &pool, &err), ATSI_EINVAL);
        assert_null(pool);
        assert_non_null(strstr(err.msg, "1..4096"));
    }
    pool = open_pool(2, NULL, 0);
    assert_int_equal(atsi_pool_set_active(pool, 0, &err), ATSI_EINVAL);
    assert_int_equal(atsi_pool_set_active(pool, 3, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "1..2"));
    assert_int_equal(atsi_pool_active(pool), 2);
    atsi_pool_close(pool);
    atsi_pool_close(NULL);
}

struct nested {
    struct atsi_pool *pool;
    struct runs inner;
    int region[MAX_N], set_active[MAX_N];
};

static void try_nested(void *arg, struct atsi_worker *w)
{
    struct nested *n = arg;
    struct atsi_err err = ATSI_ERR_INIT;
    n->region[w->tid] = atsi_pool_region(n->pool, count_run, &n->inner, 0);
    n->set_active[w->tid] = atsi_pool_set_active(n->pool, 1, &err);
}

static void nested_regions_are_refused(void **state)
{
    struct nested n = {.pool = open_pool(2, NULL, SPIN_NS), .inner = {.n_expected = 2}};
    (void)state;
    assert_int_equal(atsi_pool_region(n.pool, try_nested, &n, 0), ATSI_OK);
    for (uint32_t t = 0; t < 2; t++) {
        assert_int_equal(n.region[t], ATSI_EINVAL);
        assert_int_equal(n.set_active[t], ATSI_EINVAL);
    }
    check_runs(&n.inner, 0, 0);
    assert_int_equal(atsi_pool_region(n.pool, count_run, &n.inner, 0), ATSI_OK);
    check_runs(&n.inner, 2, 1);
    atsi_pool_close(n.pool);
}

/* ---------------------------------------------------------------- scratch */

struct scratch_view {
    size_t bytes;
    void *ptr[MAX_N];
};

static void fill_scratch(void *arg, struct atsi_worker *w)
{
    struct scratch_view *v = arg;
    v->ptr[w->tid] = w->scratch;
    if (w->scratch == NULL)
        return;
    memset(w->scratch, (int)w->tid + 1, v->bytes);
    w->barrier(w);
    for (size_t i = 0; i < v->bytes; i++)
        if (((unsigned char *)w->scratch)[i] != w->tid + 1)
            v->ptr[w->tid] = NULL; /* somebody else wrote here */
}

static void view_scratch(struct atsi_pool *pool, size_t bytes, struct scratch_view *v)
{
    *v = (struct scratch_view){.bytes = bytes};
    assert_int_equal(atsi_pool_region(pool, fill_scratch, v, bytes), ATSI_OK);
}

static void scratch_is_aligned_private_and_reused(void **state)
{
    struct atsi_pool *pool = open_pool(3, NULL, SPIN_NS);
    struct scratch_view first, again, none, larger, smaller;
    (void)state;
    view_scratch(pool, 1000, &first);
    view_scratch(pool, 1000, &again);
    view_scratch(pool, 0, &none);
    view_scratch(pool, 300000, &larger);
    view_scratch(pool, 1, &smaller);
    for (uint32_t t = 0; t < 3; t++) {
        assert_non_null(first.ptr[t]);
        assert_int_equal((uintptr_t)first.ptr[t] % 64, 0);
        assert_ptr_equal(again.ptr[t], first.ptr[t]);
        assert_null(none.ptr[t]);
        assert_non_null(larger.ptr[t]);
        assert_int_equal((uintptr_t)larger.ptr[t] % 64, 0);
        assert_ptr_equal(smaller.ptr[t], larger.ptr[t]);
    }
    atsi_pool_close(pool);
}

/* A worker that joins later gets its own although the size is not new. */
static void scratch_follows_the_active_count(void **state)
{
    struct atsi_pool *pool = open_pool(3, NULL, SPIN_NS);
    struct atsi_err err = ATSI_ERR_INIT;
    struct scratch_view v;
    (void)state;
    assert_int_equal(atsi_pool_set_active(pool, 1, &err), ATSI_OK);
    view_scratch(pool, 5000, &v);
    assert_int_equal(atsi_pool_set_active(pool, 3, &err), ATSI_OK);
    view_scratch(pool, 5000, &v);
    for (uint32_t t = 0; t < 3; t++)
        assert_non_null(v.ptr[t]);
    atsi_pool_close(pool);
}

static void impossible_scratch_runs_nothing(void **state)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4000, SIZE_MAX / 2};
    struct atsi_pool *pool = open_pool(2, NULL, SPIN_NS);
    struct runs r = {.n_expected = 2};
    struct scratch_view v;
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(atsi_pool_region(pool, count_run, &r, sizes[i]), ATSI_ENOMEM);
        check_runs(&r, 0, 0);
    }
    view_scratch(pool, 100, &v); /* the pool is still usable */
    assert_non_null(v.ptr[0]);
    assert_non_null(v.ptr[1]);
    atsi_pool_close(pool);
}

/* ---------------------------------------------------------------- pinning, signals, FP */

struct placed {
    cpu_set_t set[MAX_N];
    int rc[MAX_N];
    bool signal_open[MAX_N];
    uint32_t fp[MAX_N];
};

static void look_around(void *arg, struct atsi_worker *w)
{
    struct placed *p = arg;
    sigset_t blocked;
    p->rc[w->tid] = sched_getaffinity(0, sizeof p->set[0], &p->set[w->tid]);
    p->rc[w->tid] |= pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    p->signal_open[w->tid] = sigismember(&blocked, SIGINT) == 0;
#if defined(__x86_64__)
    p->fp[w->tid] = _mm_getcsr() & ~0x3fu;
#endif
}

/* The CPUs of this thread as a list. */
static uint32_t own_cpus(uint32_t *out, uint32_t max, cpu_set_t *set)
{
    uint32_t n = 0;
    assert_int_equal(sched_getaffinity(0, sizeof *set, set), 0);
    for (uint32_t c = 0; c < CPU_SETSIZE && n < max; c++)
        if (CPU_ISSET(c, set))
            out[n++] = c;
    return n;
}

static void workers_sit_on_their_cpus(void **state)
{
    uint32_t here[MAX_N], cpus[MAX_N];
    cpu_set_t before, after;
    uint32_t n = own_cpus(here, MAX_N, &before);
    struct placed p = {.rc = {0}};
    struct atsi_pool *pool;
    (void)state;
    for (uint32_t t = 0; t < 4; t++)
        cpus[t] = here[(n - 1 + t) % n]; /* last CPU first; around again when there are few */
    pool = open_pool(4, cpus, SPIN_NS);
    assert_int_equal(atsi_pool_region(pool, look_around, &p, 0), ATSI_OK);
    for (uint32_t t = 0; t < 4; t++) {
        assert_int_equal(p.rc[t], 0);
        assert_int_equal(CPU_COUNT(&p.set[t]), 1);
        assert_true(CPU_ISSET(cpus[t], &p.set[t]));
    }
    atsi_pool_close(pool);
    (void)own_cpus(here, MAX_N, &after); /* the caller gets its CPUs back */
    assert_true(CPU_EQUAL(&before, &after));
}

/* A CPU that does not exist: the worker runs where the caller could before it was pinned. */
static void refused_pins_do_not_matter(void **state)
{
    uint32_t here[MAX_N];
    cpu_set_t before;
    struct placed p = {.rc = {0}};
    struct atsi_pool *pool;
    (void)state;
    (void)own_cpus(here, MAX_N, &before);
    pool = open_pool(3, (const uint32_t[]){here[0], 1000, 4000000000u}, SPIN_NS);
    assert_int_equal(atsi_pool_region(pool, look_around, &p, 0), ATSI_OK);
    for (uint32_t t = 1; t < 3; t++)
        assert_true(CPU_EQUAL(&p.set[t], &before));
    atsi_pool_close(pool);
}

static void workers_without_cpus_are_not_pinned(void **state)
{
    uint32_t here[MAX_N];
    cpu_set_t before;
    struct placed p = {.rc = {0}};
    struct atsi_pool *pool = open_pool(2, NULL, SPIN_NS);
    (void)state;
    (void)own_cpus(here, MAX_N, &before);
    assert_int_equal(atsi_pool_region(pool, look_around, &p, 0), ATSI_OK);
    assert_true(CPU_EQUAL(&p.set[0], &before));
    assert_true(CPU_EQUAL(&p.set[1], &before));
    assert_true(p.signal_open[0]);
    assert_false(p.signal_open[1]); /* Ctrl-C is the application's */
    atsi_pool_close(pool);
}

#if defined(__x86_64__)
static void floating_point_environment_is_the_default(void **state)
{
    struct atsi_pool *pool = open_pool(2, NULL, SPIN_NS);
    struct placed p = {.rc = {0}};
    uint32_t mine = _mm_getcsr(), flush = mine | 0x8040u; /* FTZ, DAZ */
    (void)state;
    _mm_setcsr(flush);
    int rc = atsi_pool_region(pool, look_around, &p, 0);
    uint32_t left = _mm_getcsr();
    _mm_setcsr(mine);
    assert_int_equal(rc, ATSI_OK);
    assert_int_equal(p.fp[0], 0x1f80);
    assert_int_equal(p.fp[1], 0x1f80);
    assert_int_equal(left & 0x8040u, 0x8040u); /* the caller's own is put back */
    atsi_pool_close(pool);
}
#endif

/* ---------------------------------------------------------------- life cycle */

static void pools_come_and_go(void **state)
{
    unsigned before = count_threads();
    (void)state;
    for (uint32_t k = 0; k < 60; k++) {
        struct atsi_pool *pool = open_pool(1 + k % 5, NULL, k % 2 == 0 ? 0 : SPIN_NS);
        struct runs r = {.n_expected = 1 + k % 5};
        if (k % 3 != 0) /* every third one is never used */
            assert_int_equal(atsi_pool_region(pool, count_run, &r, 0), ATSI_OK);
        if (k % 4 == 0)
            (void)usleep(500); /* workers asleep when they are told to end */
        atsi_pool_close(pool);
    }
    assert_in_range(count_threads(), before, before);
}

struct other {
    struct atsi_pool *pool;
    struct runs runs;
    int rc;
};

static void *run_elsewhere(void *arg)
{
    struct other *o = arg;
    o->rc = atsi_pool_region(o->pool, count_run, &o->runs, 0);
    return NULL;
}

/* The engine may move to another thread between regions. */
static void regions_from_another_thread(void **state)
{
    uint32_t here[MAX_N];
    cpu_set_t before, after;
    uint32_t n = own_cpus(here, MAX_N, &before);
    struct other o = {.runs = {.n_expected = 2}};
    (void)state;
    o.pool = open_pool(2, (const uint32_t[]){here[0], here[n - 1]}, SPIN_NS);
    for (uint32_t k = 1; k <= 5; k++) {
        pthread_t th;
        assert_int_equal(atsi_pool_region(o.pool, count_run, &o.runs, 0), ATSI_OK);
        assert_int_equal(pthread_create(&th, NULL, run_elsewhere, &o), 0);
        assert_int_equal(pthread_join(th, NULL), 0);
        assert_int_equal(o.rc, ATSI_OK);
        check_runs(&o.runs, 2, 2 * k);
        (void)own_cpus(here, MAX_N, &after); /* no longer worker 0: its CPUs are back */
        assert_true(CPU_EQUAL(&before, &after));
    }
    atsi_pool_close(o.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_worker_runs_once),
        cmocka_unit_test(thousands_of_tiny_regions),
        cmocka_unit_test(sleeping_workers_wake_up),
        cmocka_unit_test(idle_workers_sleep),
        cmocka_unit_test(the_caller_waits_for_slow_workers),
        cmocka_unit_test(barriers_separate_phases),
        cmocka_unit_test(barriers_outlast_their_spin),
        cmocka_unit_test(active_count_changes),
        cmocka_unit_test(threads_start_when_needed_and_stay),
        cmocka_unit_test(wrong_counts_are_refused),
        cmocka_unit_test(nested_regions_are_refused),
        cmocka_unit_test(scratch_is_aligned_private_and_reused),
        cmocka_unit_test(scratch_follows_the_active_count),
        cmocka_unit_test(impossible_scratch_runs_nothing),
        cmocka_unit_test(workers_sit_on_their_cpus),
        cmocka_unit_test(refused_pins_do_not_matter),
        cmocka_unit_test(workers_without_cpus_are_not_pinned),
#if defined(__x86_64__)
        cmocka_unit_test(floating_point_environment_is_the_default),
#endif
        cmocka_unit_test(pools_come_and_go),
        cmocka_unit_test(regions_from_another_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
