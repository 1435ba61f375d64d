/* SPDX-License-Identifier: Apache-2.0
 *
 * Beside the conversation a session file notes what its last prompt was: how many of the session's
 * tokens, and a hash of its text.  With these, /load can pair the tokens with their text again, so
 * that the continuation is token for token that of a chat which was never interrupted.
 */
#include "cli/chat_save.h"

#include "cli/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    return cli_fail(CLI_RUN_ERROR, "out of memory");
}

/* FNV-1a, 64 bits: tells texts apart that differ by accident. */
static void hash_text(const char *text, size_t len, char out[17])
{
    uint64_t h = 0xcbf29ce484222325U;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3U;
    (void)snprintf(out, 17, "%016llx", (unsigned long long)h);
}

static bool is_json_name(const char *path)
{
    size_t n = strlen(path);
    return n >= 5 && strcmp(path + n - 5, ".json") == 0;
}

/* ~/ is the home folder, as in a shell.  [owned by caller: free()] */
static char *full_path(const char *path)
{
    const char *home = secure_getenv("HOME");
    char *out = NULL;
    if (path[0] != '~' || path[1] != '/' || home == NULL)
        return strdup(path);
    return asprintf(&out, "%s%s", home, path + 1) > 0 ? out : NULL;
}

/* ---------------------------------------------------------------- save */
/* {"prompt": {tokens, bytes, hash}} while the session's text is known, else {}. */
static json_t *prompt_note(const struct chat *c)
{
    char hash[17];
    if (c->text_tokens == 0 || c->text_tokens != atsi_session_n_past(c->session))
        return json_object();
    hash_text(c->text.p, c->prompt_len, hash);
    return json_pack("{s:{s:I, s:I, s:s}}", "prompt", "tokens", (json_int_t)c->prompt_tokens,
                     "bytes", (json_int_t)c->prompt_len, "hash", hash);
}

static int save_to(struct chat *c, const char *path)
{
    struct atsi_err err = ATSI_ERR_INIT;
    bool alone = is_json_name(path);
    json_t *note = alone ? json_object() : prompt_note(c);
    char *text = note != NULL ? chat_talk_write(&c->talk, note) : NULL;
    int code = CLI_OK, rc;
    json_decref(note);
    if (text == NULL)
        return no_memory();
    if (alone) {
        code = cli_write_file("/save", path, text, strlen(text), false);
    } else {
        rc = atsi_session_save(c->session, path, text, strlen(text), &err);
        if (rc != ATSI_OK)
            code = cli_fail_status(rc, &err);
    }
    free(text);
    if (code == CLI_OK && alone)
        chat_note("saved %zu messages to %s", json_array_size(c->talk.messages), path);
    else if (code == CLI_OK)
        chat_note("saved %zu messages and %u tokens to %s", json_array_size(c->talk.messages),
                  atsi_session_n_past(c->session), path);
    return code;
}

int chat_save(struct chat *c, const char *path)
{
    char *full = full_path(path);
    int code = full != NULL ? save_to(c, full) : no_memory();
    free(full);
    return code;
}

/* ---------------------------------------------------------------- load */
/* Renders the prompt of the last answer once more; when it is the noted one, the session's first
 * tokens are its tokens. */
static int pair_text(struct chat *c, const json_t *note)
{
    json_int_t tokens = json_integer_value(json_object_get(note, "tokens"));
    json_int_t bytes = json_integer_value(json_object_get(note, "bytes"));
    const char *want = json_string_value(json_object_get(note, "hash"));
    struct atsi_err err = ATSI_ERR_INIT;
    struct chat_prompt p = {.text = NULL};
    json_t *list = chat_talk_messages(&c->talk, 0);
    char hash[17];
    int code = CLI_OK;
    if (list == NULL)
        return no_memory();
    if (want == NULL || chat_talk_waiting(&c->talk) || json_array_size(list) < 2 || tokens <= 0 ||
        tokens > (json_int_t)atsi_session_n_past(c->session)) {
        json_decref(list);
        return CLI_OK;
    }
    (void)json_array_remove(list, json_array_size(list) - 1);
    if (chat_try_render(c, list, &p, &err) != ATSI_OK)
        return CLI_OK; /* it will be said when the conversation goes on */
    hash_text(p.text, p.len, hash);
    if (bytes >= 0 && (size_t)bytes == p.len && strcmp(hash, want) == 0)
        code = chat_note_text(c, &p, (uint32_t)tokens);
    chat_prompt_free(&p);
    return code;
}

/* A conversation that was read; `session`: with the session's tokens. */
static int take_talk(struct chat *c, const char *path, const char *text, size_t len, bool session)
{
    struct atsi_err err = ATSI_ERR_INIT;
    json_t *o = NULL;
    int code = CLI_OK, rc = chat_talk_read(&c->talk, text, len, &o, &err);
    if (rc != ATSI_OK)
        return cli_fail(cli_exit_code(rc), "%s: %s", path, err.msg);
    if (session)
        code = pair_text(c, json_object_get(o, "prompt"));
    json_decref(o);
    return code;
}

static int load_session(struct chat *c, const char *path)
{
    struct atsi_err err = ATSI_ERR_INIT;
    void *user = NULL;
    size_t n = 0;
    int code, rc = atsi_session_load(c->session, path, &user, &n, &err);
    chat_past_forget(&c->past); /* even a load that failed may have emptied the session */
    c->text_tokens = 0;
    if (rc == ATSI_EINVAL || rc == ATSI_ENOFIT)
        return cli_fail(cli_exit_code(rc),
                        "%s. To go on with the text alone, /save it as FILE.json where it was made "
                        "and /load that",
                        err.msg);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    if (user == NULL)
        code = cli_fail(CLI_RUN_ERROR, "%s: a session without a conversation", path);
    else
        code = take_talk(c, path, user, n, true);
    free(user);
    return code;
}

/* Whether the file begins as JSON does. */
static int starts_as_json(const char *path, bool *out)
{
    FILE *f = fopen(path, "re");
    int first;
    if (f == NULL)
        return cli_fail(CLI_RUN_ERROR, "/load: %s: %s", path, strerror(errno));
    do
        first = getc(f);
    while (first == ' ' || first == '\n' || first == '\r' || first == '\t');
    *out = first == '{';
    (void)fclose(f);
    return CLI_OK;
}

static int load_from(struct chat *c, const char *path)
{
    char *text = NULL;
    size_t len = 0;
    bool json = false;
    int code = starts_as_json(path, &json);
    if (code != CLI_OK)
        return code;
    if (!json) {
        code = load_session(c, path);
    } else {
        code = cli_read_file(path, &text, &len);
        if (code == CLI_OK)
            code = take_talk(c, path, text, len, false);
        free(text);
    }
    if (code == CLI_OK)
        chat_note("loaded %zu messages%s, %u tokens evaluated", json_array_size(c->talk.messages),
                  c->talk.system != NULL ? " and a system prompt" : "",
                  json ? 0 : atsi_session_n_past(c->session));
    return code;
}

int chat_load(struct chat *c, const char *path)
{
    char *full = full_path(path);
    int code = full != NULL ? load_from(c, full) : no_memory();
    free(full);
    return code;
}
