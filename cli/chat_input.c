/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules by which lines become messages and commands; the table of commands.
 */
#include "cli/chat_input.h"

#include "atsinfer/atsinfer.h"

#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- lines */
static const char QUOTES[] = "\"\"\"";

void chat_input_reset(struct chat_input *in)
{
    in->text.n = 0;
    in->block = in->joined = in->command = false;
}

void chat_input_close(struct chat_input *in)
{
    free(in->text.p);
    *in = (struct chat_input){.block = false};
}

/* The message is complete; a NUL behind it, for commands. */
static enum chat_fed done(struct chat_input *in)
{
    bool empty = true;
    for (size_t i = 0; i < in->text.n && empty; i++)
        empty = strchr(" \t\r\n", in->text.p[i]) != NULL && in->text.p[i] != '\0';
    in->block = in->joined = false;
    if (empty)
        return CHAT_FED_EMPTY;
    if (!atsi_bytes_reserve(&in->text, 1))
        return CHAT_FED_NOMEM;
    in->text.p[in->text.n] = '\0';
    return CHAT_FED_DONE;
}

static enum chat_fed add(struct chat_input *in, const char *p, size_t n)
{
    return atsi_bytes_add(&in->text, p, n) ? CHAT_FED_MORE : CHAT_FED_NOMEM;
}

static bool ends_in_quotes(const char *p, size_t n)
{
    return n >= 3 && memcmp(p + n - 3, QUOTES, 3) == 0;
}

/* A line inside """: kept with its newline; the mark may stand at its end. */
static enum chat_fed block_line(struct chat_input *in, const char *line, size_t len)
{
    bool last = ends_in_quotes(line, len);
    if (last)
        len -= 3;
    if (add(in, line, len) == CHAT_FED_NOMEM)
        return CHAT_FED_NOMEM;
    if (last) {
        if (len == 0 && in->text.n > 0 && in->text.p[in->text.n - 1] == '\n')
            in->text.n--;
        return done(in);
    }
    return add(in, "\n", 1);
}

/* The first line of a message; sets *open when a block begins with it. */
static enum chat_fed begin(struct chat_input *in, const char **line, size_t *len)
{
    chat_input_reset(in);
    if (*len >= 3 && memcmp(*line, QUOTES, 3) == 0) {
        in->block = true;
        *line += 3;
        *len -= 3;
        return *len == 0 ? CHAT_FED_MORE : block_line(in, *line, *len);
    }
    if (*len > 1 && (*line)[0] == '/' && (*line)[1] == '/') {
        (*line)++;
        (*len)--;
    } else if (*len > 0 && (*line)[0] == '/') {
        in->command = true;
    }
    return CHAT_FED_MORE;
}

enum chat_fed chat_input_line(struct chat_input *in, const char *line, size_t len)
{
    if (len > 0 && line[len - 1] == '\r')
        len--;
    if (in->block)
        return block_line(in, line, len);
    if (!in->joined) {
        enum chat_fed fed = begin(in, &line, &len);
        if (in->block || fed != CHAT_FED_MORE)
            return fed;
    }
    in->joined = !in->command && len > 0 && line[len - 1] == '\\';
    if (add(in, line, len - in->joined) == CHAT_FED_NOMEM)
        return CHAT_FED_NOMEM;
    return in->joined ? add(in, "\n", 1) : done(in);
}

enum chat_fed chat_input_end(struct chat_input *in)
{
    if (!in->block && !in->joined)
        return CHAT_FED_EMPTY;
    if (in->text.n > 0 && in->text.p[in->text.n - 1] == '\n')
        in->text.n--;
    return done(in);
}

/* ---------------------------------------------------------------- commands */
enum argument { NONE, OPTIONAL, NEEDED };

static const struct {
    const char *name, *usage, *help;
    enum chat_verb verb;
    enum argument arg;
} verbs[] = {
    {"help", "/help", "this list", CHAT_HELP, NONE},
    {"regen", "/regen", "another answer to the last message", CHAT_REGEN, NONE},
    {"undo", "/undo", "take the last message and its answer back", CHAT_UNDO, NONE},
    {"clear", "/clear", "begin anew; the system prompt stays", CHAT_CLEAR, NONE},
    {"system", "/system [TEXT]", "show the system prompt, or set it (\"\": none)", CHAT_SYSTEM,
     OPTIONAL},
    {"save", "/save FILE", "conversation and KV cache; FILE.json: the text alone", CHAT_SAVE,
     NEEDED},
    {"load", "/load FILE", "go on where /save was typed", CHAT_LOAD, NEEDED},
    {"stats", "/stats", "messages, tokens, speeds", CHAT_STATS, NONE},
    {"exit", "/exit", "leave (also Ctrl-D)", CHAT_EXIT, NONE},
    {"quit", NULL, NULL, CHAT_EXIT, NONE},
    {"bye", NULL, NULL, CHAT_EXIT, NONE},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0], N_HELP = N_VERBS - 2 };

const char *chat_command_help(size_t i, const char **usage_out)
{
    if (i >= N_HELP)
        return NULL;
    *usage_out = verbs[i].usage;
    return verbs[i].help;
}

static void unknown_verb(const char *word, struct chat_command *out)
{
    const char *best = NULL;
    uint32_t distance = 3; /* at most two slips */
    for (size_t i = 0; i < N_VERBS; i++) {
        uint32_t d = atsi_edit_distance(word, verbs[i].name);
        if (d < distance && 2 * d <= strlen(verbs[i].name)) {
            distance = d;
            best = verbs[i].name;
        }
    }
    out->verb = CHAT_BAD_VERB;
    if (best != NULL)
        (void)snprintf(out->why, sizeof out->why, "unknown command /%.40s; did you mean /%s?", word,
                       best);
    else
        (void)snprintf(out->why, sizeof out->why,
                       "unknown command /%.40s; /help lists them (// begins a message with /)",
                       word);
}

/* The text behind the verb without blanks around it, or NULL. */
static char *trim(char *p)
{
    size_t n;
    p += strspn(p, " \t");
    n = strlen(p);
    while (n > 0 && strchr(" \t\r\n", p[n - 1]) != NULL)
        n--;
    p[n] = '\0';
    return n > 0 ? p : NULL;
}

void chat_command_parse(char *line, struct chat_command *out)
{
    char *word = line + 1, *rest = word + strcspn(word, " \t\r\n");
    size_t i = 0;
    *out = (struct chat_command){.verb = CHAT_BAD_VERB};
    out->arg = *rest != '\0' ? trim(rest + 1) : NULL;
    *rest = '\0';
    while (i < N_VERBS && strcmp(word, verbs[i].name) != 0)
        i++;
    if (i == N_VERBS) {
        unknown_verb(word, out);
    } else if (verbs[i].arg == NEEDED && out->arg == NULL) {
        (void)snprintf(out->why, sizeof out->why, "/%s needs a file name: %s", verbs[i].name,
                       verbs[i].usage);
    } else if (verbs[i].arg == NONE && out->arg != NULL) {
        (void)snprintf(out->why, sizeof out->why, "/%s takes nothing behind it, got \"%.60s\"",
                       verbs[i].name, out->arg);
    } else {
        out->verb = verbs[i].verb;
    }
}
