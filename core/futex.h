/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for a word to change: spin for a bounded time, then sleep in the kernel.
 *
 * A waiter that is about to sleep announces it (a flag, sequentially consistent), looks at the word
 * once more and only then sleeps; a waker changes the word, then looks at the flag.  In the single
 * order of sequentially consistent operations one of the two sees the other, so no wake-up is lost.
 */
#ifndef ATSI_CORE_FUTEX_H
#define ATSI_CORE_FUTEX_H

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Sleeps while *word is `value`; may return early for no reason, so callers loop. */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    /* EAGAIN (changed meanwhile) and EINTR are what the caller's loop is for. */
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static inline void futex_wake(_Atomic uint32_t *word, int n)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* How long one wait has spun. */
struct spin {
    uint64_t budget_ns, start_ns;
    uint32_t n, n_yields;
};

static inline uint64_t spin_now_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline void spin_pause(void)
{
#if defined(__x86_64__)
    _mm_pause();
#endif
}

/* One step of a spin; false when it is time to sleep.  Without a budget the CPU is offered to
 * others n_yields times instead.  The clock is read every 32 pauses (about 0.5 to 1.5 us), so the
 * usual short wait never reads it. */
static inline bool spin_step(struct spin *s)
{
    if (s->budget_ns == 0) {
        if (s->n++ >= s->n_yields)
            return false;
        (void)sched_yield();
        return true;
    }
    spin_pause();
    if ((++s->n & 31u) != 0)
        return true;
    if (s->start_ns == 0)
        s->start_ns = spin_now_ns();
    return spin_now_ns() - s->start_ns < s->budget_ns;
}

#endif
