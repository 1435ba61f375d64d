/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing the CPU backend.  `backend.cpu` names one, or `auto` measures every CPU backend that
 * this CPU and OS allow and takes the fastest: instruction sets do not tell (wide vectors can be
 * slower). The result is cached per machine, thread count and plugin build, so later starts pay
 * nothing; one of a busy machine, whose kernels may have been held up by others, is not kept.
 */
#include "core/select.h"

#include "core/cache_dir.h"
#include "core/select_measure.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_CANDIDATES 16u

struct candidate {
    const char *name;
    const struct atsi_backend_ops *ops;
    uint64_t ns;
};

static bool is_cpu(const struct atsi_runtime *rt, const struct atsi_backend_ops *ops)
{
    struct atsi_backend *be = NULL;
    struct atsi_props props = {.struct_size = sizeof props};
    bool cpu;
    if (ops->probe(&rt->host) <= 0 || ops->open(&rt->host, 0, &be, NULL) != ATSI_OK)
        return false;
    cpu = ops->props(be, &props) == ATSI_OK && props.device_kind == ATSI_DEVICE_CPU;
    ops->close(be);
    return cpu;
}

static void hash(uint64_t *h, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++)
        *h = (*h ^ p[i]) * UINT64_C(1099511628211); /* FNV-1a */
}

static void hash_file(uint64_t *h, const char *path)
{
    struct stat st;
    hash(h, path, strlen(path));
    if (stat(path, &st) == 0) {
        hash(h, &st.st_size, sizeof st.st_size);
        hash(h, &st.st_mtim, sizeof st.st_mtim);
    }
}

/* Candidates in search order; *key changes whenever the measurement could. */
static uint32_t list_candidates(const struct atsi_runtime *rt, struct candidate *out, uint64_t *key)
{
    uint32_t n = 0;
    const struct atsi_component *c;
    const char *path = "";
    *key = UINT64_C(14695981039346656037);
    hash(key, rt->cpu.brand, strlen(rt->cpu.brand));
    hash(key, &rt->cpu.caps, sizeof rt->cpu.caps);
    hash(key, &rt->n_decode, sizeof rt->n_decode);
    for (uint32_t i = 0; n < MAX_CANDIDATES &&
                         (c = atsi_registry_at(rt->registry, ATSI_KIND_BACKEND, i, &path)) != NULL;
         i++) {
        if (!is_cpu(rt, c->ops))
            continue;
        hash_file(key, path);
        out[n++] = (struct candidate){c->name, c->ops, 0};
    }
    return n;
}

/* ---------------------------------------------------------------- the cache: "KEY NAME REASON" */
#define MAX_LINE 512

static bool cache_path(char *out, size_t size, bool make)
{
    return atsi_cache_path("", "cpu_backend", make, out, size);
}

/* Text for people out of a file: no control characters, no more than fits. */
static void copy_reason(const char *from, char *why, size_t size)
{
    size_t n = 0;
    for (; from[n] != '\0' && from[n] != '\n' && n + 1 < size; n++)
        why[n] = from[n] >= 0x20 && from[n] < 0x7f ? from[n] : '?';
    why[n] = '\0';
}

static const struct candidate *cache_read(const struct candidate *c, uint32_t n, uint64_t key,
                                          char *why, size_t size)
{
    char path[512], line[MAX_LINE] = "", name[64];
    unsigned long long have;
    FILE *f = cache_path(path, sizeof path, false) ? fopen(path, "re") : NULL;
    const struct candidate *found = NULL;
    int rest = 0;
    if (f == NULL)
        return NULL;
    if (fgets(line, sizeof line, f) != NULL &&
        sscanf(line, "%llx %63s %n", &have, name, &rest) == 2 && have == key)
        for (uint32_t i = 0; i < n; i++)
            if (strcmp(c[i].name, name) == 0)
                found = &c[i];
    (void)fclose(f);
    if (found != NULL && line[rest] != '\0' && line[rest] != '\n')
        copy_reason(line + rest, why, size);
    else if (found != NULL)
        (void)snprintf(why, size, "fastest of %u", n);
    return found;
}

/* Failing to write only costs the next start a measurement. */
static void cache_write(const struct candidate *best, uint64_t key, const char *why)
{
    char path[512], temp[544];
    FILE *f;
    bool good;
    if (!cache_path(path, sizeof path, true))
        return;
    (void)snprintf(temp, sizeof temp, "%s.%ld", path, (long)getpid());
    f = fopen(temp, "we");
    if (f == NULL)
        return;
    good = fprintf(f, "%llx %s %s\n", (unsigned long long)key, best->name, why) > 0;
    good = fclose(f) == 0 && good;
    if (!good || rename(temp, path) != 0)
        (void)unlink(temp);
}

/* ---------------------------------------------------------------- choosing */
/* Rounds go through all candidates, so that other work on the machine hits each of them alike. */
#define ROUNDS 3

/* More to run than CPUs, on average over the last minute. */
static bool machine_busy(const struct atsi_runtime *rt)
{
    double load;
    return getloadavg(&load, 1) == 1 && load > rt->topo->n_cpus;
}

static void measure_one(struct atsi_runtime *rt, struct candidate *c, uint64_t limit)
{
    struct atsi_err why = ATSI_ERR_INIT;
    uint64_t ns = 0;
    if (atsi_measure_backend(&rt->host, c->ops, limit, &ns, &why) == ATSI_OK) {
        c->ns = c->ns == 0 || ns < c->ns ? ns : c->ns;
        return;
    }
    atsi_log(rt->log, ATSI_LOG_WARN, "select", "%s failed when measured: %s", c->name, why.msg);
    c->ops = NULL;
}

static const struct candidate *measure_all(struct atsi_runtime *rt, struct candidate *c, uint32_t n)
{
    const struct candidate *best = NULL;
    /* One worker: its short runs fit between those of other programs, a barrier's do not. */
    (void)atsi_pool_set_active(rt->pool, 1, NULL);
    for (uint32_t i = 0; i < n * ROUNDS; i++) {
        struct candidate *now = &c[i % n];
        if (now->ops == NULL || now->ns == UINT64_MAX)
            continue; /* failed, or known to be far behind */
        measure_one(rt, now, best != NULL && best != now ? best->ns : 0);
        if (now->ops != NULL && (best == NULL || now->ns < best->ns))
            best = now;
    }
    (void)atsi_pool_set_active(rt->pool, rt->n_decode, NULL);
    return best;
}

static void describe(const struct candidate *c, uint32_t n, const struct candidate *best, char *why,
                     size_t size)
{
    size_t at = (size_t)snprintf(why, size, "fastest of %u, relative speeds:", n);
    for (uint32_t i = 0; i < n && at < size; i++)
        if (c[i].ns == UINT64_MAX)
            at += (size_t)snprintf(why + at, size - at, " %s less than half,", c[i].name);
        else if (c[i].ns != 0)
            at += (size_t)snprintf(why + at, size - at, " %s %.2f,", c[i].name,
                                   (double)best->ns / (double)c[i].ns);
    if (at > 0 && at < size)
        why[at - 1] = '\0'; /* the last comma */
}

static int choose_auto(struct atsi_runtime *rt, const struct candidate **out, struct candidate *c,
                       char *why, size_t size, struct atsi_err *err)
{
    uint64_t key;
    uint32_t n = list_candidates(rt, c, &key);
    if (n == 0)
        return atsi_fail(err, ATSI_ENODEV,
                         "no CPU backend runs here; `atsinfer plugins` says why each was refused");
    *out = cache_read(c, n, key, why, size);
    if (*out != NULL)
        return ATSI_OK;
    *out = measure_all(rt, c, n);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENODEV, "every CPU backend failed when it was measured");
    describe(c, n, *out, why, size);
    if (machine_busy(rt))
        atsi_log(rt->log, ATSI_LOG_INFO, "select",
                 "%s, measured while the machine was busy: it will be measured again next time",
                 (*out)->name);
    else
        cache_write(*out, key, why);
    return ATSI_OK;
}

static int choose_named(struct atsi_runtime *rt, const char *name,
                        const struct atsi_backend_ops **ops, char *why, size_t size,
                        struct atsi_err *err)
{
    const char *origin = atsi_conf_origin(rt->conf, "backend.cpu");
    char names[256];
    *ops = atsi_registry_find(rt->registry, ATSI_KIND_BACKEND, name);
    if (*ops == NULL) {
        (void)atsi_registry_names(rt->registry, ATSI_KIND_BACKEND, names, sizeof names);
        return atsi_fail(err, ATSI_ECONF,
                         "backend.cpu = %s (%s): no such backend here; there are: %s. `atsinfer "
                         "plugins --why %s` says more",
                         name, origin, names, name);
    }
    if (!is_cpu(rt, *ops))
        return atsi_fail(err, ATSI_ENODEV, "backend.cpu = %s (%s): not a CPU backend usable here",
                         name, origin);
    (void)snprintf(why, size, "named by %s", origin);
    return ATSI_OK;
}

int atsi_select_cpu(struct atsi_runtime *rt, const char **name_out,
                    const struct atsi_backend_ops **ops_out, char *why, size_t why_size,
                    struct atsi_err *err)
{
    const char *name = atsi_conf_get(rt->conf, "backend.cpu");
    struct candidate candidates[MAX_CANDIDATES];
    const struct candidate *best = NULL;
    int rc;
    if (strcmp(name, "auto") != 0) {
        *name_out = name;
        return choose_named(rt, name, ops_out, why, why_size, err);
    }
    rc = choose_auto(rt, &best, candidates, why, why_size, err);
    if (rc != ATSI_OK || best == NULL)
        return rc;
    *name_out = best->name;
    *ops_out = best->ops;
    return ATSI_OK;
}
