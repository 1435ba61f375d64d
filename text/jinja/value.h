/* SPDX-License-Identifier: Apache-2.0
 * Values of a template: small, passed by value, with everything else in an arena.
 *
 * Nothing a value points to changes after it was made, but namespaces and iterators: that is the
 * immutable sandbox, and it lets values share their parts. */
#ifndef ATSI_TEXT_JINJA_VALUE_H
#define ATSI_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum atsi_jtype {
    ATSI_J_FAIL,    /* the render has failed; its state says why */
    ATSI_J_MISSING, /* no value: a variable not set, an argument not given */
    ATSI_J_UNDEF,
    ATSI_J_NONE,
    ATSI_J_BOOL,
    ATSI_J_INT,
    ATSI_J_FLOAT,
    ATSI_J_STR,
    ATSI_J_LIST,
    ATSI_J_TUPLE,
    ATSI_J_DICT,
    ATSI_J_RANGE,
    ATSI_J_VIEW, /* dict.keys(), .values(), .items() */
    ATSI_J_GEN,  /* an iterator: gives each item once */
    ATSI_J_NS,   /* namespace(...) */
    ATSI_J_LOOP, /* `loop` of a for */
    ATSI_J_MACRO,
    ATSI_J_FUNC, /* a function of ours */
    ATSI_J_BOUND /* a method of ours with its object */
};

/* Unicode text in valid UTF-8. */
struct atsi_jstr {
    const char *p;
    size_t n;    /* bytes */
    size_t n_cp; /* code points */
};

struct atsi_jlist;
struct atsi_jdict;
struct atsi_jrange;
struct atsi_jview;
struct atsi_jgen;
struct atsi_jloop;
struct atsi_jmacro;
struct atsi_jbuiltin;
struct atsi_jbound;

struct atsi_jv {
    uint8_t type; /* enum atsi_jtype */
    uint8_t
        flag; /* BOOL: the value.  STR: marked safe.  TUPLE: made by groupby.  UNDEF: see below */
    union {
        int64_t i;
        double f;
        const struct atsi_jstr *s; /* UNDEF: its name, or NULL */
        const struct atsi_jlist *list;
        const struct atsi_jdict *dict;
        const struct atsi_jrange *range;
        const struct atsi_jview *view;
        struct atsi_jgen *gen;
        struct atsi_jdict *ns;
        struct atsi_jloop *loop;
        const struct atsi_jmacro *macro;
        const struct atsi_jbuiltin *func;
        const struct atsi_jbound *bound;
    } u;
};

/* Why something is undefined (flag): 0..31 is the enum atsi_jtype of what has no such member. */
enum {
    ATSI_JUNDEF_NAME = 32, /* no variable of this name */
    ATSI_JUNDEF_UNSAFE,    /* a member that templates may not touch */
    ATSI_JUNDEF_HINT       /* the name is a whole sentence */
};

struct atsi_jlist {
    size_t n;
    struct atsi_jv *v;
};

struct atsi_jentry {
    struct atsi_jv key, value;
    uint64_t hash;
};

/* Keeps the order of insertion.  Small ones are searched, others indexed. */
struct atsi_jdict {
    size_t n, cap;
    struct atsi_jentry *e;
    uint32_t *index; /* 1 + position in e, 0: free; NULL while small */
    size_t n_index;  /* a power of two */
};

struct atsi_jrange {
    int64_t start, stop, step;
    size_t n;
};

struct atsi_jview {
    const struct atsi_jdict *dict;
    char kind; /* 'k', 'v' or 'i' */
};

static inline struct atsi_jv atsi_jv_of(enum atsi_jtype type)
{
    struct atsi_jv v = {.type = (uint8_t)type, .u = {.i = 0}};
    return v;
}

static inline struct atsi_jv atsi_jv_fail(void)
{
    return atsi_jv_of(ATSI_J_FAIL);
}

static inline struct atsi_jv atsi_jv_none(void)
{
    return atsi_jv_of(ATSI_J_NONE);
}

static inline struct atsi_jv atsi_jv_bool(bool b)
{
    struct atsi_jv v = atsi_jv_of(ATSI_J_BOOL);
    v.flag = b;
    return v;
}

static inline struct atsi_jv atsi_jv_int(int64_t i)
{
    struct atsi_jv v = atsi_jv_of(ATSI_J_INT);
    v.u.i = i;
    return v;
}

static inline struct atsi_jv atsi_jv_float(double f)
{
    struct atsi_jv v = atsi_jv_of(ATSI_J_FLOAT);
    v.u.f = f;
    return v;
}

static inline struct atsi_jv atsi_jv_str(const struct atsi_jstr *s)
{
    struct atsi_jv v = atsi_jv_of(s == NULL ? ATSI_J_FAIL : ATSI_J_STR);
    v.u.s = s;
    return v;
}

static inline struct atsi_jv atsi_jv_list(const struct atsi_jlist *l)
{
    struct atsi_jv v = atsi_jv_of(l == NULL ? ATSI_J_FAIL : ATSI_J_LIST);
    v.u.list = l;
    return v;
}

static inline struct atsi_jv atsi_jv_tuple(const struct atsi_jlist *l)
{
    struct atsi_jv v = atsi_jv_list(l);
    if (l != NULL)
        v.type = ATSI_J_TUPLE;
    return v;
}

static inline struct atsi_jv atsi_jv_dict(const struct atsi_jdict *d)
{
    struct atsi_jv v = atsi_jv_of(d == NULL ? ATSI_J_FAIL : ATSI_J_DICT);
    v.u.dict = d;
    return v;
}

static inline struct atsi_jv atsi_jv_undef(const struct atsi_jstr *name, unsigned why)
{
    struct atsi_jv v = atsi_jv_of(ATSI_J_UNDEF);
    v.u.s = name;
    v.flag = (uint8_t)why;
    return v;
}

/* True or false of the integer 0/1 that Python's bool is, too. */
static inline bool atsi_jv_is_int(struct atsi_jv v)
{
    return v.type == ATSI_J_INT || v.type == ATSI_J_BOOL;
}

static inline int64_t atsi_jv_as_int(struct atsi_jv v)
{
    return v.type == ATSI_J_BOOL ? v.flag : v.u.i;
}

static inline bool atsi_jv_is_number(struct atsi_jv v)
{
    return atsi_jv_is_int(v) || v.type == ATSI_J_FLOAT;
}

static inline double atsi_jv_as_double(struct atsi_jv v)
{
    return v.type == ATSI_J_FLOAT ? v.u.f : (double)atsi_jv_as_int(v);
}

static inline bool atsi_jv_is_given(struct atsi_jv v)
{
    return v.type != ATSI_J_MISSING;
}

/* Python's name of the type, for messages. */
const char *atsi_jv_type_name(struct atsi_jv v);

#endif
