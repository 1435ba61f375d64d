/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures and limits of a render.
 */
#include "text/jinja/render.h"

#include <stdarg.h>

struct atsi_jv atsi_jr_fail(struct atsi_jr *r, int status, const char *fmt, ...)
{
    va_list ap;
    int at;
    if (r->status != ATSI_OK)
        return atsi_jv_fail();
    r->status = status;
    at = snprintf(r->err.msg, sizeof r->err.msg, "line %u: ", (unsigned)r->line);
    va_start(ap, fmt);
    (void)vsnprintf(r->err.msg + at, sizeof r->err.msg - (size_t)at, fmt, ap);
    va_end(ap);
    return atsi_jv_fail();
}

struct atsi_jv atsi_jr_nomem(struct atsi_jr *r)
{
    if (r->arena.full)
        return atsi_jr_error(r, "the template takes more than %d MiB of memory",
                             ATSI_JMAX_MEMORY >> 20);
    return atsi_jr_fail(r, ATSI_ENOMEM, "out of memory");
}

bool atsi_jr_step(struct atsi_jr *r, uint64_t n)
{
    r->steps += n;
    if (r->steps <= ATSI_JMAX_STEPS)
        return true;
    (void)atsi_jr_error(r, "the template takes more than %d steps", ATSI_JMAX_STEPS);
    return false;
}

bool atsi_jr_enter(struct atsi_jr *r)
{
    if (++r->depth <= ATSI_JMAX_DEPTH)
        return true;
    (void)atsi_jr_error(r, "nested more than %d levels deep", ATSI_JMAX_DEPTH);
    return false;
}

void *atsi_jr_alloc(struct atsi_jr *r, size_t n)
{
    void *p = atsi_arena_alloc(&r->arena, n);
    if (p == NULL)
        (void)atsi_jr_nomem(r);
    return p;
}

void *atsi_jr_array(struct atsi_jr *r, size_t n, size_t size)
{
    void *p = atsi_arena_array(&r->arena, n, size);
    if (p == NULL)
        (void)atsi_jr_nomem(r);
    return p;
}

bool atsi_jr_print(struct atsi_jr *r, const char *p, size_t n)
{
    if (n > ATSI_JMAX_OUTPUT - r->out.n) {
        (void)atsi_jr_error(r, "the text is longer than %d MiB", ATSI_JMAX_OUTPUT >> 20);
        return false;
    }
    if (!atsi_jr_work(r, n))
        return false;
    if (atsi_bytes_add(&r->out, p, n))
        return true;
    (void)atsi_jr_fail(r, ATSI_ENOMEM, "out of memory");
    return false;
}
