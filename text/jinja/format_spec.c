/* SPDX-License-Identifier: Apache-2.0
 *
 * One formatted number or text: sign, prefix, digits in groups, padding.
 */
#include <ctype.h>
#include <math.h>

#include "text/jinja/format.h"
#include "text/jinja/number.h"

void atsi_jspec_put(struct atsi_jbuf *b, const struct atsi_jspec *spec, const char *lead,
                    const char *p, size_t n, size_t n_cp, char align)
{
    size_t n_lead = strlen(lead), pad = 0, left;
    if (spec->align != 0)
        align = spec->align;
    if (spec->width > n_cp + n_lead)
        pad = spec->width - n_cp - n_lead;
    left = align == '<' ? 0 : align == '^' ? pad / 2 : pad;
    if (align == '=')
        atsi_jbuf_add(b, lead, n_lead);
    atsi_jbuf_fill(b, spec->fill, spec->fill_n, left);
    if (align != '=')
        atsi_jbuf_add(b, lead, n_lead);
    atsi_jbuf_add(b, p, n);
    atsi_jbuf_fill(b, spec->fill, spec->fill_n, pad - left);
}

/* Copies digits[n] with a separator between groups of `size`, counted from the right. */
static size_t grouped(const char *digits, size_t n, char separator, size_t size, char *out)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (separator != 0 && i > 0 && (n - i) % size == 0)
            out[at++] = separator;
        out[at++] = digits[i];
    }
    return at;
}

static const char *sign_text(const struct atsi_jspec *spec, bool minus, const char *prefix,
                             char out[8])
{
    char sign = minus ? '-' : spec->sign == '+' || spec->sign == ' ' ? spec->sign : '\0';
    (void)snprintf(out, 8, "%.*s%s", sign != '\0', &sign, prefix);
    return out;
}

/* Zeros between groups would need groups of their own. */
static bool group_with_zeros(struct atsi_jbuf *b, const struct atsi_jspec *spec)
{
    bool zeros = spec->group != 0 && spec->width > 0 &&
                 (spec->align == '=' || (spec->zero && spec->align == 0));
    if (zeros)
        (void)atsi_jr_notsup(b->r, "grouped digits with leading zeros are not supported");
    return zeros;
}

bool atsi_jspec_int(struct atsi_jbuf *b, const struct atsi_jspec *spec, int64_t i)
{
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
    const char *set = spec->type == 'X' ? upper : lower, *prefix = "";
    uint64_t v = i < 0 ? 0 - (uint64_t)i : (uint64_t)i, base = 10;
    char digits[72], text[160], lead[8];
    size_t at = sizeof digits, n;
    if (group_with_zeros(b, spec))
        return false;
    if (spec->type == 'x' || spec->type == 'X') {
        base = 16;
        prefix = spec->type == 'x' ? "0x" : "0X";
    } else if (spec->type == 'o' || spec->type == 'b') {
        base = spec->type == 'o' ? 8 : 2;
        prefix = spec->type == 'o' ? "0o" : "0b";
    }
    do {
        digits[--at] = set[v % base];
        v /= base;
    } while (v > 0);
    n = grouped(digits + at, sizeof digits - at, spec->group, base == 10 ? 3 : 4, text);
    atsi_jspec_put(b, spec, sign_text(spec, i < 0, spec->alternate ? prefix : "", lead), text, n, n,
                   spec->zero ? '=' : '>');
    return !b->bad;
}

bool atsi_jspec_float(struct atsi_jbuf *b, const struct atsi_jspec *spec, double f)
{
    char text[1024], out[1400], lead[8];
    char type = spec->type == 0 ? 'r' : spec->type == '%' ? 'f' : spec->type;
    int precision = spec->precision < 0 ? 6 : spec->precision, n;
    size_t whole, at;
    if (group_with_zeros(b, spec))
        return false;
    if (spec->type == '%')
        f *= 100;
    if (precision > 600) {
        (void)atsi_jr_notsup(b->r, "more than 600 digits behind a point are not supported");
        return false;
    }
    if (isnan(f) || isinf(f))
        n = snprintf(text, sizeof text, "%s",
                     isnan(f)                       ? isupper((unsigned char)type) ? "NAN" : "nan"
                     : isupper((unsigned char)type) ? "INF"
                                                    : "inf");
    else if (type == 'r')
        n = snprintf(text, sizeof text, "%s", atsi_jfloat_repr(fabs(f), out));
    else
        n = atsi_jfloat_print(text, sizeof text, type, precision, spec->alternate, fabs(f));
    if (n < 0) {
        (void)atsi_jr_notsup(b->r, "a number of more than 1000 characters is not supported");
        return false;
    }
    for (whole = 0; isdigit((unsigned char)text[whole]);)
        whole++;
    at = grouped(text, whole, spec->group, 3, out);
    memcpy(out + at, text + whole, (size_t)n - whole);
    at += (size_t)n - whole;
    if (spec->type == '%')
        out[at++] = '%';
    atsi_jspec_put(b, spec, sign_text(spec, signbit(f) && !isnan(f), "", lead), out, at, at,
                   spec->zero ? '=' : '>');
    return !b->bad;
}
