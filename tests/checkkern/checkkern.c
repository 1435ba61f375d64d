/* SPDX-License-Identifier: Apache-2.0
 *
 * checkkern: holds every slot of every CPU plugin's kernel table against the reference, at each
 * capability mask this machine allows.
 *
 *   checkkern [--isa=NAME] [--fn=SLOT] [--type=TYPE] [--seed=N] [--list] [--prove] [-v]
 *
 * Exit: 0 all right, 1 a kernel is wrong, 2 usage, 77 nothing to check on this machine.
 */
#include "ck.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/cpu_caps.h"

#define SHOWN_FAILURES 5u
#define WARN_US 8.0 /* error of a product worth a look, in u S (ck_gemm.c) */

/* ---------------------------------------------------------------- reporting */
void ck_case(struct ck *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(c->what, sizeof c->what, fmt, ap);
    va_end(ap);
    c->n_cases++;
}

void ck_fail(struct ck *c, const char *fmt, ...)
{
    va_list ap;
    if (c->n_failed++ >= SHOWN_FAILURES || c->quiet)
        return;
    va_start(ap, fmt);
    (void)printf("FAILED %s: %s: ", c->isa, c->what);
    (void)vprintf(fmt, ap);
    (void)printf("\n");
    va_end(ap);
}

void ck_near(struct ck *c, size_t at, size_t at2, float value, double want, double bound)
{
    double error = fabs((double)value - want);
    if (error <= bound) {
        if (bound > 0 && error / bound > c->worst)
            c->worst = error / bound;
        return;
    }
    ck_fail(c, "element [%zu][%zu] = %.9g, want %.9g: off by %.3g, allowed %.3g", at, at2,
            (double)value, want, error, bound);
}

/* ---------------------------------------------------------------- tables */
void cpu_avx2_kernels(const struct atsi_host *host, struct cpu_kernels *out);
void cpu_avx512_kernels(const struct atsi_host *host, struct cpu_kernels *out);
void amx_emulated_kernels(const struct atsi_host *host, struct cpu_kernels *out);
void amx_kernels(const struct atsi_host *host, struct cpu_kernels *out);

void fill_panel_32_avx2_evex(struct cpu_kernels *out);
void fill_panel_k_avx2_evex(struct cpu_kernels *out);

#ifdef CK_HAVE_AVX2
/* The VNNI files of cpu_avx2, with AVX-512's encoding of the instruction. */
static void avx2_evex_kernels(const struct atsi_host *host, struct cpu_kernels *out)
{
    cpu_avx2_kernels(host, out);
    fill_panel_32_avx2_evex(out);
    fill_panel_k_avx2_evex(out);
}
#endif

static void ref_kernels(const struct atsi_host *host, struct cpu_kernels *out)
{
    (void)host;
    cpu_ref_kernels(out);
}

#define AVX2_CAPS (ATSI_CPU_AVX | ATSI_CPU_AVX2 | ATSI_CPU_FMA | ATSI_CPU_F16C | ATSI_CPU_BMI2)
#define AVX512_CAPS                                                                                \
    (AVX2_CAPS | ATSI_CPU_AVX512F | ATSI_CPU_AVX512BW | ATSI_CPU_AVX512DQ | ATSI_CPU_AVX512VL)

/* One table at one mask: what it needs, and what it must not see. */
static const struct table {
    const char *isa, *label;
    uint64_t needs, hides;
    void (*fill)(const struct atsi_host *host, struct cpu_kernels *out);
    bool same_bits; /* products with blocks do not depend on the layout of weights */
} tables[] = {
    {"ref", "ref", 0, 0, ref_kernels, true},
#ifdef CK_HAVE_AVX2
    {"avx2", "avx2, VNNI hidden", AVX2_CAPS, ATSI_CPU_AVX_VNNI, cpu_avx2_kernels, true},
    {"avx2", "avx2", AVX2_CAPS | ATSI_CPU_AVX_VNNI, 0, cpu_avx2_kernels, true},
    {"avx2", "avx2, EVEX VNNI", AVX512_CAPS | ATSI_CPU_AVX512VNNI, 0, avx2_evex_kernels, true},
#endif
#ifdef CK_HAVE_AVX512
    {"avx512", "avx512, VNNI hidden", AVX512_CAPS, ATSI_CPU_AVX512VNNI, cpu_avx512_kernels, true},
    {"avx512", "avx512", AVX512_CAPS | ATSI_CPU_AVX512VNNI, 0, cpu_avx512_kernels, true},
#endif
#ifdef CK_HAVE_AMX
    {"amx", "amx, tiles in C", AVX512_CAPS | ATSI_CPU_AVX512VNNI, 0, amx_emulated_kernels, true},
    {"amx", "amx", AVX512_CAPS | ATSI_CPU_AVX512VNNI | ATSI_CPU_AMX_INT8, 0, amx_kernels, true},
#endif
};
#define N_TABLES (sizeof tables / sizeof tables[0])

/* ---------------------------------------------------------------- slots already held right */
typedef void any_fn(void);

struct seen {
    any_fn *fn;
    const char *slot;
    uint32_t type;
};

static struct seen seen[1024];
static size_t n_seen;

static bool seen_before(any_fn *fn, const char *slot, uint32_t type)
{
    for (size_t i = 0; i < n_seen; i++)
        if (seen[i].fn == fn && seen[i].type == type && strcmp(seen[i].slot, slot) == 0)
            return true;
    if (n_seen < sizeof seen / sizeof seen[0])
        seen[n_seen++] = (struct seen){fn, slot, type};
    return false;
}

/* ---------------------------------------------------------------- running */
struct run {
    struct ck ck;
    bool list, verbose;
    uint64_t seed;
    const char *isa_wanted;
    uint32_t n_slots, n_bad, n_shared;
};

/* True when the slot is to be checked now; sets up its counters and its own random numbers, so that
 * a slot alone sees the same data as in a full run. */
static bool begin(struct run *r, const char *slot, uint32_t type, any_fn *fn)
{
    const struct atsi_type_info *ti = atsi_type_info(type);
    if ((r->ck.slot_wanted != NULL && strcmp(r->ck.slot_wanted, slot) != 0) ||
        (r->ck.type_wanted != NULL && (ti == NULL || strcasecmp(r->ck.type_wanted, ti->name) != 0)))
        return false;
    if (seen_before(fn, slot, type)) {
        r->n_shared++;
        return false;
    }
    r->n_slots++;
    if (r->list)
        (void)printf("%s\t%s%s%s\n", r->ck.isa, slot, ti != NULL ? "\t" : "",
                     ti != NULL ? ti->name : "");
    r->ck.slot = slot;
    r->ck.random = r->seed;
    r->ck.n_cases = r->ck.n_failed = 0;
    r->ck.worst = r->ck.worst_s = 0;
    return !r->list;
}

static void end(struct run *r, uint32_t type)
{
    const struct atsi_type_info *ti = atsi_type_info(type);
    r->n_bad += r->ck.n_failed > 0 ? 1 : 0;
    if (r->verbose || r->ck.n_failed > 0)
        (void)printf("%-20s %-14s %-8s %6llu cases, worst %.3f of the bound, %.1f u S%s\n",
                     r->ck.isa, r->ck.slot, ti != NULL ? ti->name : "",
                     (unsigned long long)r->ck.n_cases, r->ck.worst, r->ck.worst_s,
                     r->ck.n_failed > 0 ? "  WRONG" : "");
    if (r->ck.worst_s > WARN_US && r->ck.n_failed == 0)
        (void)printf("warning: %s %s %s is %.1f u S off\n", r->ck.isa, r->ck.slot,
                     ti != NULL ? ti->name : "", r->ck.worst_s);
    (void)fflush(stdout);
}

#define NO_TYPE ATSI_TYPE_COUNT

static void check_types(struct run *r, const struct cpu_kernels *k, bool same_bits)
{
    for (uint32_t t = 0; t < ATSI_TYPE_COUNT; t++) {
        if (k->gemm[t] != NULL && begin(r, "gemm", t, (any_fn *)k->gemm[t])) {
            ck_gemm(&r->ck, k->gemm[t], t);
            end(r, t);
        }
        if (k->gemm_panel[t] != NULL && begin(r, "gemm_panel", t, (any_fn *)k->gemm_panel[t])) {
            bool same = same_bits && atsi_type_info(t)->block_elems > 1;
            ck_gemm_panel(&r->ck, k->gemm_panel[t], same ? k->gemm[t] : NULL, t);
            end(r, t);
        }
        if (k->dequant[t] != NULL && begin(r, "dequant", t, (any_fn *)k->dequant[t])) {
            ck_dequant(&r->ck, k->dequant[t], t);
            end(r, t);
        }
    }
    if (begin(r, "quant_32", NO_TYPE, (any_fn *)k->quant_32)) {
        ck_quant(&r->ck, k->quant_32, 32);
        end(r, NO_TYPE);
    }
    if (begin(r, "quant_256", NO_TYPE, (any_fn *)k->quant_256)) {
        ck_quant(&r->ck, k->quant_256, 256);
        end(r, NO_TYPE);
    }
}

static void check_ops(struct run *r, const struct cpu_kernels *k)
{
    const struct {
        const char *slot;
        any_fn *fn;
        void (*check)(struct ck *c, const struct cpu_kernels *k);
    } ops[] = {{"rms_norm", (any_fn *)k->rms_norm, ck_rms_norm},
               {"rope", (any_fn *)k->rope, ck_rope},
               {"l2_norm", (any_fn *)k->l2_norm, ck_l2_norm},
               {"swiglu", (any_fn *)k->swiglu, ck_swiglu},
               {"swiglu_clamped", (any_fn *)k->swiglu_clamped, ck_swiglu_clamped},
               {"gate", (any_fn *)k->gate, ck_gate},
               {"add", (any_fn *)k->add, ck_add},
               {"axpy", (any_fn *)k->axpy, ck_axpy},
               {"store_f16", (any_fn *)k->store_f16, ck_store_f16},
               {"store_q8_0", (any_fn *)k->store_q8_0, ck_store_q8_0},
               {"attn", (any_fn *)k->attn, ck_attn},
               {"topk", (any_fn *)k->topk, ck_topk},
               {"conv", (any_fn *)k->conv, ck_conv},
               {"delta", (any_fn *)k->delta, ck_delta}};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (begin(r, ops[i].slot, NO_TYPE, ops[i].fn)) {
            ops[i].check(&r->ck, k);
            end(r, NO_TYPE);
        }
}

/* Every type the library knows must have a product and a dequantizer in every table. */
static void check_complete(struct run *r, const struct cpu_kernels *k)
{
    for (uint32_t t = 0; t < ATSI_TYPE_COUNT; t++)
        if (atsi_type_info(t) != NULL && t != ATSI_TYPE_I32 &&
            (k->gemm[t] == NULL || k->gemm_panel[t] == NULL || k->dequant[t] == NULL)) {
            (void)printf("FAILED %s: no kernel for %s\n", r->ck.isa, atsi_type_info(t)->name);
            r->n_bad++;
        }
}

static void check_table(struct run *r, const struct table *t, uint64_t caps)
{
    struct atsi_host host = {.struct_size = sizeof host, .cpu_caps = caps & ~t->hides};
    struct cpu_kernels k;
    if (r->isa_wanted != NULL && strcmp(r->isa_wanted, t->isa) != 0)
        return;
    if ((caps & t->needs) != t->needs) {
        char names[256];
        (void)atsi_cpu_caps_text(t->needs & ~caps, names, sizeof names);
        (void)printf("%-20s skipped: this CPU or OS does not offer %s\n", t->label, names);
        return;
    }
    r->ck.isa = t->label;
    t->fill(&host, &k);
    check_complete(r, &k);
    check_types(r, &k, t->same_bits);
    check_ops(r, &k);
}

/* ---------------------------------------------------------------- command line */
static const char *value_of(const char *arg, const char *name)
{
    size_t n = strlen(name);
    return strncmp(arg, name, n) == 0 && arg[n] == '=' ? arg + n + 1 : NULL;
}

static bool parse(struct run *r, const char *arg, bool *prove)
{
    const char *v;
    if ((v = value_of(arg, "--isa")) != NULL) {
        r->isa_wanted = v;
    } else if ((v = value_of(arg, "--fn")) != NULL) {
        r->ck.slot_wanted = v;
    } else if ((v = value_of(arg, "--type")) != NULL) {
        r->ck.type_wanted = v;
    } else if ((v = value_of(arg, "--seed")) != NULL) {
        char *rest;
        errno = 0;
        r->seed = strtoull(v, &rest, 0);
        return errno == 0 && *v != '\0' && *rest == '\0';
    } else if (strcmp(arg, "--list") == 0) {
        r->list = true;
    } else if (strcmp(arg, "--prove") == 0) {
        *prove = true;
    } else if (strcmp(arg, "-v") == 0) {
        r->verbose = true;
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct run r = {.seed = 1};
    struct atsi_cpu_caps caps;
    bool prove = false;
    for (int i = 1; i < argc; i++)
        if (!parse(&r, argv[i], &prove)) {
            (void)fprintf(stderr,
                          "checkkern: unknown argument %s\nusage: checkkern [--isa=NAME] "
                          "[--fn=SLOT] [--type=TYPE] [--seed=N] [--list] [--prove] [-v]\n",
                          argv[i]);
            return 2;
        }
    r.ck.random = r.seed;
    if (prove) {
        r.ck.isa = "wrong on purpose";
        return ck_wrong(&r.ck) == 0 ? 0 : 1;
    }
    atsi_cpu_caps_detect(&caps);
    for (size_t i = 0; i < N_TABLES; i++)
        check_table(&r, &tables[i], caps.caps);
    if (!r.list)
        (void)printf(
            "%u slots checked, %u wrong, %u shared with a table checked before; seed %llu\n",
            r.n_slots, r.n_bad, r.n_shared, (unsigned long long)r.seed);
    if (r.n_bad > 0)
        return 1;
    return r.n_slots > 0 ? 0 : 77;
}
