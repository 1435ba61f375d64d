/* SPDX-License-Identifier: Apache-2.0
 * Pieces that the generating subcommands share: vocabulary, greedy choice, whole files. */
#include "cli/generate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int find_meta(const void *ctx, const char *key, struct atsi_meta *out)
{
    return atsi_model_meta_find(ctx, key, out);
}

int cli_tokenizer(const struct atsi_model *m, struct atsi_tokenizer **out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_meta_source src = {.ctx = m, .find = find_meta};
    int rc = atsi_tokenizer_open(&src, out, &err);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

int32_t cli_argmax(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

/* No prompt is longer; /dev/zero is. */
#define MAX_TEXT ((size_t)1 << 28)

/* Reads to the end of `f`, growing as needed. */
static int read_all(FILE *f, const char *path, char **text_out, size_t *len_out)
{
    size_t len = 0, cap = 1 << 16;
    char *text = malloc(cap), *grown;
    while (text != NULL) {
        len += fread(text + len, 1, cap - len - 1, f);
        if (len + 1 < cap)
            break;
        if (cap >= MAX_TEXT || cli_interrupted != 0) {
            free(text);
            return cli_interrupted != 0
                       ? CLI_INTERRUPTED
                       : cli_fail(CLI_USAGE, "%s: more than %zu MiB of text", path, MAX_TEXT >> 20);
        }
        grown = realloc(text, cap * 2);
        if (grown == NULL) {
            free(text);
            text = NULL;
            break;
        }
        text = grown;
        cap *= 2;
    }
    if (text == NULL)
        return cli_fail(CLI_RUN_ERROR, "%s: out of memory", path);
    if (ferror(f) != 0 || cli_interrupted != 0) {
        free(text);
        if (cli_interrupted != 0)
            return CLI_INTERRUPTED;
        return cli_fail(CLI_RUN_ERROR, "%s: %s", path, strerror(errno));
    }
    text[len] = '\0';
    *text_out = text;
    *len_out = len;
    return CLI_OK;
}

int cli_read_file(const char *path, char **text_out, size_t *len_out)
{
    struct stat st;
    FILE *f;
    int code;
    if (strcmp(path, "-") == 0)
        return read_all(stdin, "standard input", text_out, len_out);
    f = fopen(path, "re");
    if (f == NULL)
        return cli_fail(CLI_USAGE, "%s: %s", path, strerror(errno));
    if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode))
        code = cli_fail(CLI_USAGE, "%s: is a directory", path);
    else
        code = read_all(f, path, text_out, len_out);
    if (fclose(f) != 0 && code == CLI_OK) {
        free(*text_out);
        code = cli_fail(CLI_RUN_ERROR, "%s: %s", path, strerror(errno));
    }
    return code;
}
