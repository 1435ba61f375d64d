/* SPDX-License-Identifier: Apache-2.0
 *
 * Model names: what other programs have already downloaded, found in their local caches without
 * any network.
 *
 *   hf:USER/REPO[:QUANT]     Hugging Face hub cache and llama.cpp's own cache
 *   ollama:NAME[:TAG]        Ollama's store
 *   anything else            a file; if there is none and it reads as NAME:TAG, Ollama's store
 *
 * What lies in a cache is not trusted: names from it are checked before they become part of a path,
 * files read whole have a size limit, folders are walked to a limited depth and without following
 * links to folders.
 */
#ifndef ATSI_CLI_RESOLVE_H
#define ATSI_CLI_RESOLVE_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "atsinfer/status.h"

/* Writes the file that `name` stands for to path.  On failure writes the reason to `say` (one
 * line, then indented lines: where was looked, what is there, how to get it; no newline at the
 * end) and returns ATSI_ECONF (malformed name), ATSI_ENOENT (not there), ATSI_EFORMAT (a damaged
 * cache) or ATSI_ENOMEM (nothing written).  A plain file name is passed on unchecked. */
int cli_resolve(const char *name, char path[PATH_MAX], FILE *say);

/* The two stores; `name` without its prefix.  As cli_resolve(). */
int cli_resolve_hf(const char *name, char path[PATH_MAX], FILE *say);
int cli_resolve_ollama(const char *name, char path[PATH_MAX], FILE *say);
/* Whether `name` reads as NAME:TAG and Ollama's store has it. */
bool cli_ollama_has(const char *name);

/* ---------------------------------------------------------------- shared by the two */
/* Folders to look in, each once, best first. */
struct cli_places {
    char dir[10][PATH_MAX];
    size_t n;
};

/* Adds $VARIABLE/rest when the variable is set and not empty; too long paths are left out. */
void cli_places_env(struct cli_places *p, const char *variable, const char *rest);
/* Adds HOME/rest; the password database stands in for an unset HOME. */
void cli_places_home(struct cli_places *p, const char *rest);
void cli_places_add(struct cli_places *p, const char *dir, const char *rest);
/* "searched: DIR, DIR (not there), DIR (Permission denied)" on a line of its own. */
void cli_places_say(const struct cli_places *p, FILE *say);

/* A list of file names.  `failed` stays set once memory was out. */
struct cli_names {
    char **p; /* [owned] */
    size_t n, cap;
    bool failed;
};
void cli_names_add(struct cli_names *l, const char *name); /* copies */
void cli_names_sort(struct cli_names *l);
void cli_names_free(struct cli_names *l);
/* "LABEL: A, B and 3 more", the first `max` of them, on a line of its own; nothing for an empty
 * list. */
void cli_names_say(const struct cli_names *l, const char *label, size_t max, FILE *say);
/* Adds the entries of a folder but for those beginning with a dot, and sorts; an unreadable folder
 * has none. */
void cli_names_in(struct cli_names *l, const char *dir);
/* Adds those of `all` that are much like `name`, closest first. */
void cli_names_like(struct cli_names *l, const struct cli_names *all, const char *name);

/* Writes text of unknown origin with control characters as '?', not much of it if it is long. */
void cli_say_name(const char *name, FILE *say);
/* Joins two parts with a slash; false when the path is too long. */
bool cli_join(char path[PATH_MAX], const char *dir, const char *rest);
/* True for [A-Za-z0-9._-] (and those of `more`) without a leading dot, 1 to 128 bytes. */
bool cli_plain_name(const char *s, size_t n, const char *more);
/* A regular file of at most 4 MiB, parsed; NULL and "PATH: reason" to `say` (may be NULL)
 * otherwise.  [owned: json_decref()] */
json_t *cli_read_json(const char *path, FILE *say);

#endif
