/* SPDX-License-Identifier: Apache-2.0
 *
 * Stop strings: what is shown must be the text up to the stop string, however the text is cut, and
 * must never run ahead of what a naive search would allow.
 */
#include "text/stop_string.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_TEXT 256

struct shown {
    char p[MAX_TEXT];
    size_t n;
};

static struct atsi_stops *open_stops(const char *const *texts, size_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_stop_text list[8];
    struct atsi_stops *s;
    for (size_t i = 0; i < n; i++)
        list[i] = (struct atsi_stop_text){texts[i], strlen(texts[i])};
    assert_int_equal(atsi_stops_open(list, n, &s, &err), ATSI_OK);
    return s;
}

static void add(struct shown *to, struct atsi_stop_text text)
{
    assert_true(to->n + text.n <= sizeof to->p);
    memcpy(to->p + to->n, text.p, text.n);
    to->n += text.n;
}

static int push(struct atsi_stops *s, const char *text, size_t n, struct shown *to)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_stop_text now;
    int rc = atsi_stops_push(s, text, n, &now, &err);
    add(to, now);
    return rc;
}

static void expect(const struct shown *got, const char *want)
{
    assert_int_equal(got->n, strlen(want));
    assert_memory_equal(got->p, want, got->n);
}

static void test_across_pieces(void **state)
{
    static const char *const stops[] = {"User:"};
    struct atsi_stops *s = open_stops(stops, 1);
    struct shown shown = {.n = 0};
    (void)state;
    assert_int_equal(push(s, "Hello.\nUs", 9, &shown), 0);
    expect(&shown, "Hello.\n"); /* "Us" might become "User:" */
    assert_int_equal(push(s, "er", 2, &shown), 0);
    expect(&shown, "Hello.\n");
    assert_int_equal(push(s, ": no", 4, &shown), 1);
    expect(&shown, "Hello.\n");
    assert_int_equal(push(s, "more", 4, &shown), 1);
    assert_int_equal(atsi_stops_flush(s).n, 0);
    expect(&shown, "Hello.\n");
    atsi_stops_close(s);
}

static void test_false_alarm_is_released(void **state)
{
    static const char *const stops[] = {"User:"};
    struct atsi_stops *s = open_stops(stops, 1);
    struct shown shown = {.n = 0};
    (void)state;
    assert_int_equal(push(s, "Use", 3, &shown), 0);
    expect(&shown, "");
    assert_int_equal(push(s, "ful Us", 6, &shown), 0);
    expect(&shown, "Useful ");
    add(&shown, atsi_stops_flush(s)); /* the end of the text decides */
    expect(&shown, "Useful Us");
    atsi_stops_close(s);
}

/* The beginning of a second try inside a failed first one: "aab" in "aaab". */
static void test_overlapping_beginnings(void **state)
{
    static const char *const stops[] = {"aab"};
    struct atsi_stops *s = open_stops(stops, 1);
    struct shown shown = {.n = 0};
    (void)state;
    assert_int_equal(push(s, "aa", 2, &shown), 0);
    assert_int_equal(push(s, "a", 1, &shown), 0);
    expect(&shown, "a");
    assert_int_equal(push(s, "b", 1, &shown), 1);
    expect(&shown, "a");
    atsi_stops_close(s);
}

static void test_longest_of_equal_ends(void **state)
{
    static const char *const stops[] = {"end", "the end", "nd"};
    struct atsi_stops *s = open_stops(stops, 3);
    struct shown shown = {.n = 0};
    (void)state;
    assert_int_equal(push(s, "This is the en", 14, &shown), 0);
    expect(&shown, "This is ");
    assert_int_equal(push(s, "d.", 2, &shown), 1);
    expect(&shown, "This is ");
    atsi_stops_close(s);
}

static void test_any_bytes(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    const struct atsi_stop_text nul = {"\0\xff", 2};
    struct atsi_stops *s;
    struct shown shown = {.n = 0};
    (void)state;
    assert_int_equal(atsi_stops_open(&nul, 1, &s, &err), ATSI_OK);
    assert_int_equal(push(s, "a\0\0", 3, &shown), 0);
    assert_int_equal(shown.n, 2);
    assert_int_equal(push(s, "\xff", 1, &shown), 1);
    assert_int_equal(shown.n, 2);
    atsi_stops_close(s);
}

static void test_reset_and_none(void **state)
{
    static const char *const stops[] = {"ab"};
    struct atsi_stops *s = open_stops(stops, 1);
    struct shown shown = {.n = 0};
    (void)state;
    assert_int_equal(push(s, "xa", 2, &shown), 0);
    atsi_stops_reset(s); /* the held "a" belongs to the old text */
    assert_int_equal(push(s, "by", 2, &shown), 0);
    expect(&shown, "xby");
    atsi_stops_close(s);
    s = open_stops(NULL, 0);
    shown.n = 0;
    assert_int_equal(push(s, "all of it", 9, &shown), 0);
    expect(&shown, "all of it");
    assert_int_equal(atsi_stops_flush(s).n, 0);
    atsi_stops_close(s);
    atsi_stops_close(NULL);
}

static void test_empty_is_refused(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    const struct atsi_stop_text texts[] = {{"a", 1}, {"", 0}};
    struct atsi_stops *s;
    (void)state;
    assert_int_equal(atsi_stops_open(texts, 2, &s, &err), ATSI_EINVAL);
    assert_null(s);
    assert_non_null(strstr(err.msg, "stop string 2"));
}

static void test_has(void **state)
{
    static const char *const stops[] = {"<|end|>", "x"};
    struct atsi_stops *s = open_stops(stops, 2);
    (void)state;
    assert_true(atsi_stops_has(s, "<|end|>", 7));
    assert_false(atsi_stops_has(s, "<|end|", 6));
    assert_true(atsi_stops_has(s, "x", 1));
    atsi_stops_close(s);
}

/* ---------------------------------------------------------------- against a naive search */
static uint32_t rng_state = 12345;

static uint32_t below(uint32_t n)
{
    rng_state = rng_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)rng_state * n) >> 32);
}

/* Few letters, so that beginnings overlap often. */
static size_t random_text(char *out, size_t max, uint32_t letters)
{
    size_t n = below((uint32_t)max) + 1;
    for (size_t i = 0; i < n; i++)
        out[i] = (char)('a' + below(letters));
    return n;
}

struct naive {
    bool found;
    size_t shown; /* bytes of the text that may be shown */
};

/* text[n] so far: the first byte at which a stop string ends decides; without one, everything but
 * the longest end of the text that begins a stop string may be shown. */
static struct naive search(const char *text, size_t n, const struct atsi_stop_text *stops,
                           size_t n_stops)
{
    size_t held = 0;
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < n_stops; i++)
            if (stops[i].n <= end && stops[i].n > longest &&
                memcmp(text + end - stops[i].n, stops[i].p, stops[i].n) == 0)
                longest = stops[i].n;
        if (longest > 0)
            return (struct naive){true, end - longest};
    }
    for (size_t i = 0; i < n_stops; i++)
        for (size_t k = 1; k < stops[i].n && k <= n; k++)
            if (k > held && memcmp(text + n - k, stops[i].p, k) == 0)
                held = k;
    return (struct naive){false, n - held};
}

static void check_random(uint32_t letters)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char text[64], room[4][8];
    struct atsi_stop_text stops[4];
    struct atsi_stops *s;
    struct shown shown = {.n = 0};
    size_t n = random_text(text, sizeof text, letters), n_stops = below(5);
    bool found = false;
    for (size_t i = 0; i < n_stops; i++)
        stops[i] = (struct atsi_stop_text){room[i], random_text(room[i], sizeof room[i], letters)};
    assert_int_equal(atsi_stops_open(stops, n_stops, &s, &err), ATSI_OK);
    for (size_t at = 0; at < n;) {
        size_t piece = below(7);
        struct naive want;
        if (piece > n - at)
            piece = n - at;
        found = push(s, text + at, piece, &shown) == 1;
        at += piece;
        want = search(text, at, stops, n_stops);
        assert_int_equal(found, want.found);
        assert_int_equal(shown.n, want.shown);
        assert_memory_equal(shown.p, text, shown.n);
    }
    add(&shown, atsi_stops_flush(s));
    assert_int_equal(shown.n, found ? search(text, n, stops, n_stops).shown : n);
    assert_memory_equal(shown.p, text, shown.n);
    atsi_stops_close(s);
}

static void test_random_splits(void **state)
{
    (void)state;
    for (int i = 0; i < 60000; i++)
        check_random(2 + (uint32_t)i % 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_across_pieces),
        cmocka_unit_test(test_false_alarm_is_released),
        cmocka_unit_test(test_overlapping_beginnings),
        cmocka_unit_test(test_longest_of_equal_ends),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_reset_and_none),
        cmocka_unit_test(test_empty_is_refused),
        cmocka_unit_test(test_has),
        cmocka_unit_test(test_random_splits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
