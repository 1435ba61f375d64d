/* SPDX-License-Identifier: Apache-2.0
 *
 * Methods of strings, formatting, Unicode, strings marked safe.
 * What is expected was checked against Jinja2 3.1.6. */
#include "jinja_render.h"

static const struct jinja_row rows_methods[] = {
    {"{{ s.strip() }}", "Hello World"},
    {"{{ s.strip(\"Hd\") }}", "ello Worl"},
    {"{{ s.lstrip(\"He\") }}", "llo World"},
    {"{{ s.rstrip(\"ld\") }}", "Hello Wor"},
    {"{{ s.split() }}", "['Hello', 'World']"},
    {"{{ s.split(\"o\") }}", "['Hell', ' W', 'rld']"},
    {"{{ s.split(\"o\", 1) }}", "['Hell', ' World']"},
    {"{{ s.split(maxsplit=0) }}", "['Hello World']"},
    {"{{ s.rsplit(\"o\", 1) }}", "['Hello W', 'rld']"},
    {"{{ s.rsplit() }}", "['Hello', 'World']"},
    {"{{ s.splitlines() }}", "['Hello World']"},
    {"{{ s.startswith(\"He\") }}", "True"},
    {"{{ s.startswith((\"x\", \"H\")) }}", "True"},
    {"{{ s.startswith(\"l\", 2, 3) }}", "True"},
    {"{{ s.endswith(\"ld\") }}", "True"},
    {"{{ s.endswith(\"o\", 0, 5) }}", "True"},
    {"{{ s.replace(\"l\", \"L\") }}", "HeLLo WorLd"},
    {"{{ s.replace(\"l\", \"L\", 1) }}", "HeLlo World"},
    {"{{ s.replace(\"\", \"-\") }}", "-H-e-l-l-o- -W-o-r-l-d-"},
    {"{{ s.upper() }}", "HELLO WORLD"},
    {"{{ s.lower() }}", "hello world"},
    {"{{ s.title() }}", "Hello World"},
    {"{{ s.capitalize() }}", "Hello world"},
    {"{{ s.swapcase() }}", "hELLO wORLD"},
    {"{{ s.find(\"o\") }}", "4"},
    {"{{ s.find(\"o\", 5) }}", "7"},
    {"{{ s.find(\"zz\") }}", "-1"},
    {"{{ s.rfind(\"o\") }}", "7"},
    {"{{ s.index(\"W\") }}", "6"},
    {"{{ s.join([\"a\", \"b\"]) }}", "aHello Worldb"},
    {"{{ s.count(\"l\") }}", "3"},
    {"{{ s.count(\"\") }}", "12"},
    {"{{ s.zfill(13) }}", "00Hello World"},
    {"{{ s.center(14, \"*\") }}", "*Hello World**"},
    {"{{ s.ljust(13, \".\") }}", "Hello World.."},
    {"{{ s.rjust(13) }}", "  Hello World"},
    {"{{ s.isalpha() }}", "False"},
    {"{{ s.isupper() }}", "False"},
    {"{{ s.istitle() }}", "True"},
    {"{{ s.isascii() }}", "True"},
    {"{{ s.partition(\"o\") }}", "('Hell', 'o', ' World')"},
    {"{{ s.rpartition(\"o\") }}", "('Hello W', 'o', 'rld')"},
    {"{{ s.partition(\"zz\") }}", "('Hello World', '', '')"},
    {"{{ s.rpartition(\"zz\") }}", "('', '', 'Hello World')"},
    {"{{ s.removeprefix(\"He\") }}", "llo World"},
    {"{{ s.removesuffix(\"ld\") }}", "Hello Wor"},
    {"{{ \"1a\".isdigit() or \"12\".isdigit() }}", "True"},
    {"{{ \" a\tb  c \".split() }}", "['a', 'b', 'c']"},
    {"{{ \" a b c \".split(none, 1) }}", "['a', 'b c ']"},
    {"{{ \" a b c \".rsplit(none, 1) }}", "[' a b', 'c']"},
    {"{{ \"a\\nb\\r\\nc\\rd\".splitlines() }}", "['a', 'b', 'c', 'd']"},
    {"{{ \"a\\nb\\n\".splitlines(true) }}", "['a\\n', 'b\\n']"},
    {"{{ \"a,b,,c\".split(\",\") }}", "['a', 'b', '', 'c']"},
    {"{{ \"-5\".zfill(4) }}", "-005"},
    {"{{ \"\".split() }}", "[]"},
    {"{{ \"\".split(\",\") }}", "['']"},
};

static const struct jinja_row rows_unicode[] = {
    {"{{ u|length }}", "10"},
    {"{{ u.upper() }}", "NAÏVE SS 日本"},
    {"{{ u.title() }}", "Naïve Ss 日本"},
    {"{{ u.find(\"日\") }}", "8"},
    {"{{ u.split(\"ß\") }}", "['naïve ', ' 日本']"},
    {"{{ u.replace(\"日\", \"x\") }}", "naïve ß x本"},
    {"{{ \"ΑΣ ΑΣΑ Σ\".lower() }}", "ας ασα σ"},
    {"{{ \"ﬁx ŉ\".upper() }}", "FIX ʼN"},
    {"{{ \"ﬁx\".title() }}", "Fix"},
    {"{{ \"İ\".lower() }}", "i̇"},
    {"{{ \"ǆ\".title() }}", "ǅ"},
    {"{{ \"they're\".title() }}", "They'Re"},
    {"{{ \"\\u00a0\\u3000x\\u2003\".strip() }}", "x"},
    {"{{ \"äxä\".strip(\"ä\") }}", "x"},
    {"{{ \"日本\".center(6, \"é\") }}", "éé日本éé"},
    {"{{ u|reverse }}", "本日 ß evïan"},
    {"{{ u|list }}", "['n', 'a', 'ï', 'v', 'e', ' ', 'ß', ' ', '日', '本']"},
    {"{{ \"a\\u2028b\\x85c\".splitlines() }}", "['a', 'b', 'c']"},
    {"{{ \"Ⅷⓐ\".swapcase() }}", "ⅷⒶ"},
    {"{{ \"ªb\".islower() }}", "True"},
};

static const struct jinja_row rows_format_braces[] = {
    {"{{ \"{} {}\".format(1, \"a\") }}", "1 a"},
    {"{{ \"{1} {0}\".format(1, 2) }}", "2 1"},
    {"{{ \"{a}\".format(a=3) }}", "3"},
    {"{{ \"{0.x}\".format(d.c) }}", "[1, 2]"},
    {"{{ \"{0[x][1]}\".format(d.c) }}", "2"},
    {"{{ \"{:>5}|{:<5}|{:^5}\".format(\"a\", \"b\", \"c\") }}", "    a|b    |  c  "},
    {"{{ \"{:05d} {:+d} {: d}\".format(42, 42, 5) }}", "00042 +42  5"},
    {"{{ \"{:,} {:_}\".format(1234567, 1234567) }}", "1,234,567 1_234_567"},
    {"{{ \"{:x} {:X} {:#x} {:o} {:b} {:#b}\".format(255, 255, 255, 8, 5, 5) }}",
     "ff FF 0xff 10 101 0b101"},
    {"{{ \"{:.2f} {:8.3f}|\".format(3.14159, 3.14159) }}", "3.14    3.142|"},
    {"{{ \"{:e} {:g} {:%} {:.1%}\".format(12345.678, 0.00001, 0.25, 0.256) }}",
     "1.234568e+04 1e-05 25.000000% 25.6%"},
    {"{{ \"{!r} {!s:>5}\".format(\"a\", 1) }}", "'a'     1"},
    {"{{ \"{{}}\".format() }}", "{}"},
    {"{{ \"{:*^9}\".format(\"ab\") }}", "***ab****"},
    {"{{ \"{:.2}\".format(\"abc\") }}", "ab"},
    {"{{ \"{}\".format(none) }}", "None"},
    {"{{ \"{:5}\".format(true) }}", "    1"},
    {"{{ \"{:{}}|\".format(\"a\", 5) }}", "a    |"},
    {"{{ \"{:>08.2f} {:08} {:=+8}\".format(-3.14159, -42, 42) }}", "000-3.14 -0000042 +     42"},
    {"{{ \"{:,.2f}\".format(1234567.891) }}", "1,234,567.89"},
    {"{{ \"{:é>5}\".format(1) }}", "éééé1"},
    {"{{ \"{:010}|\".format(3.5) }}", "00000003.5|"},
};

static const struct jinja_row rows_format_percent[] = {
    {"{{ \"%s %s\" % (1, \"a\") }}", "1 a"},
    {"{{ \"%d\" % 3.7 }}", "3"},
    {"{{ \"%5d|%-5d|%05d\" % (1, 2, -3) }}", "    1|2    |-0003"},
    {"{{ \"%+d % d\" % (1, 2) }}", "+1  2"},
    {"{{ \"%x %X %#x %o\" % (255, 255, 255, 8) }}", "ff FF 0xff 10"},
    {"{{ \"%.2f %8.3f|%-8.2f|%08.2f\" % (3.14159, 1.5, 1.5, -1.5) }}",
     "3.14    1.500|1.50    |-0001.50"},
    {"{{ \"%e %g %G\" % (1.5, 1e-10, 1e20) }}", "1.500000e+00 1e-10 1E+20"},
    {"{{ \"%c%c %%\" % (65, \"b\") }}", "Ab %"},
    {"{{ \"%r\" % \"a\" }}", "'a'"},
    {"{{ \"%(a)s %(b)d\" % {\"a\": 1, \"b\": 2} }}", "1 2"},
    {"{{ \"%s\" % [1, 2] }}", "[1, 2]"},
    {"{{ \"%*d|%.*f\" % (5, 1, 2, 1.239) }}", "    1|1.24"},
    {"{{ \"%.3s|%5s|%-5s|\" % (\"abcdef\", \"a\", \"b\") }}", "abc|    a|b    |"},
    {"{{ \"%s-%s\"|format(\"a\", 2) }}", "a-2"},
    {"{{ \"%(a)s\"|format(a=1) }}", "1"},
    {"{{ \"%.0f %.0f\" % (2.5, 3.5) }}", "2 4"},
    {"{{ \"abc\" % {\"a\": 1} }}", "abc"},
};

static const struct jinja_row rows_safe[] = {
    {"{{ (html|safe) + \"<x>\" }}", "<a href=\"x\">&lt;x&gt;"},
    {"{{ \"<x>\" + (html|safe) }}", "&lt;x&gt;<a href=\"x\">"},
    {"{{ (html|safe) ~ \"<x>\" }}", "<a href=\"x\"><x>"},
    {"{{ ((\"<a\"|safe)|upper) + \"<\" }}", "<A&lt;"},
    {"{{ (\"<a\"|safe).replace(\"a\", \"<\") }}", "<&lt;"},
    {"{{ html|e }}", "&lt;a href=&#34;x&#34;&gt;"},
    {"{{ html|e|e }}", "&lt;a href=&#34;x&#34;&gt;"},
    {"{{ html|e|forceescape }}", "&amp;lt;a href=&amp;#34;x&amp;#34;&amp;gt;"},
    {"{{ (\"%s\"|safe) % \"<\" }}", "&lt;"},
    {"{{ (\"{} {:>3}\"|safe).format(\"<\", 1) }}", "&lt;   1"},
    {"{{ (\"<\"|safe)[0] + \"<\" }}", "<&lt;"},
    {"{{ (\"<\"|safe).join([\"<\", \"a\"]) }}", "&lt;<a"},
    {"{{ (\"a<b\"|safe).split(\"<\")[0] + \"<\" }}", "a&lt;"},
    {"{{ (\"<a\"|safe)|trim + \"<\" }}", "<a&lt;"},
    {"{{ (\"<a\"|safe)|title + \"<\" }}", "<A<"},
    {"{{ (\"<a\"|safe) == \"<a\" }}", "True"},
    {"{{ (\"<\"|safe) is escaped }}", "True"},
    {"{{ [html|safe, \"<\"]|join(\"&\") }}", "<a href=\"x\">&<"},
    {"{{ (\"<\"|safe)|tojson }}", "\"<\""},
};

static void test_methods(void **state)
{
    (void)state;
    JINJA_ROWS(rows_methods);
}

static void test_unicode(void **state)
{
    (void)state;
    JINJA_ROWS(rows_unicode);
}

static void test_format_braces(void **state)
{
    (void)state;
    JINJA_ROWS(rows_format_braces);
}

static void test_format_percent(void **state)
{
    (void)state;
    JINJA_ROWS(rows_format_percent);
}

static void test_safe(void **state)
{
    (void)state;
    JINJA_ROWS(rows_safe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_methods),       cmocka_unit_test(test_unicode),
        cmocka_unit_test(test_format_braces), cmocka_unit_test(test_format_percent),
        cmocka_unit_test(test_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
