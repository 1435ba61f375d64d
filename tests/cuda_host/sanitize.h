/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sanitizers are told.  The simulated device synchronises its threads by means that a real
 * one does not have, its locks above all; ThreadSanitizer must not take them for an order between
 * operations of different streams, or a missing event wait would look fine.  So locks of the
 * runtime are hidden from it, its sources are built without its instrumentation, and the orders
 * that CUDA does promise are told by ch_tsan_release() and ch_tsan_acquire().
 */
#ifndef CH_SANITIZE_H
#define CH_SANITIZE_H

#include <stddef.h>

#include "tests/cuda_host/fiber.h"

/* The runtime's sources lack the instrumentation, and with it the macro: the build says so. */
#if CH_TSAN
#include <sanitizer/tsan_interface.h>
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#endif
#if CH_ASAN
#include <sanitizer/asan_interface.h>
#endif

static inline void ch_tsan_release(void *at)
{
#if CH_TSAN
    __tsan_release(at);
#else
    (void)at;
#endif
}

static inline void ch_tsan_acquire(void *at)
{
#if CH_TSAN
    __tsan_acquire(at);
#else
    (void)at;
#endif
}

/* What happens while `on` is the runtime's own business: it orders nothing, and its accesses (those
 * of functions that ThreadSanitizer intercepts, too) race with nothing.  May be nested. */
static inline void ch_tsan_hide(int on)
{
#if CH_TSAN
    if (on) {
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    } else {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    }
#else
    (void)on;
#endif
}

static inline void ch_asan_poison(const void *at, size_t n)
{
#if CH_ASAN
    __asan_poison_memory_region(at, n);
#else
    (void)at;
    (void)n;
#endif
}

static inline void ch_asan_unpoison(const void *at, size_t n)
{
#if CH_ASAN
    __asan_unpoison_memory_region(at, n);
#else
    (void)at;
    (void)n;
#endif
}

#endif
