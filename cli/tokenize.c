/* SPDX-License-Identifier: Apache-2.0
 *
 * atsinfer tokenize: ids of text and text of ids, for people, for scripts (one JSON object a line)
 * and for the clock (--bench).
 */
#include "cli/generate.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/tokenizer.h"

static bool jsonl, no_special, no_parse_special, detokenize, ids_only, bench;
static const char *file_path;

static const struct cli_option options[] = {
    {.name = "-f|--file",
     .arg = "FILE",
     .help = "read the text from FILE, - is stdin",
     .text = &file_path},
    {.name = "--jsonl",
     .help = "one JSON object a line in and out: text or hex, add_special, parse_special",
     .flag = &jsonl},
    {.name = "--no-special", .help = "do not add BOS and EOS", .flag = &no_special},
    {.name = "--no-parse-special",
     .help = "take special tokens written out in the text for text",
     .flag = &no_parse_special},
    {.name = "--detokenize", .help = "the input is ids, print their text", .flag = &detokenize},
    {.name = "--ids", .help = "print the ids only, separated by commas", .flag = &ids_only},
    {.name = "--bench", .help = "measure: MB/s on stderr", .flag = &bench},
    {.name = NULL},
};

static int tokenize_run(int argc, char **argv);

const struct cli_command cli_cmd_tokenize = {
    .name = "tokenize",
    .summary = "print the token ids of text, or the text of ids",
    .usage = "atsinfer tokenize [options] [-m MODEL] [TEXT...]",
    .run = tokenize_run,
};

/* ---------------------------------------------------------------- input */
struct text {
    char *p; /* [owned] */
    size_t n;
};

static FILE *open_input(void)
{
    FILE *f;
    if (file_path == NULL || strcmp(file_path, "-") == 0)
        return stdin;
    f = fopen(file_path, "rb");
    if (f == NULL)
        (void)cli_fail(CLI_RUN_ERROR, "%s: %s", file_path, strerror(errno));
    return f;
}

static void close_input(FILE *f)
{
    if (f != stdin)
        (void)fclose(f);
}

/* The arguments joined by spaces, else the file, else stdin. */
static int read_text(int n_pos, char **argv, struct text *out)
{
    if (n_pos > 0 && file_path != NULL)
        return cli_fail(CLI_USAGE, "text both on the command line and in --file %s", file_path);
    if (n_pos == 0)
        return cli_read_file(file_path != NULL ? file_path : "-", &out->p, &out->n);
    for (int i = 1; i <= n_pos; i++) {
        size_t len = strlen(argv[i]);
        char *p = realloc(out->p, out->n + len + 1);
        if (p == NULL)
            return cli_fail(CLI_RUN_ERROR, "out of memory");
        out->p = p;
        memcpy(p + out->n, argv[i], len);
        out->n += len;
        p[out->n] = ' ';
        out->n += i < n_pos;
    }
    return CLI_OK;
}

/* ---------------------------------------------------------------- for people */
/* A piece with control characters, backslashes and stray bytes escaped. */
static void print_piece(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == '\n')
            (void)fputs("\\n", stdout);
        else if (c == '\\')
            (void)fputs("\\\\", stdout);
        else if (c < 0x20 || c == 0x7F)
            (void)printf("\\x%02x", (unsigned)c);
        else
            (void)putchar(c);
    }
}

/* One line: id and piece. */
static int print_token(const struct atsi_tokenizer *tok, int32_t id)
{
    size_t n = atsi_token_bytes(tok, id, true, NULL, 0);
    char *piece = malloc(n + 1);
    if (piece == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    (void)atsi_token_bytes(tok, id, true, piece, n);
    (void)printf("%7d  '", id);
    print_piece(piece, n);
    (void)fputs("'\n", stdout);
    free(piece);
    return CLI_OK;
}

static uint32_t default_flags(void)
{
    return (no_special ? 0 : ATSI_TOK_ADD_SPECIAL) |
           (no_parse_special ? 0 : ATSI_TOK_PARSE_SPECIAL);
}

static int show_ids(const struct atsi_tokenizer *tok, const struct text *in)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int32_t *ids;
    size_t n;
    int code = CLI_OK, rc = atsi_tokenize(tok, in->p, in->n, default_flags(), &ids, &n, &err);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    for (size_t i = 0; i < n && code == CLI_OK; i++) {
        if (ids_only)
            (void)printf("%s%d", i > 0 ? "," : "", ids[i]);
        else
            code = print_token(tok, ids[i]);
    }
    if (ids_only)
        (void)putchar('\n');
    free(ids);
    return code;
}

/* Ids separated by commas or white space. */
static int parse_ids(const struct atsi_tokenizer *tok, struct text *in, int32_t **out, size_t *n)
{
    struct atsi_vocab_info info;
    char *p, *end;
    atsi_tokenizer_info(tok, &info);
    *out = malloc((in->n + 1) * sizeof **out); /* an id takes a byte at least */
    p = realloc(in->p, in->n + 1);
    if (p != NULL)
        in->p = p;
    if (*out == NULL || p == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    p[in->n] = '\0';
    for (p += strspn(p, ", \t\r\n"); p < in->p + in->n; p = end + strspn(end, ", \t\r\n")) {
        long id;
        errno = 0;
        id = strtol(p, &end, 10);
        if (end == p)
            return cli_fail(CLI_USAGE, "--detokenize: '%.20s' is not a token id", p);
        if (errno != 0 || id < 0 || id >= (long)info.n_tokens)
            return cli_fail(CLI_USAGE, "--detokenize: id %ld is outside the vocabulary, 0..%u", id,
                            info.n_tokens - 1);
        (*out)[(*n)++] = (int32_t)id;
    }
    return CLI_OK;
}

static int show_text(const struct atsi_tokenizer *tok, struct text *in)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int32_t *ids = NULL;
    size_t n = 0, len;
    char *text;
    int rc, code = parse_ids(tok, in, &ids, &n);
    if (code == CLI_OK) {
        rc = atsi_detokenize(tok, ids, n, !no_special, &text, &len, &err);
        if (rc != ATSI_OK) {
            code = cli_fail_status(rc, &err);
        } else {
            (void)fwrite(text, 1, len, stdout);
            (void)putchar('\n');
            free(text);
        }
    }
    free(ids);
    return code;
}

/* ---------------------------------------------------------------- for the clock */
static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Repeats for a second, at least three times, and reports the fastest run. */
static int measure(const struct atsi_tokenizer *tok, const struct text *in, double load_s)
{
    double start = seconds(), best = 1e30;
    size_t n = 0;
    for (int i = 0; (i < 3 || seconds() - start < 1.0) && cli_interrupted == 0; i++) {
        struct atsi_err err = ATSI_ERR_INIT;
        double t0 = seconds(), t;
        int32_t *ids;
        int rc = atsi_tokenize(tok, in->p, in->n, default_flags(), &ids, &n, &err);
        if (rc != ATSI_OK)
            return cli_fail_status(rc, &err);
        free(ids);
        t = seconds() - t0;
        best = t < best ? t : best;
    }
    (void)fprintf(stderr,
                  "vocabulary opened in %.0f ms; %zu bytes to %zu tokens in %.2f ms: %.1f MB/s\n",
                  1e3 * load_s, in->n, n, 1e3 * best, (double)in->n / 1e6 / best);
    return CLI_OK;
}

/* ---------------------------------------------------------------- for scripts */
static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes hexadecimal text; NULL (and a reason) when it is none.  [owned by caller: free()] */
static char *from_hex(const char *hex, size_t n, const char **why)
{
    char *out = malloc(n / 2 + 1);
    *why = n % 2 != 0 ? "\"hex\" has an odd number of digits" : NULL;
    if (out == NULL)
        *why = "out of memory";
    for (size_t i = 0; *why == NULL && i < n; i += 2) {
        int high = hex_value(hex[i]), low = hex_value(hex[i + 1]);
        if (high < 0 || low < 0)
            *why = "\"hex\" has a character that is no hexadecimal digit";
        else
            out[i / 2] = (char)(high * 16 + low);
    }
    if (*why == NULL)
        return out;
    free(out);
    return NULL;
}

/* {key: text} when it is valid UTF-8, else {key_hex: digits}. */
static bool put_text(json_t *to, const char *key, const char *hex_key, const char *text, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    json_t *value = json_stringn(text, n);
    char *hex;
    bool ok;
    if (value != NULL)
        return json_object_set_new(to, key, value) == 0;
    hex = malloc(2 * n + 1);
    if (hex == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        hex[2 * i] = digits[(unsigned char)text[i] >> 4];
        hex[2 * i + 1] = digits[(unsigned char)text[i] & 15];
    }
    ok = json_object_set_new(to, hex_key, json_stringn(hex, 2 * n)) == 0;
    free(hex);
    return ok;
}

static bool put_ids(json_t *to, const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < n; i++)
        if (json_array_append_new(list, json_integer(ids[i])) != 0) {
            json_decref(list);
            return false;
        }
    return json_object_set_new(to, "ids", list) == 0;
}

/* A member that has to be a boolean when it is there. */
static const char *take_bool(const json_t *q, const char *key, bool *value)
{
    const json_t *member = json_object_get(q, key);
    if (member == NULL)
        return NULL;
    if (!json_is_boolean(member))
        return strcmp(key, "add_special") == 0 ? "\"add_special\" is not a boolean"
                                               : "\"parse_special\" is not a boolean";
    *value = json_is_true(member);
    return NULL;
}

static const char *detok_into(const struct atsi_tokenizer *tok, const int32_t *ids, size_t n,
                              json_t *answer, struct atsi_err *err)
{
    char *text;
    size_t len;
    bool ok;
    if (atsi_detokenize(tok, ids, n, true, &text, &len, err) != ATSI_OK)
        return err->msg;
    ok = put_text(answer, "detok", "detok_hex", text, len);
    free(text);
    return ok ? NULL : "out of memory";
}

static const char *answer_text(const struct atsi_tokenizer *tok, const char *text, size_t n,
                               uint32_t flags, json_t *answer, struct atsi_err *err)
{
    int32_t *ids;
    size_t n_ids;
    const char *why = NULL;
    if (atsi_tokenize(tok, text, n, flags, &ids, &n_ids, err) != ATSI_OK)
        return err->msg;
    if (!put_ids(answer, ids, n_ids))
        why = "out of memory";
    if (why == NULL)
        why = detok_into(tok, ids, n_ids, answer, err);
    free(ids);
    return why;
}

/* {"text" or "hex", "add_special", "parse_special"} to {"ids", "detok" or "detok_hex"}; returns
 * what is wrong with the question, or NULL. */
static const char *ask_text(const struct atsi_tokenizer *tok, const json_t *q, json_t *answer,
                            struct atsi_err *err)
{
    const json_t *text = json_object_get(q, "text"), *hex = json_object_get(q, "hex");
    bool add = !no_special, parse = !no_parse_special;
    const char *why = take_bool(q, "add_special", &add);
    uint32_t flags;
    if (why == NULL)
        why = take_bool(q, "parse_special", &parse);
    if (why != NULL)
        return why;
    flags = (add ? ATSI_TOK_ADD_SPECIAL : 0) | (parse ? ATSI_TOK_PARSE_SPECIAL : 0);
    if ((text == NULL) == (hex == NULL))
        return "exactly one of \"text\" and \"hex\" expected";
    if (text != NULL && json_is_string(text))
        return answer_text(tok, json_string_value(text), json_string_length(text), flags, answer,
                           err);
    if (hex != NULL && json_is_string(hex)) {
        char *bytes = from_hex(json_string_value(hex), json_string_length(hex), &why);
        if (bytes != NULL)
            why = answer_text(tok, bytes, json_string_length(hex) / 2, flags, answer, err);
        free(bytes);
        return why;
    }
    return text != NULL ? "\"text\" is not a string" : "\"hex\" is not a string";
}

/* {"ids": [...]} to {"detok" or "detok_hex"}. */
static const char *ask_ids(const struct atsi_tokenizer *tok, const json_t *q, json_t *answer,
                           struct atsi_err *err)
{
    const json_t *list = json_object_get(q, "ids");
    struct atsi_vocab_info info;
    size_t n = json_array_size(list);
    const char *why = NULL;
    int32_t *ids;
    if (!json_is_array(list))
        return "\"ids\" is not a list";
    atsi_tokenizer_info(tok, &info);
    ids = malloc((n + 1) * sizeof *ids);
    if (ids == NULL)
        return "out of memory";
    for (size_t i = 0; why == NULL && i < n; i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= (json_int_t)info.n_tokens)
            why = "\"ids\" has an entry that is no id of this vocabulary";
        else
            ids[i] = (int32_t)value;
    }
    if (why == NULL)
        why = detok_into(tok, ids, n, answer, err);
    free(ids);
    return why;
}

/* Answers one line; false when it could not be answered as asked or not at all. */
static bool answer_line(const struct atsi_tokenizer *tok, const char *line, size_t n,
                        unsigned long line_no)
{
    struct atsi_err err = ATSI_ERR_INIT;
    json_error_t bad;
    json_t *q = json_loadb(line, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &bad);
    json_t *answer = json_object();
    const char *why = NULL;
    bool shown = false;
    if (q == NULL)
        why = bad.text;
    else if (!json_is_object(q))
        why = "not a JSON object";
    else
        why = detokenize ? ask_ids(tok, q, answer, &err) : ask_text(tok, q, answer, &err);
    if (why != NULL && answer != NULL) {
        (void)json_object_clear(answer);
        (void)json_object_set_new(answer, "error", json_sprintf("line %lu: %s", line_no, why));
        (void)json_object_set_new(answer, "line", json_integer((json_int_t)line_no));
    }
    if (answer != NULL)
        shown = json_dumpf(answer, stdout, JSON_COMPACT | JSON_ENSURE_ASCII) == 0 &&
                putchar('\n') != EOF;
    json_decref(answer);
    json_decref(q);
    return why == NULL && shown;
}

/* No line is longer; /dev/zero is one without an end. */
#define MAX_LINE ((size_t)1 << 28)

/* Reads a line, its newline included, into `line`; n 0 at the end.  Returns an exit code. */
static int read_line(FILE *f, struct text *line, size_t *cap, unsigned long line_no)
{
    int c;
    line->n = 0;
    while ((c = getc_unlocked(f)) != EOF) {
        if (line->n == *cap) {
            size_t more = *cap == 0 ? 4096 : *cap * 2;
            char *p;
            if (cli_interrupted != 0)
                return CLI_INTERRUPTED;
            p = more <= MAX_LINE ? realloc(line->p, more) : NULL;
            if (p == NULL)
                return cli_fail(CLI_RUN_ERROR, "line %lu: %s", line_no,
                                more <= MAX_LINE ? "out of memory" : "longer than 256 MiB");
            line->p = p;
            *cap = more;
        }
        line->p[line->n++] = (char)c;
        if (c == '\n')
            break;
    }
    if (cli_interrupted != 0)
        return CLI_INTERRUPTED;
    if (ferror(f) != 0)
        return cli_fail(CLI_RUN_ERROR, "%s: %s", file_path != NULL ? file_path : "stdin",
                        strerror(errno));
    return CLI_OK;
}

static bool is_blank(const struct text *line)
{
    size_t i = 0;
    while (i < line->n && strchr(" \t\r\n", line->p[i]) != NULL && line->p[i] != '\0')
        i++;
    return i == line->n;
}

static int run_jsonl(const struct atsi_tokenizer *tok)
{
    FILE *f = open_input();
    struct text line = {.p = NULL};
    size_t cap = 0;
    int code = CLI_OK, rc = CLI_OK;
    if (f == NULL)
        return CLI_RUN_ERROR;
    for (unsigned long line_no = 1; ferror(stdout) == 0; line_no++) {
        rc = read_line(f, &line, &cap, line_no);
        if (rc != CLI_OK || line.n == 0)
            break;
        if (!is_blank(&line) && !answer_line(tok, line.p, line.n, line_no))
            code = CLI_RUN_ERROR;
    }
    free(line.p);
    close_input(f);
    return rc != CLI_OK ? rc : code;
}

/* ---------------------------------------------------------------- the command */
static int with_tokenizer(const struct atsi_tokenizer *tok, double load_s, int n_pos, char **argv)
{
    struct text in = {.p = NULL};
    int code;
    if (jsonl && n_pos > 0)
        return cli_fail(CLI_USAGE, "--jsonl reads stdin or --file, not the command line");
    if (jsonl)
        return run_jsonl(tok);
    code = read_text(n_pos, argv, &in);
    cli_exit_on_signal(true); /* a long text takes seconds, and there is nothing to keep */
    if (code == CLI_OK && bench)
        code = measure(tok, &in, load_s);
    else if (code == CLI_OK)
        code = detokenize ? show_text(tok, &in) : show_ids(tok, &in);
    cli_exit_on_signal(false);
    free(in.p);
    return code;
}

static int tokenize_run(int argc, char **argv)
{
    struct atsi_runtime *rt = NULL;
    struct atsi_model *model = NULL;
    struct atsi_tokenizer *tok = NULL;
    int n_pos = 0, code = cli_parse(&cli_cmd_tokenize, options, argc, argv, &n_pos);
    if (code != -1)
        return code;
    code = cli_runtime(&rt);
    if (code == CLI_OK)
        code = cli_model(rt, true, &model);
    if (code == CLI_OK) {
        double start = seconds();
        code = cli_tokenizer(model, &tok);
        if (code == CLI_OK)
            code = with_tokenizer(tok, seconds() - start, n_pos, argv);
    }
    atsi_tokenizer_close(tok);
    atsi_model_close(model);
    atsi_runtime_close(rt);
    return cli_finish_stdout(code);
}
