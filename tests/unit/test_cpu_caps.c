/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU capabilities: dumps of known processors decode to what those processors can run, masks remove
 * what the user asked for and all that builds on it, malformed dumps are refused with their line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cpu_caps.h"

#define AVX2_SET "sse42 avx f16c fma avx2 bmi2"
#define AVX512_SET AVX2_SET " avx512f avx512bw avx512dq avx512vl"

static const struct machine {
    const char *file, *vendor, *brand, *caps;
    uint32_t family, model, stepping;
    uint64_t tune;
} machines[] = {
    {"k8", "AuthenticAMD", "AMD Athlon(tm) 64 Processor 3200+", "", 15, 0x2f, 0, 0},
    {"haswell", "GenuineIntel", "Intel(R) Core(TM) i7-4770 CPU @ 3.40GHz", AVX2_SET, 6, 0x3c, 3,
     ATSI_TUNE_SLOW_GATHER},
    {"skylake-x", "GenuineIntel", "Intel(R) Core(TM) i9-7900X CPU @ 3.30GHz", AVX512_SET, 6, 0x55,
     4, ATSI_TUNE_SLOW_GATHER | ATSI_TUNE_SLOW_512},
    {"cascade-lake", "GenuineIntel", "Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz",
     AVX512_SET " avx512vnni", 6, 0x55, 7, ATSI_TUNE_SLOW_GATHER},
    {"ice-lake", "GenuineIntel", "Intel(R) Core(TM) i7-1065G7 CPU @ 1.30GHz",
     AVX512_SET " avx512vnni avx512vbmi", 6, 0x7e, 5, ATSI_TUNE_SLOW_GATHER},
    {"ice-lake-no-zmm", "GenuineIntel", "Intel(R) Core(TM) i7-1065G7 CPU @ 1.30GHz", AVX2_SET, 6,
     0x7e, 5, ATSI_TUNE_SLOW_GATHER},
    {"ice-lake-no-avx", "GenuineIntel", "Intel(R) Core(TM) i7-1065G7 CPU @ 1.30GHz", "sse42 bmi2",
     6, 0x7e, 5, 0},
    {"alder-lake", "GenuineIntel", "12th Gen Intel(R) Core(TM) i9-12900K", AVX2_SET " avx_vnni", 6,
     0x97, 2, 0},
    {"zen3", "AuthenticAMD", "AMD Ryzen 9 5950X 16-Core Processor", AVX2_SET, 0x19, 0x21, 0,
     ATSI_TUNE_SLOW_GATHER},
    {"zen4", "AuthenticAMD", "AMD Ryzen 9 7950X 16-Core Processor",
     AVX512_SET " avx512vnni avx512vbmi avx512bf16", 0x19, 0x61, 2, ATSI_TUNE_SLOW_GATHER},
    {"epyc-genoa-kvm", "AuthenticAMD", "AMD EPYC", AVX512_SET " avx512vnni avx512vbmi avx512bf16",
     0x19, 0x11, 1, ATSI_TUNE_SLOW_GATHER},
    {"sapphire-rapids", "GenuineIntel", "Intel(R) Xeon(R) Platinum 8480+",
     AVX2_SET " avx_vnni avx512f avx512bw avx512dq avx512vl avx512vnni avx512vbmi avx512bf16 "
              "avx512fp16 amx_tile amx_int8 amx_bf16",
     6, 0x8f, 8, 0},
    {"sapphire-rapids-no-tiles", "GenuineIntel", "Intel(R) Xeon(R) Platinum 8480+",
     AVX2_SET " avx_vnni avx512f avx512bw avx512dq avx512vl avx512vnni avx512vbmi avx512bf16 "
              "avx512fp16",
     6, 0x8f, 8, 0},
};

static void recorded_processors_decode(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        const struct machine *m = &machines[i];
        struct atsi_err err = ATSI_ERR_INIT;
        struct atsi_cpu_caps c;
        char path[512], text[512];
        (void)snprintf(path, sizeof path, "%s/tests/data/cpuid/%s.txt", ATSI_SOURCE_DIR, m->file);
        assert_int_equal(atsi_cpu_caps_from_dump(path, &c, &err), ATSI_OK);
        (void)atsi_cpu_caps_text(c.caps, text, sizeof text);
        assert_string_equal(text, m->caps);
        assert_string_equal(c.vendor, m->vendor);
        assert_string_equal(c.brand, m->brand);
        assert_int_equal(c.family, m->family);
        assert_int_equal(c.model, m->model);
        assert_int_equal(c.stepping, m->stepping);
        assert_int_equal(c.tune, m->tune);
    }
}

/* The compiler's own view of the running processor, where it has one. */
static void running_processor_agrees_with_the_compiler(void **state)
{
    struct atsi_cpu_caps c;
    (void)state;
    atsi_cpu_caps_detect(&c);
    assert_int_equal(c.caps, atsi_cpu_caps_here());
#if defined(__x86_64__)
    static const uint64_t checked = ATSI_CPU_SSE42 | ATSI_CPU_AVX | ATSI_CPU_FMA | ATSI_CPU_AVX2 |
                                    ATSI_CPU_AVX512F | ATSI_CPU_AVX512BW | ATSI_CPU_AVX512VNNI;
    uint64_t expect = 0;
    expect |= __builtin_cpu_supports("sse4.2") != 0 ? ATSI_CPU_SSE42 : 0;
    expect |= __builtin_cpu_supports("avx") != 0 ? ATSI_CPU_AVX : 0;
    expect |= __builtin_cpu_supports("fma") != 0 ? ATSI_CPU_FMA : 0;
    expect |= __builtin_cpu_supports("avx2") != 0 ? ATSI_CPU_AVX2 : 0;
    expect |= __builtin_cpu_supports("avx512f") != 0 ? ATSI_CPU_AVX512F : 0;
    expect |= __builtin_cpu_supports("avx512bw") != 0 ? ATSI_CPU_AVX512BW : 0;
    expect |= __builtin_cpu_supports("avx512vnni") != 0 ? ATSI_CPU_AVX512VNNI : 0;
    assert_int_equal(c.caps & checked, expect);
    assert_int_not_equal(c.vendor[0], '\0');
#endif
}

/* ---------------------------------------------------------------- malformed dumps */

static int read_text(const char *text, struct atsi_err *err)
{
    char path[] = "/tmp/atsi-cpuid-XXXXXX";
    int fd = mkstemp(path), rc;
    struct atsi_cpu_caps c;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(close(fd), 0);
    rc = atsi_cpu_caps_from_dump(path, &c, err);
    assert_int_equal(unlink(path), 0);
    return rc;
}

#define LEAF0 "0 0 d 756e6547 6c65746e 49656e69\n"
#define LEAF1 "1 0 306c3 0 7ffafbbf bfebfbff\n"

static const struct {
    const char *text;
    int status;
    const char *words; /* in the message; NULL: accepted */
} dumps[] = {
    {LEAF0 LEAF1 "XCR0 7\n", ATSI_OK, NULL},
    {"# comment\n\n  " LEAF0 "\t" LEAF1 "XCR0 0x7 # saved\r\n", ATSI_OK, NULL},
    {"", ATSI_EFORMAT, "leaf 0"},
    {LEAF0, ATSI_EFORMAT, "leaf 1"},
    {LEAF0 LEAF1, ATSI_EFORMAT, "XCR0"},
    {LEAF0 LEAF1 "XCR0\n", ATSI_EFORMAT, ":3: "},
    {LEAF0 LEAF1 "XCR0 7 7\n", ATSI_EFORMAT, ":3: "},
    {LEAF0 LEAF1 "XCR0 7\nXCR0 7\n", ATSI_EFORMAT, ":4: a second XCR0"},
    {LEAF0 LEAF1 LEAF1 "XCR0 7\n", ATSI_EFORMAT, ":3: leaf 1.0 is already given"},
    {LEAF0 "1 0 306c3 0 7ffafbbf\n", ATSI_EFORMAT, ":2: expected"},
    {LEAF0 "1 0 306c3 0 7ffafbbf bfebfbff 0\n", ATSI_EFORMAT, ":2: expected"},
    {LEAF0 "1 0 306c3 0 17ffafbbf bfebfbff\n", ATSI_EFORMAT, ":2: expected"},
    {LEAF0 "1 0 306c3 -1 7ffafbbf bfebfbff\n", ATSI_EFORMAT, ":2: expected"},
    {LEAF0 "1 0 306c3 0 7ffafbbg bfebfbff\n", ATSI_EFORMAT, ":2: expected"},
    {"\x7f"
     "ELF\n",
     ATSI_EFORMAT, ":1: expected"},
};

static void malformed_dumps_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof dumps / sizeof dumps[0]; i++) {
        struct atsi_err err = ATSI_ERR_INIT;
        assert_int_equal(read_text(dumps[i].text, &err), dumps[i].status);
        if (dumps[i].words != NULL)
            assert_non_null(strstr(err.msg, dumps[i].words));
    }
}

static void oversized_dumps_are_refused(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char *text = calloc(1, 100000);
    size_t n = 0;
    (void)state;
    assert_non_null(text);
    for (unsigned i = 0; i < 600; i++)
        n += (size_t)snprintf(text + n, 100000 - n, "%x 0 1 1 1 1\n", i);
    assert_int_equal(read_text(text, &err), ATSI_EFORMAT);
    assert_non_null(strstr(err.msg, "more than"));
    memset(text, '0', 5000);
    text[5000] = '\0';
    assert_int_equal(read_text(text, &err), ATSI_EFORMAT);
    assert_non_null(strstr(err.msg, "longer than"));
    free(text);
}

static void missing_dump_is_named(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_cpu_caps c;
    (void)state;
    assert_int_equal(atsi_cpu_caps_from_dump("/nonexistent/cpu.txt", &c, &err), ATSI_EIO);
    assert_non_null(strstr(err.msg, "/nonexistent/cpu.txt"));
    assert_int_equal(atsi_cpu_caps_from_dump("/", &c, &err), ATSI_EIO);
}

/* ---------------------------------------------------------------- masks */

static const struct {
    const char *mask, *left;
} masks[] = {
    {"", AVX512_SET " avx512vnni avx512vbmi avx512bf16"},
    {" , ", AVX512_SET " avx512vnni avx512vbmi avx512bf16"},
    {"-avx512vnni", AVX512_SET " avx512vbmi avx512bf16"},
    {"-avx512bw", AVX2_SET " avx512f avx512dq avx512vl avx512vnni"},
    {"-avx512f", AVX2_SET},
    {"-avx512", AVX2_SET},
    {"-avx512vl,-avx512dq", AVX2_SET " avx512f avx512bw avx512vnni avx512vbmi avx512bf16"},
    {"-avx2", "sse42 avx f16c fma bmi2"},
    {"-fma", "sse42 avx f16c avx2 bmi2"},
    {"-avx", "sse42 bmi2"},
    {"-sse42", "bmi2"},
    {"-SSE4_2 -BMI2", ""},
    {"-AVX512_VNNI", AVX512_SET " avx512vbmi avx512bf16"},
    {"-amx_tile", AVX512_SET " avx512vnni avx512vbmi avx512bf16"},
    {"avx2", "sse42 avx avx2"},
    {"avx2 fma f16c bmi2", AVX2_SET},
    {"avx512,-avx512vnni", "sse42 avx f16c fma avx2 avx512f avx512bw avx512dq avx512vl avx512vbmi "
                           "avx512bf16"},
    {"amx", "sse42 avx f16c fma avx2 avx512f"}, /* what tiles build on */
    {"none", ""},
    {"none -avx2", ""},
    {"none avx", "sse42 avx"},
};

/* A machine like Zen 4. */
static uint64_t full_caps(void)
{
    uint64_t caps = 0;
    for (unsigned bit = 0; bit <= 13; bit++)
        caps |= UINT64_C(1) << bit;
    return caps & ~ATSI_CPU_AVX_VNNI;
}

static void masks_remove_dependents(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        struct atsi_err err = ATSI_ERR_INIT;
        uint64_t left = UINT64_MAX;
        char text[512];
        assert_int_equal(atsi_cpu_caps_mask(full_caps(), masks[i].mask, &left, &err), ATSI_OK);
        (void)atsi_cpu_caps_text(left, text, sizeof text);
        assert_string_equal(text, masks[i].left);
    }
}

static void masks_never_add(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    uint64_t left = UINT64_MAX;
    (void)state;
    assert_int_equal(atsi_cpu_caps_mask(ATSI_CPU_SSE42, "avx512 amx", &left, &err), ATSI_OK);
    assert_int_equal(left, ATSI_CPU_SSE42);
    assert_int_equal(atsi_cpu_caps_mask(0, "", &left, &err), ATSI_OK);
    assert_int_equal(left, 0);
}

static void unknown_names_are_explained(void **state)
{
    static const struct {
        const char *mask, *words;
    } bad[] = {{"avx521f", "did you mean avx512f"},  {"-avx3", "did you mean avx"},
               {"-", "unknown CPU capability \"\""}, {"neon_dotprod", "known: sse42 avx"},
               {"avx2,,%s%n", "\"%s%n\""},           {"--avx2", "did you mean avx2"}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct atsi_err err = ATSI_ERR_INIT;
        uint64_t left;
        assert_int_equal(atsi_cpu_caps_mask(full_caps(), bad[i].mask, &left, &err), ATSI_ECONF);
        assert_non_null(strstr(err.msg, bad[i].words));
    }
}

static void text_reports_the_length_needed(void **state)
{
    char small[8];
    (void)state;
    assert_int_equal(atsi_cpu_caps_text(0, small, sizeof small), 0);
    assert_string_equal(small, "");
    assert_int_equal(atsi_cpu_caps_text(ATSI_CPU_AVX | ATSI_CPU_AVX2, small, sizeof small), 8);
    assert_string_equal(small, "avx avx");
    assert_int_equal(atsi_cpu_caps_text(ATSI_CPU_AVX | ATSI_CPU_AVX2, NULL, 0), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_processors_decode),
        cmocka_unit_test(running_processor_agrees_with_the_compiler),
        cmocka_unit_test(malformed_dumps_are_refused),
        cmocka_unit_test(oversized_dumps_are_refused),
        cmocka_unit_test(missing_dump_is_named),
        cmocka_unit_test(masks_remove_dependents),
        cmocka_unit_test(masks_never_add),
        cmocka_unit_test(unknown_names_are_explained),
        cmocka_unit_test(text_reports_the_length_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
