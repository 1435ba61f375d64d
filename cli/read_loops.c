/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops that do nothing but read.  One body serves every pattern: the number of streams, the
 * register and the prefetch distance are constants where it is inlined.  The three register widths
 * are functions of their own, compiled for the instruction set they need and chosen at run time.
 *
 * Streams lie one behind the other in the share and are read in turn, 128 bytes at a time: what is
 * under way to memory at once grows with their number.
 */
#include "cli/limits.h"

#include <string.h>

typedef uint64_t reg16 __attribute__((vector_size(16), aligned(16)));
typedef uint64_t reg32 __attribute__((vector_size(32), aligned(32)));
typedef uint64_t reg64 __attribute__((vector_size(64), aligned(64)));

#define STEP 128u /* bytes of one stream per turn: two lines */

/* The body for registers of type REG.  A macro, because C has no generic functions and registers of
 * 64 bytes must not pass through functions of the baseline. */
#define READ_BODY(REG, streams, prefetch)                                                          \
    do {                                                                                           \
        const size_t part = n / (streams);                                                         \
        REG s[2] = {{0}};                                                                          \
        for (size_t i = 0; i + STEP <= part; i += STEP)                                            \
            _Pragma("GCC unroll 4") for (unsigned k = 0; k < (streams); k++)                       \
            {                                                                                      \
                const unsigned char *at = data + k * part + i;                                     \
                const REG *r = (const REG *)(const void *)at;                                      \
                if ((prefetch) != 0) {                                                             \
                    __builtin_prefetch(at + (prefetch), 0, 3);                                     \
                    __builtin_prefetch(at + (prefetch) + 64, 0, 3);                                \
                }                                                                                  \
                _Pragma("GCC unroll 8") for (unsigned j = 0; j < STEP / sizeof(REG); j++)          \
                    s[j % 2] |= r[j];                                                              \
            }                                                                                      \
        s[0] |= s[1];                                                                              \
        memcpy(out, &s[0], sizeof s[0]);                                                           \
    } while (0)

#define READ_STREAMS(REG)                                                                          \
    do {                                                                                           \
        const size_t ahead = p->prefetch;                                                          \
        if (p->streams == 1 && p->prefetch == 0)                                                   \
            READ_BODY(REG, 1, 0);                                                                  \
        else if (p->streams == 1)                                                                  \
            READ_BODY(REG, 1, ahead);                                                              \
        else if (p->streams == 2 && p->prefetch == 0)                                              \
            READ_BODY(REG, 2, 0);                                                                  \
        else if (p->streams == 2)                                                                  \
            READ_BODY(REG, 2, ahead);                                                              \
        else if (p->prefetch == 0)                                                                 \
            READ_BODY(REG, 4, 0);                                                                  \
        else                                                                                       \
            READ_BODY(REG, 4, ahead);                                                              \
    } while (0)

static void read_16(const struct read_pattern *p, const unsigned char *data, size_t n,
                    uint64_t *out)
{
    READ_STREAMS(reg16);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void
read_32(const struct read_pattern *p, const unsigned char *data, size_t n, uint64_t *out)
{
    READ_STREAMS(reg32);
}

__attribute__((target("avx512f"))) static void
read_64(const struct read_pattern *p, const unsigned char *data, size_t n, uint64_t *out)
{
    READ_STREAMS(reg64);
}
#endif

bool read_loop_possible(uint32_t width_bytes, uint64_t cpu_caps)
{
#if defined(__x86_64__)
    if (width_bytes == 64)
        return (cpu_caps & ATSI_CPU_AVX512F) != 0;
    if (width_bytes == 32)
        return (cpu_caps & ATSI_CPU_AVX2) != 0;
#else
    (void)cpu_caps;
#endif
    return width_bytes == 16;
}

uint64_t read_loop_run(const struct read_pattern *p, const unsigned char *data, size_t n)
{
    uint64_t out[8] = {0}, all = 0;
#if defined(__x86_64__)
    if (p->width_bytes == 64)
        read_64(p, data, n, out);
    else if (p->width_bytes == 32)
        read_32(p, data, n, out);
    else
#endif
        read_16(p, data, n, out);
    for (int i = 0; i < 8; i++)
        all |= out[i];
    return all;
}
