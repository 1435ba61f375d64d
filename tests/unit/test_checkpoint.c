/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: coming back to one is the same as never having gone on, through sliding windows that
 * have wrapped and recurrent states, and what does not fit is refused with nothing changed.
 */
#include "tests/unit/fake_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { WINDOW = 5, SEED = 1, OTHER = 2 };

static struct atsi_runtime *rt;
static struct fake_model windowed, recurrent, plain;

static int open_all(void **state)
{
    (void)state;
    rt = fake_runtime();
    fake_model_init(&windowed, rt, WINDOW, false);
    fake_model_init(&recurrent, rt, WINDOW, true);
    fake_model_init(&plain, rt, 0, false);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    atsi_runtime_close(rt);
    return 0;
}

static struct atsi_checkpoint *take(const struct atsi_session *s)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_checkpoint *cp = NULL;
    if (atsi_session_checkpoint(s, &cp, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return cp;
}

static void restore(struct atsi_session *s, const struct atsi_checkpoint *cp)
{
    struct atsi_err err = ATSI_ERR_INIT;
    if (atsi_session_restore(s, cp, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(atsi_session_n_past(s), atsi_checkpoint_n_past(cp));
    assert_null(atsi_session_logits(s));
}

/* Logits after n tokens in one go, of a session that never went elsewhere. */
static void straight(struct fake_model *f, uint32_t n, float out[FAKE_VOCAB])
{
    struct atsi_session *s = fake_session(f, 64, 3, ATSI_TYPE_F16);
    assert_true(fake_eval(s, n, SEED));
    memcpy(out, atsi_session_logits(s), FAKE_VOCAB * sizeof *out);
    atsi_session_close(s);
}

static void assert_logits(struct atsi_session *s, const float want[FAKE_VOCAB])
{
    assert_non_null(atsi_session_logits(s));
    assert_memory_equal(atsi_session_logits(s), want, FAKE_VOCAB * sizeof *want);
}

/* To `at`, on for `more` other tokens, back, and then six tokens further. */
static void detour(struct fake_model *f, uint32_t chunk, uint32_t at, uint32_t more)
{
    struct atsi_session *s = fake_session(f, 64, chunk, ATSI_TYPE_F16);
    struct atsi_checkpoint *cp;
    float want[FAKE_VOCAB];
    straight(f, at + 6, want);
    assert_true(fake_eval(s, at, SEED));
    cp = take(s);
    for (int again = 0; again < 2; again++) { /* a checkpoint serves more than once */
        assert_true(fake_eval(s, more, OTHER));
        restore(s, cp);
        assert_true(fake_eval(s, 6, SEED));
        assert_logits(s, want);
    }
    atsi_checkpoint_free(cp);
    atsi_session_close(s);
}

static void coming_back_is_never_having_left(void **state)
{
    static const uint32_t chunks[] = {1, 3, 64}, ats[] = {0, 1, 4, 5, 6, 8, 17, 30};
    (void)state;
    for (size_t c = 0; c < 3; c++)
        for (size_t a = 0; a < sizeof ats / sizeof ats[0]; a++)
            for (uint32_t more = 0; more < 28; more += 3) {
                detour(&windowed, chunks[c], ats[a], more);
                detour(&recurrent, chunks[c], ats[a], more);
                detour(&plain, chunks[c], ats[a], more);
            }
}

/* After coming back the session says truly how far it can be cut: each position it allows gives the
 * logits of a session that was never there. */
static void check_reach(struct fake_model *f, uint32_t chunk, uint32_t at, uint32_t more)
{
    for (uint32_t n = 1; n <= at; n++) {
        struct atsi_err err = ATSI_ERR_INIT;
        struct atsi_session *s = fake_session(f, 64, chunk, ATSI_TYPE_F16);
        struct atsi_checkpoint *cp;
        float want[FAKE_VOCAB];
        int rc;
        assert_true(fake_eval(s, at, SEED));
        cp = take(s);
        assert_true(fake_eval(s, more, OTHER));
        restore(s, cp);
        rc = atsi_session_truncate(s, n, &err);
        if (rc == ATSI_OK) {
            straight(f, n + 1, want);
            assert_true(fake_eval(s, 1, SEED));
            assert_logits(s, want);
        } else {
            assert_int_equal(rc, ATSI_ENOTSUP);
            assert_int_not_equal(n, at);
            assert_true(f != &plain);
            assert_int_equal(atsi_session_n_past(s), at);
        }
        atsi_checkpoint_free(cp);
        atsi_session_close(s);
    }
}

static void the_reach_after_coming_back_is_true(void **state)
{
    static const uint32_t mores[] = {0, 1, 5, 20};
    (void)state;
    for (size_t m = 0; m < 4; m++)
        for (uint32_t chunk = 1; chunk < 8; chunk += 3) {
            check_reach(&windowed, chunk, 4, mores[m]);
            check_reach(&windowed, chunk, 21, mores[m]);
            check_reach(&recurrent, chunk, 9, mores[m]);
            check_reach(&plain, chunk, 9, mores[m]);
        }
}

/* Nothing was lost where a cut suffices: the session still reaches as far back as before. */
static void coming_back_loses_no_reach(void **state)
{
    struct atsi_session *s = fake_session(&windowed, 64, 8, ATSI_TYPE_F16);
    struct atsi_checkpoint *cp;
    (void)state;
    assert_true(fake_eval(s, 12, SEED));
    cp = take(s);
    assert_true(fake_eval(s, 2, SEED));
    assert_int_equal(atsi_session_rewind_point(s, 8), 8);
    restore(s, cp);
    assert_int_equal(atsi_session_rewind_point(s, 8), 8);
    atsi_checkpoint_free(cp);
    atsi_session_close(s);
}

static void fits_sessions_of_another_shape(void **state)
{
    static const uint32_t ctx[] = {20, 64, 640}, chunks[] = {1, 7, 20};
    float want[FAKE_VOCAB];
    (void)state;
    straight(&windowed, 18, want);
    for (size_t a = 0; a < 9; a++)
        for (size_t b = 0; b < 9; b++) {
            struct atsi_session *from =
                fake_session(&windowed, ctx[a / 3], chunks[a % 3], ATSI_TYPE_F16);
            struct atsi_session *to =
                fake_session(&windowed, ctx[b / 3], chunks[b % 3], ATSI_TYPE_F16);
            struct atsi_checkpoint *cp;
            assert_true(fake_eval(from, 12, SEED));
            cp = take(from);
            assert_true(fake_eval(to, 12, SEED));
            assert_true(fake_eval(to, 8, OTHER));
            restore(to, cp);
            assert_true(fake_eval(to, 6, SEED));
            assert_logits(to, want);
            atsi_checkpoint_free(cp);
            atsi_session_close(from);
            atsi_session_close(to);
        }
}

static void assert_refused(struct atsi_session *s, const struct atsi_checkpoint *cp,
                           const char *word)
{
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t n = atsi_session_n_past(s);
    float before[FAKE_VOCAB];
    memcpy(before, atsi_session_logits(s), sizeof before);
    assert_int_equal(atsi_session_restore(s, cp, &err), ATSI_EINVAL);
    if (strstr(err.msg, word) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.msg, word);
    assert_int_equal(atsi_session_n_past(s), n);
    assert_logits(s, before);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session *s = fake_session(&plain, 64, 8, ATSI_TYPE_F16);
    struct atsi_session *other_model = fake_session(&windowed, 64, 8, ATSI_TYPE_F16);
    struct atsi_session *other_type = fake_session(&plain, 64, 8, ATSI_TYPE_Q8_0);
    struct atsi_checkpoint *cp;
    (void)state;
    assert_true(fake_eval(s, 10, SEED));
    assert_true(fake_eval(other_model, 10, SEED));
    assert_true(fake_eval(other_type, 10, SEED));
    cp = take(s);
    assert_refused(other_model, cp, "another model");
    assert_refused(other_type, cp, "F16/F16");
    assert_int_equal(atsi_session_truncate(s, 8, &err), ATSI_OK);
    assert_true(fake_eval(s, 1, SEED));
    assert_refused(s, cp, "only 9");
    assert_true(fake_eval(s, 1, OTHER));
    assert_refused(s, cp, "at token 9");
    atsi_checkpoint_free(cp);
    atsi_checkpoint_free(NULL);
    atsi_session_close(s);
    atsi_session_close(other_model);
    atsi_session_close(other_type);
}

/* A round that fails empties a recurrent session; its checkpoint is then of no use, and says so. */
static void a_failed_round(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session *s = fake_session(&recurrent, 64, 8, ATSI_TYPE_F16);
    struct atsi_session *w = fake_session(&windowed, 64, 8, ATSI_TYPE_F16);
    struct atsi_checkpoint *cp, *cw;
    float want[FAKE_VOCAB];
    (void)state;
    assert_true(fake_eval(s, 10, SEED));
    cp = take(s);
    fake_backend_fails = true;
    assert_false(fake_eval(s, 4, OTHER));
    assert_int_equal(atsi_session_n_past(s), 0);
    assert_int_equal(atsi_session_restore(s, cp, &err), ATSI_EINVAL);
    /* A window keeps its past: back and on. */
    assert_true(fake_eval(w, 30, SEED));
    cw = take(w);
    fake_backend_fails = true;
    assert_false(fake_eval(w, 8, OTHER));
    restore(w, cw);
    straight(&windowed, 32, want);
    assert_true(fake_eval(w, 2, SEED));
    assert_logits(w, want);
    atsi_checkpoint_free(cp);
    atsi_checkpoint_free(cw);
    atsi_session_close(s);
    atsi_session_close(w);
}

/* What a checkpoint costs does not grow with the past, but for the tokens themselves. */
static void size_is_what_cannot_be_cut(void **state)
{
    struct atsi_session *s = fake_session(&plain, 64, 8, ATSI_TYPE_F32);
    struct atsi_session *w = fake_session(&windowed, 64, 8, ATSI_TYPE_F32);
    struct atsi_session *r = fake_session(&recurrent, 64, 8, ATSI_TYPE_F32);
    struct atsi_checkpoint *cs, *cw, *cr;
    size_t base, rows = (size_t)(WINDOW - 1) * 2 * 32 * 4;
    (void)state;
    assert_true(fake_eval(s, 40, SEED));
    assert_true(fake_eval(w, 40, SEED));
    assert_true(fake_eval(r, 40, SEED));
    cs = take(s);
    cw = take(w);
    cr = take(r);
    base = atsi_checkpoint_bytes(cs);
    assert_in_range(base, 40 * 4, 40 * 4 + 512);
    assert_int_equal(atsi_checkpoint_bytes(cw), base + rows);
    assert_int_equal(atsi_checkpoint_bytes(cr), base + rows + (15 + 32) * sizeof(float));
    atsi_checkpoint_free(cs);
    atsi_checkpoint_free(cw);
    atsi_checkpoint_free(cr);
    atsi_session_close(s);
    atsi_session_close(w);
    atsi_session_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coming_back_is_never_having_left),
        cmocka_unit_test(the_reach_after_coming_back_is_true),
        cmocka_unit_test(coming_back_loses_no_reach),
        cmocka_unit_test(fits_sessions_of_another_shape),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_failed_round),
        cmocka_unit_test(size_is_what_cannot_be_cut),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
