/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators, precedence, members, slices, printing.
 * What is expected was checked against Jinja2 3.1.6. */
#include "jinja_render.h"

static const struct jinja_row rows_arithmetic[] = {
    {"{{ 1+2 }}", "3"},
    {"{{ 7//2 }}", "3"},
    {"{{ -7//2 }}", "-4"},
    {"{{ 7%3 }}", "1"},
    {"{{ -7%3 }}", "2"},
    {"{{ 7%-3 }}", "-2"},
    {"{{ 7/2 }}", "3.5"},
    {"{{ 6/2 }}", "3.0"},
    {"{{ 2**10 }}", "1024"},
    {"{{ 2**-1 }}", "0.5"},
    {"{{ 2**3**2 }}", "64"},
    {"{{ -2**2 }}", "4"},
    {"{{ 7.5//2 }}", "3.0"},
    {"{{ -7.5//2 }}", "-4.0"},
    {"{{ 7.5%2 }}", "1.5"},
    {"{{ -7.5%2 }}", "0.5"},
    {"{{ 7.5%-2 }}", "-0.5"},
    {"{{ -7.0%7 }}", "0.0"},
    {"{{ 1-2-3 }}", "-4"},
    {"{{ 2*3%4 }}", "2"},
    {"{{ 1.5+1 }}", "2.5"},
    {"{{ true+1 }}", "2"},
    {"{{ -n }}", "-7"},
    {"{{ +f }}", "2.5"},
    {"{{ 9007199254740993 + 0 }}", "9007199254740993"},
    {"{{ 9223372036854775807 }}", "9223372036854775807"},
    {"{{ -9223372036854775807 - 1 }}", "-9223372036854775808"},
    {"{{ 5 // 0.3 }}", "16.0"},
    {"{{ \"ab\"*3 }}", "ababab"},
    {"{{ 2*[1,2] }}", "[1, 2, 1, 2]"},
    {"{{ [1]+[2] }}", "[1, 2]"},
    {"{{ (1,)+(2,) }}", "(1, 2)"},
    {"{{ \"ab\"*-1 }}", ""},
};

static const struct jinja_row rows_comparison[] = {
    {"{{ 1 < 2 < 3 }}", "True"},
    {"{{ 1 < 2 > 3 }}", "False"},
    {"{{ 1 == 1.0 }}", "True"},
    {"{{ true == 1 }}", "True"},
    {"{{ \"a\" < \"b\" }}", "True"},
    {"{{ [1,2] < [1,3] }}", "True"},
    {"{{ (1,2) < (1,2,3) }}", "True"},
    {"{{ 9007199254740993 == 9007199254740992.0 }}", "False"},
    {"{{ 9007199254740993 > 9007199254740992.0 }}", "True"},
    {"{{ none == none }}", "True"},
    {"{{ x == y }}", "True"},
    {"{{ x == 1 }}", "False"},
    {"{{ x != none }}", "True"},
    {"{{ 1 in [1,2] }}", "True"},
    {"{{ \"a\" in \"cat\" }}", "True"},
    {"{{ \"\" in \"abc\" }}", "True"},
    {"{{ \"b\" in d }}", "True"},
    {"{{ \"x\" in d.c }}", "True"},
    {"{{ 1 not in [1] }}", "False"},
    {"{{ 2.0 in l }}", "True"},
    {"{{ not n in [1] }}", "True"},
    {"{{ \"a\" in x }}", "False"},
    {"{{ 3 in range(5) }}", "True"},
    {"{{ range(3) == range(0, 3) }}", "True"},
    {"{{ {\"a\": [1]} == {\"a\": [1.0]} }}", "True"},
    {"{{ [] == () }}", "False"},
    {"{{ 1 < 2 == true }}", "False"},
};

static const struct jinja_row rows_logic[] = {
    {"{{ 1 or 2 }}", "1"},
    {"{{ 0 or \"\" }}", ""},
    {"{{ 0 and x }}", "0"},
    {"{{ \"a\" and \"b\" }}", "b"},
    {"{{ none or [] }}", "[]"},
    {"{{ not 1 }}", "False"},
    {"{{ not \"\" }}", "True"},
    {"{{ not x is defined }}", "True"},
    {"{{ not [] }}", "True"},
    {"{{ n if true else 3 }}", "7"},
    {"{{ n if false }}", ""},
    {"{{ (n if false) is defined }}", "False"},
    {"{{ 1 if 0 else 2 if 0 else 3 }}", "3"},
    {"{{ \"a\" if \"b\" in \"abc\" and not none_ else \"c\" }}", "a"},
};

static const struct jinja_row rows_precedence[] = {
    {"{{ \"a\" + \"b\"|upper }}", "aB"},
    {"{{ (\"a\" + \"b\")|upper }}", "AB"},
    {"{{ - 1 is number }}", "True"},
    {"{{ -1|abs }}", "1"},
    {"{{ 1 + 1 is odd }}", "2"},
    {"{{ [1,2][0]|string + \"x\" }}", "1x"},
    {"{{ {\"a\":[1]}.a[0] }}", "1"},
    {"{{ \"abc\".upper()[0] }}", "A"},
    {"{{ 1 is odd and 2 is even }}", "True"},
    {"{{ \"a\" ~ 1 ~ none ~ true ~ [1] }}", "a1NoneTrue[1]"},
    {"{{ 1 is in [1] }}", "True"},
    {"{{ n is divisibleby 7 }}", "True"},
    {"{{ (1 is odd) == true }}", "True"},
};

static const struct jinja_row rows_members[] = {
    {"{{ d.b }}", "2"},
    {"{{ d[\"b\"] }}", "2"},
    {"{{ d.c.x[1] }}", "2"},
    {"{{ d.zz }}", ""},
    {"{{ d.zz is defined }}", "False"},
    {"{{ d[\"zz\"] is defined }}", "False"},
    {"{{ d.items()|list }}", "[('b', 2), ('A', 1), ('c', {'x': [1, 2]})]"},
    {"{{ d[\"items\"]()|length }}", "3"},
    {"{{ l[0] }}", "3"},
    {"{{ l[-1] }}", "2"},
    {"{{ l[9] is defined }}", "False"},
    {"{{ l[\"a\"] is defined }}", "False"},
    {"{{ l.0 }}", "3"},
    {"{{ s[0] }}", "H"},
    {"{{ s[-1] }}", "d"},
    {"{{ s[99] is defined }}", "False"},
    {"{{ u[6] }}", "ß"},
    {"{{ s[\"upper\"]() }}", "HELLO WORLD"},
    {"{{ n.x is defined }}", "False"},
    {"{{ none_.x is defined }}", "False"},
    {"{{ l.append is defined }}", "False"},
    {"{{ d.update is defined }}", "False"},
    {"{{ s._x is defined }}", "False"},
    {"{{ namespace(a=1).a }}", "1"},
    {"{{ namespace(a=1)[\"a\"] }}", "1"},
    {"{{ namespace({\"a\": 1}, b=2) }}", "<Namespace {'a': 1, 'b': 2}>"},
    {"{{ namespace(_a=1)._a }}", ""},
    {"{{ l[true] }}", "1"},
    {"{{ msgs.0.role }}", "system"},
    {"{{ range(10).start }}", "0"},
};

static const struct jinja_row rows_slices[] = {
    {"{{ s[1:3] }}", "el"},
    {"{{ s[::-1] }}", "dlroW olleH"},
    {"{{ s[::2] }}", "HloWrd"},
    {"{{ s[-3:] }}", "rld"},
    {"{{ s[:-3] }}", "Hello Wo"},
    {"{{ s[5:1] }}", ""},
    {"{{ s[5:1:-1] }}", " oll"},
    {"{{ u[0:6] }}", "naïve "},
    {"{{ u[::-1] }}", "本日 ß evïan"},
    {"{{ u[-2:] }}", "日本"},
    {"{{ l[1:] }}", "[1, 2]"},
    {"{{ l[::-1] }}", "[2, 1, 3]"},
    {"{{ l[-2:] }}", "[1, 2]"},
    {"{{ (1,2,3)[:2] }}", "(1, 2)"},
    {"{{ range(10)[2:5] }}", "range(2, 5)"},
    {"{{ range(10)[::-3]|list }}", "[9, 6, 3, 0]"},
    {"{{ s[99:] }}", ""},
    {"{{ s[-99:2] }}", "He"},
    {"{{ s[::100] }}", "H"},
    {"{{ s[::-100] }}", "d"},
    {"{{ s[none:none] }}", "Hello World"},
};

static const struct jinja_row rows_printing[] = {
    {"{{ true }}", "True"},
    {"{{ none }}", "None"},
    {"{{ f }}", "2.5"},
    {"{{ 1e16 }}", "1e+16"},
    {"{{ 123456789.125 }}", "123456789.125"},
    {"{{ 1e15 }}", "1000000000000000.0"},
    {"{{ -0.0 }}", "-0.0"},
    {"{{ 1.0 }}", "1.0"},
    {"{{ 1e-5 }}", "1e-05"},
    {"{{ 0.0001 }}", "0.0001"},
    {"{{ 5e-324 }}", "5e-324"},
    {"{{ 1.7976931348623157e308 }}", "1.7976931348623157e+308"},
    {"{{ 0.1 }}", "0.1"},
    {"{{ 2.0**-44 }}", "5.684341886080802e-14"},
    {"{{ l }}", "[3, 1, 2]"},
    {"{{ d }}", "{'b': 2, 'A': 1, 'c': {'x': [1, 2]}}"},
    {"{{ (1,) }}", "(1,)"},
    {"{{ \"a\" }}", "a"},
    {"{{ [\"a\", \"it's\", '\"', '\\'\"'] }}", "['a', \"it's\", '\"', '\\'\"']"},
    {"{{ [\"\\n\\t\\x01\\x7f\\u200b\\u00e9日\"] }}", "['\\n\\t\\x01\\x7f\\u200bé日']"},
    {"{{ [x] }}", "[Undefined]"},
    {"{{ x }}", ""},
    {"{{ range(3) }}", "range(0, 3)"},
    {"{{ range(1, 9, 2) }}", "range(1, 9, 2)"},
    {"{{ d.keys() }}", "dict_keys(['b', 'A', 'c'])"},
    {"{{ d.values() }}", "dict_values([2, 1, {'x': [1, 2]}])"},
    {"{{ d.items() }}", "dict_items([('b', 2), ('A', 1), ('c', {'x': [1, 2]})])"},
    {"{{ {1: 2, \"a\": none} }}", "{1: 2, 'a': None}"},
    {"{{ [[], {}, ()] }}", "[[], {}, ()]"},
    {"{{ [html|safe] }}", "[Markup('<a href=\"x\">')]"},
};

static const struct jinja_row rows_calls[] = {
    {"{{ dict(a=1, **{\"b\": 2}) }}", "{'a': 1, 'b': 2}"},
    {"{{ dict([[\"a\", 1], [\"b\", 2]]) }}", "{'a': 1, 'b': 2}"},
    {"{{ dict({\"a\": 1}, b=2) }}", "{'a': 1, 'b': 2}"},
    {"{{ range(5)|list }}", "[0, 1, 2, 3, 4]"},
    {"{{ range(2, 8, 2)|list }}", "[2, 4, 6]"},
    {"{{ range(5, 0, -2)|list }}", "[5, 3, 1]"},
    {"{{ \"{}{}\".format(*[1, 2]) }}", "12"},
    {"{{ \"{a}\".format(**{\"a\": 1}) }}", "1"},
    {"{{ [1, 2].index(2) }}", "1"},
    {"{{ (1, 2, 1).count(1) }}", "2"},
    {"{{ d.get(\"b\") }}", "2"},
    {"{{ d.get(\"zz\") }}", "None"},
    {"{{ d.get(\"zz\", 5) }}", "5"},
    {"{{ d.copy() == d }}", "True"},
};

static void test_arithmetic(void **state)
{
    (void)state;
    JINJA_ROWS(rows_arithmetic);
}

static void test_comparison(void **state)
{
    (void)state;
    JINJA_ROWS(rows_comparison);
}

static void test_logic(void **state)
{
    (void)state;
    JINJA_ROWS(rows_logic);
}

static void test_precedence(void **state)
{
    (void)state;
    JINJA_ROWS(rows_precedence);
}

static void test_members(void **state)
{
    (void)state;
    JINJA_ROWS(rows_members);
}

static void test_slices(void **state)
{
    (void)state;
    JINJA_ROWS(rows_slices);
}

static void test_printing(void **state)
{
    (void)state;
    JINJA_ROWS(rows_printing);
}

static void test_calls(void **state)
{
    (void)state;
    JINJA_ROWS(rows_calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_comparison),
        cmocka_unit_test(test_logic),      cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_members),    cmocka_unit_test(test_slices),
        cmocka_unit_test(test_printing),   cmocka_unit_test(test_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
