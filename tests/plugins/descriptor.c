/* SPDX-License-Identifier: Apache-2.0
 *
 * A complete loader plugin with parameters.  Each FIXTURE_ macro spoils one part of it; without any
 * it is good.  Its fini appends its name to the file named by FIXTURE_FINI, which counts calls in
 * any process, and speaks through the host's log, which must still be there.
 */
#include "atsinfer/loader.h"
#include "atsinfer/plugin.h"

#include <stdlib.h>

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
#define FIXTURE_TABLE_SIZE (uint32_t)sizeof(struct atsi_loader_ops)
#endif
#ifndef FIXTURE_GRAPH
#define FIXTURE_GRAPH graph
#endif
#ifndef FIXTURE_KIND
#define FIXTURE_KIND ATSI_KIND_LOADER
#endif
#ifndef FIXTURE_PARAM_HELP
#define FIXTURE_PARAM_HELP "How often."
#endif
#ifndef FIXTURE_PARAM_DEFAULT
#define FIXTURE_PARAM_DEFAULT "50"
#endif

static const struct atsi_host *host;

static int probe(const struct atsi_host *h, const char *path, struct atsi_err *err)
{
    (void)h;
    (void)path;
    (void)err;
    return 0;
}

static int open_file(const struct atsi_host *h, const char *path,
                     const struct atsi_load_params *params, struct atsi_loaded **out,
                     struct atsi_err *err)
{
    (void)h;
    (void)params;
    *out = NULL;
    return atsi_fail(err, ATSI_EFORMAT, "%s is in no format that a fixture reads", path);
}

static void close_file(struct atsi_loaded *m)
{
    (void)m;
}

static const struct atsi_loaded_info *info(const struct atsi_loaded *m)
{
    (void)m;
    return NULL;
}

static int meta_at(const struct atsi_loaded *m, uint32_t index, struct atsi_meta *out)
{
    (void)m;
    (void)index;
    (void)out;
    return ATSI_EINVAL;
}

static int meta_find(const struct atsi_loaded *m, const char *key, struct atsi_meta *out)
{
    (void)m;
    (void)key;
    (void)out;
    return ATSI_ENOENT;
}

/* Unused where FIXTURE_GRAPH leaves it out. */
__attribute__((unused)) static int graph(struct atsi_loaded *m, const struct atsi_graph **out,
                                         struct atsi_err *err)
{
    (void)m;
    (void)out;
    return atsi_fail(err, ATSI_ENOTSUP, "a fixture has no graph");
}

static const struct atsi_loader_ops ops = {.struct_size = FIXTURE_TABLE_SIZE,
                                           .probe = probe,
                                           .open = open_file,
                                           .close = close_file,
                                           .info = info,
                                           .meta_at = meta_at,
                                           .meta_find = meta_find,
                                           .graph = FIXTURE_GRAPH};

static const struct atsi_component loader = {.struct_size = sizeof loader,
                                             .kind = FIXTURE_KIND,
                                             .name = FIXTURE_NAME "_loader",
                                             .ops = &ops};

static const struct atsi_component *const components[] = {&loader, NULL};

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
    const char *path = getenv("FIXTURE_FINI");
    FILE *f = path != NULL ? fopen(path, "ae") : NULL;
    if (f != NULL) {
        (void)fputs(FIXTURE_NAME "\n", f);
        (void)fclose(f);
    }
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
