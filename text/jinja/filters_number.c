/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters about numbers, and `default`.
 */
#include <math.h>

#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/number.h"
#include "text/jinja/ucs.h"

#define FILTER(name)                                                                               \
    static struct atsi_jv name(struct atsi_jr *r, const struct atsi_jv *a,                         \
                               const struct atsi_jcall *c)

static struct atsi_jv too_big(struct atsi_jr *r)
{
    return atsi_jr_notsup(r, "integers beyond 64 bits are not supported");
}

/* Python reads the digits of every script. */
static bool has_other_digits(struct atsi_jr *r, const struct atsi_jstr *s)
{
    for (size_t at = 0; s->n != s->n_cp && at < s->n;) {
        uint32_t cp = atsi_ucs_next(s->p, s->n, &at);
        if (cp >= 0x80 && atsi_ucs_is_decimal(cp)) {
            (void)atsi_jr_notsup(r, "a number in other digits than 0-9 is not supported");
            return true;
        }
    }
    return false;
}

/* int() of a float; `otherwise` when it is no number. */
static struct atsi_jv truncated(struct atsi_jr *r, double f, struct atsi_jv otherwise)
{
    if (isnan(f) || isinf(f))
        return otherwise;
    if (!(fabs(f) < 9.2e18))
        return too_big(r);
    return atsi_jv_int((int64_t)f);
}

static struct atsi_jv int_of_text(struct atsi_jr *r, const struct atsi_jstr *s, int64_t base,
                                  struct atsi_jv otherwise)
{
    int64_t i;
    double f;
    int good = 0;
    if (has_other_digits(r, s) || !atsi_jr_work(r, s->n))
        return atsi_jv_fail();
    if (base == 0 || (base >= 2 && base <= 36))
        good = atsi_jint_parse(s->p, s->n, (int)base, &i);
    if (good != 0)
        return good > 0 ? atsi_jv_int(i) : too_big(r);
    return atsi_jfloat_from_text(s->p, s->n, &f) ? truncated(r, f, otherwise) : otherwise;
}

FILTER(do_int)
{
    struct atsi_jv otherwise = atsi_jv_is_given(a[0]) ? a[0] : atsi_jv_int(0);
    int64_t base = 10;
    if (!atsi_jarg_int(r, a[1], "the base of int", &base))
        return atsi_jv_fail();
    switch (c->self.type) {
    case ATSI_J_STR:
        return int_of_text(r, c->self.u.s, base, otherwise);
    case ATSI_J_BOOL:
    case ATSI_J_INT:
        return atsi_jv_int(atsi_jv_as_int(c->self));
    case ATSI_J_FLOAT:
        if (isinf(c->self.u.f))
            return atsi_jr_error(r, "cannot convert float infinity to integer");
        return truncated(r, c->self.u.f, otherwise);
    case ATSI_J_UNDEF:
        return atsi_jv_undefined_error(r, c->self);
    default:
        return otherwise;
    }
}

FILTER(do_float)
{
    struct atsi_jv otherwise = atsi_jv_is_given(a[0]) ? a[0] : atsi_jv_float(0);
    double f;
    if (atsi_jv_is_number(c->self))
        return atsi_jv_float(atsi_jv_as_double(c->self));
    if (c->self.type == ATSI_J_UNDEF)
        return atsi_jv_undefined_error(r, c->self);
    if (c->self.type != ATSI_J_STR)
        return otherwise;
    if (has_other_digits(r, c->self.u.s))
        return atsi_jv_fail();
    return atsi_jfloat_from_text(c->self.u.s->p, c->self.u.s->n, &f) ? atsi_jv_float(f) : otherwise;
}

FILTER(do_abs)
{
    (void)a;
    if (c->self.type == ATSI_J_FLOAT)
        return atsi_jv_float(fabs(c->self.u.f));
    if (!atsi_jv_is_int(c->self))
        return atsi_jr_error(r, "bad operand type for abs(): '%s'", atsi_jv_type_name(c->self));
    return atsi_jv_negate(r, c->self, atsi_jv_as_int(c->self) < 0);
}

/* ceil or floor of v * 10^digits, over 10^digits. */
static struct atsi_jv directed(struct atsi_jr *r, struct atsi_jv v, int64_t digits, bool up)
{
    double unit, f;
    if (v.type == ATSI_J_UNDEF)
        return atsi_jv_undefined_error(r, v);
    if (!atsi_jv_is_number(v))
        return atsi_jr_error(r, "round needs a number, not %s", atsi_jv_type_name(v));
    if (digits > 22 || digits < -300)
        return atsi_jr_notsup(r, "round: more than 22 digits are not supported");
    unit = pow(10, (double)digits);
    f = atsi_jv_as_double(v) * unit;
    if (!isfinite(f))
        return atsi_jr_error(r, "round: cannot convert the float to an integer");
    if (atsi_jv_is_int(v) && fabs(f) > 9007199254740992.0)
        return too_big(r);
    return atsi_jv_float((up ? ceil(f) : floor(f)) / unit + 0.0);
}

FILTER(do_round)
{
    int64_t digits = 0;
    const struct atsi_jstr *method = NULL;
    if (!atsi_jarg_int(r, a[0], "the precision of round", &digits) ||
        !atsi_jarg_str(r, a[1], "the method of round", &method))
        return atsi_jv_fail();
    if (method == NULL || atsi_jstr_is(method, "common"))
        return atsi_jv_round(r, c->self, digits);
    if (!atsi_jstr_is(method, "ceil") && !atsi_jstr_is(method, "floor"))
        return atsi_jr_error(r, "round: the method must be common, ceil or floor");
    return directed(r, c->self, digits, method->p[0] == 'c');
}

FILTER(do_default)
{
    bool also_false = atsi_jarg_flag(a[1], false);
    if (c->self.type != ATSI_J_UNDEF && (!also_false || atsi_jv_truth(c->self)))
        return c->self;
    return atsi_jv_is_given(a[0]) ? a[0] : atsi_jv_text(r, "", 0);
}

const struct atsi_jbuiltin atsi_jfilters_number[] = {
    {"default", do_default, "default_value boolean", 0, false, 0},
    {"d", do_default, "default_value boolean", 0, false, 0},
    {"int", do_int, "default base", 0, false, 0},
    {"float", do_float, "default", 0, false, 0},
    {"abs", do_abs, "", 0, true, 0},
    {"round", do_round, "precision method", 0, false, 0},
    {.name = NULL},
};
