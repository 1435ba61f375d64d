/* SPDX-License-Identifier: Apache-2.0
 * The settings of the core, and how a value of each kind is checked. */
#ifndef ATSI_CORE_CONF_KEYS_H
#define ATSI_CORE_CONF_KEYS_H

#include "atsinfer/atsinfer.h"

enum atsi_conf_type {
    ATSI_CONF_BOOL,
    ATSI_CONF_INT,
    ATSI_CONF_SIZE,   /* bytes with an optional KiB, MiB, GiB or TiB */
    ATSI_CONF_BUDGET, /* a size, N%, N%m, or a word of `choices` */
    ATSI_CONF_CHOICE,
    ATSI_CONF_FLOAT,
    ATSI_CONF_TEXT
};

struct atsi_conf_key {
    const char *name; /* "cpu.threads"; a trailing ".*" stands for a number */
    enum atsi_conf_type type;
    const char *def;
    double min, max;     /* INT, FLOAT */
    const char *choices; /* CHOICE, BUDGET: "a|b" */
    const char *help;
};

/* The core's keys in the order of the shipped ini. */
const struct atsi_conf_key *atsi_conf_keys(size_t *n_out);

/* Checks `text` as a value of that kind; ATSI_ECONF says what was expected. */
int atsi_conf_check_value(const struct atsi_conf_key *key, const char *text, struct atsi_err *err);

const char *atsi_conf_type_name(enum atsi_conf_type type);
/* "1..64", "a|b" or "" into buf. */
void atsi_conf_range_text(const struct atsi_conf_key *key, char *buf, size_t size);

/* Parsers of checked values. */
bool atsi_conf_parse_bool(const char *text, bool *out);
bool atsi_conf_parse_size(const char *text, uint64_t *out);

#endif
