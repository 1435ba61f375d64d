/* SPDX-License-Identifier: Apache-2.0
 *
 * Statements, and what both halves of the parser share.
 */
#include "text/jinja/parser.h"
#include "text/jinja/str.h"

static bool parse_body(struct atsi_jparser *p, const char *const *ends, struct atsi_jnodes *out);

/* ---------------------------------------------------------------- shared */
struct atsi_jnode *atsi_jnode_new(struct atsi_jparser *p, enum atsi_jkind kind, uint32_t line)
{
    struct atsi_jnode *n = atsi_jr_alloc(p->r, sizeof *n);
    if (n == NULL)
        return NULL;
    n->kind = (uint8_t)kind;
    n->line = line;
    return n;
}

bool atsi_jnodes_add(struct atsi_jr *r, struct atsi_jnodes *list, struct atsi_jnode *node)
{
    if (node == NULL)
        return false;
    if (list->n == list->cap) {
        size_t cap = list->cap == 0 ? 2 : 2 * list->cap;
        struct atsi_jnode **v = atsi_jr_array(r, cap, sizeof(struct atsi_jnode *));
        if (v == NULL)
            return false;
        if (list->n > 0)
            memcpy(v, list->v, list->n * sizeof(struct atsi_jnode *));
        list->v = v;
        list->cap = cap;
    }
    list->v[list->n++] = node;
    return true;
}

/* The token in words. */
static const char *token_text(const struct atsi_jtoken *t, char text[64])
{
    static const char *const kinds[] = {
        [ATSI_JT_END] = "the end of the template",
        [ATSI_JT_DATA] = "text",
        [ATSI_JT_BLOCK_BEGIN] = "'{%'",
        [ATSI_JT_BLOCK_END] = "'%}'",
        [ATSI_JT_VAR_BEGIN] = "'{{'",
        [ATSI_JT_VAR_END] = "'}}'",
        [ATSI_JT_STRING] = "a string",
        [ATSI_JT_INT] = "a number",
        [ATSI_JT_FLOAT] = "a number",
    };
    static const char *const doubles[] = {"E==", "N!=", "L<=", "G>=", "F//", "P**"};
    if (t->kind == ATSI_JT_NAME) {
        const struct atsi_jstr *s = t->value.u.s;
        (void)snprintf(text, 64, "'%.*s'", (int)(s->n < 40 ? s->n : 40), s->p);
        return text;
    }
    if (t->kind != ATSI_JT_OP)
        return kinds[t->kind];
    (void)snprintf(text, 64, "'%c'", t->op);
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++)
        if (t->op == doubles[i][0])
            (void)snprintf(text, 64, "'%s'", doubles[i] + 1);
    return text;
}

struct atsi_jnode *atsi_jparse_unexpected(struct atsi_jparser *p, const char *expected)
{
    char text[64];
    p->r->line = p->t->line;
    (void)atsi_jr_error(p->r, "unexpected %s, expected %s", token_text(p->t, text), expected);
    return NULL;
}

const struct atsi_jtoken *atsi_jparse_next(struct atsi_jparser *p)
{
    return p->t++;
}

bool atsi_jparse_at_op(const struct atsi_jparser *p, char op)
{
    return p->t->kind == ATSI_JT_OP && p->t->op == op;
}

bool atsi_jparse_at_name(const struct atsi_jparser *p, const char *name)
{
    return p->t->kind == ATSI_JT_NAME && atsi_jstr_is(p->t->value.u.s, name);
}

bool atsi_jparse_skip_op(struct atsi_jparser *p, char op)
{
    bool there = atsi_jparse_at_op(p, op);
    p->t += there;
    return there;
}

bool atsi_jparse_skip_name(struct atsi_jparser *p, const char *name)
{
    bool there = atsi_jparse_at_name(p, name);
    p->t += there;
    return there;
}

bool atsi_jparse_expect_op(struct atsi_jparser *p, char op)
{
    char text[4] = {'\'', op, '\'', '\0'};
    return atsi_jparse_skip_op(p, op) || atsi_jparse_unexpected(p, text) != NULL;
}

const struct atsi_jstr *atsi_jparse_name(struct atsi_jparser *p)
{
    if (p->t->kind == ATSI_JT_NAME)
        return atsi_jparse_next(p)->value.u.s;
    (void)atsi_jparse_unexpected(p, "a name");
    return NULL;
}

static bool expect_name(struct atsi_jparser *p, const char *name)
{
    char text[32];
    (void)snprintf(text, sizeof text, "'%s'", name);
    return atsi_jparse_skip_name(p, name) || atsi_jparse_unexpected(p, text) != NULL;
}

static bool expect_block_end(struct atsi_jparser *p)
{
    if (p->t->kind != ATSI_JT_BLOCK_END)
        return atsi_jparse_unexpected(p, "'%}'") != NULL;
    p->t++;
    return true;
}

/* ---------------------------------------------------------------- statements with bodies */
/* "... %} body {% END": stops behind END. */
static bool parse_until(struct atsi_jparser *p, const char *end, struct atsi_jnodes *out)
{
    const char *const ends[] = {end, NULL};
    if (!parse_body(p, ends, out))
        return false;
    p->t++;
    return true;
}

/* The body of what becomes a function: a loop around it cannot be left from within. */
static bool parse_function_body(struct atsi_jparser *p, const char *end, struct atsi_jnodes *out)
{
    uint32_t n_loops = p->n_loops;
    bool ok;
    p->n_loops = 0;
    ok = parse_until(p, end, out);
    p->n_loops = n_loops;
    return ok;
}

static struct atsi_jnode *parse_if(struct atsi_jparser *p, struct atsi_jnode *first)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct atsi_jnode *n = first;
    for (;;) {
        n->a = atsi_jparse_tuple(p, false, NULL, false);
        if (n->a == NULL || !parse_body(p, ends, &n->body))
            return NULL;
        if (!atsi_jparse_skip_name(p, "elif"))
            break;
        n = atsi_jnode_new(p, ATSI_JN_IF, p->t->line);
        if (n == NULL || !atsi_jnodes_add(p->r, &first->items, n))
            return NULL;
    }
    if (atsi_jparse_skip_name(p, "endif"))
        return first;
    p->t++; /* else */
    return parse_until(p, "endif", &first->orelse) ? first : NULL;
}

static struct atsi_jnode *parse_for(struct atsi_jparser *p, struct atsi_jnode *n)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    bool ok;
    n->a = atsi_jparse_target(p, false, "in");
    if (n->a == NULL || !expect_name(p, "in"))
        return NULL;
    n->b = atsi_jparse_tuple(p, false, "recursive", false);
    if (n->b == NULL)
        return NULL;
    if (atsi_jparse_skip_name(p, "if") && (n->c = atsi_jparse_expr(p, true)) == NULL)
        return NULL;
    n->flag = atsi_jparse_skip_name(p, "recursive");
    p->n_loops++;
    ok = parse_body(p, ends, &n->body);
    p->n_loops--;
    if (!ok)
        return NULL;
    if (atsi_jparse_skip_name(p, "endfor"))
        return n;
    p->t++; /* else */
    return parse_until(p, "endfor", &n->orelse) ? n : NULL;
}

static struct atsi_jnode *captured(struct atsi_jparser *p)
{
    return atsi_jnode_new(p, ATSI_JN_CAPTURED, p->t->line);
}

static struct atsi_jnode *parse_set(struct atsi_jparser *p, struct atsi_jnode *n)
{
    n->a = atsi_jparse_target(p, true, NULL);
    if (n->a == NULL)
        return NULL;
    if (atsi_jparse_skip_op(p, '=')) {
        n->b = atsi_jparse_tuple(p, true, NULL, false);
        return n->b != NULL ? n : NULL;
    }
    n->kind = ATSI_JN_SETBLOCK;
    if (atsi_jparse_at_op(p, '|')) {
        n->b = atsi_jparse_filters(p, captured(p), false);
        if (n->b == NULL)
            return NULL;
    }
    return parse_until(p, "endset", &n->body) ? n : NULL;
}

static struct atsi_jnode *parse_filter_block(struct atsi_jparser *p, struct atsi_jnode *n)
{
    n->b = atsi_jparse_filters(p, captured(p), true);
    return n->b != NULL && parse_until(p, "endfilter", &n->body) ? n : NULL;
}

static struct atsi_jnode *parse_with(struct atsi_jparser *p, struct atsi_jnode *n)
{
    while (p->t->kind != ATSI_JT_BLOCK_END) {
        if (n->items.n > 0 && !atsi_jparse_expect_op(p, ','))
            return NULL;
        /* A target with commas takes brackets here: a comma ends the assignment. */
        if (atsi_jparse_at_op(p, '(') || p->t->kind != ATSI_JT_NAME || p->t[1].kind != ATSI_JT_OP ||
            p->t[1].op != '=') {
            (void)atsi_jparse_unexpected(p, "name = value");
            return NULL;
        }
        if (!atsi_jnodes_add(p->r, &n->items, atsi_jparse_target(p, false, NULL)) ||
            !atsi_jparse_expect_op(p, '=') ||
            !atsi_jnodes_add(p->r, &n->items, atsi_jparse_expr(p, true)))
            return NULL;
    }
    return parse_until(p, "endwith", &n->body) ? n : NULL;
}

/* ---------------------------------------------------------------- macros */
static bool add_param(struct atsi_jparser *p, struct atsi_jmacro_def *m)
{
    const struct atsi_jstr **param =
        atsi_jr_array(p->r, m->n_params + 1, sizeof(struct atsi_jstr *));
    const struct atsi_jstr *name = atsi_jparse_name(p);
    if (param == NULL || name == NULL)
        return false;
    for (size_t i = 0; i < m->n_params; i++) {
        param[i] = m->param[i];
        if (atsi_jstr_same(param[i], name)) {
            (void)atsi_jr_error(p->r, "two parameters of one name");
            return false;
        }
    }
    param[m->n_params++] = name;
    m->param = param;
    return true;
}

static bool parse_signature(struct atsi_jparser *p, struct atsi_jmacro_def *m)
{
    if (!atsi_jparse_expect_op(p, '('))
        return false;
    while (!atsi_jparse_skip_op(p, ')')) {
        p->r->line = p->t->line;
        if ((m->n_params > 0 && !atsi_jparse_expect_op(p, ',')) || !add_param(p, m))
            return false;
        if (atsi_jparse_skip_op(p, '=')) {
            if (!atsi_jnodes_add(p->r, &m->defaults, atsi_jparse_expr(p, true)))
                return false;
        } else if (m->defaults.n > 0) {
            return atsi_jparse_unexpected(p, "a default, as the parameter before has one") != NULL;
        }
    }
    return true;
}

static struct atsi_jnode *parse_macro(struct atsi_jparser *p, struct atsi_jnode *n)
{
    n->macro = atsi_jr_alloc(p->r, sizeof *n->macro);
    if (n->macro == NULL || (n->macro->name = atsi_jparse_name(p)) == NULL)
        return NULL;
    n->name = n->macro->name;
    return parse_signature(p, n->macro) && parse_function_body(p, "endmacro", &n->macro->body)
               ? n
               : NULL;
}

static struct atsi_jnode *parse_call_block(struct atsi_jparser *p, struct atsi_jnode *n)
{
    n->macro = atsi_jr_alloc(p->r, sizeof *n->macro);
    if (n->macro == NULL || (atsi_jparse_at_op(p, '(') && !parse_signature(p, n->macro)))
        return NULL;
    n->a = atsi_jparse_expr(p, true);
    if (n->a == NULL)
        return NULL;
    if (n->a->kind != ATSI_JN_CALL)
        return atsi_jparse_unexpected(p, "a call before it");
    return parse_function_body(p, "endcall", &n->macro->body) ? n : NULL;
}

/* {% generation %} marks what a model said.  The tag of the usual library runs its body as a call
 * block, so that nothing set there is seen outside; a == NULL says so. */
static struct atsi_jnode *parse_generation(struct atsi_jparser *p, struct atsi_jnode *n)
{
    n->macro = atsi_jr_alloc(p->r, sizeof *n->macro);
    return n->macro != NULL && parse_function_body(p, "endgeneration", &n->macro->body) ? n : NULL;
}

/* ---------------------------------------------------------------- one statement */
static struct atsi_jnode *parse_jump(struct atsi_jparser *p, struct atsi_jnode *n)
{
    if (p->n_loops > 0)
        return n;
    p->r->line = n->line;
    (void)atsi_jr_error(p->r, "%s outside of a loop",
                        n->kind == ATSI_JN_BREAK ? "break" : "continue");
    return NULL;
}

static struct atsi_jnode *parse_print(struct atsi_jparser *p, struct atsi_jnode *n)
{
    while (p->t->kind != ATSI_JT_BLOCK_END) {
        if (n->items.n > 0 && !atsi_jparse_expect_op(p, ','))
            return NULL;
        if (!atsi_jnodes_add(p->r, &n->items, atsi_jparse_expr(p, true)))
            return NULL;
    }
    return n;
}

static struct atsi_jnode *unknown_tag(struct atsi_jparser *p, const char *const *ends)
{
    static const char *const known[] = {"autoescape", "block", "extends", "from", "import",
                                        "include",    "do",    "trans",   NULL};
    const struct atsi_jstr *name = p->t->value.u.s;
    int n = (int)(name->n < 40 ? name->n : 40);
    p->r->line = p->t->line;
    for (size_t i = 0; known[i] != NULL; i++)
        if (atsi_jstr_is(name, known[i])) {
            (void)atsi_jr_notsup(p->r, "the tag '%s' is not supported", known[i]);
            return NULL;
        }
    if (ends != NULL)
        (void)atsi_jr_error(p->r, "unknown tag '%.*s', '%s' expected", n, name->p,
                            ends[1] != NULL && ends[2] != NULL ? ends[2] : ends[0]);
    else
        (void)atsi_jr_error(p->r, "unknown tag '%.*s'", n, name->p);
    return NULL;
}

static struct atsi_jnode *parse_statement(struct atsi_jparser *p, const char *const *ends)
{
    static const struct {
        const char *name;
        enum atsi_jkind kind;
        struct atsi_jnode *(*parse)(struct atsi_jparser *, struct atsi_jnode *);
    } kinds[] = {
        {"if", ATSI_JN_IF, parse_if},
        {"for", ATSI_JN_FOR, parse_for},
        {"set", ATSI_JN_SET, parse_set},
        {"macro", ATSI_JN_MACRO, parse_macro},
        {"call", ATSI_JN_CALLBLOCK, parse_call_block},
        {"filter", ATSI_JN_FILTERBLOCK, parse_filter_block},
        {"with", ATSI_JN_WITH, parse_with},
        {"print", ATSI_JN_PRINT, parse_print},
        {"generation", ATSI_JN_CALLBLOCK, parse_generation},
        {"break", ATSI_JN_BREAK, parse_jump},
        {"continue", ATSI_JN_CONTINUE, parse_jump},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct atsi_jnode *n;
        if (!atsi_jparse_at_name(p, kinds[i].name))
            continue;
        n = atsi_jnode_new(p, kinds[i].kind, atsi_jparse_next(p)->line);
        n = n != NULL ? kinds[i].parse(p, n) : NULL;
        return n != NULL && expect_block_end(p) ? n : NULL;
    }
    if (p->t->kind != ATSI_JT_NAME)
        return atsi_jparse_unexpected(p, "the name of a tag");
    return unknown_tag(p, ends);
}

static struct atsi_jnode *parse_output(struct atsi_jparser *p)
{
    struct atsi_jnode *n = atsi_jnode_new(p, ATSI_JN_PRINT, atsi_jparse_next(p)->line);
    if (n == NULL || !atsi_jnodes_add(p->r, &n->items, atsi_jparse_tuple(p, true, NULL, false)))
        return NULL;
    if (p->t->kind != ATSI_JT_VAR_END)
        return atsi_jparse_unexpected(p, "'}}'");
    p->t++;
    return n;
}

static struct atsi_jnode *parse_data(struct atsi_jparser *p)
{
    struct atsi_jnode *n = atsi_jnode_new(p, ATSI_JN_DATA, p->t->line);
    if (n != NULL)
        n->value = p->t->value;
    p->t++;
    return n;
}

static bool at_one_of(const struct atsi_jparser *p, const char *const *names)
{
    for (; names != NULL && *names != NULL; names++)
        if (p->t[1].kind == ATSI_JT_NAME && atsi_jstr_is(p->t[1].value.u.s, *names))
            return true;
    return false;
}

/* Statements up to a tag of `ends`, whose name is then at hand; to the end with NULL. */
static bool parse_list(struct atsi_jparser *p, const char *const *ends, struct atsi_jnodes *out)
{
    for (;;) {
        struct atsi_jnode *n;
        switch (p->t->kind) {
        case ATSI_JT_END:
            if (ends == NULL)
                return true;
            return atsi_jparse_unexpected(p, ends[1] != NULL && ends[2] != NULL ? ends[2]
                                                                                : ends[0]) != NULL;
        case ATSI_JT_DATA:
            n = parse_data(p);
            break;
        case ATSI_JT_VAR_BEGIN:
            n = parse_output(p);
            break;
        default:
            if (at_one_of(p, ends)) {
                p->t++;
                return true;
            }
            p->t++;
            n = parse_statement(p, ends);
        }
        if (!atsi_jnodes_add(p->r, out, n))
            return false;
    }
}

static bool parse_body(struct atsi_jparser *p, const char *const *ends, struct atsi_jnodes *out)
{
    bool ok;
    (void)atsi_jparse_skip_op(p, ':');
    if (!expect_block_end(p))
        return false;
    ok = atsi_jr_enter(p->r) && parse_list(p, ends, out);
    p->r->depth--;
    return ok;
}

bool atsi_jparse(struct atsi_jr *r, const struct atsi_jtokens *tokens, struct atsi_jnodes *out)
{
    struct atsi_jparser p = {.r = r, .t = tokens->v};
    return parse_list(&p, NULL, out);
}
