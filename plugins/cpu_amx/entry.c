/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptor of the plugin cpu_amx.  Compiled for the baseline CPU: this code says whether the
 * kernels may run here, so it must itself run anywhere.
 */
#include "../cpu_common/cpu_kernels.h"

#include <sys/syscall.h>
#include <unistd.h>

void cpu_amx_kernels(const struct atsi_host *host, struct cpu_kernels *out);

#define CAPS_NEEDED                                                                                \
    (ATSI_CPU_AVX2 | ATSI_CPU_FMA | ATSI_CPU_F16C | ATSI_CPU_BMI2 | ATSI_CPU_AVX512F |             \
     ATSI_CPU_AVX512BW | ATSI_CPU_AVX512DQ | ATSI_CPU_AVX512VL | ATSI_CPU_AVX512VNNI |             \
     ATSI_CPU_AMX_TILE | ATSI_CPU_AMX_INT8)

/* Linux keeps tile data from a process until it asks (Documentation/arch/x86/xstate.rst); threads
 * inherit the permission, so that asking before the first worker uses a tile is enough. */
#define REQUEST_PERMISSION 0x1023 /* ARCH_REQ_XCOMP_PERM */
#define TILE_DATA 18              /* the feature's number in XCR0 */

static const struct cpu_plugin_desc desc = {
    .name = "cpu_amx", .caps = CAPS_NEEDED, .kernels = cpu_amx_kernels};

static const struct atsi_component backend = {.struct_size = sizeof backend,
                                              .kind = ATSI_KIND_BACKEND,
                                              .name = "cpu_amx",
                                              .ops = &cpu_backend_ops};

static const struct atsi_component *const components[] = {&backend, NULL};

static const struct atsi_plugin plugin = {.struct_size = sizeof plugin,
                                          .magic = ATSI_PLUGIN_MAGIC,
                                          .abi_major = ATSI_ABI_MAJOR,
                                          .abi_minor = ATSI_ABI_MINOR,
                                          .name = "cpu_amx",
                                          .version = "0.1.0",
                                          .license = "Apache-2.0",
                                          .components = components};

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host, const char **why)
{
    if ((host->cpu_caps & CAPS_NEEDED) != CAPS_NEEDED) {
        *why = "this CPU lacks AMX tiles with 8-bit products, or AVX-512 with VNNI (or their use "
               "is masked)";
        return NULL;
    }
    if (syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) != 0) {
        *why = "the operating system does not let this process use AMX tile data (Linux 5.16 or "
               "newer does)";
        return NULL;
    }
    cpu_backend_describe(&desc);
    return &plugin;
}
