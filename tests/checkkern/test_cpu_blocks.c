/* SPDX-License-Identifier: Apache-2.0
 *
 * Block sizes for caches: those of processors people have, what is not known, and that nothing
 * outgrows the caches it is chosen for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cpu_kernels.h"

#define KIB UINT64_C(1024)

static const struct {
    const char *of;
    uint64_t l1d_kib, l2_kib;
    struct cpu_blocks blocks;
} known[] = {
    {"Zen 4", 32, 1024, {512, 16, 512}},
    {"Zen 5", 48, 1024, {768, 16, 448}},
    {"Zen 2, Zen 3", 32, 512, {512, 16, 256}},
    {"Haswell to Skylake", 32, 256, {512, 16, 128}},
    {"Skylake-SP", 32, 1024, {512, 16, 512}},
    {"Ice Lake", 48, 512, {768, 16, 224}},
    {"Tiger Lake, Alder Lake P, Ice Lake-SP", 48, 1280, {768, 16, 512}},
    {"Sapphire Rapids, Raptor Lake P", 48, 2048, {768, 32, 512}},
    {"Lion Cove", 48, 3072, {768, 64, 512}},
    {"Gracemont: 2 MiB for four", 32, 512, {512, 16, 256}},
    {"Gracemont: 4 MiB for four", 32, 1024, {512, 16, 512}},
    {"two threads of a Zen 4 core", 16, 512, {256, 16, 320}},
    {"a small core", 24, 128, {256, 16, 64}},
    {"64 KiB", 64, 1024, {1024, 16, 384}},
    {"128 KiB, 12 MiB for four", 128, 3072, {1024, 64, 512}},
};

static void assert_blocks(uint64_t l1d, uint64_t l2, struct cpu_blocks want, const char *of)
{
    const struct cpu_blocks b = cpu_blocks_for(l1d, l2);
    if (b.columns != want.columns || b.panels != want.panels || b.tokens != want.tokens)
        fail_msg("%s: %u columns, %u panels, %u tokens; expected %u, %u, %u", of, b.columns,
                 b.panels, b.tokens, want.columns, want.panels, want.tokens);
}

static void processors_that_people_have(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_blocks(known[i].l1d_kib * KIB, known[i].l2_kib * KIB, known[i].blocks, known[i].of);
}

static void what_is_not_known_or_cannot_be(void **state)
{
    static const struct cpu_blocks usual = {512, 16, 512};
    (void)state;
    assert_blocks(0, 0, usual, "nothing known");
    assert_blocks(UINT64_MAX, UINT64_MAX, usual, "absurd");
    assert_blocks(1, 1, usual, "a byte");
    assert_blocks(0, 256 * KIB, (struct cpu_blocks){512, 16, 128}, "second cache alone");
    assert_blocks(48 * KIB, 0, (struct cpu_blocks){768, 16, 448}, "first cache alone");
}

/* Whatever the caches: sizes that kernels take, larger caches no smaller columns, and the second
 * cache is not outgrown where there is a choice. */
static void any_size(void **state)
{
    (void)state;
    for (uint64_t l1d = 4; l1d <= 1024; l1d += 4) {
        for (uint64_t l2 = 64; l2 <= 65536; l2 += l2 / 8) {
            const struct cpu_blocks b = cpu_blocks_for(l1d * KIB, l2 * KIB);
            assert_in_range(b.columns, 256, CPU_BLOCKS_MOST_COLUMNS);
            assert_int_equal(b.columns % 256, 0);
            assert_in_range(b.panels, 16, 64);
            assert_int_equal(b.panels % 2, 0);
            assert_in_range(b.tokens, 64, 512);
            if (b.tokens > 64)
                assert_true(b.tokens * (b.columns + 64 * (uint64_t)b.panels) <= l2 * KIB);
            assert_true(b.columns <=
                        cpu_blocks_for((l1d + 4 > 1024 ? l1d : l1d + 4) * KIB, 0).columns);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processors_that_people_have),
        cmocka_unit_test(what_is_not_known_or_cannot_be),
        cmocka_unit_test(any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
