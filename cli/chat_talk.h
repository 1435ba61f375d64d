/* SPDX-License-Identifier: Apache-2.0
 *
 * A conversation as data: system prompt, messages, template variables; to and from JSON.  Pure: no
 * session, no terminal.
 *
 * A turn is a message of the user and the answer to it.  The last turn may lack its answer.
 */
#ifndef ATSI_CLI_CHAT_TALK_H
#define ATSI_CLI_CHAT_TALK_H

#include "atsinfer/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

struct chat_talk {
    json_t *system;    /* string or NULL */
    json_t *messages;  /* list of {role, content, ...} without the system prompt */
    json_t *variables; /* object: what the template gets beside the messages */
    time_t now;        /* the conversation's date: a date that changes would change its beginning */
    json_int_t draws;  /* answers drawn so far: each has its own random numbers */
};

/* An empty conversation of now.  false: out of memory; chat_talk_close() it either way. */
bool chat_talk_open(struct chat_talk *t);
void chat_talk_close(struct chat_talk *t);

/* Text of the user, which must be UTF-8: ATSI_EINVAL names the byte that is not. */
int chat_talk_user(struct chat_talk *t, const char *text, size_t len, struct atsi_err *err);
/* The answer to the last message.  Bytes that are no UTF-8 become U+FFFD.  Reasoning goes, without
 * newlines around it, into `field`; `cut`: the answer was stopped. */
struct chat_reply {
    const char *text, *reasoning;
    size_t len, reasoning_len;
    const char *field;
    bool cut;
};
int chat_talk_answer(struct chat_talk *t, const struct chat_reply *r, struct atsi_err *err);
/* Replaces the system prompt (must be UTF-8); an empty one: none. */
int chat_talk_system(struct chat_talk *t, const char *text, size_t len, struct atsi_err *err);
/* No messages any more; the system prompt and the variables stay. */
int chat_talk_clear(struct chat_talk *t);

size_t chat_talk_turns(const struct chat_talk *t);
/* The last message is the user's and waits for an answer. */
bool chat_talk_waiting(const struct chat_talk *t);
/* Takes the last answer back, if there is one; true when a message then waits for an answer. */
bool chat_talk_unanswer(struct chat_talk *t);
/* Removes the last turn, or the n oldest. */
void chat_talk_undo(struct chat_talk *t);
void chat_talk_drop(struct chat_talk *t, size_t n_turns);

/* What a template is given: the system prompt, and the messages without the `drop` oldest turns.
 * NULL: out of memory.  [owned by caller: json_decref()] */
json_t *chat_talk_messages(const struct chat_talk *t, size_t drop);
/* The same with an answer and another message behind: where an answer is about to be written, this
 * shows which beginning of the text the next turn will have in common.  Without the answer to the
 * last message; NULL: out of memory. */
json_t *chat_talk_next(const struct chat_talk *t, size_t drop);

/* "KEY=JSON" into the variables.  ATSI_EINVAL: no name, no JSON, or a key that is ours. */
int chat_talk_var(struct chat_talk *t, const char *assignment, struct atsi_err *err);

/* The whole conversation, and back.  chat_talk_read() checks everything: ATSI_EFORMAT names what is
 * wrong and *t is as before.  `more`: members added beside ours, may be NULL; *more_out: the object
 * read, to look for them.  [owned by caller: json_decref()] */
char *chat_talk_write(const struct chat_talk *t, json_t *more);
int chat_talk_read(struct chat_talk *t, const char *text, size_t len, json_t **more_out,
                   struct atsi_err *err);

#endif
