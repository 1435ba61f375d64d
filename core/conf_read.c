/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading an ini file through inih.  A distribution's inih cuts lines at 200 bytes and names at 50,
 * takes " ;" inside a value for a comment, joins indented lines and numbers none.  So lines are
 * read here, whole; inih is handed a short stand-in ("key = .") whose structure it judges, and the
 * handler takes the value from the line that is being read.
 */
#include "core/conf_read.h"

#include <errno.h>
#include <ini.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME 48u               /* inih keeps at most 49 characters of a name */
#define MAX_FILE ((size_t)1 << 20) /* /dev/zero never ends */

struct seen {
    char *key;
    unsigned line;
};

struct reader {
    const char *path;
    FILE *file;
    char *line; /* of getline() */
    size_t room;
    unsigned number;
    const char *value; /* inside line */
    struct seen *seen;
    size_t n_seen;
    atsi_conf_line_fn *fn;
    void *ctx;
    int rc; /* first failure */
    struct atsi_err *err;
};

static char *trim(char *s)
{
    char *end;
    s += strspn(s, " \t");
    end = s + strlen(s);
    while (end > s && strchr(" \t\r\n", end[-1]) != NULL)
        *--end = '\0';
    return s;
}

static int fail(struct reader *r, const char *what, const char *text)
{
    if (r->rc == ATSI_OK)
        r->rc =
            atsi_fail(r->err, ATSI_ECONF, "%s:%u: %s: \"%.80s\"", r->path, r->number, what, text);
    return r->rc;
}

/* Whether inih takes a name as it stands; it sees ':' as '=' and blanks before ';' as a comment. */
static bool is_name(const char *s, size_t n)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    return n > 0 && strspn(s, allowed) >= n;
}

/* The stand-in for a trimmed line; "" for what inih need not see. */
static void stand_in(struct reader *r, char *text, char *out, size_t size)
{
    char *equals = strchr(text, '=');
    out[0] = '\0';
    if (text[0] == '\0' || text[0] == ';' || text[0] == '#')
        return;
    if (text[0] == '[') {
        char *end = strchr(text, ']');
        if (end == NULL || end[1] != '\0' || !is_name(text + 1, (size_t)(end - text - 1)))
            (void)fail(r, "not a section like [name]", text);
        else if ((size_t)(end - text) > MAX_NAME)
            (void)fail(r, "section name is too long", text);
        else
            (void)snprintf(out, size, "%s\n", text);
        return;
    }
    if (equals == NULL || equals == text) {
        (void)fail(r, "expected key = value, [section] or a comment", text);
        return;
    }
    *equals = '\0';
    r->value = trim(equals + 1);
    text = trim(text);
    if (!is_name(text, strlen(text)))
        (void)fail(r, "not a key", text);
    else if (strlen(text) > MAX_NAME)
        (void)fail(r, "key is too long", text);
    else
        (void)snprintf(out, size, "%s = .\n", text);
}

/* As fgets: the next line that matters, or NULL at the end and after a failure. */
static char *next_line(char *out, int size, void *ctx)
{
    struct reader *r = ctx;
    while (r->rc == ATSI_OK) {
        ssize_t n;
        errno = 0;
        n = getline(&r->line, &r->room, r->file);
        if (n < 0) {
            if (ferror(r->file) != 0 || errno == ENOMEM)
                r->rc = atsi_fail(r->err, ATSI_EIO, "%s: %s", r->path, strerror(errno));
            return NULL;
        }
        r->number++;
        if (memchr(r->line, '\0', (size_t)n) != NULL) {
            (void)fail(r, "the line holds a NUL byte", "");
            return NULL;
        }
        if (r->number == 1 && strncmp(r->line, "\xef\xbb\xbf", 3) == 0) /* byte order mark */
            memmove(r->line, r->line + 3, (size_t)n - 2);
        stand_in(r, trim(r->line), out, (size_t)size);
        if (out[0] != '\0')
            return out;
    }
    return NULL;
}

static bool is_duplicate(struct reader *r, const char *key)
{
    for (size_t i = 0; i < r->n_seen; i++)
        if (strcmp(r->seen[i].key, key) == 0) {
            char what[64];
            (void)snprintf(what, sizeof what, "key set before in line %u", r->seen[i].line);
            (void)fail(r, what, key);
            return true;
        }
    return false;
}

static bool remember(struct reader *r, const char *key)
{
    struct seen *grown = realloc(r->seen, (r->n_seen + 1) * sizeof *grown);
    if (grown != NULL) {
        r->seen = grown;
        grown[r->n_seen].key = strdup(key);
        grown[r->n_seen].line = r->number;
    }
    if (grown == NULL || grown[r->n_seen].key == NULL) {
        r->rc = atsi_fail(r->err, ATSI_ENOMEM, "%s: out of memory", r->path);
        return false;
    }
    r->n_seen++;
    return true;
}

/* inih's handler: 1 goes on. */
static int take(void *ctx, const char *section, const char *name, const char *stand_in_value)
{
    struct reader *r = ctx;
    char key[2 * MAX_NAME + 8];
    (void)stand_in_value;
    if (r->rc != ATSI_OK)
        return 1;
    if (section[0] == '\0') {
        (void)fail(r, "key outside any [section]", name);
        return 1;
    }
    (void)snprintf(key, sizeof key, "%s.%s", section, name);
    if (is_duplicate(r, key) || !remember(r, key))
        return 1;
    r->rc = r->fn(r->ctx, key, r->value, r->number);
    return 1;
}

/* The whole file, at most MAX_FILE bytes; [owned by caller: free()]. */
static int read_file(const char *path, char **text_out, size_t *n_out, struct atsi_err *err)
{
    FILE *f = fopen(path, "re");
    char *text = NULL;
    int rc = ATSI_OK;
    if (f == NULL)
        return atsi_fail(err, errno == ENOENT || errno == ENOTDIR ? ATSI_ENOENT : ATSI_EIO,
                         "%s: %s", path, strerror(errno));
    text = malloc(MAX_FILE + 1);
    if (text == NULL) {
        rc = atsi_fail(err, ATSI_ENOMEM, "%s: out of memory", path);
    } else {
        *n_out = fread(text, 1, MAX_FILE + 1, f);
        if (ferror(f) != 0)
            rc = atsi_fail(err, ATSI_EIO, "%s: %s", path, strerror(errno));
        else if (*n_out > MAX_FILE)
            rc = atsi_fail(err, ATSI_ECONF, "%s: more than %zu KiB, this is no file of settings",
                           path, MAX_FILE >> 10);
    }
    (void)fclose(f); /* only read from */
    if (rc == ATSI_OK)
        *text_out = text;
    else
        free(text);
    return rc;
}

static void parse_text(struct reader *r, char *text, size_t n)
{
    int parsed;
    r->file = fmemopen(text, n, "r");
    if (r->file == NULL) {
        r->rc = atsi_fail(r->err, ATSI_ENOMEM, "%s: %s", r->path, strerror(errno));
        return;
    }
    parsed = ini_parse_stream(next_line, r, take, r);
    if (r->rc == ATSI_OK && parsed != 0)
        (void)fail(r, "malformed line", r->line != NULL ? r->line : "");
    (void)fclose(r->file); /* only read from */
}

int atsi_conf_read(const char *path, atsi_conf_line_fn *fn, void *ctx, struct atsi_err *err)
{
    struct reader r = {.path = path, .fn = fn, .ctx = ctx, .err = err};
    char *text = NULL;
    size_t n = 0;
    r.rc = read_file(path, &text, &n, err);
    if (r.rc == ATSI_OK && n > 0)
        parse_text(&r, text, n);
    for (size_t i = 0; i < r.n_seen; i++)
        free(r.seen[i].key);
    free(r.seen);
    free(r.line);
    free(text);
    return r.rc;
}
