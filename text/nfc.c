/* SPDX-License-Identifier: Apache-2.0
 *
 * NFC (UAX #15) with utf8proc's tables.
 *
 * Text is handled in stretches.  Characters that neither change nor join anything are copied; the
 * others are collected with the starter before them, decomposed, put into canonical order and
 * composed.  utf8proc's own ordering swaps neighbours, which is quadratic for long rows of marks
 * that somebody may send; here the order comes from counting classes.
 */
#include "text/nfc.h"

#include <utf8proc.h>

#include "text/utf8.h"

/* No canonical mapping, class 0, and no second half of a composition: U+0000..02FF compose to the
 * right only, and the blocks of the big scripts listed here have none of it. */
static bool inert(uint32_t cp)
{
    return cp < 0x300 || (cp >= 0x400 && cp < 0x483) || (cp >= 0x48A && cp < 0x590) ||
           (cp >= 0x2010 && cp < 0x20D0) || (cp >= 0x2200 && cp < 0x2329) ||
           (cp >= 0x232B && cp < 0x2ADC) || (cp >= 0x3000 && cp < 0x302A) ||
           (cp >= 0x3030 && cp < 0x3099) || (cp >= 0x30A0 && cp < 0xA66F) ||
           (cp >= 0xAC00 && cp < 0xD7A4) || (cp >= 0xFF00 && cp < 0xFFFE) ||
           (cp >= 0x1F000 && cp < 0x2F800);
}

size_t atsi_nfc_done(const char *text, size_t n)
{
    size_t starter = 0; /* where the last inert character begins */
    for (size_t i = 0; i < n;) {
        size_t ascii = atsi_utf8_ascii_prefix(text + i, n - i), len;
        uint32_t cp;
        if (ascii > 0) {
            i += ascii;
            starter = i - 1;
            continue;
        }
        len = atsi_utf8_decode(text + i, n - i, &cp);
        if (len > 0 && !(cp >= 0xD800 && cp < 0xE000)) {
            if (!inert(cp))
                return starter;
            starter = i;
        } else {
            len = len > 0 ? len : 1;
            starter = i + len;
        }
        i += len;
    }
    return n;
}

static unsigned class_of(int32_t cp)
{
    return (unsigned)utf8proc_get_property(cp)->combining_class; /* 0..254 */
}

/* Stable insertion sort by class: the usual two or three marks. */
static void order_few(int32_t *cps, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        int32_t cp = cps[i];
        size_t k = i;
        for (; k > 0 && class_of(cps[k - 1]) > class_of(cp); k--)
            cps[k] = cps[k - 1];
        cps[k] = cp;
    }
}

/* Stable counting sort by class: any number of marks. */
static bool order_many(int32_t *cps, size_t n)
{
    size_t count[257] = {0};
    int32_t *sorted = malloc(n * sizeof *sorted);
    if (sorted == NULL)
        return false;
    for (size_t i = 0; i < n; i++)
        count[class_of(cps[i]) + 1]++;
    for (size_t c = 1; c < 257; c++)
        count[c] += count[c - 1];
    for (size_t i = 0; i < n; i++)
        sorted[count[class_of(cps[i])]++] = cps[i];
    memcpy(cps, sorted, n * sizeof *cps);
    free(sorted);
    return true;
}

/* Canonical order: each run of characters with a class above 0 by class, equals as they were. */
static bool order_marks(int32_t *cps, size_t n)
{
    for (size_t i = 0, end; i < n; i = end + (end == i)) {
        for (end = i; end < n && class_of(cps[end]) > 0;)
            end++;
        if (end - i <= 16)
            order_few(cps + i, end - i);
        else if (!order_many(cps + i, end - i))
            return false;
    }
    return true;
}

/* Decomposes, orders and composes text without anything that is no UTF-8. */
static bool normalize(const char *text, size_t n, struct atsi_bytes *out)
{
    enum { MOST = 4 }; /* code points of the longest canonical decomposition */
    int32_t *cps = malloc((n + 1) * MOST * sizeof *cps);
    size_t n_cps = 0;
    utf8proc_ssize_t left;
    bool ok = cps != NULL;
    for (size_t i = 0; ok && i < n;) {
        uint32_t cp = 0;
        utf8proc_ssize_t made;
        int boundary = 0;
        i += atsi_utf8_decode(text + i, n - i, &cp);
        made = utf8proc_decompose_char((int32_t)cp, cps + n_cps, MOST,
                                       UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
        if (made < 0 || made > MOST) { /* a code point that the tables do not know */
            cps[n_cps] = (int32_t)cp;
            made = 1;
        }
        n_cps += (size_t)made;
    }
    ok = ok && order_marks(cps, n_cps);
    left = ok ? utf8proc_normalize_utf32(cps, (utf8proc_ssize_t)n_cps,
                                         UTF8PROC_COMPOSE | UTF8PROC_STABLE)
              : 0;
    for (utf8proc_ssize_t i = 0; ok && i < left; i++) {
        char utf8[4];
        ok = atsi_bytes_add(out, utf8, atsi_utf8_encode((uint32_t)cps[i], utf8));
    }
    free(cps);
    return ok && left >= 0;
}

/* End of the stretch at text[0, n) that has to be normalized as one: before the second of two inert
 * characters in a row, or before bytes that are no UTF-8. */
static size_t stretch(const char *text, size_t n)
{
    bool after_inert = false;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = atsi_utf8_decode(text + i, n - i, &cp);
        bool is_inert = len > 0 && inert(cp);
        if (len == 0 || (cp >= 0xD800 && cp < 0xE000) || (i > 0 && is_inert && after_inert))
            return i;
        after_inert = is_inert;
        i += len;
    }
    return n;
}

bool atsi_nfc(const char *text, size_t n, struct atsi_bytes *out)
{
    for (size_t i = 0; i < n;) {
        size_t done = atsi_nfc_done(text + i, n - i), part;
        if (!atsi_bytes_add(out, text + i, done))
            return false;
        i += done;
        part = stretch(text + i, n - i);
        if (!normalize(text + i, part, out))
            return false;
        i += part;
    }
    return true;
}
