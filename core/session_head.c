/* SPDX-License-Identifier: Apache-2.0
 *
 * The head of a session file: a fixed part, one entry per KV cache and state, and a checksum over
 * both.  All numbers are little-endian.
 *
 *   fixed (200 bytes)                            entry (56 bytes)
 *     0  magic "ATSISESS"                          0  kind, 1: cache, 2: state
 *     8  version                                   4  layer
 *    12  bytes of the head                         8  3 x u64 shape
 *    16  u64 bytes of the file                    32  window
 *    24  3 x u64 fingerprint of the model         36  0
 *    48  vocabulary                               40  u64 bytes
 *    52  positions                                48  u64 checksum
 *    56  lowest position to cut to
 *    60  type of keys, 64: of values            last: u64 checksum of all before it
 *    68  caches, 72: states, 76: 0
 *    80  u64 bytes of the application
 *    88  u64 checksum of tokens, 96: of those bytes
 *   104  char[32] architecture, 136: char[64] name of the model
 *
 * Behind it: tokens, the application's bytes, and the parts in the order of their entries.
 */
#include "core/session_head.h"

#include "core/memory.h"
#include "core/session_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define VERSION 1u
#define FIXED_BYTES 200u
#define PART_BYTES 56u
#define SUM_BYTES 8u
/* Far more than any model has; keeps what a bad file can ask for small. */
#define MAX_PARTS 16384u
#define MAX_PAST ((uint32_t)INT32_MAX)

static const char magic[8] = {'A', 'T', 'S', 'I', 'S', 'E', 'S', 'S'};

/* ---------------------------------------------------------------- numbers */
static void put(unsigned char *at, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t get(const unsigned char *at, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)at[i] << (8 * i);
    return v;
}

static uint32_t get32(const unsigned char *at)
{
    return (uint32_t)get(at, 4);
}

int atsi_read_at(int fd, uint64_t at, void *p, size_t n, const char *name, struct atsi_err *err)
{
    for (size_t done = 0; done < n;) {
        uint64_t here = at + done;
        ssize_t got = pread(fd, (char *)p + done, n - done, (off_t)here);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return atsi_fail(err, ATSI_EIO, "%s: cannot be read: %s", name, strerror(errno));
        if (got == 0)
            return atsi_fail(err, ATSI_EFORMAT, "%s: ends at byte %llu, where %zu more belong",
                             name, (unsigned long long)here, n - done);
        done += (size_t)got;
    }
    return ATSI_OK;
}

/* ---------------------------------------------------------------- from a session */
static void make_part(const struct atsi_session *s, uint32_t part, struct atsi_part_head *out)
{
    if (part < s->g->n_kv) {
        const struct atsi_graph_kv *kv = s->g->kv[part];
        *out = (struct atsi_part_head){.kind = ATSI_PART_KV,
                                       .layer = kv->layer,
                                       .shape = {kv->n_head_kv, kv->head_dim_k, kv->head_dim_v},
                                       .window = kv->window};
    } else {
        const struct atsi_graph_state *st = s->g->states[part - s->g->n_kv];
        *out = (struct atsi_part_head){.kind = ATSI_PART_STATE,
                                       .layer = st->layer,
                                       .shape = {st->ne[0], st->ne[1], st->ne[2]}};
    }
}

int atsi_session_head_make(const struct atsi_session *s, uint32_t n_past, uint32_t rewind_low,
                           struct atsi_session_head *out, struct atsi_err *err)
{
    uint32_t n = atsi_session_n_parts(s);
    int rc;
    *out = (struct atsi_session_head){.n_vocab = s->g->n_vocab,
                                      .n_past = n_past,
                                      .rewind_low = rewind_low,
                                      .type_k = s->type_k,
                                      .type_v = s->type_v,
                                      .n_kv = s->g->n_kv,
                                      .n_states = s->g->n_states};
    rc = atsi_model_fingerprint(s->model, &out->model, err);
    if (rc != ATSI_OK)
        return rc;
    if (n > MAX_PARTS)
        return atsi_fail(err, ATSI_ENOTSUP, "session files hold %u caches and states, this has %u",
                         MAX_PARTS, n);
    out->parts = calloc((size_t)n + 1, sizeof *out->parts);
    if (out->parts == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the head of a session file");
    for (uint32_t p = 0; p < n; p++) {
        uint32_t first = atsi_session_part_first(s, p, rewind_low);
        size_t bytes = 0;
        make_part(s, p, &out->parts[p]);
        if (!atsi_session_part_bytes(s, p, first, n_past, &bytes)) {
            atsi_session_head_free(out);
            return atsi_fail(err, ATSI_ENOFIT, "%u positions of a KV cache overflow memory",
                             n_past);
        }
        out->parts[p].bytes = bytes;
    }
    return ATSI_OK;
}

void atsi_session_head_free(struct atsi_session_head *h)
{
    free(h->parts);
    h->parts = NULL;
}

/* ---------------------------------------------------------------- sizes */
uint64_t atsi_session_head_bytes(const struct atsi_session_head *h)
{
    return FIXED_BYTES + ((uint64_t)h->n_kv + h->n_states) * PART_BYTES + SUM_BYTES;
}

/* False on overflow. */
static bool file_bytes(const struct atsi_session_head *h, uint64_t *out)
{
    uint64_t sum = atsi_session_head_bytes(h) + (uint64_t)h->n_past * sizeof(int32_t);
    if (__builtin_add_overflow(sum, h->user_bytes, &sum))
        return false;
    for (uint32_t p = 0; p < h->n_kv + h->n_states; p++)
        if (__builtin_add_overflow(sum, h->parts[p].bytes, &sum))
            return false;
    *out = sum;
    return true;
}

uint64_t atsi_session_file_bytes(const struct atsi_session_head *h)
{
    uint64_t bytes = 0;
    (void)file_bytes(h, &bytes);
    return bytes;
}

/* ---------------------------------------------------------------- encoding */
static void encode_part(const struct atsi_part_head *p, unsigned char *at)
{
    put(at, p->kind, 4);
    put(at + 4, (uint32_t)p->layer, 4);
    for (int d = 0; d < 3; d++)
        put(at + 8 + 8 * d, p->shape[d], 8);
    put(at + 32, p->window, 4);
    put(at + 40, p->bytes, 8);
    put(at + 48, p->sum, 8);
}

static void encode_fixed(const struct atsi_session_head *h, unsigned char *at)
{
    const uint32_t words[] = {h->n_vocab, h->n_past, h->rewind_low, h->type_k,
                              h->type_v,  h->n_kv,   h->n_states};
    const uint64_t longs[] = {h->user_bytes, h->tokens_sum, h->user_sum};
    memcpy(at, magic, sizeof magic);
    put(at + 8, VERSION, 4);
    put(at + 12, atsi_session_head_bytes(h), 4);
    put(at + 16, atsi_session_file_bytes(h), 8);
    put(at + 24, h->model.tensors, 8);
    put(at + 32, h->model.meta, 8);
    put(at + 40, h->model.weights, 8);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        put(at + 48 + 4 * i, words[i], 4);
    for (size_t i = 0; i < sizeof longs / sizeof longs[0]; i++)
        put(at + 80 + 8 * i, longs[i], 8);
    memcpy(at + 104, h->model.arch, sizeof h->model.arch);
    memcpy(at + 136, h->model.name, sizeof h->model.name);
}

unsigned char *atsi_session_head_encode(const struct atsi_session_head *h)
{
    size_t bytes = (size_t)atsi_session_head_bytes(h);
    unsigned char *at = calloc(1, bytes);
    if (at == NULL)
        return NULL;
    encode_fixed(h, at);
    for (uint32_t p = 0; p < h->n_kv + h->n_states; p++)
        encode_part(&h->parts[p], at + FIXED_BYTES + (size_t)p * PART_BYTES);
    put(at + bytes - SUM_BYTES, XXH3_64bits(at, bytes - SUM_BYTES), 8);
    return at;
}

/* ---------------------------------------------------------------- decoding */
static void decode_part(const unsigned char *at, struct atsi_part_head *out)
{
    *out = (struct atsi_part_head){.kind = get32(at),
                                   .layer = (int32_t)get32(at + 4),
                                   .window = get32(at + 32),
                                   .bytes = get(at + 40, 8),
                                   .sum = get(at + 48, 8)};
    for (int d = 0; d < 3; d++)
        out->shape[d] = get(at + 8 + 8 * d, 8);
}

static void decode_fixed(const unsigned char *at, struct atsi_session_head *out)
{
    *out = (struct atsi_session_head){.model.tensors = get(at + 24, 8),
                                      .model.meta = get(at + 32, 8),
                                      .model.weights = get(at + 40, 8),
                                      .n_vocab = get32(at + 48),
                                      .n_past = get32(at + 52),
                                      .rewind_low = get32(at + 56),
                                      .type_k = get32(at + 60),
                                      .type_v = get32(at + 64),
                                      .n_kv = get32(at + 68),
                                      .n_states = get32(at + 72),
                                      .user_bytes = get(at + 80, 8),
                                      .tokens_sum = get(at + 88, 8),
                                      .user_sum = get(at + 96, 8)};
    /* They go to terminals: what was written may not be what is read. */
    atsi_label_copy(out->model.arch, sizeof out->model.arch, (const char *)at + 104,
                    sizeof out->model.arch);
    atsi_label_copy(out->model.name, sizeof out->model.name, (const char *)at + 136,
                    sizeof out->model.name);
}

/* What must be known before the rest of the head can be read. */
static int check_start(const unsigned char *fixed, const char *name, struct atsi_err *err)
{
    uint32_t version = get32(fixed + 8), bytes = get32(fixed + 12);
    uint64_t parts = (uint64_t)get32(fixed + 68) + get32(fixed + 72);
    if (memcmp(fixed, magic, sizeof magic) != 0)
        return atsi_fail(err, ATSI_EFORMAT, "%s: not a session file", name);
    if (version != VERSION)
        return atsi_fail(err, ATSI_ENOTSUP,
                         "%s: session file of version %u; this program reads version %u", name,
                         version, VERSION);
    if (parts > MAX_PARTS || bytes != FIXED_BYTES + parts * PART_BYTES + SUM_BYTES)
        return atsi_fail(err, ATSI_EFORMAT,
                         "%s: damaged: a head of %u bytes does not describe %llu caches and states",
                         name, bytes, (unsigned long long)parts);
    return ATSI_OK;
}

/* Of a head whose checksum is right: a writer's mistake, or a forgery. */
static int check_values(const struct atsi_session_head *h, const char *name, struct atsi_err *err)
{
    if (h->n_past > MAX_PAST || h->rewind_low > h->n_past)
        return atsi_fail(err, ATSI_EFORMAT, "%s: malformed: %u tokens, to be cut down to %u", name,
                         h->n_past, h->rewind_low);
    if (h->user_bytes > ATSI_SESSION_USER_MAX)
        return atsi_fail(err, ATSI_EFORMAT,
                         "%s: malformed: %llu bytes of the application, at most %llu are allowed",
                         name, (unsigned long long)h->user_bytes,
                         (unsigned long long)ATSI_SESSION_USER_MAX);
    for (uint32_t p = 0; p < h->n_kv + h->n_states; p++)
        if (h->parts[p].kind != (p < h->n_kv ? ATSI_PART_KV : ATSI_PART_STATE))
            return atsi_fail(err, ATSI_EFORMAT, "%s: malformed: part %u is of kind %u", name, p,
                             h->parts[p].kind);
    return ATSI_OK;
}

static int check_size(const struct atsi_session_head *h, uint64_t stored, uint64_t actual,
                      const char *name, struct atsi_err *err)
{
    uint64_t sum;
    if (!file_bytes(h, &sum) || sum != stored)
        return atsi_fail(err, ATSI_EFORMAT, "%s: malformed: the sizes of its parts do not add up",
                         name);
    if (actual < stored)
        return atsi_fail(err, ATSI_EFORMAT, "%s: cut short: %llu of %llu bytes", name,
                         (unsigned long long)actual, (unsigned long long)stored);
    if (actual > stored)
        return atsi_fail(err, ATSI_EFORMAT, "%s: %llu bytes too long: %llu, the head says %llu",
                         name, (unsigned long long)(actual - stored), (unsigned long long)actual,
                         (unsigned long long)stored);
    return ATSI_OK;
}

/* `at`: the whole head. */
static int decode(const unsigned char *at, uint64_t actual, const char *name,
                  struct atsi_session_head *out, struct atsi_err *err)
{
    size_t bytes = get32(at + 12);
    int rc;
    if (get(at + bytes - SUM_BYTES, 8) != XXH3_64bits(at, bytes - SUM_BYTES))
        return atsi_fail(err, ATSI_EFORMAT, "%s: damaged: the checksum of its head is wrong", name);
    decode_fixed(at, out);
    out->parts = calloc((size_t)out->n_kv + out->n_states + 1, sizeof *out->parts);
    if (out->parts == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "%s: out of memory for its head", name);
    for (uint32_t p = 0; p < out->n_kv + out->n_states; p++)
        decode_part(at + FIXED_BYTES + (size_t)p * PART_BYTES, &out->parts[p]);
    rc = check_values(out, name, err);
    if (rc == ATSI_OK)
        rc = check_size(out, get(at + 16, 8), actual, name, err);
    if (rc != ATSI_OK)
        atsi_session_head_free(out);
    return rc;
}

int atsi_session_head_read(int fd, uint64_t file_bytes_now, const char *name,
                           struct atsi_session_head *out, struct atsi_err *err)
{
    unsigned char fixed[FIXED_BYTES], *head;
    size_t bytes, start = file_bytes_now < sizeof magic ? (size_t)file_bytes_now : sizeof magic;
    int rc = atsi_read_at(fd, 0, fixed, start, name, err);
    if (rc != ATSI_OK)
        return rc;
    if (start == 0 || memcmp(fixed, magic, start) != 0)
        return atsi_fail(err, ATSI_EFORMAT, "%s: %s", name,
                         start == 0 ? "empty: not a session file" : "not a session file");
    if (file_bytes_now < sizeof fixed)
        return atsi_fail(err, ATSI_EFORMAT, "%s: cut short: %llu bytes, the head alone has %u",
                         name, (unsigned long long)file_bytes_now, FIXED_BYTES + SUM_BYTES);
    rc = atsi_read_at(fd, 0, fixed, sizeof fixed, name, err);
    if (rc == ATSI_OK)
        rc = check_start(fixed, name, err);
    if (rc != ATSI_OK)
        return rc;
    bytes = get32(fixed + 12);
    if (file_bytes_now < bytes)
        return atsi_fail(err, ATSI_EFORMAT, "%s: cut short: %llu bytes, the head alone has %zu",
                         name, (unsigned long long)file_bytes_now, bytes);
    head = malloc(bytes);
    if (head == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "%s: out of memory for a head of %zu bytes", name,
                         bytes);
    rc = atsi_read_at(fd, 0, head, bytes, name, err);
    /* The size and start that were judged are those that are used. */
    if (rc == ATSI_OK && memcmp(head, fixed, sizeof fixed) != 0)
        rc = atsi_fail(err, ATSI_EFORMAT, "%s: changes while it is read", name);
    if (rc == ATSI_OK)
        rc = decode(head, file_bytes_now, name, out, err);
    free(head);
    return rc;
}

/* ---------------------------------------------------------------- does it suit? */
static const char *type_name(uint32_t type)
{
    const struct atsi_type_info *info = type < ATSI_TYPE_COUNT ? atsi_type_info(type) : NULL;
    return info != NULL ? info->name : "unknown";
}

static int check_model(const struct atsi_session_head *file, const struct atsi_session_head *mine,
                       const char *name, struct atsi_err *err)
{
    const struct atsi_fingerprint *a = &file->model, *b = &mine->model;
    const char *what = NULL;
    if (strcmp(a->arch, b->arch) != 0)
        what = "architectures";
    else if (a->tensors != b->tensors)
        what = "tensors (shapes or quantization)";
    else if (a->meta != b->meta || file->n_vocab != mine->n_vocab)
        what = "settings or vocabularies";
    else if (a->weights != b->weights)
        what = "weights";
    if (what == NULL)
        return ATSI_OK;
    return atsi_fail(err, ATSI_EINVAL,
                     "%s: of another model: the session was saved with \"%s\" (%s), this is \"%s\" "
                     "(%s); their %s differ",
                     name, a->name, a->arch, b->name, b->arch, what);
}

static bool same_part(const struct atsi_part_head *a, const struct atsi_part_head *b)
{
    return a->kind == b->kind && a->layer == b->layer && a->window == b->window &&
           a->bytes == b->bytes && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

int atsi_session_head_match(const struct atsi_session_head *file,
                            const struct atsi_session_head *mine, const char *name,
                            struct atsi_err *err)
{
    int rc = check_model(file, mine, name, err);
    if (rc != ATSI_OK)
        return rc;
    if (file->type_k != mine->type_k || file->type_v != mine->type_v)
        return atsi_fail(err, ATSI_EINVAL,
                         "%s: its KV cache is %s/%s, the session's %s/%s; set kv.type_k and "
                         "kv.type_v",
                         name, type_name(file->type_k), type_name(file->type_v),
                         type_name(mine->type_k), type_name(mine->type_v));
    if (file->n_kv != mine->n_kv || file->n_states != mine->n_states)
        return atsi_fail(err, ATSI_EINVAL,
                         "%s: it holds %u caches and %u states, this model has %u and %u", name,
                         file->n_kv, file->n_states, mine->n_kv, mine->n_states);
    for (uint32_t p = 0; p < mine->n_kv + mine->n_states; p++)
        if (!same_part(&file->parts[p], &mine->parts[p]))
            return atsi_fail(err, ATSI_EINVAL,
                             "%s: %s %u (layer %d, %llu bytes) is not as this model has it (layer "
                             "%d, %llu bytes)",
                             name, p < mine->n_kv ? "cache" : "state",
                             p < mine->n_kv ? p : p - mine->n_kv, file->parts[p].layer,
                             (unsigned long long)file->parts[p].bytes, mine->parts[p].layer,
                             (unsigned long long)mine->parts[p].bytes);
    return ATSI_OK;
}
