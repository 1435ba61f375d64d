/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of the Hugging Face hub, as its own tools and llama.cpp leave them on disk:
 *
 *   HUB/models--USER--REPO/refs/main              name of a snapshot (a commit)
 *   HUB/models--USER--REPO/snapshots/COMMIT/...   the files, links into ../../blobs
 *   FLAT/USER_REPO_FILE.gguf                      llama.cpp before it used the hub's cache
 *   FLAT/manifest=USER=REPO=TAG.json              there: which FILE a tag means
 *
 * Which file: as llama.cpp chooses.  A quantization that is named must be there (any letter case);
 * without one Q4_K_M, then Q8_0, then the first in order of names.  Of a split model the first
 * part.  Projectors, importance matrices and draft heads are no models.
 */
#include "cli/resolve.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define MAX_DEPTH 6      /* folders inside a snapshot */
#define MAX_FILES 10000u /* of a snapshot */

struct hf_name {
    char user[129], repo[129];
    char quant[129]; /* "": none named; or a file name ending in .gguf */
};

/* What was found while looking. */
struct hf_search {
    const struct hf_name *name;
    struct cli_places hub, flat;
    bool have_repo;
    struct cli_names files;    /* GGUF files of the repository, none of which will do */
    struct cli_names dangling; /* links whose blob is gone */
    struct cli_names repos;    /* "USER/REPO" of all repositories */
};

static void find_places(struct hf_search *s)
{
    cli_places_env(&s->hub, "LLAMA_CACHE", "");
    cli_places_env(&s->hub, "HF_HUB_CACHE", "");
    cli_places_env(&s->hub, "HUGGINGFACE_HUB_CACHE", "");
    cli_places_env(&s->hub, "HF_HOME", "hub");
    cli_places_env(&s->hub, "XDG_CACHE_HOME", "huggingface/hub");
    cli_places_home(&s->hub, ".cache/huggingface/hub");
    cli_places_env(&s->flat, "LLAMA_CACHE", "");
    cli_places_env(&s->flat, "XDG_CACHE_HOME", "llama.cpp");
    cli_places_home(&s->flat, ".cache/llama.cpp");
}

static bool take(char to[129], const char *s, size_t n)
{
    if (!cli_plain_name(s, n, ""))
        return false;
    memcpy(to, s, n);
    to[n] = '\0';
    return true;
}

static bool parse(const char *text, struct hf_name *out)
{
    const char *slash = strchr(text, '/'), *colon = slash != NULL ? strchr(slash, ':') : NULL;
    *out = (struct hf_name){.quant = ""};
    if (slash == NULL || !take(out->user, text, (size_t)(slash - text)) ||
        !take(out->repo, slash + 1,
              colon != NULL ? (size_t)(colon - slash - 1) : strlen(slash + 1)))
        return false;
    if (colon != NULL && !take(out->quant, colon + 1, strlen(colon + 1)))
        return false;
    if (strcasecmp(out->quant, "latest") == 0) /* what tags without a meaning are called */
        out->quant[0] = '\0';
    return true;
}

/* ---------------------------------------------------------------- which file */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool is_model(const char *path)
{
    static const char *const others[] = {"mmproj", "imatrix", "mtp-", "eagle3-", "dflash-"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strstr(base_name(path), others[i]) != NULL)
            return false;
    return ends_with(path, ".gguf");
}

/* "-00002-of-00003.gguf": a part that is not the first. */
static bool is_later_part(const char *path)
{
    size_t n = strlen(path);
    unsigned no, count;
    int used = 0;
    if (n < 20 || sscanf(path + n - 20, "-%5u-of-%5u.gguf%n", &no, &count, &used) != 2)
        return false;
    return used == 20 && no > 1;
}

/* Whether the path has `quant` as a word of its own ("Q4_0" is no part of "IQ4_0"), followed by a
 * dot or a dash. */
static bool has_quant(const char *path, const char *quant)
{
    size_t n = strlen(quant);
    for (const char *p = path; (p = strcasestr(p, quant)) != NULL; p++)
        if ((p == path || !isalnum((unsigned char)p[-1])) && (p[n] == '.' || p[n] == '-'))
            return true;
    return false;
}

/* The first usable file with that quantization (NULL: any), by its name in `files`. */
static const char *first_with(const struct cli_names *files, const char *quant)
{
    for (size_t i = 0; i < files->n; i++)
        if (is_model(files->p[i]) && !is_later_part(files->p[i]) &&
            (quant == NULL || has_quant(files->p[i], quant)))
            return files->p[i];
    return NULL;
}

static const char *choose(const struct cli_names *files, const char *quant)
{
    static const char *const preferred[] = {"Q4_K_M", "Q8_0", NULL}; /* NULL: any */
    const char *found = NULL;
    if (ends_with(quant, ".gguf")) {
        for (size_t i = 0; i < files->n; i++)
            if (strcmp(base_name(files->p[i]), quant) == 0)
                return files->p[i];
        return NULL;
    }
    if (quant[0] != '\0')
        return first_with(files, quant);
    for (size_t i = 0; i < 3 && found == NULL; i++)
        found = first_with(files, preferred[i]);
    return found;
}

/* ---------------------------------------------------------------- the hub's layout */
/* Adds the GGUF files below dir/rel, named from dir on.  Links to files are followed, links to
 * folders are not: they may lead round in circles. */
static void walk(struct hf_search *s, struct cli_names *files, const char *dir, const char *rel,
                 int depth)
{
    struct cli_names entries = {.p = NULL};
    char path[PATH_MAX], below[PATH_MAX];
    if (rel[0] == '\0')
        cli_names_in(&entries, dir);
    else if (cli_join(path, dir, rel))
        cli_names_in(&entries, path);
    for (size_t i = 0; i < entries.n && files->n < MAX_FILES; i++) {
        struct stat link, st;
        int n =
            snprintf(below, sizeof below, "%s%s%s", rel, rel[0] != '\0' ? "/" : "", entries.p[i]);
        if (n <= 0 || n >= PATH_MAX || !cli_join(path, dir, below) || lstat(path, &link) != 0)
            continue;
        if (S_ISDIR(link.st_mode)) {
            if (depth < MAX_DEPTH)
                walk(s, files, dir, below, depth + 1);
        } else if (ends_with(below, ".gguf")) {
            if (stat(path, &st) != 0)
                cli_names_add(&s->dangling, below);
            else if (S_ISREG(st.st_mode))
                cli_names_add(files, below);
        }
    }
    files->failed = files->failed || entries.failed;
    cli_names_free(&entries);
}

/* Looks for the file among `files` (sorted), which lie in `dir`; keeps them for the message when
 * none will do. */
static bool pick(struct hf_search *s, struct cli_names *files, const char *dir, char path[PATH_MAX])
{
    const char *file = choose(files, s->name->quant);
    bool found = file != NULL && cli_join(path, dir, file);
    for (size_t i = 0; i < files->n && !found; i++)
        cli_names_add(&s->files, files->p[i]);
    s->files.failed = s->files.failed || files->failed;
    return found;
}

static bool in_snapshot(struct hf_search *s, const char *snapshot, char path[PATH_MAX])
{
    struct cli_names files = {.p = NULL};
    bool found;
    walk(s, &files, snapshot, "", 0);
    cli_names_sort(&files);
    found = pick(s, &files, snapshot, path);
    cli_names_free(&files);
    return found;
}

/* The commit that refs/main names; false when there is none.  It becomes part of a path. */
static bool main_commit(const char *repo, char commit[129])
{
    char path[PATH_MAX], line[128] = "";
    struct stat st;
    FILE *f;
    size_t n;
    if (!cli_join(path, repo, "refs/main") || stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    f = fopen(path, "re");
    if (f == NULL)
        return false;
    n = fread(line, 1, sizeof line - 1, f);
    (void)fclose(f); /* only read from */
    line[n] = '\0';
    return take(commit, line, strcspn(line, " \t\r\n"));
}

/* The snapshot that refs/main names, then the others, newest name last: an update of the
 * repository may have left the wanted file in an older one. */
static bool in_repo(struct hf_search *s, const char *repo, char path[PATH_MAX])
{
    struct cli_names snapshots = {.p = NULL};
    char all[PATH_MAX], one[PATH_MAX], commit[129] = "";
    bool found = false;
    s->have_repo = true;
    if (!cli_join(all, repo, "snapshots"))
        return false;
    if (main_commit(repo, commit) && cli_join(one, all, commit))
        found = in_snapshot(s, one, path);
    cli_names_in(&snapshots, all);
    for (size_t i = 0; i < snapshots.n && !found; i++)
        if (strcmp(snapshots.p[i], commit) != 0 && cli_join(one, all, snapshots.p[i]))
            found = in_snapshot(s, one, path);
    s->files.failed = s->files.failed || snapshots.failed;
    cli_names_free(&snapshots);
    return found;
}

/* "models--USER--REPO" to "USER/REPO", for messages. */
static void note_repo(struct hf_search *s, const char *folder)
{
    char name[300];
    const char *user = folder + strlen("models--"), *dashes = strstr(user, "--");
    if (dashes == NULL || strlen(folder) >= sizeof name)
        return;
    (void)snprintf(name, sizeof name, "%.*s/%s", (int)(dashes - user), user, dashes + 2);
    cli_names_add(&s->repos, name);
}

static bool in_hub(struct hf_search *s, const char *hub, char path[PATH_MAX])
{
    struct cli_names folders = {.p = NULL};
    char wanted[300], repo[PATH_MAX];
    bool found = false;
    (void)snprintf(wanted, sizeof wanted, "models--%s--%s", s->name->user, s->name->repo);
    cli_names_in(&folders, hub);
    for (size_t i = 0; i < folders.n && !found; i++) {
        if (strncmp(folders.p[i], "models--", 8) != 0)
            continue;
        if (strcasecmp(folders.p[i], wanted) == 0 && cli_join(repo, hub, folders.p[i]))
            found = in_repo(s, repo, path);
        else
            note_repo(s, folders.p[i]);
    }
    s->repos.failed = s->repos.failed || folders.failed;
    cli_names_free(&folders);
    return found;
}

/* ---------------------------------------------------------------- llama.cpp's flat layout */
/* The file that the manifest of the tag names.  Slashes in it are underscores on disk, so that no
 * name leads out of the folder. */
static bool by_manifest(const struct hf_search *s, const char *dir, char path[PATH_MAX])
{
    const char *tag = s->name->quant[0] != '\0' ? s->name->quant : "latest", *file;
    char name[600];
    struct stat st;
    json_t *root;
    int n =
        snprintf(name, sizeof name, "manifest=%s=%s=%s.json", s->name->user, s->name->repo, tag);
    if (n >= (int)sizeof name || !cli_join(path, dir, name))
        return false;
    root = cli_read_json(path, NULL);
    file = json_string_value(json_object_get(json_object_get(root, "ggufFile"), "rfilename"));
    n = file != NULL ? snprintf(name, sizeof name, "%s_%s_%s", s->name->user, s->name->repo, file)
                     : -1;
    json_decref(root);
    if (n < 0 || n >= (int)sizeof name)
        return false;
    for (char *p = name; *p != '\0'; p++)
        if (*p == '/')
            *p = '_';
    return cli_join(path, dir, name) && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool in_flat(struct hf_search *s, const char *dir, char path[PATH_MAX])
{
    struct cli_names all = {.p = NULL}, files = {.p = NULL};
    char prefix[300], one[PATH_MAX];
    struct stat st;
    bool found = by_manifest(s, dir, path);
    size_t n;
    if (found)
        return true;
    (void)snprintf(prefix, sizeof prefix, "%s_%s_", s->name->user, s->name->repo);
    n = strlen(prefix);
    cli_names_in(&all, dir);
    for (size_t i = 0; i < all.n; i++)
        if (strncasecmp(all.p[i], prefix, n) == 0 && ends_with(all.p[i], ".gguf") &&
            cli_join(one, dir, all.p[i]) && stat(one, &st) == 0 && S_ISREG(st.st_mode))
            cli_names_add(&files, all.p[i]);
    s->have_repo = s->have_repo || files.n > 0;
    found = pick(s, &files, dir, path);
    s->files.failed = s->files.failed || all.failed;
    cli_names_free(&all);
    cli_names_free(&files);
    return found;
}

/* ---------------------------------------------------------------- the answer */
static bool find(struct hf_search *s, char path[PATH_MAX])
{
    for (size_t i = 0; i < s->hub.n; i++)
        if (in_hub(s, s->hub.dir[i], path))
            return true;
    for (size_t i = 0; i < s->flat.n; i++)
        if (in_flat(s, s->flat.dir[i], path))
            return true;
    return false;
}

static void say_places(const struct hf_search *s, FILE *say)
{
    struct cli_places all = s->hub;
    for (size_t i = 0; i < s->flat.n; i++)
        cli_places_add(&all, s->flat.dir[i], "");
    cli_places_say(&all, say);
}

static int not_there(const struct hf_search *s, FILE *say)
{
    const struct hf_name *n = s->name;
    const char *colon = n->quant[0] != '\0' ? ":" : "";
    bool is_file = ends_with(n->quant, ".gguf");
    char wanted[300];
    struct cli_names like = {.p = NULL};
    if (s->have_repo)
        (void)fprintf(say, "%s/%s is in a local cache, but no model file%s%s of it", n->user,
                      n->repo, n->quant[0] != '\0' ? " " : "", n->quant);
    else
        (void)fprintf(say, "%s/%s%s%s is in no local cache", n->user, n->repo, colon, n->quant);
    say_places(s, say);
    (void)snprintf(wanted, sizeof wanted, "%s/%s", n->user, n->repo);
    cli_names_like(&like, &s->repos, wanted);
    cli_names_say(&s->files, "files there", 10, say);
    cli_names_say(&s->dangling, "not complete, download again", 5, say);
    if (!s->have_repo)
        cli_names_say(like.n > 0 ? &like : &s->repos, like.n > 0 ? "similar" : "models there", 5,
                      say);
    cli_names_free(&like);
    if (is_file || n->quant[0] == '\0')
        (void)fprintf(say, "\n  to get it: hf download %s %s", wanted,
                      is_file ? n->quant : "FILE.gguf");
    else
        (void)fprintf(say, "\n  to get it: hf download %s --include '*%s*'", wanted, n->quant);
    return ATSI_ENOENT;
}

int cli_resolve_hf(const char *name, char path[PATH_MAX], FILE *say)
{
    struct hf_name n;
    struct hf_search *s;
    int rc = ATSI_OK;
    if (!parse(name, &n)) {
        cli_say_name(name, say);
        (void)fputs(": expected USER/REPO or USER/REPO:QUANT, such as "
                    "bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0",
                    say);
        return ATSI_ECONF;
    }
    s = calloc(1, sizeof *s); /* the places take 80 KiB */
    if (s != NULL) {
        s->name = &n;
        find_places(s);
        rc = find(s, path) ? ATSI_OK : not_there(s, say);
        if (s->files.failed || s->repos.failed || s->dangling.failed)
            rc = ATSI_ENOMEM;
        cli_names_free(&s->files);
        cli_names_free(&s->dangling);
        cli_names_free(&s->repos);
    }
    free(s);
    return s != NULL ? rc : ATSI_ENOMEM;
}
