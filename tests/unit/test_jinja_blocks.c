/* SPDX-License-Identifier: Apache-2.0
 *
 * Statements: if, for, set, filter, with, generation, and where variables live.
 * What is expected was checked against Jinja2 3.1.6. */
#include "jinja_render.h"

static const struct jinja_row rows_conditions[] = {
    {"{% if x %}1{% elif l %}2{% else %}3{% endif %}", "2"},
    {"{% if s is defined and s %}1{% endif %}", "1"},
    {"{% if none %}1{% elif 0 %}2{% elif '' %}3{% else %}4{% endif %}", "4"},
    {"{% if true: %}x{% endif %}", "x"},
    {"{% if false %}{{ s|nosuch }}{% endif %}ok", "ok"},
    {"{{ s|nosuch if false else 1 }}", "1"},
    {"{% print 1, s %}", "1Hello World"},
};

static const struct jinja_row rows_loops[] = {
    {"{% for i in l %}{{ i }},{% endfor %}", "3,1,2,"},
    {"{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ "
     "loop.first }}{{ loop.last }}{{ loop.length }}|{{ loop.previtem }}|{{ loop.nextitem }};{% "
     "endfor %}",
     "1032TrueFalse3||1;2121FalseFalse3|3|2;3210FalseTrue3|1|;"},
    {"{% for i in [] %}a{% else %}E{% endfor %}", "E"},
    {"{% for i in l %}{% break %}{% else %}E{% endfor %}", "E"},
    {"{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "32"},
    {"{% for i in l %}{{ i }}{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}", "31"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "b=2;A=1;c={'x': [1, 2]};"},
    {"{% for k in d %}{{ k }};{% endfor %}", "b;A;c;"},
    {"{% for (a, b), c in [[[1,2],3]] %}{{ a ~ b ~ c }}{% endfor %}", "123"},
    {"{% for c in 'añb' %}{{ c }}-{% endfor %}", "a-ñ-b-"},
    {"{% for i in x %}a{% else %}E{% endfor %}", "E"},
    {"{% for i in l if i > 1 %}{{ i }}{{ loop.index }}{{ loop.last }}{% endfor %}",
     "31False22True"},
    {"{% for i in l if i > 1 %}{{ loop.length }}{{ loop.revindex }}{% endfor %}", "2221"},
    {"{% for i in l if i > 5 %}{{ i }}{% else %}E{% endfor %}", "E"},
    {"{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "aba"},
    {"{% for i in [1,1,2] %}{{ loop.changed(i) }}{% endfor %}", "TrueFalseTrue"},
    {"{% for i in 1, 2 %}{{ i }}{% endfor %}", "12"},
    {"{% for i in [1,[2,[3]]] recursive %}{% if i is iterable %}[{{ loop(i) }}]{% else %}{{ i "
     "}}@{{ loop.depth }}{% endif %}{% endfor %}",
     "1@1[2@2[3@3]]"},
    {"{% set ns = namespace(done=false) %}{% for i in [1,2,3,4] if not ns.done %}{{ i }}{% if i == "
     "2 %}{% set ns.done = true %}{% endif %}{% endfor %}",
     "12"},
    {"{% for i in l|map('string') %}{{ i }}{{ loop.last }}{{ loop.length }}{% endfor %}",
     "3False31False32True3"},
    {"{% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{{ "
     "loop.index }}{% endfor %}",
     "100 201 1110 211 2"},
    {"{% for x in x %}{{ x }}{% else %}{{ x }}{% endfor %}", ""},
};

static const struct jinja_row rows_scopes[] = {
    {"{% set x = 1 %}{% for i in l %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "1212121"},
    {"{% for i in l %}{% if loop.first %}{% set y = i %}{% endif %}{{ y }}{% endfor %}{{ y }}",
     "3"},
    {"{% for i in l %}{{ n }}{% set n = 1 %}{% endfor %}{{ n }}", "7777"},
    {"{% for i in l %}{{ s }}{% endfor %}{% set s = 'x' %}{{ s }}", "x"},
    {"{{ s }}{% set s = 'x' %}{{ s }}", "Hello Worldx"},
    {"{% if true %}{% set s = 'x' %}{% endif %}{{ s }}", "x"},
    {"{% if false %}{% set s = 'x' %}{% endif %}{{ s }}", "Hello World"},
    {"{% if false %}{% set s = 1 %}{% elif false %}{% set s = 2 %}{% endif %}{{ s }}",
     "Hello World"},
    {"{% for i in l %}{% set s = s ~ i %}{% endfor %}{{ s }}", "Hello World"},
    {"{% set s = s ~ '!' %}{{ s }}", "Hello World!"},
    {"{% set ns = namespace(n=0) %}{% for i in l %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n "
     "}}{{ ns }}",
     "6<Namespace {'n': 6}>"},
    {"{% for i in l %}{% set k = i %}{% for j in [1] %}{% set k = 9 %}{{ k }}{% endfor %}{{ k }}{% "
     "endfor %}",
     "939192"},
    {"{% for i in l %}{% if i == 1 %}{% set k = 1 %}{% endif %}{{ k|default('-') }}{% endfor %}",
     "-1-"},
    {"{% for m in msgs[:1] %}{{ m.role }}{% set m = {'role':'z'} %}{{ m.role }}{% endfor %}",
     "systemz"},
    {"{% set i = 5 %}{% for i in l %}{% endfor %}{{ i }}", "5"},
    {"{% if x %}{% set x = 1 %}{% else %}{{ x is defined }}{% endif %}", "False"},
};

static const struct jinja_row rows_blocks[] = {
    {"{% set a %}x{{ n }}y{% endset %}{{ a }}|", "x7y|"},
    {"{% set a | upper %}x{% endset %}{{ a }}", "X"},
    {"{% set a %}{% set b = 1 %}{{ b }}{% endset %}{{ a }}{{ b is defined }}", "1False"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"},
    {"{% set (a, b) = 'xy' %}{{ a ~ b }}", "xy"},
    {"{% set a = 1, 2 %}{{ a }}", "(1, 2)"},
    {"{% filter upper %}a{{ s }}b{% endfilter %}", "AHELLO WORLDB"},
    {"{% filter replace('a', 'b')|upper %}aba{% endfilter %}", "BBB"},
    {"{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "1False"},
    {"{% with n = n + 1 %}{{ n }}{% endwith %}{{ n }}", "87"},
    {"{% generation %}{% set b = 1 %}{{ b }}{{ s }}{% endgeneration %}{{ b is defined }}",
     "1Hello WorldFalse"},
    {"{% for i in l %}{% set x %}{{ i }}{% if i==1 %}{% break %}{% endif %}{% endset %}{{ x }}{% "
     "endfor %}",
     "3"},
};

static const struct jinja_row rows_macros[] = {
    {"{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f(1,3) }}{{ "
     "f(a=1,c=5) }}{{ f() }}{{ f(1,2,3) }}",
     "12x;13x;125;2x;123;"},
    {"{% macro f(a) %}{{ a is defined }}{% endmacro %}{{ f() }}", "False"},
    {"{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1,2,x=3) }}", "(1, 2){'x': 3}"},
    {"{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(4) }}", "4"},
    {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(5) }}",
     "543210"},
    {"{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}hi{{ s }}{% endcall %}",
     "<hiHello World>"},
    {"{% macro f() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b=5) f() %}{{ a }}{{ b }}{% "
     "endcall %}",
     "12"},
    {"{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}{% call f() %}{% endcall %}",
     "FalseTrue"},
    {"{% macro f(caller=none) %}{{ caller() if caller else 'no' }}{% endmacro %}{{ f() }}{% call "
     "f() %}y{% endcall %}",
     "noy"},
    {"{% macro f(a) %}{{ a }}{% endmacro %}{{ f }}{{ f.name }}{{ f.arguments }}",
     "<Macro 'f'>f('a',)"},
    {"{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'a':2}) }}", "12"},
    {"{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}2{% endmacro %}{{ f() }}", "2"},
    {"{% macro m() %}{{ q1 }}{% endmacro %}{% set q1 = 1 %}{{ m() }}", "1"},
    {"{% macro m() %}{% set s = 1 %}{{ s }}{% endmacro %}{{ m() }}{{ s }}", "1Hello World"},
    {"{% macro m() %}{{ s }}{% endmacro %}{{ m() }}{% set s = 'new' %}{{ m() }}", "new"},
    {"{% for i in l %}{% macro m() %}{{ i }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}{{ "
     "m is defined }}",
     "311223False"},
    {"{% if true %}{% macro f() %}2{% endmacro %}{% endif %}{{ f() }}", "2"},
    {"{% macro f(x) %}{{ x }}{% set x = 1 %}{{ x }}{% endmacro %}{{ f(0) }}", "01"},
    {"{% macro f(a) -%}  {{ a }}  {%- endmacro %}[{{ f(1) }}]", "[1]"},
};

static void test_conditions(void **state)
{
    (void)state;
    JINJA_ROWS(rows_conditions);
}

static void test_loops(void **state)
{
    (void)state;
    JINJA_ROWS(rows_loops);
}

static void test_scopes(void **state)
{
    (void)state;
    JINJA_ROWS(rows_scopes);
}

static void test_blocks(void **state)
{
    (void)state;
    JINJA_ROWS(rows_blocks);
}

static void test_macros(void **state)
{
    (void)state;
    JINJA_ROWS(rows_macros);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conditions), cmocka_unit_test(test_loops),
        cmocka_unit_test(test_scopes),     cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_macros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
