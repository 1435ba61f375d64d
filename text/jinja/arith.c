/* SPDX-License-Identifier: Apache-2.0
 *
 * Arithmetic as in Python: // and % round towards minus infinity, / gives a float, text and lists
 * can be joined and repeated.  Integers have 64 bits: a result beyond is an error, never a wrong
 * number.
 */
#include <math.h>
#include <stdlib.h>

#include "text/jinja/compare.h"
#include "text/jinja/format.h"
#include "text/jinja/number.h"

static struct atsi_jv too_big(struct atsi_jr *r)
{
    return atsi_jr_notsup(r, "integers beyond 64 bits are not supported");
}

static struct atsi_jv bad_operands(struct atsi_jr *r, char op, struct atsi_jv a, struct atsi_jv b)
{
    const char *name = op == 'F' ? "//" : op == 'P' ? "** or pow()" : NULL;
    char one[2] = {op, '\0'};
    if (a.type == ATSI_J_UNDEF || b.type == ATSI_J_UNDEF)
        return atsi_jv_undefined_error(r, a.type == ATSI_J_UNDEF ? a : b);
    if (a.type == ATSI_J_VIEW || b.type == ATSI_J_VIEW)
        return atsi_jr_notsup(r, "%s with keys(), values() or items() is not supported",
                              name != NULL ? name : one);
    return atsi_jr_error(r, "unsupported operand type(s) for %s: '%s' and '%s'",
                         name != NULL ? name : one, atsi_jv_type_name(a), atsi_jv_type_name(b));
}

/* ---------------------------------------------------------------- integers */
static struct atsi_jv int_power(struct atsi_jr *r, int64_t a, int64_t b)
{
    int64_t result = 1;
    if (b < 0) {
        if (a == 0)
            return atsi_jr_error(r, "0.0 cannot be raised to a negative power");
        return atsi_jv_float(pow((double)a, (double)b));
    }
    if (a == 0 || a == 1)
        return atsi_jv_int(b == 0 ? 1 : a);
    if (a == -1)
        return atsi_jv_int(b % 2 != 0 ? -1 : 1);
    while (b-- > 0) /* at most 63 times: |a| >= 2 */
        if (__builtin_mul_overflow(result, a, &result))
            return too_big(r);
    return atsi_jv_int(result);
}

static struct atsi_jv int_divide(struct atsi_jr *r, int64_t a, int64_t b)
{
    const int64_t exact = (int64_t)1 << 53;
    if (b == 0)
        return atsi_jr_error(r, "division by zero");
    if (a > exact || a < -exact || b > exact || b < -exact)
        return atsi_jr_notsup(r, "dividing integers beyond 2^53 is not supported");
    return atsi_jv_float((double)a / (double)b);
}

static struct atsi_jv int_floor(struct atsi_jr *r, char op, int64_t a, int64_t b)
{
    int64_t q, m;
    if (b == 0)
        return atsi_jr_error(r, "integer division or modulo by zero");
    if (b == -1) { /* INT64_MIN / -1 would trap */
        if (op == '%')
            return atsi_jv_int(0);
        return __builtin_sub_overflow((int64_t)0, a, &q) ? too_big(r) : atsi_jv_int(q);
    }
    q = a / b;
    m = a % b;
    if (m != 0 && (m < 0) != (b < 0)) {
        q--;
        m += b;
    }
    return atsi_jv_int(op == '%' ? m : q);
}

static struct atsi_jv int_arith(struct atsi_jr *r, char op, int64_t a, int64_t b)
{
    int64_t v = 0;
    bool big;
    switch (op) {
    case '+':
        big = __builtin_add_overflow(a, b, &v);
        break;
    case '-':
        big = __builtin_sub_overflow(a, b, &v);
        break;
    case '*':
        big = __builtin_mul_overflow(a, b, &v);
        break;
    case '/':
        return int_divide(r, a, b);
    case 'P':
        return int_power(r, a, b);
    default:
        return int_floor(r, op, a, b);
    }
    return big ? too_big(r) : atsi_jv_int(v);
}

/* ---------------------------------------------------------------- floats */
/* float_divmod of CPython (Objects/floatobject.c): both results at once. */
static void float_floor(double a, double b, double *floor_out, double *mod_out)
{
    double mod = fmod(a, b), div = (a - mod) / b, whole;
    if (mod != 0 && (b < 0) != (mod < 0)) {
        mod += b;
        div -= 1;
    } else if (mod == 0) {
        mod = copysign(0, b);
    }
    whole = div != 0 ? floor(div) : copysign(0, a / b);
    if (div != 0 && div - whole > 0.5)
        whole += 1;
    *floor_out = whole;
    *mod_out = mod;
}

static struct atsi_jv float_power(struct atsi_jr *r, double a, double b)
{
    double v;
    if (a == 0 && b < 0)
        return atsi_jr_error(r, "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
        return atsi_jr_notsup(r, "complex numbers are not supported");
    v = pow(a, b);
    if (isinf(v) && isfinite(a) && isfinite(b))
        return atsi_jr_error(r, "numerical result out of range");
    return atsi_jv_float(v);
}

static struct atsi_jv float_arith(struct atsi_jr *r, char op, double a, double b)
{
    double quotient, mod;
    switch (op) {
    case '+':
        return atsi_jv_float(a + b);
    case '-':
        return atsi_jv_float(a - b);
    case '*':
        return atsi_jv_float(a * b);
    case 'P':
        return float_power(r, a, b);
    default:
        break;
    }
    if (b == 0)
        return atsi_jr_error(r,
                             op == '/' ? "float division by zero" : "float floor division by zero");
    if (op == '/')
        return atsi_jv_float(a / b);
    float_floor(a, b, &quotient, &mod);
    return atsi_jv_float(op == '%' ? mod : quotient);
}

/* ---------------------------------------------------------------- text and lists */
static struct atsi_jv join_lists(struct atsi_jr *r, struct atsi_jv a, struct atsi_jv b)
{
    struct atsi_jitems items = atsi_jitems_of(r);
    for (size_t i = 0; i < a.u.list->n; i++)
        if (!atsi_jitems_add(&items, a.u.list->v[i]))
            return atsi_jv_fail();
    for (size_t i = 0; i < b.u.list->n; i++)
        if (!atsi_jitems_add(&items, b.u.list->v[i]))
            return atsi_jv_fail();
    return a.type == ATSI_J_TUPLE ? atsi_jitems_tuple(&items) : atsi_jitems_list(&items);
}

static struct atsi_jv join_text(struct atsi_jr *r, struct atsi_jv a, struct atsi_jv b)
{
    struct atsi_jv v;
    bool safe = a.flag || b.flag; /* then the other one is escaped first (MarkupSafe) */
    if (safe) {
        a = atsi_jv_escape(r, a);
        b = atsi_jv_escape(r, b);
        if (a.type == ATSI_J_FAIL || b.type == ATSI_J_FAIL)
            return atsi_jv_fail();
    }
    v = atsi_jstr_concat(r, a.u.s, b.u.s);
    if (v.type == ATSI_J_STR)
        v.flag = safe;
    return v;
}

static struct atsi_jv repeat(struct atsi_jr *r, struct atsi_jv v, int64_t times)
{
    if (times < 0)
        times = 0;
    if (v.type == ATSI_J_STR) {
        struct atsi_jbuf b = atsi_jbuf_of(r);
        struct atsi_jv text;
        atsi_jbuf_fill(&b, v.u.s->p, v.u.s->n, (size_t)times);
        text = atsi_jbuf_take(&b);
        if (text.type == ATSI_J_STR)
            text.flag = v.flag;
        return text;
    } else {
        struct atsi_jitems items = atsi_jitems_of(r);
        for (int64_t i = 0; v.u.list->n > 0 && i < times; i++)
            for (size_t k = 0; k < v.u.list->n; k++)
                if (!atsi_jitems_add(&items, v.u.list->v[k]))
                    return atsi_jv_fail();
        return v.type == ATSI_J_TUPLE ? atsi_jitems_tuple(&items) : atsi_jitems_list(&items);
    }
}

static bool can_repeat(struct atsi_jv v)
{
    return v.type == ATSI_J_STR || v.type == ATSI_J_LIST || v.type == ATSI_J_TUPLE;
}

struct atsi_jv atsi_jv_arith(struct atsi_jr *r, char op, struct atsi_jv a, struct atsi_jv b)
{
    if (atsi_jv_is_int(a) && atsi_jv_is_int(b))
        return int_arith(r, op, atsi_jv_as_int(a), atsi_jv_as_int(b));
    if (atsi_jv_is_number(a) && atsi_jv_is_number(b))
        return float_arith(r, op, atsi_jv_as_double(a), atsi_jv_as_double(b));
    if (op == '+' && a.type == b.type) {
        if (a.type == ATSI_J_STR)
            return join_text(r, a, b);
        if (a.type == ATSI_J_LIST || a.type == ATSI_J_TUPLE)
            return join_lists(r, a, b);
    }
    if (op == '+' && a.type == ATSI_J_STR && b.type != ATSI_J_UNDEF)
        return atsi_jr_error(r, "can only concatenate str (not \"%s\") to str",
                             atsi_jv_type_name(b));
    if (op == '*' && can_repeat(a) && atsi_jv_is_int(b))
        return repeat(r, a, atsi_jv_as_int(b));
    if (op == '*' && can_repeat(b) && atsi_jv_is_int(a))
        return repeat(r, b, atsi_jv_as_int(a));
    if (op == '%' && a.type == ATSI_J_STR)
        return atsi_jformat_percent(r, a, b);
    return bad_operands(r, op, a, b);
}

struct atsi_jv atsi_jv_negate(struct atsi_jr *r, struct atsi_jv v, bool minus)
{
    int64_t i;
    if (v.type == ATSI_J_FLOAT)
        return atsi_jv_float(minus ? -v.u.f : v.u.f);
    if (atsi_jv_is_int(v)) {
        i = atsi_jv_as_int(v);
        if (minus && __builtin_sub_overflow((int64_t)0, i, &i))
            return too_big(r);
        return atsi_jv_int(i);
    }
    if (v.type == ATSI_J_UNDEF)
        return atsi_jv_undefined_error(r, v);
    return atsi_jr_error(r, "bad operand type for unary %c: '%s'", minus ? '-' : '+',
                         atsi_jv_type_name(v));
}

/* ---------------------------------------------------------------- rounding */
static struct atsi_jv round_int(struct atsi_jr *r, int64_t v, int64_t digits)
{
    int64_t unit = 1, rest, down;
    if (digits >= 0)
        return atsi_jv_int(v);
    while (digits++ < 0)
        if (__builtin_mul_overflow(unit, (int64_t)10, &unit))
            return atsi_jv_int(0);
    rest = v % unit;
    if (rest < 0)
        rest += unit;
    if (__builtin_sub_overflow(v, rest, &down))
        return too_big(r);
    if (rest > unit - rest || (rest == unit - rest && (down / unit) % 2 != 0))
        if (__builtin_add_overflow(down, unit, &down))
            return too_big(r);
    return atsi_jv_int(down);
}

struct atsi_jv atsi_jv_round(struct atsi_jr *r, struct atsi_jv v, int64_t digits)
{
    char text[700]; /* 309 digits before the point, 330 behind it */
    double f;
    int exponent;
    if (atsi_jv_is_int(v))
        return round_int(r, atsi_jv_as_int(v), digits);
    if (v.type == ATSI_J_UNDEF)
        return atsi_jv_undefined_error(r, v);
    if (v.type != ATSI_J_FLOAT)
        return atsi_jr_error(r, "type %s doesn't define __round__ method", atsi_jv_type_name(v));
    f = v.u.f;
    if (!isfinite(f) || f == 0 || digits > 330)
        return v;
    if (digits >= 0) { /* printing rounds the exact value, ties to even: as CPython does */
        if (atsi_jfloat_print(text, sizeof text, 'f', (int)digits, false, f) < 0)
            return v;
    } else { /* keep the digits down to 10^-digits */
        (void)atsi_jfloat_print(text, sizeof text, 'e', 0, false, f);
        exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
        if (digits + exponent < 0)
            return atsi_jv_float(
                copysign(digits + exponent == -1
                             ? rint(fabs(f) / pow(10, (double)-digits)) * pow(10, (double)-digits)
                             : 0,
                         f));
        (void)atsi_jfloat_print(text, sizeof text, 'e', (int)(digits + exponent), false, f);
    }
    (void)atsi_jfloat_parse(text, strlen(text), &f);
    return atsi_jv_float(f);
}
