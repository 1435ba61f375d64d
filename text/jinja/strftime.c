/* SPDX-License-Identifier: Apache-2.0
 *
 * strftime, directive by directive.
 */
#include "text/jinja/strftime.h"

static const char *const day_names[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                        "Thursday", "Friday", "Saturday"};
static const char *const month_names[] = {"January",   "February", "March",    "April",
                                          "May",       "June",     "July",     "August",
                                          "September", "October",  "November", "December"};

static bool is_leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

bool atsi_jdate_complete(struct tm *t)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = t->tm_year + 1900, past;
    if (t->tm_year < -1899 || t->tm_year > 8099 || t->tm_mon < 0 || t->tm_mon > 11 ||
        t->tm_mday < 1 || t->tm_mday > days[t->tm_mon] + (t->tm_mon == 1 && is_leap(year)) ||
        t->tm_hour < 0 || t->tm_hour > 23 || t->tm_min < 0 || t->tm_min > 59 || t->tm_sec < 0 ||
        t->tm_sec > 60)
        return false;
    t->tm_yday = before[t->tm_mon] + t->tm_mday - 1 + (t->tm_mon > 1 && is_leap(year));
    past = year - 1; /* whole years since the Monday that began year 1 */
    t->tm_wday = (past * 365 + past / 4 - past / 100 + past / 400 + t->tm_yday + 1) % 7;
    return true;
}

struct field {
    char flag; /* - _ 0 ^ #, or 0 */
    struct atsi_jbuf *b;
};

static void number(const struct field *f, int value, int width, char pad)
{
    char text[16];
    int n;
    if (f->flag == '_' || f->flag == '0')
        pad = f->flag == '_' ? ' ' : '0';
    n = snprintf(text, sizeof text, "%d", value);
    while (f->flag != '-' && n++ < width)
        atsi_jbuf_add(f->b, &pad, 1);
    atsi_jbuf_text(f->b, text);
}

/* The first `n` letters of a name (all with 0), in capitals with ^ or #. */
static void name(const struct field *f, const char *text, size_t n)
{
    for (size_t i = 0; text[i] != '\0' && (n == 0 || i < n); i++) {
        char c = text[i];
        if ((f->flag == '^' || f->flag == '#') && c >= 'a' && c <= 'z')
            c = (char)(c - 'a' + 'A');
        atsi_jbuf_add(f->b, &c, 1);
    }
}

static int hour12(const struct tm *t)
{
    return t->tm_hour % 12 == 0 ? 12 : t->tm_hour % 12;
}

/* Year and week of ISO 8601: weeks begin on Monday, the first has the year's first Thursday. */
static int iso_week(const struct tm *t, int *year_out)
{
    int year = t->tm_year + 1900, wday = (t->tm_wday + 6) % 7;
    int week = (t->tm_yday - wday + 10) / 7;
    int jan1 = (wday - t->tm_yday % 7 + 7) % 7; /* Monday is 0 */
    bool long_year = jan1 == 3 || (jan1 == 2 && is_leap(year));
    if (week < 1) { /* the last week of the year before */
        int last_jan1 = (jan1 + 7 - (is_leap(year - 1) ? 2 : 1)) % 7;
        *year_out = year - 1;
        return last_jan1 == 3 || (last_jan1 == 2 && is_leap(year - 1)) ? 53 : 52;
    }
    if (week == 53 && !long_year) {
        *year_out = year + 1;
        return 1;
    }
    *year_out = year;
    return week;
}

static void several(const struct field *f, const char *directives, const struct tm *t);

/* One directive, a case for each; false when it is not known. */
static bool directive(const struct field *f, char d, const struct tm *t)
{
    int year = t->tm_year + 1900;
    switch (d) {
    case 'a':
        name(f, day_names[t->tm_wday], 3);
        return true;
    case 'A':
        name(f, day_names[t->tm_wday], 0);
        return true;
    case 'b':
    case 'h':
        name(f, month_names[t->tm_mon], 3);
        return true;
    case 'B':
        name(f, month_names[t->tm_mon], 0);
        return true;
    case 'p':
        if (f->flag == '#')
            atsi_jbuf_text(f->b, t->tm_hour < 12 ? "am" : "pm");
        else
            atsi_jbuf_text(f->b, t->tm_hour < 12 ? "AM" : "PM");
        return true;
    case 'P':
        atsi_jbuf_text(f->b, t->tm_hour < 12 ? "am" : "pm");
        return true;
    case 'c':
        several(f, "a b e T Y", t);
        return true;
    case 'C':
        number(f, year / 100, 2, '0');
        return true;
    case 'd':
        number(f, t->tm_mday, 2, '0');
        return true;
    case 'D':
    case 'x':
        several(f, "m/d/y", t);
        return true;
    case 'e':
        number(f, t->tm_mday, 2, ' ');
        return true;
    case 'F':
        several(f, "Y-m-d", t);
        return true;
    case 'f': /* microseconds, a directive of Python's datetime */
        atsi_jbuf_text(f->b, "000000");
        return true;
    case 'g':
        (void)iso_week(t, &year);
        number(f, year % 100, 2, '0');
        return true;
    case 'G':
        (void)iso_week(t, &year);
        number(f, year, 1, '0');
        return true;
    case 'H':
        number(f, t->tm_hour, 2, '0');
        return true;
    case 'I':
        number(f, hour12(t), 2, '0');
        return true;
    case 'j':
        number(f, t->tm_yday + 1, 3, '0');
        return true;
    case 'k':
        number(f, t->tm_hour, 2, ' ');
        return true;
    case 'l':
        number(f, hour12(t), 2, ' ');
        return true;
    case 'm':
        number(f, t->tm_mon + 1, 2, '0');
        return true;
    case 'M':
        number(f, t->tm_min, 2, '0');
        return true;
    case 'n':
    case 't':
        atsi_jbuf_text(f->b, d == 'n' ? "\n" : "\t");
        return true;
    case 'r':
        several(f, "I:M:S p", t);
        return true;
    case 'R':
        several(f, "H:M", t);
        return true;
    case 'S':
        number(f, t->tm_sec, 2, '0');
        return true;
    case 'T':
    case 'X':
        several(f, "H:M:S", t);
        return true;
    case 'u':
        number(f, t->tm_wday == 0 ? 7 : t->tm_wday, 1, '0');
        return true;
    case 'U':
        number(f, (t->tm_yday + 7 - t->tm_wday) / 7, 2, '0');
        return true;
    case 'V':
        number(f, iso_week(t, &year), 2, '0');
        return true;
    case 'w':
        number(f, t->tm_wday, 1, '0');
        return true;
    case 'W':
        number(f, (t->tm_yday + 7 - (t->tm_wday + 6) % 7) / 7, 2, '0');
        return true;
    case 'y':
        number(f, year % 100, 2, '0');
        return true;
    case 'Y':
        number(f, year, 1, '0');
        return true;
    case 'z':
    case 'Z': /* Python's naive datetime has no zone */
        return true;
    case '%':
        atsi_jbuf_text(f->b, "%");
        return true;
    default:
        return false;
    }
}

/* Directives with other characters between them. */
static void several(const struct field *f, const char *directives, const struct tm *t)
{
    struct field plain = {f->flag == '^' ? '^' : 0, f->b};
    for (; *directives != '\0'; directives++)
        if (strchr(" :/-", *directives) != NULL || !directive(&plain, *directives, t))
            atsi_jbuf_add(f->b, directives, 1);
}

static bool is_flag(char c)
{
    return c == '-' || c == '_' || c == '0' || c == '^' || c == '#';
}

struct atsi_jv atsi_jstrftime(struct atsi_jr *r, const struct atsi_jstr *format,
                              const struct tm *now)
{
    struct atsi_jbuf b = atsi_jbuf_of(r);
    for (size_t i = 0; i < format->n; i++) {
        struct field f = {0, &b};
        if (format->p[i] != '%') {
            atsi_jbuf_add(&b, format->p + i, 1);
            continue;
        }
        if (i + 1 < format->n && is_flag(format->p[i + 1]))
            f.flag = format->p[++i];
        if (++i >= format->n || !directive(&f, format->p[i], now))
            return atsi_jr_notsup(r, "strftime_now(): the directive '%%%.*s' is not supported",
                                  i < format->n && (unsigned char)format->p[i] < 0x7F ? 1 : 0,
                                  i < format->n ? format->p + i : "");
        if (!atsi_jr_step(r, 1))
            return atsi_jv_fail();
    }
    return atsi_jbuf_take(&b);
}
