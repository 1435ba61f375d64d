/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer chat`: options, what has to be opened, and the loop over messages and commands.
 *
 * On a terminal lines are edited and Ctrl-C stops an answer; else the input is a script: one
 * message per line, answers to stdout, and the first error ends it.
 */
#include "cli/chat_commands.h"
#include "cli/chat_line.h"
#include "cli/options.h"
#include "cli/sampling.h"
#include "cli/session.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *prompt, *system_text, *system_file, *template_file;
static struct cli_texts variables;
static bool once, hide_thinking, no_history, no_timings;

static const struct cli_option options[] = {
    {.name = "-p|--prompt", .arg = "TEXT", .help = "first message", .text = &prompt},
    {.name = "--system", .arg = "TEXT", .help = "system prompt", .text = &system_text},
    {.name = "--system-file",
     .arg = "FILE",
     .help = "system prompt from a file, - for standard input",
     .text = &system_file},
    {.name = "--once",
     .help = "answer -p, or all of standard input as one message, and leave",
     .flag = &once},
    {.name = "--template",
     .arg = "FILE",
     .help = "chat template (Jinja) instead of the model's own",
     .text = &template_file},
    {.name = "--var",
     .arg = "NAME=JSON",
     .help = "a variable of the template (enable_thinking=false); may be repeated",
     .texts = &variables},
    {.name = "--hide-thinking", .help = "do not show reasoning", .flag = &hide_thinking},
    {.name = "--no-history", .help = "keep no history of what is typed", .flag = &no_history},
    CLI_TRACE_OPTION,
    {.name = "--no-timings", .help = "no summary at the end", .flag = &no_timings},
    CLI_GROUP("sampling options", cli_sampling_options),
    {.name = NULL},
};

/* ---------------------------------------------------------------- signals */
static volatile sig_atomic_t terminated, impatience;

/* Ctrl-C asks for the end of an answer; the third time without effect ends the program.  Functions
 * that read or write are resumed, but for libedit's, which has handlers of its own. */
static void on_signal(int sig)
{
    if (sig != SIGINT)
        terminated = 1;
    if (impatience++ >= 2)
        _exit(CLI_INTERRUPTED);
    cli_interrupted = 1;
}

static void catch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    (void)sigemptyset(&sa.sa_mask);
    (void)sigaction(SIGINT, &sa, NULL);
    (void)sigaction(SIGTERM, &sa, NULL);
}

/* A signal has done its work. */
static void signal_done(void)
{
    impatience = 0;
    if (!terminated)
        cli_interrupted = 0;
}

/* ---------------------------------------------------------------- loop */
/* How a chat goes on after a message or command that ended in `code`: a script ends with the first
 * error, a conversation on a terminal does not. */
static bool goes_on(bool terminal, int code)
{
    if (terminal && code == CLI_INTERRUPTED && !terminated)
        chat_note("[stopped; the message was taken back]");
    if (terminal)
        signal_done();
    return !terminated && (terminal || (code == CLI_OK && cli_interrupted == 0));
}

static int take(struct chat *c, struct chat_input *in, bool terminal, bool *leave)
{
    int code =
        in->command ? chat_command(c, in->text.p, leave) : chat_say(c, in->text.p, in->text.n);
    if (!goes_on(terminal, code))
        *leave = true;
    return terminal ? CLI_OK : code;
}

/* Ctrl-C at the prompt: a message that was begun is dropped, else the way out is told. */
static void at_prompt_interrupted(struct chat_input *in)
{
    bool begun = in->block || in->joined;
    chat_input_reset(in);
    signal_done();
    (void)fprintf(stderr, "\n%s\n", begun ? "[dropped]" : "Ctrl-D or /exit leaves");
}

static int loop(struct chat *c, struct chat_lines *lines, bool terminal)
{
    struct chat_input in = {.block = false};
    bool leave = false;
    int code = CLI_OK;
    while (!leave && code == CLI_OK) {
        const char *line = NULL;
        size_t len = 0;
        enum chat_got got = chat_lines_next(lines, in.block || in.joined, &line, &len);
        enum chat_fed fed = CHAT_FED_MORE;
        if (got == CHAT_INTERRUPTED && terminal && !terminated) {
            at_prompt_interrupted(&in);
            continue;
        }
        if (got == CHAT_INTERRUPTED || got == CHAT_FAILED) {
            code = got == CHAT_FAILED ? CLI_RUN_ERROR : CLI_INTERRUPTED;
            break;
        }
        leave = got == CHAT_END;
        fed = leave ? chat_input_end(&in) : chat_input_line(&in, line, len);
        if (fed == CHAT_FED_NOMEM)
            code = cli_fail(CLI_RUN_ERROR, "out of memory");
        else if (fed == CHAT_FED_DONE)
            code = take(c, &in, terminal, &leave);
    }
    if (terminal && leave && !terminated)
        (void)fputc('\n', stderr);
    chat_input_close(&in);
    return code == CLI_OK && cli_interrupted != 0 ? CLI_INTERRUPTED : code;
}

/* --once: -p, or the whole of standard input, is the message. */
static int one_message(struct chat *c)
{
    char *text = NULL;
    size_t len = 0;
    int code = cli_read_file("-", &text, &len);
    while (code == CLI_OK && len > 0 && text[len - 1] == '\n')
        len--;
    if (code == CLI_OK && len == 0)
        code = cli_fail(CLI_USAGE, "--once: standard input is empty, and there is no -p");
    if (code == CLI_OK)
        code = chat_say(c, text, len);
    free(text);
    return code;
}

static int converse(struct chat *c)
{
    bool terminal = !once && isatty(STDIN_FILENO) != 0;
    struct chat_lines *lines;
    int code = CLI_OK;
    if (terminal) {
        catch_signals();
        chat_note("Type a message; /help lists commands, Ctrl-D leaves.");
    }
    if (prompt != NULL)
        code = chat_say(c, prompt, strlen(prompt));
    if (once)
        return prompt != NULL ? code : one_message(c);
    if (prompt != NULL && !goes_on(terminal, code))
        return code != CLI_OK ? code : CLI_INTERRUPTED;
    lines = chat_lines_open(terminal, !no_history);
    code = lines != NULL ? loop(c, lines, terminal) : CLI_RUN_ERROR;
    chat_lines_close(lines);
    return code;
}

static void summary(const struct chat *c)
{
    struct atsi_session_times t = {.struct_size = sizeof t};
    atsi_session_times(c->session, &t);
    if (no_timings || cli_common.level < ATSI_LOG_WARN || t.n_prefill == 0)
        return;
    cli_print_timings(&c->info, &t, 0);
    cli_print_accel(c->session);
}

/* ---------------------------------------------------------------- opening */
/* The template's source: --template, or the model's own.  *owned: to be freed, or NULL. */
static int template_source(const struct atsi_model *m, const char **text, size_t *len, char **owned)
{
    struct atsi_meta meta = {.struct_size = sizeof meta};
    *owned = NULL;
    if (template_file != NULL) {
        int code = cli_read_file(template_file, owned, len);
        *text = *owned;
        return code;
    }
    if (atsi_model_meta_find(m, "tokenizer.chat_template", &meta) != ATSI_OK ||
        meta.type != ATSI_META_STRING || meta.str.len == 0)
        return cli_fail(CLI_USAGE, "this model has no chat template (tokenizer.chat_template): "
                                   "give one with --template FILE, or complete plain text with "
                                   "`atsinfer run`");
    *text = meta.str.ptr;
    *len = (size_t)meta.str.len;
    return CLI_OK;
}

static int open_template(const struct atsi_model *m, struct chat *c,
                         struct atsi_chat_template **out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    const char *text = NULL;
    char *owned = NULL;
    size_t len = 0;
    int rc, code = template_source(m, &text, &len, &owned);
    if (code != CLI_OK)
        return code;
    chat_style_of(text, len, &c->style);
    rc = atsi_chat_template_open(text, len, out, &err);
    free(owned);
    if (rc != ATSI_OK)
        return cli_fail(cli_exit_code(rc), "%s: %s%s",
                        template_file != NULL ? template_file : "tokenizer.chat_template",
                        err.msg[0] != '\0' ? err.msg : atsi_strerror(rc),
                        template_file == NULL ? " (--template FILE replaces it)" : "");
    return CLI_OK;
}

/* System prompt and variables; before a model is loaded. */
static int begin_talk(struct chat_talk *t)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char *text = NULL;
    size_t len = 0;
    int rc = ATSI_OK, code = CLI_OK;
    if (!chat_talk_open(t))
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    if (system_text != NULL && system_file != NULL)
        return cli_fail(CLI_USAGE, "--system and --system-file exclude each other");
    if (system_file != NULL)
        code = cli_read_file(system_file, &text, &len);
    if (code == CLI_OK && system_file != NULL)
        rc = chat_talk_system(t, text, len, &err);
    else if (code == CLI_OK && system_text != NULL)
        rc = chat_talk_system(t, system_text, strlen(system_text), &err);
    free(text);
    for (size_t i = 0; i < variables.n && rc == ATSI_OK; i++)
        rc = chat_talk_var(t, variables.items[i], &err);
    if (code == CLI_OK && rc != ATSI_OK)
        code = cli_fail(rc == ATSI_ENOMEM ? CLI_RUN_ERROR : CLI_USAGE, "%s", err.msg);
    return code;
}

static int with_model(struct atsi_model *m, struct chat *c)
{
    struct atsi_chat_template *tmpl = NULL;
    struct atsi_tokenizer *tok = NULL;
    int code = open_template(m, c, &tmpl);
    if (code == CLI_OK)
        code = cli_tokenizer(m, &tok);
    if (code == CLI_OK)
        code = cli_session_open(m, NULL, "chat", &c->session);
    c->model = m;
    c->tmpl = tmpl;
    c->tok = tok;
    if (code == CLI_OK)
        code = chat_open(c);
    if (code == CLI_OK) {
        code = converse(c);
        summary(c);
    }
    chat_close(c);
    atsi_session_close(c->session);
    atsi_tokenizer_close(tok);
    atsi_chat_template_close(tmpl);
    return cli_session_finish(code);
}

static int check_arguments(int n_pos, char **argv)
{
    if (n_pos > 0)
        return cli_fail(CLI_USAGE, "unexpected argument %s; a first message is given with -p",
                        argv[1]);
    if (system_file != NULL && strcmp(system_file, "-") == 0 && !(once && prompt != NULL))
        return cli_fail(CLI_USAGE, "--system-file - needs --once and -p: standard input can be "
                                   "read only once");
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    struct atsi_runtime *rt = NULL;
    struct atsi_model *m = NULL;
    struct chat c = {.cancel = &cli_interrupted};
    int n_pos, code = cli_parse(&cli_cmd_chat, options, argc, argv, &n_pos);
    if (code != -1)
        return code;
    c.seed = cli_sampling.seed;
    c.verbose = cli_common.level >= ATSI_LOG_DEBUG;
    chat_screen_open(&c.screen, hide_thinking);
    code = check_arguments(n_pos, argv);
    if (code == CLI_OK)
        code = cli_stops(&c.stops);
    if (code == CLI_OK)
        code = begin_talk(&c.talk);
    if (code == CLI_OK)
        code = cli_runtime(&rt);
    if (code == CLI_OK) {
        c.host = atsi_runtime_host(rt);
        code = cli_model(rt, false, &m);
    }
    if (code == CLI_OK)
        code = with_model(m, &c);
    else
        chat_close(&c);
    atsi_model_close(m);
    atsi_runtime_close(rt);
    atsi_stops_close(c.stops);
    return code;
}

const struct cli_command cli_cmd_chat = {
    .name = "chat",
    .summary = "talk with a model",
    .usage = "atsinfer chat [-m MODEL] [-p MESSAGE] [options]\n\n"
             "On a terminal: type messages; /help lists commands, Ctrl-C stops an answer, Ctrl-D\n"
             "leaves. Else one message per line of standard input, answers on standard output.\n"
             "When the context is full, the oldest turns after the system prompt are dropped.",
    .run = run,
};
