/* SPDX-License-Identifier: Apache-2.0
 *
 * A conversation becomes text by the model's template, and text becomes tokens.
 */
#include "cli/chat_turn.h"

#include <stdlib.h>
#include <string.h>

void chat_prompt_free(struct chat_prompt *p)
{
    free(p->text);
    free(p->ids.p);
    *p = (struct chat_prompt){.text = NULL};
}

static int no_memory(void)
{
    return cli_fail(CLI_RUN_ERROR, "out of memory");
}

/* ---------------------------------------------------------------- text */
/* A token's text as a JSON string; "" when there is none, as templates print it unasked. */
static json_t *token_name(const struct chat *c, int32_t id)
{
    size_t n = 0;
    const char *text = id >= 0 ? atsi_token_text(c->tok, id, &n) : NULL;
    json_t *s = text != NULL ? json_stringn(text, n) : NULL;
    return s != NULL ? s : json_string("");
}

static json_t *variables(const struct chat *c)
{
    json_t *v = json_pack("{s:o, s:o}", "bos_token", token_name(c, c->vocab.bos), "eos_token",
                          token_name(c, c->vocab.eos));
    if (v != NULL && json_object_update(v, c->talk.variables) != 0) {
        json_decref(v);
        v = NULL;
    }
    return v;
}

/* The template's own complaint about a conversation, without what could command a terminal. */
static int refused(const struct atsi_chat_text *text, struct atsi_err *err)
{
    struct atsi_bytes clean = {.p = NULL};
    int rc = ATSI_ENOMEM;
    if (chat_clean(text->text, text->len, &clean))
        rc = atsi_fail(err, ATSI_EFORMAT, "the chat template refuses this conversation: %.*s",
                       (int)(clean.n < 400 ? clean.n : 400), clean.n > 0 ? clean.p : "");
    free(clean.p);
    return rc;
}

int chat_try_render(const struct chat *c, json_t *messages, struct chat_prompt *out,
                    struct atsi_err *err)
{
    struct atsi_chat_text text = {.struct_size = sizeof text};
    struct atsi_chat_input in = {
        .struct_size = sizeof in, .add_generation_prompt = true, .messages = messages};
    json_t *vars = variables(c);
    int rc = ATSI_ENOMEM;
    in.variables = vars;
    if (messages != NULL && vars != NULL && localtime_r(&c->talk.now, &in.now) != NULL)
        rc = atsi_chat_template_render(c->tmpl, &in, &text, err);
    json_decref(vars);
    json_decref(messages);
    if (rc == ATSI_OK && text.raised) {
        rc = refused(&text, err);
        free(text.text);
    } else if (rc == ATSI_OK) {
        out->text = text.text;
        out->len = text.len;
    }
    return rc;
}

/* ---------------------------------------------------------------- tokens */
/* Appends the tokens of text[len], marks included. */
static int add_tokens(const struct chat *c, const char *text, size_t len, struct atsi_ids *out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = atsi_tokenize(c->tok, text, len, ATSI_TOK_PARSE_SPECIAL, &ids, &n, &err);
    bool ok = rc != ATSI_OK || atsi_ids_reserve(out, n);
    if (rc == ATSI_OK && ok && n > 0) {
        memcpy(out->p + out->n, ids, n * sizeof *ids);
        out->n += n;
    }
    free(ids);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    return ok ? CLI_OK : no_memory();
}

/* Text may be cut before this token without changing how the rest is tokenized. */
static bool is_mark(const struct chat *c, int32_t id)
{
    return atsi_token_is_eog(c->tok, id) || atsi_token_bytes(c->tok, id, false, NULL, 0) == 0;
}

/* The session's tokens and those of the text behind theirs; *done is false when that is not how
 * this prompt goes on. */
static int extend(const struct chat *c, struct chat_prompt *p, bool *done)
{
    uint32_t past = atsi_session_n_past(c->session);
    size_t n = c->text.n;
    int code;
    *done = false;
    if (c->text_tokens == 0 || c->text_tokens != past || p->len <= n ||
        memcmp(p->text, c->text.p, n) != 0)
        return CLI_OK;
    if (!atsi_ids_reserve(&p->ids, past))
        return no_memory();
    memcpy(p->ids.p, atsi_session_tokens(c->session), past * sizeof *p->ids.p);
    p->ids.n = past;
    code = add_tokens(c, p->text + n, p->len - n, &p->ids);
    *done = code == CLI_OK && p->ids.n > past && is_mark(c, p->ids.p[past]);
    return code;
}

int chat_tokenize(const struct chat *c, struct chat_prompt *out)
{
    bool done, bos;
    int code = extend(c, out, &done);
    if (code != CLI_OK || done)
        return code;
    out->ids.n = 0;
    bos = c->vocab.add_bos && c->vocab.bos >= 0;
    if (bos && !atsi_ids_add(&out->ids, c->vocab.bos))
        return no_memory();
    code = add_tokens(c, out->text, out->len, &out->ids);
    if (code == CLI_OK && bos && out->ids.n > 1 && out->ids.p[1] == c->vocab.bos) {
        out->ids.n--; /* the template wrote it */
        memmove(out->ids.p, out->ids.p + 1, out->ids.n * sizeof *out->ids.p);
    }
    if (code == CLI_OK && out->ids.n == 0)
        return cli_fail(CLI_RUN_ERROR, "the chat template gives no text for this conversation");
    return code;
}

int chat_prompt_make(const struct chat *c, size_t drop, struct chat_prompt *out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int rc, code;
    *out = (struct chat_prompt){.text = NULL};
    rc = chat_try_render(c, chat_talk_messages(&c->talk, drop), out, &err);
    code = rc == ATSI_OK ? chat_tokenize(c, out) : cli_fail_status(rc, &err);
    if (code != CLI_OK)
        chat_prompt_free(out);
    return code;
}

/* ---------------------------------------------------------------- probes */
/* Length of what p has in common with the prompt of other messages (taken); 0 when the template
 * refuses those. */
static int in_common(const struct chat *c, const struct chat_prompt *p, json_t *messages,
                     uint32_t *out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct chat_prompt other = {.text = NULL};
    size_t n;
    int code;
    *out = 0;
    if (chat_try_render(c, messages, &other, &err) != ATSI_OK)
        return CLI_OK;
    code = chat_tokenize(c, &other);
    if (code == CLI_OK) {
        n = chat_common(p->ids.p, p->ids.n - 1, other.ids.p, other.ids.n);
        *out = (uint32_t)(n < UINT32_MAX ? n : UINT32_MAX);
    }
    chat_prompt_free(&other);
    return code;
}

int chat_prompt_stable(const struct chat *c, const struct chat_prompt *p, uint32_t *out)
{
    return in_common(c, p, chat_talk_next(&c->talk, 0), out);
}

int chat_prompt_system(const struct chat *c, const struct chat_prompt *p, uint32_t *out)
{
    struct chat_talk other = c->talk;
    const json_t *first = json_array_get(c->talk.messages, 0);
    const char *text = json_string_value(json_object_get(first, "content"));
    json_t *list;
    /* Another first message: one that differs in its first character. */
    other.messages = json_pack("[{s:s, s:s}]", "role", "user", "content",
                               text != NULL && text[0] == '.' ? "x" : ".");
    list = other.messages != NULL ? chat_talk_messages(&other, 0) : NULL;
    json_decref(other.messages);
    return in_common(c, p, list, out);
}
