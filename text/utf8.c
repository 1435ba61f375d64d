/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 as RFC 3629 section 4 defines it:
 *   00..7F | C2..DF tail | E0 A0..BF tail | E1..EF tail tail | F0 90..BF tail tail |
 *   F1..F3 tail tail tail | F4 80..8F tail tail          (tail = 80..BF)
 * plus, where a caller asks for it, the surrogates ED A0..BF tail that the RFC leaves out.
 */
#include "text/utf8.h"

#define HIGH_BITS 0x8080808080808080u

/* Length by lead byte, 0 for a byte that leads nothing. */
static size_t lead_len(unsigned char b)
{
    if (b < 0x80)
        return 1;
    if (b < 0xC2)
        return 0;
    if (b < 0xE0)
        return 2;
    if (b < 0xF0)
        return 3;
    return b < 0xF5 ? 4 : 0;
}

/* The second byte decides about overlong forms and about the end of the code space. */
static bool second_fits(unsigned char lead, unsigned char b)
{
    if (lead == 0xE0)
        return b >= 0xA0 && b < 0xC0;
    if (lead == 0xF0)
        return b >= 0x90 && b < 0xC0;
    if (lead == 0xF4)
        return b >= 0x80 && b < 0x90;
    return (b & 0xC0) == 0x80;
}

size_t atsi_utf8_decode(const char *p, size_t n, uint32_t *cp_out)
{
    const unsigned char *u = (const unsigned char *)p;
    size_t len = n > 0 ? lead_len(u[0]) : 0;
    uint32_t cp;
    if (len == 0 || len > n)
        return 0;
    if (len == 1) {
        *cp_out = u[0];
        return 1;
    }
    if (!second_fits(u[0], u[1]))
        return 0;
    cp = u[0] & (0x7Fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((u[i] & 0xC0) != 0x80)
            return 0;
        cp = cp << 6 | (u[i] & 0x3Fu);
    }
    *cp_out = cp;
    return len;
}

size_t atsi_utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t atsi_utf8_ascii_prefix(const char *p, size_t n)
{
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint64_t w;
        memcpy(&w, p + i, 8);
        if ((w & HIGH_BITS) != 0)
            break;
    }
    while (i < n && (unsigned char)p[i] < 0x80)
        i++;
    return i;
}

size_t atsi_utf8_valid_prefix(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint32_t cp;
        size_t len;
        if ((unsigned char)p[i] < 0x80) {
            i += atsi_utf8_ascii_prefix(p + i, n - i);
            continue;
        }
        len = atsi_utf8_decode(p + i, n - i, &cp);
        if (len == 0 || (cp >= 0xD800 && cp < 0xE000))
            return i;
        i += len;
    }
    return i;
}

size_t atsi_utf8_open_tail(const char *p, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char b = (unsigned char)p[n - back];
        if ((b & 0xC0) == 0x80)
            continue;
        if (lead_len(b) <= back)
            return 0;
        if (back > 1) {
            unsigned char second = (unsigned char)p[n - back + 1];
            if (!second_fits(b, second) || (b == 0xED && second >= 0xA0)) /* a surrogate */
                return 0;
        }
        return back;
    }
    return 0;
}

bool atsi_utf8_repair(const char *text, size_t n, bool keep_surrogates, struct atsi_bytes *out)
{
    size_t i = 0;
    while (i < n) {
        size_t good = atsi_utf8_valid_prefix(text + i, n - i), len;
        uint32_t cp;
        if (!atsi_bytes_add(out, text + i, good))
            return false;
        i += good;
        if (i == n)
            break;
        len = atsi_utf8_decode(text + i, n - i, &cp); /* a surrogate, or nothing */
        if (!atsi_bytes_add(out, len > 0 && keep_surrogates ? text + i : ATSI_UTF8_REPLACEMENT, 3))
            return false;
        i += len > 0 ? len : 1;
    }
    return true;
}
