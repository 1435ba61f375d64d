/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of every architecture with flipped bits in their heads: they are refused with a sentence,
 * or they open and evaluate tokens, and nothing crashes or leaks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/arch_run.h"
#include "tests/unit/scratch.h"

enum { N_FLIPS = 400, MAX_HEAD = 32768 };

static uint32_t next(uint32_t *random)
{
    *random = *random * 1664525 + 1013904223;
    return *random >> 8;
}

static uint32_t n_used, n_refused;

/* Three tokens. */
static void use(struct atsi_model *model)
{
    static const int32_t ids[3] = {1, 0, 2};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_eval req = {.struct_size = sizeof req, .ids = ids, .n = 3};
    struct atsi_session *s = NULL;
    p.n_ctx = 8;
    if (atsi_session_open(model, &p, &s, &err) == ATSI_OK &&
        atsi_session_eval(s, &req, &err) == ATSI_OK) {
        assert_non_null(atsi_session_logits(s));
        n_used++;
    } else {
        assert_true(err.msg[0] != '\0' && strchr(err.msg, '\n') == NULL);
        n_refused++;
    }
    atsi_session_close(s);
}

static void flip(const char *path, const uint8_t *head, size_t n, uint32_t seed)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_model *model = NULL;
    uint8_t bad[MAX_HEAD];
    FILE *f = fopen(path, "r+be");
    memcpy(bad, head, n);
    for (uint32_t k = 1 + seed % 3; k > 0; k--)
        bad[24 + next(&seed) % (n - 24)] ^= (uint8_t)(1u << next(&seed) % 8);
    assert_non_null(f);
    assert_int_equal(fwrite(bad, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    if (atsi_model_open(ar_runtimes[0], path, NULL, &model, &err) == ATSI_OK)
        use(model);
    else
        assert_true(err.msg[0] != '\0' && strchr(err.msg, '\n') == NULL);
    n_refused += model == NULL ? 1 : 0;
    atsi_model_close(model);
}

static void flipped_bits_do_no_harm(void **state)
{
    uint32_t seed = 7;
    (void)state;
    for (const char *const *name = am_tiny_names; *name != NULL; name++) {
        const char *path = scratch_path("flipped.gguf");
        uint8_t head[MAX_HEAD];
        struct am m;
        size_t n;
        FILE *f;
        struct am_config c = am_tiny(*name);
        am_build(&m, &c, true);
        assert_true(am_save(&m, path));
        f = fopen(path, "rbe");
        assert_non_null(f);
        n = fread(head, 1, am_head_bytes(&m), f);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(n, am_head_bytes(&m));
        for (uint32_t i = 0; i < N_FLIPS; i++)
            flip(path, head, n, next(&seed));
        am_free(&m);
    }
    print_message("%u refused, %u used\n", n_refused, n_used);
    assert_true(n_refused > 0 && n_used > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flipped_bits_do_no_harm),
    };
    return cmocka_run_group_tests(tests, ar_enter, ar_leave);
}
