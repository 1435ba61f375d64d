/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers and elementary functions that give the same bits on every machine.
 */
#include "text/rng.h"

#include <math.h>
#include <string.h>

static uint64_t rotate_left(uint64_t x, unsigned k)
{
    return x << k | x >> (64 - k);
}

void atsi_rng_seed(struct atsi_rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) { /* splitmix64 */
        uint64_t z = seed += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        r->s[i] = z ^ z >> 31;
    }
}

uint64_t atsi_rng_next(struct atsi_rng *r)
{
    uint64_t *s = r->s, result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double atsi_rng_unit(struct atsi_rng *r)
{
    return (double)(atsi_rng_next(r) >> 11) * 0x1p-53;
}

/* ln 2 in two parts; the high one has 21 trailing zero bits, so that its product with a small
 * integer is exact. */
#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW 0x1.a39ef35793c76p-33

double atsi_exact_exp(double x)
{
    double n, r, sum = 1.0;
    int64_t exponent;
    uint64_t bits;
    if (!(x >= -708.0))
        return 0.0; /* also for NaN */
    n = floor(x * 1.4426950408889634 + 0.5);
    r = (x - n * LN2_HIGH) - n * LN2_LOW; /* |r| <= 0.35 */
    for (int k = 14; k > 0; k--)          /* Taylor, Horner: r^15/15! < 2e-19 */
        sum = 1.0 + sum * r / k;
    exponent = (int64_t)n + 1023; /* 1..1024: x <= 0 and >= -708 */
    bits = (uint64_t)exponent << 52;
    memcpy(&n, &bits, sizeof n);
    return sum * n;
}

double atsi_exact_log(double x)
{
    int exponent;
    double m = frexp(x, &exponent), s, s2, sum = 0.0; /* exact: takes the bits apart */
    if (m < 0.70710678118654752) {
        m *= 2.0;
        exponent--;
    }
    s = (m - 1.0) / (m + 1.0); /* |s| <= 0.172; log m = 2 (s + s^3/3 + s^5/5 + ...) */
    s2 = s * s;
    for (int k = 25; k > 0; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return exponent * LN2_HIGH + (exponent * LN2_LOW + 2.0 * s * sum);
}
