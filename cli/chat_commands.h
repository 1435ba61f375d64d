/* SPDX-License-Identifier: Apache-2.0
 * What the slash commands of a chat do. */
#ifndef ATSI_CLI_CHAT_COMMANDS_H
#define ATSI_CLI_CHAT_COMMANDS_H

#include "cli/chat_input.h"
#include "cli/chat_turn.h"

/* Runs "/verb argument" (`line` is changed).  Sets *leave for /exit.  Returns an exit code, message
 * printed; after any of them the conversation can go on. */
int chat_command(struct chat *c, char *line, bool *leave);

#endif
