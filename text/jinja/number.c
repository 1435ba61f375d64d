/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers to text and back.
 */
#include "text/jinja/number.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>

#include "text/jinja/ucs.h"

/* The C library writes and reads numbers by the locale of the program or thread; "C" is wanted. */
static locale_t enter_c_locale(locale_t *made)
{
    *made = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return *made != (locale_t)0 ? uselocale(*made) : (locale_t)0;
}

static void leave_c_locale(locale_t old, locale_t made)
{
    if (made == (locale_t)0)
        return;
    (void)uselocale(old);
    freelocale(made);
}

int atsi_jfloat_print(char *out, size_t size, char conversion, int precision, bool alternate,
                      double f)
{
    char format[8];
    locale_t made, old = enter_c_locale(&made);
    int n;
    (void)snprintf(format, sizeof format, "%%%s.*%c", alternate ? "#" : "", conversion);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* built from a closed set of conversions */
    n = snprintf(out, size, format, precision, f);
#pragma GCC diagnostic pop
    leave_c_locale(old, made);
    return n >= 0 && (size_t)n < size ? n : -1;
}

bool atsi_jfloat_parse(const char *p, size_t n, double *out)
{
    char text[800], *end;
    locale_t made, old;
    if (n == 0 || n >= sizeof text || isspace((unsigned char)p[0]) || memchr(p, 'x', n) != NULL ||
        memchr(p, 'X', n) != NULL || memchr(p, '(', n) != NULL || memchr(p, '\0', n) != NULL)
        return false; /* hexadecimal and nan(...) are of C, not of Python */
    memcpy(text, p, n);
    text[n] = '\0';
    old = enter_c_locale(&made);
    *out = strtod(text, &end);
    leave_c_locale(old, made);
    return *end == '\0' && end != text;
}

/* Is f the value of the digits?  digits: "d.ddde+xx". */
static bool gives(const char *digits, double f)
{
    double back;
    return atsi_jfloat_parse(digits, strlen(digits), &back) && back == f;
}

/* The shortest digits as "d.ddde+xx".  Almost always those of the nearest decimal; below a power of
 * two floats lie closer than above it, and there a neighbour in the last digit can be the shortest
 * that still gives f. */
static void shortest(double f, char *out, size_t size)
{
    for (int digits = 1; digits <= 17; digits++) {
        size_t last;
        (void)atsi_jfloat_print(out, size, 'e', digits - 1, false, f);
        if (gives(out, f))
            return;
        last = digits > 1 ? (size_t)digits : 0;
        if (out[last] < '9') {
            out[last]++;
            if (gives(out, f))
                return;
            out[last]--;
        }
    }
}

static char *put(char *p, const char *text, size_t n)
{
    memcpy(p, text, n);
    return p + n;
}

/* digits[n] (17 at most) times 10^exponent, the first digit before the point. */
static void lay_out(char *p, const char *digits, size_t n, int exponent)
{
    static const char zeros[] = "0000000000000000";
    if (exponent < -4 || exponent >= 16) { /* as CPython: float_repr_style 'short' */
        *p++ = digits[0];
        if (n > 1)
            p = put(put(p, ".", 1), digits + 1, n - 1);
        (void)snprintf(p, 16, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0) {
        p = put(put(p, "0.", 2), zeros, (size_t)(-exponent - 1));
        p = put(p, digits, n);
    } else if (n <= (size_t)exponent + 1) {
        p = put(put(p, digits, n), zeros, (size_t)exponent + 1 - n);
        p = put(p, ".0", 2);
    } else {
        p = put(put(p, digits, (size_t)exponent + 1), ".", 1);
        p = put(p, digits + exponent + 1, n - (size_t)exponent - 1);
    }
    *p = '\0';
}

const char *atsi_jfloat_repr(double f, char out[ATSI_JFLOAT_SIZE])
{
    char e[ATSI_JFLOAT_SIZE], digits[24] = {0};
    size_t n_digits = 0;
    if (isnan(f) || isinf(f)) {
        (void)snprintf(out, ATSI_JFLOAT_SIZE, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return out;
    }
    shortest(fabs(f), e, sizeof e);
    for (const char *c = e; *c != 'e'; c++)
        if (*c != '.')
            digits[n_digits++] = *c;
    out[0] = '-';
    lay_out(out + (signbit(f) != 0), digits, n_digits, (int)strtol(strchr(e, 'e') + 1, NULL, 10));
    return out;
}

/* Drops white space at both ends. */
static void trim(const char **p, size_t *n)
{
    size_t at = 0;
    *n = atsi_ucs_rstrip(*p, *n);
    while (at < *n) {
        size_t next = at;
        if (!atsi_ucs_is_space(atsi_ucs_next(*p, *n, &next)))
            break;
        at = next;
    }
    *p += at;
    *n -= at;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

/* Moves behind "0x", "0o" or "0b" when the base allows it; base 0 takes what is there. */
static int base_prefix(const char **p, const char *end, int base)
{
    static const struct {
        char letter;
        int base;
    } kinds[] = {{'x', 16}, {'o', 8}, {'b', 2}};
    for (size_t i = 0; i < 3; i++)
        if (end - *p > 2 && **p == '0' && ((*p)[1] | 0x20) == kinds[i].letter &&
            (base == 0 || base == kinds[i].base)) {
            *p += 2;
            if (**p == '_')
                ++*p;
            return kinds[i].base;
        }
    return base == 0 ? 10 : base;
}

int atsi_jint_parse(const char *p, size_t n, int base, int64_t *out)
{
    const char *end;
    bool minus, digit = false, big = false, zero_first;
    int64_t value = 0;
    int asked = base;
    trim(&p, &n);
    end = p + n;
    minus = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    base = base_prefix(&p, end, base);
    zero_first = p < end && *p == '0';
    for (; p < end; p++) {
        int d = digit_value(*p);
        if (*p == '_' && digit && p + 1 < end) {
            digit = false; /* one between two digits */
            continue;
        }
        if (d >= base)
            return 0;
        digit = true;
        big = big || __builtin_mul_overflow(value, base, &value) ||
              __builtin_sub_overflow(value, d, &value); /* negative: reaches INT64_MIN */
    }
    if (!digit || (asked == 0 && base == 10 && zero_first && value != 0))
        return 0;
    if (!minus && __builtin_sub_overflow((int64_t)0, value, &value))
        big = true;
    *out = value;
    return big ? -1 : 1;
}

bool atsi_jfloat_from_text(const char *p, size_t n, double *out)
{
    char text[512];
    size_t at = 0;
    trim(&p, &n);
    if (n >= sizeof text)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool between = i > 0 && i + 1 < n && isdigit((unsigned char)p[i - 1]) &&
                       isdigit((unsigned char)p[i + 1]);
        if (p[i] != '_')
            text[at++] = p[i];
        else if (!between)
            return false;
    }
    return atsi_jfloat_parse(text, at, out);
}
