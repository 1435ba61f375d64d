/* SPDX-License-Identifier: Apache-2.0
 *
 * A model: an open file behind the loader that recognised it.
 */
#include "core/runtime.h"

#include "core/hybrid/weights.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int check_path(const char *path, struct atsi_err *err)
{
    struct stat st;
    if (path == NULL || path[0] == '\0')
        return atsi_fail(err, ATSI_EINVAL, "no model file named");
    if (stat(path, &st) != 0)
        return atsi_fail(err, errno == ENOENT || errno == ENOTDIR ? ATSI_ENOENT : ATSI_EIO,
                         "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return atsi_fail(err, ATSI_EIO, "%s: not a regular file", path);
    return ATSI_OK;
}

/* The first loader that recognises the file. */
static int find_loader(const struct atsi_runtime *rt, const char *path,
                       const struct atsi_loader_ops **out, struct atsi_err *err)
{
    char names[256];
    uint32_t i;
    const struct atsi_component *c;
    for (i = 0; (c = atsi_registry_at(rt->registry, ATSI_KIND_LOADER, i, NULL)) != NULL; i++) {
        const struct atsi_loader_ops *ops = c->ops;
        int yes = ops->probe(&rt->host, path, err);
        if (yes < 0)
            return yes;
        if (yes > 0) {
            *out = ops;
            return ATSI_OK;
        }
    }
    if (i == 0)
        return atsi_fail(
            err, ATSI_ENOTSUP,
            "%s: no loader plugin was found; `atsinfer plugins` shows where plugins are "
            "looked for",
            path);
    (void)atsi_registry_names(rt->registry, ATSI_KIND_LOADER, names, sizeof names);
    return atsi_fail(err, ATSI_ENOTSUP,
                     "%s: not a model file that a loader recognises (loaders: %s)", path, names);
}

static uint32_t load_mode(const struct atsi_runtime *rt)
{
    const char *mode = atsi_conf_get(rt->conf, "load.mode");
    if (strcmp(mode, "read") == 0)
        return ATSI_LOAD_READ;
    return strcmp(mode, "direct") == 0 ? ATSI_LOAD_DIRECT : ATSI_LOAD_MMAP;
}

int atsi_model_open(struct atsi_runtime *rt, const char *path,
                    const struct atsi_model_params *params, struct atsi_model **out,
                    struct atsi_err *err)
{
    struct atsi_load_params load = {.struct_size = sizeof load, .mode = load_mode(rt)};
    struct atsi_model *m;
    int rc = check_path(path, err);
    *out = NULL;
    if (rc != ATSI_OK)
        return rc;
    m = calloc(1, sizeof *m);
    if (m == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "%s: out of memory", path);
    m->rt = rt;
    if (params != NULL) {
        load.no_weights = params->no_weights;
        load.progress = params->progress;
        load.progress_ctx = params->progress_ctx;
    }
    rc = find_loader(rt, path, &m->ops, err);
    if (rc == ATSI_OK && m->ops != NULL)
        rc = m->ops->open(&rt->host, path, &load, &m->loaded, err);
    if (rc != ATSI_OK) {
        free(m);
        return rc;
    }
    *out = m;
    return ATSI_OK;
}

void atsi_model_close(struct atsi_model *m)
{
    if (m == NULL)
        return;
    atsi_weights_close(m->weights);
    m->ops->close(m->loaded);
    free(m);
}

int atsi_model_weights(struct atsi_model *m, struct atsi_weights **out, struct atsi_err *err)
{
    int rc = m->weights != NULL ? ATSI_OK : atsi_weights_open(m, &m->weights, err);
    *out = m->weights;
    return rc;
}

bool atsi_model_take_pins(struct atsi_model *m)
{
    bool mine = !m->pins_taken;
    m->pins_taken = true;
    return mine;
}

void atsi_model_give_pins(struct atsi_model *m)
{
    m->pins_taken = false;
}

const struct atsi_loaded_info *atsi_model_info(const struct atsi_model *m)
{
    return m->ops->info(m->loaded);
}

int atsi_model_meta_at(const struct atsi_model *m, uint32_t index, struct atsi_meta *out)
{
    return m->ops->meta_at(m->loaded, index, out);
}

int atsi_model_meta_find(const struct atsi_model *m, const char *key, struct atsi_meta *out)
{
    return m->ops->meta_find(m->loaded, key, out);
}

int atsi_model_graph(struct atsi_model *m, const struct atsi_graph **out, struct atsi_err *err)
{
    return m->ops->graph(m->loaded, out, err);
}
