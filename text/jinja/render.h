/* SPDX-License-Identifier: Apache-2.0
 * The state of one render: memory, output, limits, and the failure that ended it. */
#ifndef ATSI_TEXT_JINJA_RENDER_H
#define ATSI_TEXT_JINJA_RENDER_H

#include <time.h>

#include "atsinfer/status.h"
#include "text/buf.h"
#include "text/jinja/arena.h"
#include "text/jinja/value.h"

/* What a template from a stranger may take. */
enum {
    ATSI_JMAX_STEPS = 10 * 1000 * 1000, /* nodes run, items and 64-byte stretches handled */
    ATSI_JMAX_DEPTH = 1200,             /* nested evaluations; macro calls count about 6 */
    ATSI_JMAX_OUTPUT = 64 << 20,        /* bytes, text that is being captured included */
    ATSI_JMAX_MEMORY = 256 << 20,       /* bytes of values */
    ATSI_JMAX_RANGE = 100000            /* items of range(), as in the sandbox of Jinja2 */
};

struct atsi_jact; /* the variables of a running macro, see interp.h */

struct atsi_jr {
    struct atsi_arena arena;
    struct atsi_bytes out; /* text so far, behind it what blocks capture at the moment */
    uint64_t steps;
    uint32_t depth;
    uint32_t line; /* of the node at work */
    struct tm now;
    const struct atsi_jdict *context; /* variables given and functions of ours */
    struct atsi_jact *act;
    struct atsi_jv captured; /* what `{% filter %}` and `{% set | filter %}` work on */

    int status;                     /* of the failure, or ATSI_OK */
    const struct atsi_jstr *raised; /* message of raise_exception() */
    struct atsi_err err;
};

/* Notes the failure (the first one stays) with its line and returns a FAIL value. */
struct atsi_jv atsi_jr_fail(struct atsi_jr *r, int status, const char *fmt, ...) ATSI_PRINTF(3, 4);
/* What Jinja2 fails on too. */
#define atsi_jr_error(r, ...) atsi_jr_fail(r, ATSI_EFORMAT, __VA_ARGS__)
/* What is not supported. */
#define atsi_jr_notsup(r, ...) atsi_jr_fail(r, ATSI_ENOTSUP, __VA_ARGS__)
/* The failure of an allocation: memory or the limit. */
struct atsi_jv atsi_jr_nomem(struct atsi_jr *r);

/* Counts `n` steps; false (and a failure) at the limit. */
bool atsi_jr_step(struct atsi_jr *r, uint64_t n);
/* Counts the handling of `bytes` of text. */
static inline bool atsi_jr_work(struct atsi_jr *r, size_t bytes)
{
    return atsi_jr_step(r, 1 + bytes / 64);
}
/* One level down; false (and a failure) at the limit.  Up again with r->depth--, always. */
bool atsi_jr_enter(struct atsi_jr *r);

/* From the arena, with the failure noted. */
void *atsi_jr_alloc(struct atsi_jr *r, size_t n);
void *atsi_jr_array(struct atsi_jr *r, size_t n, size_t size);
/* Appends to the output. */
bool atsi_jr_print(struct atsi_jr *r, const char *p, size_t n);

#endif
