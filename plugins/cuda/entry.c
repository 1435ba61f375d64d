/* SPDX-License-Identifier: Apache-2.0
 * The plugin's descriptor and its settings. */
#include "cuda_plugin.h"
#include "transfer.h"

#include <stdlib.h>
#include <string.h>

static const struct atsi_param p_device = {
    .struct_size = sizeof p_device,
    .type = ATSI_PARAM_INT,
    .key = "device",
    .def = "-1",
    .choices = "-1..63",
    .help = "Use this one of CUDA's devices only; -1: all that are good enough."};
static const struct atsi_param p_graphs = {
    .struct_size = sizeof p_graphs,
    .type = ATSI_PARAM_BOOL,
    .key = "graphs",
    .def = "true",
    .help = "Capture work that comes again as CUDA graphs: fewer launches."};
static const struct atsi_param p_graph_limit = {
    .struct_size = sizeof p_graph_limit,
    .type = ATSI_PARAM_INT,
    .key = "graph_limit",
    .def = "2048",
    .choices = "1..65536",
    .unit = "graphs",
    .help = "Captured graphs kept at a time; the least recently used ones go."};
static const struct atsi_param p_step = {
    .struct_size = sizeof p_step,
    .type = ATSI_PARAM_BOOL,
    .key = "step",
    .def = "false",
    .help = "Wait after each operation, so that a failure names it: slow, for finding faults."};
static const struct atsi_param p_spin = {
    .struct_size = sizeof p_spin,
    .type = ATSI_PARAM_INT,
    .key = "spin",
    .def = "0",
    .choices = "0..1000000",
    .unit = "us",
    .help = "Spin at least so long for the device before the thread sleeps."};
static const struct atsi_param p_staging = {
    .struct_size = sizeof p_staging,
    .type = ATSI_PARAM_INT,
    .key = "staging",
    .def = "64",
    .choices = "0..4096",
    .unit = "MiB",
    .help = "Pinned memory through which weights pass that are not pinned themselves; 0: none."};
static const struct atsi_param p_copy_blocks = {
    .struct_size = sizeof p_copy_blocks,
    .type = ATSI_PARAM_INT,
    .key = "copy_blocks",
    .def = "8",
    .choices = "1..1024",
    .unit = "blocks",
    .help = "Thread blocks of a copy kernel: few leave the device to others."};

static const struct atsi_param p_fast_half = {
    .struct_size = sizeof p_fast_half,
    .type = ATSI_PARAM_BOOL,
    .key = "fast_half",
    .def = "false",
    .help = "Round activations to the type of F16 and BF16 weights in long prompts: twice as fast, "
            "less exact."};
static const struct atsi_param p_fuse = {
    .struct_size = sizeof p_fuse,
    .type = ATSI_PARAM_BOOL,
    .key = "fuse",
    .def = "true",
    .help = "Norms and activations round for the products behind them, rotations store keys "
            "and values: fewer launches."};

static const struct atsi_param *const params[] = {
    &p_device,  &p_graphs,      &p_graph_limit, &p_step, &p_spin,
    &p_staging, &p_copy_blocks, &p_fast_half,   &p_fuse, NULL};

static const char *text_of(const struct atsi_host *host, const struct atsi_param *p)
{
    const char *text =
        host->param_get != NULL ? host->param_get(host->ctx, CUDA_PLUGIN_NAME, p->key) : NULL;
    return text != NULL ? text : p->def;
}

/* The core has checked the text against type and range. */
static int64_t number(const struct atsi_host *host, const struct atsi_param *p)
{
    return strtoll(text_of(host, p), NULL, 10);
}

static bool flag(const struct atsi_host *host, const struct atsi_param *p)
{
    static const char *const yes[] = {"true", "on", "yes", "1"};
    const char *text = text_of(host, p);
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        if (strcmp(text, yes[i]) == 0)
            return true;
    return false;
}

void cuda_settings_get(const struct atsi_host *host, struct cuda_settings *out)
{
    *out = (struct cuda_settings){.device = (int)number(host, &p_device),
                                  .graphs = flag(host, &p_graphs),
                                  .graph_limit = (uint32_t)number(host, &p_graph_limit),
                                  .step = flag(host, &p_step),
                                  .spin_ns = (uint64_t)number(host, &p_spin) * 1000,
                                  .staging_bytes = (size_t)number(host, &p_staging) << 20,
                                  .copy_blocks = (uint32_t)number(host, &p_copy_blocks),
                                  .fast_half = flag(host, &p_fast_half),
                                  .fuse = flag(host, &p_fuse)};
}

static const struct atsi_backend_ops backend_ops = {
    .struct_size = sizeof backend_ops,
    .probe = cuda_probe,
    .open = cuda_open,
    .close = cuda_close,
    .props = cuda_props,
    .supports = cuda_supports,
    .buf_alloc = cuda_buf_alloc,
    .buf_free = cuda_buf_free,
    .buf_ptr = cuda_buf_ptr,
    .queue_open = cuda_queue_open,
    .queue_close = cuda_queue_close,
    .event_open = cuda_event_open,
    .event_close = cuda_event_close,
    .run = cuda_run,
    .event_wait = cuda_event_wait,
    .event_query = cuda_event_query,
    .event_time = cuda_event_time,
    .fill = cuda_fill,
    .host_register = cuda_host_register,
    .host_unregister = cuda_host_unregister,
    .buf_reserve = cuda_buf_reserve,
    .buf_commit = cuda_buf_commit,
};

static const struct atsi_transfer_ops transfer_ops = {.struct_size = sizeof transfer_ops,
                                                      .open = cuda_transfer_open,
                                                      .close = cuda_transfer_close,
                                                      .channels = cuda_transfer_channels,
                                                      .copyv = cuda_transfer_copyv};

static const struct atsi_component backend = {sizeof backend, ATSI_KIND_BACKEND, CUDA_PLUGIN_NAME,
                                              &backend_ops};
static const struct atsi_component transfer = {sizeof transfer, ATSI_KIND_TRANSFER,
                                               CUDA_PLUGIN_NAME, &transfer_ops};
static const struct atsi_component *const components[] = {&backend, &transfer, NULL};

/* Resident: the CUDA runtime and the driver run code at the end of the process. */
static const struct atsi_plugin plugin = {
    .struct_size = sizeof plugin,
    .magic = ATSI_PLUGIN_MAGIC,
    .abi_major = ATSI_ABI_MAJOR,
    .abi_minor = ATSI_ABI_MINOR,
    .flags = ATSI_PLUGIN_RESIDENT,
    .name = CUDA_PLUGIN_NAME,
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
