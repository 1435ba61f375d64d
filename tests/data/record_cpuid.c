/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the CPUID leaves and XCR0 of the running processor in the form that cpu.caps_file reads:
 * "LEAF SUBLEAF EAX EBX ECX EDX" in hexadecimal, and "XCR0 VALUE".
 *
 *     cc -O1 record_cpuid.c -o record_cpuid && ./record_cpuid >my-cpu.txt
 *
 * Leaf 3 (a serial number on processors of the year 2000) is left out.
 */
#include <cpuid.h>
#include <stdint.h>
#include <stdio.h>

static void print_leaf(uint32_t leaf, uint32_t subleaf)
{
    uint32_t a, b, c, d;
    __cpuid_count(leaf, subleaf, a, b, c, d);
    (void)printf("%08x %02x %08x %08x %08x %08x\n", leaf, subleaf, a, b, c, d);
}

/* Number of subleaves that say something about instruction sets. */
static uint32_t count_subleaves(uint32_t leaf)
{
    uint32_t a, b, c, d;
    if (leaf == 7) {
        __cpuid_count(leaf, 0, a, b, c, d);
        return a < 16 ? a + 1 : 16;
    }
    return leaf == 0xd ? 2 : 1;
}

int main(void)
{
    uint32_t a, b, c, d, lo, hi;
    (void)printf("# Recorded by tests/data/record_cpuid.c\n");
    for (uint32_t base = 0;; base = 0x80000000u) {
        uint32_t top, most = base == 0 ? 0x24 : 0x80000008u;
        __cpuid_count(base, 0, top, b, c, d);
        for (uint32_t leaf = base; leaf <= top && leaf <= most; leaf++)
            for (uint32_t sub = 0; leaf != 3 && sub < count_subleaves(leaf); sub++)
                print_leaf(leaf, sub);
        if (base != 0)
            break;
    }
    __cpuid(1, a, b, c, d);
    if ((c & (1u << 27)) != 0) { /* OSXSAVE: XGETBV may be executed */
        __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
        (void)printf("XCR0 %llx\n", ((unsigned long long)hi << 32) | lo);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
