/* SPDX-License-Identifier: Apache-2.0
 *
 * Ollama's store: manifests/HOST/NAMESPACE/NAME/TAG is an OCI image manifest (JSON) whose layer of
 * type application/vnd.ollama.image.model names the GGUF file by digest, "sha256:HEX", which lies
 * in blobs/sha256-HEX.  Host registry.ollama.ai, namespace library and tag latest go without
 * saying.
 */
#include "cli/resolve.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL_LAYER "application/vnd.ollama.image.model"
#define HEX_DIGITS 64u /* of a SHA-256 */

/* [HOST/][NAMESPACE/]NAME[:TAG], each part checked. */
struct ollama_name {
    char host[129], space[129], name[129], tag[129];
};

static void find_places(struct cli_places *p)
{
    p->n = 0;
    cli_places_env(p, "OLLAMA_MODELS", "");
    cli_places_home(p, ".ollama/models");
    cli_places_add(p, "/usr/share/ollama/.ollama/models", "");
}

/* Copies s[n]; false when it may not be part of a path. */
static bool take(char to[129], const char *s, size_t n, const char *more)
{
    if (!cli_plain_name(s, n, more))
        return false;
    memcpy(to, s, n);
    to[n] = '\0';
    return true;
}

static bool parse(const char *text, struct ollama_name *out)
{
    const char *slash = strrchr(text, '/'), *last = slash != NULL ? slash + 1 : text;
    const char *colon = strchr(last, ':'), *space;
    *out = (struct ollama_name){.host = "registry.ollama.ai", .space = "library", .tag = "latest"};
    if (colon != NULL && !take(out->tag, colon + 1, strlen(colon + 1), ""))
        return false;
    if (!take(out->name, last, colon != NULL ? (size_t)(colon - last) : strlen(last), ""))
        return false;
    if (slash == NULL)
        return true;
    space = memrchr(text, '/', (size_t)(slash - text));
    if (space != NULL && !take(out->host, text, (size_t)(space - text), ":"))
        return false;
    space = space != NULL ? space + 1 : text;
    return take(out->space, space, (size_t)(slash - space), "");
}

static bool manifest_path(const char *place, const struct ollama_name *n, char path[PATH_MAX])
{
    int len = snprintf(path, PATH_MAX, "%s/manifests/%s/%s/%s/%s", place, n->host, n->space,
                       n->name, n->tag);
    return len > 0 && len < PATH_MAX;
}

/* The first place that has the manifest; -1: none. */
static int find_manifest(const struct cli_places *p, const struct ollama_name *n,
                         char path[PATH_MAX])
{
    for (size_t i = 0; i < p->n; i++)
        if (manifest_path(p->dir[i], n, path) && access(path, F_OK) == 0)
            return (int)i;
    return -1;
}

bool cli_ollama_has(const char *name)
{
    struct ollama_name n;
    struct cli_places p;
    char path[PATH_MAX];
    if (strchr(name, ':') == NULL || !parse(name, &n))
        return false;
    find_places(&p);
    return find_manifest(&p, &n, path) >= 0;
}

/* ---------------------------------------------------------------- not there */
/* What could have been meant: other tags of the name, else names like it. */
static void say_similar(const struct cli_places *p, const struct ollama_name *n, FILE *say)
{
    struct cli_names tags = {.p = NULL}, names = {.p = NULL}, like = {.p = NULL};
    char dir[PATH_MAX];
    for (size_t i = 0; i < p->n; i++) {
        int len = snprintf(dir, sizeof dir, "%s/manifests/%s/%s", p->dir[i], n->host, n->space);
        if (len > 0 && len < PATH_MAX)
            cli_names_in(&names, dir);
        len = snprintf(dir, sizeof dir, "%s/manifests/%s/%s/%s", p->dir[i], n->host, n->space,
                       n->name);
        if (len > 0 && len < PATH_MAX)
            cli_names_in(&tags, dir);
    }
    cli_names_like(&like, &names, n->name);
    if (tags.n > 0)
        cli_names_say(&tags, "tags there", 10, say);
    else if (like.n > 0)
        cli_names_say(&like, "similar", 5, say);
    else
        cli_names_say(&names, "models there", 10, say);
    cli_names_free(&tags);
    cli_names_free(&names);
    cli_names_free(&like);
}

static int not_there(const struct cli_places *p, const char *name, const struct ollama_name *n,
                     FILE *say)
{
    (void)fprintf(say, "Ollama has no model %s:%s", n->name, n->tag);
    cli_places_say(p, say);
    say_similar(p, n, say);
    (void)fprintf(say, "\n  to get it: ollama pull %s", name);
    return ATSI_ENOENT;
}

/* ---------------------------------------------------------------- there */
/* The layer that is the model; NULL: none. */
static const json_t *model_layer(const json_t *manifest)
{
    const json_t *layers = json_object_get(manifest, "layers");
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *layer = json_array_get(layers, i);
        const char *type = json_string_value(json_object_get(layer, "mediaType"));
        if (type != NULL && strcmp(type, MODEL_LAYER) == 0)
            return layer;
    }
    return NULL;
}

/* "sha256:" and 64 hexadecimal digits, nothing else: it becomes part of a path. */
static bool is_digest(const char *digest)
{
    return digest != NULL && strncmp(digest, "sha256:", 7) == 0 &&
           strspn(digest + 7, "0123456789abcdef") == HEX_DIGITS && digest[7 + HEX_DIGITS] == '\0';
}

static int damaged(const char *manifest, const char *what, FILE *say)
{
    cli_say_name(manifest, say);
    (void)fprintf(say, ": %s; pull the model again", what);
    return ATSI_EFORMAT;
}

/* The blob must be there, with the size the manifest says: an interrupted pull leaves less. */
static int check_blob(const char *manifest, const char *blob, const json_t *layer, FILE *say)
{
    const json_t *size = json_object_get(layer, "size");
    struct stat st;
    char what[160];
    if (stat(blob, &st) != 0 || !S_ISREG(st.st_mode))
        return damaged(manifest, "the model's data (blob) is not there", say);
    if (json_is_integer(size) && json_integer_value(size) != (json_int_t)st.st_size) {
        (void)snprintf(what, sizeof what,
                       "the model's data has %" PRIdMAX " bytes, the manifest says %" PRIdMAX,
                       (intmax_t)st.st_size, (intmax_t)json_integer_value(size));
        return damaged(manifest, what, say);
    }
    return ATSI_OK;
}

static int use_manifest(const char *place, const char *manifest, char path[PATH_MAX], FILE *say)
{
    json_t *root = cli_read_json(manifest, say);
    const json_t *layer = model_layer(root);
    const char *digest = json_string_value(json_object_get(layer, "digest"));
    char blob[16 + HEX_DIGITS];
    int rc = ATSI_OK;
    if (root == NULL) {
        (void)fputs("; pull the model again", say);
        return ATSI_EFORMAT;
    }
    if (layer == NULL)
        rc = damaged(manifest, "names no GGUF model (no layer of type " MODEL_LAYER ")", say);
    else if (!is_digest(digest))
        rc = damaged(manifest, "the model's digest is not sha256: and 64 hexadecimal digits", say);
    if (rc == ATSI_OK) {
        (void)snprintf(blob, sizeof blob, "blobs/sha256-%s", digest + 7);
        rc = cli_join(path, place, blob) ? check_blob(manifest, path, layer, say)
                                         : damaged(manifest, "the path is too long", say);
    }
    json_decref(root);
    return rc;
}

int cli_resolve_ollama(const char *name, char path[PATH_MAX], FILE *say)
{
    struct ollama_name n;
    struct cli_places p;
    char manifest[PATH_MAX];
    int at;
    if (!parse(name, &n)) {
        (void)fputs("ollama:", say);
        cli_say_name(name, say);
        (void)fputs(": expected ollama:NAME or ollama:NAME:TAG, such as ollama:llama3.1:8b", say);
        return ATSI_ECONF;
    }
    find_places(&p);
    at = find_manifest(&p, &n, manifest);
    if (at < 0)
        return not_there(&p, name, &n, say);
    return use_manifest(p.dir[at], manifest, path, say);
}
