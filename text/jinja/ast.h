/* SPDX-License-Identifier: Apache-2.0
 * The tree of a template.  It lives in the arena of the template and does not change after
 * parsing and resolving. */
#ifndef ATSI_TEXT_JINJA_AST_H
#define ATSI_TEXT_JINJA_AST_H

#include "text/jinja/value.h"

enum atsi_jkind {
    /* expressions */
    ATSI_JN_CONST,    /* value */
    ATSI_JN_NAME,     /* name -> var */
    ATSI_JN_NSREF,    /* name -> var, attr: target `ns.attr` */
    ATSI_JN_LIST,     /* items */
    ATSI_JN_TUPLE,    /* items; also as a target */
    ATSI_JN_DICT,     /* items: key, value, key, value ... */
    ATSI_JN_COND,     /* a if b else c (c may be NULL) */
    ATSI_JN_OR,       /* a, b */
    ATSI_JN_AND,      /* a, b */
    ATSI_JN_NOT,      /* a */
    ATSI_JN_COMPARE,  /* a, items: OPERANDs */
    ATSI_JN_OPERAND,  /* op a; op as of tokens, or i (in), n (not in) */
    ATSI_JN_BINARY,   /* a op b */
    ATSI_JN_CONCAT,   /* items joined by ~ */
    ATSI_JN_SIGN,     /* op a: - or + */
    ATSI_JN_ATTR,     /* a.name */
    ATSI_JN_ITEM,     /* a[b] */
    ATSI_JN_SLICE,    /* a[items[0]:items[1]:items[2]], NULL where left out */
    ATSI_JN_CALL,     /* a(args) */
    ATSI_JN_FILTER,   /* a|name(args) -> builtin; a is CAPTURED in blocks */
    ATSI_JN_TEST,     /* a is name(args) -> builtin */
    ATSI_JN_CAPTURED, /* what a filter block works on */
    /* statements */
    ATSI_JN_DATA,        /* value */
    ATSI_JN_PRINT,       /* items */
    ATSI_JN_IF,          /* a, body; items: ELIFs as IFs; orelse */
    ATSI_JN_FOR,         /* for a in b if c; body, orelse; flag: recursive; scopes */
    ATSI_JN_SET,         /* a = b */
    ATSI_JN_SETBLOCK,    /* a, filter b or NULL, body; scope */
    ATSI_JN_MACRO,       /* macro */
    ATSI_JN_CALLBLOCK,   /* a: the CALL; macro: the block */
    ATSI_JN_FILTERBLOCK, /* b: the filter, body; scope */
    ATSI_JN_WITH,        /* items: targets, values; body; scope */
    ATSI_JN_BREAK,
    ATSI_JN_CONTINUE
};

struct atsi_jnode;

struct atsi_jnodes {
    struct atsi_jnode **v;
    size_t n, cap;
};

/* Arguments as written. */
struct atsi_jargs {
    struct atsi_jnodes pos, kw; /* kw[i] is named kw_name[i] */
    const struct atsi_jstr **kw_name;
    struct atsi_jnode *star, *star_star; /* *x and **x, or NULL */
};

/* A variable of a running function: `up` functions out, place `slot` there. */
struct atsi_jvar {
    uint32_t up, slot;
};

/* What a scope does with a variable when it is entered. */
struct atsi_jload {
    uint32_t slot; /* in the function that runs */
    char kind;     /* a: copy of `from`; r: looked up by name; u: not set */
    struct atsi_jvar from;
    const struct atsi_jstr *name;
};

struct atsi_jscope {
    size_t n;
    struct atsi_jload *load;
    size_t n_own;
    uint32_t *own; /* slots to clear when it is left */
};

/* A macro or the body of a call block: a function with variables of its own. */
struct atsi_jmacro_def {
    const struct atsi_jstr *name; /* NULL: a call block */
    const struct atsi_jstr **param;
    size_t n_params;
    struct atsi_jnodes defaults; /* of the last parameters */
    struct atsi_jnodes body;
    struct atsi_jscope scope;
    uint32_t n_slots;
    uint32_t *param_slot;
    bool takes_caller, takes_kwargs, takes_varargs; /* the body uses those names */
    bool explicit_caller;                           /* a parameter has that name */
    uint32_t caller_slot, kwargs_slot, varargs_slot;
};

struct atsi_jnode {
    uint8_t kind;
    char op;
    bool flag;
    uint32_t line;
    struct atsi_jnode *a, *b, *c;
    struct atsi_jnodes items, body, orelse;
    struct atsi_jv value;
    const struct atsi_jstr *name, *attr;
    struct atsi_jvar var;
    struct atsi_jargs *args;
    const struct atsi_jbuiltin *builtin; /* NULL: not known, an error when it is run */
    struct atsi_jmacro_def *macro;
    /* FOR: */
    bool has_loop; /* `loop` is used */
    uint32_t loop_slot;
    uint32_t n_slots;                           /* of a recursive one, which is a function */
    struct atsi_jscope scope, test, else_scope; /* scope: the body, also of blocks */
    struct atsi_jnode *test_target; /* the target again, for the variables of the test */
};

#endif
