/* SPDX-License-Identifier: Apache-2.0
 * Chat templates: a conversation to the text a model was trained on.
 *
 * A template is Jinja source, as models carry it in `tokenizer.chat_template`.  It behaves as in
 * Jinja2 3.1 with trim_blocks, lstrip_blocks, loop controls, no autoescape and the immutable
 * sandbox.  A construct that is not supported is an error that names it and its line, never wrong
 * text.  Templates come from strangers: nesting, steps, memory and output are bounded. */
#ifndef ATSI_TEXT_CHAT_TEMPLATE_H
#define ATSI_TEXT_CHAT_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "atsinfer/status.h"

struct atsi_chat_template;

/* Parses source[0..len), which must be UTF-8.  ATSI_EFORMAT: malformed, "line N: ...";
 * ATSI_ENOTSUP: a construct that is not supported, named with its line.  [owned by caller:
 * .._close()] */
int atsi_chat_template_open(const char *source, size_t len, struct atsi_chat_template **out,
                            struct atsi_err *err);
void atsi_chat_template_close(struct atsi_chat_template *t); /* NULL allowed */

/* What is rendered.  [caller-owned]  All-zero but struct_size is an empty conversation. */
struct atsi_chat_input {
    uint32_t struct_size;       /* sizeof(struct atsi_chat_input) */
    bool add_generation_prompt; /* end with the opening of an answer */
    const json_t *messages;     /* list of objects; NULL: an empty list */
    const json_t *tools;        /* list of objects; NULL: `tools` is none */
    const json_t *variables;    /* object of further top-level variables (bos_token, eos_token,
                                 * enable_thinking, ...); it overrides the above; NULL: none */
    struct tm now;              /* what strftime_now() formats; tm_wday and tm_yday are computed;
                                 * tm_mday 0: none, it is an error then */
};

/* Text that a render gave.  [caller-owned]  The caller sets struct_size. */
struct atsi_chat_text {
    uint32_t struct_size;
    bool raised; /* the template called raise_exception(): text is its message */
    char *text;  /* NUL behind the len bytes; may also contain NUL  [free() it] */
    size_t len;
};

/* Renders.  ATSI_OK: out->text is set, and out->raised tells a conversation's text from the
 * complaint of a template that refuses this conversation.  Else out->text is NULL and err says
 * "line N: ...": ATSI_EFORMAT for what Jinja2 fails on too (and for a limit), ATSI_ENOTSUP for what
 * is not supported, ATSI_ENOMEM, ATSI_EINVAL.  [any thread; a template may be in several renders at
 * once; the JSON trees must not change meanwhile] */
int atsi_chat_template_render(const struct atsi_chat_template *t, const struct atsi_chat_input *in,
                              struct atsi_chat_text *out, struct atsi_err *err);

#endif
