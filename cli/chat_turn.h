/* SPDX-License-Identifier: Apache-2.0
 *
 * A chat in progress: the model side of `atsinfer chat`, and one turn of it.
 */
#ifndef ATSI_CLI_CHAT_TURN_H
#define ATSI_CLI_CHAT_TURN_H

#include "cli/chat_past.h"
#include "cli/chat_screen.h"
#include "cli/chat_talk.h"
#include "cli/chat_think.h"
#include "cli/generate.h"
#include "text/chat_template.h"

/* A prompt: the rendered conversation and its tokens.  [owned: chat_prompt_free()] */
struct chat_prompt {
    char *text;
    size_t len;
    struct atsi_ids ids;
};

/* What the last turn cost. */
struct chat_cost {
    uint32_t kept, evaluated, generated; /* tokens */
    uint64_t prefill_ns, decode_ns, first_token_ns;
};

struct chat {
    const struct atsi_host *host; /* [borrowed], as what follows */
    const struct atsi_model *model;
    struct atsi_session *session;
    const struct atsi_tokenizer *tok;
    const struct atsi_chat_template *tmpl;
    struct atsi_stops *stops;
    const volatile int *cancel;
    struct chat_style style;
    struct atsi_session_info info;
    struct atsi_vocab_info vocab;
    int64_t seed; /* -1: random */
    bool verbose;

    struct atsi_sampler *sampler; /* of the answer under way; [owned] */
    struct atsi_ids shown;        /* special tokens that the splitter has to see; [owned] */
    struct chat_talk talk;
    struct chat_past past;
    struct chat_screen screen;
    /* The text of the session's tokens, while it has exactly `text_tokens` of them (0: not known),
     * and how much of it was the last prompt. */
    struct atsi_bytes text;
    uint32_t text_tokens, prompt_tokens;
    size_t prompt_len;
    struct chat_cost cost;
};

/* Finds out about special tokens; c->style, tok, session and info are set.  Exit code. */
int chat_open(struct chat *c);
void chat_close(struct chat *c);

/* chat_prompt.c: but for the first, all print on failure and return an exit code. */
/* Renders `messages` (taken; NULL counts as out of memory) ready for an answer.  A template's own
 * refusal is ATSI_EFORMAT. */
int chat_try_render(const struct chat *c, json_t *messages, struct chat_prompt *out,
                    struct atsi_err *err);
/* The tokens of out->text.  Where it begins with the text of the session's tokens, these are its
 * beginning, so that an answer is not evaluated again because it would be cut differently. */
int chat_tokenize(const struct chat *c, struct chat_prompt *out);
/* The conversation without its `drop` oldest turns: both of the above. */
int chat_prompt_make(const struct chat *c, size_t drop, struct chat_prompt *out);
void chat_prompt_free(struct chat_prompt *p);
/* Where the next turn's prompt will still be the same, at most p->ids.n - 1. */
int chat_prompt_stable(const struct chat *c, const struct chat_prompt *p, uint32_t *out);
/* Where any conversation with this system prompt is still the same. */
int chat_prompt_system(const struct chat *c, const struct chat_prompt *p, uint32_t *out);

/* Answers the message that waits.  CLI_OK: the answer (perhaps cut) is in the conversation;
 * CLI_INTERRUPTED: stopped before there was any; else an exit code, message printed, and the
 * conversation is as before, but for turns that were dropped. */
int chat_answer(struct chat *c);
/* A message of the user and the answer.  Without an answer the message is taken back. */
int chat_say(struct chat *c, const char *text, size_t len);
/* Another answer to the last message; the former one stays when there is none. */
int chat_regen(struct chat *c);

/* Pairs c->text with the tokens the session holds: the prompt, and raw bytes for what follows it.
 * Takes prompt->text. */
int chat_note_text(struct chat *c, struct chat_prompt *prompt, uint32_t prompt_tokens);

#endif
