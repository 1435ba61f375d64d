/* SPDX-License-Identifier: Apache-2.0
 * Ini files of numbers. */
#include "core/round/number_file.h"

#include "atsinfer/atsinfer.h"
#include "core/conf_read.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KEYS 64u
#define TEXT_ROOM 96u

struct reading {
    const char *path, *section;
    const struct atsi_number_key *keys;
    size_t n_keys;
    unsigned char *out;
    bool seen[MAX_KEYS];
    struct atsi_err *err;
};

static int unknown(const struct reading *r, const char *key, unsigned line)
{
    const char *best = NULL;
    uint32_t distance = 4;
    for (size_t i = 0; i < r->n_keys; i++) {
        uint32_t d = atsi_edit_distance(key, r->keys[i].name);
        if (d < distance) {
            distance = d;
            best = r->keys[i].name;
        }
    }
    return atsi_fail(r->err, ATSI_ECONF, "%s:%u: unknown key \"%.40s\"%s%s%s", r->path, line, key,
                     best != NULL ? "; did you mean \"" : "", best != NULL ? best : "",
                     best != NULL ? "\"?" : "");
}

static int take_value(struct reading *r, size_t k, const char *value, unsigned line)
{
    const struct atsi_number_key *key = &r->keys[k];
    char *end;
    double v;
    r->seen[k] = true;
    if (key->text) {
        (void)snprintf((char *)r->out + key->offset, TEXT_ROOM, "%s", value);
        return ATSI_OK;
    }
    errno = 0;
    v = strtod(value, &end);
    if (end == value || *end != '\0' || errno != 0 || !isfinite(v) || v < key->min || v > key->max)
        return atsi_fail(r->err, ATSI_ECONF,
                         "%s:%u: %s = \"%.40s\": expected a number from %.12g to %.12g", r->path,
                         line, key->name, value, key->min, key->max);
    memcpy(r->out + key->offset, &v, sizeof v);
    return ATSI_OK;
}

static int take_line(void *ctx, const char *key, const char *value, unsigned line)
{
    struct reading *r = ctx;
    size_t n = strlen(r->section);
    if (strncmp(key, r->section, n) != 0 || key[n] != '.')
        return atsi_fail(r->err, ATSI_ECONF, "%s:%u: \"%.60s\" is outside section [%s]", r->path,
                         line, key, r->section);
    for (size_t k = 0; k < r->n_keys; k++)
        if (strcmp(r->keys[k].name, key + n + 1) == 0)
            return take_value(r, k, value, line);
    return unknown(r, key + n + 1, line);
}

int atsi_number_file_read(const char *path, const char *section, const struct atsi_number_key *keys,
                          size_t n_keys, void *out, struct atsi_err *err)
{
    struct reading r = {
        .path = path, .section = section, .keys = keys, .n_keys = n_keys, .out = out, .err = err};
    int rc;
    if (n_keys > MAX_KEYS)
        return atsi_fail(err, ATSI_EINVAL, "%zu keys, at most %u", n_keys, MAX_KEYS);
    for (size_t k = 0; k < n_keys; k++)
        if (!keys[k].text)
            memcpy(r.out + keys[k].offset, &keys[k].def, sizeof keys[k].def);
    rc = atsi_conf_read(path, take_line, &r, err);
    for (size_t k = 0; k < n_keys && rc == ATSI_OK; k++)
        if (keys[k].required && !r.seen[k])
            rc = atsi_fail(err, ATSI_ECONF, "%s: section [%s] lacks %s", path, section,
                           keys[k].name);
    return rc;
}
