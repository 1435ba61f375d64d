/* SPDX-License-Identifier: Apache-2.0
 *
 * What a template gets wrong is one message with its line; what would take too much is refused. */
#include "jinja_render.h"

#include <stdlib.h>
#include <string.h>

#include "text/chat_template.h"

struct error_row {
    const char *source;
    int status;
    const char *words;
};

static void check(const struct error_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        jinja_fails(rows[i].source, rows[i].status, rows[i].words);
}
#define CHECK(rows) check(rows, sizeof(rows) / sizeof(rows)[0])

static void test_syntax(void **state)
{
    static const struct error_row rows[] = {
        {"a\n\n{{ 1 + }}", ATSI_EFORMAT, "line 3: unexpected '}}', expected an expression"},
        {"{{ 'a }}", ATSI_EFORMAT, "line 1: a string without its closing quote"},
        {"\n{# x", ATSI_EFORMAT, "line 2: a comment without #}"},
        {"\n\n{% raw %} x", ATSI_EFORMAT, "line 3: a raw block without"},
        {"x\n{{ 1", ATSI_EFORMAT, "line 2: {{ without }}"},
        {"{% if x", ATSI_EFORMAT, "line 1: {% without %}"},
        {"{{ (1 }}", ATSI_EFORMAT, "line 1: unexpected '}', expected ')'"},
        {"{{ 1) }}", ATSI_EFORMAT, "line 1: unexpected ')'"},
        {"{{ a $ }}", ATSI_EFORMAT, "line 1: unexpected character '$'"},
        {"{{ a b }}", ATSI_EFORMAT, "unexpected 'b', expected '}}'"},
        {"{{ }}", ATSI_EFORMAT, "expected an expression"},
        {"{% %}", ATSI_EFORMAT, "expected the name of a tag"},
        {"a\n{% foo %}", ATSI_EFORMAT, "line 2: unknown tag 'foo'"},
        {"{% if true %}\n{% endfor %}", ATSI_EFORMAT, "line 2: unknown tag 'endfor', 'endif' exp"},
        {"{% for i in l %}\nx", ATSI_EFORMAT, "line 2: unexpected the end of the template"},
        {"{% if true %}{% else %}{% elif true %}{% endif %}", ATSI_EFORMAT, "unknown tag 'elif'"},
        {"{% set 1 = 2 %}", ATSI_EFORMAT, "cannot be assigned to"},
        {"{% set a.b.c = 2 %}", ATSI_EFORMAT, "line 1: unexpected '.'"},
        {"{% set a %}x", ATSI_EFORMAT, "expected endset"},
        {"{% break %}", ATSI_EFORMAT, "break outside of a loop"},
        {"{% for i in l %}{% macro m() %}\n{% continue %}{% endmacro %}{% endfor %}", ATSI_EFORMAT,
         "line 2: continue outside of a loop"},
        {"{% for i in l %}\n{% set loop = 1 %}{% endfor %}", ATSI_EFORMAT, "line 2: 'loop' cannot"},
        {"{% macro f(a=1, b) %}{% endmacro %}", ATSI_EFORMAT, "expected a default"},
        {"{% macro f(a, a) %}{% endmacro %}", ATSI_EFORMAT, "two parameters of one name"},
        {"{% macro f(caller) %}{{ caller() }}{% endmacro %}", ATSI_EFORMAT, "'caller'"},
        {"{% call 1 %}{% endcall %}", ATSI_EFORMAT, "expected a call"},
        {"{{ f(a=1, 2) }}", ATSI_EFORMAT, "expected a named argument"},
        {"{{ '\\x4' }}", ATSI_EFORMAT, "2 hexadecimal digits"},
        {"{{ '\\ud800' }}", ATSI_EFORMAT, "U+D800 is not a character"},
        {"{{ x is defined is none }}", ATSI_EFORMAT, "no second test"},
        {"{{ 007 }}", ATSI_EFORMAT, "unexpected a number"},
    };
    (void)state;
    CHECK(rows);
}

static void test_unsupported(void **state)
{
    static const struct error_row rows[] = {
        {"\n{% include 'x' %}", ATSI_ENOTSUP, "line 2: the tag 'include' is not supported"},
        {"{% block a %}{% endblock %}", ATSI_ENOTSUP, "the tag 'block' is not supported"},
        {"a\n{{ s|urlize }}", ATSI_ENOTSUP, "line 2: the filter 'urlize' is not supported"},
        {"{{ s|nosuch }}", ATSI_ENOTSUP, "line 1: the filter 'nosuch' is not supported"},
        {"{{ s is nosuch }}", ATSI_ENOTSUP, "the test 'nosuch' is not supported"},
        {"{% if true %}\n{{ s|nosuch }}{% endif %}", ATSI_ENOTSUP, "line 2: the filter 'nosuch'"},
        {"{{ l|map('nosuch')|list }}", ATSI_ENOTSUP, "the filter 'nosuch'"},
        {"{{ l|select('nosuch')|list }}", ATSI_ENOTSUP, "the test 'nosuch'"},
        {"{{ 9223372036854775807 + 1 }}", ATSI_ENOTSUP, "integers beyond 64 bits"},
        {"{{ -9223372036854775807 - 2 }}", ATSI_ENOTSUP, "integers beyond 64 bits"},
        {"{{ (-9223372036854775807 - 1) // -1 }}", ATSI_ENOTSUP, "integers beyond 64 bits"},
        {"{{ 3 ** 60 }}", ATSI_ENOTSUP, "integers beyond 64 bits"},
        {"{{ 99999999999999999999 }}", ATSI_ENOTSUP, "integers beyond 64 bits"},
        {"{{ '99999999999999999999'|int }}", ATSI_ENOTSUP, "integers beyond 64 bits"},
        {"{{ 1e30|int }}", ATSI_ENOTSUP, "integers beyond 64 bits"},
        {"{{ -3 ** n }}", ATSI_ENOTSUP, "a signed number before **"},
        {"{{ d.keys() - d.keys() }}", ATSI_ENOTSUP, "- with keys()"},
        {"{{ (-1) ** 0.5 }}", ATSI_ENOTSUP, "complex numbers"},
        {"{{ s.upper }}", ATSI_ENOTSUP, "printing a method"},
        {"{{ l|map('string') }}", ATSI_ENOTSUP, "printing a generator"},
        {"{{ s.encode() }}", ATSI_ENOTSUP, "'encode' of a str"},
        {"{{ '\\N{BULLET}' }}", ATSI_ENOTSUP, "\\N{...} in a string"},
        {"{{ cycler(1) }}", ATSI_ENOTSUP, "cycler"},
        {"{{ '{:n}'.format(1) }}", ATSI_ENOTSUP, "format()"},
    };
    (void)state;
    CHECK(rows);
}

static void test_values(void **state)
{
    static const struct error_row rows[] = {
        {"a\n{{ x.y }}", ATSI_EFORMAT, "line 2: 'x' is undefined"},
        {"{{ d.zz.y }}", ATSI_EFORMAT, "dict object has no attribute 'zz'"},
        {"{{ d['zz']['y'] }}", ATSI_EFORMAT, "dict object has no attribute 'zz'"},
        {"{{ l[9].y }}", ATSI_EFORMAT, "list object has no attribute '9'"},
        {"{{ nosuch() }}", ATSI_EFORMAT, "'nosuch' is undefined"},
        {"{{ x + 1 }}", ATSI_EFORMAT, "'x' is undefined"},
        {"{{ 'a' + x }}", ATSI_EFORMAT, "'x' is undefined"},
        {"{{ x < 1 }}", ATSI_EFORMAT, "'x' is undefined"},
        {"{{ -x }}", ATSI_EFORMAT, "'x' is undefined"},
        {"{{ (1 if false).y }}", ATSI_EFORMAT, "the inline if-expression gave no value"},
        {"{{ l.append(4) }}", ATSI_EFORMAT, "'append' may not be used"},
        {"{{ d.update({}) }}", ATSI_EFORMAT, "'update' may not be used"},
        {"{{ 'a' + 1 }}", ATSI_EFORMAT, "can only concatenate str (not \"int\")"},
        {"{{ none + 'a' }}", ATSI_EFORMAT, "'NoneType' and 'str'"},
        {"{{ 1 < 'a' }}", ATSI_EFORMAT, "'<' not supported between instances of 'int' and 'str'"},
        {"{{ [2, 'a']|sort }}", ATSI_EFORMAT, "'<' not supported"},
        {"{{ 1 in 'abc' }}", ATSI_EFORMAT, "requires string"},
        {"{{ 1 in 5 }}", ATSI_EFORMAT, "'int' object is not iterable"},
        {"{{ 1 / 0 }}", ATSI_EFORMAT, "division by zero"},
        {"{{ 1.5 % 0 }}", ATSI_EFORMAT, "zero"},
        {"{{ s() }}", ATSI_EFORMAT, "'str' object is not callable"},
        {"{{ {[]: 1} }}", ATSI_EFORMAT, "unhashable type: 'list'"},
        {"{{ s[::0] }}", ATSI_EFORMAT, "step cannot be zero"},
        {"{{ s[1:'a'] }}", ATSI_EFORMAT, "slice indices"},
        {"{% for i in 5 %}{% endfor %}", ATSI_EFORMAT, "'int' object is not iterable"},
        {"{% set a, b = [1] %}", ATSI_EFORMAT, "not enough values to unpack (expected 2)"},
        {"{% set a, b = [1, 2, 3] %}", ATSI_EFORMAT, "too many values to unpack (expected 2)"},
        {"{% set d.a = 1 %}", ATSI_EFORMAT, "what is no namespace"},
        {"{% macro f(a) %}{% endmacro %}\n{{ f(1, 2) }}", ATSI_EFORMAT,
         "line 2: macro 'f' takes not more than 1 argument(s), 2 given"},
        {"{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", ATSI_EFORMAT, "takes no argument 'b'"},
        {"{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}", ATSI_EFORMAT, "no caller defined"},
        {"{{ dict(**{'a': 1}, **{'b': 1}) }}", ATSI_EFORMAT, "unexpected '**'"},
        {"{{ dict(a=1, **{'a': 1}) }}", ATSI_EFORMAT, "'a' is given twice"},
        {"{{ s|trim('a', 'b') }}", ATSI_EFORMAT, "trim() takes at most 1 argument(s), 2 given"},
        {"{{ s|trim(foo=1) }}", ATSI_EFORMAT, "no argument named 'foo'"},
        {"{{ s|replace('a') }}", ATSI_EFORMAT, "replace() needs at least 2 argument(s)"},
        {"{{ s.split('') }}", ATSI_EFORMAT, "empty separator"},
        {"{{ x|tojson }}", ATSI_EFORMAT, "Undefined is not JSON serializable"},
        {"{{ {(1, 2): 3}|tojson }}", ATSI_EFORMAT, "keys must be str"},
        {"{{ '%s' % () }}", ATSI_EFORMAT, "not enough values"},
        {"{{ '%s' % (1, 2) }}", ATSI_EFORMAT, "not all arguments converted"},
        {"{{ '%d' % 'a' }}", ATSI_EFORMAT, "%d needs a number"},
        {"{{ '{}'.format() }}", ATSI_EFORMAT, "not enough arguments"},
        {"{{ '{'.format() }}", ATSI_EFORMAT, "a single '{'"},
        {"{{ '{:d}'.format('a') }}", ATSI_EFORMAT, "not for a string"},
        {"{{ s.index('zz') }}", ATSI_EFORMAT, "substring not found"},
        {"{{ l|map('string')|length }}", ATSI_EFORMAT, "has no len()"},
        {"{% for i in l %}{{ loop(l) }}{% endfor %}", ATSI_EFORMAT, "'recursive' marker"},
        {"{{ strftime_now('%Y') }}", ATSI_EFORMAT, "no date was given"},
    };
    (void)state;
    CHECK(rows);
}

/* "{{ ((((...1...)))) }}" and its like: n times `open`, `middle`, n times `close`. */
static void fails_nested(const char *open, const char *middle, const char *close, size_t n,
                         const char *words)
{
    size_t no = strlen(open), nm = strlen(middle), nc = strlen(close);
    char *source = malloc(n * (no + nc) + nm + 1), *p = source;
    assert_non_null(source);
    for (size_t i = 0; i < n; i++, p += no)
        memcpy(p, open, no);
    memcpy(p, middle, nm);
    p += nm;
    for (size_t i = 0; i < n; i++, p += nc)
        memcpy(p, close, nc);
    *p = '\0';
    jinja_fails(source, ATSI_EFORMAT, words);
    free(source);
}

static void test_deep_source(void **state)
{
    (void)state;
    fails_nested("{% if 1 %}", "x", "{% endif %}", 100000, "levels deep");
    fails_nested("{% for i in l %}", "x", "{% endfor %}", 100000, "levels deep");
    fails_nested("{% macro m() %}", "x", "{% endmacro %}", 100000, "levels deep");
}

static void test_deep_expressions(void **state)
{
    char *source = malloc(400100);
    (void)state;
    assert_non_null(source);
    for (int kind = 0; kind < 4; kind++) {
        static const char *const pieces[] = {"(", "- ", "1 + ", "not "};
        size_t n = strlen(pieces[kind]), at = 3;
        memcpy(source, "{{ ", 3);
        for (int i = 0; i < 100000; i++, at += n)
            memcpy(source + at, pieces[kind], n);
        (void)strcpy(source + at, "1 }}");
        jinja_fails(source, ATSI_EFORMAT, "levels deep");
    }
    free(source);
}

static void test_limits(void **state)
{
    static const struct error_row rows[] = {
        {"{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}\n{{ f(0) }}", ATSI_EFORMAT,
         "line 1: nested more than"},
        {"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", ATSI_EFORMAT, "nested more"},
        {"{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
         ATSI_EFORMAT, "the template takes more than 10000000 steps"},
        {"{{ range(100001) }}", ATSI_EFORMAT, "range() of more than 100000 items"},
        {"{{ range(-9223372036854775807, 9223372036854775807) }}", ATSI_EFORMAT, "range() of more"},
        {"{{ 'ab' * 99999999 }}", ATSI_EFORMAT, "a string of more than 64 MiB"},
        {"{{ 'ab' * 9223372036854775807 }}", ATSI_EFORMAT, "a string of more than 64 MiB"},
        {"{{ [1] * 9223372036854775807 }}", ATSI_EFORMAT, "the template takes more than"},
        {"{{ '{:>9999999999}'.format(1) }}", ATSI_EFORMAT, "invalid format specifier"},
        {"{{ '%9999999999d' % 1 }}", ATSI_EFORMAT, "too large"},
        {"{{ 'x'.center(9223372036854775807) }}", ATSI_EFORMAT, "a string of more than"},
        {"{% set s = 'x' * 9999999 %}{% for i in range(9) %}{{ s }}{% endfor %}", ATSI_EFORMAT,
         "the text is longer than 64 MiB"},
        {"{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
         "{% endfor %}",
         ATSI_EFORMAT, "the template takes more than"},
        {"{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}"
         "{% endfor %}{{ ns.l }}",
         ATSI_EFORMAT, "nested more than"},
        {"{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}"
         "{% endfor %}{{ ns.l|tojson }}",
         ATSI_EFORMAT, "nested more than"},
        {"{% set ns = namespace(l=[], m=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}"
         "{% set ns.m = [ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
         ATSI_EFORMAT, "nested more than"},
        {"{% set ns = namespace(g=[1]) %}{% for i in range(5000) %}"
         "{% set ns.g = ns.g|map('string') %}{% endfor %}{{ ns.g|list }}",
         ATSI_EFORMAT, "nested more than"},
        {"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", ATSI_EFORMAT, "nested more"},
    };
    (void)state;
    CHECK(rows);
}

/* What is large but allowed works: text gathered piece by piece takes no more than its length. */
static void test_gathering(void **state)
{
    (void)state;
    jinja_gives("{% set ns = namespace(s='') %}{% for i in range(100000) %}"
                "{% set ns.s = ns.s + 'some words ' %}{% endfor %}{{ ns.s|length }}",
                "1100000");
    jinja_gives("{{ ('ab' * 1000000).replace('a', 'xyz')|length }}", "4000000");
    jinja_gives("{{ range(100000)|sort(reverse=true)|first }}", "99999");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_syntax),           cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_values),           cmocka_unit_test(test_deep_source),
        cmocka_unit_test(test_deep_expressions), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_gathering),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
