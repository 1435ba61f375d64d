/* SPDX-License-Identifier: Apache-2.0
 * The parts under the tokenizer: UTF-8, normalization, the string map, the merge loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/merge.h"
#include "text/nfc.h"
#include "text/strmap.h"
#include "text/utf8.h"

static void test_utf8_round_trip(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp < 0x110000; cp += cp < 0x11000 ? 1 : 37) {
        char utf8[4];
        uint32_t back = 0;
        size_t n = atsi_utf8_encode(cp, utf8);
        assert_int_equal(atsi_utf8_decode(utf8, n, &back), n);
        assert_int_equal(back, cp);
        assert_int_equal(atsi_utf8_decode(utf8, n - 1, &back), 0);
        assert_int_equal(atsi_utf8_valid_prefix(utf8, n), cp >= 0xD800 && cp < 0xE000 ? 0 : n);
    }
}

static void test_utf8_repair(void **state)
{
    static const struct {
        const char *in, *kept, *replaced;
    } rows[] = {
        {"plain \xC3\xA9", "plain \xC3\xA9", "plain \xC3\xA9"},
        {"\xF5", "\xEF\xBF\xBD", "\xEF\xBF\xBD"},
        {"a\x80z", "a\xEF\xBF\xBDz", "a\xEF\xBF\xBDz"},
        {"\xED\xBF\xBF", "\xED\xBF\xBF", "\xEF\xBF\xBD"},
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD",
         "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xE4\xB8", "\xEF\xBF\xBD\xEF\xBF\xBD", "\xEF\xBF\xBD\xEF\xBF\xBD"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int keep = 0; keep < 2; keep++) {
            const char *want = keep ? rows[i].kept : rows[i].replaced;
            struct atsi_bytes out = {.n = 0};
            assert_true(atsi_utf8_repair(rows[i].in, strlen(rows[i].in), keep, &out));
            assert_int_equal(out.n, strlen(want));
            assert_memory_equal(out.p, want, out.n);
            free(out.p);
        }
}

static void expect_nfc(const char *text)
{
    struct atsi_bytes out = {.n = 0};
    char *want = (char *)utf8proc_NFC((const utf8proc_uint8_t *)text);
    assert_non_null(want);
    assert_true(atsi_nfc(text, strlen(text), &out));
    if (out.n != strlen(want) || memcmp(out.p, want, out.n) != 0)
        fail_msg("NFC of \"%s\" is \"%.*s\", expected \"%s\"", text, (int)out.n, out.p, want);
    if (atsi_nfc_done(text, strlen(text)) == strlen(text))
        assert_string_equal(text, want); /* "nothing to do" must be true */
    free(want);
    free(out.p);
}

/* Every character alone and before marks, jamo and kana marks, against utf8proc's own function. */
static void test_nfc_of_every_character(void **state)
{
    static const char *const after[] = {"",
                                        "\xCC\x81",
                                        "\xCC\xA3\xCC\x81",
                                        "\xE3\x82\x99",
                                        "\xE1\x86\xA8",
                                        "\xE1\x85\xA1\xE1\x86\xA8",
                                        " x\xCC\x81"};
    (void)state;
    for (uint32_t cp = 1; cp < 0x30000; cp += cp < 0x3100 || cp >= 0xF900 ? 1 : 11) {
        char text[32];
        if (cp >= 0xD800 && cp < 0xE000)
            continue;
        for (size_t i = 0; i < sizeof after / sizeof after[0]; i++) {
            size_t n = 1 + atsi_utf8_encode(cp, text + 1);
            text[0] = 'a';
            (void)snprintf(text + n, sizeof text - n, "%s", after[i]);
            expect_nfc(text);
        }
    }
}

static void test_nfc_of_long_mark_rows(void **state)
{
    enum { N = 2000 };
    static const char *const marks[] = {"\xCC\x81", "\xCC\xA3", "\xCC\xB8", "\xD6\xB0", "\xCD\x9D"};
    char *text = malloc(N * 2 + 2);
    (void)state;
    assert_non_null(text);
    text[0] = 'o';
    for (size_t i = 0; i < N; i++)
        memcpy(text + 1 + 2 * i, marks[(i * 7 + i / 3) % 5], 2);
    text[1 + 2 * N] = '\0';
    expect_nfc(text);
    free(text);
}

static void test_map_of_many_strings(void **state)
{
    enum { N = 5000 };
    struct atsi_strlist list;
    struct atsi_strmap map;
    (void)state;
    assert_true(atsi_strlist_open(&list, 4, 16));
    assert_true(atsi_strmap_open(&map, &list, 4)); /* has to grow */
    for (uint32_t i = 0; i < N; i++) {
        char text[32];
        int n = snprintf(text, sizeof text, "%.*s%u", (int)(i % 17), "abcdefghijklmnopq", i);
        assert_int_equal(atsi_strmap_find(&map, text, (size_t)n), ATSI_NO_SYM);
        assert_true(atsi_strlist_add(&list, text, (size_t)n));
        assert_true(atsi_strmap_put(&map, i));
    }
    for (uint32_t i = 0; i < N; i++) {
        size_t n;
        const char *p = atsi_strlist_at(&list, i, &n);
        assert_int_equal(atsi_strmap_find(&map, p, n), i);
    }
    assert_true(atsi_strlist_add(&list, "17", 2)); /* equal to string 17: replaces it */
    assert_true(atsi_strmap_put(&map, N));
    assert_int_equal(atsi_strmap_find(&map, "17", 2), N);
    assert_int_equal(atsi_strmap_find(&map, "", 0), ATSI_NO_SYM);
    atsi_strmap_close(&map);
    atsi_strlist_close(&list);
}

/* A made-up rule: symbols are numbers, equal neighbours join into their sum, small ones first. */
static uint32_t equal_numbers(const void *ctx, const struct atsi_sym *left,
                              const struct atsi_sym *right, uint32_t *joined_out)
{
    (void)ctx;
    *joined_out = left->id + right->id;
    return left->id == right->id ? left->id % 5 : ATSI_NO_MERGE;
}

/* The rule of merging carried out literally: the whole row is searched before every step. */
static size_t merge_plainly(uint32_t *ids, size_t n)
{
    for (;;) {
        size_t best = n;
        for (size_t i = 0; i + 1 < n; i++)
            if (ids[i] == ids[i + 1] && (best == n || ids[i] % 5 < ids[best] % 5))
                best = i;
        if (best == n)
            return n;
        ids[best] *= 2;
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        n--;
    }
}

static void test_merge_loop_equals_plain_search(void **state)
{
    struct atsi_merger m = {.n_steps = 0};
    uint32_t seed = 12345;
    (void)state;
    for (size_t n = 0; n < 300; n++) { /* both sides of the change from scanning to the heap */
        uint32_t ids[300] = {0};
        size_t n_out, n_want, bytes = 0;
        assert_true(atsi_merger_reserve(&m, n));
        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            ids[i] = 1 + (seed >> 24) % 3;
            m.syms[i] = (struct atsi_sym){.start = (uint32_t)i, .len = 1, .id = ids[i]};
        }
        n_want = merge_plainly(ids, n);
        assert_true(atsi_merge(&m, n, equal_numbers, NULL, &n_out));
        assert_int_equal(n_out, n_want);
        for (size_t i = 0; i < n_out; i++) {
            assert_int_equal(m.syms[i].id, ids[i]);
            assert_int_equal(m.syms[i].start, bytes);
            bytes += m.syms[i].len;
        }
        assert_int_equal(bytes, n);
    }
    atsi_merger_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_round_trip),
        cmocka_unit_test(test_utf8_repair),
        cmocka_unit_test(test_nfc_of_every_character),
        cmocka_unit_test(test_nfc_of_long_mark_rows),
        cmocka_unit_test(test_map_of_many_strings),
        cmocka_unit_test(test_merge_loop_equals_plain_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
