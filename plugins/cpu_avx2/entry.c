/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptor of the plugin cpu_avx2.  Compiled for the baseline CPU: this code says whether the
 * kernels may run here, so it must itself run anywhere.
 */
#include "../cpu_common/cpu_kernels.h"

void cpu_avx2_kernels(const struct atsi_host *host, struct cpu_kernels *out);

#define CAPS_NEEDED (ATSI_CPU_AVX | ATSI_CPU_AVX2 | ATSI_CPU_FMA | ATSI_CPU_F16C | ATSI_CPU_BMI2)

static const struct cpu_plugin_desc desc = {
    .name = "cpu_avx2", .caps = CAPS_NEEDED, .kernels = cpu_avx2_kernels};

static const struct atsi_component backend = {.struct_size = sizeof backend,
                                              .kind = ATSI_KIND_BACKEND,
                                              .name = "cpu_avx2",
                                              .ops = &cpu_backend_ops};

static const struct atsi_component *const components[] = {&backend, NULL};

static const struct atsi_plugin plugin = {.struct_size = sizeof plugin,
                                          .magic = ATSI_PLUGIN_MAGIC,
                                          .abi_major = ATSI_ABI_MAJOR,
                                          .abi_minor = ATSI_ABI_MINOR,
                                          .name = "cpu_avx2",
                                          .version = "0.1.0",
                                          .license = "Apache-2.0",
                                          .components = components};

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host, const char **why)
{
    if ((host->cpu_caps & CAPS_NEEDED) != CAPS_NEEDED) {
        *why = "this CPU lacks AVX2, FMA, F16C or BMI2 (or its use is masked)";
        return NULL;
    }
    cpu_backend_describe(&desc);
    return &plugin;
}
