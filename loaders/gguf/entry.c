/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin `gguf`: its descriptor and the loader table. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "loaded.h"
#include "loaders/arch/arch.h"
#include "text.h"

static int gguf_probe(const struct atsi_host *host, const char *path, struct atsi_err *err)
{
    char magic[4], shown[GGUF_SHOW_PATH];
    uint64_t bytes = 0;
    ssize_t n;
    int fd = -1, st = gguf_file_open(path, &fd, &bytes, err);
    (void)host;
    if (st != ATSI_OK)
        return gguf_context(err, st, "%s", gguf_show_path(path, shown));
    do {
        n = pread(fd, magic, sizeof magic, 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        st = atsi_fail(err, ATSI_EIO, "%s: reading failed: %s", gguf_show_path(path, shown),
                       strerror(errno));
    else
        st = n == (ssize_t)sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0;
    (void)close(fd);
    return st;
}

static int gguf_open(const struct atsi_host *host, const char *path,
                     const struct atsi_load_params *params, struct atsi_loaded **out,
                     struct atsi_err *err)
{
    struct atsi_load_params p = {0};
    if (params != NULL) /* an older caller knows fewer members */
        memcpy(&p, params, params->struct_size < sizeof p ? params->struct_size : sizeof p);
    if (p.mode > ATSI_LOAD_DIRECT)
        return atsi_fail(err, ATSI_EINVAL, "load mode %" PRIu32 " is not in 0..2", p.mode);
    if (p.no_weights > ATSI_PLAN_ONLY)
        return atsi_fail(err, ATSI_EINVAL, "no_weights %" PRIu32 " is not in 0..2", p.no_weights);
    return gguf_loaded_open(host, path, &p, out, err);
}

static const struct atsi_loaded_info *gguf_info(const struct atsi_loaded *m)
{
    return &m->info;
}

static int gguf_meta_at(const struct atsi_loaded *m, uint32_t index, struct atsi_meta *out)
{
    return gguf_head_meta(&m->shards[0].head, index, out);
}

static int gguf_meta_by_key(const struct atsi_loaded *m, const char *key, struct atsi_meta *out)
{
    const struct gguf_head *head = &m->shards[0].head;
    int64_t at = gguf_index_find(&head->key_index, key, strlen(key));
    return at < 0 ? ATSI_ENOENT : gguf_head_meta(head, (uint32_t)at, out);
}

static int gguf_graph(struct atsi_loaded *m, const struct atsi_graph **out, struct atsi_err *err)
{
    char shown[GGUF_SHOW_PATH], what[160];
    const char *path = gguf_show_path(m->shards[0].path, shown);
    if (m->info.file_kind != ATSI_FILE_MODEL)
        return atsi_fail(err, ATSI_ENOTSUP, "%s: is %s: it cannot generate text", path,
                         gguf_loaded_what(m, what));
    if (m->no_weights == ATSI_NO_WEIGHTS)
        return atsi_fail(err, ATSI_ENOTSUP, "%s: opened without weights, so there is no graph",
                         path);
    if (m->graph == NULL && m->graph_status == ATSI_OK) {
        m->graph_err.struct_size = sizeof m->graph_err;
        m->graph_status = gguf_loaded_check_types(m, &m->graph_err);
        if (m->graph_status == ATSI_OK)
            m->graph_status = arch_build_graph(m, &m->graph_err);
    }
    if (m->graph_status != ATSI_OK)
        return atsi_fail(err, m->graph_status, "%s: %s", path, m->graph_err.msg);
    *out = m->graph;
    return ATSI_OK;
}

static void gguf_release(struct atsi_loaded *m, const void *ptr, size_t bytes)
{
    gguf_data_release(m->shards, m->n_shards, ptr, bytes);
}

static const struct atsi_loader_ops loader_ops = {
    .struct_size = sizeof loader_ops,
    .probe = gguf_probe,
    .open = gguf_open,
    .close = gguf_loaded_close,
    .info = gguf_info,
    .meta_at = gguf_meta_at,
    .meta_find = gguf_meta_by_key,
    .graph = gguf_graph,
    .release = gguf_release,
};

static const struct atsi_component loader_component = {
    .struct_size = sizeof loader_component,
    .kind = ATSI_KIND_LOADER,
    .name = "gguf",
    .ops = &loader_ops,
};

static const struct atsi_component *const components[] = {&loader_component, NULL};

static const struct atsi_plugin plugin = {
    .struct_size = sizeof plugin,
    .magic = ATSI_PLUGIN_MAGIC,
    .abi_major = ATSI_ABI_MAJOR,
    .abi_minor = ATSI_ABI_MINOR,
    .name = "gguf",
    .version = GGUF_VERSION,
    .license = "Apache-2.0",
    .components = components,
};

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host, const char **why)
{
    (void)host;
    (void)why;
    return &plugin;
}
