/* SPDX-License-Identifier: Apache-2.0
 *
 * Context overflow, the rule: the prompt and a reserve for the answer must fit the context.  When
 * they do not, the oldest turns are dropped until two reserves are free (so that the next message
 * does not have to drop and evaluate everything once more), or, if even the last message alone
 * leaves no two, one.  A message that leaves less is refused.  Pure.
 */
#ifndef ATSI_CLI_CHAT_FIT_H
#define ATSI_CLI_CHAT_FIT_H

#include <stddef.h>
#include <stdint.h>

/* Tokens kept free for an answer: n_predict, at most half the context; without a limit (-1) a
 * quarter of it, at most 1024.  At least 1. */
uint32_t chat_reserve(uint32_t n_ctx, int64_t n_predict);

struct chat_fit {
    uint32_t n_ctx, reserve;
    size_t n_turns; /* in the conversation, the one to be answered included */
    /* Tokens of the prompt without the `drop` oldest turns; anything but 0 ends the search and is
     * returned. */
    int (*measure)(void *ctx, size_t drop, size_t *n_tokens);
    void *ctx;
    /* Results */
    size_t drop;     /* turns to leave out */
    size_t n_tokens; /* of that prompt */
};

#define CHAT_FIT_TOO_LONG 1000 /* n_tokens: of the last message alone (with the system prompt) */

/* 0, CHAT_FIT_TOO_LONG, or what measure returned. */
int chat_fit(struct chat_fit *f);

#endif
