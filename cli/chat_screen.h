/* SPDX-License-Identifier: Apache-2.0
 *
 * Shows what a model writes: reasoning dimmed on a terminal, and nothing that would command the
 * terminal.
 */
#ifndef ATSI_CLI_CHAT_SCREEN_H
#define ATSI_CLI_CHAT_SCREEN_H

#include "cli/chat_think.h"

#include "atsinfer/plugin.h"

/* A line on stderr about what was done; none with --quiet. */
void chat_note(const char *fmt, ...) ATSI_PRINTF(1, 2);

/* Appends text[n] with the control characters made visible: C0 but newline and tab, DEL, C1
 * (U+0080..9F), and bytes that are no UTF-8.  U+2400 and on picture the C0 ones, the rest becomes
 * U+FFFD.  A carriage return before a newline is dropped.  false: out of memory. */
bool chat_clean(const char *text, size_t n, struct atsi_bytes *out);

struct chat_screen {
    bool terminal;      /* stdout is one: text is cleaned, reasoning may be shown */
    bool hide_thinking; /* reasoning is never shown */
    bool dim;           /* shown now */
    bool line_open;     /* something was written since the last newline */
    bool any;           /* something was written of this answer */
};

/* Detects the terminal. */
void chat_screen_open(struct chat_screen *s, bool hide_thinking);
/* A piece of an answer.  Returns an exit code, message printed. */
int chat_screen_put(struct chat_screen *s, enum chat_kind kind, const char *text, size_t len);
/* The end of an answer: normal text again, and its line is ended.  Scripts get a line for an empty
 * answer too. */
int chat_screen_end(struct chat_screen *s);

#endif
