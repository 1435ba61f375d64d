/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugins of a runtime.  Files are collected in search order, tried in a child process, loaded,
 * and kept in a list together with those that were refused and why.
 */
#include "core/registry.h"

#include "core/scan.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "atsinfer-"
#define SUFFIX ".so"
#define SCAN_TIMEOUT_MS 5000

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KEEP_LOADED 1 /* a report needs the symbols of unloaded code */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KEEP_LOADED 1
#endif
#endif
#ifndef KEEP_LOADED
#define KEEP_LOADED 0
#endif

struct file {
    char *path;
    char name[64]; /* from the file name */
    bool named;    /* by --plugin: a refusal is an error */
    bool resident; /* the descriptor asks never to be unloaded, refused or not */
    void *handle;
    const struct atsi_plugin *plugin; /* NULL: refused */
    char why[512];
};

struct folder {
    char *dir;
    const char *origin;
    char found[96];
};

struct atsi_registry {
    struct atsi_registry_params p;
    struct file *files;
    uint32_t n_files;
    struct folder *folders;
    uint32_t n_folders;
};

static int no_memory(struct atsi_err *err)
{
    return atsi_fail(err, ATSI_ENOMEM, "out of memory looking for plugins");
}

/* ---------------------------------------------------------------- collecting files */
static void name_from_path(const char *path, char out[64])
{
    const char *base = strrchr(path, '/');
    size_t n;
    base = base != NULL ? base + 1 : path;
    if (strncmp(base, PREFIX, sizeof PREFIX - 1) == 0)
        base += sizeof PREFIX - 1;
    (void)snprintf(out, 64, "%.63s", base);
    n = strlen(out);
    if (n > 3 && strcmp(out + n - 3, SUFFIX) == 0)
        out[n - 3] = '\0';
}

static int add_file(struct atsi_registry *r, const char *path, bool named, struct atsi_err *err)
{
    struct file *grown, *f;
    char here[PATH_MAX];
    if (strchr(path, '/') == NULL) { /* dlopen() would look in the system's library folders */
        (void)snprintf(here, sizeof here, "./%.1024s", path);
        path = here;
    }
    for (uint32_t i = 0; i < r->n_files; i++)
        if (strcmp(r->files[i].path, path) == 0)
            return ATSI_OK; /* the same folder twice */
    grown = realloc(r->files, (r->n_files + 1) * sizeof *grown);
    if (grown == NULL)
        return no_memory(err);
    r->files = grown;
    f = &grown[r->n_files];
    *f = (struct file){.path = strdup(path), .named = named};
    if (f->path == NULL)
        return no_memory(err);
    name_from_path(path, f->name);
    r->n_files++;
    return ATSI_OK;
}

static int is_plugin_file(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > sizeof PREFIX - 1 + sizeof SUFFIX - 1 &&
           strncmp(d->d_name, PREFIX, sizeof PREFIX - 1) == 0 &&
           strcmp(d->d_name + n - (sizeof SUFFIX - 1), SUFFIX) == 0;
}

static int add_folder(struct atsi_registry *r, const char *dir, const char *origin,
                      struct atsi_err *err)
{
    struct folder *grown = realloc(r->folders, (r->n_folders + 1) * sizeof *grown), *f;
    struct dirent **list = NULL;
    int n, rc = ATSI_OK;
    if (grown == NULL)
        return no_memory(err);
    r->folders = grown;
    f = &grown[r->n_folders];
    *f = (struct folder){.dir = strdup(dir), .origin = origin};
    if (f->dir == NULL)
        return no_memory(err);
    r->n_folders++;
    n = scandir(dir, &list, is_plugin_file, alphasort);
    if (n < 0) {
        (void)snprintf(f->found, sizeof f->found, "%s",
                       errno == ENOENT ? "not there" : strerror(errno));
        return ATSI_OK;
    }
    (void)snprintf(f->found, sizeof f->found, "%d plugin%s", n, n == 1 ? "" : "s");
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        int len = snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
        if (rc == ATSI_OK && len > 0 && (size_t)len < sizeof path)
            rc = add_file(r, path, false, err);
        free(list[i]);
    }
    free(list);
    return rc;
}

/* Folders separated by colons; empty ones are skipped. */
static int add_path_list(struct atsi_registry *r, const char *list, const char *origin,
                         struct atsi_err *err)
{
    for (const char *p = list; p != NULL && *p != '\0';) {
        size_t n = strcspn(p, ":");
        char dir[PATH_MAX];
        if (n > 0 && n < sizeof dir) {
            int rc;
            (void)snprintf(dir, sizeof dir, "%.*s", (int)n, p);
            rc = add_folder(r, dir, origin, err);
            if (rc != ATSI_OK)
                return rc;
        }
        p += n + (p[n] == ':');
    }
    return ATSI_OK;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Absolute path of the library, or of the program, that contains this code. */
static bool own_path(char out[PATH_MAX])
{
    Dl_info info;
    void *here, *extra = NULL;
    const struct link_map *map;
    int (*fn)(const struct atsi_registry_params *, struct atsi_registry **, struct atsi_err *) =
        atsi_registry_open;
    memcpy(&here, &fn, sizeof here);
    if (dladdr1(here, &info, &extra, RTLD_DL_LINKMAP) == 0 || extra == NULL)
        return false;
    map = extra;
    /* The program has no name there, and its argv[0] may be relative to a folder left since. */
    return realpath(map->l_name[0] != '\0' ? map->l_name : "/proc/self/exe", out) != NULL;
}

/* Plugins that came with this core: beside the library, or beside the program that contains it. */
static int add_own_folders(struct atsi_registry *r, struct atsi_err *err)
{
    /* The last is the one named when none is there. */
    static const char *const places[] = {"atsinfer", "../lib/atsinfer", "atsinfer"};
    char self[PATH_MAX], dir[PATH_MAX + 32];
    if (!own_path(self))
        return ATSI_OK;
    *strrchr(self, '/') = '\0'; /* own_path() is absolute */
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(dir, sizeof dir, "%s/%s", self, places[i]);
        if (is_folder(dir)) /* beside a program, "atsinfer" may be the command itself */
            break;
    }
    return add_folder(r, dir, "this installation", err);
}

static int add_user_folder(struct atsi_registry *r, struct atsi_err *err)
{
    const char *base = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    char dir[PATH_MAX];
    int n = -1;
    if (base != NULL && base[0] == '/')
        n = snprintf(dir, sizeof dir, "%s/atsinfer/plugins", base);
    else if (home != NULL && home[0] == '/')
        n = snprintf(dir, sizeof dir, "%s/.local/share/atsinfer/plugins", home);
    return n > 0 && (size_t)n < sizeof dir ? add_folder(r, dir, "user's data folder", err)
                                           : ATSI_OK;
}

static int collect(struct atsi_registry *r, struct atsi_err *err)
{
    bool setuid = getauxval(AT_SECURE) != 0; /* HOME and all else are the caller's */
    const char *ignored = atsi_conf_ignored_plugin_path(r->p.conf);
    int rc = ATSI_OK;
    for (const char *const *f = r->p.plugin_files; f != NULL && *f != NULL && rc == ATSI_OK; f++)
        rc = add_file(r, *f, true, err);
    if (ignored != NULL)
        atsi_log(r->p.log, ATSI_LOG_WARN, "registry",
                 "plugins.path of %s is ignored: the file was merely found in the current folder; "
                 "name it with --config to have it honoured",
                 ignored);
    if (rc == ATSI_OK)
        rc = add_path_list(r, atsi_conf_get(r->p.conf, "plugins.path"), "plugins.path", err);
    if (rc == ATSI_OK && !setuid)
        rc = add_path_list(r, secure_getenv("ATSINFER_PLUGIN_PATH"), "ATSINFER_PLUGIN_PATH", err);
    if (rc == ATSI_OK && !setuid)
        rc = add_user_folder(r, err);
    return rc == ATSI_OK ? add_own_folders(r, err) : rc;
}

/* ---------------------------------------------------------------- loading */
static const struct file *loaded_as(const struct atsi_registry *r, const char *name)
{
    for (uint32_t i = 0; i < r->n_files; i++)
        if (r->files[i].plugin != NULL && strcmp(r->files[i].plugin->name, name) == 0)
            return &r->files[i];
    return NULL;
}

static void unload(struct file *f)
{
    if (f->plugin != NULL && f->plugin->fini != NULL)
        f->plugin->fini();
    if (f->handle != NULL && !KEEP_LOADED && !f->resident)
        (void)dlclose(f->handle); /* nothing to do about a failure to unload */
    f->handle = NULL;
    f->plugin = NULL;
}

static int load(struct atsi_registry *r, struct file *f, struct atsi_err *err)
{
    const struct atsi_plugin *plugin = NULL;
    const struct file *earlier;
    struct atsi_err why = ATSI_ERR_INIT;
    int rc = atsi_plugin_load(r->p.host, f->path, &f->handle, &plugin, &why);
    if (rc != ATSI_OK) {
        (void)snprintf(f->why, sizeof f->why, "%s", why.msg);
        return ATSI_OK;
    }
    (void)snprintf(f->name, sizeof f->name, "%.63s", plugin->name);
    f->resident = (plugin->flags & ATSI_PLUGIN_RESIDENT) != 0;
    earlier = loaded_as(r, plugin->name);
    if (earlier != NULL) {
        (void)snprintf(f->why, sizeof f->why, "%.400s was found first", earlier->path);
        unload(f);
        return ATSI_OK;
    }
    rc = atsi_conf_declare(r->p.conf, plugin->name, plugin->params, &why);
    if (rc == ATSI_ECONF) { /* the user's setting is wrong, not the plugin */
        unload(f);
        return atsi_fail(err, rc, "%s", why.msg);
    }
    if (rc != ATSI_OK) {
        (void)snprintf(f->why, sizeof f->why, "%s", why.msg);
        unload(f);
        return ATSI_OK;
    }
    f->plugin = plugin;
    return ATSI_OK;
}

/* Takes over one scanned file: loads it, or keeps why not. */
static int take_scanned(struct atsi_registry *r, struct file *f,
                        const struct atsi_scan_result *result, struct atsi_err *err)
{
    int rc = ATSI_OK;
    if (result->good)
        rc = load(r, f, err);
    else
        (void)snprintf(f->why, sizeof f->why, "%s", result->why);
    if (rc != ATSI_OK || f->plugin != NULL)
        return rc;
    atsi_log(r->p.log, ATSI_LOG_INFO, "registry", "%s refused: %s", f->path, f->why);
    if (f->named)
        return atsi_fail(err, ATSI_ECONF, "--plugin %s: %.300s", f->path, f->why);
    return ATSI_OK;
}

static int scan_and_load(struct atsi_registry *r, struct atsi_err *err)
{
    const char **paths = calloc((size_t)r->n_files + 1, sizeof(const char *));
    struct atsi_scan_result *results = calloc((size_t)r->n_files + 1, sizeof *results);
    int rc = ATSI_OK, timeout = r->p.scan_timeout_ms > 0 ? r->p.scan_timeout_ms : SCAN_TIMEOUT_MS;
    if (paths == NULL || results == NULL) {
        free(results);
        free(paths);
        return no_memory(err);
    }
    for (uint32_t i = 0; i < r->n_files; i++)
        paths[i] = r->files[i].path;
    atsi_scan_plugins(r->p.host, paths, r->n_files, timeout, results);
    for (uint32_t i = 0; rc == ATSI_OK && i < r->n_files; i++)
        rc = take_scanned(r, &r->files[i], &results[i], err);
    free(results);
    free(paths);
    return rc;
}

int atsi_registry_open(const struct atsi_registry_params *p, struct atsi_registry **out,
                       struct atsi_err *err)
{
    struct atsi_registry *r = calloc(1, sizeof *r);
    int rc;
    *out = NULL;
    if (r == NULL)
        return no_memory(err);
    r->p = *p;
    rc = collect(r, err);
    if (rc == ATSI_OK)
        rc = scan_and_load(r, err);
    if (rc != ATSI_OK) {
        atsi_registry_close(r);
        return rc;
    }
    *out = r;
    return ATSI_OK;
}

void atsi_registry_close(struct atsi_registry *r)
{
    if (r == NULL)
        return;
    for (uint32_t i = r->n_files; i-- > 0;) {
        unload(&r->files[i]);
        free(r->files[i].path);
    }
    for (uint32_t i = 0; i < r->n_folders; i++)
        free(r->folders[i].dir);
    free(r->folders);
    free(r->files);
    free(r);
}

/* ---------------------------------------------------------------- looking up */
const struct atsi_component *atsi_registry_at(const struct atsi_registry *r, enum atsi_kind kind,
                                              uint32_t i, const char **path_out)
{
    for (uint32_t f = 0; f < r->n_files; f++) {
        const struct atsi_plugin *p = r->files[f].plugin;
        for (size_t c = 0; p != NULL && p->components[c] != NULL; c++) {
            if (p->components[c]->kind != (uint32_t)kind || i-- > 0)
                continue;
            if (path_out != NULL)
                *path_out = r->files[f].path;
            return p->components[c];
        }
    }
    return NULL;
}

const void *atsi_registry_find(const struct atsi_registry *r, enum atsi_kind kind, const char *name)
{
    const struct atsi_component *c;
    for (uint32_t i = 0; (c = atsi_registry_at(r, kind, i, NULL)) != NULL; i++)
        if (strcmp(c->name, name) == 0)
            return c->ops;
    return NULL;
}

int atsi_registry_names(const struct atsi_registry *r, enum atsi_kind kind, char *buf, size_t size)
{
    const struct atsi_component *c;
    size_t at = 0;
    if (size > 0)
        buf[0] = '\0';
    for (uint32_t i = 0; (c = atsi_registry_at(r, kind, i, NULL)) != NULL; i++) {
        size_t room = at < size ? size - at : 0;
        at +=
            (size_t)snprintf(room > 0 ? buf + at : NULL, room, "%s%s", i > 0 ? ", " : "", c->name);
    }
    return (int)at;
}

int atsi_registry_plugins_each(const struct atsi_registry *r,
                               int (*fn)(void *ctx, const struct atsi_plugin_info *p), void *ctx)
{
    for (uint32_t i = 0; i < r->n_files; i++) {
        const struct file *f = &r->files[i];
        struct atsi_plugin_info info = {f->path, f->name, f->plugin, f->why};
        int rc = fn(ctx, &info);
        if (rc != 0)
            return rc;
    }
    return ATSI_OK;
}

int atsi_registry_search_each(const struct atsi_registry *r,
                              int (*fn)(void *ctx, const char *dir, const char *origin,
                                        const char *found),
                              void *ctx)
{
    for (uint32_t i = 0; i < r->n_folders; i++) {
        const struct folder *f = &r->folders[i];
        int rc = fn(ctx, f->dir, f->origin, f->found);
        if (rc != 0)
            return rc;
    }
    return ATSI_OK;
}
