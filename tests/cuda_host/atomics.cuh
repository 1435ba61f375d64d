/* SPDX-License-Identifier: Apache-2.0
 *
 * Atomics, fences and loads with cache hints.  Atomics of a device order nothing else (relaxed), so
 * that a missing fence shows under ThreadSanitizer; fences order everything.
 */
#ifndef CH_ATOMICS_CUH
#define CH_ATOMICS_CUH

/* Replaces *at by next(old) and returns old. */
template <class T, class Next>
static inline T ch_atomic(T *at, Next next)
{
    T old, now;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    do {
        now = next(old);
    } while (!__atomic_compare_exchange(at, &old, &now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

#define CH_ATOMIC(name, type, expression)                                                          \
    static inline type name(type *at, type value)                                                  \
    {                                                                                              \
        return ch_atomic(at, [=](type old) -> type { return (type)(expression); });                \
    }
#define CH_ATOMIC_INTEGERS(name, expression)                                                       \
    CH_ATOMIC(name, int, expression)                                                               \
    CH_ATOMIC(name, unsigned, expression)                                                          \
    CH_ATOMIC(name, unsigned long long, expression)
/* Sums wrap as on the device. */
CH_ATOMIC(atomicAdd, int, (unsigned)old + (unsigned)value)
CH_ATOMIC(atomicAdd, unsigned, old + value)
CH_ATOMIC(atomicAdd, unsigned long long, old + value)
CH_ATOMIC(atomicAdd, float, old + value)
CH_ATOMIC(atomicAdd, double, old + value)
CH_ATOMIC(atomicSub, int, (unsigned)old - (unsigned)value)
CH_ATOMIC(atomicSub, unsigned, old - value)
CH_ATOMIC_INTEGERS(atomicMax, old > value ? old : value)
CH_ATOMIC_INTEGERS(atomicMin, old < value ? old : value)
CH_ATOMIC(atomicMax, long long, old > value ? old : value)
CH_ATOMIC(atomicMin, long long, old < value ? old : value)
CH_ATOMIC_INTEGERS(atomicOr, old | value)
CH_ATOMIC_INTEGERS(atomicAnd, old &value)
CH_ATOMIC_INTEGERS(atomicXor, old ^ value)
CH_ATOMIC_INTEGERS(atomicExch, ((void)old, value))
CH_ATOMIC(atomicExch, float, ((void)old, value))
CH_ATOMIC(atomicInc, unsigned, old >= value ? 0u : old + 1u)
CH_ATOMIC(atomicDec, unsigned, old == 0u || old > value ? value : old - 1u)
#undef CH_ATOMIC_INTEGERS
#undef CH_ATOMIC

template <class T>
static inline T atomicCAS(T *at, T expected, T value)
{
    __atomic_compare_exchange(at, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

/* ThreadSanitizer knows no fences: an exchange on one word gives the same order. */
static inline void ch_fence()
{
    static unsigned word;
    __atomic_fetch_add(&word, 1u, __ATOMIC_ACQ_REL);
}

static inline void __threadfence()
{
    ch_fence();
}

static inline void __threadfence_block()
{
    ch_fence();
}

static inline void __threadfence_system()
{
    ch_fence();
}

static inline void __nanosleep(unsigned ns)
{
    ch_nanosleep(ns);
}

static inline long long clock64()
{
    return (long long)ch_clock_ns();
}

[[noreturn]] static inline void __trap()
{
    ch_trap(cudaErrorLaunchFailure, CUDA_HOST_MISUSE, "%s", "__trap");
}

template <class T>
static inline T __ldg(const T *at)
{
    return *at;
}

template <class T>
static inline T __ldcg(const T *at)
{
    return *at;
}

template <class T>
static inline T __ldca(const T *at)
{
    return *at;
}

template <class T>
static inline T __ldcs(const T *at)
{
    return *at;
}

template <class T>
static inline T __ldcv(const T *at)
{
    return *static_cast<const volatile T *>(at);
}

template <class T>
static inline void __stcg(T *at, T value)
{
    *at = value;
}

template <class T>
static inline void __stcs(T *at, T value)
{
    *at = value;
}

template <class T>
static inline void __stwt(T *at, T value)
{
    *at = value;
}

#endif
