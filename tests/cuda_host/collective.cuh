/* SPDX-License-Identifier: Apache-2.0
 *
 * Barriers, shuffles and votes.  Every call names its place in the source, so that a report about
 * threads that do not meet can say where each of them waits.
 */
#ifndef CH_COLLECTIVE_CUH
#define CH_COLLECTIVE_CUH

#define CH_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()
/* A call with its place: ch_warp() and ch_block() look at it until they return. */
static inline int ch_block_at(enum ch_block_op op, const ch_site &site, int predicate)
{
    return ch_block(op, &site, predicate);
}

static inline uint64_t ch_warp_at(enum ch_warp_op op, const ch_site &site, unsigned mask,
                                  uint64_t value, int arg, int width)
{
    return ch_warp(op, &site, mask, value, arg, width);
}

#define CH_AT(what)                                                                                \
    ch_site                                                                                        \
    {                                                                                              \
        what, file, line                                                                           \
    }

static inline void ch_syncthreads(CH_SITE)
{
    ch_block_at(CH_BARRIER, CH_AT("__syncthreads"), 0);
}

static inline int ch_syncthreads_or(int p, CH_SITE)
{
    return ch_block_at(CH_BARRIER_OR, CH_AT("__syncthreads_or"), p);
}

static inline int ch_syncthreads_and(int p, CH_SITE)
{
    return ch_block_at(CH_BARRIER_AND, CH_AT("__syncthreads_and"), p);
}

static inline int ch_syncthreads_count(int p, CH_SITE)
{
    return ch_block_at(CH_BARRIER_COUNT, CH_AT("__syncthreads_count"), p);
}

#define __syncthreads ch_syncthreads
#define __syncthreads_or ch_syncthreads_or
#define __syncthreads_and ch_syncthreads_and
#define __syncthreads_count ch_syncthreads_count

static inline void __syncwarp(unsigned mask = 0xffffffffu, CH_SITE)
{
    ch_warp_at(CH_SYNCWARP, CH_AT("__syncwarp"), mask, 0, 0, 32);
}

static inline unsigned __activemask(CH_SITE)
{
    return (unsigned)ch_warp_at(CH_ACTIVEMASK, CH_AT("__activemask"), 0, 0, 0, 32);
}

/* Values travel as 64 bits; the conversions keep every bit. */
template <class T>
static inline uint64_t ch_bits_of(T value)
{
    static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable<T>::value,
                  "lanes exchange up to 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T>
static inline T ch_of_bits(uint64_t bits)
{
    T value;
    std::memcpy(static_cast<void *>(&value), &bits, sizeof value);
    return value;
}

template <class T>
static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, CH_SITE)
{
    return ch_of_bits<T>(
        ch_warp_at(CH_SHFL, CH_AT("__shfl_sync"), mask, ch_bits_of(value), lane, width));
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, CH_SITE)
{
    return ch_of_bits<T>(
        ch_warp_at(CH_SHFL_XOR, CH_AT("__shfl_xor_sync"), mask, ch_bits_of(value), bits, width));
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, CH_SITE)
{
    return ch_of_bits<T>(ch_warp_at(CH_SHFL_UP, CH_AT("__shfl_up_sync"), mask, ch_bits_of(value),
                                    (int)delta, width));
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, CH_SITE)
{
    return ch_of_bits<T>(ch_warp_at(CH_SHFL_DOWN, CH_AT("__shfl_down_sync"), mask,
                                    ch_bits_of(value), (int)delta, width));
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, CH_SITE)
{
    return (unsigned)ch_warp_at(CH_BALLOT, CH_AT("__ballot_sync"), mask, predicate != 0, 0, 32);
}

static inline int __any_sync(unsigned mask, int predicate, CH_SITE)
{
    return ch_warp_at(CH_BALLOT, CH_AT("__any_sync"), mask, predicate != 0, 0, 32) != 0;
}

static inline int __all_sync(unsigned mask, int predicate, CH_SITE)
{
    return ch_warp_at(CH_BALLOT, CH_AT("__all_sync"), mask, predicate != 0, 0, 32) == mask;
}

template <class T>
static inline unsigned __match_any_sync(unsigned mask, T value, CH_SITE)
{
    return (unsigned)ch_warp_at(CH_MATCH_ANY, CH_AT("__match_any_sync"), mask, ch_bits_of(value), 0,
                                32);
}

template <class T>
static inline unsigned __match_all_sync(unsigned mask, T value, int *all, CH_SITE)
{
    unsigned same = (unsigned)ch_warp_at(CH_MATCH_ALL, CH_AT("__match_all_sync"), mask,
                                         ch_bits_of(value), 0, 32);
    *all = same != 0;
    return same;
}

/* Integer reductions of a warp, sm_80 and later. */
#define CH_REDUCE(name, type, op)                                                                  \
    static inline type name(unsigned mask, type value, CH_SITE)                                    \
    {                                                                                              \
        return (type)ch_warp_at(op, CH_AT(#name), mask, ch_bits_of(value), 0, 32);                 \
    }
CH_REDUCE(__reduce_add_sync, int, CH_REDUCE_ADD)
CH_REDUCE(__reduce_add_sync, unsigned, CH_REDUCE_ADD)
CH_REDUCE(__reduce_min_sync, int, CH_REDUCE_MIN)
CH_REDUCE(__reduce_min_sync, unsigned, CH_REDUCE_MIN_U)
CH_REDUCE(__reduce_max_sync, int, CH_REDUCE_MAX)
CH_REDUCE(__reduce_max_sync, unsigned, CH_REDUCE_MAX_U)
CH_REDUCE(__reduce_or_sync, unsigned, CH_REDUCE_OR)
CH_REDUCE(__reduce_and_sync, unsigned, CH_REDUCE_AND)
CH_REDUCE(__reduce_xor_sync, unsigned, CH_REDUCE_XOR)
#undef CH_REDUCE

#undef CH_SITE
#undef CH_AT

#endif
