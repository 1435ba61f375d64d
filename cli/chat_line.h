/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of input: edited with a history on a terminal (libedit), else read as they come.
 */
#ifndef ATSI_CLI_CHAT_LINE_H
#define ATSI_CLI_CHAT_LINE_H

#include <stdbool.h>
#include <stddef.h>

struct chat_lines;

enum chat_got {
    CHAT_LINE,        /* a line */
    CHAT_END,         /* end of the input, Ctrl-D */
    CHAT_INTERRUPTED, /* Ctrl-C at the prompt, SIGTERM */
    CHAT_FAILED       /* message printed */
};

/* `terminal`: edit; `history`: keep lines in $XDG_STATE_HOME/atsinfer/chat_history, mode 0600.
 * NULL: message printed. */
struct chat_lines *chat_lines_open(bool terminal, bool history);
void chat_lines_close(struct chat_lines *l); /* NULL is allowed */
/* The next line without its newline; `more`: of a message that has begun.  [borrowed until the next
 * call] */
enum chat_got chat_lines_next(struct chat_lines *l, bool more, const char **line, size_t *len);

#endif
