/* SPDX-License-Identifier: Apache-2.0
 *
 * The yardstick for prefill: multiply-adds per second when everything is in registers.  Twelve
 * independent accumulators hide the latency; the instructions are written as assembly, because a
 * compiler may fold what nobody reads.
 */
#include "cli/limits.h"

#include <stdlib.h>

#define TURNS 20000u /* some tenths of a millisecond */
#define PASSES 9

#if defined(__x86_64__)
/* Twelve times `ins` with its own accumulator; r: the name of the register file. */
#define TWELVE(ins, r)                                                                             \
    ins " %%" r "12, %%" r "13, %%" r "0\n\t" ins " %%" r "12, %%" r "13, %%" r "1\n\t" ins        \
        " %%" r "12, %%" r "13, %%" r "2\n\t" ins " %%" r "12, %%" r "13, %%" r "3\n\t" ins        \
        " %%" r "12, %%" r "13, %%" r "4\n\t" ins " %%" r "12, %%" r "13, %%" r "5\n\t" ins        \
        " %%" r "12, %%" r "13, %%" r "6\n\t" ins " %%" r "12, %%" r "13, %%" r "7\n\t" ins        \
        " %%" r "12, %%" r "13, %%" r "8\n\t" ins " %%" r "12, %%" r "13, %%" r "9\n\t" ins        \
        " %%" r "12, %%" r "13, %%" r "10\n\t" ins " %%" r "12, %%" r "13, %%" r "11\n\t"

/* Without a dot product of 8-bit integers, four of them take a multiply, a widening multiply and an
 * addition: six independent chains. */
#define PAIR(a, r, t)                                                                              \
    "vpmaddubsw %%" r "12, %%" r "13, %%" r t "\n\tvpmaddwd %%" r t ", %%" r "14, %%" r t          \
    "\n\tvpaddd %%" r t ", %%" r a ", %%" r a "\n\t"
#define SIX_PAIRS(r)                                                                               \
    PAIR("0", r, "6")                                                                              \
    PAIR("1", r, "7") PAIR("2", r, "8") PAIR("3", r, "9") PAIR("4", r, "10") PAIR("5", r, "11")

#define CLOBBERED                                                                                  \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",       \
        "xmm11", "xmm12", "xmm13", "xmm14"
/* Zeros: no number can grow or become a slow one. */
#define CLEAR "vzeroall\n\t"

#define LOOP(name, body)                                                                           \
    static void name(uint32_t n)                                                                   \
    {                                                                                              \
        __asm__ volatile(CLEAR "1:\n\t" body "dec %0\n\tjnz 1b\n\tvzeroupper"                      \
                         : "+r"(n)                                                                 \
                         :                                                                         \
                         : CLOBBERED, "cc");                                                       \
    }

LOOP(dot_512, TWELVE("vpdpbusd", "zmm"))
LOOP(dot_256, TWELVE("%{vex%} vpdpbusd", "ymm"))
LOOP(pairs_512, SIX_PAIRS("zmm"))
LOOP(pairs_256, SIX_PAIRS("ymm"))
LOOP(fma_512, TWELVE("vfmadd231ps", "zmm"))
LOOP(fma_256, TWELVE("vfmadd231ps", "ymm"))

static const struct loop {
    uint64_t caps;
    const char *name;
    void (*run)(uint32_t turns);
    uint32_t macs; /* of a turn */
    enum limit_math what;
} loops[] = {
    /* best first */
    {ATSI_CPU_AVX512VNNI, "vpdpbusd, 512-bit", dot_512, 12 * 64, LIMIT_INT8},
    {ATSI_CPU_AVX_VNNI, "vpdpbusd, 256-bit", dot_256, 12 * 32, LIMIT_INT8},
    {ATSI_CPU_AVX512BW, "vpmaddubsw and vpmaddwd, 512-bit", pairs_512, 6 * 64, LIMIT_INT8},
    {ATSI_CPU_AVX2, "vpmaddubsw and vpmaddwd, 256-bit", pairs_256, 6 * 32, LIMIT_INT8},
    {ATSI_CPU_AVX512F, "vfmadd, 512-bit", fma_512, 12 * 16, LIMIT_FMA},
    {ATSI_CPU_AVX2 | ATSI_CPU_FMA, "vfmadd, 256-bit", fma_256, 12 * 8, LIMIT_FMA},
};

static const struct loop *find(uint64_t cpu_caps, enum limit_math what)
{
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++)
        if (loops[i].what == what && (cpu_caps & loops[i].caps) == loops[i].caps)
            return &loops[i];
    return NULL;
}

static void run_loop(void *arg, struct atsi_worker *w)
{
    const struct loop *const *l = arg;
    (void)w;
    (*l)->run(TURNS);
}

double limit_gmacs(const struct atsi_runtime *rt, enum limit_math what)
{
    const struct atsi_host *host = atsi_runtime_host(rt);
    const struct loop *l = find(host->cpu_caps, what);
    uint64_t best = UINT64_MAX;
    if (l == NULL)
        return 0;
    for (int k = 0; k < PASSES; k++) {
        uint64_t start = host->now_ns(host->ctx), ns;
        if (host->region(host->ctx, run_loop, &l, 0) != ATSI_OK)
            return 0;
        ns = (host->now_ns(host->ctx) - start) | 1;
        best = ns < best ? ns : best;
    }
    return (double)l->macs * TURNS * host->n_threads(host->ctx) / (double)best;
}

const char *limit_math_name(uint64_t cpu_caps, enum limit_math what)
{
    const struct loop *l = find(cpu_caps, what);
    return l != NULL ? l->name : "not known for this CPU";
}
#else
double limit_gmacs(const struct atsi_runtime *rt, enum limit_math what)
{
    (void)rt;
    (void)what;
    return 0;
}

const char *limit_math_name(uint64_t cpu_caps, enum limit_math what)
{
    (void)cpu_caps;
    (void)what;
    return "not known for this CPU";
}
#endif

enum limit_math limit_math_of(uint32_t type)
{
    const struct atsi_type_info *ti = atsi_type_info(type);
    return ti != NULL && ti->block_elems > 1 ? LIMIT_INT8 : LIMIT_FMA;
}
