/* SPDX-License-Identifier: Apache-2.0
 *
 * Which machine and model a table belongs to, in words, so that what has changed can be said; where
 * tables are kept; and getting one, measured again when it is out of date.
 */
#include "core/cache_dir.h"
#include "core/newfile.h"
#include "core/round/measure.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---------------------------------------------------------------- words */
/* One line of printable text, without blanks at its ends. */
static void add_key(struct atsi_costs *c, const char *name, const char *fmt, ...) ATSI_PRINTF(3, 4);
static void add_key(struct atsi_costs *c, const char *name, const char *fmt, ...)
{
    struct atsi_cost_key *k = &c->key[c->n_keys++];
    size_t n = 0;
    char text[sizeof k->value];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)snprintf(k->name, sizeof k->name, "%s", name);
    for (const char *t = text + strspn(text, " "); *t != '\0'; t++)
        k->value[n++] = *t >= 0x20 && *t < 0x7f ? *t : '?';
    while (n > 0 && k->value[n - 1] == ' ')
        n--;
    k->value[n] = '\0';
    if (n == 0)
        (void)snprintf(k->value, sizeof k->value, "?");
}

/* The contents of a plugin's file; 0: cannot be read. */
static uint64_t file_hash(const char *path)
{
    FILE *f = fopen(path, "re");
    XXH3_state_t *x = XXH3_createState();
    unsigned char buf[4096];
    uint64_t h = 0;
    size_t n;
    if (f != NULL && x != NULL) {
        (void)XXH3_64bits_reset(x); /* fails for NULL states only, as the other two */
        while ((n = fread(buf, 1, sizeof buf, f)) > 0)
            (void)XXH3_64bits_update(x, buf, n);
        h = ferror(f) == 0 ? XXH3_64bits_digest(x) : 0;
    }
    (void)XXH3_freeState(x);
    if (f != NULL)
        (void)fclose(f); /* only read from */
    return h;
}

struct version_of {
    const char *path;
    char version[32];
};

static int find_version(void *ctx, const struct atsi_plugin_info *p)
{
    struct version_of *v = ctx;
    if (p->plugin == NULL || strcmp(p->path, v->path) != 0)
        return 0;
    (void)snprintf(v->version, sizeof v->version, "%.31s", p->plugin->version);
    return 1;
}

/* "cuda 0.1.0, build 0123456789abcdef" */
static void add_plugin(struct atsi_costs *c, const struct atsi_runtime *rt, const char *key,
                       enum atsi_kind kind, const char *name)
{
    struct version_of v = {.path = ""};
    const struct atsi_component *at;
    if (name == NULL) { /* the caller does not say: that of the accelerator's plugin */
        add_key(c, key, "of the accelerator's plugin");
        return;
    }
    for (uint32_t i = 0; (at = atsi_registry_at(rt->registry, kind, i, &v.path)) != NULL; i++)
        if (strcmp(at->name, name) == 0)
            break;
    if (at == NULL)
        v.path = "";
    (void)atsi_registry_plugins_each(rt->registry, find_version, &v);
    add_key(c, key, "%.60s %s, build %016" PRIx64, name, v.version, file_hash(v.path));
}

/* Distinct or not, in the graph's order: the model as far as costs go. */
static int hash_shapes(const struct atsi_measure_request *r, uint64_t *out, struct atsi_err *err)
{
    const struct atsi_graph *g;
    const struct atsi_tensor *const *tensors = atsi_model_info(r->model)->tensors;
    int rc = atsi_model_graph(r->model, &g, err);
    *out = 0;
    for (uint32_t i = 0; rc == ATSI_OK && i < g->n_nodes; i++) {
        struct atsi_cost_shape s;
        atsi_cost_shape_of(g, tensors, i, ATSI_LAYOUT_ROWS, r->type_k, r->type_v, &s);
        *out = XXH3_64bits_withSeed(&s, sizeof s, *out);
    }
    return rc;
}

static int add_device(struct atsi_costs *c, const struct atsi_measure_request *r, uint32_t v,
                      const char *key, struct atsi_err *err)
{
    struct atsi_props props = {.struct_size = sizeof props};
    int rc = r->d->ops[v]->props(r->d->be[v], &props);
    if (rc != ATSI_OK)
        return atsi_fail(err, rc, "backend %s does not describe itself", r->backend[v]);
    add_key(c, key, "%.63s, %.120s, %" PRIu64 " MiB", props.name,
            props.detail[0] != '\0' ? props.detail : "no detail", props.mem_total_bytes >> 20);
    return ATSI_OK;
}

int atsi_costs_key_make(const struct atsi_measure_request *r, struct atsi_costs *out,
                        struct atsi_err *err)
{
    const struct atsi_runtime *rt = r->rt;
    bool accel = r->d->be[ATSI_DEVICE_ACCEL] != NULL;
    uint64_t shapes = 0;
    int rc = hash_shapes(r, &shapes, err);
    out->n_keys = 0;
    if (rc == ATSI_OK) {
        add_key(out, "model", "%016" PRIx64 " %.32s", shapes, atsi_model_info(r->model)->arch);
        add_key(out, "cpu", "%s, capabilities %" PRIx64 ".%" PRIx64, rt->topo->cpu_model,
                rt->cpu.caps, rt->cpu.tune);
        add_key(out, "threads", "%s%u in decode, %s%u in prefill", rt->open_decode ? "up to " : "",
                rt->n_decode, rt->open_prefill ? "up to " : "", rt->n_prefill);
        add_key(out, "memory", "%" PRIu64 " MiB", rt->topo->mem_total_bytes >> 20);
        add_plugin(out, rt, "backend", ATSI_KIND_BACKEND, r->backend[ATSI_DEVICE_HOST]);
        rc = add_device(out, r, ATSI_DEVICE_HOST, "host", err);
    }
    if (rc == ATSI_OK && accel) {
        add_plugin(out, rt, "accel", ATSI_KIND_BACKEND, r->backend[ATSI_DEVICE_ACCEL]);
        rc = add_device(out, r, ATSI_DEVICE_ACCEL, "device", err);
        add_plugin(out, rt, "transfer", ATSI_KIND_TRANSFER, r->transfer);
    } else if (rc == ATSI_OK) {
        add_key(out, "accel", "none");
    }
    if (rc != ATSI_OK)
        return rc;
    add_key(out, "kv", "%s %s", atsi_type_info(r->type_k)->name, atsi_type_info(r->type_v)->name);
    add_key(out, "activations", "%s", r->exact ? "exact" : "rounded");
    add_key(out, "ctx", "%u", r->ctx_max);
    return ATSI_OK;
}

/* ---------------------------------------------------------------- is it current? */
bool atsi_costs_fit(const struct atsi_costs *c, const struct atsi_costs *want, char *why,
                    size_t size)
{
    why[0] = '\0';
    if (c->chunk < want->chunk) {
        (void)snprintf(why, size, "measured for rounds of up to %u tokens, %u are asked for",
                       c->chunk, want->chunk);
        return false;
    }
    for (uint32_t i = 0; i < want->n_keys; i++) {
        const struct atsi_cost_key *k = &want->key[i];
        const char *have = atsi_costs_key(c, k->name);
        if (strcmp(k->name, "ctx") == 0 && strtoul(have, NULL, 10) >= strtoul(k->value, NULL, 10))
            continue;
        if (strcmp(have, k->value) == 0)
            continue;
        (void)snprintf(why, size, "%s was \"%.80s\", now \"%.80s\"", k->name,
                       have[0] != '\0' ? have : "not noted", k->value);
        return false;
    }
    return true;
}

/* The name tells machines and models apart, so that a shared home keeps a table for each; details
 * that may change are the key's. */
static int path_of(const struct atsi_costs *key, bool make, char *out, size_t size,
                   struct atsi_err *err)
{
    static const char *const parts[] = {"cpu", "backend", "accel"};
    uint64_t machine = 0;
    char name[64];
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *text = atsi_costs_key(key, parts[i]);
        size_t n = i == 0 ? strlen(text) : strcspn(text, " "); /* of plugins: their names */
        machine = XXH3_64bits_withSeed(text, n, machine);
    }
    (void)snprintf(name, sizeof name, "%08" PRIx32 "-%.16s.costs", (uint32_t)machine,
                   atsi_costs_key(key, "model"));
    return atsi_cache_path("profiles", name, make, out, size)
               ? ATSI_OK
               : atsi_fail(
                     err, ATSI_ENOENT,
                     "no folder to keep measured costs in: XDG_CACHE_HOME and HOME name none");
}

int atsi_costs_path(const struct atsi_measure_request *r, bool make, char *out, size_t size,
                    struct atsi_err *err)
{
    struct atsi_costs *key = atsi_costs_new();
    int rc = key != NULL ? atsi_costs_key_make(r, key, err)
                         : atsi_fail(err, ATSI_ENOMEM, "out of memory for a table of costs");
    if (rc == ATSI_OK)
        rc = path_of(key, make, out, size, err);
    atsi_costs_free(key);
    return rc;
}

/* ---------------------------------------------------------------- getting one */
/* The kept table, or NULL, and why not. */
static struct atsi_costs *load(const char *path, const struct atsi_costs *key, char *why,
                               size_t size)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_costs *c = NULL;
    int rc = atsi_costs_read(path, &c, &err);
    if (rc == ATSI_OK && atsi_costs_fit(c, key, why, size))
        return c;
    if (rc != ATSI_OK)
        (void)snprintf(why, size, "%s", rc == ATSI_ENOENT ? "first use" : err.msg);
    atsi_costs_free(c);
    return NULL;
}

static void keep(const struct atsi_measure_request *r, const struct atsi_costs *c)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char path[PATH_MAX];
    int rc = path_of(c, true, path, sizeof path, &err);
    if (rc == ATSI_OK)
        rc = atsi_costs_write(c, path, &err);
    if (rc != ATSI_OK)
        atsi_log(r->rt->log, ATSI_LOG_WARN, "costs", "measured costs are not kept: %s", err.msg);
}

int atsi_costs_obtain(const struct atsi_measure_request *r, bool force, struct atsi_costs **out,
                      char *why, size_t why_size, struct atsi_err *err)
{
    struct atsi_costs *key = atsi_costs_new();
    char path[PATH_MAX], text[700] = "asked for";
    int rc;
    *out = NULL;
    if (key == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a table of costs");
    rc = atsi_costs_key_make(r, key, err);
    if (rc == ATSI_OK && !force) {
        key->chunk = r->chunk;
        if (path_of(key, false, path, sizeof path, NULL) == ATSI_OK)
            *out = load(path, key, text, sizeof text);
        else
            (void)snprintf(text, sizeof text, "there is no folder to keep it in");
    }
    atsi_costs_free(key);
    if (why != NULL && why_size > 0)
        (void)snprintf(why, why_size, "%s", *out != NULL ? "" : text);
    if (rc != ATSI_OK || *out != NULL)
        return rc;
    atsi_log(r->rt->log, ATSI_LOG_INFO, "costs", "measuring this machine for this model: %s", text);
    rc = atsi_costs_measure(r, out, err);
    if (rc == ATSI_OK)
        keep(r, *out);
    return rc;
}
