/* SPDX-License-Identifier: Apache-2.0
 *
 * A complete policy plugin with parameters.  Each FIXTURE_ macro spoils one part of it; without any
 * it is good.  Its fini speaks through the host's log, so that a test can count the calls.
 */
#include "atsinfer/plugin.h"
#include "atsinfer/policy.h"

#ifndef FIXTURE_DESCRIPTOR_NAME
#define FIXTURE_DESCRIPTOR_NAME FIXTURE_NAME
#endif
#ifndef FIXTURE_VERSION
#define FIXTURE_VERSION "0.1.0"
#endif
#ifndef FIXTURE_MAGIC
#define FIXTURE_MAGIC ATSI_PLUGIN_MAGIC
#endif
#ifndef FIXTURE_MAJOR
#define FIXTURE_MAJOR ATSI_ABI_MAJOR
#endif
#ifndef FIXTURE_MINOR
#define FIXTURE_MINOR ATSI_ABI_MINOR
#endif
#ifndef FIXTURE_SIZE
#define FIXTURE_SIZE (uint32_t)sizeof(struct atsi_plugin)
#endif
#ifndef FIXTURE_TABLE_SIZE
#define FIXTURE_TABLE_SIZE (uint32_t)sizeof(struct atsi_policy_ops)
#endif
#ifndef FIXTURE_PLACE
#define FIXTURE_PLACE place
#endif
#ifndef FIXTURE_KIND
#define FIXTURE_KIND ATSI_KIND_POLICY
#endif
#ifndef FIXTURE_PARAM_HELP
#define FIXTURE_PARAM_HELP "How often."
#endif
#ifndef FIXTURE_PARAM_DEFAULT
#define FIXTURE_PARAM_DEFAULT "50"
#endif

static const struct atsi_host *host;

static size_t scratch_bytes(uint32_t n_items)
{
    (void)n_items;
    return 0;
}

/* Unused where FIXTURE_PLACE leaves it out. */
__attribute__((unused)) static int place(const struct atsi_problem *in, struct atsi_placement *out,
                                         struct atsi_err *err)
{
    if (out->n_items != in->n_items)
        return atsi_fail(err, ATSI_EINVAL, "%u items in, %u out", in->n_items, out->n_items);
    for (uint32_t i = 0; i < in->n_items; i++)
        out->device[i] = in->items[i]->pinned >= 0 ? in->items[i]->pinned : 0;
    return ATSI_OK;
}

static const struct atsi_policy_ops ops = {
    .struct_size = FIXTURE_TABLE_SIZE, .scratch_bytes = scratch_bytes, .place = FIXTURE_PLACE};

static const struct atsi_component policy = {.struct_size = sizeof policy,
                                             .kind = FIXTURE_KIND,
                                             .name = FIXTURE_NAME "_policy",
                                             .ops = &ops};

static const struct atsi_component *const components[] = {&policy, NULL};

static const struct atsi_param level = {.struct_size = sizeof level,
                                        .type = ATSI_PARAM_INT,
                                        .key = "level",
                                        .def = "3",
                                        .choices = "0..9",
                                        .help = "How much."};
static const struct atsi_param mode = {.struct_size = sizeof mode,
                                       .type = ATSI_PARAM_CHOICE,
                                       .key = "mode",
                                       .def = "quick",
                                       .choices = "quick|careful",
                                       .help = "How."};
static const struct atsi_param rate = {.struct_size = sizeof rate,
                                       .type = ATSI_PARAM_FLOAT,
                                       .key = "rate",
                                       .def = FIXTURE_PARAM_DEFAULT,
                                       .choices = "0..100",
                                       .unit = "percent",
                                       .help = FIXTURE_PARAM_HELP};

static const struct atsi_param *const params[] = {&level, &mode, &rate, NULL};

static void fini(void)
{
    host->log(host->ctx, ATSI_LOG_WARN, FIXTURE_NAME, "%s", "fini");
}

static const struct atsi_plugin plugin = {.struct_size = FIXTURE_SIZE,
                                          .magic = FIXTURE_MAGIC,
                                          .abi_major = FIXTURE_MAJOR,
                                          .abi_minor = FIXTURE_MINOR,
                                          .name = FIXTURE_DESCRIPTOR_NAME,
                                          .version = FIXTURE_VERSION,
                                          .license = "Apache-2.0",
                                          .params = params,
                                          .components = components,
                                          .fini = fini};

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *lent, const char **why)
{
    (void)why;
    host = lent;
    return &plugin;
}
