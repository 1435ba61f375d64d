/* SPDX-License-Identifier: Apache-2.0
 *
 * Which store a model name belongs to, and what reading the two stores has in common: places, lists
 * of names, suggestions, small JSON files.
 */
#include "cli/resolve.h"

#include "atsinfer/atsinfer.h"
#include "text/buf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* A manifest has a few hundred bytes. */
#define MAX_JSON ((size_t)4 << 20)
/* Bytes of a name that are worth reading. */
#define MAX_SAID 512u
/* Entries of one folder that are looked at. */
#define MAX_ENTRIES 100000u

int cli_resolve(const char *name, char path[PATH_MAX], FILE *say)
{
    if (strncmp(name, "hf:", 3) == 0)
        return cli_resolve_hf(name + 3, path, say);
    if (strncmp(name, "ollama:", 7) == 0)
        return cli_resolve_ollama(name + 7, path, say);
    if (access(name, F_OK) != 0 && cli_ollama_has(name))
        return cli_resolve_ollama(name, path, say);
    if (snprintf(path, PATH_MAX, "%s", name) >= PATH_MAX) {
        (void)fprintf(say, "the model's name has %zu bytes, a path at most %d", strlen(name),
                      PATH_MAX - 1);
        return ATSI_ECONF;
    }
    return ATSI_OK;
}

/* ---------------------------------------------------------------- names */
bool cli_join(char path[PATH_MAX], const char *dir, const char *rest)
{
    int n = snprintf(path, PATH_MAX, "%s/%s", dir, rest);
    return n > 0 && n < PATH_MAX;
}

bool cli_plain_name(const char *s, size_t n, const char *more)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (n == 0 || n > 128 || s[0] == '.')
        return false;
    for (size_t i = 0; i < n; i++)
        if (s[i] == '\0' || (strchr(allowed, s[i]) == NULL && strchr(more, s[i]) == NULL))
            return false;
    return true;
}

void cli_say_name(const char *name, FILE *say)
{
    for (size_t i = 0; i < MAX_SAID && name[i] != '\0'; i++) {
        unsigned char c = (unsigned char)name[i];
        (void)fputc(c < 0x20 || c == 0x7F ? '?' : c, say);
    }
    if (strnlen(name, MAX_SAID + 1) > MAX_SAID)
        (void)fputs("...", say);
}

/* ---------------------------------------------------------------- places */
void cli_places_add(struct cli_places *p, const char *dir, const char *rest)
{
    char *to;
    int n;
    if (p->n == sizeof p->dir / sizeof p->dir[0])
        return;
    to = p->dir[p->n];
    n = snprintf(to, PATH_MAX, "%s%s%s", dir, rest[0] != '\0' ? "/" : "", rest);
    if (n <= 0 || n >= PATH_MAX)
        return;
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->dir[i], to) == 0)
            return;
    p->n++;
}

void cli_places_env(struct cli_places *p, const char *variable, const char *rest)
{
    const char *dir = getenv(variable);
    if (dir != NULL && dir[0] != '\0')
        cli_places_add(p, dir, rest);
}

void cli_places_home(struct cli_places *p, const char *rest)
{
    const char *home = getenv("HOME");
    if (home == NULL || home[0] == '\0') {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): before any other thread asks */
        const struct passwd *pw = getpwuid(getuid());
        home = pw != NULL ? pw->pw_dir : NULL;
    }
    if (home != NULL && home[0] != '\0')
        cli_places_add(p, home, rest);
}

void cli_places_say(const struct cli_places *p, FILE *say)
{
    (void)fputs("\n  searched: ", say);
    for (size_t i = 0; i < p->n; i++) {
        DIR *d = opendir(p->dir[i]);
        (void)fputs(i > 0 ? ", " : "", say);
        cli_say_name(p->dir[i], say);
        if (d == NULL)
            (void)fprintf(say, " (%s)", errno == ENOENT ? "not there" : strerror(errno));
        else
            (void)closedir(d);
    }
    if (p->n == 0)
        (void)fputs("nothing: no home folder is known", say);
}

/* ---------------------------------------------------------------- lists */
void cli_names_add(struct cli_names *l, const char *name)
{
    void *p = l->p;
    char *copy = strdup(name);
    if (copy == NULL || !atsi_grow(&p, l->n, &l->cap, 1, sizeof *l->p)) {
        l->failed = true;
        free(copy);
        return;
    }
    l->p = p;
    l->p[l->n++] = copy;
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

void cli_names_sort(struct cli_names *l)
{
    if (l->n > 1)
        qsort(l->p, l->n, sizeof *l->p, by_name);
}

void cli_names_free(struct cli_names *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->p[i]);
    free(l->p);
    *l = (struct cli_names){.p = NULL};
}

void cli_names_say(const struct cli_names *l, const char *label, size_t max, FILE *say)
{
    if (l->n == 0)
        return;
    (void)fprintf(say, "\n  %s: ", label);
    for (size_t i = 0; i < l->n && i < max; i++) {
        (void)fputs(i > 0 ? ", " : "", say);
        cli_say_name(l->p[i], say);
    }
    if (l->n > max)
        (void)fprintf(say, " and %zu more", l->n - max);
}

void cli_names_in(struct cli_names *l, const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    if (d == NULL)
        return;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is our own */
    for (uint32_t seen = 0; seen < MAX_ENTRIES && (e = readdir(d)) != NULL; seen++)
        if (e->d_name[0] != '.')
            cli_names_add(l, e->d_name);
    (void)closedir(d);
    cli_names_sort(l);
}

/* Small is much alike: edits, or nothing but the length when one name holds the other. */
static uint32_t unlike(const char *name, const char *other)
{
    size_t a = strlen(name), b = strlen(other);
    if (strcasestr(other, name) != NULL || strcasestr(name, other) != NULL)
        return (uint32_t)(a > b ? a - b : b - a) / 8;
    return atsi_edit_distance(name, other);
}

void cli_names_like(struct cli_names *l, const struct cli_names *all, const char *name)
{
    uint32_t most = (uint32_t)strlen(name) / 3;
    for (uint32_t distance = 0; distance <= most && distance <= 8; distance++)
        for (size_t i = 0; i < all->n; i++)
            if (unlike(name, all->p[i]) == distance)
                cli_names_add(l, all->p[i]);
}

/* ---------------------------------------------------------------- JSON */
/* Whole file; NULL and *why otherwise.  O_NONBLOCK: a pipe in place of a file does not hang. */
static char *read_small(const char *path, size_t *n_out, const char **why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st = {.st_size = 0};
    char *text = NULL;
    size_t n = 0;
    *why = NULL;
    if (fd < 0 || fstat(fd, &st) != 0)
        *why = strerror(errno);
    else if (!S_ISREG(st.st_mode))
        *why = "is not a regular file";
    else if (st.st_size < 0 || (uint64_t)st.st_size > MAX_JSON)
        *why = "is larger than 4 MiB";
    else if ((text = malloc((size_t)st.st_size + 1)) == NULL)
        *why = "out of memory";
    while (*why == NULL && n < (size_t)st.st_size) {
        ssize_t got = read(fd, text + n, (size_t)st.st_size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            *why = strerror(errno);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    if (fd >= 0)
        (void)close(fd); /* only read from */
    if (*why != NULL) {
        free(text);
        return NULL;
    }
    *n_out = n;
    return text;
}

json_t *cli_read_json(const char *path, FILE *say)
{
    const char *why;
    size_t n = 0;
    char *text = read_small(path, &n, &why);
    json_error_t bad = {.text = ""};
    json_t *root = text != NULL ? json_loadb(text, n, 0, &bad) : NULL;
    if (root == NULL && say != NULL) {
        cli_say_name(path, say);
        if (text == NULL)
            (void)fprintf(say, ": %s", why);
        else
            (void)fprintf(say, ":%d: %s", bad.line, bad.text);
    }
    free(text);
    return root;
}
