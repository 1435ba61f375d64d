/* SPDX-License-Identifier: Apache-2.0
 * Tokens to the tree. */
#ifndef ATSI_TEXT_JINJA_PARSER_H
#define ATSI_TEXT_JINJA_PARSER_H

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

struct atsi_jparser {
    struct atsi_jr *r;           /* arena, failure, depth */
    const struct atsi_jtoken *t; /* the token at hand */
    uint32_t n_loops; /* for bodies around the statement within its function: break is allowed */
};

/* The statements of the whole template.  false: a failure was noted. */
bool atsi_jparse(struct atsi_jr *r, const struct atsi_jtokens *tokens, struct atsi_jnodes *out);

/* ---------------------------------------------------------------- between the parser's files */
struct atsi_jnode *atsi_jnode_new(struct atsi_jparser *p, enum atsi_jkind kind, uint32_t line);
/* false: failed, also when `node` is NULL. */
bool atsi_jnodes_add(struct atsi_jr *r, struct atsi_jnodes *list, struct atsi_jnode *node);
/* "unexpected ..., expected ..."; NULL. */
struct atsi_jnode *atsi_jparse_unexpected(struct atsi_jparser *p, const char *expected);

/* The token at hand, moved over. */
const struct atsi_jtoken *atsi_jparse_next(struct atsi_jparser *p);
bool atsi_jparse_at_op(const struct atsi_jparser *p, char op);
bool atsi_jparse_at_name(const struct atsi_jparser *p, const char *name);
/* Moves on when the token is that. */
bool atsi_jparse_skip_op(struct atsi_jparser *p, char op);
bool atsi_jparse_skip_name(struct atsi_jparser *p, const char *name);
/* Moves on, or notes a failure. */
bool atsi_jparse_expect_op(struct atsi_jparser *p, char op);
/* The name at hand, moved over; NULL: failed. */
const struct atsi_jstr *atsi_jparse_name(struct atsi_jparser *p);

/* One expression, with or without `a if b`. */
struct atsi_jnode *atsi_jparse_expr(struct atsi_jparser *p, bool with_cond);
/* One expression, or several with commas as a tuple; ends at `stop` (a name) too, unless NULL. */
struct atsi_jnode *atsi_jparse_tuple(struct atsi_jparser *p, bool with_cond, const char *stop,
                                     bool may_be_empty);
/* What can be assigned to: names, tuples of them, and `ns.attr` when asked for. */
struct atsi_jnode *atsi_jparse_target(struct atsi_jparser *p, bool with_namespace,
                                      const char *stop);
/* "|name(...)|..." behind `node`; with `inline_first` the first one comes without a bar. */
struct atsi_jnode *atsi_jparse_filters(struct atsi_jparser *p, struct atsi_jnode *node,
                                       bool inline_first);

#endif
