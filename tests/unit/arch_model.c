/* SPDX-License-Identifier: Apache-2.0
 * The model behind the tests of architectures. */
#include "tests/unit/arch_model.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atsinfer/loader.h"
#include "tests/unit/gguf_writer.h"

static void die(const char *what, const char *name)
{
    (void)fprintf(stderr, "arch_model: %s: %s\n", name, what);
    abort();
}

static void *need(void *p)
{
    if (p == NULL)
        die("out of memory", "");
    return p;
}

void am_free(struct am *m)
{
    for (size_t i = 0; i < m->n_keys; i++)
        free(m->keys[i].data);
    for (size_t i = 0; i < m->n_tensors; i++)
        free(m->tensors[i].data);
    free(m->keys);
    free(m->tensors);
    memset(m, 0, sizeof *m);
}

/* ---------------------------------------------------------------- keys */
static struct am_key *find_key(const struct am *m, const char *key)
{
    for (size_t i = 0; i < m->n_keys; i++)
        if (strcmp(m->keys[i].name, key) == 0)
            return &m->keys[i];
    return NULL;
}

static void set_key(struct am *m, const struct am_key *k, const char *name, const void *data)
{
    struct am_key *at = find_key(m, name);
    if (at == NULL) {
        if (m->n_keys == m->cap_keys) {
            m->cap_keys = m->cap_keys * 2 + 32;
            m->keys = need(realloc(m->keys, m->cap_keys * sizeof *m->keys));
        }
        at = &m->keys[m->n_keys++];
        at->data = NULL;
    }
    free(at->data);
    *at = *k;
    (void)snprintf(at->name, sizeof at->name, "%s", name);
    at->data = need(malloc(k->bytes + 1));
    if (k->bytes > 0)
        memcpy(at->data, data, k->bytes);
}

static size_t scalar_bytes(uint32_t type)
{
    switch (type) {
    case ATSI_META_U8:
    case ATSI_META_I8:
    case ATSI_META_BOOL:
        return 1;
    case ATSI_META_U16:
    case ATSI_META_I16:
        return 2;
    case ATSI_META_U64:
    case ATSI_META_I64:
    case ATSI_META_F64:
        return 8;
    default:
        return 4;
    }
}

void am_int(struct am *m, const char *key, uint32_t type, uint64_t v)
{
    struct am_key k = {.type = type, .bytes = scalar_bytes(type)};
    set_key(m, &k, key, &v);
}

void am_u32(struct am *m, const char *key, uint32_t v)
{
    am_int(m, key, ATSI_META_U32, v);
}

void am_f32(struct am *m, const char *key, float v)
{
    struct am_key k = {.type = ATSI_META_F32, .bytes = sizeof v};
    set_key(m, &k, key, &v);
}

void am_str(struct am *m, const char *key, const char *v)
{
    struct am_key k = {.type = ATSI_META_STRING, .bytes = strlen(v)};
    set_key(m, &k, key, v);
}

void am_array(struct am *m, const char *key, uint32_t elem_type, const uint32_t *v, uint64_t n)
{
    size_t size = scalar_bytes(elem_type);
    uint8_t *packed = need(calloc((size_t)n + 1, size));
    struct am_key k = {
        .type = ATSI_META_ARRAY, .elem_type = elem_type, .count = n, .bytes = (size_t)n * size};
    for (uint64_t i = 0; i < n; i++)
        memcpy(packed + i * size, &v[i], size < sizeof *v ? size : sizeof *v);
    set_key(m, &k, key, packed);
    free(packed);
}

void am_drop_key(struct am *m, const char *key)
{
    struct am_key *k = find_key(m, key);
    if (k == NULL)
        die("no such key", key);
    free(k->data);
    m->n_keys--;
    memmove(k, k + 1, (size_t)(m->keys + m->n_keys - k) * sizeof *k);
}

/* ---------------------------------------------------------------- tensors */
static void name_of(char out[AM_NAME], int layer, const char *fmt)
{
    const char *at = strstr(fmt, "%d");
    if (at == NULL)
        (void)snprintf(out, AM_NAME, "%s", fmt);
    else
        (void)snprintf(out, AM_NAME, "%.*s%d%s", (int)(at - fmt), fmt, layer, at + 2);
}

static struct am_tensor *find(const struct am *m, const char *name)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        if (strcmp(m->tensors[i].name, name) == 0)
            return &m->tensors[i];
    return NULL;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* splitmix64, started by the name; -1..1 */
static double next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1.0;
}

static void fill(struct am_tensor *t)
{
    uint64_t n = am_elems(t), state = 1469598103934665603U;
    double mid = 0, size = 0.3;
    for (const char *c = t->name; *c != '\0'; c++)
        state = (state ^ (uint8_t)*c) * 1099511628211U;
    if (ends_with(t->name, "norm.weight")) {
        mid = 1;
    } else if (ends_with(t->name, ".ssm_a")) {
        mid = -0.6;
    } else if (strcmp(t->name, "rope_freqs.weight") == 0) {
        mid = 2;
        size = 1;
    } else if (strstr(t->name, "token_embd") != NULL || strstr(t->name, "conv1d") != NULL) {
        size = 1;
    } else if (ends_with(t->name, "weight") && t->n_dims > 1) {
        size = 2.0 / sqrt((double)t->ne[0]);
    }
    for (uint64_t i = 0; i < n; i++)
        t->data[i] = (float)(mid + size * next_random(&state));
}

uint64_t am_elems(const struct am_tensor *t)
{
    return t->ne[0] * t->ne[1] * t->ne[2];
}

struct am_tensor *am_add(struct am *m, int layer, const char *fmt, uint64_t ne0, uint64_t ne1,
                         uint64_t ne2)
{
    struct am_tensor *t;
    if (m->n_tensors == m->cap_tensors) {
        m->cap_tensors = m->cap_tensors * 2 + 64;
        m->tensors = need(realloc(m->tensors, m->cap_tensors * sizeof *m->tensors));
    }
    t = &m->tensors[m->n_tensors++];
    *t = (struct am_tensor){.n_dims = ne2 != 0   ? 3
                                      : ne1 != 0 ? 2
                                                 : 1,
                            .type = ATSI_TYPE_F32,
                            .ne = {ne0, ne1 != 0 ? ne1 : 1, ne2 != 0 ? ne2 : 1}};
    name_of(t->name, layer, fmt);
    if (m->holes && strcmp(t->name, "rope_freqs.weight") != 0) /* which is read at once */
        return t;
    t->data = need(calloc(am_elems(t), sizeof *t->data));
    fill(t);
    return t;
}

struct am_tensor *am_tensor(struct am *m, int layer, const char *fmt)
{
    char name[AM_NAME];
    struct am_tensor *t;
    name_of(name, layer, fmt);
    t = find(m, name);
    if (t == NULL)
        die("no such tensor", name);
    return t;
}

bool am_has(const struct am *m, int layer, const char *fmt)
{
    char name[AM_NAME];
    name_of(name, layer, fmt);
    return find(m, name) != NULL;
}

void am_drop(struct am *m, int layer, const char *fmt)
{
    struct am_tensor *t = am_tensor(m, layer, fmt);
    free(t->data);
    m->n_tensors--;
    memmove(t, t + 1, (size_t)(m->tensors + m->n_tensors - t) * sizeof *t);
}

/* Elements before one step along `dim`, and blocks of all of `dim`. */
static uint64_t inner(const struct am_tensor *t, uint32_t dim)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < dim; d++)
        n *= t->ne[d];
    return n;
}

static uint64_t outer(const struct am_tensor *t, uint32_t dim)
{
    return am_elems(t) / (inner(t, dim) * t->ne[dim]);
}

void am_join(struct am *m, int layer, const char *out, uint32_t dim, const char *const *parts,
             size_t n)
{
    const struct am_tensor *first = am_tensor(m, layer, parts[0]);
    uint64_t ne[3] = {first->ne[0], first->ne[1], first->ne[2]}, step = inner(first, dim), at = 0;
    uint32_t n_dims = first->n_dims;
    struct am_tensor *joined;
    for (size_t p = 1; p < n; p++)
        ne[dim] += am_tensor(m, layer, parts[p])->ne[dim];
    joined = am_add(m, layer, out, ne[0], ne[1], ne[2]);
    joined->n_dims = n_dims;
    for (size_t p = 0; p < n; p++) {
        const struct am_tensor *t = am_tensor(m, layer, parts[p]);
        uint64_t len = t->ne[dim] * step;
        for (uint64_t o = 0; o < outer(t, dim); o++)
            memcpy(joined->data + (o * ne[dim] * step + at), t->data + o * len,
                   len * sizeof(float));
        at += len;
    }
    for (size_t p = 0; p < n; p++)
        am_drop(m, layer, parts[p]);
}

void am_pick(struct am_tensor *t, uint32_t dim, const uint32_t *from, uint64_t n)
{
    uint64_t step = inner(t, dim), old = t->ne[dim], blocks = outer(t, dim);
    float *data = need(calloc(step * n * blocks, sizeof *data));
    for (uint64_t o = 0; o < blocks; o++)
        for (uint64_t i = 0; i < n; i++)
            memcpy(data + (o * n + i) * step, t->data + (o * old + from[i]) * step,
                   step * sizeof *data);
    free(t->data);
    t->data = data;
    t->ne[dim] = n;
}

void am_copy(struct am *m, int layer, const char *from, const char *to)
{
    struct am_tensor *t = am_tensor(m, layer, from);
    size_t at = (size_t)(t - m->tensors);
    struct am_tensor *copy = am_add(m, layer, to, t->ne[0], t->ne[1], t->ne[2]);
    copy->n_dims = m->tensors[at].n_dims;
    memcpy(copy->data, m->tensors[at].data, am_elems(copy) * sizeof *copy->data);
}

void am_clone(const struct am *m, struct am *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->arch, m->arch, sizeof out->arch);
    out->n_vocab = m->n_vocab;
    out->holes = m->holes;
    for (size_t i = 0; i < m->n_keys; i++)
        set_key(out, &m->keys[i], m->keys[i].name, m->keys[i].data);
    for (size_t i = 0; i < m->n_tensors; i++) {
        const struct am_tensor *t = &m->tensors[i];
        struct am_tensor *copy = am_add(out, -1, t->name, t->ne[0], t->ne[1], t->ne[2]);
        copy->n_dims = t->n_dims;
        copy->type = t->type;
        if (t->data != NULL && copy->data != NULL)
            memcpy(copy->data, t->data, am_elems(t) * sizeof *t->data);
    }
}

/* ---------------------------------------------------------------- the file */
static void write_key(struct gw *w, const struct am *m, const struct am_key *k)
{
    char name[AM_NAME + sizeof m->arch];
    (void)snprintf(name, sizeof name, "%s%s", k->name[0] == '.' ? m->arch : "", k->name);
    gw_key(w, name, k->type);
    if (k->type == ATSI_META_STRING) {
        gw_str(w, k->data, k->bytes);
        return;
    }
    if (k->type == ATSI_META_ARRAY) {
        gw_int(w, k->elem_type, 4);
        gw_int(w, k->count, 8);
    }
    gw_bytes(w, k->data, k->bytes);
}

static void write_tokens(struct gw *w, uint32_t n)
{
    char text[16];
    if (n == 0)
        return;
    gw_key(w, "tokenizer.ggml.tokens", ATSI_META_ARRAY);
    gw_int(w, ATSI_META_STRING, 4);
    gw_int(w, n, 8);
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(text, sizeof text, "t%u", i);
        gw_str(w, text, strlen(text));
    }
}

static uint64_t padded(const struct am_tensor *t)
{
    return (atsi_row_bytes(t->type, t->ne[0]) * t->ne[1] * t->ne[2] + 31) / 32 * 32;
}

static void write_head(struct gw *w, const struct am *m)
{
    uint64_t at = 0;
    gw_header(w, 3, m->n_tensors, m->n_keys + 1 + (m->n_vocab != 0 ? 1 : 0));
    gw_kv_str(w, "general.architecture", m->arch);
    for (size_t i = 0; i < m->n_keys; i++)
        write_key(w, m, &m->keys[i]);
    write_tokens(w, m->n_vocab);
    for (size_t i = 0; i < m->n_tensors; i++) {
        const struct am_tensor *t = &m->tensors[i];
        gw_tensor(w, t->name, t->n_dims, t->ne, t->type, at);
        at += padded(t);
    }
    gw_pad(w, 32);
}

size_t am_head_bytes(const struct am *m)
{
    struct gw w = {0};
    size_t n;
    write_head(&w, m);
    n = w.n;
    gw_free(&w);
    return n;
}

static bool write_all(int fd, const void *data, uint64_t n)
{
    const char *p = data;
    while (n > 0) {
        ssize_t done = write(fd, p, n);
        if (done <= 0)
            return false;
        p += done;
        n -= (uint64_t)done;
    }
    return true;
}

bool am_save(const struct am *m, const char *path)
{
    struct gw w = {0};
    uint64_t at;
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    bool ok;
    if (fd < 0)
        die(strerror(errno), path);
    write_head(&w, m);
    at = w.n;
    ok = write_all(fd, w.p, w.n);
    for (size_t i = 0; i < m->n_tensors && ok; i++) {
        const struct am_tensor *t = &m->tensors[i];
        if (t->data != NULL)
            ok = lseek(fd, (off_t)at, SEEK_SET) >= 0 &&
                 write_all(fd, t->data, am_elems(t) * sizeof *t->data);
        at += padded(t);
    }
    ok = ok && ftruncate(fd, (off_t)at) == 0;
    gw_free(&w);
    return close(fd) == 0 && ok;
}
