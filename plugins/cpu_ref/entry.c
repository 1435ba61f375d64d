/* SPDX-License-Identifier: Apache-2.0
 * The plugin of the reference kernels: plain C for any CPU, the definition of right. */
#include "cpu_kernels.h"

static void kernels(const struct atsi_host *host, struct cpu_kernels *out)
{
    (void)host;
    cpu_ref_kernels(out);
}

static const struct cpu_plugin_desc description = {
    .name = "cpu_ref", .caps = 0, .kernels = kernels};

static const struct atsi_component backend = {sizeof backend, ATSI_KIND_BACKEND, "cpu_ref",
                                              &cpu_backend_ops};
static const struct atsi_component *const components[] = {&backend, NULL};

static const struct atsi_plugin plugin = {
    .struct_size = sizeof plugin,
    .magic = ATSI_PLUGIN_MAGIC,
    .abi_major = ATSI_ABI_MAJOR,
    .abi_minor = ATSI_ABI_MINOR,
    .name = "cpu_ref",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .components = components,
};

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host, const char **why)
{
    (void)host;
    (void)why;
    cpu_backend_describe(&description);
    return &plugin;
}
