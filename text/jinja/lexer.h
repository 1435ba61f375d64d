/* SPDX-License-Identifier: Apache-2.0
 * Template source to tokens. */
#ifndef ATSI_TEXT_JINJA_LEXER_H
#define ATSI_TEXT_JINJA_LEXER_H

#include "text/jinja/render.h"

enum atsi_jtoken_kind {
    ATSI_JT_END,         /* of the template */
    ATSI_JT_DATA,        /* text between tags, white space control done */
    ATSI_JT_BLOCK_BEGIN, /* {% */
    ATSI_JT_BLOCK_END,
    ATSI_JT_VAR_BEGIN, /* {{ */
    ATSI_JT_VAR_END,
    ATSI_JT_NAME,
    ATSI_JT_STRING, /* escapes decoded */
    ATSI_JT_INT,
    ATSI_JT_FLOAT,
    ATSI_JT_OP /* `op` says which */
};

struct atsi_jtoken {
    uint8_t kind;
    char op; /* the character; E ==, N !=, L <=, G >=, F //, P ** */
    uint32_t line;
    struct atsi_jv value; /* DATA, NAME and STRING: text; INT, FLOAT: the number */
};

struct atsi_jtokens {
    struct atsi_jtoken *v;
    size_t n, cap;
};

/* All tokens of source[0..len), with one END; in r's arena.  false: a failure was noted. */
bool atsi_jlex(struct atsi_jr *r, const char *source, size_t len, struct atsi_jtokens *out);
/* The text of a string literal between its quotes, escapes decoded. */
struct atsi_jv atsi_jlex_unescape(struct atsi_jr *r, const char *p, size_t n);

#endif
