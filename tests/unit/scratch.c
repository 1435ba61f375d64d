/* SPDX-License-Identifier: Apache-2.0
 * Temporary folders for tests of everything that reads files and the environment. */
#include "tests/unit/scratch.h"

#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

static char root[64];

static void forget_variables(void)
{
    for (char **e = environ; *e != NULL;) {
        char name[128];
        size_t n = strcspn(*e, "=");
        if (strncmp(*e, "ATSINFER_", 9) == 0 && n < sizeof name) {
            (void)snprintf(name, sizeof name, "%.*s", (int)n, *e);
            assert_int_equal(unsetenv(name), 0);
            e = environ; /* the list has moved up */
        } else {
            e++;
        }
    }
}

int scratch_enter(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/atsinfer-test-XXXXXX");
    if (mkdtemp(root) == NULL || chdir(root) != 0)
        return -1;
    forget_variables();
    return setenv("HOME", root, 1) | setenv("XDG_CONFIG_HOME", scratch_path("config"), 1) |
           setenv("XDG_DATA_HOME", scratch_path("data"), 1) |
           setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

int scratch_leave(void **state)
{
    (void)state;
    forget_variables();
    return chdir("/") | nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *scratch_path(const char *relative)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, PATH_MAX, "%s/%s", root, relative);
    return path;
}

static void make_folders(char *path, bool last)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0755); /* most are there */
        *slash = '/';
    }
    if (last)
        (void)mkdir(path, 0755);
}

void scratch_mkdir(const char *relative)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", scratch_path(relative));
    make_folders(path, true);
}

void scratch_write_bytes(const char *relative, const void *bytes, size_t n)
{
    char path[PATH_MAX];
    FILE *f;
    (void)snprintf(path, sizeof path, "%s", scratch_path(relative));
    make_folders(path, false);
    f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

void scratch_write(const char *relative, const char *text)
{
    scratch_write_bytes(relative, text, strlen(text));
}
