/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks of their own for the threads of a block, switched by hand, and known to AddressSanitizer
 * and ThreadSanitizer.  A fiber stays on the operating system thread that made it.
 */
#ifndef CH_FIBER_H
#define CH_FIBER_H

#include <stddef.h>

/* Sources of the runtime that are built without ThreadSanitizer's instrumentation are told of it by
 * -DCH_TSAN=1. */
#ifdef __has_feature
#define CH_HAS(feature) __has_feature(feature)
#else
#define CH_HAS(feature) 0
#endif
#ifndef CH_ASAN
#if defined(__SANITIZE_ADDRESS__) || CH_HAS(address_sanitizer)
#define CH_ASAN 1
#else
#define CH_ASAN 0
#endif
#endif
#ifndef CH_TSAN
#if defined(__SANITIZE_THREAD__) || CH_HAS(thread_sanitizer)
#define CH_TSAN 1
#else
#define CH_TSAN 0
#endif
#endif

#if CH_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if CH_TSAN
#include <sanitizer/tsan_interface.h>
#endif

struct ch_fiber {
    void *sp; /* saved while it does not run; a ucontext_t where there is no assembly for it */
    char *stack;
    size_t stack_size;
    void *map; /* the stack with its guard page */
    size_t map_size;
    void *fake_stack;                 /* AddressSanitizer's */
    void *tsan;                       /* ThreadSanitizer's */
    void (*entry)(struct ch_fiber *); /* never returns */
    void *user;
    struct ch_fiber *next_free;
};

/* `f` becomes the thread that calls.  0 on success. */
int ch_fiber_adopt(struct ch_fiber *f);
void ch_fiber_release(struct ch_fiber *f);

/* A fiber that starts with entry(f) when it is switched to; NULL without memory.  `order` staggers
 * the stacks, lest the same variable of all fibers meet in one cache set. */
struct ch_fiber *ch_fiber_new(unsigned order, void (*entry)(struct ch_fiber *));
/* Makes it start afresh, whatever it was doing.  0 on success. */
int ch_fiber_reset(struct ch_fiber *f, unsigned order);
void ch_fiber_free(struct ch_fiber *f);

/* Leaves the stack of `save` for the one that was left with `load`. */
void ch_fiber_swap(void **save, void *load) __attribute__((visibility("hidden")));

/* `unordered`: ThreadSanitizer is not to take the switch for synchronisation. */
static inline void ch_fiber_switch(struct ch_fiber *from, struct ch_fiber *to, int unordered)
{
#if CH_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_size);
#endif
#if CH_TSAN
    __tsan_switch_to_fiber(to->tsan, unordered ? __tsan_switch_to_fiber_no_sync : 0);
#endif
    (void)unordered;
    ch_fiber_swap(&from->sp, to->sp);
#if CH_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

/* Whether `address` is in the guard page of `f`. */
int ch_fiber_overflow(const struct ch_fiber *f, const void *address);

#endif
