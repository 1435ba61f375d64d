/* SPDX-License-Identifier: Apache-2.0
 *
 * What the user types: lines that become messages, and slash commands.  Pure.
 *
 * A message is one line.  A line that ends in a backslash goes on in the next; lines between two
 * """ are one message.  A line that begins with / is a command, with // a message that begins with
 * one slash.
 */
#ifndef ATSI_CLI_CHAT_INPUT_H
#define ATSI_CLI_CHAT_INPUT_H

#include "text/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Collects lines.  All-zero is the beginning; chat_input_reset() after each message. */
struct chat_input {
    struct atsi_bytes text; /* the message so far; [owned: chat_input_close()] */
    bool block;             /* inside """ */
    bool joined;            /* the last line ended in a backslash */
    bool command;           /* text is a command: it begins with its slash */
};

enum chat_fed { CHAT_FED_MORE, CHAT_FED_EMPTY, CHAT_FED_DONE, CHAT_FED_NOMEM };

/* A line without its newline.  DONE: in->text is a message, or a command (in->command). */
enum chat_fed chat_input_line(struct chat_input *in, const char *line, size_t len);
/* The end of the input: an unfinished message counts as it is.  DONE or EMPTY. */
enum chat_fed chat_input_end(struct chat_input *in);
void chat_input_reset(struct chat_input *in);
void chat_input_close(struct chat_input *in);

enum chat_verb {
    CHAT_HELP,
    CHAT_CLEAR,
    CHAT_REGEN,
    CHAT_UNDO,
    CHAT_SYSTEM,
    CHAT_SAVE,
    CHAT_LOAD,
    CHAT_STATS,
    CHAT_EXIT,
    CHAT_BAD_VERB
};

struct chat_command {
    enum chat_verb verb;
    const char *arg; /* what follows, blanks at both ends removed; NULL: nothing  [into the line] */
    char why[160];   /* of CHAT_BAD_VERB */
};

/* Takes "/verb argument" apart; `line` is changed and must be NUL-terminated. */
void chat_command_parse(char *line, struct chat_command *out);
/* One line of help for each command, in order; NULL behind the last. */
const char *chat_command_help(size_t i, const char **usage_out);

#endif
