/* SPDX-License-Identifier: Apache-2.0
 *
 * Character properties and letter case, by utf8proc and our tables.
 */
#include "text/jinja/ucs.h"

#include <utf8proc.h>

#include "text/jinja/ucs_table.h"
#include "text/utf8.h"

uint32_t atsi_ucs_next(const char *p, size_t n, size_t *at)
{
    uint32_t cp = (unsigned char)p[*at];
    size_t len = 1;
    if (cp >= 0x80)
        len = atsi_utf8_decode(p + *at, n - *at, &cp);
    *at += len > 0 ? len : 1;
    return cp;
}

uint32_t atsi_ucs_prev(const char *p, size_t *at)
{
    size_t end = *at, from;
    do
        --*at;
    while (*at > 0 && ((unsigned char)p[*at] & 0xC0) == 0x80);
    from = *at;
    return atsi_ucs_next(p, end, &from);
}

bool atsi_ucs_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 31);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool atsi_ucs_is_line_end(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool atsi_ucs_is_printable(uint32_t cp)
{
    if (cp < 0x7F)
        return cp >= ' ';
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    default:
        return true;
    }
}

bool atsi_ucs_is_alpha(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool atsi_ucs_is_decimal(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_ND;
}

bool atsi_ucs_is_numeric(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool atsi_ucs_is_word(uint32_t cp)
{
    return cp == '_' || atsi_ucs_is_alpha(cp) || atsi_ucs_is_numeric(cp);
}

static bool in_ranges(uint32_t cp, const struct atsi_ucs_range *r, size_t n)
{
    for (size_t i = 0; i < n && r[i].first <= cp; i++)
        if (cp <= r[i].last)
            return true;
    return false;
}

bool atsi_ucs_is_upper(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LU ||
           in_ranges(cp, atsi_ucs_other_upper, atsi_ucs_n_other_upper);
}

bool atsi_ucs_is_lower(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LL ||
           in_ranges(cp, atsi_ucs_other_lower, atsi_ucs_n_other_lower);
}

bool atsi_ucs_is_title(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LT;
}

/* ---------------------------------------------------------------- letter case */
static bool is_cased(uint32_t cp)
{
    return atsi_ucs_is_upper(cp) || atsi_ucs_is_lower(cp) || atsi_ucs_is_title(cp);
}

/* Case_Ignorable (Unicode standard, section 3.13): marks, format characters, modifiers, and the
 * punctuation of words. */
static bool is_case_ignorable(uint32_t cp)
{
    static const uint16_t word_marks[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                          0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                          0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof word_marks / sizeof word_marks[0]; i++)
        if (cp == word_marks[i])
            return true;
    return false;
}

/* The sigma at [from, to) ends a word: a letter before it, none behind it (condition Final_Sigma
 * of SpecialCasing.txt). */
static bool ends_word(const struct atsi_jstr *s, size_t from, size_t to)
{
    uint32_t cp = 0;
    bool before = false, after = false;
    while (from > 0 && is_case_ignorable(cp = atsi_ucs_prev(s->p, &from)))
        cp = 0;
    before = cp != 0 && is_cased(cp);
    cp = 0;
    while (to < s->n && is_case_ignorable(cp = atsi_ucs_next(s->p, s->n, &to)))
        cp = 0;
    after = cp != 0 && is_cased(cp);
    return before && !after;
}

static const struct atsi_ucs_special *special(uint32_t cp)
{
    size_t low = 0, high = atsi_ucs_n_special;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (atsi_ucs_special[mid].cp == cp)
            return &atsi_ucs_special[mid];
        if (atsi_ucs_special[mid].cp < cp)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static void add_upper(struct atsi_jbuf *b, uint32_t cp, bool title)
{
    const struct atsi_ucs_special *m = cp >= 0x80 ? special(cp) : NULL;
    if (m != NULL) {
        const uint16_t *to = title ? m->title : m->upper;
        for (size_t i = 0; i < 3 && to[i] != 0; i++)
            atsi_jbuf_cp(b, to[i]);
    } else {
        utf8proc_int32_t c = (utf8proc_int32_t)cp;
        atsi_jbuf_cp(b, (uint32_t)(title ? utf8proc_totitle(c) : utf8proc_toupper(c)));
    }
}

/* Lower case of the character that is at [from, to) of s. */
static void add_lower(struct atsi_jbuf *b, uint32_t cp, const struct atsi_jstr *s, size_t from,
                      size_t to)
{
    if (cp == 0x130) { /* the only one with two characters in lower case */
        atsi_jbuf_text(b, "i\xCC\x87");
        return;
    }
    if (cp == 0x3A3 && ends_word(s, from, to))
        atsi_jbuf_cp(b, 0x3C2);
    else
        atsi_jbuf_cp(b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
}

struct atsi_jv atsi_ucs_recase(struct atsi_jr *r, const struct atsi_jstr *s, enum atsi_ucs_case to)
{
    struct atsi_jbuf b = atsi_jbuf_of(r);
    bool after_letter = false;
    if (!atsi_jr_work(r, 8 * s->n))
        return atsi_jv_fail();
    for (size_t at = 0; at < s->n;) {
        size_t from = at;
        uint32_t cp = atsi_ucs_next(s->p, s->n, &at);
        bool raise = to == ATSI_UCS_UPPER || (to == ATSI_UCS_SWAP && atsi_ucs_is_lower(cp));
        bool title =
            (to == ATSI_UCS_TITLE && !after_letter) || (to == ATSI_UCS_CAPITAL && from == 0);
        if (raise || title)
            add_upper(&b, cp, title);
        else if (to == ATSI_UCS_SWAP && !atsi_ucs_is_upper(cp))
            atsi_jbuf_cp(&b, cp);
        else
            add_lower(&b, cp, s, from, at);
        if (to == ATSI_UCS_TITLE)
            after_letter = is_cased(cp);
    }
    return atsi_jbuf_take(&b);
}

/* ---------------------------------------------------------------- ends of text */
static bool has_char(const struct atsi_jstr *chars, uint32_t cp)
{
    if (chars == NULL)
        return atsi_ucs_is_space(cp);
    if (cp < 0x80)
        return memchr(chars->p, (int)cp, chars->n) != NULL;
    for (size_t at = 0; at < chars->n;)
        if (atsi_ucs_next(chars->p, chars->n, &at) == cp)
            return true;
    return false;
}

struct atsi_jv atsi_jv_strip(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jstr *chars,
                             unsigned sides)
{
    const struct atsi_jstr *s = v.u.s;
    size_t from = 0, to = s->n, at = 0;
    uint64_t work = chars != NULL ? 1 + chars->n / 16 : 1;
    while ((sides & ATSI_STRIP_LEFT) != 0 && at < s->n &&
           has_char(chars, atsi_ucs_next(s->p, s->n, &at)) && atsi_jr_step(r, work))
        from = at;
    at = to;
    while ((sides & ATSI_STRIP_RIGHT) != 0 && at > from &&
           has_char(chars, atsi_ucs_prev(s->p, &at)) && atsi_jr_step(r, work))
        to = at;
    return r->status != ATSI_OK ? atsi_jv_fail() : atsi_jv_cut(r, v, from, to);
}

size_t atsi_ucs_rstrip(const char *p, size_t n)
{
    size_t at = n;
    while (at > 0 && atsi_ucs_is_space(atsi_ucs_prev(p, &at)))
        n = at;
    return n;
}
