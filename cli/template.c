/* SPDX-License-Identifier: Apache-2.0
 *
 * atsinfer template: what a chat template makes of a conversation, for people (a model's template
 * or a file's) and for scripts (one JSON object a line).
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

static const char *template_path, *messages_path, *tools_path, *template_name;
static struct cli_texts var_texts;
static bool no_prompt, jsonl, show;

static const struct cli_option options[] = {
    {.name = "-f|--file",
     .arg = "FILE",
     .help = "the template is in FILE, not in a model; - is stdin",
     .text = &template_path},
    {.name = "--name",
     .arg = "NAME",
     .help = "the model's template of this name (tokenizer.chat_template.NAME)",
     .text = &template_name},
    {.name = "--messages",
     .arg = "FILE",
     .help = "the conversation: a JSON list of {\"role\", \"content\"}; - is stdin",
     .text = &messages_path},
    {.name = "--tools", .arg = "FILE", .help = "a JSON list of tools", .text = &tools_path},
    {.name = "--no-generation-prompt",
     .help = "do not open the assistant's answer at the end",
     .flag = &no_prompt},
    {.name = "--var",
     .arg = "KEY=JSON",
     .help = "sets a variable: enable_thinking=false, date_string='\"1 May\"' (repeatable)",
     .texts = &var_texts},
    {.name = "--show", .help = "print the template instead", .flag = &show},
    {.name = "--jsonl",
     .help = "one JSON object a line in and out: template, variables, messages, tools, ...",
     .flag = &jsonl},
    {.name = NULL},
};

static int template_run(int argc, char **argv);

const struct cli_command cli_cmd_template = {
    .name = "template",
    .summary = "render a chat template",
    .usage = "atsinfer template [options] (-m MODEL | --file TEMPLATE) [--messages FILE]",
    .run = template_run,
};

/* ---------------------------------------------------------------- reading */
/* The whole of a file.  [owned by caller: free()]  NULL: a message was printed. */
static char *read_file(const char *path, size_t *n)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    struct atsi_bytes b = {.n = 0};
    size_t got = 0;
    bool bad = false;
    if (f == NULL) {
        (void)cli_fail(CLI_RUN_ERROR, "%s: %s", path, strerror(errno));
        return NULL;
    }
    do {
        b.n += got;
        got = 0;
        bad = !atsi_bytes_reserve(&b, 1 << 16);
        if (!bad)
            got = fread(b.p + b.n, 1, 1 << 16, f);
    } while (got > 0);
    if (bad)
        (void)cli_fail(CLI_RUN_ERROR, "%s: out of memory", path);
    else if (ferror(f) != 0) {
        (void)cli_fail(CLI_RUN_ERROR, "%s: %s", path, strerror(errno));
        bad = true;
    }
    if (!is_stdin)
        (void)fclose(f);
    if (bad) {
        free(b.p);
        return NULL;
    }
    *n = b.n;
    return b.p;
}

/* A JSON list in a file; NULL: a message was printed. */
static json_t *read_list(const char *path)
{
    size_t n;
    char *text = read_file(path, &n);
    json_error_t bad;
    json_t *v;
    if (text == NULL)
        return NULL;
    v = json_loadb(text, n, JSON_ALLOW_NUL, &bad);
    free(text);
    if (v == NULL) {
        (void)cli_fail(CLI_RUN_ERROR, "%s: line %d: %s", path, bad.line, bad.text);
    } else if (!json_is_array(v)) {
        (void)cli_fail(CLI_RUN_ERROR, "%s: a JSON list expected", path);
        json_decref(v);
        v = NULL;
    }
    return v;
}

/* KEY=JSON into the object; false: a message was printed. */
static bool set_variable(json_t *vars, const char *text)
{
    const char *eq = strchr(text, '=');
    json_error_t bad;
    json_t *v;
    if (eq == NULL || eq == text) {
        (void)cli_fail(CLI_USAGE, "--var '%s': KEY=JSON expected", text);
        return false;
    }
    v = json_loads(eq + 1, JSON_DECODE_ANY | JSON_ALLOW_NUL, &bad);
    if (v == NULL) {
        (void)cli_fail(CLI_USAGE,
                       "--var '%s': the value is not JSON (%s); text needs quotes: '\"text\"'",
                       text, bad.text);
        return false;
    }
    return json_object_setn_new(vars, text, (size_t)(eq - text), v) == 0 ||
           cli_fail(CLI_USAGE, "--var '%s': the key is not valid UTF-8", text) == CLI_OK;
}

/* ---------------------------------------------------------------- the model's side */
static int find_meta(const void *ctx, const char *key, struct atsi_meta *out)
{
    return atsi_model_meta_find(ctx, key, out);
}

/* The text of a token as variable `name`, when the vocabulary has that token. */
static bool set_token(json_t *vars, const char *name, const struct atsi_tokenizer *tok, int32_t id)
{
    size_t n;
    const char *text = id >= 0 ? atsi_token_text(tok, id, &n) : NULL;
    json_t *v = text != NULL ? json_stringn(text, n) : NULL;
    return v == NULL || json_object_set_new(vars, name, v) == 0;
}

static int set_tokens(const struct atsi_model *model, json_t *vars)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_meta_source src = {model, find_meta};
    struct atsi_tokenizer *tok = NULL;
    struct atsi_vocab_info info;
    bool ok;
    int rc = atsi_tokenizer_open(&src, &tok, &err);
    if (rc == ATSI_ENOENT)
        return CLI_OK; /* a template can do without */
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    atsi_tokenizer_info(tok, &info);
    ok = set_token(vars, "bos_token", tok, info.bos) &&
         set_token(vars, "eos_token", tok, info.eos) &&
         set_token(vars, "unk_token", tok, info.unk) && set_token(vars, "pad_token", tok, info.pad);
    atsi_tokenizer_close(tok);
    return ok ? CLI_OK : cli_fail(CLI_RUN_ERROR, "out of memory");
}

/* The template in the model's metadata.  [borrowed until close]  NULL: a message was printed. */
static const char *model_template(const struct atsi_model *model, size_t *n)
{
    static const char base[] = "tokenizer.chat_template";
    struct atsi_meta meta = {.struct_size = sizeof meta};
    char key[200];
    int len =
        snprintf(key, sizeof key, template_name != NULL ? "%s.%s" : "%s", base, template_name);
    if (len < 0 || (size_t)len >= sizeof key) {
        (void)cli_fail(CLI_USAGE, "--name is too long");
        return NULL;
    }
    if (atsi_model_meta_find(model, key, &meta) != ATSI_OK) {
        (void)cli_fail(CLI_RUN_ERROR, "the model has no chat template (%s)", key);
        return NULL;
    }
    if (meta.type != ATSI_META_STRING) {
        (void)cli_fail(CLI_RUN_ERROR, "%s of the model is not a string", key);
        return NULL;
    }
    *n = (size_t)meta.str.len;
    return meta.str.ptr;
}

/* ---------------------------------------------------------------- one conversation */
static void set_clock(struct tm *now)
{
    time_t t = time(NULL);
    if (localtime_r(&t, now) == NULL)
        memset(now, 0, sizeof *now);
}

static int render(const char *source, size_t n, const struct atsi_chat_input *in)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_chat_template *t = NULL;
    struct atsi_chat_text text = {.struct_size = sizeof text};
    int code, rc = atsi_chat_template_open(source, n, &t, &err);
    if (rc == ATSI_OK)
        rc = atsi_chat_template_render(t, in, &text, &err);
    if (rc != ATSI_OK)
        code = cli_fail(CLI_RUN_ERROR, "%s: %s",
                        template_path != NULL ? template_path : "chat template", err.msg);
    else if (text.raised)
        code = cli_fail(CLI_RUN_ERROR, "the chat template refuses the conversation: %.*s",
                        (int)(text.len < 4096 ? text.len : 4096), text.text);
    else
        code = fwrite(text.text, 1, text.len, stdout) == text.len ? CLI_OK : CLI_RUN_ERROR;
    free(text.text);
    atsi_chat_template_close(t);
    return code;
}

static int use_template(const char *source, size_t n, json_t *vars)
{
    struct atsi_chat_input in = {.struct_size = sizeof in, .add_generation_prompt = !no_prompt};
    json_t *messages = NULL, *tools = NULL;
    int code = CLI_OK;
    if (show)
        return fwrite(source, 1, n, stdout) == n ? CLI_OK : CLI_RUN_ERROR;
    for (size_t i = 0; i < var_texts.n; i++)
        if (!set_variable(vars, var_texts.items[i]))
            return CLI_USAGE;
    if (messages_path != NULL && (messages = read_list(messages_path)) == NULL)
        code = CLI_RUN_ERROR;
    if (code == CLI_OK && tools_path != NULL && (tools = read_list(tools_path)) == NULL)
        code = CLI_RUN_ERROR;
    in.messages = messages;
    in.tools = tools;
    in.variables = vars;
    set_clock(&in.now);
    if (code == CLI_OK)
        code = render(source, n, &in);
    json_decref(messages);
    json_decref(tools);
    return code;
}

static int with_file(void)
{
    size_t n;
    char *source = read_file(template_path, &n);
    json_t *vars = json_object();
    int code = CLI_RUN_ERROR;
    if (vars == NULL)
        code = cli_fail(CLI_RUN_ERROR, "out of memory");
    else if (source != NULL)
        code = use_template(source, n, vars);
    json_decref(vars);
    free(source);
    return code;
}

static int with_model(void)
{
    struct atsi_runtime *rt = NULL;
    struct atsi_model *model = NULL;
    json_t *vars = json_object();
    int code = vars != NULL ? cli_runtime(&rt) : cli_fail(CLI_RUN_ERROR, "out of memory");
    if (code == CLI_OK)
        code = cli_model(rt, true, &model);
    if (code == CLI_OK) {
        size_t n;
        const char *source = model_template(model, &n);
        code = source != NULL ? CLI_OK : CLI_RUN_ERROR;
        if (code == CLI_OK && !show)
            code = set_tokens(model, vars);
        if (code == CLI_OK)
            code = use_template(source, n, vars);
    }
    json_decref(vars);
    atsi_model_close(model);
    atsi_runtime_close(rt);
    return code;
}

/* ---------------------------------------------------------------- for scripts */
/* "YYYY-MM-DD HH:MM:SS"; without it the clock of this machine. */
static const char *take_clock(const json_t *q, struct tm *now)
{
    const json_t *v = json_object_get(q, "strftime_now");
    int year, month, end = 0;
    const char *text;
    if (v == NULL || json_is_null(v)) {
        set_clock(now);
        return NULL;
    }
    text = json_string_value(v);
    memset(now, 0, sizeof *now);
    if (text == NULL ||
        sscanf(text, "%4d-%2d-%2d %2d:%2d:%2d%n", &year, &month, &now->tm_mday, &now->tm_hour,
               &now->tm_min, &now->tm_sec, &end) != 6 ||
        text[end] != '\0')
        return "\"strftime_now\" is not a string YYYY-MM-DD HH:MM:SS";
    now->tm_year = year - 1900;
    now->tm_mon = month - 1;
    return NULL;
}

/* A member of some kind, or NULL when it is not there or null. */
static json_t *member(const json_t *q, const char *key, json_type type, const char **why)
{
    static const char *const names[] = {"an object", "a list", "a string"};
    static char text[80];
    json_t *v = json_object_get(q, key);
    if (v == NULL || json_is_null(v))
        return NULL;
    if (json_typeof(v) == type)
        return v;
    (void)snprintf(text, sizeof text, "\"%s\" is not %s", key, names[type]);
    *why = text;
    return NULL;
}

/* Fills `in` from a question; `vars` gathers the variables.  NULL, or what is wrong. */
static const char *take_question(const json_t *q, struct atsi_chat_input *in, json_t *vars)
{
    const char *why = NULL;
    json_t *variables = member(q, "variables", JSON_OBJECT, &why);
    json_t *extra = member(q, "extra", JSON_OBJECT, &why);
    const json_t *prompt = json_object_get(q, "add_generation_prompt");
    in->messages = member(q, "messages", JSON_ARRAY, &why);
    in->tools = member(q, "tools", JSON_ARRAY, &why);
    in->variables = vars;
    if (prompt != NULL && !json_is_boolean(prompt))
        why = "\"add_generation_prompt\" is not a boolean";
    in->add_generation_prompt = json_is_true(prompt);
    if (why == NULL)
        why = take_clock(q, &in->now);
    if (why != NULL)
        return why;
    if ((variables != NULL && json_object_update(vars, variables) != 0) ||
        (extra != NULL && json_object_update(vars, extra) != 0))
        return "out of memory";
    return NULL;
}

static const char *ask(const json_t *q, json_t *vars, json_t *answer, struct atsi_err *err)
{
    struct atsi_chat_input in = {.struct_size = sizeof in};
    struct atsi_chat_text text = {.struct_size = sizeof text};
    struct atsi_chat_template *t = NULL;
    const char *why = NULL;
    const json_t *source = member(q, "template", JSON_STRING, &why);
    if (why == NULL && source == NULL)
        why = "\"template\" is missing";
    if (why == NULL)
        why = take_question(q, &in, vars);
    if (why != NULL)
        return why;
    if (atsi_chat_template_open(json_string_value(source), json_string_length(source), &t, err) !=
            ATSI_OK ||
        atsi_chat_template_render(t, &in, &text, err) != ATSI_OK)
        why = err->msg;
    else if (json_object_set_new(answer, text.raised ? "raised" : "text",
                                 json_stringn(text.text, text.len)) != 0)
        why = "out of memory";
    free(text.text);
    atsi_chat_template_close(t);
    return why;
}

/* Answers one line; false when it could not be answered as asked or not at all. */
static bool answer_line(const char *line, size_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    json_error_t bad;
    json_t *q = json_loadb(line, n, JSON_ALLOW_NUL, &bad);
    json_t *answer = json_object(), *vars = json_object();
    const char *why = NULL;
    bool shown = false;
    if (answer == NULL || vars == NULL)
        why = "out of memory";
    else if (q == NULL)
        why = bad.text;
    else
        why = json_is_object(q) ? ask(q, vars, answer, &err) : "not a JSON object";
    if (why != NULL && answer != NULL) {
        (void)json_object_clear(answer);
        (void)json_object_set_new(answer, "error", cli_json_text(why));
    }
    if (answer != NULL)
        shown = json_dumpf(answer, stdout, JSON_COMPACT | JSON_ENSURE_ASCII) == 0 &&
                putchar('\n') != EOF;
    json_decref(answer);
    json_decref(vars);
    json_decref(q);
    return why == NULL && shown;
}

static int run_jsonl(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int code = CLI_OK;
    while (cli_interrupted == 0 && (n = getline(&line, &cap, stdin)) >= 0) {
        if (strspn(line, " \t\r\n") == (size_t)n)
            continue;
        if (!answer_line(line, (size_t)n))
            code = CLI_RUN_ERROR;
        if (ferror(stdout) != 0)
            break;
    }
    if (cli_interrupted != 0)
        code = CLI_INTERRUPTED;
    else if (ferror(stdin) != 0)
        code = cli_fail(CLI_RUN_ERROR, "stdin: %s", strerror(errno));
    free(line);
    return code;
}

/* ---------------------------------------------------------------- the command */
static bool read_stdin_twice(void)
{
    const char *const paths[] = {template_path, messages_path, tools_path};
    int n = 0;
    for (size_t i = 0; i < 3; i++)
        n += paths[i] != NULL && strcmp(paths[i], "-") == 0;
    return n > 1;
}

static int template_run(int argc, char **argv)
{
    int n_pos = 0, code = cli_parse(&cli_cmd_template, options, argc, argv, &n_pos);
    if (code != -1)
        return code;
    if (n_pos > 0)
        code = cli_fail(CLI_USAGE, "unexpected argument %s", argv[1]);
    else if (jsonl && (var_texts.n > 0 || template_path != NULL || messages_path != NULL || show))
        code = cli_fail(CLI_USAGE, "--jsonl reads everything from stdin");
    else if (template_path != NULL && template_name != NULL)
        code = cli_fail(CLI_USAGE, "--name is for the templates of a model, not for --file");
    else if (read_stdin_twice())
        code = cli_fail(CLI_USAGE, "only one of --file, --messages and --tools can be -");
    else if (jsonl)
        code = run_jsonl();
    else
        code = template_path != NULL ? with_file() : with_model();
    return cli_finish_stdout(code);
}
