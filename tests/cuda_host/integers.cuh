/* SPDX-License-Identifier: Apache-2.0
 *
 * Integer intrinsics: bits, bytes of a word, dot products of bytes.
 */
#ifndef CH_INTEGERS_CUH
#define CH_INTEGERS_CUH

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}

static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}

static inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= ((x >> i) & 1u) << (31 - i);
    return r;
}

static inline int __mulhi(int a, int b)
{
    return (int)(((long long)a * b) >> 32);
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)(((unsigned long long)a * b) >> 32);
}

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    __extension__ typedef unsigned __int128 wide;
    return (unsigned long long)(((wide)a * b) >> 64);
}

static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift)
{
    return (unsigned)(((((unsigned long long)hi << 32) | lo) << (shift & 31u)) >> 32);
}

static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift)
{
    return (unsigned)((((unsigned long long)hi << 32) | lo) >> (shift & 31u));
}

/* Byte i of the result is byte (selector's nibble i, low three bits) of y:x, or that byte's sign
 * repeated when the nibble's top bit is set. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    unsigned long long both = ((unsigned long long)y << 32) | x;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = (selector >> (4 * i)) & 15u;
        unsigned b = (unsigned)(both >> (8u * (s & 7u))) & 255u;
        if (s & 8u)
            b = b & 128u ? 255u : 0u;
        r |= b << (8 * i);
    }
    return r;
}

static inline int ch_s8(unsigned word, int i)
{
    return (signed char)(word >> (8 * i));
}

static inline int ch_u8(unsigned word, int i)
{
    return (unsigned char)(word >> (8 * i));
}

/* The accumulator wraps. */
static inline int __dp4a(int a, int b, int c)
{
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 4; i++)
        sum += (unsigned)(ch_s8((unsigned)a, i) * ch_s8((unsigned)b, i));
    return (int)sum;
}

static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    unsigned sum = c;
    for (int i = 0; i < 4; i++)
        sum += (unsigned)(ch_u8(a, i) * ch_u8(b, i));
    return sum;
}

/* PTX dp4a.u32.s32, which CUDA C++ has no name for (the twin of the one in launch.cuh). */
static inline int atsi_dp4a_us(unsigned u, int s, int c)
{
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 4; i++)
        sum += (unsigned)(ch_u8(u, i) * ch_s8((unsigned)s, i));
    return (int)sum;
}

/* Every byte (4) or half word (2) of a word by itself; `a` and `b` are its parts as int. */
#define CH_LANES(name, bits, part, expression)                                                     \
    static inline unsigned name(unsigned x, unsigned y)                                            \
    {                                                                                              \
        const unsigned mask = (1u << (bits)) - 1u;                                                 \
        unsigned r = 0;                                                                            \
        for (int i = 0; i < 32; i += (bits)) {                                                     \
            const int a = (part)(x >> i), b = (part)(y >> i);                                      \
            r |= ((unsigned)(expression)&mask) << i;                                               \
        }                                                                                          \
        return r;                                                                                  \
    }
static inline int ch_clamp(int x, int lo, int hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}
CH_LANES(__vadd4, 8, unsigned char, a + b)
CH_LANES(__vsub4, 8, unsigned char, a - b)
CH_LANES(__vaddss4, 8, signed char, ch_clamp(a + b, -128, 127))
CH_LANES(__vsubss4, 8, signed char, ch_clamp(a - b, -128, 127))
CH_LANES(__vaddus4, 8, unsigned char, ch_clamp(a + b, 0, 255))
CH_LANES(__vsubus4, 8, unsigned char, ch_clamp(a - b, 0, 255))
CH_LANES(__vmaxs4, 8, signed char, a > b ? a : b)
CH_LANES(__vmins4, 8, signed char, a < b ? a : b)
CH_LANES(__vmaxu4, 8, unsigned char, a > b ? a : b)
CH_LANES(__vminu4, 8, unsigned char, a < b ? a : b)
CH_LANES(__vabsdiffu4, 8, unsigned char, a > b ? a - b : b - a)
CH_LANES(__vcmpeq4, 8, unsigned char, a == b ? -1 : 0)
CH_LANES(__vcmpne4, 8, unsigned char, a != b ? -1 : 0)
CH_LANES(__vcmpgtu4, 8, unsigned char, a > b ? -1 : 0)
CH_LANES(__vcmpgts4, 8, signed char, a > b ? -1 : 0)
CH_LANES(__vadd2, 16, unsigned short, a + b)
CH_LANES(__vsub2, 16, unsigned short, a - b)
#undef CH_LANES

static inline unsigned __vabs4(unsigned x)
{
    return __vsub4(x ^ __vcmpgts4(0, x), __vcmpgts4(0, x));
}

static inline unsigned __vneg4(unsigned x)
{
    return __vsub4(0, x);
}

/* min and max of the device: no namespace, mixed signs as CUDA does it. */
#define CH_MINMAX(type)                                                                            \
    static inline type min(type a, type b)                                                         \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    static inline type max(type a, type b)                                                         \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
CH_MINMAX(int)
CH_MINMAX(unsigned)
CH_MINMAX(long)
CH_MINMAX(unsigned long)
CH_MINMAX(long long)
CH_MINMAX(unsigned long long)
#undef CH_MINMAX

static inline unsigned min(int a, unsigned b)
{
    return min((unsigned)a, b);
}

static inline unsigned min(unsigned a, int b)
{
    return min(a, (unsigned)b);
}

static inline unsigned max(int a, unsigned b)
{
    return max((unsigned)a, b);
}

static inline unsigned max(unsigned a, int b)
{
    return max(a, (unsigned)b);
}

#endif
