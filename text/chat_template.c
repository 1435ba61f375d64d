/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates: opening parses and resolves, rendering gives the tree its variables and runs it.
 * All of a render but its text lives in one arena.
 */
#include "text/chat_template.h"

#include <stdlib.h>

#include "text/jinja/from_json.h"
#include "text/jinja/interp.h"
#include "text/jinja/parser.h"
#include "text/jinja/scope.h"
#include "text/jinja/strftime.h"
#include "text/utf8.h"

enum {
    MAX_SOURCE = 4 << 20, /* bytes; the largest published template has about 30 KiB */
    MAX_TREE_MEMORY = 256 << 20
};

struct atsi_chat_template {
    struct atsi_arena arena;
    struct atsi_jnodes body;
    struct atsi_jscope scope;
    uint32_t n_slots;
};

static int give_error(const struct atsi_jr *r, struct atsi_err *err)
{
    return atsi_fail(err, r->status, "%s", r->err.msg);
}

/* ---------------------------------------------------------------- opening */
static bool parse(struct atsi_jr *r, struct atsi_chat_template *t, const char *source, size_t len)
{
    struct atsi_jtokens tokens = {.n = 0};
    return atsi_jlex(r, source, len, &tokens) && atsi_jparse(r, &tokens, &t->body) &&
           atsi_jscope_resolve(r, &t->body, &t->scope, &t->n_slots);
}

int atsi_chat_template_open(const char *source, size_t len, struct atsi_chat_template **out,
                            struct atsi_err *err)
{
    struct atsi_jr r = {.arena = {.limit = MAX_TREE_MEMORY}, .line = 1};
    struct atsi_chat_template *t;
    size_t valid;
    if (out == NULL || (source == NULL && len > 0))
        return atsi_fail(err, ATSI_EINVAL, "chat template: no source or no place for the result");
    *out = NULL;
    if (len > MAX_SOURCE)
        return atsi_fail(err, ATSI_EFORMAT,
                         "the chat template has %zu bytes, at most %d are allowed", len,
                         MAX_SOURCE);
    valid = len > 0 ? atsi_utf8_valid_prefix(source, len) : 0;
    if (valid < len) {
        for (size_t i = 0; i < valid; i++)
            r.line += source[i] == '\n';
        return atsi_fail(err, ATSI_EFORMAT, "line %u: not valid UTF-8", (unsigned)r.line);
    }
    t = calloc(1, sizeof *t);
    if (t == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory");
    if (!parse(&r, t, source, len)) {
        atsi_arena_free(&r.arena);
        free(t);
        return give_error(&r, err);
    }
    t->arena = r.arena;
    *out = t;
    return ATSI_OK;
}

void atsi_chat_template_close(struct atsi_chat_template *t)
{
    if (t == NULL)
        return;
    atsi_arena_free(&t->arena);
    free(t);
}

/* ---------------------------------------------------------------- rendering */
static bool set_json(struct atsi_jr *r, struct atsi_jdict *d, const char *name, const json_t *json,
                     struct atsi_jv otherwise)
{
    return atsi_jdict_set_text(r, d, name, json != NULL ? atsi_jv_from_json(r, json) : otherwise);
}

/* Functions of ours, then what the caller gives. */
static bool make_context(struct atsi_jr *r, const struct atsi_chat_input *in)
{
    struct atsi_jdict *d = atsi_jdict_new(r, 16);
    struct atsi_jitems none = atsi_jitems_of(r);
    struct atsi_jv more;
    if (d == NULL)
        return false;
    for (size_t i = 0; atsi_jglobal_at(i) != NULL; i++) {
        struct atsi_jv f = atsi_jv_of(ATSI_J_FUNC);
        f.u.func = atsi_jglobal_at(i);
        if (!atsi_jdict_set_text(r, d, f.u.func->name, f))
            return false;
    }
    r->context = d;
    if (!set_json(r, d, "messages", in->messages, atsi_jitems_list(&none)) ||
        !set_json(r, d, "tools", in->tools, atsi_jv_none()) ||
        !atsi_jdict_set_text(r, d, "add_generation_prompt",
                             atsi_jv_bool(in->add_generation_prompt)))
        return false;
    if (in->variables == NULL)
        return true;
    more = atsi_jv_from_json(r, in->variables);
    return more.type == ATSI_J_DICT && atsi_jdict_update(r, d, more.u.dict);
}

static bool run(struct atsi_jr *r, const struct atsi_chat_template *t,
                const struct atsi_chat_input *in)
{
    if (!make_context(r, in))
        return false;
    r->line = 1;
    r->act = atsi_jact_new(r, NULL, t->n_slots);
    return r->act != NULL && atsi_jscope_enter(r, &t->scope) &&
           atsi_jexec_body(r, &t->body) != ATSI_JFLOW_FAIL && r->status == ATSI_OK;
}

static int check_input(const struct atsi_chat_input *in, struct tm *now, struct atsi_err *err)
{
    if (in->variables != NULL && !json_is_object(in->variables))
        return atsi_fail(err, ATSI_EINVAL,
                         "the variables of a chat template must be a JSON object");
    *now = in->now;
    if (in->now.tm_mday != 0 && !atsi_jdate_complete(now))
        return atsi_fail(err, ATSI_EINVAL, "chat template: %d-%d-%d %d:%d:%d is no date",
                         now->tm_year + 1900, now->tm_mon + 1, now->tm_mday, now->tm_hour,
                         now->tm_min, now->tm_sec);
    return ATSI_OK;
}

/* The text as memory of its own, with a NUL behind it. */
static int give_text(const char *p, size_t n, struct atsi_chat_text *out, struct atsi_err *err)
{
    out->text = malloc(n + 1);
    if (out->text == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory");
    if (n > 0)
        memcpy(out->text, p, n);
    out->text[n] = '\0';
    out->len = n;
    return ATSI_OK;
}

int atsi_chat_template_render(const struct atsi_chat_template *t, const struct atsi_chat_input *in,
                              struct atsi_chat_text *out, struct atsi_err *err)
{
    struct atsi_jr r = {.arena = {.limit = ATSI_JMAX_MEMORY}, .line = 1};
    int rc;
    if (t == NULL || in == NULL || out == NULL || in->struct_size < sizeof *in ||
        out->struct_size < sizeof *out)
        return atsi_fail(err, ATSI_EINVAL, "chat template: an argument is missing or too short");
    out->text = NULL;
    out->len = 0;
    out->raised = false;
    rc = check_input(in, &r.now, err);
    if (rc != ATSI_OK)
        return rc;
    if (run(&r, t, in)) {
        rc = give_text(r.out.p, r.out.n, out, err);
    } else if (r.raised != NULL) {
        out->raised = true;
        rc = give_text(r.raised->p, r.raised->n, out, err);
    } else {
        rc = give_error(&r, err);
    }
    free(r.out.p);
    atsi_arena_free(&r.arena);
    return rc;
}
