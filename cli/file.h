/* SPDX-License-Identifier: Apache-2.0
 * Writing a file of the user's as a whole. */
#ifndef ATSI_CLI_FILE_H
#define ATSI_CLI_FILE_H

#include "cli/cli.h"

/* Replaces `path` by `text`: complete, or as it was before.  What is no regular file (a pipe, a
 * terminal) is written to.  shared: readable as the umask says, else by the owner alone.  `what` is
 * what the message of a failure begins with.  Returns an exit code. */
int cli_write_file(const char *what, const char *path, const char *text, size_t len, bool shared);

#endif
