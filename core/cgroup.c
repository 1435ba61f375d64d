/* SPDX-License-Identifier: Apache-2.0
 *
 * What the system grants this process: available memory and the CPU time and memory limits of
 * control groups, version 1 and 2 (kernel documentation: admin-guide/cgroup-v1, cgroup-v2).
 *
 * /proc/self/cgroup says which group the process is in ("ID:CONTROLLERS:PATH", version 2 has an
 * empty controller list), /proc/self/mountinfo where its hierarchy is mounted and which part of it.
 * A limit of any ancestor holds too, so all of them are read and the lowest counts.
 */
#include "core/cgroup.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 4096u

/* One mounted hierarchy and the group in it. */
struct group {
    char mount[PATH_MAX]; /* where the hierarchy is mounted, below the root asked for */
    char path[PATH_MAX];  /* the process's group, relative to what is mounted; "" or "/a/b" */
};

static FILE *open_below(const char *root, const char *path)
{
    char full[PATH_MAX];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    return n > 0 && (size_t)n < sizeof full ? fopen(full, "re") : NULL;
}

/* First line of FOLDER/NAME without its newline; false when it cannot be read. */
static bool read_line(const char *folder, const char *name, char *out, size_t size)
{
    char full[PATH_MAX];
    int n = snprintf(full, sizeof full, "%s/%s", folder, name);
    FILE *f = n > 0 && (size_t)n < sizeof full ? fopen(full, "re") : NULL;
    bool ok;
    if (f == NULL)
        return false;
    ok = fgets(out, (int)size, f) != NULL;
    (void)fclose(f); /* opened for reading */
    if (ok)
        out[strcspn(out, "\n")] = '\0';
    return ok;
}

/* A decimal number; false for "max", "-1" or anything else. */
static bool parse_u64(const char *text, uint64_t *out)
{
    char *end = NULL;
    if (*text < '0' || *text > '9')
        return false;
    *out = strtoull(text, &end, 10); /* out of range reads as ULLONG_MAX: as good as no limit */
    return *end == '\0' || *end == ' ' || *end == '\n';
}

static bool read_u64(const char *folder, const char *name, uint64_t *out)
{
    char text[64];
    return read_line(folder, name, text, sizeof text) && parse_u64(text, out);
}

/* Value of "KEY NUMBER" in FOLDER/NAME, 0 when it is not there. */
static uint64_t read_stat(const char *folder, const char *name, const char *key)
{
    char full[PATH_MAX], text[LINE_BYTES];
    size_t len = strlen(key);
    uint64_t v = 0;
    int n = snprintf(full, sizeof full, "%s/%s", folder, name);
    FILE *f = n > 0 && (size_t)n < sizeof full ? fopen(full, "re") : NULL;
    if (f == NULL)
        return 0;
    while (fgets(text, sizeof text, f) != NULL)
        if (strncmp(text, key, len) == 0 && text[len] == ' ') {
            if (!parse_u64(text + len + 1, &v))
                v = 0;
            break;
        }
    (void)fclose(f); /* opened for reading */
    return v;
}

/* ---------------------------------------------------------------- where the groups are */

static bool list_has(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = list; *p != '\0'; p += (*p == ',')) {
        size_t n = strcspn(p, ",\n");
        if (n == len && strncmp(p, word, len) == 0)
            return true;
        p += n;
        if (*p == '\n')
            break;
    }
    return false;
}

/* Path of the process's group for a version 1 controller, or of version 2 when `controller` is
 * NULL. */
static bool find_path(const char *root, const char *controller, char out[PATH_MAX])
{
    char text[LINE_BYTES];
    bool found = false;
    FILE *f = open_below(root, "/proc/self/cgroup");
    if (f == NULL)
        return false;
    while (!found && fgets(text, sizeof text, f) != NULL) {
        char *names = strchr(text, ':'), *path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path++ = '\0';
        names++;
        path[strcspn(path, "\n")] = '\0';
        found = controller == NULL ? *names == '\0' : list_has(names, controller);
        if (found)
            (void)snprintf(out, PATH_MAX, "%s", path);
    }
    (void)fclose(f); /* opened for reading */
    return found;
}

/* Undoes the \ooo escapes of mountinfo (space, tab, newline, backslash) in place. */
static void unescape(char *s)
{
    char *to = s;
    for (; *s != '\0'; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
            s[3] >= '0' && s[3] <= '7') {
            *to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else {
            *to++ = *s;
        }
    }
    *to = '\0';
}

/* "ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAGS] - TYPE SOURCE SUPEROPTIONS": takes ROOT and
 * MOUNTPOINT when TYPE and, for version 1, SUPEROPTIONS name the hierarchy looked for. */
static bool parse_mount(char *text, const char *controller, const char **root_out,
                        const char **mount_out)
{
    char *rest = strstr(text, " - "), *save = NULL, *field;
    const char *type, *options;
    if (rest == NULL)
        return false;
    *rest = '\0';
    type = strtok_r(rest + 3, " \n", &save);
    (void)strtok_r(NULL, " \n", &save);
    options = strtok_r(NULL, " \n", &save);
    if (type == NULL || strcmp(type, controller == NULL ? "cgroup2" : "cgroup") != 0 ||
        (controller != NULL && (options == NULL || !list_has(options, controller))))
        return false;
    field = strtok_r(text, " ", &save);
    for (int i = 0; i < 3 && field != NULL; i++)
        field = strtok_r(NULL, " ", &save);
    *root_out = field;
    *mount_out = field != NULL ? strtok_r(NULL, " ", &save) : NULL;
    return *mount_out != NULL;
}

/* A container may see only a part of the hierarchy (mount_root): that prefix is not in its paths.
 * A path outside of the part leaves the mounted folder itself. */
static void set_group(struct group *g, const char *root, const char *mount, const char *mount_root,
                      const char *path)
{
    size_t n = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
    if (strncmp(path, mount_root, n) == 0 && (path[n] == '/' || path[n] == '\0'))
        path += n;
    else
        path = "";
    if (strcmp(path, "/") == 0 || strstr(path, "/..") != NULL)
        path = "";
    (void)snprintf(g->path, sizeof g->path, "%s", path);
    /* Cut by nothing but an absurd root: the files are then not found, which is no limit. */
    (void)snprintf(g->mount, sizeof g->mount, "%.2047s%.2047s", root, mount);
}

static bool find_group(const char *root, const char *controller, struct group *g)
{
    char text[LINE_BYTES], path[PATH_MAX];
    bool found = false;
    FILE *f;
    if (!find_path(root, controller, path))
        return false;
    f = open_below(root, "/proc/self/mountinfo");
    if (f == NULL)
        return false;
    while (!found && fgets(text, sizeof text, f) != NULL) {
        const char *mount_root, *mount;
        if (!parse_mount(text, controller, &mount_root, &mount))
            continue;
        char root_text[LINE_BYTES], mount_text[LINE_BYTES];
        (void)snprintf(root_text, sizeof root_text, "%s", mount_root);
        (void)snprintf(mount_text, sizeof mount_text, "%s", mount);
        unescape(root_text);
        unescape(mount_text);
        set_group(g, root, mount_text, root_text, path);
        found = true;
    }
    (void)fclose(f); /* opened for reading */
    return found;
}

/* Calls fn with the folder of the group and of each of its ancestors. */
static void each_level(const struct group *g, void (*fn)(const char *folder, void *ctx), void *ctx)
{
    char path[PATH_MAX], folder[2 * PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", g->path);
    for (;;) {
        char *slash;
        (void)snprintf(folder, sizeof folder, "%s%s", g->mount, path);
        fn(folder, ctx);
        slash = strrchr(path, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

/* ---------------------------------------------------------------- limits of one folder */

static void lower_cpus(struct atsi_limits *l, uint64_t quota_us, uint64_t period_us)
{
    double cpus = period_us > 0 ? (double)quota_us / (double)period_us : 0.0;
    if (cpus > 0.0 && (l->cgroup_cpus <= 0.0 || cpus < l->cgroup_cpus))
        l->cgroup_cpus = cpus;
}

/* cpu.max: "QUOTA PERIOD" or "max PERIOD", microseconds. */
static void cpu_v2(const char *folder, void *ctx)
{
    char text[64];
    const char *space;
    uint64_t quota, period;
    if (!read_line(folder, "cpu.max", text, sizeof text) || !parse_u64(text, &quota))
        return;
    space = strchr(text, ' ');
    if (space != NULL && parse_u64(space + 1, &period))
        lower_cpus(ctx, quota, period);
}

static void cpu_v1(const char *folder, void *ctx)
{
    uint64_t quota, period; /* a quota of -1 is none */
    if (read_u64(folder, "cpu.cfs_quota_us", &quota) &&
        read_u64(folder, "cpu.cfs_period_us", &period))
        lower_cpus(ctx, quota, period);
}

/* `file_bytes`: page cache charged to the group, given back before anything fails.  It leaves out
 * tmpfs, which memory.stat counts as "file" too but keeps on the anonymous lists. */
static void lower_memory(struct atsi_limits *l, uint64_t limit, uint64_t used, uint64_t file_bytes)
{
    uint64_t held = used > file_bytes ? used - file_bytes : 0;
    uint64_t left = limit > held ? limit - held : 0;
    if (limit < l->cgroup_mem_bytes)
        l->cgroup_mem_bytes = limit;
    if (left < l->mem_available_bytes)
        l->mem_available_bytes = left;
}

static void memory_v2(const char *folder, void *ctx)
{
    uint64_t limit, used;
    if (read_u64(folder, "memory.max", &limit) && read_u64(folder, "memory.current", &used))
        lower_memory(ctx, limit, used,
                     read_stat(folder, "memory.stat", "inactive_file") +
                         read_stat(folder, "memory.stat", "active_file"));
}

static void memory_v1(const char *folder, void *ctx)
{
    const struct atsi_limits *l = ctx;
    uint64_t limit, used; /* no limit reads as a number near 2^63 */
    if (read_u64(folder, "memory.limit_in_bytes", &limit) &&
        read_u64(folder, "memory.usage_in_bytes", &used) && limit < (UINT64_C(1) << 62) &&
        (l->mem_total_bytes == 0 || limit < l->mem_total_bytes))
        lower_memory(ctx, limit, used,
                     read_stat(folder, "memory.stat", "total_inactive_file") +
                         read_stat(folder, "memory.stat", "total_active_file"));
}

/* ---------------------------------------------------------------- the whole */

/* "MemAvailable:   24261904 kB" */
static void read_meminfo(const char *root, struct atsi_limits *l)
{
    static const struct {
        const char *key;
        size_t offset;
    } wanted[] = {{"MemTotal:", offsetof(struct atsi_limits, mem_total_bytes)},
                  {"MemAvailable:", offsetof(struct atsi_limits, mem_available_bytes)},
                  {"Hugepagesize:", offsetof(struct atsi_limits, huge_page_bytes)}};
    char text[256];
    FILE *f = open_below(root, "/proc/meminfo");
    if (f == NULL)
        return;
    while (fgets(text, sizeof text, f) != NULL)
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
            size_t n = strlen(wanted[i].key);
            uint64_t kib;
            if (strncmp(text, wanted[i].key, n) == 0 &&
                parse_u64(text + n + strspn(text + n, " "), &kib) && kib <= UINT64_MAX / 1024)
                memcpy((char *)l + wanted[i].offset, &(uint64_t){kib * 1024}, sizeof kib);
        }
    (void)fclose(f); /* opened for reading */
}

void atsi_limits_read(const char *root, struct atsi_limits *out)
{
    struct group g = {{0}, {0}};
    *out = (struct atsi_limits){.cgroup_mem_bytes = UINT64_MAX};
    read_meminfo(root, out);
    if (find_group(root, NULL, &g)) {
        each_level(&g, cpu_v2, out);
        each_level(&g, memory_v2, out);
    }
    if (find_group(root, "cpu", &g))
        each_level(&g, cpu_v1, out);
    if (find_group(root, "memory", &g))
        each_level(&g, memory_v1, out);
}
