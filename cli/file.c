/* SPDX-License-Identifier: Apache-2.0
 * Files appear under their names when they are complete. */
#include "cli/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text += n;
        len -= (size_t)n;
    }
    return true;
}

static bool allow_others(int fd)
{
    mode_t mask = umask(0);
    (void)umask(mask);
    return fchmod(fd, 0666 & ~mask) == 0;
}

/* Closes in any case; keeps the first errno. */
static bool finish(int fd, bool good)
{
    int saved = errno;
    if (close(fd) != 0 && good)
        return false;
    errno = saved;
    return good;
}

static bool write_in_place(const char *path, const char *text, size_t len)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && finish(fd, write_all(fd, text, len));
}

static bool replace(const char *path, char *temp, const char *text, size_t len, bool shared)
{
    int fd = mkstemp(temp), saved;
    bool good;
    if (fd < 0)
        return false;
    good = finish(fd, write_all(fd, text, len) && (!shared || allow_others(fd)) && fsync(fd) == 0);
    if (good && rename(temp, path) == 0)
        return true;
    saved = errno;
    (void)unlink(temp);
    errno = saved;
    return false;
}

int cli_write_file(const char *what, const char *path, const char *text, size_t len, bool shared)
{
    struct stat st;
    char *temp = NULL;
    bool good;
    int saved;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        good = write_in_place(path, text, len);
    } else {
        if (asprintf(&temp, "%s.XXXXXX", path) < 0)
            return cli_fail(CLI_RUN_ERROR, "out of memory");
        good = replace(path, temp, text, len, shared);
        saved = errno;
        free(temp);
        errno = saved;
    }
    return good ? CLI_OK : cli_fail(CLI_RUN_ERROR, "%s: %s: %s", what, path, strerror(errno));
}
