/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line options: one table per subcommand plus the table every subcommand shares, help made
 * from both, values checked where they are read, and a suggestion for a mistyped name.
 */
#include "cli/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct cli_common cli_common = {.level = ATSI_LOG_WARN};

static bool want_help, verbose, quiet;
static const char *config_path;

static const struct cli_option shared[] = {
    {.name = "-m|--model",
     .arg = "FILE",
     .help = "model file (GGUF), or a model of Ollama's: NAME:TAG",
     .conf_key = "model.path"},
    {.name = "-hf|-hfr|--hf-repo",
     .arg = "USER/REPO[:QUANT]",
     .help = "model from the local Hugging Face or llama.cpp cache",
     .conf_key = "model.path",
     .prefix = "hf:"},
    {.name = "-c|--ctx-size",
     .arg = "N",
     .help = "context in tokens, 0: the model's own",
     .conf_key = "model.ctx"},
    {.name = "-t|--threads",
     .arg = "N",
     .help = "worker threads, 0: one per core",
     .conf_key = "cpu.threads"},
    {.name = "-tb|--threads-batch",
     .arg = "N",
     .help = "worker threads for prefill",
     .conf_key = "cpu.threads_batch"},
    {.name = "-ub|--chunk",
     .arg = "N",
     .help = "tokens per prefill round",
     .conf_key = "prefill.chunk"},
    {.name = "-ctk|--cache-type-k",
     .arg = "TYPE",
     .help = "type of cached keys: f16, f32, q8_0",
     .conf_key = "kv.type_k"},
    {.name = "-ctv|--cache-type-v",
     .arg = "TYPE",
     .help = "type of cached values: f16, f32, q8_0",
     .conf_key = "kv.type_v"},
    {.name = "--backend",
     .arg = "NAME",
     .help = "CPU plugin: auto, or a name of `atsinfer plugins`",
     .conf_key = "backend.cpu"},
    {.name = "--config",
     .arg = "FILE",
     .help = "read this ini file instead of ./atsinfer.ini",
     .text = &config_path},
    {.name = "--set", .arg = "SECTION.KEY=VALUE", .help = "set any ini key"},
    {.name = "--plugin", .arg = "FILE", .help = "load this plugin first"},
    {.name = "-v|--verbose", .help = "say more on stderr", .flag = &verbose},
    {.name = "-q|--quiet", .help = "errors only", .flag = &quiet},
    {.name = "-h|--help", .help = "this text", .flag = &want_help},
    {.name = NULL},
};

/* Flags of other programs whose meaning has another place here. */
static const struct {
    const char *name, *advice;
} foreign[] = {
    {"-ngl", "weights stay on the CPU in this version; see memory.vram in atsinfer.ini"},
    {"--n-gpu-layers", "weights stay on the CPU in this version; see memory.vram in atsinfer.ini"},
    {"-ot", "placement rules are policy.rule.N in atsinfer.ini"},
    {"--no-mmap", "use --set load.mode=read"},
    {"-fa", "attention is always fused here"},
    {"-b", "use -ub N (tokens per prefill round)"},
};

static bool name_is(const struct cli_option *o, const char *word, size_t len)
{
    for (const char *p = o->name; *p != '\0';) {
        size_t n = strcspn(p, "|");
        if (n == len && strncmp(p, word, len) == 0)
            return true;
        p += n + (p[n] == '|');
    }
    return false;
}

static const struct cli_option *find_in(const struct cli_option *table, const char *word,
                                        size_t len)
{
    for (const struct cli_option *o = table; o != NULL && o->name != NULL; o++) {
        const struct cli_option *found = o->group != NULL        ? find_in(o->group, word, len)
                                         : name_is(o, word, len) ? o
                                                                 : NULL;
        if (found != NULL)
            return found;
    }
    return NULL;
}

static void closest_in(const struct cli_option *table, const char *word, char best[64],
                       uint32_t *best_distance)
{
    for (const struct cli_option *o = table; o != NULL && o->name != NULL; o++) {
        if (o->group != NULL) {
            closest_in(o->group, word, best, best_distance);
            continue;
        }
        for (const char *p = o->name; *p != '\0';) {
            char name[64];
            size_t n = strcspn(p, "|");
            (void)snprintf(name, sizeof name, "%.*s", (int)n, p);
            uint32_t d = atsi_edit_distance(word, name);
            if (d < *best_distance) {
                *best_distance = d;
                memcpy(best, name, sizeof name);
            }
            p += n + (p[n] == '|');
        }
    }
}

static int unknown_option(const struct cli_command *cmd, const struct cli_option *opts,
                          const char *word)
{
    char best[64] = "";
    uint32_t distance = 3; /* at most two slips */
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (strcmp(foreign[i].name, word) == 0)
            return cli_fail(CLI_USAGE, "%s: %s", word, foreign[i].advice);
    closest_in(opts, word, best, &distance);
    closest_in(shared, word, best, &distance);
    if (best[0] != '\0')
        return cli_fail(CLI_USAGE, "unknown option %s; did you mean %s?", word, best);
    return cli_fail(CLI_USAGE, "unknown option %s; `atsinfer %s --help` lists them", word,
                    cmd->name);
}

static void print_option(const struct cli_option *o)
{
    char left[96];
    size_t n = 0;
    for (const char *p = o->name; *p != '\0' && n + 3 < sizeof left; p++) {
        if (*p == '|') {
            left[n++] = ',';
            left[n++] = ' ';
        } else {
            left[n++] = *p;
        }
    }
    left[n] = '\0';
    if (o->arg != NULL)
        (void)snprintf(left + n, sizeof left - n, " %s", o->arg);
    if (strlen(left) > 30) /* the help goes below */
        (void)printf("  %s\n%33s", left, "");
    else
        (void)printf("  %-30s ", left);
    (void)printf("%s%s%s%s\n", o->help, o->conf_key != NULL ? " [" : "",
                 o->conf_key != NULL ? o->conf_key : "", o->conf_key != NULL ? "]" : "");
}

/* The table's own options under `heading`, then each of its groups under its own. */
static void print_options(const char *heading, const struct cli_option *table)
{
    bool begun = false;
    for (const struct cli_option *o = table; o != NULL && o->name != NULL; o++) {
        if (o->group != NULL)
            continue;
        if (!begun)
            (void)printf("\n%s:\n", heading);
        begun = true;
        print_option(o);
    }
    for (const struct cli_option *o = table; o != NULL && o->name != NULL; o++)
        if (o->group != NULL)
            print_options(o->name, o->group);
}

static int print_help(const struct cli_command *cmd, const struct cli_option *opts)
{
    (void)printf("usage: %s\n\n%s\n", cmd->usage, cmd->summary);
    print_options("options", opts);
    print_options("options of every subcommand (in brackets: the ini key they set)", shared);
    return cli_finish_stdout(CLI_OK);
}

static int take_number(const struct cli_option *o, const char *word, const char *value)
{
    char *end = NULL;
    double x;
    errno = 0;
    if (o->integer != NULL) {
        long long i = strtoll(value, &end, 10);
        x = (double)i;
        *o->integer = i;
    } else {
        x = strtod(value, &end);
        *o->real = x;
    }
    if (end == value || *end != '\0' || errno == ERANGE || x != x)
        return cli_fail(CLI_USAGE, "%s %s: not a number", word, value);
    if (x < o->min || x > o->max)
        return cli_fail(CLI_USAGE, "%s %s: outside %g..%g", word, value, o->min, o->max);
    return -1;
}

/* Appends KEY=PREFIXVALUE; without a key VALUE is all of it. */
static bool override(const char *key, const char *prefix, const char *value)
{
    size_t size = (key != NULL ? strlen(key) + 1 : 0) + strlen(prefix) + strlen(value) + 1;
    char *text;
    if (cli_common.n_overrides == CLI_MAX_OVERRIDES) {
        (void)cli_fail(CLI_USAGE, "more than %d settings on the command line", CLI_MAX_OVERRIDES);
        return false;
    }
    text = malloc(size);
    if (text == NULL) {
        (void)cli_fail(CLI_RUN_ERROR, "out of memory");
        return false;
    }
    (void)snprintf(text, size, "%s%s%s%s", key != NULL ? key : "", key != NULL ? "=" : "", prefix,
                   value);
    cli_common.overrides[cli_common.n_overrides++] = text;
    return true;
}

static int take_value(const struct cli_option *o, const char *word, const char *value)
{
    if (o->conf_key != NULL)
        return override(o->conf_key, o->prefix != NULL ? o->prefix : "", value) ? -1 : CLI_USAGE;
    if (o->text != NULL) {
        *o->text = value;
        return -1;
    }
    if (o->texts != NULL) {
        if (o->texts->n == CLI_MAX_TEXTS)
            return cli_fail(CLI_USAGE, "%s: more than %d of them", word, CLI_MAX_TEXTS);
        o->texts->items[o->texts->n++] = value;
        return -1;
    }
    if (o->integer != NULL || o->real != NULL)
        return take_number(o, word, value);
    if (strcmp(o->name, "--set") == 0) {
        if (strchr(value, '=') == NULL)
            return cli_fail(CLI_USAGE, "--set %s: expected SECTION.KEY=VALUE", value);
        return cli_override(NULL, value) ? -1 : CLI_USAGE;
    }
    if (cli_common.n_plugins == CLI_MAX_PLUGINS)
        return cli_fail(CLI_USAGE, "--plugin: more than %d files", CLI_MAX_PLUGINS);
    cli_common.plugins[cli_common.n_plugins++] = value;
    return -1;
}

bool cli_override(const char *key, const char *value)
{
    return override(key, "", value);
}

void cli_forget_overrides(size_t n)
{
    while (cli_common.n_overrides > n) {
        free(cli_common.overrides[--cli_common.n_overrides]);
        cli_common.overrides[cli_common.n_overrides] = NULL;
    }
}

const char *cli_option_value(const char *key)
{
    size_t len = strlen(key);
    for (size_t i = cli_common.n_overrides; i > 0; i--) {
        const char *text = cli_common.overrides[i - 1];
        if (strncmp(text, key, len) == 0 && text[len] == '=')
            return text + len + 1;
    }
    return NULL;
}

/* Handles argv[*i] as an option; advances *i over its value. */
static int take_option(const struct cli_command *cmd, const struct cli_option *opts, int argc,
                       char **argv, int *i)
{
    const char *word = argv[*i], *value = NULL;
    size_t len = strcspn(word, "=");
    const struct cli_option *o = find_in(opts, word, len);
    char name[64];
    if (o == NULL)
        o = find_in(shared, word, len);
    (void)snprintf(name, sizeof name, "%.*s", (int)len, word);
    if (o == NULL)
        return unknown_option(cmd, opts, name);
    if (word[len] == '=')
        value = word + len + 1;
    if (o->flag != NULL) {
        if (value != NULL)
            return cli_fail(CLI_USAGE, "%s takes no value", name);
        *o->flag = true;
        return -1;
    }
    if (value == NULL) {
        if (*i + 1 >= argc)
            return cli_fail(CLI_USAGE, "%s needs a value (%s)", name, o->arg);
        value = argv[++*i];
    }
    return take_value(o, name, value);
}

int cli_parse(const struct cli_command *cmd, const struct cli_option *opts, int argc, char **argv,
              int *n_pos_out)
{
    int n_pos = 0, code;
    bool only_positional = false;
    for (int i = 1; i < argc; i++) {
        if (!only_positional && strcmp(argv[i], "--") == 0) {
            only_positional = true;
        } else if (only_positional || argv[i][0] != '-' || argv[i][1] == '\0') {
            argv[1 + n_pos++] = argv[i];
        } else {
            code = take_option(cmd, opts, argc, argv, &i);
            if (code != -1)
                return code;
        }
    }
    if (want_help)
        return print_help(cmd, opts);
    cli_common.config_path = config_path;
    cli_common.level = quiet ? ATSI_LOG_ERROR : (verbose ? ATSI_LOG_DEBUG : ATSI_LOG_WARN);
    *n_pos_out = n_pos;
    return -1;
}
