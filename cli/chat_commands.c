/* SPDX-License-Identifier: Apache-2.0
 *
 * The slash commands.  What they say goes to stderr: stdout has answers only.
 */
#include "cli/chat_commands.h"

#include "cli/chat_save.h"

#include <string.h>

static int help(void)
{
    const char *usage, *text;
    for (size_t i = 0; (text = chat_command_help(i, &usage)) != NULL; i++)
        (void)fprintf(stderr, "  %-16s %s\n", usage, text);
    (void)fputs("A line that ends in \\ goes on in the next; \"\"\" begins and ends a text of "
                "several lines;\n// begins a message with one slash. Ctrl-C stops an answer, "
                "Ctrl-D leaves.\n",
                stderr);
    return CLI_OK;
}

static int clear(struct chat *c)
{
    if (chat_talk_clear(&c->talk) != ATSI_OK)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    chat_note("a new conversation");
    return CLI_OK;
}

static int undo(struct chat *c)
{
    size_t n = chat_talk_turns(&c->talk);
    if (n == 0)
        return cli_fail(CLI_USAGE, "/undo: there is nothing to take back");
    chat_talk_undo(&c->talk);
    chat_note("took the last message back; %zu %s left", n - 1, n == 2 ? "turn is" : "turns are");
    return CLI_OK;
}

static int show_system(const struct chat *c)
{
    struct atsi_bytes clean = {.p = NULL};
    const char *text = json_string_value(c->talk.system);
    bool ok = text == NULL || chat_clean(text, json_string_length(c->talk.system), &clean);
    if (ok && text != NULL)
        (void)fprintf(stderr, "%.*s\n", (int)clean.n, clean.n > 0 ? clean.p : "");
    else if (ok)
        (void)fputs("there is no system prompt\n", stderr);
    free(clean.p);
    return ok ? CLI_OK : cli_fail(CLI_RUN_ERROR, "out of memory");
}

static int set_system(struct chat *c, const char *text)
{
    struct atsi_err err = ATSI_ERR_INIT;
    bool none = strcmp(text, "\"\"") == 0;
    int rc = chat_talk_system(&c->talk, text, none ? 0 : strlen(text), &err);
    if (rc != ATSI_OK)
        return cli_fail(CLI_USAGE, "/system: %s", err.msg);
    chat_note("the system prompt is %s from the next message on", none ? "gone" : "this");
    return CLI_OK;
}

static int stats(const struct chat *c)
{
    struct atsi_session_times t = {.struct_size = sizeof t};
    const struct chat_cost *k = &c->cost;
    char kv[32], state[32], kept[32];
    atsi_session_times(c->session, &t);
    (void)fprintf(stderr, "conversation  %zu turns, %zu messages%s\n", chat_talk_turns(&c->talk),
                  json_array_size(c->talk.messages),
                  c->talk.system != NULL ? " and a system prompt" : "");
    (void)fprintf(stderr, "context       %u of %u tokens; KV cache %s, states %s\n",
                  atsi_session_n_past(c->session), c->info.n_ctx, cli_bytes(c->info.kv_bytes, kv),
                  cli_bytes(c->info.state_bytes, state));
    if (!c->past.can_rewind)
        (void)fprintf(stderr, "checkpoints   %u, %s\n", c->past.n_cp,
                      cli_bytes(chat_past_bytes(&c->past), kept));
    (void)fprintf(stderr, "last answer   %u tokens re-used, %u evaluated, %u generated\n", k->kept,
                  k->evaluated, k->generated);
    cli_print_timings(&c->info, &t, 0);
    return CLI_OK;
}

int chat_command(struct chat *c, char *line, bool *leave)
{
    struct chat_command cmd;
    chat_command_parse(line, &cmd);
    switch (cmd.verb) {
    case CHAT_HELP:
        return help();
    case CHAT_CLEAR:
        return clear(c);
    case CHAT_REGEN:
        return chat_regen(c);
    case CHAT_UNDO:
        return undo(c);
    case CHAT_SYSTEM:
        return cmd.arg != NULL ? set_system(c, cmd.arg) : show_system(c);
    case CHAT_SAVE:
        return chat_save(c, cmd.arg);
    case CHAT_LOAD:
        return chat_load(c, cmd.arg);
    case CHAT_STATS:
        return stats(c);
    case CHAT_EXIT:
        *leave = true;
        return CLI_OK;
    case CHAT_BAD_VERB:
        break;
    }
    return cli_fail(CLI_USAGE, "%s", cmd.why);
}
