/* SPDX-License-Identifier: Apache-2.0
 * Writing a file so that its name shows either the old contents or all of the new ones. */
#ifndef ATSI_CORE_NEWFILE_H
#define ATSI_CORE_NEWFILE_H

#include "atsinfer/status.h"

#include <stddef.h>

struct atsi_newfile {
    char *path; /* what is replaced in the end: a symbolic link's target */
    char *tmp;  /* in the same folder, mode 0600 */
    int fd;
    uint64_t bytes; /* announced */
};

/* Starts a file of `bytes` bytes; room for them is reserved where the file system can.  Refuses to
 * replace what is no regular file.  After ATSI_OK call commit() or abort(), once. */
int atsi_newfile_open(struct atsi_newfile *f, const char *path, uint64_t bytes,
                      struct atsi_err *err);
int atsi_newfile_write(struct atsi_newfile *f, const void *p, size_t n, struct atsi_err *err);
/* Puts the file in place, on disk.  On an error nothing was replaced and nothing is left (only when
 * flushing the folder fails, the new file is there already). */
int atsi_newfile_commit(struct atsi_newfile *f, struct atsi_err *err);
void atsi_newfile_abort(struct atsi_newfile *f);
/* All of these at once: a file of n bytes at p. */
int atsi_newfile_put(const char *path, const void *p, size_t n, struct atsi_err *err);

/* The end of a path, short enough to leave room for the rest of a message.  [borrowed from path] */
const char *atsi_path_shown(const char *path);

#endif
