/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening one file: only regular, non-empty, readable ones, and each refusal in its own words. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text.h"

static const char *kind_of(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a FIFO (named pipe)";
    if (S_ISSOCK(mode))
        return "a socket";
    return "a device";
}

int gguf_file_open(const char *path, int *fd_out, uint64_t *bytes_out, struct atsi_err *err)
{
    struct stat sb;
    int st = ATSI_EIO;
    /* O_NONBLOCK: a FIFO without a writer must not hang us; without effect on regular files */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return atsi_fail(err, errno == ENOENT || errno == ENOTDIR ? ATSI_ENOENT : ATSI_EIO,
                         "cannot be opened: %s", strerror(errno));
    if (fstat(fd, &sb) != 0) {
        st = atsi_fail(err, ATSI_EIO, "cannot be examined: %s", strerror(errno));
        goto fail;
    }
    if (!S_ISREG(sb.st_mode)) {
        st = atsi_fail(err, ATSI_EIO, "is %s, not a file", kind_of(sb.st_mode));
        goto fail;
    }
    if (sb.st_size <= 0) {
        st = atsi_fail(err, ATSI_EFORMAT, "the file is empty (0 bytes)");
        goto fail;
    }
    *fd_out = fd;
    *bytes_out = (uint64_t)sb.st_size;
    return ATSI_OK;
fail:
    (void)close(fd);
    return st;
}

int gguf_shard_open(struct gguf_shard *s, const char *path, struct atsi_err *err)
{
    struct gguf_cursor c;
    char shown[GGUF_SHOW_PATH];
    int st;
    memset(s, 0, sizeof *s);
    s->fd = -1;
    s->path = strdup(path);
    if (s->path == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "no memory for a path");
    st = gguf_file_open(path, &s->fd, &s->file_bytes, err);
    if (st == ATSI_OK) {
        gguf_cursor_open_fd(&c, s->fd, s->file_bytes);
        st = gguf_head_parse(&c, &s->head, err);
        gguf_cursor_close(&c);
    }
    if (st == ATSI_OK)
        st = gguf_directory_check(&s->head, s->file_bytes, err);
    if (st != ATSI_OK) {
        st = gguf_context(err, st, "%s", gguf_show_path(path, shown));
        gguf_shard_close(s);
    }
    return st;
}

void gguf_shard_close(struct gguf_shard *s)
{
    gguf_head_close(&s->head);
    if (s->memory.map != NULL)
        (void)munmap(s->memory.map, s->memory.map_bytes);
    if (s->fd >= 0)
        (void)close(s->fd);
    free(s->path);
    memset(s, 0, sizeof *s);
    s->fd = -1;
}

int gguf_shard_check_unchanged(const struct gguf_shard *s, struct atsi_err *err)
{
    char shown[GGUF_SHOW_PATH];
    struct stat sb;
    if (fstat(s->fd, &sb) != 0)
        return atsi_fail(err, ATSI_EIO, "%s: cannot be examined: %s",
                         gguf_show_path(s->path, shown), strerror(errno));
    if ((uint64_t)sb.st_size != s->file_bytes)
        return atsi_fail(err, ATSI_EIO,
                         "%s: the file changed while it was opened: it had %" PRIu64
                         " bytes and now has %" PRIu64,
                         gguf_show_path(s->path, shown), s->file_bytes, (uint64_t)sb.st_size);
    return ATSI_OK;
}
