/* SPDX-License-Identifier: Apache-2.0
 *
 * Session files: what was saved is what is loaded, whatever the context and chunk of either side;
 * what is damaged, forged or of another model is refused by name, and the session is as it was.
 */
#include "tests/unit/fake_session.h"
#include "tests/unit/scratch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

enum { WINDOW = 5, SEED = 1, OTHER = 2 };

#define FILE_NAME "a.session"

static struct atsi_runtime *rt;
static struct fake_model windowed, recurrent, plain;
static const char talk[] = "{\"talk\": \"hello\"}";

static int open_all(void **state)
{
    int rc = scratch_enter(state);
    rt = fake_runtime();
    fake_model_init(&windowed, rt, WINDOW, false);
    fake_model_init(&recurrent, rt, WINDOW, true);
    fake_model_init(&plain, rt, 0, false);
    return rc;
}

static int close_all(void **state)
{
    atsi_runtime_close(rt);
    return scratch_leave(state);
}

static void save(const struct atsi_session *s, const char *path)
{
    struct atsi_err err = ATSI_ERR_INIT;
    if (atsi_session_save(s, path, talk, sizeof talk, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

/* A session of `n` tokens, saved to FILE_NAME and closed. */
static void save_new(struct fake_model *f, uint32_t n_ctx, uint32_t chunk, uint32_t n)
{
    struct atsi_session *s = fake_session(f, n_ctx, chunk, ATSI_TYPE_F16);
    assert_true(fake_eval(s, n, SEED));
    save(s, FILE_NAME);
    atsi_session_close(s);
}

static void load(struct atsi_session *s, const char *path)
{
    struct atsi_err err = ATSI_ERR_INIT;
    void *user = NULL;
    size_t bytes = 0;
    if (atsi_session_load(s, path, &user, &bytes, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(bytes, sizeof talk);
    assert_memory_equal(user, talk, sizeof talk);
    assert_null(atsi_session_logits(s));
    free(user);
}

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

/* ---------------------------------------------------------------- what is saved is loaded */
static const uint32_t contexts[] = {26, 64, 640}, chunks[] = {1, 7, 26};
enum { N_SHAPES = 9 };

static struct atsi_session *shaped(struct fake_model *f, size_t shape)
{
    return fake_session(f, contexts[shape / 3], chunks[shape % 3], ATSI_TYPE_F16);
}

/* From one shape to all. */
static void round_trips(struct fake_model *f, size_t from, uint32_t n)
{
    struct atsi_session *a = shaped(f, from);
    float want[FAKE_VOCAB], before[FAKE_VOCAB];
    straight(f, n + 6, want);
    assert_true(fake_eval(a, n, SEED));
    memcpy(before, atsi_session_logits(a), sizeof before);
    save(a, FILE_NAME);
    assert_logits(a, before); /* saving changes nothing */
    for (size_t to = 0; to < N_SHAPES; to++) {
        struct atsi_session *b = shaped(f, to);
        assert_true(fake_eval(b, 13, OTHER)); /* what was there before is gone */
        load(b, FILE_NAME);
        assert_int_equal(atsi_session_n_past(b), n);
        assert_memory_equal(atsi_session_tokens(b), atsi_session_tokens(a), n * sizeof(int32_t));
        assert_true(fake_eval(b, 6, SEED));
        assert_logits(b, want);
        atsi_session_close(b);
    }
    atsi_session_close(a);
}

static void context_and_chunk_do_not_matter(void **state)
{
    (void)state;
    for (size_t from = 0; from < N_SHAPES; from++)
        for (uint32_t n = 2; n <= 20; n += 6) {
            round_trips(&windowed, from, n);
            round_trips(&recurrent, from, n);
            round_trips(&plain, from, n);
        }
}

static void an_empty_session(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session *a = fake_session(&recurrent, 64, 8, ATSI_TYPE_F32);
    struct atsi_session *b = fake_session(&recurrent, 64, 8, ATSI_TYPE_F32);
    void *user = a;
    size_t bytes = 1;
    (void)state;
    assert_int_equal(atsi_session_save(a, FILE_NAME, NULL, 0, &err), ATSI_OK);
    assert_true(fake_eval(b, 5, OTHER));
    assert_int_equal(atsi_session_load(b, FILE_NAME, &user, &bytes, &err), ATSI_OK);
    assert_null(user);
    assert_int_equal(bytes, 0);
    assert_int_equal(atsi_session_n_past(b), 0);
    assert_true(fake_eval(a, 3, SEED));
    assert_true(fake_eval(b, 3, SEED));
    assert_logits(b, atsi_session_logits(a));
    assert_int_equal(atsi_session_load(b, FILE_NAME, NULL, NULL, &err), ATSI_OK);
    atsi_session_close(a);
    atsi_session_close(b);
}

/* Loads a session and cuts it to n, if it says that it can: the logits are then those of a session
 * that was never longer. */
static void load_and_cut(const struct atsi_session *from, struct atsi_session *to, uint32_t n,
                         bool as_far)
{
    float want[FAKE_VOCAB];
    uint32_t point;
    load(to, FILE_NAME);
    point = atsi_session_rewind_point(to, n);
    if (as_far)
        assert_int_equal(point, atsi_session_rewind_point(from, n));
    if (point == n) {
        straight(&windowed, n + 1, want);
        assert_int_equal(atsi_session_truncate(to, n, NULL), ATSI_OK);
        assert_true(fake_eval(to, 1, SEED));
        assert_logits(to, want);
    } else {
        struct atsi_session_info info = {.struct_size = sizeof info};
        atsi_session_info(to, &info);
        assert_int_equal(info.can_rewind, 0);
    }
}

/* A session of the same shape can go back as far as the one that was saved. */
static void the_reach_after_loading_is_true(void **state)
{
    (void)state;
    for (size_t from = 0; from < N_SHAPES; from++) {
        struct atsi_session *a = shaped(&windowed, from);
        assert_true(fake_eval(a, 20, SEED));
        save(a, FILE_NAME);
        for (size_t to = 0; to < N_SHAPES; to++) {
            struct atsi_session *b = shaped(&windowed, to);
            for (uint32_t n = 1; n < 20; n++)
                load_and_cut(a, b, n, from == to);
            atsi_session_close(b);
        }
        atsi_session_close(a);
    }
}

/* ---------------------------------------------------------------- the file */
struct bytes {
    unsigned char *p;
    size_t n;
};

static struct bytes slurp(const char *path)
{
    struct bytes b = {NULL, 0};
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    b.p = malloc(1 << 20);
    assert_non_null(b.p);
    b.n = fread(b.p, 1, 1 << 20, f);
    assert_int_equal(fclose(f), 0);
    return b;
}

static void same_session_same_file(void **state)
{
    struct bytes a, b;
    struct stat st;
    (void)state;
    save_new(&windowed, 64, 64, 12); /* a ring that has not wrapped */
    a = slurp(FILE_NAME);
    save_new(&windowed, 640, 64, 12);
    b = slurp(FILE_NAME);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.p, b.p, a.n);
    assert_int_equal(stat(FILE_NAME, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    free(a.p);
    free(b.p);
}

static void a_link_stays_a_link(void **state)
{
    struct stat st;
    struct atsi_session *s = fake_session(&plain, 64, 8, ATSI_TYPE_F16);
    (void)state;
    scratch_write("real/file", "old");
    assert_int_equal(symlink("real/file", "link"), 0);
    assert_true(fake_eval(s, 4, SEED));
    save(s, "link");
    assert_int_equal(lstat("link", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    load(s, "real/file");
    atsi_session_close(s);
}

/* ---------------------------------------------------------------- what is refused */
/* A session of 9 other tokens, to see that nothing happens to it. */
struct witness {
    struct atsi_session *s;
    float logits[FAKE_VOCAB];
};

static void witness_open(struct witness *w, struct fake_model *f)
{
    w->s = fake_session(f, 64, 8, ATSI_TYPE_F16);
    assert_true(fake_eval(w->s, 9, OTHER));
    memcpy(w->logits, atsi_session_logits(w->s), sizeof w->logits);
}

/* The load fails with `rc`, says `word` (may be NULL), and leaves no trace. */
static void refused(struct witness *w, const char *path, int rc, const char *word)
{
    struct atsi_err err = ATSI_ERR_INIT;
    void *user = NULL;
    size_t bytes = 7;
    int got = atsi_session_load(w->s, path, &user, &bytes, &err);
    if (got != rc || (word != NULL && strstr(err.msg, word) == NULL))
        fail_msg("%s: status %d, \"%s\"; expected %d, \"%s\"", path, got, err.msg, rc,
                 word != NULL ? word : "");
    assert_null(user);
    assert_int_equal(bytes, 0);
    assert_int_equal(atsi_session_n_past(w->s), 9);
    assert_logits(w->s, w->logits);
}

static void witness_close(struct witness *w)
{
    /* Its caches are untouched too. */
    struct atsi_session *fresh =
        fake_session((struct fake_model *)(void *)w->s->model, 64, 8, ATSI_TYPE_F16);
    assert_true(fake_eval(fresh, 9, OTHER));
    assert_true(fake_eval(fresh, 1, SEED));
    assert_true(fake_eval(w->s, 1, SEED));
    assert_logits(w->s, atsi_session_logits(fresh));
    atsi_session_close(fresh);
    atsi_session_close(w->s);
}

/* In place: writing thousands of files anew takes minutes on some disks. */
static void every_flipped_byte_is_found(void **state)
{
    struct witness w;
    struct bytes b;
    int fd;
    (void)state;
    save_new(&recurrent, 64, 8, 3);
    b = slurp(FILE_NAME);
    assert_in_range(b.n, 2000, 4000);
    fd = open(FILE_NAME, O_WRONLY);
    assert_true(fd >= 0);
    witness_open(&w, &recurrent);
    for (size_t i = 0; i < b.n; i++) {
        unsigned char flipped = (unsigned char)(b.p[i] ^ (1u << (i % 8)));
        assert_int_equal(pwrite(fd, &flipped, 1, (off_t)i), 1);
        refused(&w, FILE_NAME, i >= 8 && i < 12 ? ATSI_ENOTSUP : ATSI_EFORMAT, FILE_NAME ": ");
        assert_int_equal(pwrite(fd, b.p + i, 1, (off_t)i), 1);
    }
    load(w.s, FILE_NAME); /* it was the flips */
    assert_int_equal(close(fd), 0);
    atsi_session_close(w.s);
    free(b.p);
}

static void every_other_length_is_found(void **state)
{
    struct witness w;
    struct stat st;
    (void)state;
    save_new(&recurrent, 64, 8, 3);
    assert_int_equal(stat(FILE_NAME, &st), 0);
    witness_open(&w, &recurrent);
    assert_int_equal(truncate(FILE_NAME, st.st_size + 1), 0);
    refused(&w, FILE_NAME, ATSI_EFORMAT, "1 bytes too long");
    assert_int_equal(truncate(FILE_NAME, (off_t)1 << 40), 0); /* a hole: no disk is used */
    refused(&w, FILE_NAME, ATSI_EFORMAT, "bytes too long");
    for (off_t n = st.st_size; n-- > 0;) {
        assert_int_equal(truncate(FILE_NAME, n), 0);
        refused(&w, FILE_NAME, ATSI_EFORMAT, n == 0 ? "empty" : "cut short");
    }
    witness_close(&w);
}

/* Overwrites a field and makes the head's checksum right again. */
static void forge(struct bytes *b, size_t at, uint64_t v, int bytes)
{
    uint32_t head;
    uint64_t sum;
    memcpy(b->p + at, &v, (size_t)bytes);
    memcpy(&head, b->p + 12, sizeof head);
    sum = XXH3_64bits(b->p, head - 8);
    memcpy(b->p + head - 8, &sum, sizeof sum);
    scratch_write_bytes("forged", b->p, b->n);
}

static void try_forged(struct witness *w, size_t at, uint64_t v, int bytes, int rc,
                       const char *word)
{
    struct bytes b = slurp(FILE_NAME);
    forge(&b, at, v, bytes);
    refused(w, "forged", rc, word);
    free(b.p);
}

/* Heads that are whole and wrong.  Offsets: core/session_head.c. */
static void forged_heads_are_found(void **state)
{
    struct witness w;
    (void)state;
    save_new(&recurrent, 64, 8, 6);
    witness_open(&w, &recurrent);
    try_forged(&w, 0, 'B', 1, ATSI_EFORMAT, "not a session file");
    try_forged(&w, 8, 2, 4, ATSI_ENOTSUP, "version 2; this program reads version 1");
    try_forged(&w, 16, UINT64_MAX, 8, ATSI_EFORMAT, "add up");
    try_forged(&w, 24, 1, 8, ATSI_EINVAL, "tensors");
    try_forged(&w, 32, 1, 8, ATSI_EINVAL, "settings");
    try_forged(&w, 40, 1, 8, ATSI_EINVAL, "weights");
    try_forged(&w, 48, 5, 4, ATSI_EINVAL, "vocabularies");
    try_forged(&w, 52, UINT32_MAX, 4, ATSI_EFORMAT, "4294967295 tokens");
    try_forged(&w, 52, 5, 4, ATSI_EFORMAT, NULL);
    try_forged(&w, 56, 7, 4, ATSI_EFORMAT, "cut down to 7");
    try_forged(&w, 56, 5, 4, ATSI_EINVAL, "cache 1");
    try_forged(&w, 60, ATSI_TYPE_F32, 4, ATSI_EINVAL, "F32/F16");
    try_forged(&w, 64, 12345, 4, ATSI_EINVAL, "F16/unknown");
    try_forged(&w, 80, ((uint64_t)64 << 20) + 1, 8, ATSI_EFORMAT, "at most 67108864");
    try_forged(&w, 80, UINT64_MAX, 8, ATSI_EFORMAT, "at most 67108864");
    try_forged(&w, 80, sizeof talk + 1, 8, ATSI_EFORMAT, "add up");
    try_forged(&w, 104, 0x1b, 1, ATSI_EINVAL, "(?ake)");
    try_forged(&w, 200, 3, 4, ATSI_EFORMAT, "part 0 is of kind 3");
    try_forged(&w, 208, 3, 8, ATSI_EINVAL, "cache 0 (layer 0");
    try_forged(&w, 200 + 32, 9, 4, ATSI_EINVAL, "cache 0");
    try_forged(&w, 200 + 40, UINT64_MAX - 100, 8, ATSI_EFORMAT, "add up");
    try_forged(&w, 200 + 56 + 48, 1, 8, ATSI_EFORMAT, "KV cache of layer 1");
    try_forged(&w, 200 + 2 * 56 + 48, 1, 8, ATSI_EFORMAT, "state of layer 2");
    witness_close(&w);
}

/* A state cannot be cut, whatever a file says. */
static void a_forged_reach(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session *s = fake_session(&recurrent, 64, 8, ATSI_TYPE_F16);
    struct bytes b;
    (void)state;
    save_new(&recurrent, 64, 8, 3);
    b = slurp(FILE_NAME);
    forge(&b, 56, 0, 4);
    load(s, "forged");
    assert_int_equal(atsi_session_rewind_point(s, 2), 0);
    assert_int_equal(atsi_session_truncate(s, 2, &err), ATSI_ENOTSUP);
    free(b.p);
    atsi_session_close(s);
}

/* Counts that would move the checksum itself are judged before it. */
static void forged_counts_are_found(void **state)
{
    static const uint32_t counts[] = {0, 1, 3, 16384, UINT32_MAX};
    struct witness w;
    (void)state;
    save_new(&recurrent, 64, 8, 6);
    witness_open(&w, &recurrent);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (size_t at = 68; at <= 72; at += 4) {
            struct bytes b = slurp(FILE_NAME);
            memcpy(b.p + at, &counts[i], 4);
            scratch_write_bytes("counts", b.p, b.n);
            refused(&w, "counts", ATSI_EFORMAT, "damaged");
            memcpy(b.p + 12, &counts[i], 4); /* bytes of the head */
            scratch_write_bytes("counts", b.p, b.n);
            refused(&w, "counts", ATSI_EFORMAT, "damaged");
            free(b.p);
        }
    witness_close(&w);
}

static void a_token_outside_the_vocabulary(void **state)
{
    static const int32_t ids[] = {FAKE_VOCAB, -1, INT32_MAX, INT32_MIN};
    struct witness w;
    (void)state;
    save_new(&plain, 64, 8, 6);
    witness_open(&w, &plain);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        struct bytes b = slurp(FILE_NAME);
        uint32_t head;
        uint64_t sum;
        memcpy(&head, b.p + 12, sizeof head);
        memcpy(b.p + head + 8, &ids[i], sizeof ids[i]);
        sum = XXH3_64bits(b.p + head, 6 * sizeof(int32_t));
        forge(&b, 88, sum, 8);
        refused(&w, "forged", ATSI_EFORMAT, "token 2 is ");
        free(b.p);
    }
    witness_close(&w);
}

/* ---------------------------------------------------------------- another model, another session
 */
static void other(struct fake_model *f, struct witness *w, const char *what)
{
    refused(w, FILE_NAME, ATSI_EINVAL, what);
    refused(w, FILE_NAME, ATSI_EINVAL, "\"Fake\" (fake)");
    refused(w, FILE_NAME, ATSI_EINVAL, f->name);
    witness_close(w);
}

static void another_model_is_named(void **state)
{
    static struct fake_model f;
    struct witness w;
    (void)state;
    save_new(&plain, 64, 8, 6);
    for (int i = 0; i < 6; i++) {
        fake_model_init(&f, rt, 0, false);
        f.name = "Other";
        if (i == 0)
            f.tensors[1].type = ATSI_TYPE_I32;
        else if (i == 1)
            f.tensors[2].ne[2] = 2;
        else if (i == 2)
            f.block_count = 3;
        else if (i == 3)
            f.words[1] = "c";
        else if (i == 4)
            f.weights[1][32] += 1.0f;
        else
            f.info.arch = "strange";
        f.info.n_tensors = i == 1 ? 2 : FAKE_TENSORS;
        witness_open(&w, &f);
        other(&f, &w,
              i < 2    ? "tensors"
              : i < 4  ? "settings"
              : i == 4 ? "weights"
                       : "architectures");
    }
}

/* Neither a chat template nor the name nor the order of the tensors makes another model. */
static void the_same_model_elsewhere(void **state)
{
    static struct fake_model f;
    struct atsi_session *s;
    float want[FAKE_VOCAB];
    (void)state;
    save_new(&plain, 64, 8, 6);
    fake_model_init(&f, rt, 0, false);
    f.name = "Renamed";
    f.template_text = "another template";
    f.tensor_ptrs[0] = &f.tensors[2];
    f.tensor_ptrs[2] = &f.tensors[0];
    s = fake_session(&f, 64, 8, ATSI_TYPE_F16);
    load(s, FILE_NAME);
    straight(&plain, 7, want);
    assert_true(fake_eval(s, 1, SEED));
    assert_logits(s, want);
    atsi_session_close(s);
}

/* The same fingerprint with other caches: written by a program that builds the graph differently.
 */
static void another_graph_is_refused(void **state)
{
    struct witness w;
    (void)state;
    save_new(&plain, 64, 8, 6);
    witness_open(&w, &windowed);
    refused(&w, FILE_NAME, ATSI_EINVAL, "cache 1 (layer 1, ");
    witness_close(&w);
    witness_open(&w, &recurrent);
    refused(&w, FILE_NAME, ATSI_EINVAL, "2 caches and 0 states, this model has 2 and 2");
    witness_close(&w);
}

static void what_does_not_fit_the_session(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct witness w;
    struct atsi_session *s = fake_session(&plain, 30, 8, ATSI_TYPE_F16);
    struct atsi_session *t = fake_session(&plain, 64, 8, ATSI_TYPE_Q8_0);
    (void)state;
    save_new(&plain, 64, 8, 31);
    assert_int_equal(atsi_session_load(s, FILE_NAME, NULL, NULL, &err), ATSI_ENOFIT);
    assert_non_null(strstr(err.msg, "31 tokens do not fit a context of 30"));
    assert_int_equal(atsi_session_load(t, FILE_NAME, NULL, NULL, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "F16/F16, the session's Q8_0/Q8_0"));
    save_new(&plain, 64, 8, 30);
    assert_int_equal(atsi_session_load(s, FILE_NAME, NULL, NULL, &err), ATSI_OK);
    atsi_session_close(s);
    atsi_session_close(t);
    witness_open(&w, &plain);
    witness_close(&w);
}

/* ---------------------------------------------------------------- paths */
static void no_file_at_all(void **state)
{
    char deep[600];
    struct witness w;
    (void)state;
    witness_open(&w, &plain);
    scratch_mkdir("folder");
    assert_int_equal(mkfifo("fifo", 0600), 0);
    scratch_write("text", "This is no session file, though it is long enough to be one........."
                          "...................................................................");
    refused(&w, "", ATSI_EINVAL, "no session file named");
    refused(&w, NULL, ATSI_EINVAL, "no session file named");
    refused(&w, "missing", ATSI_ENOENT, "missing: No such file");
    refused(&w, "text/x", ATSI_ENOENT, "text/x: ");
    refused(&w, "folder", ATSI_EIO, "folder: not a regular file");
    refused(&w, "fifo", ATSI_EIO, "fifo: not a regular file");
    refused(&w, "/dev/zero", ATSI_EIO, "/dev/zero: not a regular file");
    refused(&w, "text", ATSI_EFORMAT, "text: not a session file");
    memset(deep, '/', sizeof deep);
    (void)snprintf(deep + 590, 10, "absent");
    refused(&w, deep, ATSI_ENOENT, "/absent: No such file");
    witness_close(&w);
}

/* Nothing but what is named is in the working folder afterwards. */
static void cannot_save(const char *path, int rc, const char *word)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session *s = fake_session(&plain, 64, 8, ATSI_TYPE_F16);
    int got;
    assert_true(fake_eval(s, 4, SEED));
    got = atsi_session_save(s, path, NULL, 0, &err);
    if (got != rc || strstr(err.msg, word) == NULL)
        fail_msg("%s: status %d, \"%s\"", path, got, err.msg);
    atsi_session_close(s);
}

static void nowhere_to_save(void **state)
{
    struct stat st;
    char deep[600], name[260];
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session *s = fake_session(&plain, 64, 8, ATSI_TYPE_F16);
    (void)state;
    scratch_mkdir("taken");
    scratch_write("text", "x");
    assert_int_equal(mkfifo("pipe", 0600), 0);
    cannot_save("", ATSI_EINVAL, "no file named");
    cannot_save(NULL, ATSI_EINVAL, "no file named");
    cannot_save("absent/x", ATSI_ENOENT, "absent/x: cannot make a file in its folder: No such");
    cannot_save("text/x", ATSI_ENOENT, "text/x: ");
    cannot_save("taken", ATSI_EIO, "taken: not a regular file");
    cannot_save("pipe", ATSI_EIO, "pipe: not a regular file");
    cannot_save("/dev/null", ATSI_EIO, "/dev/null: not a regular file");
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    memset(deep, 'd', sizeof deep);
    (void)snprintf(deep + 590, 10, "/name");
    cannot_save(deep, ATSI_EIO, "/name: ");
    memset(name, 'n', sizeof name);
    name[256] = '\0';
    cannot_save(name, ATSI_EIO, "File name too long");
    name[255] = '\0';
    save(s, name); /* the longest there is */
    assert_int_equal(atsi_session_save(s, "x", NULL, 1, &err), ATSI_EINVAL);
    assert_int_equal(atsi_session_save(s, "x", talk, ((size_t)64 << 20) + 1, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "67108864"));
    assert_int_equal(access("x", F_OK), -1);
    atsi_session_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_and_chunk_do_not_matter),
        cmocka_unit_test(an_empty_session),
        cmocka_unit_test(the_reach_after_loading_is_true),
        cmocka_unit_test(same_session_same_file),
        cmocka_unit_test(a_link_stays_a_link),
        cmocka_unit_test(every_flipped_byte_is_found),
        cmocka_unit_test(every_other_length_is_found),
        cmocka_unit_test(forged_heads_are_found),
        cmocka_unit_test(a_forged_reach),
        cmocka_unit_test(forged_counts_are_found),
        cmocka_unit_test(a_token_outside_the_vocabulary),
        cmocka_unit_test(another_model_is_named),
        cmocka_unit_test(the_same_model_elsewhere),
        cmocka_unit_test(another_graph_is_refused),
        cmocka_unit_test(what_does_not_fit_the_session),
        cmocka_unit_test(no_file_at_all),
        cmocka_unit_test(nowhere_to_save),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
