/* SPDX-License-Identifier: Apache-2.0
 * The plugin "sim": a host, an accelerator and the copies between them, on a virtual clock. */
#include "sim.h"

static const struct atsi_param load = {.struct_size = sizeof load,
                                       .type = ATSI_PARAM_TEXT,
                                       .key = "load",
                                       .def = "",
                                       .help =
                                           "Script of slowdowns over time, lines \"t_ns cpu gpu "
                                           "pcie\". Empty: none."};
static const struct atsi_param *const params[] = {&load, NULL};

static const struct atsi_component cpu = {sizeof cpu, ATSI_KIND_BACKEND, "sim_cpu", &sim_cpu_ops};
static const struct atsi_component gpu = {sizeof gpu, ATSI_KIND_BACKEND, "sim_gpu", &sim_gpu_ops};
static const struct atsi_component transfer = {sizeof transfer, ATSI_KIND_TRANSFER, "sim",
                                               &sim_transfer_ops};
static const struct atsi_component *const components[] = {&cpu, &gpu, &transfer, NULL};

static const struct atsi_plugin plugin = {
    .struct_size = sizeof plugin,
    .magic = ATSI_PLUGIN_MAGIC,
    .abi_major = ATSI_ABI_MAJOR,
    .abi_minor = ATSI_ABI_MINOR,
    .name = "sim",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .params = params,
    .components = components,
};

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host, const char **why)
{
    (void)host;
    (void)why;
    return &plugin;
}
