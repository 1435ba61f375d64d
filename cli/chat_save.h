/* SPDX-License-Identifier: Apache-2.0
 *
 * /save and /load.  A session file carries the KV cache and, as its user bytes, the conversation;
 * FILE.json is the conversation alone, which any model can go on with.
 */
#ifndef ATSI_CLI_CHAT_SAVE_H
#define ATSI_CLI_CHAT_SAVE_H

#include "cli/chat_turn.h"

/* Both say on stderr what was done, or why not; exit code. */
int chat_save(struct chat *c, const char *path);
int chat_load(struct chat *c, const char *path);

#endif
