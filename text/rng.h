/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers and elementary functions that give the same bits on every machine.
 *
 * Only additions, multiplications and divisions of IEEE doubles are used (no contraction), where
 * the C library's exp and log differ between versions by a last bit, which is enough to draw
 * another token.
 */
#ifndef ATSI_TEXT_RNG_H
#define ATSI_TEXT_RNG_H

#include <stdint.h>

/* xoshiro256** 1.0 (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021).
 */
struct atsi_rng {
    uint64_t s[4];
};

/* State from one number by splitmix64, as the authors advise. */
void atsi_rng_seed(struct atsi_rng *r, uint64_t seed);
uint64_t atsi_rng_next(struct atsi_rng *r);
/* Uniform in [0, 1), multiples of 2^-53. */
double atsi_rng_unit(struct atsi_rng *r);

/* exp(x) for x <= 0 within 2 units in the last place; 0 below -708. */
double atsi_exact_exp(double x);
/* log(x) for finite normal x > 0, absolute error below 1e-15 * (1 + |log x|). */
double atsi_exact_log(double x);

#endif
