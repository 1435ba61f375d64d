/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of a conversation are kept as the JSON that templates are given, so nothing has to
 * be converted at a turn.
 */
#include "cli/chat_talk.h"

#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

bool chat_talk_open(struct chat_talk *t)
{
    *t = (struct chat_talk){.messages = json_array(), .variables = json_object()};
    t->now = time(NULL);
    return t->messages != NULL && t->variables != NULL;
}

void chat_talk_close(struct chat_talk *t)
{
    json_decref(t->system);
    json_decref(t->messages);
    json_decref(t->variables);
    *t = (struct chat_talk){.system = NULL};
}

static int no_memory(struct atsi_err *err)
{
    return atsi_fail(err, ATSI_ENOMEM, "out of memory");
}

/* ---------------------------------------------------------------- adding */
/* A JSON string of text that must be UTF-8. */
static int strict_text(const char *text, size_t len, const char *what, json_t **out,
                       struct atsi_err *err)
{
    size_t valid = atsi_utf8_valid_prefix(text, len);
    if (valid < len)
        return atsi_fail(err, ATSI_EINVAL, "%s is not UTF-8: byte %zu is 0x%02X", what, valid + 1,
                         (unsigned)(unsigned char)text[valid]);
    *out = json_stringn(text, len);
    return *out != NULL ? ATSI_OK : no_memory(err);
}

/* A JSON string of any bytes; NULL: out of memory. */
static json_t *any_text(const char *text, size_t len)
{
    struct atsi_bytes clean = {.p = NULL};
    json_t *out = NULL;
    if (atsi_utf8_repair(text, len, false, &clean))
        out = json_stringn(clean.n > 0 ? clean.p : "", clean.n);
    free(clean.p);
    return out;
}

/* {role, content}; takes `content`. */
static json_t *message(const char *role, json_t *content)
{
    return json_pack("{s:s, s:o}", "role", role, "content", content);
}

int chat_talk_user(struct chat_talk *t, const char *text, size_t len, struct atsi_err *err)
{
    json_t *content = NULL;
    int rc = strict_text(text, len, "the message", &content, err);
    if (rc != ATSI_OK)
        return rc;
    return json_array_append_new(t->messages, message("user", content)) == 0 ? ATSI_OK
                                                                             : no_memory(err);
}

int chat_talk_answer(struct chat_talk *t, const struct chat_reply *r, struct atsi_err *err)
{
    const char *why = r->reasoning;
    size_t n = r->reasoning_len;
    json_t *m = message("assistant", any_text(r->text, r->len));
    int bad = m == NULL;
    while (n > 0 && why[n - 1] == '\n')
        n--;
    for (; n > 0 && *why == '\n'; n--)
        why++;
    if (!bad && n > 0)
        bad = json_object_set_new(m, r->field, any_text(why, n));
    if (!bad && r->cut)
        bad = json_object_set_new(m, "cut", json_true());
    if (bad) {
        json_decref(m);
        return no_memory(err);
    }
    return json_array_append_new(t->messages, m) == 0 ? ATSI_OK : no_memory(err);
}

int chat_talk_system(struct chat_talk *t, const char *text, size_t len, struct atsi_err *err)
{
    json_t *system = NULL;
    int rc = len > 0 ? strict_text(text, len, "the system prompt", &system, err) : ATSI_OK;
    if (rc != ATSI_OK)
        return rc;
    json_decref(t->system);
    t->system = system;
    return ATSI_OK;
}

int chat_talk_clear(struct chat_talk *t)
{
    t->now = time(NULL);
    return json_array_clear(t->messages) == 0 ? ATSI_OK : ATSI_ENOMEM;
}

/* ---------------------------------------------------------------- turns */
static bool is_user(const json_t *m)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    return role != NULL && strcmp(role, "user") == 0;
}

static bool user_at(const struct chat_talk *t, size_t i)
{
    return is_user(json_array_get(t->messages, i));
}

size_t chat_talk_turns(const struct chat_talk *t)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(t->messages); i++)
        n += user_at(t, i);
    return n;
}

bool chat_talk_waiting(const struct chat_talk *t)
{
    size_t n = json_array_size(t->messages);
    return n > 0 && user_at(t, n - 1);
}

bool chat_talk_unanswer(struct chat_talk *t)
{
    size_t n = json_array_size(t->messages);
    if (n > 0 && !user_at(t, n - 1))
        (void)json_array_remove(t->messages, n - 1);
    return chat_talk_waiting(t);
}

void chat_talk_undo(struct chat_talk *t)
{
    if (chat_talk_unanswer(t))
        (void)json_array_remove(t->messages, json_array_size(t->messages) - 1);
}

/* Where the messages begin when the oldest n turns are left out. */
static size_t start_of(const struct chat_talk *t, size_t n)
{
    size_t i = 0, size = json_array_size(t->messages);
    for (; n > 0 && i < size; n--)
        for (i++; i < size && !user_at(t, i);)
            i++;
    return i;
}

void chat_talk_drop(struct chat_talk *t, size_t n_turns)
{
    for (size_t i = start_of(t, n_turns); i > 0; i--)
        (void)json_array_remove(t->messages, 0);
}

/* ---------------------------------------------------------------- for the template */
json_t *chat_talk_messages(const struct chat_talk *t, size_t drop)
{
    json_t *list = json_array();
    int bad = list == NULL;
    if (!bad && t->system != NULL) /* the list owns a reference of its own */
        bad = json_array_append_new(list, message("system", json_incref(t->system)));
    for (size_t i = start_of(t, drop); !bad && i < json_array_size(t->messages); i++)
        bad = json_array_append(list, json_array_get(t->messages, i));
    if (!bad)
        return list;
    json_decref(list);
    return NULL;
}

json_t *chat_talk_next(const struct chat_talk *t, size_t drop)
{
    json_t *list = chat_talk_messages(t, drop);
    if (list == NULL)
        return NULL;
    if (json_array_append_new(list, message("assistant", json_string("."))) == 0 &&
        json_array_append_new(list, message("user", json_string("."))) == 0)
        return list;
    json_decref(list);
    return NULL;
}

static bool good_name(const char *p, size_t n)
{
    static const char first[] = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
                      later[] = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    return n > 0 && memchr(first, p[0], sizeof first - 1) != NULL && strspn(p, later) == n;
}

int chat_talk_var(struct chat_talk *t, const char *assignment, struct atsi_err *err)
{
    size_t n = strcspn(assignment, "=");
    json_error_t why;
    json_t *value;
    char key[64];
    if (assignment[n] != '=' || n >= sizeof key || !good_name(assignment, n))
        return atsi_fail(err, ATSI_EINVAL,
                         "--var %.64s: expected NAME=JSON, as in "
                         "enable_thinking=false",
                         assignment);
    memcpy(key, assignment, n);
    key[n] = '\0';
    if (strcmp(key, "messages") == 0 || strcmp(key, "add_generation_prompt") == 0)
        return atsi_fail(err, ATSI_EINVAL, "--var %s: this is what chat itself sets", key);
    value = json_loads(assignment + n + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    if (value == NULL)
        return atsi_fail(
            err, ATSI_EINVAL,
            "--var %s: %.64s is not JSON (%s); a text needs quotes: --var '%s=\"...\"'", key,
            assignment + n + 1, why.text, key);
    return json_object_set_new(t->variables, key, value) == 0 ? ATSI_OK : no_memory(err);
}

/* ---------------------------------------------------------------- JSON */
static const char FORMAT[] = "atsinfer-chat";
enum { VERSION = 1 };
#define MAX_TIME 253402300799 /* the last second of the year 9999 */

char *chat_talk_write(const struct chat_talk *t, json_t *more)
{
    char *text = NULL;
    json_t *o = json_pack("{s:s, s:i, s:I, s:I, s:O, s:O}", "format", FORMAT, "version", VERSION,
                          "now", (json_int_t)t->now, "draws", t->draws, "variables", t->variables,
                          "messages", t->messages);
    if (o != NULL && (t->system == NULL || json_object_set(o, "system", t->system) == 0) &&
        (more == NULL || json_object_update(o, more) == 0))
        text = json_dumps(o, JSON_INDENT(1) | JSON_ENSURE_ASCII);
    json_decref(o);
    return text;
}

/* Message i of a file: the user's and the answers take turns, and each has a text. */
static int check_message(const json_t *m, size_t i, struct atsi_err *err)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    const char *want = i % 2 == 0 ? "user" : "assistant";
    if (role == NULL || strcmp(role, want) != 0)
        return atsi_fail(err, ATSI_EFORMAT, "message %zu: role is %.32s, expected %s", i + 1,
                         role != NULL ? role : "missing", want);
    if (!json_is_string(json_object_get(m, "content")))
        return atsi_fail(err, ATSI_EFORMAT, "message %zu: content is no text", i + 1);
    return ATSI_OK;
}

/* A whole number from 0 to most under `key`. */
static int check_number(const json_t *o, const char *key, json_int_t most, struct atsi_err *err)
{
    const json_t *x = json_object_get(o, key);
    json_int_t n = json_integer_value(x);
    if (!json_is_integer(x) || n < 0 || n > most)
        return atsi_fail(err, ATSI_EFORMAT, "the conversation's %s is no number from 0 to %lld",
                         key, (long long)most);
    return ATSI_OK;
}

static int check(const json_t *o, struct atsi_err *err)
{
    const char *format = json_string_value(json_object_get(o, "format"));
    const json_t *system = json_object_get(o, "system"), *list = json_object_get(o, "messages");
    json_int_t version = json_integer_value(json_object_get(o, "version"));
    if (format == NULL || strcmp(format, FORMAT) != 0)
        return atsi_fail(err, ATSI_EFORMAT, "this is no conversation of atsinfer chat");
    if (version != VERSION)
        return atsi_fail(err, ATSI_ENOTSUP, "the conversation has version %lld, known is %d",
                         (long long)version, VERSION);
    if (check_number(o, "now", MAX_TIME, err) != ATSI_OK ||
        check_number(o, "draws", INT32_MAX, err) != ATSI_OK)
        return ATSI_EFORMAT;
    if (system != NULL && !json_is_string(system))
        return atsi_fail(err, ATSI_EFORMAT, "the conversation's system prompt is no text");
    if (!json_is_object(json_object_get(o, "variables")))
        return atsi_fail(err, ATSI_EFORMAT, "the conversation's variables are no object");
    if (!json_is_array(list))
        return atsi_fail(err, ATSI_EFORMAT, "the conversation has no list of messages");
    for (size_t i = 0; i < json_array_size(list); i++) {
        int rc = check_message(json_array_get(list, i), i, err);
        if (rc != ATSI_OK)
            return rc;
    }
    return ATSI_OK;
}

int chat_talk_read(struct chat_talk *t, const char *text, size_t len, json_t **more_out,
                   struct atsi_err *err)
{
    json_error_t why;
    json_t *o = json_loadb(text, len, JSON_ALLOW_NUL, &why);
    struct chat_talk old = *t;
    int rc;
    if (o == NULL)
        return atsi_fail(err, ATSI_EFORMAT, "line %d: the conversation is no JSON: %s", why.line,
                         why.text);
    rc = check(o, err);
    if (rc != ATSI_OK) {
        json_decref(o);
        return rc;
    }
    t->system = json_incref(json_object_get(o, "system"));
    t->messages = json_incref(json_object_get(o, "messages"));
    t->variables = json_incref(json_object_get(o, "variables"));
    t->now = (time_t)json_integer_value(json_object_get(o, "now"));
    t->draws = json_integer_value(json_object_get(o, "draws"));
    chat_talk_close(&old);
    if (more_out != NULL)
        *more_out = o;
    else
        json_decref(o);
    return ATSI_OK;
}
