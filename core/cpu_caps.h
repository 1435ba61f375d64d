/* SPDX-License-Identifier: Apache-2.0
 * What this CPU and OS allow: CPUID leaves and XCR0 to ATSI_CPU_* and ATSI_TUNE_* bits. */
#ifndef ATSI_CORE_CPU_CAPS_H
#define ATSI_CORE_CPU_CAPS_H

#include "atsinfer/atsinfer.h"

struct atsi_cpu_caps {
    uint64_t caps, tune;
    char vendor[13];
    char brand[49]; /* trimmed; "" when not reported */
    uint32_t family, model, stepping;
};

/* Of the running CPU. */
void atsi_cpu_caps_detect(struct atsi_cpu_caps *out);
/* From a recorded dump: lines "LEAF SUBLEAF EAX EBX ECX EDX" in hex, one line "XCR0 VALUE", `#`
 * comments.  ATSI_EIO, ATSI_EFORMAT with the line. */
int atsi_cpu_caps_from_dump(const char *path, struct atsi_cpu_caps *out, struct atsi_err *err);
/* Parses a user mask: names separated by commas or spaces, "-name" removes, "name" alone keeps only
 * the listed ones; dependents of a removed capability go too (no avx2: no avx512*).  "" = all. */
int atsi_cpu_caps_mask(uint64_t caps, const char *mask, uint64_t *out, struct atsi_err *err);

#endif
