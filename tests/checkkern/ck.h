/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel checker: what its parts share.
 *
 * Every slot of every CPU plugin's kernel table is held against the definition of right: products
 * against integer block sums (of the reference decoders) accumulated in double, the other slots
 * against double arithmetic or the reference kernel.  Each check states its bound; u is 2^-24, the
 * unit roundoff of f32.  Inputs end at a page that cannot be touched, outputs are surrounded by
 * bytes that must survive, and inputs must be the same afterwards.
 */
#ifndef CK_H
#define CK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu_kernels.h"

#define CK_U (1.0 / 16777216.0) /* 2^-24 */
#define CK_TINY 0x1p-149        /* the smallest f32 */

/* One run of the checker over one table. */
struct ck {
    const char *isa;                       /* "avx512, no VNNI" */
    const char *slot;                      /* under test: "gemm" */
    const char *slot_wanted, *type_wanted; /* NULL: all */
    char what[160];                        /* the case under test, for messages */
    uint64_t random;                       /* state of the generator */
    uint64_t n_cases;                      /* since the slot began */
    uint32_t n_failed;                     /* since the slot began */
    double worst;                          /* largest error / bound since the slot began */
    double worst_s; /* of products with random data: largest error in units of u * S */
    bool quiet;     /* failures are expected: one is enough, and nothing is printed */
};

/* Counts a failure and prints the first few of a slot, with the case. */
void ck_fail(struct ck *c, const char *fmt, ...) ATSI_PRINTF(2, 3);
/* Names the case under test and counts it. */
void ck_case(struct ck *c, const char *fmt, ...) ATSI_PRINTF(2, 3);
/* value must be within bound of want; `at` and `at2` locate the element in a message. */
void ck_near(struct ck *c, size_t at, size_t at2, float value, double want, double bound);

/* ---------------------------------------------------------------- numbers (ck_data.c) */
uint64_t ck_random(struct ck *c);
/* Uniform in [-1, 1). */
float ck_unit(struct ck *c);

enum ck_mode {
    CK_RANDOM,
    CK_ZERO_W,
    CK_ZERO_X,
    CK_EXTREME,  /* codes at the ends of their ranges */
    CK_TINY_D,   /* scales and values that are subnormal numbers */
    CK_OUTLIERS, /* a few values a thousand times the others */
    CK_EXACT,    /* small integers: every order of additions gives the same result */
    CK_N_MODES
};
extern const char *const ck_mode_name[CK_N_MODES];

/* Fills n elements of weights (whole blocks) or n activations. */
void ck_fill_weights(struct ck *c, uint32_t type, enum ck_mode mode, void *w, size_t n);
void ck_fill_floats(struct ck *c, enum ck_mode mode, float *x, size_t n);

/* ---------------------------------------------------------------- memory (ck_mem.c) */
/* bytes that end at an inaccessible page, when `bytes` is a multiple of `align`; else less than
 * `align` bytes before it.  Everything around and inside starts as 0xff: NaN as floats. */
struct ck_mem {
    unsigned char *data;
    size_t bytes;
    void *map;
    size_t map_bytes;
    uint64_t hash;
};

/* Exits the program when there is no memory: the checker has nothing else to do. */
struct ck_mem ck_mem_open(size_t bytes, size_t align);
void ck_mem_close(struct ck_mem *m);
/* Remembers the contents; ck_mem_check() reports a change. */
void ck_mem_seal(struct ck_mem *m);
void ck_mem_check(struct ck *c, const struct ck_mem *m, const char *name);
/* The bytes around [data, data + bytes) must still be 0xff. */
void ck_mem_around(struct ck *c, const struct ck_mem *m, const char *name);
/* True when the element still has the pattern it was opened with. */
bool ck_untouched(const float *y);

/* Runs fn(c, arg); SIGSEGV, SIGBUS, SIGILL and SIGFPE become a failure of the case under test.
 * Also fails when fn changes rounding or the flush-to-zero mode. */
void ck_guarded(struct ck *c, void (*fn)(struct ck *c, const void *arg), const void *arg);

/* ---------------------------------------------------------------- activations (ck_act.c) */
/* An act whose rows lie in guarded memory, as the backend lays them out. */
struct ck_act {
    struct cpu_act act;
    struct ck_mem f, q, d, bsum;
};

struct ck_act ck_act_open(uint32_t k, uint32_t n_tok, uint32_t block);
void ck_act_close(struct ck_act *a);
/* Random rows of `mode`, rounded by the reference quantizers; values themselves for block 0. */
void ck_act_fill(struct ck *c, enum ck_mode mode, struct ck_act *a);
void ck_act_seal(struct ck_act *a);
void ck_act_check(struct ck *c, const struct ck_act *a);
struct cpu_act ck_act_part(const struct cpu_act *a, uint32_t first, uint32_t n_tok);
/* 0, 32 or 256: the activations that products of a type take. */
uint32_t ck_act_block(uint32_t type);

/* ---------------------------------------------------------------- one check per slot */
void ck_gemm(struct ck *c, cpu_gemm_fn *fn, uint32_t type);
/* rows: a product that must give the same bits, or NULL. */
void ck_gemm_panel(struct ck *c, cpu_gemm_panel_fn *fn, cpu_gemm_fn *rows, uint32_t type);
void ck_dequant(struct ck *c, void (*fn)(const void *w, float *y, uint32_t k), uint32_t type);
void ck_quant(struct ck *c, void (*fn)(const float *x, struct cpu_act *act, uint32_t t),
              uint32_t block);
void ck_rms_norm(struct ck *c, const struct cpu_kernels *k);
void ck_rope(struct ck *c, const struct cpu_kernels *k);
void ck_l2_norm(struct ck *c, const struct cpu_kernels *k);
void ck_swiglu(struct ck *c, const struct cpu_kernels *k);
void ck_swiglu_clamped(struct ck *c, const struct cpu_kernels *k);
void ck_gate(struct ck *c, const struct cpu_kernels *k);
void ck_add(struct ck *c, const struct cpu_kernels *k);
void ck_axpy(struct ck *c, const struct cpu_kernels *k);
void ck_store_f16(struct ck *c, const struct cpu_kernels *k);
void ck_store_q8_0(struct ck *c, const struct cpu_kernels *k);
void ck_attn(struct ck *c, const struct cpu_kernels *k);
void ck_topk(struct ck *c, const struct cpu_kernels *k);
void ck_conv(struct ck *c, const struct cpu_kernels *k);
void ck_delta(struct ck *c, const struct cpu_kernels *k);

/* Feeds kernels that are wrong in one way each to the checks; the number that went unnoticed. */
uint32_t ck_wrong(struct ck *c);

#endif
