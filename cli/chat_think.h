/* SPDX-License-Identifier: Apache-2.0
 *
 * Reasoning and answer: how a model marks what it thinks, and a splitter that takes the text apart
 * while it arrives.  Pure: no I/O, no session.
 */
#ifndef ATSI_CLI_CHAT_THINK_H
#define ATSI_CLI_CHAT_THINK_H

#include "text/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* How a model writes its reasoning, found out from its template. */
struct chat_style {
    /* Harmony (gpt-oss): <|channel|>analysis<|message|>...<|end|><|start|>assistant... */
    bool harmony;
    const char *open, *close; /* else: the reasoning stands between these; static */
    const char *field;        /* member of a message in which the template looks for it; static */
};

void chat_style_of(const char *template_text, size_t len, struct chat_style *out);
/* Whether a rendered prompt leaves off inside the reasoning (it ends with the opening mark). */
bool chat_style_inside(const struct chat_style *style, const char *prompt, size_t len);
/* The i-th text that may be a special token and matters to the splitter; NULL behind the last. */
const char *chat_style_mark(const struct chat_style *style, size_t i);

enum chat_kind { CHAT_ANSWER, CHAT_REASONING };

/* Takes a piece of text, never empty.  Anything but 0 stops and is returned. */
typedef int chat_part_fn(void *ctx, enum chat_kind kind, const char *text, size_t len);

struct chat_splitter {
    const struct chat_style *style; /* [borrowed] */
    chat_part_fn *fn;
    void *ctx;
    struct atsi_bytes held; /* not decided yet; [owned: chat_splitter_close()] */
    int state;              /* of chat_think.c */
    enum chat_kind kind;    /* of the Harmony message being read */
};

#define CHAT_SPLIT_NOMEM (-1)

/* A new text; `inside`: it begins within the reasoning. */
void chat_splitter_open(struct chat_splitter *s, const struct chat_style *style, bool inside,
                        chat_part_fn *fn, void *ctx);
/* The next bytes.  Marks may be cut anywhere; the result does not depend on it.  Returns 0, what fn
 * returned, or CHAT_SPLIT_NOMEM. */
int chat_splitter_push(struct chat_splitter *s, const char *text, size_t len);
/* The end: what was held back. */
int chat_splitter_flush(struct chat_splitter *s);
void chat_splitter_close(struct chat_splitter *s);

#endif
