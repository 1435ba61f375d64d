/* SPDX-License-Identifier: Apache-2.0
 *
 * The clean-up of whole-text decoding that older vocabularies ask for: spaces disappear
 *   1. before ? ! . ,
 *   2. on both sides of an apostrophe that stands alone,
 *   3. before the contractions 's 'm 're 've,
 * one rule after the other over the whole text.
 */
#include "text/tokenizer_impl.h"

/* True when the space before p[0..n) goes. */
typedef bool drop_rule(const char *p, size_t n);

static bool before_mark(const char *p, size_t n)
{
    return n > 0 && (*p == '?' || *p == '!' || *p == '.' || *p == ',');
}

static bool before_contraction(const char *p, size_t n)
{
    if (n < 2 || p[0] != '\'')
        return false;
    if (p[1] == 's' || p[1] == 'm')
        return true;
    return n >= 3 && p[2] == 'e' && (p[1] == 'r' || p[1] == 'v');
}

static size_t drop_spaces(char *text, size_t n, drop_rule *rule)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] != ' ' || !rule(text + i + 1, n - i - 1))
            text[kept++] = text[i];
    return kept;
}

static size_t free_apostrophes(char *text, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (n - i >= 3 && memcmp(text + i, " ' ", 3) == 0) {
            text[kept++] = '\'';
            i += 2;
        } else {
            text[kept++] = text[i];
        }
    }
    return kept;
}

size_t atsi_clean_up(char *text, size_t n)
{
    n = drop_spaces(text, n, before_mark);
    n = free_apostrophes(text, n);
    return drop_spaces(text, n, before_contraction);
}
