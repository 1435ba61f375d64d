/* SPDX-License-Identifier: Apache-2.0
 *
 * Escapes in string literals, as Python's "unicode-escape" decodes them.
 */
#include "text/jinja/lexer.h"
#include "text/jinja/str.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* `n` hexadecimal digits at p; false when they are not there. */
static bool hex_value(const char *p, const char *end, int n, uint32_t *out)
{
    *out = 0;
    if (end - p < n)
        return false;
    for (int i = 0; i < n; i++) {
        int d = hex_digit(p[i]);
        if (d < 0)
            return false;
        *out = *out * 16 + (uint32_t)d;
    }
    return true;
}

/* \x, \u and \U: p is behind the letter; returns what follows, or NULL after a failure. */
static const char *hex_escape(struct atsi_jbuf *b, const char *p, const char *end, char letter)
{
    int n = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
    uint32_t cp;
    if (!hex_value(p, end, n, &cp)) {
        (void)atsi_jr_error(b->r, "\\%c in a string needs %d hexadecimal digits", letter, n);
        return NULL;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) {
        (void)atsi_jr_error(b->r, "\\%c in a string: U+%04X is not a character", letter,
                            (unsigned)cp);
        return NULL;
    }
    atsi_jbuf_cp(b, cp);
    return p + n;
}

static const char *octal_escape(struct atsi_jbuf *b, const char *p, const char *end)
{
    uint32_t cp = 0;
    for (int i = 0; i < 3 && p < end && *p >= '0' && *p <= '7'; i++)
        cp = cp * 8 + (uint32_t)(*p++ - '0');
    atsi_jbuf_cp(b, cp);
    return p;
}

/* The escape whose letter is at p; returns what follows, or NULL after a failure. */
static const char *one_escape(struct atsi_jbuf *b, const char *p, const char *end)
{
    static const char simple[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    for (const char *s = simple; *s != '\0'; s += 2)
        if (*p == s[0]) {
            atsi_jbuf_add(b, s + 1, 1);
            return p + 1;
        }
    if (*p == '\n') /* a line that goes on */
        return p + 1;
    if (*p == 'x' || *p == 'u' || *p == 'U')
        return hex_escape(b, p + 1, end, *p);
    if (*p >= '0' && *p <= '7')
        return octal_escape(b, p, end);
    if (*p == 'N' || (unsigned char)*p >= 0x80) {
        (void)atsi_jr_notsup(b->r, "%s in a string is not supported",
                             *p == 'N' ? "\\N{...}" : "a backslash before a non-ASCII character");
        return NULL;
    }
    atsi_jbuf_add(b, "\\", 1); /* no escape: both stay */
    atsi_jbuf_add(b, p, 1);
    return p + 1;
}

struct atsi_jv atsi_jlex_unescape(struct atsi_jr *r, const char *p, size_t n)
{
    struct atsi_jbuf b = atsi_jbuf_of(r);
    const char *end = p + n;
    if (memchr(p, '\\', n) == NULL)
        return atsi_jv_text(r, p, n);
    while (p < end) {
        const char *slash = memchr(p, '\\', (size_t)(end - p));
        if (slash == NULL)
            slash = end;
        atsi_jbuf_add(&b, p, (size_t)(slash - p));
        p = slash;
        if (p < end && (p = one_escape(&b, p + 1, end)) == NULL)
            return atsi_jv_fail();
    }
    return atsi_jbuf_take(&b);
}
