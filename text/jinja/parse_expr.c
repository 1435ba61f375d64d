/* SPDX-License-Identifier: Apache-2.0
 *
 * Expressions.  Loosest first: a if b else c; or; and; not; comparisons and `in`; + -; ~;
 * * / // %; **; signs; then .attr [item] (call), |filter and `is` test.
 */
#include "text/jinja/call.h"
#include "text/jinja/parser.h"

static struct atsi_jnode *parse_unary(struct atsi_jparser *p, bool with_filter);
static struct atsi_jnode *parse_primary(struct atsi_jparser *p, bool with_namespace);

static struct atsi_jnode *binary(struct atsi_jparser *p, enum atsi_jkind kind, char op,
                                 struct atsi_jnode *a, struct atsi_jnode *b, uint32_t line)
{
    struct atsi_jnode *n;
    if (a == NULL || b == NULL)
        return NULL;
    n = atsi_jnode_new(p, kind, line);
    if (n != NULL) {
        n->op = op;
        n->a = a;
        n->b = b;
    }
    return n;
}

static struct atsi_jnode *unary(struct atsi_jparser *p, enum atsi_jkind kind, char op,
                                struct atsi_jnode *a, uint32_t line)
{
    struct atsi_jnode *n = a != NULL ? atsi_jnode_new(p, kind, line) : NULL;
    if (n != NULL) {
        n->op = op;
        n->a = a;
    }
    return n;
}

/* ---------------------------------------------------------------- operators */
static bool at_one_of(const struct atsi_jparser *p, const char *ops)
{
    return p->t->kind == ATSI_JT_OP && strchr(ops, p->t->op) != NULL;
}

static bool is_constant(const struct atsi_jnode *n)
{
    return n->kind == ATSI_JN_CONST || (n->kind == ATSI_JN_SIGN && n->a->kind == ATSI_JN_CONST);
}

/* -3 ** n: Jinja2 writes the constant into Python source, where it becomes -(3 ** n); with two
 * constants it computes (-3) ** 2.  Nobody means that. */
static bool is_ambiguous(const struct atsi_jnode *left, const struct atsi_jnode *right)
{
    return left->kind == ATSI_JN_SIGN && is_constant(left) && right != NULL && !is_constant(right);
}

static struct atsi_jnode *parse_pow(struct atsi_jparser *p)
{
    struct atsi_jnode *left = parse_unary(p, true), *right;
    while (left != NULL && at_one_of(p, "P")) {
        uint32_t line = atsi_jparse_next(p)->line;
        right = parse_unary(p, true);
        if (is_ambiguous(left, right)) {
            p->r->line = line;
            (void)atsi_jr_notsup(p->r, "a signed number before ** is not supported");
            return NULL;
        }
        left = binary(p, ATSI_JN_BINARY, 'P', left, right, line);
    }
    return left;
}

static struct atsi_jnode *parse_product(struct atsi_jparser *p)
{
    struct atsi_jnode *left = parse_pow(p);
    while (left != NULL && at_one_of(p, "*/F%")) {
        const struct atsi_jtoken *op = p->t++;
        left = binary(p, ATSI_JN_BINARY, op->op, left, parse_pow(p), op->line);
    }
    return left;
}

static struct atsi_jnode *parse_concat(struct atsi_jparser *p)
{
    struct atsi_jnode *n, *first = parse_product(p);
    if (first == NULL || !at_one_of(p, "~"))
        return first;
    n = atsi_jnode_new(p, ATSI_JN_CONCAT, p->t->line);
    if (n == NULL || !atsi_jnodes_add(p->r, &n->items, first))
        return NULL;
    while (atsi_jparse_skip_op(p, '~'))
        if (!atsi_jnodes_add(p->r, &n->items, parse_product(p)))
            return NULL;
    return n;
}

static struct atsi_jnode *parse_sum(struct atsi_jparser *p)
{
    struct atsi_jnode *left = parse_concat(p);
    while (left != NULL && at_one_of(p, "+-")) {
        const struct atsi_jtoken *op = p->t++;
        left = binary(p, ATSI_JN_BINARY, op->op, left, parse_concat(p), op->line);
    }
    return left;
}

/* The comparison operator at hand, moved over: as of tokens, i (in), n (not in), or 0. */
static char compare_op(struct atsi_jparser *p)
{
    if (at_one_of(p, "EN<>LG"))
        return atsi_jparse_next(p)->op;
    if (atsi_jparse_skip_name(p, "in"))
        return 'i';
    if (atsi_jparse_at_name(p, "not") && p->t[1].kind == ATSI_JT_NAME &&
        atsi_jstr_is(p->t[1].value.u.s, "in")) {
        p->t += 2;
        return 'n';
    }
    return 0;
}

static struct atsi_jnode *parse_compare(struct atsi_jparser *p)
{
    struct atsi_jnode *n = NULL, *first = parse_sum(p);
    uint32_t line = p->t->line;
    char op;
    while (first != NULL && (op = compare_op(p)) != 0) {
        if (n == NULL) {
            n = unary(p, ATSI_JN_COMPARE, 0, first, line);
            if (n == NULL)
                return NULL;
        }
        if (!atsi_jnodes_add(p->r, &n->items, unary(p, ATSI_JN_OPERAND, op, parse_sum(p), line)))
            return NULL;
    }
    return n != NULL ? n : first;
}

static struct atsi_jnode *parse_not(struct atsi_jparser *p)
{
    uint32_t line = p->t->line, n_not = 0;
    struct atsi_jnode *n;
    while (atsi_jparse_skip_name(p, "not"))
        n_not++;
    n = parse_compare(p);
    while (n != NULL && n_not-- > 0)
        n = unary(p, ATSI_JN_NOT, 0, n, line);
    return n;
}

static struct atsi_jnode *parse_and(struct atsi_jparser *p)
{
    struct atsi_jnode *left = parse_not(p);
    while (left != NULL && atsi_jparse_at_name(p, "and")) {
        uint32_t line = atsi_jparse_next(p)->line;
        left = binary(p, ATSI_JN_AND, 0, left, parse_not(p), line);
    }
    return left;
}

static struct atsi_jnode *parse_or(struct atsi_jparser *p)
{
    struct atsi_jnode *left = parse_and(p);
    while (left != NULL && atsi_jparse_at_name(p, "or")) {
        uint32_t line = atsi_jparse_next(p)->line;
        left = binary(p, ATSI_JN_OR, 0, left, parse_and(p), line);
    }
    return left;
}

struct atsi_jnode *atsi_jparse_expr(struct atsi_jparser *p, bool with_cond)
{
    struct atsi_jnode *n = NULL, *otherwise;
    if (atsi_jr_enter(p->r))
        n = parse_or(p);
    while (with_cond && n != NULL && atsi_jparse_at_name(p, "if")) {
        uint32_t line = atsi_jparse_next(p)->line;
        n = binary(p, ATSI_JN_COND, 0, n, parse_or(p), line);
        if (n != NULL && atsi_jparse_skip_name(p, "else")) {
            otherwise = atsi_jparse_expr(p, true);
            n->c = otherwise;
            n = otherwise != NULL ? n : NULL;
        }
    }
    p->r->depth--;
    return n;
}

/* ---------------------------------------------------------------- literals */
struct atsi_jnode *atsi_jparse_tuple(struct atsi_jparser *p, bool with_cond, const char *stop,
                                     bool may_be_empty)
{
    struct atsi_jnodes items = {.n = 0};
    struct atsi_jnode *n;
    uint32_t line = p->t->line;
    bool comma = false;
    for (;;) {
        bool end = p->t->kind == ATSI_JT_VAR_END || p->t->kind == ATSI_JT_BLOCK_END ||
                   atsi_jparse_at_op(p, ')') || (stop != NULL && atsi_jparse_at_name(p, stop));
        if (end)
            break;
        if (!atsi_jnodes_add(p->r, &items, atsi_jparse_expr(p, with_cond)))
            return NULL;
        if (!atsi_jparse_skip_op(p, ','))
            break;
        comma = true;
    }
    if (!comma && items.n == 1)
        return items.v[0];
    if (!comma && !may_be_empty)
        return atsi_jparse_unexpected(p, "an expression");
    n = atsi_jnode_new(p, ATSI_JN_TUPLE, line);
    if (n != NULL)
        n->items = items;
    return n;
}

static struct atsi_jnode *parse_list(struct atsi_jparser *p)
{
    struct atsi_jnode *n = atsi_jnode_new(p, ATSI_JN_LIST, atsi_jparse_next(p)->line);
    while (n != NULL && !atsi_jparse_skip_op(p, ']')) {
        if (n->items.n > 0 && !atsi_jparse_expect_op(p, ','))
            return NULL;
        if (atsi_jparse_skip_op(p, ']'))
            break;
        if (!atsi_jnodes_add(p->r, &n->items, atsi_jparse_expr(p, true)))
            return NULL;
    }
    return n;
}

static struct atsi_jnode *parse_dict(struct atsi_jparser *p)
{
    struct atsi_jnode *n = atsi_jnode_new(p, ATSI_JN_DICT, atsi_jparse_next(p)->line);
    while (n != NULL && !atsi_jparse_skip_op(p, '}')) {
        if (n->items.n > 0 && !atsi_jparse_expect_op(p, ','))
            return NULL;
        if (atsi_jparse_skip_op(p, '}'))
            break;
        if (!atsi_jnodes_add(p->r, &n->items, atsi_jparse_expr(p, true)) ||
            !atsi_jparse_expect_op(p, ':') ||
            !atsi_jnodes_add(p->r, &n->items, atsi_jparse_expr(p, true)))
            return NULL;
    }
    return n;
}

static struct atsi_jnode *constant(struct atsi_jparser *p, struct atsi_jv value, uint32_t line)
{
    struct atsi_jnode *n = atsi_jnode_new(p, ATSI_JN_CONST, line);
    if (n != NULL)
        n->value = value;
    return n;
}

/* Strings side by side are one. */
static struct atsi_jnode *parse_string(struct atsi_jparser *p)
{
    uint32_t line = p->t->line;
    struct atsi_jv v = atsi_jparse_next(p)->value;
    while (v.type == ATSI_J_STR && p->t->kind == ATSI_JT_STRING)
        v = atsi_jstr_concat(p->r, v.u.s, atsi_jparse_next(p)->value.u.s);
    return v.type == ATSI_J_STR ? constant(p, v, line) : NULL;
}

static struct atsi_jnode *parse_word(struct atsi_jparser *p, bool with_namespace)
{
    uint32_t line = p->t->line;
    const struct atsi_jstr *word = atsi_jparse_next(p)->value.u.s;
    struct atsi_jnode *n;
    if (atsi_jstr_is(word, "true") || atsi_jstr_is(word, "True"))
        return constant(p, atsi_jv_bool(true), line);
    if (atsi_jstr_is(word, "false") || atsi_jstr_is(word, "False"))
        return constant(p, atsi_jv_bool(false), line);
    if (atsi_jstr_is(word, "none") || atsi_jstr_is(word, "None"))
        return constant(p, atsi_jv_none(), line);
    n = atsi_jnode_new(p, ATSI_JN_NAME, line);
    if (n == NULL)
        return NULL;
    n->name = word;
    if (with_namespace && atsi_jparse_skip_op(p, '.')) {
        n->kind = ATSI_JN_NSREF;
        n->attr = atsi_jparse_name(p);
        return n->attr != NULL ? n : NULL;
    }
    return n;
}

static struct atsi_jnode *parse_primary(struct atsi_jparser *p, bool with_namespace)
{
    struct atsi_jnode *n;
    switch (p->t->kind) {
    case ATSI_JT_NAME:
        return parse_word(p, with_namespace);
    case ATSI_JT_STRING:
        return parse_string(p);
    case ATSI_JT_INT:
    case ATSI_JT_FLOAT:
        n = constant(p, p->t->value, p->t->line);
        p->t++;
        return n;
    default:
        break;
    }
    if (atsi_jparse_at_op(p, '['))
        return parse_list(p);
    if (atsi_jparse_at_op(p, '{'))
        return parse_dict(p);
    if (!atsi_jparse_skip_op(p, '('))
        return atsi_jparse_unexpected(p, "an expression");
    n = atsi_jparse_tuple(p, true, NULL, true);
    return n != NULL && atsi_jparse_expect_op(p, ')') ? n : NULL;
}

/* ---------------------------------------------------------------- behind a value */
static bool parse_argument(struct atsi_jparser *p, struct atsi_jargs *args)
{
    const struct atsi_jstr **names;
    bool dynamic = args->star != NULL || args->star_star != NULL;
    if (!dynamic && atsi_jparse_skip_op(p, '*'))
        return (args->star = atsi_jparse_expr(p, true)) != NULL;
    if (args->star_star == NULL && atsi_jparse_skip_op(p, 'P'))
        return (args->star_star = atsi_jparse_expr(p, true)) != NULL;
    if (args->star_star == NULL && p->t->kind == ATSI_JT_NAME && p->t[1].kind == ATSI_JT_OP &&
        p->t[1].op == '=') {
        names = atsi_jr_array(p->r, args->kw.n + 1, sizeof(struct atsi_jstr *));
        if (names == NULL)
            return false;
        for (size_t i = 0; i < args->kw.n; i++)
            names[i] = args->kw_name[i];
        names[args->kw.n] = p->t->value.u.s;
        args->kw_name = names;
        p->t += 2;
        return atsi_jnodes_add(p->r, &args->kw, atsi_jparse_expr(p, true));
    }
    if (dynamic || args->kw.n > 0)
        return atsi_jparse_unexpected(p, "a named argument") != NULL;
    return atsi_jnodes_add(p->r, &args->pos, atsi_jparse_expr(p, true));
}

/* "(...)"; NULL: failed. */
static struct atsi_jargs *parse_args(struct atsi_jparser *p)
{
    struct atsi_jargs *args = atsi_jr_alloc(p->r, sizeof *args);
    bool first = true;
    if (args == NULL || !atsi_jparse_expect_op(p, '('))
        return NULL;
    while (!atsi_jparse_skip_op(p, ')')) {
        if (!first && !atsi_jparse_expect_op(p, ','))
            return NULL;
        if (!first && atsi_jparse_skip_op(p, ')'))
            break;
        if (!parse_argument(p, args))
            return NULL;
        first = false;
    }
    return args;
}

/* "[a]", "[a:b:c]" or "[a, b]" behind `of`. */
static struct atsi_jnode *parse_slice(struct atsi_jparser *p, struct atsi_jnode *of, uint32_t line)
{
    struct atsi_jnode *part[3] = {NULL, NULL, NULL}, *n;
    size_t at = 0;
    bool slice = false;
    while (!atsi_jparse_at_op(p, ']')) {
        if (atsi_jparse_skip_op(p, ':')) {
            slice = true;
            if (++at > 2)
                return atsi_jparse_unexpected(p, "]");
            continue;
        }
        if (part[at] != NULL) {
            if (atsi_jparse_at_op(p, ',')) {
                (void)atsi_jr_notsup(p->r, "a subscript with commas is not supported");
                return NULL;
            }
            return atsi_jparse_unexpected(p, "]");
        }
        part[at] = atsi_jparse_expr(p, true);
        if (part[at] == NULL)
            return NULL;
    }
    p->t++;
    if (!slice && part[0] == NULL)
        return atsi_jparse_unexpected(p, "a subscript");
    if (!slice)
        return binary(p, ATSI_JN_ITEM, 0, of, part[0], line);
    n = unary(p, ATSI_JN_SLICE, 0, of, line);
    if (n == NULL)
        return NULL;
    n->items.v = atsi_jr_array(p->r, 3, sizeof(struct atsi_jnode *));
    if (n->items.v == NULL)
        return NULL;
    memcpy(n->items.v, part, sizeof part);
    n->items.n = 3;
    return n;
}

static struct atsi_jnode *parse_dot(struct atsi_jparser *p, struct atsi_jnode *of, uint32_t line)
{
    struct atsi_jnode *n;
    if (p->t->kind == ATSI_JT_INT) {
        n = constant(p, p->t->value, line);
        p->t++;
        return binary(p, ATSI_JN_ITEM, 0, of, n, line);
    }
    n = unary(p, ATSI_JN_ATTR, 0, of, line);
    if (n == NULL)
        return NULL;
    n->name = atsi_jparse_name(p);
    return n->name != NULL ? n : NULL;
}

static struct atsi_jnode *parse_call(struct atsi_jparser *p, struct atsi_jnode *of)
{
    struct atsi_jnode *n = unary(p, ATSI_JN_CALL, 0, of, p->t->line);
    if (n == NULL)
        return NULL;
    n->args = parse_args(p);
    return n->args != NULL ? n : NULL;
}

static struct atsi_jnode *parse_postfix(struct atsi_jparser *p, struct atsi_jnode *n)
{
    while (n != NULL) {
        uint32_t line = p->t->line;
        if (atsi_jparse_skip_op(p, '.'))
            n = parse_dot(p, n, line);
        else if (atsi_jparse_skip_op(p, '['))
            n = parse_slice(p, n, line);
        else if (atsi_jparse_at_op(p, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* The name of a filter or test with its arguments. */
static struct atsi_jnode *named(struct atsi_jparser *p, enum atsi_jkind kind, struct atsi_jnode *of)
{
    struct atsi_jnode *n = unary(p, kind, 0, of, p->t->line);
    if (n == NULL || (n->name = atsi_jparse_name(p)) == NULL)
        return NULL;
    if (atsi_jparse_at_op(p, '.')) {
        (void)atsi_jr_notsup(p->r, "a filter or test with a dot in its name is not supported");
        return NULL;
    }
    if (!atsi_jparse_at_op(p, '('))
        return n;
    n->args = parse_args(p);
    return n->args != NULL ? n : NULL;
}

struct atsi_jnode *atsi_jparse_filters(struct atsi_jparser *p, struct atsi_jnode *node,
                                       bool inline_first)
{
    while (node != NULL && (inline_first || atsi_jparse_skip_op(p, '|'))) {
        inline_first = false;
        node = named(p, ATSI_JN_FILTER, node);
        if (node != NULL)
            node->builtin = atsi_jfilter_find(node->name);
    }
    return node;
}

/* A test may have one argument without brackets: `x is divisibleby 3`. */
static bool bare_argument_follows(const struct atsi_jparser *p)
{
    switch (p->t->kind) {
    case ATSI_JT_STRING:
    case ATSI_JT_INT:
    case ATSI_JT_FLOAT:
        return true;
    case ATSI_JT_NAME:
        return !atsi_jparse_at_name(p, "else") && !atsi_jparse_at_name(p, "or") &&
               !atsi_jparse_at_name(p, "and");
    default:
        return at_one_of(p, "[{");
    }
}

static struct atsi_jnode *parse_test(struct atsi_jparser *p, struct atsi_jnode *of)
{
    uint32_t line = p->t->line;
    bool negated = atsi_jparse_skip_name(p, "not");
    struct atsi_jnode *n = named(p, ATSI_JN_TEST, of);
    if (n == NULL)
        return NULL;
    n->builtin = atsi_jtest_find(n->name);
    if (n->args == NULL && bare_argument_follows(p)) {
        if (atsi_jparse_at_name(p, "is"))
            return atsi_jparse_unexpected(p, "no second test");
        n->args = atsi_jr_alloc(p->r, sizeof *n->args);
        if (n->args == NULL ||
            !atsi_jnodes_add(p->r, &n->args->pos, parse_postfix(p, parse_primary(p, false))))
            return NULL;
    }
    return negated ? unary(p, ATSI_JN_NOT, 0, n, line) : n;
}

static struct atsi_jnode *parse_filter_expr(struct atsi_jparser *p, struct atsi_jnode *n)
{
    while (n != NULL) {
        if (atsi_jparse_at_op(p, '|'))
            n = atsi_jparse_filters(p, n, false);
        else if (atsi_jparse_skip_name(p, "is"))
            n = parse_test(p, n);
        else if (atsi_jparse_at_op(p, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static struct atsi_jnode *parse_unary(struct atsi_jparser *p, bool with_filter)
{
    struct atsi_jnode *n = NULL;
    if (!atsi_jr_enter(p->r)) {
        p->r->depth--;
        return NULL;
    }
    if (at_one_of(p, "+-")) {
        const struct atsi_jtoken *sign = p->t++;
        n = unary(p, ATSI_JN_SIGN, sign->op, parse_unary(p, false), sign->line);
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    p->r->depth--;
    return with_filter ? parse_filter_expr(p, n) : n;
}

/* ---------------------------------------------------------------- targets */
static struct atsi_jnode *check_target(struct atsi_jparser *p, struct atsi_jnode *n)
{
    bool good = n != NULL &&
                (n->kind == ATSI_JN_NAME || n->kind == ATSI_JN_NSREF || n->kind == ATSI_JN_TUPLE);
    if (n == NULL)
        return NULL;
    if (n->kind == ATSI_JN_TUPLE)
        for (size_t i = 0; i < n->items.n; i++)
            if (check_target(p, n->items.v[i]) == NULL)
                return NULL;
    if (!good) {
        p->r->line = n->line;
        (void)atsi_jr_error(p->r, "this cannot be assigned to");
        return NULL;
    }
    return n;
}

struct atsi_jnode *atsi_jparse_target(struct atsi_jparser *p, bool with_namespace, const char *stop)
{
    struct atsi_jnodes items = {.n = 0};
    struct atsi_jnode *n = NULL;
    uint32_t line = p->t->line;
    bool comma = false;
    while (p->t->kind != ATSI_JT_BLOCK_END && !atsi_jparse_at_op(p, ')') &&
           !(stop != NULL && atsi_jparse_at_name(p, stop))) {
        if (!atsi_jnodes_add(p->r, &items, parse_primary(p, with_namespace)))
            return NULL;
        if (!atsi_jparse_skip_op(p, ','))
            break;
        comma = true;
    }
    if (items.n == 0)
        return atsi_jparse_unexpected(p, "a variable");
    if (!comma)
        return check_target(p, items.v[0]);
    n = atsi_jnode_new(p, ATSI_JN_TUPLE, line);
    if (n == NULL)
        return NULL;
    n->items = items;
    return check_target(p, n);
}
