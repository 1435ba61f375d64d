/* SPDX-License-Identifier: Apache-2.0
 *
 * Session files: saving a session, and loading one.  A file is read twice: first every checksum is
 * verified with nothing changed, then the rows go into the caches, and are hashed once more, since
 * somebody may write to the file in between.
 */
#include "core/newfile.h"
#include "core/session_head.h"
#include "core/session_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define CHUNK_BYTES ((size_t)1 << 20)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "rows are stored as they lie in memory");

/* ---------------------------------------------------------------- saving */
static int hash_run(void *ctx, void *p, size_t bytes, struct atsi_err *err)
{
    (void)err;
    (void)XXH3_64bits_update(ctx, p, bytes); /* fails for NULL states only */
    return ATSI_OK;
}

static int write_run(void *ctx, void *p, size_t bytes, struct atsi_err *err)
{
    return atsi_newfile_write(ctx, p, bytes, err);
}

/* Visits the rows of a part that a file of head h holds. */
static int part_runs(const struct atsi_session *s, const struct atsi_session_head *h, uint32_t p,
                     enum atsi_rows how, atsi_run_fn *fn, void *ctx, struct atsi_err *err)
{
    uint32_t first = atsi_session_part_first(s, p, h->rewind_low);
    return atsi_session_part_runs(s, p, first, h->n_past, how, fn, ctx, err);
}

static int fill_sums(const struct atsi_session *s, const void *user, struct atsi_session_head *h,
                     struct atsi_err *err)
{
    XXH3_state_t *x = XXH3_createState();
    int rc = ATSI_OK;
    if (x == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a checksum");
    h->tokens_sum = XXH3_64bits(s->tokens, (size_t)h->n_past * sizeof *s->tokens);
    h->user_sum = XXH3_64bits(user, (size_t)h->user_bytes);
    for (uint32_t p = 0; p < atsi_session_n_parts(s) && rc == ATSI_OK; p++) {
        (void)XXH3_64bits_reset(x);
        rc = part_runs(s, h, p, ATSI_ROWS_READ, hash_run, x, err);
        h->parts[p].sum = XXH3_64bits_digest(x);
    }
    (void)XXH3_freeState(x); /* always 0 */
    return rc;
}

static int write_all(const struct atsi_session *s, const struct atsi_session_head *h,
                     const void *user, struct atsi_newfile *f, struct atsi_err *err)
{
    unsigned char *head = atsi_session_head_encode(h);
    int rc;
    if (head == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the head of a session file");
    rc = atsi_newfile_write(f, head, (size_t)atsi_session_head_bytes(h), err);
    free(head);
    if (rc == ATSI_OK)
        rc = atsi_newfile_write(f, s->tokens, (size_t)h->n_past * sizeof *s->tokens, err);
    if (rc == ATSI_OK)
        rc = atsi_newfile_write(f, user, (size_t)h->user_bytes, err);
    for (uint32_t p = 0; p < atsi_session_n_parts(s) && rc == ATSI_OK; p++)
        rc = part_runs(s, h, p, ATSI_ROWS_READ, write_run, f, err);
    return rc;
}

int atsi_session_save(const struct atsi_session *s, const char *path, const void *user,
                      size_t user_bytes, struct atsi_err *err)
{
    struct atsi_session_head h = {0};
    struct atsi_newfile f;
    int rc;
    if (user == NULL && user_bytes > 0)
        return atsi_fail(err, ATSI_EINVAL, "%zu bytes of the application, but no pointer",
                         user_bytes);
    if (user_bytes > ATSI_SESSION_USER_MAX)
        return atsi_fail(err, ATSI_EINVAL,
                         "%zu bytes of the application: a session file holds at most %llu",
                         user_bytes, (unsigned long long)ATSI_SESSION_USER_MAX);
    rc = atsi_session_head_make(s, s->n_past, s->rewind_low, &h, err);
    if (rc != ATSI_OK)
        return rc;
    h.user_bytes = user_bytes;
    rc = fill_sums(s, user, &h, err);
    if (rc == ATSI_OK)
        rc = atsi_newfile_open(&f, path, atsi_session_file_bytes(&h), err);
    if (rc == ATSI_OK) {
        rc = write_all(s, &h, user, &f, err);
        if (rc == ATSI_OK)
            rc = atsi_newfile_commit(&f, err);
        else
            atsi_newfile_abort(&f);
    }
    atsi_session_head_free(&h);
    return rc;
}

/* ---------------------------------------------------------------- loading */
struct load {
    const char *name; /* for messages */
    int fd;
    uint64_t at; /* next byte to read */
    struct atsi_session_head head;
    unsigned char *buf; /* [CHUNK_BYTES] */
    XXH3_state_t *x;    /* what was read of the part so far */
    int32_t *tokens;    /* [n_past] */
    unsigned char *user;
};

static void load_close(struct load *l)
{
    if (l->fd >= 0)
        (void)close(l->fd);
    atsi_session_head_free(&l->head);
    free(l->buf);
    (void)XXH3_freeState(l->x); /* always 0; NULL is allowed */
    free(l->tokens);
    free(l->user);
}

static int open_file(struct load *l, const char *path, uint64_t *bytes_out, struct atsi_err *err)
{
    struct stat st;
    if (path == NULL || path[0] == '\0')
        return atsi_fail(err, ATSI_EINVAL, "no session file named");
    l->name = atsi_path_shown(path);
    l->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not wait for a writer */
    if (l->fd < 0)
        return atsi_fail(err, errno == ENOENT || errno == ENOTDIR ? ATSI_ENOENT : ATSI_EIO,
                         "%s: %s", l->name, strerror(errno));
    if (fstat(l->fd, &st) != 0)
        return atsi_fail(err, ATSI_EIO, "%s: %s", l->name, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return atsi_fail(err, ATSI_EIO, "%s: not a regular file", l->name);
    *bytes_out = (uint64_t)st.st_size;
    return ATSI_OK;
}

/* The file's own consistency, then whether it suits the session. */
static int judge(struct load *l, const struct atsi_session *s, uint64_t file_bytes,
                 struct atsi_err *err)
{
    struct atsi_session_head mine = {0};
    const struct atsi_session_head *h = &l->head;
    int rc = atsi_session_head_read(l->fd, file_bytes, l->name, &l->head, err);
    if (rc == ATSI_OK)
        rc = atsi_session_head_make(s, h->n_past, h->rewind_low, &mine, err);
    if (rc == ATSI_OK)
        rc = atsi_session_head_match(h, &mine, l->name, err);
    if (rc == ATSI_OK && h->n_past > s->n_ctx)
        rc = atsi_fail(err, ATSI_ENOFIT,
                       "%s: its %u tokens do not fit a context of %u; set a longer one with -c",
                       l->name, h->n_past, s->n_ctx);
    atsi_session_head_free(&mine);
    return rc;
}

static int alloc(struct load *l, struct atsi_err *err)
{
    const struct atsi_session_head *h = &l->head;
    l->buf = malloc(CHUNK_BYTES);
    l->x = XXH3_createState();
    l->tokens = malloc((size_t)h->n_past * sizeof *l->tokens + 1);
    if (h->user_bytes > 0)
        l->user = malloc((size_t)h->user_bytes);
    if (l->buf == NULL || l->x == NULL || l->tokens == NULL ||
        (l->user == NULL && h->user_bytes > 0))
        return atsi_fail(err, ATSI_ENOMEM, "%s: out of memory for %u tokens and %llu bytes",
                         l->name, h->n_past, (unsigned long long)h->user_bytes);
    return ATSI_OK;
}

/* Reads the next bytes of a part, into p or, when that is NULL, nowhere; hashes them while they are
 * in the processor's cache. */
static int read_run(void *ctx, void *p, size_t bytes, struct atsi_err *err)
{
    struct load *l = ctx;
    for (size_t done = 0, n; done < bytes; done += n) {
        unsigned char *to = p != NULL ? (unsigned char *)p + done : l->buf;
        int rc;
        n = bytes - done < CHUNK_BYTES ? bytes - done : CHUNK_BYTES;
        rc = atsi_read_at(l->fd, l->at, to, n, l->name, err);
        if (rc != ATSI_OK)
            return rc;
        (void)XXH3_64bits_update(l->x, to, n); /* fails for NULL states only */
        l->at += n;
    }
    return ATSI_OK;
}

/* Reads bytes that a checksum covers. */
static int read_summed(struct load *l, void *p, uint64_t bytes, uint64_t sum, const char *what,
                       struct atsi_err *err)
{
    int rc;
    (void)XXH3_64bits_reset(l->x);
    rc = read_run(l, p, (size_t)bytes, err);
    if (rc == ATSI_OK && XXH3_64bits_digest(l->x) != sum)
        rc = atsi_fail(err, ATSI_EFORMAT, "%s: damaged: the checksum of its %s is wrong", l->name,
                       what);
    return rc;
}

/* Tokens and the application's bytes go to memory of ours. */
static int read_lists(struct load *l, struct atsi_err *err)
{
    const struct atsi_session_head *h = &l->head;
    uint64_t bytes = (uint64_t)h->n_past * sizeof *l->tokens;
    int rc = read_summed(l, l->tokens, bytes, h->tokens_sum, "tokens", err);
    for (uint32_t i = 0; i < h->n_past && rc == ATSI_OK; i++)
        if (l->tokens[i] < 0 || (uint32_t)l->tokens[i] >= h->n_vocab)
            rc =
                atsi_fail(err, ATSI_EFORMAT, "%s: malformed: token %u is %d, the vocabulary has %u",
                          l->name, i, l->tokens[i], h->n_vocab);
    if (rc == ATSI_OK)
        rc = read_summed(l, l->user, h->user_bytes, h->user_sum, "application's bytes", err);
    return rc;
}

static const char *part_name(const struct atsi_part_head *p, char buf[48])
{
    (void)snprintf(buf, 48, "%s of layer %d", p->kind == ATSI_PART_KV ? "KV cache" : "state",
                   p->layer);
    return buf;
}

static int verify_parts(struct load *l, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t p = 0; p < l->head.n_kv + l->head.n_states && rc == ATSI_OK; p++) {
        const struct atsi_part_head *part = &l->head.parts[p];
        char name[48];
        rc = read_summed(l, NULL, part->bytes, part->sum, part_name(part, name), err);
    }
    return rc;
}

static int check_again(const struct load *l, const struct atsi_part_head *p, struct atsi_err *err)
{
    char name[48];
    if (XXH3_64bits_digest(l->x) == p->sum)
        return ATSI_OK;
    return atsi_fail(err, ATSI_EFORMAT, "%s: its %s changed while it was read", l->name,
                     part_name(p, name));
}

/* Into the session.  The checksums were right a moment ago. */
static int read_parts(struct load *l, const struct atsi_session *s, struct atsi_err *err)
{
    for (uint32_t p = 0; p < atsi_session_n_parts(s); p++) {
        int rc;
        (void)XXH3_64bits_reset(l->x);
        rc = part_runs(s, &l->head, p, ATSI_ROWS_WRITE, read_run, l, err);
        if (rc == ATSI_OK)
            rc = check_again(l, &l->head.parts[p], err);
        if (rc != ATSI_OK)
            return rc;
    }
    return ATSI_OK;
}

/* How far the loaded past can be cut.  A ring that is shorter than the file's rows holds the newest
 * of them only. */
static uint32_t lowest_cut(const struct atsi_session *s, const struct atsi_session_head *h)
{
    uint32_t low = h->rewind_low;
    for (uint32_t i = 0; i < s->g->n_kv; i++) {
        uint32_t window = s->g->kv[i]->window, cells = s->kv[i].n_ctx;
        uint32_t held = h->n_past > cells ? h->n_past - cells : 0; /* first position with a cell */
        if (window != 0 && held > 0 && held + window - 1 > low)
            low = held + window - 1;
    }
    return low;
}

static int replace_past(struct load *l, struct atsi_session *s, uint64_t parts_at,
                        struct atsi_err *err)
{
    int rc;
    l->at = parts_at;
    atsi_session_reset(s);
    rc = read_parts(l, s, err);
    if (rc != ATSI_OK && atsi_session_is_broken(s)) { /* the accelerator failed, not the file */
        rc = atsi_session_fall_back(s, "its memory cannot be written", err);
        l->at = parts_at;
        if (rc == ATSI_OK)
            rc = read_parts(l, s, err);
    }
    if (rc != ATSI_OK) {
        atsi_session_reset(s); /* states may be half-written */
        return rc;
    }
    memcpy(s->tokens, l->tokens, (size_t)l->head.n_past * sizeof *s->tokens);
    atsi_session_set_past(s, l->head.n_past, lowest_cut(s, &l->head));
    return ATSI_OK;
}

int atsi_session_load(struct atsi_session *s, const char *path, void **user_out,
                      size_t *user_bytes_out, struct atsi_err *err)
{
    struct load l = {.fd = -1};
    uint64_t file_bytes = 0, parts_at;
    int rc;
    if (user_out != NULL)
        *user_out = NULL;
    if (user_bytes_out != NULL)
        *user_bytes_out = 0;
    rc = open_file(&l, path, &file_bytes, err);
    if (rc == ATSI_OK)
        rc = judge(&l, s, file_bytes, err);
    if (rc == ATSI_OK)
        rc = alloc(&l, err);
    l.at = rc == ATSI_OK ? atsi_session_head_bytes(&l.head) : 0;
    if (rc == ATSI_OK)
        rc = read_lists(&l, err);
    parts_at = l.at;
    if (rc == ATSI_OK)
        rc = verify_parts(&l, err);
    if (rc == ATSI_OK)
        rc = replace_past(&l, s, parts_at, err);
    if (rc == ATSI_OK && user_out != NULL) {
        *user_out = l.user;
        l.user = NULL;
    }
    if (rc == ATSI_OK && user_bytes_out != NULL)
        *user_bytes_out = (size_t)l.head.user_bytes;
    load_close(&l);
    return rc;
}
