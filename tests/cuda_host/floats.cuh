/* SPDX-License-Identifier: Apache-2.0
 *
 * Floating point intrinsics.  Where a device rounds once (fma) so does this; approximate functions
 * are the accurate ones here.  Sources are compiled with -ffp-contract=off.
 */
#ifndef CH_FLOATS_CUH
#define CH_FLOATS_CUH

#define CH_BIT_CAST(name, to, from)                                                                \
    static inline to name(from x)                                                                  \
    {                                                                                              \
        to y;                                                                                      \
        std::memcpy(&y, &x, sizeof y);                                                             \
        return y;                                                                                  \
    }
CH_BIT_CAST(__int_as_float, float, int)
CH_BIT_CAST(__uint_as_float, float, unsigned)
CH_BIT_CAST(__float_as_int, int, float)
CH_BIT_CAST(__float_as_uint, unsigned, float)
CH_BIT_CAST(__longlong_as_double, double, long long)
CH_BIT_CAST(__double_as_longlong, long long, double)
#undef CH_BIT_CAST

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline float __fsub_rn(float a, float b)
{
    return a - b;
}

static inline float __fmaf_rn(float a, float b, float c)
{
    return std::fma(a, b, c);
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

static inline float __fsqrt_rn(float a)
{
    return std::sqrt(a);
}

static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}

static inline float __frsqrt_rn(float a)
{
    return (float)(1.0 / std::sqrt((double)a));
}

static inline float rsqrtf(float a)
{
    return __frsqrt_rn(a);
}

static inline float __fdividef(float a, float b)
{
    return a / b;
}

/* The C library declares the names with two underscores for itself. */
#define CH_APPROXIMATE(name, value)                                                                \
    static inline float name(float a)                                                              \
    {                                                                                              \
        return value;                                                                              \
    }
CH_APPROXIMATE(ch_expf, std::exp(a))
CH_APPROXIMATE(ch_exp10f, (float)std::pow(10.0, (double)a))
CH_APPROXIMATE(ch_logf, std::log(a))
CH_APPROXIMATE(ch_log2f, std::log2(a))
CH_APPROXIMATE(ch_log10f, std::log10(a))
CH_APPROXIMATE(ch_sinf, std::sin(a))
CH_APPROXIMATE(ch_cosf, std::cos(a))
CH_APPROXIMATE(ch_tanhf, std::tanh(a))
#undef CH_APPROXIMATE

static inline float ch_powf(float a, float b)
{
    return std::pow(a, b);
}

static inline void ch_sincosf(float a, float *s, float *c)
{
    *s = std::sin(a);
    *c = std::cos(a);
}

#define __expf ch_expf
#define __exp10f ch_exp10f
#define __logf ch_logf
#define __log2f ch_log2f
#define __log10f ch_log10f
#define __sinf ch_sinf
#define __cosf ch_cosf
#define __tanhf ch_tanhf
#define __powf ch_powf
#define __sincosf ch_sincosf

static inline float __saturatef(float a)
{
    return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f;
}

static inline void sincospif(float a, float *s, float *c)
{
    const double pi = 3.14159265358979323846;
    *s = (float)std::sin(pi * (double)a);
    *c = (float)std::cos(pi * (double)a);
}

/* Conversions saturate, and a NaN becomes 0, as cvt.s32 does. */
template <class I>
static inline I ch_to_integer(float a, float rounded)
{
    const float lo = (float)std::numeric_limits<I>::min();
    const float hi = (float)std::numeric_limits<I>::max(); /* rounded up to a power of two */
    if (a != a)
        return 0;
    if (rounded < lo)
        return std::numeric_limits<I>::min();
    return rounded >= hi ? std::numeric_limits<I>::max() : (I)rounded;
}

#define CH_CONVERT(name, type, rounding)                                                           \
    static inline type name(float a)                                                               \
    {                                                                                              \
        return ch_to_integer<type>(a, rounding(a));                                                \
    }
CH_CONVERT(__float2int_rn, int, std::nearbyint)
CH_CONVERT(__float2int_rz, int, std::trunc)
CH_CONVERT(__float2int_rd, int, std::floor)
CH_CONVERT(__float2int_ru, int, std::ceil)
CH_CONVERT(__float2uint_rn, unsigned, std::nearbyint)
CH_CONVERT(__float2uint_rz, unsigned, std::trunc)
CH_CONVERT(__float2uint_rd, unsigned, std::floor)
CH_CONVERT(__float2uint_ru, unsigned, std::ceil)
CH_CONVERT(__float2ll_rn, long long, std::nearbyint)
#undef CH_CONVERT

static inline float __int2float_rn(int a)
{
    return (float)a;
}

static inline float __uint2float_rn(unsigned a)
{
    return (float)a;
}

static inline float __ll2float_rn(long long a)
{
    return (float)a;
}

/* As on the device, one operand that is not a number gives the other. */
static inline float min(float a, float b)
{
    return std::fmin(a, b);
}

static inline float max(float a, float b)
{
    return std::fmax(a, b);
}

static inline double min(double a, double b)
{
    return std::fmin(a, b);
}

static inline double max(double a, double b)
{
    return std::fmax(a, b);
}

#endif
