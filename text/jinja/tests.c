/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests: `value is name`.
 */
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/number.h"
#include "text/jinja/repr.h"

#define TEST(name)                                                                                 \
    static struct atsi_jv name(struct atsi_jr *r, const struct atsi_jv *a,                         \
                               const struct atsi_jcall *c)

/* Tests of nothing but the type (and value) at hand. */
#define PLAIN_TEST(name, condition)                                                                \
    TEST(name)                                                                                     \
    {                                                                                              \
        const struct atsi_jv v = c->self;                                                          \
        (void)r;                                                                                   \
        (void)a;                                                                                   \
        return atsi_jv_bool(condition);                                                            \
    }

PLAIN_TEST(is_defined, v.type != ATSI_J_UNDEF)
PLAIN_TEST(is_undefined, v.type == ATSI_J_UNDEF)
PLAIN_TEST(is_none, v.type == ATSI_J_NONE)
PLAIN_TEST(is_boolean, v.type == ATSI_J_BOOL)
PLAIN_TEST(is_true, v.type == ATSI_J_BOOL && v.flag)
PLAIN_TEST(is_false, v.type == ATSI_J_BOOL && !v.flag)
PLAIN_TEST(is_integer, v.type == ATSI_J_INT)
PLAIN_TEST(is_float, v.type == ATSI_J_FLOAT)
PLAIN_TEST(is_number, atsi_jv_is_number(v))
PLAIN_TEST(is_string, v.type == ATSI_J_STR)
PLAIN_TEST(is_mapping, v.type == ATSI_J_DICT)
PLAIN_TEST(is_iterable, atsi_jv_is_iterable(v))
PLAIN_TEST(is_escaped, v.type == ATSI_J_STR && v.flag)
/* An undefined value has a length (0) and items, as far as Python can tell. */
PLAIN_TEST(is_sequence, v.type == ATSI_J_STR || v.type == ATSI_J_LIST || v.type == ATSI_J_TUPLE ||
                            v.type == ATSI_J_DICT || v.type == ATSI_J_RANGE ||
                            v.type == ATSI_J_UNDEF)
PLAIN_TEST(is_callable, v.type == ATSI_J_MACRO || v.type == ATSI_J_FUNC || v.type == ATSI_J_BOUND ||
                            v.type == ATSI_J_LOOP || v.type == ATSI_J_UNDEF)

static struct atsi_jv verdict(int result, bool wanted)
{
    return result < 0 ? atsi_jv_fail() : atsi_jv_bool((result == 1) == wanted);
}

static struct atsi_jv remainder_is(struct atsi_jr *r, struct atsi_jv v, struct atsi_jv by,
                                   int64_t wanted)
{
    v = atsi_jv_arith(r, '%', v, by);
    return v.type == ATSI_J_FAIL ? v : verdict(atsi_jv_equal(r, v, atsi_jv_int(wanted)), true);
}

/* A name is looked up in a dict: what cannot be a key fails. */
TEST(is_filter)
{
    uint64_t hash;
    (void)a;
    if (c->self.type == ATSI_J_STR)
        return atsi_jv_bool(atsi_jfilter_known(c->self.u.s));
    return atsi_jv_hash(r, c->self, &hash) ? atsi_jv_bool(false) : atsi_jv_fail();
}

TEST(is_test)
{
    uint64_t hash;
    (void)a;
    if (c->self.type == ATSI_J_STR)
        return atsi_jv_bool(atsi_jtest_known(c->self.u.s));
    return atsi_jv_hash(r, c->self, &hash) ? atsi_jv_bool(false) : atsi_jv_fail();
}

TEST(is_odd)
{
    (void)a;
    return remainder_is(r, c->self, atsi_jv_int(2), 1);
}

TEST(is_even)
{
    (void)a;
    return remainder_is(r, c->self, atsi_jv_int(2), 0);
}

TEST(is_divisibleby)
{
    return remainder_is(r, c->self, a[0], 0);
}

TEST(is_in)
{
    return verdict(atsi_jv_contains(r, a[0], c->self), true);
}

TEST(is_eq)
{
    return verdict(atsi_jv_equal(r, c->self, a[0]), true);
}

TEST(is_ne)
{
    return verdict(atsi_jv_equal(r, c->self, a[0]), false);
}

TEST(is_lt)
{
    return verdict(atsi_jv_less(r, c->self, a[0]), true);
}

TEST(is_le)
{
    return verdict(atsi_jv_less_equal(r, c->self, a[0]), true);
}

TEST(is_gt)
{
    return verdict(atsi_jv_less(r, a[0], c->self), true);
}

TEST(is_ge)
{
    return verdict(atsi_jv_less_equal(r, a[0], c->self), true);
}

/* Python's `is`.  Whether equal numbers or strings are one object there cannot be known. */
TEST(is_sameas)
{
    struct atsi_jv v = c->self;
    int same;
    if (v.type != a[0].type)
        return atsi_jv_bool(false);
    if (v.type == ATSI_J_NONE || v.type == ATSI_J_BOOL)
        return atsi_jv_bool(v.flag == a[0].flag);
    if (v.type != ATSI_J_STR && v.type != ATSI_J_INT && v.type != ATSI_J_FLOAT)
        return atsi_jv_bool(v.type != ATSI_J_UNDEF && v.u.list == a[0].u.list);
    same = atsi_jv_equal(r, v, a[0]);
    if (same > 0)
        return atsi_jr_notsup(r, "sameas of equal numbers or strings is not supported");
    return verdict(same, true);
}

static struct atsi_jv is_case(struct atsi_jr *r, struct atsi_jv v, bool upper)
{
    v = atsi_jv_to_text(r, v);
    return v.type == ATSI_J_STR ? atsi_jtext_is_case(r, v.u.s, upper) : v;
}

TEST(is_lower)
{
    (void)a;
    return is_case(r, c->self, false);
}

TEST(is_upper)
{
    (void)a;
    return is_case(r, c->self, true);
}

static const struct atsi_jbuiltin table[] = {
    {"defined", is_defined, "", 0, true, 0},
    {"string", is_string, "", 0, true, 0},
    {"none", is_none, "", 0, true, 0},
    {"mapping", is_mapping, "", 0, true, 0},
    {"iterable", is_iterable, "", 0, true, 0},
    {"sequence", is_sequence, "", 0, true, 0},
    {"undefined", is_undefined, "", 0, true, 0},
    {"boolean", is_boolean, "", 0, true, 0},
    {"true", is_true, "", 0, true, 0},
    {"false", is_false, "", 0, true, 0},
    {"integer", is_integer, "", 0, true, 0},
    {"float", is_float, "", 0, true, 0},
    {"number", is_number, "", 0, true, 0},
    {"callable", is_callable, "", 0, true, 0},
    {"escaped", is_escaped, "", 0, true, 0},
    {"filter", is_filter, "", 0, true, 0},
    {"test", is_test, "", 0, true, 0},
    {"odd", is_odd, "", 0, true, 0},
    {"even", is_even, "", 0, true, 0},
    {"lower", is_lower, "", 0, true, 0},
    {"upper", is_upper, "", 0, true, 0},
    {"divisibleby", is_divisibleby, "num", 1, false, 0},
    {"sameas", is_sameas, "other", 1, false, 0},
    {"in", is_in, "seq", 1, false, 0},
    {"equalto", is_eq, "other", 1, true, 0},
    {"eq", is_eq, "other", 1, true, 0},
    {"==", is_eq, "other", 1, true, 0},
    {"ne", is_ne, "other", 1, true, 0},
    {"!=", is_ne, "other", 1, true, 0},
    {"lt", is_lt, "other", 1, true, 0},
    {"lessthan", is_lt, "other", 1, true, 0},
    {"<", is_lt, "other", 1, true, 0},
    {"le", is_le, "other", 1, true, 0},
    {"<=", is_le, "other", 1, true, 0},
    {"gt", is_gt, "other", 1, true, 0},
    {"greaterthan", is_gt, "other", 1, true, 0},
    {">", is_gt, "other", 1, true, 0},
    {"ge", is_ge, "other", 1, true, 0},
    {">=", is_ge, "other", 1, true, 0},
};

const struct atsi_jbuiltin *atsi_jtest_find(const struct atsi_jstr *name)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (atsi_jstr_is(name, table[i].name))
            return &table[i];
    return NULL;
}

bool atsi_jtest_known(const struct atsi_jstr *name)
{
    return atsi_jtest_find(name) != NULL;
}
