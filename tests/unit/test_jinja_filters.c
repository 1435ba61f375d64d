/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters and tests.
 * What is expected was checked against Jinja2 3.1.6. */
#include "jinja_render.h"

static const struct jinja_row rows_text[] = {
    {"{{ s|upper }}", "HELLO WORLD"},
    {"{{ s|lower }}", "hello world"},
    {"{{ \"heLLo wORLD-x (y\"|title }}", "Hello World-X (Y"},
    {"{{ \"hELLO\"|capitalize }}", "Hello"},
    {"{{ \"  x \"|trim }}", "x"},
    {"{{ \"xxaxx\"|trim(\"x\") }}", "a"},
    {"{{ s|replace(\"l\", \"L\", 2) }}", "HeLLo World"},
    {"{{ n|string ~ f }}", "72.5"},
    {"{{ \"a\\nb\\n\\nc\"|indent(2) }}", "a\n  b\n\n  c"},
    {"{{ \"a\\nb\\n\\nc\"|indent(\"> \", true, true) }}", "> a\n> b\n> \n> c"},
    {"{{ \"ab\"|center(7) }}", "   ab  "},
    {"{{ \"foo bar baz qux\"|truncate(9) }}", "foo..."},
    {"{{ \"foo bar baz qux\"|truncate(9, true) }}", "foo ba..."},
    {"{{ \"foo bar baz qux\"|truncate(11, false, \"..\", 0) }}", "foo bar.."},
    {"{{ \"a b, c-d\"|wordcount }}", "4"},
};

static const struct jinja_row rows_numbers[] = {
    {"{{ \"42\"|int }}", "42"},
    {"{{ \" 4_2 \"|int }}", "42"},
    {"{{ \"0x1F\"|int(base=16) }}", "31"},
    {"{{ \"0b11\"|int(base=0) }}", "3"},
    {"{{ \"42.9\"|int }}", "42"},
    {"{{ \"x\"|int(5) }}", "5"},
    {"{{ none|int }}", "0"},
    {"{{ -3.9|int }}", "-3"},
    {"{{ true|int }}", "1"},
    {"{{ \"1e3\"|float }}", "1000.0"},
    {"{{ \"x\"|float }}", "0.0"},
    {"{{ \"x\"|float(2) }}", "2"},
    {"{{ -3|abs }}", "3"},
    {"{{ 2.5|round }}", "2.0"},
    {"{{ 3.5|round }}", "4.0"},
    {"{{ 2.675|round(2) }}", "2.67"},
    {"{{ 1234.5|round(-2) }}", "1200.0"},
    {"{{ 25|round(-1) }}", "20"},
    {"{{ 35|round(-1) }}", "40"},
    {"{{ 7|round }}", "7"},
    {"{{ 2.11|round(1, \"ceil\") }}", "2.2"},
    {"{{ 2.19|round(1, \"floor\") }}", "2.1"},
    {"{{ -2.5|round }}", "-2.0"},
    {"{{ (0.1 + 0.2)|round(2) }}", "0.3"},
};

static const struct jinja_row rows_defaults[] = {
    {"{{ x|default(\"D\") }}", "D"},
    {"{{ \"\"|default(\"D\") }}", ""},
    {"{{ \"\"|default(\"D\", true) }}", "D"},
    {"{{ none|d(\"D\") }}", "None"},
    {"{{ none|d(\"D\", boolean=true) }}", "D"},
    {"{{ x|d }}", ""},
    {"{{ d.zz|default(d.b) }}", "2"},
};

static const struct jinja_row rows_sequences[] = {
    {"{{ l|length }}", "3"},
    {"{{ d|count }}", "3"},
    {"{{ l|first }}", "3"},
    {"{{ l|last }}", "2"},
    {"{{ \"ab\"|first }}", "a"},
    {"{{ []|first is defined }}", "False"},
    {"{{ l|list }}", "[3, 1, 2]"},
    {"{{ d|list }}", "['b', 'A', 'c']"},
    {"{{ l|reverse|list }}", "[2, 1, 3]"},
    {"{{ l|sum }}", "6"},
    {"{{ []|sum }}", "0"},
    {"{{ [[1], [2]]|sum(start=[]) }}", "[1, 2]"},
    {"{{ msgs|sum(attribute=\"n\", start=0) if false else 1 }}", "1"},
    {"{{ l|join }}", "312"},
    {"{{ l|join(\", \") }}", "3, 1, 2"},
    {"{{ msgs|join(\"/\", attribute=\"role\") }}", "system/user/assistant/user"},
    {"{{ d|items|list }}", "[('b', 2), ('A', 1), ('c', {'x': [1, 2]})]"},
    {"{{ x|items|list }}", "[]"},
    {"{{ range(7)|batch(3)|list }}", "[[0, 1, 2], [3, 4, 5], [6]]"},
    {"{{ range(7)|batch(3, 0)|list }}", "[[0, 1, 2], [3, 4, 5], [6, 0, 0]]"},
    {"{{ range(7)|slice(3)|list }}", "[[0, 1, 2], [3, 4], [5, 6]]"},
    {"{{ range(7)|slice(3, \"x\")|list }}", "[[0, 1, 2], [3, 4, 'x'], [5, 6, 'x']]"},
    {"{{ range(0)|slice(2)|list }}", "[[], []]"},
    {"{{ s|attr(\"upper\") is callable }}", "True"},
    {"{{ d|attr(\"b\") is defined }}", "False"},
};

static const struct jinja_row rows_order[] = {
    {"{{ l|sort }}", "[1, 2, 3]"},
    {"{{ ls|sort }}", "['A', 'a', 'b', 'c']"},
    {"{{ ls|sort(true) }}", "['c', 'b', 'A', 'a']"},
    {"{{ ls|sort(case_sensitive=true) }}", "['A', 'a', 'b', 'c']"},
    {"{{ msgs|sort(attribute=\"role\")|map(attribute=\"content\")|list }}",
     "[None, ' sys ', 'hi', 'more']"},
    {"{{ msgs|sort(attribute=\"role\", reverse=true)|map(attribute=\"role\")|list }}",
     "['user', 'user', 'system', 'assistant']"},
    {"{{ d|dictsort }}", "[('A', 1), ('b', 2), ('c', {'x': [1, 2]})]"},
    {"{{ d|dictsort(true) }}", "[('A', 1), ('b', 2), ('c', {'x': [1, 2]})]"},
    {"{{ {\"a\": 2, \"b\": 1}|dictsort(by=\"value\") }}", "[('b', 1), ('a', 2)]"},
    {"{{ {\"a\": 2, \"b\": 1}|dictsort(false, \"value\", true) }}", "[('a', 2), ('b', 1)]"},
    {"{{ l|min }}", "1"},
    {"{{ l|max }}", "3"},
    {"{{ [\"b\", \"A\"]|min }}", "A"},
    {"{{ [\"b\", \"A\"]|min(true) }}", "A"},
    {"{{ msgs|min(attribute=\"role\") }}", "{'role': 'assistant', 'content': None, 'n': 5}"},
    {"{{ [\"a\", \"A\", \"b\"]|unique|list }}", "['a', 'b']"},
    {"{{ [\"a\", \"A\", \"b\"]|unique(true)|list }}", "['a', 'A', 'b']"},
    {"{{ [1, 1.0, true, 2]|unique|list }}", "[1, 2]"},
    {"{{ msgs|unique(attribute=\"role\")|map(attribute=\"role\")|list }}",
     "['system', 'user', 'assistant']"},
    {"{{ msgs|groupby(\"role\")|map(\"first\")|list }}", "['assistant', 'system', 'user']"},
    {"{{ (msgs|groupby(\"role\"))[2].list|length }}", "2"},
    {"{{ msgs|groupby(\"zz\", default=\"a\")|map(attribute=\"grouper\")|list }}", "['a']"},
};

static const struct jinja_row rows_maps[] = {
    {"{{ msgs|map(attribute=\"role\")|list }}", "['system', 'user', 'assistant', 'user']"},
    {"{{ msgs|map(attribute=\"n\", default=0)|list }}", "[0, 0, 5, 0]"},
    {"{{ l|map(\"string\")|list }}", "['3', '1', '2']"},
    {"{{ ls|map(\"replace\", \"a\", \"q\")|list }}", "['b', 'A', 'c', 'q']"},
    {"{{ [\"1\", \"2\"]|map(\"int\")|sum }}", "3"},
    {"{{ l|select(\"odd\")|list }}", "[3, 1]"},
    {"{{ l|select(\">\", 1)|list }}", "[3, 2]"},
    {"{{ l|select|list }}", "[3, 1, 2]"},
    {"{{ [0, 1, none]|reject(\"none\")|list }}", "[0, 1]"},
    {"{{ msgs|selectattr(\"role\", \"equalto\", \"user\")|map(attribute=\"content\")|list }}",
     "['hi', 'more']"},
    {"{{ msgs|selectattr(\"n\")|list|length }}", "1"},
    {"{{ msgs|selectattr(\"n\", \"defined\")|list|length }}", "1"},
    {"{{ msgs|rejectattr(\"content\", \"string\")|list|length }}", "1"},
    {"{{ msgs|selectattr(\"role\", \"in\", [\"user\", \"system\"])|list|length }}", "3"},
    {"{{ none|map(\"upper\")|list }}", "[]"},
    {"{{ [{\"a\": [{\"b\": 1}]}]|map(attribute=\"a.0.b\")|list }}", "[1]"},
};

static const struct jinja_row rows_json[] = {
    {"{{ d|tojson }}", "{\"b\": 2, \"A\": 1, \"c\": {\"x\": [1, 2]}}"},
    {"{{ d|tojson(indent=2) }}",
     "{\n  \"b\": 2,\n  \"A\": 1,\n  \"c\": {\n    \"x\": [\n      1,\n      2\n    ]\n  }\n}"},
    {"{{ [1, [2, []], {}]|tojson(indent=4) }}",
     "[\n    1,\n    [\n        2,\n        []\n    ],\n    {}\n]"},
    {"{{ d|tojson(sort_keys=true) }}", "{\"A\": 1, \"b\": 2, \"c\": {\"x\": [1, 2]}}"},
    {"{{ u|tojson }}", "\"naïve ß 日本\""},
    {"{{ (u ~ \"🎉\")|tojson(ensure_ascii=true) }}",
     "\"na\\u00efve \\u00df \\u65e5\\u672c\\ud83c\\udf89\""},
    {"{{ \"\\\"\\\\\\b\\f\\n\\r\\t/\\x01\\x7f\"|tojson }}",
     "\"\\\"\\\\\\b\\f\\n\\r\\t/\\u0001\177\""},
    {"{{ {1: 1, none: 2, true: 3, 1.5: 4}|tojson }}", "{\"1\": 3, \"null\": 2, \"1.5\": 4}"},
    {"{{ (1, 2)|tojson }}", "[1, 2]"},
    {"{{ [1.0, 1e22, 0.1, true, none]|tojson }}", "[1.0, 1e+22, 0.1, true, null]"},
    {"{{ d|tojson(separators=(\",\", \":\")) }}", "{\"b\":2,\"A\":1,\"c\":{\"x\":[1,2]}}"},
    {"{{ [1]|tojson(indent=0) }}", "[\n1\n]"},
    {"{{ [1, 2]|tojson(indent=\"--\") }}", "[\n--1,\n--2\n]"},
    {"{{ (1e308 * 10)|tojson }}", "Infinity"},
    {"{{ []|tojson(indent=2) }}", "[]"},
};

static const struct jinja_row rows_tests[] = {
    {"{{ s is defined }}", "True"},
    {"{{ x is defined }}", "False"},
    {"{{ x is undefined }}", "True"},
    {"{{ none is none }}", "True"},
    {"{{ none is defined }}", "True"},
    {"{{ true is boolean }}", "True"},
    {"{{ 1 is boolean }}", "False"},
    {"{{ true is true }}", "True"},
    {"{{ 1 is true }}", "False"},
    {"{{ false is false }}", "True"},
    {"{{ 1 is integer }}", "True"},
    {"{{ true is integer }}", "False"},
    {"{{ 1.0 is integer }}", "False"},
    {"{{ 1.0 is float }}", "True"},
    {"{{ true is number }}", "True"},
    {"{{ \"1\" is number }}", "False"},
    {"{{ s is string }}", "True"},
    {"{{ d is mapping }}", "True"},
    {"{{ l is mapping }}", "False"},
    {"{{ l is sequence }}", "True"},
    {"{{ d is sequence }}", "True"},
    {"{{ s is sequence }}", "True"},
    {"{{ n is sequence }}", "False"},
    {"{{ d.items() is sequence }}", "False"},
    {"{{ s is iterable }}", "True"},
    {"{{ n is iterable }}", "False"},
    {"{{ none is iterable }}", "False"},
    {"{{ x is iterable }}", "True"},
    {"{{ range is callable }}", "True"},
    {"{{ s is callable }}", "False"},
    {"{{ 3 is odd }}", "True"},
    {"{{ 4 is even }}", "True"},
    {"{{ 9 is divisibleby(3) }}", "True"},
    {"{{ 9 is divisibleby 2 }}", "False"},
    {"{{ 1 is in([1, 2]) }}", "True"},
    {"{{ 1 is eq(1.0) }}", "True"},
    {"{{ 1 is ne 1 }}", "False"},
    {"{{ 1 is lt 2 }}", "True"},
    {"{{ 1 is ge(1) }}", "True"},
    {"{{ 2 is greaterthan 1 }}", "True"},
    {"{{ none is sameas none }}", "True"},
    {"{{ 1 is sameas true }}", "False"},
    {"{{ \"upper\" is filter }}", "True"},
    {"{{ \"nosuch\" is filter }}", "False"},
    {"{{ \"odd\" is test }}", "True"},
    {"{{ \"abc\" is lower }}", "True"},
    {"{{ \"ABC\" is upper }}", "True"},
    {"{{ x is not defined }}", "True"},
    {"{{ s is not none }}", "True"},
};

static void test_text(void **state)
{
    (void)state;
    JINJA_ROWS(rows_text);
}

static void test_numbers(void **state)
{
    (void)state;
    JINJA_ROWS(rows_numbers);
}

static void test_defaults(void **state)
{
    (void)state;
    JINJA_ROWS(rows_defaults);
}

static void test_sequences(void **state)
{
    (void)state;
    JINJA_ROWS(rows_sequences);
}

static void test_order(void **state)
{
    (void)state;
    JINJA_ROWS(rows_order);
}

static void test_maps(void **state)
{
    (void)state;
    JINJA_ROWS(rows_maps);
}

static void test_json(void **state)
{
    (void)state;
    JINJA_ROWS(rows_json);
}

static void test_tests(void **state)
{
    (void)state;
    JINJA_ROWS(rows_tests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),     cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_order),    cmocka_unit_test(test_maps),
        cmocka_unit_test(test_json),     cmocka_unit_test(test_tests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
