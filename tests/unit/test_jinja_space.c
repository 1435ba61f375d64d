/* SPDX-License-Identifier: Apache-2.0
 *
 * White space control, comments, raw blocks, literals in tags.
 * What is expected was checked against Jinja2 3.1.6. */
#include "jinja_render.h"

static const struct jinja_row rows_tags[] = {
    {"x \n \t {%- if true -%} \n  y\n {%- endif -%}\n\n z \n", "xyz "},
    {"x \n \t {%- if true %} \n  y\n {%- endif %}\n\n z \n", "x \n  y\n z "},
    {"x \n \t {%- if true +%} \n  y\n {%- endif +%}\n\n z \n", "x \n  y\n\n z "},
    {"x \n \t {% if true -%} \n  y\n {% endif -%}\n\n z \n", "x \ny\nz "},
    {"x \n \t {% if true %} \n  y\n {% endif %}\n\n z \n", "x \n \n  y\n\n z "},
    {"x \n \t {% if true +%} \n  y\n {% endif +%}\n\n z \n", "x \n \n  y\n\n\n z "},
    {"x \n \t {%+ if true -%} \n  y\n {%+ endif -%}\n\n z \n", "x \n \t y\n z "},
    {"x \n \t {%+ if true %} \n  y\n {%+ endif %}\n\n z \n", "x \n \t  \n  y\n \n z "},
    {"x \n \t {%+ if true +%} \n  y\n {%+ endif +%}\n\n z \n", "x \n \t  \n  y\n \n\n z "},
    {"x \n  {{- 1 -}} \n y\n", "x1y"},
    {"x \n  {{- 1 }} \n y\n", "x1 \n y"},
    {"x \n  {{ 1 -}} \n y\n", "x \n  1y"},
    {"x \n  {{ 1 }} \n y\n", "x \n  1 \n y"},
    {"x \n  {{+ 1 -}} \n y\n", "x \n  1y"},
    {"x \n  {{+ 1 }} \n y\n", "x \n  1 \n y"},
};

static const struct jinja_row rows_comments[] = {
    {"x \n \t {#- c {{ %} -#} \n  y", "xy"},
    {"x \n \t {#- c {{ %} #} \n  y", "x \n  y"},
    {"x \n \t {#- c {{ %} +#} \n  y", "x \n  y"},
    {"x \n \t {# c {{ %} -#} \n  y", "x \ny"},
    {"x \n \t {# c {{ %} #} \n  y", "x \n \n  y"},
    {"x \n \t {# c {{ %} +#} \n  y", "x \n \n  y"},
    {"x \n \t {#+ c {{ %} -#} \n  y", "x \n \t y"},
    {"x \n \t {#+ c {{ %} #} \n  y", "x \n \t  \n  y"},
    {"x \n \t {#+ c {{ %} +#} \n  y", "x \n \t  \n  y"},
    {"a{# multi\nline #}\nb", "ab"},
    {"{#- #}a{# #}", "a"},
    {"{# a #}\n{# b #}\nc", "c"},
};

static const struct jinja_row rows_raw_blocks[] = {
    {"x\n  {%- raw -%}\n {{ x }} {% if %}\n  {%- endraw -%}\n z", "x{{ x }} {% if %}z"},
    {"x\n  {%- raw %}\n {{ x }} {% if %}\n  {%- endraw %}\n z", "x\n {{ x }} {% if %} z"},
    {"x\n  {% raw -%}\n {{ x }} {% if %}\n  {% endraw -%}\n z", "x\n{{ x }} {% if %}\nz"},
    {"x\n  {% raw %}\n {{ x }} {% if %}\n  {% endraw %}\n z", "x\n\n {{ x }} {% if %}\n z"},
    {"x\n  {%+ raw -%}\n {{ x }} {% if %}\n  {%+ endraw -%}\n z", "x\n  {{ x }} {% if %}\n  z"},
    {"x\n  {%+ raw %}\n {{ x }} {% if %}\n  {%+ endraw %}\n z", "x\n  \n {{ x }} {% if %}\n   z"},
    {"{% raw %}{{ '{% raw %}' }}{% endraw %}", "{{ '{% raw %}' }}"},
    {"{% raw %}", ""},
};

static const struct jinja_row rows_ends[] = {
    {"", ""},
    {"\n", ""},
    {"a\n", "a"},
    {"a\n\n", "a\n"},
    {"a\r\nb\rc\r\n", "a\nb\nc"},
    {"\n{% if true %}\n\n{% endif %}\n\n", "\n\n"},
    {"{% if true %}a{% endif %}\n{% if true %}b{% endif %}\n", "ab"},
    {"  {% if true %}  a  {% endif %}  b", "  a    b"},
    {"\302\240{% if true %}x{% endif %}", "x"},
    {"a\302\240\343\200\200 {%- if true %}x{% endif %}", "ax"},
    {"{{ 'a' }}\n{{ 'b' }}\n", "a\nb"},
};

static const struct jinja_row rows_brackets[] = {
    {"{{ '}}' }}{{ '{%' }}{% set a = '%}' %}{{ a }}", "}}{%%}"},
    {"{{ {'a':{'b':1}}.a.b }}", "1"},
    {"{{{'a':1}.a}}", "1"},
    {"{{ {'a':{}} }}", "{'a': {}}"},
};

static const struct jinja_row rows_literals[] = {
    {"{{ 1_000 }}", "1000"},
    {"{{ 0x1F }}", "31"},
    {"{{ 0b101 }}", "5"},
    {"{{ 0o17 }}", "15"},
    {"{{ 1_0.5e-3 }}", "0.0105"},
    {"{{ 1e5 }}", "100000.0"},
    {"{{ 1.5E+2 }}", "150.0"},
    {"{{ \"a\" 'b' }}", "ab"},
    {"{{ 'it\\'s' }}", "it's"},
    {"{{ \"\\x41\\u00e9\\U0001F389\\101\\q\\n\\\\\" }}", "Aé🎉A\\q\n\\"},
    {"{{ [1,] }}", "[1]"},
    {"{{ (1,) }}", "(1,)"},
    {"{{ () }}", "()"},
    {"{{ {\"a\": 1, 2: none,} }}", "{'a': 1, 2: None}"},
    {"{{ true ~ True }}", "TrueTrue"},
    {"{{ none ~ None }}", "NoneNone"},
    {"{{ false ~ False }}", "FalseFalse"},
};

static void test_tags(void **state)
{
    (void)state;
    JINJA_ROWS(rows_tags);
}

static void test_comments(void **state)
{
    (void)state;
    JINJA_ROWS(rows_comments);
}

static void test_raw_blocks(void **state)
{
    (void)state;
    JINJA_ROWS(rows_raw_blocks);
}

static void test_ends(void **state)
{
    (void)state;
    JINJA_ROWS(rows_ends);
}

static void test_brackets(void **state)
{
    (void)state;
    JINJA_ROWS(rows_brackets);
}

static void test_literals(void **state)
{
    (void)state;
    JINJA_ROWS(rows_literals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tags),       cmocka_unit_test(test_comments),
        cmocka_unit_test(test_raw_blocks), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_brackets),   cmocka_unit_test(test_literals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
