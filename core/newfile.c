/* SPDX-License-Identifier: Apache-2.0
 *
 * Atomic files: a temporary file beside the target, flushed to disk, then renamed over it.
 */
#include "core/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TMP_NAME ".atsinfer-XXXXXX"

#define SHOWN_BYTES 200u

const char *atsi_path_shown(const char *path)
{
    size_t len = strlen(path);
    return len > SHOWN_BYTES ? path + len - SHOWN_BYTES : path;
}

static int fail_errno(const struct atsi_newfile *f, const char *what, struct atsi_err *err)
{
    int e = errno;
    const char *path = atsi_path_shown(f->path);
    if (e == ENOSPC || e == EDQUOT)
        return atsi_fail(err, ATSI_EIO, "%s: disk full: %s; %.1f MiB are needed", path, strerror(e),
                         (double)f->bytes / 1048576.0);
    return atsi_fail(err, e == ENOENT || e == ENOTDIR ? ATSI_ENOENT : ATSI_EIO, "%s: cannot %s: %s",
                     path, what, strerror(e));
}

/* Bytes of the folder's part of a path, the last slash included. */
static size_t folder_len(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

/* f->path: the file to replace. */
static int resolve(struct atsi_newfile *f, const char *path, struct atsi_err *err)
{
    struct stat st;
    bool there;
    if (path == NULL || path[0] == '\0')
        return atsi_fail(err, ATSI_EINVAL, "no file named to write to");
    there = stat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode))
        return atsi_fail(err, ATSI_EIO, "%s: not a regular file: it is not replaced",
                         atsi_path_shown(path));
    f->path = there ? realpath(path, NULL) : strdup(path);
    if (f->path == NULL)
        return atsi_fail(err, errno == ENOMEM ? ATSI_ENOMEM : ATSI_EIO, "%s: %s",
                         atsi_path_shown(path), strerror(errno));
    return ATSI_OK;
}

static int make_tmp(struct atsi_newfile *f, struct atsi_err *err)
{
    size_t folder = folder_len(f->path);
    char *tmp = malloc(folder + sizeof TMP_NAME);
    if (tmp == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "%s: out of memory", atsi_path_shown(f->path));
    memcpy(tmp, f->path, folder);
    memcpy(tmp + folder, TMP_NAME, sizeof TMP_NAME);
    f->fd = mkostemp(tmp, O_CLOEXEC); /* mode 0600 */
    if (f->fd < 0) {
        free(tmp);
        return fail_errno(f, "make a file in its folder", err);
    }
    f->tmp = tmp;
    return ATSI_OK;
}

/* Finds out early that a disk is full.  Not every file system can tell. */
static int reserve(struct atsi_newfile *f, struct atsi_err *err)
{
    if (f->bytes == 0 || fallocate(f->fd, 0, 0, (off_t)f->bytes) == 0)
        return ATSI_OK;
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
        return fail_errno(f, "reserve room", err);
    return ATSI_OK;
}

int atsi_newfile_open(struct atsi_newfile *f, const char *path, uint64_t bytes,
                      struct atsi_err *err)
{
    int rc;
    *f = (struct atsi_newfile){.fd = -1, .bytes = bytes};
    rc = resolve(f, path, err);
    if (f->path != NULL)
        rc = make_tmp(f, err);
    if (f->tmp != NULL)
        rc = reserve(f, err);
    if (rc == ATSI_OK && f->tmp != NULL)
        return ATSI_OK;
    atsi_newfile_abort(f);
    return rc != ATSI_OK ? rc : ATSI_EIO;
}

int atsi_newfile_write(struct atsi_newfile *f, const void *p, size_t n, struct atsi_err *err)
{
    const unsigned char *at = p;
    while (n > 0) {
        ssize_t done = write(f->fd, at, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done == 0)
            errno = ENOSPC; /* no system does this to a regular file; never loop on it */
        if (done <= 0)
            return fail_errno(f, "write", err);
        at += done;
        n -= (size_t)done;
    }
    return ATSI_OK;
}

/* Makes the new name last.  Some file systems cannot flush a folder. */
static int flush_folder(const struct atsi_newfile *f, struct atsi_err *err)
{
    size_t folder = folder_len(f->tmp);
    int fd, rc;
    f->tmp[folder] = '\0';
    fd = open(folder > 0 ? f->tmp : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ATSI_OK; /* a folder that may be written but not listed */
    rc = fsync(fd) == 0 || errno == EINVAL || errno == EROFS
             ? ATSI_OK
             : fail_errno(f, "flush its folder", err);
    (void)close(fd);
    return rc;
}

int atsi_newfile_commit(struct atsi_newfile *f, struct atsi_err *err)
{
    int rc = ATSI_OK, closed;
    if (fsync(f->fd) != 0)
        rc = fail_errno(f, "flush to disk", err);
    closed = close(f->fd);
    f->fd = -1;
    if (rc == ATSI_OK && closed != 0)
        rc = fail_errno(f, "close", err);
    if (rc == ATSI_OK && rename(f->tmp, f->path) != 0)
        rc = fail_errno(f, "put in place", err);
    if (rc == ATSI_OK) {
        rc = flush_folder(f, err);
        free(f->tmp); /* the name is gone */
        f->tmp = NULL;
    }
    atsi_newfile_abort(f);
    return rc;
}

void atsi_newfile_abort(struct atsi_newfile *f)
{
    if (f->fd >= 0)
        (void)close(f->fd);
    if (f->tmp != NULL)
        (void)unlink(f->tmp);
    free(f->tmp);
    free(f->path);
    *f = (struct atsi_newfile){.fd = -1};
}

int atsi_newfile_put(const char *path, const void *p, size_t n, struct atsi_err *err)
{
    struct atsi_newfile f;
    int rc = atsi_newfile_open(&f, path, n, err);
    if (rc != ATSI_OK)
        return rc;
    rc = atsi_newfile_write(&f, p, n, err);
    if (rc == ATSI_OK)
        return atsi_newfile_commit(&f, err);
    atsi_newfile_abort(&f);
    return rc;
}
