/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU capabilities: which of the ATSI_CPU_* instruction sets may be executed, and which of them are
 * legal but slow here (ATSI_TUNE_*).
 *
 * An instruction set counts when CPUID reports it, the operating system saves its registers (XCR0)
 * and everything that it builds on counts too.  CPUID is read from the running processor or from a
 * recorded dump; both pass through the same decoder.  Bit positions: Intel SDM volume 2A, CPUID;
 * volume 1, 13.3 (XCR0); AMD APM volume 3, appendix E.
 */
#include "core/cpu_caps.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum reg { EAX, EBX, ECX, EDX };

/* XCR0: the register state that the operating system saves. */
#define XCR0_AVX ((UINT64_C(1) << 1) | (UINT64_C(1) << 2)) /* XMM, YMM */
#define XCR0_AVX512 (XCR0_AVX | (UINT64_C(1) << 5) | (UINT64_C(1) << 6) | (UINT64_C(1) << 7))
#define XCR0_AMX ((UINT64_C(1) << 17) | (UINT64_C(1) << 18)) /* tile configuration, tile data */

#define LEAF1_ECX_OSXSAVE (1u << 27)

/* Where each capability is reported, the state it needs saved, and what it builds on.  `needs` also
 * says what goes when the user masks something: AVX-512 kernels use FMA and F16C forms, and no
 * processor has tiles without AVX-512, so pretending otherwise would describe no machine. */
static const struct cap {
    const char *name;
    uint64_t bit;
    uint32_t leaf, subleaf;
    enum reg reg;
    uint32_t shift;
    uint64_t xcr0, needs;
} cap_table[] = {
    {"sse42", ATSI_CPU_SSE42, 1, 0, ECX, 20, 0, 0},
    {"avx", ATSI_CPU_AVX, 1, 0, ECX, 28, XCR0_AVX, ATSI_CPU_SSE42},
    {"f16c", ATSI_CPU_F16C, 1, 0, ECX, 29, XCR0_AVX, ATSI_CPU_AVX},
    {"fma", ATSI_CPU_FMA, 1, 0, ECX, 12, XCR0_AVX, ATSI_CPU_AVX},
    {"avx2", ATSI_CPU_AVX2, 7, 0, EBX, 5, XCR0_AVX, ATSI_CPU_AVX},
    {"bmi2", ATSI_CPU_BMI2, 7, 0, EBX, 8, 0, 0},
    {"avx_vnni", ATSI_CPU_AVX_VNNI, 7, 1, EAX, 4, XCR0_AVX, ATSI_CPU_AVX2},
    {"avx512f", ATSI_CPU_AVX512F, 7, 0, EBX, 16, XCR0_AVX512,
     ATSI_CPU_AVX2 | ATSI_CPU_FMA | ATSI_CPU_F16C},
    {"avx512bw", ATSI_CPU_AVX512BW, 7, 0, EBX, 30, XCR0_AVX512, ATSI_CPU_AVX512F},
    {"avx512dq", ATSI_CPU_AVX512DQ, 7, 0, EBX, 17, XCR0_AVX512, ATSI_CPU_AVX512F},
    {"avx512vl", ATSI_CPU_AVX512VL, 7, 0, EBX, 31, XCR0_AVX512, ATSI_CPU_AVX512F},
    {"avx512vnni", ATSI_CPU_AVX512VNNI, 7, 0, ECX, 11, XCR0_AVX512, ATSI_CPU_AVX512F},
    {"avx512vbmi", ATSI_CPU_AVX512VBMI, 7, 0, ECX, 1, XCR0_AVX512, ATSI_CPU_AVX512BW},
    {"avx512bf16", ATSI_CPU_AVX512BF16, 7, 1, EAX, 5, XCR0_AVX512, ATSI_CPU_AVX512BW},
    {"avx512fp16", ATSI_CPU_AVX512FP16, 7, 0, EDX, 23, XCR0_AVX512, ATSI_CPU_AVX512BW},
    {"amx_tile", ATSI_CPU_AMX_TILE, 7, 0, EDX, 24, XCR0_AMX, ATSI_CPU_AVX512F},
    {"amx_int8", ATSI_CPU_AMX_INT8, 7, 0, EDX, 25, XCR0_AMX, ATSI_CPU_AMX_TILE},
    {"amx_bf16", ATSI_CPU_AMX_BF16, 7, 0, EDX, 22, XCR0_AMX, ATSI_CPU_AMX_TILE},
};
#define N_CAPS (sizeof cap_table / sizeof cap_table[0])

/* Names that stand for several capabilities in a mask; "none" keeps the baseline only. */
static const struct {
    const char *name;
    uint64_t bits;
} group_table[] = {
    {"avx512", ATSI_CPU_AVX512F | ATSI_CPU_AVX512BW | ATSI_CPU_AVX512DQ | ATSI_CPU_AVX512VL |
                   ATSI_CPU_AVX512VNNI | ATSI_CPU_AVX512VBMI | ATSI_CPU_AVX512BF16 |
                   ATSI_CPU_AVX512FP16},
    {"amx", ATSI_CPU_AMX_TILE | ATSI_CPU_AMX_INT8 | ATSI_CPU_AMX_BF16},
    {"none", 0},
};
#define N_GROUPS (sizeof group_table / sizeof group_table[0])

/* ---------------------------------------------------------------- where CPUID comes from */

#define MAX_LEAVES 512u

struct leaf {
    uint32_t leaf, subleaf, r[4];
};

/* A recorded processor; the running one when `leaves` is NULL. */
struct source {
    struct leaf *leaves;
    size_t n;
    uint64_t xcr0;
    bool has_xcr0;
};

static void read_recorded(const struct source *s, uint32_t leaf, uint32_t subleaf, uint32_t r[4])
{
    memset(r, 0, 4 * sizeof r[0]);
    for (size_t i = 0; i < s->n; i++)
        if (s->leaves[i].leaf == leaf && s->leaves[i].subleaf == subleaf)
            memcpy(r, s->leaves[i].r, 4 * sizeof r[0]);
}

#if defined(__x86_64__)
static void read_running(uint32_t leaf, uint32_t subleaf, uint32_t r[4])
{
    __cpuid_count(leaf, subleaf, r[EAX], r[EBX], r[ECX], r[EDX]);
}

static uint64_t running_xcr0(void)
{
    uint32_t lo, hi;
    /* Legal because the caller saw OSXSAVE; the intrinsic would need -mxsave for this file. */
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return ((uint64_t)hi << 32) | lo;
}
#else
static void read_running(uint32_t leaf, uint32_t subleaf, uint32_t r[4])
{
    (void)leaf;
    (void)subleaf;
    memset(r, 0, 4 * sizeof r[0]);
}

static uint64_t running_xcr0(void)
{
    return 0;
}
#endif

/* Zeros beyond the highest leaf: Intel processors answer there with an unrelated leaf. */
static void read_leaf(const struct source *s, uint32_t leaf, uint32_t subleaf, uint32_t r[4])
{
    uint32_t top[4];
    if (s->leaves != NULL) {
        read_recorded(s, leaf & 0x80000000u, 0, top);
        read_recorded(s, leaf, subleaf, r);
    } else {
        read_running(leaf & 0x80000000u, 0, top);
        read_running(leaf, subleaf, r);
    }
    if (leaf > top[EAX])
        memset(r, 0, 4 * sizeof r[0]);
}

/* ---------------------------------------------------------------- decoding */

/* Drops, until nothing changes, what builds on something that is not there. */
static uint64_t drop_dependents(uint64_t caps)
{
    uint64_t before;
    do {
        before = caps;
        for (size_t i = 0; i < N_CAPS; i++)
            if ((cap_table[i].needs & ~caps) != 0)
                caps &= ~cap_table[i].bit;
    } while (caps != before);
    return caps;
}

static uint64_t decode_caps(const struct source *s)
{
    uint32_t leaf1[4], r[4], leaf7[4];
    uint64_t caps = 0, xcr0 = 0;
    read_leaf(s, 1, 0, leaf1);
    read_leaf(s, 7, 0, leaf7);
    if ((leaf1[ECX] & LEAF1_ECX_OSXSAVE) != 0)
        xcr0 = s->leaves != NULL ? s->xcr0 : running_xcr0();
    for (size_t i = 0; i < N_CAPS; i++) {
        const struct cap *c = &cap_table[i];
        if (c->leaf == 7 && c->subleaf > leaf7[EAX])
            continue; /* leaf 7 has no such subleaf here */
        read_leaf(s, c->leaf, c->subleaf, r);
        if (((r[c->reg] >> c->shift) & 1u) != 0 && (xcr0 & c->xcr0) == c->xcr0)
            caps |= c->bit;
    }
    return drop_dependents(caps);
}

/* "GenuineIntel": EBX, EDX, ECX of leaf 0. */
static void decode_vendor(const struct source *s, char vendor[13])
{
    uint32_t r[4];
    read_leaf(s, 0, 0, r);
    memcpy(vendor, &r[EBX], 4);
    memcpy(vendor + 4, &r[EDX], 4);
    memcpy(vendor + 8, &r[ECX], 4);
    vendor[12] = '\0';
}

/* Family and model of leaf 1 EAX: [27:20] extended family, [19:16] extended model, [11:8] family,
 * [7:4] model, [3:0] stepping. */
static void decode_signature(const struct source *s, struct atsi_cpu_caps *out)
{
    uint32_t r[4];
    read_leaf(s, 1, 0, r);
    uint32_t family = (r[EAX] >> 8) & 0xfu, model = (r[EAX] >> 4) & 0xfu;
    if (family == 6 || family == 15)
        model |= ((r[EAX] >> 16) & 0xfu) << 4;
    if (family == 15)
        family += (r[EAX] >> 20) & 0xffu;
    out->family = family;
    out->model = model;
    out->stepping = r[EAX] & 0xfu;
}

/* Marketing name in leaves 0x80000002..4; printable and trimmed. */
static void decode_brand(const struct source *s, char brand[49])
{
    char raw[49] = "";
    size_t begin = 0, end;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t r[4];
        read_leaf(s, 0x80000002u + i, 0, r);
        memcpy(raw + 16 * (size_t)i, r, 16);
    }
    end = strlen(raw);
    while (end > 0 && raw[end - 1] == ' ')
        end--;
    while (begin < end && raw[begin] == ' ')
        begin++;
    for (size_t i = begin; i < end; i++)
        brand[i - begin] = (char)(isprint((unsigned char)raw[i]) ? raw[i] : '?');
    brand[end - begin] = '\0';
}

static bool is_one_of(uint32_t x, const uint32_t *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == x)
            return true;
    return false;
}

/* Gathers that are slower than scalar loads and inserts: AMD up to Zen 4 (microcoded, about 40
 * micro-operations for eight elements), Haswell (likewise), and the Intel cores whose microcode
 * serialises gathers against Gather Data Sampling (Intel advisory SA-00828: Skylake to Tiger and
 * Rocket Lake).  That microcode cannot be seen from user code; it is assumed to be loaded. */
static bool gathers_slowly(const struct atsi_cpu_caps *c)
{
    static const uint32_t intel[] = {0x3c, 0x3f, 0x45, 0x46, 0x4e, 0x5e, 0x55, 0x8e, 0x9e,
                                     0xa5, 0xa6, 0x6a, 0x6c, 0x7d, 0x7e, 0x8c, 0x8d, 0xa7};
    if ((c->caps & ATSI_CPU_AVX2) == 0)
        return false;
    if (strcmp(c->vendor, "AuthenticAMD") == 0 || strcmp(c->vendor, "HygonGenuine") == 0)
        return c->family <= 0x19;
    return strcmp(c->vendor, "GenuineIntel") == 0 && c->family == 6 &&
           is_one_of(c->model, intel, sizeof intel / sizeof intel[0]);
}

/* 512-bit code that loses to 256-bit code: Intel server cores before VNNI (Skylake-SP and -X,
 * Cannon Lake) lower their clock under it and gain no new instruction for it.  Zen 4 runs it on
 * 256-bit units too, but at full clock and with half the instructions to decode, which is a gain.
 */
static bool slow_at_512(const struct atsi_cpu_caps *c)
{
    return strcmp(c->vendor, "GenuineIntel") == 0 && (c->caps & ATSI_CPU_AVX512BW) != 0 &&
           (c->caps & ATSI_CPU_AVX512VNNI) == 0;
}

static void decode(const struct source *s, struct atsi_cpu_caps *out)
{
    memset(out, 0, sizeof *out);
    out->caps = decode_caps(s);
    decode_vendor(s, out->vendor);
    decode_signature(s, out);
    decode_brand(s, out->brand);
    out->tune = (gathers_slowly(out) ? ATSI_TUNE_SLOW_GATHER : 0) |
                (slow_at_512(out) ? ATSI_TUNE_SLOW_512 : 0);
}

void atsi_cpu_caps_detect(struct atsi_cpu_caps *out)
{
    static const struct source running;
    decode(&running, out);
}

uint64_t atsi_cpu_caps_here(void)
{
    struct atsi_cpu_caps here;
    atsi_cpu_caps_detect(&here);
    return here.caps;
}

/* ---------------------------------------------------------------- recorded dumps */

/* Reads 1..max_digits hex digits (0x allowed) and the blanks around them; NULL when there are none
 * or too many. */
static const char *take_hex(const char *p, unsigned max_digits, uint64_t *out)
{
    unsigned digits = 0;
    p += strspn(p, " \t");
    if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
        p += 2;
    *out = 0;
    for (; isxdigit((unsigned char)*p); p++, digits++) {
        int c = tolower((unsigned char)*p);
        if (digits == max_digits)
            return NULL;
        *out = *out * 16 + (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (digits == 0 || (*p != '\0' && strchr(" \t", *p) == NULL))
        return NULL;
    return p + strspn(p, " \t");
}

static int take_xcr0(struct source *s, const char *p, const char *path, unsigned line,
                     struct atsi_err *err)
{
    uint64_t v;
    p = take_hex(p, 16, &v);
    if (p == NULL || *p != '\0')
        return atsi_fail(err, ATSI_EFORMAT, "%s:%u: XCR0: expected one hexadecimal number", path,
                         line);
    if (s->has_xcr0)
        return atsi_fail(err, ATSI_EFORMAT, "%s:%u: a second XCR0 line; keep one", path, line);
    s->xcr0 = v;
    s->has_xcr0 = true;
    return ATSI_OK;
}

static int take_leaf(struct source *s, const char *p, const char *path, unsigned line,
                     struct atsi_err *err)
{
    uint64_t v[6];
    const char *text = p;
    for (unsigned i = 0; i < 6 && p != NULL; i++)
        p = take_hex(p, 8, &v[i]);
    if (p == NULL || *p != '\0')
        return atsi_fail(err, ATSI_EFORMAT,
                         "%s:%u: expected \"LEAF SUBLEAF EAX EBX ECX EDX\" in hexadecimal, found "
                         "\"%.80s\"",
                         path, line, text);
    if (s->n == MAX_LEAVES)
        return atsi_fail(err, ATSI_EFORMAT, "%s:%u: more than %u leaves", path, line, MAX_LEAVES);
    for (size_t i = 0; i < s->n; i++)
        if (s->leaves[i].leaf == v[0] && s->leaves[i].subleaf == v[1])
            return atsi_fail(err, ATSI_EFORMAT, "%s:%u: leaf %llx.%llx is already given", path,
                             line, (unsigned long long)v[0], (unsigned long long)v[1]);
    s->leaves[s->n++] =
        (struct leaf){(uint32_t)v[0],
                      (uint32_t)v[1],
                      {(uint32_t)v[2], (uint32_t)v[3], (uint32_t)v[4], (uint32_t)v[5]}};
    return ATSI_OK;
}

/* `text` has no newline; comments and empty lines pass. */
static int take_line(struct source *s, char *text, const char *path, unsigned line,
                     struct atsi_err *err)
{
    size_t n;
    text[strcspn(text, "#")] = '\0';
    n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        text[--n] = '\0';
    text += strspn(text, " \t");
    if (*text == '\0')
        return ATSI_OK;
    if (strncmp(text, "XCR0", 4) == 0 && strchr(" \t", text[4]) != NULL)
        return take_xcr0(s, text + 4, path, line, err);
    return take_leaf(s, text, path, line, err);
}

static int check_dump(const struct source *s, const char *path, struct atsi_err *err)
{
    uint32_t r[4];
    read_leaf(s, 0, 0, r);
    if (r[EAX] == 0)
        return atsi_fail(err, ATSI_EFORMAT,
                         "%s: leaf 0 (vendor, highest leaf) is missing or zero; record all leaves",
                         path);
    read_leaf(s, 1, 0, r);
    if (r[EAX] == 0)
        return atsi_fail(err, ATSI_EFORMAT, "%s: leaf 1 (signature, features) is missing or zero",
                         path);
    if ((r[ECX] & LEAF1_ECX_OSXSAVE) != 0 && !s->has_xcr0)
        return atsi_fail(err, ATSI_EFORMAT,
                         "%s: leaf 1 says OSXSAVE but there is no XCR0 line; add \"XCR0 VALUE\"",
                         path);
    return ATSI_OK;
}

static int read_dump(FILE *f, const char *path, struct source *s, struct atsi_err *err)
{
    char text[512];
    for (unsigned line = 1; fgets(text, sizeof text, f) != NULL; line++) {
        size_t n = strlen(text);
        int rc;
        if (n + 1 == sizeof text && text[n - 1] != '\n')
            return atsi_fail(err, ATSI_EFORMAT, "%s:%u: longer than %zu bytes", path, line,
                             sizeof text - 2);
        rc = take_line(s, text, path, line, err);
        if (rc != ATSI_OK)
            return rc;
    }
    if (ferror(f) != 0)
        return atsi_fail(err, ATSI_EIO, "%s: cannot be read: %s", path, strerror(errno));
    return check_dump(s, path, err);
}

int atsi_cpu_caps_from_dump(const char *path, struct atsi_cpu_caps *out, struct atsi_err *err)
{
    struct source s = {0};
    FILE *f = fopen(path, "re");
    int rc;
    if (f == NULL)
        return atsi_fail(err, ATSI_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    s.leaves = calloc(MAX_LEAVES, sizeof *s.leaves);
    rc = s.leaves == NULL ? atsi_fail(err, ATSI_ENOMEM, "out of memory reading %s", path)
                          : read_dump(f, path, &s, err);
    if (rc == ATSI_OK)
        decode(&s, out);
    free(s.leaves);
    (void)fclose(f); /* opened for reading: nothing can be lost */
    return rc;
}

/* ---------------------------------------------------------------- names and masks */

int atsi_cpu_caps_text(uint64_t caps, char *buf, size_t size)
{
    size_t len = 0;
    if (size > 0)
        buf[0] = '\0';
    for (size_t i = 0; i < N_CAPS; i++) {
        if ((caps & cap_table[i].bit) == 0)
            continue;
        int n = snprintf(len < size ? buf + len : NULL, len < size ? size - len : 0, "%s%s",
                         len > 0 ? " " : "", cap_table[i].name);
        len += n > 0 ? (size_t)n : 0;
    }
    return (int)len;
}

/* Names match whatever their case and without '_' and '.': the kernel writes avx512_vnni and
 * sse4_2. */
static bool same_name(const char *word, size_t len, const char *name)
{
    size_t i = 0;
    for (; *name != '\0'; name++) {
        if (*name == '_')
            continue;
        while (i < len && (word[i] == '_' || word[i] == '.'))
            i++;
        if (i == len || tolower((unsigned char)word[i]) != *name)
            return false;
        i++;
    }
    while (i < len && (word[i] == '_' || word[i] == '.'))
        i++;
    return i == len;
}

static bool find_bits(const char *word, size_t len, uint64_t *bits_out)
{
    for (size_t i = 0; i < N_CAPS; i++)
        if (same_name(word, len, cap_table[i].name)) {
            *bits_out = cap_table[i].bit;
            return true;
        }
    for (size_t i = 0; i < N_GROUPS; i++)
        if (same_name(word, len, group_table[i].name)) {
            *bits_out = group_table[i].bits;
            return true;
        }
    return false;
}

static int unknown_name(const char *word, size_t len, struct atsi_err *err)
{
    char given[64], all[256];
    const char *best = NULL;
    uint32_t best_distance = 4; /* at most three slips */
    (void)snprintf(given, sizeof given, "%.*s", len < 63 ? (int)len : 63, word);
    for (size_t i = 0; i < N_CAPS + N_GROUPS; i++) {
        const char *name = i < N_CAPS ? cap_table[i].name : group_table[i - N_CAPS].name;
        uint32_t d = atsi_edit_distance(given, name);
        if (d < best_distance) {
            best_distance = d;
            best = name;
        }
    }
    if (best != NULL)
        return atsi_fail(err, ATSI_ECONF, "unknown CPU capability \"%s\"; did you mean %s?", given,
                         best);
    (void)atsi_cpu_caps_text(UINT64_MAX, all, sizeof all);
    return atsi_fail(err, ATSI_ECONF, "unknown CPU capability \"%s\"; known: %s", given, all);
}

/* `bits` and all they build on, so that naming avx2 alone does not lose it for want of avx. */
static uint64_t with_needs(uint64_t bits)
{
    uint64_t before;
    do {
        before = bits;
        for (size_t i = 0; i < N_CAPS; i++)
            if ((cap_table[i].bit & bits) != 0)
                bits |= cap_table[i].needs;
    } while (bits != before);
    return bits;
}

int atsi_cpu_caps_mask(uint64_t caps, const char *mask, uint64_t *out, struct atsi_err *err)
{
    static const char separators[] = ", \t";
    uint64_t keep = 0, remove = 0;
    bool keeps = false;
    for (const char *p = mask + strspn(mask, separators); *p != '\0'; p += strspn(p, separators)) {
        bool minus = *p == '-';
        uint64_t bits;
        size_t len;
        p += minus;
        len = strcspn(p, separators);
        if (!find_bits(p, len, &bits))
            return unknown_name(p, len, err);
        if (minus)
            remove |= bits;
        else
            keep |= bits;
        keeps = keeps || !minus;
        p += len;
    }
    if (keeps)
        caps &= with_needs(keep);
    *out = drop_dependents(caps & ~remove);
    return ATSI_OK;
}
